"""Read text from files, folders, patterns, standard input, downloaded data sets and the built-in corpus.

    from mini_bert.corpora.reading import Report, read

    report = Report()
    for text, first in read("my_texts/", report):  # first: this passage begins a new document
        ...
    print(report)

A source is one of these, or a list of them:

    notes.txt  wiki.jsonl.gz     a file: .txt .jsonl .csv .tsv .parquet, plain or .gz .xz .zst .bz2
    table.csv::review            one column of it; by default, a column called text, sentence or similar
    texts.zip  texts.tar.gz      every such file in the archive
    my_texts/                    every file of a known type in the folder and below it, sorted
    data/**/*.txt                a pattern, sorted
    -                            standard input
    builtin  builtin:train  builtin:validation     the English documentation in this Python installation
    wikitext-2                   a data set that `mini-bert data get` has downloaded

An iterator of str (not a list) is the text itself: each str is a document.

`Report` counts what was read and everything that was skipped, repaired or left out. Without a report, `read` ends with
a warning if there was any such problem. `identity` is a hash of what a source contains now, as a key for caches.
"""

from __future__ import annotations

import glob
import hashlib
import os
import re
import stat
import sys
import uuid
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from mini_bert.common.extras import MissingExtra
from mini_bert.common.progress import counted
from mini_bert.corpora.decoding import INVALID, STANDARD_INPUT, NotText, conversion, unreadable
from mini_bert.corpora.formats import Passage, format_of, pieces, read_file, record_pieces

__all__ = ["Passage", "Report", "identity", "read", "sample"]

Source = str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | Iterator[str]
READER = 2  # part of every identity: raise it when the same files give different passages
WHOLE = 1 << 23  # bytes: a file up to this size is hashed completely for its identity; of a larger one,
SAMPLES, SAMPLE = 64, 1 << 14  # this many samples of this many bytes, evenly spread from the first byte to the last


@dataclass
class Remark:
    """One kind of problem: how often it occurred, in how many files, and its place in the first few of them."""

    count: int = 0
    files: int = 0
    places: list[str] = field(default_factory=list)
    last: str | None = None  # the file of the latest one; files are read one after the other
    SHOWN = 8

    def __str__(self) -> str:
        more = self.files - len(self.places)
        return "; ".join(self.places) + (f", and in {counted(more, 'more file')}" if more else "")


@dataclass
class Report:
    """What was read, and what was skipped, repaired or left out. `str(report)` is the text of the report."""

    files: int = 0
    documents: int = 0
    characters: int = 0
    remarks: dict[str, Remark] = field(default_factory=dict)  # by what was skipped or done

    def note(self, what: str, name: str, place: str = "", count: int = 1) -> None:
        remark = self.remarks.setdefault(what, Remark())
        remark.count += count
        if remark.last != name:
            remark.last = name
            remark.files += 1
            if len(remark.places) < remark.SHOWN:
                remark.places.append(f"{name}, {place}" if place else name)

    @property
    def clean(self) -> bool:
        """Nothing was skipped, repaired or left out."""
        return not self.remarks

    def __str__(self) -> str:
        files = f"{counted(self.files, 'file')}, " if self.files else ""
        lines = [f"{files}{counted(self.documents, 'document')}, {counted(self.characters, 'character')}"]
        lines += [f"{what}: {remark.count:,} (first in {remark})" for what, remark in self.remarks.items()]
        if remark := self.remarks.get(INVALID.format("UTF-8")):
            name = remark.places[0].rpartition(", ")[0]
            lines.append(f"  if it uses another encoding, such as Latin-1: {conversion(name)}")
        return "\n".join(lines)


def read(source: Source, report: Report | None = None, *, column: str | None = None) -> Iterator[Passage]:
    """The passages of a source, in a fixed order, in bounded memory. `column` chooses the field of records.

    A source without any text is an error.
    """
    if not isinstance(source, Iterator):
        _listed(source)
    return _read(source, report, column)


def _read(source: Source, given: Report | None, column: str | None) -> Iterator[Passage]:
    report = Report() if given is None else given
    documents = report.documents
    for item in _items(source, column, report):
        before = report.documents
        try:
            for passage in item.passages(report):
                report.documents += passage.first
                report.characters += len(passage.text)
                yield passage
            report.files += isinstance(item, File | StandardInput)
        except (NotText, PermissionError, MissingExtra) as error:
            if item.named:
                raise
            lack = error.lack if isinstance(error, MissingExtra) else "permission denied"
            report.note(f"skipped, {'not text' if isinstance(error, NotText) else lack}", item.shown)
        else:
            if report.documents == before:
                report.note("files without text", item.shown)
    if report.documents == documents:
        raise ValueError(f"there is no text in {_words(source)}: {'; '.join(str(report).splitlines())}")
    if given is None and not report.clean:
        warnings.warn(f"reading {_words(source)}: {report}", stacklevel=2)


def _listed(source: Any) -> list[str]:
    """The names of the sources. A wrong type of source is reported at once, not when the first passage is read."""
    items = [source] if isinstance(source, str | os.PathLike) else source
    wrong = [items] if isinstance(items, bytes) or not isinstance(items, Sequence) else items
    for one in wrong:
        if not isinstance(one, str | os.PathLike):
            expected = "expected a path or another source, a list of them, or an iterator of texts"
            raise TypeError(f"the source of text is {one!r:.60}, a {type(one).__name__}: {expected}")
    if not items:
        raise ValueError("the list of sources is empty")
    return [os.fspath(one) for one in items]


def _words(source: Source) -> str:
    if isinstance(source, Iterator):
        return "the iterator"
    names = _listed(source)
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


# --- the items of a source ---------------------------------------------------------------------------------


class File(NamedTuple):
    path: Path
    name: str  # relative to the source: part of its identity
    column: str | None
    named: bool  # given by name: if it cannot be read, that is an error; a file found in a folder is skipped
    begins: str | None = None  # of a data set: a regular expression of a document's first paragraph

    @property
    def shown(self) -> str:
        """The path in reports and errors, which can be given as a source."""
        return str(self.path) if self.named else self.path.as_posix()

    def passages(self, report: Report) -> Iterator[Passage]:
        try:
            file = open(self.path, "rb")  # noqa: SIM115
        except PermissionError as error:
            raise PermissionError(error.errno, "no permission to read this file", str(self.path)) from None
        with file:
            before = os.fstat(file.fileno())
            passages = read_file(file, self.shown, report.note, self.column)
            yield from passages if self.begins is None else _articles(passages, self.begins)
            if stat.S_ISREG(before.st_mode):
                _check_unchanged(self.path, before)

    def identity(self) -> str:
        now = self.path.stat()
        if not stat.S_ISREG(now.st_mode):
            return uuid.uuid4().hex  # a pipe: its content is unknown
        try:
            with open(self.path, "rb") as file:
                head = file.read(4096)
                content = _hash(file, now.st_size)
        except PermissionError:
            return f"{self.name} unreadable"
        if not self.named and unreadable(head, format_of(self.name) == "parquet"):
            return f"{self.name} unreadable"  # until its package is installed
        return f"{self.name} {self.column} {self.begins} {now.st_size} {now.st_mtime_ns} {content}"


def _articles(passages: Iterator[Passage], begins: str) -> Iterator[Passage]:
    """Join paragraphs to documents: a new one begins only at a paragraph that matches."""
    for number, (text, first) in enumerate(passages):
        yield Passage(text, not number or (first and re.match(begins, text) is not None))


def _hash(file: BinaryIO, size: int) -> str:
    """A hash of a file's content, or of samples of it if it is large."""
    content = hashlib.sha256()
    places = [0] if size <= WHOLE else [(size - SAMPLE) * i // (SAMPLES - 1) for i in range(SAMPLES)]
    for place in places:
        file.seek(place)
        content.update(file.read(WHOLE if size <= WHOLE else SAMPLE))
    return content.hexdigest()


def _check_unchanged(path: Path, before: os.stat_result) -> None:
    try:
        after = path.stat()
    except FileNotFoundError:
        raise ValueError(f"{path} disappeared while it was read") from None
    if (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns):
        raise ValueError(
            f"{path} changed while it was read: it had {before.st_size:,} bytes at the start and has {after.st_size:,} "
            "now. Wait until it is finished, or read a copy"
        )


class StandardInput(NamedTuple):
    column: str | None
    shown: str = STANDARD_INPUT
    named: bool = True

    def passages(self, report: Report) -> Iterator[Passage]:
        stream: BinaryIO = sys.stdin.buffer
        if stream.isatty():
            print("Reading text from the keyboard; end it with Ctrl-D (Windows: Ctrl-Z, Enter).", file=sys.stderr)
        return read_file(stream, self.shown, report.note, self.column)

    def identity(self) -> str:
        return uuid.uuid4().hex


class Texts(NamedTuple):
    """An iterator of texts, each a document. It can be read only once."""

    texts: Iterator[str]
    shown: str = "the iterator"
    named: bool = True

    def passages(self, report: Report) -> Iterator[Passage]:
        for number, text in enumerate(self.texts):
            if not isinstance(text, str):
                raise TypeError(f"text {number} of the iterator is a {type(text).__name__}, expected str: {text!r:.60}")
            yield from record_pieces(text, self.shown, report.note, f"text {number:,}")

    def identity(self) -> str:
        return uuid.uuid4().hex


class Builtin(NamedTuple):
    split: str
    shown: str = "builtin"
    named: bool = True

    def passages(self, report: Report) -> Iterator[Passage]:
        from mini_bert.corpora.builtin import corpus, documents

        whole = corpus()
        for missing in whole.notes:
            report.note(missing, self.shown)
        for document in documents(self.split, whole):
            yield from pieces(document.text, True, self.shown, report.note)

    def identity(self) -> str:
        from mini_bert.corpora.builtin import fingerprint

        return f"builtin:{self.split} {fingerprint()}"


def _items(source: Source, column: str | None, report: Report) -> Iterator[Any]:
    if isinstance(source, Iterator):
        yield Texts(source)
    else:
        for name in _listed(source):
            yield from _resolve(name, column, report)


def _matching(pattern: str) -> list[str]:
    """The paths that a pattern matches. `**` does not follow links to folders, which may lead back to where we are."""
    if "**" not in pattern:
        return glob.glob(pattern)
    parts = Path(pattern).parts
    first = next(index for index, part in enumerate(parts) if glob.has_magic(part))
    base, below = Path(*parts[:first]), "/".join([*parts[first:], "*"] if parts[-1] == "**" else parts[first:])
    shown = (path for path in base.glob(below) if not any(part[0] == "." for part in path.relative_to(base).parts))
    return [str(path) for path in shown]


def _resolve(source: str, column: str | None, report: Report) -> Iterator[Any]:
    path = Path(source)
    if source == "-":
        yield StandardInput(column)
    elif source == "builtin" or source.startswith("builtin:"):
        split = source.partition(":")[2] or "all"
        if split not in ("all", "train", "validation"):
            raise ValueError(
                f"the built-in corpus has no part {split!r}; expected builtin, builtin:train or builtin:validation"
            )
        yield Builtin(split)
    elif os.path.isdir(source):  # os.path accepts any str, even one that is too long for a path
        yield from _folder(path, column, report)
    elif os.path.exists(source):
        yield File(path, path.name, column, named=True)
    elif "::" in source:
        where, _, column = source.rpartition("::")
        yield from _resolve(where, column, report)
    elif glob.has_magic(source):
        matches = sorted(_matching(source), key=len, reverse=True)
        if not matches:
            raise FileNotFoundError(f"no file matches {source!r:.100}{_texts_hint(source)}")
        places = {(os.path.realpath(os.path.dirname(match)), os.path.basename(match)): match for match in matches}
        for match in map(Path, sorted(places.values())):  # a file that links lead to again is read once
            if match.is_file():
                yield File(match, match.as_posix(), column, named=False)
            elif not match.is_dir():  # a pipe would wait forever for its other end
                report.note("skipped, not a regular file", match.as_posix())
            elif "**" not in source:  # ** already matches the files below
                yield from _folder(match, column, report)
    else:
        from mini_bert.corpora.downloads import DATASETS, corpus_files

        if hint := _texts_hint(source):
            raise FileNotFoundError(f"there is no file, folder or data set {source!r:.100}{hint}")
        for path in corpus_files(source):
            begins = DATASETS[source.partition(":")[0]].begins
            yield File(path, f"{source}/{path.name}", column, named=True, begins=begins)


def _texts_hint(source: str) -> str:
    """A hint for a source with spaces, which is perhaps a text and not a name."""
    if len(source.split()) < 2:
        return ""
    return ". (A str or a list of str names sources. To pass the texts themselves, use an iterator: iter(texts))"


def _folder(root: Path, column: str | None, report: Report) -> Iterator[File]:
    """Every file of a known type, sorted by path, so that the order is the same on every system."""
    paths = []
    seen = set()

    def denied(error: OSError) -> None:
        report.note("skipped, no permission to open the folder", str(error.filename))

    for folder, below, names in os.walk(root, followlinks=True, onerror=denied):
        if (real := os.path.realpath(folder)) in seen:  # a link that leads back up
            below.clear()
            continue
        seen.add(real)
        for name in below + names:
            if name.startswith("."):
                report.note("skipped, hidden", Path(folder, name).as_posix())
        below[:] = sorted(name for name in below if not name.startswith("."))
        paths += [Path(folder, name) for name in names if not name.startswith(".")]
    paths.sort(key=lambda path: path.relative_to(root).parts)
    for path in paths:
        if not path.is_file():
            report.note("skipped, not a regular file", path.as_posix())
        elif format_of(path.name) is None:
            report.note(f"skipped, {path.suffix} is not a known type of text file", path.as_posix())
        else:
            yield File(path, path.relative_to(root).as_posix(), column, named=False)


def identity(source: Source, *, column: str | None = None) -> str:
    """A hash of what `read` would read now: names below the source, sizes, times and content of every file; for a file
    of more than 8 MB, 64 samples of its content.

    It stays the same until something changes, even if a folder is moved. Standard input and pipes get a new one each
    time.
    """
    content = hashlib.sha256(f"mini-bert corpus {READER} None".encode())  # None: as earlier versions wrote it
    for item in _items(source, column, Report()):
        content.update(b"\n" + item.identity().encode("utf-8", "surrogateescape"))
    return content.hexdigest()


def sample(passages: Iterable[Passage], count: int) -> list[str]:
    """Read all passages and return the beginnings of a few that are spread over them."""
    starts = []
    for number, (text, _) in enumerate(passages):
        if number & (number - 1) == 0:  # passages 0, 1, 2, 4, 8, …
            words = " ".join(text[:400].split())
            starts.append(words if len(words) <= 300 else f"{words[:300]} …")
    return starts[-count:] if count else []
