"""Decompress, decode and check the bytes of a text file, a block at a time.

What can be repaired is repaired and reported to `note(what, file, place, count)`. The rest is an error that names the
file and the position: a truncated or damaged compressed file, a file that is not text.
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

STANDARD_INPUT = "standard input"  # its name in messages
BLOCK = 1 << 18  # bytes read at once
SIP = 1 << 10  # bytes decompressed at once: at most some 20 MB of content
Note = Callable[[str, str, str, int], None]  # what, file, place in it, how often


class NotText(ValueError):
    """The file is binary, or in an unknown encoding. Raised before any text of it is returned."""


# --- bytes to bytes ----------------------------------------------------------------------------------------

PACKED = {".gz": "gzip", ".xz": "xz", ".zst": "zstd", ".bz2": "bzip2"}
MAGIC = {  # their first bytes
    "gzip": re.compile(rb"\x1f\x8b\x08"),
    "xz": re.compile(rb"\xfd7zXZ\0"),
    "zstd": re.compile(rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18"),  # the second: a skippable frame
    "bzip2": re.compile(rb"BZh[1-9](?:1AY&SY|\x17rE8P\x90)"),
}


def unpacked(file: BinaryIO, name: str) -> Iterator[bytes]:
    """The content in blocks of about BLOCK bytes, decompressed if the first bytes say that it is compressed."""
    blocks = iter(lambda: file.read(BLOCK), b"")
    head = next(blocks, b"")
    packing = next((packing for packing, magic in MAGIC.items() if magic.match(head)), None)
    promised = PACKED.get(os.path.splitext(name.lower())[1])
    if promised and promised != packing:
        content = f"its first bytes are {head[:6]!r}" if head else "it is empty"
        raise ValueError(f"{name} is not a {promised} file, although its name says so: {content}. Download it again")
    blocks = chain([head] if head else [], blocks)
    return blocks if packing is None else _decompress(blocks, packing, name)


def _decompress(blocks: Iterable[bytes], packing: str, name: str) -> Iterator[bytes]:
    """The content of one or more concatenated compressed streams.

    The input is decompressed in sips, so that a small file with a huge content does not fill the memory.
    """
    new_stream, broken = _decompressor(packing, name)
    stream, content = None, bytearray()
    taken = given = 0
    try:
        for block in blocks:
            taken += len(block)
            for start in range(0, len(block), SIP):
                data = block[start : start + SIP]
                while data and (stream or (data := data.lstrip(b"\0"))):  # zeros between streams are padding
                    stream = stream or new_stream()
                    content += stream.decompress(data)
                    data, stream = (stream.unused_data, None) if stream.eof else (b"", stream)
                if len(content) >= BLOCK:
                    given += len(content)
                    yield bytes(content)
                    content.clear()
    except broken as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise  # the disk failed, the content may be fine
        place = f"after {given + len(content):,} bytes of content, within the first {taken:,} compressed bytes"
        raise ValueError(f"{name}: its {packing} data is damaged {place} ({error}). Copy it again") from error
    if stream is not None:
        given += len(content)
        raise ValueError(
            f"{name} is truncated: its {packing} data ends after {taken:,} bytes ({given:,} decompressed), in the "
            "middle of a stream. Copy it again"
        )
    if content:
        yield bytes(content)


def _decompressor(packing: str, name: str) -> tuple[Callable[[], Any], tuple[type[Exception], ...]]:
    """Returns a function that starts a stream, and the exceptions that it raises for damaged input."""
    if packing == "gzip":
        return lambda: zlib.decompressobj(16 + zlib.MAX_WBITS), (zlib.error,)
    if packing == "xz":
        return lzma.LZMADecompressor, (lzma.LZMAError,)
    if packing == "bzip2":
        return bz2.BZ2Decompressor, (OSError, ValueError)
    try:
        zstd: Any = import_module("compression.zstd")  # Python 3.14 and later
        return zstd.ZstdDecompressor, (zstd.ZstdError,)
    except ImportError:
        zstandard = extra("zstandard", f"{name} is compressed with zstd, which needs the package zstandard")
        return lambda: zstandard.ZstdDecompressor().decompressobj(), (zstandard.ZstdError,)


def unreadable(head: bytes, parquet: bool) -> bool:
    """Whether reading a file with these first bytes needs a package that is not installed."""
    try:
        if parquet:
            extra("pyarrow.parquet", "")
        elif MAGIC["zstd"].match(head):
            _decompressor("zstd", "")
    except MissingExtra:
        return True
    return False


# --- bytes to text -----------------------------------------------------------------------------------------

MARKS = {  # byte order marks; the longer ones first, because that of UTF-32 begins with that of UTF-16
    codecs.BOM_UTF32_LE: "utf-32-le",
    codecs.BOM_UTF32_BE: "utf-32-be",
    codecs.BOM_UTF8: "utf-8",
    codecs.BOM_UTF16_LE: "utf-16-le",
    codecs.BOM_UTF16_BE: "utf-16-be",
}
SIGNATURES = {
    b"%PDF-": "a PDF", b"PK\x03\x04": "a zip archive", b"\x89PNG": "a PNG picture", b"\xff\xd8\xff": "a JPEG picture",
    b"PAR1": "a Parquet file (name it .parquet)", b"\x80\x04\x95": "a pickle", b"{\\rtf": "an RTF document",
}  # fmt: skip
INVALID = "bytes that are not {}: replaced by U+FFFD"
CONTROLS = bytes({*range(32), 127} - set(b"\t\n\v\f\r\b\x1b"))


def encoding_of(head: bytes, name: str) -> tuple[str, int]:
    """Returns the encoding and the length of its byte order mark. Raises NotText if it does not look like text."""
    for mark, encoding in MARKS.items():
        if head.startswith(mark):
            return encoding, len(mark)
    for signature, what in SIGNATURES.items():
        if head.startswith(signature):
            raise NotText(f"{name} is {what}, not text")
    head = head[: 1 << 16]
    invalid = head.decode("utf-8", "replace").count("\ufffd") - head.decode("utf-8", "ignore").count("\ufffd")
    bad = invalid + len(head) - len(head.translate(None, CONTROLS))
    if bad > 2 + len(head) // 10:
        even, odd = (head[start::2].count(0) > len(head) // 6 for start in (0, 1))  # in UTF-16, every other byte
        guess = "LATIN1" if even == odd else "UTF-16LE" if odd else "UTF-16BE"
        raise NotText(
            f"{name} is not UTF-8 text: {bad:,} of its first {len(head):,} bytes are control characters or invalid. "
            f"If it is text in another encoding, such as {guess}, convert it: {conversion(name, guess)}"
        )
    return "utf-8", 0


def conversion(name: str, encoding: str = "LATIN1") -> str:
    """The command that converts a file to UTF-8.

    >>> conversion("notes.txt")
    'iconv -f LATIN1 -t UTF-8 notes.txt > notes.utf8.txt'
    """
    stem, ending = os.path.splitext(name)
    if name == STANDARD_INPUT:
        return f"... | iconv -f {encoding} -t UTF-8 | ..."
    if ending in PACKED:
        return f"decompress it, then {conversion(stem, encoding)}"
    return f"iconv -f {encoding} -t UTF-8 {shlex.quote(name)} > {shlex.quote(f'{stem}.utf8{ending}')}"


def decoded(blocks: Iterator[bytes], name: str, note: Note) -> Iterator[str]:
    """Text with \\n at line ends and without NUL. Invalid bytes become U+FFFD and are counted."""
    head = next(blocks, b"")
    encoding, skip = encoding_of(head, name)
    if skip:
        note(f"byte order mark of {encoding.upper()}: used and dropped", name, "", 1)
    decoder: Any = codecs.getincrementaldecoder(encoding)("strict")
    newlines = io.IncrementalNewlineDecoder(None, translate=True)
    place = skip  # position of the first byte that is not decoded yet
    for data in chain([head[skip:]], blocks, [b""]):
        held = decoder.getstate()[0] + data  # with the first bytes of a character that is not complete yet
        try:
            text = decoder.decode(data, not data)
        except UnicodeDecodeError as error:
            decoder.errors = "replace"
            text = decoder.decode(data, not data)
            decoder.errors = "strict"
            kept = held.decode(encoding, "ignore").count("\ufffd")  # those in the original text
            what = INVALID.format(encoding.upper())
            note(what, name, f"byte {place + error.start:,}", text.count("\ufffd") - kept)
        if "\0" in text:
            at = held.find(b"\0")
            note("NUL bytes: dropped", name, f"byte {place + at:,}" if encoding == "utf-8" else "", text.count("\0"))
            text = text.replace("\0", "")
        place += len(held) - len(decoder.getstate()[0])
        if text := newlines.decode(text, not data):
            yield text
