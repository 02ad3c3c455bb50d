"""A fine-tuned model: an encoder with a head for a task. One model in memory, one folder on disk.

    model = with_task(encoder, task, dropout=0.1)       a copy of the encoder's weights, and a new head: model.task
    save("mine", model, task, tokenizer, length=64)
    model, task, tokenizer, length = load("mine")

The heads for masked words and the next sentence are dropped. One flat vector holds the weights of encoder and head, so
Adam, clipping and threads treat them alike.

The folder is an ordinary model folder: config.json (with `id2label`, `label2id`), weights, tokenizer. A published BERT
is written with the names that transformers expects: BertForSequenceClassification, BertForTokenClassification and
BertForQuestionAnswering can open it, and folders that they wrote can be loaded here. For a Mini-BERT the head's weights
are called `task.…`. `load_model` loads only the encoder of either.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from mini_bert.common.invocation import command
from mini_bert.common.progress import counted
from mini_bert.common.values import check_positive
from mini_bert.files.model_folder import BUNDLED, locate, read_config, read_folder, write_folder
from mini_bert.finetuning.tasks.answer import Answer
from mini_bert.finetuning.tasks.base import Task
from mini_bert.finetuning.tasks.classify import Classify
from mini_bert.finetuning.tasks.similarity import Similarity
from mini_bert.finetuning.tasks.tag import Tag
from mini_bert.inference.loading import tokenizer_of
from mini_bert.models.base import Model
from mini_bert.models.registry import model_class
from mini_bert.text.base import Tokenizer

TASKS: dict[str, type[Any]] = {kind.name: kind for kind in (Classify, Tag, Answer, Similarity)}


class FineTuned(NamedTuple):
    model: Model
    task: Any
    tokenizer: Tokenizer
    length: int  # the longest sequence, in tokens


def with_task(
    model: Model, task: Task, dropout: float = 0.1, seed: int = 0, tokenizer: Tokenizer | None = None
) -> Model:
    """Returns a new model: a copy of the encoder's weights, and the task's head, initialised from the seed.

    dropout: in the encoder and before the head, in training. It replaces every dropout of the config, also those that a
    published config has for a task (`classifier_dropout`, `seq_classif_dropout`, `summary_last_dropout`, …). With a
    tokenizer, the config of an XLNet says whether its summary token is the first or the last. A dense layer on [CLS]
    starts as the pooler of a published BERT that has one.
    """
    config = model.config.with_dropout(dropout)
    if tokenizer is not None and hasattr(config, "summary_type"):
        first = tokenizer.assemble([0]).summary == 0
        config = replace(config, summary_type="first" if first else "last")
    twin = type(model)(config, (), None, model.dtype)
    twin.task, twin.fine_tuned = task.layer(twin, dropout), f"with `mini-bert finetune {task.name}`"
    twin._own_memory(seed, model.dtype)
    weights = {name: param.data for name, param in model.named_params().items()}
    for name, param in twin.named_params().items():
        part, _, kind = name.rpartition(".")  # task.dense and w
        start = weights.get(f"{model.task_start.get(part, part)}.{kind}")
        if start is not None and start.shape == param.shape:
            param.data[...] = start
    return twin


def lr_multipliers(model: Model, decay: float) -> list[tuple[slice, float]]:
    """Layer-wise decay of the learning rate, for Adam: 1 for the head, `decay` for the last block, decay² for the one
    below, …, decay^(L+1) for the embeddings. Lower layers are more general, and should change less."""
    heights, top = model.heights(), len(model.encoder.blocks) + 1
    return [(param.place, decay ** (top - heights[name])) for name, param in model.named_params().items()]


# ---------------------------------------------------------------------- the folder


def save(
    folder: str | os.PathLike[str],
    model: Model,
    task: Task,
    tokenizer: Tokenizer,
    length: int,
    card: str | None = None,
) -> None:
    """Write the model folder atomically."""
    values = folder_config(model, task, tokenizer, length)
    write_folder(folder, values, model.kept_tensors(task.architecture), tokenizer, card)


def folder_config(model: Model, task: Task, tokenizer: Tokenizer, length: int) -> dict[str, Any]:
    """The content of config.json."""
    config = model.config
    if getattr(config, "pad_token_id", 0) is None and "pad" in tokenizer.roles:  # transformers' GPT-2 finds the last
        config = config.with_padding(tokenizer.pad_id)  # token of a text by it
    names = {
        "id2label": {str(number): label for number, label in enumerate(task.labels)},
        "label2id": {label: number for number, label in enumerate(task.labels)},
    }
    published = model.task_class(task.architecture)
    return {
        **config.to_dict(),
        **({"architectures": [published]} if published else {}),
        **(names if task.labels else {}),
        **task.more_config(),
        "fine_tuning": {"task": task.name, "length": length, **task.settings()},
    }


def load(folder: str | os.PathLike[str], dtype: Any = np.float32) -> FineTuned:
    """Read a folder written by `save`, or by the BertFor… classes of transformers"""
    folder = locate(folder)
    values, tensors = read_folder(folder)
    try:
        kind = model_class(values)
    except ValueError as error:
        raise ValueError(f"{folder}: {error}") from None
    config = kind.config_in(values, tensors, str(folder))
    task, tuned = _task(kind, config, folder, values, tensors)
    model = kind(config, (), None, dtype)
    model.task, model.fine_tuned = task.layer(model, 0.0), f"with `mini-bert finetune {task.name}`"
    model._own_memory(None, dtype)
    model.assign_tensors(tensors, str(folder), task.architecture)
    length = min(tuned.get("length", model.max_length), model.max_length)
    return FineTuned(model.kept_as(values), task, tokenizer_of(folder, model.config), length)


def is_tuned(folder: str | os.PathLike[str]) -> bool:
    """Whether a model folder holds the head of a task: ours, or a published BertFor…"""
    values = read_config(locate(folder))
    names = values.get("architectures") or [""]
    return "fine_tuning" in values or model_class(values).task_of_class(str(names[0])) in model_class(values).task_heads


def _task(
    model: type[Model], config: Any, folder: Path, values: Mapping[str, Any], tensors: Mapping[str, np.ndarray]
) -> tuple[Any, dict[str, Any]]:
    """The task that config.json describes: by our settings, or by the name of a class of transformers"""
    for name, expected in (("architectures", list), ("id2label", dict), ("fine_tuning", dict)):
        if not isinstance(values.get(name) or expected(), expected):
            raise ValueError(f"{folder}: {name} in config.json is {values[name]!r:.60}, expected a {expected.__name__}")
    architecture = model.task_of_class(str((values.get("architectures") or [""])[0]))
    head = model.task_heads.get(architecture, {}).get("linear")
    names = {str(number): label for number, label in _id2label(values, len(tensors.get(f"{head}.weight", ())))}
    labels = [label for number in range(len(names)) if isinstance(label := names.get(str(number)), str)]
    if len(labels) < len(names):
        raise ValueError(f"{folder}: id2label in config.json is {names!r:.60}, expected a name for each of 0, 1, 2, …")
    if architecture == Classify.architecture:
        _check_problem(folder, values.get("problem_type"), len(labels))
    tuned = values.get("fine_tuning")
    if tuned is None:
        tuned = _published(folder, architecture, labels, model.sentence_settings(config))
    settings = {name: value for name, value in tuned.items() if name not in ("task", "length")}
    kind = TASKS.get(str(tuned.get("task")))
    if kind is None:
        raise ValueError(f"{folder}: fine-tuned for {tuned.get('task')!r:.60}, expected one of {', '.join(TASKS)}")
    check_positive("length", tuned.get("length", 1))
    try:
        return (kind(labels, **settings) if kind.labelled else kind(**settings)), tuned
    except TypeError:
        raise ValueError(f"{folder}: fine_tuning in config.json has unknown settings: {settings!r:.100}") from None


def _check_problem(folder: Path, problem: Any, labels: int) -> None:
    """`problem_type` tells transformers what the scores of a text mean; usually it is left out."""
    expected = "regression" if labels == 1 else "single_label_classification"
    if problem not in (None, expected):
        raise ValueError(
            f"{folder}: problem_type in config.json is {problem!r:.60}, but with {counted(labels, 'label')} only "
            f"{expected!r} is supported: the scores would be shown as something else; use transformers for this model"
        )


def _id2label(values: Mapping[str, Any], classes: int):
    """transformers leaves out default names: LABEL_0, LABEL_1, …"""
    if values.get("id2label"):
        return values["id2label"].items()
    return [(number, f"LABEL_{number}") for number in range(classes)]


def _published(folder: Path, architecture: str, labels: list[str], sentence: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a published model. sentence: how those for texts pool (models/saving.py)"""
    for name, kind in TASKS.items():
        if architecture == kind.architecture and kind.fits(len(labels)):
            return {"task": name, **kind.published, **(sentence if "pooling" in kind.published else {})}
    shown = folder.name if folder.parent == BUNDLED else str(folder)
    remedy = f"{command('finetune', 'classify', '--model', shown)} --train FILE --dev FILE --out FOLDER"
    raise ValueError(
        f"{shown} is a model that is not fine-tuned for a task; fine-tune it with `{remedy}` (or tag, qa, similarity)"
    )
