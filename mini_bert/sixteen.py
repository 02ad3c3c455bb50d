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
    if not np.isfinite(x).all():  # a carry into the exponent would make other things of them
        with np.errstate(over="ignore"):
            out[...] = np.where(np.isnan(x), 0x7FC0, _upper(x)) if out.dtype == np.uint16 else x
        return
    if rng is None and out.dtype == np.float16:
        with np.errstate(over="ignore"):
            out[...] = x
        return
    whole = x.view(np.uint32)
    if rng is None:
        below = whole >> 16
        below &= 1
        below += 0x7FFF  # half, or just under it where the upper half is even: half goes to the even neighbour
    else:
        noise = rng.integers(0, 1 << 64, -(-x.size // 4), np.uint64).view(np.uint16)[: x.size].reshape(x.shape)
        below = noise.astype(np.uint32)
        if out.dtype == np.float16:
            below >>= 3  # 13 bits are cut
    below += whole
    if out.dtype == np.uint16:
        out[...] = _upper(below)
    else:
        below &= 0xFFFFE000
        with np.errstate(over="ignore"):
            out[...] = below.view(np.float32)


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
