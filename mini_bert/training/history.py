"""Reading what a training run wrote: `metrics.jsonl`, one JSON object a line, each with a kind and a step.

    history = read_run("runs/first")
    steps, losses = history.series("train", "loss")

A run may be going on while it is read, may have been killed in the middle of a line, and may have been resumed from a
checkpoint that lies before its last line. What is given back is the one story that led to the present weights.
"""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

from mini_bert.common.invocation import command

METRICS = "metrics.jsonl"
Record = dict[str, Any]


class History:
    """The records of one run in the order of their steps; without those that a resumed run did again."""

    def __init__(self, run: Path, records: list[Record]):
        self.run = run
        self.records = records

    def of(self, kind: str) -> list[Record]:
        return [record for record in self.records if record["kind"] == kind]

    def last(self, kind: str) -> Record:
        """The last record of a kind, or an empty one."""
        return next((record for record in reversed(self.records) if record["kind"] == kind), {})

    def series(self, kind: str, name: str) -> tuple[list[int], list[float]]:
        """-> steps and values; where there is no finite value there is no point"""
        found = [record for record in self.of(kind) if finite(record.get(name)) is not None]
        return [record["step"] for record in found], [float(record[name]) for record in found]

    @property
    def steps(self) -> int:
        """How far the run came."""
        return max((record["step"] for record in self.records), default=0)

    @property
    def unigram_entropy(self) -> float | None:
        """What a model pays for each word if it knows how frequent words are, and nothing else."""
        return finite(self.last("start").get("unigram_entropy"))


def finite(value: Any) -> float | None:
    """A number that can be drawn and compared, or None: metrics hold null where a run had NaN or infinity.

    >>> finite(2), finite(float("nan")), finite(None), finite("2")
    (2.0, None, None, None)
    """
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        return float(value)
    return None


def read_run(run: str | os.PathLike[str]) -> History:
    """The history of a run folder; an error names what is missing."""
    run = Path(run)
    if not (run / METRICS).is_file():
        what = f"holds no {METRICS}" if run.is_dir() else "is not a folder"
        raise ValueError(f"{run} {what}; expected a run folder, as `{command('train', '--out', run)}` writes it")
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
    """What counts of a run that goes on from that step: what came after it is done again, and its end was none."""
    return [record for record in records if record["step"] <= step and record["kind"] != "stop"]


def parse(line: str) -> Record | None:
    """One line -> its record; of a line that a kill cut short, the record that was written behind it, if any."""
    for text in (line, line[max(line.rfind('{"kind"'), 0) :]):
        try:
            record = json.loads(text)
        except ValueError:
            continue
        if isinstance(record, dict) and isinstance(record.get("kind"), str) and isinstance(record.get("step"), int):
            return record
    return None
