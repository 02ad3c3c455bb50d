"""Operations: functions that something other than an array can answer in its own way.

    @operation
    def softmax(x): ...             softmax(array) runs the lines below the name, as if there were no decorator
                                    softmax(x) with an x that has an `answer` method returns x.answer(softmax, (x,), {})

A forward pass is a list of steps, and we have written it once, in NumPy. Others need the same list in other words:
export/ sends objects through the layers that record each step as a node of an ONNX graph. Most steps need no help,
because NumPy itself lets such an object answer for `x + y` or `np.exp(x)`. A few have a better word than the NumPy
lines spell out (`Softmax`, `LayerNormalization`), or depend on the numbers in a way that no list of steps can ("is any
token masked?"). These are marked.

The answer may be `UNANSWERED`: then the lines run after all, with that object in place of an array.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from inspect import signature
from typing import Any, TypeVar, cast

import numpy as np

Function = TypeVar("Function", bound=Callable[..., Any])
UNANSWERED = object()


def operation(function: Function) -> Function:
    """Let the first argument (of a method, the one after self) answer, unless it is an array."""
    ndarray = np.ndarray
    if next(iter(signature(function).parameters)) == "self":

        @wraps(function)
        def method(self: Any, x: Any, *more: Any, **options: Any) -> Any:
            if type(x) is ndarray:
                return function(self, x, *more, **options)
            return _answered(function, x, (self, x, *more), options)

        return cast(Function, method)

    @wraps(function)
    def plain(x: Any, *more: Any, **options: Any) -> Any:
        if type(x) is ndarray:
            return function(x, *more, **options)
        return _answered(function, x, (x, *more), options)

    return cast(Function, plain)


def _answered(function: Callable[..., Any], x: Any, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
    answer = getattr(x, "answer", None)
    result = UNANSWERED if answer is None else answer(function, args, options)
    return function(*args, **options) if result is UNANSWERED else result


if __name__ == "__main__":

    class Word:
        """Answers every operation with its name."""

        def answer(self, function, args, options):
            return f"the word for {function.__name__}"

    @operation
    def doubled(x):
        return 2 * x

    print("an array:", doubled(np.arange(3)), " a number:", doubled(21))
    print("an object with words of its own:", doubled(Word()))
