"""The `mini-bert` command: a table from name to function. A command's arguments are its function's signature.

The functions stand in cli_*.py. They import what they need when they are called, so that `mini-bert --help` is quick.
"""

from __future__ import annotations

import functools
import io
import sys
from collections.abc import Callable
from typing import Annotated, Any

import typer

import mini_bert
from mini_bert.cli.engine import config, demo, gradcheck, info, simple_test
from mini_bert.cli.finetune import (
    finetune_classify,
    finetune_qa,
    finetune_similarity,
    finetune_sst2,
    finetune_tag,
    predict,
)
from mini_bert.cli.inside import attention, plot_activations, plot_embeddings, probe_dep, probe_ner, probe_pos
from mini_bert.cli.text import data_get, data_labelled, data_list, data_show, tokenizer_show, tokenizer_train
from mini_bert.cli.training import doctor, plan, plot, train
from mini_bert.cli.use import embed, evaluate, export, fill_mask, metrics
from mini_bert.cli.words import WIDTH, help_of, name_values
from mini_bert.common.invocation import as_called, called_as
from mini_bert.common.processes import HelperError


def _version(wanted: bool) -> None:
    if wanted:
        print(mini_bert.__version__)
        raise typer.Exit


def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="print the version and stop")
    ] = False,
) -> None:
    """A complete BERT in pure Python and NumPy: look inside, check, train."""


COMMANDS: dict[str, Callable[..., None]] = {
    "info": info,
    "config": config,
    "simple-test": simple_test,
    "gradcheck": gradcheck,
    "demo": demo,
    "tokenizer show": tokenizer_show,
    "tokenizer train": tokenizer_train,
    "data list": data_list,
    "data get": data_get,
    "data show": data_show,
    "train": train,
    "doctor": doctor,
    "plot": plot,
    "fill-mask": fill_mask,
    "embed": embed,
    "eval": evaluate,
    "export": export,
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
}

GROUPS = {
    "tokenizer": "Text to ids: look at it, or learn a vocabulary.",
    "data": "Text to train on, labelled examples: fetch, look at them.",
    "finetune": "Teach a model a task: classes, tags, answers, similarity.",
    "probe": "What each layer knows: parts of speech, syntax, entities.",
    "plot-model": "Pictures of what is inside a model. Needs the extra `plots`; of runs: plot; of heads: attention.",
}


def interruptible(function: Callable[..., None]) -> Callable[..., None]:
    """Ctrl-C ends a command with a word and 130, as shells count; without the word where the interrupt brings one."""

    @functools.wraps(function)
    def command(*args: Any, **options: Any) -> None:
        try:
            function(*args, **options)
        except KeyboardInterrupt as interrupt:
            if not interrupt.args:
                print("\nInterrupted.", file=sys.stderr)
            raise typer.Exit(130) from None

    return command


app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"max_content_width": WIDTH},
)
app.callback()(_options)
groups = {name: typer.Typer(help=text, no_args_is_help=True, rich_markup_mode=None) for name, text in GROUPS.items()}
for name, group in groups.items():
    app.add_typer(group, name=name)
for name, function in COMMANDS.items():
    *group_name, command = name.split()
    name_values(function)
    (groups[group_name[0]] if group_name else app).command(command, help=help_of(function))(interruptible(function))


def main(words: list[str] | None = None) -> None:
    """Run a command; what the user got wrong is one line, not a traceback."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a pipe on Windows may not know Greek: then a ?, not a crash
            stream.reconfigure(errors="replace")
    try:
        app(_spelled_out(sys.argv[1:] if words is None else words), prog_name=called_as())
    except FileNotFoundError as error:
        if error.filename is None:  # one of ours, which says all
            raise SystemExit(as_called(f"mini-bert: {error}")) from None
        raise SystemExit(f"mini-bert: there is no file {error.filename}; is the path right, seen from here?") from None
    except (ValueError, OSError, HelperError) as error:
        raise SystemExit(as_called(f"mini-bert: {error}")) from None


def _spelled_out(words: list[str]) -> list[str]:
    """`--checkpointing` alone means all layers; the parser wants to read that."""
    behind = [*words[1:], "--"]
    return (
        [
            "--checkpointing=all" if word == "--checkpointing" and following.startswith("-") else word
            for word, following in zip(words, behind, strict=True)
        ]
        if words
        else []
    )


def script(name: str) -> None:
    """`python NAME.py` inside the package folder is the command of that name."""
    main([*name.split(), *sys.argv[1:]])


if __name__ == "__main__":
    main()
