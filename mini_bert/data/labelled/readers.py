"""Reads labelled text from files, for fine-tuning, probing and evaluation.

    read_labelled("train.tsv")     a text, or a pair of texts, and its label     .tsv .csv .jsonl
    read_scored("pairs.csv")       two texts and how similar they are            .tsv .csv .jsonl
    read_tagged("train.conll")     words, a tag for each (entities, BIO)         CoNLL, CoNLL-U, .jsonl
    read_conllu("dev.conllu")      words, parts of speech, dependency trees      CoNLL-U
    read_squad("dev-v1.1.json")    questions, texts, answers with their place    SQuAD's JSON, .jsonl
    read_sentences("wiki.txt")     the sentences of plain text                   .txt
    read_texts("new.tsv")          texts or pairs to predict for, without labels .tsv .csv .jsonl

All of them may be compressed (.gz .xz .bz2 .zst). Nothing is guessed or skipped silently: an invalid file raises a
LabelError with the file, the line, what was found and what was expected. Each example keeps its line, so that later
errors can name it too.

Columns can be given by number, from 1 (even if one is called 1). Then the first line is a header only if one of its
fields is a usual name of its column (text, label, …) that no other line has there, or if another column is given by a
name in it. A warning shows it.
"""

from __future__ import annotations

import csv
import logging
import math
import os
import re
from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Any

from mini_bert.common.progress import counted
from mini_bert.corpora.formats import LONGEST_RECORD, format_of
from mini_bert.data.labelled.conll import SQUAD, read_conllu, read_tagged, task_hint
from mini_bert.data.labelled.examples import (
    ColumnError,
    LabelError,
    Labelled,
    Parsed,
    Path,
    Question,
    Scored,
    Tagged,
    content_of,
    json_lines,
    lines_of,
    listed,
    some,
)
from mini_bert.data.labelled.labels import check_labels, label_names
from mini_bert.data.labelled.squad import read_squad
from mini_bert.data.sentences import split

__all__ = [
    "ColumnError",
    "LabelError",
    "Labelled",
    "Parsed",
    "Question",
    "Scored",
    "Tagged",
    "check_labels",
    "label_names",
    "read_conllu",
    "read_labelled",
    "read_scored",
    "read_sentences",
    "read_squad",
    "read_tagged",
    "read_texts",
]

logger = logging.getLogger(__name__)
SHORTEST, LONGEST = 5, 60  # words of a sentence
SOME = 5  # labels that are not more than the texts by chance

# --- tables: .tsv .csv .jsonl ------------------------------------------------------------------------------

PAIRS = (  # usual names for the columns of two texts
    *(("sentence1", "sentence2"), ("premise", "hypothesis"), ("question1", "question2"), ("text1", "text2")),
    *(("sentence_a", "sentence_b"), ("text_a", "text_b"), ("sentence_1", "sentence_2"), ("first", "second")),
    *(("s1", "s2"), ("question", "sentence"), ("question", "passage"), ("#1 string", "#2 string")),
)
TEXTS = ("sentence", "text", "review", "content", "comment", "tweet", "phrase", "utterance", "query", "question")
LABELS = (
    *("gold_label", "label", "labels", "class", "category", "sentiment", "polarity", "target", "intent", "emotion"),
    *("topic", "is_duplicate", "quality", "rating", "stars", "answer"),
)
SCORES = ("score", "similarity", "similarity_score", "relatedness_score", "relatedness", "label", "gold", "rating")
ANY_TEXT = (*TEXTS, *(name for pair in PAIRS for name in pair))
NO_LABEL = "-"  # under gold_label, in SNLI and MultiNLI: the annotators did not agree


def read_labelled(
    path: Path, text: str | None = None, second: str | None = None, label: str | None = None
) -> list[Labelled]:
    """Texts, or pairs of texts, with labels, from a table or JSON lines

    Columns are found by their usual names (sentence, text, sentence1 and sentence2, premise and hypothesis, label,
    gold_label, …), or given by name or by number from 1. `text` without `second` means single texts.
    """
    at, names, records, (text, second, label) = _records(path, (text, ANY_TEXT), (second, ANY_TEXT), (label, LABELS))
    lower = {name.lower() for name in names}
    if second is not None or (text is None and any(lower.issuperset(pair) for pair in PAIRS)):
        text, second = _pair_columns(path, at, names, text, second, "text")
    else:
        text = _column(path, at, names, text, TEXTS, "text", "text", (label, *LABELS))
    label = _column(path, at, names, label, LABELS, "label", "label", (text, second, *ANY_TEXT))
    _check_different(path, at, text=text, second=second, label=label)
    examples = []
    for line, record in records:
        name = _label(path, line, record, label)
        if name == NO_LABEL and label.lower() == "gold_label":
            continue
        pair = None if second is None else _text(path, line, record, second)
        examples.append(Labelled(_text(path, line, record, text), pair, name, line))
    if len(examples) < len(records):
        left = counted(len(records) - len(examples), "example")
        logger.warning("%s: skipped %s with the %s %r (the annotators did not agree)", path, left, label, NO_LABEL)
    _check_swapped(path, examples, text, label)
    if label.isdecimal() and len(examples) > 2 and [one.label for one in examples].count(examples[0].label) == 1:
        logger.warning(
            "%s:%d: only this line has the label %r; if it is a header, give the columns by name", path, at,
            examples[0].label,
        )  # fmt: skip
    return examples


def read_scored(
    path: Path, first: str | None = None, second: str | None = None, score: str | None = None
) -> list[Scored]:
    """Pairs of texts with a similarity score, from a table or JSON lines

    Columns are found by their usual names (sentence1 and sentence2, …, score, similarity, …), or given as in
    `read_labelled`.
    """
    given = (first, ANY_TEXT), (second, ANY_TEXT), (score, SCORES)
    at, names, records, (first, second, score) = _records(path, *given)
    first, second = _pair_columns(path, at, names, first, second, "first")
    score = _column(path, at, names, score, SCORES, "score", "score", (first, second, *ANY_TEXT))
    _check_different(path, at, first=first, second=second, score=score)
    pairs = []
    for line, record in records:
        value = record.get(score)
        try:
            number = math.nan if isinstance(value, bool) or value is None else float(value)
        except (TypeError, ValueError, OverflowError):
            number = math.nan
        if not math.isfinite(number):
            raise LabelError(path, line, f"{score} is {value!r:.40}, expected a number")
        pairs.append(Scored(_text(path, line, record, first), _text(path, line, record, second), number, line))
    return pairs


def read_sentences(path: Path) -> list[Scored]:
    """The sentences of plain text that have SHORTEST to LONGEST words, each once, as a pair with itself

    The order is that of the text. Shorter pieces are mostly headings and exclamations, which are said in many places.
    """
    if format_of(os.fspath(path)) != "txt":
        raise LabelError(path, None, "expected plain text, such as a .txt file: views need sentences, and no scores")
    sentences: dict[str, int] = {}
    for line, text in lines_of(content_of(path)):
        for sentence in split(text):
            if SHORTEST <= len(sentence.split()) <= LONGEST:
                sentences.setdefault(sentence, line)
    if not sentences:
        raise LabelError(path, None, f"there is no sentence of {SHORTEST} to {LONGEST} words")
    return [Scored(sentence, sentence, 1.0, line) for sentence, line in sentences.items()]


def read_texts(
    path: Path, text: str | None = None, second: str | None = None, pairs: bool = False
) -> tuple[list[Labelled], list[str]]:
    """Texts, or pairs of texts, with the label "", from a table or JSON lines; and the names of their columns

    Columns are found as in `read_labelled`; other columns are ignored. A table that has a usual name for none of its
    columns, and no more columns than texts, has no header.
    """
    given = (text, ANY_TEXT), (second, ANY_TEXT)
    at, names, records, (text, second) = _records(path, *given, bare=("1", "2")[: 1 + pairs])
    if pairs:
        text, second = _pair_columns(path, at, names, text, second, "text")
    else:
        text = _column(path, at, names, text, TEXTS, "text", "text")
    _check_different(path, at, text=text, second=second)
    examples = [
        Labelled(_text(path, line, record, text), _text(path, line, record, second) if second else None, "", line)
        for line, record in records
    ]
    return examples, [text] if second is None else [text, second]


Record = tuple[int, dict[str, Any]]  # the line of an example, and its fields by their names
Given = tuple[str | None, Sequence[str]]  # the name or number that was given for a column, and its usual names


def _records(
    path: Path, *given: Given, bare: Sequence[str] = ()
) -> tuple[int, list[str], list[Record], list[str | None]]:
    """Returns the line of the header, its names, the rows, and the names of the given columns

    For JSON lines, the first object is the header. In a table without a header, the columns are called 1, 2, …
    bare: the columns to take if none are given, none has a usual name and there are no others.
    """
    content = content_of(path)
    top = content.lstrip().partition("\n")[0]
    format = format_of(os.fspath(path)) or ("jsonl" if top.startswith("{") else None)
    if format == "jsonl" and not re.match(SQUAD, content):
        records = some(path, list(json_lines(path, content)))
        at, names = records[0][0], list(records[0][1])
    elif format in ("tsv", "csv") or (format == "txt" and "\t" in top):
        mark = max(",;", key=top.count)
        if format == "tsv" and not bare and "\t" not in top and mark in top:
            name = {",": "commas", ";": "semicolons"}[mark]
            has = f"the first line has no tab, which separates the columns of a .tsv, but {name}: {top!r:.60}"
            raise LabelError(path, 1, f"{has}. If {name} separate the columns, rename the file to .csv")
        rows = _quoted(path, content) if format == "csv" else _tabbed(content)
        return _table(path, rows, given, bare)
    else:
        hint = task_hint(path, content)
        if top.startswith("["):
            hint = "; is it one JSON document? Write one object per line"
        raise LabelError(path, None, f"expected a .tsv, .csv or .jsonl file, which may be compressed{hint}")
    return at, names, some(path, records), [name for name, _ in given]


def _table(
    path: Path, rows: Iterator[tuple[int, list[str]]], given: Sequence[Given], bare: Sequence[str]
) -> tuple[int, list[str], list[Record], list[str | None]]:
    lines = [(line, row) for line, row in rows if any(row)]
    at, header = lines.pop(0) if lines else (1, [])
    header = [name.strip() for name in header]
    numbers = [str(number) for number in range(1, len(header) + 1)]
    columns: list[str | None] = [name for name, _ in given]
    if not any(columns) and numbers == list(bare) and not _usual(header, given[0][1]):
        columns = [*bare, *columns[len(bare) :]]
    if any(name in numbers or (name and name.isdecimal() and name not in header) for name in columns):
        if _is_header(header, lines, given):
            logger.warning("%s:%d: this line was taken as the header: %s", path, at, listed(header))
            columns = [header[numbers.index(name)] if name in numbers else name for name in columns]
        else:
            lines.insert(0, (at, header))
            header = numbers
    twice = next((name for name in header if name and header.count(name) > 1), None)
    if twice is not None:
        raise LabelError(path, at, f"two columns are called {twice!r}; rename one")
    records = []
    for line, row in lines:
        while len(row) > len(header) and not row[-1]:  # a separator at the end
            row.pop()
        if len(row) != len(header):
            has = f"{counted(len(row), 'field')}, expected {len(header)}: {listed(header)}"
            remedy = "A tab (in .csv, a comma outside quotation marks) starts a new field"
            raise LabelError(path, line, f"{has}. {remedy}")
        records.append((line, dict(zip(header, row, strict=True))))
    return at, header, some(path, records), columns


def _is_header(header: list[str], lines: Sequence[tuple[int, list[str]]], given: Sequence[Given]) -> bool:
    """Whether the first line is a header, although columns are given by number (see the top of this file)"""
    for name, usual in given:
        if name is None:
            continue
        if not name.isdecimal():
            if _usual(header, [name.lower()]):
                return True
        elif 1 <= (place := int(name[:9])) <= len(header):
            field, column = header[place - 1], (row[place - 1].strip() for _, row in lines if len(row) >= place)
            if _usual([field], usual) and field not in column:
                return True
    return False


def _usual(names: Sequence[str], usual: Sequence[str]) -> bool:
    return any(name.lower() in usual for name in names)


def _tabbed(content: str) -> Iterator[tuple[int, list[str]]]:
    """Rows of a .tsv; quotation marks are ordinary characters"""
    return ((line, text.split("\t")) for line, text in lines_of(content))


def _quoted(path: Path, content: str) -> Iterator[tuple[int, list[str]]]:
    """Rows of a .csv, each with its first line; quoted fields may contain line ends"""
    csv.field_size_limit(max(csv.field_size_limit(), LONGEST_RECORD))
    top = content.lstrip("\n").partition("\n")[0]
    table = csv.reader(
        (text + "\n" for _, text in lines_of(content)), delimiter=max(",;\t", key=top.count), strict=True
    )
    line = 1
    try:
        for row in table:
            yield line, row
            line = table.line_num + 1
    except csv.Error as error:
        problem = f"not a row of a CSV table ({error}). Is a quotation mark not closed, or not doubled inside a field?"
        raise LabelError(path, line, problem) from error


def _pair_columns(
    path: Path, at: int, names: list[str], first: str | None, second: str | None, argument: str
) -> tuple[str, str]:
    """The columns of two texts, by their usual names unless given. argument: the reader's name for `first`"""
    lower = {name.lower() for name in names}
    pairs = [(one, other) for one, other in PAIRS if second is None or other == second.lower()]
    whole = [one for one, other in pairs if one in lower and other in lower]
    half = [one for one, other in pairs if other in lower and other not in TEXTS]
    usual = whole or half or [*(one for one, _ in pairs), *TEXTS]
    first = _column(path, at, names, first, usual, "first text", argument)
    others = [other for one, other in PAIRS if one == first.lower()] or ["sentence2"]
    return first, _column(path, at, names, second, others, "second text", "second")


def _column(
    path: Path,
    at: int,
    names: list[str],
    given: str | None,
    usual: Sequence[str],
    what: str,
    argument: str,
    others: Sequence[str | None] = (),
) -> str:
    """The name of a column. others: names of columns that cannot be it; `ColumnError.number` is none of these"""
    if given is not None and given in names:
        return given
    lower = {name.lower(): name for name in reversed(names)}
    chosen = given.lower() if given is not None else next((name for name in usual if name in lower), None)
    if chosen in lower:
        return lower[chosen]
    others = [other and other.lower() for other in others]
    looked = f"no column {given!r}" if given is not None else f"no column for the {what}, such as {listed(usual[:3])}"
    number = next((number for number, name in enumerate(names, 1) if name.lower() not in others), None)
    raise ColumnError(path, at, f"{looked}; there are {listed(names)}", argument, number)


def _check_different(path: Path, at: int, **columns: str | None) -> None:
    for (one, name), (other, same) in combinations(columns.items(), 2):
        if name is not None and name == same:
            expected = "expected two different ones, by name or by number from 1"
            raise LabelError(path, at, f"{one} and {other} are the same column, {name!r}; {expected}")


def _check_swapped(path: Path, examples: Sequence[Labelled], text: str, label: str) -> None:
    """Reject sentences as labels. Fewer than SOME labels are no sign: a text may occur with each of them."""
    texts, labels = len({one[:2] for one in examples}), len({one.label for one in examples})
    if labels >= max(SOME, texts + 1):
        has = f"{counted(texts, 'different text')} in column {text!r}, but {labels:,} different labels in {label!r}"
        raise LabelError(path, None, f"{has}, such as {examples[0].label!r:.60}. Are text and label swapped?")


def _text(path: Path, line: int, record: dict[str, Any], column: str) -> str:
    value = record.get(column)
    if not isinstance(value, str):
        raise LabelError(path, line, _missing(record, column, "text"))
    value = value.strip()
    if not value:
        raise LabelError(path, line, f"{column} is empty, expected a text; add one, or remove the line")
    return value


def _label(path: Path, line: int, record: dict[str, Any], column: str) -> str:
    """In JSON, 1, 1.0 and "1" are the same label, as in a table"""
    value = record.get(column)
    if isinstance(value, bool):
        value = str(value).lower()
    elif isinstance(value, int) or (isinstance(value, float) and value.is_integer()):
        value = str(int(value))
    if not isinstance(value, str):
        raise LabelError(path, line, _missing(record, column, "a label: a word or a whole number"))
    if not value.strip():
        raise LabelError(path, line, f"{column} is empty, expected a label; add one, or remove the line")
    return value.strip()


def _missing(record: dict[str, Any], column: str, expected: str) -> str:
    if column in record:
        return f"{column} is {record[column]!r:.40}, expected {expected}"
    return f"there is no {column!r} among {listed(record)}"
