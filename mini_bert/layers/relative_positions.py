"""Relative positions: a vector for each distance between two tokens, instead of one for each place in the text.

    distance of query i and key j    i − j
    its row in the table             δ(i,j) = clip(bucket(i − j) + k, 0, 2k − 1)        a table of 2k rows

δ is the function of He et al. (2021, "DeBERTa", eq. 3): distances of −k and less share the first row, of k − 1 and more
the last. Without buckets, bucket(p) = p. With buckets (DeBERTa v2), small distances keep a row each, and larger ones
share rows, more and more of them. With m = ⌊buckets/2⌋ and distances up to `largest`:

    bucket(p) = p                                                           for |p| ≤ m
    bucket(p) = ±(m + ⌈(m − 1) log(|p|/m) / log((largest − 1)/m)⌉)          beyond, with the sign of p

so that 512 tokens need 2 · 256 rows instead of 2 · 512.

**From scores per distance to scores per pair.** Attention needs S_tc = x_t · r_{T−1−t+c}: a token's vector times that
of a distance, which is the same along a diagonal. x rᵀ has the scores of every token for all 2T − 1 distances, and T of
them are used. To pick them one by one is slow. But the T scores of a row are neighbours, and each row starts one column
before the row above:

    x rᵀ, row 0     .  .  .  a  b  c  d
          row 1     .  .  e  f  g  h  .            S = a b c d
          row 2     .  i  j  k  l  .  .                e f g h     …
          row 3     m  n  o  p  .  .  .

So S is x rᵀ with other strides: a step to the next row is a row less one column. No number is copied. (Adding this
view takes a tenth of the time of np.take_along_axis, which tests compare it with.) Half of the product is not used; for
n of the tokens at a time, only T + n − 1 distances are needed, which saves most of that.

Backward. Each S_tc is one number of the product, and no number is used twice: the gradient of the product is 0 but for
these, which are dS. Assigning to the same view does it. Then, as for any product, dx = dProduct r and
dr = Σ_b dProductᵀ x: the table serves all sequences, hence the sum.

If only some tokens are queries, each picks its window of T columns.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import as_strided, sliding_window_view

from mini_bert.layers.operation import operation

TILE = 64  # tokens at a time: for 512 tokens in half the time of one large product


class Distances(NamedTuple):
    """The table rows that T tokens need, and for each distance −(T−1) … T−1 which of them."""

    rows: np.ndarray  # (U,) rows of the table, ascending
    row_of: np.ndarray  # (2T−1,) an index into `rows`

    @property
    def shared(self) -> bool:
        """Whether some distances have the same row."""
        return len(self.rows) < len(self.row_of)


@operation
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
    if far.any():
        growth = np.log(np.abs(distance[far]) / middle) / np.log((largest - 1) / middle)
        bucket[far] = np.sign(distance[far]) * (middle + np.ceil(growth * (middle - 1)))
    return bucket


def skewed(x: np.ndarray) -> np.ndarray:
    """S_tc = x_t[n − 1 − t + c], as a view: (...,n,T+n−1) -> (...,n,T)"""
    *leading, n, columns = x.shape
    *strides, row, column = x.strides
    return as_strided(x[..., n - 1 :], (*leading, n, columns - n + 1), (*strides, row - column, column))


def add_distance_scores(scores: np.ndarray, x: np.ndarray, r: np.ndarray) -> None:
    """S_tc += x_t · r_{T−1−t+c}        scores (B,A,T,T), x (B,A,T,d), r (A,2T−1,d)"""
    for some, needed in _tiles(x.shape[2]):
        product = x[:, :, some] @ r[:, needed].swapaxes(-1, -2)  # (B,A,n,T+n−1)
        scores[:, :, some] += skewed(product)


def add_distance_scores_backward(dscores: np.ndarray, x: np.ndarray, r: np.ndarray, dx: np.ndarray) -> np.ndarray:
    """dx_t += Σ_c dS_tc r_{T−1−t+c}.        Returns dr (A,2T−1,d)."""
    (B, A, T, _), dr = dscores.shape, np.zeros(r.shape, r.dtype)
    for some, needed in _tiles(T):
        n = some.stop - some.start
        dproduct = np.zeros((B, A, n, T + n - 1), dscores.dtype)
        skewed(dproduct)[...] = dscores[:, :, some]
        dx[:, :, some] += dproduct @ r[:, needed]
        dr[:, needed] += (dproduct.swapaxes(-1, -2) @ x[:, :, some]).sum(0)
    return dr


def _tiles(T: int):
    """Tokens at a time, and the rows of r that they need."""
    for start in range(0, T, TILE):
        stop = min(start + TILE, T)
        yield slice(start, stop), slice(T - stop, 2 * T - 1 - start)


def windows(product: np.ndarray, token: np.ndarray) -> np.ndarray:
    """S_mc = product_m[T − 1 − t + c] for tokens t = token_m        product (B,A,M,2T−1), token (B,M) -> (B,A,M,T)"""
    every, places = _windows(product, token)
    return every[places]


def windows_backward(dscores: np.ndarray, token: np.ndarray) -> np.ndarray:
    """dproduct: zeros, with each row of dscores (B,A,M,T) in its place"""
    dproduct = np.zeros((*dscores.shape[:-1], 2 * dscores.shape[-1] - 1), dscores.dtype)
    every, places = _windows(dproduct, token)
    every[places] = dscores
    return dproduct


def _windows(product: np.ndarray, token: np.ndarray) -> tuple[np.ndarray, Any]:
    """All windows of T columns, and the index of those that the tokens need."""
    T = (product.shape[-1] + 1) // 2
    sequence, head, slot = np.ogrid[tuple(map(slice, product.shape[:3]))]
    return sliding_window_view(product, T, -1, writeable=True), (sequence, head, slot, (T - 1 - token)[:, None])


if __name__ == "__main__":
    near = distances(6, span=3)
    print("6 tokens, a table of 6 rows. The row for each distance:")
    print("distance", *(f"{distance:3}" for distance in range(-5, 6)))
    print("row     ", *(f"{row:3}" for row in near.rows[near.row_of]))
    far = np.array([1, 64, 128, 129, 200, 300, 400, 511])
    buckets = log_buckets(far, 256, 512)
    print("\n256 buckets for up to 512 tokens:", dict(zip(far.tolist(), buckets.tolist(), strict=True)))
    x = np.arange(1, 5)[:, None] * 10 + np.arange(7)
    print("\nscores of 4 tokens per distance:\n", x, sep="")
    print("and per pair of tokens, a view of the same memory:\n", skewed(x), sep="")
