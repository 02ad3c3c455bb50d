"""Rows of different lengths in one array."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def padded(rows: Sequence[Sequence[int]], pad_id: int = 0) -> tuple[np.ndarray, np.ndarray | None]:
    """Returns ids (B,T), filled up with `pad_id`, and the attention mask (B,T), None if nothing is padded

    >>> ids, mask = padded([[5, 6, 7], [8]])
    >>> ids.tolist(), mask.tolist()
    ([[5, 6, 7], [8, 0, 0]], [[True, True, True], [True, False, False]])
    """
    lengths = np.array([len(row) for row in rows], int)
    T = lengths.max(initial=0)
    ids = np.full((len(rows), T), pad_id)
    for line, row in zip(ids, rows, strict=True):
        line[: len(row)] = row
    return ids, None if (lengths == T).all() else np.arange(T) < lengths[:, None]
