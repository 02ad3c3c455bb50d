"""Relative positions: a vector for each distance between two tokens, instead of one for each place in the text.

    distance of query i and key j    i − j
    its row in the table             δ(i,j) = clip(bucket(i − j) + k, 0, 2k − 1)        a table of 2k rows

δ is the function of He et al. (2021, "DeBERTa", eq. 3): distances of −k and less share the first row, of k − 1 and more
the last. Without buckets, bucket(p) = p. With buckets (DeBERTa v2), small distances keep a row each, and larger ones
share rows, more and more of them. With m = ⌊buckets/2⌋ and distances up to `largest`:

    bucket(p) = p                                                           for |p| ≤ m
    bucket(p) = ±(m + ⌈(m − 1) log(|p|/m) / log((largest − 1)/m)⌉)          beyond, with the sign of p

so that 512 tokens need 2 · 256 rows instead of 2 · 512.

**From scores per distance to scores per pair.** Attention needs S_ij = R_i[distance of i and j]: row i of R has a score
for each of the 2T − 1 possible distances, and T of them are used. Picking them one by one is slow. But the T scores of
a row are neighbours in R, if its columns are sorted by distance, and each row starts one column before the row above:

    R, row 0        .  .  .  a  b  c  d
    R, row 1        .  .  e  f  g  h  .            S = a b c d
    R, row 2        .  i  j  k  l  .  .                e f g h     …
    R, row 3        m  n  o  p  .  .  .

So S is R with other strides: a step to the next row is a row less one column. No number is copied.

Backward. Each S_ij is one number of R, and no number is used twice: dR is 0 but for these, which are dS. Assigning to
the same view of dR does it. If only some tokens are queries, whole windows of R are picked instead.
"""

from typing import NamedTuple

import numpy as np
from numpy.lib.stride_tricks import as_strided, sliding_window_view


class Distances(NamedTuple):
    """The table rows that T tokens need, and for each distance −(T−1) … T−1 which of them."""

    rows: np.ndarray  # (U,) rows of the table, ascending
    index: np.ndarray  # (2T−1,) into `rows`

    @property
    def shared(self) -> bool:
        """Whether some distances have the same row."""
        return len(self.rows) < len(self.index)


def distances(T: int, span: int, buckets: int = 0, largest: int = 0) -> Distances:
    """δ for all distances of T tokens.        span: k; buckets: 0 for none; largest: only with buckets"""
    distance = np.arange(-(T - 1), T)
    if buckets > 0:
        distance = log_buckets(distance, buckets, largest)
    return Distances(*np.unique(np.clip(distance + span, 0, 2 * span - 1), return_inverse=True))


def log_buckets(distance: np.ndarray, buckets: int, largest: int) -> np.ndarray:
    """bucket(p), above"""
    middle = buckets // 2
    bucket, far = distance.copy(), np.abs(distance) > middle
    growth = np.log(np.abs(distance[far]) / middle) / np.log((largest - 1) / middle)
    bucket[far] = np.sign(distance[far]) * (middle + np.ceil(growth * (middle - 1)))
    return bucket


def skewed(x: np.ndarray) -> np.ndarray:
    """S_rc = x_r[T − 1 − r + c], as a view: (...,T,2T−1) -> (...,T,T)"""
    *leading, T, _ = x.shape
    *strides, row, column = x.strides
    return as_strided(x[..., T - 1 :], (*leading, T, T), (*strides, row - column, column))


# The rows of R are queries. Its columns are the distances from T−1 down to −(T−1), so that the keys of a query follow
# each other. `token` (B,M) has the places of the queries, if these are not all tokens.


def from_queries(r: np.ndarray, token: np.ndarray | None = None) -> np.ndarray:
    """S_ij = R_i[distance i − j]        r (B,A,M,2T−1) -> (B,A,M,T)"""
    if token is None:
        return skewed(r)
    windows, places = _windows(r, token)
    return windows[places]


def from_queries_backward(ds: np.ndarray, token: np.ndarray | None = None) -> np.ndarray:
    """dr: zeros, with each row of ds (B,A,M,T) in its place"""
    dr = np.zeros((*ds.shape[:-1], 2 * ds.shape[-1] - 1), ds.dtype)
    if token is None:
        skewed(dr)[...] = ds
    else:
        windows, places = _windows(dr, token)
        windows[places] = ds
    return dr


def _windows(r: np.ndarray, token: np.ndarray):
    """All windows of T columns, and the index of those that the tokens need."""
    T = (r.shape[-1] + 1) // 2
    sequence, head, slot = np.indices(r.shape[:3], sparse=True)
    return sliding_window_view(r, T, -1, writeable=True), (sequence, head, slot, (T - 1 - token)[:, None])


# The rows of R are keys. Its columns are the distances from −(T−1) up to T−1, so that the queries of a key follow each
# other. All keys are there, whatever the queries.


def from_keys(r: np.ndarray, token: np.ndarray | None = None) -> np.ndarray:
    """S_ij = R_j[distance i − j]        r (B,A,T,2T−1) -> (B,A,M,T)"""
    every = skewed(r).swapaxes(-1, -2)  # (B,A,T,T)
    if token is None:
        return every
    sequence, head, _ = np.indices((*r.shape[:2], 1), sparse=True)
    return every[sequence, head, token[:, None]]


def from_keys_backward(ds: np.ndarray, token: np.ndarray | None = None) -> np.ndarray:
    """dr: zeros, with ds (B,A,M,T) in its places; a token that is there twice gets the sum"""
    B, A, M, T = ds.shape
    dr = np.zeros((B, A, T, 2 * T - 1), ds.dtype)
    every = skewed(dr).swapaxes(-1, -2)
    if token is None:
        every[...] = ds
    else:
        sequence, head = np.indices((B, A), sparse=True)
        for slot in range(M):
            every[sequence, head, token[:, slot, None]] += ds[:, :, slot]
    return dr


if __name__ == "__main__":
    near = distances(6, span=3)
    print("6 tokens, a table of 6 rows. The row for each distance:")
    print("distance", *(f"{distance:3}" for distance in range(-5, 6)))
    print("row     ", *(f"{row:3}" for row in near.rows[near.index]))
    far = np.array([1, 64, 128, 129, 200, 300, 400, 511])
    print("\n256 buckets for up to 512 tokens:", dict(zip(far.tolist(), log_buckets(far, 256, 512).tolist(), strict=True)))
    x = np.arange(1, 5)[:, None] * 10 + np.arange(7)
    print("\nscores of 4 tokens per distance:\n", x, "\nand per pair of tokens, a view of the same memory:\n", skewed(x), sep="")
