"""Show texts that others wrote: a control character appears as \\x1b instead of changing the terminal."""

from __future__ import annotations

import re
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

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)
