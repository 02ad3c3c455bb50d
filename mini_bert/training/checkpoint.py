"""Checkpoints: everything a run needs to continue as if it had never stopped.

    RUN/checkpoints/step-00000500/
        config.json, model.safetensors, tokenizer.json, vocab.txt      an ordinary model folder
        optimizer.safetensors                                          the optimiser's arrays; with averaging, also the
                                                                       weights that training goes on with
        state.json                                                     step, position in the data, checksums

**Atomic.** A checkpoint is written to a temporary folder, which is then renamed (common/atomic.py). If the process is
killed or the disk is full, earlier checkpoints stay as they are.

**Verified.** Disks fail, and people edit files. Reading compares every file with its checksum; a damaged checkpoint is
reported, and the previous one is used. A checkpoint that may be intact but cannot be read now (permissions, a disk that
does not answer, a newer version of this program) is neither skipped nor deleted: resuming stops with an error.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from mini_bert.common.atomic import UNFINISHED, recover_folder, replaced_folder
from mini_bert.common.json_values import read_json
from mini_bert.files.model_folder import write_tensors

FOLDER, STATE, OPTIMIZER = "checkpoints", "state.json", "optimizer.safetensors"
FORMAT = 1
NAME = re.compile(r"step-\d{8}")
logger = logging.getLogger(__name__)


class Checkpoint(NamedTuple):
    """A checkpoint that was read and verified."""

    path: Path
    state: dict[str, Any]


class CheckpointError(OSError):
    """A checkpoint could not be written."""


class Unreadable(OSError, ValueError):
    """A checkpoint that may be intact cannot be read."""


def save(
    run: Path,
    step: int,
    state: Mapping[str, Any],
    moments: Mapping[str, np.ndarray],
    write_model: Callable[[Path], None],
) -> Path:
    """Write the checkpoint of this step and return its folder. `write_model` writes the model's files to a folder."""
    home = run / FOLDER
    final = home / f"step-{step:08d}"
    try:
        with replaced_folder(final) as new:
            write_model(new)
            write_tensors(new / OPTIMIZER, moments)
            sums = {path.name: checksum(path) for path in sorted(new.iterdir())}
            content = {"format": FORMAT, "step": step, **state, "files": sums}
            content["checksum"] = _own_checksum(content)
            (new / STATE).write_text(json.dumps(content, indent=1), encoding="utf-8")
    except OSError as error:
        raise CheckpointError(cannot_write(run, f"the checkpoint of step {step:,} in {home}", error)) from error
    return final


def cannot_write(run: Path, what: str, error: OSError) -> str:
    """The error message if a run cannot write a file: which checkpoint is left, and what to do."""
    kept = folders(run)
    left = f"the last checkpoint, {kept[0].name}, is intact" if kept else "there is no checkpoint yet"
    return (
        f"{what} could not be written ({error.strerror or error}); {left}. Fix the problem (is the disk full?), "
        "then continue with --resume"
    )


def read_array(path: Path, name: str) -> np.ndarray:
    """Read one array of a safetensors file, without the others."""
    from safetensors import safe_open

    with safe_open(path, framework="numpy") as file:
        return file.get_tensor(name)


def folders(run: Path) -> list[Path]:
    """The checkpoints of a run, newest first, damaged or not."""
    try:
        names = set(os.listdir(run / FOLDER))  # not glob, which finds nothing in a folder that it may not read
    except FileNotFoundError:
        return []
    for name in [name[1:-4] for name in names if NAME.fullmatch(name[1:-4]) and name == f".{name[1:-4]}.old"]:
        recover_folder(run / FOLDER / name)  # a crash while this checkpoint was being replaced
        names.add(name)
    return sorted((run / FOLDER / name for name in names if NAME.fullmatch(name)), reverse=True)


def read(path: Path) -> Checkpoint:
    """Read and verify a checkpoint. A ValueError says what is wrong with it; Unreadable: it may be intact."""
    try:
        return _read(path)
    except Unreadable:
        raise
    except (FileNotFoundError, NotADirectoryError) as error:
        raise ValueError(f"{error.filename} is missing") from error
    except OSError as error:
        raise Unreadable(f"{error.filename or path} cannot be read ({error.strerror or error})") from error


def _read(path: Path) -> Checkpoint:
    try:
        state = read_json(path / STATE)
    except ValueError as error:
        raise ValueError(f"{path / STATE} cannot be read ({error!r})") from error
    if not isinstance(state, dict) or state.get("format") != FORMAT:
        kind = state.get("format") if isinstance(state, dict) else type(state).__name__
        newer = isinstance(kind, int) and kind > FORMAT
        raise (Unreadable if newer else ValueError)(f"{path / STATE} has format {kind!r}, this version reads {FORMAT}")
    if state.pop("checksum", None) != _own_checksum(state):
        raise ValueError(f"{path / STATE} has changed since it was written: its checksum differs")
    for name, expected in state["files"].items():
        if checksum(path / name) != expected:
            raise ValueError(f"{path / name} has changed since it was written: its checksum differs")
    return Checkpoint(path, state)


def latest(run: Path) -> Checkpoint:
    """The newest intact checkpoint. Damaged ones are reported and skipped."""
    candidates = folders(run)
    for path in candidates:
        try:
            return read(path)
        except Unreadable as error:
            raise Unreadable(
                f"{error}. This checkpoint may be intact, so the run is not resumed from an older one, which would "
                f"replace it. Solve the problem and try again; or, to use an older one, move {path} elsewhere"
            ) from error
        except ValueError as error:
            logger.warning("%s; skipping this damaged checkpoint and trying the previous one", error)
    if candidates:
        raise ValueError(f"all {len(candidates)} checkpoints in {run / FOLDER} are damaged; the run cannot be resumed")
    raise FileNotFoundError(f"{run} has no checkpoints, so there is nothing to resume; start it without --resume")


def forget_after(run: Path, last: Path) -> None:
    """Remove the damaged checkpoints that are newer than the one a run is resumed from."""
    for path in folders(run):
        if path.name > last.name:
            shutil.rmtree(path, ignore_errors=True)


def clean(run: Path, keep: int, best: str | None) -> None:
    """Remove all but the newest `keep` and the best, and unfinished ones that killed processes left behind."""
    for path in folders(run)[max(keep, 1) :]:
        if path.name != best:
            shutil.rmtree(path, ignore_errors=True)
    for pattern in (f"{UNFINISHED}*", ".step-*"):  # the second: of older versions
        for path in (run / FOLDER).glob(pattern):
            if path.suffix != ".old" or path.with_name(path.stem[1:]).exists():  # else it is the only version
                shutil.rmtree(path, ignore_errors=True)


def _own_checksum(state: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(state, sort_keys=True).encode()).hexdigest()


def checksum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
