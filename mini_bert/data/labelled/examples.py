"""Labelled examples: their types, what is wrong with a file of them, and how such a file is opened.

`data/labelled/readers.py` and `data/labelled/conll.py` read files into these types, `data/synthetic/dataset.py` makes
them up; probes and fine-tuning take them from either.
"""

from __future__ import annotations

import difflib
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
    """Two texts, and how alike they are"""

    first: str
    second: str
    score: float
    line: int


class Tagged(NamedTuple):
    """The words of a sentence, a tag for each; `line`: where the sentence starts"""

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
    """A question, a text that answers it, the answers that people gave, and where in the text each starts

    `line`: the number of the question in its file, from 1 (of JSON lines: the line). SQuAD's files are one long line.
    """

    id: str
    question: str
    context: str
    answers: list[str]
    starts: list[int]  # in characters, as Python counts them
    line: int


class LabelError(ValueError):
    """A file that does not keep its own rules. The message begins with the file and the line"""

    def __init__(self, path: Path, line: int | None, problem: str):
        super().__init__(f"{os.fspath(path)}:{line}: {problem}" if line else f"{os.fspath(path)}: {problem}")
        self.path, self.line = os.fspath(path), line


class ColumnError(LabelError):
    """A table lacks a column, which `argument` of the reader could have named; a command has an option for that"""

    def __init__(self, path: Path, line: int, lack: str, argument: str, remedy: str | None = None):
        told = remedy or f'Name the one you mean, {argument}="…", or give its number, from 1, if there is no header'
        super().__init__(path, line, f"{lack}. {told}")
        self.lack, self.argument = lack, argument

    def with_remedy(self, remedy: str) -> ColumnError:
        """The same in the words of a command"""
        assert self.line is not None
        return ColumnError(self.path, self.line, self.lack, self.argument, remedy)


def label_names(examples: Iterable[Labelled | Tagged | Parsed]) -> list[str]:
    """Every label or tag that occurs, once, in order (numbers by their size)

    >>> label_names([Labelled("fine", None, "10", 1), Labelled("bad", None, "9", 2)])
    ['9', '10']
    """
    names = {name for example in examples for name in _labels(example)}
    if all(name.isdecimal() for name in names):
        return sorted(names, key=lambda name: (int(name), name))
    return sorted(names)


def check_labels(
    examples: Iterable[Labelled | Tagged | Parsed], known: Iterable[str], path: Path | None = None
) -> None:
    """LabelError at the first label that is not among the known ones: a model that never saw it cannot learn it"""
    names = list(dict.fromkeys(known))
    allowed = set(names)
    for example in examples:
        for number, name in enumerate(_labels(example)):
            if name not in allowed:
                at = "" if isinstance(example, Labelled) else f" of word {number + 1}, {example.words[number]!r},"
                close = difflib.get_close_matches(name, names, 1)
                meant = f"; is it {close[0]!r}?" if close else ""
                problem = f"the label{at} {name!r} is not one of those in the training data: {listed(names)}{meant}"
                raise LabelError("examples" if path is None else path, line_of(path, example, number), problem)


def line_of(path: Path | None, example: Labelled | Tagged | Parsed, number: int) -> int:
    """Where word `number`, counted from 0, of a sentence stands; of a text and its label, the line of both"""
    if isinstance(example, Labelled) or path is None or not os.path.isfile(path):
        return example.line
    from mini_bert.data.labelled.conll import word_line  # which reads such files into these types

    return word_line(path, example.line, number)


def _labels(example: Labelled | Tagged | Parsed) -> list[str]:
    return [example.label] if isinstance(example, Labelled) else example.tags


# --- files -------------------------------------------------------------------------------------------------


def content_of(path: Path) -> str:
    """The text of a file, unpacked, its line ends \\n"""
    name = os.fspath(path)

    def note(what: str, file: str, place: str, count: int) -> None:
        if place:  # a byte order mark has none, and is not worth a word
            logger.warning("%s, %s: %s (%s)", file, place, what, counted(count, "time"))

    if format_of(name) == "parquet":
        raise LabelError(path, None, "a Parquet file is not read here; save it as .jsonl, .csv or .tsv")
    with open(path, "rb") as file:
        return "".join(decoded(unpacked(file, name), name, note))


def lines_of(content: str) -> Iterator[tuple[int, str]]:
    """Lines with their numbers, from 1. Only \\n ends one: a tweet may hold the other line ends of Unicode"""
    return enumerate(content.removesuffix("\n").split("\n"), 1)


def json_lines(path: Path, content: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """The objects of JSON lines, with their lines"""
    for line, text in lines_of(content):
        if not text or text.isspace():
            continue
        record = parsed_json(path, line, text)
        if not isinstance(record, dict):
            expected = 'expected one, such as {"text": "…", "label": 1}'
            raise LabelError(path, line, f"{text!r:.40} is no object; {expected}")
        yield line, record


def parsed_json(path: Path, line: int, text: str) -> Any:
    """What a text in JSON says; `line`: where it starts"""
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        at = line + error.lineno - 1
        raise LabelError(path, at, f"not JSON: {error.msg} at character {error.colno}. Is it cut short?") from error
    except RecursionError as error:
        raise LabelError(path, line, "not JSON that can be read: too many brackets inside each other") from error
    # JSON can write halves of characters, \ud83d, which no tokenizer and no file can take.
    if "\\ud" in text.lower() and (half := SURROGATE.search(json.dumps(value, ensure_ascii=False))):
        raise LabelError(path, line, f"{half[0]!r} in a text is half of a character; write the whole of it")
    return value


def some(path: Path, found: list[T]) -> list[T]:
    """The examples, if there is one"""
    if not found:
        raise LabelError(path, None, "there is no example in it")
    return found


def listed(names: Iterable[str], most: int = 12) -> str:
    shown = [repr(name if len(name) <= 40 else name[:39] + "…") for name in names]
    return ", ".join(shown[:most]) + (f" and {len(shown) - most} more" if len(shown) > most else "")
