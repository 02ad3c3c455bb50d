"""Many texts at once have the ids that each has alone."""

from __future__ import annotations

import threading

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mini_bert.text import bpe_many
from tests.text.test_bpe import CASES, GOLDEN, gpt2, roberta

PARTS = st.one_of(
    st.characters(exclude_categories=["Cs"]),
    st.sampled_from([" ", "  ", "\n", " \n", "\t", "\0", "\u00a0", " \u3000", "'s", "é", "e\u0301", "東京", "😀"]),
    st.sampled_from(
        [" the", " cat", "The", " unaffable,", "(2001)", " international", "x" * 15, " " + "y" * 14, "z" * 70]
    ),
    st.sampled_from(["<mask>", " </s>", "<|endoftext|>", "[MASK]", "  b"]),
)
TEXTS = st.lists(st.lists(PARTS, max_size=8).map("".join), min_size=1, max_size=8)
RULES = [roberta(), gpt2(), roberta(add_prefix_space=True, compose=True), *(tok for tok, _ in CASES)]


@pytest.fixture
def few(monkeypatch):
    """Also few and short texts are spelt together, and new words, however few."""
    monkeypatch.setattr("mini_bert.text.bpe.AT_LEAST", 0)
    monkeypatch.setattr("mini_bert.text.bpe.FEW", 1)


def alone(tok, texts, special=True):
    return [tok._row(text, special) for text in texts]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(TEXTS, st.sampled_from(range(len(RULES))), st.booleans())
def test_any_texts(few, texts, number, special):
    """White space of all kinds, tokens, long words, all of Unicode; under the rules of all models."""
    tok = RULES[number]
    assert tok.ids(texts, special) == alone(tok, texts, special)
    assert [encoding.ids for encoding in tok.encode_batch(texts)] == [tok.encode(text) for text in texts]


def test_texts_are_cut_at_spaces_together(few):
    """The usual texts are found in the table, with words of several pieces; irregular ones are not."""
    tok, texts = gpt2(), ["The cat sat, unaffably", "", "The cat", " the\ncat", "a  b", "a \nb", "a ", " "]
    rows = tok._many.rows(texts)
    assert [row is None for row in rows] == [False, False, False, False, True, True, True, True]
    assert tok._many.rows(texts) == rows and rows[:4] == alone(gpt2(), texts[:4])


def test_new_words_are_spelt_together(few):
    """They are in the cache, as if each had been spelt alone, before one of them is looked up."""
    tok, other = gpt2(), gpt2()
    found = [" unaffable", " cats", "naïve", " ", "x" * 65]
    tok._learn_words(found)
    assert dict(tok._words) == {word: other._word_ids(word) for word in found[:4]}


def test_surrogates(few):
    """Half a pair is refused; a surrogate that stands for a byte is not joined with the next to a character."""
    tok = gpt2()
    assert tok.ids(["a\udcc3\udca9", "b c"]) == alone(gpt2(), ["a\udcc3\udca9", "b c"])
    with pytest.raises(ValueError, match="half of a surrogate pair"):
        tok.ids(["a b", "a \ud83d"])
    with pytest.raises(TypeError, match="expected text"):
        tok.ids(["a b", None])


def test_the_table_is_bounded(few, monkeypatch):
    """It is emptied when it is full, and the ids stay the same."""
    monkeypatch.setattr(bpe_many, "CHUNKS_KEPT", 64)
    tok, other = roberta(), roberta()
    for i in range(0, 300, 9):
        texts = [f"h{n} cat{n}, {n}.{'x' * n}" for n in range(i, i + 9)]
        assert tok.ids(texts) == alone(other, texts)
        assert len(tok._many._borders) <= 64 + 1 + 27


def test_interrupted(few, monkeypatch):
    """After an error in the middle of learning, nothing half-learnt is left."""
    tok, texts = gpt2(), GOLDEN["texts"]
    tok.ids(texts[:3])
    with monkeypatch.context() as patch:
        patch.setattr(bpe_many.ChunkTable, "enter", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            tok.ids(texts)
    assert tok.ids(texts) == alone(gpt2(), texts)


def test_threads(few):
    """Several threads may use one tokenizer: one at a time uses the table, the others spell text by text."""
    tok, found = roberta(), {}
    groups = [[f"{text} {i} {text}" for text in GOLDEN["texts"]] for i in range(8)]
    workers = [threading.Thread(target=lambda i=i: found.update({i: tok.ids(groups[i])})) for i in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [found[i] for i in range(8)] == [alone(roberta(), group) for group in groups]
    with tok._many._lock:
        assert tok._many.rows(["a b"]) == [None] and tok.ids(["a b"]) == alone(tok, ["a b"])
