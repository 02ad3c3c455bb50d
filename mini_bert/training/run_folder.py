"""The folder of a run: records, checkpoints, and the final model.

RUN/config.json       model, settings, data, versions: everything needed to repeat the run
RUN/metrics.jsonl     the records, one JSON object per line
RUN/training.log      the same as readable text
RUN/checkpoints/      to resume from (training/checkpoint.py)
RUN/model/            the best model, written at the end, as an ordinary model folder; of a pair, the discriminator, and
                      in its subfolder generator/ the generator (models/pairs.py)
"""

from __future__ import annotations

import json
import platform
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import mini_bert
from mini_bert.common.atomic import replaced_folder, write_atomic
from mini_bert.common.folders import folders_inside
from mini_bert.common.json_values import finite_values, read_json
from mini_bert.data.batches import Batches
from mini_bert.evaluation.word_frequencies import write_frequencies
from mini_bert.files.model_folder import (
    LENGTH,
    MODEL,
    WEIGHTS,
    add_tokenizer_settings,
    fill_folder,
    read_config,
    read_tensors,
    weights_of,
)
from mini_bert.inference.loading import model_of
from mini_bert.models.base import Model
from mini_bert.models.pairs import is_pair
from mini_bert.training import checkpoint
from mini_bert.training.checkpoint import Checkpoint
from mini_bert.training.history import METRICS, read_run, until
from mini_bert.training.optim import Optimiser
from mini_bert.training.recorder import Record, Recorder, State
from mini_bert.training.run_lock import NAME as LOCK
from mini_bert.training.run_lock import RunLock

if TYPE_CHECKING:
    from mini_bert.text.base import Tokenizer

SECTIONS = ("model", "training", "data")  # of a run's config.json
CONFIG = "config.json"
RESUME, OTHER = "continue it with --resume", "choose another folder with --out"  # advice if a folder is not new
Hook = Callable[[Record], None]  # gets every record


class RunFolder(Recorder):
    """Writes the run folder. resume: the checkpoint to continue from."""

    def __init__(
        self,
        path: Path,
        tokenizer: Tokenizer,
        keep: int = 2,
        resume: Checkpoint | None = None,
        hooks: Sequence[Hook] = (),
    ):
        super().__init__()
        self.path, self.tokenizer, self.keep, self.resume, self.hooks = path, tokenizer, keep, resume, list(hooks)
        self.tokenizer_for_use = tokenizer  # of the finished model
        self.start: Record = {}  # the first record of a new run; of a resumed one, its length
        self.word_frequencies: np.ndarray | None = None  # log frequencies (V,) of the training text
        self.lock = RunLock(path)  # `train` holds it; a caller that holds one already sets it here

    @staticmethod
    def create(path: Path, config: dict[str, Any], resume: str = RESUME, other: str = OTHER) -> None:
        """Create a new run folder with config.json. resume, other: advice in the error if it is not new."""
        RunFolder.check_new(path, resume, other)
        path.mkdir(parents=True, exist_ok=True)
        versions = {"mini-bert": mini_bert.__version__, "numpy": np.__version__, "python": platform.python_version()}
        with RunLock(path):
            RunFolder.check_new(path, resume, other)  # another process may have created it meanwhile
            RunFolder.write_config(path, config | {"versions": versions})

    @staticmethod
    def write_config(path: Path, config: dict[str, Any]) -> None:
        write_atomic(path / CONFIG, (json.dumps(config, indent=2) + "\n").encode())

    @staticmethod
    def check_new(path: Path, resume: str = RESUME, other: str = OTHER) -> None:
        """Raise an error unless the folder is new or empty, so that no other files are touched."""
        if path.exists() and not path.is_dir():
            raise ValueError(f"{path} is a file, expected a folder for the run; {other}")
        if (path / CONFIG).exists() and weights_of(path) is None:  # a model folder has a config too
            raise ValueError(f"{path} already contains a run; {resume}, or {other}")
        if path.is_dir() and any(entry.name != LOCK for entry in path.iterdir()):
            raise ValueError(f"{path} is not empty, but a run needs a new or empty folder; {other}")

    @staticmethod
    def config(path: Path) -> dict[str, Any]:
        """What `create` or `write_config` wrote."""
        try:
            found = read_json(path / CONFIG)
        except FileNotFoundError:
            inside = folders_inside(path, METRICS)
            raise FileNotFoundError(
                f"{path} is not a run folder: it has no {CONFIG}{'; ' if inside else ''}{inside}"
            ) from None
        if not isinstance(found, dict) or not all(isinstance(found.get(part), dict) for part in SECTIONS):
            raise ValueError(f"{path} is not a run folder: its {CONFIG} should have the sections {', '.join(SECTIONS)}")
        corpus, objective = found["data"].get("corpus", []), found.get("objective", "")
        if not isinstance(corpus, list) or not all(isinstance(name, str) for name in (objective, *corpus)):
            raise ValueError(f"{path / CONFIG}: expected a list of names as the corpus and a name as the objective")
        return found

    # ------------------------------------------------------------------ what the loop calls

    def begin(self, model: Model, optimiser: Optimiser, batches: Batches) -> State:
        """Start a new run, or restore everything from the checkpoint."""
        found = self.resume
        if found is None:
            write_atomic(self.path / METRICS, b"")  # drops records of a run killed before its first checkpoint
            if self.start:
                self.record(self.start)
            return State()
        model.assign_tensors(read_tensors(found.path / WEIGHTS, widened=False), str(found.path))
        for name, moment in optimiser.arrays.items():  # one at a time, because they are large
            moment[...] = checkpoint.read_array(found.path / checkpoint.OPTIMIZER, name)
        optimiser.t = found.state["adam_t"]
        for name, array in _memory(batches).items():
            array[...] = checkpoint.read_array(found.path / checkpoint.OPTIMIZER, f"memory.{name}")
        batches.restore(found.state["data"])
        state = State.from_dict(found.state["run"])
        checkpoint.forget_after(self.path, found.path)
        self._forget_after(state.step)
        self.record({"kind": "resume", "step": state.step, **self.start, "time": now()})
        self.say(f"resuming at step {state.step:,}, from {found.path.name}")
        return state

    def record(self, record: Record) -> None:
        """Write a line to metrics.jsonl, then call the hooks."""
        try:
            with (self.path / METRICS).open("a", encoding="utf-8") as file:
                file.write(json.dumps(finite_values(record)) + "\n")
        except OSError as error:
            raise OSError(checkpoint.cannot_write(self.path, str(self.path / METRICS), error)) from error
        for hook in self.hooks:
            hook(record)

    def save(self, state: State, model: Model, optimiser: Optimiser, batches: Batches) -> None:
        name = f"step-{state.step:08d}"
        best = state.best is not None and state.best_checkpoint is None
        if best:
            state.best_checkpoint = name
        values = {"run": asdict(state), "adam_t": optimiser.t, "data": batches.state()}
        arrays = optimiser.arrays | {f"memory.{name}": array for name, array in _memory(batches).items()}
        checkpoint.save(self.path, state.step, values, arrays, lambda folder: self.write_model(model, folder))
        checkpoint.clean(self.path, self.keep, state.best_checkpoint)
        self.record({"kind": "checkpoint", "step": state.step, "path": f"checkpoints/{name}", "best": best})

    def write_model(self, model: Model, folder: Path) -> None:
        fill_folder(folder, model.file_config(), model.file_tensors(), self.tokenizer)
        if self.word_frequencies is not None:
            write_frequencies(folder, self.word_frequencies)

    # ------------------------------------------------------------------ at the end

    def best(self, state: State) -> Path:
        """The checkpoint of the best model, or the last one if no text is held out"""
        return self.path / checkpoint.FOLDER / (state.best_checkpoint or checkpoint.folders(self.path)[0].name)

    def publish(self, state: State, card: str) -> Path:
        """Copy the best model to RUN/model and return that folder.

        A pair becomes two folders: other programs cannot open its file.
        """
        source, target = self.best(state), self.path / MODEL
        try:
            with replaced_folder(target) as new:
                for path in source.iterdir():
                    if path.name not in (checkpoint.STATE, checkpoint.OPTIMIZER):
                        shutil.copy2(path, new / path.name)
                self.tokenizer_for_use.save(new)
                if is_pair(read_config(source)):
                    self._write_separately(source, new)
                for folder in (new, *(path for path in new.iterdir() if path.is_dir())):
                    add_tokenizer_settings(folder, **{LENGTH: self.config(self.path)["data"].get("length")})
                (new / "README.md").write_text(card, encoding="utf-8")
        except OSError as error:
            raise OSError(
                f"the model could not be written to {target} ({error.strerror or error}); it is intact in {source}. "
                "Fix the problem (is the disk full, or the old model in use?), then write it with --resume"
            ) from error
        return target

    def _write_separately(self, source: Path, target: Path) -> None:
        """The two models of a pair, which is one file in a checkpoint, as folders that others can open."""
        for name, part in model_of(source).folders().items():
            (target / name).mkdir(exist_ok=True)
            fill_folder(target / name, part.file_config(), part.file_tensors(), self.tokenizer)

    def _forget_after(self, step: int) -> None:
        """Remove the records of steps that will be repeated."""
        kept = until(read_run(self.path).records, step) if (self.path / METRICS).exists() else []
        write_atomic(self.path / METRICS, "".join(json.dumps(record) + "\n" for record in kept).encode())


def _memory(batches: Any) -> Mapping[str, np.ndarray]:
    """The arrays that the objective carries from batch to batch"""
    return getattr(getattr(batches, "objective", None), "memory", {})


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
