"""Labelled examples: their types, the errors of a file, and opening one.

`readers.py` and `conll.py` read files into these types; `data/synthetic/dataset.py` generates them.
"""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, TypeVar

from mini_bert.common.progress import counted
from mini_bert.corpora.decoding import decoded, unpacked
from mini_bert.corpora.formats import format_of

Path = str | os.PathLike[str]
T = TypeVar("T")
SURROGATE = re.compile("[\ud800-\udfff]")
logger = logging.getLogger(__name__)


class Labelled(NamedTuple):
    """A text, or a pair of texts, and the class it belongs to"""

    text: str
    second: str | None
    label: str
    line: int


class Scored(NamedTuple):
    """Two texts and how similar they are"""

    first: str
    second: str
    score: float
    line: int


class Tagged(NamedTuple):
    """The words of a sentence, with a tag for each; `line`: where the sentence starts"""

    words: list[str]
    tags: list[str]
    line: int


class Parsed(NamedTuple):
    """A sentence with its dependency tree: the head of each word, counted from 1, or 0 for the root"""

    words: list[str]
    tags: list[str]  # universal parts of speech
    heads: list[int]
    relations: list[str]
    line: int


class Question(NamedTuple):
    """A question, a text that contains the answer, the accepted answers, and where each starts in the text

    `line`: the number of the question in its file, from 1, since SQuAD's files are one long line; the line in .jsonl.
    """

    id: str
    question: str
    context: str
    answers: list[str]
    starts: list[int]  # in characters, as Python counts them
    line: int


class LabelError(ValueError):
    """An invalid file. The message begins with the file and the line"""

    def __init__(self, path: Path, line: int | None, problem: str):
        super().__init__(f"{os.fspath(path)}:{line}: {problem}" if line else f"{os.fspath(path)}: {problem}")
        self.path, self.line = os.fspath(path), line


class ColumnError(LabelError):
    """A table lacks a column. `argument` is the reader's argument that names it; a command has an option for it

    `number` is the first column that may be it, as an example for the remedy; None: all have another use.
    """

    def __init__(self, path: Path, line: int, lack: str, argument: str, number: int | None, remedy: str | None = None):
        remedy = remedy or f'Name the column with {argument}="…", or, if there is no header, give its number from 1'
        super().__init__(path, line, f"{lack}. {remedy}")
        self.lack, self.argument, self.number = lack, argument, number

    def with_remedy(self, remedy: str) -> ColumnError:
        """The same error with the remedy of a command"""
        assert self.line is not None
        return ColumnError(self.path, self.line, self.lack, self.argument, self.number, remedy)

    def with_option(self, option: str) -> ColumnError:
        """The same error with the remedy of a command that has this option for the column"""
        example = "" if self.number is None else f", such as {option} {self.number}"
        number = f"give its number, which is counted from 1{example}"
        return self.with_remedy(f"Name the column with {option} NAME, or, if there is no header, {number}")


# --- files -------------------------------------------------------------------------------------------------


def content_of(path: Path) -> str:
    """The decompressed text of a file, with \\n line ends"""
    name = os.fspath(path)

    def note(what: str, file: str, place: str, count: int) -> None:
        if place:  # no warning for a byte order mark, which has no place
            logger.warning("%s, %s: %s (%s)", file, place, what, counted(count, "time"))

    if format_of(name) == "parquet":
        raise LabelError(path, None, "Parquet is not supported here; save it as .jsonl, .csv or .tsv")
    with open(path, "rb") as file:
        return "".join(decoded(unpacked(file, name), name, note))


def lines_of(content: str) -> Iterator[tuple[int, str]]:
    """Lines with their numbers, from 1. Only \\n ends a line: tweets may contain Unicode's other line separators"""
    return enumerate(content.removesuffix("\n").split("\n"), 1)


def json_lines(path: Path, content: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """The objects of a JSON lines file, with their line numbers"""
    for line, text in lines_of(content):
        if not text or text.isspace():
            continue
        record = parsed_json(path, line, text)
        if not isinstance(record, dict):
            expected = 'expected an object, such as {"text": "…", "label": 1}'
            raise LabelError(path, line, f"found {text!r:.40}, {expected}")
        yield line, record


def parsed_json(path: Path, line: int, text: str) -> Any:
    """The value of a JSON text that starts on this line"""
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        at = line + error.lineno - 1
        raise LabelError(path, at, f"not JSON: {error.msg} at character {error.colno}. Is it cut short?") from error
    except RecursionError as error:
        raise LabelError(path, line, "the JSON is nested too deeply") from error
    # JSON can contain lone surrogates, \ud83d, which cannot be encoded.
    if "\\ud" in text.lower() and (half := SURROGATE.search(json.dumps(value, ensure_ascii=False))):
        raise LabelError(path, line, f"{half[0]!r} is half of a surrogate pair; write the whole character")
    return value


def some(path: Path, examples: list[T]) -> list[T]:
    """Checks that there are examples"""
    if not examples:
        raise LabelError(path, None, "the file has no examples")
    return examples


def listed(names: Iterable[str], most: int = 12) -> str:
    shown = [repr(name if len(name) <= 40 else name[:39] + "…") for name in names]
    return ", ".join(shown[:most]) + (f" and {len(shown) - most} more" if len(shown) > most else "")
