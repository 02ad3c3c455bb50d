"""Live training: a run in ./runs that the page starts, watches, pauses and continues.

The run is an ordinary one, in a process of its own (training_process.py): `mini-bert doctor`, `plot` and
`train --resume` work on its folder. There is at most one at a time; it ends with the lab, at the latest after its
minutes, and always with a checkpoint. What the page shows is read from the folder, so a reload, a second tab or a new
start of the lab loses nothing. Only runs in ./runs are read, and only text files in the working folder.
"""

from __future__ import annotations

import atexit
import json
import re
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

from mini_bert.common.invocation import broken
from mini_bert.common.processes import APART
from mini_bert.lab import snapshots
from mini_bert.lab.bench import Bench, rounded
from mini_bert.lab.fields import BadRequest, Fields
from mini_bert.lab.training_process import MOST_SECONDS
from mini_bert.training import checkpoint
from mini_bert.training.defaults import new_folder
from mini_bert.training.doctor import diagnose
from mini_bert.training.history import METRICS, History, finite, read_run

HOME = Path("runs")
PROCESS = ("-m", "mini_bert.lab.training_process")
NAME = re.compile(r"[\w][\w .-]{0,79}")
MOST_BYTES = 100 << 20  # of a text file
KINDS = (".txt", ".md", ".jsonl")
MOST_RUNS = 30  # in the list
MOST_RECORDS = 64 << 20  # bytes of metrics.jsonl
POINTS = 300  # of a curve
GRACE = 30.0  # seconds in which a run may save its last checkpoint
LOOK = 0.7  # seconds between looks for new checkpoints


class Trainer:
    """The process of the current run, and a thread that makes a snapshot of each checkpoint."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[bytes] | None = None
        self.run: Path | None = None
        self.errors = ""

    @property
    def failure(self) -> str:
        """What the last run said, if it ended with an error."""
        code = None if self.process is None else self.process.poll()
        return "" if code in (None, 0, 130) else self.errors.strip()[-600:]

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def start(self, run: Path, options: Mapping[str, Any]) -> None:
        words = [sys.executable, *PROCESS, json.dumps({"out": str(run), **options})]
        self.process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, **APART
        )
        self.run, self.errors = run, ""
        threading.Thread(target=self._watch, args=(self.process, run), daemon=True).start()

    def _watch(self, process: subprocess.Popen[bytes], run: Path) -> None:
        listener = threading.Thread(target=self._listen, args=(process,), daemon=True)
        listener.start()
        ended = False
        while not ended:
            try:
                process.wait(LOOK)
                ended = True
            except subprocess.TimeoutExpired:
                pass
            for path in reversed(checkpoint.folders(run)):
                try:
                    snapshots.snapshot(run, int(path.name.removeprefix("step-")))
                except (OSError, ValueError, KeyError):
                    continue  # it was deleted in the meantime
        listener.join(1)
        with suppress(OSError):  # a run that ended before it began leaves an empty folder
            run.rmdir()

    def _listen(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stderr is not None
        with process.stderr as lines:
            for line in lines:
                if process is self.process:
                    self.errors = (self.errors + line.decode(errors="replace"))[-4000:]

    def pause(self) -> None:
        """Stop with a checkpoint; returns at once."""
        process = self.process
        if process is not None and process.stdin is not None:
            with suppress(OSError):  # it has ended already
                process.stdin.close()

    def close(self) -> None:
        """Stop and wait until the last checkpoint is written."""
        self.pause()
        if self.process is not None:
            try:
                self.process.wait(GRACE)
            except subprocess.TimeoutExpired:
                self.process.kill()


TRAINER = Trainer()
OTHERS: list[Any] = []  # what else trains in the lab
_starting = threading.Lock()
atexit.register(TRAINER.close)


@contextmanager
def alone() -> Iterator[None]:
    """Within it, nothing else starts to train, in this room or in another; an error if something does already."""
    with _starting:
        if any(one.running for one in (TRAINER, *OTHERS)):
            raise BadRequest("a run is going on; pause or stop it, or wait until it ends: one run at a time")
        yield


# ---------------------------------------------------------------------- actions


def start(bench: Bench, request: Mapping[str, Any]) -> dict[str, Any]:
    """Start a run.        corpus ("builtin" or "file"), path (of a file), seconds, save_every (steps)"""
    fields = Fields(request)
    corpus = fields.choice("corpus", ("builtin", "file"), "builtin")
    source = "builtin"
    if corpus == "file":
        source = str(text_file(fields.text("path")))
    elif "path" in request:
        fields.text("path")  # the page may keep it
    seconds = fields.integer("seconds", 5, MOST_SECONDS, 120)
    save_every = fields.integer("save_every", 5, 1000, 100)
    fields.end()
    with alone():
        run = new_folder(HOME)
        TRAINER.start(run, {"corpus": [source], "minutes": seconds / 60, "save_every": save_every})
    return {"run": run.name}


def text_file(name: str) -> Path:
    """A text file in the working folder, by its path from there."""
    home = Path.cwd().resolve()
    try:
        path = (home / name).resolve(strict=True)
    except (OSError, ValueError, RuntimeError):
        raise BadRequest(f"there is no file {name!r:.120} in the folder in which the lab was started") from None
    if not path.is_relative_to(home):
        raise BadRequest(f"{name!r:.120} is outside of the folder in which the lab was started; copy it there")
    if not path.is_file() or path.suffix.lower() not in KINDS:
        raise BadRequest(f"{name!r:.120} is not a text file; the lab reads {', '.join(KINDS)}")
    if path.stat().st_size > MOST_BYTES:
        raise BadRequest(f"{name!r:.120} has more than {MOST_BYTES >> 20} MB; train on it with the command `train`")
    return path


def pause(bench: Bench, request: Mapping[str, Any]) -> dict[str, Any]:
    """Stop the run with a checkpoint."""
    Fields(request).end()
    TRAINER.pause()
    return {"run": TRAINER.run.name if TRAINER.run else None}


def resume(bench: Bench, request: Mapping[str, Any]) -> dict[str, Any]:
    """Continue a run, for at most MOST_SECONDS.        run, seconds (more than it has; 0: until its own end)"""
    fields = Fields(request)
    run = run_folder(fields.text("run"))
    seconds = fields.integer("seconds", 0, MOST_SECONDS, 0)
    fields.end()
    if not checkpoint.folders(run):
        raise BadRequest(f"{run.name} has no checkpoint yet, so it cannot be resumed; start a new run")
    whole = {"minutes": (seconds + (curves(run)["seconds"] or 0)) / 60} if seconds else {}
    with alone():
        TRAINER.start(run, {"resume": True, **whole})
    return {"run": run.name}


def status(bench: Bench, request: Mapping[str, Any]) -> dict[str, Any]:
    """Everything about a run that the page draws.        run (default: the current one, or the newest)"""
    fields = Fields(request)
    wanted = fields.text("run") if request.get("run") else None
    fields.end()
    listed = runs()
    current = TRAINER.run.name if TRAINER.run else None
    running = TRAINER.running
    name = wanted or current or (listed[0] if listed else None)
    answer: dict[str, Any] = {
        "runs": listed,
        "running": current if running else None,
        "run": name,
        "error": TRAINER.failure,
    }
    if name is not None and name == current and not (HOME / name / METRICS).is_file():
        if running:
            return answer | {"preparing": True, "snapshots": []}
        name = answer["run"] = listed[0] if listed else None  # it ended before it began
    if name is None:
        return answer
    run = run_folder(name)
    made = [step for step in snapshots.steps(run) if (run / snapshots.FOLDER / f"step-{step:08d}.json").is_file()]
    found = [one for step in made if (one := snapshots.kept(run, step)) is not None]
    return answer | {
        "curves": curves(run),
        "snapshots": snapshots.steps(run) if not (running and name == current) else made,
        "specialised": snapshots.specialised(found),
        "threshold": snapshots.THRESHOLD,
        "doctor": [] if running and name == current else verdict(run),
    }


def snapshot(bench: Bench, request: Mapping[str, Any]) -> dict[str, Any]:
    """Guesses and attention at one step.        run, step"""
    fields = Fields(request)
    run = run_folder(fields.text("run"))
    step = fields.integer("step", 0, 99_999_999)
    fields.end()
    return snapshots.snapshot(run, step)


# ---------------------------------------------------------------------- reading runs


def runs() -> list[str]:
    """The runs in ./runs, the newest first."""
    try:
        found = [(changed, path.name) for path in HOME.iterdir() if (changed := last_change(path)) is not None]
    except OSError:
        return []
    return [name for _, name in sorted(found, reverse=True)[:MOST_RUNS]]


def run_folder(name: str) -> Path:
    """./runs/name, if that is a run."""
    if not NAME.fullmatch(name) or last_change(HOME / name) is None:
        raise BadRequest(f"there is no run {name!r:.80} in ./runs")
    return HOME / name


def last_change(run: Path) -> int | None:
    """When the records of a run were changed; None if it has none that the lab reads: here, and not endless."""
    metrics = run / METRICS
    if not NAME.fullmatch(run.name) or run.is_symlink() or not snapshots.inside(metrics, run):
        return None
    try:
        facts = metrics.stat()
    except OSError:
        return None
    return facts.st_mtime_ns if stat.S_ISREG(facts.st_mode) and facts.st_size <= MOST_RECORDS else None


def curves(run: Path) -> dict[str, Any]:
    path = run / METRICS
    facts = path.stat()
    return _curves(run, facts.st_mtime_ns, facts.st_size)


@lru_cache(8)
def _curves(run: Path, changed: int, size: int) -> dict[str, Any]:
    """What metrics.jsonl says, in a few hundred points."""
    history = read_run(run)
    last = history.last("train")
    tensors = thinned([one for one in history.of("tensors") if isinstance(one.get("tensors"), dict)], POINTS // 5)
    names = list(tensors[-1]["tensors"]) if tensors else []
    return {
        "step": history.steps,
        "seconds": finite(last.get("seconds")),
        "eta": finite(last.get("eta")),
        "stopped": history.last("stop").get("reason"),
        "unigram": history.unigram_loss,
        "loss": series(history, "train", "loss"),
        "held_out": series(history, "eval", "loss"),
        "lr": series(history, "train", "lr"),
        "norm": series(history, "train", "grad_norm"),
        "tensors": {
            "names": names,
            "steps": [record["step"] for record in tensors],
            "norms": [[gradient(record["tensors"].get(name)) for name in names] for record in tensors],
        },
    }


def series(history: History, kind: str, name: str) -> list[list[float]]:
    """[[step, value], …], at most POINTS of them"""
    points = list(zip(*history.series(kind, name), strict=True))
    return [[step, rounded(value)] for step, value in thinned(points, POINTS)]


def gradient(tensor: Any) -> float | None:
    """The norm in the record of a tensor, if there is one"""
    value = finite(tensor.get("gradient")) if isinstance(tensor, dict) else None
    return None if value is None else rounded(value)


def thinned(items: list[Any], most: int) -> list[Any]:
    """At most so many of these, evenly spaced, with the first and the last.

    >>> thinned(list(range(10)), 4)
    [0, 3, 6, 9]
    """
    if len(items) <= most:
        return items
    return [items[round(place * (len(items) - 1) / (most - 1))] for place in range(most)]


def verdict(run: Path) -> list[dict[str, str]]:
    """What the doctor says about a run."""
    facts = (run / METRICS).stat()
    return _verdict(run, facts.st_mtime_ns, facts.st_size)


@lru_cache(8)
def _verdict(run: Path, changed: int, size: int) -> list[dict[str, str]]:
    return [
        {
            "level": one.level,
            "title": one.title,
            "what": broken(one.what),
            "why": broken(one.why),
            "try": broken(one.try_),
        }
        for one in diagnose(run)
    ]


ACTIONS = {"start": start, "pause": pause, "resume": resume, "status": status, "snapshot": snapshot}
