"""One run of a sweep: `mini-bert train` in a process of its own, until the run can be judged.

The process is an ordinary one: it trains in a run folder, and what it has reached is read from metrics.jsonl there.
When it has reached a rung, its standard input is closed, which means the same as Ctrl-C: it finishes its step, saves a
checkpoint and ends. `mini-bert train --resume` continues it in the next rung, with the one schedule it started with.
The same happens if this process is killed. A process of its own gives its memory back, and takes no other down with it.
"""

from __future__ import annotations

import math
import os
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from mini_bert.common.invocation import option_words
from mini_bert.files.model_folder import MODEL
from mini_bert.training.history import METRICS, History, finite, read_run
from mini_bert.training.run_folder import CONFIG
from mini_bert.training.run_lock import RunInUse, RunLock

POLL = 0.2  # seconds between two looks at a run
PATIENCE = 120.0  # seconds in which a run of a killed sweep must have saved its checkpoint
Process = subprocess.Popen[bytes]
Start = Callable[[Sequence[str], Path], Process]  # words after `mini-bert train`, and the file for its messages


class Point(NamedTuple):
    """An evaluation on held-out text, or a point between two."""

    step: int
    seconds: float  # of training, over all sessions
    tokens: int
    loss: float


class Lost(NamedTuple):
    """A run that cannot be judged."""

    why: str  # "diverged", which would happen again, or "failed"
    text: str  # for the table
    rung: int = 0  # in which it happened


class RunReader:
    """Reads the records of a run, again only if they have changed."""

    def __init__(self, path: Path):
        self.path, self.stamp, self.history = path, (0, 0), History(path, [])

    def read(self) -> History:
        try:
            file = (self.path / METRICS).stat()
        except FileNotFoundError:
            return History(self.path, [])
        if (stamp := (file.st_mtime_ns, file.st_size)) != self.stamp:
            self.history, self.stamp = read_run(self.path), stamp
        return self.history


def curve(history: History) -> list[Point]:
    """The evaluations of a run. Their time and tokens lie between those of the records of training around them."""
    known = [(0, 0.0, 0.0)]
    for record in history.of("train"):
        seconds, tokens = finite(record.get("seconds")), finite(record.get("tokens"))
        if seconds is not None and tokens is not None:
            known.append((record["step"], seconds, tokens))
    steps, times, counts = (list(column) for column in zip(*known, strict=True))
    points = []
    for record in history.of("eval"):
        step, loss = record["step"], finite(record.get("loss"))
        if step <= steps[-1]:  # the time of a later one is known with the next record of training
            seconds, tokens = (float(np.interp(step, steps, column)) for column in (times, counts))
            points.append(Point(step, seconds, round(tokens), math.inf if loss is None else loss))
    return points


def point_at(points: Sequence[Point], unit: str, where: float) -> Point | None:
    """The state of a run after so many steps or minutes; None if it has not been evaluated there yet.

    Steps: the evaluation at that step. Minutes: between the evaluations before and after that time, in a straight line.
    """
    place = (lambda point: point.step) if unit == "steps" else (lambda point: point.seconds / 60)
    after = next((index for index, point in enumerate(points) if place(point) >= where), None)
    if after is None:
        return None
    if unit == "steps" or after == 0 or not math.isfinite(points[after].loss):
        return points[after]
    a, b = points[after - 1], points[after]
    share = (60 * where - a.seconds) / (b.seconds - a.seconds)
    step, seconds, tokens, loss = (x + share * (y - x) for x, y in zip(a, b, strict=True))
    return Point(round(step), seconds, round(tokens), loss)


def judged(history: History, unit: str, where: float, last: bool) -> Point | Lost | None:
    """What a run has reached at a rung; None if it has to be trained further. last: at its end."""
    points, ended = curve(history), history.last("stop")
    if history.last("start").get("validation_tokens") == 0:
        return Lost(
            "failed",
            "failed: the text is too short to hold any of it out, or a single document "
            "(in plain text, empty lines separate them); give more, or --held-out 0.2",
        )
    if not last:
        point = point_at(points, unit, where)
    else:
        point = points[-1] if points and ended.get("reason") == "done" else None
    if point is not None and math.isfinite(point.loss):
        return point
    if point is not None or ended.get("reason") in ("nonfinite", "diverged"):
        return Lost("diverged", f"diverged at step {point.step if point else ended['step']:,}")
    return None


def advance(
    path: Path,
    unit: str,
    where: float,
    last: bool,
    start: Callable[[], Process],
    stop: threading.Event,
    watch: Callable[[History], None] = lambda history: None,
    said: Callable[[], str] = lambda: "",
) -> Point | Lost | None:
    """Train the run in `path` until it can be judged at a rung. None: `stop` was set before that.

    start   starts the process that trains
    watch   is called now and then with the records
    said    returns the last line that the process printed
    """
    wait_until_free(path)
    reader = RunReader(path)
    known = judged(reader.read(), unit, where, last)  # from before the sweep was stopped or killed
    if known is not None and not (last and isinstance(known, Point) and not (path / MODEL).is_dir()):
        return known
    process = start()
    try:
        while is_running(process) and not stop.is_set():
            history = reader.read()
            watch(history)
            reached = judged(history, unit, where, last)
            if reached is not None and (not last or (isinstance(reached, Lost) and reached.why == "failed")):
                break  # otherwise, a run ends by itself in its last rung
        close(process)
        process.wait()
    finally:
        if process.poll() is None:  # a second Ctrl-C
            process.kill()
            process.wait()
        close(process)
    reached = judged(reader.read(), unit, where, last)
    return reached if reached is not None or stop.is_set() else lost(process.returncode, said())


def close(process: Process) -> None:
    """Close the standard input of a process, which tells it to save and to end."""
    if process.stdin is not None:
        with suppress(OSError):  # it has ended already
            process.stdin.close()


def is_running(process: Process) -> bool:
    """Whether a process is still running, after waiting a moment."""
    try:
        process.wait(POLL)
    except subprocess.TimeoutExpired:
        return True
    return False


def lost(code: int, said: str) -> Lost:
    """Why a process ended before its run could be judged. said: its last words, which explain an exit code"""
    return Lost("failed", f"failed: killed by signal {-code}" if code < 0 else f"failed: {said or f'exit code {code}'}")


def wait_until_free(path: Path) -> None:
    """Wait while a process of a killed sweep saves its checkpoint. Raises RunInUse if it goes on."""
    until = time.monotonic() + PATIENCE
    while path.is_dir():
        try:
            with RunLock(path):
                return
        except RunInUse:
            if time.monotonic() > until:
                raise
            time.sleep(POLL)


def words_to_continue(path: Path, options: Mapping[str, Any]) -> list[str]:
    """What follows `mini-bert train`, to start the run in `path` or to resume it."""
    folder = ["--out", os.path.abspath(path), "--quiet"]
    return ["--resume", *folder] if (path / CONFIG).exists() else [*option_words(options), *folder]
