"""From labelled files to a fine-tuned model: `mini-bert finetune classify | tag | qa | similarity`.

The loop itself is in finetuning.py. This is what stands before it and after it: reading the data, one run for each
seed, a control from random weights, the table of results, the folder.

    OUT/model/           the model that did best on the dev data: a folder for `mini-bert predict`
    OUT/metrics.jsonl    what happened, a JSON object a line
    OUT/results.json     scores of every seed, settings, data

Without files the data is synthetic (synthetic.py), and everything that is shown says so.
"""

from __future__ import annotations

import json
import logging
import math
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import mini_bert
from mini_bert import labelled
from mini_bert.finetuned import from_scratch, save, with_task
from mini_bert.finetuning import Each, FineTuning, Outcome, fine_tune, predict
from mini_bert.loading import DEFAULT_MODEL, load_model, max_length
from mini_bert.memory import keep_freed_memory, share_memory_among_threads
from mini_bert.model import MiniBERT
from mini_bert.models.bert import Bert
from mini_bert.parallel import default_threads
from mini_bert.pretrained import write_atomic
from mini_bert.progress import Show, counted, showing
from mini_bert.tasks.answer import Answer
from mini_bert.tasks.base import Item, Task
from mini_bert.tasks.classify import Classify
from mini_bert.tasks.similarity import Similarity
from mini_bert.tasks.tag import Tag
from mini_bert.tokenizer import WordPieceTokenizer
from mini_bert.typed import command

LENGTH = {"classify": 128, "tag": 128, "qa": 384, "similarity": 128}  # tokens, where the model knows more
SYNTHETIC = {"classify": 2000, "tag": 2000, "qa": 1000, "similarity": 2000}  # examples to train on, where no file is
STEPS = 2000  # changes of the weights that small data should make, if ten epochs of it do
KEPT = 10  # of a training file without a dev file, every KEPT-th example is kept aside
PRETRAINED, SCRATCH = "pretrained", "from random weights"
logger = logging.getLogger(__name__)


class Data(NamedTuple):
    """Examples, and the names under which results speak of them"""

    train: list[Any]
    dev: list[Any]
    train_name: str
    dev_name: str
    labels: list[str] = []  # all of the training data  # noqa: RUF012


class Result(NamedTuple):
    start: str  # PRETRAINED or SCRATCH
    seed: int
    outcome: Outcome


# ---------------------------------------------------------------------- the data

READERS: dict[str, Callable[..., list[Any]]] = {
    "classify": labelled.read_labelled,
    "tag": labelled.read_tagged,
    "qa": labelled.read_squad,
    "similarity": labelled.read_scored,
}


def read_data(kind: str, train: str | None, dev: str | None, max_samples: int | None = None, **columns: Any) -> Data:
    """Both files, or one of which a part is kept aside, or synthetic examples; every label of dev must be in train"""
    if train is None:
        if dev is not None:
            raise ValueError(f"there is a dev file, {dev}, but no training file; give it with --train")
        return _synthetic(kind, max_samples)
    read = READERS[kind]
    given = {name: value for name, value in columns.items() if value is not None}
    examples = read(train, **given)
    if dev is not None:
        data = Data(examples, read(dev, **given), Path(train).name, Path(dev).name)
    else:
        kept = examples[KEPT - 1 :: KEPT]
        if not kept:
            raise ValueError(f"{train} has {counted(len(examples), 'example')}, too few to keep some aside; give --dev")
        logger.warning("%s: every tenth example, %s, is kept aside as dev data", train, f"{len(kept):,}")
        rest = [example for number, example in enumerate(examples, 1) if number % KEPT]
        data = Data(rest, kept, Path(train).name, f"a tenth of {Path(train).name}")
    if kind in ("classify", "tag"):
        data = data._replace(labels=labelled.label_names(data.train))
        labelled.check_labels(data.dev, data.labels, dev or train)
    if max_samples is not None:
        data = data._replace(train=data.train[:max_samples])
    if kind == "classify" and len({example.second is None for example in [*data.train, *data.dev]}) > 1:
        raise ValueError(f"one of {train} and {dev} has single texts, the other pairs; expected the same in both")
    return data


def _synthetic(kind: str, max_samples: int | None) -> Data:
    from mini_bert import synthetic

    makers: dict[str, Callable[..., list[Any]]] = {
        "classify": synthetic.labelled,
        "tag": synthetic.tagged,
        "qa": synthetic.questions,
        "similarity": synthetic.scored,
    }
    count = SYNTHETIC[kind] if max_samples is None else max_samples
    train, dev = makers[kind](count, split="train"), makers[kind](max(count // 5, 50), split="dev")
    labels = labelled.label_names([*train, *dev]) if kind in ("classify", "tag") else []
    return Data(train, dev, synthetic.SYNTHETIC, synthetic.SYNTHETIC, labels)


def make_task(
    kind: str,
    model: MiniBERT | Bert,
    data: Data,
    stride: int | None = None,
    vectors: bool = False,
    loss: str = "regression",
) -> Task:
    """The task that these examples are of. Published BERT has its own head on [CLS]; Mini-BERT pools all words."""
    head: dict[str, Any] = {} if isinstance(model, MiniBERT) else {"pooling": ["cls"], "dense": True}
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


def default_learning_rate(model: MiniBERT | Bert) -> float:
    """The wider, the smaller: 1e-3 for Mini-BERT's 192 (measured), 6e-5 for the 768 of BERT-base (customary)"""
    return float(f"{FineTuning.learning_rate * min(1.0, (192 / model.config.hidden_size) ** 2):.1g}")


def default_epochs(examples: int, batch_size: int) -> int:
    """Three, and more of small data: until there are STEPS changes of the weights, but at most ten"""
    return max(FineTuning.epochs, min(10, STEPS * batch_size // max(examples, 1)))


def settings_for(start: str, settings: FineTuning, seed: int) -> FineTuning:
    """The same with this seed. From random weights no layer is general, so all learn alike, and at a third of the rate:
    with 20,000 phrases of SST-2 a network that knows nothing does not leave chance at 1e-3, and learns at 3e-4."""
    if start == PRETRAINED:
        return replace(settings, seed=seed)
    return replace(settings, seed=seed, layer_decay=1.0, learning_rate=0.3 * settings.learning_rate)


# ---------------------------------------------------------------------- one run after the other


class Runs:
    """A run for each start and seed, on the same examples. `keep` gets a model whenever none has been better."""

    def __init__(
        self,
        model: MiniBERT | Bert,
        task: Task,
        data: Data,
        tokenizer: WordPieceTokenizer,
        length: int,
        record: Callable[[dict[str, Any]], None] = lambda found: None,
        keep: Callable[[MiniBERT | Bert, Result], None] = lambda model, result: None,
        show: Show = lambda stage, note, done, total: None,
    ):
        self.model, self.task, self.data, self.tokenizer = model, task, data, tokenizer
        self.record, self.keep, self.show = record, keep, show
        self.items = task.items(data.train, tokenizer, length, training=True)
        self.dev_items = task.items(data.dev, tokenizer, length, training=False)
        _say_what_is_cut(task, [*self.items, *self.dev_items], length)
        self.best: Result | None = None  # of the pretrained ones
        self.tuned: MiniBERT | Bert = model  # the model of the last run

    def run(self, start: str, settings: FineTuning) -> Result:
        """One run, from the trained weights or from random ones, with just these settings"""
        task, seed, random = self.task, settings.seed, start == SCRATCH
        tuned = with_task(from_scratch(self.model, seed) if random else self.model, task, settings.dropout, seed)
        self.tuned = tuned

        def measure(each: Each) -> dict[str, float]:
            answers = predict(tuned, task, self.dev_items, self.tokenizer.pad_id, each)
            return task.scores(self.data.dev, task.join(self.data.dev, self.dev_items, answers))

        def record(found: dict[str, Any]) -> None:
            self.record({**found, "start": start, "seed": seed})
            if found["kind"] == "train":
                self.show(f"{start}, seed {seed}", _progress(found, settings.epochs), found["step"], found["steps"])

        def keep(outcome: Outcome) -> None:
            best = self.best.outcome.scores[task.metric] if self.best is not None else -math.inf
            if not random and outcome.scores[task.metric] > best:
                self.best = Result(start, seed, outcome)
                self.keep(tuned, self.best)

        outcome = fine_tune(
            tuned, task, self.items, measure, settings, self.tokenizer.pad_id, self.tokenizer.mask_id, record, keep
        )
        self.record({"kind": "result", "start": start, "seed": seed, **outcome._asdict()})
        return Result(start, seed, outcome)


def _progress(found: dict[str, Any], epochs: int) -> str:
    return f"epoch {found['epoch']:.1f} of {epochs}, loss {found['loss']:.3f}, right {found['right']:.1%}"


def _say_what_is_cut(task: Task, items: Sequence[Item], length: int) -> None:
    if task.name in ("classify", "similarity"):
        full = sum(item.length == length for item in items)
        if full:
            logger.warning("%s of %d fill the %d tokens; what is longer is cut there",
                           counted(full, "text"), len(items), length)  # fmt: skip


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
    data = read_data(kind, train, dev, max_samples, **(columns or {}))
    share_memory_among_threads()
    keep_freed_memory()
    loaded, tokenizer = load_model(model)
    most = max_length(loaded)
    length = min(LENGTH[kind], most) if length is None else length
    if not 8 <= length <= most:
        raise ValueError(f"max_length is {length}, expected 8 to {most}, the positions that {model} has")
    given.setdefault("learning_rate", default_learning_rate(loaded))
    given.setdefault("epochs", default_epochs(len(data.train), given.get("batch_size", FineTuning.batch_size)))
    tuning = FineTuning(**given)
    task = make_task(kind, loaded, data, stride, vectors, loss)
    about = describe(kind, model, data)
    if not quiet:
        print(about, file=sys.stderr)

    def record(found: dict[str, Any]) -> None:
        if out is not None:
            with (out / "metrics.jsonl").open("a", encoding="utf-8") as file:
                file.write(json.dumps(found) + "\n")

    def keep(tuned: MiniBERT | Bert, result: Result) -> None:
        if out is not None:
            card = model_card(task, model, data, tuning, result)
            save(out / "model", tuned, task, tokenizer, length, card)

    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        write_atomic(out / "metrics.jsonl", b"")
    with showing(not quiet) as show:
        runs = Runs(loaded, task, data, tokenizer, length, record, keep, show)
        results: list[Result] = []
        for start in (PRETRAINED, SCRATCH) if scratch else (PRETRAINED,):
            for seed in range(tuning.seed, tuning.seed + seeds):
                if not results or results[-1].outcome.stopped not in ("interrupted", "nonfinite"):
                    results.append(runs.run(start, settings_for(start, tuning, seed)))
    summary = summarize(task, results) | {"task": kind, "model": model, "train": data.train_name, "dev": data.dev_name,
                                          "examples": [len(data.train), len(data.dev)], "settings": tuning.to_dict(),
                                          "max_length": length, "version": mini_bert.__version__}  # fmt: skip
    if out is not None:
        write_atomic(out / "results.json", (json.dumps(summary, indent=2) + "\n").encode())
    print(json.dumps(summary) if as_json else report(task, about, results, out))
    return results


def check_out(out: Path | None) -> None:
    """Results go into a folder of their own: nobody's files are touched."""
    if out is not None and out.exists() and not out.is_dir():
        raise ValueError(f"{out} is a file, expected a folder for the results; choose another with --out")
    if out is not None and out.is_dir() and any(out.iterdir()):
        raise ValueError(f"{out} is not empty, and the results want a folder of their own; choose another with --out")


def describe(kind: str, model: str, data: Data) -> str:
    return (
        f"{kind}: {model}; training {counted(len(data.train), 'example')} of {data.train_name}, "
        f"dev {len(data.dev):,} of {data.dev_name}"
    )


def summarize(task: Task, results: Sequence[Result]) -> dict[str, Any]:
    """Every seed's scores, and for each start their means and spreads"""
    found: dict[str, Any] = {"metric": task.metric, "runs": [
        {"start": start, "seed": seed, "scores": outcome.scores, "best_step": outcome.step, "steps": outcome.steps,
         "seconds": round(outcome.seconds, 1), "stopped": outcome.stopped} for start, seed, outcome in results
    ]}  # fmt: skip
    for start in dict.fromkeys(result.start for result in results):
        runs = [result.outcome for result in results if result.start == start and result.outcome.scores]
        if runs:
            found[start] = {name: mean_spread([run.scores[name] for run in runs]) for name in runs[0].scores}
            found[start]["seconds"] = mean_spread([run.seconds for run in runs])
    return found


def mean_spread(values: Sequence[float]) -> dict[str, float]:
    """Mean and standard deviation (of the sample; 0 for one value)"""
    return {"mean": statistics.fmean(values), "spread": statistics.stdev(values) if len(values) > 1 else 0.0}


def report(task: Task, about: str, results: Sequence[Result], out: Path | None) -> str:
    """The table that people read"""
    summary = summarize(task, results)
    rows = [start for start in (PRETRAINED, SCRATCH) if start in summary]
    lines = [about]
    if rows:
        names = [name for name in summary[rows[0]] if name != "seconds"]
        lines += ["", f"{'dev, %':22}" + "".join(f"{name:>16}" for name in names) + f"{'seconds':>10}"]
        for start in rows:
            cells = "".join(f"{shown(summary[start][name]):>16}" for name in names)
            lines.append(f"{start:22}{cells}{summary[start]['seconds']['mean']:10.0f}")
        counts = {len([result for result in results if result.start == start]) for start in rows}
        if max(counts) > 1:
            lines.append(f"mean ± standard deviation of {max(counts)} seeds; each the best measurement of its run")
    last = results[-1].outcome.stopped if results else ""
    if last == "nonfinite":
        lines.append("\nStopped: the loss was no longer a number. Try a smaller --learning-rate.")
    elif last == "interrupted":
        lines.append("\nStopped by hand" + ("; the best model so far is kept." if out else "."))
    if out is not None and (out / "model").is_dir():
        lines.append(f"\nthe best model: {out / 'model'}\n\n    {command('predict', out)} {EXAMPLE[task.name]}")
    elif out is None:
        lines.append("\nNothing is saved; with --out FOLDER the best model is.")
    return "\n".join(lines)


EXAMPLE = {
    "classify": '"A text to be judged."',
    "tag": '"Ada Lovelace lived in London."',
    "qa": '--question "Who sat?" --context "The cat sat on the mat."',
    "similarity": '"A cat sat down." "A cat was sitting."',
}


def shown(value: dict[str, float]) -> str:
    spread = f" ± {100 * value['spread']:.1f}" if value["spread"] else ""
    return f"{100 * value['mean']:.1f}{spread}"


def model_card(task: Task, model: str, data: Data, settings: FineTuning, result: Result) -> str:
    """README.md of the model folder"""
    scores = "\n".join(f"| dev {name} | {100 * value:.1f} % |" for name, value in result.outcome.scores.items())
    labels = f"\n| labels | {', '.join(task.labels)} |" if task.labels else ""
    return f"""# A BERT fine-tuned for {task.name}, by mini-bert {mini_bert.__version__}

| | |
|---|---|
| made from | {Path(model).name if Path(model).exists() else model}, {result.start} |
| training data | {data.train_name}, {counted(len(data.train), "example")} |
| dev data | {data.dev_name}, {counted(len(data.dev), "example")} |{labels}
{scores}
| settings | {settings.epochs} epochs of batches of {settings.batch_size}, learning rate {settings.learning_rate:g}, \
layer decay {settings.layer_decay:g}, dropout {settings.dropout:g}, seed {result.seed} |

The weights are those that did best on the dev data, so that score is a little too good; on other data expect less.

```console
mini-bert predict . {EXAMPLE[task.name]}
```
"""
