"""The linear layer: every output is a weighted sum of all inputs. Nearly all of BERT's weights are here.

    y = x W + b            x (…,in)   W (in,out)   b (out,)   y (…,out)

W and b are the same for every token of every sequence, so x can be treated as one tall matrix with a row per token.

Backward. y_no = Σ_i x_ni W_io + b_o. For each factor, find the outputs that it affects, and sum over them:

    W_io  affects y_no for every token n, with factor x_ni:     dW = xᵀ dy
    b_o   affects y_no for every token n, with factor 1:        db = Σ_n dy_n
    x_ni  affects y_no for every output o, with factor W_io:    dx = dy Wᵀ

The shapes determine the order of the factors: dW is (in,out), and no other product of x and dy has that shape.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from copy import copy
from typing import ClassVar

import numpy as np

from mini_bert.layers.base import Layer, Param, Run, bind
from mini_bert.layers.initialisers import normal, zeros
from mini_bert.layers.matrices import rows, sum_rows, times


class Linear(Layer):
    """y = x W + b        dx = dy Wᵀ,   dW += xᵀ dy,   db += Σ dy

    W is initialised as N(0, 1/fan_in), so that y has about the same variance as x. matrices: how many are in W, side by
    side and equally wide.
    """

    eight_bit: ClassVar[Mapping[str, int]] = {"w": 1}

    def __init__(self, fan_in: int, fan_out: int, bias: bool = True, std: float | None = None, matrices: int = 1):
        self.w = Param((fan_in, fan_out), normal(1 / math.sqrt(fan_in) if std is None else std), matrices=matrices)
        self.b = Param((fan_out,), zeros, decay=False) if bias else None

    def forward(self, x, run):  # x (...,in)
        y = times(x, self.w.data)  # y (...,out)
        if self.b is not None:
            y += self.b.data
        return y, x

    def backward(self, dy, x, run):  # dy (...,out)
        self.w.add_product(rows(x).T, rows(dy), run)  # dW += xᵀ dy
        if self.b is not None:
            self.b.add(sum_rows(dy))  # db += Σ dy
        return times(dy, self.w.data.T)  # dx = dy Wᵀ (...,in)

    def outputs(self, columns: slice) -> Linear:
        """Returns a layer that computes only these outputs. It shares our weights and gradients."""
        part = copy(self)
        part.w = self.w.part((slice(None), columns))
        part.b = None if self.b is None else self.b.part(columns)
        return part


class TiedLinear(Layer):
    """y = x Wᵀ + b        dx = dy W,   dW += dyᵀ x,   db += Σ dy

    The layer that predicts words can share the embedding table: the logit of a word is then the dot product of x and
    the word's embedding. The table (V,H) is passed as a `Param`, so both uses add to the same gradient. Only the bias
    belongs to this layer (GPT-2 has none).
    """

    eight_bit: ClassVar[Mapping[str, int]] = {"w": 0}

    def __init__(self, table: Param, bias: bool = True):
        self.w = table
        self.b = Param((table.shape[0],), zeros, decay=False) if bias else None

    def forward(self, x, run):  # x (...,H)
        y = times(x, self.w.data.T)  # y (...,V)
        if self.b is not None:
            y += self.b.data
        return y, x

    def backward(self, dy, x, run):  # dy (...,V)
        self.w.add_product(rows(dy).T, rows(x), run)  # dW += dyᵀ x
        if self.b is not None:
            self.b.add(sum_rows(dy))  # db += Σ dy
        return times(dy, self.w.data)  # dx = dy W (...,H)


if __name__ == "__main__":
    np.set_printoptions(precision=3, suppress=True)
    layer, run = Linear(3, 2), Run()
    bind(layer, seed=0)
    x = np.array([[1.0, 2.0, 3.0], [0.0, 1.0, 0.0]], np.float32)
    y, cache = layer.forward(x, run)
    dx = layer.backward(np.ones_like(y), cache, run)
    print("x, two tokens of width 3:\n", x, "\nW:\n", layer.w.data, "\ny = x W + b:\n", y, sep="")
    print("the loss is the sum of y, so dy is all ones:\ndW = xᵀ dy, each row the sum of one input over the tokens:")
    print(layer.w.grad, "\ndb, the number of tokens:", layer.b.grad, "\ndx = dy Wᵀ:\n", dx)  # type: ignore[union-attr]
