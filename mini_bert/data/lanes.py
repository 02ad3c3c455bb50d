"""An order for models with a memory: each lane of a batch reads on where it stopped in the batch before.

    step          0     1     2    …               a text of 12 segments, 3 lanes of 4 segments each
    lane 0        0     1     2     3
    lane 1        4     5     6     7
    lane 2        8     9    10    11

The text is cut into as many stretches as a whole batch has sequences, and lane b reads stretch b from beginning to end,
one segment per step. So what the model remembers of lane b at one step precedes its segment at the next. Micro-batch m
of a step has the lanes from m·B on. Which segments a lane reads depends on the size of the whole batch only, not on how
it is split among threads.

The stretches of every epoch begin at another place: the first segment of lane 0 is drawn anew, and a lane that reaches
the end of the text continues at its beginning. There, and at the start of an epoch, a lane has no past: `starts` says
so. Segments that are left when the text is divided among the lanes are not read in that epoch.

The position in the data is still one number, that of the next batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from mini_bert.common.draws import address, below

OFFSET = 2**62 + 2  # the key of its random numbers, larger than any epoch number
SEGMENTS = 16  # that evaluation reads one after the other


class Places(NamedTuple):
    """The sequences of a batch."""

    epochs: np.ndarray  # (B,)
    numbers: np.ndarray  # (B,)
    lanes: np.ndarray  # (B,)
    starts: np.ndarray  # (B,) whether nothing precedes the sequence


class Lanes:
    """Which sequences form batch k; `fixed` keeps the order of the first epoch."""

    def __init__(self, sequences: int, batch_size: int, lanes: int, seed: int = 0, fixed: bool = False):
        if lanes < 1 or lanes % batch_size:
            raise ValueError(f"lanes is {lanes}, expected a multiple of the {batch_size} sequences of a (micro-)batch")
        self.sequences, self.batch_size, self.lanes, self.seed, self.fixed = sequences, batch_size, lanes, seed, fixed
        self.steps = sequences // lanes  # in an epoch

    def batch(self, index: int) -> Places:
        """The sequences of batch `index`, counted across all epochs."""
        self.check()
        step, part = divmod(index, self.lanes // self.batch_size)
        epoch, at = divmod(step, self.steps)
        epoch = 0 if self.fixed else epoch
        lanes = part * self.batch_size + np.arange(self.batch_size)
        numbers = (self._offset(epoch) + lanes * self.steps + at) % self.sequences
        return Places(np.full(self.batch_size, epoch), numbers, lanes, (numbers == 0) | (at == 0))

    def check(self) -> None:
        if not self.steps:
            raise ValueError(
                f"the text makes {self.sequences:,} segments, too few for a batch of {self.lanes}, whose sequences "
                "each read a part of the text of their own; use more text, smaller batches or shorter sequences"
            )

    def once(self, epoch: int = 0, most: int | None = None) -> Iterator[Places]:
        """Every sequence once, or the first `most`, in the order of the text; for evaluation.

        A batch holds whole stretches of SEGMENTS sequences: first that of every lane, then the second of every lane, …
        So no batch depends on another.
        """
        end = self.sequences if most is None else min(most, self.sequences)
        whole, rest = divmod(end, SEGMENTS)
        for low in range(0, whole, self.batch_size):
            yield self._stretches(np.arange(low, min(low + self.batch_size, whole)) * SEGMENTS, SEGMENTS)
        if rest:
            yield self._stretches(np.array([whole * SEGMENTS]), rest)

    def _stretches(self, first: np.ndarray, segments: int) -> Places:
        numbers = (first + np.arange(segments)[:, None]).ravel()
        lanes, starts = np.tile(np.arange(len(first)), segments), np.arange(numbers.size) < len(first)
        return Places(np.zeros_like(numbers), numbers, lanes, starts)

    def _offset(self, epoch: int) -> int:
        return int(below(address(self.seed, OFFSET, epoch), self.sequences)[0])
