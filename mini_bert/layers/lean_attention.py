"""Lean attention: the results of attention.py, without ever storing a (T,T) matrix.

    C = softmax(q kᵀ · scale) v        q (B,A,M,d)   k, v (B,A,T,d)   C (B,A,M,d)

Plain attention stores T² weights per head (64 MiB at T = 4,096), and needs several such arrays at once. But each row of
the result consists of sums over the keys, and a sum can be computed in parts. So we go through the matrix in tiles, a
few hundred queries by a few hundred keys, and drop each tile once it has been added.

The running softmax. For one query with scores s_j, after some of the keys, let

    m = max s_j        ℓ = Σ exp(s_j − m)        o = Σ exp(s_j − m) v_j

If the next tile raises the maximum to m', all terms so far have a factor exp(−m) that should be exp(−m'). One factor
corrects both sums:

    ℓ' = ℓ exp(m − m') + Σ_new exp(s_j − m')        o' = o exp(m − m') + Σ_new exp(s_j − m') v_j

At the end, C = o/ℓ, for tiles of any size, and no exponent was ever positive. (Milakov and Gimelshein 2018; Rabe and
Staats 2021; Dao et al. 2022, "FlashAttention", algorithm 1.) We store one number per query, the log-sum-exp

    L = m + log ℓ = log Σ_j exp(s_j)        so that        P_j = exp(s_j − L)

Backward. Given L, any tile of the weights P can be computed again, and the rules of plain attention hold for each tile:

    dv += Pᵀ dC     dP = dC vᵀ     dS = P ⊙ (dP − D)     dq += dS k · scale     dk += dSᵀ q · scale

Only D = Σ_j P_j dP_j needs a whole row. But dP_j = dC · v_j, so D = dC · Σ_j P_j v_j = **dC · C**, the product of two
rows that we already have. The price is that q kᵀ and exp are computed twice.

Dropout multiplies the weights by a mask μ: C = Σ_j P_j μ_j v_j and dP_j = μ_j (dC · v_j), so that D = dC · C still
holds. μ is as large as P and is not stored either: it is a hash of the place of each number (dropout.py), so we can
draw the part for a tile whenever we need it.

Masked scores are set to the lowest float. As long as all keys of a query are masked, that is its maximum, and its sums
are meaningless; the first real score multiplies them by exp(lowest − m') = 0. If all keys are masked, C = 0, and L = ∞
makes all weights 0 in backward. Tiles that are entirely masked are skipped.
"""

import math
from itertools import product
from typing import NamedTuple

import numpy as np

from mini_bert.layers.attention import MultiHeadAttention
from mini_bert.layers.base import Run
from mini_bert.layers.dropout import Dropped, draw_keep, dropout_backward
from mini_bert.layers.matrices import dot, total
from mini_bert.layers.operation import operation

METHODS = ("auto", "plain", "lean")
LONG = 512  # tokens. Above, lean attention needs 1/2 to 1/25 of the memory, and at most 1.05 times the time
TILE = 512  # queries and keys per tile, at most: 1 MB of float32. 256 takes 1.15 times as long, 1,024 up to 1.09


class LeanCache(NamedTuple):
    """What backward needs; its size grows with T. The mask is not copied."""

    q: np.ndarray  # (B,A,M,d)
    k: np.ndarray  # (B,A,T,d)
    v: np.ndarray  # (B,A,T,d)
    context: np.ndarray  # (B,A,M,d)
    logsumexp: np.ndarray  # (B,A,M) L; ∞ where all keys are masked
    scale: float
    mask: np.ndarray | None  # (B,A,M,T) or (B,A,1,T), broadcast
    p: float
    drawn: np.ndarray | None  # (B,A,M) keys of the dropout masks; None without dropout
    tile: int

    @property
    def exact(self) -> tuple[str, ...]:
        """Fields that packed.py must not round: an error of δ in L scales all weights of a row by exp(δ)."""
        return ("logsumexp",)

    @property
    def probs(self) -> np.ndarray:
        """(B,A,M,T) P, before dropout: not stored, but computed again on each access."""
        probs = np.zeros((*self.q.shape[:3], self.k.shape[2]), self.q.dtype)
        scratch = _take(self, Run())
        for b, a, rows, keys in product(*_heads(self.q), _tiles(self.q, self.tile), _tiles(self.k, self.tile)):
            scores = _scores(self, b, a, rows, keys, scratch)
            if scores is not None:
                probs[b, a, rows, keys] = np.exp(scores - self.logsumexp[b, a, rows, None])
        return probs


@operation
def lean_attend(q, k, v, scale: float, run, mask=None, p: float = 0.0, tile: int = TILE, at=None):
    """C = dropout(softmax(q kᵀ · scale)) v        mask broadcasts to (B,A,M,T); at: see dropout"""
    B, A, M, d = q.shape
    lowest, drawn = np.finfo(q.dtype).min, None
    if mask is not None:
        mask = np.broadcast_to(mask, (B, A, np.atleast_2d(mask).shape[-2], k.shape[2]))
    if run.train and p:
        drawn = run.keys(*(np.indices((B, A, M), sparse=True) if at is None else at))
    context = np.empty((B, M, A, d), q.dtype).transpose(0, 2, 1, 3)  # in memory, heads are side by side
    cache = LeanCache(q, k, v, context, np.empty((B, A, M), q.dtype), scale, mask, p, drawn, tile)
    scratch = _take(cache, run)
    for b, a, rows in product(*_heads(q), _tiles(q, tile)):
        size = rows.stop - rows.start
        largest = np.full((size, 1), lowest, q.dtype)  # m
        denominator = np.zeros((size, 1), q.dtype)  # ℓ
        numerator = np.zeros((size, d), q.dtype)  # o
        for keys in _tiles(k, tile):
            exp = _scores(cache, b, a, rows, keys, scratch)
            if exp is None:
                continue
            before, largest = largest, np.maximum(largest, exp.max(-1, keepdims=True))
            exp -= largest
            np.exp(exp, out=exp)
            dropped = _dropped(cache, b, a, rows, keys)
            weights = dropout_backward(exp, dropped)  # exp ⊙ μ
            correction = np.exp(before - largest)
            denominator *= correction
            denominator += total(exp)
            numerator *= correction
            numerator += weights @ v[b, a, keys]
            del weights, dropped  # free their memory for the next tile
        masked = largest == lowest  # all keys of the query
        denominator[masked] = np.inf  # o/∞ = 0
        context[b, a, rows] = numerator / denominator
        cache.logsumexp[b, a, rows] = np.where(masked, np.inf, largest + np.log(denominator))[:, 0]
    run.give(scratch)
    return context, cache


def lean_attend_backward(dcontext, cache, run):
    """Returns dq, dk and dv."""
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
    """Returns S of one tile, (rows,keys), in the memory of `scratch`, or None if it is entirely masked."""
    allowed = None
    if cache.mask is not None:
        allowed = cache.mask[b, a, rows if cache.mask.shape[2] > 1 else slice(None), keys]
        if not allowed.any():
            return None
    q, k = cache.q[b, a, rows], cache.k[b, a, keys]
    scores = np.matmul(q * cache.scale, k.T, out=_cut(scratch, (len(q), len(k))))
    if allowed is not None and not allowed.all():
        np.copyto(scores, np.finfo(scores.dtype).min, where=~allowed)
    return scores


def _dropped(cache: LeanCache, b: int, a: int, rows: slice, keys: slice) -> Dropped | None:
    """The dropout mask of one tile, the same in forward and backward."""
    if cache.drawn is None:
        return None
    return Dropped(draw_keep(cache.drawn[b, a, rows], range(keys.start, keys.stop), cache.p), 1 / (1 - cache.p))


def _heads(x: np.ndarray) -> tuple[range, range]:
    """The indices of all sequences and heads."""
    return range(x.shape[0]), range(x.shape[1])


def _tiles(x: np.ndarray, tile: int) -> list[slice]:
    """Splits the T tokens of x (B,A,T,d) into slices of about equal length, at most `tile`."""
    T = x.shape[2]
    length = max(1, math.ceil(T / max(1, math.ceil(T / tile))))
    return [slice(start, min(start + length, T)) for start in range(0, T, length)]


def _take(cache: LeanCache, run: Run) -> np.ndarray:
    """Scratch memory for one tile."""
    return run.take((min(cache.tile, cache.q.shape[2]) * min(cache.tile, cache.k.shape[2]),), cache.q.dtype)


def _cut(scratch: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    """The start of a flat buffer, as an array of this shape."""
    return scratch[: shape[0] * shape[1]].reshape(shape)


def is_lean(method: str, tokens: int) -> bool:
    """Whether this method computes attention over this many tokens in tiles."""
    if method not in METHODS:
        raise ValueError(f"the attention method is {method!r}, expected one of {', '.join(METHODS)}")
    return method == "lean" or (method == "auto" and tokens > LONG)


class LeanAttention(MultiHeadAttention):
    """MultiHeadAttention, in tiles where sequences are long.

    method  "plain": never; "lean": always; "auto": for more than LONG tokens. All give the same numbers up to rounding,
            with the same dropout.
    """

    method = "auto"
    tile = TILE

    def dot_product_attention(self, q, k, v, run, mask=None, at=None):
        if is_lean(self.method, k.shape[2]):
            return lean_attend(q, k, v, self.scale, run, mask, self.p, self.tile, at)
        return super().dot_product_attention(q, k, v, run, mask, at)

    def dot_product_attention_backward(self, dcontext, cache, run):
        if isinstance(cache.attended, LeanCache):
            return lean_attend_backward(dcontext, cache.attended, run)
        return super().dot_product_attention_backward(dcontext, cache, run)


if __name__ == "__main__":
    q, k, v = np.random.default_rng(0).normal(size=(3, 1, 1, 1000, 8)).astype(np.float32)
    scores = q @ k.swapaxes(-1, -2) * 8**-0.5
    plain = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True) @ v
    for tile in (1000, 256, 7):
        context, cache = lean_attend(q, k, v, 8**-0.5, Run(), tile=tile)
        kept = sum(array.nbytes for array in (q, k, v, context, cache.logsumexp))
        apart = np.abs(context - plain).max()
        print(f"tiles of {tile:4} × {tile:<4}: {apart:.0e} from plain attention; {kept:,} bytes for backward")
    print(f"plain attention stores the weights: {scores.nbytes:,} bytes")
