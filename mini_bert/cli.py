"""The `mini-bert` command: a table from name to function. A command's arguments are its function's signature."""

from __future__ import annotations

import io
import runpy
import sys
from pathlib import Path
from typing import Annotated

import typer

import mini_bert
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

    with _one_blas_thread():
        raise typer.Exit(main(tolerance, tensors))


def simple_test() -> None:
    """The one-minute tour: config, parameters, forward, loss, backward, one step, memory, gradient check."""
    from mini_bert.simple_test import main

    with _one_blas_thread():
        raise typer.Exit(main())


def demo(
    layer: Annotated[
        str, typer.Argument(help="linear, embedding, attention, block, … ; without a name: the list")
    ] = "",
) -> None:
    """Run a layer's own small demonstration: numbers in, numbers out, gradients.

    For example:  mini-bert demo attention
    """
    import mini_bert.layers

    folder = Path(mini_bert.layers.__file__).parent
    demos = sorted(path.stem for path in folder.glob("*.py") if "__main__" in path.read_text(encoding="utf-8"))
    if not layer:
        print("layers that show themselves:", ", ".join(demos))
    elif layer in demos:
        runpy.run_path(str(folder / f"{layer}.py"), run_name="__main__")
    else:
        raise ValueError(f"there is no demonstration of {layer!r}; there are {', '.join(demos)}")


def train() -> None:
    """Train a Mini-BERT (not in this version yet: the engine comes first)."""
    raise ValueError("training is not in this version yet, the engine comes first; try simple-test, gradcheck or demo")


def _one_blas_thread():
    """Small products gain nothing from a second BLAS thread, and lose much on a busy machine."""
    from threadpoolctl import threadpool_limits

    return threadpool_limits(1)


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


COMMANDS = {
    "info": info,
    "config": config,
    "simple-test": simple_test,
    "gradcheck": gradcheck,
    "demo": demo,
    "train": train,
}

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.callback()(_options)
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
