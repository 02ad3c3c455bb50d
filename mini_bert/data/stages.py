"""The same text in sequences of several lengths: short ones first.

    batches = Stages([generator.shorter(32), generator])
    batches.stage = 1                        from now on, the longer ones

Each length has its own order and its own position, so any stage can be resumed exactly.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

from mini_bert.data.generator import TextBatches


class Stages:
    """Micro-batches of the stage that is current; all stages have the same objective."""

    def __init__(self, stages: Sequence[TextBatches]):
        self.all, self.stage = list(stages), 0

    @property
    def current(self) -> TextBatches:
        return self.all[self.stage]

    @property
    def objective(self) -> Any:
        return self.current.objective

    @property
    def epoch(self) -> float:
        """How often the text has been read, in all lengths together"""
        return sum(one.epoch for one in self.all)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        return next(self.current)

    def state(self) -> dict[str, Any]:
        """The position in each length"""
        return {"stages": [one.state() for one in self.all]}

    def restore(self, state: dict[str, Any]) -> None:
        found = state.get("stages") if isinstance(state, dict) else None
        if not isinstance(found, list) or len(found) != len(self.all):
            raise ValueError(
                "the saved position is not of a text in these lengths; resume with the settings of the run"
            )
        for one, own in zip(self.all, found, strict=True):
            one.restore(own)
