"""Fine-tunes a model on six tasks with several seeds, and as a control the same network from random weights.

    python benchmarks/finetune.py --data ../shared/data --model mini-bert
    python benchmarks/finetune.py --data ../shared/data --tasks sst2 stsb --seeds 1

The folder needs the files that ../shared/data/MANIFEST.md lists: sst2, ner, qa, stsb. The scores of each run are saved
to --results when it ends, and a run with the same weights and settings is not repeated. All runs together take hours;
you can interrupt the command and start it again at any time. At the end it prints a Markdown table. Two processes with
one thread each are faster than one with two threads: run one with `--control-seeds 0` and the other with `--seeds 0`.

The score of a run is its best measurement on the dev data. SQuAD's dev set is large, so the best weights are chosen on
1,000 questions spread over it, and then evaluated on all 10,570.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from mini_bert.common.atomic import write_atomic
from mini_bert.common.memory import keep_freed_memory, share_memory_among_threads
from mini_bert.common.progress import showing
from mini_bert.finetuning.data import read_data
from mini_bert.finetuning.finetune import Runs, make_task, settings_for, with_defaults
from mini_bert.finetuning.loop import FineTuning, predict
from mini_bert.finetuning.report import PRETRAINED, SCRATCH, mean_spread, shown
from mini_bert.inference.loading import load
from mini_bert.training.parallel import Team, default_threads


class Recipe(NamedTuple):
    name: str
    kind: str
    train: str
    dev: str
    scores: tuple[str, ...]  # the scores to show
    vectors: bool = False
    measured: int | None = None  # number of dev examples for choosing the best weights; None: all
    epochs: int | None = None  # None: the default of `mini-bert finetune`


RECIPES = {
    "sst2": Recipe("SST-2, sentiment", "classify", "sst2/train.tsv.gz", "sst2/dev.tsv.gz", ("accuracy",)),
    "wikiann": Recipe(
        "WikiANN, names", "tag", "ner/wikiann_en_train.conll.gz", "ner/wikiann_en_dev.conll.gz", ("f1",)
    ),
    "wnut17": Recipe("WNUT17, rare names", "tag", "ner/wnut17_train.conll.gz", "ner/wnut17_dev.conll.gz", ("f1",)),
    "squad": Recipe(
        "SQuAD 1.1, subset of 8,149", "qa", "qa/squad_train_subset.json.gz", "qa/squad_dev-v1.1.json.gz",
        ("exact", "f1"), measured=1000, epochs=2,
    ),
    "stsb": Recipe(
        "STS-B, pairs", "similarity", "stsb/train.tsv.gz", "stsb/dev.tsv.gz", ("spearman", "pearson"), epochs=5
    ),
    "stsb-vectors": Recipe(
        "STS-B, vectors", "similarity", "stsb/train.tsv.gz", "stsb/dev.tsv.gz", ("spearman", "pearson"), vectors=True,
        epochs=5,
    ),
}  # fmt: skip


def main() -> None:
    options = _options()
    keep_freed_memory()
    share_memory_among_threads()
    model, tokenizer = load(options.model)
    weights = hashlib.sha256(model.flat.data.tobytes()).hexdigest()[:16]
    control_seeds = options.seeds if options.control_seeds is None else options.control_seeds
    options.results.mkdir(parents=True, exist_ok=True)
    for name in options.tasks:
        recipe = RECIPES[name]
        data = read_data(recipe.kind, str(options.data / recipe.train), str(options.data / recipe.dev))
        whole = data.dev
        if recipe.measured is not None:
            data = data._replace(dev=whole[:: max(1, len(whole) // recipe.measured)])
        task = make_task(recipe.kind, model, data, vectors=recipe.vectors)
        settings = FineTuning(options.epochs or recipe.epochs, learning_rate=options.learning_rate,
                              ema_decay=options.ema_decay, threads=options.threads)  # fmt: skip
        settings = with_defaults(settings, recipe.kind, model, len(data.train))
        runs: Runs | None = None
        length = min(128, model.max_length)
        for start in (PRETRAINED, SCRATCH):
            for seed in range(options.seeds if start == PRETRAINED else control_seeds):
                own = settings_for(start, settings, seed, model)
                path = options.results / f"{name}-{start.split()[-1]}-{seed}.json"
                recipe_of_run = {name: value for name, value in asdict(own).items() if name != "threads"}
                key = {"weights": weights, "settings": recipe_of_run, "task": task.settings()}
                if _found(path, key) is not None:
                    continue
                with showing() as show:
                    runs = runs or Runs(model, task, data, tokenizer, length)
                    runs.show = show
                    result = runs.run(start, own)
                if result.outcome.stopped == "interrupted":
                    raise SystemExit("interrupted; run the same command to continue")
                scores = result.outcome.scores
                if recipe.measured is not None:
                    scores = _on_all(runs, whole, length, options.threads)
                outcome = result.outcome._asdict() | {"scores": scores}
                write_atomic(path, (json.dumps({"key": key, **outcome}, indent=2) + "\n").encode())
                print(f"{name}, {start}, seed {seed}: {scores}, {outcome['seconds']:.0f} s", flush=True)
    print(table(options.results, options.tasks, max(options.seeds, control_seeds)))


def _on_all(runs: Runs, whole: list[Any], length: int, threads: int) -> dict[str, float]:
    """The scores of the last model on the whole dev set, computed 500 questions at a time"""
    task, tokenizer, model = runs.task, runs.tokenizer, runs.tuned
    said: list[Any] = []
    with Team(model, threads) as team:
        for low in range(0, len(whole), 500):
            some = whole[low : low + 500]
            items = task.items(some, tokenizer, length, training=False)
            said += task.join(some, items, predict(model, task, items, tokenizer.padding, team.map))
    return task.scores(whole, said)


def _found(path: Path, key: dict[str, Any] | None = None) -> dict[str, Any] | None:
    """A stored result; with `key`, only if it has the same weights and settings"""
    if not path.is_file():
        return None
    found = json.loads(path.read_text(encoding="utf-8"))
    return found if key is None or found["key"] == key else None


def table(results: Path, tasks: list[str], seeds: int) -> str:
    lines = [
        "| dev, × 100 | | pretrained | from random weights | difference | minutes per run |",
        "|---|---|---|---|---|---|",
    ]
    for name in tasks:
        recipe = RECIPES[name]
        for score in recipe.scores:
            cells, means, minutes = [], [], 0.0
            for start in (PRETRAINED, SCRATCH):
                files = [_found(results / f"{name}-{start.split()[-1]}-{seed}.json") for seed in range(seeds)]
                runs = [run for run in files if run is not None]
                if not runs:
                    cells.append("")
                    continue
                value = mean_spread([run["scores"][score] for run in runs])
                cells.append(shown(value) + ("" if len(runs) == seeds else f" ({len(runs)} of {seeds} seeds)"))
                means.append(value["mean"])
                minutes = minutes or sum(run["seconds"] for run in runs) / len(runs) / 60
            gain = f"{100 * (means[0] - means[1]):+.1f}" if len(means) == 2 else ""
            lines.append(f"| {recipe.name} | {score} | {' | '.join(cells)} | {gain} | {minutes:.1f} |")
    lines.append(f"\nMean ± standard deviation of {seeds} seeds.")
    return "\n".join(lines)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--model", default="mini-bert")
    parser.add_argument("--results", type=Path, default=Path("runs/finetune-table"))
    parser.add_argument("--tasks", nargs="+", default=list(RECIPES), choices=list(RECIPES))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument(
        "--control-seeds", type=int, help="seeds for the network from random weights; default: as --seeds"
    )
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--learning-rate", type=float)
    parser.add_argument("--ema-decay", type=float, default=FineTuning.ema_decay)
    parser.add_argument("--threads", type=int, default=default_threads())
    return parser.parse_args()


if __name__ == "__main__":
    main()
