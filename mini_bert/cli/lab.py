"""`mini-bert lab`: the local page on which a model can be watched at work."""

from __future__ import annotations

from typing import Annotated

import typer

from mini_bert.cli.words import MODELS


def lab(
    model: Annotated[
        list[str] | None,
        typer.Option(
            help=f"{MODELS}; default: mini-bert. Several times: the page can choose, also among runs in ./runs"
        ),
    ] = None,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="the port of the page; 0: any free one; default: 8642, or any")
    ] = None,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="only print the address, do not open it")] = False,
) -> None:
    """Open the lab in your browser. Hide words, follow every number through the model, look into its heads.

    The page is served from this computer, to this computer only, until you press Ctrl-C.

    For example:  mini-bert lab
    """
    from mini_bert.lab.running import run_lab

    first, *more = model or ["mini-bert"]
    run_lab(first, port, not no_browser, more)
