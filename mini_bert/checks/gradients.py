"""Are the gradients right, and how large are they?

**Right.** A derivative is what a tiny change does: move one number by ±h, look how the loss moves,

    ∂loss/∂x ≈ (loss(x + h) − loss(x − h)) / 2h            (central difference, wrong by about h²)

and compare with what backward claims. It needs two forward passes per number, so it is no way to train, but it
knows nothing of our derivations, which makes it a fair judge of them. In float64 with h = 1e-5, rounding and the
h² term both stay near 1e-10, so that agreement to 1e-6 means something.

**Large.** The global norm is the length of all gradients together, seen as one vector. Clipping shortens that
vector when it is longer than a limit, and keeps its direction: one odd batch then cannot throw the weights far.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

TOLERANCE = 1e-6
STEPS = (1e-5, 1e-6, 1e-7)


class Checked(NamedTuple):
    """One tensor's comparison of backward with finite differences."""

    name: str
    shape: tuple[int, ...]
    entries: int  # how many numbers of the tensor were compared
    error: float  # the worst of them, relative to the tensor's largest gradient

    def passed(self, tolerance: float = TOLERANCE) -> bool:
        return self.error <= tolerance  # and so not for NaN


def central_difference(loss: Callable[[], float], x: np.ndarray, index: tuple[int, ...], step: float) -> float:
    """∂loss/∂x[index]. `x` is changed in place, seen by `loss`, and put back exactly."""
    kept = x[index]
    x[index] = kept + step
    upper = float(loss())
    x[index] = kept - step
    lower = float(loss())
    x[index] = kept
    return (upper - lower) / (2 * step)


def gradient_check(
    loss: Callable[[], float],
    arrays: Mapping[str, np.ndarray],
    gradients: Mapping[str, np.ndarray],
    entries: int = 64,
    seed: int = 0,
) -> list[Checked]:
    """Finite differences of `loss` in every array, against the gradients that backward computed.

    loss        takes nothing and returns the loss at the arrays' present values
    arrays      name -> float64 array that `loss` reads
    gradients   name -> what backward says
    entries     how many numbers of each array to try; of a larger array, half are those with the largest
                gradients (in an embedding table most are zero), half are drawn at random

    An error is relative to the largest gradient of its tensor, or to a thousandth of the largest of all where
    a tensor's true gradient is zero. (There is such a tensor: a key bias adds the same to a whole row of
    scores, which softmax does not notice.) ReLU has a corner, and a difference taken across it is no derivative:
    an entry that disagrees is tried again with a smaller step, which steps over fewer corners but cannot hide a
    wrong gradient.
    """
    rng = np.random.default_rng(seed)
    floor = 1e-3 * max((np.abs(g).max(initial=0.0) for g in gradients.values()), default=0.0)
    results = []
    for name, x in arrays.items():
        if x.dtype != np.float64:
            raise TypeError(f"gradient_check needs float64 to see small errors, {name} is {x.dtype}")
        if gradients[name].shape != x.shape:
            raise ValueError(f"{name}: the gradient has shape {gradients[name].shape}, the array {x.shape}")
        claimed = gradients[name].ravel()
        chosen = _choose(claimed, entries, rng)
        scale = max(np.abs(claimed).max(initial=0.0), floor, np.finfo(np.float64).tiny)
        worst = 0.0
        for flat in chosen:
            index = tuple(int(i) for i in np.unravel_index(flat, x.shape))
            error = math.inf
            for step in STEPS:
                difference = abs(central_difference(loss, x, index, step) - claimed[flat]) / scale
                error = min(error, difference) if math.isfinite(difference) else math.inf
                if error <= 0.1 * TOLERANCE:
                    break
            worst = max(worst, error)
        results.append(Checked(name, x.shape, len(chosen), worst))
    return results


def _choose(gradient: np.ndarray, entries: int, rng: np.random.Generator) -> np.ndarray:
    if gradient.size <= entries:
        return np.arange(gradient.size)
    largest = np.argpartition(-np.abs(gradient), entries // 2)[: entries // 2]
    return np.union1d(largest, rng.choice(gradient.size, entries - entries // 2, replace=False))


def global_norm(gradient: np.ndarray) -> float:
    """The length of the flat gradient vector; parts are added in double precision, a long float32 sum would drift."""
    parts = (gradient[start : start + 4_096] for start in range(0, gradient.size, 4_096))
    return math.sqrt(sum(float(np.dot(part, part)) for part in parts))


def clip(gradient: np.ndarray, limit: float) -> float:
    """Shorten the flat gradient to `limit` if it is longer, in place -> its length before.

    A length that is not a finite number is returned as it is, and the gradient left alone: it has no direction.
    """
    if not limit > 0:
        raise ValueError(f"the clipping limit is {limit}, expected a positive number such as 1.0")
    norm = global_norm(gradient)
    if limit < norm < math.inf:
        gradient *= limit / norm
    return norm
