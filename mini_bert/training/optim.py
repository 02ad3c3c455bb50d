"""Adam: the size of each weight's step depends on the recent history of its gradient.

    m = β1 m + (1−β1) g              a running mean of the gradient: the direction, with the noise averaged out
    v = β2 v + (1−β2) g²             a running mean of its square: how large it usually is
    m̂ = m / (1−β1ᵗ),  v̂ = v / (1−β2ᵗ)     both start at 0; this undoes the bias of the first steps
    w = w − lr (m̂ / (√v̂ + ε) + λ w)  λ: weight decay, for matrices only

(Kingma & Ba 2015, algorithm 1; decay outside the fraction as in Loshchilov & Hutter 2019, "AdamW".) m̂/√v̂ is
about ±1 whatever the scale of the gradient, so lr determines how far a weight moves in one step.

m and v can be stored in 16 bits (common/sixteen_bit.py), which halves their memory. β2 = 0.999 changes v by a
thousandth, far less than 16 bits can resolve, so they are rounded stochastically. float16 also has a short range: there
√v is stored instead of v, and both are scaled.

The learning rate rises from 0 while m and v have seen few gradients, then falls to 0, so that the weights settle.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from mini_bert.common.sixteen_bit import LARGEST, check_kind, narrow, stored, widen
from mini_bert.common.values import check_positive_number, check_share
from mini_bert.layers.base import Flat

CHUNK = 1 << 18  # numbers at a time: few enough for the cache, enough that threads do not wait for Python between them

SCALE = 4096.0  # of moments in float16: clipped gradients are below 1, and LARGEST is 65,504

Map = Callable[[Callable[[int], Any], Iterable[int]], Any]  # calls a function with every item, in any order


def one_by_one(work: Callable[[int], Any], items: Iterable[int]) -> list[Any]:
    return [work(item) for item in items]


class Optimiser(Protocol):
    """What the training loop, records and checkpoints use. settings.optimizer names one (training/loop.py)."""

    t: int  # the number of steps so far

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        """Its memory by name, for checkpoints: with these arrays and t, it continues exactly."""

    def step(self, lr: float | None = None, scale: float = 1.0, map: Map = one_by_one) -> None:
        """One update from the gradients times `scale`."""

    def last_update(self, part: slice, lr: float) -> np.ndarray:
        """What the last step subtracted from a part of one tensor, without decay."""


class Chunk(NamedTuple):
    """Some of the numbers that Adam updates."""

    flat: slice  # where they are in the flat arrays
    own: slice  # and in m and v


class Adam:
    """Updates `flat.data` from `flat.grad`, in place; weights that decay are the first `flat.decayed` numbers."""

    def __init__(
        self,
        flat: Flat,
        lr: float = 1e-3,
        beta1: float = 0.9,
        beta2: float = 0.999,
        eps: float = 1e-8,
        weight_decay: float = 0.01,
        moments: str = "float32",
        lr_multipliers: Sequence[tuple[slice, float]] = (),
        places: Sequence[slice] | None = None,
    ):
        """lr_multipliers: factors on the learning rate for parts of the flat arrays; 1 for all others

        places: the parts of the flat arrays to update, in order; default: everything
        """
        if not isinstance(flat, Flat):
            raise TypeError(f"Adam works on a model's flat arrays: pass model.flat, not a {type(flat).__name__}")
        check_positive_number("eps", eps)
        for name, value in (("beta1", beta1), ("beta2", beta2), ("weight_decay", weight_decay)):
            check_share(name, value, "a number")
        check_lr(lr)
        self.flat = flat
        self.lr, self.beta1, self.beta2, self.eps, self.weight_decay = lr, beta1, beta2, eps, weight_decay
        check_kind("moments", moments)
        self.chunks = _chunks([slice(0, flat.data.size)] if places is None else places)
        size = self.chunks[-1].own.stop if self.chunks else 0
        self.m, self.v = (stored_moments(flat, size, moments) for _ in range(2))
        self.t = 0
        self._lr_multipliers = _complete(lr_multipliers, flat.data.size)

    def step(self, lr: float | None = None, scale: float = 1.0, map: Map = one_by_one) -> None:
        """One update from the gradients times `scale`; the gradients are not changed.

        Chunks are independent; `map=team.map` spreads them over the threads of a parallel.Team.
        """
        lr = self.lr if lr is None else lr
        check_lr(lr)
        self.t += 1
        map(lambda number: self.update(self.chunks[number], lr, scale), range(len(self.chunks)))

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        return {"m": self.m, "v": self.v}

    def update(self, chunk: Chunk, lr: float, scale: float) -> None:
        """The part of step `t` that concerns one chunk."""
        part, start = chunk.flat, chunk.flat.start
        w, g = wide(self.flat.data[part]), self.flat.grad[part]
        m, v = self._moments(chunk.own)
        s = g * ((1 - self.beta1) * scale)
        m *= self.beta1
        m += s
        np.multiply(g, g, out=s)
        s *= (1 - self.beta2) * scale * scale
        v *= self.beta2
        v += s
        self._direction(m, v, lr, s)
        decayed = max(self.flat.decayed - start, 0)
        for first, last, share in self._lr_multipliers:
            here = slice(max(first - start, 0), max(last - start, 0))
            w[here][: max(decayed - here.start, 0)] *= 1 - lr * share * self.weight_decay
            if share != 1:
                s[here] *= share
        w -= s
        self._keep(chunk, m, v, w)

    def _moments(self, own: slice) -> tuple[np.ndarray, np.ndarray]:
        """m and v to compute with: the arrays themselves, or float32 copies if they are stored in 16 bits."""
        m, v = unscaled(self.m[own]), unscaled(self.v[own])
        if self.m.dtype == np.float16:
            v *= v
        return m, v

    def _keep(self, chunk: Chunk, m: np.ndarray, v: np.ndarray, w: np.ndarray) -> None:
        """Round and write back those of m, v and w that are stored in 16 bits; the others were updated in place."""
        if self.m.dtype == np.float16:
            np.sqrt(v, out=v)
        keep((self.t, chunk.flat.start), w, self.flat.data[chunk.flat], (m, self.m[chunk.own]), (v, self.v[chunk.own]))

    def _direction(self, m, v, lr, out):
        """lr m̂ / (√v̂ + ε), with both corrections taken out of the fraction: m̂ = a m and √v̂ = b √v"""
        a, b = 1 / (1 - self.beta1**self.t), 1 / math.sqrt(1 - self.beta2**self.t)
        np.sqrt(v, out=out)
        out += self.eps / b
        np.divide(m, out, out=out)
        out *= lr * a / b

    def last_update(self, part: slice, lr: float) -> np.ndarray:
        """What the last step subtracted from a part of the weights, without decay; recomputed, for inspection."""
        place = next(chunk for chunk in self.chunks if chunk.flat.start <= part.start < chunk.flat.stop)
        first = part.start - place.flat.start + place.own.start
        m, v = self._moments(slice(first, first + part.stop - part.start))
        update = np.empty_like(m)
        self._direction(m, v, lr, update)
        return update


def check_lr(lr: Any) -> None:
    if isinstance(lr, bool) or not isinstance(lr, int | float | np.floating) or not 0 <= lr < math.inf:
        raise ValueError(f"lr is {lr!r}, expected a number of at least 0, such as 1e-3")


def _complete(multipliers: Sequence[tuple[slice, float]], size: int) -> list[tuple[int, int, float]]:
    """[(first, last, factor)] from 0 to size without gaps: 1 where no factor was given; equal neighbours are merged."""
    found: list[tuple[int, int, float]] = []
    for first, last, share in [
        *sorted((part.start, part.stop, share) for part, share in multipliers),
        (size, size, 1.0),
    ]:
        at = found[-1][1] if found else 0
        if not at <= first <= last <= size:
            raise ValueError(f"the part {first}:{last} overlaps another, or is not within the {size:,} weights")
        for piece in ((at, first, 1.0), (first, last, share)):
            if found and found[-1][2] == piece[2]:
                found[-1] = (found[-1][0], piece[1], piece[2])
            elif piece[0] < piece[1]:
                found.append(piece)
    return found


def _chunks(places: Sequence[slice]) -> list[Chunk]:
    """At most CHUNK numbers each; m and v have the numbers of all places, one after another."""
    found, own = [], 0
    for place in places:
        for start in range(place.start, place.stop, CHUNK):
            part = slice(start, min(start + CHUNK, place.stop))
            found.append(Chunk(part, slice(own, own + part.stop - part.start)))
            own = found[-1].own.stop
    return found


# --- numbers stored in 16 bits -----------------------------------------------------------------------------


def stored_moments(flat: Flat, size: int, kind: str) -> np.ndarray:
    """Zeros, in this kind; "float32": or as wide as the gradients"""
    return np.zeros(size, flat.grad.dtype) if kind == "float32" else stored(size, kind)


def wide(kept: np.ndarray) -> np.ndarray:
    """The array itself, or a float32 copy if it is stored in 16 bits."""
    return widen(kept) if kept.itemsize == 2 else kept


def unscaled(kept: np.ndarray) -> np.ndarray:
    """A moment to compute with: the array itself, or a float32 copy"""
    moment = wide(kept)
    if kept.dtype == np.float16:
        moment *= 1 / SCALE
    return moment


def keep(seed: tuple[int, ...], w: np.ndarray, weights: np.ndarray, *moments: tuple[np.ndarray, np.ndarray]) -> None:
    """Round and write back those of the moments and of w that are stored in 16 bits; the others were updated in place.

    weights: where w is stored; moments: each with the array where it is stored. The seed makes rounding the same for
    any number of threads, and after a resume.
    """
    for exact, kept in moments:
        if kept.dtype == np.float16:
            exact *= SCALE
            np.clip(exact, -LARGEST, LARGEST, out=exact)
    copies = [(kept, exact) for exact, kept in (*moments, (w, weights)) if kept.itemsize == 2]
    if copies:
        rng = np.random.default_rng(seed)
        for kept, exact in copies:
            narrow(exact, kept, rng)


def lr_schedule(progress: float, warmup: float = 0.1) -> float:
    """The learning rate as a fraction of its peak: it rises linearly from 0 until `warmup`, then falls linearly to 0.

    progress    how much of the run is done, from 0 to 1
    """
    if progress < warmup:
        return progress / warmup
    return max(0.0, (1 - progress) / (1 - warmup)) if warmup < 1 else 1.0
