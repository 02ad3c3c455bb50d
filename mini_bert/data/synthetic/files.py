"""Writes synthetic examples to files that `mini_bert.data.labelled.readers` reads.

sentiment     .tsv      text, label
similarity    .tsv      sentence1, sentence2, score
tags          .conll    a word and its tag per line
parsed        .conllu   CoNLL-U
questions     .jsonl    id, question, context, answers
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mini_bert.data.labelled.examples import Labelled, Parsed, Question, Scored, Tagged
from mini_bert.data.synthetic.dataset import KINDS

ENDINGS = {"sentiment": ".tsv", "similarity": ".tsv", "tags": ".conll", "parsed": ".conllu", "questions": ".jsonl"}
HEADERS = {Labelled: "text\tlabel\n", Scored: "sentence1\tsentence2\tscore\n"}


def check_name(kind: str, path: Path) -> None:
    """Raises before any work if examples of this kind cannot be written to the file."""
    if kind in KINDS and path.suffix != ENDINGS[kind]:
        raise ValueError(f"{path}: {kind} is written as {ENDINGS[kind]}; choose a name that ends in it")
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder, expected a file to write")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {path.parent} for {path.name}; create it first")


def content_of(examples: Sequence[Any]) -> str:
    """The content of the file; the type of the examples decides the format."""
    return HEADERS.get(type(examples[0]), "") + "".join(map(_entry, examples))


def _entry(example: Labelled | Scored | Tagged | Parsed | Question) -> str:
    if isinstance(example, Labelled):
        return f"{example.text}\t{example.label}\n"
    if isinstance(example, Scored):
        return f"{example.first}\t{example.second}\t{example.score:g}\n"
    if isinstance(example, Tagged):
        return "".join(f"{word}\t{tag}\n" for word, tag in zip(example.words, example.tags, strict=True)) + "\n"
    if isinstance(example, Parsed):
        rows = zip(example.words, example.tags, example.heads, example.relations, strict=True)
        lines = (
            f"{number}\t{word}\t_\t{tag}\t_\t_\t{head}\t{relation}\t_\t_\n"
            for number, (word, tag, head, relation) in enumerate(rows, 1)
        )
        return "".join(lines) + "\n"
    answers = [
        {"text": text, "answer_start": start} for text, start in zip(example.answers, example.starts, strict=True)
    ]
    record = {"id": example.id, "question": example.question, "context": example.context, "answers": answers}
    return json.dumps(record, ensure_ascii=False) + "\n"
