"""Reads the records of a training run: `metrics.jsonl`, one JSON object per line, each with a kind and a step.

    history = read_run("runs/first")
    steps, losses = history.series("train", "loss")

The run may still be going on, may have been killed in the middle of a line, and may have been resumed from a
checkpoint that is older than its last line. The history has only the records that led to the current weights.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path
from statistics import mean
from typing import Any

from mini_bert.common.folders import folders_inside
from mini_bert.common.invocation import command
from mini_bert.common.json_values import parse_json
from mini_bert.evaluation.unigram_baseline import uses_context, verdict
from mini_bert.objectives.base import Objective
from mini_bert.objectives.masked_words import MaskedWords
from mini_bert.objectives.registry import OBJECTIVES
from mini_bert.training.settings import MUON, TrainingConfig

METRICS = "metrics.jsonl"
Record = dict[str, Any]


class History:
    """The records of one run in the order of their steps, without those that a resumed run repeated."""

    def __init__(self, run: Path, records: list[Record]):
        self.run = run
        self.records = records

    def of(self, kind: str) -> list[Record]:
        return [record for record in self.records if record["kind"] == kind]

    def last(self, kind: str) -> Record:
        """The last record of a kind, or an empty one."""
        return next((record for record in reversed(self.records) if record["kind"] == kind), {})

    def series(self, kind: str, name: str) -> tuple[list[int], list[float]]:
        """Returns steps and values, leaving out values that are missing or not finite."""
        found = [record for record in self.of(kind) if finite(record.get(name)) is not None]
        return [record["step"] for record in found], [float(record[name]) for record in found]

    @property
    def best(self) -> Record:
        """The evaluation with the lowest loss, whose weights are saved; an empty record without evaluations."""
        evals = [record for record in self.of("eval") if finite(record.get("loss")) is not None]
        return min(evals, key=lambda record: record["loss"], default={})

    @property
    def steps(self) -> int:
        """The last step."""
        return max((record["step"] for record in self.records), default=0)

    @property
    def epochs(self) -> float:
        """How often the training text has been seen."""
        return finite(self.last("train").get("epoch")) or 0.0

    @property
    def unigram_loss(self) -> float | None:
        """The unigram baseline of the held-out loss (evaluation/unigram_baseline.py)."""
        return unigram_loss(self.last("start"))

    @property
    def uniform_loss(self) -> float | None:
        """The loss of a uniform guess, ln V; None: older versions did not record V."""
        vocab_size = finite(self.last("start").get("vocab_size"))
        return math.log(vocab_size) if vocab_size else None

    @property
    def predicted(self) -> float | None:
        """The share of the tokens that are predicted."""
        start = self.last("start")
        return finite(start.get("predicted", start.get("mask_prob")))

    @property
    def kind(self) -> type[Objective]:
        """The objective"""
        return kind_of(self.last("start"))

    @property
    def loss_name(self) -> str:
        """What "loss" means in its records: "loss", or "generator loss" if two models are trained"""
        return f"{self.kind.part_name()} loss".lstrip()

    @property
    def optimiser(self) -> str:
        return "Muon" if self.last("start").get("optimizer") == "muon" else "Adam"

    @property
    def averaged(self) -> bool:
        """Whether the held-out loss is that of averaged weights"""
        return self.last("start").get("average", "none") != "none"

    def uses_context(self, loss: float) -> bool:
        """Whether a loss shows that the model uses context; False if there is no baseline."""
        return self.unigram_loss is not None and uses_context(loss, self.unigram_loss, self.kind.visible)

    def verdict(self, loss: float) -> str:
        """What a loss shows about the model, or about the one of two models whose loss it is"""
        assert self.unigram_loss is not None
        owner = self.kind.part_name()
        return verdict(loss, self.unigram_loss, self.kind.visible, f"the {owner}" if owner else "it")

    @property
    def tensors(self) -> dict[str, Record]:
        """The last recorded norms and percentiles of every tensor."""
        tensors = self.last("tensors").get("tensors")
        return (
            {name: one for name, one in tensors.items() if isinstance(one, dict)} if isinstance(tensors, dict) else {}
        )

    def highest(self, rate: str) -> float:
        """The highest learning rate of this name, "lr" or "muon_lr"; 0 if there is none"""
        return max((value for kind in ("train", "nonfinite") for value in self.series(kind, rate)[1]), default=0.0)

    @property
    def peak_learning_rate(self) -> float:
        """That of Adam, or of Muon if it is higher"""
        return max(self.highest("lr"), self.highest("muon_lr"))

    @property
    def rate_option(self) -> str:
        """The option that sets it"""
        return "--muon-lr" if self.highest("muon_lr") > self.highest("lr") else "--learning-rate"

    @property
    def usual_rate(self) -> float:
        """The learning rate that suits a small BERT"""
        return TrainingConfig.learning_rate * (MUON if self.optimiser == "Muon" else 1)

    @property
    def end_of_warmup(self) -> int | None:
        """The step of the first record at the highest learning rate; None while it may still be rising."""
        steps, rates = self.series("train", "lr")
        if not rates or (rates[-1] == max(rates) and rates[-1] > rates[0] and rates.count(rates[-1]) == 1):
            return None if rates else 0
        return steps[rates.index(max(rates))]

    @property
    def ramps(self) -> list[str]:
        """What changed in the course of the run, by its name in "train" records"""
        return [name for name in ("batch_size", "length", "mask_prob") if self.series("train", name)[0]]

    def final(self, name: str) -> float | None:
        """The value of a ramp at its end; None: not recorded"""
        return self.predicted if name == "mask_prob" else finite(self.last("start").get(name))

    @property
    def changing_task(self) -> list[str]:
        """The ramps that make training losses easier or harder to reach, so that they cannot be compared"""
        return [name for name in self.ramps if name != "batch_size"]

    def comparable(self) -> tuple[list[int], list[float]]:
        """Steps and losses that can be compared with each other: of training, or of held-out text if the mask rate or
        the length changes, since that is always measured at their final values."""
        return self.series("eval" if self.changing_task else "train", "loss")

    def _at_its_end(self, name: str, record: Record) -> bool:
        value, last = finite(record.get(name)), self.final(name)
        return value is None or last is None or math.isclose(value, last, rel_tol=1e-3)

    def gaps(self) -> Iterator[float]:
        """For each evaluation: held-out loss minus the training loss at that time, if both are measured alike."""
        records = [record for record in self.of("train") if finite(record.get("loss")) is not None]
        for step, held in zip(*self.series("eval", "loss"), strict=True):
            before = [record for record in records if record["step"] <= step][-3:]
            if before and all(self._at_its_end(name, record) for record in before for name in self.changing_task):
                yield held - mean(record["loss"] for record in before)


def finite(value: Any) -> float | None:
    """The value as a float if it is a finite number, else None. (Metrics have null instead of NaN and infinity.)

    >>> finite(2), finite(float("nan")), finite(None), finite("2")
    (2.0, None, None, None)
    """
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        return float(value)
    return None


def unigram_loss(start: Record) -> float | None:
    """The unigram baseline in a "start" record; older versions recorded the unigram entropy of the held-out text.

    >>> unigram_loss({"kind": "start", "unigram_loss": 6.6}), unigram_loss({"kind": "start", "unigram_entropy": 6.5})
    (6.6, 6.5)
    """
    return finite(start.get("unigram_loss", start.get("unigram_entropy")))


def kind_of(start: Record) -> type[Objective]:
    """The objective in a "start" record. Older runs do not record it; another program may have one of its own."""
    return OBJECTIVES.get(start.get("objective", MaskedWords.name), Objective)


def further_parts(record: Record) -> list[str]:
    """The names of the other parts of the loss in a "train" or "eval" record.

    >>> further_parts({"kind": "eval", "loss": 6.1, "next_sentence_loss": 0.6, "next_sentence_accuracy": 0.7})
    ['next_sentence']
    """
    return [name.removesuffix("_loss") for name in record if name.endswith("_loss")]


def read_run(run: str | os.PathLike[str]) -> History:
    """The history of a run folder."""
    run = Path(run)
    if not (run / METRICS).is_file():
        what = f"has no {METRICS}" if run.is_dir() else "is not a folder"
        remedy = f"expected a run folder, which `{command('train', '--out', run)}` creates"
        raise ValueError(f"{run} {what}; {folders_inside(run, METRICS) or remedy}")
    records: list[Record] = []
    for line in (run / METRICS).read_text(encoding="utf-8", errors="replace").splitlines():
        record = parse(line)
        if record is None:
            continue
        if record["kind"] == "start":  # a new run in an old folder
            records = []
        elif record["kind"] == "resume":
            records = until(records, record["step"])
        records.append(record)
    return History(run, records)


def until(records: list[Record], step: int) -> list[Record]:
    """The records that remain when a run is resumed from this step: later ones are repeated, and it did not stop."""
    return [record for record in records if record["step"] <= step and record["kind"] != "stop"]


def parse(line: str) -> Record | None:
    """The record in a line, or None. If a kill cut the line short, the record that was appended to it."""
    for text in (line, line[max(line.rfind('{"kind"'), 0) :]):
        try:
            record = parse_json(text, "the record")
        except ValueError:
            continue
        if isinstance(record, dict) and isinstance(record.get("kind"), str) and isinstance(record.get("step"), int):
            return record
    return None
