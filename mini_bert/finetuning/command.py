"""From labelled files to a fine-tuned model: `mini-bert finetune classify | tag | qa | similarity`.

The loop itself is in finetuning/loop.py. This is what stands before it and after it: reading the data, one run for each
seed, a control from random weights, the table of results, the folder.

    OUT/model/           the model that did best on the dev data: a folder for `mini-bert predict`
    OUT/metrics.jsonl    what happened, a JSON object a line
    OUT/results.json     scores of every seed, settings, data

Without files the data is synthetic (data/synthetic/dataset.py), and everything that is shown says so.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import mini_bert
from mini_bert.common.atomic import write_atomic
from mini_bert.common.memory import keep_freed_memory, share_memory_among_threads
from mini_bert.common.progress import Show, counted, showing
from mini_bert.finetuning.data import TaskData, read_data
from mini_bert.finetuning.loop import Each, FineTuning, Measurement, TuningRun, fine_tune, predict
from mini_bert.finetuning.model import save, with_task
from mini_bert.finetuning.report import PRETRAINED, SCRATCH, Result, baseline, describe, model_card, report, summarize
from mini_bert.finetuning.tasks.answer import Answer
from mini_bert.finetuning.tasks.base import Item, Task
from mini_bert.finetuning.tasks.classify import Classify
from mini_bert.finetuning.tasks.similarity import Similarity
from mini_bert.finetuning.tasks.tag import Tag
from mini_bert.inference.loading import DEFAULT_MODEL, load
from mini_bert.models.base import Model
from mini_bert.text.base import Tokenizer
from mini_bert.training.parallel import default_threads

LENGTH = {"classify": 128, "tag": 128, "qa": 384, "similarity": 128}  # tokens, where the model knows more
STEPS = 2000  # changes of the weights that small data should make, if ten epochs of it do
logger = logging.getLogger(__name__)


# ---------------------------------------------------------------------- the task and its settings


def make_task(
    kind: str,
    model: Model,
    data: TaskData,
    stride: int | None = None,
    vectors: bool = False,
    loss: str = "regression",
) -> Task:
    """The task that these examples are of. Published BERT has its own head on [CLS]; Mini-BERT pools all words."""
    head: dict[str, Any] = {"pooling": ["cls"], "dense": True} if model.pools_cls else {}
    if kind == "classify":
        return Classify(data.labels, pairs=data.train[0].second is not None, **head)
    if kind == "tag":
        return Tag(data.labels, stride)
    if kind == "qa":
        return Answer(stride)
    scores = [example.score for example in data.train]
    if min(scores) == max(scores):
        raise ValueError(f"all {len(scores):,} scores of the training data are {scores[0]:g}: nothing to learn from")
    return Similarity(min(scores), max(scores), vectors, loss, **({} if vectors else head))


def defaults(kind: str, model: Model) -> dict[str, float]:
    """What did best for Mini-BERT on dev data; `classify` learns at half the rate, with words hidden from it

    The wider, the slower: 1e-3 for Mini-BERT's 192 (measured) is 6e-5 for the 768 of BERT-base (customary).
    """
    rate, hidden = (FineTuning.learning_rate / 2, 0.1) if kind == "classify" else (FineTuning.learning_rate, 0.0)
    return {"learning_rate": float(f"{rate * narrowness(model):.1g}"), "word_dropout": hidden}


def narrowness(model: Model) -> float:
    """The share of the learning rate that is left for a model wider than Mini-BERT"""
    return min(1.0, (192 / model.width) ** 2)


def default_epochs(items: int, batch_size: int) -> int:
    """Three, and more of small data: until there are STEPS changes of the weights, but at most ten"""
    return max(FineTuning.epochs, min(10, STEPS * batch_size // max(items, 1)))


def settings_for(start: str, settings: FineTuning, seed: int, model: Model) -> FineTuning:
    """The same with this seed. From random weights no layer is general, so all learn alike, and none fast: with 20,000
    phrases of SST-2 a Mini-BERT that knows nothing does not leave chance at 1e-3, and learns at 3e-4."""
    if start == PRETRAINED:
        return replace(settings, seed=seed)
    slow = 0.3 * FineTuning.learning_rate * narrowness(model)
    return replace(settings, seed=seed, layer_decay=1.0, learning_rate=min(slow, settings.learning_rate))


# ---------------------------------------------------------------------- one run after the other


class Runs:
    """A run for each start and seed, on the same examples. `keep` gets a model whenever none has been better."""

    def __init__(
        self,
        model: Model,
        task: Task,
        data: TaskData,
        tokenizer: Tokenizer,
        length: int,
        record: Callable[[dict[str, Any]], None] = lambda found: None,
        keep: Callable[[Model, Result], None] = lambda model, result: None,
        show: Show = lambda stage, note, done, total: None,
    ):
        self.model, self.task, self.data, self.tokenizer = model, task, data, tokenizer
        self.record, self.keep, self.show = record, keep, show
        self.items = task.items(data.train, tokenizer, length, training=True)
        self.dev_items = task.items(data.dev, tokenizer, length, training=False)
        _say_what_is_cut(task, [*self.items, *self.dev_items], length)
        self.best: Result | None = None  # of the pretrained ones
        self.tuned: Model = model  # the model of the last run

    def run(self, start: str, settings: FineTuning) -> Result:
        """One run, from the trained weights or from random ones, with just these settings"""
        task, seed, random = self.task, settings.seed, start == SCRATCH
        tuned = with_task(self.model.untrained(seed) if random else self.model, task, settings.dropout, seed)
        self.tuned = tuned

        said = measured = ""

        def measure(each: Each) -> Measurement:
            answers = predict(tuned, task, self.dev_items, self.tokenizer.pad_id, each)
            found = task.join(self.data.dev, self.dev_items, answers)
            return Measurement(task.scores(self.data.dev, found), task.dev_loss(self.data.dev, found))

        def record(found: dict[str, Any]) -> None:
            nonlocal said, measured
            self.record({**found, "start": start, "seed": seed})
            if found["kind"] == "train":
                said = progress(found, settings.epochs, task.counts)
            else:  # stays in sight until the next one, and so says from when it is
                measured = f"; dev at epoch {found['epoch']:.1f}: {task.metric} {task.shown(found[task.metric])}"
            note = said + measured if said else measured.removeprefix("; ")
            self.show(f"{start}, seed {seed}", note, found["step"], found["steps"])

        def keep(outcome: TuningRun) -> None:
            if not random and (self.best is None or outcome.rank(task.metric) > self.best.outcome.rank(task.metric)):
                self.best = Result(start, seed, outcome)
                self.keep(tuned, self.best)

        outcome = fine_tune(
            tuned, task, self.items, measure, settings, self.tokenizer.pad_id, self.tokenizer.mask_id, record, keep
        )
        self.record({"kind": "result", "start": start, "seed": seed, **outcome._asdict()})
        return Result(start, seed, outcome)


def progress(found: dict[str, Any], epochs: int, counts: str) -> str:
    """What training says of itself: on the examples it learns from, with dropout"""
    right = f", {counts} {found['right']:.1%}" if "right" in found else ""
    return f"epoch {found['epoch']:.1f} of {epochs}; training: loss {found['loss']:.3f}{right}"


def _say_what_is_cut(task: Task, items: Sequence[Item], length: int) -> None:
    if task.name in ("classify", "similarity"):
        full = sum(item.length == length for item in items)
        if full:
            logger.warning("%s of %s fill%s the %d tokens; what is longer is cut there",
                           counted(full, "text"), f"{len(items):,}", "s" * (full == 1), length)  # fmt: skip


# ---------------------------------------------------------------------- the command


def finetune_command(
    kind: str,
    train: str | None = None,
    dev: str | None = None,
    out: Path | None = None,
    model: str = DEFAULT_MODEL,
    seeds: int = 1,
    scratch: bool = False,
    max_samples: int | None = None,
    length: int | None = None,
    stride: int | None = None,
    vectors: bool = False,
    loss: str = "regression",
    as_json: bool = False,
    quiet: bool = False,
    columns: dict[str, Any] | None = None,
    **settings: Any,
) -> list[Result]:
    """`settings` are fields of FineTuning (None: its default); `columns` go to the reader of the files."""
    given = {name: value for name, value in settings.items() if value is not None}
    given.setdefault("threads", default_threads())
    FineTuning(**given)  # what is wrong with the settings is said before anything is read
    check_out(out)
    data = read_data(kind, train, dev, max_samples, given.get("seed", FineTuning.seed), **(columns or {}))
    share_memory_among_threads()
    keep_freed_memory()
    loaded, tokenizer = load(model)
    most = loaded.max_length
    length = min(LENGTH[kind], most) if length is None else length
    if not 8 <= length <= most:
        raise ValueError(f"max_length is {length}, expected 8 to {most}, the positions that {model} has")
    given = defaults(kind, loaded) | given
    task = make_task(kind, loaded, data, stride, vectors, loss)
    guess = baseline(task, data.dev)
    about = describe(kind, model, data)
    if not quiet and not as_json:
        print(about, flush=True)

    def record(found: dict[str, Any]) -> None:
        if out is not None:
            with (out / "metrics.jsonl").open("a", encoding="utf-8") as file:
                file.write(json.dumps(found) + "\n")

    def keep(tuned: Model, result: Result) -> None:
        if out is not None:
            card = model_card(task, model, data, tuning, result)
            save(out / "model", tuned, task, tokenizer, length, card)

    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        write_atomic(out / "metrics.jsonl", b"")
    with showing(not quiet) as show:
        runs = Runs(loaded, task, data, tokenizer, length, record, keep, show)
        given.setdefault("epochs", default_epochs(len(runs.items), given.get("batch_size", FineTuning.batch_size)))
        tuning = FineTuning(**given)
        results: list[Result] = []
        for start in (PRETRAINED, SCRATCH) if scratch else (PRETRAINED,):
            for seed in range(tuning.seed, tuning.seed + seeds):
                if not results or results[-1].outcome.stopped not in ("interrupted", "nonfinite"):
                    results.append(runs.run(start, settings_for(start, tuning, seed, loaded)))
    summary = summarize(task, results) | {"task": kind, "model": model, "train": data.train_name, "dev": data.dev_name,
                                          "examples": [len(data.train), len(data.dev)], "notes": data.notes,
                                          "baseline": guess._asdict(), "settings": tuning.to_dict(),
                                          "control": settings_for(SCRATCH, tuning, tuning.seed, loaded).to_dict(),
                                          "max_length": length, "version": mini_bert.__version__}  # fmt: skip
    if out is not None:
        write_atomic(out / "results.json", (json.dumps(summary, indent=2) + "\n").encode())
    if as_json:
        print(json.dumps(summary))
    else:
        print(report(task, [about] if quiet else [], guess, results, out, len(data.dev)))
    return results


def check_out(out: Path | None) -> None:
    """Results go into a folder of their own: nobody's files are touched."""
    if out is not None and out.exists() and not out.is_dir():
        raise ValueError(f"{out} is a file, expected a folder for the results; choose another with --out")
    if out is not None and out.is_dir() and any(out.iterdir()):
        raise ValueError(f"{out} is not empty, and the results want a folder of their own; choose another with --out")
