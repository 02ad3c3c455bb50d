"""Packages that only some features need: imported when used, with advice where they are missing."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from importlib import import_module
from typing import Any


class MissingExtra(ModuleNotFoundError, ValueError):
    """A package that only some formats need is not installed. (A ValueError too: for the user, one line is enough.)

    `lack` says it for reports: which package, and the command that installs it for the Python that is running.
    """

    def __init__(self, package: str, why: str):
        words = [sys.executable or "python", "-m", "pip", "install", package]
        command = subprocess.list2cmdline(words) if os.name == "nt" else shlex.join(words)
        super().__init__(f"{why}. Install it: {command}", name=package)
        self.lack = f"{package} is not installed, and `{command}` installs it"


def extra(module: str, why: str) -> Any:
    """Import what only some need; where it is missing, say how it is installed."""
    try:
        return import_module(module)
    except ImportError as error:
        raise MissingExtra(module.partition(".")[0], why) from error
