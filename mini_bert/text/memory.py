"""What makes tokenizers fast: results are remembered, and garbage collection waits."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

LONGEST_KEPT = 64  # characters; longer strings (URLs, base64) rarely come twice


class Memory(dict[str, Any]):
    """Caches the results of `work` for short strings. Cleared when full, so that its memory is bounded."""

    def __init__(self, work: Callable[[str], Any], entries: int):
        self.work, self.entries = work, entries

    def __missing__(self, key: str) -> Any:
        value = self.work(key)
        if len(key) <= LONGEST_KEPT:
            self.keep(key, value)
        return value

    def keep(self, key: str, value: Any) -> None:
        if len(self) >= self.entries:
            self.clear()
        self[key] = value

    def keep_all(self, values: dict[str, Any]) -> None:
        if len(self) + len(values) > self.entries:
            self.clear()
        if len(values) <= self.entries:
            self.update(values)


@contextmanager
def no_collection() -> Iterator[None]:
    """Suspends garbage collection, which takes a tenth of the time: lists of numbers cannot form cycles."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
