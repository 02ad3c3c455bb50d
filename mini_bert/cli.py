"""The `mini-bert` command: a table from name to function. A command's arguments are its function's signature."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Annotated

import typer

from mini_bert.gradients import TOLERANCE


def config() -> None:
    """Show every number of the configuration and the reason for it."""
    from mini_bert.config import main

    main()


def info(
    model: Annotated[str, typer.Option(help="mini, larger, or the path of a Mini-BERT config.json")] = "mini",
    batch: Annotated[int, typer.Option(min=1, help="sequences in one micro-batch")] = 8,
    threads: Annotated[int, typer.Option(min=1, help="threads that train side by side")] = 2,
) -> None:
    """Print the architecture with shapes, the parameters by component, and the memory that training needs.

    For example:  mini-bert info --model larger --batch 4
    """
    from mini_bert.config import load_config
    from mini_bert.info import main

    main(
        load_config(model),
        {"mini": "Mini-BERT", "larger": "Larger-BERT"}.get(model, Path(model).name),
        batch,
        threads,
    )


def gradcheck(
    tolerance: Annotated[float, typer.Option(help="largest relative error that passes")] = TOLERANCE,
    tensors: Annotated[bool, typer.Option("--tensors", help="a line for every tensor")] = False,
) -> None:
    """Check every hand-written gradient against finite differences, layer by layer and for whole models.

    Exits with 1 if any error is above the tolerance. Takes about half a minute.
    """
    from mini_bert.gradcheck import main

    raise typer.Exit(main(tolerance, tensors))


def simple_test() -> None:
    """The one-minute tour: config, parameters, forward, loss, backward, one step, memory, gradient check."""
    from mini_bert.simple_test import main

    raise typer.Exit(main())


def train() -> None:
    """Train a Mini-BERT (arrives with the text pipeline; until then this says so)."""
    print("Training is not in this version yet: the engine comes first. Try `mini-bert simple-test` or `gradcheck`.")


COMMANDS = {
    "info": info,
    "config": config,
    "simple-test": simple_test,
    "gradcheck": gradcheck,
    "train": train,
}

app = typer.Typer(
    help="A complete BERT in pure Python and NumPy: look inside, check, train.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
for name, function in COMMANDS.items():
    app.command(name)(function)


def main(words: list[str] | None = None) -> None:
    """Run a command; what the user got wrong is one line, not a traceback."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a pipe on Windows may not know Greek: then a ?, not a crash
            stream.reconfigure(errors="replace")
    try:
        app(words)
    except (ValueError, OSError) as error:
        raise SystemExit(f"mini-bert: {error}") from None


def script(name: str) -> None:
    """`python NAME.py` inside the package folder is the command of that name."""
    main([name, *sys.argv[1:]])


if __name__ == "__main__":
    main()
