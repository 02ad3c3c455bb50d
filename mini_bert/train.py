"""Training: batch, forward, backward, clip, step, log, save, and again.

`train` below is the whole loop. Around it stand the things that make a long run bearable: it is shown while it runs
(display.py), written down (metrics.jsonl, training.log), saved so that it can be killed at any moment and go on to the
very same end (checkpoint.py), and looked at when something is wrong (doctor.py).

    mini-bert train                                     four minutes on the built-in corpus
    mini-bert train --corpus my_texts/ --minutes 120 --out runs/mine
    mini-bert train --out runs/mine --resume            go on after Ctrl-C, a crash, or a power cut

With `steps` everything is decided by the settings and the seed: for a given number of threads, two runs end with the
same weights to the last bit, however often they were stopped. With `minutes` the learning rate follows the clock.
"""

from __future__ import annotations

import math
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np

from mini_bert.config import TrainingConfig
from mini_bert.data import MLMDataGenerator
from mini_bert.evaluate import Evaluation, evaluate
from mini_bert.model import MiniBERT
from mini_bert.optim import Adam, course
from mini_bert.parallel import Outcome, Team
from mini_bert.recording import RunFolder, State

PERCENTILES = (1, 25, 50, 75, 99)
SAMPLE = 10_000  # numbers of a tensor that its percentiles are taken from
LONGEST = 60.0  # seconds: no step, measurement or checkpoint of a model that fits here takes longer
HOPELESS = 2.0  # times the loss of knowing nothing: a run that gets there does not come back


def train(
    model: MiniBERT,
    batches: MLMDataGenerator,
    validation: MLMDataGenerator | None,
    settings: TrainingConfig,
    run: RunFolder,
) -> State:
    """The loop. `batches` gives micro-batches of settings.micro_batch sequences; `run` is the folder that remembers."""
    adam = Adam(model.flat, settings.learning_rate, settings.beta1, settings.beta2, settings.eps, settings.weight_decay)
    state = run.begin(model, adam, batches)
    clock = Stopwatch(state.seconds)
    with Team(model, settings.threads) as team, asked_to_stop() as asked:
        state.stopped = _why_stop(state, settings, model.config.vocab_size, asked)  # a run may be resumed at its end
        while not state.stopped:
            lr = settings.learning_rate * course(_progress(state, settings), settings.warmup)

            parts = [next(batches) for _ in range(settings.batch_size // settings.micro_batch)]  # batch
            outcome = team.gradient(parts, seed=(settings.seed, state.step))  # forward, backward
            norm = outcome.norm
            if not (math.isfinite(outcome.loss) and math.isfinite(norm)):
                run.record(_non_finite_record(model, outcome, state.step + 1, lr))
                state.stopped = "nonfinite"  # the weights are still those of the step before
                break
            adam.step(lr, scale=min(1.0, settings.clip / norm) if norm else 1.0, each=team.each)  # clip, step

            state.step += 1
            state.tokens += sum(part.input_ids.size for part in parts)
            state.since.append((outcome.loss, outcome.correct / outcome.targets, norm, float(norm > settings.clip)))
            state.seconds = clock.seconds()
            state.stopped = _why_stop(state, settings, model.config.vocab_size, asked)
            if state.step % settings.tensors_every == 0:
                run.record(_tensors_record(model, adam, state.step, lr))
            ended = state.stopped not in ("", "interrupted")  # an interruption must leave no trace in what follows
            if state.step % settings.log_every == 0 or ended:  # log
                run.record(_train_record(state, settings, lr, batches))
            best = False
            if validation is not None and (state.step % settings.eval_every == 0 or ended):
                best = run.judge(state, held_out_loss(team, validation, settings.eval_sequences))
            state.seconds = clock.seconds()
            if state.step % settings.save_every == 0 or best or state.stopped:  # save
                run.save(state, model, adam, batches)
    run.record({"kind": "stop", "step": state.step, "reason": state.stopped, "seconds": round(state.seconds, 2)})
    return state


class Stopwatch:
    """Seconds of work. While the machine sleeps, or the process is held, time stands still: longer than LONGEST between
    two looks at the clock counts as LONGEST."""

    def __init__(self, before: float):
        self.total, self.last = before, time.perf_counter()

    def seconds(self) -> float:
        now = time.perf_counter()
        self.total += min(now - self.last, LONGEST)
        self.last = now
        return self.total


def _progress(state: State, settings: TrainingConfig) -> float:
    """How much of the run is done, from 0 to 1, when the next step is."""
    if settings.steps is not None:
        return (state.step + 1) / (settings.steps + 1)
    assert settings.minutes is not None
    average = state.seconds / state.step if state.step else 0.0
    return min(1.0, (state.seconds + average) / (60 * settings.minutes))


def _why_stop(state: State, settings: TrainingConfig, vocab_size: int, asked: threading.Event) -> str:
    """A reason, or "" to go on"""
    if settings.steps is not None and state.step >= settings.steps:
        return "done"
    if settings.minutes is not None and state.seconds >= 60 * settings.minutes:
        return "done"
    if asked.is_set():
        return "interrupted"
    recent = [loss for loss, *_ in state.since]
    if len(recent) >= settings.log_every and np.mean(recent) > HOPELESS * math.log(vocab_size):
        return "diverged"
    return ""


def held_out_loss(team: Team, validation: MLMDataGenerator, sequences: int) -> Evaluation:
    """The first `sequences` held-out sequences, always with the same masks."""
    count = -(-min(sequences, validation.sequences) // validation.batch_size)
    return evaluate(team.model, map(validation.batch, range(count)), threads=len(team.replicas))


# ---------------------------------------------------------------------- what is written down


def _train_record(state: State, settings: TrainingConfig, lr: float, batches: MLMDataGenerator) -> dict[str, Any]:
    """The means over the steps since the last such record, which are then forgotten."""
    loss, accuracy, norm, clipped = (float(np.mean(column)) for column in zip(*state.since, strict=True))
    highest = max(norm for _, _, norm, _ in state.since)
    state.since.clear()
    if settings.steps is not None:
        eta = (settings.steps - state.step) * state.seconds / state.step
    else:
        eta = 60 * (settings.minutes or 0) - state.seconds
    speed = (state.tokens - state.tokens_before) / max(state.seconds - state.seconds_before, 1e-9)
    state.tokens_before, state.seconds_before = state.tokens, state.seconds
    return {
        "kind": "train", "step": state.step, "loss": loss, "accuracy": accuracy, "lr": lr, "grad_norm": norm,
        "grad_norm_max": highest, "clipped": clipped, "tokens": state.tokens,
        "tokens_per_second": round(speed, 1), "seconds": round(state.seconds, 2), "eta": round(max(eta, 0.0), 1),
        "memory_mb": memory_mb(), "epoch": round(batches.next * batches.batch_size / batches.sequences, 4),
    }  # fmt: skip


def _tensors_record(model: MiniBERT, adam: Adam, step: int, lr: float) -> dict[str, Any]:
    """Weights, gradients and updates of every tensor: their lengths, and how they are spread."""
    found, start = {}, 0
    for name, param in sorted(model.named_params().items(), key=lambda item: not item[1].decay):  # as bind lays them
        update = adam.last_update(slice(start, start + param.size), lr)
        start += param.size
        weight = float(np.linalg.norm(param.data))
        found[name] = {
            "weight": weight,
            "gradient": float(np.linalg.norm(param.grad)),
            "update": float(np.linalg.norm(update)),
            "ratio": float(np.linalg.norm(update)) / weight if weight else 0.0,
            "gradient_percentiles": _percentiles(param.grad.ravel()),
            "update_percentiles": _percentiles(update),
        }
    return {"kind": "tensors", "step": step, "tensors": found}


def _percentiles(numbers: np.ndarray) -> list[float]:
    return np.percentile(numbers[:: max(1, numbers.size // SAMPLE)], PERCENTILES).tolist()


def _non_finite_record(model: MiniBERT, outcome: Outcome, step: int, lr: float) -> dict[str, Any]:
    """Which tensors have a gradient, or weights, that are no numbers."""
    params = model.named_params()
    weights = [name for name, param in params.items() if not np.isfinite(param.data).all()]
    gradients = [name for name, param in params.items() if not np.isfinite(param.grad).all()]
    what = "weights" if weights else "loss" if not math.isfinite(outcome.loss) else "gradient"
    return {"kind": "nonfinite", "step": step, "what": what, "tensors": weights or gradients, "lr": lr}


def memory_mb() -> float:
    """Memory of our own (Linux: RssAnon; mapped files are the system's), elsewhere the peak of all; in MB."""
    with suppress(OSError), open("/proc/self/status", encoding="ascii") as file:
        for line in file:
            if line.startswith("RssAnon:"):
                return round(int(line.split()[1]) / 1000, 1)
    try:
        import resource
    except ImportError:  # Windows
        return 0.0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return round(peak / (1e6 if os.uname().sysname == "Darwin" else 1e3), 1)


@contextmanager
def asked_to_stop() -> Iterator[threading.Event]:
    """Ctrl-C, or a polite kill, ends the run after the step at hand; a second Ctrl-C ends it at once."""
    asked = threading.Event()
    if threading.current_thread() is not threading.main_thread():  # only the main thread may catch signals
        yield asked
        return
    kept: dict[signal.Signals, Any] = {}

    def ask(number: int, frame: Any) -> None:
        if asked.is_set():
            signal.signal(signal.SIGINT, kept[signal.SIGINT])
            raise KeyboardInterrupt
        asked.set()

    for name in (signal.SIGINT, signal.SIGTERM):
        kept[name] = signal.signal(name, ask)
    try:
        yield asked
    finally:
        for name, handler in kept.items():
            signal.signal(name, handler)


if __name__ == "__main__":
    from mini_bert.cli import script

    script("train")
