"""Learning a tokenizer of any kind from next to nothing: a small vocabulary, or an error that says why not."""

from __future__ import annotations

import warnings

import pytest

from mini_bert.text.bpe import BpeTokenizer
from mini_bert.text.unigram import UnigramTokenizer
from mini_bert.text.wordpiece import WordPieceTokenizer

KINDS = (WordPieceTokenizer, BpeTokenizer, UnigramTokenizer)
RARE = "".join(chr(0x1401 + place) for place in range(90))  # a long word of characters that occur once


def trained(kind, text, vocab_size=300, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return kind.train(iter([text]), vocab_size=vocab_size, progress=False, processes=1, **options)


@pytest.mark.parametrize("kind", KINDS)
def test_text_without_words_is_refused(kind):
    """Nothing can be learnt from nothing; for byte-level BPE, white space is already a word."""
    for text in ("", *(["  \n"] if kind is not BpeTokenizer else [])):
        with pytest.raises(ValueError, match="there is no word in the text, so nothing can be learnt from it"):
            trained(kind, text)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("text", ["a", "a a", "cat", "cat cat", "▁", "▁▁ ▁", "aaaa", "the cat sat"])
def test_fewer_pieces_than_asked_for(kind, text):
    """One character, one word, a mark: the vocabulary is smaller than asked for, and spells the text."""
    tokenizer = trained(kind, text)
    assert len(tokenizer) < 300
    (ids,) = tokenizer.ids([text])
    assert tokenizer.unk_id not in ids
    if kind is not UnigramTokenizer or "▁" not in text:  # there, ▁ is how a space is written
        assert tokenizer.decode(ids) == text
    again = kind.train(iter([text]), vocab_size=len(tokenizer), progress=False, processes=1)
    assert again.fingerprint == tokenizer.fingerprint


@pytest.mark.parametrize("kind", [WordPieceTokenizer, UnigramTokenizer])
def test_fewer_pieces_than_characters_are_refused(kind):
    """Every character keeps its piece; bytes do in byte-level BPE, whatever the text."""
    with pytest.raises(ValueError, match=r"vocab_size is 7, but 5 special tokens .* raise vocab_size"):
        trained(kind, "the cat", vocab_size=7)


@pytest.mark.parametrize("kind", KINDS)
def test_a_long_word_of_rare_characters(kind):
    """It is improbable beyond the range of a float, which is no reason for a NaN: all its characters are learnt."""
    tokenizer = trained(kind, "the cat sat " * 1000 + RARE, vocab_size=600)
    (ids,) = tokenizer.ids([RARE])
    assert tokenizer.unk_id not in ids and tokenizer.decode(ids) == RARE
    assert len(tokenizer.ids(["the cat sat"])[0]) <= 4
