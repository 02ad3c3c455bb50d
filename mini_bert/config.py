"""What a model is, in numbers. Frozen, named, checked on construction; `python config.py` explains every one.

L layers · H hidden width · A heads · d = H/A · I feed-forward width · T tokens · V vocabulary
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from mini_bert.sixteen import check_kind
from mini_bert.typed import command

OF_A_TASK = ("architectures", "id2label", "label2id", "problem_type", "fine_tuning")  # what fine-tuning adds to them
ATTENTION = ("auto", "plain", "lean")
INITS = ("plain", "depth_scaled")  # how W_o and W2 start: as all projections, or 1/√(2L) of that


@dataclass(frozen=True)
class MiniBertConfig:
    """The sizes of a Mini-BERT; the defaults are *the* Mini-BERT of 4,498,880 parameters."""

    vocab_size: int = 8192  # V
    hidden_size: int = 192  # H
    num_layers: int = 3  # L
    num_heads: int = 4  # A
    intermediate_size: int = 768  # I
    max_seq_length: int = 64  # T
    dropout: float = 0.0
    tie_head: bool = False
    layer_norm_eps: float = 1e-5
    init: str = "plain"

    def __post_init__(self) -> None:
        for name in (
            "vocab_size",
            "hidden_size",
            "num_layers",
            "num_heads",
            "intermediate_size",
            "max_seq_length",
        ):
            check_positive(name, getattr(self, name))
        check_heads(self.hidden_size, self.num_heads)
        check_probability("dropout", self.dropout)
        if not isinstance(self.tie_head, bool):
            raise ValueError(f"tie_head is {self.tie_head!r}, expected True or False")
        if not isinstance(self.layer_norm_eps, float | int) or not self.layer_norm_eps > 0:
            raise ValueError(
                f"layer_norm_eps is {self.layer_norm_eps!r}, expected a small positive number such as 1e-5"
            )
        if self.init not in INITS:
            raise ValueError(f"init is {self.init!r}, expected one of {', '.join(map(repr, INITS))}")

    @property
    def head_size(self) -> int:  # d
        return self.hidden_size // self.num_heads

    def to_dict(self) -> dict[str, Any]:
        return {"model_type": "mini_bert", **asdict(self)}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> MiniBertConfig:
        """From the content of a `config.json`; a field we do not know is an error, not a guess."""
        model_type = values.get("model_type")
        if model_type != "mini_bert":
            raise ValueError(
                f"config.json has model_type {model_type!r}, expected 'mini_bert'; "
                "folders of published BERT are read by mini_bert.models.bert.Bert.from_pretrained"
            )
        known = {field.name for field in fields(cls)}
        given = {name: value for name, value in values.items() if name != "model_type" and name not in OF_A_TASK}
        unknown = sorted(set(given) - known)
        if unknown:
            raise ValueError(f"unknown field(s) {', '.join(unknown)}; a MiniBertConfig has {', '.join(sorted(known))}")
        return cls(**given)


@dataclass(frozen=True)
class TrainingConfig:
    """A training run. Either `steps` or `minutes` says when it ends; every other default has its reason beside it."""

    steps: int | None = None
    minutes: float | None = None  # the learning rate then follows the clock
    batch_size: int = 32  # sequences for one change of the weights
    micro_batch: int = 16  # sequences that go through the model at once: of packed text only rounding depends on it
    learning_rate: float = 1e-3  # at its peak
    warmup: float = 0.1  # share of the run in which it rises from 0; then it falls to 0
    clip: float = 1.0  # longest gradient
    weight_decay: float = 0.01
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    threads: int | None = None  # None: all cores, at most 8
    seed: int = 0
    log_every: int = 20  # steps
    eval_every: int = 250
    eval_sequences: int = 1024  # of held-out text, always the same with the same masks
    save_every: int = 250
    tensors_every: int = 250  # norms and distributions by tensor
    keep: int = 2  # checkpoints, besides the best
    checkpointing: bool | tuple[int, ...] = False  # layers that keep only their input, and run again in backward
    attention: str = "auto"  # "plain", "lean" (tile by tile), or "auto": lean where sequences are long
    activations: str = "float32"  # how what backward needs is kept: or in 16 bits, "bfloat16" or "float16"
    moments: str = "float32"  # the same of Adam's m and v
    weights: str = "float32"  # and of the weights themselves

    def __post_init__(self) -> None:
        if (self.steps is None) == (self.minutes is None):
            raise ValueError(f"steps is {self.steps!r} and minutes is {self.minutes!r}, expected just one of them")
        for name in ("batch_size", "micro_batch", "log_every", "eval_every", "eval_sequences", "save_every",
                     "tensors_every", "keep"):  # fmt: skip
            check_positive(name, getattr(self, name))
        if self.steps is not None:
            check_positive("steps", self.steps)
        if self.threads is not None:
            check_positive("threads", self.threads)
        for name in ("minutes", "learning_rate", "clip", "eps"):
            value = getattr(self, name)
            if name == "minutes" and value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
                raise ValueError(f"{name} is {value!r}, expected a positive number")
        check_share("warmup", self.warmup, "a share of the run")
        for name in ("weight_decay", "beta1", "beta2"):
            check_share(name, getattr(self, name), "a number")
        if self.attention not in ATTENTION:
            raise ValueError(f"attention is {self.attention!r}, expected one of {', '.join(ATTENTION)}")
        for name in ("activations", "moments", "weights"):
            check_kind(name, getattr(self, name))
        object.__setattr__(self, "checkpointing", check_checkpointing(self.checkpointing))
        if self.batch_size % self.micro_batch:
            raise ValueError(
                f"batch_size {self.batch_size} is not a multiple of micro_batch {self.micro_batch}; "
                f"choose a micro_batch that divides {self.batch_size}"
            )

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


def check_positive(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{name} is {value!r}, expected a whole number (a Python int) of at least 1")


def check_checkpointing(value: Any) -> bool | tuple[int, ...]:
    """-> True, False or the numbers of layers, ascending; JSON has lists where Python has tuples"""
    if isinstance(value, bool):
        return value
    if not isinstance(value, list | tuple) or not all(type(layer) is int and layer >= 0 for layer in value):
        raise ValueError(
            f"checkpointing is {value!r}, expected True (all layers), False (none), or numbers of layers such as (0, 2)"
        )
    return tuple(sorted(set(value)))


def check_heads(width: int, heads: int) -> None:
    if width % heads:
        divisors = [n for n in range(1, width + 1) if width % n == 0]
        raise ValueError(
            f"hidden_size {width} cannot be split among {heads} heads: "
            f"{heads} must divide {width}; choose one of {', '.join(map(str, divisors))}"
        )


def check_probability(name: str, value: Any) -> None:
    check_share(name, value, "a probability")


def check_share(name: str, value: Any, what: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1:
        raise ValueError(f"{name} is {value!r}, expected {what} from 0 (none) to below 1")


MINI_BERT_CONFIG = MiniBertConfig()

LARGER_BERT_CONFIG = MiniBertConfig(
    vocab_size=50_000,
    hidden_size=384,
    num_layers=6,
    num_heads=8,
    intermediate_size=1536,
    max_seq_length=128,
    dropout=0.1,
    init="depth_scaled",
)

PRESETS = {"mini": MINI_BERT_CONFIG, "larger": LARGER_BERT_CONFIG}


def display_name(config: MiniBertConfig) -> str:
    """ "Mini-BERT", or "Larger-BERT" for a model with its layers, width and heads, whatever its vocabulary"""
    sizes = (config.num_layers, config.hidden_size, config.num_heads)
    larger = LARGER_BERT_CONFIG
    return "Larger-BERT" if sizes == (larger.num_layers, larger.hidden_size, larger.num_heads) else "Mini-BERT"


def load_config(name: str) -> MiniBertConfig:
    """A preset by its name, or the path of a `config.json`."""
    if name in PRESETS:
        return PRESETS[name]
    path = Path(name) / "config.json" if Path(name).is_dir() else Path(name)
    if not path.is_file():
        raise ValueError(
            f"{name!r} is neither a preset ({', '.join(PRESETS)}) nor a model folder nor the path of a config.json"
        )
    try:
        return MiniBertConfig.from_dict(json.loads(path.read_text(encoding="utf-8")))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


_REASONS = {
    "vocab_size": "V: how many pieces of words the model knows; table and head grow with it",
    "hidden_size": "H: the length of every token's vector, and of the residual stream",
    "num_layers": "L: rounds of looking around, then thinking",
    "num_heads": "A: things to look for at once, each in d = H/A = 48 dimensions",
    "intermediate_size": "I = 4H: the customary width of the feed-forward network",
    "max_seq_length": "T: rows in the position table; attention costs T² per head",
    "dropout": "share of activations dropped in training; a small model on much text needs none",
    "tie_head": "true: the head shares the token table (V·H fewer parameters)",
    "layer_norm_eps": "keeps the division in layer norm away from zero",
    "init": "depth_scaled: what a block adds starts small, the smaller the more blocks there are (docs/larger.md)",
}


def main() -> None:
    """Print Mini-BERT's configuration with the reason for every number, and Larger-BERT's beside it."""
    print("Mini-BERT's configuration (Larger-BERT's beside it)\n")
    print(f"{'field':18} {'mini':>8} {'larger':>14}  why")
    for field in fields(MiniBertConfig):
        mini, larger = (json.dumps(getattr(config, field.name)) for config in (MINI_BERT_CONFIG, LARGER_BERT_CONFIG))
        print(f"{field.name:18} {mini:>8} {larger:>14}  {_REASONS[field.name]}")
    print(f"\n`{command('info')}` shows the architecture and the parameters that follow from these numbers.")


if __name__ == "__main__":
    from mini_bert.cli import script

    script("config")
