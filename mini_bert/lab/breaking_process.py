"""The process in which Break it trains one model, with a fault or without one, until its standard input is closed.

    python -m mini_bert.lab.breaking_process '{"pair": "no_norm", "broken": true, "out": "runs/x", "seconds": 40}'

A small Mini-BERT, the ordinary loop, and records in OUT/metrics.jsonl that the doctor reads. OUT/check.json has the
largest relative error of some gradients, against finite differences in float64.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from mini_bert.common.atomic import write_atomic
from mini_bert.common.json_values import finite_values
from mini_bert.lab import toy_text
from mini_bert.lab.faults import FAULTS
from mini_bert.lab.training_process import end_with
from mini_bert.models.config import MiniBertConfig
from mini_bert.models.mini import MiniBERT
from mini_bert.training.history import METRICS
from mini_bert.training.loop import train
from mini_bert.training.recorder import Recorder
from mini_bert.training.settings import TrainingConfig

CONFIG = MiniBertConfig(
    vocab_size=len(toy_text.WORDS), hidden_size=48, num_layers=4, num_heads=2, intermediate_size=192,
    max_seq_length=toy_text.LENGTH,
)  # fmt: skip
SETTINGS = TrainingConfig(
    steps=400, batch_size=32, micro_batch=32, learning_rate=5e-3, warmup=0.1, threads=1, log_every=10, tensors_every=50
)
CHECK, CHECKED, H = "check.json", 12, 1e-5


class Metrics(Recorder):
    """Writes records to a folder, and no checkpoints."""

    def __init__(self, folder: Path):
        super().__init__(lambda text: None)
        self.path = folder / METRICS

    def record(self, record: dict[str, Any]) -> None:
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(finite_values(record)) + "\n")


def build(fault: str | None, dtype: Any = np.float32, steps: int | None = None) -> tuple[MiniBERT, TrainingConfig]:
    """The model and its settings, with a fault or without."""
    model = MiniBERT(CONFIG, seed=0, dtype=dtype)
    settings = SETTINGS if steps is None else TrainingConfig.from_dict(SETTINGS.to_dict() | {"steps": steps})
    return model, settings if fault is None else FAULTS[fault].apply(model, settings)


def timed(seconds: float) -> Iterator[Any]:
    """The batches of the toy text until the time is over."""
    end = time.monotonic() + seconds
    for one in toy_text.batches(1, SETTINGS.micro_batch):
        if time.monotonic() > end:
            return
        yield one


def check_gradients(fault: str | None) -> float:
    """The largest relative error of some gradients, one in each of the largest tensors."""
    model, _ = build(fault, np.float64)
    one = toy_text.batch(np.random.default_rng(5), 2)
    _, cache = model.loss(*one)
    model.loss_backward(cache)
    params = sorted(model.named_params().values(), key=lambda param: -param.size)
    names = {param.name for param in params[:CHECKED]} | {"encoder.blocks.0.feed_forward.contract.w"}
    worst = 0.0
    for param in params:
        if param.name not in names:
            continue
        place = np.unravel_index(np.abs(param.grad).argmax(), param.shape)
        before, losses = param.data[place], []
        for step in (H, -H):
            param.data[place] = before + step
            losses.append(float(model.loss(*one)[0]))
        param.data[place] = before
        numeric, analytic = (losses[0] - losses[1]) / (2 * H), float(param.grad[place])
        if max(abs(numeric), abs(analytic)) > 1e-7:  # below, rounding is all that is left
            worst = max(worst, abs(numeric - analytic) / max(abs(numeric), abs(analytic)))
    return worst


def main(words: list[str]) -> int:
    options = json.loads(words[0])
    end_with(sys.stdin.fileno())
    folder, pair = Path(options["out"]), options["pair"]
    fault = pair if options["broken"] else None
    try:
        write_atomic(folder / CHECK, json.dumps({"error": check_gradients(fault)}).encode())
        model, settings = build(fault, steps=options.get("steps"))
        FAULTS[pair].prepare(model)
        run = Metrics(folder)
        run.record({
            "kind": "start", "step": 0, "steps": settings.steps, "minutes": None, "vocab_size": CONFIG.vocab_size,
            "unigram_loss": toy_text.loss_without_context(), "batch_size": settings.batch_size,
            "tokens_per_step": settings.batch_size * toy_text.LENGTH, "objective": "masked_words", "predicted": 0.2,
        })  # fmt: skip
        train(model, timed(options["seconds"]), settings, run=run)
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
