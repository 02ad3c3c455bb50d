"""Convolution over the tokens: every output is a weighted sum of a token and its neighbours.

    y_t = Σ_c x_{t+c} W_c + b          c = −r … r,  r = (size − 1)/2;   x beyond both ends is 0
    x (B,T,H)   W (size,H,H)           one matrix for each neighbour

It is a linear layer that also looks left and right: size 1 is the linear layer. Attention can learn to look at a
neighbour, a convolution does so from the start. (DeBERTa v2 has one beside its first block; it is good at n-grams.)

With `groups` > 1, the H features are split into groups, and each group of outputs reads its own group of inputs only:
W is then (size, groups, H/groups, H/groups), and has 1/groups of the weights.

Backward. As in linear.py, for each c on its own: x_{t+c} affects y_t with factor W_c, so

    dW_c += Σ_bt x_{t+c}ᵀ dy_t        db += Σ dy        dx_{t+c} += dy_t W_cᵀ,   for all c
"""

import math

import numpy as np

from mini_bert.layers.base import Layer, Param, Run, bind
from mini_bert.layers.initialisers import normal, zeros
from mini_bert.layers.matrices import sum_rows
from mini_bert.layers.operation import operation


class Convolution(Layer):
    """y_t = Σ_c x_{t+c} W_c + b        dx_{t+c} += dy_t W_cᵀ,   dW_c += Σ x_{t+c}ᵀ dy_t,   db += Σ dy"""

    def __init__(self, width: int, size: int = 3, groups: int = 1, std: float | None = None):
        if size % 2 == 0:
            raise ValueError(f"the size is {size}, expected an odd number: a token, and as many to its left as right")
        if width % groups:
            raise ValueError(f"the width, {width}, is not divisible by the number of groups, {groups}")
        self.size, self.groups, part = size, groups, width // groups
        self.w = Param((size, groups, part, part), normal(1 / math.sqrt(size * part) if std is None else std))
        self.b = Param((width,), zeros, decay=False)

    @operation
    def forward(self, x, run):  # x (B,T,H)
        padded = self.pad(x)  # (B,T+2r,H)
        y = np.zeros_like(x)
        for c in range(self.size):
            y += self.times(self.shifted(padded, c), self.w.data[c])
        y += self.b.data
        return y, x

    def backward(self, dy, x, run):  # dy (B,T,H)
        self.b.add(sum_rows(dy))
        self.w.zero_if_unset()
        padded = self.pad(x)
        dpadded = np.zeros_like(padded)
        grouped = self.in_groups(dy)  # (groups,N,part)
        for c in range(self.size):
            self.w.grad[c] += self.in_groups(self.shifted(padded, c)).swapaxes(-1, -2) @ grouped
            self.shifted(dpadded, c)[...] += self.times(dy, self.w.data[c].swapaxes(-1, -2))
        return np.ascontiguousarray(self.shifted(dpadded, self.size // 2))

    def pad(self, x):
        """x with r zeros on both sides of each sequence"""
        r = self.size // 2
        return np.pad(x, ((0, 0), (r, r), (0, 0)))

    def shifted(self, padded, c: int):
        """x_{t+c−r} for every t, as a view"""
        return padded[:, c : padded.shape[1] - self.size + 1 + c]

    def in_groups(self, x):
        """(B,T,H) -> (groups,N,H/groups)"""
        B, T, H = x.shape
        return x.reshape(B * T, self.groups, H // self.groups).transpose(1, 0, 2)

    def times(self, x, w):
        """x w, for each group: (B,T,H) (groups,part,part) -> (B,T,H)"""
        return (self.in_groups(x) @ w).transpose(1, 0, 2).reshape(x.shape)


if __name__ == "__main__":
    layer = Convolution(1, size=3)
    bind(layer)
    layer.w.data[:, 0, 0, 0] = [0.25, 0.5, 0.25]
    x = np.array([[[0.0], [0.0], [4.0], [0.0], [8.0]]], np.float32)
    y, cache = layer.forward(x, Run())
    print("weights ¼ ½ ¼ blur five tokens of width 1:", x[0, :, 0], "->", y[0, :, 0])
    dx = layer.backward(np.ones_like(y), cache, Run())
    print("how much each token adds to the sum of all outputs:", dx[0, :, 0], " (the ends lack a neighbour)")
    print("dW, the sum of the left neighbours, of the tokens, of the right neighbours:", layer.w.grad[:, 0, 0, 0])
