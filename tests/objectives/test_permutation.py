"""Permutation language modelling: which words are predicted, in which order."""

from __future__ import annotations

from itertools import permutations
from types import SimpleNamespace

import numpy as np
import pytest

from mini_bert.common.draws import address
from mini_bert.models.base import MASKED_WORDS
from mini_bert.models.bert import Bert
from mini_bert.objectives.base import Rows
from mini_bert.objectives.permutation import PREDICTED, Permutation, order_of
from mini_bert.text.wordpiece import WordPieceTokenizer
from tests.objectives.stand_ins import CONFIG

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghij", "##x"]
TOKENIZER = WordPieceTokenizer(WORDS)
KEYS = address(0, np.arange(6000))
ROW = np.array([2, *range(5, 15), 5, 6, 3, 0, 0])  # 12 words
ROWS = Rows(np.tile(ROW, (len(KEYS), 1)), lengths=np.full(len(KEYS), 14))


@pytest.fixture(scope="module")
def batch():
    return Permutation.for_tokenizer(TOKENIZER).batch(ROWS, KEYS)


def test_chosen_words_are_numbered_and_all_others_are_context(batch):
    """Two of twelve words are predicted, with the numbers 1 and 2; special tokens and padding never are."""
    np.testing.assert_array_equal(batch.input_ids, ROWS.ids)
    T = len(ROW)
    chosen = np.zeros(batch.order.size, bool)
    chosen[batch.rows] = True
    np.testing.assert_array_equal((batch.order > 0).ravel(), chosen)
    assert (np.sort(batch.order, 1)[:, -2:] == [1, 2]).all() and (np.sort(batch.order, 1)[:, :-2] == 0).all()
    assert set(batch.rows % T) == set(range(1, 13))
    np.testing.assert_array_equal(batch.targets, ROWS.ids.ravel()[batch.rows])
    assert batch.attention_mask.sum() == 14 * len(KEYS)


def test_every_word_and_every_order_is_equally_likely(batch):
    """1/6 of the words; each of the 12 · 11 ordered pairs of places, within five standard deviations."""
    assert pytest.approx(PREDICTED) == batch.rows.size / (12 * len(KEYS))
    first, second = (np.argmax(batch.order == number, axis=1) for number in (1, 2))
    pairs = np.bincount(first * 16 + second, minlength=256)
    expected = len(KEYS) / (12 * 11)
    for one, other in permutations(range(1, 13), 2):
        assert abs(pairs[one * 16 + other] - expected) < 5 * np.sqrt(expected)


def test_the_order_depends_on_the_key_only():
    """The same sequence with the same key, in another batch, has the same order; equal keys give equal orders."""
    objective = Permutation.for_tokenizer(TOKENIZER)
    few = objective.batch(Rows(ROWS.ids[7:9]), KEYS[7:9])
    np.testing.assert_array_equal(few.order, objective.batch(Rows(ROWS.ids[:20]), KEYS[:20]).order[7:9])
    assert (few.order[0] != few.order[1]).any()


def test_by_hand():
    keys = address(3, np.arange(2))
    order = order_of(np.array([1, 3, 4, 7]), (2, 5), keys)
    assert (order > 0).tolist() == [[False, True, False, True, True], [False, False, True, False, False]]
    assert sorted(order[0].tolist()) == [0, 0, 1, 2, 3] and order[1, 2] == 1


def test_spans_and_shares():
    """The words are chosen as for masking: here one run of words, a third of all."""
    objective = Permutation.for_tokenizer(TOKENIZER, mask_prob=1 / 3, span=True)
    found = objective.batch(Rows(ROWS.ids[:500]), KEYS[:500])
    assert objective.arguments == {"mask_prob": 1 / 3, "whole_word": False, "span": True}
    together = [np.ptp(np.flatnonzero(order)) + 1 == np.count_nonzero(order) for order in found.order]
    assert np.mean(together) > 0.3  # single words would be next to each other in 1 of 50 sequences


def test_the_model_gets_the_order():
    """It is an input of the model, whose rows are the chosen ones."""
    objective = Permutation.for_tokenizer(TOKENIZER)
    batch = objective.batch(Rows(ROWS.ids[:3]), KEYS[:3])
    bert, seen = Bert(CONFIG, (MASKED_WORDS,)), []

    def loss_of(inputs, terms, run):
        seen.append((inputs, terms))
        return Bert.loss_of(bert, inputs, terms, run)

    model = SimpleNamespace(check_inputs=bert.check_inputs, loss_of=loss_of)
    ids, order, one = batch.input_ids[:, :11], batch.order[:, :11], np.array([1])
    batch = batch._replace(input_ids=ids, order=order, rows=one, targets=ids.ravel()[one], attention_mask=None)
    objective.forward(model, batch, None, {MASKED_WORDS: 1})
    ((inputs, (term,)),) = seen
    np.testing.assert_array_equal(inputs.order, order)
    assert term.head == MASKED_WORDS and term.rows.tolist() == [1]


def test_a_model_that_ignores_the_order_is_refused():
    """It would see the words that it is to predict."""
    bert = Bert(CONFIG, (MASKED_WORDS,))
    assert Permutation.missing(bert) == ["query stream"]
    with pytest.raises(ValueError, match="a Bert cannot be trained on permutations: it has no query stream"):
        Permutation().check(bert)
    with pytest.raises(TypeError, match="a batch is a tuple, expected a Batch"):
        Permutation().size(())
