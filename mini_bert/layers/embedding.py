"""Embeddings: a table with one row of H numbers per word. To look up a word is to read its row.

    y = E[ids]                    ids (B,T) integers < V     E (V,H)     y (B,T,H)

This is a linear layer with one-hot inputs, without the multiplication.

Attention treats its inputs as a set, so the position of a token must be part of its vector. A second table has one row
per position, which is added:

    y = x + P[positions]          P (T_max,H)     positions (B,T), usually 0, 1, 2, … in every sequence: P[:T]

Backward. A row of E is used wherever its word occurs, with factor 1, so its gradient is the sum over these places.
Words that do not occur get none:

    dE[w] = Σ_{b,t : ids_bt = w} dy_bt            dP likewise; for P[:T], dP[t] = Σ_b dy_bt;   dx = dy
"""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from mini_bert.layers.base import Layer, Param, Run, bind
from mini_bert.layers.initialisers import Initialiser, normal
from mini_bert.layers.matrices import add_rows, rows
from mini_bert.layers.operation import operation


class Embedding(Layer):
    """y = E[ids]        dE[ids] += dy"""

    eight_bit: ClassVar[Mapping[str, int]] = {"table": 0}

    def __init__(self, count: int, width: int, std: float = 0.02, init: Initialiser | None = None):
        self.table = Param((count, width), normal(std) if init is None else init)

    @operation
    def forward(self, ids, run):  # ids (B,T)
        return self.table.data[ids], ids  # y (B,T,H)

    def backward(self, dy, ids, run):  # dy (B,T,H)
        self.table.zero_if_unset()
        add_rows(self.table.grad, ids.ravel(), rows(dy))  # dE[ids] += dy
        return None  # ids are integers and have no gradient


class PositionEmbedding(Layer):
    """y = x + P[:T]        dP[:T] += Σ_b dy,   dx = dy        or with given positions, x + P[positions]"""

    def __init__(self, length: int, width: int, init: Initialiser | None = None):
        self.table = Param((length, width), normal(0.02) if init is None else init)

    @operation
    def forward(self, x, run, positions=None):  # x (B,T,H), positions (B,T)
        if positions is not None:
            return x + self.table.data[positions], positions
        T = x.shape[1]
        return x + self.table.data[:T], T

    def backward(self, dy, cache, run):  # dy (B,T,H)
        self.table.zero_if_unset()
        if isinstance(cache, int):
            self.table.grad[:cache] += dy.sum(0)  # dP[:T] += Σ_b dy
        else:
            add_rows(self.table.grad, cache.ravel(), rows(dy))  # dP[positions] += dy
        return dy


if __name__ == "__main__":
    np.set_printoptions(precision=3, suppress=True)
    layer, run = Embedding(5, 3), Run()
    bind(layer, seed=0)
    ids = np.array([[1, 4, 1]])
    y, cache = layer.forward(ids, run)
    layer.backward(np.ones_like(y), cache, run)
    print("table:\n", layer.table.data, "\nids", ids.tolist(), "look up rows 1, 4, 1:\n", y)
    print("with dy all ones, the gradient of word 1 (which occurs twice) is 2, of word 4 it is 1:\n", layer.table.grad)
