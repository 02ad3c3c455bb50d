"""The tables that Traced arrays and sizes look their answers up in. numpy_words.py and operations.py fill them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mini_bert.layers.operation import UNANSWERED

Word = Callable[..., Any]
FUNCTIONS: dict[Any, Word] = {}  # NumPy's functions; np.ufunc: all of its ufuncs
OPERATIONS: dict[str, Word] = {}  # our own: module.function -> word


def answer(function: Any, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """The answer to an operation (layers/operation.py)"""
    word = OPERATIONS.get(f"{function.__module__.rpartition('.')[2]}.{function.__qualname__}")
    return UNANSWERED if word is None else word(*args, **options)


def word_for(table: dict[Any, Word], *names: Any) -> Callable[[Word], Word]:
    """Put a word into a table."""

    def known(word: Word) -> Word:
        table.update(dict.fromkeys(names, word))
        return word

    return known
