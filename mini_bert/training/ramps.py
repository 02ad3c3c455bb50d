"""The batches of every step, if their size, their length or their mask rate changes in the course of a run.

    ramps = Ramps(batches, settings)
    parts = ramps.parts(progress)           the micro-batches of the next step

What a step gets depends on progress and on the position in the data only (schedules.py), so a resumed run with `steps`
continues exactly.
"""

from __future__ import annotations

from collections.abc import Iterable
from copy import copy
from itertools import islice
from typing import Any

from mini_bert.data.generator import TextBatches
from mini_bert.data.stages import Stages
from mini_bert.training.schedules import batch_parts, length_stage, lengths, ramp
from mini_bert.training.settings import TrainingConfig


class Ramps:
    """batches: what is restored from checkpoints and saved in them; now: the current values, for records."""

    def __init__(self, batches: Iterable[Any], settings: TrainingConfig):
        self.settings, self.batches, self.now = settings, iter(batches), dict[str, float]()
        objective: Any = getattr(batches, "objective", None)
        if settings.batch_start is not None and getattr(objective, "consecutive", False):
            raise ValueError(
                f"batch_start is {settings.batch_start}, but the objective {objective.name} reads on in every sequence "
                "of a batch, so their number cannot change; leave it out"
            )
        self.masking: Any = None
        if settings.mask_start is not None:
            if getattr(objective, "masking", None) is None:
                name = getattr(objective, "name", "of these batches")
                raise ValueError(f"mask_start has no effect on the objective {name}; leave it out")
            self._own_masking(batches, objective)
        if settings.length_start is not None:
            self.batches = self._stages(batches, settings.length_start)

    def _own_masking(self, batches: Any, objective: Any) -> None:
        """Give the batches a masking of their own: that of held-out text must not change."""
        batches.objective = objective = copy(objective)
        self.masking = objective.masking = copy(objective.masking)
        self.last_rate = self.masking.mask_prob

    def _stages(self, batches: Any, start: int) -> Stages:
        if not isinstance(batches, TextBatches) or batches.objective.consecutive:
            raise ValueError(
                f"length_start is {start}, but this text cannot be cut into shorter sequences: that needs a data "
                "generator, and an objective that carries no memory; leave it out"
            )
        longest = batches.arguments["max_seq_length"]
        if start > longest:
            raise ValueError(f"length_start is {start}, expected at most the {longest} tokens of a sequence")
        return Stages([*(batches.shorter(length) for length in lengths(start, longest)[:-1]), batches])

    def parts(self, progress: float) -> list[Any]:
        """The micro-batches of the next step; fewer, or none, if the text has ended."""
        settings = self.settings
        count = settings.batch_size // settings.micro_batch
        if settings.batch_start is not None:
            count = batch_parts(progress, settings.batch_start // settings.micro_batch, count, settings.batch_ramp)
            self.now["batch_size"] = count * settings.micro_batch
        if self.masking is not None:
            assert settings.mask_start is not None
            self.masking.mask_prob = ramp(progress, settings.mask_start, self.last_rate, settings.mask_ramp)
            self.now["mask_prob"] = round(self.masking.mask_prob, 4)
        if isinstance(self.batches, Stages):
            self.batches.stage = length_stage(progress, len(self.batches.all), settings.length_ramp)
            self.now["length"] = self.batches.current.arguments["max_seq_length"]
        return list(islice(self.batches, count))


def steps_left(done: float, settings: TrainingConfig) -> float:
    """How much work is left after this share of a run, in steps of the full batch size; for the expected time."""
    assert settings.steps is not None
    if settings.batch_start is None:
        return (1 - done) * settings.steps
    start, end = settings.batch_start, settings.batch_size
    growing = max(0.0, settings.batch_ramp - done)
    mean = (ramp(done, start, end, settings.batch_ramp) + end) / 2 / end
    return settings.steps * (growing * mean + 1 - max(done, settings.batch_ramp))
