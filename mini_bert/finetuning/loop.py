"""Fine-tuning: a trained encoder learns a task from examples, in minutes.

`fine_tune` below is the whole loop: batch, forward, backward, clip, step, and now and then a measurement on examples
that were kept aside. What is particular to it:

    the layer on top is new, the encoder is not      so the learning rate falls from layer to layer on the way down
    there is little data, and much capacity          so dropout, few epochs, and the best measured model is kept
    texts differ in length                           so a batch holds texts of about one length, and little is padded

What a text becomes, what the loss is and what counts as good is the task's (tasks/). The same settings and seed give
the same weights to the last bit, for a given number of threads.

    mini-bert finetune classify --train train.tsv --dev dev.tsv --out mine
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from mini_bert.common.draws import draws, uniform
from mini_bert.common.interrupts import stop_on_signal
from mini_bert.common.values import check_positive, check_probability
from mini_bert.finetuning.model import lr_multipliers
from mini_bert.finetuning.tasks.base import Batch, Item, Task, epoch
from mini_bert.layers.base import Run
from mini_bert.models.base import Model
from mini_bert.training.optim import Adam, lr_schedule, one_by_one
from mini_bert.training.parallel import Team

PART = 32  # sequences that go through the model at once, at most
AT_ONCE = 32  # and when it only answers
HIDDEN = (1 << 20) + 1  # where the random numbers of hidden words fork off: no block has this number
EVERY = 20  # steps between two records of the loss

Each = Callable[[Callable[[Any], Any], Iterable[Any]], list[Any]]  # work, items -> results: parallel.Team.map
Record = dict[str, Any]


@dataclass(frozen=True)
class FineTuning:
    """How to fine-tune. Learning rate and hidden words also depend on task and model: finetune.defaults."""

    epochs: int = 3
    batch_size: int = 32
    learning_rate: float = 1e-3  # at its peak, for the layer on top
    layer_decay: float = 0.9  # what each layer below gets of that of the one above it
    warmup: float = 0.1  # share of the run in which the learning rate rises; then it falls to 0
    weight_decay: float = 0.01
    clip: float = 1.0  # longest gradient
    dropout: float = 0.1  # in the encoder and before the head
    word_dropout: float = 0.0  # share of the words that are hidden behind [MASK] while it learns
    patience: int = 6  # measurements after warm-up without a better one, after which it stops
    measurements: int = 2  # in an epoch
    threads: int = 1
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size", "patience", "measurements", "threads"):
            check_positive(name, getattr(self, name))
        for name in ("warmup", "weight_decay", "dropout", "word_dropout"):
            check_probability(name, getattr(self, name))
        for name in ("learning_rate", "clip"):
            value = getattr(self, name)
            if not (isinstance(value, int | float) and 0 < value < math.inf):
                raise ValueError(f"{name} is {value!r}, expected a positive number")
        if not 0 < self.layer_decay <= 1:
            raise ValueError(f"layer_decay is {self.layer_decay!r}, expected more than 0, up to 1 (all layers alike)")

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


class Measurement(NamedTuple):
    """What the dev examples said"""

    scores: dict[str, float]
    loss: float | None = None  # decides between equal scores; None: the task has none


class TuningRun(NamedTuple):
    """What came of a run. The model has the weights that did best."""

    scores: dict[str, float]  # the best measurement
    step: int  # when it was made
    steps: int  # done in all
    seconds: float
    stopped: str  # "done", "early", "interrupted" or "nonfinite"; "" while it runs
    loss: float | None = None  # of the dev examples at the best measurement

    def rank(self, metric: str) -> tuple[float, float]:
        """To compare runs and measurements by: the higher score, of equal ones the lower loss"""
        if not self.scores:
            return -math.inf, -math.inf
        return self.scores[metric], -math.inf if self.loss is None else -self.loss


class TaskObjective:
    """A task's loss, with a share of the words hidden behind the mask token (objectives/base.py)."""

    heads: tuple[str, ...] = ()

    def __init__(self, task: Task, word_dropout: float, mask_id: int):
        self.task, self.word_dropout, self.mask_id = task, word_dropout, mask_id

    def batch(self, rows: Any, keys: Any) -> Batch:
        return self.task.batch(rows, keys)

    def count(self, parts: Sequence[Batch]) -> int:
        return sum(len(part.targets) for part in parts)

    def loss(self, model: Model, batch: Batch, run: Run, count: int) -> tuple[float, int]:
        return self.task.loss(model, hide(batch, self.word_dropout, self.mask_id, run), run, count)


def fine_tune(
    model: Model,
    task: Task,
    items: Sequence[Item],
    measure: Callable[[Each], Measurement],
    settings: FineTuning,
    pad_id: int = 0,
    mask_id: int = 4,
    record: Callable[[Record], None] = lambda record: None,
    keep: Callable[[TuningRun], None] = lambda outcome: None,
) -> TuningRun:
    """The loop. `measure` is called with the model as it is; `keep` when it has never been better: to save it.

    Of measurements with the same score the one with the lower loss is the better; only a higher score counts for
    patience, though: a loss that falls by a hair should not keep a run alive.
    Ctrl-C ends it after the step at hand; the best model so far stays.
    """
    began = time.perf_counter()
    adam = Adam(
        model.flat, weight_decay=settings.weight_decay, lr_multipliers=lr_multipliers(model, settings.layer_decay)
    )
    in_epoch = -(-len(items) // settings.batch_size)
    steps, due = settings.epochs * in_epoch, measuring_steps(in_epoch, settings)
    best, weights = TuningRun({}, 0, 0, 0.0, ""), model.flat.data.copy()
    waited, stopped, since = 0, "", []

    objective = TaskObjective(task, settings.word_dropout, mask_id)
    with Team(model, settings.threads) as team, stop_on_signal(_say) as asked:
        for step, batch in enumerate(batches(items, settings), 1):
            lr = settings.learning_rate * lr_schedule(step / (steps + 1), settings.warmup)
            parts = [task.batch(part, pad_id) for part in split(batch, settings.threads)]  # batch
            found = team.gradient(parts, (settings.seed, step), objective)  # forward, backward
            if not (math.isfinite(found.loss) and math.isfinite(found.norm)):
                stopped = "nonfinite"
                break
            adam.step(lr, scale=min(1.0, settings.clip / found.norm) if found.norm else 1.0, map=team.map)

            since.append((found.loss, found.correct / found.targets, found.norm))
            progress = {"step": step, "steps": steps, "epoch": step / in_epoch}
            if step % EVERY == 0 or step in due:  # log
                loss, right, norm = np.mean(since, axis=0).tolist()
                since.clear()
                met = {"right": right} if task.counts else {}
                record({"kind": "train", **progress, "loss": loss, **met, "grad_norm": norm, "lr": lr})
            stopped = "interrupted" if asked.is_set() else ""
            if step in due or (stopped and not best.scores):  # measure
                (scores, dev_loss), seconds = measure(team.map), time.perf_counter() - began
                known = {} if dev_loss is None else {"loss": dev_loss}
                record({"kind": "dev", **progress, **scores, **known, "seconds": round(seconds, 2)})
                now, before = TuningRun(scores, step, step, seconds, "", dev_loss), best.rank(task.metric)
                warm = step > settings.warmup * steps  # before, it has hardly begun to learn
                waited = waited + 1 if warm and now.rank(task.metric)[0] <= before[0] else 0
                if now.rank(task.metric) > before:
                    best = now
                    weights[...] = model.flat.data
                    keep(best)
                if waited >= settings.patience:
                    stopped = stopped or "early"
            best = best._replace(steps=step)
            if stopped:
                break
    model.flat.data[...] = weights
    return best._replace(seconds=time.perf_counter() - began, stopped=stopped or "done")


def _say(text: str) -> None:
    print(text, file=sys.stderr)


def batches(items: Sequence[Item], settings: FineTuning) -> Iterator[list[Item]]:
    for number in range(settings.epochs):
        yield from epoch(items, settings.batch_size, settings.seed, number)


def measuring_steps(in_epoch: int, settings: FineTuning) -> set[int]:
    """After which steps to measure: evenly in every epoch, at its end too"""
    parts = settings.epochs * settings.measurements
    return {max(1, in_epoch * part // settings.measurements) for part in range(1, parts + 1)}


def hide(batch: Batch, share: float, mask_id: int, run: Run) -> Batch:
    """Some of the asked tokens become [MASK], so that no word can be relied on alone: which ones says their address"""
    if not share:
        return batch
    sequences, T = batch.ids.shape
    keys = run.fork(HIDDEN).keys(np.arange(sequences))
    chosen = batch.asked & (uniform(draws(keys[:, None], 0, np.arange(T))) < share)
    return batch._replace(ids=np.where(chosen, mask_id, batch.ids))


def split(batch: Sequence[Item], threads: int) -> list[Sequence[Item]]:
    """A part for every thread, of at most PART items, one after the other: their numbers in the batch do not change"""
    parts = min(len(batch), max(threads, -(-len(batch) // PART)))
    ends = [len(batch) * number // parts for number in range(parts + 1)]
    return [batch[low:high] for low, high in pairwise(ends)]


def predict(model: Model, task: Task, items: Sequence[Item], pad_id: int = 0, each: Each = one_by_one) -> list[Any]:
    """The model's answer to each item, in their order; items of like length are computed together"""
    order = sorted(range(len(items)), key=lambda place: items[place].length)
    batches = [order[low : low + AT_ONCE] for low in range(0, len(order), AT_ONCE)]

    def work(batch: list[int]) -> list[Any]:
        return task.answers(model, task.batch([items[place] for place in batch], pad_id, known=False), Run())

    answers: list[Any] = [None] * len(items)
    for batch, found in zip(batches, each(work, batches), strict=True):
        for place, answer in zip(batch, found, strict=True):
            answers[place] = answer
    return answers
