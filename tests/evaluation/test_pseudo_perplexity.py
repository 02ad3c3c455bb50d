"""The surprise at each token of a sentence, compared with full logits of one masked token at a time."""

from __future__ import annotations

import math

import numpy as np
import pytest

from mini_bert.evaluation.pseudo_perplexity import PseudoPerplexity, Surprise, content, pseudo_perplexity, report
from mini_bert.models.bert import Bert, BertConfig
from mini_bert.models.config import MiniBertConfig
from mini_bert.models.gpt2 import GPT2, GPT2Config
from mini_bert.models.mini import MiniBERT
from mini_bert.text.wordpiece import SPECIAL_TOKENS, WordPieceTokenizer

WORDS = [*SPECIAL_TOKENS, ".", "the", "cat", "sat", "on", "mat", "dog", "##s", "##es"]
V = len(WORDS) + 3  # more ids than words
SIZES = MiniBertConfig(
    V, hidden_size=10, num_layers=2, num_heads=2, intermediate_size=7, max_seq_length=11, dropout=0.5
)
TEXT = "The catses sat ☃ on dogs."  # the cat ##s ##es sat [UNK] on dog ##s .


@pytest.fixture
def tokenizer():
    return WordPieceTokenizer(WORDS)


@pytest.fixture(params=["mini", "published"])
def model(request):
    model = (
        MiniBERT(SIZES, seed=1)
        if request.param == "mini"
        else Bert(BertConfig(V, 10, 2, 2, 7, max_position_embeddings=12), seed=1)
    )
    model.flat.data[...] *= 3  # opinions
    return model


def log_probabilities(model, ids):
    logits = model.forward(np.array([ids]))[0]
    logits = (logits.masked_words if isinstance(model, Bert) else logits)[0].astype(float)
    return logits - np.log(np.exp(logits).sum(-1, keepdims=True))


@pytest.mark.parametrize("whole_words", [False, True])
def test_one_token_is_masked_at_a_time(model, tokenizer, whole_words):
    """Tokens, surprise, the best guess and its probability, sum and mean; [UNK] is context, but not predicted."""
    text = "The catses ☃ dogs." if isinstance(model, MiniBERT) else TEXT
    ids = tokenizer.encode(text)
    words = tokenizer.encode_batch([text])[0].word_ids
    wanted, surprises = [], []
    for place, own in enumerate(ids):
        if own < 5:
            continue
        hidden = [
            4 if i == place or (whole_words and i > place and words[i] == words[place]) else token
            for i, token in enumerate(ids)
        ]
        log_p = log_probabilities(model, hidden)[place]
        best = 5 + int(log_p[5 : len(WORDS)].argmax())
        wanted.append((WORDS[own], WORDS[best]))
        surprises.append((-log_p[own], math.exp(log_p[best])))
    model.set_training(True)  # dropout is off even then
    found = pseudo_perplexity(model, tokenizer, text, whole_words)
    assert [(one.token, one.guess) for one in found.tokens] == wanted
    np.testing.assert_allclose([(one.surprise, one.certainty) for one in found.tokens], surprises, rtol=1e-4)
    total = sum(surprise for surprise, _ in surprises)
    assert found.log_likelihood == pytest.approx(-total, rel=1e-5)
    assert found.perplexity == pytest.approx(math.exp(total / len(wanted)), rel=1e-4)
    assert found.unknown == ["[UNK]"] and found.text == text


def test_the_size_of_a_batch_changes_nothing(model, tokenizer):
    """Batches of seven, two and one token give the same."""
    wanted = pseudo_perplexity(model, tokenizer, "The cat sat on dogs.")
    assert len(wanted.tokens) == 7
    for size in (1, 2, 7):
        found = pseudo_perplexity(model, tokenizer, "The cat sat on dogs.", batch_size=size)
        assert found.perplexity == pytest.approx(wanted.perplexity, rel=1e-5)
        assert [one.token for one in found.tokens] == [one.token for one in wanted.tokens]


def test_only_words_of_several_pieces_differ(model, tokenizer):
    """`whole_words` changes only tokens that are followed by pieces of the same word."""
    plain, whole = (pseudo_perplexity(model, tokenizer, "The cats sat.", whole) for whole in (False, True))
    changed = [a.token for a, b in zip(plain.tokens, whole.tokens, strict=True) if abs(a.surprise - b.surprise) > 1e-4]
    assert changed == ["cat"]


def test_no_opinion(tokenizer):
    """If all weights are 0, the pseudo-perplexity is the number of ids."""
    model = MiniBERT(SIZES)
    model.flat.data[...] = 0
    assert pseudo_perplexity(model, tokenizer, "The cat sat.").perplexity == pytest.approx(V)


def test_a_broken_model(tokenizer):
    """NaN weights are not measured: the error says that the scores are not finite."""
    model = MiniBERT(SIZES)
    model.flat.data[...] = np.nan
    with np.errstate(invalid="ignore"), pytest.raises(ValueError, match="the scores of words are not finite"):
        pseudo_perplexity(model, tokenizer, "The cat sat.")


def test_errors(model, tokenizer):
    """No word, too many tokens, batch size 0, no head: each error says what to do."""
    for text in ("", "☃ ☃", "[MASK]"):
        with pytest.raises(ValueError, match="has no word in the model's vocabulary"):
            pseudo_perplexity(model, tokenizer, text)
    with pytest.raises(
        ValueError, match=r"has 22 tokens, .* is configured for at most 1[12]; give one sentence at a time"
    ):
        pseudo_perplexity(model, tokenizer, "the cat " * 10)
    with pytest.raises(ValueError, match="batch_size is 0"):
        pseudo_perplexity(model, tokenizer, "the cat", batch_size=0)
    headless = Bert(BertConfig(V, 10, 1, 2, 7), output_heads=("pooler",))
    with pytest.raises(ValueError, match="no head for masked words"):
        pseudo_perplexity(headless, tokenizer, "the cat")


def test_as_long_as_the_model_allows(tokenizer):
    """Eleven tokens with [CLS] and [SEP] fit into eleven positions."""
    assert len(pseudo_perplexity(MiniBERT(SIZES), tokenizer, "the " * 9).tokens) == 9


def test_the_report():
    """A row per token, one scale for all bars, the model's guess only where it differs, and the best text."""
    likely = PseudoPerplexity(
        "a cat", [Surprise("a", 0.0, "a", 1.0), Surprise("cat", 4.0, "dog", 0.25)], [], -4.0, 7.39
    )
    odd = PseudoPerplexity("cat ☃ a", [Surprise("cat", 8.0, "a", 0.5)], ["[UNK]"], -8.0, 2981.0)
    lines = report([odd, likely]).splitlines()
    assert lines[1].split()[:4] == ["cat", "8.00", "a", "50%"] and lines[1].count(lines[1][-1]) == 24
    assert lines[2] == "pseudo-perplexity 2,981.00 over 1 token; not predicted: [UNK]"
    assert lines[5] == "  a     0.00"
    assert lines[6].split()[:4] == ["cat", "4.00", "dog", "25%"] and lines[6].count(lines[6][-1]) == 12
    assert lines[7] == "pseudo-perplexity 7.39 over 2 tokens"
    assert "least surprised" not in report([odd, likely]) + report([odd])  # of unlike length, or alone
    longer, shorter = odd._replace(tokens=odd.tokens * 5), likely._replace(tokens=likely.tokens * 2)
    assert "The model is least surprised by: a cat" in report([longer, shorter]).splitlines()
    assert content(odd) == {
        "text": "cat ☃ a",
        "pseudo_perplexity": 2981.0,
        "scored_by": "masked_words",
        "log_likelihood": -8.0,
        "tokens": [("cat", 8.0, "a", 0.5)],
        "not_asked_for": ["[UNK]"],
    }


def test_a_model_that_reads_forward_has_an_ordinary_perplexity(tokenizer):
    """exp of the mean of −log p(token | the tokens before it), and the report says so."""
    model = GPT2(GPT2Config(V, 12, 10, 2, 2), dtype=np.float64)
    model.flat.data[...] += 0.3 * np.random.default_rng(0).normal(size=model.flat.data.size)
    result = pseudo_perplexity(model, tokenizer, "the cat sat")
    ids = [tokenizer.sep_id, *tokenizer.ids(["the cat sat"])[0]]
    logits = model.forward([ids])[0].next_word[0]
    log_p = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    assert math.log(result.perplexity) == pytest.approx(-np.mean([log_p[i, ids[i + 1]] for i in range(3)]))
    text = report([result])
    assert "\nperplexity " in text and "given those before it" in text and "seudo" not in text
