"""Relative attention: the score depends on how far apart two tokens are, not on where they are (Transformer-XL).

    S_ij = ((q_i + u) · k_j  +  (q_i + w) · r_{i−j}) / √d            r_n = R_n W_r       (Dai et al. 2019, section 3.3)

The first product scores the content of a key, the second its distance. u and w are learnt, one vector per head: how
much a key, or a distance, matters to any query. R_n holds the waves sin(n ω_i), then cos(n ω_i), for the distance n; it
has no weights.

Why not positions, as in BERT: here the keys start with a *memory*, the hidden states of the previous segment (B,M,H).
Its tokens would have the same positions as those of this segment, but their distances are right. The memory is an input
without a gradient. With K = M + T keys, query i is at place M + i, and the distance to key j is M + i − j.

**The shift.** All products (q_i + w) · r_n make a matrix X with a row per query and a column per *distance*: column c
is for the distance K − c, from K to −T+1, or to 0 if no query sees a later key. The scores need a column per *key*:
Y_ij = X_ic with K − c = M + i − j, so c = j + T − i. Each row is moved by one place more than the one below:

    Y_ij = X[i, j + T − i]

In memory, a step down in Y is a row forward and a column back in X. So Y is X with other strides: nothing is copied.
(Without later distances, places to the right of the diagonal show numbers of the next row. They are masked anyway.)

Backward. Every Y_ij is one number of X, and no two are the same. So dX is an array of zeros into which dY is written
through the same view. The rest are products:

    dk = dSᵀ (q + u)/√d        dr = dXᵀ (q + w)/√d, summed over the batch        dW_r = Rᵀ dr
    dq = (dS k + dX r)/√d      du = Σ dS k/√d,   dw = Σ dX r/√d, each summed over all queries

Letters: M memory, K = M + T keys, J distances, G groups of sequences with the same R (one, unless some are reversed).
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import as_strided

from mini_bert.layers.attention import AttendCache, attend, attend_backward
from mini_bert.layers.base import Layer, Param, Run, bind
from mini_bert.layers.chosen import RowLayout, choose_rows, choose_rows_backward, row_layout
from mini_bert.layers.initialisers import frequencies, normal
from mini_bert.layers.linear import Linear
from mini_bert.layers.matrices import rows, sum_rows, times
from mini_bert.layers.operation import operation

# ---------------------------------------------------------------------- distances


@operation
@lru_cache(8)
def distance_waves(T: int, K: int, width: int, later: bool, clamp: int = 0, sign: int = 1, dtype: Any = np.float32):
    """R_c = [sin(n ω), cos(n ω)] for the distance n = K − c        (J,H); J = K + T, or K + 1 without `later` keys

    clamp   larger distances count as this one (0: all differ)
    sign    −1 for sequences that are read from right to left
    """
    distance = np.arange(K, -T if later else -1, -1)
    if clamp > 0:
        distance = distance.clip(-clamp, clamp)
    angle = sign * distance[:, None] * frequencies(width)  # (J,H/2)
    waves = np.concatenate([np.sin(angle), np.cos(angle)], -1).astype(dtype)
    waves.flags.writeable = False  # it is shared
    return waves


@operation
def relative_shift(x, K: int, tokens=None, T: int | None = None):
    """y[i,j] = x[i, j + T − i]        x (B,A,T,J) -> y (B,A,T,K), a view of x

    With `tokens` (B,M), row m of sequence b is query tokens[b,m] of T, and y is a copy; where x has no such column,
    y is 0.
    """
    if tokens is None:
        *outer, T, _ = x.shape
        *steps, down, right = x.strides
        return as_strided(x[..., T:], (*outer, T, K), (*steps, down - right, right))
    y = np.zeros((*x.shape[:-1], K), x.dtype)
    for b, m, columns in _windows(tokens, T, K):
        part = x[b, :, m, columns]
        y[b, :, m, : part.shape[-1]] = part
    return y


def relative_shift_backward(dy, J: int, tokens=None, T: int | None = None):
    """dx[i, j + T − i] = dy[i,j], and 0 elsewhere"""
    dx = np.zeros((*dy.shape[:-1], J), dy.dtype)
    if tokens is None:
        relative_shift(dx, dy.shape[-1])[...] = dy
        return dx
    for b, m, columns in _windows(tokens, T, dy.shape[-1]):
        part = dx[b, :, m, columns]  # a view
        part[...] = dy[b, :, m, : part.shape[-1]]
    return dx


def _windows(tokens, T, K):
    """For each query: sequence, row, and the K columns that belong to its keys."""
    for (b, m), token in np.ndenumerate(tokens):
        yield b, m, slice(T - token, T - token + K)


# ---------------------------------------------------------------------- the layer


class Keys(NamedTuple):
    """What queries are compared with. XLNet's two streams have the same."""

    x: np.ndarray  # (B,K,H) the memory, then the tokens
    start: int  # gradients go to x[:, start:]
    first: int  # x[:, first:] are the T tokens that can be queries
    k: np.ndarray  # (B,A,K,d)
    v: np.ndarray  # (B,A,K,d)
    waves: np.ndarray  # (G,J,H) R
    r: np.ndarray  # (G,A,J,d)

    @property
    def exact(self) -> tuple[str, ...]:
        """Fields that packed.py must not round: all blocks share the same waves."""
        return ("waves",)


class Stream(NamedTuple):
    """Some queries and what they found."""

    x: np.ndarray  # (B,T,H), or (N,H) with a layout
    q: np.ndarray  # (B,A,T,d)
    attended: AttendCache
    context: np.ndarray  # (B,T,A·d), or (N,A·d)
    layout: RowLayout | None
    differs: np.ndarray | None  # for segments, see two_stream_attention.py


class RelativeCache(NamedTuple):
    keys: Keys
    stream: Stream
    rows: Any = None  # cache of choose_rows

    @property
    def x(self) -> np.ndarray:  # (B,T,H)
        return self.keys.x[:, self.keys.first :]


class RelativeAttention(Layer):
    """y = [C_1 … C_A] W_o     C = softmax(S) v     S_ij = ((q_i + u)·k_j + (q_i + w)·r_{i−j})/√d     no biases

    d need not be H/A: the contexts of all heads side by side have A·d numbers. `segments` adds a term to the scores.
    """

    def __init__(self, width: int, heads: int, head_size: int, p: float = 0.0, std: float | None = None):
        self.heads, self.head_size, self.p = heads, head_size, p
        self.scale = 1 / math.sqrt(head_size)
        inner = heads * head_size
        self.qkv = Linear(width, 3 * inner, bias=False, std=std, matrices=3)
        self.r = Linear(width, inner, bias=False, std=std)
        self.output = Linear(inner, width, bias=False, std=std)
        self.content_bias = Param((heads, head_size), normal(0.02 if std is None else std), decay=False)  # u
        self.distance_bias = Param((heads, head_size), normal(0.02 if std is None else std), decay=False)  # w
        self.segments: Any = None

    def forward(self, x, run, waves, memory=None, queries=None, mask=None, chosen=None):  # x (B,T,H)
        """waves: R, (J,H) or (G,J,H). memory (B,M,H) comes before x and gets no gradient. mask broadcasts to (B,A,T,K).

        With `queries`, only the last so many rows of x are tokens of this segment: a memory with a gradient.
        With `chosen`, only these rows (b·T + t) are queries: y (N,H).
        """
        keys = self.keys(x, run, waves, memory, queries)
        tokens, layout, cache = x[:, keys.first - keys.start :], None, None
        if chosen is not None:
            layout = row_layout(chosen, *tokens.shape[:2])
            tokens, cache = choose_rows(tokens, chosen)  # (N,H)
        y, stream = self.stream(tokens, keys, run, mask, layout)
        if chosen is None:
            stream = stream._replace(x=keys.x[:, keys.first :])  # the same numbers, kept once
        return y, RelativeCache(keys, stream, cache)

    def backward(self, dy, cache, run):  # dy (B,T,H) or (N,H)
        dtokens, dkeys = self.stream_backward(dy, cache.stream, cache.keys, run)
        if cache.rows is not None:
            dtokens = choose_rows_backward(dtokens, cache.rows)
        dx = self.keys_backward(dkeys, cache.keys, run)
        dx[:, cache.keys.first - cache.keys.start :] += dtokens
        return dx

    # ------------------------------------------------------------------ keys, values and distances

    def keys(self, x, run, waves, memory=None, queries=None) -> Keys:
        waves = (waves[None] if waves.ndim == 2 else waves).astype(x.dtype, copy=False)  # (G,J,H)
        start = 0 if memory is None else memory.shape[1]
        both = after_memory(memory, x)  # (B,K,H)
        kv, _ = self._w_kv().forward(both, run)
        k, v = self._split(kv, 2)  # (B,A,K,d) each
        r, _ = self.r.forward(waves, run)
        (r,) = self._split(r, 1)  # (G,A,J,d)
        return Keys(both, start, both.shape[1] - (queries or x.shape[1]), k, v, waves, r)

    def keys_backward(self, dkeys, keys: Keys, run):
        """dW_kv += xᵀ [dk dv],   dW_r += Rᵀ dr        Returns dx for the rows after the memory."""
        dk, dv, dr = dkeys
        self.r.w.add_product(rows(keys.waves).T, rows(self._join(dr)), run)
        dkv, w = self._join(dk, dv), self._w_kv().w  # (B,K,2·A·d)
        w.add_product(rows(keys.x).T, rows(dkv), run)
        return times(dkv[:, keys.start :], w.data.T)

    # ------------------------------------------------------------------ queries

    def stream(self, x, keys: Keys, run, mask=None, layout: RowLayout | None = None, differs=None):
        """y = softmax(S) v W_o for the queries x (B,T,H), or (N,H) with a layout. The mask is that of all T tokens."""
        q, _ = self._w_q().forward(x, run)
        (q,) = self._split(q if layout is None else layout.to_batch(q), 1)  # (B,A,T,d)
        at = None if layout is None else layout.query_rows(self.heads)
        if layout is not None:
            mask, differs = _queries_of(mask, layout), _queries_of(differs, layout)
        scores = self.scores(q, keys, layout, differs)
        context, attended = attend(scores, keys.v, run, mask, self.p, at)
        context = context.transpose(0, 2, 1, 3)  # (B,T,A,d)
        context = context.reshape(*context.shape[:2], -1) if layout is None else layout.to_list(context)
        y, _ = self.output.forward(context, run)
        return y, Stream(x, q, attended, context, layout, differs)

    def stream_backward(self, dy, stream: Stream, keys: Keys, run):
        """Returns dx for the queries, and (dk, dv, dr)."""
        layout = stream.layout
        dcontext = self.output.backward(dy, stream.context, run)
        (dcontext,) = self._split(dcontext if layout is None else layout.to_batch(dcontext), 1)
        dscores, dv = attend_backward(dcontext, stream.attended)
        dq, dk, dr = self.scores_backward(dscores, stream, keys)
        dq = self._join(dq) if layout is None else layout.to_list(dq.transpose(0, 2, 1, 3))
        return self._w_q().backward(dq, stream.x, run), (dk, dv, dr)

    def scores(self, q, keys: Keys, layout: RowLayout | None = None, differs=None):
        """S = ((q + u) kᵀ + shift((q + w) rᵀ) [+ segments]) / √d        q (B,A,T,d) -> (B,A,T,K)"""
        K, where = keys.k.shape[2], _where(layout, keys)
        by_distance = self._grouped(q + self.distance_bias.data[:, None], keys.r) @ keys.r[:, None].swapaxes(-1, -2)
        scores = (q + self.content_bias.data[:, None]) @ keys.k.swapaxes(-1, -2)
        scores += relative_shift(by_distance.reshape(*q.shape[:3], -1), K, *where)
        if differs is not None:
            scores += self.segments.scores(q, differs)
        scores *= self.scale
        return scores

    def scores_backward(self, dscores, stream: Stream, keys: Keys):
        """Returns dq, dk and dr; adds to du and dw."""
        q, where = stream.q, _where(stream.layout, keys)
        dscores *= self.scale
        dq = dscores @ keys.k
        dk = dscores.swapaxes(-1, -2) @ (q + self.content_bias.data[:, None])
        self.content_bias.add(_sum_queries(dq))
        if stream.differs is not None:
            dq += self.segments.scores_backward(dscores, q, stream.differs)
        dby_distance = relative_shift_backward(dscores, keys.r.shape[2], *where)  # (B,A,T,J)
        dby_distance = self._grouped(dby_distance, keys.r)
        qw = self._grouped(q + self.distance_bias.data[:, None], keys.r)  # (G,B/G,A,T,d)
        dr = (dby_distance.swapaxes(-1, -2) @ qw).sum(1)  # (G,A,J,d)
        dqw = (dby_distance @ keys.r[:, None]).reshape(q.shape)
        self.distance_bias.add(_sum_queries(dqw))
        dq += dqw
        return dq, dk, dr

    # ------------------------------------------------------------------ shapes

    def _grouped(self, x, r):
        """(B,…) -> (G,B/G,…)"""
        return x.reshape(len(r), x.shape[0] // len(r), *x.shape[1:])

    @operation
    def _split(self, x, parts):
        """(B,T,parts·A·d) -> parts × (B,A,T,d), as views."""
        return x.reshape(*x.shape[:2], parts, self.heads, self.head_size).transpose(2, 0, 3, 1, 4)

    def _join(self, *parts):
        """parts × (B,A,T,d) -> (B,T,parts·A·d), the inverse of _split."""
        B, A, T, d = parts[0].shape
        x = np.empty((B, T, len(parts) * A * d), parts[0].dtype)
        for slot, part in zip(self._split(x, len(parts)), parts, strict=True):
            slot[...] = part
        return x

    def _w_q(self):
        return self.qkv.outputs(slice(0, self.heads * self.head_size))

    def _w_kv(self):
        return self.qkv.outputs(slice(self.heads * self.head_size, None))


def after_memory(memory, x):
    """[memory, x], or x without a memory        (B,M,H), (B,T,H) -> (B,K,H)"""
    return x if memory is None else np.concatenate([memory.astype(x.dtype, copy=False), x], 1)


def _where(layout: RowLayout | None, keys: Keys) -> tuple[Any, ...]:
    """The last arguments of relative_shift."""
    return () if layout is None else (layout.token, keys.x.shape[1] - keys.first)


def _queries_of(mask, layout: RowLayout):
    """The rows of a mask that belong to the queries in the layout: (…,T,K) -> (B,1,M,K)"""
    if mask is None or mask.shape[-2] == 1:  # the same for all queries
        return mask
    every = np.broadcast_to(mask, (len(layout.token), 1, *mask.shape[-2:]))
    return np.take_along_axis(every, layout.token[:, None, :, None], 2)


def _sum_queries(x):
    """Σ over sequences and queries: (B,A,T,d) -> (A,d)"""
    return sum_rows(x.transpose(0, 2, 1, 3).reshape(-1, x.shape[1] * x.shape[3])).reshape(x.shape[1], x.shape[3])


def named_relative_arrays(cache: RelativeCache) -> dict[str, np.ndarray]:
    """What attention computed, by the names that every model has. Keys and weights of the memory are listed apart."""
    keys, stream = cache.keys, cache.stream
    return named_keys(keys) | {
        "query": stream.q,
        "attention_weights": stream.attended.probs[..., keys.first :],
        "context": stream.context,
        **({"memory_weights": stream.attended.probs[..., : keys.first]} if keys.first else {}),
    }


def named_keys(keys: Keys) -> dict[str, np.ndarray]:
    first = keys.first
    named = {"attention_input": keys.x[:, first:], "key": keys.k[:, :, first:], "value": keys.v[:, :, first:]}
    return named | ({"memory_key": keys.k[:, :, :first], "memory_value": keys.v[:, :, :first]} if first else {})


if __name__ == "__main__":
    T, K = 3, 5
    distance = np.tile(np.arange(K, -T, -1), (1, 1, T, 1))
    print("a row per query, a column per distance (the first is never used):\n", distance[0, 0], sep="")
    print("shifted: a column per key, of which two are the memory\n", relative_shift(distance, K)[0, 0], sep="")
    layer, run = RelativeAttention(8, heads=2, head_size=3), Run()
    bind(layer, seed=0)
    both = np.random.default_rng(1).normal(size=(1, K, 8)).astype(np.float32)
    memory, x = both[:, : K - T], both[:, K - T :]
    y, cache = layer.forward(x, run, distance_waves(T, K, 8, later=True), memory)
    print("x", x.shape, "memory", memory.shape, "-> y", y.shape, "dx", layer.backward(y, cache, run).shape)
