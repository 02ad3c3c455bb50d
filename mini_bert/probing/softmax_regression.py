"""Softmax regression: the linear classifier, fitted to its one optimum.

    z_n = x_n W + b                                                  scores of K classes     x (N,D), W (D,K)
    loss = 1/N (Σ_n −log softmax(z_n)[y_n] + λ/2 ‖W‖²)               also called multinomial logistic regression

    dz = (softmax(z) − onehot(y)) / N        dW = xᵀ dz + λ/N W        db = Σ dz

The loss is convex, and with λ > 0 it has one minimum: who fits it with what method, from where, in which order of the
data, does not matter. (λ is 1/C for the C of scikit-learn, with which the tests compare.)

L-BFGS finds the minimum. Newton's method would step to −H⁻¹ g, g the gradient and H the second derivatives, which for
192 numbers and 17 classes are a matrix of ten million. L-BFGS makes do with the last few steps s and what the gradient
changed along them, y = H s: from these pairs it builds an H⁻¹ that explains them and leaves the rest to a first guess
(Nocedal & Wright 2006, algorithm 7.4). The guess is what makes it fast here. The second derivatives of the loss are

    1/N Σ_n (diag(p_n) − p_n p_nᵀ) ⊗ x_n x_nᵀ

and a first guess that takes every diag(p) − p pᵀ for the same multiple of 1 leaves xᵀx/N to be inverted, D by D, once.
It saves a quarter to two fifths of the steps, measured on parts of speech and relations.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from mini_bert.layers.cross_entropy import cross_entropy, cross_entropy_backward

MEMORY = 10  # steps that L-BFGS remembers
STEPS = 500  # it needs 10 to 100
TOLERANCE = 1e-5  # a fit ends when the loss could fall by this share of itself, as far as is known
logger = logging.getLogger(__name__)


class Minimum(NamedTuple):
    x: np.ndarray
    value: float
    steps: int
    converged: bool  # False: it ran out of steps


def minimise(
    function: Callable[[np.ndarray], tuple[float, np.ndarray]],
    start: np.ndarray,
    guess: Callable[[np.ndarray], np.ndarray] = lambda g: g,
    tolerance: float = TOLERANCE,
    steps: int = STEPS,
) -> Minimum:
    """The minimum of a convex function, by L-BFGS.        function(x) -> value, gradient

    guess: g -> H⁻¹ g, roughly, but symmetric and positive; its scale does not matter. Ends when −g·d/2, the fall that
    the next step d promises, is less than `tolerance` of the value, or when rounding lets the value fall no further.
    """
    x = start.astype(np.float64)
    value, gradient = function(x)
    pairs: deque[tuple[np.ndarray, np.ndarray, float]] = deque(maxlen=MEMORY)
    scale, slope = 1.0, 0.0
    for step in range(steps):
        direction = -_newton(gradient, pairs, guess, scale)
        slope = float((gradient * direction).sum())
        if -slope / 2 <= tolerance * abs(value):
            return Minimum(x, value, step, True)
        length = 1.0
        while True:  # until the value falls by a fair share of what the slope promises
            new_value, new_gradient = function(x + length * direction)
            if new_value <= value + 1e-4 * length * slope:
                break
            length /= 2
            if length < 1e-6:  # the value is as low as its digits can say
                return Minimum(x, value, step, True)
        s, y = length * direction, new_gradient - gradient
        curved = float((s * y).sum())
        x, value, gradient = x + s, new_value, new_gradient
        if curved > 0:  # always, but for rounding: the function is convex
            pairs.append((s, y, curved))
            scale = curved / float((y * guess(y)).sum())
    logger.warning("the minimum was not reached in %d steps; the last one would still gain %.1e", steps, -slope / 2)
    return Minimum(x, value, steps, False)


def _newton(g, pairs, guess, scale):
    """H⁻¹ g as the pairs know it: the newest first, then the guess, then the oldest first"""
    parts = []
    for s, y, curved in reversed(pairs):
        part = (s * g).sum() / curved
        g = g - part * y
        parts.append(part)
    g = scale * guess(g)
    for (s, y, curved), part in zip(pairs, reversed(parts), strict=True):
        g = g + (part - (y * g).sum() / curved) * s
    return g


def objective(weights: np.ndarray, x: np.ndarray, targets: np.ndarray, l2: float) -> tuple[float, np.ndarray]:
    """-> loss, gradient (D+1,K)        weights (D+1,K): W, and b as the last row; x (N,D), targets (N,)

    The products are computed in the precision of x, the sums that matter in that of the weights.
    """
    w, b = weights[:-1], weights[-1]
    z = x @ w.astype(x.dtype)  # (N,K)
    z += b.astype(x.dtype)
    loss, cache = cross_entropy(z, targets, out=z)
    dz = cross_entropy_backward(1.0, cache, out=z)
    decay = l2 / len(x)
    dw = (x.T @ dz).astype(weights.dtype) + decay * w
    return float(loss) + decay / 2 * float((w * w).sum()), np.vstack([dw, dz.sum(0, dtype=weights.dtype)])


class Classifier(NamedTuple):
    """scores = x W + b, the class with the highest is the answer"""

    w: np.ndarray  # (D,K)
    b: np.ndarray  # (K,)
    loss: float
    steps: int
    converged: bool

    def predict(self, x: np.ndarray) -> np.ndarray:  # (N,D) -> (N,)
        return (x @ self.w.astype(x.dtype) + self.b.astype(x.dtype)).argmax(1)


def fit(
    x: np.ndarray,
    targets: Any,
    classes: int,
    l2: float,
    tolerance: float = TOLERANCE,
    steps: int = STEPS,
    moments: np.ndarray | None = None,
) -> Classifier:
    """The classifier with the least loss.        x (N,D), targets (N,) from 0 to classes − 1

    moments: the `second_moments` of x, where several are fitted to it.
    """
    check_l2(l2)
    targets = np.asarray(targets)
    moments = second_moments(x) if moments is None else moments
    inverse = np.linalg.inv(moments / classes + l2 / len(x) * np.eye(len(moments)))
    start = np.zeros((len(moments), classes))
    found = minimise(lambda w: objective(w, x, targets, l2), start, lambda g: inverse @ g, tolerance, steps)
    return Classifier(found.x[:-1], found.x[-1], found.value, found.steps, found.converged)


def check_l2(l2: float) -> None:
    if not l2 > 0:
        raise ValueError(f"l2 is {l2}, expected more than 0: else classes that can be told apart have no optimum")


def second_moments(x: np.ndarray) -> np.ndarray:
    """xᵀx/N of x with a column of ones: (D+1,D+1)"""
    N, D = x.shape
    moments = np.empty((D + 1, D + 1))
    moments[:D, :D] = x.T @ x / N
    moments[D, :D] = moments[:D, D] = x.mean(0, dtype=np.float64)
    moments[D, D] = 1
    return moments


def standardise(x: np.ndarray, *others: np.ndarray) -> None:
    """Every column of x gets mean 0 and spread 1, in place; others are shifted and scaled as x was

    So that λ weighs every number alike, in whatever units a layer keeps it. A column that is constant becomes 0.
    """
    mean = x.mean(0, dtype=np.float64)
    spread = np.sqrt(np.maximum((x - mean.astype(x.dtype)).var(0, dtype=np.float64), 0))
    scale = 1 / np.where(spread > 1e-6 * np.maximum(np.abs(mean), 1e-30), spread, np.inf)
    for part in (x, *others):
        part -= mean.astype(x.dtype)
        part *= scale.astype(x.dtype)
