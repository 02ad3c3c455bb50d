"""The settings of a training run."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any

from mini_bert.common.sixteen_bit import check_kind
from mini_bert.common.values import check_positive, check_positive_number, check_share
from mini_bert.layers.lean_attention import METHODS
from mini_bert.training.averaging import check_kind as check_average
from mini_bert.training.schedules import SCHEDULES

# names of checkpoints have eight digits; a year has so many minutes; more threads take hours to start
MOST = {"steps": 99_999_999, "minutes": 525_600, "threads": 1024}

OPTIMIZERS = ("adam", "muon")
MUON = 2.0  # times Adam's usual learning rate, for both parts of Muon (docs/training.md)
RAMPS = ("batch", "length", "mask")  # what can start lower, or higher, than it ends: training/ramps.py


@dataclass(frozen=True)
class TrainingConfig:
    """The settings of a training run, which ends after `steps` or after `minutes`."""

    steps: int | None = None
    minutes: float | None = None  # the learning rate then follows the clock
    batch_size: int = 32  # sequences per optimiser step
    micro_batch: int = 16  # sequences per forward pass; with packed text, it affects only rounding
    learning_rate: float = 1e-3  # at its peak
    warmup: float = 0.1  # fraction of the run in which it rises from 0
    schedule: str = "linear"  # how it falls to 0 then: or "cosine", or "wsd", only in the last `decay_share` of the run
    decay_share: float = 0.3
    clip: float = 1.0  # the largest gradient norm
    weight_decay: float = 0.01
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    optimizer: str = "adam"  # or "muon", for the matrices in blocks (training/muon.py)
    muon_learning_rate: float | None = None  # of these matrices, at its peak; None: learning_rate
    momentum: float = 0.95  # of Muon
    average: str = "none"  # "ema" or "tail": averaged weights are evaluated and saved (training/averaging.py)
    average_every: int = 10  # steps between two samples for the average; fewer in short runs
    ema_decay: float = 0.998  # per step
    tail_share: float = 0.15  # of the run
    batch_start: int | None = None  # sequences per step at first; it grows to batch_size
    batch_ramp: float = 0.5  # fraction of the run in which it grows
    length_start: int | None = None  # tokens per sequence at first, with as many more sequences; it doubles
    length_ramp: float = 0.5
    mask_start: float | None = None  # share of the words to predict at first; it moves to that of the objective
    mask_ramp: float = 1.0
    threads: int | None = None  # None: all cores, at most 8
    seed: int = 0
    log_every: int = 20  # steps
    eval_every: int = 250
    eval_minutes: tuple[float, ...] = ()  # also after these minutes, at which a sweep compares its runs
    eval_sequences: int = 1024  # of held-out text, always the same with the same masks
    save_every: int = 250
    tensors_every: int = 250  # norms and distributions by tensor
    keep: int = 2  # checkpoints, besides the best
    checkpointing: bool | tuple[int, ...] = False  # layers that keep only their input and are recomputed in backward
    attention: str = "auto"  # "plain", "lean" (in tiles), or "auto": lean for long sequences
    activations: str = "float32"  # type of the activations kept for backward: or 16 bits, "bfloat16" or "float16"
    moments: str = "float32"  # type of Adam's m and v: the same choices
    weights: str = "float32"  # type of the stored weights: the same choices

    def __post_init__(self) -> None:
        if (self.steps is None) == (self.minutes is None):
            raise ValueError(f"steps is {self.steps!r} and minutes is {self.minutes!r}, expected exactly one of them")
        for name in ("batch_size", "micro_batch", "log_every", "eval_every", "eval_sequences", "save_every",
                     "tensors_every", "keep", "average_every"):  # fmt: skip
            check_positive(name, getattr(self, name))
        if self.steps is not None:
            check_positive("steps", self.steps)
        if self.threads is not None:
            check_positive("threads", self.threads)
        for name in ("minutes", "learning_rate", "clip", "eps"):
            value = getattr(self, name)
            if name == "minutes" and value is None:
                continue
            check_positive_number(name, value)
        for name, most in MOST.items():
            if (getattr(self, name) or 0) > most:
                raise ValueError(f"{name} is {getattr(self, name)!r:.20}, expected at most {most:,}")
        check_share("warmup", self.warmup, "a fraction of the run")
        for name, choices in (("optimizer", OPTIMIZERS), ("schedule", tuple(SCHEDULES))):
            if getattr(self, name) not in choices:
                raise ValueError(f"{name} is {getattr(self, name)!r}, expected one of {', '.join(choices)}")
        for name in ("decay_share", "tail_share", *(f"{what}_ramp" for what in RAMPS)):
            check_part(name, getattr(self, name))
        if self.schedule == "wsd" and self.warmup + self.decay_share > 1:
            raise ValueError(
                f"warmup is {self.warmup:g} and decay_share is {self.decay_share:g}, together more than the whole run; "
                f"choose a warmup of at most {1 - self.decay_share:g}, or a smaller decay_share"
            )
        self._check_averages_and_ramps()
        for name in ("weight_decay", "beta1", "beta2", "momentum", "ema_decay"):
            check_share(name, getattr(self, name), "a number")
        if self.attention not in METHODS:
            raise ValueError(f"attention is {self.attention!r}, expected one of {', '.join(METHODS)}")
        for name in ("activations", "moments", "weights"):
            check_kind(name, getattr(self, name))
        object.__setattr__(self, "checkpointing", check_checkpointing(self.checkpointing))
        object.__setattr__(self, "eval_minutes", tuple(self.eval_minutes))  # JSON has lists
        for minutes in self.eval_minutes:
            check_positive_number("eval_minutes", minutes)
        if self.batch_size % self.micro_batch:
            raise ValueError(
                f"batch_size {self.batch_size} is not a multiple of micro_batch {self.micro_batch}; "
                f"choose a micro_batch that divides {self.batch_size}"
            )

    def _check_averages_and_ramps(self) -> None:
        if self.muon_learning_rate is not None:
            check_positive_number("muon_learning_rate", self.muon_learning_rate)
            if self.optimizer != "muon":
                raise ValueError('muon_learning_rate has no effect on Adam; leave it out, or choose optimizer="muon"')
        check_average(self.average)
        if self.average != "none" and self.weights != "float32":
            raise ValueError(
                f"average is {self.average!r} and weights is {self.weights!r}: an average changes by less than 16 bits "
                'can resolve; choose weights="float32", or average="none"'
            )
        if self.average == "tail" and self.steps is not None and self.tail_share * self.steps < 2:
            raise ValueError(
                f"tail_share is {self.tail_share:g}, which of {self.steps} steps is less than two: there is nothing to "
                "average; choose a longer run, a larger tail_share, or another average"
            )
        if self.length_start is not None:
            check_positive("length_start", self.length_start, 3)
        if self.mask_start is not None:
            check_part("mask_start", self.mask_start)
        if self.batch_start is not None:
            check_positive("batch_start", self.batch_start)
            if self.batch_start > self.batch_size or self.batch_start % self.micro_batch:
                raise ValueError(
                    f"batch_start is {self.batch_start}, expected a multiple of micro_batch {self.micro_batch}, and at "
                    f"most batch_size {self.batch_size}; a smaller micro_batch allows a smaller start"
                )

    def evaluations_until(self, seconds: float) -> int:
        """How many of `eval_minutes` have passed."""
        return sum(60 * minutes <= seconds for minutes in self.eval_minutes)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> TrainingConfig:
        known = {field.name for field in fields(cls)}
        unknown = sorted(set(values) - known)
        if unknown:
            raise ValueError(
                f"unknown setting(s) {', '.join(unknown)}; a TrainingConfig has {', '.join(sorted(known))}"
            )
        return cls(**values)


def check_part(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 1:
        raise ValueError(f"{name} is {value!r}, expected a fraction above 0, up to 1 (everything)")


def check_checkpointing(value: Any) -> bool | tuple[int, ...]:
    """Returns True, False or a tuple of layer numbers in ascending order (JSON has lists)."""
    if isinstance(value, bool):
        return value
    if not isinstance(value, list | tuple) or not all(type(layer) is int and layer >= 0 for layer in value):
        raise ValueError(
            f"checkpointing is {value!r}, expected True (all layers), False (none), or layer numbers such as (0, 2)"
        )
    return tuple(sorted(set(value)))
