"""From the bytes of a file to its text: unpacked, decoded, and checked, a block at a time.

What can be mended is mended, and told to `note(what, file, place, count)`. What cannot is an error that names the
file and how far it got: a compressed file cut short or damaged, a file that is not text.
"""

from __future__ import annotations

import bz2
import codecs
import io
import lzma
import os
import re
import shlex
import zlib
from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from itertools import chain
from typing import Any, BinaryIO

from mini_bert.common.extras import MissingExtra, extra

STANDARD_INPUT = "standard input"  # what messages call it
BLOCK = 1 << 18  # bytes read, and at most unpacked, at once
Note = Callable[[str, str, str, int], None]  # what, file, place in it, how often


class NotText(ValueError):
    """The file is binary, or in an encoding that we cannot know. Raised before anything of it is handed out."""


# --- bytes to bytes ----------------------------------------------------------------------------------------

PACKED = {".gz": "gzip", ".xz": "xz", ".zst": "zstd", ".bz2": "bzip2"}
MAGIC = {  # how their content begins
    "gzip": re.compile(rb"\x1f\x8b\x08"),
    "xz": re.compile(rb"\xfd7zXZ\0"),
    "zstd": re.compile(rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18"),  # the second: a frame to be skipped
    "bzip2": re.compile(rb"BZh[1-9](?:1AY&SY|\x17rE8P\x90)"),
}


def unpacked(file: BinaryIO, name: str) -> Iterator[bytes]:
    """The bytes inside: decompressed if the first bytes say so, in blocks of at most BLOCK (zstd: see there)."""
    blocks = iter(lambda: file.read(BLOCK), b"")
    head = next(blocks, b"")
    while len(head) < 10 and (more := file.read(10 - len(head))):  # a pipe may hand out a byte at a time
        head += more
    packing = next((packing for packing, magic in MAGIC.items() if magic.match(head)), None)
    promised = PACKED.get(os.path.splitext(name.lower())[1])
    if promised and promised != packing:
        found = f"its first bytes are {head[:6]!r}" if head else "it is empty"
        raise ValueError(f"{name} is not a {promised} file, as its name says: {found}. Copy or download it again")
    if packing is None:
        return chain([head], blocks) if head else iter(())
    return _decompress(chain([head], blocks), packing, name)


def _decompress(blocks: Iterable[bytes], packing: str, name: str) -> Iterator[bytes]:
    """The content of one or more compressed streams, one behind the other: such files may be joined that way."""
    taken = given = 0
    start, broken = _machine(packing, name)
    machine: _Machine | None = None
    try:
        for data in blocks:
            taken += len(data)
            while data:
                if machine is None and not (data := data.lstrip(b"\0")):  # padding between streams is allowed
                    break
                machine = machine or start()
                for out in machine.feed(data):
                    given += len(out)
                    yield out
                data, machine = (b"", machine) if machine.rest is None else (machine.rest, None)
    except broken as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise  # the disk is at fault, not the content
        place = f"after {given:,} bytes of content, within the first {taken:,} compressed ones"
        raise ValueError(f"{name}: its {packing} data is damaged {place} ({error}). Copy it again") from error
    if machine is not None:
        raise ValueError(
            f"{name} is cut short: its {packing} data ends after {taken:,} bytes ({given:,} unpacked) in the middle of "
            "a stream. Copy it again"
        )


class _Machine:
    """A decompressor of the standard library: holds its input, hands out at most BLOCK bytes a call."""

    def __init__(self, machine: Any):
        self.machine = machine
        self.rest: bytes | None = None  # when the stream has ended: the input behind it

    def feed(self, data: bytes) -> Iterator[bytes]:
        while True:
            out, data = self.machine.decompress(data, BLOCK), b""
            if out:
                yield out
            if self.machine.eof:
                self.rest = self.machine.unused_data
            if self.machine.eof or self.machine.needs_input:
                return


class _Inflate(_Machine):
    """zlib is older than the common interface: it hands unused input back instead of holding it."""

    def feed(self, data: bytes) -> Iterator[bytes]:
        while True:
            out = self.machine.decompress(data, BLOCK)
            data = self.machine.unconsumed_tail
            if out:
                yield out
            if self.machine.eof:
                self.rest = self.machine.unused_data
            if self.machine.eof or (not data and len(out) < BLOCK):
                return


class _Zstandard(_Machine):
    """The package `zstandard` cannot limit its output, so its input comes in sips: 4 bytes give 128 kB at most."""

    SIP = 1024

    def feed(self, data: bytes) -> Iterator[bytes]:
        for start in range(0, len(data), self.SIP):
            out = self.machine.decompress(data[start : start + self.SIP])
            yield from (out[i : i + BLOCK] for i in range(0, len(out), BLOCK))
            if self.machine.eof:
                self.rest = self.machine.unused_data + data[start + self.SIP :]
                return


def _machine(packing: str, name: str) -> tuple[Callable[[], _Machine], tuple[type[Exception], ...]]:
    """-> what makes a decompressor, and the exceptions by which it says that its input is damaged"""
    if packing == "gzip":
        return lambda: _Inflate(zlib.decompressobj(16 + zlib.MAX_WBITS)), (zlib.error,)
    if packing == "xz":
        return lambda: _Machine(lzma.LZMADecompressor()), (lzma.LZMAError,)
    if packing == "bzip2":
        return lambda: _Machine(bz2.BZ2Decompressor()), (OSError, ValueError)
    try:
        zstd: Any = import_module("compression.zstd")  # Python 3.14 and later
        return lambda: _Machine(zstd.ZstdDecompressor()), (zstd.ZstdError,)
    except ImportError:
        zstandard = extra("zstandard", f"{name} is compressed by zstd, which the package zstandard unpacks")
        return lambda: _Zstandard(zstandard.ZstdDecompressor().decompressobj()), (zstandard.ZstdError,)


def unreadable(head: bytes, parquet: bool) -> bool:
    """Would reading a file that begins so need a package that is not installed?"""
    try:
        if parquet:
            extra("pyarrow.parquet", "")
        elif MAGIC["zstd"].match(head):
            _machine("zstd", "")
    except MissingExtra:
        return True
    return False


# --- bytes to text -----------------------------------------------------------------------------------------

MARKS = {  # byte order marks; the longer first, because UTF-32's begins with UTF-16's
    codecs.BOM_UTF32_LE: "utf-32-le",
    codecs.BOM_UTF32_BE: "utf-32-be",
    codecs.BOM_UTF8: "utf-8",
    codecs.BOM_UTF16_LE: "utf-16-le",
    codecs.BOM_UTF16_BE: "utf-16-be",
}
SIGNATURES = {
    b"%PDF-": "a PDF", b"PK\x03\x04": "a zip archive", b"\x89PNG": "a PNG picture", b"\xff\xd8\xff": "a JPEG picture",
    b"GIF8": "a GIF picture", b"\x7fELF": "a program", b"SQLite format 3\0": "an SQLite database",
    b"PAR1": "a Parquet file (name it .parquet)", b"\x93NUMPY": "a NumPy array", b"Rar!": "a rar archive",
    b"7z\xbc\xaf": "a 7z archive", b"\x80\x04\x95": "a pickle", b"{\\rtf": "an RTF document",
}  # fmt: skip
INVALID = "bytes that are not {}: replaced by U+FFFD"
CONTROLS = bytes({*range(32), 127} - set(b"\t\n\v\f\r\b\x1b"))


def encoding_of(head: bytes, name: str) -> tuple[str, int]:
    """-> the encoding, the length of its byte order mark. NotText if it reads like anything but text."""
    for mark, encoding in MARKS.items():
        if head.startswith(mark):
            return encoding, len(mark)
    for signature, what in SIGNATURES.items():
        if head.startswith(signature):
            raise NotText(f"{name} is not text but {what}")
    head = head[: 1 << 16]
    even, odd = head[::2].count(0), head[1::2].count(0)
    if max(even, odd) > max(3, len(head) // 6) and min(even, odd) <= len(head) // 100:
        raise NotText(
            f"{name} looks like UTF-16 without its byte order mark: every other byte is 0. Save it as UTF-8, or "
            f"convert it: {conversion(name, 'UTF-16LE' if odd > even else 'UTF-16BE')}"
        )
    invalid = head.decode("utf-8", "replace").count("\ufffd") - head.decode("utf-8", "ignore").count("\ufffd")
    bad = invalid + len(head) - len(head.translate(None, CONTROLS))
    if bad > 2 + len(head) // 10:
        raise NotText(
            f"{name} is not text in UTF-8: {bad:,} of its first {len(head):,} bytes are control characters or invalid. "
            f"If it is text in another encoding, such as Latin-1, convert it: {conversion(name)}"
        )
    return "utf-8", 0


def conversion(name: str, encoding: str = "LATIN1") -> str:
    """The command that makes UTF-8 of a file.

    >>> conversion("notes.txt")
    'iconv -f LATIN1 -t UTF-8 notes.txt > notes.utf8.txt'
    """
    stem, ending = os.path.splitext(name)
    if name == STANDARD_INPUT:
        return f"... | iconv -f {encoding} -t UTF-8 | ..."
    if ending in PACKED:
        return f"unpack it, then {conversion(stem, encoding)}"
    return f"iconv -f {encoding} -t UTF-8 {shlex.quote(name)} > {shlex.quote(f'{stem}.utf8{ending}')}"


def decoded(blocks: Iterator[bytes], name: str, note: Note) -> Iterator[str]:
    """Text whose lines end in \\n, without NUL. What is not UTF-8 becomes U+FFFD, and is counted."""
    head = next(blocks, b"")
    while 0 < len(head) < 1024 and (more := next(blocks, b"")):  # a pipe may hand out little at a time
        head += more
    encoding, skip = encoding_of(head, name)
    if skip:
        note(f"byte order mark of {encoding.upper()}: understood and dropped", name, "", 1)
    decoder: Any = codecs.getincrementaldecoder(encoding)("strict")
    newlines = io.IncrementalNewlineDecoder(None, translate=True)
    place = skip  # in the file, of the first byte that is not decoded yet
    for data in chain([head[skip:]], blocks, [b""]):
        held = decoder.getstate()[0] + data  # the first bytes of a character whose last ones had not come yet
        try:
            text = decoder.decode(data, not data)
        except UnicodeDecodeError as error:
            decoder.errors = "replace"
            text = decoder.decode(data, not data)
            decoder.errors = "strict"
            kept = held.decode(encoding, "ignore").count("\ufffd")  # those that were there before
            what = INVALID.format(encoding.upper())
            note(what, name, f"byte {place + error.start:,}", text.count("\ufffd") - kept)
        if "\0" in text:
            at = held.find(b"\0")
            note("NUL bytes: dropped", name, f"byte {place + at:,}" if encoding == "utf-8" else "", text.count("\0"))
            text = text.replace("\0", "")
        place += len(held) - len(decoder.getstate()[0])
        if text := newlines.decode(text, not data):
            yield text
