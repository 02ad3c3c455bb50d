"""Unpack a zip or tar archive into a folder, and nowhere else.

An archive is a list of names that somebody else chose. `../../.bashrc`, `C:\\x` or a symbolic link to `/` followed by a
file "inside" it would let it write wherever we may. So only plain files and folders are unpacked, only names that stay
below the folder are accepted, and no more bytes are written than the archive announced.
"""

from __future__ import annotations

import lzma
import os
import shutil
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import IO

from mini_bert.corpora.fetching import DownloadError, need_space

Member = tuple[str, int, Callable[[], IO[bytes]]]  # name, bytes, how to open it


def is_archive(path: Path) -> bool:
    return path.name.lower().endswith((".zip", ".tar", ".tar.gz", ".tgz", ".tar.xz", ".tar.bz2"))


def unpack(archive: Path, folder: Path) -> None:
    """Unpack all of `archive` into `folder`; an error, and an incomplete folder, if anything in it is wrong."""
    try:
        if archive.name.lower().endswith(".zip"):
            with zipfile.ZipFile(archive) as opened:
                _write(_zip_members(opened), archive, folder)
        else:
            with tarfile.open(archive) as packed:
                _write(_tar_members(packed), archive, folder)
    except (zipfile.BadZipFile, tarfile.TarError, zlib.error, lzma.LZMAError, EOFError, NotImplementedError) as error:
        raise DownloadError(f"{archive.name} is not a whole archive ({error}); delete it and fetch it again") from error


def _zip_members(archive: zipfile.ZipFile) -> Iterator[Member]:
    for info in archive.infolist():
        if (info.external_attr >> 16) & 0o170000 == 0o120000:
            raise DownloadError(f"the archive holds a symbolic link, {info.filename!r}: refused, data needs none")
        if not info.is_dir():
            yield info.filename, info.file_size, lambda info=info: archive.open(info)  # type: ignore[misc]


def _tar_members(archive: tarfile.TarFile) -> Iterator[Member]:
    for info in archive.getmembers():
        if not (info.isreg() or info.isdir()):
            raise DownloadError(f"the archive holds a link or device, {info.name!r}: refused, data needs none")
        if info.isreg():
            yield info.name, info.size, lambda info=info: archive.extractfile(info)  # type: ignore[misc]


def safe_parts(name: str) -> tuple[str, ...]:
    """The parts of a path that stays below its folder on every system; an error for any other.

    >>> safe_parts("data/train.txt")
    ('data', 'train.txt')
    """
    posix, windows = PurePosixPath(name), PureWindowsPath(name)
    parts = windows.parts
    bad = posix.is_absolute() or windows.anchor or ".." in parts or not parts or any(":" in part for part in parts)
    if bad or "\0" in name:
        raise DownloadError(f"the archive holds a file named {name!r}, which would lie outside of its folder: refused")
    return parts


def _write(members: Iterator[Member], archive: Path, folder: Path) -> None:
    chosen = [(folder.joinpath(*safe_parts(name)), size, opened) for name, size, opened in members]
    need_space(folder, sum(size for _, size, _ in chosen), f"unpack {archive.name}")
    for path, size, opened in chosen:
        path.parent.mkdir(parents=True, exist_ok=True)
        with opened() as source, open(path, "xb") as target:
            shutil.copyfileobj(source, target, 1 << 20)
        if os.path.getsize(path) != size:
            raise DownloadError(f"{archive.name}: {path.name} unpacks to another size than announced")
