"""Sentences for probes: from two files, or synthetic; all of them, or a random sample."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from mini_bert.common.draws import address, shuffled
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

TASKS = {"pos": "part of speech", "dep": "relation to the syntactic head", "ner": "entity tag"}
SYNTHETIC_COUNT = 1000  # default number of synthetic sentences, for training and for dev
Sentences = Sequence[Tagged | Parsed]


class ProbeData(NamedTuple):
    train: Sentences
    dev: Sentences
    classes: list[str]  # all labels, including those that a sample lacks
    notes: list[str] = []  # printed above the results  # noqa: RUF012


def labels(task: str, sentences: Sentences) -> list[Tagged]:
    """The sentences with the labels of a task. Relations lose their subtypes: `acl:relcl` becomes `acl`."""
    if task not in TASKS:
        raise ValueError(f"there is no probe {task!r}; expected one of {', '.join(TASKS)}")
    labelled = []
    for sentence in sentences:
        tags = sentence.tags
        if task == "dep":
            if not isinstance(sentence, Parsed):
                raise TypeError(f"the probe dep needs sentences with dependency trees (Parsed), got {sentence!r:.80}")
            tags = [name.partition(":")[0] for name in sentence.relations]
        labelled.append(Tagged(sentence.words, tags, sentence.line))
    return labelled


def read(
    task: str, train: str | None = None, dev: str | None = None, column: int = -1, limit: int | None = None
) -> ProbeData:
    """Reads and checks both files; without files, makes synthetic sentences. limit: of each, at most so many."""
    if train is None and dev is None:
        make, count = (tagged if task == "ner" else parsed), limit or SYNTHETIC_COUNT
        made = make(count), make(count, split="dev")
        return ProbeData(*made, label_names([*labels(task, made[0]), *labels(task, made[1])]))
    if train is None or dev is None:
        given, missing = ("train", "dev") if dev is None else ("dev", "train")
        raise ValueError(
            f"--{given} is given, but not --{missing}: a probe is trained on one file and measured on the other; "
            "give both, or neither for synthetic sentences"
        )
    files = [read_conllu(path) if task == "dep" else read_tagged(path, column) for path in (train, dev)]
    train_labels, dev_labels = (labels(task, sentences) for sentences in files)
    if task == "ner":
        check_bio(train_labels, train)
        check_bio(dev_labels, dev)
    classes = label_names(train_labels)
    check_labels(dev_labels, classes, dev)
    notes = seen(train_labels, dev_labels, train, dev)
    return ProbeData(_sample(files[0], limit), _sample(files[1], limit), classes, notes)


def check_bio(sentences: Sequence[Tagged], path: str) -> None:
    """Raises LabelError at the first tag that is not a BIO tag."""
    for sentence in sentences:
        for word, tag in zip(sentence.words, sentence.tags, strict=True):
            if not is_entity_tag(tag):
                raise LabelError(
                    path,
                    sentence.line,
                    f"the tag of {word!r} is {tag!r}, expected {ENTITY_TAGS}; "
                    "if the tags are in another column, give its number with --column",
                )


def _sample(sentences: Sentences, limit: int | None) -> Sentences:
    """At most `limit` random sentences, in their order."""
    if limit is None or limit >= len(sentences):
        return sentences
    return [sentences[i] for i in sorted(shuffled(len(sentences), address(0))[:limit].tolist())]
