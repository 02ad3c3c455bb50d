"""A probe that gives every word a label: its part of speech, its entity tag, its relation to its head.

The classifier sees the vector of the word, or, for relations, those of the word and of its head side by side:

    pos, ner       scores = x_i W + b                          (H,K)
    relations      scores = [x_i, x_head] W + b                (2H,K)

It is softmax regression (probing/softmax_regression.py): linear, and fitted to its one optimum, so that no luck enters.

**The control task** (Hewitt & Liang 2019) asks for labels that mean nothing: each word, as the model spells it, gets
one at random, as frequent as the real ones, and keeps it wherever it stands. No layer can *know* these; a probe that
gets them right has learnt them by heart, word by word. Selectivity = accuracy − accuracy on the control task.

**Two baselines** need no vectors at all: always the most frequent label; and for each word the label that it had most
often in training, or the most frequent of all if it was not seen. Words that the model spells alike are one word here,
too: a model that does not see capitals is not compared with a table that does.
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
    """What is asked of one part of the data"""

    places: np.ndarray  # (N,1), or (N,2) for pairs: words by number, counted through all sentences
    targets: np.ndarray  # (N,) the number of the right class
    types: np.ndarray  # (N,) the number of the word, as the model spells it; control labels hang on it
    lengths: list[int]  # words in each sentence


class Spellings:
    """Numbers for words, in the order in which they come; words whose pieces are the same have one number"""

    def __init__(self, tokenizer: Tokenizer):
        self.tokenizer = tokenizer
        self.numbers: dict[tuple[int, ...], int] = {}

    def __call__(self, sentences: Iterable[Sequence[str]]) -> np.ndarray:
        found = [
            self.numbers.setdefault(tuple(pieces), len(self.numbers))
            for words in sentences
            for pieces in word_pieces(self.tokenizer, words)
        ]
        return np.array(found, int)


@dataclass(frozen=True)
class LabelProbe:
    title: str
    classes: list[str]
    train: Examples
    dev: Examples
    l2: float = L2
    entities: bool = False  # labels are BIO tags, of which whole entities can be scored

    def __post_init__(self) -> None:
        check_l2(self.l2)

    def targets(self, control: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        """The right answers in training and in dev; with a seed, those of the control task"""
        if control is None:
            return self.train.targets, self.dev.targets
        labels = control_labels(self.train, self.dev, len(self.classes), control)
        return labels[self.train.types], labels[self.dev.types]

    def prepare(self, train: np.ndarray, dev: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Vectors of all words, (M,H) -> those of the examples, standardised, and what the fits have in common"""
        x, dev_x = (
            vectors[part.places].reshape(len(part.places), -1)
            for vectors, part in ((train, self.train), (dev, self.dev))
        )
        standardise(x, dev_x)
        return x, dev_x, second_moments(x)

    def guesses(self, prepared: tuple[np.ndarray, np.ndarray, np.ndarray], targets: np.ndarray) -> np.ndarray:
        """Fit to the targets in training -> what is then said of dev, (N,)"""
        x, dev_x, moments = prepared
        return fit(x, targets, len(self.classes), self.l2, moments=moments).predict(dev_x)

    def f1(self, guesses: np.ndarray) -> float | None:
        """Of whole entities, where labels are BIO tags"""
        if not self.entities:
            return None
        ends = np.cumsum(self.dev.lengths)[:-1]
        truth, said = (
            [[self.classes[i] for i in part] for part in np.split(numbers, ends)]
            for numbers in (self.dev.targets, guesses)
        )
        return entity_scores(truth, said).micro.f1

    def baselines(self) -> dict[str, float]:
        """Accuracy without a model"""
        most, own = common_labels(self.train.types, self.train.targets)
        by_word = np.array([own.get(kind, most) for kind in self.dev.types.tolist()])
        return {
            f"always {self.classes[most]}": float((self.dev.targets == most).mean()),
            "each word's most frequent label": float((self.dev.targets == by_word).mean()),
        }


def control_labels(train: Examples, dev: Examples, classes: int, seed: int) -> np.ndarray:
    """A label for every word type, at random, each as likely as among the words of the training data"""
    count = 1 + max(train.types.max(initial=-1), dev.types.max(initial=-1))
    share = np.bincount(train.targets, minlength=classes) / len(train.targets)
    chance = uniform(draws(address(seed), 0, np.arange(count)))
    return np.minimum(np.searchsorted(np.cumsum(share), chance, side="right"), classes - 1)


def common_labels(types: np.ndarray, targets: np.ndarray) -> tuple[int, dict[int, int]]:
    """-> the most frequent label, and for each word its own; of equals the first"""
    by_word: dict[int, Counter[int]] = {}
    for kind, target in zip(types.tolist(), targets.tolist(), strict=True):
        by_word.setdefault(kind, Counter())[target] += 1
    return int(np.bincount(targets).argmax()), {kind: _first(counts) for kind, counts in by_word.items()}


def _first(counts: Counter[int]) -> int:
    most = max(counts.values())
    return min(label for label, count in counts.items() if count == most)
