"""Chunks of text that are normalised character by character, so that positions stay what they are."""

from __future__ import annotations

import re
from collections.abc import Callable

from mini_bert.text.memory import LONGEST_KEPT, Memory

_NOT_ASCII = re.compile(r"[^\x00-\x7f]")


class PlainChunks(Memory):
    """For each chunk, whether its normalised text is ▁ and then one character for each of its characters.

    normalised: the function that normalises. Tells "Zoë," (▁zoe,) from "½" (▁1⁄2).
    """

    def __init__(self, normalised: Callable[[str], str], entries: int):
        super().__init__(lambda chunk: self._is_plain(chunk, normalised(chunk)), entries)
        self._alone = Memory(lambda character: _second(normalised(character)), entries)

    def add(self, chunk: str, normalised: str) -> None:
        """Remember a chunk whose normalised text is known."""
        if len(chunk) <= LONGEST_KEPT:
            self.keep(chunk, self._is_plain(chunk, normalised))

    def _is_plain(self, chunk: str, normalised: str) -> bool:
        if len(normalised) != len(chunk) + 1:
            return False
        if not chunk.isascii():
            for character in set(_NOT_ASCII.findall(chunk)):
                becomes = self._alone[character]
                if becomes is None:
                    return False
                chunk = chunk.replace(character, becomes)
        return normalised[1:] in (chunk, chunk.lower())


def _second(normalised: str) -> str | None:
    """The one character after ▁; None if there are others."""
    return normalised[1] if len(normalised) == 2 else None
