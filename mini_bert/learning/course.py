"""The course: its phases with their pages and exercises, and which exercises are done.

To add a page: write `learn/N_name.md` in the form that learn/README.md describes, put its exercises into phaseN.py, and
add the phase to PHASES.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

import mini_bert
from mini_bert.common.atomic import write_atomic
from mini_bert.common.cache_folder import cache_folder
from mini_bert.common.invocation import command
from mini_bert.learning.exercise import Exercise

PAGES = Path(mini_bert.__file__).resolve().parents[1] / "learn"
ANSWER = "my_answer.py"


class Phase(NamedTuple):
    number: int
    title: str
    page: str  # in learn/
    module: str  # with a list EXERCISES

    @property
    def exercises(self) -> list[Exercise]:
        return import_module(self.module).EXERCISES


PHASES = [
    Phase(1, "Building blocks", "1_building_blocks.md", "mini_bert.learning.phase1"),
    Phase(2, "Attention", "2_attention.md", "mini_bert.learning.phase2"),
    Phase(3, "The full model", "3_the_model.md", "mini_bert.learning.phase3"),
    Phase(4, "Training", "4_training.md", "mini_bert.learning.phase4"),
    Phase(5, "Understanding a trained model", "5_understanding.md", "mini_bert.learning.phase5"),
    Phase(6, "Experiments", "6_experiments.md", "mini_bert.learning.phase6"),
]


def exercises() -> list[Exercise]:
    return [exercise for phase in PHASES for exercise in phase.exercises]


def find(exercise_id: str) -> Exercise:
    """The exercise with this number."""
    for exercise in exercises():
        if exercise.id == exercise_id:
            return exercise
    raise ValueError(f"there is no exercise {exercise_id!r}; `mini-bert learn` lists all of them")


def phase_of(exercise: Exercise) -> Phase:
    return next(phase for phase in PHASES if exercise in phase.exercises)


# ------------------------------------------------------------------ what is done


def done() -> set[str]:
    """The numbers of the exercises that were answered right on this computer."""
    with suppress(OSError, ValueError):
        stored = json.loads(_record().read_text(encoding="utf-8"))
        return {number for number in stored if isinstance(number, str)} if isinstance(stored, list) else set()
    return set()


def mark_done(exercise: Exercise) -> None:
    """Remembers a right answer, if the folder can be written."""
    with suppress(OSError):
        _record().parent.mkdir(parents=True, exist_ok=True)
        write_atomic(_record(), json.dumps(sorted(done() | {exercise.id})).encode())


def forget() -> int:
    """Forgets which exercises were done; returns how many these were."""
    number = len(done())
    with suppress(FileNotFoundError):
        _record().unlink()
    return number


def _record() -> Path:
    return cache_folder("learn", "done.json")


# ------------------------------------------------------------------ what the command prints


def overview(finished: Iterable[str]) -> str:
    """All phases and exercises, and what to do next."""
    finished = set(finished)
    lines = ["From matrices to BERT: read a page of learn/, one to two hours each, and do its exercises.", ""]
    for phase in PHASES:
        lines.append(f"{phase.number}. {phase.title:32} learn/{phase.page}")
        for exercise in phase.exercises:
            lines.append(f"   [{'x' if exercise.id in finished else ' '}] {exercise.id}  {exercise.title}")
    if finished:
        lines += ["", f"[x] is kept in {_record()}; `{command('learn', 'reset')}` forgets it."]
    return "\n".join([*lines, "", what_next(finished)])


def what_next(finished: Iterable[str]) -> str:
    """The first exercise that is not done, and how to do it."""
    finished = set(finished)
    exercise = next((exercise for exercise in exercises() if exercise.id not in finished), None)
    if exercise is None:
        return "All exercises are done."
    page = phase_of(exercise).page
    return (
        f"Next: exercise {exercise.id}, {exercise.title}. Read section {exercise.id} of learn/{page}.\n"
        f"Write a file {ANSWER} that defines\n  {exercise.task}\n"
        f"and check it:\n  {command('learn', 'check', exercise.id, ANSWER)}"
    )
