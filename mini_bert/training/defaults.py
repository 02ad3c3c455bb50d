"""Defaults for the settings of a training run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mini_bert.data.sequences import fair_share
from mini_bert.data.shards import Shards
from mini_bert.models.config import MINI_BERT_CONFIG
from mini_bert.training.settings import TrainingConfig

MINUTES = 4.0  # if neither steps nor minutes are given
TOKENIZERS = {8192: "8k", 50000: "50k"}  # the bundled vocabulary for a model of that size
HELD_OUT = 50  # documents to hold out for validation, but at least 1 % and at most 20 % of all


def default_micro_batch(batch_size: int, threads: int) -> int:
    """The largest divisor of the batch size, up to 16 sequences, that gives every thread work."""
    most = max(1, min(TrainingConfig.micro_batch, batch_size // threads))
    return max(size for size in range(1, most + 1) if batch_size % size == 0)


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


def default_learning_rate(config: Any) -> float:
    """1e-3 up to Mini-BERT's width, and inversely proportional to the width beyond.

    Adam changes each weight by about the learning rate, whatever the gradient. An output is a sum over H weights, so it
    changes by up to H times that: wider models need smaller steps.
    """
    return TrainingConfig.learning_rate * min(1.0, MINI_BERT_CONFIG.hidden_size / config.width)


def default_warmup(steps: int | None, minutes: float | None) -> float:
    """400 steps or a minute, or a twentieth of the run if that is longer, but at most a quarter of it.

    A shorter warm-up reaches a high learning rate while the heads of the first block still attend to neighbours only
    because they started that way (docs/decisions/0003).
    """
    least = 400 / steps if steps else 1 / (minutes or MINUTES)
    return min(0.25, max(0.05, least))


def new_folder(home: Path = Path("runs")) -> Path:
    """The first of runs/run-1, runs/run-2, … that does not exist yet"""
    number = 1
    while (home / f"run-{number}").exists():
        number += 1
    return home / f"run-{number}"


def newest_folder(home: Path = Path("runs")) -> Path:
    found = sorted(home.glob("*/config.json"), key=lambda path: path.stat().st_mtime)
    if not found:
        raise FileNotFoundError(f"there is no run in {home.resolve()} to resume; name its folder with --out")
    return found[-1].parent
