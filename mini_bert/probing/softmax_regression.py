"""Softmax regression, fitted to its only optimum by L-BFGS.

    z_n = x_n W + b                                                  scores of K classes     x (N,D), W (D,K)
    loss = 1/N (Σ_n −log softmax(z_n)[y_n] + λ/2 ‖W‖²)               (multinomial logistic regression)

    dz = (softmax(z) − onehot(y)) / N        dW = xᵀ dz + λ/N W        db = Σ dz

The loss is convex, and with λ > 0 it has one minimum, which every method finds, from any start. (λ is 1/C in
scikit-learn; the tests compare.)

L-BFGS finds the minimum. Newton's method would step by −H⁻¹ g, with the gradient g and the Hessian H; for 192 features
and 17 classes, H has ten million entries. L-BFGS approximates H⁻¹ by the last few steps s and the changes of the
gradient y = H s along them, starting from a preconditioner (Nocedal & Wright 2006, algorithm 7.4). A good one is what
makes it fast here. The Hessian of the loss is

    1/N Σ_n (diag(p_n) − p_n p_nᵀ) ⊗ x_n x_nᵀ

Replacing each diag(p) − p pᵀ by the same multiple of the identity leaves xᵀx/N, a D × D matrix to invert once. This
preconditioner saves a quarter to two fifths of the steps (measured on parts of speech and relations).
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from mini_bert.layers.cross_entropy import cross_entropy, cross_entropy_backward

MEMORY = 10  # pairs (s, y) that L-BFGS keeps
STEPS = 500  # 10 to 100 are needed
TOLERANCE = 1e-5  # stop when the expected decrease is less than this fraction of the loss
logger = logging.getLogger(__name__)


class Minimum(NamedTuple):
    x: np.ndarray
    value: float
    steps: int
    converged: bool  # False: the step limit was reached


def minimise(
    function: Callable[[np.ndarray], tuple[float, np.ndarray]],
    start: np.ndarray,
    precondition: Callable[[np.ndarray], np.ndarray] = lambda g: g,
    tolerance: float = TOLERANCE,
    steps: int = STEPS,
) -> Minimum:
    """Minimises a convex function by L-BFGS. `function(x)` returns the value and the gradient.

    precondition: multiplies a gradient by an approximate H⁻¹, which must be symmetric and positive definite; its scale
    does not matter. Stops when −g·d/2, the decrease expected from the next step d, is less than `tolerance` times the
    value, or when rounding prevents any further decrease.
    """
    x = start.astype(np.float64)
    value, gradient = function(x)
    pairs: deque[tuple[np.ndarray, np.ndarray, float]] = deque(maxlen=MEMORY)
    scale, slope = 1.0, 0.0
    for step in range(steps):
        direction = -_newton(gradient, pairs, precondition, scale)
        slope = float((gradient * direction).sum())
        if -slope / 2 <= tolerance * abs(value):
            return Minimum(x, value, step, True)
        length = 1.0
        while True:  # backtrack until the decrease is sufficient (Armijo)
            new_value, new_gradient = function(x + length * direction)
            if new_value <= value + 1e-4 * length * slope:
                break
            length /= 2
            if length < 1e-6:  # at the limit of precision
                return Minimum(x, value, step, True)
        s, y = length * direction, new_gradient - gradient
        curvature = float((s * y).sum())
        x, value, gradient = x + s, new_value, new_gradient
        if curvature > 0:  # always true for a convex function, apart from rounding
            pairs.append((s, y, curvature))
            scale = curvature / float((y * precondition(y)).sum())
    logger.warning("no convergence in %d steps; the next step would lower the loss by %.1e", steps, -slope / 2)
    return Minimum(x, value, steps, False)


def _newton(g, pairs, precondition, scale):
    """H⁻¹ g by the two-loop recursion: newest pair to oldest, the preconditioner, oldest pair to newest."""
    parts = []
    for s, y, curvature in reversed(pairs):
        part = (s * g).sum() / curvature
        g = g - part * y
        parts.append(part)
    g = scale * precondition(g)
    for (s, y, curvature), part in zip(pairs, reversed(parts), strict=True):
        g = g + (part - (y * g).sum() / curvature) * s
    return g


def objective(weights: np.ndarray, x: np.ndarray, targets: np.ndarray, l2: float) -> tuple[float, np.ndarray]:
    """Returns the loss and its gradient (D+1,K).        weights (D+1,K): W, and b as the last row; x (N,D)

    Products are computed in the precision of x, sums in that of the weights.
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
    """Predicts the class with the highest score in x W + b."""

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
    """The classifier with the lowest loss.        x (N,D), targets (N,) from 0 to classes − 1

    moments: the `second_moments` of x, to share them among several fits.
    """
    check_l2(l2)
    targets = np.asarray(targets)
    moments = second_moments(x) if moments is None else moments
    inverse = np.linalg.inv(moments / classes + l2 / len(x) * np.eye(len(moments)))
    start = np.zeros((len(moments), classes))
    minimum = minimise(lambda w: objective(w, x, targets, l2), start, lambda g: inverse @ g, tolerance, steps)
    return Classifier(minimum.x[:-1], minimum.x[-1], minimum.value, minimum.steps, minimum.converged)


def check_l2(l2: float) -> None:
    if not l2 > 0:
        raise ValueError(f"l2 is {l2}, expected more than 0; without a penalty, separable classes have no optimum")


def second_moments(x: np.ndarray) -> np.ndarray:
    """xᵀx/N (D+1,D+1) of x with a column of ones appended."""
    N, D = x.shape
    moments = np.empty((D + 1, D + 1))
    moments[:D, :D] = x.T @ x / N
    moments[D, :D] = moments[:D, D] = x.mean(0, dtype=np.float64)
    moments[D, D] = 1
    return moments


def standardise(x: np.ndarray, *others: np.ndarray) -> None:
    """Gives each column of x mean 0 and standard deviation 1, in place; transforms `others` in the same way.

    So λ penalises all features equally, whatever their scale in a layer. Constant columns become 0.
    """
    mean = x.mean(0, dtype=np.float64)
    spread = np.sqrt(np.maximum((x - mean.astype(x.dtype)).var(0, dtype=np.float64), 0))
    scale = 1 / np.where(spread > 1e-6 * np.maximum(np.abs(mean), 1e-30), spread, np.inf)
    for part in (x, *others):
        part -= mean.astype(x.dtype)
        part *= scale.astype(x.dtype)
