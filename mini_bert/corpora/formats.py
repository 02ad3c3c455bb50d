"""Read one file of text as passages: pieces of documents that are small enough to hold in memory.

    bytes ──unpacked──▶ bytes ──decoded──▶ text ──by format──▶ Passage, Passage, …
           gz xz bz2 zst       UTF-8, UTF-16      txt jsonl csv tsv      (each file of a zip or tar: archives.py)

Each arrow is a generator that holds one block at a time, so a file of any size takes a few megabytes, even a small gzip
that unpacks to one huge line. (Only a *record* must be in memory as a whole: a JSON line or CSV row of more than
LONGEST_RECORD characters is left out and counted.)

Nothing is lost silently. What can be repaired is repaired and reported to `note(what, file, place, count)`: bytes that
are not UTF-8, NUL bytes, lines too long for one passage, broken JSON lines. The rest is an error that names the file
and the place: a truncated compressed file, a file that is not text, a file that changed while it was read.
"""

from __future__ import annotations

import csv
import json
import os
import re
from collections.abc import Iterable, Iterator
from importlib import import_module
from itertools import chain
from typing import Any, BinaryIO, NamedTuple

from mini_bert.common.extras import extra
from mini_bert.corpora.archives import TARS, ZIP, members
from mini_bert.corpora.decoding import PACKED, STANDARD_INPUT, Note, NotText, decoded, unpacked

PASSAGE = 1 << 20  # characters of the longest passage
LONGEST_RECORD = 1 << 24  # characters of the longest JSON line or CSV row
COLUMNS = (  # usual names of text columns, the most likely first
    *("text", "content", "sentence", "document", "article", "body", "passage", "paragraph", "story", "review"),
    *("comment", "abstract", "context", "raw_content", "full_text", "tweet", "question", "description", "title"),
)


class Passage(NamedTuple):
    """A piece of a document of at most PASSAGE characters; `first`: it begins a new document."""

    text: str
    first: bool


# --- formats -----------------------------------------------------------------------------------------------

FORMATS = {
    **dict.fromkeys((".txt", ".text", ".md", ".raw", ".tokens", ""), "txt"),
    **{".jsonl": "jsonl", ".ndjson": "jsonl", ".csv": "csv", ".tsv": "tsv", ".parquet": "parquet"},
    **dict.fromkeys((ZIP, *TARS), "archive"),
}


def format_of(name: str) -> str | None:
    """The format that a file name implies: txt, jsonl, csv, tsv, parquet, archive, or None if it is unknown.

    >>> format_of("wiki.jsonl.gz"), format_of("wiki_00"), format_of("cat.png")
    ('jsonl', 'txt', None)
    """
    stem, ending = os.path.splitext(os.path.basename(name).lower())
    if ending in PACKED:
        ending = os.path.splitext(stem)[1]
    if ending[1:].isdigit():  # part.01
        ending = ""
    return FORMATS.get(ending)


def read_file(file: BinaryIO, name: str, note: Note, column: str | None = None) -> Iterator[Passage]:
    """The passages of an open file. Its format follows from `name`, which is also used in messages."""
    format = format_of(name)
    if format == "parquet":
        return parquet_passages(file, name, note, column)
    if format == "archive":
        return archive_passages(file, name, note, column)
    blocks = decoded(unpacked(file, name), name, note)
    if format == "jsonl":
        return jsonl_passages(blocks, name, note, column)
    if format in ("csv", "tsv"):
        return csv_passages(blocks, name, note, column, tabs=format == "tsv")
    if format is None or not os.path.splitext(name)[1]:  # a pipe, or a file without an extension
        return unnamed_passages(blocks, name, note, column)
    return text_passages(blocks, name, note)


def archive_passages(file: BinaryIO, name: str, note: Note, column: str | None) -> Iterator[Passage]:
    """The files in an archive, like those in a folder. (Parquet must be read in random order, so it is skipped.)"""
    for member, path in members(file, name, note, lambda path: format_of(path) not in (None, "parquet")):
        try:
            yield from read_file(member, path, note, column)
        except NotText:
            note("skipped, not text", path, "", 1)


def unnamed_passages(blocks: Iterator[str], name: str, note: Note, column: str | None) -> Iterator[Passage]:
    """Guess the format from the content: JSON lines if the first line begins like a JSON object, a table if a column is
    chosen, else plain text."""
    head = next(blocks, "")
    blocks = chain([head], blocks)
    if re.match(r'\s*\{[ \t]*"', head):
        return jsonl_passages(blocks, name, note, column)
    if name.lower().endswith(".json"):
        raise ValueError(f"{name} is one JSON document, expected JSON lines (.jsonl): an object with text on each line")
    if column:
        return csv_passages(blocks, name, note, column, tabs="\t" in head.partition("\n")[0])
    return text_passages(blocks, name, note)


def lines(blocks: Iterable[str], name: str, note: Note) -> Iterator[tuple[int, str]]:
    """Lines without \\n and their numbers, from 1. Lines of more than LONGEST_RECORD characters are left out."""
    parts: list[str] = []
    length, number = 0, 1
    for block in chain(blocks, [None]):
        head, *others = ["", ""] if block is None else block.split("\n")  # the end of the file ends the last line
        parts.append(head)
        length += len(head)
        if length > LONGEST_RECORD:
            parts.clear()
        for other in others:
            if length > LONGEST_RECORD:
                note(f"lines of more than {LONGEST_RECORD:,} characters: left out", name, f"line {number:,}", 1)
            elif parts != [""] or block is not None:
                yield number, "".join(parts)
            parts, length, number = [other], len(other), number + 1


WITHOUT_TEXT = "records without text in the chosen column: left out"
EMPTY_LINE = re.compile(r"\n\s*\n")
SURROGATE = re.compile("[\ud800-\udfff]")


def text_passages(blocks: Iterable[str], name: str, note: Note) -> Iterator[Passage]:
    """Plain text: an empty line ends a document."""
    rest, first = "", True
    for block in blocks:
        *ended, rest = EMPTY_LINE.split(rest + block)
        for text in ended:
            yield from pieces(text, first, name, note)
            first = True
        if len(rest) > PASSAGE:
            head, rest = _cut(rest, name, note)
            if head:
                yield Passage(head, first)
                first = False
    yield from pieces(rest, first, name, note)


def pieces(text: str, first: bool, name: str, note: Note) -> Iterator[Passage]:
    """Split a document, or its end, into passages, without the white space around them. Empty ones are dropped."""
    while len(text) > PASSAGE:
        head, text = _cut(text, name, note)
        if head:
            yield Passage(head, first)
            first = False
    if text := text.strip():
        yield Passage(text, first)


def _cut(text: str, name: str, note: Note) -> tuple[str, str]:
    """Cut off one passage: at a line end, else at white space, else at the maximum length."""
    end = text.rfind("\n", 1, PASSAGE)
    if end < 0:
        end = next((i for i in range(PASSAGE, PASSAGE // 2, -1) if text[i].isspace()), PASSAGE)
        note(f"cuts in lines of more than {PASSAGE:,} characters", name, "", 1)
    head, rest = text[:end].strip(), text[end:]
    if not head and "\n" in text[:end]:  # an endless empty line is still an empty line
        rest = "\n" + rest
    return head, rest


def jsonl_passages(blocks: Iterable[str], name: str, note: Note, column: str | None) -> Iterator[Passage]:
    """JSON lines: each is a document, an object with its text under `column`, or just a string."""
    good = bad = 0
    names: list[str] = []  # the fields of the first object
    for number, line in lines(blocks, name, note):
        if not line or line.isspace():
            continue
        problem = WITHOUT_TEXT
        text = None
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            problem = "lines that are not JSON: left out"
        else:
            if isinstance(record, dict):
                names = names or list(record)
                column = column or find_column(record)
                text = as_text(record.get(column)) if column else None
            elif column is None:
                text = as_text(record)
        if text is None:
            bad += 1
            note(problem, name, f"line {number:,}", 1)
        else:
            good += 1
            yield from record_pieces(text, name, note, f"line {number:,}")
        if bad > good and bad >= 100:
            break
    if bad > good:
        if names and column not in names:
            raise ValueError(no_column(name, names, column))
        raise ValueError(
            f"{name}: {bad:,} of the first {good + bad:,} lines are not JSON with text; expected an object on each "
            'line, such as {"text": "..."}. Is it plain text (name it .txt), or one JSON document on many lines?'
        )


def csv_passages(blocks: Iterable[str], name: str, note: Note, column: str | None, tabs: bool) -> Iterator[Passage]:
    """A table with a header: each row is a document. With `tabs`, quotation marks have no special meaning; with commas
    (or semicolons, if the header has them) they do. For a table without a header, `column` is a number, from 1."""
    csv.field_size_limit(max(csv.field_size_limit(), LONGEST_RECORD))
    ended, at = False, 0

    def feed() -> Iterator[str]:
        nonlocal ended, at
        for number, line in lines(blocks, name, note):
            at = number
            yield line + "\n"
        ended = True

    source = feed()
    top = next(source, "")
    options: dict[str, Any] = {"delimiter": max(",;\t", key=top.count)}
    if tabs:
        options = {"delimiter": "\t", "quoting": csv.QUOTE_NONE}
    table = csv.reader(chain([top], source), **options)
    try:
        header = next(table, [])
        title = column or find_column(header)
        first_rows = []
        if title and title.isdigit() and title not in header and 1 <= int(title) <= len(header):  # no header
            index, first_rows = int(title) - 1, [header]
        elif title in header or not header:
            index = header.index(title) if title in header else 0
        else:
            raise ValueError(no_column(name, header, column))
        for row in chain(first_rows, table):
            while len(row) > len(header) and not row[-1]:  # a comma at the end
                row.pop()
            if len(row) > len(header):
                what = "rows with more fields than the header: is a separator in a text not quoted?"
                note(what, name, f"line {at:,}", 1)
                if index + 1 == len(header):
                    row[index:] = [options["delimiter"].join(row[index:])]
            if index < len(row):
                yield from record_pieces(row[index], name, note, f"line {at:,}")
            elif row:
                note("rows without the chosen column: left out", name, f"line {at:,}", 1)
            if ended:  # the file ended inside this row
                note("quotation marks that never close, so the rest of the file is one field", name, f"line {at:,}", 1)
                break
    except csv.Error as error:
        raise ValueError(
            f"{name}, line {at:,}: cannot be read as a CSV table ({error}). Is a quotation mark never closed?"
        ) from error


def parquet_passages(file: BinaryIO, name: str, note: Note, column: str | None) -> Iterator[Passage]:
    """Parquet: each row is a document. About a thousand rows are read at a time."""
    parquet = extra("pyarrow.parquet", f"{name} is a Parquet file, and pyarrow reads those")
    arrow = import_module("pyarrow")
    try:
        table = parquet.ParquetFile(file)
        names = table.schema_arrow.names
        title = column or find_column(names)
        if title not in names:
            raise ValueError(no_column(name, names, column))
        number = 0
        for batch in table.iter_batches(batch_size=1024, columns=[title]):
            values = batch.column(0)
            if arrow.types.is_string(values.type) or arrow.types.is_large_string(values.type):
                values = values.cast(arrow.large_binary())  # strings may be invalid UTF-8: `as_text` checks them
            for value in values.to_pylist():
                number += 1
                text = as_text(value)
                if text is None:
                    note(WITHOUT_TEXT, name, f"row {number:,}", 1)
                else:
                    yield from record_pieces(text, name, note, f"row {number:,}")
    except arrow.ArrowException as error:
        raise ValueError(f"{name} is not a complete Parquet file ({error}). Copy it again") from error


def record_pieces(text: str, name: str, note: Note, place: str) -> Iterator[Passage]:
    """The passages of a record. JSON can contain what UTF-8 cannot: NUL, and halves of surrogate pairs."""
    if "\0" in text:
        note("NUL bytes: dropped", name, place, text.count("\0"))
        text = text.replace("\0", "")
    if not text.isascii() and SURROGATE.search(text):
        text, count = SURROGATE.subn("\ufffd", text)
        note("characters that are not Unicode: replaced by U+FFFD", name, place, count)
    if not text or text.isspace():
        note("records of empty text: left out", name, place, 1)
    yield from pieces(text, True, name, note)


def as_text(value: Any) -> str | None:
    """The text of a field: a string, bytes, or a list of strings (paragraphs). None if it contains no text."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "surrogateescape")  # record_pieces counts and replaces invalid bytes
    if isinstance(value, list) and all(isinstance(part, str | bytes) for part in value):
        return "\n".join(as_text(part) or "" for part in value)
    return value if isinstance(value, str) else None


def find_column(names: Iterable[str]) -> str | None:
    """The most likely name of the text column.

    >>> find_column(["id", "Title", "Text"])
    'Text'
    """
    lower = {name.strip().lower(): name for name in reversed(list(names))}
    return next((lower[name] for name in COLUMNS if name in lower), None)


def no_column(name: str, names: Iterable[str], column: str | None) -> str:
    missing = f"no column {column!r}" if column else "no column with a usual name such as text or sentence"
    there = ", ".join(repr(name[:40]) for name in names)
    choice = "--column NAME" if name == STANDARD_INPUT else f"{name}::NAME"
    return (
        f"{name} has {missing}; it has {there}. Choose one: {choice} (1 for the first, if there is no header). "
        "If files have different columns, list the files, each with its own ::NAME"
    )
