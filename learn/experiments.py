"""The experiments of learn/6_experiments.md: small models, trained for a few hundred steps on the built-in corpus.

    .venv/bin/python learn/experiments.py                      all of them, about half an hour on one core
    .venv/bin/python learn/experiments.py heads depth          some of them
    .venv/bin/python learn/experiments.py --list               what there is, without training
    .venv/bin/python learn/experiments.py --baseline           the loss of guessing by word frequencies
    .venv/bin/python learn/experiments.py --results learn/experiments.jsonl      the numbers of the page

Every experiment is a list of runs that differ from BASE in one setting; those of `longer` also have more steps. A run
of 600 steps takes less than a minute. Its result is appended to a file of JSON lines (default: runs/experiments.jsonl).
A run that is in the file is not repeated, so you may stop with Ctrl-C and start again. The corpus is the documentation
of your Python and NumPy: with other versions, the numbers differ a little from those of the page.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from mini_bert import MLMDataGenerator
from mini_bert.checks.gradients import clip
from mini_bert.evaluation import word_frequencies as frequencies
from mini_bert.evaluation.evaluate import measure, word_counts
from mini_bert.evaluation.vector_metrics import mean_cosine
from mini_bert.models.config import MiniBertConfig
from mini_bert.models.mini import MiniBERT
from mini_bert.objectives.masked_words import unigram_loss
from mini_bert.tokenizer import WordPieceTokenizer
from mini_bert.training.optim import Adam, lr_schedule

VOCABULARY, LENGTH, HELD_OUT, JUDGED = 1024, 32, 0.1, 1024  # pieces, tokens, documents, held-out sequences


@dataclass(frozen=True)
class Run:
    """The settings of one run."""

    heads: int = 4
    width: int = 64
    depth: int = 2
    masked: float = 0.15  # share of the tokens that are chosen
    warmup: float = 0.1  # share of the run
    rate: float = 0.002  # the learning rate at its peak
    start: str = "neighbours"  # or "random": initial weights of the first block's attention, and of the positions
    fault: str = "none"  # a name of FAULTS
    seed: int = 0
    steps: int = 600
    batch: int = 32


BASE = Run()


# ------------------------------------------------------------------ ways to break training


def no_positions(model: MiniBERT) -> None:
    """P = 0, and it stays 0."""
    model.positions.table.data[...] = 0
    model.positions.table.grad[...] = 0


def wrong_sign(model: MiniBERT) -> None:
    """The gradient of one matrix, W₁ of the last block, points uphill."""
    model.encoder.blocks[-1].feed_forward.expand.w.grad[...] *= -1


def embeddings_only(model: MiniBERT) -> None:
    """The blocks are not trained: their gradients are 0."""
    for name, param in model.named_params().items():
        if name.startswith("encoder"):
            param.grad[...] = 0


FAULTS: dict[str, Callable[[MiniBERT], None]] = {  # applied before the first step, and to every gradient
    "no positions": no_positions,
    "wrong sign": wrong_sign,
    "frozen blocks": embeddings_only,
}
SHIFTED, NOT_CLEARED, NO_ROOT = "shifted targets", "gradients not cleared", "no √d"


# ------------------------------------------------------------------ the experiments


def vary(setting: str, *values: Any, seeds: int = 1, **fixed: Any) -> list[Run]:
    """BASE with each of these values, for each seed."""
    return [replace(BASE, **fixed, **{setting: value}, seed=seed) for value in values for seed in range(seeds)]


EXPERIMENTS: dict[str, list[Run]] = {
    "heads": vary("heads", 1, 2, 4, 8, 16, seeds=2),
    "width": vary("width", 16, 32, 64, 128, seeds=2),
    "depth": vary("depth", 1, 2, 4, seeds=2),
    "longer": [  # three times as many steps, half of them with a rising learning rate
        *vary("depth", 1, 2, 4, seeds=2, steps=1800, warmup=0.5),
        *vary("width", 32, 128, seeds=2, steps=1800, warmup=0.5),
        *vary("heads", 1, 16, seeds=2, steps=1800, warmup=0.5),
    ],
    "masking": vary("masked", 0.05, 0.15, 0.4, 0.7, seeds=2),
    "rate": vary("rate", 0.0001, 0.0005, 0.002, 0.005, 0.02),
    "warmup": [
        *vary("warmup", 0.0, 0.1, 0.5, seeds=2),
        *vary("warmup", 0.0, 0.1, 0.5, seeds=2, rate=0.005),
    ],
    "start": [run for start in ("neighbours", "random") for run in vary("steps", 150, 600, 1800, start=start)],
    "break": vary("fault", "none", NO_ROOT, *FAULTS, SHIFTED, NOT_CLEARED, seeds=2),
}
SHOWN = {  # the settings that a table shows
    "heads": ["heads"], "width": ["width"], "depth": ["depth"], "longer": ["depth", "width", "heads"],
    "masking": ["masked"], "rate": ["rate"], "warmup": ["rate", "warmup"],
    "start": ["start", "steps"], "break": ["fault"],
}  # fmt: skip
WITH_TRAINING_LOSS, WITH_ALIKE = ("masking", "break"), ("depth", "rate")


# ------------------------------------------------------------------ one run


@cache
def words() -> WordPieceTokenizer:
    return WordPieceTokenizer.train("builtin", vocab_size=VOCABULARY, progress=False)


def text(masked: float, seed: int, batch: int) -> MLMDataGenerator:
    return MLMDataGenerator(
        "builtin", words(), LENGTH, batch, mask_prob=masked, seed=seed, held_out=HELD_OUT, progress=False
    )


@cache
def log_frequencies() -> np.ndarray:
    return frequencies.log_frequencies(word_counts(text(0.15, 0, 32)))


def build(run: Run, bias: np.ndarray | None = None) -> MiniBERT:
    """The model before training; `bias`: of the output head, default: the log frequencies of the words."""
    sizes = {"hidden_size": run.width, "num_heads": run.heads, "intermediate_size": 4 * run.width}
    config = MiniBertConfig(vocab_size=VOCABULARY, num_layers=run.depth, max_seq_length=LENGTH, **sizes)
    model = MiniBERT(config, seed=run.seed)
    if run.start == "random":
        chance = np.random.default_rng(run.seed)
        for table in (model.tokens.table, model.positions.table):
            table.data[...] = chance.normal(0, 0.1, table.shape)
        first = model.encoder.blocks[0].attention.qkv.w
        first.data[...] = chance.normal(0, 1 / math.sqrt(run.width), first.shape)
    model.head.b.data[...] = log_frequencies() if bias is None else bias  # as `python run.py train` does
    if run.fault == NO_ROOT:
        for block in model.encoder.blocks:
            block.attention.scale = 1.0
    return model


def train(run: Run) -> dict[str, Any]:
    """Trains a model, and measures it on held-out text with 15 % of the tokens masked, whatever it was trained with."""
    began = time.perf_counter()
    model, batches = build(run), text(run.masked, run.seed, run.batch)
    fault = FAULTS.get(run.fault, lambda model: None)
    fault(model)
    adam, losses = Adam(model.flat), []
    for step, batch in zip(range(1, run.steps + 1), batches, strict=False):
        ids, rows, targets = batch[:3]
        if run.fault == SHIFTED:
            rows = np.maximum(rows - 1, 0)  # off by one: the row before the word that is asked for
        if run.fault != NOT_CLEARED:
            model.zero_grad()
        loss, forward = model.loss(ids, rows, targets, *batch[3:])
        model.loss_backward(forward)
        fault(model)
        clip(model.flat.grad, 1.0)
        adam.step(run.rate * lr_schedule(step / (run.steps + 1), run.warmup))
        losses.append(float(loss))
    judge = text(0.15, 0, 32).validation()
    found = measure(model, judge.once(most=JUDGED)).result
    return {
        "parameters": int(model.flat.data.size),
        "training_loss": round(float(np.mean(losses[-50:])), 3),
        "loss": round(found.loss, 3),
        "top1": round(found.top1, 4),
        "alike": round(alike(model, judge), 2),
        "seconds": round(time.perf_counter() - began, 1),
    }


def alike(model: MiniBERT, judge: MLMDataGenerator) -> float:
    """The mean cosine of the vectors at the hidden words, after the last block. 1: all gaps get the same vector."""
    batch = next(judge.once())
    return mean_cosine(model.encode(batch.input_ids)[0].reshape(-1, model.width)[batch.rows])


def baseline() -> float:
    """The unigram baseline of the held-out text."""
    return unigram_loss(log_frequencies(), word_counts(text(0.15, 0, 32).validation()))


# ------------------------------------------------------------------ results


def key(run: Run) -> str:
    return json.dumps(vars(run), sort_keys=True)


def read(path: Path) -> dict[str, dict[str, Any]]:
    """The results in a file, by the settings of their runs. A line that was cut off by a crash is ignored."""
    results = {}
    for line in path.read_text(encoding="utf-8").splitlines() if path.is_file() else []:
        try:
            record = json.loads(line)
        except ValueError:
            continue
        results[json.dumps(record["run"], sort_keys=True)] = record["result"]
    return results


def append(path: Path, run: Run, result: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8", newline="\n") as file:
        file.write(json.dumps({"run": vars(run), "result": result}) + "\n")


def table(name: str, results: dict[str, dict[str, Any]]) -> str:
    """A row for each group of runs that differ only in their seed, with the mean of their losses."""
    groups: dict[Run, list[dict[str, Any]]] = {}
    for run in EXPERIMENTS[name]:
        if key(run) in results:
            groups.setdefault(replace(run, seed=0), []).append(results[key(run)])
    columns: dict[str, list[str]] = {each: [_said(getattr(run, each)) for run in groups] for each in SHOWN[name]}
    found = list(groups.values())
    if len({group[0]["parameters"] for group in found}) > 1:
        columns["weights"] = [f"{group[0]['parameters']:,}" for group in found]
    if name in WITH_TRAINING_LOSS:
        columns["training loss"] = [_mean(group, "training_loss") for group in found]
    columns["held-out loss"] = [_mean(group, "loss") for group in found]
    if max(map(len, found), default=1) > 1:
        columns["seed by seed"] = [", ".join(f"{one['loss']:.2f}" for one in group) for group in found]
    if name in WITH_ALIKE and all("alike" in group[0] for group in found):
        columns["alike"] = [_mean(group, "alike") for group in found]
    columns["right"] = [f"{np.mean([one['top1'] for one in group]):.0%}" for group in found]
    widths = {title: max(map(len, [title, *cells])) for title, cells in columns.items()}
    lines = [dict(zip(columns, cells, strict=True)) for cells in zip(*columns.values(), strict=True)]
    return "\n".join(
        "  ".join(f"{line[title]:>{width}}" for title, width in widths.items())
        for line in [{title: title for title in columns}, *lines]
    )


def _mean(group: list[dict[str, Any]], what: str) -> str:
    return f"{np.mean([one[what] for one in group]):.2f}"


def _said(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def main() -> None:
    parser = argparse.ArgumentParser(description="Runs the experiments of page 6 and prints their tables.")
    parser.add_argument("names", nargs="*", metavar="experiment", help=", ".join(EXPERIMENTS))
    parser.add_argument("--results", default="runs/experiments.jsonl", type=Path, help="read from and appended to")
    parser.add_argument("--list", action="store_true", help="show the runs and which of them are done")
    parser.add_argument("--baseline", action="store_true", help="show the unigram baseline of the held-out text")
    options = parser.parse_args()
    if options.baseline:
        print(f"unigram baseline {baseline():.2f}")
        return
    unknown = [name for name in options.names if name not in EXPERIMENTS]
    if unknown:
        parser.error(f"there is no experiment {unknown[0]!r}; choose from {', '.join(EXPERIMENTS)}")
    names, results = options.names or list(EXPERIMENTS), read(options.results)
    if options.list:
        for name in names:
            done = sum(key(run) in results for run in EXPERIMENTS[name])
            print(f"{name:8} {len(EXPERIMENTS[name])} runs, {done} done")
        return
    with threadpool_limits(1, "blas"):
        for name in names:
            for run in EXPERIMENTS[name]:
                if key(run) not in results:
                    results[key(run)] = train(run)
                    append(options.results, run, results[key(run)])
                    setting = ", ".join(f"{each} {_said(getattr(run, each))}" for each in SHOWN[name])
                    print(f"{name}: {setting}, seed {run.seed}: {results[key(run)]}", flush=True)
    for name in names:
        print(f"\n{name}\n{table(name, results)}")


if __name__ == "__main__":
    main()
