"""The fine-tuning loop: a pretrained encoder learns a task from examples, in minutes.

`fine_tune` below is the whole loop: batch, forward, backward, clip, step, and from time to time a measurement on the
dev examples. It differs from pretraining in three ways:

    the head is new, the encoder is not          so the learning rate decreases from layer to layer towards the input
    there is little data and much capacity       so dropout, few epochs, and the weights with the best score are kept
    texts differ in length                       so a batch holds texts of similar length, with little padding

A task (tasks/) defines how an example becomes a sequence, the loss, and the scores. The same settings and seed give the
same weights to the last bit, for a given number of threads.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from mini_bert.common.batching import RIGHT, Padding
from mini_bert.common.draws import draws, uniform
from mini_bert.common.interrupts import stop_on_signal
from mini_bert.finetuning.model import lr_multipliers
from mini_bert.finetuning.settings import FineTuning as FineTuning  # also found here, as the docs have it
from mini_bert.finetuning.tasks.base import Batch, Item, Task, epoch
from mini_bert.layers.base import Run
from mini_bert.models.base import Model
from mini_bert.objectives.base import Objective, Part, Size
from mini_bert.training.averaging import Averaged
from mini_bert.training.optim import Adam, Optimiser, lr_schedule, one_by_one
from mini_bert.training.parallel import Team

EPOCHS, LEARNING_RATE = 3, 1e-3  # defaults; finetune.with_defaults adapts them to the task, the model and the data
PART = 32  # sequences that go through the model at once, at most
HIDDEN = (1 << 20) + 1  # the fork of the random numbers for word dropout; no block has this number
EVERY = 20  # steps between two records of the loss
SAMPLED = 4  # steps between two samples for an average of the weights
APART = 20  # patience counts each measurement for at least this many steps
FEW = 20  # measurements may be closer together than APART if they are no more than this many

Each = Callable[[Callable[[Any], Any], Iterable[Any]], list[Any]]  # work, items -> results: parallel.Team.map
Record = dict[str, Any]


class Measurement(NamedTuple):
    """Scores on the dev examples"""

    scores: dict[str, float]
    loss: float | None = None  # the lower one wins if scores are equal; None: the task has no dev loss


class TuningRun(NamedTuple):
    """The outcome of a run. The model has the weights of the best measurement."""

    scores: dict[str, float]  # of the best measurement
    step: int  # at which it was made
    steps: int  # in total
    seconds: float
    stopped: str  # "done", "early", "interrupted" or "nonfinite"; "" while it runs
    loss: float | None = None  # on the dev examples, at the best measurement
    losses: tuple[float, float] | None = None  # on the training examples, at the first step and over the last ones

    def rank(self, metric: str) -> tuple[float, float]:
        """The key by which runs and measurements are compared: a higher score wins, then a lower loss"""
        if not self.scores:
            return -math.inf, -math.inf
        return self.scores[metric], -math.inf if self.loss is None else -self.loss


class TaskObjective(Objective):
    """The loss of a task with word dropout, as an objective (objectives/base.py)"""

    def __init__(self, task: Task, word_dropout: float, padding: Padding, mask_id: int | None):
        self.task, self.word_dropout, self.padding, self.mask_id = task, word_dropout, padding, mask_id

    def batch(self, rows: Any, keys: Any = None) -> Batch:
        return self.task.batch(rows, self.padding)

    def size(self, batch: Batch) -> Size:
        return Size(len(batch.ids), batch.ids.size, {"task": len(batch.targets)})

    def loss(self, model: Model, batch: Batch, run: Run, count: Mapping[str, int]) -> dict[str, Part]:
        loss, correct = self.task.loss(model, hide(batch, self.word_dropout, self.mask_id, run), run, count["task"])
        return {"task": Part(loss, correct, len(batch.targets))}


def fine_tune(
    model: Model,
    task: Task,
    items: Sequence[Item],
    measure: Callable[[Each], Measurement],
    settings: FineTuning,
    padding: Padding = RIGHT,
    mask_id: int | None = 4,
    record: Callable[[Record], None] = lambda record: None,
    keep: Callable[[TuningRun], None] = lambda outcome: None,
) -> TuningRun:
    """Train `model`, and leave it with the weights of the best measurement.

    `measure` measures the model on the dev examples; `keep` is called after each new best measurement, to save it.
    At equal scores, a lower loss is better; but only a higher score resets patience, so that tiny changes of the loss
    do not keep a run alive. Patience counts from the end of warm-up, and each measurement without a better score counts
    for at least APART steps: small data is measured every few steps, and a new head needs more to move. Ctrl-C stops
    after the current step and keeps the best weights so far.
    """
    epochs, peak = settings.epochs or EPOCHS, settings.learning_rate or LEARNING_RATE
    began = time.perf_counter()
    optimiser: Optimiser = Adam(
        model.flat, weight_decay=settings.weight_decay, lr_multipliers=lr_multipliers(model, settings.layer_decay)
    )
    if settings.ema_decay:
        optimiser = Averaged(optimiser, model.flat, "ema", SAMPLED, settings.ema_decay)
    averaged = optimiser.swapped if isinstance(optimiser, Averaged) else nullcontext  # what is measured and kept
    in_epoch = -(-len(items) // settings.batch_size)
    steps = epochs * in_epoch
    due = measuring_steps(steps, epochs * settings.measurements)
    best, weights = TuningRun({}, 0, 0, 0.0, ""), model.flat.data.copy()
    waited, better, first, stopped, since = 0, 0, 0.0, "", []  # better: the last step that does not count for patience

    objective = TaskObjective(task, settings.word_dropout or 0.0, padding, mask_id)
    with Team(model, settings.threads) as team, stop_on_signal(_say) as stop:
        for step, batch in enumerate(batches(items, epochs, settings), 1):
            lr = peak * lr_schedule(step / (steps + 1), settings.warmup)
            parts = [objective.batch(part) for part in split(batch, settings.threads, task.group)]  # batch
            outcome = team.gradient(parts, (settings.seed, step), objective)  # forward, backward
            if not (math.isfinite(outcome.loss) and math.isfinite(outcome.norm)):
                stopped = "nonfinite"
                break
            optimiser.step(lr, scale=min(1.0, settings.clip / outcome.norm) if outcome.norm else 1.0, map=team.map)
            if isinstance(optimiser, Averaged):
                optimiser.sample(step / steps, team.map)

            first = outcome.loss if step == 1 else first
            since.append((outcome.loss, outcome.correct / outcome.targets, outcome.norm))
            progress = {"step": step, "steps": steps, "epoch": step / in_epoch}
            if step % EVERY == 0 or step in due:  # log
                loss, right, norm = np.mean(since, axis=0).tolist()
                since.clear()
                best = best._replace(losses=(first, loss))
                accuracy = {"right": right} if task.counts_right else {}
                record({"kind": "train", **progress, "loss": loss, **accuracy, "grad_norm": norm, "lr": lr})
            stopped = "interrupted" if stop.is_set() else ""
            if step in due or (stopped and not best.scores):  # measure
                with averaged():
                    (scores, dev_loss), seconds = measure(team.map), time.perf_counter() - began
                    known = {} if dev_loss is None else {"loss": dev_loss}
                    record({"kind": "dev", **progress, **scores, **known, "seconds": round(seconds, 2)})
                    now, before = TuningRun(scores, step, step, seconds, "", dev_loss), best.rank(task.metric)
                    warm = step > settings.warmup * steps  # earlier scores say little
                    waited = waited + 1 if warm and now.rank(task.metric)[0] <= before[0] else 0
                    better = better if waited else step
                    if now.rank(task.metric) > before:
                        best = now._replace(losses=best.losses)
                        weights[...] = model.flat.data
                        keep(best)
                if waited >= settings.patience and step - better >= settings.patience * APART:
                    stopped = stopped or "early"
            best = best._replace(steps=step)
            if stopped:
                break
    model.flat.data[...] = weights
    return best._replace(seconds=time.perf_counter() - began, stopped=stopped or "done")


def _say(text: str) -> None:
    print(text, file=sys.stderr)


def batches(items: Sequence[Item], epochs: int, settings: FineTuning) -> Iterator[list[Item]]:
    for number in range(epochs):
        yield from epoch(items, settings.batch_size, settings.seed, number)


def measuring_steps(steps: int, measurements: int) -> set[int]:
    """The steps after which to measure: evenly spread, and at the end. At most FEW, or one in APART steps if these are
    more: many epochs of a few examples are not measured after each."""
    count = min(measurements, max(FEW, steps // APART))
    return {max(1, steps * part // count) for part in range(1, count + 1)}


def hide(batch: Batch, share: float, mask_id: int | None, run: Run) -> Batch:
    """Word dropout: replace a fraction of the words by [MASK], chosen by the run's key, whatever the thread."""
    if not share:
        return batch
    assert mask_id is not None
    sequences, T = batch.ids.shape
    keys = run.fork(HIDDEN).keys(np.arange(sequences))
    chosen = batch.asked & (uniform(draws(keys[:, None], 0, np.arange(T))) < share)
    return batch._replace(ids=np.where(chosen, mask_id, batch.ids))


def split(batch: Sequence[Item], threads: int, group: int | None = None) -> list[Sequence[Item]]:
    """Consecutive parts of at most PART items, at least one per thread; or of at most `group`, as equal as possible"""
    parts = min(len(batch), max(threads, -(-len(batch) // PART)) if group is None else -(-len(batch) // group))
    ends = [len(batch) * number // parts for number in range(parts + 1)]
    return [batch[low:high] for low, high in pairwise(ends)]


def predict(
    model: Model, task: Task, items: Sequence[Item], padding: Padding = RIGHT, each: Each = one_by_one
) -> list[Any]:
    """The model's answer to each item, in the same order; items of similar length are computed together"""
    order = sorted(range(len(items)), key=lambda place: items[place].length)
    batches = [order[low : low + PART] for low in range(0, len(order), PART)]

    def work(batch: list[int]) -> list[Any]:
        return task.answers(model, task.batch([items[place] for place in batch], padding, known=False), Run())

    answers: list[Any] = [None] * len(items)
    for batch, part in zip(batches, each(work, batches), strict=True):
        for place, answer in zip(batch, part, strict=True):
            answers[place] = answer
    return answers
