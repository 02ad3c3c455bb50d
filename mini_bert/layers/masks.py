"""Masks: which keys a query may attend to, where that depends on their distance.

    causal      key j ≤ query i              a token sees itself and what comes before: it cannot read the answer
    local       |j − i| ≤ reach              a token sees its neighbourhood: T · (2 reach + 1) scores instead of T²

Attention takes a mask that broadcasts to (B,A,T,T) and gives weight 0, and so gradient 0, wherever it is False
(attention.py). Both masks depend on j − i only: every row is the row above, shifted by one. So 2T − 1 booleans hold the
whole matrix, and what is returned is a view of them. Padding is combined with `&`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from mini_bert.layers.operation import operation


@operation
def causal(queries: int, keys: int | None = None, window: int | None = None) -> np.ndarray:
    """True where key j ≤ query i, and only for the last `window` of these. The queries are the last of the keys.

    (T,K); by default K = T, and a query sees all keys before it.
    """
    reach = math.inf if window is None else window
    return _of_distance(queries, keys, lambda distance: (-reach < distance) & (distance <= 0))


@operation
def local(tokens: int, reach: int) -> np.ndarray:
    """True where |j − i| ≤ reach        (T,T)"""
    return _of_distance(tokens, None, lambda distance: abs(distance) <= reach)


def both(mask: np.ndarray, padding: np.ndarray | None) -> np.ndarray:
    """mask & padding, where padding may be None: there is none.        padding (B,1,1,T) -> (B,1,T,T)"""
    return mask if padding is None else mask & padding


def with_memory(mask: np.ndarray | None, M: int) -> np.ndarray | None:
    """A mask for T keys becomes one for M + T, where a memory of M tokens comes first: it is always visible."""
    if mask is None or M == 0:
        return mask
    return np.concatenate([np.ones((*mask.shape[:-1], M), bool, like=mask), mask], -1)


@operation
def unless_empty(mask: np.ndarray) -> np.ndarray | None:
    """The mask, or None if it is False everywhere: then there is nothing to do."""
    return mask if mask.any() else None


def _of_distance(queries: int, keys: int | None, allowed: Any) -> np.ndarray:
    """mask[i, j] = allowed(j − i), as a view."""
    K = queries if keys is None else keys
    shifted = allowed(np.arange(1 - K, K))  # (2K−1,)
    return np.lib.stride_tricks.sliding_window_view(shifted, K)[::-1][K - queries :]  # row i starts at distance −i


if __name__ == "__main__":
    for name, mask in (("causal", causal(5)), ("two queries of five keys", causal(2, 5)), ("reach 1", local(5, 1))):
        base = mask
        while base.base is not None:
            base = base.base
        print(f"{name}: {mask.size} values in {base.nbytes} bytes")
        print("\n".join("  " + " ".join("×" if allowed else "·" for allowed in row) for row in mask))
