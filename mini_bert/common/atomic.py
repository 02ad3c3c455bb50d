"""Atomic writes: after a crash or a power cut there is a whole old version or a whole new one, never half of either.

    write_atomic(path, data)                   # a file

    with replaced_folder(target) as new:       # a folder
        (new / "config.json").write_text(...)

Both write beside the target under a temporary name, force the content to disk, and rename. A rename is one step for the
file system, except that a folder which exists must be moved aside first. Between those two renames the previous version
is at `old_version(target)`; readers look there if the target is missing, and `recover_folder` moves it back.
"""

from __future__ import annotations

import os
import secrets
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

UNFINISHED = ".unfinished-"  # prefix of folders that are being written
ABANDONED = 24 * 3600  # seconds without a change after which an unfinished folder is removed
ATTEMPTS = 9  # to rename a folder while other processes do the same


def write_atomic(path: Path, data: bytes) -> None:
    with written_beside(path) as temporary:
        temporary.write_bytes(data)


@contextmanager
def written_beside(path: Path) -> Iterator[Path]:
    """Yields the path of a temporary file to write. On success it is forced to disk and renamed to `path`."""
    temporary = path.with_name(f".{path.stem}.{secrets.token_hex(4)}{path.suffix}")
    try:
        temporary.touch()
        mode = temporary.stat().st_mode
        yield temporary
        os.chmod(temporary, mode)  # some libraries, such as safetensors, write files that only the owner can read
        to_disk(temporary)
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise


@contextmanager
def replaced_folder(target: Path) -> Iterator[Path]:
    """Yields an empty folder to fill. On success it takes the place of `target`; on an error it is removed."""
    target = target.resolve()  # of a symbolic link, replace the folder it points to
    if target.exists() and not target.is_dir():
        raise FileExistsError(f"{target} is a file, expected a folder")
    with unfinished_folder(target) as new:
        yield new
        force_to_disk(new)
        put_in_place(new, target)


@contextmanager
def unfinished_folder(target: Path) -> Iterator[Path]:
    """Yields an empty folder beside `target`. It is removed at the end unless `put_in_place` has renamed it."""
    _clear_abandoned(target.parent)
    new = target.with_name(f"{UNFINISHED}{target.name}-{secrets.token_hex(4)}")
    new.mkdir(parents=True)
    try:
        yield new
    finally:
        shutil.rmtree(new, ignore_errors=True)


def put_in_place(new: Path, target: Path, keep: Callable[[Path], bool] = lambda path: False) -> None:
    """Rename the folder `new` to `target`. An existing `target` is replaced, unless keep(target) is true."""
    old = old_version(target)
    try:
        for attempt in range(1, ATTEMPTS + 1):
            try:
                if target.exists():
                    if keep(target):
                        break
                    shutil.rmtree(old, ignore_errors=True)  # not earlier: it may have been the only version
                    os.rename(target, old)
                os.rename(new, target)
                break
            except OSError as error:
                taken = target.exists() or isinstance(error, FileNotFoundError)  # another process was faster
                if not taken or attempt == ATTEMPTS:
                    raise
                time.sleep(0.01 * attempt)
    except BaseException:
        recover_folder(target)
        raise
    shutil.rmtree(old, ignore_errors=True)
    to_disk(target.parent)


def old_version(target: Path) -> Path:
    """Where the previous version of a folder is while it is being replaced."""
    return target.with_name(f".{target.name}.old")


def recover_folder(target: Path) -> None:
    """If a crash left only the previous version of a folder, give it back its name."""
    if not target.exists() and old_version(target).exists():
        with suppress(OSError):  # another process was faster
            os.rename(old_version(target), target)


def force_to_disk(folder: Path) -> None:
    """Write a folder and everything in it from the system's memory to the disk."""
    for path in (*folder.rglob("*"), folder):
        to_disk(path)


def to_disk(path: Path) -> None:
    """Write a file or folder from the system's memory to the disk. Windows cannot do this for folders."""
    if path.is_dir() and os.name == "nt":
        return
    handle = os.open(path, os.O_RDWR if os.name == "nt" else os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _clear_abandoned(home: Path) -> None:
    """Remove what killed processes left behind."""
    for folder in home.glob(f"{UNFINISHED}*"):
        with suppress(OSError):
            newest = max(path.stat().st_mtime for path in (folder, *folder.iterdir()))
            if time.time() - newest > ABANDONED:
                shutil.rmtree(folder, ignore_errors=True)
