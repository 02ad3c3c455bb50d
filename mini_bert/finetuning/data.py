"""Examples to learn from and examples to measure on: from two files, from one that is cut in two, or made up.

**One file, cut in two.** A tenth of it is held out. What belongs together stays together: all questions on one text,
and texts that come more than once. What stands together in a file mostly belongs together, too (phrases of a sentence,
sentences of a document), so blocks are held out and not single lines; and a file may be sorted by label, so there are
several blocks, spread over all of it. That is still no independent dev set, and what is shown says so.

**A part of the training data** (`--max-samples`) is drawn at random, as the seed says: the first lines of a sorted file
would be all of one label.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Hashable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from mini_bert.common.draws import address, shuffled
from mini_bert.common.progress import counted
from mini_bert.data.labelled import readers as labelled
from mini_bert.data.labelled.examples import line_of
from mini_bert.data.labelled.readers import Labelled, Question, Tagged
from mini_bert.evaluation.metrics import ENTITY_TAGS, is_entity_tag

SYNTHETIC = {"classify": 2000, "tag": 2000, "qa": 1000, "similarity": 2000}  # examples to train on, where no file is
HELD_OUT = 10  # of a training file without a dev file, one in so many is held out
BLOCKS = 10  # at most, in which they stand
COMMON = 0.1  # share of the dev examples that training sees, too, from which on it is said


class TaskData(NamedTuple):
    """Examples, the names under which results speak of them, and what a reader of the results has to know"""

    train: list[Any]
    dev: list[Any]
    train_name: str
    dev_name: str
    labels: list[str] = []  # all that there are, also those that a part of the file has not  # noqa: RUF012
    notes: list[str] = []  # noqa: RUF012


READERS: dict[str, Callable[..., list[Any]]] = {
    "classify": labelled.read_labelled,
    "tag": labelled.read_tagged,
    "qa": labelled.read_squad,
    "similarity": labelled.read_scored,
}


def read_data(
    kind: str, train: str | None, dev: str | None, max_samples: int | None = None, seed: int = 0, **columns: Any
) -> TaskData:
    """Both files, or one that is cut in two, or synthetic examples; every label of a dev file must be in train

    max_samples: learn from so many, which ones decides the seed. columns: go to the reader of the files.
    """
    if train is None:
        if dev is not None:
            raise ValueError(f"there is a dev file, {dev}, but no training file; give it with --train")
        return _synthetic(kind, max_samples)
    given = {name: value for name, value in columns.items() if value is not None}
    examples, name = _read(kind, train, given), Path(train).name
    labels = labelled.label_names(examples) if kind in ("classify", "tag") else []
    notes = _no_entities(examples, labels, train) if kind == "tag" else []
    if dev is None:
        rest, kept, note = cut(examples, train)
        data = TaskData(rest, kept, name, f"a part of {name}", labels, [*notes, note])
    else:
        measured = _read(kind, dev, given)
        if labels:
            labelled.check_labels(measured, labels, dev)
        notes += seen(examples, measured, train, dev)
        data = TaskData(examples, measured, name, Path(dev).name, labels, notes)
    if kind == "classify" and len({example.second is None for example in [*data.train, *data.dev]}) > 1:
        raise ValueError(f"one of {train} and {dev} has single texts, the other pairs; expected the same in both")
    if max_samples is not None and max_samples < len(data.train):
        drawn = f"learns from {counted(max_samples, 'example')}, drawn at random from {len(data.train):,}"
        data = data._replace(train=drawn_from(data.train, max_samples, seed), notes=[*data.notes, drawn])
    return data


def _read(kind: str, path: str, columns: dict[str, Any]) -> list[Any]:
    try:
        return READERS[kind](path, **columns)
    except labelled.ColumnError as error:
        option = f"--{error.argument}"
        raise error.with_remedy(
            f"Name the one you mean with {option} NAME, or give its number, {option} 1, if there is no header"
        ) from None


def cut(examples: Sequence[Any], path: str) -> tuple[list[Any], list[Any], str]:
    """-> those to learn from, those held out, and what to say about it"""
    groups: dict[Hashable, list[Any]] = {}  # in the order of the file
    for example in examples:
        groups.setdefault(together(example), []).append(example)
    asked = isinstance(examples[0], Question)
    if len(groups) < 2 or (len(examples) < HELD_OUT and not asked):  # a text has many questions
        what = f"questions on {counted(len(groups), 'text')}" if asked else "text"
        same = f", all the same {what}" if len(groups) == 1 < len(examples) else ""
        has = f"{counted(len(examples), 'example')}{same}"
        raise ValueError(f"{path} has {has}, too few to hold some out; give a file to measure on with --dev")
    chosen = held_out(len(groups))
    parts: tuple[list[Any], list[Any]] = [], []
    for number, group in enumerate(groups.values()):
        parts[number in chosen].extend(group)
    labels = [{example.label for example in part} for part in (parts[0], examples) if isinstance(part[0], Labelled)]
    if labels and len(labels[0]) == 1 < len(labels[1]):
        raise ValueError(
            f"{path} has {counted(len(examples), 'example')}; with {counted(len(parts[1]), 'example')} held out to "
            f"measure on, all others have the label {labels[0].pop()!r}, and nothing can be learnt from them; give a "
            "file to measure on with --dev"
        )
    blocks = counted(_blocks(len(chosen)), "block")
    whole = "; no text has questions on both sides" if asked else ""
    note = (
        f"held out: {len(parts[1]):,} of the {counted(len(examples), 'example')} of {Path(path).name}, {blocks} spread "
        f"over it{whole}. No independent dev set: what was learnt from is much like it, so expect less on other data; "
        "give a file of its own with --dev"
    )
    return *parts, note


def held_out(count: int) -> set[int]:
    """Which of `count` things, a tenth: the end of each of some equal parts

    >>> sorted(held_out(40)), sorted(held_out(3))
    ([18, 19, 38, 39], [2])
    """
    kept = max(1, count // HELD_OUT)
    blocks = _blocks(kept)
    found: set[int] = set()
    for block in range(blocks):
        size = kept * (block + 1) // blocks - kept * block // blocks
        end = count * (block + 1) // blocks
        found.update(range(end - size, end))
    return found


def _blocks(kept: int) -> int:
    """As many as each has members, but not more than BLOCKS"""
    return min(BLOCKS, math.isqrt(kept))


def together(example: Any) -> Hashable:
    """What examples that must not be parted have in common: the text"""
    if isinstance(example, Question):
        return example.context
    if isinstance(example, Tagged):
        return tuple(word.casefold() for word in example.words)
    first, second = example[:2]  # Labelled, Scored
    return first.casefold(), second and second.casefold()


def drawn_from(examples: Sequence[Any], count: int, seed: int) -> list[Any]:
    """So many of them, in their order"""
    return [examples[place] for place in sorted(shuffled(len(examples), address(seed))[:count].tolist())]


def seen(train: Sequence[Any], dev: Sequence[Any], train_path: str, dev_path: str) -> list[str]:
    """What to say where dev examples are in the training data, too"""
    if os.path.samefile(train_path, dev_path):
        return [
            f"{train_path} is given both to learn from and to measure on: the scores say how well it was learnt by "
            "heart, and nothing about other data; give another file with --dev"
        ]
    known = {_whole(example) for example in train}
    count = sum(_whole(example) in known for example in dev)
    if count < COMMON * len(dev):
        return []
    are = "is" if count == 1 else "are"
    return [f"{count:,} of the {counted(len(dev), 'dev example')} {are} in the training data, too: the scores flatter"]


def _no_entities(sentences: Sequence[Tagged], labels: Sequence[str], path: str) -> list[str]:
    """What to say where tags look like those of entities, and one does not, so that no entities can be scored"""
    if not any(label != "O" and is_entity_tag(label) for label in labels) or all(map(is_entity_tag, labels)):
        return []
    line, word, tag = next(
        (line_of(path, sentence, number), word, tag)
        for sentence in sentences
        for number, (word, tag) in enumerate(zip(sentence.words, sentence.tags, strict=True))
        if not is_entity_tag(tag)
    )
    return [
        f"{path}:{line}: scored word by word, without entity F1, since the tag of {word!r} is {tag!r}; "
        f"expected {ENTITY_TAGS}"
    ]


def _whole(example: Any) -> Hashable:
    """All of an example but its place in a file"""
    if isinstance(example, Labelled):
        return together(example), example.label
    if isinstance(example, Question):
        return example.context, example.question
    return together(example), tuple(example.tags) if isinstance(example, Tagged) else example.score


def _synthetic(kind: str, max_samples: int | None) -> TaskData:
    from mini_bert.data.synthetic import dataset as synthetic

    makers: dict[str, Callable[..., list[Any]]] = {
        "classify": synthetic.labelled,
        "tag": synthetic.tagged,
        "qa": synthetic.questions,
        "similarity": synthetic.scored,
    }
    count = SYNTHETIC[kind] if max_samples is None else max_samples
    train, dev = makers[kind](count, split="train"), makers[kind](max(count // 5, 50), split="dev")
    labels = labelled.label_names([*train, *dev]) if kind in ("classify", "tag") else []
    return TaskData(train, dev, synthetic.SYNTHETIC, synthetic.SYNTHETIC, labels)
