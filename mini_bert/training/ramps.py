"""The batches of every step, if their size, their length or their mask rate changes in the course of a run.

    with Ramps(batches, settings) as ramps:
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
        check(batches, settings)
        self.settings, self.batches, self.now = settings, iter(batches), dict[str, float]()
        self.masking: Any = None
        if settings.mask_start is not None:
            self._own_masking(batches)
        if settings.length_start is not None:
            assert isinstance(batches, TextBatches)
            every = lengths(settings.length_start, batches.arguments["max_seq_length"])
            self.batches = Stages([*(batches.shorter(length) for length in every[:-1]), batches])

    def _own_masking(self, batches: Any) -> None:
        """Give the batches a masking of their own: that of held-out text must not change."""
        batches.objective = copy(batches.objective)
        self.masking = batches.objective.masking = copy(batches.objective.masking)
        self.last_rate = self.masking.mask_prob

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

    def __enter__(self) -> Ramps:
        return self

    def __exit__(self, *error: object) -> None:
        """Whatever is made of the batches after the run has the final mask rate, also if the run ended by an error."""
        if self.masking is not None:
            self.masking.mask_prob = self.last_rate


def check(batches: Any, settings: TrainingConfig) -> None:
    """Raise an error if a ramp does not suit the text or the objective."""
    objective: Any = getattr(batches, "objective", None)
    name = getattr(objective, "name", "of these batches")
    if settings.batch_start is not None and getattr(objective, "consecutive", False):
        raise ValueError(
            f"batch_start is {settings.batch_start}, but the objective {name} continues every sequence of a batch in "
            "the next, so their number cannot change; leave it out"
        )
    if settings.mask_start is not None and getattr(objective, "masking", None) is None:
        raise ValueError(f"mask_start has no effect on the objective {name}; leave it out")
    if settings.length_start is not None:
        if not isinstance(batches, TextBatches) or objective.consecutive:
            raise ValueError(
                f"length_start is {settings.length_start}, but this text cannot be cut into shorter sequences: that "
                "needs a data generator, and an objective that carries no memory; leave it out"
            )
        longest = batches.arguments["max_seq_length"]
        if settings.length_start > longest:
            raise ValueError(f"length_start is {settings.length_start}, expected at most the {longest} of a sequence")


def steps_left(done: float, settings: TrainingConfig) -> float:
    """How much work is left after this share of a run, in steps of the full batch size; for the expected time."""
    assert settings.steps is not None
    if settings.batch_start is None:
        return (1 - done) * settings.steps
    start, end = settings.batch_start, settings.batch_size
    growing = max(0.0, settings.batch_ramp - done)
    mean = (ramp(done, start, end, settings.batch_ramp) + end) / 2 / end
    return settings.steps * (growing * mean + 1 - max(done, settings.batch_ramp))
