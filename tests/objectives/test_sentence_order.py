"""Sentence order: are two parts of a text in their order or swapped?"""

from __future__ import annotations

import numpy as np
import pytest

from mini_bert.data.generator import TextBatches
from mini_bert.data.shards import prepare
from mini_bert.layers.base import Run
from mini_bert.layers.linear import Linear
from mini_bert.models.base import MASKED_WORDS, NEXT_SENTENCE, POOLER, SENTENCE_ORDER
from mini_bert.models.bert import Bert
from mini_bert.objectives.masked_words import Batch, MaskedWordsAndSentences
from mini_bert.objectives.sentence_order import MaskedWordsAndOrder
from mini_bert.text.wordpiece import WordPieceTokenizer
from tests.objectives.stand_ins import CONFIG, V, check_gradients

IDS = np.random.default_rng(0).integers(5, V, (3, 7))
BATCH = Batch(IDS, np.array([1, 9, 20]), np.array([7, 5, 18]), None, (IDS > 8).astype(int), np.array([0, 1, 1]))


class Ordered(Bert):
    """BERT with ALBERT's head."""

    head_shapes = {MASKED_WORDS: "(B,T,V)", POOLER: "(B,H)", SENTENCE_ORDER: "(B,2)"}  # noqa: RUF012
    head_inputs = {SENTENCE_ORDER: POOLER}  # noqa: RUF012

    def __init__(self):
        super().__init__(CONFIG, (MASKED_WORDS, POOLER), seed=None, dtype=np.float64)
        self.sentence_order = Linear(CONFIG.hidden_size, 2, std=0.5)
        self._own_memory(0, np.float64)


def test_it_is_next_sentence_with_another_head():
    """With the same weights in the head, both objectives give the same numbers."""
    model, other = Ordered(), Bert(CONFIG, seed=None, dtype=np.float64)
    ours = model.named_params()
    for name, param in other.named_params().items():
        param.data[...] = ours[name.replace(NEXT_SENTENCE, SENTENCE_ORDER)].data
    order, following = MaskedWordsAndOrder(), MaskedWordsAndSentences()
    found = order.loss(model, BATCH, Run(), order.size(BATCH).targets)
    wanted = following.loss(other, BATCH, Run(), following.size(BATCH).targets)
    assert found == {name.replace(NEXT_SENTENCE, SENTENCE_ORDER): part for name, part in wanted.items()}
    assert list(found) == [MASKED_WORDS, SENTENCE_ORDER] and found[SENTENCE_ORDER].targets == 3


def test_gradients():
    check_gradients(Ordered(), MaskedWordsAndOrder(), BATCH)


def test_swapped_pairs(tmp_path):
    """Letters count up within a document: in a pair with label 0 they also do so across its parts, otherwise not."""
    letters = "abcdefghijklmnopqrstuvwxyz"
    tokenizer = WordPieceTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", ".", *letters])
    text = "\n\n".join("\n".join(f"{letter} ." for letter in letters[first : first + 6]) for first in range(20))
    (tmp_path / "text.txt").write_text(text)
    shards = prepare(str(tmp_path / "text.txt"), tokenizer, cache_dir=tmp_path / "cache", progress=False)
    batches = TextBatches(shards, tokenizer, MaskedWordsAndOrder.for_tokenizer(tokenizer), 24, 8,
                          **MaskedWordsAndOrder.sequences)  # fmt: skip
    labels = []
    for _ in range(20):
        batch = next(batches)
        ids = batch.input_ids.copy()
        ids.ravel()[batch.rows] = batch.targets
        for row, types, label in zip(ids, batch.token_type_ids, batch.next_sentence, strict=True):
            first, second = (row[(row > 5) & (types == part)] for part in (0, 1))
            assert (first.max() < second.min()) == (label == 0)
            labels.append(label)
    assert 50 < sum(labels) < 110


def test_a_model_without_the_head_is_refused():
    bert = Bert(CONFIG)
    assert MaskedWordsAndOrder.missing(bert) == ["head sentence_order"]
    with pytest.raises(ValueError, match="this Bert has no head for the order of sentences"):
        MaskedWordsAndOrder().check(bert)
    assert "in their order or swapped" in MaskedWordsAndOrder().summary
