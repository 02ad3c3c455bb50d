"""Help texts that commands share, and the layout of help.

Help is plain text, at most WIDTH columns wide. The first sentence of a docstring appears in the list of commands. Its
examples get their own lines, and start with the command that the user typed (`mini-bert …` or `python run.py …`), so
that they can be copied.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, get_args, get_type_hints

from typer.models import ArgumentInfo, OptionInfo

from mini_bert.common.invocation import as_called, as_options

SOURCES = "files, folders, archives, patterns, - for standard input, builtin, or the name of a data set"
MODELS = "mini-bert (bundled), or a folder: of a run, of a checkpoint, or of a published model of the family"
CONFIGS = (
    "mini, larger, bert, roberta, distilbert, albert, electra, deberta, deberta-v2, deberta-v3, transformer-xl, xlnet, "
    "gpt2, modernbert, or the path of a config.json"
)  # presets: models/registry.py
OBJECTIVES = (
    "masked_words, masked_words_and_next_sentence, masked_words_and_sentence_order, replaced_tokens, permutation, "
    "next_word, next_word_with_memory, distillation"
)  # objectives/registry.py
ENGINE = "what computes: numpy, or onnx (ONNX Runtime; needs the extra `onnx`)"
BY_NAME = "the {} column: its name, or its number from 1; default: found by its usual names"
COLUMN = "the text column of .jsonl, .csv, .parquet, or of a table on standard input"

WIDTH = 100
AS_IT_STANDS = "\b"  # before a paragraph whose lines must not be re-wrapped
EXAMPLE = re.compile(r"^(For example|Or [\w ]+):  (.+)$", re.MULTILINE)
METAVARS = {int: "N", float: "X", Path: "PATH", str: "TEXT"}


def complete_options(function: Callable[..., None]) -> None:
    """Completes the options of a command: placeholders for their values (N, X, PATH or TEXT), and in their help the
    program as the user called it."""
    function.__annotations__ = get_type_hints(function, include_extras=True)  # objects instead of their source code
    for name, hint in function.__annotations__.items():
        for info in getattr(hint, "__metadata__", ()):
            info.help = info.help and as_called(info.help)
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


def hyphenated(word: str) -> str:
    """An option as it is spelt here, with hyphens; values stay as they are.

    >>> hyphenated("--max_samples=my_file"), hyphenated("--try"), hyphenated("--model my_model --tie_head")
    ('--max-samples=my_file', '--try', '--model my_model --tie_head')
    """
    return re.sub(r"^--\w[\w-]*", lambda option: option[0].replace("_", "-"), word)


@contextmanager
def in_options(names: Iterable[str], **others: str) -> Iterator[None]:
    """Makes errors say `--held-out 0.1` instead of `held_out=0.1`, which is meant for Python.

    names: of the command's options; others: arguments that the command calls differently
    """
    try:
        yield
    except ValueError as error:
        text = as_options(str(error), {name: name for name in names} | others)
        if text == str(error):
            raise
        raise ValueError(text) from error


def sharing(
    shared: Callable[..., None],
    first: int,
    act: Callable[[dict[str, Any], dict[str, Any]], None],
    without: tuple[str, ...] = (),
) -> Callable[[Callable[..., dict[str, Any]]], Callable[..., None]]:
    """For commands that share most of their options: the parameters of `shared` that are not in `without`.

    A decorated function has the command's own options; --help shows them after the first `first` shared ones. It
    returns a dict, and `act` is called with that dict and the values of the shared options.
    """

    def command_of(own: Callable[..., dict[str, Any]]) -> Callable[..., None]:
        common, mine = (list(inspect.signature(part, eval_str=True).parameters.values()) for part in (shared, own))
        common = [option for option in common if option.name not in without]

        def command(**given: Any) -> None:
            act(own(**{option.name: given.pop(option.name) for option in mine}), given)

        options = [*common[:first], *mine, *common[first:]]
        command.__name__, command.__doc__ = own.__name__, own.__doc__
        command.__signature__ = inspect.Signature(options, return_annotation=None)  # type: ignore[attr-defined]
        command.__annotations__ = {option.name: option.annotation for option in options}
        return command

    return command_of


def help_of(function: Callable[..., None]) -> str:
    """The help text of a command, from its docstring.

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
