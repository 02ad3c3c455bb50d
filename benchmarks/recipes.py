"""What makes a small BERT learn more in the same time? One row of docs/recipes.md after another.

    python benchmarks/recipes.py --list                                               all rows
    python benchmarks/recipes.py --data ../shared/data --speed                        first, on a quiet machine
    python benchmarks/recipes.py --data ../shared/data --questions "Adam's rate"      then one question, or all
    python benchmarks/recipes.py --data ../shared/data --rows adam-lr-1e-3
    python benchmarks/recipes.py --table                                              what has been measured so far
    python benchmarks/recipes.py --table --figure docs/pictures/recipes.svg           and a picture of it

A row is one `mini-bert train`, which is printed. Every row gets the same time on two cores, five minutes unless
`--minutes` says otherwise; results of another length are kept apart. equal_time.py says how the time is spent, and
where results are kept. Two rows train side by side on a core each (`--jobs 2`), faster than one after the other.

The score is the held-out loss of the run's model: `mini-bert eval` on the 1 % of documents that no row trained on, 15 %
masked whatever the row trained with, the mean of Wikipedia and books. A run keeps the best of its evaluations, which is
the last one in all rows but those that diverge. Beside it, the share of grammatical minimal pairs in which the model
finds the right sentence more likely, in percent: 200 pairs of each of 34 kinds, with a standard error of 0.6.

Compare architectures only with each other: these rows have tied tables and 2.95 million weights, the others are
Mini-BERT with 4.5 million.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from equal_time import HERE, RESULTS, corpora, measure_speed, read, records, run, seconds_per_step, write

from mini_bert.plots.style import GREY, colour, dress, new_figure, save

VARIANTS = HERE / "variants.py"  # the commands of `mini-bert`, with more models
MINUTES = 5.0
PAIRS = 200  # of each kind
# Options that change the time of a step.
COSTLY = ("--model", "--batch-size", "--micro-batch", "--length", "--mask-prob", "--optimizer", "--objective")
AS_COSTLY = {  # the same operations, on other weights or ids
    "post-norm-noise": "post-norm", "pre-norm-noise": "pre-norm", "zero": "no-bias", "hidden_words": "masked_words",
}  # fmt: skip
Words = tuple[str, ...]


class Row(NamedTuple):
    name: str
    words: Words  # options of `train`, beside those that all rows share
    parts: tuple[tuple[float, Words], ...] = ()  # where the cost changes: (share of the steps, options of that part)

    def costs(self) -> tuple[tuple[float, str], ...]:
        """The shares of the steps, and what each kind of step is called in speed.json."""
        return tuple((share, kind((*self.words, *words))) for share, words in self.parts or ((1.0, ()),))


class Question(NamedTuple):
    title: str
    rows: tuple[Row, ...]


def kind(words: Sequence[str]) -> str:
    """The options that change the time of a step; later ones replace earlier ones. "" is Adam, 32 × 64."""
    given = {name: AS_COSTLY.get(value, value) for name, value in pairwise(words) if name in COSTLY}
    defaults = {"--batch-size": "32", "--optimizer": "adam", "--model": "mini", "--mask-prob": "0.15", "--length": "64",
                "--objective": "masked_words"}  # fmt: skip
    return " ".join(f"{name} {value}" for name, value in sorted(given.items()) if defaults.get(name) != value)


def rows(prefix: str, base: str, name: str, values: str) -> tuple[Row, ...]:
    """A row for each value of one option."""
    return tuple(Row(f"{prefix}-{value}", (*base.split(), name, value)) for value in values.split())


def named(base: str, **more: str) -> tuple[Row, ...]:
    return tuple(Row(name.replace("_", "-"), tuple(f"{base} {words}".split())) for name, words in more.items())


ADAM = ""
MUON = "--optimizer muon --schedule wsd"
BASE = "muon-2-2"  # what most rows differ from in one thing
QUESTIONS = (
    Question("Adam's rate", rows("adam-lr", ADAM, "--learning-rate", "5e-4 1e-3 2e-3 3e-3 4e-3")),
    Question("Adam's memory", rows("adam-beta2", "--learning-rate 2e-3", "--beta2", "0.95 0.98 0.99")),
    Question("Warm-up", rows("adam-warmup", "--learning-rate 2e-3", "--warmup", "0.02 0.05 0.2 0.3")),
    Question("Adam's schedule", named(
        "--learning-rate 2e-3", adam_cosine="--schedule cosine", adam_wsd="--schedule wsd",
        adam_wsd_half="--schedule wsd --decay-share 0.5",
    )),
    Question("Muon's rates", named(
        MUON, muon_1_1="--lr 1e-3", muon_2_2="--lr 2e-3", muon_3_3="--lr 3e-3", muon_2_4="--lr 2e-3 --muon-lr 4e-3",
        muon_4_4="--lr 4e-3", muon_4_2="--lr 4e-3 --muon-lr 2e-3",
    )),
    Question("Memory with Muon", named(
        MUON, muon_beta2_98="--beta2 0.98", muon_beta2_95="--beta2 0.95", muon_momentum_90="--momentum 0.9",
        muon_momentum_98="--momentum 0.98",
    )),
    Question("Warm-up with Muon", rows("muon-warmup", MUON, "--warmup", "0.03 0.06 0.25")),
    Question("Muon's schedule", named(
        "--optimizer muon", muon_linear="--schedule linear", muon_cosine="--schedule cosine",
        muon_wsd_half="--schedule wsd --decay-share 0.5", muon_wsd_fifth="--schedule wsd --decay-share 0.2",
    )),
    Question("What lasts longer", named(  # in rows of 20 minutes and more, with those above
        "", muon_1_1_linear="--optimizer muon --schedule linear --lr 1e-3",
        muon_batch_64_linear="--optimizer muon --schedule linear --batch-size 64 --lr 2e-3",
        muon_batch_128_linear="--optimizer muon --schedule linear --batch-size 128 --lr 3e-3",
        muon_batch_128_decay="--optimizer muon --schedule linear --batch-size 128 --lr 3e-3 --weight-decay 0.3",
    )),
    Question("Batch size with Muon", named(
        MUON, muon_batch_16="--batch-size 16 --lr 1.4e-3", muon_batch_64="--batch-size 64 --lr 2.8e-3",
        muon_batch_64_same="--batch-size 64 --lr 2e-3", muon_batch_128="--batch-size 128 --lr 4e-3",
    )),
    Question("Batch size with Adam", named(
        "", adam_batch_16="--batch-size 16 --lr 1.4e-3", adam_batch_64="--batch-size 64 --lr 2.8e-3",
    )),
    Question("Batch ramp", (
        Row("muon-ramp-16-64", (*MUON.split(), "--batch-start", "16", "--batch-size", "64", "--lr", "2e-3"), (
            (0.25, ("--batch-size", "16")), (0.75, ("--batch-size", "64")),
        )),
    )),
    Question("Averages", named(
        MUON, muon_ema_99="--average ema --ema-decay 0.99", muon_ema_998="--average ema --ema-decay 0.998",
        muon_tail="--average tail --tail-share 0.1",
        muon_flat_tail="--average tail --tail-share 0.2 --decay-share 0.05",
    )),
    Question("Mask rate", (
        *rows("muon-mask", MUON, "--mask-prob", "0.1 0.2 0.3 0.4"),
        Row("muon-mask-30-15", (*MUON.split(), "--mask-start", "0.3"), (
            (0.5, ("--mask-prob", "0.3")), (0.5, ()),
        )),
    )),
    Question("Short sequences first", (
        Row("muon-length-16-64", (*MUON.split(), "--length-start", "16"), (
            (0.25, ("--length", "16", "--batch-size", "128", "--micro-batch", "64")),
            (0.25, ("--length", "32", "--batch-size", "64", "--micro-batch", "32")),
            (0.5, ()),
        )),
        Row("muon-length-32-64", (*MUON.split(), "--length-start", "32"), (
            (0.5, ("--length", "32", "--batch-size", "64", "--micro-batch", "32")), (0.5, ()),
        )),
    )),
    Question("What is seen of the words to predict", named(
        MUON, muon_hidden="--objective hidden_words", muon_span="--masking span", muon_whole="--masking whole-word",
    )),
    Question("Order of the text", named(
        MUON, muon_text_order="--order text", muon_backwards="--order backwards",
        muon_one_sentence="--objective one_sentence --batch-size 64 --micro-batch 32",
    )),
    Question("Weight decay", rows("muon-decay", MUON, "--weight-decay", "0 0.05 0.1")),
    Question("Seeds", rows("muon-seed", MUON, "--seed", "1 2")),
    Question("Architecture", named(
        MUON, arch_post_norm="--model post-norm", arch_pre_norm="--model pre-norm",
        arch_post_noise="--model post-norm-noise", arch_pre_noise="--model pre-norm-noise",
        arch_rotary="--model rotary", arch_gated="--model gated", arch_no_bias="--model no-bias",
        arch_zero="--model zero",
        arch_2_wide="--model 2-wide", arch_6_thin="--model 6-thin", arch_modernbert="--model modernbert",
        arch_deberta="--model deberta",
    )),
    Question("A deeper model", named(
        "--optimizer muon --schedule linear --batch-size 128 --lr 3e-3", deep_bert="--model bert-6",
        deep_deberta="--model deberta-6", deep_deberta_v2="--model deberta-v2-6",
        deep_modernbert="--model modernbert-6",
        shallow_deberta="--model deberta",
    )),
)  # fmt: skip


# ---------------------------------------------------------------------- training and measuring


class Options(NamedTuple):
    data: Path
    out: Path
    results: Path
    minutes: float
    threads: int

    @property
    def speed(self) -> Path:
        return self.results / "speed.json"

    def folder(self, row: Row) -> Path:
        return self.out / f"{self.minutes:g}-minutes" / row.name

    def result(self, row: Row) -> Path:
        return self.results / f"{self.minutes:g}-minutes" / f"{row.name}.json"


def train(words: Sequence[str], options: Options, steps: int, folder: Path) -> None:
    shared = ["--tokenizer", "8k", "--held-out", "0.01", "--length", "64", "--threads", str(options.threads)]
    given = {"--model": "mini", "--optimizer": "adam", **dict(zip(words[::2], words[1::2], strict=True))}
    shared = [word for pair in zip(shared[::2], shared[1::2], strict=True) if pair[0] not in given for word in pair]
    run(VARIANTS, "train", *(word for pair in given.items() for word in pair), *shared, *corpora(options.data),
        "--steps", steps, "--eval-every", 1000, "--save-every", 1000, "--out", folder, "--quiet",
        forgive=lambda: diverged(folder))  # fmt: skip


def steps_of(row: Row, options: Options) -> int:
    seconds = sum(share * seconds_per_step(options.speed, cost) for share, cost in row.costs())
    return round(60 * options.minutes / seconds)


def measure(row: Row, options: Options) -> None:
    """Train a row, unless that was done, and write its score."""
    folder, path = options.folder(row), options.result(row)
    if path.is_file():
        return
    if not (folder / "config.json").is_file():
        train(row.words, options, steps_of(row, options), folder)
    elif not (folder / "model").is_dir():
        words = row.words[row.words.index("--order") :][:2] if "--order" in row.words else ()  # a run does not keep it
        run(VARIANTS, "train", "--out", folder, "--resume", "--quiet", *words, forgive=lambda: diverged(folder))
    steps = json.loads((folder / "config.json").read_text())["training"]["steps"]
    found: dict[str, Any] = {"loss": None, "steps": steps, "words": list(row.words)}
    if not diverged(folder):
        words = ("eval", folder, *corpora(options.data), "--held-out", 0.01, "--length", 64, "--threads", 1, "--json")
        texts = json.loads(run(VARIANTS, *words, capture=True))["results"]
        words = ("eval", folder, "--pairs", options.data / "blimp", "--max-pairs", PAIRS, "--threads", 1, "--json")
        pairs = json.loads(run(VARIANTS, *words, capture=True))["minimal_pairs"][0]
        found |= {"loss": statistics.mean(text["loss"] for text in texts), "pairs": 100 * pairs["accuracy"]}
    write(path, found)
    print(f"{row.name}: {shown(found['loss'])} after {steps:,} steps", flush=True)


def diverged(folder: Path) -> bool:
    """Whether a run that has ended has no model, because its loss was too high: that may show after the last record."""
    reasons = {one["reason"] for one in records(folder, "stop")}
    return bool(reasons & {"nonfinite", "diverged"}) or ("done" in reasons and not (folder / "model").is_dir())


def shown(loss: float | None) -> str:
    return "diverged" if loss is None else f"{loss:.3f}"


def table(options: Options) -> str:
    lines = []
    for question in QUESTIONS:
        measured = [(row, options.result(row)) for row in question.rows if options.result(row).is_file()]
        if measured:
            lines += [
                "",
                f"**{question.title}**",
                "",
                "| row | options | steps | held-out loss | pairs, % |",
                "|---|---|---:|---:|---:|",
            ]
        for row, path in measured:
            one = read(path)
            pairs = f"{one['pairs']:.1f}" if "pairs" in one else ""
            cells = (row.name, f"`{' '.join(row.words)}`", f"{one['steps']:,}", shown(one["loss"]), pairs)
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines[1:])


def missing(options: Options) -> str:
    names = [row.name for question in QUESTIONS for row in question.rows if not options.result(row).is_file()]
    return f"Not measured for {options.minutes:g} minutes: {', '.join(names) or 'nothing'}."


def figure(options: Options, path: Path) -> None:
    """The losses and the pairs of all rows, question by question, and lines at the row that the others differ from."""
    lines: list[tuple[str, dict[str, Any]]] = []  # from top to bottom: titles have no result
    for question in QUESTIONS:
        measured = [(row.name, read(options.result(row))) for row in question.rows]
        measured = [(name, one) for name, one in measured if one]
        lines += [(question.title, {}), *measured] if measured else []
    base = read(options.results / f"{options.minutes:g}-minutes" / f"{BASE}.json")
    drawn = new_figure(10, 0.19 * len(lines) + 1)
    panels = drawn.subplots(1, 2, sharey=True, width_ratios=(2, 1))
    for panel, key, title in zip(panels, ("loss", "pairs"), ("held-out loss", "minimal pairs, %"), strict=True):
        places = [(-place, one[key]) for place, (_, one) in enumerate(lines) if one.get(key) is not None]
        panel.plot([value for _, value in places], [place for place, _ in places], "o", markersize=4, color=colour(0))
        if base:
            panel.axvline(base[key], color=GREY, linewidth=0.8, linestyle="--")
        dress(panel, title, "")
    names = [name if one else name.upper() for name, one in lines]
    panels[0].set_yticks(range(0, -len(lines), -1), names, fontsize=7)
    panels[0].set_ylim(0.8 - len(lines), 0.8)
    save(drawn, path)


def chosen(questions: Sequence[str], names: Sequence[str]) -> Iterator[Row]:
    for question in QUESTIONS:
        for row in question.rows:
            if (not questions and not names) or question.title in questions or row.name in names:
                yield row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, help="the folder with pretrain")
    parser.add_argument("--out", type=Path, default=Path("runs/recipes"), help="where runs are kept")
    parser.add_argument("--results", type=Path, default=RESULTS / "recipes", help="where results are kept")
    parser.add_argument("--questions", nargs="*", default=(), choices=[question.title for question in QUESTIONS])
    parser.add_argument("--rows", nargs="*", default=())
    parser.add_argument("--minutes", type=float, default=MINUTES, help="of each row, at the speed measured")
    parser.add_argument("--threads", type=int, default=1, help="of a row; this does not change what it learns")
    parser.add_argument("--jobs", type=int, default=2, help="rows that train side by side")
    parser.add_argument("--speed", action="store_true", help="measure the seconds per step, and stop")
    parser.add_argument("--list", action="store_true", help="print the rows, and stop")
    parser.add_argument("--table", action="store_true", help="print what has been measured, and stop")
    parser.add_argument("--figure", type=Path, help="with --table: draw this picture, too")
    given = parser.parse_args()
    unknown = set(given.rows) - {row.name for row in chosen((), ())}
    if unknown:
        raise SystemExit(f"there is no row {min(unknown)!r}; --list prints all")
    wanted = sorted(chosen(given.questions, given.rows), key=lambda row: [*given.rows, row.name].index(row.name))
    options = Options(given.data, given.out, given.results, given.minutes, 2 if given.speed else given.threads)
    if given.list:
        for row in wanted:
            print(f"{row.name:20} {' '.join(row.words)}")
        return
    if given.table:
        print(f"{table(options)}\n\n{missing(options)}")
        if given.figure is not None:
            figure(options, given.figure)
        return
    if given.data is None:
        raise SystemExit("give --data, the folder with pretrain/wiki.txt.xz and pretrain/books.txt.xz")
    if given.speed:
        kinds = {cost: cost.split() for row in wanted for _, cost in row.costs()}
        trials = {name: partial(train, words, options) for name, words in sorted(kinds.items())}
        return measure_speed(options.speed, trials, given.out / "speed")
    with ThreadPoolExecutor(given.jobs) as pool:
        try:
            for done in [pool.submit(measure, row, options) for row in wanted]:
                done.result()
        except BaseException:
            pool.shutdown(cancel_futures=True)  # the rows that have not begun
            raise
    print(table(options))


if __name__ == "__main__":
    main()
