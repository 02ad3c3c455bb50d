"""Rows of different lengths as batches: grouped by a budget of tokens, padded to one length."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

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


def padded(rows: Sequence[Sequence[int]], pad_id: int = 0) -> tuple[np.ndarray, np.ndarray | None]:
    """Returns ids (B,T), padded with `pad_id`, and the attention mask (B,T), or None if nothing is padded.

    >>> ids, mask = padded([[5, 6, 7], [8]])
    >>> ids.tolist(), mask.tolist()
    ([[5, 6, 7], [8, 0, 0]], [[True, True, True], [True, False, False]])
    """
    lengths = np.array([len(row) for row in rows], int)
    most = lengths.max(initial=0)
    ids = np.full((len(rows), most), pad_id)
    for line, row in zip(ids, rows, strict=True):
        line[: len(row)] = row
    return ids, None if (lengths == most).all() else np.arange(most) < lengths[:, None]
