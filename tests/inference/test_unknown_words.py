"""A text that the tokenizer does not know is told, because a model's answers about it look like any others."""

import pytest

from mini_bert.inference.unknown_words import warn_about_unknown
from mini_bert.text.bpe import BpeTokenizer
from mini_bert.text.bpe_conventions import GPT2
from mini_bert.text.byte_level import BYTE_CHARACTERS
from mini_bert.text.wordpiece import SPECIAL_TOKENS, WordPieceTokenizer

WORDS = WordPieceTokenizer([*SPECIAL_TOKENS, "the", "cat", "sat"])


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        (["the cat sat"], ""),
        (["the cat [MASK]"], ""),
        (["the cat dog"], ""),
        (["the dog"], "the text: half of the words or more are unknown"),
        (["dog [MASK]"], "the text: half"),
        (["the cat", "a dog", "", "dogs"], "2 of 4 texts: half"),
        (["[MASK]"], ""),
        (["the cat"] * 1000 + ["dogs"], ""),
        (["dogs"] * 5 + ["the cat"] * 49_995, "5 of the first 1,000 texts: half"),
    ],
)
def test_texts_of_unknown_words(texts, said, caplog):
    warn_about_unknown(WORDS, texts)
    assert caplog.text.count("unknown to the tokenizer") == bool(said) and said in caplog.text


def test_bytes_are_never_unknown(caplog):
    warn_about_unknown(BpeTokenizer([*BYTE_CHARACTERS, "<|endoftext|>"], [], GPT2), ["\x00ξ", "the"])
    assert not caplog.text
