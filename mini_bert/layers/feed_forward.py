"""The feed-forward network: applied to each token on its own, after attention has exchanged information between tokens.

    y = f(x W1 + b1) W2 + b2          x (…,H)   W1 (H,I)   W2 (I,H)   usually I = 4H

W1 computes I features of the vector. The activation f (ReLU in Mini-BERT, GELU in published BERT) lets the
positive ones through, and W2 turns them into a vector again. Without f, the two matrices would be equivalent to one.

Backward takes the same three steps in reverse; each is derived in its own file.

Some architectures also apply dropout to the I features (Transformer-XL, XLNet).
"""

from typing import Any, NamedTuple

import numpy as np

from mini_bert.layers.activations import activation
from mini_bert.layers.base import Layer, Run, bind
from mini_bert.layers.dropout import dropout, dropout_backward
from mini_bert.layers.linear import Linear


class FeedForwardCache(NamedTuple):
    expand: Any
    activation: Any
    contract: Any
    dropped: Any = None


class FeedForward(Layer):
    """y = dropout(f(x W1 + b1)) W2 + b2"""

    def __init__(self, width: int, inner: int, activation_name: str = "relu", std: float | None = None, p: float = 0.0):
        self.p = p
        self.expand = Linear(width, inner, std=std)
        self.contract = Linear(inner, width, std=std)
        self.activation = activation(activation_name)

    def forward(self, x, run, at=None):  # x (...,H)
        """at: where the rows come from (dropout.py)"""
        h, expand = self.expand.forward(x, run)  #       (...,I)
        a, activated = self.activation.forward(h)
        a, dropped = dropout(a, self.p, run, at)
        y, contract = self.contract.forward(a, run)  #   (...,H)
        return y, FeedForwardCache(expand, activated, contract, dropped)

    def backward(self, dy, cache, run):  # dy (...,H)
        da = self.contract.backward(dy, cache.contract, run)
        da = dropout_backward(da, cache.dropped)
        dh = self.activation.backward(da, cache.activation, out=da)
        return self.expand.backward(dh, cache.expand, run)


if __name__ == "__main__":
    layer = FeedForward(4, 16)
    bind(layer, seed=0)
    x = np.random.default_rng(0).normal(size=(1, 3, 4)).astype(np.float32)
    y, cache = layer.forward(x, Run())
    print(f"x {x.shape} -> inner {cache.contract.shape} -> y {y.shape}")
    print(f"{(cache.contract > 0).mean():.0%} of the inner features are positive; ReLU has set the others to 0")
