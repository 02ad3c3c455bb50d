"""A probe that predicts a label for each word: its part of speech, entity tag, or relation to its syntactic head.

The classifier sees the word's vector; for relations, those of the word and of its syntactic head side by side:

    pos, ner       scores = x_i W + b                          (H,K)
    relations      scores = [x_i, x_head] W + b                (2H,K)

It is softmax regression (probing/softmax_regression.py), fitted to its only optimum.

**Control task** (Hewitt & Liang 2019): each word type gets a random label, drawn from the distribution of the real
labels, wherever it occurs. A layer cannot encode these labels, so a probe that predicts them has memorised words.
Selectivity = accuracy − accuracy on the control task.

**Baselines** that use no vectors: the most frequent label; and the most frequent label of each word type, or of all
words for a type that does not occur in the training data. Words that the tokenizer splits into the same pieces are one
type: a model that cannot see capitals is not compared with a table that can.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from mini_bert.common.draws import address, draws, uniform
from mini_bert.evaluation.metrics import entity_scores
from mini_bert.probing.softmax_regression import check_l2, fit, second_moments, standardise
from mini_bert.probing.word_vectors import word_pieces
from mini_bert.text.base import Tokenizer

L2 = 10.0  # λ


class Examples(NamedTuple):
    """The classified words of one part of the data."""

    words: np.ndarray  # (N,1), or (N,2) for pairs: indices into the words of all sentences
    targets: np.ndarray  # (N,) number of the class
    types: np.ndarray  # (N,) number of the word type
    lengths: list[int]  # words in each sentence


class WordTypes:
    """Numbers word types in order of appearance. Words with the same pieces are one type."""

    def __init__(self, tokenizer: Tokenizer):
        self.tokenizer = tokenizer
        self.numbers: dict[tuple[int, ...], int] = {}

    def __call__(self, sentences: Iterable[Sequence[str]]) -> np.ndarray:
        types = [
            self.numbers.setdefault(tuple(pieces), len(self.numbers))
            for words in sentences
            for pieces in word_pieces(self.tokenizer, words)
        ]
        return np.array(types, int)


@dataclass(frozen=True)
class LabelProbe:
    title: str
    classes: list[str]
    train: Examples
    dev: Examples
    l2: float = L2
    entities: bool = False  # labels are BIO tags; whole entities are scored, too

    def __post_init__(self) -> None:
        check_l2(self.l2)

    def targets(self, control: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        """The targets of train and dev; with a seed, those of the control task."""
        if control is None:
            return self.train.targets, self.dev.targets
        labels = control_labels(self.train, self.dev, len(self.classes), control)
        return labels[self.train.types], labels[self.dev.types]

    def prepare(self, train: np.ndarray, dev: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Selects the examples' vectors from those of all words (M,H) and standardises them.

        Returns those of train and dev, and the second moments, which all fits share.
        """
        x, dev_x = (
            vectors[part.words].reshape(len(part.words), -1) for vectors, part in ((train, self.train), (dev, self.dev))
        )
        standardise(x, dev_x)
        return x, dev_x, second_moments(x)

    def fit_predict(self, prepared: tuple[np.ndarray, np.ndarray, np.ndarray], targets: np.ndarray) -> np.ndarray:
        """Fits the training targets. Returns the predicted class of each dev example, (N,)."""
        x, dev_x, moments = prepared
        return fit(x, targets, len(self.classes), self.l2, moments=moments).predict(dev_x)

    def f1(self, predicted: np.ndarray) -> float | None:
        """Micro F1 of whole entities; None if the labels are not BIO tags."""
        if not self.entities:
            return None
        ends = np.cumsum(self.dev.lengths)[:-1]
        truth, answers = (
            [[self.classes[i] for i in part] for part in np.split(numbers, ends)]
            for numbers in (self.dev.targets, predicted)
        )
        return entity_scores(truth, answers).micro.f1

    def baselines(self) -> dict[str, float]:
        """Accuracy without vectors."""
        overall, by_type = most_frequent(self.train.types, self.train.targets)
        predicted = np.array([by_type.get(kind, overall) for kind in self.dev.types.tolist()])
        return {
            f"always {self.classes[overall]}": float((self.dev.targets == overall).mean()),
            "each word's most frequent label": float((self.dev.targets == predicted).mean()),
        }


def control_labels(train: Examples, dev: Examples, classes: int, seed: int) -> np.ndarray:
    """A random label for each word type, drawn from the distribution of the training labels."""
    count = 1 + max(train.types.max(initial=-1), dev.types.max(initial=-1))
    share = np.bincount(train.targets, minlength=classes) / len(train.targets)
    chance = uniform(draws(address(seed), 0, np.arange(count)))
    return np.minimum(np.searchsorted(np.cumsum(share), chance, side="right"), classes - 1)


def most_frequent(types: np.ndarray, targets: np.ndarray) -> tuple[int, dict[int, int]]:
    """The most frequent target overall, and for each word type; the lowest in a tie."""
    by_type: dict[int, Counter[int]] = {}
    for kind, target in zip(types.tolist(), targets.tolist(), strict=True):
        by_type.setdefault(kind, Counter())[target] += 1
    return int(np.bincount(targets).argmax()), {
        kind: min(counts.items(), key=lambda item: (-item[1], item[0]))[0] for kind, counts in by_type.items()
    }
