"""What the commands share: words of their help, and how help is laid out.

Help is plain text that fits the terminal, up to WIDTH columns. A docstring's first sentence stands in the list of
commands; its examples are put on lines of their own, called as the reader calls us (`python run.py …`), to be copied.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args, get_type_hints

from typer.models import ArgumentInfo, OptionInfo

from mini_bert.common.invocation import as_called

SOURCES = "files, folders, patterns, - for standard input, builtin, or the name of a data set"
MODELS = "mini-bert (the bundled one), or the folder of a run, a checkpoint, a Mini-BERT or a published BERT"
COLUMN = "the text column of .jsonl, .csv, .parquet, or of a table on standard input"

WIDTH = 100
AS_IT_STANDS = "\b"  # in front of a paragraph whose lines are not to be filled
EXAMPLE = re.compile(r"^(For example|Or [\w ]+):  (.+)$", re.MULTILINE)
METAVARS = {int: "N", float: "X", Path: "PATH", str: "TEXT"}


def name_values(function: Callable[..., None]) -> None:
    """Let help say what the options of a command want: N, X, PATH or TEXT, whatever the parser calls its types."""
    function.__annotations__ = get_type_hints(function, include_extras=True)  # objects instead of their source: kept
    for name, hint in function.__annotations__.items():
        for info in getattr(hint, "__metadata__", ()):
            kinds = {kind for kind in METAVARS if kind in _parts(hint)}
            if isinstance(info, OptionInfo) and info.metavar is None and kinds:
                info.metavar = METAVARS[kinds.pop()]
            elif isinstance(info, ArgumentInfo):
                info.metavar = name.upper()


def _parts(hint: Any) -> set[Any]:
    """
    >>> _parts(list[str] | None) >= {str, list[str]}
    True
    """
    return {hint}.union(*(_parts(inner) for inner in get_args(hint)[: 1 if hasattr(hint, "__metadata__") else None]))


def sharing(
    shared: Callable[..., None], first: int, act: Callable[[dict[str, Any], dict[str, Any]], None]
) -> Callable[[Callable[..., dict[str, Any]]], Callable[..., None]]:
    """Commands that have most options in common: these stand in the signature of `shared`, once.

    A decorated function has the options of its own, which --help shows behind the `first` shared ones, and returns what
    they mean; `act` gets that, and what was given for the shared ones.
    """

    def command_of(own: Callable[..., dict[str, Any]]) -> Callable[..., None]:
        common, mine = (list(inspect.signature(part, eval_str=True).parameters.values()) for part in (shared, own))

        def command(**given: Any) -> None:
            act(own(**{option.name: given.pop(option.name) for option in mine}), given)

        options = [*common[:first], *mine, *common[first:]]
        command.__name__, command.__doc__ = own.__name__, own.__doc__
        command.__signature__ = inspect.Signature(options, return_annotation=None)  # type: ignore[attr-defined]
        command.__annotations__ = {option.name: option.annotation for option in options}
        return command

    return command_of


def help_of(function: Callable[..., None]) -> str:
    """The docstring of a command, laid out.

    >>> def show():
    ...     "Show it.\\n\\n    For example:  mini-bert tokenizer show mini-bert"
    >>> print(help_of(show).replace(AS_IT_STANDS, "|"))
    Show it.
    <BLANKLINE>
    |
    For example:
      mini-bert tokenizer show mini-bert
    """
    text = EXAMPLE.sub(rf"{AS_IT_STANDS}\n\1:\n  \2", inspect.cleandoc(function.__doc__ or ""))
    return as_called(text)
