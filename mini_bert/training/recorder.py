"""The state of a run, and the recorder that receives the loop's records."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from mini_bert.evaluation.evaluate import Evaluation

if TYPE_CHECKING:
    from mini_bert.models.base import Model
    from mini_bert.training.optim import Optimiser

Record = dict[str, Any]  # a line of metrics.jsonl
OLD = ("loss", "accuracy", "grad_norm", "clipped")  # the numbers of a step in older checkpoints, which do not name them


@dataclass
class State:
    """What changes from step to step, besides weights, moments and the position in the data."""

    step: int = 0
    seconds: float = 0.0  # of work, over all sessions
    tokens: int = 0
    best: float | None = None  # held-out loss
    best_checkpoint: str | None = None
    since: list[dict[str, float]] = field(default_factory=list)  # the last steps, as many as a record covers
    tokens_before: int = 0  # at the last record
    seconds_before: float = 0.0
    stopped: str = ""  # why, when the run is over

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> State:
        known = {name: values[name] for name in (field.name for field in fields(cls))}
        since = [step if isinstance(step, dict) else dict(zip(OLD, step, strict=True)) for step in values["since"]]
        return cls(**known | {"since": since, "stopped": ""})


class Recorder:
    """Keeps the records in memory and saves nothing. A RunFolder writes them to disk."""

    def __init__(self, say: Callable[[str], None] | None = None) -> None:
        self.records: list[Record] = []
        self.lock: AbstractContextManager[Any] = nullcontext()
        self.say = say or (lambda text: print(text, file=sys.stderr, flush=True))

    def begin(self, model: Model, optimiser: Optimiser, batches: Any) -> State:
        """Start a new run, or restore everything from a checkpoint."""
        return State()

    def record(self, record: Record) -> None:
        self.records.append(record)

    def judge(self, state: State, parts: dict[str, Evaluation], more: Record) -> bool:
        """Record an evaluation on held-out text, and `more` about it. Returns whether it is the best so far, which is
        saved at once."""
        result, *_ = parts.values()
        record = {"kind": "eval", "step": state.step, **result._asdict(), **more}
        for name in list(parts)[1:]:
            record |= {f"{name}_loss": parts[name].loss, f"{name}_accuracy": parts[name].top1}
        self.record(record)
        if not math.isfinite(result.loss) or (state.best is not None and result.loss >= state.best):
            return False
        state.best, state.best_checkpoint = result.loss, None  # None: its checkpoint is saved next
        return True

    def save(self, state: State, model: Model, optimiser: Optimiser, batches: Any) -> None:
        """Write a checkpoint."""
