"""Numbers in 16 bits: half the memory for what is kept, while all sums and products stay float32.

    float32     1 sign, 8 bits of exponent, 23 of fraction       1e-38 … 3e38, 7 decimal digits
    bfloat16    1 sign, 8 bits of exponent,  7 of fraction       the same range, 2 to 3 digits
    float16     1 sign, 5 bits of exponent, 10 of fraction       6e-8 … 65,504, 3 to 4 digits

A bfloat16 is the upper half of a float32, so that narrowing is a cut and widening a shift; NumPy has no such type, and
we keep the bits as uint16. float16 is NumPy's own, and slow: no instruction that NumPy uses converts it.

**Rounding.** To the nearest is best for a number that is stored once. For one that is changed a little at every step it
is fatal: a weight of 1.0 in bfloat16 has neighbours 0.0078 below and above, an update of 0.001 rounds back to where it
was, and does so for ever. *Stochastic* rounding goes up with a chance equal to the part that is cut off: 1.001 becomes
1.0078 once in eight times. Each step is then wrong, and the sum of many is right. It costs one random number of 16
bits: added to the bits below the cut, it carries over with just that chance.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

KINDS = ("float32", "bfloat16", "float16")
LARGEST = 65504.0  # that float16 has
_DTYPES = {"float32": np.float32, "bfloat16": np.uint16, "float16": np.float16}


def check_kind(name: str, kind: str) -> None:
    if kind not in KINDS:
        raise ValueError(f"{name} is {kind!r}, expected one of {', '.join(KINDS)}")


def stored(shape: Any, kind: str) -> np.ndarray:
    """Zeros, to be filled by `narrow`."""
    return np.zeros(shape, _DTYPES[kind])


def kind_of(array: np.ndarray) -> str:
    return next(kind for kind, dtype in _DTYPES.items() if array.dtype == dtype)


def widen(bits: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
    """What is stored -> float32, contiguous"""
    out = np.empty(bits.shape, np.float32) if out is None else out
    if bits.dtype == np.uint16:
        whole = out.view(np.uint32)
        whole[...] = bits
        np.left_shift(whole, 16, out=whole)
    else:
        out[...] = bits
    return out


def narrow(x: np.ndarray, out: np.ndarray, rng: np.random.Generator | None = None) -> None:
    """float32 -> `out`, one of `stored`: to the nearest, or stochastically if there is an `rng`

    x must be contiguous. Infinite stays infinite, and what is no number stays none.
    """
    if out.dtype == np.float32:
        out[...] = x
        return
    if out.dtype == np.float16:
        with np.errstate(over="ignore"):
            out[...] = x if rng is None else _cut_for_float16(x, rng)
        return
    whole = x.view(np.uint32)
    if rng is None:
        below = whole >> 16
        below &= 1
        below += 0x7FFF  # half, or just under it where the upper half is even: half goes to the even neighbour
    else:
        below = _noise(x, rng).astype(np.uint32)
    below += whole
    out[...] = _upper(below)
    lost = np.isnan(x)  # a carry into the exponent makes other things of them
    if lost.any():
        out[lost] = 0x7FC0


def _cut_for_float16(x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """x, stochastically rounded to numbers that float16 has: 13 bits are cut, and more where it runs out of exponents

    Below 2⁻¹⁴ its numbers lie on a grid of 2⁻²⁴, however small they are.
    """
    noise = _noise(x, rng)
    cut = (noise >> 3).astype(np.uint32)
    cut += x.view(np.uint32)
    cut &= 0xFFFFE000
    found = cut.view(np.float32)
    small = np.abs(x) < 2.0**-14
    if small.any():
        steps = np.abs(x[small]) * np.float32(2.0**24)
        down = np.floor(steps)
        up = noise[small] < (steps - down) * np.float32(2.0**16)
        found[small] = np.copysign((down + up) * np.float32(2.0**-24), x[small])
    found[np.isnan(x)] = np.nan
    return found


def _noise(x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """16 random bits for every number"""
    return rng.integers(0, 1 << 64, -(-x.size // 4), np.uint64).view(np.uint16)[: x.size].reshape(x.shape)


class Stored:
    """An array in 16 bits that is float32 to whoever computes with it; what is written to it is rounded to the nearest.

    NumPy widens it where it meets an array. Who needs only some rows, or some columns at a time, asks for these.
    """

    dtype = np.dtype(np.float32)

    def __init__(self, bits: np.ndarray):
        self.bits = bits
        self.shape, self.size, self.ndim = bits.shape, bits.size, bits.ndim

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return widen(self.bits).astype(dtype or np.float32, copy=False)

    def __getitem__(self, index: Any) -> np.ndarray:
        return widen(self.bits[index])

    def __setitem__(self, index: Any, values: Any) -> None:
        if isinstance(values, Stored) and values.bits.dtype == self.bits.dtype:
            self.bits[index] = values.bits
            return
        place = self.bits[index]
        rounded = np.empty(place.shape, place.dtype)
        narrow(np.ascontiguousarray(np.broadcast_to(values, place.shape), np.float32), rounded)
        self.bits[index] = rounded

    def __len__(self) -> int:
        return len(self.bits)

    @property
    def T(self) -> Stored:
        return Stored(self.bits.T)

    def part(self, index: Any) -> Stored:
        return Stored(self.bits[index])


def _upper(x: np.ndarray) -> np.ndarray:
    """The upper half of every number of 32 bits, as a view"""
    return x.view(np.uint16)[..., 1 if sys.byteorder == "little" else 0 :: 2]
