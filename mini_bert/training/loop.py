"""Training: batch, forward, backward, clip, step, log, save, and again.

`train` below is the whole loop. Around it stand the things that make a long run bearable: it is shown while it runs
(training/display.py), written down (metrics.jsonl, training.log), saved so that it can be killed at any moment and go
on to the very same end (training/checkpoint.py), and looked at when something is wrong (training/doctor.py).

    mini-bert train                                     four minutes on the built-in corpus
    mini-bert train --corpus my_texts/ --minutes 120 --out runs/mine
    mini-bert train --out runs/mine --resume            go on after Ctrl-C, a crash, or a power cut

With `steps` everything is decided by the settings and the seed: for a given number of threads, two runs end with the
same weights to the last bit, however often they were stopped. With `minutes` the learning rate follows the clock.
"""

from __future__ import annotations

import math
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median_low
from typing import Any

import numpy as np

from mini_bert.common.memory import memory_mb
from mini_bert.data.generator import MLMDataGenerator
from mini_bert.evaluation.evaluate import Evaluation, evaluate
from mini_bert.models.mini_bert import MiniBERT
from mini_bert.training import switches
from mini_bert.training.optim import CHUNK, Adam, course
from mini_bert.training.parallel import Outcome, Team
from mini_bert.training.run_folder import RunFolder, State
from mini_bert.training.settings import TrainingConfig

PERCENTILES = (1, 25, 50, 75, 99)
SAMPLE = 10_000  # numbers of a tensor that its percentiles are taken from
LONGEST = 60.0  # seconds: a pause that may be work, whatever the model
USUAL = 20  # times a usual step: a measurement on held-out text is work for about ten, and this may be a slow machine
HOPELESS = 2.0  # times the loss of knowing nothing: a run that gets there does not come back


def train(
    model: MiniBERT,
    batches: MLMDataGenerator,
    validation: MLMDataGenerator | None,
    settings: TrainingConfig,
    run: RunFolder,
) -> State:
    """The loop. `batches` gives micro-batches of settings.micro_batch sequences; `run` is the folder that remembers."""
    switched = switches.applied(model, settings)
    with run.alone, switched, Team(model, settings.threads) as team, asked_to_stop(run.say) as asked:
        adam = Adam(
            model.flat, settings.learning_rate, settings.beta1, settings.beta2, settings.eps, settings.weight_decay,
            settings.moments,
        )  # fmt: skip
        state = run.begin(model, adam, batches)
        clock = Stopwatch(state.seconds)
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
            state.seconds = clock.step()
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
        del adam  # its moments go before weights in 16 bits are widened
    return state


class Stopwatch:
    """Seconds of work. While the machine sleeps, or the process is held, time stands still: what is longer than LONGEST
    and than USUAL times the usual step, between two looks at the clock, counts as that."""

    def __init__(self, before: float, clock: Callable[[], float] = time.perf_counter):
        self.total, self.clock, self.last = before, clock, clock()
        self.steps: deque[float] = deque(maxlen=101)  # how long they took, pauses and all: the median knows no pauses

    def step(self) -> float:
        """-> the seconds so far, when a step has been done since the last look"""
        self.steps.append(self._look())
        return self.total

    def seconds(self) -> float:
        self._look()
        return self.total

    def _look(self) -> float:
        now = self.clock()
        passed, self.last = now - self.last, now
        usual = median_low(self.steps) if self.steps else 0.0
        self.total += min(passed, max(LONGEST, USUAL * usual))
        return passed


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
    """The first `sequences` held-out sequences, or all, each once and always with the same masks."""
    return evaluate(team.model, validation.once(most=sequences), threads=len(team.replicas))


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
    found = {}
    for name, param in model.named_params().items():
        length, drawn = _update(adam, param.place, lr)
        weight = float(np.linalg.norm(param.data))
        found[name] = {
            "weight": weight,
            "gradient": float(np.linalg.norm(param.grad)),
            "update": length,
            "ratio": length / weight if weight else 0.0,
            "gradient_percentiles": _percentiles(param.grad.ravel()),
            "update_percentiles": _percentiles(drawn),
        }
    return {"kind": "tensors", "step": step, "tensors": found}


def _update(adam: Adam, place: slice, lr: float) -> tuple[float, np.ndarray]:
    """The length of the last update of a tensor, and some of its numbers; a chunk at a time, for tensors are large."""
    size = place.stop - place.start
    squares, some, step = [], [], max(1, size // SAMPLE)
    for low in range(0, size, CHUNK):
        update = adam.last_update(slice(place.start + low, place.start + min(low + CHUNK, size)), lr)
        squares.append(float(np.dot(update, update)))
        some.append(update[-low % step :: step].copy())
    return math.sqrt(math.fsum(squares)), np.concatenate(some)


def _percentiles(numbers: np.ndarray) -> list[float]:
    return np.percentile(numbers[:: max(1, numbers.size // SAMPLE)], PERCENTILES).tolist()


def _non_finite_record(model: MiniBERT, outcome: Outcome, step: int, lr: float) -> dict[str, Any]:
    """Which tensors have a gradient, or weights, that are no numbers."""
    params = model.named_params()
    weights = [name for name, param in params.items() if not np.isfinite(param.data).all()]
    gradients = [name for name, param in params.items() if not np.isfinite(param.grad).all()]
    what = "weights" if weights else "loss" if not math.isfinite(outcome.loss) else "gradient"
    return {"kind": "nonfinite", "step": step, "what": what, "tensors": weights or gradients, "lr": lr}


@contextmanager
def asked_to_stop(say: Callable[[str], None]) -> Iterator[threading.Event]:
    """Ctrl-C, or a polite kill, ends the run after the step at hand; a second one ends it at once.

    Whoever started us with these signals ignored (a shell in the background, nohup) meant that, and it stays so.
    """
    asked = threading.Event()
    # Said by a thread of its own: the signal may have come while this one was writing, and held the pen.
    teller = threading.Thread(
        target=say, args=("finishing this step, then saving; once more ends at once",), daemon=True
    )
    kept: dict[signal.Signals, Any] = {}

    def ask(number: int, frame: Any) -> None:
        if asked.is_set():
            restore()
            raise KeyboardInterrupt
        asked.set()
        teller.start()

    def restore() -> None:
        for name, handler in kept.items():
            signal.signal(name, handler)

    if threading.current_thread() is threading.main_thread():  # only the main thread may catch signals
        for name in (signal.SIGINT, signal.SIGTERM):
            if signal.getsignal(name) not in (signal.SIG_IGN, None):
                kept[name] = signal.signal(name, ask)
    try:
        yield asked
    finally:
        restore()
        if asked.is_set():
            teller.join(timeout=1)  # so that what is said next stands behind it
