"""Only one process at a time trains in a run folder.

    with RunLock(run):
        ...  # another process gets a RunInUse that names this one

The lock is the system's own lock on the file RUN/.lock. The system releases it when the process ends, even when it is
killed, so a file that is left behind blocks nobody. The file says who holds the lock, for the error message.
"""

from __future__ import annotations

import json
import logging
import os
import platform
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any, Self

NAME = ".lock"
START = 1  # the holder is written after the first byte, because on Windows the lock makes that byte unreadable
logger = logging.getLogger(__name__)


class RunInUse(OSError):
    """Another process is training in this folder."""


class RunLock:
    """A context manager. The same object can be entered again while it is held."""

    def __init__(self, run: Path):
        from filelock import FileLock  # only here: importing it takes tens of milliseconds

        self.run, self.path = run, run / NAME
        self.lock = FileLock(self.path, timeout=0, thread_local=False, fallback_to_soft=False)

    def __enter__(self) -> Self:
        from filelock import Timeout

        try:
            self.lock.acquire()
        except Timeout:
            raise RunInUse(
                f"{self.run} is in use: {self._holder()}. Wait until it ends, or stop it (Ctrl-C saves first), then "
                "try again; or choose another folder with --out"
            ) from None
        except (FileNotFoundError, PermissionError):
            raise
        except OSError as error:
            logger.warning("cannot lock files here (%s): make sure that only one process uses this folder", error)
        with suppress(OSError):  # a full disk: the lock holds all the same
            self._write_holder()
        return self

    def __exit__(self, *reason: Any) -> None:
        if os.name != "nt" and self.lock.lock_counter == 1:
            with suppress(OSError):  # while it is locked: the next process creates a file of its own
                os.unlink(self.path)
        self.lock.release()

    def _write_holder(self) -> None:
        since = datetime.now().astimezone().isoformat(" ", timespec="seconds")
        holder = {"process": os.getpid(), "computer": platform.node() or "this computer", "since": since}
        with open(self.path, "r+b", buffering=0) as file:
            file.seek(START)
            file.write(json.dumps(holder).encode() + b"\n")

    def _holder(self) -> str:
        try:
            with open(self.path, "rb", buffering=0) as file:
                file.seek(START)
                holder = json.loads(file.readline())
            who = f"process {holder['process']} on {holder['computer']}"
            return f"{who} has been training there since {holder['since']}"
        except (OSError, ValueError, KeyError, TypeError, RecursionError):  # not written yet
            return "another process is training there"
