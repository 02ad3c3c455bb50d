"""Read the files in a .zip or .tar archive, one after another, without writing anything to disk.

    for file, name in members(archive, "texts.zip", note):
        ...      file.read(), name = "texts.zip/a/b.txt"

A compressed member (b.txt.gz) is decompressed here. What is not a plain file of a known type is skipped and reported to
`note`: links, devices, hidden files, names that lead out of the archive, encrypted members, archives in the archive.
Since nothing is written, no name can do harm; such archives are just likely to be broken in other ways.

A decompression bomb is an error: more than RATIO bytes of content for a byte of the archive, once there are more than
SMALL, or more than TOTAL. Text is compressed to a third or a tenth.
"""

from __future__ import annotations

import lzma
import os
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import chain
from pathlib import PurePosixPath
from typing import Any, BinaryIO, cast

from mini_bert.common.extras import MissingExtra
from mini_bert.corpora.decoding import BLOCK, MAGIC, PACKED, SIP, Note, unpacked

ZIP = ".zip"
TARS = (".tar", ".tgz", ".txz", ".tbz2")  # and .tar.gz, …
RATIO, SMALL, TOTAL = 200, 1 << 26, 1 << 38  # bytes per byte; bytes; bytes
DAMAGED = (tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, RuntimeError, OverflowError)


def is_archive(name: str) -> bool:
    """
    >>> is_archive("a.zip"), is_archive("a.tar.gz"), is_archive("a.txt.gz")
    (True, True, False)
    """
    stem, ending = os.path.splitext(name.lower())
    return ending in (ZIP, *TARS) or (ending in PACKED and stem.endswith(".tar"))


def members(file: BinaryIO, name: str, note: Note, known: Callable[[str], bool]) -> Iterator[tuple[BinaryIO, str]]:
    """The open files of an archive, with their names in messages. A zip is sorted by name, a tar is in its own order.

    known: whether a file of this name is text
    """
    try:
        yield from _zip(file, name, note, known) if name.lower().endswith(ZIP) else _tar(file, name, note, known)
    except DAMAGED as error:
        raise ValueError(f"{name} is not a complete archive ({error}). Copy it again") from error


def _zip(file: BinaryIO, name: str, note: Note, known: Callable[[str], bool]) -> Iterator[tuple[BinaryIO, str]]:
    if not file.seekable():
        raise ValueError(f"{name}: a zip archive cannot be read from a pipe; give a file, or a .tar")
    size = file.seek(0, os.SEEK_END)
    meter = Meter(name, lambda: size)
    with zipfile.ZipFile(file) as archive:
        for entry in sorted(archive.infolist(), key=lambda entry: entry.filename):
            mode = entry.external_attr >> 16
            if entry.is_dir():
                continue
            problem = _problem(entry.filename, known)
            if entry.flag_bits & 1:
                problem = "encrypted"
            elif stat.S_IFMT(mode) not in (0, stat.S_IFREG):
                problem = "not a regular file"
            if problem:
                note(f"skipped, {problem}", f"{name}/{entry.filename}", "", 1)
                continue
            try:
                content = archive.open(entry)
            except NotImplementedError as error:
                note(f"skipped, {error}", f"{name}/{entry.filename}", "", 1)
                continue
            with content:
                if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):  # `read` does not limit these
                    content = cast(Any, Blocks(iter(partial(content.read, SIP), b"")))
                yield from _member(cast(BinaryIO, content), f"{name}/{entry.filename}", note, meter)


def _tar(file: BinaryIO, name: str, note: Note, known: Callable[[str], bool]) -> Iterator[tuple[BinaryIO, str]]:
    counted = Counted(file)
    whole = Blocks(Meter(name, lambda: counted.taken)(unpacked(cast(BinaryIO, counted), name)))
    meter = Meter(name, lambda: counted.taken)
    with tarfile.open(fileobj=cast(Any, whole), mode="r|") as archive:
        for entry in archive:
            archive.members = []  # type: ignore[attr-defined]  # tarfile would keep them all
            if entry.isdir():
                continue
            problem = _problem(entry.name, known)
            if not entry.isreg() or entry.issparse():  # a link, a device, a file with holes
                problem = "not a regular file"
            content = None if problem else archive.extractfile(entry)
            if content is None:
                note(f"skipped, {problem}", f"{name}/{entry.name}", "", 1)
            else:
                yield from _member(cast(BinaryIO, content), f"{name}/{entry.name}", note, meter)
    if whole.last.strip(b"\0"):
        note("tar archives without an end mark: perhaps truncated or damaged", name, "", 1)


def _problem(member: str, known: Callable[[str], bool]) -> str:
    """Why a member is skipped, judged by its name; "" if it is not."""
    path = PurePosixPath(member.replace("\\", "/"))
    if path.is_absolute() or ".." in path.parts or ":" in path.parts[0]:
        return "its name leads out of the archive"
    if any(part.startswith(".") or part == "__MACOSX" for part in path.parts):
        return "hidden"
    if is_archive(member):
        return "an archive in an archive"
    return "" if known(member) else f"{path.suffix} is not a known type of text file in an archive"


def _member(file: BinaryIO, name: str, note: Note, meter: Meter) -> Iterator[tuple[BinaryIO, str]]:
    try:
        blocks = iter(meter(unpacked(file, name)))
        head = next(blocks, b"")
    except MissingExtra as error:
        note(f"skipped, {error.lack}", name, "", 1)
        return
    if any(magic.match(head) for magic in MAGIC.values()):
        note("skipped, compressed twice", name, "", 1)
        return
    stem, ending = os.path.splitext(name)
    yield cast(BinaryIO, Blocks(chain([head], blocks))), stem if ending.lower() in PACKED else name


class Counted:
    """A file that counts the bytes read from it."""

    def __init__(self, file: BinaryIO):
        self.file, self.taken = file, 0

    def read(self, size: int) -> bytes:
        data = self.file.read(size)
        self.taken += len(data)
        return data


class Blocks:
    """A file whose `read` gives the next block, or the part of it that was asked for."""

    def __init__(self, blocks: Iterable[bytes]):
        self.blocks, self.rest, self.last = iter(blocks), memoryview(b""), b""

    def read(self, size: int = BLOCK) -> bytes:
        if not self.rest:
            self.rest = memoryview(next(self.blocks, b""))
        data, self.rest = bytes(self.rest[:size]), self.rest[size:]
        self.last = data[-512:] or self.last
        return data


class Meter:
    """Passes blocks on, until there are too many for an archive that is not a bomb."""

    def __init__(self, name: str, size: Callable[[], int]):
        self.name, self.size, self.content = name, size, 0

    def __call__(self, blocks: Iterable[bytes]) -> Iterator[bytes]:
        for block in blocks:
            self.content += len(block)
            if self.content > min(TOTAL, max(SMALL, RATIO * self.size())):
                raise ValueError(
                    f"{self.name} is a decompression bomb: {self.size():,} bytes of it have more than "
                    f"{self.content:,} bytes of content. If you trust it, unpack it and give the folder"
                )
            yield block
