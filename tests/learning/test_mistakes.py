"""Every mistake that an exercise lists is told apart: as an answer, it gets its own explanation."""

from __future__ import annotations

import inspect
import sys

import pytest

from mini_bert.learning.course import PHASES
from mini_bert.learning.exercise import check_function, explain
from mini_bert.learning.results import check_results

EXERCISES = [exercise for phase in PHASES[2:] for exercise in phase.exercises]


@pytest.mark.parametrize("exercise", EXERCISES, ids=lambda exercise: exercise.id)
def test_every_mistake_gets_its_own_explanation(exercise, monkeypatch):
    """A mistake that another one hides, or that gives the right result, would never be explained."""
    given: dict[str, tuple] = {}

    def recorded(check):
        def record(answer, name, right, *more, **options):
            given[name] = right, next(each for each in more[::-1] if isinstance(each, list))
            return check(answer, name, right, *more, **options)

        return record

    for check in (check_function, check_results):
        monkeypatch.setattr(sys.modules[exercise.check.__module__], check.__name__, recorded(check), raising=False)
    explain(exercise, {})  # the answer is missing, but by now the mistakes are known
    for name, (right, mistakes) in given.items():
        assert explain(exercise, {name: right}) is None
        for mistake in mistakes:
            assert inspect.isfunction(mistake.makes), mistake.explanation
            assert explain(exercise, {name: mistake.makes}) == mistake.explanation
