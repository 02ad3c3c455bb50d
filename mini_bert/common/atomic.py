"""Files that appear whole or not at all, whenever the power goes."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


def write_atomic(path: Path, data: bytes) -> None:
    """Whole or not at all: a reader sees the old file or the new one, never half of one."""
    with written_beside(path) as temporary:
        temporary.write_bytes(data)


@contextmanager
def written_beside(path: Path) -> Iterator[Path]:
    """-> a file to write; it is then forced to disk, and only after that gets its name"""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        to_disk(temporary)
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise


def to_disk(path: Path) -> None:
    """Make the system write what it still holds in memory; of folders only where it can (not on Windows)."""
    if path.is_dir() and os.name == "nt":
        return
    handle = os.open(path, os.O_RDWR if os.name == "nt" else os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
