"""Attention: every token looks at every other and takes a weighted average of what they offer.

Each token makes three vectors: a query q (what am I looking for?), a key k (what am I?) and a value v (what
do I pass on?). How well query i fits key j is a dot product; softmax turns a row of fits into weights:

    S = q kᵀ / √d       scores     (T,T)
    P = softmax(S)      weights    (T,T), each row sums to 1
    C = P v             context    (T,d)

(Vaswani et al. 2017, eq. 1.) √d: a sum of d products of unit spread has spread √d, and softmax of large
numbers is a hard choice with no slope left. A mask says who may be looked at (not padding; not the future, in
a model that reads left to right): where it is False, the score is replaced by the lowest number there is, and
softmax makes a weight of exactly 0 of it.

A head does this in d = H/A dimensions; A heads look for A different things at once. q, k and v of all heads
come from one product x W_qkv with W_qkv (H,3H), and their contexts, side by side again, pass through W_o:

    y = [C_1 … C_A] W_o

Backward, in the reverse order. C = P v is a linear layer in both factors, softmax has its own rule, and S is
a product again, in which q and k meet each other's gradient:

    dP = dC vᵀ     dv = Pᵀ dC     dS = P ⊙ (dP − Σ P ⊙ dP)     dq = dS k / √d     dk = dSᵀ q / √d

`attend` holds what is common to all kinds of attention; how S is made is BERT's own here, and differs in the
models that encode places in the scores.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from mini_bert.layers.base import Layer, Run, bind
from mini_bert.layers.dropout import dropout, dropout_backward
from mini_bert.layers.linear import Linear
from mini_bert.layers.softmax import softmax, softmax_backward


class AttendCache(NamedTuple):
    probs: np.ndarray  # (B,A,T,T) who looks at whom, before dropout
    dropped: Any  # dropout's mask, or None
    v: np.ndarray  # (B,A,T,d)


def attend(scores, v, run, mask=None, p: float = 0.0):
    """C = dropout(softmax(S)) v        scores (B,A,T,T), v (B,A,T,d), mask: True = may look, broadcast to the scores"""
    if mask is not None:
        scores = np.where(mask, scores, np.finfo(scores.dtype).min)
    probs, _ = softmax(scores)
    if mask is not None and not mask.any(-1).all():  # a row with nobody to look at: softmax of equals is not 0
        probs = np.where(mask.any(-1, keepdims=True), probs, 0)
    weights, dropped = dropout(probs, p, run)
    return weights @ v, AttendCache(probs, dropped, v)  # (B,A,T,d)


def attend_backward(dcontext, cache):
    """-> dscores, dv        (a masked score has weight 0, so its gradient is 0 without asking for the mask)"""
    probs, dropped, v = cache
    weights = probs if dropped is None else probs * dropped  # in the forward pass: what dropout left of probs
    dv = weights.swapaxes(-1, -2) @ dcontext
    dprobs = dropout_backward(dcontext @ v.swapaxes(-1, -2), dropped)
    return softmax_backward(dprobs, probs), dv


class AttentionCache(NamedTuple):
    projected: Any  # of the q·k·v product: x
    q: np.ndarray  # (B,A,T,d), as are k and v: views of one (B,T,3H) array
    k: np.ndarray
    attended: AttendCache
    output: Any  # of the output product: the contexts side by side, (B,T,H)


class MultiHeadAttention(Layer):
    """y = [C_1 … C_A] W_o        C_a = softmax(q_a k_aᵀ/√d) v_a        (q,k,v) = x W_qkv"""

    def __init__(self, width: int, heads: int, bias: bool = True, p: float = 0.0, std: float | None = None):
        if width % heads:
            raise ValueError(f"{heads} heads do not divide a width of {width}: every head gets width/heads numbers")
        self.heads, self.p = heads, p
        self.scale = 1 / math.sqrt(width // heads)
        self.qkv = Linear(width, 3 * width, bias, std)
        self.output = Linear(width, width, bias, std)

    def forward(self, x, run, mask=None):  # x (B,T,H)
        B, T, H = x.shape
        qkv, projected = self.qkv.forward(x, run)  # (B,T,3H)
        q, k, v = self._heads(qkv)  # each (B,A,T,d)
        scores = (q @ k.swapaxes(-1, -2)) * self.scale  # (B,A,T,T)
        context, attended = attend(scores, v, run, mask, self.p)  # (B,A,T,d)
        joined = context.transpose(0, 2, 1, 3).reshape(B, T, H)
        y, output = self.output.forward(joined, run)
        return y, AttentionCache(projected, q, k, attended, output)

    def backward(self, dy, cache, run):  # dy (B,T,H)
        B, T, H = dy.shape
        djoined = self.output.backward(dy, cache.output, run)
        dcontext = djoined.reshape(B, T, self.heads, -1).transpose(0, 2, 1, 3)  # (B,A,T,d)
        dscores, dv = attend_backward(dcontext, cache.attended)
        dscores = dscores * self.scale
        dq = dscores @ cache.k
        dk = dscores.swapaxes(-1, -2) @ cache.q
        dqkv = np.empty((B, T, 3 * H), dy.dtype)
        for slot, gradient in zip(self._heads(dqkv), (dq, dk, dv), strict=True):
            slot[...] = gradient  # each head writes where it read
        return self.qkv.backward(dqkv, cache.projected, run)

    def _heads(self, qkv):
        """(B,T,3H) -> q, k, v, each (B,A,T,d): views, nothing is copied."""
        B, T, _ = qkv.shape
        return qkv.reshape(B, T, 3, self.heads, -1).transpose(2, 0, 3, 1, 4)


if __name__ == "__main__":
    layer, run = MultiHeadAttention(8, heads=2, bias=False, std=1.0), Run()
    bind(layer, seed=0)
    x = np.random.default_rng(1).normal(size=(1, 4, 8)).astype(np.float32)
    mask = np.array([True, True, True, False])
    y, cache = layer.forward(x, run, mask=mask)
    print("4 tokens, the last is padding. Who looks at whom, head 0 (rows sum to 1, nobody looks at padding):")
    print(cache.attended.probs[0, 0].round(2))
    print("x", x.shape, "-> y", y.shape, "-> dx", layer.backward(np.ones_like(y), cache, run).shape)
