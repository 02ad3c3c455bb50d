"""Adam: every weight gets a step of its own size, from the recent history of its gradient.

    m = β1 m + (1−β1) g              a running mean of the gradient: the direction, with the jitter averaged out
    v = β2 v + (1−β2) g²             a running mean of its square: how large it usually is
    m̂ = m / (1−β1ᵗ),  v̂ = v / (1−β2ᵗ)     both start at 0; this undoes the bias of the first steps
    w = w − lr (m̂ / (√v̂ + ε) + λ w)  λ: weight decay, for matrices only

(Kingma & Ba 2015, algorithm 1; decay outside the fraction as in Loshchilov & Hutter 2019, "AdamW".) m̂/√v̂ is
about ±1 whatever the scale of the gradient, so lr says how far a weight moves in one step.

The learning rate itself has a course: up from 0 while m and v have seen little, then down to 0, so that at the end the
weights settle instead of jumping about.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from mini_bert.layers.base import Flat

CHUNK = 1 << 18  # numbers at a time: few enough for the cache, enough that threads do not wait for Python between them

Each = Callable[[Callable[[int], Any], Iterable[int]], Any]  # calls a function with every item, in any order


def one_by_one(work: Callable[[int], Any], items: Iterable[int]) -> list[Any]:
    return [work(item) for item in items]


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
        shares: Sequence[tuple[slice, float]] = (),
    ):
        """shares: parts of the flat arrays that get only so much of the learning rate; all others get the whole"""
        if not isinstance(flat, Flat):
            raise TypeError(f"Adam works on a model's flat arrays: pass model.flat, not a {type(flat).__name__}")
        self.flat = flat
        self.lr, self.beta1, self.beta2, self.eps, self.weight_decay = lr, beta1, beta2, eps, weight_decay
        self.m = np.zeros_like(flat.data)
        self.v = np.zeros_like(flat.data)
        self.t = 0
        self._shares = _complete(shares, flat.data.size)

    def step(self, lr: float | None = None, scale: float = 1.0, each: Each = one_by_one) -> None:
        """One update from the gradients times `scale`; they are left as they are.

        `each` goes through the chunks, which have nothing to do with each other: parallel.Team.each shares them out.
        """
        self.t += 1
        lr = self.lr if lr is None else lr
        each(lambda start: self._update(start, lr, scale), range(0, self.m.size, CHUNK))

    def _update(self, start: int, lr: float, scale: float) -> None:
        part = slice(start, start + CHUNK)
        w, g, m, v = self.flat.data[part], self.flat.grad[part], self.m[part], self.v[part]
        s = g * ((1 - self.beta1) * scale)
        m *= self.beta1
        m += s
        np.multiply(g, g, out=s)
        s *= (1 - self.beta2) * scale * scale
        v *= self.beta2
        v += s
        self._direction(m, v, s)
        decayed = max(self.flat.decayed - start, 0)
        for first, last, share in self._shares:
            here = slice(max(first - start, 0), max(last - start, 0))
            w[here][: max(decayed - here.start, 0)] *= 1 - lr * share * self.weight_decay
            s[here] *= lr * share
        w -= s

    def _direction(self, m, v, out):
        """m̂ / (√v̂ + ε), with both corrections taken out of the fraction: m̂ = a m and √v̂ = b √v"""
        a, b = 1 / (1 - self.beta1**self.t), 1 / math.sqrt(1 - self.beta2**self.t)
        np.sqrt(v, out=out)
        out += self.eps / b
        np.divide(m, out, out=out)
        out *= a / b

    def last_update(self, part: slice, lr: float) -> np.ndarray:
        """What the last step subtracted from a part of the weights, decay aside; computed again, for looking at."""
        update = np.empty_like(self.m[part])
        self._direction(self.m[part], self.v[part], update)
        update *= lr
        return update


def _complete(shares: Sequence[tuple[slice, float]], size: int) -> list[tuple[int, int, float]]:
    """[(first, last, share)] from 0 to size without a gap: what was not named gets 1, neighbours that agree are one"""
    found: list[tuple[int, int, float]] = []
    for first, last, share in [*sorted((part.start, part.stop, share) for part, share in shares), (size, size, 1.0)]:
        at = found[-1][1] if found else 0
        if not at <= first <= last <= size:
            raise ValueError(f"the part {first}:{last} overlaps another, or is not within the {size:,} weights")
        for piece in ((at, first, 1.0), (first, last, share)):
            if found and found[-1][2] == piece[2]:
                found[-1] = (found[-1][0], piece[1], piece[2])
            elif piece[0] < piece[1]:
                found.append(piece)
    return found


def course(progress: float, warmup: float = 0.1) -> float:
    """The learning rate as a share of its peak: a line up from 0 until `warmup`, then a line down to 0 at the end.

    progress    how much of the run is done, from 0 to 1
    """
    if progress < warmup:
        return progress / warmup
    return max(0.0, (1 - progress) / (1 - warmup)) if warmup < 1 else 1.0
