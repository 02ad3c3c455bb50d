"""One process at a time trains in a run folder.

    with RunLock(run):
        ...  # whoever else tries gets a RunInUse, which names this process

A file in the folder is locked by the system's own means (fcntl on Linux and macOS, msvcrt on Windows). Such a lock
belongs to the process, not to the file: when its holder ends, however violently, the lock is gone, and the file that
it leaves behind blocks nobody. What stands in the file says who holds it, for the message; it decides nothing.
"""

from __future__ import annotations

import json
import logging
import os
import platform
import sys
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any, Self

NAME = ".lock"
FAR = 1 << 30  # Windows locks bytes, and nobody may read those: so one far behind the end
logger = logging.getLogger(__name__)


class RunInUse(OSError):
    """Another process trains in this folder; the message says which."""


class RunLock:
    """A context manager; who holds it may enter it again."""

    def __init__(self, run: Path):
        self.run, self.path = run, run / NAME
        self.depth, self.handle = 0, -1

    def __enter__(self) -> Self:
        if not self.depth:
            self.handle = self._locked()
            with suppress(OSError):  # a full disk: the lock holds all the same
                os.ftruncate(self.handle, 0)
                os.write(self.handle, json.dumps(_ourselves()).encode())
        self.depth += 1
        return self

    def __exit__(self, *reason: Any) -> None:
        self.depth -= 1
        if self.depth:
            return
        if os.name != "nt":
            self._remove()  # while it is locked: whoever comes next makes a file of its own
        os.close(self.handle)  # and with it goes the lock
        if os.name == "nt":  # an open file cannot be removed there, not even by others who have it by now
            self._remove()

    def _locked(self) -> int:
        """-> an open file that nobody else has locked, and that is still the one of this name"""
        while True:
            handle = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o666)
            try:
                if not _lock(handle):
                    raise RunInUse(self._who())
                if os.name == "nt" or self._is_ours(handle):  # there an open file keeps its name
                    return handle
            except BaseException:
                os.close(handle)
                raise
            os.close(handle)  # its owner removed it just then

    def _is_ours(self, handle: int) -> bool:
        try:
            return os.path.samestat(os.fstat(handle), os.stat(self.path))
        except FileNotFoundError:
            return False

    def _remove(self) -> None:
        with suppress(OSError):
            os.unlink(self.path)

    def _who(self) -> str:
        try:
            holder = json.loads(self.path.read_text(encoding="utf-8"))
            who = f"process {holder['process']} on {holder['computer']} has been training there since {holder['since']}"
        except (OSError, ValueError, KeyError, TypeError):  # it has not written that yet
            who = "another process is training there"
        return (
            f"{self.run} is in use: {who}. Wait until it ends, or stop it (Ctrl-C saves first), then try again; "
            "or choose another folder with --out"
        )


def _ourselves() -> dict[str, Any]:
    since = datetime.now().astimezone().isoformat(" ", timespec="seconds")
    return {"process": os.getpid(), "computer": platform.node() or "this computer", "since": since}


def _lock(handle: int) -> bool:
    """-> False if somebody else has it. Where files cannot be locked (some network drives) we go on without."""
    try:
        if sys.platform == "win32":
            import msvcrt

            os.lseek(handle, FAR, os.SEEK_SET)
            try:
                msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
            finally:
                os.lseek(handle, 0, os.SEEK_SET)
        else:
            import fcntl

            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    except OSError as error:
        logger.warning("files cannot be locked here (%s): see to it that only one process trains in this folder", error)
    return True
