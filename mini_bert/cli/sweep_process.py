"""The process in which a sweep trains a run: `mini-bert train`, until its standard input is closed.

The sweep holds the other end. When it closes it, and also when the sweep itself is killed, this process gets the same
as from Ctrl-C: it finishes its step, saves a checkpoint and ends.
"""

from __future__ import annotations

import sys

import typer

from mini_bert.cli.training import train
from mini_bert.cli.words import complete_options
from mini_bert.common.processes import HelperError
from mini_bert.lab.training_process import end_with


def main(words: list[str]) -> None:
    end_with(sys.stdin.fileno())
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
    complete_options(train)
    app.command()(train)
    try:
        app(words)
    except (ValueError, OSError, MemoryError, HelperError) as error:
        raise SystemExit(str(error) or type(error).__name__) from None
