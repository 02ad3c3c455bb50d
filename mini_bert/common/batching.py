"""Rows of different lengths as batches: grouped by a budget of tokens, padded to one length."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, TypeVar

import numpy as np

T = TypeVar("T")


def batches(rows: Iterable[T], length: Callable[[T], int], tokens: int) -> Iterator[list[T]]:
    """Group rows into batches of at most `tokens` tokens, padding included. A longer row gets a batch of its own.

    The rows must be sorted from short to long.

    >>> list(batches(["a", "bb", "bb", "cccc", "ddddd"], len, 4))
    [['a', 'bb'], ['bb'], ['cccc'], ['ddddd']]
    """
    batch: list[T] = []
    for row in rows:
        if batch and (len(batch) + 1) * length(row) > tokens:
            yield batch
            batch = []
        batch.append(row)
    if batch:
        yield batch


class Padding(NamedTuple):
    """How rows are brought to one length."""

    id: int = 0
    side: str = "right"  # or "left"
    type: int = 0  # the token type of padding

    def shift(self, lengths: np.ndarray, T: int) -> np.ndarray:
        """How far rows of these lengths move to the right when they are padded to T"""
        return T - lengths if self.side == "left" else np.zeros_like(lengths)

    def mask(self, lengths: np.ndarray, T: int) -> np.ndarray | None:
        """(B,T) False where rows of these lengths are padded; None if none is"""
        if (lengths == T).all():
            return None
        places = np.arange(T)
        return places >= T - lengths[:, None] if self.side == "left" else places < lengths[:, None]


RIGHT = Padding()


def padded(rows: Sequence[Sequence[int]], padding: Padding = RIGHT) -> tuple[np.ndarray, np.ndarray | None]:
    """Returns ids (B,T), padded with `padding.id`, and the attention mask (B,T), or None if nothing is padded.

    >>> ids, mask = padded([[5, 6, 7], [8]])
    >>> ids.tolist(), mask.tolist()
    ([[5, 6, 7], [8, 0, 0]], [[True, True, True], [True, False, False]])
    >>> padded([[5, 6, 7], [8]], Padding(9, "left"))[0].tolist()
    [[5, 6, 7], [9, 9, 8]]
    """
    lengths = np.array([len(row) for row in rows], int)
    most = int(lengths.max(initial=0))
    ids = np.full((len(rows), most), padding.id)
    for line, row, shift in zip(ids, rows, padding.shift(lengths, most).tolist(), strict=True):
        line[shift : shift + len(row)] = row
    return ids, padding.mask(lengths, most)
