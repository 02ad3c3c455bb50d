"""Show texts that others wrote: a control character appears as \\x1b instead of changing the terminal.

The command line filters all that it prints in one place: while a command runs, both standard streams are `Visible`.
What draws with control characters, which is rich, writes to the stream below: `unfiltered(sys.stderr)`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from typing import Any

CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")  # all but the tab and the line end


def visible(text: str) -> str:
    r"""The text with its control characters written out.

    >>> print(visible("a red \x1b[31mword"))
    a red \x1b[31mword
    """
    return CONTROL.sub(lambda match: f"\\x{ord(match[0]):02x}", text)


class Visible:
    """A text stream that writes what is `visible` to another one."""

    def __init__(self, stream: Any):
        self.stream = stream

    def write(self, text: str) -> int:
        return self.stream.write(visible(text))

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def unfiltered(stream: Any) -> Any:
    """The stream below a Visible."""
    return stream.stream if isinstance(stream, Visible) else stream


def filter_redirected() -> None:
    """Call after rich has started to draw. To keep printed lines apart from its drawing, it puts itself in place of the
    standard streams, until it stops; what is printed there is filtered, too."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if hasattr(stream, "rich_proxied_file") and not isinstance(stream, Visible):
            setattr(sys, name, Visible(stream))
