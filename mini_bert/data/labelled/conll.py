"""Reads files with one word per line: CoNLL (a word and its tag) and CoNLL-U (parts of speech and trees).

    EU       B-ORG          1  Dogs   dog   NOUN  NNS  _  2  nsubj  _  _
    rejects  O              2  bark   bark  VERB  VBP  _  0  root   _  _
                            3  .      .     PUNCT .    _  2  punct  _  _

An empty line ends a sentence. Comments and -DOCSTART- are skipped, and in CoNLL-U multiword tokens (3-4 don't, followed
by its parts) and empty nodes (5.1).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Any

from mini_bert.common.progress import counted
from mini_bert.corpora.formats import format_of
from mini_bert.data.labelled.examples import (
    LabelError,
    Parsed,
    Path,
    Tagged,
    content_of,
    json_lines,
    lines_of,
    listed,
    some,
)

DOCUMENT = "-DOCSTART-"  # CoNLL 2003 writes it before every document
CONLLU = ("ID", "FORM", "LEMMA", "UPOS", "XPOS", "FEATS", "HEAD", "DEPREL", "DEPS", "MISC")
RANGE, EMPTY_NODE = re.compile(r"(\d+)-(\d+)"), re.compile(r"\d+\.\d+")
WORDS, TAGS = ("words", "tokens"), ("tags", "ner_tags", "labels", "upos", "pos_tags")  # names in JSON lines
HEADINGS = (  # usual headers of texts or words, and of labels or tags
    {"sentence", "text", "review", "content", "tweet", "phrase", "word", "words", "token", "tokens", "form"},
    {"label", "labels", "class", "sentiment", "score", "tag", "tags", "ner", "ner_tags", "pos", "upos", "pos_tags"},
)
SQUAD = r'\s*\{\s*("version"\s*:\s*"[^"]*"\s*,\s*)?"data"\s*:\s*\['  # the start of its JSON
FIRST = 50  # lines that show what a file is
TABLES = "For a table of texts and labels, use `mini-bert finetune classify`"
PIECES = 2  # the largest average number of space-separated parts of a word; Vietnamese words contain spaces
Row = tuple[int, list[str]]  # the line of a word, and the fields there


def read_tagged(path: Path, column: int = -1) -> list[Tagged]:
    """Sentences with a tag for each word: one word per line with its columns, an empty line after each sentence

    `column`: the column of the tags, from 0, or from the end if negative. In CoNLL-U the default is the universal part
    of speech; JSON lines have two lists (tokens or words; tags, ner_tags or labels).
    """
    content = content_of(path)
    if format_of(os.fspath(path)) == "jsonl":
        return _tagged_json(path, content)
    if re.match(SQUAD, content):
        raise LabelError(path, None, f"expected a word and its tag on each line{task_hint(path, content)}")
    at, top = next(((line, text) for line, text in lines_of(content) if not _aside(text)), (0, ""))
    if is_conllu(path, top):
        return _tagged_conllu(path, content, 3 if column == -1 else column)
    tabs = "\t" in top
    width = len(_fields(top, tabs))
    if top and (width < 2 or not -width < column < width or column == 0):
        has = f"a line has {counted(width, 'field')}: {top!r:.60}"
        raise LabelError(path, at, f"{has}; expected a word, and its tag in column {column}")
    sentences = list(_sentences(path, content, tabs, width, column))
    _check_words(path, sentences, column)
    return some(
        path,
        [Tagged([row[0] for _, row in rows], [row[column] for _, row in rows], start) for start, rows in sentences],
    )


def _check_words(path: Path, sentences: list[tuple[int, list[Row]]], column: int) -> None:
    """Reject a table of texts and labels, which also has a first and a last field per line"""
    every = [row for _, rows in sentences for row in rows]
    expected = "expected a word and its tag on each line, and an empty line after each sentence"
    for line, row in every[:1]:
        if row[0].lower() in HEADINGS[0] and row[column].lower() in HEADINGS[1]:
            what = f"{row[0]!r} and {row[column]!r} are the header of a table"
            raise LabelError(path, line, f"{what}; {expected}, without a header. {TABLES}")
    pieces = sum(len(row[0].split()) for _, row in every)
    if pieces > PIECES * len(every):
        line, text = next((line, row[0]) for line, row in every if len(row[0].split()) > PIECES)
        raise LabelError(path, line, f"{text!r:.60} is a text, not a word; {expected}. {TABLES}")


def _sentences(path: Path, content: str, tabs: bool, width: int, column: int) -> Iterator[tuple[int, list[Row]]]:
    """Yields the first line of each sentence, and its words"""
    rows: list[Row] = []
    known = _known_tags(content, tabs, width, column)
    for line, text in (*lines_of(content), (0, "")):
        fields = _fields(text, tabs)
        if not text.strip(" \t"):
            if rows:
                yield rows[0][0], rows
            rows = []
        elif fields[0] == DOCUMENT or (not rows and _comment(text, fields, tabs, width, column, known)):
            continue
        elif len(fields) != width:
            has = f"{counted(len(fields), 'field')}, expected {width} as on the lines before"
            raise LabelError(path, line, f"{has}: {text!r:.60}. Is a word, a tag or an empty line missing?")
        elif not fields[0] or not fields[column]:
            raise LabelError(path, line, f"{text!r:.60} has no {'tag' if fields[0] else 'word'}")
        else:
            rows.append((line, fields))


def _fields(text: str, tabs: bool) -> list[str]:
    """Only tabs and spaces separate fields; a word may contain other white space, such as a non-breaking space"""
    return text.split("\t") if tabs else re.split(r"[ \t]+", text.strip(" \t"))


def _comment(text: str, fields: list[str], tabs: bool, width: int, column: int, known: set[str]) -> bool:
    """Whether this is a comment before a sentence, rather than a word that begins with # (a hashtag) and its tag

    `# O` is the word # if another line has the same tag, else a comment.
    """
    if not text.startswith("#"):
        return False
    if tabs:
        return "\t" not in text
    return len(fields) != width or (fields[0] == "#" and fields[column] not in known)


def _known_tags(content: str, tabs: bool, width: int, column: int) -> set[str]:
    """The tags of lines that cannot be comments; and #, the tag of the word # in the Penn Treebank"""
    lines = (_fields(text, tabs) for _, text in lines_of(content) if not text.startswith("#"))
    return {"#", *(fields[column] for fields in lines if len(fields) == width)}


def _aside(text: str) -> bool:
    return not text.strip() or text.startswith(DOCUMENT) or (text.startswith("#") and "\t" not in text)


def _tagged_json(path: Path, content: str) -> list[Tagged]:
    sentences = []
    for line, record in json_lines(path, content):
        words, tags = (_strings(path, line, record, names) for names in (WORDS, TAGS))
        if len(words) != len(tags):
            has = f"{counted(len(words), 'word')} and {counted(len(tags), 'tag')}"
            raise LabelError(path, line, f"{has}; expected a tag for each word")
        if not words or "" in words or "" in tags:
            raise LabelError(path, line, "the sentence, a word or a tag is empty; fill it in, or remove the line")
        sentences.append(Tagged(words, tags, line))
    return some(path, sentences)


def _strings(path: Path, line: int, record: dict[str, Any], names: tuple[str, ...]) -> list[str]:
    values = next((record[name] for name in names if name in record), None)
    if not isinstance(values, list) or not all(isinstance(value, str | int) for value in values):
        raise LabelError(path, line, f"expected a list under {' or '.join(names)}; there are {listed(record)}")
    return [str(value) for value in values]


def _tagged_conllu(path: Path, content: str, column: int) -> list[Tagged]:
    if not 1 < column < 10:
        names = ", ".join(f"{number} {name}" for number, name in enumerate(CONLLU))
        raise LabelError(path, None, f"column is {column}, expected one with tags, from 2 to 9: {names}")
    sentences = []
    for start, rows in _conllu_sentences(path, content):
        for line, row in rows:
            if row[column] in ("", "_") and CONLLU[column] != "FEATS":
                raise LabelError(path, line, f"{row[1]!r} has no tag in column {column} ({CONLLU[column]})")
        sentences.append(Tagged([row[1] for _, row in rows], [row[column] for _, row in rows], start))
    return some(path, sentences)


def is_conllu(path: Path, first: str) -> bool:
    """By its name, or by its first line: ten columns, of which the first numbers the words"""
    if ".conllu" in os.path.basename(os.fspath(path)).lower():
        return True
    fields = first.split("\t")
    return len(fields) == 10 and re.fullmatch(r"1(-\d+)?|0\.1", fields[0]) is not None


def task_hint(path: Path, content: str) -> str:
    """Which task reads this file, for an error of another one: "" if it has neither tagged words nor SQuAD's questions.

    Tagged words are in columns of equal number, and the last one has BIO tags, or the file is called so.
    """
    if re.match(SQUAD, content):
        return "; it looks like SQuAD's questions, which `mini-bert finetune qa` reads"
    lines = [text for _, text in lines_of(content) if not _aside(text)][:FIRST]
    rows = [text.split("\t") if "\t" in text else text.split() for text in lines]
    named = re.search(r"\.(conllu?|iob2?|bio)(\.|$)", os.path.basename(os.fspath(path)).lower())
    columns = {len(row) for row in rows}
    tagged = len(columns) == 1 and columns != {1} and all(re.fullmatch(r"O|[BIES]-\S+", row[-1]) for row in rows)
    if named or tagged or (lines and is_conllu(path, lines[0])):
        return "; it looks like words with tags (CoNLL), which `mini-bert finetune tag` reads"
    return ""


def read_conllu(path: Path) -> list[Parsed]:
    """Sentences with parts of speech and dependency trees

    Multiword tokens (3-4 don't) and empty nodes (5.1) are skipped; the tree is over the words 1, 2, 3, … Every tree is
    checked: one root, heads that exist, no cycle.
    """
    sentences = []
    for start, rows in _conllu_sentences(path, content_of(path)):
        words, tags, relations = ([row[place] for _, row in rows] for place in (1, 3, 7))
        sentences.append(Parsed(words, tags, _heads(path, start, rows), relations, start))
    return some(path, sentences)


def _heads(path: Path, start: int, rows: list[Row]) -> list[int]:
    """The heads, which must form a tree"""
    heads = []
    for line, row in rows:
        word, head = row[1], row[6]
        if not head.isdecimal() or int(head) > len(rows) or head == row[0]:
            expected = f"the number of another word, up to {len(rows)}, or 0 for the root"
            raise LabelError(path, line, f"the head of {word!r} is {head!r}, expected {expected}")
        if row[3] in ("", "_") or row[7] in ("", "_"):
            raise LabelError(
                path, line, f"{word!r} has no {'part of speech (UPOS)' if row[3] in ('', '_') else 'relation'}"
            )
        heads.append(int(head))
    roots = [rows[place][1][1] for place, head in enumerate(heads) if not head]
    if len(roots) != 1:
        raise LabelError(path, start, f"a sentence with {counted(len(roots), 'root')}, expected one: {listed(roots)}")
    for number, (line, row) in enumerate(rows, 1):
        place, steps = number, 0
        while place and steps <= len(rows):
            place, steps = heads[place - 1], steps + 1
        if place:
            raise LabelError(path, line, f"the heads of {row[1]!r} form a cycle and never reach the root")
    return heads


def _conllu_sentences(path: Path, content: str) -> Iterator[tuple[int, list[Row]]]:
    """Yields the first line of each sentence and its words; checks that there are ten fields, numbered in order"""
    rows: list[Row] = []
    start, until = 0, 0  # the line of the first comment or word; the last word of a multiword token
    for line, text in (*lines_of(content), (0, "")):
        if not text or text.isspace():
            if start and not rows:
                raise LabelError(path, start, "a sentence without words; add them, or remove its comments")
            if until > len(rows):
                last = f"the sentence ends with word {len(rows)}, but a multiword token extends to {until}"
                raise LabelError(path, rows[-1][0], last)
            if rows:
                yield rows[0][0], rows
            rows, start, until = [], 0, 0
            continue
        start = start or line
        if text.startswith("#") and "\t" not in text:
            continue
        fields = text.split("\t")
        if len(fields) != 10:
            has = counted(len(fields), "field")
            raise LabelError(path, line, f"{has}, expected 10, separated by tabs: {text!r:.60}")
        number, expected = fields[0], len(rows) + 1
        if number != str(expected):
            if EMPTY_NODE.fullmatch(number):
                continue
            if span := RANGE.fullmatch(number):
                if int(span[1]) != expected or int(span[2]) < expected or until > len(rows):
                    raise LabelError(path, line, f"found the token {number}, expected word {expected}")
                until = int(span[2])
                continue
            raise LabelError(path, line, f"word {number!r}, expected {expected}: a sentence numbers its words from 1")
        if not fields[1]:
            raise LabelError(path, line, f"word {number} is empty")
        rows.append((line, fields))
