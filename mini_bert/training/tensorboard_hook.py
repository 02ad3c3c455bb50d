"""A hook for training/loop.py that writes TensorBoard event files into RUN/tensorboard.

    record = tensorboard(out)
    record({"kind": "train", "step": 50, "loss": 7.31, ...})  # every record of metrics.jsonl

    tensorboard --logdir RUN             then open http://localhost:6006

It needs the package tensorboard (the extra `tensorboard`), but neither TensorFlow nor PyTorch. It writes every number
of "train" and "eval" records, the norms of each tensor, and histograms of gradients and updates, made from percentiles.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any

from mini_bert.common.extras import extra
from mini_bert.training.history import Record, finite, unigram_loss

NORMS = ("weight", "gradient", "update", "ratio")
SPREADS = ("gradient_percentiles", "update_percentiles")
SHARES = (1, 24, 25, 25, 25)  # of 100 numbers, up to percentiles 1, 25, 50, 75 and 99 (which includes the maximum)
FLUSH = 30  # seconds between writes to disk


def tensorboard(out: str | os.PathLike[str]) -> Callable[[Record], None]:
    """Returns a function to call with every record of a run; the record "stop" closes the file."""
    writing = extra(
        "tensorboard.summary.writer.event_file_writer",
        "event files are written by TensorBoard (the extra `tensorboard`), which is not installed",
    )
    events = import_module("tensorboard.compat.proto.event_pb2")
    summaries = import_module("tensorboard.compat.proto.summary_pb2")
    writer = writing.EventFileWriter(str(Path(out) / "tensorboard"), flush_secs=FLUSH)

    def hook(record: Record) -> None:
        kind, step = record["kind"], record["step"]
        if kind == "resume":  # hide later steps that were written before the resume
            start = events.SessionLog(status=events.SessionLog.START)
            writer.add_event(events.Event(wall_time=time.time(), step=step + 1, session_log=start))
        values = [summaries.Summary.Value(tag=tag, simple_value=value) for tag, value in scalars(record)]
        for tag, percentiles in spreads(record):
            values.append(summaries.Summary.Value(tag=tag, histo=summaries.HistogramProto(**histogram(percentiles))))
        if values:
            summary = summaries.Summary(value=values)
            writer.add_event(events.Event(wall_time=time.time(), step=step, summary=summary))
        if kind in ("eval", "checkpoint"):
            writer.flush()
        elif kind == "stop":
            writer.close()

    return hook


def scalars(record: Record) -> Iterator[tuple[str, float]]:
    """The numbers of a record with their TensorBoard tags.

    >>> list(scalars({"kind": "eval", "step": 500, "loss": 6.1, "top1": 0.12}))
    [('held-out/loss', 6.1), ('held-out/top1', 0.12)]
    """
    if record["kind"] == "start" and (baseline := unigram_loss(record)) is not None:
        yield "train/unigram_loss", baseline
    elif record["kind"] in ("train", "eval"):
        group = {"train": "train", "eval": "held-out"}[record["kind"]]
        for name, value in record.items():
            number = finite(value)
            if number is not None and name != "step":
                yield f"{group}/{name}", number
    elif record["kind"] == "tensors":
        for tensor, numbers in record["tensors"].items():
            for name in NORMS:
                number = finite(numbers.get(name))
                if number is not None:
                    yield f"{name}/{tensor}", number


def spreads(record: Record) -> Iterator[tuple[str, list[float]]]:
    """The percentiles of a "tensors" record, where all five are finite."""
    for tensor, numbers in record.get("tensors", {}).items() if record["kind"] == "tensors" else ():
        for name in SPREADS:
            found = [number for number in map(finite, numbers.get(name) or ()) if number is not None]
            if len(found) == len(SHARES):
                yield f"{name.partition('_')[0]}_spread/{tensor}", found


def histogram(percentiles: Sequence[float]) -> dict[str, Any]:
    """The fields of TensorBoard's histogram of 100 numbers: how many lie in each interval between percentiles."""
    middles = [percentiles[0], *((a + b) / 2 for a, b in pairwise(percentiles))]
    return {
        "min": percentiles[0],
        "max": percentiles[-1],
        "num": sum(SHARES),
        "sum": sum(share * middle for share, middle in zip(SHARES, middles, strict=True)),
        "sum_squares": sum(share * middle**2 for share, middle in zip(SHARES, middles, strict=True)),
        "bucket_limit": list(percentiles),
        "bucket": list(SHARES),
    }
