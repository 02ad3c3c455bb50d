"""Batches combine a source of sequences, the order they come in, and the objective that makes batches of them.

    batches = Batches(source, objective, batch_size=32, seed=0)
    for batch in batches: ...          endless
    batches.batch(7)                   any batch by its number

All random choices come from common/draws.py: they depend only on the seed, the epoch and the number of the sequence.
Hence

- batch k is the same in any order of access and from any thread: with 4 micro-batches per step, micro-batch m of step s
  is batch(4·s + m), and one batch of 32 sequences equals four of 8 (unless sequences are grouped by length);
- the exact position in the data is one number, `next`; a resumed run sees the same tokens and masks as one that was
  never interrupted.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from operator import index as whole
from typing import Any, Self

import numpy as np

from mini_bert.common.draws import address
from mini_bert.common.progress import counted
from mini_bert.common.values import check_positive
from mini_bert.data.lanes import Lanes
from mini_bert.data.order import Order
from mini_bert.data.sequences import Source
from mini_bert.objectives.base import Objective

logger = logging.getLogger(__name__)


class Batches:
    """Endless batches, and any batch by its number.

    lanes   for an objective with a memory: the number of sequences in a whole batch, of which these are the
            micro-batches. Each of them then continues where it stopped in the batch before (data/lanes.py)
    step    sequences per optimiser step, if batches are parts of it; only for messages about the whole batch
    """

    order: Order | Lanes

    def __init__(
        self,
        source: Source,
        objective: Objective,
        batch_size: int,
        seed: int = 0,
        fixed: bool = False,
        lanes: int | None = None,
        step: int | None = None,
    ):
        check_positive("batch_size", batch_size)
        if isinstance(seed, bool) or not isinstance(seed, int):
            raise ValueError(f"seed is {seed!r}, expected a whole number")
        self.source, self.objective, self.batch_size, self.seed = source, objective, batch_size, seed
        self.documents, self.shards = source.documents, source.documents.shards
        self.sequences, self.step = source.count, step or batch_size
        if objective.consecutive != (lanes is not None):
            why = "carries a memory: expected the number of sequences in a whole batch" if lanes is None else "has none"
            raise ValueError(f"lanes is {lanes}, but the objective {objective.name} {why}")
        if lanes is None:
            self.order = Order(self.sequences, batch_size, seed, fixed, source.lengths)
        else:
            self.order = Lanes(self.sequences, batch_size, lanes, seed, fixed)
            if not fixed:
                self.order.check()
        self.next = 0  # number of the next batch
        self.arguments: dict[str, Any] = {
            "batch_size": batch_size, "seed": seed, "fixed": fixed, "objective": objective.name, **objective.arguments,
            **({} if lanes is None else {"lanes": lanes}),
        }  # fmt: skip
        if self.sequences < self.step and not fixed:
            logger.warning(
                "the text makes %s, but a batch has %d: some appear more than once in it; use more text, smaller "
                "batches, or shorter sequences",
                counted(self.sequences, "sequence"),
                self.step,
            )

    @property
    def tokens(self) -> int:
        """The number of tokens in the documents used, including one [SEP] per document."""
        return self.documents.tokens.size

    @property
    def epoch(self) -> float:
        """The number of epochs that iteration has completed."""
        return self.next * self.batch_size / self.sequences

    def __len__(self) -> int:
        """The number of batches per epoch; the last may be shared with the next epoch."""
        return -(-self.sequences // self.batch_size)

    def batch(self, index: int) -> Any:
        """Batch number `index`, counted from 0 across all epochs."""
        try:
            index = whole(index)
        except TypeError:
            raise TypeError(f"the batch number is {index!r}, expected a whole number of at least 0") from None
        if index < 0:
            raise IndexError(f"there is no batch {index}; batches are numbered from 0")
        return self._batch(*self.order.batch(index))

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        batch = self.batch(self.next)
        self.next += 1
        return batch

    def once(self, epoch: int = 0, most: int | None = None) -> Iterator[Any]:
        """Every sequence of an epoch once, or the first `most`; the last batch may be smaller. For evaluation."""
        for places in self.order.once(epoch, most):
            yield self._batch(*places)

    def _batch(
        self, epochs: np.ndarray, numbers: np.ndarray, lanes: np.ndarray | None = None, starts: np.ndarray | None = None
    ) -> Any:
        keys = address(self.seed, epochs, numbers)
        rows = self.source.rows(numbers, keys)
        return self.objective.batch(rows._replace(lanes=lanes, starts=starts), keys)

    # ------------------------------------------------------------------ the position in the data

    def state(self) -> dict[str, Any]:
        """The exact position, as numbers and strings for a JSON file."""
        return {"next": self.next, "data": self.shards.digest, **self.arguments}

    def restore(self, state: dict[str, Any]) -> None:
        """Go to the position in `state`: the next batch is the one that would have come next there."""
        ours = self.state()
        if not isinstance(state, dict):
            raise TypeError(f"the state is {state!r:.60}, a {type(state).__name__}; expected what state() returned")
        if set(state) != set(ours):
            odd = ", ".join(sorted(set(state) ^ set(ours)))
            raise ValueError(f"this state is not from this version of the data generator: it differs in {odd}")
        if state["data"] != ours["data"]:
            raise ValueError(
                "the saved position belongs to another text or vocabulary; restore it with the data it was saved with"
            )
        for name in self.arguments:
            if state[name] != ours[name]:
                raise ValueError(
                    f"the position was saved with {name}={state[name]!r}, but this generator has {ours[name]!r}; "
                    f"build it with {name}={state[name]!r}"
                )
        if isinstance(state["next"], bool) or not isinstance(state["next"], int) or state["next"] < 0:
            raise ValueError(f"the saved position is {state['next']!r}, expected a batch number")
        self.next = state["next"]
