"""Compare a learner's result with the right one, and say in words what differs.

compare(np.ones(3), np.zeros(3), "Your result")    Told("Your result[0] is 1, expected 0.", "number")
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

LARGEST_SHOWN = 24  # an array with more numbers is described by its shape


class Mistake(NamedTuple):
    """A typical wrong answer, and what to tell a learner whose answer gives the same result."""

    makes: Any  # a function with the same arguments as the right one; for `compare`, its result
    explanation: str


class Told(NamedTuple):
    """What is wrong with a result."""

    text: str
    kind: Literal["mistake", "form", "number"]  # a typical mistake, a wrong shape or type, or only a wrong number


def compare(
    result: Any, expected: Any, what: str, mistakes: Sequence[Mistake] = (), tolerance: float = 1e-5
) -> Told | None:
    """None if the result is as expected; else the explanation of the mistake that gives this result, or the first
    difference."""
    if same(result, expected, tolerance):
        return None
    for mistake in mistakes:
        if same(result, mistake.makes, tolerance):
            return Told(mistake.explanation, "mistake")
    if isinstance(expected, tuple):
        items = _items(result)
        if items is None or len(items) != len(expected):
            return Told(f"{what} is {described(result)}, expected {len(expected)} results: return a, b, …", "form")
        for number, (one, other) in enumerate(zip(items, expected, strict=True)):
            told = compare(one, other, f"{what}[{number}]", (), tolerance)
            if told is not None:
                return told
    array, target = _array(result), np.asarray(expected)
    if array is None or target.dtype.kind not in "biuf":
        return Told(f"{what} is {described(result)}, expected {described(expected)}.", "form")
    if array.shape != target.shape:
        return Told(f"{what} has shape {array.shape}, expected {target.shape}.", "form")
    place = tuple(np.argwhere(~_close(array, target, tolerance))[0].tolist())
    entry = f"{what}[{', '.join(map(str, place))}]" if place else what
    return Told(f"{entry} is {array[place]:.6g}, expected {target[place]:.6g}.", "number")


def same(result: Any, expected: Any, tolerance: float) -> bool:
    """Whether two results are equal up to rounding; tuples item by item. NaN equals NaN."""
    if isinstance(expected, tuple):
        items = _items(result)
        return (
            items is not None
            and len(items) == len(expected)
            and all(same(one, other, tolerance) for one, other in zip(items, expected, strict=True))
        )
    array, target = _array(result), _array(expected)
    if array is not None and target is not None:
        return array.shape == target.shape and bool(_close(array, target, tolerance).all())
    if isinstance(result, np.ndarray) or isinstance(expected, np.ndarray):  # of text, objects or complex numbers
        return False
    return isinstance(result, type(expected)) and bool(result == expected)


def _close(array: np.ndarray, target: np.ndarray, tolerance: float) -> np.ndarray:
    return np.isclose(array, target, rtol=tolerance, atol=tolerance / 10, equal_nan=True)


def _array(value: Any) -> np.ndarray | None:
    """The value as an array of numbers, or None if it is none."""
    try:
        array = np.asarray(value)
    except ValueError:  # a ragged list
        return None
    return array if array.dtype.kind in "biuf" else None


def _items(value: Any) -> list[Any] | None:
    """The items of a tuple, a list or an array with an axis."""
    return list(value) if isinstance(value, tuple | list) or (isinstance(value, np.ndarray) and value.ndim) else None


# ------------------------------------------------------------------ wording


def described(value: Any) -> str:
    """What kind of value this is, for "is …, expected …"."""
    if isinstance(value, np.ndarray):
        kind = "" if value.dtype.kind in "biuf" else f" of {value.dtype}, not of real numbers"
        return f"an array of shape {value.shape}{kind}"
    if isinstance(value, tuple | list):
        return f"a {type(value).__name__} of {len(value)}"
    return "a function" if callable(value) else repr(value)


def shown(value: Any) -> str:
    """A value as a learner would write it; a large array by its shape."""
    if isinstance(value, np.ndarray) and value.size > LARGEST_SHOWN:
        return f"an array of shape {value.shape}"
    if isinstance(value, np.ndarray):
        return str((value.round(3) if value.dtype.kind == "f" else value).tolist())
    return repr(value)
