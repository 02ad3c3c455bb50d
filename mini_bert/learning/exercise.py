"""Exercises: a task, and a check that explains what is wrong with an answer.

    Exercise("1.3", "ReLU", "my_relu(x): x, with 0 in place of every negative number", relu)

The learner writes a file that defines the names in the task. `check(answer)` gets these names and returns None if all
is right, or a sentence that says what is wrong and what to change. Most checks are one call of `check_function`: the
right function, the arguments to try it on, and typical mistakes, each as the function that makes it and what to say:

    def relu(answer):
        return check_function(
            answer,
            "my_relu",
            lambda x: np.maximum(x, 0),
            [(np.array([-1.0, 2.0, 0.5]),)],
            [Mistake(np.abs, "You turn −1 into 1. ReLU is not the absolute value: negative numbers become 0.")],
        )

The learner's result is compared with the right one, then with that of each mistake, for one case after the other. So a
mistake must differ from the other mistakes in the first case in which it differs from the right result. If no mistake
fits, an error or a wrong shape in a later case says more than a wrong number in the first. What all exercises have in
common is explained here: a missing name, None, an exception in the learner's line, a function that changes its
arguments. `hints` adds what an error message of Python or NumPy means in this exercise.

To add an exercise: append it to `EXERCISES` in phaseN.py, with the number of the section it belongs to, and add its
right answer and at least three wrong ones to tests/learning/answers_N.py.
"""

from __future__ import annotations

import inspect
import linecache
import re
import traceback
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from mini_bert.common.wording import did_you_mean
from mini_bert.learning.comparing import Mistake as Mistake
from mini_bert.learning.comparing import Told, compare, described, same, shown

HERE = Path(__file__).parent
REDUCTION = re.compile(r"\b(mean|sum|max|min|std|var|norm)\(")
HINTS = {  # a part of what Python or NumPy says, and what it often means
    "mismatch in its core dimension": "In a @ b, a must have as many columns as b has rows; .T swaps rows and columns.",
    "truth value of an array": "max, min, if and `and` work on single numbers. For arrays there are np.maximum, "
    "np.minimum and np.where.",
    "'np' is not defined": "Put `import numpy as np` into the first line.",
}
BROADCAST = "could not be broadcast"
KEEP_AXIS = "keepdims=True keeps the axis that mean, sum or max would remove."
LINE_UP = "NumPy compares shapes from the right: two sizes must be equal, or one of them 1."


class Wrong(Exception):
    """What is wrong with an answer, as a sentence for the learner. A check may raise it instead of returning it."""


class Answer(dict[str, Any]):
    """The names that the learner has defined. A name that is missing is explained."""

    def __missing__(self, name: str) -> Any:
        own = [other for other in self if not other.startswith("_")]
        raise Wrong(f"You have not defined `{name}`{did_you_mean(name, own) or '.'}")

    def function(self, name: str) -> Callable[..., Any]:
        found = self[name]
        if not callable(found):
            raise Wrong(f"`{name}` is {described(found)}, expected a function: def {name}(…): …")
        return found


class Exercise(NamedTuple):
    id: str  # that of the section: 1.2
    title: str
    task: str  # what the file must define, in one sentence
    check: Callable[[Answer], str | None]  # None: right; else what is wrong and what to change


def explain(exercise: Exercise, names: Mapping[str, Any]) -> str | None:
    """None if these names are a right answer, else what is wrong."""
    try:
        return exercise.check(Answer(names))
    except Wrong as wrong:
        return str(wrong)


# ------------------------------------------------------------------ checking a function


def check_function(
    answer: Answer,
    name: str,
    right: Callable[..., Any],
    cases: Sequence[tuple[Any, ...]],
    mistakes: Sequence[Mistake] = (),
    tolerance: float = 1e-5,
    hints: Mapping[str, str] | None = None,
) -> str | None:
    """Calls the learner's function `name` with the arguments of each case and compares it with `right`."""

    def judge(result: Any, expected: Any, made: list[Mistake]) -> Told | None:
        return compare(result, expected, "Your result", made, tolerance)

    return check_cases(answer.function(name), name, right, cases, mistakes, judge, hints)


def check_cases(
    function: Callable[..., Any],
    name: str,
    right: Callable[..., Any],
    cases: Sequence[tuple[Any, ...]],
    mistakes: Sequence[Mistake],
    judge: Callable[[Any, Any, list[Mistake]], Told | None],
    hints: Mapping[str, str] | None = None,
) -> str | None:
    """What `judge(result, right result, results of the mistakes)` says about the first case that is wrong. If it is
    only a wrong number, an error or a wrong shape in a later case is told instead."""
    first = None
    for arguments in cases:
        result = call(function, name, arguments, hints)
        made = []
        for mistake in mistakes if first is None else ():
            with suppress(ValueError, IndexError, ZeroDivisionError), np.errstate(all="ignore"):  # impossible here
                made.append(Mistake(mistake.makes(*deepcopy(arguments)), mistake.explanation))
        told = judge(result, right(*deepcopy(arguments)), made)
        if told is None:
            continue
        if told.kind == "mistake":
            return told.text
        text = f"{told.text} {_called(function, name, arguments)}"
        if told.kind == "form":
            return text
        first = first or text
    return first


def call(
    function: Callable[..., Any], name: str, arguments: tuple[Any, ...], hints: Mapping[str, str] | None = None
) -> Any:
    """The result of the learner's function; an exception in it is explained, and a change of its arguments."""
    _check_signature(function, name, arguments)
    given = deepcopy(arguments)
    try:
        with warnings.catch_warnings(action="ignore"):  # overflow, the mean of nothing: the result tells
            result = function(*given)
    except Wrong:
        raise
    except Exception as error:
        raise Wrong(f"{where(error, hints or {})} {_called(function, name, arguments)}") from None
    if result is None:
        raise Wrong(f"`{name}` returns None. Does it end with `return …`?")
    for (parameter, before), after in zip(_named(function, arguments), given, strict=True):
        if not same(after, before, 0.0):
            raise Wrong(
                f"`{name}` changes its argument {parameter}, which belongs to the caller. Work on a copy: begin with "
                f"{parameter} = {_copy(parameter, before)}."
            )
    return result


def _copy(parameter: str, value: Any) -> str:
    """How to copy an argument."""
    if not isinstance(value, list):
        return f"{parameter}.copy()"
    return f"[list(row) for row in {parameter}]" if value and isinstance(value[0], list) else f"list({parameter})"


def where(error: BaseException, hints: Mapping[str, str] | None = None) -> str:
    """Which line of the learner's code stopped, and why."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename).parent != HERE]
    said = str(error).strip().rstrip(".").rstrip()
    text = f"{type(error).__name__}: {said}" if said else type(error).__name__
    if not frames:
        return f"Your code stopped with {text}.{_hint(said, '', hints)}"
    frame = [frame for frame in frames if frame.filename == frames[0].filename][-1]  # not that of a library it calls
    source = (frame.line or linecache.getline(frame.filename, frame.lineno or 0)).strip()
    line = f"Line {frame.lineno} of your code{f', `{source}`,' if source else ''}"
    return f"{line} stopped with {text}.{_hint(said, source, hints)}"


def _hint(said: str, source: str, hints: Mapping[str, str] | None) -> str:
    """What a message means: in this exercise, or in general."""
    general = HINTS | {BROADCAST: KEEP_AXIS if REDUCTION.search(source) or not source else LINE_UP}
    return next((f" {hint}" for part, hint in [*(hints or {}).items(), *general.items()] if part in said), "")


# ------------------------------------------------------------------ wording


def _check_signature(function: Callable[..., Any], name: str, arguments: tuple[Any, ...]) -> None:
    try:
        signature = inspect.signature(function)
    except (ValueError, TypeError):  # some functions written in C have none
        return
    try:
        signature.bind(*arguments)
    except TypeError:
        raise Wrong(f"`{name}` is called with {len(arguments)} arguments, but yours is {name}{signature}.") from None


def _named(function: Callable[..., Any], arguments: tuple[Any, ...]) -> list[tuple[str, Any]]:
    """The arguments with the names of the learner's parameters."""
    try:
        names = [*inspect.signature(function).bind(*arguments).arguments]
    except (ValueError, TypeError):
        names = []
    if len(names) != len(arguments):  # *args
        names = [f"argument {number}" for number in range(1, len(arguments) + 1)]
    return list(zip(names, arguments, strict=True))


def _called(function: Callable[..., Any], name: str, arguments: tuple[Any, ...]) -> str:
    """With what a function was called, an argument per line, so that a learner can compute the result."""
    named = _named(function, arguments)
    parameters = ", ".join(parameter for parameter, _ in named)
    values = "".join(f"\n{parameter} = {shown(value)}" for parameter, value in named)
    return f"It was called as {name}({parameters}) with{values}" if values else f"It was called as {name}()."
