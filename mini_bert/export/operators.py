"""The tables of ONNX operators, in which Traced arrays and sizes look up functions. numpy_operators.py and
operations.py fill them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mini_bert.layers.operation import UNANSWERED

Recorder = Callable[..., Any]  # takes the arguments of a function, and records its nodes
FUNCTIONS: dict[Any, Recorder] = {}  # NumPy's functions, ufuncs included
OPERATIONS: dict[str, Recorder] = {}  # our own: module.function


def answer(function: Any, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """The answer to an operation (layers/operation.py)"""
    recorder = OPERATIONS.get(f"{function.__module__.rpartition('.')[2]}.{function.__qualname__}")
    return UNANSWERED if recorder is None else recorder(*args, **options)


def operator_for(table: dict[Any, Recorder], *names: Any) -> Callable[[Recorder], Recorder]:
    """Put a function into a table."""

    def put(recorder: Recorder) -> Recorder:
        table.update(dict.fromkeys(names, recorder))
        return recorder

    return put
