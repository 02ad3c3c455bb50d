"""Format commands in messages so that the user can copy them: `mini-bert …` or `python run.py …`, paths quoted."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Mapping
from typing import Any

CALLED_AS = "MINI_BERT_CALLED_AS"  # run.py sets it
NO_BREAK = "\0"  # occurs in no path or sentence


def called_as() -> str:
    """How the user called the program: `mini-bert` or `python run.py`."""
    return os.environ.get(CALLED_AS, "mini-bert")


def command(name: str, *words: str | os.PathLike[str]) -> str:
    """A command as the user would type it: `mini-bert train --out 'my runs/first' --resume`."""
    return " ".join([called_as(), name, *map(quoted, words)])


def option_words(options: Mapping[str, Any]) -> list[str]:
    """Options of a command as words of the command line.

    >>> option_words({"corpus": ["a.txt", "b.txt"], "learning_rate": 1e-3, "tie_head": True, "next_sentence": False})
    ['--corpus', 'a.txt', '--corpus', 'b.txt', '--learning-rate', '0.001', '--tie-head']
    """
    words = []
    for name, value in options.items():
        flag = f"--{name.replace('_', '-')}"
        if isinstance(value, bool):
            words += [flag] if value else []
        else:
            for one in value if isinstance(value, list) else [value]:
                words += [flag, str(one)]
    return words


def as_options(text: str, names: Mapping[str, str]) -> str:
    """Replaces arguments in Python, NAME=VALUE, by options of the command line. names: argument -> option

    >>> text = 'with held_out=0.1, 3 documents are left; use at most max_seq_length=19, or mode="packed"'
    >>> as_options(text, {"held_out": "held_out", "max_seq_length": "length"})
    'with --held-out 0.1, 3 documents are left; use at most --length 19, or mode="packed"'
    """

    def option(found: re.Match[str]) -> str:
        name, value = found[1], found[2].strip('"')
        return f"--{names[name].replace('_', '-')} {value}" if name in names else found[0]

    return re.sub(r'\b(\w+)=("[^"]*"|[\w.+-]*\w)', option, text)


def as_called(text: str) -> str:
    """Replaces `mini-bert …`, in backquotes or after two spaces at the start of a line, by what the user would type.

    >>> as_called("try `mini-bert info` of mini-bert") == f"try `{called_as()} info` of mini-bert"
    True
    """
    return re.sub(r"(^  |`)mini-bert ", lambda start: f"{start[1]}{called_as()} ", text, flags=re.MULTILINE)


def quoted(word: str | os.PathLike[str]) -> str:
    """A path or other word, quoted for the shell if necessary. Windows only has double quotes."""
    text = os.fspath(word)
    return subprocess.list2cmdline([text]) if os.name == "nt" else shlex.quote(text)


def unbroken(text: str) -> str:
    """Text that `textwrap` leaves on one line; `broken` undoes this after wrapping."""
    return text.replace(" ", NO_BREAK)


def broken(text: str) -> str:
    return text.replace(NO_BREAK, " ")
