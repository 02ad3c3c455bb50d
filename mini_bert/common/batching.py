"""Rows of different lengths as batches: grouped by a budget of tokens, padded to one length."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

import numpy as np

T = TypeVar("T")


def batches(rows: Iterable[T], length: Callable[[T], int], tokens: int) -> Iterator[list[T]]:
    """Rows that come from short to long, so many at a time that with padding they are at most `tokens`, or one

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


def padded(rows: Sequence[Sequence[int]], pad_id: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Lists of ids of different lengths -> ids (B,T), mask (B,T): 1 for a token, 0 for padding"""
    lengths = np.array([len(row) for row in rows], int)
    ids = np.full((len(rows), lengths.max(initial=0)), pad_id)
    for line, row in zip(ids, rows, strict=True):
        line[: len(row)] = row
    return ids, (np.arange(ids.shape[1]) < lengths[:, None]).astype(np.int64)
