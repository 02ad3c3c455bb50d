"""Weights to start from, other than random ones: those of a model folder, or of a teacher."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from mini_bert.files.model_folder import locate
from mini_bert.inference.loading import model_of, with_generator
from mini_bert.models.base import MASKED_WORDS, NEXT_WORD, REPLACED, Model
from mini_bert.models.pairs import GENERATOR, Pair
from mini_bert.objectives.base import Objective
from mini_bert.objectives.distillation import Distillation, first_weights, folder_name


class Started(NamedTuple):
    note: str  # for the user
    new: list[str]  # parts of the model that keep their random weights

    @property
    def word_head_is_new(self) -> bool:
        """Whether the objective may adapt it to the text."""
        return bool({MASKED_WORDS, NEXT_WORD, GENERATOR} & set(self.new))


def start_from_folder(model: Model, folder: str) -> Started:
    """Copy the weights of a model folder into a new model of the same config.

    Output heads that the folder lacks keep their random weights; those that the model lacks are left out.
    """
    source, new = _source(model, locate(folder))
    theirs, ours = source.named_params(), model.named_params()
    new += _parts(set(ours) - set(theirs))
    unused = _parts(set(theirs) - set(ours))
    for part in (*new, *unused):
        if part not in {*model.head_shapes, *source.head_shapes, GENERATOR}:
            raise ValueError(f"{folder} does not fit the model in its config.json: they differ in {part}")
    for name in set(ours) & set(theirs):
        ours[name].data[...] = theirs[name].data
    note = f"the weights start from {folder_name(folder)}"
    if new:
        note += f"; new, with random weights: {', '.join(new)}"
    if unused:
        note += f"; not needed for this objective and left out: {', '.join(unused)}"
    return Started(note, new)


def _source(model: Any, folder: Path) -> tuple[Any, list[str]]:
    """The model in a folder, and which parts of it are not from there.

    A discriminator gets its generator from a folder inside, or a new one: pretraining needs both.
    """
    source: Any = model_of(folder)
    if not isinstance(model, Pair) or model.generator is None:
        return source, []
    if REPLACED not in source.output_heads or source.generator is not None:
        return source, []
    pair: Any = with_generator(source, folder)
    return (pair, []) if pair is not source else (source.with_new_generator(model.generator), [GENERATOR])


def start_from_teacher(model: Model, objective: Objective) -> Started:
    """Copy layers of the teacher into a student."""
    if not isinstance(objective, Distillation):
        raise ValueError("--init-from-teacher starts with the layers of a teacher: it needs --teacher")
    new = _parts(first_weights(model, objective.teacher))
    note = f"the weights start from layers of the teacher, {objective.source}"
    return Started(note + (f"; new, with random weights: {', '.join(new)}" if new else ""), new)


def _parts(names: Iterable[str]) -> list[str]:
    """The parts of a model that these weights belong to."""
    return sorted({name.partition(".")[0] for name in names})
