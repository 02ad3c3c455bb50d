"""Sentences for probes: from two files, checked, or made up where none is given; all of them, or a sample."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from mini_bert.common.draws import address, shuffled
from mini_bert.data.labelled.labels import line_of
from mini_bert.data.labelled.readers import (
    LabelError,
    Parsed,
    Tagged,
    check_labels,
    label_names,
    read_conllu,
    read_tagged,
)
from mini_bert.data.synthetic.dataset import parsed, tagged
from mini_bert.evaluation.metrics import ENTITY_TAGS, is_entity_tag
from mini_bert.finetuning.data import seen

TASKS = {"pos": "part of speech", "dep": "relation to the head", "ner": "entity tag"}
MADE_UP = 1000  # synthetic sentences to learn from, and as many to measure on, unless a number is given
Sentences = Sequence[Tagged | Parsed]


class ProbeData(NamedTuple):
    train: Sentences
    dev: Sentences
    classes: list[str]  # all labels that there are, also those that a sample has not
    notes: list[str] = []  # what a reader of the results has to know  # noqa: RUF012


def labels(task: str, sentences: Sentences) -> list[Tagged]:
    """The labels that a task asks for. Of relations the universal part: `acl:relcl` is `acl`."""
    if task not in TASKS:
        raise ValueError(f"there is no probe {task!r}; expected one of {', '.join(TASKS)}")
    found = []
    for sentence in sentences:
        tags = sentence.tags
        if task == "dep":
            if not isinstance(sentence, Parsed):
                raise TypeError(f"the probe dep takes sentences with trees (Parsed), got {sentence!r:.80}")
            tags = [name.partition(":")[0] for name in sentence.relations]
        found.append(Tagged(sentence.words, tags, sentence.line))
    return found


def read(task: str, train: str | None, dev: str | None, column: int = -1) -> ProbeData | None:
    """The two files, checked; None where none is given"""
    if train is None and dev is None:
        return None
    if train is None or dev is None:
        given, missing = ("train", "dev") if dev is None else ("dev", "train")
        raise ValueError(
            f"--{given} is given, but not --{missing}: a probe learns from one file and is measured on another; "
            "give both, or neither for synthetic sentences"
        )
    files = [read_conllu(path) if task == "dep" else read_tagged(path, column) for path in (train, dev)]
    learnt, measured = (labels(task, sentences) for sentences in files)
    if task == "ner":
        check_bio(learnt, train)
        check_bio(measured, dev)
    classes = label_names(learnt)
    check_labels(measured, classes, dev)
    return ProbeData(files[0], files[1], classes, seen(learnt, measured, train, dev))


def check_bio(sentences: Sequence[Tagged], path: str) -> None:
    """LabelError at the first tag that says nothing about entities"""
    for sentence in sentences:
        for number, (word, tag) in enumerate(zip(sentence.words, sentence.tags, strict=True)):
            if not is_entity_tag(tag):
                raise LabelError(
                    path,
                    line_of(path, sentence, number),
                    f"the tag of {word!r} is {tag!r}, expected {ENTITY_TAGS}; "
                    "if the tags stand in another column, give its number with --column",
                )


def sample(data: ProbeData | None, task: str, seed: int, most: int | None = None) -> ProbeData:
    """At most so many sentences of each file, which ones decides the seed; without files, synthetic ones"""
    if data is not None:
        return data._replace(train=_some(data.train, seed, most), dev=_some(data.dev, seed, most))
    make = tagged if task == "ner" else parsed
    count = MADE_UP if most is None else most
    train, dev = make(count, seed, "train"), make(count, seed, "dev")
    return ProbeData(train, dev, label_names([*labels(task, train), *labels(task, dev)]))


def _some(sentences: Sentences, seed: int, most: int | None) -> Sentences:
    if most is None or most >= len(sentences):
        return sentences
    return [sentences[i] for i in sorted(shuffled(len(sentences), address(seed))[:most].tolist())]
