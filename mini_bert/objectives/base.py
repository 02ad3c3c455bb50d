"""The interface of an objective, which defines what a model learns from text.

    batch = objective.batch(rows, keys)                           rows of ids become inputs and targets
    parts = objective.loss(model, batch, run, count)              forward and backward; adds to the gradients
    found = objective.predictions(model, batch, run)              forward only, for evaluation

`keys` are 64-bit random keys, one for each sequence (common/draws.py): the same key gives the same batch. A loss has
named parts, such as masked words and next sentence. The first is the one that records, plots and the doctor call "the
loss". `count` is the number of targets of each part in the whole batch, so that the losses of micro-batches add up to
its mean.

The training loop uses only this interface and that of models. A new objective is a new file and a line in registry.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from mini_bert.common.batching import RIGHT, Padding
from mini_bert.layers.base import Run
from mini_bert.layers.cross_entropy import CrossEntropyCache
from mini_bert.models.base import Model
from mini_bert.text.base import Tokenizer


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


class Size(NamedTuple):
    """The size of a batch."""

    sequences: int
    tokens: int  # including padding
    targets: dict[str, int]  # by part of the loss


class Part(NamedTuple):
    """One part of a loss on a micro-batch."""

    loss: float  # its share of the mean over the whole batch
    correct: int
    targets: int


class Predictions(NamedTuple):
    """How well a model predicted the N targets of one part."""

    loss: float  # sum over the targets
    rank: np.ndarray  # (N,) the number of other classes with at least the target's probability; 0: predicted correctly
    confidence: np.ndarray  # (N,) the probability of the most likely class
    brier: np.ndarray  # (N,) Σ_v (p_v − [v is the target])²


class Objective:
    """What to implement: `batch`, `size`, `loss`, `predictions` and `uniform_loss`; the rest has defaults."""

    name: ClassVar[str]  # in RUN/config.json
    heads: ClassVar[tuple[str, ...]] = ()  # the output heads that a model needs
    option: ClassVar[str] = ""  # of `mini-bert train`, which selects it
    sequences: ClassVar[dict[str, Any]] = {"mode": "packed"}  # how text is cut into sequences: data/generator.py
    memory: Mapping[str, np.ndarray] = {}  # arrays carried from batch to batch; saved and restored with checkpoints

    @classmethod
    def for_tokenizer(cls, tokenizer: Tokenizer, **options: Any) -> Self:
        return cls(**options)

    @property
    def arguments(self) -> dict[str, Any]:
        """The options that change its batches: a run can only be resumed with the same ones."""
        return {}

    @property
    def summary(self) -> str:
        """For the model card: what a model was trained to do."""
        return ""

    def check(self, model: Model) -> None:
        """Raise an error if the model lacks a head."""
        for head in self.heads:
            model.output_head(head)

    def batch(self, rows: Rows, keys: np.ndarray) -> Any:
        """Rows of ids become inputs and targets."""
        raise NotImplementedError

    def size(self, batch: Any) -> Size:
        """The size of a batch; its targets are what the sums of losses are divided by."""
        raise NotImplementedError

    def loss(self, model: Model, batch: Any, run: Run, count: Mapping[str, int]) -> dict[str, Part]:
        """Forward and backward. Returns the parts of the loss."""
        raise NotImplementedError

    def predictions(self, model: Model, batch: Any, run: Run) -> dict[str, Predictions]:
        """Forward only: how well the model predicts the targets of each part."""
        raise NotImplementedError

    def uniform_loss(self, model: Model) -> float:
        """The (first) loss of a model that finds everything equally likely; far above it, a run does not recover."""
        raise NotImplementedError

    def start(self, model: Model, counts: np.ndarray) -> None:
        """Adapt the initial weights of a new model to the text, whose words occur so often, (V,)."""

    def start_record(self, counts: np.ndarray, log_frequencies: np.ndarray) -> dict[str, Any]:
        """Its entries in the first record of a run, such as the unigram baseline of its loss, "unigram_loss".

        counts (V,): of the words in the text that is measured; log_frequencies (V,): of those in the training text
        """
        return {}


def part_of(loss: float, entropy: CrossEntropyCache) -> Part:
    correct = int((entropy.exp.argmax(-1) == entropy.targets).sum())
    return Part(float(loss), correct, entropy.targets.size)


def predictions_of(loss: float, entropy: CrossEntropyCache) -> Predictions:
    """From a cross-entropy whose mean is `loss`"""
    scores, targets = entropy.exp, entropy.targets  # exp(logit − largest logit): the order of the probabilities
    N, V = scores.shape
    own = scores[np.arange(N), targets][:, None]
    rank = V - 1 - np.count_nonzero(scores < own, axis=1)  # a tie counts against the model; so does NaN
    sums = entropy.sums[:, 0].astype(float)
    brier = np.einsum("nv,nv->n", scores, scores) / sums**2 - 2 * own[:, 0] / sums + 1
    return Predictions(float(loss) * N, rank, 1 / sums, brier)  # the largest score of a row is exp 0 = 1
