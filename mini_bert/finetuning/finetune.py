"""From examples to a fine-tuned model: `finetune`, which `mini-bert finetune classify | tag | qa | similarity` calls.

    data = read_data("classify", "train.tsv", "dev.tsv")
    report = finetune("classify", data, FineTuning(epochs=3), out=Path("sentiment"), seeds=3, from_scratch=True)
    print(report.text)

The training loop is in finetuning/loop.py. Here: the task and its defaults, one run per seed, a control from random
weights, and the output folder:

    OUT/model/           the model with the best dev score: a folder for `mini-bert predict`
    OUT/metrics.jsonl    the training log, one JSON object per line
    OUT/results.json     the scores of every seed, the settings, the data
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import mini_bert
from mini_bert.common.atomic import write_atomic
from mini_bert.common.memory import keep_freed_memory, share_memory_among_threads
from mini_bert.common.progress import Show
from mini_bert.finetuning.data import TaskData
from mini_bert.finetuning.loop import (
    EPOCHS,
    LEARNING_RATE,
    Each,
    FineTuning,
    Measurement,
    TuningRun,
    fine_tune,
    predict,
)
from mini_bert.finetuning.model import save, with_task
from mini_bert.finetuning.report import PRETRAINED, SCRATCH, Report, Result, baseline, model_card, summarize, table
from mini_bert.finetuning.tasks.answer import Answer
from mini_bert.finetuning.tasks.base import Task, warn_about_cuts
from mini_bert.finetuning.tasks.classify import Classify
from mini_bert.finetuning.tasks.similarity import Similarity
from mini_bert.finetuning.tasks.tag import Tag
from mini_bert.inference.loading import DEFAULT_MODEL, load
from mini_bert.models.base import Model
from mini_bert.text.base import Tokenizer

MAX_LENGTH = {"classify": 128, "tag": 128, "qa": 384, "similarity": 128}  # tokens, or the model's limit if lower
STEPS, MOST = 2000, 10  # small data is repeated until this many steps are done, up to this many epochs
LEAST = 200  # steps of a run, however few the examples: a new head learns nothing in fewer than about 50


def finetune(
    kind: str,
    data: TaskData,
    settings: FineTuning,
    model: str = DEFAULT_MODEL,
    out: Path | None = None,
    seeds: int = 1,
    from_scratch: bool = False,
    max_length: int | None = None,
    show: Show = lambda stage, note, done, total: None,
    **task_options: Any,
) -> Report:
    """Fine-tune a model on a task, once per seed, and keep the best in `out`.

    kind: classify, tag, qa or similarity; task_options: stride, vectors, loss (see `make_task`).
    from_scratch: also train the same network from random weights, as a control.
    """
    check_out(out)
    share_memory_among_threads()
    keep_freed_memory()
    encoder, tokenizer = load(model)
    most = encoder.max_length
    length = min(MAX_LENGTH[kind], most) if max_length is None else max_length
    if not 8 <= length <= most:
        raise ValueError(f"max_length is {length}, expected 8 to {most}, the number of positions that {model} has")
    task = make_task(kind, encoder, data, **task_options)
    guess = baseline(task, data.dev)
    runs = Runs(encoder, task, data, tokenizer, length, show)
    settings = with_defaults(settings, kind, encoder, len(runs.items), tokenizer.mask_token is not None)

    def record(entry: dict[str, Any]) -> None:
        if out is not None:
            with (out / "metrics.jsonl").open("a", encoding="utf-8") as file:
                file.write(json.dumps(entry) + "\n")

    def keep(tuned: Model, result: Result) -> None:
        if out is not None:
            card = model_card(task, encoder.config.name, model, data, settings, result)
            save(out / "model", tuned, task, tokenizer, length, card)

    runs.record, runs.keep = record, keep
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        write_atomic(out / "metrics.jsonl", b"")
    results: list[Result] = []
    for start in (PRETRAINED, SCRATCH) if from_scratch else (PRETRAINED,):
        for seed in range(settings.seed, settings.seed + seeds):
            if not results or results[-1].outcome.stopped not in ("interrupted", "nonfinite"):
                results.append(runs.run(start, settings_for(start, settings, seed, encoder)))
    summary = summarize(task, results) | {"task": kind, "model": model, "train": data.train_name, "dev": data.dev_name,
                                          "examples": [len(data.train), len(data.dev)], "notes": data.notes,
                                          "baseline": guess._asdict(), "settings": asdict(settings),
                                          "control": asdict(settings_for(SCRATCH, settings, settings.seed, encoder)),
                                          "max_length": length, "version": mini_bert.__version__}  # fmt: skip
    if out is not None:
        write_atomic(out / "results.json", (json.dumps(summary, indent=2) + "\n").encode())
    return Report(results, summary, table(task, guess, results, out, len(data.dev)))


def check_out(out: Path | None) -> None:
    """Raise an error unless the folder is new or empty, so that no other files are touched."""
    if out is not None and out.exists() and not out.is_dir():
        raise ValueError(f"{out} is a file, expected a folder for the results; choose another with --out")
    if out is not None and out.is_dir() and any(out.iterdir()):
        raise ValueError(f"{out} is not empty; choose a new or empty folder for the results with --out")


# ---------------------------------------------------------------------- the task and its settings


def make_task(
    kind: str, model: Model, data: TaskData, stride: int | None = None, vectors: bool = False, loss: str = "regression"
) -> Task:
    """The task for these examples. Published BERT has its own head on [CLS]; Mini-BERT pools all words."""
    head = model.sentence_settings(model.config) if model.pools_cls else {}
    if kind == "classify":
        return Classify(data.labels, pairs=data.train[0].second is not None, **head)
    if kind == "tag":
        return Tag(data.labels, stride)
    if kind == "qa":
        return Answer(stride)
    if loss == "views":
        return Similarity(vectors=vectors, loss=loss)
    scores = [example.score for example in data.train]
    if min(scores) == max(scores):
        raise ValueError(f"all {len(scores):,} scores of the training data are {scores[0]:g}: nothing to learn from")
    return Similarity(min(scores), max(scores), vectors, loss, **({} if vectors else head))


def with_defaults(settings: FineTuning, kind: str, model: Model, items: int, has_mask: bool = True) -> FineTuning:
    """Fill in settings that were not given, with the values that did best for Mini-BERT on dev data.

    Classification uses half the learning rate, and word dropout if the tokenizer has a mask. The rate falls with the
    square of the width: 1e-3 for Mini-BERT's 192 (measured) is 6e-5 for the 768 of BERT-base (customary).
    """
    epochs, rate, words = settings.epochs, settings.learning_rate, settings.word_dropout
    if epochs is None:
        in_epoch = max(1, -(-items // settings.batch_size))
        epochs = max(EPOCHS, min(MOST, STEPS // in_epoch), -(-LEAST // in_epoch))
    if rate is None:
        rate = float(f"{LEARNING_RATE * (0.5 if kind == 'classify' else 1) * _narrowness(model):.1g}")
    if words is None:
        words = 0.1 if kind == "classify" and has_mask else 0.0
    return replace(settings, epochs=epochs, learning_rate=rate, word_dropout=words)


def settings_for(start: str, settings: FineTuning, seed: int, model: Model) -> FineTuning:
    """The settings of one run. From random weights, all layers learn at the same, lower rate: with 20,000 phrases of
    SST-2 a Mini-BERT from random weights stays at chance at 1e-3, and learns at 3e-4."""
    if start == PRETRAINED:
        return replace(settings, seed=seed)
    slow = 0.3 * LEARNING_RATE * _narrowness(model)
    return replace(settings, seed=seed, layer_decay=1.0, learning_rate=min(slow, settings.learning_rate or slow))


def _narrowness(model: Model) -> float:
    return min(1.0, (192 / model.width) ** 2)


# ---------------------------------------------------------------------- the runs


class Runs:
    """Runs on the same examples. `keep` is called with a pretrained model whenever it is the best so far."""

    def __init__(
        self,
        model: Model,
        task: Task,
        data: TaskData,
        tokenizer: Tokenizer,
        length: int,
        show: Show = lambda stage, note, done, total: None,
    ):
        self.model, self.task, self.data, self.tokenizer, self.show = model, task, data, tokenizer, show
        self.record: Callable[[dict[str, Any]], None] = lambda entry: None
        self.keep: Callable[[Model, Result], None] = lambda model, result: None
        self.items = task.items(data.train, tokenizer, length, training=True)
        self.dev_items = task.items(data.dev, tokenizer, length, training=False)
        warn_about_cuts([*self.items, *self.dev_items], length)
        self.best: Result | None = None  # of the pretrained ones
        self.tuned: Model = model  # the model of the last run

    def run(self, start: str, settings: FineTuning) -> Result:
        """One run, from the pretrained weights or from random ones"""
        task, seed, random = self.task, settings.seed, start == SCRATCH
        start_model = self.model.untrained(seed) if random else self.model
        tuned = with_task(start_model, task, settings.dropout, seed, self.tokenizer)
        self.tuned = tuned
        training = measured = ""

        def measure(each: Each) -> Measurement:
            answers = predict(tuned, task, self.dev_items, self.tokenizer.padding, each)
            predictions = task.join(self.data.dev, self.dev_items, answers)
            return Measurement(task.scores(self.data.dev, predictions), task.dev_loss(self.data.dev, predictions))

        def record(entry: dict[str, Any]) -> None:
            nonlocal training, measured
            self.record({**entry, "start": start, "seed": seed})
            if entry["kind"] == "train":
                training = progress(entry, settings.epochs)
            else:
                measured = f"dev {task.metric} {task.shown(entry[task.metric])}"
            note = "; ".join(filter(None, (measured, training)))  # the most important first: narrow screens cut the end
            self.show(f"{start}, seed {seed}", note, entry["step"], entry["steps"])

        def keep(outcome: TuningRun) -> None:
            if not random and (self.best is None or outcome.rank(task.metric) > self.best.outcome.rank(task.metric)):
                self.best = Result(start, seed, outcome)
                self.keep(tuned, self.best)

        mask_id = self.tokenizer.mask_id if settings.word_dropout else None
        outcome = fine_tune(tuned, task, self.items, measure, settings, self.tokenizer.padding, mask_id, record, keep)
        self.record({"kind": "result", "start": start, "seed": seed, **outcome._asdict()})
        return Result(start, seed, outcome)


def progress(entry: dict[str, Any], epochs: int | None) -> str:
    """Loss on the training examples, with dropout. Short, to fit beside a bar in 100 columns"""
    return f"epoch {entry['epoch']:.1f}/{epochs}, training loss {entry['loss']:.3f}"
