"""What fewer bits cost: scores of a model in float32, float16, bfloat16 and int8, before and after.

    python benchmarks/bits.py --data ../shared/data
    python benchmarks/bits.py --data ../shared/data --seeds 3 --threads 1

Ordinary commands do the work: `mini-bert finetune` makes a model for each task, `mini-bert export` writes it with other
weights, and these folders are measured on the whole dev set. int8 runs in NumPy and in ONNX Runtime. The loss is that
of masked words on the held-out documents of the pretraining text, and needs no fine-tuning.

The folder needs the files that ../shared/data/MANIFEST.md lists. Every model and every score is saved to --out when it
is finished, so you can interrupt the command and start it again at any time. The last lines are Markdown.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from threadpoolctl import threadpool_limits

from mini_bert.common.atomic import write_atomic
from mini_bert.evaluation.corpus import measure_corpus
from mini_bert.export.engine import with_engine
from mini_bert.finetuning.data import read_data
from mini_bert.finetuning.loop import predict
from mini_bert.finetuning.model import load as load_tuned
from mini_bert.inference.loading import load

FLAGS = {"float32": "--full", "float16": "", "bfloat16": "--bfloat16", "int8": "--int8"}
COLUMNS = {name: (name, "numpy") for name in FLAGS} | {"int8, ONNX Runtime": ("int8", "onnx")}
MOST_LOST = 0.5  # points
CORPORA = ("pretrain/wiki.txt.xz", "pretrain/books.txt.xz")
HELD_OUT = 0.01  # as in the training of the bundled model


class Task(NamedTuple):
    name: str
    words: tuple[str, ...]  # of the command
    train: str
    dev: str
    score: str


TASKS = {
    "sst2": Task("SST-2, accuracy", ("classify",), "sst2/train.tsv.gz", "sst2/dev.tsv.gz", "accuracy"),
    "stsb": Task("STS-B, pairs, Spearman", ("similarity", "--epochs", "5"), "stsb/train.tsv.gz", "stsb/dev.tsv.gz",
                 "spearman"),
    "stsb-vectors": Task("STS-B, vectors, Spearman", ("similarity", "--vectors", "--epochs", "5"), "stsb/train.tsv.gz",
                         "stsb/dev.tsv.gz", "spearman"),
    "wikiann": Task("NER, WikiANN, F1", ("tag",), "ner/wikiann_en_train.conll.gz", "ner/wikiann_en_dev.conll.gz", "f1"),
    "ewt": Task("parts of speech, UD EWT, accuracy", ("tag",), "ud_ewt/en_ewt-ud-train.conllu.gz",
                "ud_ewt/en_ewt-ud-dev.conllu.gz", "accuracy"),
    "qa": Task("questions, SQuAD and XQuAD, F1", ("qa",), "qa/squad_train_subset.json.gz", "qa/xquad.en.json.gz", "f1"),
}  # fmt: skip
LOSS = "held-out"


def mini_bert(*words: Any) -> None:
    subprocess.run([sys.executable, "-m", "mini_bert", *map(str, words)], check=True)


def tuned_folder(name: str, seed: int, options: argparse.Namespace) -> Path:
    """The fine-tuned model of a task, made by `mini-bert finetune` unless it is there"""
    task, folder = TASKS[name], options.out / f"{name}-{seed}"
    if not (folder / "model" / "config.json").is_file():
        shutil.rmtree(folder, ignore_errors=True)  # of a run that was interrupted
        limits = ["--max-samples", options.max_samples] if options.max_samples else []
        files = ["--train", options.data / task.train, "--dev", options.data / task.dev]
        mini_bert("finetune", *task.words, "--model", options.model, *files, "--seed", seed, "--out", folder,
                  "--threads", options.threads, *limits)  # fmt: skip
    return folder / "model"


def exported(source: Any, name: str, kind: str, options: argparse.Namespace) -> Path:
    """The same model with other weights, written by `mini-bert export` unless it is there"""
    folder = options.out / f"{name}-{kind}"
    if not (folder / "config.json").is_file():
        shutil.rmtree(folder, ignore_errors=True)
        mini_bert("export", source, *filter(None, [FLAGS[kind]]), "--out", folder)
    return folder


def score(folder: Path, name: str, engine: str, options: argparse.Namespace) -> dict[str, float]:
    """The score of a fine-tuned folder on the dev set"""
    task = TASKS[name]
    dev = read_data(task.words[0], str(options.data / task.train), str(options.data / task.dev)).dev
    model, own, tokenizer, length = load_tuned(folder)
    model = with_engine(model, engine, options.threads)
    items = own.items(dev, tokenizer, length, training=False)
    answers = own.join(dev, items, predict(model, own, items, tokenizer.padding))
    return {task.score: own.scores(dev, answers)[task.score]}


def held_out(folder: Path, engine: str, options: argparse.Namespace) -> dict[str, float]:
    """The mean loss of masked words, and how many are guessed right"""
    model, tokenizer = load(folder)
    model = with_engine(model, engine, options.threads)
    most = options.max_batches
    results = [measure_corpus(model, tokenizer, str(options.data / corpus), HELD_OUT, max_batches=most).result
             for corpus in CORPORA]  # fmt: skip
    return {name: sum(getattr(one, name) for one in results) / len(results) for name in ("loss", "top1")}


def kept(path: Path, measure: Callable[[], dict[str, float]]) -> dict[str, float]:
    """A result that is computed once"""
    if not path.is_file():
        write_atomic(path, (json.dumps(measure()) + "\n").encode())
        print(f"{path.stem}: {path.read_text().strip()}", flush=True)
    return json.loads(path.read_text(encoding="utf-8"))


def main() -> None:
    options = _options()
    options.out.mkdir(parents=True, exist_ok=True)
    scores: dict[str, dict[str, list[float]]] = {}

    def add(row: str, column: str, value: float) -> None:
        scores.setdefault(row, {}).setdefault(column, []).append(value)

    with threadpool_limits(options.threads, "blas"):
        for name in options.tasks:
            for seed in range(1 if name == LOSS else options.seeds):
                own = f"{name}-{seed}"
                source = options.model if name == LOSS else tuned_folder(name, seed, options)
                for column, (kind, engine) in COLUMNS.items():
                    folder, path = exported(source, own, kind, options), options.out / f"{own}-{kind}-{engine}.json"
                    if name == LOSS:
                        result = kept(path, partial(held_out, folder, engine, options))
                        add("masked words, held-out loss", column, result["loss"])
                        add("masked words, first guess right", column, 100 * result["top1"])
                    else:
                        result = kept(path, partial(score, folder, name, engine, options))
                        add(TASKS[name].name, column, 100 * result[TASKS[name].score])
    print(table(scores, options.seeds))


def table(scores: dict[str, dict[str, list[float]]], seeds: int) -> str:
    columns = list(COLUMNS)
    lines = [f"| dev | {' | '.join(columns)} | most lost |", f"|---|{'---|' * len(columns)}---|"]
    for row, values in scores.items():
        means = [sum(values[column]) / len(values[column]) for column in columns]
        is_loss = row.endswith("loss")
        lost = max(0.0, max(means[1:]) - means[0] if is_loss else means[0] - min(means[1:]))
        digits = 4 if is_loss else 2
        verdict = "" if is_loss or lost <= MOST_LOST else f" (more than {MOST_LOST})"
        lines.append(f"| {row} | {' | '.join(f'{mean:.{digits}f}' for mean in means)} | {lost:.{digits}f}{verdict} |")
    lines.append(f"\nScores × 100 on the dev sets; seeds of fine-tuning: {seeds}.")
    return "\n".join(lines)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--model", default="mini-bert")
    parser.add_argument("--out", type=Path, default=Path("runs/bits"))
    parser.add_argument("--tasks", nargs="+", default=[LOSS, *TASKS], choices=[LOSS, *TASKS])
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--max-samples", type=int, help="train on this many examples")
    parser.add_argument("--max-batches", type=int, help="of each corpus; default: all held-out documents")
    return parser.parse_args()


if __name__ == "__main__":
    main()
