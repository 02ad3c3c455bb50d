"""The settings of fine-tuning. The command line reads its defaults from here, so this module imports little."""

from __future__ import annotations

import math
from dataclasses import dataclass

from mini_bert.common.values import check_positive, check_probability


@dataclass(frozen=True)
class FineTuning:
    """How to fine-tune. None: chosen by `finetune.with_defaults` for the task, the model and the data."""

    epochs: int | None = None
    batch_size: int = 32
    learning_rate: float | None = None  # at its peak, for the head
    layer_decay: float = 0.9  # each layer's learning rate, as a fraction of the layer above's
    warmup: float = 0.1  # fraction of the run in which the learning rate rises; then it falls to 0
    weight_decay: float = 0.01
    clip: float = 1.0  # the largest norm of the gradient
    dropout: float = 0.1  # in the encoder and before the head; replaces every dropout of the config
    word_dropout: float | None = None  # fraction of words replaced by [MASK] in training
    ema_decay: float = 0.0  # per step, of the moving average of the weights that is measured and kept; 0: no average
    patience: int = 6  # stop after this many measurements (each for at least loop.APART steps) without a better score
    measurements: int = 2  # per epoch; fewer if these are more than loop.FEW, and closer together than loop.APART steps
    threads: int = 1
    seed: int = 0

    def __post_init__(self) -> None:
        given = {name: value for name, value in vars(self).items() if value is not None}
        for name in given.keys() & {"epochs", "batch_size", "patience", "measurements", "threads"}:
            check_positive(name, given[name])
        for name in given.keys() & {"warmup", "weight_decay", "dropout", "word_dropout", "ema_decay"}:
            check_probability(name, given[name])
        for name in given.keys() & {"learning_rate", "clip"}:
            if not (isinstance(given[name], int | float) and 0 < given[name] < math.inf):
                raise ValueError(f"{name} is {given[name]!r}, expected a positive number")
        if not 0 < self.layer_decay <= 1:
            raise ValueError(
                f"layer_decay is {self.layer_decay!r}, expected more than 0 and at most 1 (one rate for all layers)"
            )
