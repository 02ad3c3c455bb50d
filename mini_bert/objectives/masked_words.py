"""Masked language modelling, alone or with a second objective on pairs of texts.

`MaskedWords` masks some tokens (masking.py); the loss is the cross-entropy at these positions.
`MaskedWordsAndSentences` adds BERT's next-sentence prediction: does the second part of a pair follow the first?
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from mini_bert.common.inputs import check_ids, check_rows
from mini_bert.layers.base import Run
from mini_bert.models.base import MASKED_WORDS, NEXT_SENTENCE, QUERY, Model
from mini_bert.models.loss import LossCache, Term
from mini_bert.models.sizes import Sizes
from mini_bert.objectives.base import Objective, Rows, Size
from mini_bert.objectives.masking import MASK_PROB, TO_MASK, TO_RANDOM, Masking
from mini_bert.text.base import Tokenizer

NO_MASKS = (
    "word head that reads [MASK]: its query stream predicts words without seeing them, so train it with the objective "
    "permutation"
)


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


class MaskedWords(Objective):
    """Cross-entropy at the masked tokens. Without a `masking`, it can compute losses but not make batches."""

    name: ClassVar[str] = "masked_words"
    heads: ClassVar[tuple[str, ...]] = (MASKED_WORDS,)
    options: ClassVar[tuple[str, ...]] = ("mask_prob", "whole_word", "span", "ngram")
    share: ClassVar[float] = MASK_PROB  # of the words that are predicted, by default
    visible: ClassVar[float] = 1 - TO_RANDOM
    masks: ClassVar[bool] = True  # the words to predict are masked in the text

    def __init__(self, masking: Masking | None = None):
        self.masking = masking

    @classmethod
    def for_tokenizer(cls, tokenizer: Tokenizer, **options: Any) -> Self:
        return cls(masking_for(tokenizer, **{"mask_prob": cls.share, **options}))

    @property
    def arguments(self) -> dict[str, Any]:
        return {} if self.masking is None else self.masking.arguments

    @property
    def predicted(self) -> float:
        """The share of the tokens that are predicted."""
        return self.masking.mask_prob if self.masking else self.share

    @classmethod
    def missing(cls, model: Model) -> list[str]:
        """XLNet's word head reads the query stream, which sees no [MASK] but has to be told which words to predict."""
        asks = cls.masks and QUERY in model.streams
        return [*super().missing(model), *([NO_MASKS] if asks else [])]

    def check(self, model: Model) -> None:
        super().check(model)
        if NO_MASKS in self.missing(model):
            raise ValueError(f"this {type(model).__name__} has no {NO_MASKS}")

    # ------------------------------------------------------------------ batches

    def batch(self, rows: Rows, keys: np.ndarray) -> Batch:
        masked, targets, positions = self._masking(rows.ids, keys)
        return Batch(masked, positions, targets, rows.mask, rows.types, rows.labels)

    @property
    def _masking(self) -> Masking:
        if self.masking is None:
            raise ValueError("this objective was made without a Masking, so it cannot make batches")
        return self.masking

    def size(self, batch: Batch) -> Size:
        if not isinstance(batch, Batch):
            raise TypeError(f"a batch is a {type(batch).__name__}, expected a Batch(input_ids, rows, targets, …)")
        tokens = sum(np.size(sequence) for sequence in batch.input_ids)
        return Size(len(batch.input_ids), tokens, {MASKED_WORDS: len(batch.targets)})

    # ------------------------------------------------------------------ the loss

    def forward(self, model: Model, batch: Batch, run: Run, count: Mapping[str, int]) -> LossCache:
        """The batch is checked, because it may have been made by hand."""
        inputs = model.check_inputs(batch.input_ids, batch.attention_mask, batch.token_type_ids)
        return model.loss_of(inputs, self.terms(batch, inputs.ids.shape, count), run)[1]

    def terms(self, batch: Batch, shape: tuple[int, ...], count: Mapping[str, int]) -> list[Term]:
        """The parts of the loss.        shape: (B,T)"""
        return [Term(MASKED_WORDS, *check_rows(batch.rows, batch.targets, shape), count[MASKED_WORDS])]

    # ------------------------------------------------------------------ what it is compared with, and starts from

    def uniform_losses(self, model: Model) -> dict[str, float]:
        return {MASKED_WORDS: math.log(model.vocab_size)}

    def start(self, model: Model, counts: np.ndarray) -> None:
        """Initialise the bias of the word head with the log frequencies of the text's words, unless it was trained.

        Learning these would take hundreds of steps, which would also disturb the initial values of all other weights
        (docs/decisions/0003).
        """
        model.start_words(word_shares(counts))

    def start_record(self, counts: np.ndarray, log_frequencies: np.ndarray) -> dict[str, Any]:
        mask_prob = self.masking.mask_prob if self.masking else None
        return {"unigram_loss": unigram_loss(log_frequencies, counts), "mask_prob": mask_prob}

    @classmethod
    def sizes(cls, model: Sizes, **options: Any) -> Sizes:
        return model._replace(predicted=options.get("mask_prob", cls.share))

    def word_model(self, model: Model) -> Model | None:
        return model

    @property
    def summary(self) -> str:
        shares = [percent(part) for part in (self.predicted, TO_MASK, TO_RANDOM - TO_MASK, 1 - TO_RANDOM)]
        chosen, masked, replaced, kept = shares
        return (
            f"Trained to predict masked words: of the {chosen} of words that are chosen{self._units}, {masked} are "
            f"masked, {replaced} replaced, {kept} kept."
        )

    @property
    def _units(self) -> str:
        """How they are chosen, if not one piece at a time."""
        given = self.arguments
        if given.get("span"):
            return " in runs of words"
        if given.get("ngram"):
            return " in runs of 1 to 3 words"
        return " as whole words" if given.get("whole_word") else ""


class MaskedWordsAndSentences(MaskedWords):
    """The same, plus the cross-entropy of whether the second part of a pair follows the first."""

    name = "masked_words_and_next_sentence"
    heads = (MASKED_WORDS, NEXT_SENTENCE)
    sequences: ClassVar[dict[str, Any]] = {"mode": "pairs", "task": "next"}
    question: ClassVar[str] = "whether the second of two texts follows the first"

    def size(self, batch: Batch) -> Size:
        size = super().size(batch)
        if batch.next_sentence is None:
            raise ValueError("a batch has no next_sentence labels; expected one for each sequence, 0 or 1")
        return size._replace(targets=size.targets | {self.heads[1]: size.sequences})

    def terms(self, batch: Batch, shape: tuple[int, ...], count: Mapping[str, int]) -> list[Term]:
        (B, T), head = shape, self.heads[1]
        labels = check_ids([batch.next_sentence], 2, B, "next_sentence")[0]
        return [*super().terms(batch, shape, count), Term(head, np.arange(B) * T, labels, count[head])]  # reads [CLS]

    @property
    def summary(self) -> str:
        return f"{super().summary}\nAlso trained to predict {self.question}."


def masking_for(tokenizer: Tokenizer, **options: Any) -> Masking:
    """The Masking for a tokenizer. options: mask_prob, whole_word, span, ngram"""
    return Masking(
        tokenizer.vocab_size,
        tokenizer.mask_id,
        tokenizer.special_ids,
        continues=tokenizer.continuing,
        **options,
    )


def percent(share: float) -> str:
    """
    >>> percent(0.15), percent(1 / 6)
    ('15 %', '16.7 %')
    """
    return f"{100 * share:.3g} %"


def word_shares(counts: np.ndarray) -> np.ndarray:
    """The relative frequency of every word, (V,), with a count of 0.5 for words that do not occur."""
    counts = np.maximum(counts, 0.5)
    return counts / counts.sum()


def unigram_loss(log_frequencies: np.ndarray, counts: np.ndarray) -> float:
    """−Σ q log p in nats: the loss of a model that predicts word frequencies and ignores context.

    log_frequencies: log p (V,) of the words in the training text; counts (V,) of the words in the measured text

    >>> half = np.log([0.5, 0.5])
    >>> float(round(unigram_loss(half, np.array([3, 1])), 3))
    0.693
    """
    if counts.size > log_frequencies.size:
        raise ValueError(f"{log_frequencies.size:,} word frequencies for {counts.size:,} words; expected one for each")
    return float(-(counts @ log_frequencies[: counts.size].astype(float)) / max(counts.sum(), 1))


def entropy_of(counts: np.ndarray) -> float:
    """−Σ q log q in nats: `unigram_loss` with the frequencies of the measured text itself, the lowest possible."""
    p = counts[counts > 0] / max(counts.sum(), 1)
    return float(-(p * np.log(p)).sum())
