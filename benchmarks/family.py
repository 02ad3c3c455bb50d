"""Trains every architecture for the same time on the same text, and measures whatever they can be compared on.

    python benchmarks/family.py --data ../shared/data --out runs/family --speed          first, on a quiet machine
    python benchmarks/family.py --data ../shared/data --out runs/family                  then all: about seven hours
    python benchmarks/family.py --data ../shared/data --out runs/family --models bert gpt2
    python benchmarks/family.py --out runs/family --figure docs/pictures/family.svg      only the table and the figure

The folder needs the files that ../shared/data/MANIFEST.md lists: pretrain, ud_ewt, sst2, blimp. Everything is done by
ordinary commands, which are printed. Each result is kept, and the same command continues after an interruption: a run
goes on where it stopped, and what was measured is not measured again.

The budget is time on two cores, but a model should not learn less because something else ran beside it. So `--speed`
first measures the seconds per step of all models, in turn, round after round; nothing else should run then. After that,
a model trains for as many steps as would take 20 minutes at the median of its rounds, however long they really take.

All models read with the same vocabulary (8k, WordPiece), so that the held-out loss of two models is the answer to the
same question if their objective is the same; a letter in the table says which are (QUESTIONS). Minimal pairs are scored
by what a model was trained to predict, which a number says (SCORES).

DistilBERT learns from the bundled Mini-BERT, which took two hours. Its teacher has the same depth, three blocks, and it
starts from random weights: so this measures what a teacher's answers are worth, and not, as in the paper, what is left
of a model with half of its layers.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from mini_bert.common.atomic import write_atomic
from mini_bert.models.family import MEMBERS
from mini_bert.plots.style import colour, dress, new_figure, save
from mini_bert.training.setup import Wanted, set_up

HERE = Path(__file__).parent
MODELS = ("mini", *(member.preset for member in MEMBERS))
TEACHERS = {"distilbert": "mini-bert"}
MEASURES = ("held_out", "pos", "sst2", "pairs")
TITLES = {"held_out": "held-out loss", "pos": "POS probe, %", "sst2": "SST-2 dev, %", "pairs": "minimal pairs, %"}
QUESTIONS = {  # by objective: what the held-out loss measures
    "masked_words": "masked words, 15 % of the pieces",
    "distillation": "masked words, 15 % of the pieces",
    "masked_words_and_sentence_order": "masked words in runs of 1 to 3, in pairs of texts",
    "replaced_tokens": "masked words, predicted by the generator, a smaller model; 15 % of the targets are visible",
    "next_word": "the next word",
    "next_word_with_memory": "the next word, with the segment before as a memory",
    "permutation": "words in a random order, about a sixth",
}
SCORES = {  # by output head: the score of a sentence in a minimal pair
    "masked_words": "the log-probability of each word if it is hidden, summed",
    "next_word": "the log-probability of each word after those before it, summed: that of the sentence",
    "replaced": "the log-probability that a word was not replaced, summed, which is not a probability of the sentence",
}


class Options(NamedTuple):
    data: Path
    out: Path
    minutes: float
    pairs: int
    threads: int


def run(*words: object) -> None:
    """A command, printed so that it can be repeated by hand."""
    command = [sys.executable, *map(str, words)]
    print("+", " ".join(["python", *map(str, words)]), flush=True)
    if subprocess.run(command).returncode:
        raise SystemExit("this command failed; repair what it says, and start the benchmark again")


def mini_bert(*words: object) -> None:
    run("-m", "mini_bert", *words)


def corpora(options: Options) -> list[Path]:
    return [options.data / "pretrain" / name for name in ("wiki.txt.xz", "books.txt.xz")]


# ---------------------------------------------------------------------- training and measuring


def training_words(name: str, folder: Path, steps: int, options: Options) -> list[object]:
    """The command that trains a model."""
    words: list[object] = ["train", "--model", name, "--tokenizer", "8k", "--length", 64, "--batch-size", 32]
    words += ["--threads", options.threads]
    words += ["--steps", steps, "--held-out", 0.01, "--out", folder, "--quiet"]
    words += [word for corpus in corpora(options) for word in ("--corpus", corpus)]
    return words + (["--teacher", TEACHERS[name]] if name in TEACHERS else [])


def records(folder: Path, kind: str) -> list[dict[str, Any]]:
    lines = (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [record for record in map(json.loads, lines) if record["kind"] == kind]


def measure_speed(names: Sequence[str], options: Options, rounds: int = 3) -> None:
    """Write the seconds per step of each model and round to speed.json."""
    path, found = options.out / "speed.json", {name: [] for name in names}
    for _ in range(rounds):
        for name in names:
            folder = options.out / "speed"
            shutil.rmtree(folder, ignore_errors=True)
            mini_bert(*training_words(name, folder, 60, options))
            first, last = (next(r for r in records(folder, "train") if r["step"] == step) for step in (20, 60))
            found[name].append(round((last["seconds"] - first["seconds"]) / 40, 5))
            shutil.rmtree(folder)
    write_atomic(path, (json.dumps(found, indent=2) + "\n").encode())


def steps_of(name: str, options: Options) -> int:
    path = options.out / "speed.json"
    if not path.is_file():
        raise SystemExit(f"{path} is missing: start with --speed, which measures the seconds per step of each model")
    seconds = statistics.median(json.loads(path.read_text(encoding="utf-8"))[name])
    return round(60 * options.minutes / seconds)


def trained(name: str, options: Options) -> Path:
    """The run of a model, finished."""
    folder = options.out / name
    if (folder / "model").is_dir():
        return folder
    if (folder / "config.json").is_file():
        mini_bert("train", "--out", folder, "--resume", "--quiet")
    else:
        mini_bert(*training_words(name, folder, steps_of(name, options), options))
    return folder


def held_out(folder: Path, options: Options) -> dict[str, Any]:
    """The last evaluation of the run itself, by the parts of its loss."""
    last = records(folder, "eval")[-1]
    return {"score": last["loss"], "steps": last["step"], **last}


def pos(folder: Path, options: Options) -> dict[str, Any]:
    treebank, out = options.data / "ud_ewt", folder / "probe"
    parts = ("--train", treebank / "en_ewt-ud-train.conllu.gz", "--dev", treebank / "en_ewt-ud-dev.conllu.gz")
    mini_bert("probe", "pos", "--model", folder, *parts, "--seeds", 1, "--out", out)
    content = json.loads((out / "probe_pos.json").read_text(encoding="utf-8"))
    best = content["probes"][0]["best"]
    return {"score": 100 * best["score"], "above_random": 100 * best["above_random"], "layer": best["layer"]}


def sst2(folder: Path, options: Options) -> dict[str, Any]:
    """After one epoch of fine-tuning, 67,000 sentences: the same for all, and a third of the usual time."""
    results = folder / "finetuned"
    words = ("--data", options.data, "--model", folder, "--tasks", "sst2", "--seeds", 1, "--control-seeds", 0)
    run(HERE / "finetune.py", *words, "--epochs", 1, "--threads", options.threads, "--results", results)
    found = json.loads(next(results.glob("sst2-*-0.json")).read_text(encoding="utf-8"))
    return {"score": 100 * found["scores"]["accuracy"]}


def pairs(folder: Path, options: Options) -> dict[str, Any]:
    words = ("eval", folder, "--pairs", options.data / "blimp", "--max-pairs", options.pairs, "--json")
    print("+ python -m mini_bert", *words, flush=True)
    done = subprocess.run([sys.executable, "-m", "mini_bert", *map(str, words)], stdout=subprocess.PIPE, check=True)
    found = json.loads(done.stdout)["minimal_pairs"][0]
    return {"score": 100 * found["accuracy"], "scored_by": found["scored_by"], "pairs": found["pairs"]}


WAYS: dict[str, Callable[[Path, Options], dict[str, Any]]] = {
    "held_out": held_out, "pos": pos, "sst2": sst2, "pairs": pairs
}  # fmt: skip


def measure(names: Sequence[str], options: Options) -> None:
    for name in names:
        folder = trained(name, options)
        path = options.out / f"{name}.json"
        found = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
        for way in MEASURES:
            if way not in found:
                found[way] = WAYS[way](folder, options)
                write_atomic(path, (json.dumps(found, indent=2) + "\n").encode())


# ---------------------------------------------------------------------- the table and the figure


def results(out: Path) -> dict[str, dict[str, Any]]:
    found = {}
    for name in MODELS:
        path = out / f"{name}.json"
        if path.is_file():
            found[name] = json.loads(path.read_text(encoding="utf-8"))
    return found


def table(found: dict[str, dict[str, Any]]) -> str:
    """What was measured, with a mark for each question and each way to score, which are explained below it."""
    lines = ["| | parameters | objective | steps | " + " | ".join(TITLES.values()) + " |", "|---" * 8 + "|"]
    questions, scores = Marks("abcdefgh"), Marks("12345678")
    for name, one in found.items():
        setup = set_up(Wanted(name, tokenizer="8k", length=64, teacher=TEACHERS.get(name)))
        count = setup.build(seed=None).get_parameter_count()
        cells = [f"{one[way]['score']:.{3 if way == 'held_out' else 1}f}" if way in one else "–" for way in MEASURES]
        cells[0] += f" ({questions.of(QUESTIONS[setup.objective.name])})"
        if "pairs" in one:
            cells[-1] += f" ({scores.of(SCORES[one['pairs']['scored_by']])})"
        lines.append(
            f"| {name} | {count:,} | {setup.objective.name.replace('_', ' ')} | {one['held_out']['steps']:,} | "
            f"{' | '.join(cells)} |"
        )
    notes = [
        f"Held-out losses with the same letter are answers to the same question: {questions}.",
        f"Sentences of minimal pairs are scored by what a model predicts: {scores}.",
    ]
    return "\n".join([*lines, "", *notes])


class Marks:
    """A mark for each different text, in the order in which they come."""

    def __init__(self, marks: str):
        self.marks, self.texts = marks, dict[str, str]()

    def of(self, text: str) -> str:
        return self.texts.setdefault(text, self.marks[len(self.texts)])

    def __str__(self) -> str:
        return "; ".join(f"({mark}) {text}" for text, mark in self.texts.items())


def figure(found: dict[str, dict[str, Any]], path: Path) -> None:
    """A panel for each measure that all models share, and a point for each model that has been measured."""
    shared, names = [way for way in MEASURES if way != "held_out"], list(found)[::-1]
    drawn = new_figure(11, 0.35 * len(found) + 1.2)
    for panel, way in zip(drawn.subplots(1, len(shared), sharey=True), shared, strict=True):
        measured = {index: found[name][way] for index, name in enumerate(names) if way in found[name]}
        hollow = [one.get("scored_by") == "replaced" for one in measured.values()]  # not a likelihood (SCORES)
        for (index, one), style in zip(measured.items(), hollow, strict=True):
            score = one["score"]
            panel.plot([score], [index], "o", color=colour(0), fillstyle="none" if style else "full")
            panel.annotate(f"{score:.1f}", (score, index), (7, 0), textcoords="offset points", va="center")
        dress(panel, TITLES[way] + (" (hollow: by “not replaced”)" if any(hollow) else ""), "")
        panel.set_yticks(range(len(names)), names)
        panel.set_ylim(-0.6, len(names) - 0.4)
        if measured:
            low, high = (limit(one["score"] for one in measured.values()) for limit in (min, max))
            margin = 0.15 * (high - low) + 0.1
            panel.set_xlim(low - margin, high + 2 * margin)
    save(drawn, path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, help="the folder with pretrain, ud_ewt, sst2 and blimp")
    parser.add_argument("--out", type=Path, default=Path("runs/family"), help="where runs and results are kept")
    parser.add_argument("--models", nargs="*", choices=MODELS, default=list(MODELS))
    parser.add_argument("--minutes", type=float, default=20.0, help="of training for each, at the speed measured")
    parser.add_argument("--pairs", type=int, default=200, help="minimal pairs of each paradigm")
    parser.add_argument("--threads", type=int, default=2, help="of a run; this does not change what it learns")
    parser.add_argument("--speed", action="store_true", help="measure seconds per step, and stop")
    parser.add_argument("--figure", type=Path, help="draw this picture of the results")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    if given.data is not None:
        options = Options(given.data, given.out, given.minutes, given.pairs, given.threads)
        if given.speed:
            return measure_speed(given.models, options)
        measure(given.models, options)
    found = results(given.out)
    if not found:
        raise SystemExit(f"{given.out} has no results; give --data to train and measure")
    print(table(found))
    if given.figure is not None:
        figure(found, given.figure)


if __name__ == "__main__":
    main()
