"""Operations: functions that something other than an array can answer in its own way.

    @operation
    def softmax(x): ...             softmax(array) runs the lines below the name, as if there were no decorator
                                    softmax(x) with an x that has an `answer` method returns x.answer(softmax, (x,), {})

A forward pass is a list of steps, and we have written it once, in NumPy. ONNX needs the same list as a graph: export/
sends objects through the layers that record each step as a node. Most steps need no help, because NumPy itself lets
such an object answer for `x + y` or `np.exp(x)`. For a few, ONNX has one operator where NumPy takes several lines
(`Softmax`, `LayerNormalization`), or the lines depend on the numbers in a way that no list of steps can ("is any token
masked?"). These are marked.

The answer may be `UNANSWERED`: then the lines run after all, with that object in place of an array.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from inspect import Parameter, signature
from typing import Any, TypeVar, cast

import numpy as np
from numpy import ndarray

Function = TypeVar("Function", bound=Callable[..., Any])
UNANSWERED = object()


def operation(function: Function) -> Function:
    """Let the first argument (of a method, the one after self) answer, unless it is an array.

    The usual signatures have a wrapper with as many arguments, passed by position: a call costs 0.07 µs more than the
    function alone. With `*more`, it would be 0.45 µs.
    """
    parameters = signature(function).parameters
    is_method = next(iter(parameters)) == "self"
    wrapper = _method if is_method else _of_any
    if all(one.default is Parameter.empty for one in parameters.values()):
        fixed = {(False, 1): _of_one, (False, 2): _of_two, (True, 3): _method_of_two}
        wrapper = fixed.get((is_method, len(parameters)), wrapper)
    return cast(Function, wraps(function)(wrapper(function)))


def _of_one(function: Callable[..., Any]) -> Callable[..., Any]:
    def called(x: Any) -> Any:
        return function(x) if type(x) is ndarray else _answered(function, x, (x,), {})

    return called


def _of_two(function: Callable[..., Any]) -> Callable[..., Any]:
    def called(x: Any, y: Any) -> Any:
        return function(x, y) if type(x) is ndarray else _answered(function, x, (x, y), {})

    return called


def _method_of_two(function: Callable[..., Any]) -> Callable[..., Any]:
    def called(self: Any, x: Any, y: Any) -> Any:
        return function(self, x, y) if type(x) is ndarray else _answered(function, x, (self, x, y), {})

    return called


def _of_any(function: Callable[..., Any]) -> Callable[..., Any]:
    def called(x: Any, *more: Any, **options: Any) -> Any:
        if type(x) is ndarray:
            return function(x, *more, **options)
        return _answered(function, x, (x, *more), options)

    return called


def _method(function: Callable[..., Any]) -> Callable[..., Any]:
    def called(self: Any, x: Any, *more: Any, **options: Any) -> Any:
        if type(x) is ndarray:
            return function(self, x, *more, **options)
        return _answered(function, x, (self, x, *more), options)

    return called


def _answered(function: Callable[..., Any], x: Any, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
    answer = getattr(x, "answer", None)
    result = UNANSWERED if answer is None else answer(function, args, options)
    return function(*args, **options) if result is UNANSWERED else result


if __name__ == "__main__":

    class Recorder:
        """Answers every operation with its name."""

        def answer(self, function, args, options):
            return f"recorded {function.__name__}"

    @operation
    def doubled(x):
        return 2 * x

    print("an array:", doubled(np.arange(3)), " a number:", doubled(21))
    print("an object with an answer of its own:", doubled(Recorder()))
