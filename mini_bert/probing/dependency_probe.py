"""A probe that finds the syntactic head of each word among the words of its sentence.

    z_ij = x̃_i A x̃_jᵀ            score of word j as the syntactic head of word i        x̃ = [x, 1], A (H+1,H+1)
    loss = 1/N (Σ_i −log softmax(z_i)[head of i] + λ/2 ‖A‖²)

This is softmax regression on products of two words' features, so the loss is convex, and L-BFGS finds its minimum. The
1 appended to x gives each word a score as a syntactic head that does not depend on the other word. With the words of a
sentence as the rows of X, the gradient is

    dz = (softmax(z) − onehot(head)) / N        dA = Xᵀ dz X + λ/N A

The Hessian is about c M ⊗ M + λ/N with the second moments M = x̃ᵀx̃/N. In the eigenbasis of M it is diagonal, so it is
inverted by a division; this preconditions L-BFGS (12 steps instead of 39 on 600 sentences).

The root of a sentence has no syntactic head and is left out.

**Control task** (Hewitt & Liang 2019): each word type is randomly assigned to itself, to the first or to the last word
of its sentence. **Baselines** that use no vectors: the most frequent distance between a word and its syntactic head,
over all words or for each word type.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from mini_bert.common.draws import address, below, draws
from mini_bert.layers.cross_entropy import cross_entropy, cross_entropy_backward
from mini_bert.probing.label_probe import most_frequent
from mini_bert.probing.softmax_regression import TOLERANCE, check_l2, minimise, second_moments, standardise

# λ: with (H+1)² weights the probe overfits easily. Trained on 500 sentences of UD EWT, layer 1 of the bundled model
# gives 45.2, 47.6, 49.0, 49.1, 47.9, 45.1 % accuracy for λ = 100, 1,000, 3,000, 10,000, 30,000, 100,000.
L2 = 1e4
SPREAD = 0.1  # stands for p (1 − p) in the approximate Hessian
ROOT = -1  # the target of a word without a syntactic head


class Trees(NamedTuple):
    """The words of all sentences, concatenated."""

    parents: np.ndarray  # (M,) position of the syntactic head in its sentence, from 0; ROOT for the root
    types: np.ndarray  # (M,) number of the word type
    lengths: list[int]  # words in each sentence

    @property
    def positions(self) -> np.ndarray:  # (M,) of each word in its sentence
        return np.concatenate([np.arange(length) for length in self.lengths])


def groups(lengths: list[int]) -> list[np.ndarray]:
    """For each sentence length n an array (S,n): the indices of the words of its S sentences.

    >>> [group.tolist() for group in groups([2, 1, 2])]
    [[[2]], [[0, 1], [3, 4]]]
    """
    starts: dict[int, list[int]] = {}
    for start, length in zip(np.cumsum([0, *lengths[:-1]]).tolist(), lengths, strict=True):
        starts.setdefault(length, []).append(start)
    return [np.array(begins)[:, None] + np.arange(length) for length, begins in sorted(starts.items())]


def scores(a: np.ndarray, x: np.ndarray) -> np.ndarray:
    """z = X A Xᵀ (S,n,n) for S sentences of length n.        x (S,n,D), a (D,D)"""
    S, n, D = x.shape
    return (x.reshape(-1, D) @ a).reshape(S, n, D) @ x.swapaxes(1, 2)


def objective(a: np.ndarray, x: np.ndarray, parents: np.ndarray, by_length: list[np.ndarray], l2: float):
    """Returns the loss and its gradient (D,D).        a (D,D), x (M,D), parents (M,), by_length from `groups`"""
    count = int((parents != ROOT).sum())
    loss, da = 0.0, np.zeros_like(a)
    a_narrow = a.astype(x.dtype)
    for words in by_length:
        S, n = words.shape
        rows, targets = x[words], parents[words].ravel()  # (S,n,D), (S·n,)
        chosen = np.flatnonzero(targets != ROOT)
        z = scores(a_narrow, rows).reshape(S * n, n)[chosen]
        part, cache = cross_entropy(z, targets[chosen], count, out=z)
        dz = np.zeros((S * n, n), x.dtype)
        dz[chosen] = cross_entropy_backward(1.0, cache, out=z)
        loss += float(part)
        da += rows.reshape(S * n, -1).T @ (dz.reshape(S, n, n) @ rows).reshape(S * n, -1)
    decay = l2 / count
    return loss + decay / 2 * float((a * a).sum()), da + decay * a


@dataclass(frozen=True)
class DependencyProbe:
    title: str
    train: Trees
    dev: Trees
    l2: float = L2

    classes = None  # it chooses among the words of the sentence

    def __post_init__(self) -> None:
        check_l2(self.l2)

    def targets(self, control: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        """The targets of train and dev; with a seed, those of the control task."""
        if control is None:
            return self.train.parents, self.dev.parents
        count = 1 + max(self.train.types.max(), self.dev.types.max())
        rules = below(draws(address(control), 0, np.arange(count)), 3)
        return _control(self.train, rules), _control(self.dev, rules)

    def prepare(self, train: np.ndarray, dev: np.ndarray):
        """Standardises the vectors (M,H) and appends a 1. Returns both, and the eigenbasis of the second moments."""
        train, dev = train.copy(), dev.copy()
        standardise(train, dev)
        basis = np.linalg.eigh(second_moments(train))
        x, dev_x = (np.hstack([part, np.ones((len(part), 1), part.dtype)]) for part in (train, dev))
        return x, dev_x, basis

    def fit_predict(self, prepared, targets: np.ndarray) -> np.ndarray:
        """Fits the training targets. Returns the predicted position of the syntactic head for each dev word, (M,)."""
        x, dev_x, (eigenvalues, v) = prepared
        curvature = SPREAD * np.outer(eigenvalues, eigenvalues).clip(0) + self.l2 / (targets != ROOT).sum()  # (D,D)
        by_length = groups(self.train.lengths)
        minimum = minimise(
            lambda a: objective(a, x, targets, by_length, self.l2),
            np.zeros_like(v),
            lambda g: v @ (v.T @ g @ v / curvature) @ v.T,
            TOLERANCE,
        )
        a = minimum.x.astype(x.dtype)
        predicted = np.empty(len(dev_x), int)
        for words in groups(self.dev.lengths):
            predicted[words] = scores(a, dev_x[words]).argmax(-1)
        return predicted

    def f1(self, predicted: np.ndarray) -> float | None:
        return None

    def baselines(self) -> dict[str, float]:
        """Accuracy without vectors: by the most frequent distance, over all words and for each word type."""
        chosen = self.train.parents != ROOT
        distances = (self.train.parents - self.train.positions)[chosen]
        lowest = int(distances.min())
        overall, by_type = most_frequent(self.train.types[chosen], distances - lowest)
        chosen = self.dev.parents != ROOT
        truth = (self.dev.parents - self.dev.positions)[chosen]
        predicted = np.array([by_type.get(kind, overall) for kind in self.dev.types[chosen].tolist()]) + lowest
        distance = overall + lowest
        return {
            f"always the word {abs(distance)} {'after' if distance > 0 else 'before'}": float(
                (truth == distance).mean()
            ),
            "each word's most frequent distance": float((truth == predicted).mean()),
        }


def _control(trees: Trees, rules: np.ndarray) -> np.ndarray:
    """Rule 0: the word itself, 1: the first word, 2: the last word. Roots are left out here, too."""
    last = np.repeat(np.array(trees.lengths) - 1, trees.lengths)
    chosen = np.choose(rules[trees.types], [trees.positions, np.zeros_like(last), last])
    return np.where(trees.parents == ROOT, ROOT, chosen)
