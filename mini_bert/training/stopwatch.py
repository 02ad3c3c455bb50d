"""The working time of a run, without the hours that the machine slept."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from statistics import median_low

LONGEST = 60.0  # seconds: a gap up to this length always counts as work
USUAL = 20  # times a usual step: an evaluation on held-out text takes about ten, and the machine may be slow


class Stopwatch:
    """Seconds of work. A gap between two readings counts at most LONGEST seconds, or USUAL times the median step if
    that is longer: so time stands still while the machine sleeps or the process is stopped."""

    def __init__(self, before: float, clock: Callable[[], float] = time.perf_counter):
        self.total, self.clock, self.last = before, clock, clock()
        self.steps: deque[float] = deque(maxlen=101)  # with pauses; the median is not affected by them

    def step(self) -> float:
        """Call after a step. Returns the seconds so far."""
        self.steps.append(self._look())
        return self.total

    def seconds(self) -> float:
        self._look()
        return self.total

    def _look(self) -> float:
        now = self.clock()
        passed, self.last = now - self.last, now
        usual = median_low(self.steps) if self.steps else 0.0
        self.total += min(passed, max(LONGEST, USUAL * usual))
        return passed
