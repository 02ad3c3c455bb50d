"""Train on all cores: each thread processes a part of the batch, with its own replica of the model.

    replica j    the same weights, its own gradients and scratch memory, one BLAS thread
    1            every thread runs forward and backward on its micro-batches, and adds to its own gradients
    2            the gradients are summed: replica 0 + replica 1 + …, always in this order
    3            the weights, which all replicas share, are updated once

Threads, not processes: NumPy releases Python's lock inside its operations, so they run side by side, and the weights
are in memory only once. One BLAS thread each: a product that is split among cores waits for the slowest of them
every time, and everything between the products would run on one core. A thread with its own micro-batch never waits
until the step is done.

Sums of floats depend on the order of the terms. Here only the number of threads determines which thread computes what,
and the order of every sum: with the same number of threads, a run gives the same numbers to the last bit.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np

from mini_bert.layers.base import Run
from mini_bert.models.base import Model
from mini_bert.objectives.base import Objective, Part
from mini_bert.objectives.masked_words import MaskedWords
from mini_bert.training.optim import CHUNK


class Outcome(NamedTuple):
    """The results of one forward and backward pass over a whole batch."""

    parts: dict[str, Part]  # the mean loss of each part, and how many of its targets were predicted correctly
    norm: float  # of the gradient

    @property
    def main(self) -> Part:
        """The first part: the one that records call "the loss"."""
        return next(iter(self.parts.values()))

    @property
    def loss(self) -> float:
        return self.main.loss

    @property
    def correct(self) -> int:
        return self.main.correct or 0

    @property
    def targets(self) -> int:
        return self.main.targets

    @property
    def finite(self) -> bool:
        return math.isfinite(self.norm) and all(math.isfinite(part.loss) for part in self.parts.values())


class Team:
    """Threads with replicas of `model`; use it in a `with` block, so that the threads end.

    Inside the block BLAS uses one thread, in the whole process.
    """

    def __init__(self, model: Model, threads: int | None = None):
        threads = default_threads() if threads is None else threads
        if threads < 1:
            raise ValueError(f"threads is {threads}, expected at least 1")
        self.model: Any = model
        self.replicas: list[Any] = [model, *(model.replica() for _ in range(threads - 1))]
        self._params = [list(replica.named_params().values()) for replica in self.replicas]

    def __enter__(self) -> Team:
        from threadpoolctl import threadpool_limits

        self._limits = threadpool_limits(1, user_api="blas")
        self._threads = ThreadPoolExecutor(max(1, len(self.replicas) - 1), thread_name_prefix="replica")
        return self

    def __exit__(self, *reason: Any) -> None:
        self._threads.shutdown()
        self._limits.restore_original_limits()

    # ------------------------------------------------------------------ distributing work

    def run_on_all(self, work: Callable[[int], Any]) -> list[Any]:
        """work(0), work(1), … at the same time, one per thread; the first in the calling thread."""
        others = [self._threads.submit(work, j) for j in range(1, len(self.replicas))]
        try:
            first = work(0)
        finally:
            for other in others:
                other.exception()  # waits: no thread goes on computing after an error
        return [first, *(other.result() for other in others)]

    def map(self, work: Callable[[Any], Any], items: Iterable[Any]) -> list[Any]:
        """work(item) for every item, shared among the threads. Returns the results in the order of the items."""
        items, n = list(items), len(self.replicas)
        results: list[Any] = [None] * len(items)

        def share(j: int) -> None:
            for i in range(j, len(items), n):
                results[i] = work(items[i])

        self.run_on_all(share)
        return results

    # ------------------------------------------------------------------ one step of training

    def gradient(
        self, parts: Sequence[Any], seed: tuple[int, ...] = (0,), objective: Objective | None = None
    ) -> Outcome:
        """Forward and backward of a batch given in parts; model.flat.grad is then the gradient of its mean loss.

        Earlier content of the gradients is discarded. Sequences are numbered across all parts, and their dropout masks
        depend on that number, so the masks depend neither on the number of threads nor on how the batch is split.
        """
        objective, n = objective or MaskedWords(), len(self.replicas)
        sizes = [objective.size(part) for part in parts]
        count = {name: sum(size.targets[name] for size in sizes) for name in sizes[0].targets}
        first = [0, *accumulate(size.sequences for size in sizes)]

        def share(j: int) -> list[dict[str, Part]]:
            model, losses = self.replicas[j], []
            for param in self._params[j]:
                param.grad_is_unset = True
            for i in range(j, len(parts), n):
                run = Run(seed, train=True, pool=model.run.pool, first=first[i])
                with np.errstate(over="ignore", invalid="ignore"):  # `Outcome.finite` says so in one sentence
                    losses.append(objective.loss(model, parts[i], run, count))
            for param in self._params[j]:
                param.zero_if_unset()
            return losses

        shares = self.run_on_all(share)
        squares = self.map(self._add_up, range(0, self.model.flat.grad.size, CHUNK))
        names = shares[0][0]  # of the parts of the loss
        totals = {name: total(total(loss[name] for loss in losses) for losses in shares if losses) for name in names}
        return Outcome(totals, math.sqrt(math.fsum(squares)))

    def _add_up(self, start: int) -> float:
        """Sum one chunk of all replicas' gradients into the model's. Returns the sum of its squares."""
        total, *others = (replica.flat.grad[start : start + CHUNK] for replica in self.replicas)
        for other in others:
            total += other
        pieces = (total[low : low + 4_096] for low in range(0, total.size, 4_096))  # a long float32 sum would drift
        return math.fsum(float(np.dot(piece, piece)) for piece in pieces)


def total(parts: Iterable[Part]) -> Part:
    losses, correct, targets = zip(*parts, strict=True)
    return Part(sum(losses), None if None in correct else sum(correct), sum(targets))


def default_threads() -> int:
    """The cores that this process may use, at most 8: beyond that the steps of a small model get no faster"""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)
    return min(cores, 8)
