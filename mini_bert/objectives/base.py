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
from mini_bert.models.loss import LossCache
from mini_bert.models.sizes import Sizes
from mini_bert.text.base import Tokenizer


class Rows(NamedTuple):
    """Sequences from a data source."""

    ids: np.ndarray  # (B,T)
    lengths: np.ndarray | None = None  # (B,); None: all rows are full
    types: np.ndarray | None = None  # (B,T) token types; None: all are 0
    labels: np.ndarray | None = None  # (B,) 0: the parts of a pair are as in the text, 1: they are not
    padding: Padding = RIGHT
    lanes: np.ndarray | None = None  # (B,) which stream of text a sequence continues (data/lanes.py); None: none
    starts: np.ndarray | None = None  # (B,) True where a stream begins, so that nothing precedes the sequence

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
    correct: int | None  # None: this part predicts no class
    targets: int


class Predictions(NamedTuple):
    """How well a model predicted the N targets of one part."""

    loss: float  # sum over the targets
    rank: np.ndarray  # (N,) the number of other classes with at least the target's probability; 0: predicted correctly
    confidence: np.ndarray  # (N,) the probability of the most likely class
    brier: np.ndarray  # (N,) Σ_v (p_v − [v is the target])²


class Objective:
    """What to implement: `batch`, `size`, `forward` and `uniform_losses`; the rest has defaults.

    An objective that needs more than one forward pass implements `loss` and `predictions` instead of `forward`.
    """

    name: ClassVar[str]  # in RUN/config.json, and for `mini-bert train --objective`
    heads: ClassVar[tuple[str, ...]] = ()  # the output heads that a model needs
    options: ClassVar[tuple[str, ...]] = ()  # further arguments of `for_tokenizer`, which `mini-bert train` sets
    targets: ClassVar[str] = "masked tokens"  # what the first part predicts, for the titles of plots
    visible: ClassVar[float] = 0.0  # the share of the targets that can be copied from the input
    owners: ClassVar[
        Mapping[str, str]
    ] = {}  # whose loss each part is, where two models are trained; "": the first part
    sequences: ClassVar[dict[str, Any]] = {"mode": "packed"}  # how text is cut into sequences: data/generator.py
    layout: ClassVar[str | None] = None  # of the texts of its models (text/templates.py); None: the architecture's own
    consecutive: ClassVar[bool] = False  # whether each sequence continues one of the batch before: data/lanes.py
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

    @classmethod
    def part_name(cls, part: str = "") -> str:
        """A part of the loss in words: "next sentence", or the model whose loss it is. "": the first part"""
        return cls.owners.get(part, part.replace("_", " "))

    @classmethod
    def missing(cls, model: Model) -> list[str]:
        """What a model lacks for this objective, for messages."""
        return [f"head {head}" for head in cls.heads if head not in model.output_heads]

    def check(self, model: Model) -> None:
        """Raise an error if the model lacks a head."""
        for head in self.heads:
            model.output_head(head)

    def begin(self, model: Model, sequences: int) -> None:
        """Called before the first step and before a checkpoint is restored. sequences: in a whole batch"""

    # ------------------------------------------------------------------ batches

    def batch(self, rows: Rows, keys: np.ndarray) -> Any:
        """Rows of ids become inputs and targets."""
        raise NotImplementedError

    def size(self, batch: Any) -> Size:
        """The size of a batch; its targets are what the sums of losses are divided by."""
        raise NotImplementedError

    # ------------------------------------------------------------------ the loss

    def forward(self, model: Model, batch: Any, run: Run, count: Mapping[str, int]) -> LossCache:
        """The forward pass of an objective whose parts are cross-entropies of output heads."""
        raise NotImplementedError

    def loss(self, model: Model, batch: Any, run: Run, count: Mapping[str, int]) -> dict[str, Part]:
        """Forward and backward. Returns the parts of the loss."""
        cache = self.forward(model, batch, run, count)
        parts = {name: part_of(*entropy) for name, entropy in cache.parts().items()}
        model.loss_backward(cache, run=run)
        return parts

    def predictions(self, model: Model, batch: Any, run: Run) -> dict[str, Predictions]:
        """Forward only: how well the model predicts the targets of each part."""
        count = self.size(batch).targets
        if not all(count.values()):
            return {}
        cache = self.forward(model, batch, run, count)
        return {name: predictions_of(*entropy) for name, entropy in cache.parts().items()}

    # ------------------------------------------------------------------ what it is compared with, and starts from

    def uniform_losses(self, model: Model) -> dict[str, float]:
        """The loss by part of a model that finds everything equally likely, the first part first. A run that gets far
        above one of them does not recover; parts that are not listed are not watched."""
        raise NotImplementedError

    def start(self, model: Model, counts: np.ndarray) -> None:
        """Adapt the initial weights of a new model to the text, whose words occur so often, (V,)."""

    def start_record(self, counts: np.ndarray, log_frequencies: np.ndarray) -> dict[str, Any]:
        """Its entries in the first record of a run, such as the unigram baseline of its loss, "unigram_loss".

        counts (V,): of the words in the text that is measured; log_frequencies (V,): of those in the training text
        """
        return {}

    @classmethod
    def sizes(cls, model: Sizes, **options: Any) -> Sizes:
        """The sizes of a model as this objective uses it, for the memory planner. options: as for `for_tokenizer`"""
        return model

    @classmethod
    def adapted(cls, config: Any) -> Any:
        """A model's config, with what this objective needs besides output heads."""
        return config

    def note(self, model: Model) -> str:
        """What to tell the user when training begins, or an empty string."""
        return ""

    def word_model(self, model: Model) -> Model | None:
        """The model that fills masked words, to show what it has learnt; None: there is none."""
        return None


def part_of(loss: float, entropy: Any) -> Part:
    """entropy: a CrossEntropyCache, or another with `targets`, `correct` and `pieces`"""
    return Part(float(loss), entropy.correct, entropy.targets.size)


def predictions_of(loss: float, entropy: Any) -> Predictions:
    """From a cross-entropy whose mean is `loss`"""
    pieces = [_of_some_rows(piece) for piece in entropy.pieces()]
    return Predictions(
        float(loss) * entropy.targets.size, *(np.concatenate(part) for part in zip(*pieces, strict=True))
    )


def _of_some_rows(entropy: CrossEntropyCache) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rank, confidence and Brier score"""
    scores, targets = entropy.exp, entropy.targets  # exp(logit − largest logit): the order of the probabilities
    N, V = scores.shape
    own = scores[np.arange(N), targets][:, None]
    rank = V - 1 - np.count_nonzero(scores < own, axis=1)  # a tie counts against the model; so does NaN
    sums = entropy.sums[:, 0].astype(float)
    brier = np.einsum("nv,nv->n", scores, scores) / sums**2 - 2 * own[:, 0] / sums + 1
    return rank, 1 / sums, brier  # the largest score of a row is exp 0 = 1
