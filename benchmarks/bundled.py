"""One table for the bundled models: what each has learnt, against the same network from random weights.

    python benchmarks/bundled.py --data ../shared/data --models mini-bert
    python benchmarks/bundled.py                                            the table of what has been measured

The folder needs the files that ../shared/data/MANIFEST.md lists: pretrain, sst2, ner, qa, stsb, ud_ewt, blimp.
Everything is done by ordinary commands, which are printed, and by finetune.py. Results are small JSON files in
benchmarks/results/bundled, one folder for each model; what is there is not measured again, so this can be interrupted,
and a new machine continues where another stopped. All of one model takes hours: two processes work side by side.

Fine-tuning has three seeds, of the head and the order of the examples; so does the control, from random weights. What
needs no training is the same each time: only the control has seeds there.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from equal_time import HERE, RESULTS, corpora, read, run, write
from finetune import RECIPES

from mini_bert.finetuning.report import PRETRAINED, SCRATCH, mean_spread, shown
from mini_bert.inference.loading import load

SEEDS = 3
MODELS = ("mini-bert", "modern")
TITLES = {
    "held_out": "held-out text: loss",
    "pairs": "minimal pairs, accuracy",
    "pos": "parts of speech, a linear probe: accuracy",
    "vectors": "STS-B, vectors as they are: spearman",
}


# ---------------------------------------------------------------------- what needs no training


def ask(*words: object) -> Any:
    return json.loads(run("-m", "mini_bert", *words, "--threads", 1, "--json", capture=True))


def held_out(model: str, data: Path) -> float:
    """The mean of Wikipedia and books, in sequences of 64 tokens whatever the model can read"""
    texts = ask("eval", model, *corpora(data), "--held-out", 0.01, "--length", 64)["results"]
    return statistics.mean(text["loss"] for text in texts)


def pairs(model: str, data: Path) -> float:
    return ask("eval", model, "--pairs", data / "blimp")["minimal_pairs"][0]["accuracy"]


def vectors(model: str, data: Path) -> float:
    return ask("eval", model, "--pairs", data / "stsb/dev.tsv.gz")["pairs"][0]["spearman"]


WAYS: dict[str, Callable[[str, Path], float]] = {"held_out": held_out, "pairs": pairs, "vectors": vectors}


def measure(model: str, data: Path, results: Path, way: str) -> None:
    """A measure of the model, and of the same network from random weights with each seed."""
    path = results / f"{way}.json"
    if path.is_file():
        return
    start, tokenizer = load(model)
    found: dict[str, Any] = {PRETRAINED: [WAYS[way](model, data)], SCRATCH: []}
    for seed in range(SEEDS):
        with tempfile.TemporaryDirectory() as folder:
            start.untrained(seed).save_pretrained(folder)
            tokenizer.save(folder)
            found[SCRATCH].append(WAYS[way](folder, data))
    write(path, found)


def probe(model: str, data: Path, results: Path) -> None:
    """The best layer of each; the probe does both itself"""
    path, treebank = results / "pos.json", data / "ud_ewt"
    if path.is_file():
        return
    parts = ("--train", treebank / "en_ewt-ud-train.conllu.gz", "--dev", treebank / "en_ewt-ud-dev.conllu.gz")
    one = ask("probe", "pos", "--model", model, *parts, "--seeds", SEEDS)["probes"][0]
    layers = {layer["layer"]: layer for layer in one["layers"]}
    trained, random = (layers[one["best"][name]] for name in ("layer", "random_layer"))
    found = {PRETRAINED: trained["trained"]["accuracy"]["values"], SCRATCH: random["random"]["accuracy"]["values"]}
    write(path, found)


# ---------------------------------------------------------------------- fine-tuning


def fine_tune(model: str, data: Path, results: Path, task: str, start: str) -> None:
    seeds = (
        ("--seeds", SEEDS, "--control-seeds", 0) if start == PRETRAINED else ("--seeds", 0, "--control-seeds", SEEDS)
    )
    words = ("--data", data, "--model", model, "--tasks", task, "--threads", 1, "--results", results)
    run(HERE / "finetune.py", *words, *seeds, capture=True)


def scores(results: Path, task: str, start: str, score: str) -> list[float]:
    files = [read(results / f"{task}-{start.split()[-1]}-{seed}.json") for seed in range(SEEDS)]
    return [found["scores"][score] for found in files if found]


# ---------------------------------------------------------------------- the table


def table(folder: Path) -> str:
    models = [name for name in MODELS if (folder / name).is_dir()]
    if not models:
        raise SystemExit(f"{folder} has no results; give --data to measure")
    columns = [f"{name}, {start}" for name in models for start in (PRETRAINED, SCRATCH)]
    lines = [f"| | {' | '.join(columns)} |", "|---" * (len(columns) + 1) + "|"]
    for task, recipe in RECIPES.items():
        for score in recipe.scores:
            values = [scores(folder / name, task, start, score) for name in models for start in (PRETRAINED, SCRATCH)]
            lines.append(row(f"{recipe.name}: {score}", values))
    for way, title in TITLES.items():
        files = [read(folder / name / f"{way}.json") for name in models]
        lines.append(row(title, [one.get(start, []) for one in files for start in (PRETRAINED, SCRATCH)], way))
    return "\n".join(lines)


def row(title: str, values: list[list[float]], way: str = "") -> str:
    cells = []
    for some in values:
        found = mean_spread(some) if some else None
        exact = f"{found['mean']:.3f}" if found else ""
        cells.append(exact if way == "held_out" or not found else shown(found))
        cells[-1] += f" ({len(some)} of {SEEDS} seeds)" if 1 < len(some) < SEEDS else ""
    return f"| {title} | {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, help="the folder with the data; without it, only the table is printed")
    parser.add_argument("--models", nargs="+", choices=list(MODELS), default=list(MODELS))
    parser.add_argument("--tasks", nargs="*", choices=list(RECIPES), default=list(RECIPES))
    parser.add_argument("--results", type=Path, default=RESULTS / "bundled")
    parser.add_argument("--jobs", type=int, default=2, help="commands at the same time, with a thread each")
    given = parser.parse_args()
    with ThreadPoolExecutor(given.jobs) as pool:
        jobs = []
        for model in given.models if given.data else ():
            results = given.results / model
            jobs += [pool.submit(measure, model, given.data, results, way) for way in WAYS]
            jobs.append(pool.submit(probe, model, given.data, results))
            for task in given.tasks:
                jobs += [
                    pool.submit(fine_tune, model, given.data, results, task, start) for start in (PRETRAINED, SCRATCH)
                ]
        try:
            for job in as_completed(jobs):
                job.result()
        except BaseException:
            pool.shutdown(cancel_futures=True)  # what has not begun
            raise
    print(table(given.results))


if __name__ == "__main__":
    main()
