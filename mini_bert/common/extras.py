"""Optional packages: imported when a feature needs them, with an error that says how to install them."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from importlib import import_module
from typing import Any


class MissingExtra(ModuleNotFoundError, ValueError):
    """An optional package is not installed. (Also a ValueError, which the command line prints in one line.)

    `lack` is a description for reports: the package and the command that installs it for this Python.
    """

    def __init__(self, package: str, why: str):
        words = [sys.executable or "python", "-m", "pip", "install", *package.split()]
        command = subprocess.list2cmdline(words) if os.name == "nt" else shlex.join(words)
        super().__init__(f"{why}. Install it: {command}", name=package)
        self.lack = f"{package} is not installed, and `{command}` installs it"


def extra(module: str, why: str, packages: str | None = None) -> Any:
    """Import an optional package; if it is missing, raise an error that says how to install it, or all `packages`."""
    try:
        return import_module(module)
    except ImportError as error:
        raise MissingExtra(packages or module.partition(".")[0], why) from error
