"""Training and dev examples: from two files, from one file with a part held out, or synthetic.

Without a dev file, about a tenth of the training file is held out. Examples with the same text stay on one side, and so
do all questions on one text. Neighbouring lines are often related (phrases of a sentence, sentences of a document), so
blocks are held out rather than single lines; several blocks spread over the file, because it may be sorted by label.
This is still not an independent dev set, and the output says so.
"""

from __future__ import annotations

import math
import os
from bisect import bisect_right
from collections.abc import Callable, Hashable, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

from mini_bert.common.draws import address, shuffled
from mini_bert.common.progress import counted
from mini_bert.data.labelled import readers as labelled
from mini_bert.data.labelled.readers import Labelled, Question, Tagged
from mini_bert.data.synthetic import dataset as synthetic
from mini_bert.evaluation.metrics import ENTITY_TAGS, is_entity_tag

SYNTHETIC = {  # training examples if there is no file
    **{"classify": ("sentiment", 2000), "tag": ("tags", 2000)},
    **{"qa": ("questions", 1000), "similarity": ("similarity", 2000)},
}
HELD_OUT = 10  # one in this many examples is held out if there is no dev file
BLOCKS = 10  # in at most this many blocks
COMMON = 0.1  # warn if this fraction of the dev examples is in the training data


class TaskData(NamedTuple):
    """Examples, where they come from, and notes to print with the scores."""

    train: list[Any]
    dev: list[Any]
    train_name: str
    dev_name: str
    labels: list[str] = []  # of the whole file, even if the training part lacks some  # noqa: RUF012
    notes: list[str] = []  # noqa: RUF012


READERS: dict[str, Callable[..., list[Any]]] = {
    "classify": labelled.read_labelled,
    "tag": labelled.read_tagged,
    "qa": labelled.read_squad,
    "similarity": labelled.read_scored,
}


def read_data(
    kind: str,
    train: str | None = None,
    dev: str | None = None,
    max_samples: int | None = None,
    seed: int = 0,
    views: bool = False,
    **columns: Any,
) -> TaskData:
    """Read two files, or one with a part held out; without files, make synthetic examples.

    max_samples: train on this many, drawn at random with the seed (a sorted file would start with one label).
    views: the training file is plain text, without scores. columns: passed to the reader of the files.
    """
    if views and (train is None or dev is None):
        raise ValueError(
            "views are learnt from plain text and measured on scored pairs: give both, such as --train wiki.txt --dev "
            "sts-dev.tsv"
        )
    if train is None:
        if dev is not None:
            raise ValueError(f"there is a dev file, {dev}, but no training file; add --train")
        return _synthetic(kind, max_samples)
    given = {name: value for name, value in columns.items() if value is not None}
    examples: list[Any] = labelled.read_sentences(train) if views else _read(kind, train, given)
    name = Path(train).name
    labels = labelled.label_names(examples) if kind in ("classify", "tag") else []
    notes = _no_entities(examples, labels, train) if kind == "tag" else []
    if kind == "classify" and len(examples) >= HELD_OUT and len(labels) > len(examples) / 2:
        notes.append(
            f"there are {len(labels):,} different labels for {len(examples):,} examples, such as {labels[0]!r:.40}: "
            "these are hardly classes; --label names another column"
        )
    if dev is None:
        rest, kept, note = cut(examples, train)
        data = TaskData(rest, kept, name, f"held out of {name}", labels, [*notes, note])
    else:
        measured = examples if not views and os.path.samefile(train, dev) else _read(kind, dev, given)
        if labels:
            labelled.check_labels(measured, labels, dev)
        notes += seen(examples, measured, train, dev)
        data = TaskData(examples, measured, name, Path(dev).name, labels, notes)
    if kind == "classify" and len({example.second is None for example in [*data.train, *data.dev]}) > 1:
        raise ValueError(f"one of {train} and {dev} has single texts, the other pairs; expected the same in both")
    if max_samples is not None and max_samples < len(data.train):
        drawn = f"trained on {counted(max_samples, 'example')}, drawn at random from {len(data.train):,}"
        data = data._replace(train=drawn_from(data.train, max_samples, seed), notes=[*data.notes, drawn])
    return data


def _read(kind: str, path: str, columns: dict[str, Any]) -> list[Any]:
    try:
        return READERS[kind](path, **columns)
    except labelled.ColumnError as error:
        raise error.with_option(f"--{error.argument}") from None


def cut(examples: Sequence[Any], path: str) -> tuple[list[Any], list[Any], str]:
    """Returns the training examples, the examples held out, and a note for the report"""
    groups: dict[Hashable, list[Any]] = {}  # in the order of the file
    for example in examples:
        groups.setdefault(together(example), []).append(example)
    asked = isinstance(examples[0], Question)
    if len(groups) < 2 or (len(examples) < HELD_OUT and not asked):  # a text has many questions
        what = f"questions on {counted(len(groups), 'text')}" if asked else "text"
        same = f", all the same {what}" if len(groups) == 1 < len(examples) else ""
        has = f"{counted(len(examples), 'example')}{same}"
        raise ValueError(f"{path} has {has}, too few to hold some out; give a dev file with --dev")
    chosen = held_out(list(map(len, groups.values())))
    parts: tuple[list[Any], list[Any]] = [], []
    for number, group in enumerate(groups.values()):
        parts[number in chosen].extend(group)
    labels = [{example.label for example in part} for part in (parts[0], examples) if isinstance(part[0], Labelled)]
    if labels and len(labels[0]) == 1 < len(labels[1]):
        raise ValueError(
            f"{path} has {counted(len(examples), 'example')}; with {counted(len(parts[1]), 'example')} held out, all "
            f"others have the label {labels[0].pop()!r}, and there is nothing to learn; give a dev file with --dev"
        )
    whole = "; no text has questions on both sides" if asked else ""
    note = (
        f"measured on {counted(len(parts[1]), 'example')} of {Path(path).name}, not used for training{whole}. They are "
        "not an independent dev set, because they resemble the training data, so expect less on other data; for scores "
        "to report, give a separate file with --dev"
    )
    return *parts, note


def held_out(sizes: Sequence[int]) -> set[int]:
    """Which groups of examples are held out, about a tenth of all examples: the ends of some equal parts of the file

    There are about as many parts as examples from each, at most BLOCKS. A group of more than a tenth of the examples is
    held out only if all are as large: then the last of the smallest. At least half of the groups stay in training.

    >>> sorted(held_out([1] * 40)), sorted(held_out([2] * 20)), sorted(held_out([18, 22])), sorted(held_out([1, 1, 98]))
    ([18, 19, 38, 39], [9, 19], [0], [1])
    """
    ends = list(accumulate(sizes))
    wanted = max(1, ends[-1] // HELD_OUT)
    blocks = min(BLOCKS, math.isqrt(wanted))
    chosen: set[int] = set()
    count = 0
    for block in range(1, blocks + 1):
        target, place = wanted * block // blocks, bisect_right(ends, ends[-1] * block // blocks)
        while place and count < target and len(chosen) < len(sizes) // 2:
            place -= 1
            if place not in chosen and count + sizes[place] <= target:
                chosen.add(place)
                count += sizes[place]
    return chosen or {min(reversed(range(len(sizes))), key=lambda place: sizes[place])}


def together(example: Any) -> Hashable:
    """The key of examples that must stay on one side: their text"""
    if isinstance(example, Question):
        return example.context
    if isinstance(example, Tagged):
        return tuple(word.casefold() for word in example.words)
    first, second = example[:2]  # Labelled, Scored
    return first.casefold(), second and second.casefold()


def drawn_from(examples: Sequence[Any], count: int, seed: int) -> list[Any]:
    """A random choice, in the original order"""
    return [examples[place] for place in sorted(shuffled(len(examples), address(seed))[:count].tolist())]


def seen(train: Sequence[Any], dev: Sequence[Any], train_path: str, dev_path: str) -> list[str]:
    """A note if many dev examples are also in the training data."""
    if os.path.samefile(train_path, dev_path):
        return [
            f"{train_path} is both training and dev data: the scores show how well it was memorised, and nothing about "
            "other data; give another file with --dev"
        ]
    known = {_whole(example) for example in train}
    count = sum(_whole(example) in known for example in dev)
    if count < COMMON * len(dev):
        return []
    are = "is" if count == 1 else "are"
    return [f"{count:,} of the {counted(len(dev), 'dev example')} {are} also in the training data: scores are too high"]


def _no_entities(sentences: Sequence[Tagged], labels: Sequence[str], path: str) -> list[str]:
    """A note if some tags are entity tags and others are not, so that there is no entity F1"""
    if not any(label != "O" and is_entity_tag(label) for label in labels) or all(map(is_entity_tag, labels)):
        return []
    line, word, tag = next(
        (sentence.line, word, tag)
        for sentence in sentences
        for word, tag in zip(sentence.words, sentence.tags, strict=True)
        if not is_entity_tag(tag)
    )
    return [
        f"{path}:{line}: scored word by word, without entity F1, because the tag of {word!r} is {tag!r}; "
        f"expected {ENTITY_TAGS}"
    ]


def _whole(example: Any) -> Hashable:
    """An example without its place in the file"""
    if isinstance(example, Labelled):
        return together(example), example.label
    if isinstance(example, Question):
        return example.context, example.question
    return together(example), tuple(example.tags) if isinstance(example, Tagged) else example.score


def _synthetic(kind: str, max_samples: int | None) -> TaskData:
    name, usual = SYNTHETIC[kind]
    count = usual if max_samples is None else max_samples
    train, dev = synthetic.examples(name, count), synthetic.examples(name, max(count // 5, 50), split="dev")
    labels = labelled.label_names([*train, *dev]) if kind in ("classify", "tag") else []
    return TaskData(train, dev, synthetic.SYNTHETIC, synthetic.SYNTHETIC, labels)
