"""Masks are filled with the words that the full logits give, and impossible requests get a one-sentence error."""

from __future__ import annotations

import json

import numpy as np
import pytest

from mini_bert.cli import use
from mini_bert.inference.fill_mask import Filled, Guess, fill_mask, report
from mini_bert.models.bert import Bert, BertConfig
from mini_bert.models.config import MiniBertConfig
from mini_bert.models.mini import MiniBERT
from mini_bert.text.wordpiece import SPECIAL_TOKENS, WordPieceTokenizer

WORDS = [*SPECIAL_TOKENS, ".", "the", "cat", "sat", "on", "mat", "dog", "##s"]
SIZES = MiniBertConfig(vocab_size=17, hidden_size=10, num_layers=2, num_heads=2, intermediate_size=7, max_seq_length=11)
TEXT = "The [MASK] sat on the [MASK]."


@pytest.fixture
def tokenizer():
    return WordPieceTokenizer(WORDS)


MODELS = [MiniBERT(SIZES, seed=5), Bert(BertConfig(17, 10, 2, 2, 7, max_position_embeddings=11), seed=5)]


@pytest.mark.parametrize("model", MODELS, ids=["mini", "published"])
def test_the_words_of_the_full_logits(model, tokenizer):
    """Words and probabilities equal those of `forward` over all tokens; ids beyond the vocabulary are not offered."""
    model.flat.data[...] *= 3
    filled = fill_mask(model, tokenizer, TEXT, top=4)
    logits = model.forward([tokenizer.encode(TEXT)])[0]
    logits = (logits.masked_words if isinstance(model, Bert) else logits)[0].astype(float)
    for place, guesses in zip((2, 6), filled.gaps, strict=True):
        probs = np.exp(logits[place]) / np.exp(logits[place]).sum()
        best = sorted(range(5, 13), key=lambda i: -probs[i])[:4]
        assert [guess.id for guess in guesses] == best
        assert [guess.word for guess in guesses] == [WORDS[i] for i in best]
        assert [guess.probability for guess in guesses] == pytest.approx(probs[best], rel=1e-4)


def test_it_can_fill_what_it_was_taught(tokenizer):
    """If the head prefers one word, that word comes first and is filled in; ## pieces join the word before."""
    model = MiniBERT(SIZES)
    model.head.b.data[WORDS.index("dog")] = 9
    filled = fill_mask(model, tokenizer, TEXT)
    assert filled.text == "The dog sat on the dog."
    assert [len(guesses) for guesses in filled.gaps] == [5, 5]
    assert filled.gaps[0][0].word == "dog" and filled.gaps[0][0].probability > 0.9
    model.head.b.data[WORDS.index("##s")] = 19
    assert fill_mask(model, tokenizer, "The dog [MASK] sat", top=99).text == "The dogs sat"
    assert len(fill_mask(model, tokenizer, "The dog [MASK] sat", top=99).gaps[0]) == len(WORDS) - 5


def test_errors(tokenizer):
    """No mask, a misspelt mask, a text that is too long, no guesses requested, a model without a head."""
    model = MiniBERT(SIZES)
    with pytest.raises(ValueError, match=r"no \[MASK\] in the text 'The cat'; put one .* such as"):
        fill_mask(model, tokenizer, "The cat")
    with pytest.raises(ValueError, match=r"it has \[mask\], write \[MASK\] instead"):
        fill_mask(model, tokenizer, "The [mask] sat")
    with pytest.raises(ValueError, match=r"has 13 tokens, .* but this model is configured for at most 11"):
        fill_mask(model, tokenizer, "the " * 10 + "[MASK]")
    with pytest.raises(ValueError, match="top is 0"):
        fill_mask(model, tokenizer, TEXT, top=0)
    encoder = Bert(BertConfig(17, 10, 1, 2, 7), output_heads=("pooler",))
    with pytest.raises(ValueError, match=r"no head for masked words.*mini-bert embed"):
        fill_mask(encoder, tokenizer, TEXT)


def test_the_report_is_aligned():
    """Words, probabilities and bars are in columns; several masks have titles."""
    guesses = [Guess("cat", 0.5, 7), Guess("elephant", 0.25, 8)]
    lines = report(Filled([guesses], "the cat", "[MASK]")).splitlines()
    assert lines[0].startswith("  cat        50.0%  ") and lines[1].startswith("  elephant   25.0%  ")
    assert lines[-1] == "the cat"
    assert len(lines[0].split()[-1]) == 12
    titled = report(Filled([guesses] * 2, "the cat cat", "[MASK]")).splitlines()
    assert titled[0] == "1st [MASK]" and "2nd [MASK]" in titled


def test_the_command(tmp_path, tokenizer, capsys):
    """The command prints a table or JSON."""
    MiniBERT(SIZES).save_pretrained(tmp_path)
    tokenizer.save(tmp_path)
    use.fill_mask(TEXT, str(tmp_path), top=2)
    assert "2nd [MASK]" in capsys.readouterr().out
    use.fill_mask(TEXT, str(tmp_path), top=2, json=True)
    content = json.loads(capsys.readouterr().out)
    assert [len(guesses) for guesses in content["masks"]] == [2, 2]
    assert content["filled"].startswith("The ") and content["text"] == TEXT
