"""Check gradients by finite differences; measure and clip their norm.

    ∂loss/∂x ≈ (loss(x + h) − loss(x − h)) / 2h            (central difference, with an error of about h²)

**Finite differences.** Change one number by ±h, see how the loss changes, and compare with the result of backward. This
needs two forward passes per number, too many for training, but it is independent of our derivations. In float64 with
h = 1e-5, the rounding error and the h² term are both near 1e-10, so agreement to 1e-6 is meaningful.

**Clipping.** The global norm is the length of all gradients as one vector. Clipping scales that vector down to a limit
and keeps its direction, so that one unusual batch cannot move the weights far.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

TOLERANCE = 1e-6
STEPS = (1e-5, 1e-6, 1e-7)


class Compared(NamedTuple):
    """One number's gradient, computed in two ways."""

    place: tuple[int, ...]
    backward: float
    difference: float


class Checked(NamedTuple):
    """One tensor's comparison of backward with finite differences."""

    name: str
    shape: tuple[int, ...]
    entries: int  # numbers of the tensor that were compared
    error: float  # the largest, relative to the tensor's largest gradient
    largest: Compared | None = None  # the number with the largest gradient, as an example

    def passed(self, tolerance: float = TOLERANCE) -> bool:
        return self.error <= tolerance  # False for NaN


def central_difference(loss: Callable[[], float], x: np.ndarray, index: tuple[int, ...], step: float) -> float:
    """∂loss/∂x[index]. Changes `x` in place, and restores it exactly."""
    value = x[index]
    x[index] = value + step
    upper = float(loss())
    x[index] = value - step
    lower = float(loss())
    x[index] = value
    return (upper - lower) / (2 * step)


def gradient_check(
    loss: Callable[[], float],
    arrays: Mapping[str, np.ndarray],
    gradients: Mapping[str, np.ndarray],
    entries: int = 64,
    seed: int = 0,
) -> list[Checked]:
    """Compare the gradients from backward with finite differences of `loss`.

    loss        a function without arguments that returns the loss for the current values of the arrays
    arrays      name -> float64 array that `loss` uses
    gradients   name -> gradient from backward
    entries     how many numbers of each array to check. In a larger array, half are those with the largest gradients
                (in an embedding table most are zero), and half are random

    Errors are relative to the largest gradient of the tensor, or to a thousandth of the largest gradient of all tensors
    if that is larger: some gradients are exactly zero. (A key bias adds a constant to each row of scores, which softmax
    ignores.) A difference across the corner of ReLU is not a derivative, so an entry that disagrees is tried again with
    smaller steps. These cross fewer corners, and cannot hide a wrong gradient.
    """
    rng = np.random.default_rng(seed)
    floor = 1e-3 * max((np.abs(g).max(initial=0.0) for g in gradients.values()), default=0.0)
    results = []
    for name, x in arrays.items():
        if x.dtype != np.float64:
            raise TypeError(f"gradient_check needs float64 to detect small errors, but {name} is {x.dtype}")
        if gradients[name].shape != x.shape:
            raise ValueError(f"{name}: the gradient has shape {gradients[name].shape}, the array {x.shape}")
        ours = gradients[name].ravel()
        chosen = _choose(ours, entries, rng)
        scale = max(np.abs(ours).max(initial=0.0), floor, np.finfo(np.float64).tiny)
        worst, largest = 0.0, None
        for flat in chosen:
            index = tuple(int(i) for i in np.unravel_index(flat, x.shape))
            error, slope = math.inf, math.nan
            for step in STEPS:
                slope = central_difference(loss, x, index, step)
                difference = abs(slope - ours[flat]) / scale
                error = min(error, difference) if math.isfinite(difference) else math.inf
                if error <= 0.1 * TOLERANCE:
                    break
            worst = max(worst, error)
            if largest is None or abs(ours[flat]) > abs(largest.backward):
                largest = Compared(index, float(ours[flat]), slope)
        results.append(Checked(name, x.shape, len(chosen), worst, largest))
    return results


def _choose(gradient: np.ndarray, entries: int, rng: np.random.Generator) -> np.ndarray:
    if gradient.size <= entries:
        return np.arange(gradient.size)
    largest = np.argpartition(-np.abs(gradient), entries // 2)[: entries // 2]
    return np.union1d(largest, rng.choice(gradient.size, entries - entries // 2, replace=False))


def global_norm(gradient: np.ndarray) -> float:
    """The length of the flat gradient vector. Parts are added in float64: a long float32 sum loses precision."""
    parts = (gradient[start : start + 4_096] for start in range(0, gradient.size, 4_096))
    return math.sqrt(sum(float(np.dot(part, part)) for part in parts))


def clip(gradient: np.ndarray, limit: float) -> float:
    """Scale the flat gradient down to the length `limit` if it is longer, in place. Returns its length before.

    If the length is infinite or NaN, the gradient is left unchanged.
    """
    if not limit > 0:
        raise ValueError(f"the clipping limit is {limit}, expected a positive number such as 1.0")
    norm = global_norm(gradient)
    if limit < norm < math.inf:
        gradient *= limit / norm
    return norm
