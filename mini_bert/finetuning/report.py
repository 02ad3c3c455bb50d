"""The results of fine-tuning: a table for people, numbers for programs, the model card.

Next to the scores, the table shows what guessing without reading the texts would score (`Task.guessing`).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import mini_bert
from mini_bert.common.invocation import command
from mini_bert.common.progress import counted
from mini_bert.common.wording import with_article
from mini_bert.finetuning.data import TaskData
from mini_bert.finetuning.loop import FineTuning, TuningRun
from mini_bert.finetuning.tasks.base import Task

PRETRAINED, SCRATCH = "pretrained", "from random weights"


class Result(NamedTuple):
    start: str  # PRETRAINED or SCRATCH
    seed: int
    outcome: TuningRun


class Report(NamedTuple):
    results: list[Result]
    summary: dict[str, Any]  # as in results.json
    text: str  # the table


FEW_STEPS = 50  # with fewer, a new head has hardly begun to learn
ROSE = 3  # a training loss that ends at this many times its first value has diverged


class Baseline(NamedTuple):
    """The scores of guessing on the same dev examples."""

    name: str
    scores: dict[str, float]
    luck: float  # how far above it the metric can be by chance: two standard errors


def baseline(task: Task, dev: Sequence[Any]) -> Baseline:
    name, predictions = task.guessing(dev)
    scores = task.scores(dev, predictions)
    share = scores[task.metric]
    if task.name == "similarity":
        luck = 2 / math.sqrt(max(len(dev) - 1, 1))  # the correlation of unrelated numbers
    else:
        cases = sum(len(example.words) for example in dev) if task.name == "tag" else len(dev)
        luck = 2 * math.sqrt(max(share * (1 - share), 0) / cases)
    return Baseline(name, scores, luck)


def verdict(task: Task, score: float, guess: Baseline, dev: int, run: TuningRun) -> str | None:
    """A sentence if the score is no better than guessing, else None. run: one of those with this mean score"""
    gain = score - guess.scores[task.metric]
    same = f"“{guess.name}” reaches the same {task.metric} or more"
    if gain < guess.luck and run.losses is not None and run.losses[1] > ROSE * run.losses[0]:
        first, last = run.losses
        return (
            f"The learning rate is far too high: the training loss rose from {first:.3g} to {last:.3g}, and what the "
            "model knew is lost. Try a far smaller --learning-rate, or leave it out: the default fits its width."
        )
    if gain <= 0 and run.steps < FEW_STEPS:
        remedy = {"early": " A larger --patience", "done": " A larger --epochs"}.get(run.stopped)
        return (
            f"Not trained for long enough to tell: after {counted(run.steps, 'step')} the new head has hardly left its "
            f"random start, and {same}." + (f"{remedy} trains it for longer." if remedy else "")
        )
    if gain <= 0:
        remedy = "a larger --patience or more examples" if run.stopped == "early" else "more examples or more --epochs"
        return f"No better than guessing: {same}. The model learnt nothing that helps on the dev data; try {remedy}."
    if gain < guess.luck:
        return (
            f"Hardly better than guessing: {100 * gain:.1f} points more {task.metric} than “{guess.name}”. With "
            f"{counted(dev, 'dev example')}, up to {100 * guess.luck:.1f} can be chance."
        )
    return None


def describe(kind: str, model: str, data: TaskData) -> str:
    """One line about the model and the data, and the notes on the data"""
    about = (
        f"{kind}: {model}; training: {counted(len(data.train), 'example')}, {data.train_name}; "
        f"dev: {counted(len(data.dev), 'example')}, {data.dev_name}"
    )
    return "\n".join([about, *(f"  {note}" for note in data.notes)])


def summarize(task: Task, results: Sequence[Result]) -> dict[str, Any]:
    """The scores of every run, and their mean and spread for each start"""
    summary: dict[str, Any] = {"metric": task.metric, "runs": [
        {"start": start, "seed": seed, "scores": outcome.scores, "best_step": outcome.step, "steps": outcome.steps,
         "seconds": round(outcome.seconds, 1), "stopped": outcome.stopped} for start, seed, outcome in results
    ]}  # fmt: skip
    for start in dict.fromkeys(result.start for result in results):
        runs = [result.outcome for result in results if result.start == start and result.outcome.scores]
        if runs:
            summary[start] = {name: mean_spread([run.scores[name] for run in runs]) for name in runs[0].scores}
            summary[start]["seconds"] = mean_spread([run.seconds for run in runs])
    return summary


def mean_spread(values: Sequence[float]) -> dict[str, float]:
    """Mean and standard deviation (of the sample; 0 for one value)"""
    return {"mean": statistics.fmean(values), "spread": statistics.stdev(values) if len(values) > 1 else 0.0}


def table(task: Task, guess: Baseline, results: Sequence[Result], out: Path | None, dev: int) -> str:
    """The table of scores, with remarks. dev: the number of dev examples"""
    summary = summarize(task, results)
    rows = [start for start in (PRETRAINED, SCRATCH) if start in summary]
    lines = []
    if rows:
        names = [name for name in summary[rows[0]] if name != "seconds"]
        guessing = f"guessing: {guess.name}"
        width = max(22, len(guessing) + 2)
        lines += ["", f"{f'dev, {task.unit}':{width}}" + "".join(f"{name:>16}" for name in names) + f"{'seconds':>10}"]
        for start in rows:
            cells = "".join(f"{shown(summary[start][name]):>16}" for name in names)
            lines.append(f"{start:{width}}{cells}{summary[start]['seconds']['mean']:10.0f}")
        cells = "".join(f"{100 * guess.scores[name]:16.1f}" for name in names)
        lines.append(f"{guessing:{width}}{cells}")
        seeds = len({result.seed for result in results})
        if seeds > 1:
            lines.append(f"mean ± standard deviation of {seeds} seeds, each at its best measurement")
        warning = verdict(task, summary[rows[0]][task.metric]["mean"], guess, dev, results[0].outcome)
        lines += ["", warning] if warning else []
    early = sum(result.outcome.stopped == "early" for result in results)
    if early:
        runs = "" if len(results) == 1 else f" in {early} of {counted(len(results), 'run')}"
        lines.append(f"\nStopped early{runs}: the score did not improve for a while. A larger --patience waits longer.")
    last = results[-1].outcome.stopped if results else ""
    if last == "nonfinite":
        lines.append("\nStopped: the loss is NaN or infinite. Try a smaller --learning-rate.")
    elif last == "interrupted":
        lines.append("\nInterrupted" + ("; the best model so far is kept." if out else "."))
    if out is not None and (out / "model").is_dir():
        lines.append(f"\nBest model: {out / 'model'}\n\n    {command('predict', out)} {example(task)}")
    elif out is None:
        lines.append("\nNothing is saved; use --out FOLDER to save the best model.")
    return "\n".join(lines)


def example(task: Task) -> str:
    """Arguments for `mini-bert predict FOLDER`"""
    pairs = task.name == "classify" and task.settings()["pairs"]
    return '"A first text." "And a second."' if pairs else EXAMPLE[task.name]


EXAMPLE = {
    "classify": '"A text to classify."',
    "tag": '"Ada Lovelace lived in London."',
    "qa": '--question "Who sat?" --context "The cat sat on the mat."',
    "similarity": '"A cat sat down." "A cat was sitting."',
}


def shown(value: dict[str, float]) -> str:
    spread = f" ± {100 * value['spread']:.1f}" if value["spread"] else ""
    return f"{100 * value['mean']:.1f}{spread}"


def model_card(task: Task, kind: str, model: str, data: TaskData, settings: FineTuning, result: Result) -> str:
    """README.md of the model folder. kind: the architecture, such as BERT"""
    scores = "\n".join(f"| dev {name} | {task.shown(value)} |" for name, value in result.outcome.scores.items())
    notes = "".join(f"\n{note[0].upper()}{note[1:]}.\n" for note in data.notes)
    labels = f"\n| labels | {', '.join(task.labels)} |" if task.labels else ""
    return f"""# A{with_article(kind)[1:]} fine-tuned for {task.name}, by mini-bert {mini_bert.__version__}

| | |
|---|---|
| made from | {Path(model).name if Path(model).exists() else model}, {result.start} |
| training data | {data.train_name}, {counted(len(data.train), "example")} |
| dev data | {data.dev_name}, {counted(len(data.dev), "example")} |{labels}
{scores}
| settings | {settings.epochs} epochs of batches of {settings.batch_size}, learning rate {settings.learning_rate:g}, \
layer decay {settings.layer_decay:g}, dropout {settings.dropout:g}, \
word dropout {settings.word_dropout:g}, seed {result.seed} |

These weights were chosen for their score on the dev data, so it is slightly too high; expect less on other data.
{notes}
```console
mini-bert predict . {example(task)}
```
"""
