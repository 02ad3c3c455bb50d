"""Pooling: combine the vectors of all tokens into one vector for the text.

    cls     y = x[s]                      the vector of the summary token, at position s: 0 for BERT's [CLS]
    mean    y = 1/n Σ_t x_t               over the n tokens in use (words, not padding)
    max     y_h = max_t x_th              for each coordinate, over the same tokens
    all     as mean                       with special tokens in use, too; the caller passes these

x (B,T,H), used (B,T) booleans with at least one True per text, y (B,H).

Backward. Each y is a weighted sum of the x, so each x gets dy times its weight: 1/n for the mean; for the maximum, 1
for the largest (the first, if there are several) and 0 for all others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from mini_bert.layers.operation import operation


@operation
def summary(x, used=None, at=0):
    """y_b = x_b[at_b]        at: a position, or one for each text (B,)"""
    rows = np.arange(len(x))
    return x[rows, at], (x.shape, rows, at)


def summary_backward(dy, cache):
    """dx = dy at the summary token, 0 elsewhere"""
    shape, rows, at = cache
    dx = np.zeros(shape, dy.dtype)
    dx[rows, at] = dy
    return dx


def mean(x, used, at=0):
    """y = Σ w_t x_t        w = 1/n where `used`, 0 elsewhere"""
    weights = used.astype(x.dtype)
    weights /= weights.sum(1, keepdims=True)  # (B,T)
    return (weights[:, None] @ x)[:, 0], weights  # (B,1,T) (B,T,H) -> (B,H)


def mean_backward(dy, weights):
    """dx_t = w_t dy"""
    return weights[:, :, None] * dy[:, None]


@operation
def maximum(x, used, at=0):
    """y_h = max_t x_th"""
    winners = np.where(used[:, :, None], x, -np.inf).argmax(1, keepdims=True)  # (B,1,H)
    return np.take_along_axis(x, winners, 1)[:, 0], (x.shape, winners)


def maximum_backward(dy, cache):
    """dx = dy where x was the maximum, 0 elsewhere"""
    shape, winners = cache
    dx = np.zeros(shape, dy.dtype)
    np.put_along_axis(dx, winners, dy[:, None], 1)
    return dx


class Pooling(NamedTuple):
    forward: Callable[..., tuple[Any, Any]]  # x, used, at -> y, cache
    backward: Callable[[Any, Any], Any]  # dy, cache -> dx


POOLING = {
    "cls": Pooling(summary, summary_backward),
    "mean": Pooling(mean, mean_backward),
    "max": Pooling(maximum, maximum_backward),
    "all": Pooling(mean, mean_backward),
}


if __name__ == "__main__":
    x = np.array([[[1.0, 9.0], [2.0, 4.0], [6.0, 5.0], [70.0, 70.0]]])
    used = np.array([[False, True, True, False]])
    print("four tokens of two numbers, of which the middle two are in use:\n", x[0], sep="")
    for name, pool in POOLING.items():
        y, cache = pool.forward(x, used)
        dx = pool.backward(np.ones_like(y), cache)
        print(f"{name:5} {y[0]}  for dy of ones, dx is {dx[0].tolist()}")
