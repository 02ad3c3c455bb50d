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

S and P have T² numbers a head. Where sequences are long, lean_attention.py finds the same C and gradients in tiles, in
memory that grows with T.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from mini_bert.layers.base import Initialiser, Layer, Run, bind
from mini_bert.layers.chosen import Seats, choose_rows, choose_rows_backward, seats
from mini_bert.layers.dropout import Dropped, dropout, dropout_backward
from mini_bert.layers.embedding import frequencies
from mini_bert.layers.lean_attention import TILE, LeanCache, lean_attend, lean_attend_backward
from mini_bert.layers.linear import Linear
from mini_bert.layers.softmax import softmax, softmax_backward

ATTENTION = ("auto", "plain", "lean")
LONG = 512  # tokens, above which lean attention needs 1/2 to 1/25 of the memory and no more time: at most 1.05 times


class AttendCache(NamedTuple):
    probs: np.ndarray  # (B,A,T,T) who looks at whom, before dropout
    dropped: Dropped | None
    v: np.ndarray  # (B,A,T,d)


def attend(scores, v, run, mask=None, p: float = 0.0, at=None):
    """C = dropout(softmax(S)) v        scores (B,A,T,T), v (B,A,T,d), mask: True = may look, broadcast to the scores

    at  sequence, head and token of every row of scores, where the rows are not all tokens (dropout.py)
    """
    if mask is not None:
        scores = np.where(mask, scores, np.finfo(scores.dtype).min)
    probs, _ = softmax(scores)
    if mask is not None and not mask.any(-1).all():  # a row with nobody to look at: softmax of equals is not 0
        probs = np.where(mask.any(-1, keepdims=True), probs, 0)
    weights, dropped = dropout(probs, p, run, at)
    return weights @ v, AttendCache(probs, dropped, v)  # (B,A,T,d)


def attend_backward(dcontext, cache):
    """-> dscores, dv        (a masked score has weight 0, so its gradient is 0 without asking for the mask)"""
    probs, dropped, v = cache
    weights = dropout_backward(probs, dropped)  # in the forward pass: what dropout left of probs
    dv = weights.swapaxes(-1, -2) @ dcontext
    del weights  # as large as the scores
    dprobs = dropout_backward(dcontext @ v.swapaxes(-1, -2), dropped)
    return softmax_backward(dprobs, probs), dv


def is_lean(method: str, tokens: int) -> bool:
    """Whether attention by that method goes tile by tile over so many tokens."""
    if method not in ATTENTION:
        raise ValueError(f"attention by method {method!r}, expected one of {', '.join(ATTENTION)}")
    return method == "lean" or (method == "auto" and tokens > LONG)


def neighbours(heads: int, amplitude: float, score: float = 4.0) -> Initialiser:
    """Start W_qkv so that head 0 looks at the token before, head 1 at the one after, then two before, two after, …

    For inputs whose first d coordinates are the evenly spaced waves of embedding.sinusoids, and nothing else yet. Keys
    copy these coordinates; queries turn every pair of them by ω·offset, which makes of place t the waves of place
    t + offset. So query and key agree, with `score` after the division by √d, when the key stands there, and hardly
    otherwise. On top lies the usual N(0, 1/H), which leaves the heads free to become something else.
    """

    def init(rng, shape):
        H, d = shape[0], shape[0] // heads
        w = rng.normal(0.0, 1 / math.sqrt(H), shape)  # (H,3H)
        pairs = d // 2
        sin, cos = np.arange(pairs) * 2, np.arange(pairs) * 2 + 1
        gain = math.sqrt(score * math.sqrt(d) / (max(pairs, 1) * amplitude**2))
        for head in range(heads):
            turn = frequencies(H, 2 * pairs)[:pairs] * (head // 2 + 1) * (-1 if head % 2 == 0 else 1)
            q, k = head * d, H + head * d  # first column of each
            w[sin, q + sin] += gain * np.cos(turn)  # sin(ωt + turn) = sin ωt cos turn + cos ωt sin turn
            w[cos, q + sin] += gain * np.sin(turn)
            w[cos, q + cos] += gain * np.cos(turn)  # cos(ωt + turn) = cos ωt cos turn − sin ωt sin turn
            w[sin, q + cos] -= gain * np.sin(turn)
            w[sin, k + sin] += gain
            w[cos, k + cos] += gain
        return w

    return init


class AttentionCache(NamedTuple):
    projected: Any  # of the products that make q, k and v: x, and its chosen rows
    q: np.ndarray  # (B,A,M,d): M = T, or the seats of the chosen
    k: np.ndarray  # (B,A,T,d)
    attended: AttendCache | LeanCache
    output: Any  # of the output product: the contexts side by side, (B,T,H) or (N,H)
    seats: Seats | None


class MultiHeadAttention(Layer):
    """y = [C_1 … C_A] W_o        C_a = softmax(q_a k_aᵀ/√d) v_a        (q,k,v) = x W_qkv

    With `chosen` only these rows ask, and y is (N,H): the same numbers as y[chosen] of all. Everybody can be asked.

    method  "plain": S and P are written down; "lean": tile by tile (lean_attention.py); "auto": lean for more than LONG
            tokens. The numbers are the same up to rounding, dropout included.
    """

    method = "auto"
    tile = TILE

    def __init__(self, width: int, heads: int, bias: bool = True, p: float = 0.0, std: float | None = None):
        if width % heads:
            raise ValueError(f"{heads} heads do not divide a width of {width}: every head gets width/heads numbers")
        self.width, self.heads, self.p = width, heads, p
        self.scale = 1 / math.sqrt(width // heads)
        self.qkv = Linear(width, 3 * width, bias, std)
        self.output = Linear(width, width, bias, std)

    def forward(self, x, run, mask=None, chosen=None):  # x (B,T,H)
        B, T, H = x.shape
        places = None if chosen is None else seats(chosen, B, T)
        (q, k, v), projected = self._project(x, run, chosen, places)
        if mask is not None and places is not None and mask.shape[-2] > 1:  # who may look differs from row to row
            mask = np.take_along_axis(np.broadcast_to(mask, (B, 1, T, T)), places.token[:, None, :, None], 2)
        at = None if places is None else places.asking(self.heads)
        attended: AttendCache | LeanCache
        if is_lean(self.method, T):
            context, attended = lean_attend(q, k, v, self.scale, run, mask, self.p, self.tile, at)  # (B,A,M,d)
        else:
            scores = q @ k.swapaxes(-1, -2)  # (B,A,M,T)
            scores *= self.scale
            context, attended = attend(scores, v, run, mask, self.p, at)  # (B,A,M,d)
        context = context.transpose(0, 2, 1, 3)  # (B,M,A,d)
        joined = context.reshape(B, T, H) if places is None else places.collect(context)
        y, output = self.output.forward(joined, run)
        return y, AttentionCache(projected, q, k, attended, output, places)

    def backward(self, dy, cache, run):  # dy (B,T,H) or (N,H)
        djoined = self.output.backward(dy, cache.output, run)
        if cache.seats is not None:
            djoined = cache.seats.lay_out(djoined)
        dcontext = self._heads(djoined, 1)[0]  # (B,A,M,d)
        if isinstance(cache.attended, LeanCache):
            dq, dk, dv = lean_attend_backward(dcontext, cache.attended, run)
        else:
            dscores, dv = attend_backward(dcontext, cache.attended)
            dscores *= self.scale
            dq = dscores @ cache.k
            dk = dscores.swapaxes(-1, -2) @ cache.q
        return self._project_backward((dq, dk, dv), cache, run)

    def _project(self, x, run, chosen, places):
        """x -> q, k, v and what backward needs: one product for all three, or two, q being of the chosen rows only"""
        if chosen is None:
            qkv, projected = self.qkv.forward(x, run)  # (B,T,3H)
            return self._heads(qkv, 3), projected
        asking, chose = choose_rows(x, chosen)  # (N,H)
        q, own = self._q().forward(asking, run)
        kv, others = self._kv().forward(x, run)  # (B,T,2H)
        return (*self._heads(places.lay_out(q), 1), *self._heads(kv, 2)), (chose, own, others)

    def _project_backward(self, gradients, cache, run):
        if cache.seats is None:
            return self.qkv.backward(self._joined(gradients), cache.projected, run)
        chose, own, others = cache.projected
        dq, *dkv = gradients
        dasking = self._q().backward(cache.seats.collect(dq.transpose(0, 2, 1, 3)), own, run)
        dx = self._kv().backward(self._joined(dkv), others, run)
        dx += choose_rows_backward(dasking, chose)
        return dx

    def _q(self):
        return self.qkv.outputs(slice(0, self.width))

    def _kv(self):
        return self.qkv.outputs(slice(self.width, None))

    def _heads(self, x, parts):
        """(B,T,parts·H) -> parts times (B,A,T,d): views, nothing is copied."""
        B, T, _ = x.shape
        return x.reshape(B, T, parts, self.heads, self.width // self.heads).transpose(2, 0, 3, 1, 4)

    def _joined(self, parts):
        """The way back: each head writes where it read."""
        B, A, T, d = parts[0].shape
        x = np.empty((B, T, len(parts) * A * d), parts[0].dtype)
        for slot, part in zip(self._heads(x, len(parts)), parts, strict=True):
            slot[...] = part
        return x


if __name__ == "__main__":
    layer, run = MultiHeadAttention(8, heads=2, bias=False, std=1.0), Run()
    bind(layer, seed=0)
    x = np.random.default_rng(1).normal(size=(1, 4, 8)).astype(np.float32)
    mask = np.array([True, True, True, False])
    y, cache = layer.forward(x, run, mask=mask)
    print("4 tokens, the last is padding. Who looks at whom, head 0 (rows sum to 1, nobody looks at padding):")
    print(cache.attended.probs[0, 0].round(2))
    print("x", x.shape, "-> y", y.shape, "-> dx", layer.backward(np.ones_like(y), cache, run).shape)
