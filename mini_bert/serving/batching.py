"""Rows of many requests, computed together: one queue per model, worked off by a thread per core.

    batcher = Batcher(threads=2)
    done = await batcher.run(compute, rows, lengths)        done.results, in the order of the rows

`compute` takes a list of rows and returns their results. Rows that wait for the same `compute` may share a batch, and
do so by length: the rows that wait are sorted, and a batch is a run of neighbours, so there is little padding. BLAS
computes without holding Python's lock, so that batches of several threads run in parallel.

**When.** A row that comes to an idle queue is computed at once. While others are being computed, it waits for other
rows: until PAUSE seconds pass without a new one, for at most GATHER seconds.

**Which.** The row that came first leads. A long run of rows around it has more padding, a short one more overhead; the
best is taken. In every other turn, long rows wait if there are short ones, so that these do not wait for them. A batch
is bounded in tokens, padding included: on a CPU, larger matrices are no faster, and all other rows wait longer.
"""

from __future__ import annotations

import asyncio
import bisect
import math
import threading
import time
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

PAUSE, GATHER = 0.001, 0.005  # seconds
MOST_ROWS = 32  # in a batch
MOST_TOKENS = 1024  # in a batch, padding included; a longer row is computed alone
OVERHEAD = 10  # tokens: what a batch costs besides its tokens
LONG = 128  # tokens of a row that waits in every other turn

Compute = Callable[[list[Any]], Any]  # returns a list of results, or an array with a row for each


class Done(NamedTuple):
    """The results of a request, in order, and how long its rows waited and were computed: means, in seconds"""

    results: list[Any]
    queued: float
    computed: float


class Group:
    """The rows of one request"""

    def __init__(self, count: int):
        self.future: asyncio.Future[Done] = asyncio.get_running_loop().create_future()
        self.results: list[Any] = [None] * count
        self.left, self.queued, self.computed = count, 0.0, 0.0
        self.gone = False  # nothing waits for the results any more

    def deliver(self, place: int, result: Any, queued: float, computed: float) -> None:
        self.results[place] = result
        self.left -= 1
        self.queued += queued
        self.computed += computed
        if self.future.done():
            return
        if isinstance(result, Exception):
            self.future.set_exception(result)
        elif not self.left:
            count = len(self.results)
            self.future.set_result(Done(self.results, self.queued / count, self.computed / count))


class Job(NamedTuple):
    """A row that waits. Jobs are sorted by length, then by arrival."""

    length: int
    number: int  # of arrival
    compute: Compute
    row: Any
    group: Group
    place: int  # in the group
    arrived: float


class Batcher:
    """A queue and its threads. `seen(rows, tokens)` is called for each batch."""

    def __init__(
        self,
        threads: int = 2,
        most_tokens: int = MOST_TOKENS,
        most_rows: int = MOST_ROWS,
        seen: Callable[[int, int], None] = lambda rows, tokens: None,
    ):
        self.threads, self.most_tokens, self.most_rows, self.seen = threads, most_tokens, most_rows, seen
        self.changed = threading.Condition()
        self.waiting: list[Job] = []
        self.working = self.number = self.turn = 0  # threads that compute; rows and batches so far
        self.newest = 0.0  # when the newest row came
        self.closed = False
        self.failed: Exception | None = None  # what went wrong in the last batch
        self.loop: asyncio.AbstractEventLoop | None = None
        for number in range(threads):
            threading.Thread(target=self._work, name=f"batches {number}", daemon=True).start()

    # ------------------------------------------------------------------ for requests, in the event loop

    async def run(self, compute: Compute, rows: Sequence[Any], lengths: Sequence[int]) -> Done:
        """The results of these rows. If one cannot be computed, or the task that waits for them is cancelled, the rest
        is not computed."""
        self.loop = asyncio.get_running_loop()
        group, now = Group(len(rows)), time.monotonic()
        with self.changed:
            if self.closed:
                raise RuntimeError("this queue is closed")
            for place, (row, length) in enumerate(zip(rows, lengths, strict=True)):
                self.number += 1
                bisect.insort(self.waiting, Job(length, self.number, compute, row, group, place, now))
            self.newest = now
            self.changed.notify(min(len(rows), self.threads))
        try:
            return await group.future
        finally:
            group.gone = True

    def close(self) -> None:
        """End the threads when all rows are computed."""
        with self.changed:
            self.closed = True
            self.changed.notify_all()

    def oldest(self) -> float:
        """How long the row that came first has been waiting, in seconds"""
        with self.changed:
            return max((time.monotonic() - job.arrived for job in self.waiting), default=0.0)

    # ------------------------------------------------------------------ the threads

    def _work(self) -> None:
        while batch := self._next():
            began = time.monotonic()
            results = self._results(batch)
            ended = time.monotonic()
            with self.changed:
                self.working -= 1
            assert self.loop is not None
            try:
                self.loop.call_soon_threadsafe(self._deliver, batch, results, began, ended)
            except RuntimeError:  # the event loop was closed: nothing waits for them
                return

    def _results(self, batch: list[Job]) -> Sequence[Any]:
        """The result of each row, or the error. A row that cannot be computed does not spoil the others."""
        try:
            results = batch[0].compute([job.row for job in batch])
            self.failed = None
            return results
        except Exception as error:
            self.failed = error
            return [error] if len(batch) == 1 else [self._results([job])[0] for job in batch]

    def _deliver(self, batch: list[Job], results: Sequence[Any], began: float, ended: float) -> None:
        for job, result in zip(batch, results, strict=True):
            job.group.deliver(job.place, result, began - job.arrived, ended - began)

    def _next(self) -> list[Job]:
        """The next batch; waits for it. Empty: the queue was closed."""
        with self.changed:
            while True:
                pause = self._pause() if self.waiting else None
                if pause is not None and pause <= 0:
                    batch = self._take()
                    if batch:
                        self.working += 1
                        self.seen(len(batch), len(batch) * max(job.length for job in batch))
                        return batch
                elif pause is None and self.closed:
                    return []
                else:
                    self.changed.wait(pause)

    def _pause(self) -> float:
        """How long to wait for more rows, in seconds"""
        if self.closed or not self.working or len(self.waiting) >= self.most_rows * (self.threads - self.working):
            return 0.0
        now = time.monotonic()
        first = min(job.arrived for job in self.waiting)
        return min(self.newest + PAUSE - now, first + GATHER - now)

    def _take(self) -> list[Job]:
        """Remove a batch from the queue. Empty if nothing waits for the rows any more."""
        if any(job.group.gone for job in self.waiting):
            self.waiting = [job for job in self.waiting if not job.group.gone]
            if not self.waiting:
                return []
        self.turn += 1
        jobs = self.waiting
        short = bisect.bisect(jobs, LONG, key=lambda job: job.length)  # so many are short
        places = self._batch(jobs[:short] if short and self.turn % 2 else jobs)
        batch = [jobs[place] for place in places]
        for place in reversed(places):
            del jobs[place]
        return batch

    def _batch(self, jobs: list[Job]) -> list[int]:
        """The places of the next batch: of all runs that contain the row that came first, the one with the least cost
        per token."""
        leader = min(jobs, key=lambda job: job.number)
        same = [place for place, job in enumerate(jobs) if job.compute == leader.compute]
        lengths = [jobs[place].length for place in same]
        sums = [0, *accumulate(lengths)]
        own = next(number for number, place in enumerate(same) if jobs[place] is leader)
        free = max(1, self.threads - self.working)
        most = min(self.most_rows, -(-len(same) // free))  # the other threads get their share

        def cost(run: tuple[int, int]) -> float:
            first, last = run
            width = (last - first + 1) * lengths[last]
            if last > first and width > self.most_tokens:
                return math.inf
            return (OVERHEAD + width) / (sums[last + 1] - sums[first])

        runs = (
            (first, last)
            for first in range(max(0, own - most + 1), own + 1)
            for last in range(own, min(first + most, len(same)))
        )
        first, last = min(runs, key=cost)
        return same[first : last + 1]
