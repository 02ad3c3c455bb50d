"""Pooling: the vectors of all tokens become one vector for the whole text.

    first   y = x[0]                      the vector of [CLS], which looks at all others
    mean    y = 1/n Σ_t x_t               over the n tokens that are asked (words, not padding)
    max     y_h = max_t x_th              each coordinate on its own, over the same tokens

x (B,T,H), asked (B,T) True or False, y (B,H). Every text needs a token that is asked.

Backward. Each y is a weighted sum of the x, so each x gets dy times its weight: 1/n from a mean, and from a maximum 1
for the token that won (the first of several) and 0 for all others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np


def first(x, asked=None):
    """y = x[:,0] -> (y, shape)"""
    return x[:, 0], x.shape


def first_backward(dy, shape):
    """dx = dy at the first token, 0 elsewhere"""
    dx = np.zeros(shape, dy.dtype)
    dx[:, 0] = dy
    return dx


def mean(x, asked):
    """y = Σ w_t x_t, w = 1/n where asked, 0 elsewhere -> (y, w)"""
    weights = asked.astype(x.dtype)
    weights /= weights.sum(1, keepdims=True)  # (B,T)
    return (weights[:, None] @ x)[:, 0], weights  # (B,1,T) (B,T,H) -> (B,H)


def mean_backward(dy, weights):
    """dx_t = w_t dy"""
    return weights[:, :, None] * dy[:, None]


def maximum(x, asked):
    """y_h = max_t x_th -> (y, which token it was)"""
    winners = np.where(asked[:, :, None], x, -np.inf).argmax(1, keepdims=True)  # (B,1,H)
    return np.take_along_axis(x, winners, 1)[:, 0], (x.shape, winners)


def maximum_backward(dy, cache):
    """dx = dy where x won, 0 elsewhere"""
    shape, winners = cache
    dx = np.zeros(shape, dy.dtype)
    np.put_along_axis(dx, winners, dy[:, None], 1)
    return dx


class Pooling(NamedTuple):
    forward: Callable[..., tuple[Any, Any]]  # x, asked -> y, cache
    backward: Callable[[Any, Any], Any]  # dy, cache -> dx


POOLING = {
    "cls": Pooling(first, first_backward),
    "mean": Pooling(mean, mean_backward),
    "max": Pooling(maximum, maximum_backward),
}


if __name__ == "__main__":
    x = np.array([[[1.0, 9.0], [2.0, 4.0], [6.0, 5.0], [70.0, 70.0]]])
    asked = np.array([[False, True, True, False]])
    print("four tokens of two numbers, of which the middle two are asked:\n", x[0], sep="")
    for name, pool in POOLING.items():
        y, cache = pool.forward(x, asked)
        dx = pool.backward(np.ones_like(y), cache)
        print(f"{name:5} {y[0]}  a gradient of ones goes back as {dx[0].tolist()}")
