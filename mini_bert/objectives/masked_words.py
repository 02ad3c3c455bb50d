"""Masked language modelling, alone or with a second objective on pairs of texts.

`MaskedWords` masks some tokens (masking.py); the loss is the cross-entropy at these positions.
`MaskedWordsAndSentences` adds BERT's next-sentence prediction: does the second part of a pair follow the first? With
pairs whose parts are swapped instead of replaced, it is ALBERT's sentence-order prediction.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from mini_bert.layers.base import Run
from mini_bert.models.base import MASKED_WORDS, NEXT_SENTENCE, Inputs, Model
from mini_bert.objectives.base import Rows
from mini_bert.objectives.masking import Masking


class Batch(NamedTuple):
    """The arguments of `model.loss`, in order: model.loss(*batch)."""

    input_ids: np.ndarray  # (B,T) with some tokens masked
    rows: np.ndarray  # (N,) the chosen positions, b·T + t
    targets: np.ndarray  # (N,) the correct ids
    attention_mask: np.ndarray | None = None  # (B,T) False for padding; None: no padding
    token_type_ids: np.ndarray | None = None  # (B,T) 1 in the second part of a pair
    next_sentence: np.ndarray | None = None  # (B,) 0: as in the text, 1: not

    def split(self, parts: int) -> list[Batch]:
        """Split into equal parts. With `count=batch.rows.size` for each, their losses add up to that of the batch."""
        B, T = self.input_ids.shape
        if parts < 1 or B % parts:
            raise ValueError(f"{B} sequences cannot be split into {parts} equal parts; try a divisor of {B}")
        size = B // parts
        edges = np.searchsorted(self.rows, np.arange(0, B + 1, size) * T)
        pieces = []
        for part in range(parts):
            own, chosen = slice(part * size, (part + 1) * size), slice(edges[part], edges[part + 1])
            others = (array if array is None else array[own] for array in self[3:])
            rows = self.rows[chosen] - part * size * T
            pieces.append(Batch(self.input_ids[own], rows, self.targets[chosen], *others))
        return pieces

    def inputs(self) -> Inputs:
        """The inputs for the model. They were made from checked ids, so they need no further check."""
        mask = self.attention_mask
        return Inputs(self.input_ids, None if mask is None else mask[:, None, None, :], self.token_type_ids)


class MaskedWords:
    """Cross-entropy at the masked tokens. Without a `masking`, it can compute losses but not make batches."""

    heads: tuple[str, ...] = (MASKED_WORDS,)

    def __init__(self, masking: Masking | None = None):
        self.masking = masking

    def batch(self, rows: Rows, keys: np.ndarray) -> Batch:
        if self.masking is None:
            raise ValueError("this objective was made without a Masking, so it cannot make batches")
        masked, targets, positions = self.masking(rows.ids, keys)
        return Batch(masked, positions, targets, rows.mask, rows.types, rows.labels)

    def count(self, parts: Sequence[Batch]) -> int:
        return sum(len(part.targets) for part in parts)

    def loss(self, model: Model, batch: Batch, run: Run, count: int) -> tuple[float, int]:
        loss, cache = model.loss_of(batch.inputs(), batch.rows, batch.targets, None, run, count)
        return _backward(model, loss, cache, batch, run)


class MaskedWordsAndSentences(MaskedWords):
    """The same, plus the cross-entropy of whether the second part of a pair follows the first."""

    heads = (MASKED_WORDS, NEXT_SENTENCE)

    def count(self, parts: Sequence[Batch]):
        return super().count(parts), sum(len(part.input_ids) for part in parts)

    def loss(self, model: Model, batch: Batch, run: Run, count) -> tuple[float, int]:
        words, sentences = count
        loss, cache = model.loss_of(
            batch.inputs(), batch.rows, batch.targets, batch.next_sentence, run, words, sentences
        )
        return _backward(model, loss, cache, batch, run)


def _backward(model: Model, loss, cache, batch: Batch, run: Run) -> tuple[float, int]:
    correct = int((cache.cross_entropy.exp.argmax(-1) == batch.targets).sum())
    model.loss_backward(cache, run=run)
    return float(loss), correct
