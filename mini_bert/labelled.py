"""Labelled text from files: what a model is fine-tuned, probed and measured on.

    read_labelled("train.tsv")     a text, or a pair of texts, and its label     .tsv .csv .jsonl
    read_scored("pairs.csv")       two texts, and how alike they are             .tsv .csv .jsonl
    read_tagged("train.conll")     words, a tag for each (entities, BIO)         CoNLL, CoNLL-U, .jsonl
    read_conllu("dev.conllu")      words, parts of speech, dependency trees      CoNLL-U
    read_squad("dev-v1.1.json")    questions, their texts, where the answer is   SQuAD's JSON, .jsonl

Any of them may be compressed (.gz .xz .bz2 .zst). Nothing is guessed and nothing left out in silence: a file that does
not keep its own rules is a LabelError, which names the file, the line, what stands there and what was expected.
Each example keeps the line it came from, so that what is found wrong later can be named too.
"""

from __future__ import annotations

import csv
import difflib
import json
import logging
import math
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from mini_bert.progress import counted
from mini_bert.text_decoding import decoded, unpacked
from mini_bert.text_files import LONGEST_RECORD, format_of

Path = str | os.PathLike[str]
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


# --- tables: .tsv .csv .jsonl ------------------------------------------------------------------------------

PAIRS = (  # names under which people store two texts, each first with its second
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
NO_LABEL = "-"  # under gold_label, in SNLI and MultiNLI: the annotators did not agree


def read_labelled(
    path: Path, text: str | None = None, second: str | None = None, label: str | None = None
) -> list[Labelled]:
    """Texts, or pairs of them, with their labels, from a table or JSON lines

    Columns are found by their usual names (sentence, text, sentence1 and sentence2, premise and hypothesis, label,
    gold_label, …), or given: by name, or by number, from 1, where a table has no header. With `text` and no `second`
    it is one text.
    """
    records = _records(path, (text, second, label))
    names = list(records[0][1])
    text, second = _text_columns(path, names, text, second)
    label = _column(path, names, label, LABELS, "label")
    found = []
    for line, record in records:
        name = _label(path, line, record, label)
        if name == NO_LABEL and label.lower() == "gold_label":
            continue
        pair = None if second is None else _text(path, line, record, second)
        found.append(Labelled(_text(path, line, record, text), pair, name, line))
    if len(found) < len(records):
        left = counted(len(records) - len(found), "example")
        logger.warning("%s: %s left out, whose %s is %r: undecided", path, left, label, NO_LABEL)
    return found


def read_scored(
    path: Path, first: str | None = None, second: str | None = None, score: str | None = None
) -> list[Scored]:
    """Pairs of texts with a number that says how alike they are, from a table or JSON lines

    Columns are found by their usual names (sentence1 and sentence2, …, score, similarity, …), or given as in
    `read_labelled`.
    """
    records = _records(path, (first, second, score))
    names = list(records[0][1])
    first, other = _text_columns(path, names, first, second)
    if other is None:
        raise LabelError(path, 1, f"expected two columns of text, found one, {first!r}, among {_listed(names)}")
    score = _column(path, names, score, SCORES, "score")
    found = []
    for line, record in records:
        value = record.get(score)
        try:
            number = math.nan if isinstance(value, bool) or value is None else float(value)
        except (TypeError, ValueError):
            number = math.nan
        if not math.isfinite(number):
            raise LabelError(path, line, f"{score} is {value!r:.40}, expected a number")
        found.append(Scored(_text(path, line, record, first), _text(path, line, record, other), number, line))
    return found


def _records(path: Path, given: Sequence[str | None]) -> list[tuple[int, dict[str, Any]]]:
    """Each row of a table, or object of JSON lines, by the names of its columns, with its line; at least one"""
    content = _content(path)
    top = content.partition("\n")[0]
    format = format_of(os.fspath(path)) or ("jsonl" if top.lstrip().startswith("{") else None)
    if format == "txt" and "\t" in top:
        format = "tsv"
    if format == "jsonl":
        records = list(_json_lines(path, content))
    elif format in ("tsv", "csv"):
        numbers = [column for column in given if column is not None and column.isdecimal()]
        records = list(_table(path, content, format, numbers))
    else:
        hint = "; is it one JSON document? Write an object on each line (.jsonl)" if top.lstrip()[:1] == "[" else ""
        raise LabelError(path, None, f"expected a name that ends in .tsv, .csv or .jsonl (then .gz, if packed){hint}")
    if not records:
        raise LabelError(path, None, "there is no example in it")
    return records


def _json_lines(path: Path, content: str) -> Iterator[tuple[int, dict[str, Any]]]:
    for line, text in _lines(content):
        if not text or text.isspace():
            continue
        try:
            record = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise LabelError(path, line, f"not JSON ({error}); expected an object on each line") from error
        if not isinstance(record, dict):
            raise LabelError(
                path, line, f'{text!r:.40} is no object; expected one, such as {{"text": "…", "label": 1}}'
            )
        yield line, record


def _table(path: Path, content: str, format: str, numbers: list[str]) -> Iterator[tuple[int, dict[str, Any]]]:
    """In a .tsv quotation marks are letters like others; in a .csv they hold fields with commas and line ends"""
    rows = _tabbed(content) if format == "tsv" else _quoted(path, content)
    line, header = next(((line, row) for line, row in rows if any(row)), (0, []))
    first: list[tuple[int, list[str]]] = []
    if numbers and not set(numbers) <= set(header):  # no header: the columns are called 1, 2, …
        first, header = [(line, header)], [str(number) for number in range(1, len(header) + 1)]
    header = [name.strip() for name in header]
    twice = next((name for name in header if name and header.count(name) > 1), None)
    if twice is not None:
        raise LabelError(path, line, f"two columns are called {twice!r}; rename one")
    for line, row in (*first, *rows):
        if not any(row):
            continue
        while len(row) > len(header) and not row[-1]:  # a separator at the end
            row.pop()
        if len(row) != len(header):
            raise LabelError(
                path,
                line,
                f"{counted(len(row), 'field')}, expected {len(header)}: {_listed(header)}. "
                + (
                    "Does a tab stand in a text?"
                    if format == "tsv"
                    else "Does a text with commas lack quotation marks?"
                ),
            )
        yield line, dict(zip(header, row, strict=True))


def _tabbed(content: str) -> Iterator[tuple[int, list[str]]]:
    return ((line, text.split("\t")) for line, text in _lines(content))


def _quoted(path: Path, content: str) -> Iterator[tuple[int, list[str]]]:
    """Rows of a .csv, each with the line it starts on"""
    csv.field_size_limit(max(csv.field_size_limit(), LONGEST_RECORD))
    top = content.lstrip("\n").partition("\n")[0]
    table = csv.reader((text + "\n" for _, text in _lines(content)), delimiter=max(",;\t", key=top.count), strict=True)
    line = 1
    try:
        for row in table:
            yield line, row
            line = table.line_num + 1
    except csv.Error as error:
        raise LabelError(
            path, line, f"not a row of a CSV table ({error}). Is a quotation mark never closed?"
        ) from error


def _text_columns(path: Path, names: list[str], text: str | None, second: str | None) -> tuple[str, str | None]:
    lower = {name.lower(): name for name in names}
    if text is None and second is None:
        for one, other in PAIRS:
            if one in lower and other in lower:
                return lower[one], lower[other]
    if second is not None:
        second = _column(path, names, second, (), "second text")
        partners = tuple(one for one, other in PAIRS if other == second.lower())
        return _column(path, names, text, (*partners, *TEXTS), "text"), second
    return _column(path, names, text, TEXTS, "text"), None


def _column(path: Path, names: list[str], given: str | None, usual: Sequence[str], what: str) -> str:
    if given is not None and given in names:
        return given
    lower = {name.lower(): name for name in reversed(names)}
    chosen = given.lower() if given is not None else next((name for name in usual if name in lower), None)
    if chosen in lower:
        return lower[chosen]
    looked = f"no column {given!r}" if given is not None else f"no column for the {what}, such as {_listed(usual[:3])}"
    raise LabelError(
        path,
        1,
        f"{looked}; there are {_listed(names)}. Name the one you mean, or its number, from 1, if there is no header",
    )


def _text(path: Path, line: int, record: dict[str, Any], column: str) -> str:
    value = record.get(column)
    if not isinstance(value, str):
        raise LabelError(path, line, _missing(record, column, "text"))
    value = value.strip()
    if not value:
        raise LabelError(path, line, f"{column} is empty, expected a text; write one, or leave the line out")
    return value


def _label(path: Path, line: int, record: dict[str, Any], column: str) -> str:
    """JSON's 1, 1.0 and "1" are one label, as they are in a table"""
    value = record.get(column)
    if isinstance(value, bool):
        value = str(value).lower()
    elif isinstance(value, int) or (isinstance(value, float) and value.is_integer()):
        value = str(int(value))
    if not isinstance(value, str):
        raise LabelError(path, line, _missing(record, column, "a label: a word or a whole number"))
    if not value.strip():
        raise LabelError(path, line, f"{column} is empty, expected a label; write one, or leave the line out")
    return value.strip()


def _missing(record: dict[str, Any], column: str, expected: str) -> str:
    if column in record:
        return f"{column} is {record[column]!r:.40}, expected {expected}"
    return f"there is no {column!r}, only {_listed(record)}"


# --- words in columns: CoNLL and CoNLL-U -------------------------------------------------------------------

DOCUMENT = "-DOCSTART-"  # CoNLL 2003 writes it before every document
CONLLU = ("ID", "FORM", "LEMMA", "UPOS", "XPOS", "FEATS", "HEAD", "DEPREL", "DEPS", "MISC")
RANGE, EMPTY_NODE = re.compile(r"(\d+)-(\d+)"), re.compile(r"(\d+)\.(\d+)")


def read_tagged(path: Path, column: int = -1) -> list[Tagged]:
    """Sentences with a tag for each word: a word and its columns on a line, an empty line behind each sentence

    `column`: that of the tags, from 0, or from the end if negative. Of CoNLL-U the tags are by default the universal
    parts of speech; of JSON lines, the list beside the list of words (tokens or words; tags, ner_tags or labels).
    """
    content = _content(path)
    if format_of(os.fspath(path)) == "jsonl":
        return _tagged_json(path, content)
    top = next((text for _, text in _lines(content) if not _aside(text)), "")
    if is_conllu(top):
        place = 3 if column == -1 else column
        if not -10 <= place < 10:
            raise LabelError(path, 1, f"column is {column}, but CoNLL-U has 10: {', '.join(CONLLU)}")
        return [
            Tagged([row[1] for _, row in rows], [row[place] for _, row in rows], start)
            for start, rows in _conllu_sentences(path, content)
        ]
    width = len(_fields(top, "\t" in top))
    if top and (width < 2 or not -width < column < width or column == 0):
        raise LabelError(
            path, 1, f"column is {column}, but a line has {counted(width, 'field')}: {top!r:.60}; expected word and tag"
        )
    found = []
    for start, rows in _sentences(path, content, "\t" in top, width):
        found.append(Tagged([row[0] for _, row in rows], [row[column] for _, row in rows], start))
    return _some(path, found)


def _sentences(path: Path, content: str, tabs: bool, width: int) -> Iterator[tuple[int, list[tuple[int, list[str]]]]]:
    """The line a sentence starts on, and for each of its words the line and the fields there"""
    rows: list[tuple[int, list[str]]] = []
    for line, text in (*_lines(content), (0, "")):
        fields = _fields(text, tabs)
        if not any(fields):
            if rows:
                yield rows[0][0], rows
            rows = []
        elif fields[0] == DOCUMENT or (not rows and _comment(text, fields, tabs, width)):
            continue
        elif len(fields) != width:
            raise LabelError(path, line, f"{counted(len(fields), 'field')}, expected {width} as above: {text!r:.60}")
        elif not all((fields[0], fields[-1])):
            raise LabelError(path, line, f"{text!r:.60} lacks {'a tag' if fields[0] else 'the word'}")
        else:
            rows.append((line, fields))


def _fields(text: str, tabs: bool) -> list[str]:
    """Only tab and space separate: a word may hold other white space, such as one that does not break"""
    return text.split("\t") if tabs else re.split(r"[ \t]+", text.strip(" \t"))


def _comment(text: str, fields: list[str], tabs: bool, width: int) -> bool:
    """A remark before a sentence, and not a word that begins with # (a hashtag), which has its tag"""
    return text.startswith("#") and ("\t" not in text if tabs else len(fields) != width or text.startswith("# id "))


def _aside(text: str) -> bool:
    return not text.strip() or text.startswith(DOCUMENT) or (text.startswith("#") and "\t" not in text)


def _tagged_json(path: Path, content: str) -> list[Tagged]:
    found = []
    for line, record in _json_lines(path, content):
        lists = {}
        for what, usual in (
            ("words", ("words", "tokens")),
            ("tags", ("tags", "ner_tags", "labels", "upos", "pos_tags")),
        ):
            name = next((name for name in usual if name in record), None)
            value = None if name is None else record[name]
            if not isinstance(value, list) or not all(isinstance(item, str | int) for item in value):
                raise LabelError(
                    path, line, f"expected a list of {what} under {' or '.join(usual)}, {_listed(record)} found"
                )
            lists[what] = [str(item) for item in value]
        words, tags = lists["words"], lists["tags"]
        if len(words) != len(tags):
            raise LabelError(
                path, line, f"{counted(len(words), 'word')} and {counted(len(tags), 'tag')}; expected as many"
            )
        if not words or "" in words or "" in tags:
            raise LabelError(path, line, "a sentence, a word or a tag is empty; write it, or leave the line out")
        found.append(Tagged(words, tags, line))
    return _some(path, found)


def is_conllu(text: str) -> bool:
    """Does a line of words look like CoNLL-U? Ten columns, the first of which counts the words"""
    fields = text.split("\t")
    return len(fields) == 10 and re.fullmatch(r"1(-\d+)?|0\.1", fields[0]) is not None


def read_conllu(path: Path) -> list[Parsed]:
    """Sentences with parts of speech and dependency trees

    A multiword token (3-4 don't) is left to its parts, and words that were not said (5.1) are left out: the tree is
    over the words 1, 2, 3, … Every tree is checked: one root, heads that exist, no cycle.
    """
    found = []
    for start, rows in _conllu_sentences(path, _content(path)):
        heads = []
        for line, row in rows:
            head, relation = row[6], row[7]
            if not head.isdecimal() or int(head) > len(rows) or head == row[0]:
                raise LabelError(
                    path, line, f"the head of {row[1]!r} is {head!r}, expected another word's number, or 0"
                )
            if relation in ("", "_") or row[3] in ("", "_"):
                raise LabelError(path, line, f"{row[1]!r} has no part of speech (UPOS) or no relation (DEPREL)")
            heads.append(int(head))
        roots = [row[1] for _, row in rows if row[6] == "0"]
        if len(roots) != 1:
            raise LabelError(path, start, f"a sentence with {counted(len(roots), 'root')}, expected one: {roots}")
        for number, (line, row) in enumerate(rows, 1):
            place, steps = number, 0
            while place and steps <= len(rows):
                place, steps = heads[place - 1], steps + 1
            if place:
                raise LabelError(
                    path, line, f"from {row[1]!r} no way leads to the root: the heads go round in a circle"
                )
        words, tags, relations = ([row[place] for _, row in rows] for place in (1, 3, 7))
        found.append(Parsed(words, tags, heads, relations, start))
    return found


def _conllu_sentences(path: Path, content: str) -> list[tuple[int, list[tuple[int, list[str]]]]]:
    """The line a sentence starts on, and for each of its words the line and the ten fields there"""
    found: list[tuple[int, list[tuple[int, list[str]]]]] = []
    rows: list[tuple[int, list[str]]] = []
    start, until = 0, 0  # the line of the first comment or word; the last word of a multiword token
    for line, text in (*_lines(content), (0, "")):
        if not text.strip():
            if start and not rows:
                raise LabelError(path, start, "a sentence without words; leave its comments out too")
            if rows and until > len(rows):
                raise LabelError(
                    path, rows[-1][0], f"a sentence ends at word {len(rows)}, within a token up to {until}"
                )
            if rows:
                found.append((rows[0][0], rows))
            rows, start, until = [], 0, 0
            continue
        start = start or line
        if text.startswith("#") and "\t" not in text:
            continue
        fields = text.split("\t")
        if len(fields) != 10:
            raise LabelError(
                path, line, f"{counted(len(fields), 'field')}, expected 10, with tabs between: {text!r:.60}"
            )
        number = fields[0]
        if EMPTY_NODE.fullmatch(number):
            continue
        if span := RANGE.fullmatch(number):
            if int(span[1]) != len(rows) + 1 or int(span[2]) < int(span[1]):
                raise LabelError(
                    path, line, f"the token {number} stands before word {len(rows) + 1}, expected its first"
                )
            until = int(span[2])
            continue
        if number != str(len(rows) + 1):
            raise LabelError(
                path, line, f"word {number!r}, expected {len(rows) + 1}: words are counted from 1 in a sentence"
            )
        if not fields[1]:
            raise LabelError(path, line, f"word {number} is empty")
        rows.append((line, fields))
    return _some(path, found)


# --- questions ---------------------------------------------------------------------------------------------


def read_squad(path: Path, unanswered: bool = False) -> list[Question]:
    """Questions with the texts that answer them, from SQuAD's JSON, or JSON lines with the same names

    Every answer has to stand in the text where the file says it starts. Questions that SQuAD 2 marks as impossible are
    left out, with a warning. `unanswered`: keep these, and questions without answers: enough for predicting.
    """
    content = _content(path)
    whole = re.match(r'\s*\{\s*"(version|data)"', content) or format_of(os.fspath(path)) != "jsonl"
    places = _squad_places(path, content) if whole else _flat_places(path, content)
    found, impossible = [], 0
    for number, (line, context, record) in enumerate(places, 1):
        where = f"question {number:,} (id {record.get('id')!r:.40})" if whole else "the question"
        if not isinstance(context, str) or not context.strip():
            raise LabelError(path, line, f"{where} has no text that could answer it (context)")
        asked = record.get("question")
        if not isinstance(asked, str) or not asked.strip():
            raise LabelError(path, line, f"{where} is empty: {asked!r:.40}")
        answers, starts = _answers(path, line, where, context, record.get("answers"))
        if not answers and not unanswered:
            if not record.get("is_impossible"):
                raise LabelError(path, line, f"{where} has no answer; expected one or more under answers")
            impossible += 1
            continue
        identity = str(record.get("id", number))
        found.append(Question(identity, asked.strip(), context, answers, starts, number if whole else line))
    if impossible:
        logger.warning("%s: %s without an answer left out", path, counted(impossible, "question"))
    return _some(path, found)


def _squad_places(path: Path, content: str) -> Iterator[tuple[int, Any, dict[str, Any]]]:
    """-> the line of a question, the text that belongs to it, and all the file says of it"""
    try:
        articles = json.loads(content)["data"]
        pairs = [
            (paragraph["context"], record)
            for article in articles
            for paragraph in article["paragraphs"]
            for record in paragraph["qas"]
        ]
    except json.JSONDecodeError as error:
        raise LabelError(path, error.lineno, f"not JSON ({error}). Is it cut short?") from error
    except (KeyError, TypeError, RecursionError) as error:
        raise LabelError(
            path, 1, f"not in SQuAD's form, data → paragraphs → context, qas: {error!r} missing"
        ) from error
    line, place = 1, 0
    for context, record in pairs:
        if not isinstance(record, dict):
            raise LabelError(path, line, f"{record!r:.40} is no question; expected id, question, answers")
        # The parser forgets where things stood; the ids, in their order, find the lines again.
        at = content.find(json.dumps(record.get("id"), ensure_ascii=False), place)
        if at >= 0:
            line, place = line + content.count("\n", place, at), at
        yield line, context, record


def _flat_places(path: Path, content: str) -> Iterator[tuple[int, Any, dict[str, Any]]]:
    for line, record in _json_lines(path, content):
        yield line, record.get("context"), record


def _answers(path: Path, line: int, where: str, context: str, given: Any) -> tuple[list[str], list[int]]:
    """SQuAD writes a list of {text, answer_start}; others two lists under these names"""
    if isinstance(given, dict):
        texts, places = given.get("text"), given.get("answer_start")
        if not isinstance(texts, list) or not isinstance(places, list) or len(texts) != len(places):
            raise LabelError(path, line, f"{where}: expected answers as two lists alike, text and answer_start")
        given = [{"text": text, "answer_start": place} for text, place in zip(texts, places, strict=True)]
    answers, starts = [], []
    for answer in given or []:
        text, start = (answer.get("text"), answer.get("answer_start")) if isinstance(answer, dict) else (None, None)
        if not isinstance(text, str) or not text.strip() or not isinstance(start, int) or isinstance(start, bool):
            raise LabelError(path, line, f"{where}: the answer {answer!r:.60} lacks a text or answer_start")
        if start < 0 or context[start : start + len(text)] != text:
            elsewhere = context.find(text)
            hint = "it is not in the text at all" if elsewhere < 0 else f"it stands at {elsewhere:,}"
            stands = context[max(start, 0) : max(start, 0) + len(text)]
            raise LabelError(
                path, line, f"{where}: the answer {text!r:.60} is not at {start:,}, where {stands!r:.60} stands; {hint}"
            )
        answers.append(text)
        starts.append(start)
    return answers, starts


# --- what all share ----------------------------------------------------------------------------------------


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
                raise LabelError(
                    "examples" if path is None else path,
                    example.line,
                    f"the label{at} {name!r} is not one of those in the training data, {_listed(names)}{meant}",
                )


def _labels(example: Labelled | Tagged | Parsed) -> list[str]:
    return [example.label] if isinstance(example, Labelled) else example.tags


def _content(path: Path) -> str:
    """The text of a file, unpacked, its line ends \\n"""
    name = os.fspath(path)

    def note(what: str, file: str, place: str, count: int) -> None:
        if place:  # a byte order mark has none, and is not worth a word
            logger.warning("%s, %s: %s (%s)", file, place, what, counted(count, "time"))

    with open(path, "rb") as file:
        return "".join(decoded(unpacked(file, name), name, note))


def _lines(content: str) -> Iterator[tuple[int, str]]:
    """Lines with their numbers, from 1. Only \\n ends one: a tweet may hold the other line ends of Unicode"""
    return enumerate(content.removesuffix("\n").split("\n"), 1)


def _some(path: Path, found: list) -> list:
    if not found:
        raise LabelError(path, None, "there is no example in it")
    return found


def _listed(names: Iterable[str], most: int = 12) -> str:
    shown = [repr(name if len(name) <= 40 else name[:39] + "…") for name in names]
    return ", ".join(shown[:most]) + (f" and {len(shown) - most} more" if len(shown) > most else "")
