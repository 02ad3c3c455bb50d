"""The options of the commands that show the engine: `mini-bert info`, `config`, `simple-test`, `gradcheck`, `demo`."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Annotated

import typer


def config() -> None:
    """Show every number of the configuration and the reason for it."""
    from mini_bert.models.config import main

    main()


def info(
    model: Annotated[str, typer.Option(help="mini, larger, or the path of a Mini-BERT config.json")] = "mini",
    batch: Annotated[int, typer.Option(min=1, help="sequences in one micro-batch")] = 16,
    threads: Annotated[int, typer.Option(min=1, help="threads that train side by side")] = 2,
) -> None:
    """Print a model's shapes, parameters, and memory for training.

    For example:  mini-bert info --model larger --batch 4
    """
    from mini_bert.checks.info import main
    from mini_bert.models.registry import load_config

    main(
        load_config(model),
        {"mini": "Mini-BERT", "larger": "Larger-BERT"}.get(model, Path(model).name),
        batch,
        threads,
    )


def gradcheck(
    tolerance: Annotated[
        float | None, typer.Option(help="largest relative error that passes", show_default="1e-06")
    ] = None,
    tensors: Annotated[bool, typer.Option("--tensors", help="a line for every tensor")] = False,
) -> None:
    """Check every gradient against finite differences. Layer by layer, and for whole models.

    Exits with 1 if any error is above the tolerance. Takes about half a minute.
    """
    from mini_bert.checks.gradcheck import main
    from mini_bert.checks.gradients import TOLERANCE

    with _one_blas_thread():
        raise typer.Exit(main(TOLERANCE if tolerance is None else tolerance, tensors))


def simple_test() -> None:
    """The tour: every part of the engine once. From config to gradient check; seconds."""
    from mini_bert.checks.simple_test import main

    with _one_blas_thread():
        raise typer.Exit(main())


def demo(
    layer: Annotated[
        str, typer.Argument(help="linear, embedding, attention, block, … ; without a name: the list")
    ] = "",
) -> None:
    """Run a layer's own demonstration. Numbers in, numbers out, gradients.

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


def _one_blas_thread():
    """Small products gain nothing from a second BLAS thread, and lose much on a busy machine."""
    from threadpoolctl import threadpool_limits

    return threadpool_limits(1)
