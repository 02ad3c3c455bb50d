"""Lean attention: the same numbers as attention.py's, without ever holding a (T,T) matrix.

    C = softmax(q kᵀ · scale) v        q (B,A,M,d)   k, v (B,A,T,d)   C (B,A,M,d)

Plain attention writes down who looks at whom, T² numbers a head: 64 MiB at T = 4,096, and it needs several of them at
once. But no row of the result needs more than sums over the keys, and sums can be taken in pieces. So the matrix is
visited in tiles, a few hundred queries by a few hundred keys, and a tile is forgotten as soon as it was added up.

The running softmax. For one query with scores s_j, let after some of the keys

    m = max s_j        ℓ = Σ exp(s_j − m)        o = Σ exp(s_j − m) v_j

More keys come, with a largest score that makes the maximum m'. Every term so far has a factor exp(−m) that should have
been exp(−m'), so one factor mends both sums:

    ℓ' = ℓ exp(m − m') + Σ_new exp(s_j − m')        o' = o exp(m − m') + Σ_new exp(s_j − m') v_j

In the end C = o/ℓ is softmax's average, whatever the tiles were, and no exponent was ever positive. (Milakov and
Gimelshein 2018; Rabe and Staats 2021; Dao et al. 2022, "FlashAttention", algorithm 1.) One number a query is kept, the
log-sum-exp

    L = m + log ℓ = log Σ_j exp(s_j)        so that        P_j = exp(s_j − L)

Backward. With L any tile of the weights P can be made again, and plain attention's rules hold tile by tile:

    dv += Pᵀ dC     dP = dC vᵀ     dS = P ⊙ (dP − D)     dq += dS k · scale     dk += dSᵀ q · scale

Only D = Σ_j P_j dP_j asks for a whole row. But dP_j = dC · v_j, so D = dC · Σ_j P_j v_j = **dC · C**: a product of two
rows that are there already. The price: q kᵀ and exp are computed a second time.

Dropout gives weights P ⊙ μ, so C = Σ_j P_j μ_j v_j and dP_j = μ_j (dC · v_j); D = Σ_j P_j dP_j = dC · C still. The
mask μ is as large as P and is not kept either: what it holds for a query and a key is a hash of where they are
(dropout.py), so a tile's part of it can be drawn at any time, and again in backward.

A mask sets scores to the lowest number there is. While a query has met nobody, that is its maximum and its sums are of
no meaning; the first real score multiplies them by exp(lowest − m') = 0. Who meets nobody at all gets C = 0, and
L = ∞, which makes all weights 0 in backward. Tiles that the mask hides as a whole are not visited.
"""

import math
from itertools import product
from typing import NamedTuple

import numpy as np

from mini_bert.layers.base import Run
from mini_bert.layers.dropout import Dropped, draw_keep, dropout_backward
from mini_bert.layers.matrices import dot, total

TILE = 512  # queries and keys of a tile, at most: 1 MB of float32. 256 takes 1.15 times as long, 1,024 up to 1.09


class LeanCache(NamedTuple):
    """What backward cannot do without: it grows with T. The masks are those of the caller, not copies."""

    q: np.ndarray  # (B,A,M,d)
    k: np.ndarray  # (B,A,T,d)
    v: np.ndarray  # (B,A,T,d)
    context: np.ndarray  # (B,A,M,d)
    logsumexp: np.ndarray  # (B,A,M) of the scores of each query; ∞ for who may look at nobody
    scale: float
    mask: np.ndarray | None  # (B,A,M,T) or (B,A,1,T), broadcast
    p: float
    drawn: np.ndarray | None  # (B,A,M) keys of the dropout masks of each query, or None without dropout
    tile: int

    @property
    def exact(self) -> tuple[str, ...]:
        """Not to be rounded when the rest is (packed.py): an error of δ makes every weight exp(δ) times as large"""
        return ("logsumexp",)

    @property
    def probs(self) -> np.ndarray:
        """(B,A,M,T) who looks at whom, before dropout: made again, for those who want to see it all the same"""
        probs = np.zeros((*self.q.shape[:3], self.k.shape[2]), self.q.dtype)
        scratch = _take(self, Run())
        for b, a, rows, keys in product(*_heads(self.q), _tiles(self.q, self.tile), _tiles(self.k, self.tile)):
            scores = _scores(self, b, a, rows, keys, scratch)
            if scores is not None:
                probs[b, a, rows, keys] = np.exp(scores - self.logsumexp[b, a, rows, None])
        return probs


def lean_attend(q, k, v, scale: float, run, mask=None, p: float = 0.0, tile: int = TILE, at=None):
    """C = dropout(softmax(q kᵀ · scale)) v        mask: True = may look, broadcast to (B,A,M,T); at: as in `attend`"""
    B, A, M, d = q.shape
    lowest, drawn = np.finfo(q.dtype).min, None
    if mask is not None:
        mask = np.broadcast_to(mask, (B, A, np.atleast_2d(mask).shape[-2], k.shape[2]))
    if run.train and p:
        drawn = run.keys(*(np.indices((B, A, M), sparse=True) if at is None else at))
    context = np.empty((B, M, A, d), q.dtype).transpose(0, 2, 1, 3)  # heads side by side, as the next layer reads them
    cache = LeanCache(q, k, v, context, np.empty((B, A, M), q.dtype), scale, mask, p, drawn, tile)
    scratch = _take(cache, run)
    for b, a, rows in product(*_heads(q), _tiles(q, tile)):
        size = rows.stop - rows.start
        largest = np.full((size, 1), lowest, q.dtype)  # m
        amount = np.zeros((size, 1), q.dtype)  # ℓ
        offered = np.zeros((size, d), q.dtype)  # o
        for keys in _tiles(k, tile):
            exp = _scores(cache, b, a, rows, keys, scratch)
            if exp is None:
                continue
            before, largest = largest, np.maximum(largest, exp.max(-1, keepdims=True))
            exp -= largest
            np.exp(exp, out=exp)
            dropped = _dropped(cache, b, a, rows, keys)
            weights = dropout_backward(exp, dropped)  # the same product forth and back
            mend = np.exp(before - largest)
            amount *= mend
            amount += total(exp)
            offered *= mend
            offered += weights @ v[b, a, keys]
            del weights, dropped  # as large as a tile: the next one needs the room
        nobody = largest == lowest
        amount[nobody] = np.inf  # and what was offered means nothing: o/∞ = 0
        context[b, a, rows] = offered / amount
        cache.logsumexp[b, a, rows] = np.where(nobody, np.inf, largest + np.log(amount))[:, 0]
    run.give(scratch)
    return context, cache


def lean_attend_backward(dcontext, cache, run):
    """-> dq, dk, dv"""
    q, k, v, tile = cache.q, cache.k, cache.v, cache.tile
    dq, dk, dv = np.zeros_like(q), np.zeros_like(k), np.zeros_like(v)
    expected = dot(dcontext, cache.context)  # (B,A,M,1) D = Σ P ⊙ dP
    scratch, other = _take(cache, run), _take(cache, run)
    for b, a, keys, rows in product(*_heads(q), _tiles(k, tile), _tiles(q, tile)):
        probs = _scores(cache, b, a, rows, keys, scratch)
        if probs is None:
            continue
        probs -= cache.logsumexp[b, a, rows, None]
        np.exp(probs, out=probs)
        dropped = _dropped(cache, b, a, rows, keys)
        weights = dropout_backward(probs, dropped)
        dv[b, a, keys] += weights.T @ dcontext[b, a, rows]
        del weights
        dweights = np.matmul(dcontext[b, a, rows], v[b, a, keys].T, out=_cut(other, probs.shape))
        dscores = dropout_backward(dweights, dropped)
        dscores -= expected[b, a, rows]
        dscores *= probs
        dq[b, a, rows] += dscores @ k[b, a, keys]
        dk[b, a, keys] += dscores.T @ q[b, a, rows]
        del dscores, dropped
    run.give(scratch)
    run.give(other)
    dq *= cache.scale  # in the forward pass: scores = q kᵀ · scale
    dk *= cache.scale
    return dq, dk, dv


def _scores(cache: LeanCache, b: int, a: int, rows: slice, keys: slice, scratch: np.ndarray) -> np.ndarray | None:
    """S of one tile, (rows,keys), in the memory of `scratch`; None where nobody may look at anybody"""
    seen = None
    if cache.mask is not None:
        seen = cache.mask[b, a, rows if cache.mask.shape[2] > 1 else slice(None), keys]
        if not seen.any():
            return None
    q, k = cache.q[b, a, rows], cache.k[b, a, keys]
    scores = np.matmul(q * cache.scale, k.T, out=_cut(scratch, (len(q), len(k))))
    if seen is not None and not seen.all():
        np.copyto(scores, np.finfo(scores.dtype).min, where=~seen)
    return scores


def _dropped(cache: LeanCache, b: int, a: int, rows: slice, keys: slice) -> Dropped | None:
    """The mask of one tile, the same in every pass"""
    if cache.drawn is None:
        return None
    return Dropped(draw_keep(cache.drawn[b, a, rows], range(keys.start, keys.stop), cache.p), 1 / (1 - cache.p))


def _heads(x: np.ndarray) -> tuple[range, range]:
    """Every sequence, and every head of it"""
    return range(x.shape[0]), range(x.shape[1])


def _tiles(x: np.ndarray, tile: int) -> list[slice]:
    """x (B,A,T,d) -> its T tokens, at most `tile` at a time, in shares as equal as can be"""
    T = x.shape[2]
    share = max(1, math.ceil(T / max(1, math.ceil(T / tile))))
    return [slice(start, min(start + share, T)) for start in range(0, T, share)]


def _take(cache: LeanCache, run: Run) -> np.ndarray:
    """Memory for the numbers of one tile."""
    return run.take((min(cache.tile, cache.q.shape[2]) * min(cache.tile, cache.k.shape[2]),), cache.q.dtype)


def _cut(scratch: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    """The start of a flat buffer as an array of that shape."""
    return scratch[: shape[0] * shape[1]].reshape(shape)


if __name__ == "__main__":
    q, k, v = np.random.default_rng(0).normal(size=(3, 1, 1, 1000, 8)).astype(np.float32)
    scores = q @ k.swapaxes(-1, -2) * 8**-0.5
    plain = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True) @ v
    for tile in (1000, 256, 7):
        context, cache = lean_attend(q, k, v, 8**-0.5, Run(), tile=tile)
        kept = sum(array.nbytes for array in (q, k, v, context, cache.logsumexp))
        apart = np.abs(context - plain).max()
        print(f"tiles of {tile:4} × {tile:<4}: {apart:.0e} from plain attention; {kept:,} bytes kept for backward")
    print(f"plain attention keeps who looks at whom, {scores.nbytes:,} bytes")
