"""One identity per class: inside this folder, `layers.base` is the module `mini_bert.layers.base`.

If you work in the folder `mini_bert/` and type `from layers.base import bind`, Python would load `layers/base.py` a
second time under the name `layers.base`. Every class in it would then exist twice, and `isinstance` would fail between
the two. The finder below returns the module `mini_bert.layers.base` instead.

It only affects files of this package: your own package called `layers` is found as usual.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

PACKAGE = Path(__file__).resolve().parents[1]


class ShortNames(MetaPathFinder, Loader):
    """Finds `layers.base` in the folder of `mini_bert.layers` and loads `mini_bert.layers.base` for it."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if path is None or fullname.startswith("mini_bert."):
            return None
        folder = PACKAGE.joinpath(*fullname.split(".")[:-1])
        if any(Path(entry).resolve() == folder for entry in path):
            return ModuleSpec(fullname, self)
        return None

    def exec_module(self, module: ModuleType) -> None:
        sys.modules[module.__name__] = import_module(f"mini_bert.{module.__name__}")


def install() -> None:
    if not any(isinstance(finder, ShortNames) for finder in sys.meta_path):
        sys.meta_path.insert(0, ShortNames())
