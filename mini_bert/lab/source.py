"""Where an operation is in the source: the file and the line, found by `inspect` while the lab runs.

    line_of(Linear.forward, "times(x, self.w.data)")        mini_bert/layers/linear.py, line 40, and the line itself

A fragment that the function does not contain is an error, so a test notices if the source changes.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import mini_bert

ROOT = Path(mini_bert.__file__).parents[1]


class Source(NamedTuple):
    file: str  # relative to the folder of the project
    line: int
    code: str


@cache
def line_of(function: Callable[..., Any], fragment: str) -> Source:
    """The first line of a function that contains this fragment."""
    function = inspect.unwrap(function)  # without its decorators
    lines, first = inspect.getsourcelines(function)
    for number, line in enumerate(lines, first):
        if fragment in line:
            path = Path(inspect.getfile(function)).resolve()
            return Source(path.relative_to(ROOT.resolve()).as_posix(), number, line.strip())
    raise ValueError(f"{function.__qualname__} has no line with {fragment!r}; its source has changed")
