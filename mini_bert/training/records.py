"""The records of a run: what the loop writes to metrics.jsonl."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from mini_bert.common.memory import memory_mb
from mini_bert.models.base import Model
from mini_bert.training.optim import CHUNK, Optimiser
from mini_bert.training.parallel import Outcome
from mini_bert.training.ramps import steps_left
from mini_bert.training.recorder import State
from mini_bert.training.settings import TrainingConfig

PERCENTILES = (1, 25, 50, 75, 99)
SAMPLE = 10_000  # numbers of a tensor that its percentiles are taken from


def step_numbers(outcome: Outcome, clip: float) -> dict[str, float]:
    """What is recorded of each step, as means over some steps. Further parts of the loss go by their names."""
    numbers = {
        "loss": outcome.loss, "accuracy": outcome.correct / outcome.targets, "grad_norm": outcome.norm,
        "clipped": float(outcome.norm > clip),
    }  # fmt: skip
    for name, part in list(outcome.parts.items())[1:]:
        numbers[f"{name}_loss"] = part.loss
        if part.correct is not None:
            numbers[f"{name}_accuracy"] = part.correct / part.targets
    return numbers


def train_record(state: State, settings: TrainingConfig, lr: float, batches: Any) -> dict[str, Any]:
    """Means over the newest steps: those since the last such record, or a few more at the end of a run."""
    means = {name: float(np.mean([step[name] for step in state.since])) for name in state.since[0]}
    highest = max(step["grad_norm"] for step in state.since)
    if settings.steps is not None:
        left, whole = steps_left(state.step / settings.steps, settings), steps_left(0, settings)
        eta = left * state.seconds / max(whole - left, 1e-9)
    else:
        eta = 60 * (settings.minutes or 0) - state.seconds
    speed = (state.tokens - state.tokens_before) / max(state.seconds - state.seconds_before, 1e-9)
    state.tokens_before, state.seconds_before = state.tokens, state.seconds
    return {
        "kind": "train", "step": state.step, **means, **rates(settings, lr), "grad_norm_max": highest,
        "tokens": state.tokens, "tokens_per_second": round(speed, 1), "seconds": round(state.seconds, 2),
        "eta": round(max(eta, 0.0), 1), "memory_mb": memory_mb(), "epoch": round(getattr(batches, "epoch", 0.0), 4),
    }  # fmt: skip


def rates(settings: TrainingConfig, lr: float) -> dict[str, float]:
    """The learning rates of a step: that of Adam, and that of Muon if there is one"""
    if settings.optimizer != "muon":
        return {"lr": lr}
    own = settings.muon_learning_rate
    return {"lr": lr, "muon_lr": lr if own is None else lr * own / settings.learning_rate}


def tensors_record(model: Model, optimiser: Optimiser, step: int, lr: float) -> dict[str, Any]:
    """Weights, gradients and updates of every tensor: norms and percentiles"""
    tensors = {}
    for name, param in model.named_params().items():
        length, drawn = _update(optimiser, param.place, lr)
        weight = float(np.linalg.norm(param.data))
        tensors[name] = {
            "weight": weight,
            "gradient": float(np.linalg.norm(param.grad)),
            "update": length,
            "ratio": length / weight if weight else 0.0,
            "gradient_percentiles": _percentiles(param.grad.ravel()),
            "update_percentiles": _percentiles(drawn),
        }
    return {"kind": "tensors", "step": step, "tensors": tensors}


def _update(optimiser: Optimiser, place: slice, lr: float) -> tuple[float, np.ndarray]:
    """The norm of the last update of a tensor, and a sample of it; computed in chunks, since tensors are large"""
    size = place.stop - place.start
    squares, some, step = [], [], max(1, size // SAMPLE)
    for low in range(0, size, CHUNK):
        update = optimiser.last_update(slice(place.start + low, place.start + min(low + CHUNK, size)), lr)
        squares.append(float(np.dot(update, update)))
        some.append(update[-low % step :: step].copy())
    return math.sqrt(math.fsum(squares)), np.concatenate(some)


def _percentiles(numbers: np.ndarray) -> list[float]:
    return np.percentile(numbers[:: max(1, numbers.size // SAMPLE)], PERCENTILES).tolist()


def non_finite_record(model: Model, outcome: Outcome, step: int, rates: dict[str, float]) -> dict[str, Any]:
    """Which tensors have weights, or else gradients, with NaN or infinity"""
    params = model.named_params()
    weights = [name for name, param in params.items() if not np.isfinite(param.data).all()]
    gradients = [name for name, param in params.items() if not np.isfinite(param.grad).all()]
    finite_loss = all(math.isfinite(part.loss) for part in outcome.parts.values())
    what = "weights" if weights else "gradient" if finite_loss else "loss"
    return {"kind": "nonfinite", "step": step, "what": what, "tensors": weights or gradients, **rates}
