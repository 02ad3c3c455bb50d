"""Averages of the weights of many steps, which are better than the weights of any one of them.

    a = a + (w − a) / n                      "tail": the mean of n samples, from the last part of the run
    a = a + (w − a) · max(1 − β, 1/n)        "ema": an exponential moving average; at first, the mean

The weights of a run wander around a good place, because every batch pulls in a direction of its own; the mean is nearer
to that place. (Polyak & Juditsky 1992; Izmailov et al. 2018, "Averaging weights leads to wider optima".) It is what
gets evaluated and saved. Training goes on with the weights themselves.

A sample is taken every few steps, because neighbours hardly differ: β = `decay` to the power of that many. Short runs
take one more often, so that at least about ten are averaged.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from mini_bert.layers.base import Flat
from mini_bert.training.optim import CHUNK, Map, Optimiser, one_by_one

KINDS = ("none", "ema", "tail")
SAMPLES = 10  # at least, in the part of the run that is averaged, if it has that many steps


class Averaged:
    """An optimiser, and the average of the weights that it makes.

    kind        "ema" or "tail"
    every       steps between two samples, at most
    decay       of the moving average, per step
    tail        the share of the run, at its end, whose mean is taken
    """

    def __init__(self, optimiser: Optimiser, flat: Flat, kind: str, every: int, decay: float = 0.0, tail: float = 0.0):
        self.optimiser, self.flat, self.kind, self.every, self.decay, self.tail = (
            optimiser, flat, kind, every, decay, tail,
        )  # fmt: skip
        self.other = np.zeros_like(flat.data)  # the average; inside `swapped`, the weights themselves
        self.count = np.zeros(1, np.int64)  # samples so far

    @property
    def t(self) -> int:
        return self.optimiser.t

    @t.setter
    def t(self, value: int) -> None:
        self.optimiser.t = value

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        return {**self.optimiser.arrays, "raw_weights": self.other, "averaged_samples": self.count}

    def step(self, lr: float | None = None, scale: float = 1.0, map: Map = one_by_one) -> None:
        self.optimiser.step(lr, scale, map)

    def last_update(self, part: slice, lr: float) -> np.ndarray:
        return self.optimiser.last_update(part, lr)

    def sample(self, progress: float, map: Map = one_by_one) -> None:
        """Called after every step, with the share of the run that is done."""
        if self.kind == "tail" and progress < 1 - self.tail:
            self.count[...] = 0  # a finished run that is trained further has a new tail
            return
        steps = self.t / max(progress, 1e-9)  # of the whole run
        every = max(1, min(self.every, round((self.tail if self.kind == "tail" else 1) * steps / SAMPLES)))
        if self.t % every:
            return
        self.count += 1
        weight = 1 / int(self.count[0])
        if self.kind == "ema":
            weight = max(weight, 1 - self.decay**every)

        def update(start: int) -> None:
            average = self.other[start : start + CHUNK]
            if weight == 1:  # the first: `other` has had nothing to do with it
                average[...] = self.flat.data[start : start + CHUNK]
                return
            change = self.flat.data[start : start + CHUNK] - average
            change *= weight
            average += change

        map(update, range(0, self.other.size, CHUNK))

    @contextmanager
    def swapped(self) -> Iterator[None]:
        """Inside, the model has the averaged weights, and `other` its own; before the first sample, the same."""
        if not self.count[0]:
            self.other[...] = self.flat.data
        self.swap()
        try:
            yield
        finally:
            self.swap()

    def swap(self) -> None:
        for start in range(0, self.other.size, CHUNK):
            part = slice(start, start + CHUNK)
            kept = self.other[part].copy()
            self.other[part] = self.flat.data[part]
            self.flat.data[part] = kept


def check_kind(kind: Any) -> None:
    if kind not in KINDS:
        raise ValueError(f"average is {kind!r}, expected one of {', '.join(KINDS)}")
