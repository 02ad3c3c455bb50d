"""8-bit weights: a quarter of the memory, and products of integers that ONNX Runtime computes fast.

    w ≈ q · s           q integers from −127 to 127;  s one scale for each output: a column of W (in,out)
    x ≈ a · t           a integers from −z to 255 − z;  t one scale for the whole array, found when x is known
    x W ≈ t (a q) s     a q is a product of integers, without any rounding

z is the *zero point*: it moves the range of 256 integers to where the numbers are. After GELU, for example, hardly any
are negative. Both ranges contain 0, which stays exactly 0.

**Scales of weights.** s = max |w| / 127, rounded up to 17 significant bits. With the 7 bits of q these are 24, so q · s
is a float32 without rounding. An array that was widened has the same integers and scales when it is quantised again.

**Products in NumPy.** NumPy has no fast product of integers, but a product of float32 numbers that happen to be
integers is exact as long as every sum stays below 2²⁴. 512 terms of at most 255 · 127 do; longer sums are split, and
the parts added in float64. So the result is that of ONNX Runtime's integers, bit for bit.
"""

from __future__ import annotations

from typing import Any

import numpy as np

LARGEST = 127
EXACT_TERMS = 512  # 512 · 255 · 127 < 2²⁴
_CUT = 7  # bits: 24 of float32 less 17


class Int8:
    """integers · scales, which can be read like a float32 array. It cannot be changed.

    integers: int8; scales: float32, of length 1 along each axis that shares a scale: (1,out) for a scale per column
    """

    dtype = np.dtype(np.float32)

    def __init__(self, integers: np.ndarray, scales: np.ndarray):
        self.integers, self.scales = integers, scales
        self.shape, self.size, self.ndim = integers.shape, integers.size, integers.ndim

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return (self.integers * self.scales).astype(dtype or np.float32, copy=False)

    def __getitem__(self, index: Any) -> np.ndarray:
        return self.integers[index] * np.broadcast_to(self.scales, self.shape)[index]

    def __len__(self) -> int:
        return len(self.integers)

    @property
    def T(self) -> Int8:
        return Int8(self.integers.T, self.scales.T)

    def part(self, index: slice | tuple[slice, ...]) -> Int8:
        """The same memory. index: a slice for the first axis, or for each of the first axes"""
        index = index if isinstance(index, tuple) else (index,)
        shared = (slice(None) if size == 1 else one for one, size in zip(index, self.scales.shape, strict=False))
        return Int8(self.integers[index], self.scales[tuple(shared)])

    @classmethod
    def of(cls, values: np.ndarray, scales: np.ndarray) -> Int8:
        """From multiples of scales. `scales` has the shape of the values."""
        for axis, size in enumerate(scales.shape):
            first = scales.take([0] if size else [], axis)
            scales = first if (scales == first).all() else scales
        return cls(np.rint(values / scales).astype(np.int8), np.ascontiguousarray(scales))


def quantise(w: np.ndarray, axis: int) -> Int8:
    """Rounds to the nearest multiple of a scale, of which there is one for each index along this axis."""
    others = tuple(other for other in range(w.ndim) if other != axis)
    w = np.asarray(w, np.float32)
    scales = np.abs(w).max(others, keepdims=True, initial=0) / np.float32(LARGEST)
    bits = scales.view(np.uint32)
    bits += (1 << _CUT) - 1  # up, so that no integer exceeds 127
    bits >>= _CUT
    bits <<= _CUT
    scales[scales < 1e-30] = 1  # all of them 0
    return Int8(np.rint(w / scales).astype(np.int8), scales)


def quantise_activations(x: np.ndarray) -> tuple[np.ndarray, np.float32]:
    """Returns integers, as float32 without the zero point, and their scale: what ONNX calls DynamicQuantizeLinear."""
    low, high = x.min(initial=0), x.max(initial=0)
    scale = np.float32((high - low) / np.float32(255)) or np.float32(1)
    zero = np.rint(-low / scale)
    a = x / scale
    np.rint(a, out=a)
    return np.clip(a, -zero, 255 - zero, out=a), scale


def integer_product(a: np.ndarray, q: np.ndarray) -> np.ndarray:
    """a q in float32, rounded once.        a (N,in) integers of at most 255 as float32, q (in,out) int8"""
    if len(q) <= EXACT_TERMS:
        return a @ q.astype(np.float32)
    total = np.zeros((len(a), q.shape[1]))  # float64
    for start in range(0, len(q), EXACT_TERMS):
        part = slice(start, start + EXACT_TERMS)
        total += a[:, part] @ q[part].astype(np.float32)
    return total.astype(np.float32)


if __name__ == "__main__":
    w = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
    x = np.array([[1.0, 0.5, -0.25, 3.0]], np.float32)
    weights = quantise(w, axis=1)
    a, t = quantise_activations(x)
    print("W, a scale for each column:\n", weights.integers, "\n times", weights.scales)
    print("x:", a, "times", t)
    print("x W in floats:   ", x @ w, "\nx W in integers: ", t * weights.scales * integer_product(a, weights.integers))
