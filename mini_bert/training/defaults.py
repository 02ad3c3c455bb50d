"""Defaults for the settings of a training run."""

from __future__ import annotations

import math
from itertools import count
from pathlib import Path
from typing import Any

from mini_bert.common.progress import counted
from mini_bert.common.values import check_positive, check_share
from mini_bert.data.sequences import fair_share
from mini_bert.data.shards import Shards
from mini_bert.models.config import MINI_BERT_CONFIG
from mini_bert.training.parallel import default_threads
from mini_bert.training.settings import MUON, TrainingConfig

MINUTES = 4.0  # if neither steps nor minutes are given
LONG = 15.0  # minutes from which a Mini-BERT learns masked words with large batches and a rate that falls all the way
LARGE = 128  # sequences: such a batch
DECAY = 0.3  # of the weights in such a run: with less, Muon makes them too large for what comes after (docs/recipes.md)
CONTINUED = 0.1  # of the usual learning rate, if training continues from trained weights
HELD_OUT = 50  # documents to hold out for validation, but at least 1 % and at most 20 % of all


# settings that do nothing without another one: name -> that other one, and the value it must have (None: any)
NEEDS = {
    "decay_share": ("schedule", "wsd"), "muon_learning_rate": ("optimizer", "muon"), "momentum": ("optimizer", "muon"),
    "ema_decay": ("average", "ema"), "tail_share": ("average", "tail"), "batch_ramp": ("batch_start", None),
    "length_ramp": ("length_start", None), "mask_ramp": ("mask_start", None),
}  # fmt: skip


def settings_for(
    config: Any, micro_batch: int | None = None, continued: bool = False, masked: bool = True, **given: Any
) -> tuple[TrainingConfig, str]:
    """Fill in the settings that were not given. Returns them, and a note for the user or an empty string.

    micro_batch: the batch size of a data generator, if its batches are the micro-batches.
    continued: training continues from trained weights.
    masked: only some of the words are predicted. A batch then says little, so long runs have larger ones
    (docs/recipes.md).
    """
    given.setdefault("optimizer", default_optimizer(continued))
    long = masked and given["optimizer"] == "muon" and is_long(config, given.get("steps"), given.get("minutes"))
    given.setdefault("warmup", default_warmup(given.get("steps"), given.get("minutes")))
    check_share("warmup", given["warmup"], "a fraction of the run")
    has_time = given["warmup"] + TrainingConfig.decay_share <= 1
    fits = has_time and not long
    if given["optimizer"] == "muon" and (fits or "decay_share" in given):  # which TrainingConfig then checks
        given.setdefault("schedule", "wsd")
    for name, (other, value) in NEEDS.items():
        if given.get(name) is not None and (given.get(other) is None or value not in (None, given[other])):
            option, needed = (f"--{text.replace('_', '-')}" for text in (name, other))
            raise ValueError(
                f"{option} has no effect without {needed}{f' {value}' if value else ''}; leave it out, or add that"
            )
    if long:
        given.setdefault("weight_decay", DECAY)
    size = LARGE if long else TrainingConfig.batch_size
    size = given.setdefault("batch_size", size if micro_batch is None else max(micro_batch, size - size % micro_batch))
    check_positive("batch_size", size)
    if micro_batch is not None and size % micro_batch:
        raise ValueError(
            f"batch_size is {size}, which is not a multiple of the generator's {micro_batch}, the micro-batch; choose "
            f"a multiple such as batch_size={max(micro_batch, size - size % micro_batch)}, or a micro-batch that "
            f"divides {size}"
        )
    threads, start = given.get("threads") or min(default_threads(), size), given.get("batch_start")
    note = "" if micro_batch else note_on_uneven_batch(size, threads, start)
    micro = given["micro_batch"] = micro_batch or default_micro_batch(size, threads, start)
    check_positive("micro_batch", micro)
    given.setdefault("threads", max(1, min(threads, size // micro)))
    given.setdefault("learning_rate", default_learning_rate(config, continued, given["optimizer"], size))
    if threads > size // micro:
        note = (
            f"a batch has {counted(size // micro, 'micro-batch')} of {micro} sequences, so only {size // micro} of "
            f"{threads} threads have work; to use them all, choose a smaller --micro-batch"
        )
    return TrainingConfig(**given), note


def default_micro_batch(batch_size: int, threads: int, batch_start: int | None = None) -> int:
    """The largest divisor of the batch size, up to 16 sequences, that gives every thread work.

    batch_start: sequences per step at first; micro-batches are of one size in all batches
    """
    smallest = math.gcd(batch_size, batch_start or batch_size)
    return max(size for size in range(1, most_at_once(smallest, threads) + 1) if smallest % size == 0)


def most_at_once(batch_size: int, threads: int) -> int:
    """How many sequences a thread may process at once, so that every thread has work"""
    return max(1, min(TrainingConfig.micro_batch, batch_size // threads))


def note_on_uneven_batch(batch_size: int, threads: int, batch_start: int | None = None) -> str:
    """For the user, if only small micro-batches divide the batch, which makes a step slow; otherwise an empty string"""

    def splits_well(size: int) -> bool:
        return 3 * default_micro_batch(size, threads) > most_at_once(size, threads)

    if batch_start is not None or splits_well(batch_size):
        return ""
    return (
        f"a batch of {batch_size} only splits into micro-batches of {default_micro_batch(batch_size, threads)}, since "
        f"they are of one size; a batch size such as {next(filter(splits_well, count(batch_size)))} is faster"
    )


def default_share(shards: Shards, content: int) -> float:
    """The fraction of the documents to hold out; 0 if one side would have less than the `content` of a sequence."""
    return fair_share(shards, min(0.2, max(0.01, HELD_OUT / max(len(shards.hashes), 1))), content)


def default_corpus() -> list[str]:
    """Text in ./data if there is any, otherwise the built-in corpus"""
    from mini_bert.corpora.reading import Report, read

    folder = Path("data")
    if folder.is_dir():
        try:
            if next(iter(read(str(folder), report=Report())), None) is not None:
                return [str(folder)]
        except (ValueError, OSError):
            pass
    return ["builtin"]


def default_optimizer(continued: bool = False) -> str:
    """Muon for new models, which learn more with it in the same time (docs/recipes.md); Adam for trained weights, as
    published models were trained with it."""
    return "adam" if continued else "muon"


def is_long(config: Any, steps: int | None, minutes: float | None) -> bool:
    """Whether a run has time for enough large batches: larger models need longer for each."""
    mini = MINI_BERT_CONFIG
    cost = max(1.0, (config.width / mini.width) ** 2 * config.depth / mini.depth)
    return steps is None and minutes is not None and minutes >= LONG * cost


def default_learning_rate(
    config: Any, continued: bool = False, optimizer: str | None = None, batch_size: int = TrainingConfig.batch_size
) -> float:
    """1e-3 up to Mini-BERT's width, and inversely proportional to the width beyond; a tenth of it for trained weights.
    Twice that for Muon, three times with large batches.

    Adam changes each weight by about the learning rate, whatever the gradient. An output is a sum over H weights, so it
    changes by up to H times that: wider models need smaller steps. Weights that are good already should only be
    adjusted: steps as large as those of a new model would undo what they have learnt before the new text teaches more.
    """
    rate = TrainingConfig.learning_rate * min(1.0, MINI_BERT_CONFIG.hidden_size / config.width)
    if optimizer == "muon":
        rate *= MUON if batch_size < LARGE else 1.5 * MUON
    return rate * CONTINUED if continued else rate


def default_warmup(steps: int | None, minutes: float | None) -> float:
    """400 steps or a minute, or a twentieth of the run if that is longer, but at most a quarter of it.

    A shorter warm-up reaches a high learning rate while the heads of the first block still attend to neighbours only
    because they started that way (docs/decisions/0003).
    """
    least = 400 / steps if steps else 1 / (minutes or MINUTES)
    return min(0.25, max(0.05, least))


def new_folder(home: Path = Path("runs")) -> Path:
    """Create the first of runs/run-1, runs/run-2, … that does not exist yet. No other process gets the same one."""
    home.mkdir(parents=True, exist_ok=True)
    for number in count(1):
        try:
            (home / f"run-{number}").mkdir()
        except FileExistsError:
            continue
        break
    return home / f"run-{number}"


def newest_folder(home: Path = Path("runs")) -> Path:
    found = sorted(home.glob("*/config.json"), key=lambda path: path.stat().st_mtime)
    if not found:
        raise FileNotFoundError(f"there is no run in {home.resolve()} to resume; name its folder with --out")
    return found[-1].parent
