"""Check a function with several results one result at a time, so that one mistake does not hide another.

    check_results(answer, "my_adam", right, cases, {"m": 1, "v": 2, "w": 0}, mistakes)

The labels say where each result is, in the order in which they are compared: what others are computed from comes first.
As for `check_function`, `right` and the mistakes are functions with the same arguments; here they all return a tuple.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mini_bert.learning.comparing import Told, compare
from mini_bert.learning.exercise import Answer, Mistake, Wrong, check_cases


def check_results(
    answer: Answer,
    name: str,
    right: Callable[..., tuple[Any, ...]],
    cases: Sequence[tuple[Any, ...]],
    labels: Mapping[str, int],
    mistakes: Sequence[Mistake] = (),
    tolerance: float = 1e-5,
    hints: Mapping[str, str] | None = None,
) -> str | None:
    """Calls the learner's function `name` with the arguments of each case and compares its results in turn."""

    def judge(results: Any, expected: tuple[Any, ...], made: list[Mistake]) -> Told | None:
        if not isinstance(results, tuple | list) or len(results) != len(labels):
            in_order = sorted(labels, key=labels.__getitem__)
            raise Wrong(f"`{name}` must return {len(labels)} results: return {', '.join(in_order)}.")
        for label, index in labels.items():
            wrong = [Mistake(mistake.makes[index], mistake.explanation) for mistake in made]
            told = compare(results[index], expected[index], f"Your {label}", wrong, tolerance)
            if told is not None:
                return told
        return None

    return check_cases(answer.function(name), name, right, cases, mistakes, judge, hints)
