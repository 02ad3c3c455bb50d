"""Weights to start from, other than random ones: those of a model folder, or of a teacher."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from mini_bert.files.model_folder import locate
from mini_bert.inference.loading import model_of, with_generator
from mini_bert.models.base import MASKED_WORDS, NEXT_WORD, Model
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
    source: Any = model_of(locate(folder))
    is_pair = isinstance(model, Pair) and model.generator is not None
    if is_pair:
        source = with_generator(source, folder)
    elif getattr(source, GENERATOR, None) is not None:  # a checkpoint of a pair, in one file
        source = source.alone()
    starts = _start_discriminator if is_pair and source.generator is None else _copy_weights
    new, unused = starts(model, source)
    note = f"the weights start from {folder_name(folder)}"
    if new:
        note += f"; new, with random weights: {', '.join(new)}"
    if unused:
        note += f"; not needed for this objective and left out: {', '.join(unused)}"
    return Started(note, new)


def _start_discriminator(model: Any, source: Model) -> tuple[list[str], list[str]]:
    """The weights of a single model for the discriminator of a pair, whose generator is new."""
    discriminator = model.alone()
    new, unused = _copy_weights(discriminator, source)
    _copy_weights(model, discriminator.with_new_generator(model.generator))
    return [GENERATOR, *new], unused


def _copy_weights(model: Model, source: Model) -> tuple[list[str], list[str]]:
    """Copy the weights that both have. Returns the heads that only the model has, and those of the source alone."""
    ours, theirs = model.named_params(), source.named_params()
    new, unused = _parts(model, set(ours) - set(theirs)), _parts(source, set(theirs) - set(ours))
    for part in (*new, *unused):
        if part not in {*model.head_shapes, GENERATOR}:
            raise ValueError(f"the weights do not fit the model: they differ in {part}")
    for name in set(ours) & set(theirs):
        ours[name].data[...] = theirs[name].data
    return new, unused


def start_from_teacher(model: Model, objective: Objective) -> Started:
    """Copy layers of the teacher into a student."""
    if not isinstance(objective, Distillation):
        raise ValueError("--init-from-teacher starts with the layers of a teacher: it needs --teacher")
    new = _parts(model, first_weights(model, objective.teacher))
    note = f"the weights start from layers of the teacher, {objective.source}"
    return Started(note + (f"; new, with random weights: {', '.join(new)}" if new else ""), new)


def _parts(model: Model, names: Iterable[str]) -> list[str]:
    """The parts of a model that these weights belong to; heads by what they predict."""
    heads = {id(model.output_head(head)): head for head in model.output_heads}
    parts = {name.partition(".")[0] for name in names}
    return sorted({heads.get(id(getattr(model, part)), part) for part in parts})
