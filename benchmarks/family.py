"""Trains every architecture for the same time on the same text, and measures whatever they can be compared on.

    python benchmarks/family.py --data ../shared/data --speed                 first, on a quiet machine
    python benchmarks/family.py --data ../shared/data                         then all: about seven hours
    python benchmarks/family.py --data ../shared/data --models bert gpt2
    python benchmarks/family.py --figure docs/pictures/family.svg             only the table and the figure

The folder needs the files that ../shared/data/MANIFEST.md lists: pretrain, ud_ewt, sst2, blimp. Everything is done by
ordinary commands, which are printed. equal_time.py says how all get the same time, and where results are kept: delete
benchmarks/results/family to measure everything again.

All models read with the same vocabulary (8k, WordPiece), so that the held-out loss of two models is the answer to the
same question if their objective is the same; a letter in the table says which are (QUESTIONS). Minimal pairs are scored
by what a model was trained to predict, which a number says (SCORES).

DistilBERT learns from the bundled Mini-BERT, which took two hours. Its teacher has the same depth, three blocks, and it
starts from random weights: so this measures what a teacher's answers are worth, and not, as in the paper, what is left
of a model with half of its layers.

All train with Adam. Rates and warm-up are the defaults of `train` for it, the same for all, chosen with Mini-BERT.
The models that have a table of positions and BERT's blocks start with heads that attend to neighbours
(docs/decisions/0003).
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from equal_time import HERE, RESULTS, corpora, measure_speed, read, records, run, seconds_per_step, write

from mini_bert.models.family import MEMBERS
from mini_bert.plots.style import colour, dress, new_figure, save
from mini_bert.training.setup import Wanted, set_up

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
EXAMPLES = {
    "pos": 25_147,
    "sst2": 872,
    "pairs": 6_800,
}  # that a percentage is measured on, from which its error follows
SCORES = {  # by output head: the score of a sentence in a minimal pair
    "masked_words": "the log-probability of each word if it is hidden, summed",
    "next_word": "the log-probability of each word after those before it, summed: that of the sentence",
    "replaced": "the log-probability that a word was not replaced, summed, which is not a probability of the sentence",
}


class Options(NamedTuple):
    data: Path
    out: Path
    results: Path
    minutes: float
    pairs: int
    threads: int

    @property
    def speed(self) -> Path:
        return self.results / "speed.json"


# ---------------------------------------------------------------------- training and measuring


def train(name: str, options: Options, steps: int, folder: Path) -> None:
    words: list[object] = ["train", "--model", name, "--tokenizer", "8k", "--length", 64, "--optimizer", "adam"]
    words += ["--threads", options.threads, "--steps", steps, "--held-out", 0.01, "--out", folder, "--quiet"]
    words += ["--teacher", TEACHERS[name]] if name in TEACHERS else []
    run("-m", "mini_bert", *words, *corpora(options.data))


def trained(name: str, options: Options) -> Path:
    """The run of a model, finished."""
    folder = options.out / name
    if (folder / "config.json").is_file() and not (folder / "model").is_dir():
        run("-m", "mini_bert", "train", "--out", folder, "--resume", "--quiet")
    elif not (folder / "model").is_dir():
        train(name, options, round(60 * options.minutes / seconds_per_step(options.speed, name)), folder)
    return folder


def held_out(folder: Path, options: Options) -> dict[str, Any]:
    """The last evaluation of the run itself, by the parts of its loss."""
    last = records(folder, "eval")[-1]
    return {"score": last["loss"], "steps": last["step"], **last}


def pos(folder: Path, options: Options) -> dict[str, Any]:
    treebank, out = options.data / "ud_ewt", folder / "probe"
    parts = ("--train", treebank / "en_ewt-ud-train.conllu.gz", "--dev", treebank / "en_ewt-ud-dev.conllu.gz")
    run("-m", "mini_bert", "probe", "pos", "--model", folder, *parts, "--seeds", 1, "--out", out)
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
    found = json.loads(run("-m", "mini_bert", *words, capture=True))["minimal_pairs"][0]
    return {"score": 100 * found["accuracy"], "scored_by": found["scored_by"], "pairs": found["pairs"]}


WAYS: dict[str, Callable[[Path, Options], dict[str, Any]]] = {
    "held_out": held_out, "pos": pos, "sst2": sst2, "pairs": pairs
}  # fmt: skip


def measure(name: str, options: Options) -> None:
    path = options.results / f"{name}.json"
    found = read(path)
    for way in MEASURES:
        if way not in found:
            found[way] = WAYS[way](trained(name, options), options)
            write(path, found)


# ---------------------------------------------------------------------- the table and the figure


def table(found: dict[str, dict[str, Any]]) -> str:
    """What was measured, with a mark for each question and each way to score, which are explained below it."""
    lines = ["| | parameters | objective | steps | " + " | ".join(TITLES.values()) + " |", "|---" * 8 + "|"]
    questions, scores = Marks("abcdefgh"), Marks("12345678")
    taught, paired = [], []
    for name, one in found.items():
        setup = set_up(Wanted(name, tokenizer="8k", length=64, teacher=TEACHERS.get(name)))
        model = setup.build(seed=None)
        taught += [name] * (name in TEACHERS)
        paired += [name] * bool(model.inner_models())
        cells = [f"{one[way]['score']:.{3 if way == 'held_out' else 1}f}" if way in one else "–" for way in MEASURES]
        cells[0] += f" ({questions.of(QUESTIONS[setup.objective.name])})"
        if "pairs" in one:
            cells[-1] += f" ({scores.of(SCORES[one['pairs']['scored_by']])})"
        lines.append(
            f"| {name} | {model.get_parameter_count():,} | {setup.objective.name.replace('_', ' ')} | "
            f"{one['held_out']['steps']:,} | {' | '.join(cells)} |"
        )
    measured = {way: [error(way, one[way]) for one in found.values() if way in one] for way in MEASURES[1:]}
    errors = ", ".join(f"{TITLES[way].split(',')[0]} {max(some):.1f}" for way, some in measured.items() if some)
    notes = [
        f"Held-out losses with the same letter are answers to the same question: {questions}.",
        f"Sentences of minimal pairs are scored by what a model predicts: {scores}.",
        f"One seed. Standard errors from the number of examples alone, in points: {errors}.",
        *(
            f"{name} also has the answers of a teacher, {TEACHERS[name]}, whose training is not counted."
            for name in taught
        ),
        *(f"The parameters of {name} include its generator." for name in paired),
    ]
    return "\n".join([*lines, "", *notes])


def error(way: str, measured: dict[str, Any]) -> float:
    """The standard error of a percentage, as if the examples were independent."""
    return math.sqrt(measured["score"] * (100 - measured["score"]) / EXAMPLES.get(way, measured.get("pairs")))


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
            panel.errorbar([score], [index], xerr=error(way, one), color=colour(0), linewidth=1)
            panel.plot([score], [index], "o", color=colour(0), fillstyle="none" if style else "full")
            panel.annotate(f"{score:.1f}", (score, index), (0, 5), textcoords="offset points", ha="center", size=8)
        dress(panel, TITLES[way] + (" (hollow: by “not replaced”)" if any(hollow) else ""), "")
        panel.set_yticks(range(len(names)), names)
        panel.set_ylim(-0.6, len(names) - 0.4)
        if measured:
            low, high = (limit(one["score"] for one in measured.values()) for limit in (min, max))
            margin = max(error(way, one) for one in measured.values()) + 0.1
            panel.set_xlim(low - margin, high + margin)
    save(drawn, path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, help="the folder with pretrain, ud_ewt, sst2 and blimp")
    parser.add_argument("--out", type=Path, default=Path("runs/family"), help="where runs are kept")
    parser.add_argument("--results", type=Path, default=RESULTS / "family", help="where results are kept")
    parser.add_argument("--models", nargs="*", choices=MODELS, default=list(MODELS))
    parser.add_argument("--minutes", type=float, default=20.0, help="of training for each, at the speed measured")
    parser.add_argument("--pairs", type=int, default=200, help="minimal pairs of each paradigm")
    parser.add_argument("--threads", type=int, default=2, help="of a run; this does not change what it learns")
    parser.add_argument("--speed", action="store_true", help="measure seconds per step, and stop")
    parser.add_argument("--figure", type=Path, help="draw this picture of the results")
    given = parser.parse_args()
    if given.data is not None:
        options = Options(given.data, given.out, given.results, given.minutes, given.pairs, given.threads)
        if given.speed:
            kinds = {name: partial(train, name, options) for name in given.models}
            return measure_speed(options.speed, kinds, given.out / "speed")
        for name in given.models:
            measure(name, options)
    found = {name: read(given.results / f"{name}.json") for name in MODELS}
    found = {name: one for name, one in found.items() if one}
    if not found:
        raise SystemExit(f"{given.results} has no results; give --data to train and measure")
    print(table(found))
    if given.figure is not None:
        figure(found, given.figure)


if __name__ == "__main__":
    main()
