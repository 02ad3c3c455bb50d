"""A probe that picks, for every word, its head among the words of the sentence.

    z_ij = x̃_i A x̃_jᵀ            how well word j fits as the head of word i        x̃ = [x, 1], A (H+1,H+1)
    loss = 1/N (Σ_i −log softmax(z_i)[head of i] + λ/2 ‖A‖²)

A is a linear classifier on the products of two words' numbers: the loss is convex again, and L-BFGS finds its minimum.
The 1 beside x lets A say how good a head a word is for any other. The gradient, with the words of a sentence as the
rows of X:

    dz = (softmax(z) − onehot(head)) / N        dA = Xᵀ dz X + λ/N A

The second derivatives are products of the moments M = x̃ᵀx̃/N of both words, about c M ⊗ M + λ/N. In the directions in
which M is diagonal that is a number for each pair of directions, and inverted by a division: the first guess of L-BFGS.
(With it, 12 steps instead of 39 on 600 sentences.)

The root of a sentence has no head among its words, and is not asked for.

**The control task** (Hewitt & Liang 2019): by its spelling alone, each word is told to belong to itself, to the first
word of its sentence, or to the last. **The baselines** know no vectors: the distance to the head that is most frequent,
of all words or of each.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from mini_bert.common.draws import address, below, draws
from mini_bert.layers.cross_entropy import cross_entropy, cross_entropy_backward
from mini_bert.probing.label_probe import common_labels
from mini_bert.probing.softmax_regression import TOLERANCE, check_l2, minimise, second_moments, standardise

# λ: (H+1)² weights learn a treebank by heart if they may. After 500 sentences of UD EWT, layer 2 of the bundled model
# finds 45.2, 47.6, 49.0, 49.1, 47.9, 45.1 % of the heads with λ = 100, 1,000, 3,000, 10,000, 30,000, 100,000.
L2 = 1e4
SPREAD = 0.1  # of p (1 − p), in the first guess of H⁻¹
ROOT = -1  # the target of a word that is not asked for


class Trees(NamedTuple):
    """The words of all sentences in a row"""

    heads: np.ndarray  # (M,) the head's place in the sentence, from 0; ROOT for the root
    types: np.ndarray  # (M,) the number of the word, as the model spells it
    lengths: list[int]  # words in each sentence

    @property
    def places(self) -> np.ndarray:  # (M,) a word's own place in its sentence
        return np.concatenate([np.arange(length) for length in self.lengths])


def groups(lengths: list[int]) -> list[np.ndarray]:
    """(S,n) for every length n: the numbers of the words of its S sentences, counted through all sentences

    >>> [group.tolist() for group in groups([2, 1, 2])]
    [[[2]], [[0, 1], [3, 4]]]
    """
    starts: dict[int, list[int]] = {}
    for start, length in zip(np.cumsum([0, *lengths[:-1]]).tolist(), lengths, strict=True):
        starts.setdefault(length, []).append(start)
    return [np.array(begins)[:, None] + np.arange(length) for length, begins in sorted(starts.items())]


def scores(a: np.ndarray, x: np.ndarray) -> np.ndarray:
    """z = X A Xᵀ of sentences of one length        x (S,n,D), a (D,D) -> (S,n,n)"""
    S, n, D = x.shape
    return (x.reshape(-1, D) @ a).reshape(S, n, D) @ x.swapaxes(1, 2)


def objective(a: np.ndarray, x: np.ndarray, heads: np.ndarray, by_length: list[np.ndarray], l2: float):
    """-> loss, gradient (D,D)        a (D,D), x (M,D) all words, heads (M,), by_length as `groups` makes it"""
    count = int((heads != ROOT).sum())
    loss, da = 0.0, np.zeros_like(a)
    narrow = a.astype(x.dtype)
    for words in by_length:
        S, n = words.shape
        rows, targets = x[words], heads[words].ravel()  # (S,n,D), (S·n,)
        asked = np.flatnonzero(targets != ROOT)
        z = scores(narrow, rows).reshape(S * n, n)[asked]
        part, cache = cross_entropy(z, targets[asked], count, out=z)
        dz = np.zeros((S * n, n), x.dtype)
        dz[asked] = cross_entropy_backward(1.0, cache, out=z)
        loss += float(part)
        da += rows.reshape(S * n, -1).T @ (dz.reshape(S, n, n) @ rows).reshape(S * n, -1)
    decay = l2 / count
    return loss + decay / 2 * float((a * a).sum()), da + decay * a


@dataclass(frozen=True)
class HeadProbe:
    title: str
    train: Trees
    dev: Trees
    l2: float = L2

    classes = None  # the choice is among the words of a sentence

    def __post_init__(self) -> None:
        check_l2(self.l2)

    def targets(self, control: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        """The right answers in training and in dev; with a seed, those of the control task"""
        if control is None:
            return self.train.heads, self.dev.heads
        count = 1 + max(self.train.types.max(), self.dev.types.max())
        behaviour = below(draws(address(control), 0, np.arange(count)), 3)
        return _control(self.train, behaviour), _control(self.dev, behaviour)

    def prepare(self, train: np.ndarray, dev: np.ndarray):
        """Vectors of all words, (M,H) -> standardised, with a 1 beside, and what the fits have in common"""
        train, dev = train.copy(), dev.copy()
        standardise(train, dev)
        directions = np.linalg.eigh(second_moments(train))
        x, dev_x = (np.hstack([part, np.ones((len(part), 1), part.dtype)]) for part in (train, dev))
        return x, dev_x, directions

    def guesses(self, prepared, targets: np.ndarray) -> np.ndarray:
        """Fit to the targets in training -> the head's place for every word of dev, (M,)"""
        x, dev_x, (lengths, v) = prepared
        curvature = SPREAD * np.outer(lengths, lengths).clip(0) + self.l2 / (targets != ROOT).sum()  # (D,D)
        by_length = groups(self.train.lengths)
        found = minimise(
            lambda a: objective(a, x, targets, by_length, self.l2),
            np.zeros_like(v),
            lambda g: v @ (v.T @ g @ v / curvature) @ v.T,
            TOLERANCE,
        )
        a = found.x.astype(x.dtype)
        said = np.empty(len(dev_x), int)
        for words in groups(self.dev.lengths):
            said[words] = scores(a, dev_x[words]).argmax(-1)
        return said

    def f1(self, guesses: np.ndarray) -> float | None:
        return None

    def baselines(self) -> dict[str, float]:
        """Accuracy without a model: by distance, of all words alike or of each word"""
        asked = self.train.heads != ROOT
        distances = (self.train.heads - self.train.places)[asked]
        lowest = int(distances.min())
        most, own = common_labels(self.train.types[asked], distances - lowest)
        asked = self.dev.heads != ROOT
        truth = (self.dev.heads - self.dev.places)[asked]
        by_word = np.array([own.get(kind, most) for kind in self.dev.types[asked].tolist()]) + lowest
        way = f"{abs(most + lowest)} {'after' if most + lowest > 0 else 'before'}"
        return {
            f"always the word {way}": float((truth == most + lowest).mean()),
            "each word's most frequent distance": float((truth == by_word).mean()),
        }


def _control(trees: Trees, behaviour: np.ndarray) -> np.ndarray:
    """0: itself, 1: the first word, 2: the last word; roots are not asked for here either"""
    last = np.repeat(np.array(trees.lengths) - 1, trees.lengths)
    chosen = np.choose(behaviour[trees.types], [trees.places, np.zeros_like(last), last])
    return np.where(trees.heads == ROOT, ROOT, chosen)
