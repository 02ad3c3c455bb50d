"""The models that the page may choose among: those given on the command line, bundled ones, and runs in ./runs.

    shelf = Shelf(Loading("mini-bert"), ["my_model/"], Path("runs"))
    shelf.names()                       ["mini-bert", "my_model/", UNTRAINED, "runs/first"]
    shelf.loading("runs/first")         loads in a thread; NotFound for a name that is not in the list

The page sends a name, and the name is looked up here, so it cannot open other folders. At most LOADED models are in
memory; the first one stays, the one that was used longest ago goes.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mini_bert.lab.fields import NotFound

# As in files/model_folder.py
CONFIG, WEIGHTS = "config.json", ("model.safetensors", "pytorch_model.bin", "model_int8.safetensors")
UNTRAINED = "mini-bert, untrained"  # random weights, to compare with
BUNDLED = ("mini-bert", UNTRAINED)
LOADED = 3  # models in memory
MOST_RUNS = 100  # folders that are offered
DEPTH = 2  # runs/first, runs/family/bert


class Shelf:
    """first: a `Loading`, the model of pages that name none. runs: the folder with training runs, or None"""

    def __init__(self, first: Any, more: Sequence[str] = (), runs: Path | None = None):
        self.first, self.more, self.runs = first, list(more), runs
        self._loaded: dict[str, Any] = {first.name: first}  # the most recently used last
        self._lock = threading.Lock()

    def names(self) -> list[str]:
        """Without duplicates; runs are looked for anew, so that those that have just been trained appear."""
        return list(dict.fromkeys([self.first.name, *self.more, *BUNDLED, *found_runs(self.runs)]))

    def loading(self, name: str | None = None) -> Any:
        """The `Loading` of a model; None: the first."""
        if name is None or name == self.first.name:
            return self.first
        with self._lock:
            chosen = self._loaded.pop(name, None)
            if chosen is None or chosen.failed:
                if name not in self.names():
                    raise NotFound(f"there is no model {name!r:.80} in the lab; start it with --model {name:.80}")
                chosen = type(self.first)(name, self.first.load)
            self._loaded[name] = chosen
            for other in list(self._loaded):
                if len(self._loaded) <= LOADED:
                    break
                if other not in (name, self.first.name):
                    del self._loaded[other]
        return chosen


def is_model(folder: Path) -> bool:
    return (folder / CONFIG).is_file() and any((folder / name).is_file() for name in WEIGHTS)


def is_model_or_run(folder: Path) -> bool:
    """Whether files/model_folder.py, `locate`, finds a model in it."""
    return is_model(folder) or is_model(folder / "model") or any(map(is_model, folder.glob("checkpoints/step-*")))


def found_runs(home: Path | None, depth: int = DEPTH) -> list[str]:
    """Folders of models and runs in a folder, in alphabetical order. Names that begin with a point are skipped."""
    if home is None or not home.is_dir():
        return []
    found: list[str] = []
    for folder in sorted(path for path in home.iterdir() if not path.name.startswith(".")):
        if not folder.is_dir():
            continue
        if is_model_or_run(folder):
            found.append(Path(os.path.relpath(folder)).as_posix())
        elif depth > 1:
            found += found_runs(folder, depth - 1)
    return found[:MOST_RUNS]
