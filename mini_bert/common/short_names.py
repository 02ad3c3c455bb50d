"""One identity per class: inside this folder, `layers.base` is the module `mini_bert.layers.base`.

If you work in the folder `mini_bert/` and type `from layers.base import bind`, Python would load `layers/base.py` a
second time under the name `layers.base`. Every class in it would then exist twice, and `isinstance` would fail between
the two. The finder below returns the module `mini_bert.layers.base` instead.

It only affects files of this package: your own package called `layers` is found as usual.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import CodeType, ModuleType

PACKAGE = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
SUBPACKAGES = frozenset(entry.name for entry in os.scandir(PACKAGE) if entry.is_dir())


class ShortNames:
    """Finds `layers.base` in the folder of `mini_bert.layers` and loads `mini_bert.layers.base` for it.

    (A finder and a loader by its methods alone: `importlib.abc`, which has base classes for them, is slow to import.)
    """

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        parts = fullname.split(".")
        if path is None or parts[0] not in SUBPACKAGES:  # at once: this is called for every import of the process
            return None
        folder = os.path.join(PACKAGE, *parts[:-1])
        if not any(os.path.realpath(entry) == folder for entry in path):
            return None
        found = find_spec(f"mini_bert.{fullname}")
        return found and ModuleSpec(fullname, self, origin=found.origin)  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> None:
        """An empty module to begin with, which `exec_module` replaces."""

    def exec_module(self, module: ModuleType) -> None:
        sys.modules[module.__name__] = import_module(f"mini_bert.{module.__name__}")

    def get_code(self, fullname: str) -> CodeType:
        """For `python -m layers.base`."""
        loader = find_spec(f"mini_bert.{fullname}").loader  # type: ignore[union-attr]
        return loader.get_code(f"mini_bert.{fullname}")  # type: ignore[union-attr]


def install() -> None:
    if not any(isinstance(finder, ShortNames) for finder in sys.meta_path):
        sys.meta_path.insert(0, ShortNames())
