"""A fine-tuned model: an encoder, and on it the layer for a task. One model in memory, one folder on disk.

    model = with_task(encoder, task, dropout=0.1)       the encoder's weights, copied; a new layer on top, model.task
    save("mine", model, task, tokenizer, length=64)
    model, task, tokenizer, length = load("mine")

The heads for masked words and for the next sentence are gone; the vector of all weights holds encoder and task alike,
so that Adam, clipping and threads need not know of it.

The folder is a model folder as people know it: config.json (with `id2label`, `label2id`), weights, tokenizer. That of
a published BERT has the names that transformers expects, and can be opened with its BertForSequenceClassification,
BertForTokenClassification or BertForQuestionAnswering; and a folder that these have written can be loaded here. In that
of a Mini-BERT the layer's weights are called `task.…`. Of either, `load_model` gives the encoder alone.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from mini_bert.common.atomic import replaced_folder
from mini_bert.files.model_folder import CONFIG, WEIGHTS, Name, assign, locate, read_folder, write_tensors
from mini_bert.finetuning.tasks.answer import Answer
from mini_bert.finetuning.tasks.base import Task
from mini_bert.finetuning.tasks.classify import Classify
from mini_bert.finetuning.tasks.similarity import Similarity
from mini_bert.finetuning.tasks.tag import Tag
from mini_bert.inference.loading import max_length, tokenizer_of
from mini_bert.models.bert import Bert, BertConfig, canonical, linear_names
from mini_bert.models.config import MiniBertConfig
from mini_bert.models.mini_bert import MiniBERT
from mini_bert.text.wordpiece import WordPieceTokenizer

TASKS: dict[str, type[Any]] = {kind.name: kind for kind in (Classify, Tag, Answer, Similarity)}
OURS = "MiniBert"  # in place of "Bert" in the names of architectures


class FineTuned(NamedTuple):
    model: MiniBERT | Bert
    task: Any
    tokenizer: WordPieceTokenizer
    length: int  # tokens that a sequence may have


def with_task(model: MiniBERT | Bert, task: Task, dropout: float = 0.1, seed: int = 0) -> MiniBERT | Bert:
    """-> a model of its own: the encoder's weights, and the task's layer, which starts as the seed says

    dropout: in the encoder and before the head, while training. A dense layer on [CLS] starts as the pooler of a
    published BERT that has one.
    """
    twin = _bare(model.config, dropout, model.dtype)
    twin.task = task.layer(twin, dropout)
    twin._own_memory(seed, model.dtype)
    weights = {name: param.data for name, param in model.named_params().items()}
    for name, param in twin.named_params().items():
        start = weights.get(name, weights.get(name.replace("task.dense", "pooler.dense")))
        if start is not None and start.shape == param.shape:
            param.data[...] = start
    return twin


def _bare(config: MiniBertConfig | BertConfig, dropout: float | None, dtype: Any) -> MiniBERT | Bert:
    """An encoder without heads, all weights 0"""
    if isinstance(config, MiniBertConfig):
        config = config if dropout is None else replace(config, dropout=dropout)
        return MiniBERT(config, seed=None, dtype=dtype, head=False)
    if dropout is not None:
        config = replace(config, hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout)
    return Bert(config, pooler=False, masked_words=False, next_sentence=False, seed=None, dtype=dtype)


def from_scratch(model: MiniBERT | Bert, seed: int) -> MiniBERT | Bert:
    """A model of the same sizes that has learnt nothing: the control"""
    if isinstance(model, MiniBERT):
        return MiniBERT(model.config, seed=seed, dtype=model.dtype)
    return Bert(model.config, masked_words=False, next_sentence=False, seed=seed, dtype=model.dtype)


def shares(model: MiniBERT | Bert, decay: float) -> list[tuple[slice, float]]:
    """Layer-wise decay of the learning rate, for Adam: 1 for the task, `decay` for the last block, decay² for the one
    below, …, decay^(L+1) for the embeddings. What is far down is general, and should change least."""
    blocks = len(model.encoder.blocks)
    found = []
    for name, param in model.named_params().items():
        part, _, rest = name.partition(".")
        if part == "task":
            height = blocks + 1
        elif part == "encoder":
            height = int(rest.split(".")[1]) + 1
        else:
            height = blocks if part == "final_norm" else 0
        found.append((param.place, decay ** (blocks + 1 - height)))
    return found


# ---------------------------------------------------------------------- the folder


def save(
    folder: str | os.PathLike[str],
    model: MiniBERT | Bert,
    task: Task,
    tokenizer: WordPieceTokenizer,
    length: int,
    card: str | None = None,
) -> None:
    """Write the model folder atomically."""
    with replaced_folder(Path(folder)) as new:
        write_tensors(new / WEIGHTS, _tensors(model, task))
        (new / CONFIG).write_text(json.dumps(_config(model, task, length), indent=2) + "\n", encoding="utf-8")
        tokenizer.save(new)
        if card is not None:
            (new / "README.md").write_text(card, encoding="utf-8")


def _config(model: MiniBERT | Bert, task: Task, length: int) -> dict[str, Any]:
    if isinstance(model, MiniBERT):
        values = model.config.to_dict()
        architecture = task.architecture.replace("Bert", OURS, 1)
    else:
        values = {"model_type": "bert", **asdict(model.config)}
        architecture = task.architecture
    names = {
        "id2label": {str(number): label for number, label in enumerate(task.labels)},
        "label2id": {label: number for number, label in enumerate(task.labels)},
    }
    tuned = {"task": task.name, "length": length, **task.settings()}
    return {**values, "architectures": [architecture], **(names if task.labels else {}), **task.more_config(),
            "fine_tuning": tuned}  # fmt: skip


def _tensors(model: MiniBERT | Bert, task: Task) -> dict[str, np.ndarray]:
    params = model.named_params()
    if isinstance(model, MiniBERT):
        return {name: param.data for name, param in params.items()}
    tensors: dict[str, np.ndarray] = {}
    for entry in _names(model, task):
        tensors |= entry.save(params[entry.ours].data)
    if not task.head_name:
        return tensors  # a BertModel: its parts have no further name
    return {name if name.startswith(f"{task.head_name}.") else f"bert.{name}": array for name, array in tensors.items()}


def _names(model: Bert, task: Task) -> list[Name]:
    """Which published tensor is which of ours"""
    theirs = {"task.dense": "pooler.dense", "task.linear": task.head_name}
    parts = {name.rpartition(".")[0] for name in model.named_params() if name.startswith("task.")}
    return [*model.names(), *(name for part in sorted(parts) for name in linear_names(part, theirs[part]))]


def load(folder: str | os.PathLike[str], dtype: Any = np.float32) -> FineTuned:
    """Read what `save` wrote, or what transformers' BertFor… classes have written"""
    folder = locate(folder)
    values, tensors = read_folder(folder)
    if values.get("model_type") == "mini_bert":
        if "fine_tuning" not in values:
            raise ValueError(_untuned(folder))
        config: Any = MiniBertConfig.from_dict(values)
    else:
        config = BertConfig.from_dict(values)
        tensors = {canonical(name): array for name, array in tensors.items()}
    model = _bare(config, None, dtype)
    task, tuned = _task(folder, values, tensors)
    model.task = task.layer(model, 0.0)
    model._own_memory(None, dtype)
    if isinstance(model, Bert):
        table = _names(model, task)
        absent = sorted({name for entry in table for name in entry.theirs} - set(tensors))
        if absent:
            raise ValueError(f"{folder} lacks {', '.join(absent[:5])}{' and more' if len(absent) > 5 else ''}")
        tensors = {entry.ours: entry.load(tensors) for entry in table}
    assign(model.named_params(), tensors, str(folder))
    length = min(int(tuned.get("length", max_length(model))), max_length(model))
    return FineTuned(model, task, tokenizer_of(folder, model.config.vocab_size), length)


def _task(folder: Path, values: Mapping[str, Any], tensors: Mapping[str, np.ndarray]) -> tuple[Any, dict[str, Any]]:
    """The task that config.json describes: in our words, or by the name of a class of transformers"""
    labels = [label for _, label in sorted((int(number), label) for number, label in _id2label(values, tensors))]
    tuned = values.get("fine_tuning")
    if tuned is None:
        tuned = _published(folder, values, labels)
    settings = {name: value for name, value in tuned.items() if name not in ("task", "length")}
    if tuned.get("task") not in TASKS:
        raise ValueError(f"{folder}: fine-tuned for {tuned.get('task')!r}, expected one of {', '.join(TASKS)}")
    kind = TASKS[tuned["task"]]
    return (kind(labels, **settings) if kind.labelled else kind(**settings)), tuned


def _id2label(values: Mapping[str, Any], tensors: Mapping[str, np.ndarray]):
    """Files of transformers leave out names that nobody gave: LABEL_0, LABEL_1, …"""
    if values.get("id2label"):
        return values["id2label"].items()
    classes = len(tensors.get("classifier.bias", ()))
    return [(number, f"LABEL_{number}") for number in range(classes)]


def _published(folder: Path, values: Mapping[str, Any], labels: list[str]) -> dict[str, Any]:
    architecture = (values.get("architectures") or [""])[0]
    for name, kind in TASKS.items():
        if architecture == kind.architecture and kind.fits(len(labels)):
            return {"task": name, **kind.published}
    raise ValueError(_untuned(folder))


def _untuned(folder: Path) -> str:
    return (
        f"{folder} holds a model that is not fine-tuned for a task; make one from it with "
        f"`mini-bert finetune classify --model {folder} --train FILE --dev FILE --out FOLDER` (or tag, qa, similarity)"
    )
