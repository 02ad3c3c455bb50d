"""Commands that we print to be typed: called as the reader called us, with paths that any shell takes."""

from __future__ import annotations

import os
import re
import shlex
import subprocess

CALLED_AS = "MINI_BERT_CALLED_AS"  # run.py sets it
NO_BREAK = "\0"  # no path and no sentence has one


def called_as() -> str:
    """How the reader called us: `mini-bert`, or `python run.py`"""
    return os.environ.get(CALLED_AS, "mini-bert")


def command(name: str, *words: str | os.PathLike[str]) -> str:
    """A command as the reader would call it: `mini-bert train --out 'my runs/first' --resume`"""
    return " ".join([called_as(), name, *map(quoted, words)])


def as_called(text: str) -> str:
    """`mini-bert NAME …` between backquotes, or a line of it behind two blanks, as the reader would call it

    >>> as_called("try `mini-bert info` of mini-bert") == f"try `{called_as()} info` of mini-bert"
    True
    """
    return re.sub(r"(^  |`)mini-bert ", lambda found: f"{found[1]}{called_as()} ", text, flags=re.MULTILINE)


def quoted(word: str | os.PathLike[str]) -> str:
    """A path, or any word, as one word of the shell; Windows knows double quotes only."""
    text = os.fspath(word)
    return subprocess.list2cmdline([text]) if os.name == "nt" else shlex.quote(text)


def unbroken(text: str) -> str:
    """Text that `textwrap` leaves on one line; `broken` undoes it when the lines are made."""
    return text.replace(" ", NO_BREAK)


def broken(text: str) -> str:
    return text.replace(NO_BREAK, " ")
