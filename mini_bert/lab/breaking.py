"""Break it: a healthy model and one with a mistake, trained side by side for at most a minute.

`faults` lists the mistakes (faults.py); `start` trains both, each in a process of its own (breaking_process.py), in
./runs/break; `status` gives their losses, what happened, the doctor's verdict, a gradient check and the explanation.
"""

from __future__ import annotations

import atexit
import json
import shutil
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from mini_bert.common.json_values import read_json
from mini_bert.common.processes import APART
from mini_bert.lab import toy_text, training
from mini_bert.lab.bench import Bench, rounded
from mini_bert.lab.breaking_process import CHECK, CONFIG, SETTINGS
from mini_bert.lab.faults import FAULTS
from mini_bert.lab.fields import BadRequest, Fields
from mini_bert.training.history import METRICS, read_run

FOLDER = "break"
MOST_SECONDS = 60
SIDES = ("healthy", "broken")
PROCESS = ("-m", "mini_bert.lab.breaking_process")
GUESSES = {
    "same": "It learns just as well",
    "worse": "It learns, but slower or worse",
    "nothing": "It learns nothing from context",
    "explodes": "The loss rises, or becomes NaN",
}
ALIKE, NEAR = 0.15, 0.1  # differences of losses that do not count: from the healthy one, from one without context


class Pair:
    """The two processes."""

    def __init__(self) -> None:
        self.processes: list[subprocess.Popen[bytes]] = []
        self.fault: str | None = None

    @property
    def running(self) -> bool:
        return any(process.poll() is None for process in self.processes)

    def start(self, fault: str, seconds: int) -> None:
        home = training.HOME / FOLDER
        if home.is_symlink():
            raise BadRequest(
                f"{home} is a link to another folder; the lab writes only in {training.HOME}, so remove it"
            )
        shutil.rmtree(home, ignore_errors=True)
        self.processes, self.fault = [], fault
        for side in SIDES:
            (home / side).mkdir(parents=True)
            words = json.dumps({
                "pair": fault, "broken": side == "broken", "out": str(home / side), "seconds": seconds,
            })  # fmt: skip
            command = [sys.executable, *PROCESS, words]
            quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
            self.processes.append(subprocess.Popen(command, stdin=subprocess.PIPE, **quiet, **APART))

    def stop(self) -> None:
        for process in self.processes:
            if process.stdin is not None:
                with suppress(OSError):
                    process.stdin.close()

    def close(self) -> None:
        self.stop()
        for process in self.processes:
            try:
                process.wait(training.GRACE)
            except subprocess.TimeoutExpired:
                process.kill()


TRAINER = Pair()
training.OTHERS.append(TRAINER)
atexit.register(TRAINER.close)


def faults(bench: Bench, request: Mapping[str, Any]) -> dict[str, Any]:
    """What can be broken, and what one can predict. The explanations come after the run."""
    Fields(request).end()
    return {
        "faults": [
            {"name": name, "title": fault.title, "right": fault.right, "wrong": fault.wrong, "setting": fault.setting}
            for name, fault in FAULTS.items()
        ],
        "guesses": [[name, text] for name, text in GUESSES.items()],
        "steps": SETTINGS.steps,
        "example": " ".join(toy_text.sentence(np.random.default_rng(4))),
        "model": f"{CONFIG.depth} blocks of width {CONFIG.width} with {CONFIG.heads} heads of {CONFIG.head_size}",
    }


def start(bench: Bench, request: Mapping[str, Any]) -> dict[str, Any]:
    """Train both.        fault, seconds (at most 60)"""
    fields = Fields(request)
    fault = fields.choice("fault", list(FAULTS))
    seconds = fields.integer("seconds", 5, MOST_SECONDS, MOST_SECONDS)
    fields.end()
    with training.alone():
        TRAINER.start(fault, seconds)
    return {"fault": fault}


def stop(bench: Bench, request: Mapping[str, Any]) -> dict[str, Any]:
    """End both now."""
    Fields(request).end()
    TRAINER.stop()
    return {"fault": TRAINER.fault}


def status(bench: Bench, request: Mapping[str, Any]) -> dict[str, Any]:
    """How far both are; at the end, what happened and why."""
    Fields(request).end()
    fault = TRAINER.fault
    if fault is None:
        return {"fault": None, "running": False}
    running = TRAINER.running
    home = training.HOME / FOLDER
    curves = {side: losses(home / side) for side in SIDES}
    answer = {
        "fault": fault,
        "running": running,
        "curves": curves,
        "steps": SETTINGS.steps,
        "baseline": rounded(toy_text.loss_without_context()),
        "best": rounded(toy_text.best_loss()),
    }
    if running or not all(curves.values()):
        return answer
    return answer | {
        "outcome": outcome(curves["healthy"], curves["broken"], ended(home / "broken")),
        "doctor": {side: training.verdict(home / side) for side in SIDES},
        "errors": {side: checked(home / side) for side in SIDES},
        "why": FAULTS[fault].why,
    }


def losses(folder: Path) -> list[list[float]]:
    """[[step, loss], …] of one side so far"""
    if not (folder / METRICS).is_file():
        return []
    return training.series(read_run(folder), "train", "loss")


def ended(folder: Path) -> str:
    return str(read_run(folder).last("stop").get("reason", ""))


def checked(folder: Path) -> float | None:
    """The largest relative error of its gradients"""
    try:
        return rounded(read_json(folder / CHECK)["error"], 3)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def outcome(healthy: list[list[float]], broken: list[list[float]], reason: str = "done") -> str:
    """Which of GUESSES has come true, from the last losses of both.

    >>> outcome([[10, 4.0], [400, 1.0]], [[10, 4.0], [400, 1.5]])
    'worse'
    """
    last, best = mean_of_last(broken), mean_of_last(healthy)
    if reason in ("nonfinite", "diverged") or last > broken[0][1] + NEAR:
        return "explodes"
    if last < best + ALIKE:
        return "same"
    return "nothing" if last > toy_text.loss_without_context() - NEAR else "worse"


def mean_of_last(points: list[list[float]]) -> float:
    values = [value for _, value in points[-3:]]
    return sum(values) / len(values)


ACTIONS = {"faults": faults, "start": start, "stop": stop, "status": status}
