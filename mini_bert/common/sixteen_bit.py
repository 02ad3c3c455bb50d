"""16-bit floats: half the memory for what is stored, while all sums and products stay in float32.

    float32     1 sign bit, 8 bits of exponent, 23 of fraction       1e-38 … 3e38, 7 decimal digits
    bfloat16    1 sign bit, 8 bits of exponent,  7 of fraction       the same range, 2 to 3 digits
    float16     1 sign bit, 5 bits of exponent, 10 of fraction       6e-8 … 65,504, 3 to 4 digits

A bfloat16 is the upper half of a float32, so converting is a cut or a shift. NumPy has no such type, and we store the
bits as uint16. NumPy has float16, but converts it slowly, without the processor's instructions for it.

**Rounding.** For a number that is stored once, rounding to nearest is best. For a number that changes a little at every
step it is fatal: in bfloat16, the neighbours of 1.0 are about 0.004 below and 0.008 above, so an update of 0.001 rounds
back to 1.0, every time. *Stochastic* rounding rounds up with a probability equal to the part that is cut off: 1.001
becomes 1.0078 one time in eight. Single steps are off, but on average their sum is right. It costs 16 random bits:
added to the bits below the cut, they carry over with exactly that probability.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

KINDS = ("float32", "bfloat16", "float16")
LARGEST = 65504.0  # float16
_DTYPES = {"float32": np.float32, "bfloat16": np.uint16, "float16": np.float16}


def check_kind(name: str, kind: str) -> None:
    if kind not in KINDS:
        raise ValueError(f"{name} is {kind!r}, expected one of {', '.join(KINDS)}")


def kind_of(bits: np.ndarray) -> str:
    """The name of what is stored in an array"""
    return "bfloat16" if bits.dtype == np.uint16 else bits.dtype.name


def stored(shape: Any, kind: str) -> np.ndarray:
    """Returns zeros, to be filled by `narrow`."""
    return np.zeros(shape, _DTYPES[kind])


def widen(bits: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
    """Converts stored numbers to float32, contiguous."""
    out = np.empty(bits.shape, np.float32) if out is None else out
    if bits.dtype == np.uint16:
        whole = out.view(np.uint32)
        whole[...] = bits
        np.left_shift(whole, 16, out=whole)
    else:
        out[...] = bits
    return out


def narrow(x: np.ndarray, out: np.ndarray, rng: np.random.Generator | None = None) -> None:
    """Rounds float32 into `out` (see `stored`): to nearest, or stochastically with an `rng`.

    x must be contiguous. Infinity stays infinity, and NaN stays NaN.
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
        below += 0x7FFF  # half, or just below it where the upper half is even: ties round to even
    else:
        below = _noise(x, rng).astype(np.uint32)
    below += whole
    out[...] = _upper(below)
    nan = np.isnan(x)  # a carry into the exponent would change them
    if nan.any():
        out[nan] = 0x7FC0


def _cut_for_float16(x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Rounds x stochastically to numbers that float16 can represent: 13 bits are cut, and more for small numbers.

    Below 2⁻¹⁴, the numbers of float16 are multiples of 2⁻²⁴.
    """
    noise = _noise(x, rng)
    cut = (noise >> 3).astype(np.uint32)
    cut += x.view(np.uint32)
    cut &= 0xFFFFE000
    rounded = cut.view(np.float32)
    small = np.abs(x) < 2.0**-14
    if small.any():
        steps = np.abs(x[small]) * np.float32(2.0**24)
        down = np.floor(steps)
        up = noise[small] < (steps - down) * np.float32(2.0**16)
        rounded[small] = np.copysign((down + up) * np.float32(2.0**-24), x[small])
    rounded[np.isnan(x)] = np.nan
    return rounded


def _noise(x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """16 random bits for every number."""
    return rng.integers(0, 1 << 64, -(-x.size // 4), np.uint64).view(np.uint16)[: x.size].reshape(x.shape)


class Stored:
    """A 16-bit array that can be used like a float32 one. Values written to it are rounded to nearest.

    NumPy converts all of it when it is used in a computation. Index it to convert only some rows or columns.
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

    def copy(self) -> Stored:
        return Stored(self.bits.copy())

    def part(self, index: Any) -> Stored:
        return Stored(self.bits[index])


def _upper(x: np.ndarray) -> np.ndarray:
    """The upper half of every 32-bit number, as a view."""
    return x.view(np.uint16)[..., 1 if sys.byteorder == "little" else 0 :: 2]
