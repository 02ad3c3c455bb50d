"""The peak memory of a training run in its own process (Linux)."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent


def peak_of_training(*options: str, steps: int = 4) -> float:
    """The highest RssAnon, in bytes, while `mini-bert train` takes a few steps and saves its model."""
    with tempfile.TemporaryDirectory() as folder:
        words = [
            "--corpus",
            "builtin",
            "--steps",
            str(steps),
            "--out",
            str(Path(folder) / "run"),
            "--quiet",
            "--held-out",
            "0",
            *options,
        ]
        environment = os.environ | {"PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-m", "mini_bert", "train", *words]
        most = 0
        with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, env=environment) as process:
            while process.poll() is None:
                most = max(most, _anonymous(process.pid))
                time.sleep(0.01)
            said = process.stderr.read().decode() if process.stderr else ""
        if process.returncode:
            raise SystemExit(f"training with {' '.join(options)} failed with {process.returncode}: {said}")
    return most


def _anonymous(process: int) -> int:
    try:
        status = Path(f"/proc/{process}/status").read_text(encoding="ascii")
    except OSError:  # the process has just ended
        return 0
    return next((1024 * int(line.split()[1]) for line in status.splitlines() if line.startswith("RssAnon")), 0)
