"""Attention: each token computes a weighted average over all tokens.

    S = q kᵀ / √d       scores     (T,T)
    P = softmax(S)      weights    (T,T), each row sums to 1
    C = P v             context    (T,d)                            (Vaswani et al. 2017, eq. 1)

Each token has a query q (what it is looking for), a key k (what it can be found by) and a value v (what it passes on).
The score of query i and key j is their dot product, and softmax turns a row of scores into weights. Why √d: a sum of d
products of unit variance has standard deviation √d, and softmax of large numbers saturates, which leaves no gradient.

A mask determines which keys a query may attend to (no padding, for example). Where it is False, the score is set to the
lowest float, which softmax turns into a weight of exactly 0.

A heads do this in parallel, in d = H/A dimensions each. One product x W_qkv computes q, k and v of all heads. Their
contexts are concatenated and multiplied by W_o:

    y = [C_1 … C_A] W_o

Backward. C = P v and S = q kᵀ are products, and softmax has its own rule (softmax.py). In reverse order:

    dP = dC vᵀ     dv = Pᵀ dC     dS = P ⊙ (dP − Σ P ⊙ dP)     dq = dS k / √d     dk = dSᵀ q / √d

Two subclasses save time and memory: lean_attention.py computes long sequences in tiles, and efficient_attention.py
computes only some of the rows. Others change q, k and v before the scores are computed: rotary.py and past.py.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from mini_bert.layers.base import Layer, Run, bind
from mini_bert.layers.dropout import Dropped, dropout, dropout_backward
from mini_bert.layers.linear import Linear
from mini_bert.layers.operation import operation
from mini_bert.layers.softmax import softmax, softmax_backward


class AttendCache(NamedTuple):
    probs: np.ndarray  # (B,A,T,T) P, before dropout
    dropped: Dropped | None
    v: np.ndarray  # (B,A,T,d)


@operation
def attend(scores, v, run, mask=None, p: float = 0.0, at=None):
    """C = dropout(softmax(S)) v        scores (B,A,T,T), v (B,A,T,d), mask broadcasts to the scores, at: see dropout"""
    if mask is not None:
        scores = np.where(mask, scores, np.finfo(scores.dtype).min)
    probs, _ = softmax(scores)
    if mask is not None and not mask.any(-1).all():  # where everything is masked, all weights are 0
        probs = np.where(mask.any(-1, keepdims=True), probs, 0)
    weights, dropped = dropout(probs, p, run, at)
    return weights @ v, AttendCache(probs, dropped, v)  # (B,A,T,d)


def attend_backward(dcontext, cache):
    """Returns dscores and dv. A masked score has weight 0, and so its gradient is 0."""
    probs, dropped, v = cache
    weights = dropout_backward(probs, dropped)  # as in forward: probs after dropout
    dv = weights.swapaxes(-1, -2) @ dcontext
    del weights  # as large as the scores
    dprobs = dropout_backward(dcontext @ v.swapaxes(-1, -2), dropped)
    return softmax_backward(dprobs, probs), dv


class AttentionCache(NamedTuple):
    x: np.ndarray  # (B,T,H) the input
    q: np.ndarray  # (B,A,T,d)
    k: np.ndarray  # (B,A,T,d)
    attended: Any  # AttendCache
    context: np.ndarray  # (B,T,H) [C_1 … C_A]


def named_arrays(cache) -> dict[str, np.ndarray]:
    """What attention computed, by name. Tiles (lean_attention.py) leave no weights."""
    named = {"attention_input": cache.x, "query": cache.q, "key": cache.k, "value": cache.attended.v}
    if "probs" in cache.attended._fields:
        named["attention_weights"] = cache.attended.probs
    return named | {"context": cache.context}


class MultiHeadAttention(Layer):
    """y = [C_1 … C_A] W_o        C_a = softmax(q_a k_aᵀ/√d) v_a        (q,k,v) = x W_qkv"""

    def __init__(self, width: int, heads: int, bias: bool = True, p: float = 0.0, std: float | None = None):
        if width % heads:
            raise ValueError(f"the width, {width}, is not divisible by the number of heads, {heads}")
        self.width, self.heads, self.head_size, self.p = width, heads, width // heads, p
        self.scale = 1 / math.sqrt(self.head_size)
        self.qkv = Linear(width, 3 * width, bias, std, matrices=3)
        self.output = Linear(width, width, bias, std)

    def forward(self, x, run, mask=None, **more):  # x (B,T,H)
        qkv, _ = self.qkv.forward(x, run)  # (B,T,3H)
        q, k, v = self.before_scores(*self.split_heads(qkv, 3), **more)  # (B,A,T,d) each
        context, attended = self.dot_product_attention(q, k, v, run, mask)  # (B,A,T,d)
        context = context.transpose(0, 2, 1, 3).reshape(x.shape)
        y, _ = self.output.forward(context, run)
        return y, AttentionCache(x, q, k, attended, context)

    def backward(self, dy, cache, run):  # dy (B,T,H)
        (dcontext,) = self.split_heads(self.output.backward(dy, cache.context, run), 1)  # (B,A,T,d)
        dq, dk, dv = self.dot_product_attention_backward(dcontext, cache, run)  # (B,A,T,d) each
        dqkv = self.join_heads(*self.before_scores_backward(dq, dk, dv, cache))  # (B,T,3H)
        return self.qkv.backward(dqkv, cache.x, run)  # dx (B,T,H)

    def before_scores(self, q, k, v, tokens=None):
        """What happens to q, k and v before they meet: here nothing. rotary.py rotates q and k, past.py puts earlier
        keys and values in front. They may change q, k and v in place.

        tokens  (B,M) the positions of the queries in their sequences; None: 0, 1, 2, …
        """
        return q, k, v

    def before_scores_backward(self, dq, dk, dv, cache):
        return dq, dk, dv

    def dot_product_attention(self, q, k, v, run, mask=None, at=None):
        """C = softmax(q kᵀ/√d) v"""
        scores = q @ k.swapaxes(-1, -2)  # (B,A,T,T)
        scores *= self.scale
        return attend(scores, v, run, mask, self.p, at)

    def dot_product_attention_backward(self, dcontext, cache, run):
        """dq = dS k/√d,   dk = dSᵀ q/√d,   dv"""
        dscores, dv = attend_backward(dcontext, cache.attended)
        dscores *= self.scale
        return dscores @ cache.k, dscores.swapaxes(-1, -2) @ cache.q, dv

    @operation
    def split_heads(self, x, parts):
        """(B,T,parts·H) -> parts × (B,A,T,d), as views."""
        B, T, _ = x.shape
        return x.reshape(B, T, parts, self.heads, self.head_size).transpose(2, 0, 3, 1, 4)

    def join_heads(self, *parts):
        """parts × (B,A,T,d) -> (B,T,parts·H), the inverse of split_heads."""
        B, A, T, d = parts[0].shape
        x = np.empty((B, T, len(parts) * A * d), parts[0].dtype)
        for slot, part in zip(self.split_heads(x, len(parts)), parts, strict=True):
            slot[...] = part
        return x


if __name__ == "__main__":
    layer, run = MultiHeadAttention(8, heads=2, bias=False, std=1.0), Run()
    bind(layer, seed=0)
    x = np.random.default_rng(1).normal(size=(1, 4, 8)).astype(np.float32)
    y, cache = layer.forward(x, run, mask=np.array([True, True, True, False]))
    print("4 tokens, the last is padding. The weights of head 0: rows sum to 1, padding has weight 0")
    print(cache.attended.probs[0, 0].round(2))
    print("x", x.shape, "-> y", y.shape, "-> dx", layer.backward(np.ones_like(y), cache, run).shape)
