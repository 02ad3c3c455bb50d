"""Sums and products of matrices, written for speed: what the layers share.

Letters: N rows, H columns. Functions that take (...,H) treat all leading axes as one long list of rows.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from mini_bert.common.eight_bit import Int8, integer_product, quantise_activations
from mini_bert.common.sixteen_bit import Stored
from mini_bert.layers.operation import operation

PRODUCT = 1 << 18  # numbers of a product computed at a time: they stay in the processor's cache
SCATTER = 512  # rows added to a table at a time
FEW, SMALL = range(8, 33), 1 << 20  # rows of x, and numbers of w, whose product is computed as (wᵀ xᵀ)ᵀ


def rows(x: np.ndarray) -> np.ndarray:
    """(...,H) -> (N,H): all tokens of all sequences as one list, without copying where possible."""
    return x.reshape(math.prod(x.shape[:-1]), x.shape[-1])  # reshape(-1, H) would fail for H = 0


def total(x: np.ndarray) -> np.ndarray:
    """Σ x over the last axis, (...,H) -> (...,1). A product with ones is 4 times as fast as x.sum(-1)."""
    return (rows(x) @ np.ones(x.shape[-1], x.dtype)).reshape(*x.shape[:-1], 1)


def mean(x: np.ndarray) -> np.ndarray:
    """The mean over the last axis, (...,H) -> (...,1)."""
    return total(x) / x.shape[-1]


def dot(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Σ x ⊙ y over the last axis, (...,H) -> (...,1), without a temporary array for x ⊙ y."""
    return np.vecdot(x, y)[..., None]


def sum_rows(x: np.ndarray) -> np.ndarray:
    """The sum of all rows, (...,H) -> (H,). A product with ones is 1.6 times as fast as x.sum(0)."""
    x = rows(x)
    return np.ones(len(x), x.dtype) @ x


@operation
def times(x: np.ndarray, w: np.ndarray | Stored | Int8) -> np.ndarray:
    """x w, as one product of two matrices: (...,in) (in,out) -> (...,out).

    `x @ w` gives the same, but NumPy would compute B small products. Weights stored in 16 bits are converted to float32
    a few columns at a time. For weights in 8 bits, x is rounded to 8 bits, too (common/eight_bit.py).

    The product of a sentence's few rows is computed as (wᵀ xᵀ)ᵀ, which several threads of OpenBLAS share better
    (benchmarks/inference.py: one sentence).
    """
    if isinstance(w, Int8) and len(w.scales) == 1:  # a scale for each column
        return _times_int8(rows(x), w).reshape(*x.shape[:-1], w.shape[1])
    if isinstance(w, Stored) and w.size > PRODUCT:
        y = np.empty((*x.shape[:-1], w.shape[1]), x.dtype)
        columns = max(1, PRODUCT // w.shape[0])
        for start in range(0, w.shape[1], columns):
            part = slice(start, start + columns)
            np.matmul(rows(x), w[:, part], out=rows(y)[:, part])
        return y
    turned = isinstance(w, np.ndarray) and w.size <= SMALL and math.prod(x.shape[:-1]) in FEW
    y = np.ascontiguousarray((w.T @ rows(x).T).T) if turned else rows(x) @ w
    return y.reshape(*x.shape[:-1], w.shape[1])


def _times_int8(x: np.ndarray, w: Int8) -> np.ndarray:  # x (N,in), w (in,out)
    a, scale = quantise_activations(x)
    y = np.empty((len(x), w.shape[1]), np.float32)
    columns = max(1, PRODUCT // w.shape[0])
    for start in range(0, w.shape[1], columns):
        part = slice(start, start + columns)
        y[:, part] = integer_product(a, w.integers[:, part])
    y *= scale * w.scales
    return y


def add_product(total: np.ndarray, a: np.ndarray, b: np.ndarray, run: Any) -> None:
    """total += a @ b

    NumPy cannot add into a product, so the product goes through a small scratch buffer, one part at a time: a few
    columns of a wide matrix, a few rows of a tall one. (The gradient of a tied head has 50,000 rows; five columns at a
    time would be slow.)
    """
    height, width = total.shape
    if height > width:
        count = min(height, max(1, PRODUCT // width))
        product = run.take((count, width), total.dtype)
        for start in range(0, height, count):
            some_rows = total[start : start + count]
            piece = product[: len(some_rows)]
            np.matmul(a[start : start + count], b, out=piece)
            some_rows += piece
    else:
        count = min(width, max(1, PRODUCT // max(height, 1)))
        product = run.take((height, count), total.dtype)
        for start in range(0, width, count):
            some_columns = total[:, start : start + count]
            piece = product[:, : some_columns.shape[1]]
            np.matmul(a, b[:, start : start + count], out=piece)
            some_columns += piece
    run.give(product)


def add_rows(total: np.ndarray, index: np.ndarray, values: np.ndarray) -> None:
    """total[index[n]] += values[n] for every n, repeated indices included.      index (N,), values (N,H)

    `total[index] += values` would keep only the last of repeated indices, and `np.add.at` is slow. So we sort the
    indices. Values of indices that occur once are added directly. The others are summed by a product with a matrix of
    zeros and ones, with one row for each distinct index. (`np.add.reduceat` takes twice the time.)
    """
    for start in range(0, index.size, SCATTER):  # the size of that matrix grows with the square of this
        _add_some_rows(total, index[start : start + SCATTER], values[start : start + SCATTER])


def _add_some_rows(total: np.ndarray, index: np.ndarray, values: np.ndarray) -> None:
    order = np.argsort(index, kind="stable")
    ordered = index[order]
    starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
    counts = np.diff(starts, append=ordered.size)
    single = starts[counts == 1]
    total[ordered[single]] += values[order[single]]
    repeated, counts = starts[counts > 1], counts[counts > 1]
    if repeated.size:
        places = order[np.repeat(repeated - np.cumsum(counts) + counts, counts) + np.arange(counts.sum())]
        which = np.zeros((repeated.size, places.size), values.dtype)
        which[np.repeat(np.arange(repeated.size), counts), np.arange(places.size)] = 1
        total[ordered[repeated]] += which @ values[places]
