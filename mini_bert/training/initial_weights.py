"""Weights to start from, other than random ones: those of a model folder, or of a teacher."""

from __future__ import annotations

from mini_bert.inference.loading import load
from mini_bert.models.base import Model
from mini_bert.objectives.base import Objective
from mini_bert.objectives.distillation import Distillation, first_weights, folder_name


def start_from_folder(model: Model, folder: str) -> str:
    """Copy the weights of a model folder into a new model of the same config. Returns a note for the user.

    Output heads that the folder lacks keep their random weights; those that the model lacks are left out.
    """
    source = load(folder)[0]
    theirs, ours = source.named_params(), model.named_params()
    new, unused = (_parts(set(one) - set(other)) for one, other in ((ours, theirs), (theirs, ours)))
    known = {*model.head_shapes, *source.head_shapes, "generator"}
    for part in (*new, *unused):
        if part not in known:
            raise ValueError(f"{folder} does not fit the model in its config.json: they differ in {part}")
    for name in set(ours) & set(theirs):
        ours[name].data[...] = theirs[name].data
    note = f"the weights start from {folder_name(folder)}"
    if new:
        note += f"; new, with random weights: {', '.join(new)}"
    if unused:
        note += f"; not needed for this objective and left out: {', '.join(unused)}"
    return note


def start_from_teacher(model: Model, objective: Objective) -> str:
    """Copy layers of the teacher into a student. Returns a note for the user."""
    if not isinstance(objective, Distillation):
        raise ValueError("--init-from-teacher starts with the layers of a teacher: it needs --teacher")
    new = _parts(first_weights(model, objective.teacher))
    note = f"the weights start from layers of the teacher, {objective.source}"
    return note + (f"; new, with random weights: {', '.join(new)}" if new else "")


def _parts(names) -> list[str]:
    """The parts of a model that these weights belong to."""
    return sorted({name.partition(".")[0] for name in names})
