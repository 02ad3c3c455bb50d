"""The interface of an objective, which defines what a model learns from text.

    batch = objective.batch(rows, keys)                      rows of ids become inputs and targets
    loss, correct = objective.loss(model, batch, run, count)      forward and backward; adds to the gradients

`keys` are 64-bit random keys, one for each sequence (common/draws.py): the same key gives the same batch. `count` is
what `objective.count` returned for the whole batch, so that the losses of its parts add up to its mean.

The training loop uses only this interface and that of models, so a new objective is just a new file.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from mini_bert.common.batching import RIGHT, Padding
from mini_bert.layers.base import Run
from mini_bert.models.base import Model


class Rows(NamedTuple):
    """Sequences from a data source."""

    ids: np.ndarray  # (B,T)
    lengths: np.ndarray | None = None  # (B,); None: all rows are full
    types: np.ndarray | None = None  # (B,T) token types; None: all are 0
    labels: np.ndarray | None = None  # (B,) 0: the parts of a pair follow each other, 1: they do not
    padding: Padding = RIGHT

    @property
    def mask(self) -> np.ndarray | None:
        """(B,T) False for padding; None: no padding."""
        return None if self.lengths is None else self.padding.mask(self.lengths, self.ids.shape[1])


class Objective(Protocol):
    heads: tuple[str, ...]  # the output heads that a model needs

    def batch(self, rows: Rows, keys: np.ndarray) -> Any: ...

    def count(self, parts: Sequence[Any]) -> Any: ...

    def loss(self, model: Model, batch: Any, run: Run, count: Any) -> tuple[float, int]:
        """Returns this part's share of the mean loss, and how many of its targets the model predicted correctly."""
