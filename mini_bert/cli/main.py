"""The `mini-bert` command: a table from name to function. A command's arguments are its function's signature.

The functions are in the other modules of this folder. They import what they need when they are called, so that
`mini-bert --help` is quick.
"""

from __future__ import annotations

import functools
import io
import sys
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from itertools import zip_longest
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

import mini_bert
from mini_bert.cli.engine import config, demo, family, gradcheck, info, simple_test
from mini_bert.cli.finetune import (
    finetune_classify,
    finetune_qa,
    finetune_similarity,
    finetune_sst2,
    finetune_tag,
    predict,
)
from mini_bert.cli.inside import attention, plot_activations, plot_embeddings, probe_dep, probe_ner, probe_pos
from mini_bert.cli.lab import lab
from mini_bert.cli.learn import learn, learn_check, learn_notebooks, learn_reset
from mini_bert.cli.serve import serve
from mini_bert.cli.sweep import sweep
from mini_bert.cli.text import data_get, data_labelled, data_list, data_show, tokenizer_show, tokenizer_train
from mini_bert.cli.training import doctor, plan, plot, train
from mini_bert.cli.use import embed, evaluate, export, fill_mask, generate, metrics
from mini_bert.cli.words import WIDTH, complete_options, help_of, hyphenated
from mini_bert.common.invocation import as_called, called_as
from mini_bert.common.processes import HelperError
from mini_bert.common.progress import open_closed_streams
from mini_bert.common.visible import Visible, visible


def _version(wanted: bool) -> None:
    if wanted:
        print(mini_bert.__version__)
        raise typer.Exit


def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="print the version and exit")
    ] = False,
) -> None:
    """A complete BERT in pure Python and NumPy: train it, use it, look inside."""


COMMANDS: dict[str, Callable[..., None]] = {
    "info": info,
    "config": config,
    "simple-test": simple_test,
    "family": family,
    "gradcheck": gradcheck,
    "demo": demo,
    "learn": learn,
    "learn check": learn_check,
    "learn reset": learn_reset,
    "learn notebooks": learn_notebooks,
    "tokenizer show": tokenizer_show,
    "tokenizer train": tokenizer_train,
    "data list": data_list,
    "data get": data_get,
    "data show": data_show,
    "train": train,
    "sweep": sweep,
    "doctor": doctor,
    "plot": plot,
    "fill-mask": fill_mask,
    "generate": generate,
    "embed": embed,
    "eval": evaluate,
    "export": export,
    "serve": serve,
    "finetune classify": finetune_classify,
    "finetune tag": finetune_tag,
    "finetune qa": finetune_qa,
    "finetune similarity": finetune_similarity,
    "finetune sst2": finetune_sst2,
    "predict": predict,
    "data labelled": data_labelled,
    "metrics": metrics,
    "probe pos": probe_pos,
    "probe dep": probe_dep,
    "probe ner": probe_ner,
    "attention": attention,
    "plot-model activations": plot_activations,
    "plot-model embeddings": plot_embeddings,
    "plan": plan,
    "lab": lab,
}

GROUPS = {
    "learn": "Learn BERT step by step: pages, and exercises that explain.",
    "tokenizer": "Show how text becomes tokens, or train a vocabulary.",
    "data": "List, download and inspect text and labelled data.",
    "finetune": "Fine-tune a model: classes, tags, answers, similarity.",
    "probe": "Probe each layer for parts of speech, syntax, entities.",
    "plot-model": "Draw a model's activations and embeddings. Needs the extra `plots`. See also `mini-bert plot` "
    "for runs and `mini-bert attention` for heads.",
}

PASSING_ON = ("sweep",)  # commands that pass options which are not their own on to another command


def interruptible(function: Callable[..., None]) -> Callable[..., None]:
    """On Ctrl-C, print "Interrupted." and exit with 130; a KeyboardInterrupt with a message was reported already."""

    @functools.wraps(function)
    def command(*args: Any, **options: Any) -> None:
        try:
            with redirect_stdout(Visible(sys.stdout)), redirect_stderr(Visible(sys.stderr)):
                function(*args, **options)
        except KeyboardInterrupt as interrupt:
            if not interrupt.args:
                print("\nInterrupted.", file=sys.stderr)
            raise typer.Exit(130) from None

    return command


class Command(TyperCommand):
    """A command whose errors name the value that was given: Typer's own say only what it should be."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except typer.BadParameter as error:
            errors = getattr(error.__cause__, "errors", None)  # of pydantic, which Typer asks
            given = errors()[0].get("input") if errors else None
            found, _, expected = error.message.partition("Input should be ")
            if given is not None and not found:
                kind = "a number " if expected.startswith(("greater", "less")) else ""
                error.message = f"{given!r:.60}, expected {kind}{expected.partition(', unable')[0]}"
            raise


def alone(function: Callable[[], None]) -> Callable[[typer.Context], None]:
    """The command of a group, for when no command of the group follows."""

    def command(context: typer.Context) -> None:
        if context.invoked_subcommand is None:
            function()

    return command


app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"max_content_width": WIDTH},
)
app.callback()(_options)
groups = {
    name: typer.Typer(help=as_called(text), no_args_is_help=name not in COMMANDS, rich_markup_mode=None)
    for name, text in GROUPS.items()
}
for name, group in groups.items():
    app.add_typer(group, name=name)
for name, function in COMMANDS.items():
    *group_name, command = name.split()
    complete_options(function)
    if name in groups:  # `learn` alone is a command, too
        groups[name].callback(invoke_without_command=True, help=as_called(GROUPS[name]))(alone(interruptible(function)))
    else:
        settings = {"ignore_unknown_options": name in PASSING_ON}
        place = groups[group_name[0]] if group_name else app
        place.command(command, cls=Command, help=help_of(function), context_settings=settings)(interruptible(function))


_commands = functools.cache(functools.partial(typer.main.get_command, app))  # built once for all calls of `main`


def main(words: list[str] | None = None) -> None:
    """Run a command; errors that the user can fix are one line, not a traceback."""
    open_closed_streams()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # print ? instead of failing where the encoding lacks a character
            stream.reconfigure(errors="replace")
    try:
        _commands()(_spelled_out(sys.argv[1:] if words is None else words), prog_name=called_as())
    except (ValueError, OSError, MemoryError, HelperError) as error:
        raise SystemExit(as_called(visible(f"mini-bert: {_sentence(error)}"))) from None


def _sentence(error: Exception) -> str:
    """What went wrong. Our own errors are sentences already; those of the system and of Python become sentences."""
    if isinstance(error, MemoryError):  # Python's own has no message
        text = str(error) or "`mini-bert plan` shows what training needs, and how to use less"
        return text if text.startswith("not enough memory") else f"not enough memory: {text}"
    path = (error.filename2 or error.filename) if isinstance(error, OSError) else None
    if path is None:
        return str(error)
    if isinstance(error, FileNotFoundError):
        return f"there is no file {path}; check the path"
    if isinstance(error, IsADirectoryError):
        return f"{path} is a folder, expected a file"
    if isinstance(error, NotADirectoryError):
        return f"{path} cannot exist: a part of this path is a file, expected a folder"
    if isinstance(error, PermissionError):
        return f"no permission to use {path}; check its owner and mode, or choose another path"
    return f"{path}: {error.strerror}" if isinstance(error, OSError) and error.strerror else str(error)


def _spelled_out(words: list[str]) -> list[str]:
    """`--checkpointing` without a value means all layers; the parser needs a value. `--max_samples`, as in the user's
    guide, is `--max-samples`."""
    words = list(map(hyphenated, words))
    return [
        "--checkpointing=all" if word == "--checkpointing" and following.startswith("-") else word
        for word, following in zip_longest(words, words[1:], fillvalue="-")
    ]


def script(name: str) -> None:
    """`python NAME.py` inside the package folder runs the command NAME."""
    main([*name.split(), *sys.argv[1:]])


if __name__ == "__main__":
    main()
