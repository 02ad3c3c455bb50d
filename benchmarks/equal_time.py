"""What family.py and recipes.py share: runs on the same text that all get the same time, and where results are kept.

The budget is time on two cores, but a model should not learn less because something else ran beside it. So the seconds
per step are measured first (`--speed`): a few steps of every kind of run, in turn, round after round, while nothing
else runs. A run then trains for as many steps as fit into the budget at the median of its rounds, however long they
really take; two runs can train side by side on a core each, and an interrupted one continues with the same command.

Runs with their weights are kept where `--out` says. Results are small JSON files in benchmarks/results, beside the
seconds per step that they were made with. They are part of the repository: tables and figures are drawn from them, and
only what has no result yet is trained.
"""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from mini_bert.common.atomic import write_atomic

HERE = Path(__file__).parent
RESULTS = HERE / "results"
SPEED_STEPS = (20, 60)  # the seconds per step are the mean between these two, both of which a run records


def corpora(data: Path) -> list[str]:
    """The options of `train` and `eval` for Wikipedia and books."""
    paths = [data / "pretrain" / name for name in ("wiki.txt.xz", "books.txt.xz")]
    return [word for path in paths for word in ("--corpus", str(path))]


def run(*words: object, capture: bool = False, forgive: Callable[[], bool] = lambda: False) -> str:
    """A command, printed so that it can be repeated by hand. Returns what it printed if `capture`.

    forgive: whether to go on although it failed
    """
    print(" ".join(map(str, ("+ python", *words))) + "\n", end="", flush=True)  # in one piece: others print, too
    done = subprocess.run([sys.executable, *map(str, words)], stdout=subprocess.PIPE if capture else None, text=True)
    if done.returncode and not forgive():
        raise SystemExit("this command failed; repair what it says, and start the benchmark again to continue")
    return done.stdout or ""


def records(folder: Path, kind: str) -> list[dict[str, Any]]:
    """The records of a kind that a run has written."""
    path = folder / "metrics.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []  # it may have failed before
    return [record for record in map(json.loads, lines) if record["kind"] == kind]


def read(path: Path) -> dict[str, Any]:
    """A result, or {} where there is none yet."""
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def write(path: Path, found: Mapping[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, (json.dumps(found, indent=2) + "\n").encode())


def measure_speed(path: Path, kinds: Mapping[str, Callable[[int, Path], None]], scratch: Path, rounds: int = 3) -> None:
    """Add the seconds per step of each kind and round to speed.json. Kinds that it knows are not measured again.

    kinds: by name, what trains that many steps in that folder
    """
    known = read(path)
    found: dict[str, list[float]] = {name: [] for name in kinds if name not in known}
    for _ in range(rounds):
        for name in found:
            shutil.rmtree(scratch, ignore_errors=True)
            kinds[name](SPEED_STEPS[-1], scratch)
            seconds = {record["step"]: record["seconds"] for record in records(scratch, "train")}
            first, last = SPEED_STEPS
            found[name].append(round((seconds[last] - seconds[first]) / (last - first), 5))
    shutil.rmtree(scratch, ignore_errors=True)
    write(path, known | found)


def seconds_per_step(path: Path, name: str) -> float:
    known = read(path)
    if name not in known:
        raise SystemExit(f"{path} has no seconds per step of {name!r}; measure them with --speed on a quiet machine")
    return statistics.median(known[name])
