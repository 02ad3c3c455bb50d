"""The order of the sequences: shuffled in every epoch; any batch can be found by its number.

Epochs follow each other without a gap: a batch may contain the last sequences of one and the first of the next. The
order depends only on the seed and the epoch, so batch k is the same in any process, thread and run.

With `lengths`, sequences of similar length share a batch, which saves padding: the sequences of POOL batches are sorted
by length, and the batches are then shuffled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache

import numpy as np

from mini_bert.common.draws import address, shuffled

POOL = 64  # batches whose sequences are sorted by length together
SHUFFLE, GROUPS = 2**62, 2**62 + 1  # keys for two uses of random numbers, larger than any epoch number


class Order:
    """Which sequences form batch k; `fixed` keeps the order (and so the masks) of the first epoch."""

    def __init__(
        self,
        sequences: int,
        batch_size: int,
        seed: int = 0,
        fixed: bool = False,
        lengths: Callable[[np.ndarray], np.ndarray] | None = None,
    ):
        self.sequences, self.batch_size, self.seed, self.fixed, self.lengths = (
            sequences, batch_size, seed, fixed, lengths,
        )  # fmt: skip
        self.pool = 1 if lengths is None else max(1, min(POOL, sequences // batch_size))
        self._shuffled = lru_cache(2)(lambda epoch: shuffled(sequences, address(seed, SHUFFLE, epoch)))
        self._groups = lru_cache(4)(self._pool_groups)

    def batch(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        """The epochs and the numbers of the sequences in batch `index`, counted across all epochs."""
        if self.lengths is None:
            return self._numbers(np.arange(index * self.batch_size, (index + 1) * self.batch_size))
        return self._numbers(self._groups(index // self.pool)[index % self.pool])

    def once(self, epoch: int = 0, most: int | None = None) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Every sequence of an epoch once, or the first `most`; the last batch may be smaller."""
        first, size = epoch * self.sequences, self.pool * self.batch_size
        end = self.sequences if most is None else min(most, self.sequences)
        for low in range(0, end, size):
            for places in self._grouped(np.arange(first + low, first + min(low + size, end))):
                yield self._numbers(places)

    def _numbers(self, places):
        """Convert positions in the endless stream of sequences to epochs and sequence numbers."""
        epochs, places = np.divmod(places, self.sequences)
        if self.fixed:
            epochs = np.zeros_like(epochs)
        numbers = np.empty_like(places)
        for epoch in np.unique(epochs):
            here = epochs == epoch
            numbers[here] = self._shuffled(int(epoch))[places[here]]
        return epochs, numbers

    def _pool_groups(self, pool: int) -> list[np.ndarray]:
        """The positions of the batches of one pool, shuffled so that short ones do not all come first."""
        size = self.pool * self.batch_size
        groups = self._grouped(np.arange(pool * size, (pool + 1) * size))
        return [groups[i] for i in shuffled(len(groups), address(self.seed, GROUPS, pool))]

    def _grouped(self, places) -> list[np.ndarray]:
        """Split positions into batches, similar lengths together."""
        if self.lengths is not None:
            places = places[np.argsort(self.lengths(self._numbers(places)[1]), kind="stable")]
        return np.split(places, range(self.batch_size, len(places), self.batch_size))
