"""Output heads that several architectures share: what a model predicts from the vectors of its tokens.

    Pooler             pooled = tanh(x[:,0] W + b)                  the vector of the first token, for whole texts
    MaskedWordHead     logits = LayerNorm(f(x W + b)) Eᵀ + b        which word belongs here? E: the token table (tied)

Where the embeddings are narrower than the blocks (ALBERT, ELECTRA), W goes from the width of the blocks to that of the
table, because a logit is a dot product with a row of the table.

Letters: B batch, T tokens, H hidden width, E width of the embeddings, V vocabulary.
"""

from __future__ import annotations

import numpy as np

from mini_bert.layers.activations import activation, tanh, tanh_backward
from mini_bert.layers.base import Layer, Param, Run, bind
from mini_bert.layers.embedding import Embedding
from mini_bert.layers.layer_norm import LayerNorm
from mini_bert.layers.linear import Linear, TiedLinear


class Pooler(Layer):
    """pooled = tanh(x[:,0] W + b)        x (B,T,H) -> (B,H)"""

    def __init__(self, width: int, std: float):
        self.dense = Linear(width, width, std=std)

    def forward(self, x, run):
        h, dense = self.dense.forward(x[:, 0], run)
        y, activated = tanh(h)
        return y, (x.shape, dense, activated)

    def backward(self, dy, cache, run):
        shape, dense, activated = cache
        dx = np.zeros(shape, dy.dtype)
        dx[:, 0] = self.dense.backward(tanh_backward(dy, activated), dense, run)
        return dx


class MaskedWordHead(Layer):
    """logits = LayerNorm(f(x W + b)) Eᵀ + b        x (...,H) -> (...,V)        untied: another matrix in place of Eᵀ"""

    def __init__(self, width: int, table: Param, activation_name: str, eps: float, std: float, tied: bool = True):
        words, size = table.shape  # (V,E)
        self.dense = Linear(width, size, std=std)
        self.activation = activation(activation_name)
        self.norm = LayerNorm(size, eps)
        self.decoder = TiedLinear(table) if tied else Linear(size, words, std=std)

    def forward(self, x, run):  # x (...,H)
        h, dense = self.dense.forward(x, run)  # (...,E)
        a, activated = self.activation.forward(h)
        n, norm = self.norm.forward(a, run)
        logits, decoder = self.decoder.forward(n, run)  # (...,V)
        return logits, (dense, activated, norm, decoder)

    def backward(self, dlogits, cache, run):  # dlogits (...,V)
        dense, activated, norm, decoder = cache
        dn = self.decoder.backward(dlogits, decoder, run)
        da = self.norm.backward(dn, norm, run)
        dh = self.activation.backward(da, activated)
        return self.dense.backward(dh, dense, run)  # dx (...,H)


if __name__ == "__main__":
    tokens = Embedding(11, 4)
    head, pooler = MaskedWordHead(6, tokens.table, "gelu", 1e-12, 0.5), Pooler(6, 0.5)
    for layer in (head, pooler):
        bind(layer, seed=0)
    x = np.random.default_rng(0).normal(size=(2, 3, 6)).astype(np.float32)
    logits, cache = head.forward(x, Run())
    dx = head.backward(np.ones_like(logits), cache, Run())
    print(f"x {x.shape} -> {logits.shape}, a score for each of 11 words with vectors of 4 numbers; dx {dx.shape}")
    pooled, cache = pooler.forward(x, Run())
    dx = pooler.backward(np.ones_like(pooled), cache, Run())
    print(f"x {x.shape} -> pooled {pooled.shape}; only the first token of each text has a gradient:")
    print(np.abs(dx).sum(-1).round(2))
