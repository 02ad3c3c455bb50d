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
mistake must differ from the other mistakes in the first case in which it differs from the right result. What all
exercises have in common is explained here: a missing name, a wrong shape, None, NaN, an exception in the learner's
line, a function that changes its arguments.

To add an exercise: append it to `EXERCISES` in phaseN.py, with the number of the section it belongs to, and add its
right answer and at least three wrong ones to tests/learning/answers_N.py.
"""

from __future__ import annotations

import inspect
import linecache
import traceback
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from mini_bert.common.wording import did_you_mean

HERE = Path(__file__).parent
HINTS = {  # what NumPy says, and what it often means
    "could not be broadcast": "keepdims=True keeps the axis that mean, sum or max would remove.",
    "mismatch in its core dimension": "In a @ b, a must have as many columns as b has rows; .T swaps rows and columns.",
}


class Wrong(Exception):
    """What is wrong with an answer, as a sentence for the learner. A check may raise it instead of returning it."""


class Answer(dict[str, Any]):
    """The names that the learner's file defines. A name that is missing is explained."""

    def __missing__(self, name: str) -> Any:
        own = [other for other in self if not other.startswith("_")]
        raise Wrong(f"Your file defines no `{name}`{did_you_mean(name, own)}.")

    def function(self, name: str) -> Callable[..., Any]:
        found = self[name]
        if not callable(found):
            raise Wrong(f"`{name}` is {_described(found)}, expected a function: def {name}(…): …")
        return found


class Exercise(NamedTuple):
    id: str  # that of the section: 1.2
    title: str
    task: str  # what the file must define, in one sentence
    check: Callable[[Answer], str | None]  # None: right; else what is wrong and what to change


class Mistake(NamedTuple):
    """A typical wrong answer, and what to tell a learner whose answer gives the same result."""

    makes: Any  # for check_function a function with the same arguments, for check_value a value
    explanation: str


def explain(exercise: Exercise, names: Mapping[str, Any]) -> str | None:
    """None if these names are a right answer, else what is wrong."""
    try:
        return exercise.check(Answer(names))
    except Wrong as wrong:
        return str(wrong)


# ------------------------------------------------------------------ functions


def check_function(
    answer: Answer,
    name: str,
    right: Callable[..., Any],
    cases: Sequence[tuple[Any, ...]],
    mistakes: Sequence[Mistake] = (),
    tolerance: float = 1e-5,
) -> str | None:
    """Calls the learner's function `name` with the arguments of each case and compares it with `right`."""
    function = answer.function(name)
    for arguments in cases:
        result = call(function, name, arguments)
        made = []
        for mistake in mistakes:
            try:
                with np.errstate(all="ignore"):
                    made.append(Mistake(mistake.makes(*deepcopy(arguments)), mistake.explanation))
            except (ValueError, IndexError):  # this mistake is impossible with these shapes
                continue
        told = compare(result, right(*deepcopy(arguments)), _call(function, name, arguments), made, tolerance)
        if told is not None:
            return told
    return None


def call(function: Callable[..., Any], name: str, arguments: tuple[Any, ...]) -> Any:
    """The result of the learner's function; an exception in it is explained, and a change of its arguments."""
    _check_signature(function, name, arguments)
    given = deepcopy(arguments)
    try:
        with np.errstate(all="ignore"):
            result = function(*given)
    except Wrong:
        raise
    except Exception as error:
        raise Wrong(f"{where(error)} It was called as {_call(function, name, arguments)}.") from None
    if result is None:
        raise Wrong(f"`{name}` returns None. Does it end with `return …`?")
    for (parameter, before), after in zip(_named(function, arguments), given, strict=True):
        if not same(after, before, 0.0):
            raise Wrong(
                f"`{name}` changes its argument {parameter}, which belongs to the caller. Write {parameter} = "
                f"{parameter} - 1 instead of {parameter} -= 1: this makes a new array."
            )
    return result


def where(error: BaseException) -> str:
    """Which line of the learner's file stopped, and why."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename).parent != HERE]
    said = str(error).strip().rstrip(".").rstrip()
    text = f"{type(error).__name__}: {said}" if said else type(error).__name__
    hints = "".join(f" {hint}" for part, hint in HINTS.items() if part in said)
    if not frames:
        return f"Your code stopped with {text}.{hints}"
    frame = [frame for frame in frames if frame.filename == frames[0].filename][-1]  # not that of a library it calls
    source = (frame.line or linecache.getline(frame.filename, frame.lineno or 0)).strip()
    return f"Line {frame.lineno} of your code{f', `{source}`,' if source else ''} stopped with {text}.{hints}"


# ------------------------------------------------------------------ values


def check_value(
    answer: Answer, name: str, expected: Any, mistakes: Sequence[Mistake] = (), tolerance: float = 1e-5
) -> str | None:
    """Compares a number or an array that the learner's file defines with the right one."""
    return compare(answer[name], expected, name, mistakes, tolerance)


def compare(
    result: Any, expected: Any, what: str, mistakes: Sequence[Mistake] = (), tolerance: float = 1e-5
) -> str | None:
    """None if the result is as expected; else the explanation of the mistake that gives this result, or the first
    difference."""
    if same(result, expected, tolerance):
        return None
    for mistake in mistakes:
        if same(result, mistake.makes, tolerance):
            return mistake.explanation
    if isinstance(expected, tuple):
        if not isinstance(result, tuple | list) or len(result) != len(expected):
            return f"{what} is {_described(result)}, expected {len(expected)} results: return a, b, …"
        for number, (one, other) in enumerate(zip(result, expected, strict=True), 1):
            told = compare(one, other, f"result {number} of {what}", (), tolerance)
            if told is not None:
                return told
    array, target = _array(result), np.asarray(expected)
    if array is None:
        return f"{what} is {_described(result)}, expected {_described(expected)}."
    if array.shape != target.shape:
        return f"{what} has shape {array.shape}, expected {target.shape}."
    return _first_difference(array, target, what, tolerance)


def same(result: Any, expected: Any, tolerance: float) -> bool:
    """Whether two results are equal up to rounding; tuples item by item. NaN equals NaN."""
    if isinstance(expected, tuple):
        return (
            isinstance(result, tuple | list)
            and len(result) == len(expected)
            and all(same(one, other, tolerance) for one, other in zip(result, expected, strict=True))
        )
    array, target = _array(result), _array(expected)
    if array is None or target is None:
        return type(result) is type(expected) and bool(result == expected)
    return array.shape == target.shape and bool(_close(array, target, tolerance).all())


def _close(array: np.ndarray, target: np.ndarray, tolerance: float) -> np.ndarray:
    return np.isclose(array, target, rtol=tolerance, atol=tolerance / 10, equal_nan=True)


def _first_difference(array: np.ndarray, target: np.ndarray, what: str, tolerance: float) -> str:
    place = tuple(np.argwhere(~_close(array, target, tolerance))[0].tolist())
    entry = f"{what}[{', '.join(map(str, place))}]" if place else what
    return f"{entry} is {array[place]:.6g}, expected {target[place]:.6g}."


def _array(value: Any) -> np.ndarray | None:
    """The value as an array of numbers, or None if it is none."""
    try:
        array = np.asarray(value)
    except ValueError:  # a ragged list
        return None
    return array if array.dtype.kind in "biuf" else None


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


def _call(function: Callable[..., Any], name: str, arguments: tuple[Any, ...]) -> str:
    """A call as a learner would write it: relu(x) for x = [-1.0, 2.0]"""
    named = _named(function, arguments)
    if any(parameter.startswith("argument") for parameter, _ in named):
        return f"{name}({', '.join(_short(value) for _, value in named)})"
    values = ", ".join(f"{parameter} = {_short(value)}" for parameter, value in named)
    return f"{name}({', '.join(parameter for parameter, _ in named)})" + (f" for {values}" if values else "")


def _short(value: Any) -> str:
    if isinstance(value, np.ndarray) and value.size > 6:
        return f"an array of shape {value.shape}"
    if isinstance(value, np.ndarray):
        return str((value.round(3) if value.dtype.kind == "f" else value).tolist())
    return repr(value)


def _described(value: Any) -> str:
    if value is None:
        return "None"
    if isinstance(value, np.ndarray):
        return f"an array of shape {value.shape}"
    if isinstance(value, tuple | list):
        return f"a {type(value).__name__} of {len(value)}"
    return "a function" if callable(value) else repr(value)
