"""Show the progress of long work on standard error: a progress bar on a terminal, else a plain line every 10 seconds.

    with showing() as show:
        for done, piece in enumerate(pieces):
            show("reading", f"{done:,} pieces", done, len(pieces))

A new name starts a new stage and ends the previous one. `counted` and `size` format numbers for messages.
"""

from __future__ import annotations

import atexit
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache

from mini_bert.common.visible import filter_redirected, unfiltered, visible

Show = Callable[[str, str, float, float | None], None]  # stage, note, done, total (None: unknown)
EVERY = 10  # seconds between two plain lines


def counted(number: int, noun: str) -> str:
    """A number with its noun.

    >>> counted(1, "file"), counted(1204, "word"), counted(2, "batch"), counted(3_456_789, "token")
    ('1 file', '1,204 words', '2 batches', '3,456,789 tokens')
    """
    ending = "" if number == 1 else "es" if noun.endswith(("ch", "s", "x")) else "s"
    return f"{number:,} {noun}{ending}"


def roughly(number: int, noun: str) -> str:
    """A number with its noun, in millions if it is large.

    >>> roughly(1204, "character"), roughly(3_456_789, "character")
    ('1,204 characters', '3.5 million characters')
    """
    return counted(number, noun) if number < 1_000_000 else f"{number / 1e6:,.1f} million {counted(2, noun)[2:]}"


def size(number: float) -> str:
    """A number of bytes with a suitable unit.

    >>> size(831), size(12_345), size(3_456_789)
    ('831 bytes', '12.3 kB', '3.5 MB')
    """
    if number < 1000:
        return counted(int(number), "byte")
    return f"{number / 1e3:.1f} kB" if number < 999_950 else f"{number / 1e6:,.1f} MB"


def bar(share: float, width: int = 24) -> str:
    """A bar of up to `width` characters for a share from 0 to 1."""
    block = "█" if "utf" in (sys.stdout.encoding or "").lower() else "#"
    return block * round(share * width)


def open_closed_streams() -> None:
    """Give standard streams that were closed (`2>&-`) to the null device. Python has None instead of them, and the next
    file that is opened would take their number."""
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            stream = open(os.devnull, "r" if name == "stdin" else "w", encoding="utf-8")  # noqa: SIM115 (stays open)
            os.set_inheritable(stream.fileno(), True)
            setattr(sys, name, stream)


@cache
def show_cursor_at_exit() -> None:
    """rich hides the cursor while it draws, and a second Ctrl-C can interrupt it before it shows the cursor again."""
    from rich.console import Console

    atexit.register(Console(file=unfiltered(sys.stderr)).show_cursor)


@contextmanager
def showing(wanted: bool = True) -> Iterator[Show]:
    """Yields a function that shows progress. It can be called as often as you like."""
    if not wanted:
        yield lambda stage, note, done, total: None
    elif sys.stderr.isatty():
        yield from _bars()
    else:
        yield from _lines()


def _bars() -> Iterator[Show]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    name, about = (TextColumn(text, markup=False) for text in ("{task.description}", "{task.fields[note]}"))
    console = Console(file=unfiltered(sys.stderr))
    stages: dict[str, TaskID] = {}
    show_cursor_at_exit()
    with Progress(name, BarColumn(30), about, TimeElapsedColumn(), TimeRemainingColumn(), console=console) as bar:
        filter_redirected()

        def show(stage: str, note: str, done: float, total: float | None) -> None:
            stage, note = visible(stage), visible(note)
            if stage not in stages:
                for task in stages.values():
                    bar.update(task, total=bar.tasks[task].completed)
                    bar.stop_task(task)
                stages[stage] = bar.add_task(stage, note=note, total=total)
            bar.update(stages[stage], completed=done, total=total, note=note)

        yield show
        for task in stages.values():
            bar.update(task, total=bar.tasks[task].completed)


def _lines() -> Iterator[Show]:
    last, printed = ("", ""), time.monotonic()

    def say(stage: str, note: str) -> None:
        print(f"{stage}: {note}", file=sys.stderr, flush=True)

    def show(stage: str, note: str, done: float, total: float | None) -> None:
        nonlocal last, printed
        if last[0] not in ("", stage):
            say(*last)
        elif time.monotonic() - printed > EVERY:
            printed = time.monotonic()
            say(stage, note + (f", {done / total:.0%}" if total else ""))
        last = (stage, note)

    yield show
    if last[0]:
        say(*last)
