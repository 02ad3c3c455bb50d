"""Reads questions on texts, with the place of their answers: SQuAD's JSON, or JSON lines with the same names."""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Iterator
from typing import Any

from mini_bert.common.progress import counted
from mini_bert.corpora.formats import format_of
from mini_bert.data.labelled.conll import TABLES, task_hint
from mini_bert.data.labelled.examples import LabelError, Path, Question, content_of, json_lines, parsed_json, some

logger = logging.getLogger(__name__)


def read_squad(path: Path, unanswered: bool = False) -> list[Question]:
    """Questions with their texts and answers, from SQuAD's JSON, or JSON lines with the same names

    Every answer must occur in the text at its answer_start. Questions that SQuAD 2 marks as impossible are skipped with
    a warning. `unanswered`: keep them, and accept questions without answers, for prediction.
    """
    content = content_of(path)
    if content.strip() and not content.lstrip().startswith(("{", "[")):
        table = format_of(os.fspath(path)) in ("tsv", "csv") or "\t" in content
        hint = task_hint(path, content) or (f". {TABLES}" if table else f", found {content.strip()!r:.40}")
        raise LabelError(path, None, f"expected SQuAD's questions, as .json or .jsonl{hint}")
    whole = re.match(r'\s*\{\s*"(version|data)"', content) or format_of(os.fspath(path)) != "jsonl"
    places = _squad_places(path, content) if whole else _flat_places(path, content)
    questions, impossible = [], 0
    seen: set[str] = set()
    for number, (line, context, record) in enumerate(places, 1):
        where = f"question {number:,} (id {record.get('id')!r:.40})" if whole else "the question"
        if not isinstance(context, str) or not context.strip():
            raise LabelError(path, line, f"{where} has no context")
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
        if identity in seen:
            raise LabelError(path, line, f"{where} repeats the id {identity!r}; ids must be unique")
        seen.add(identity)
        questions.append(Question(identity, asked.strip(), context, answers, starts, number if whole else line))
    if impossible:
        logger.warning("%s: skipped %s without an answer", path, counted(impossible, "question"))
    return some(path, questions)


def _squad_places(path: Path, content: str) -> Iterator[tuple[int, Any, dict[str, Any]]]:
    """Yields the line of each question, its context, and its record"""
    try:
        pairs = [
            (paragraph["context"], record)
            for article in parsed_json(path, 1, content)["data"]
            for paragraph in article["paragraphs"]
            for record in paragraph["qas"]
        ]
    except (KeyError, TypeError) as error:
        form = '{"data": [{"paragraphs": [{"context": "…", "qas": [{"id": "…", "question": "…", "answers": […]}]}]}]}'
        raise LabelError(path, 1, f"expected the format of SQuAD, {form}; missing: {error}") from error
    line, place = 1, 0
    for context, record in pairs:
        if not isinstance(record, dict):
            raise LabelError(path, line, f"{record!r:.40} is not a question; expected id, question, answers")
        # The JSON parser gives no line numbers; search for the ids in order.
        if isinstance(record.get("id"), str):
            at = content.find(json.dumps(record["id"], ensure_ascii=False), place)
            if at >= 0:
                line, place = line + content.count("\n", place, at), at
        yield line, context, record


def _flat_places(path: Path, content: str) -> Iterator[tuple[int, Any, dict[str, Any]]]:
    for line, record in json_lines(path, content):
        yield line, record.get("context"), record


def _answers(path: Path, line: int, where: str, context: str, given: Any) -> tuple[list[str], list[int]]:
    """SQuAD has a list of {text, answer_start}; other files have two lists with these names"""
    if isinstance(given, dict):
        texts, places = given.get("text"), given.get("answer_start")
        if not isinstance(texts, list) or not isinstance(places, list) or len(texts) != len(places):
            raise LabelError(path, line, f"{where}: expected two lists of equal length, text and answer_start")
        given = [{"text": text, "answer_start": place} for text, place in zip(texts, places, strict=True)]
    if not isinstance(given, list | None):
        raise LabelError(path, line, f"{where}: expected a list of answers, got {given!r:.60}")
    answers, starts = [], []
    for answer in given or []:
        text, start = (answer.get("text"), answer.get("answer_start")) if isinstance(answer, dict) else (None, None)
        if not isinstance(text, str) or not text.strip() or not isinstance(start, int) or isinstance(start, bool):
            raise LabelError(path, line, f"{where}: the answer {answer!r:.60} lacks a text or answer_start")
        if start < 0 or context[start : start + len(text)] != text:
            elsewhere = context.find(text)
            hint = "it does not occur in the text" if elsewhere < 0 else f"it starts at {elsewhere:,}"
            there = context[max(start, 0) : max(start, 0) + len(text)]
            raise LabelError(
                path, line, f"{where}: the answer {text!r:.60} is not at {start:,}, which is {there!r:.60}; {hint}"
            )
        answers.append(text)
        starts.append(start)
    return answers, starts
