"""Dropout: in training, set a random share p of the numbers to zero, so that the model relies on no single feature.

    y = x ⊙ m          m = 0 with probability p, else 1/(1−p)

The factor 1/(1−p) keeps the expected value of y equal to x, so that inference needs no correction: there, y = x.
(Srivastava et al. 2014.)

Backward. Each y is x times a constant: dx = dy ⊙ m, with the mask of the forward pass.

The mask is a hash of the place of each number: the run's seed, the sequence, the token (and the head), and the column
(common/draws.py). It therefore does not depend on the order of computation, on the other sequences of the batch or on
the number of threads, and attention in tiles drops the same numbers as plain attention.

The mask is stored as one byte per number, with the factor beside it. One random byte decides almost every number: with
256 p = whole + rest, a byte below `whole` drops the number and a byte above keeps it. Only if they are equal, one time
in 256, further random bits decide, so that the probability is exactly p.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from mini_bert.common.draws import draws
from mini_bert.layers.base import Run

WORDS = 1 << 14  # 64-bit words drawn at a time: they stay in the processor's cache


class Dropped(NamedTuple):
    """The mask: m = keep · factor."""

    keep: np.ndarray  # booleans, the shape of x
    factor: float  # 1/(1−p)

    def times(self, x):
        """x ⊙ m"""
        y = np.multiply(self.keep, x.dtype.type(self.factor))
        y *= x
        return y


def dropout(x, p: float, run: Run, at: Sequence[np.ndarray] | None = None):
    """y = x ⊙ m in training, else y = x. Returns y and the mask, or None.

    at  the place of each row of x (sequence, token, …), as arrays that broadcast to x.shape[:-1]. By default,
        row [b, t] is token t of sequence b.
    """
    if not run.train or p == 0:
        return x, None
    keys = run.keys(*(np.indices(x.shape[:-1] or (1,), sparse=True) if at is None else at))
    dropped = Dropped(draw_keep(keys.ravel(), range(x.shape[-1]), p).reshape(x.shape), 1 / (1 - p))
    return dropped.times(x), dropped


def dropout_backward(dy, dropped):
    """dx = dy ⊙ m"""
    return dy if dropped is None else dropped.times(dy)


def draw_keep(keys: np.ndarray, columns: range, p: float) -> np.ndarray:
    """Returns (R,n) booleans for n columns of R rows, given a key for each row: False with probability p.

    Column j is decided by byte j mod 8 of draw ⌊j/8⌋.
    """
    first, n = columns.start // 8, len(columns)
    words, skipped = np.arange(first, -(-columns.stop // 8)), columns.start - 8 * first
    whole = math.floor(256 * p)
    rest = np.uint64(int((256 * p - whole) * 2**64))
    keep = np.empty((len(keys), n), bool)
    some = max(1, WORDS // max(1, len(words)))
    for low in range(0, len(keys), some):
        some_keys, some_keep = keys[low : low + some], keep[low : low + some]
        bits = draws(some_keys[:, None], 0, words).astype("<u8", copy=False)  # little-endian on every machine
        drawn = bits.view(np.uint8)[:, skipped : skipped + n]
        np.greater(drawn, whole, out=some_keep)
        row, column = np.divmod(np.flatnonzero(drawn == whole), n)
        some_keep[row, column] = draws(some_keys[row], 1, column + columns.start) >= rest
    return keep


if __name__ == "__main__":
    x = np.ones((2, 8), np.float32)
    print("training, p = 0.25:\n", dropout(x, 0.25, Run(seed=0, train=True))[0].round(3))
    print("inference:\n", dropout(x, 0.25, Run())[0])
    many = dropout(np.ones(100_000, np.float32), 0.25, Run(train=True))[0]
    print(f"the mean of 100,000 ones after dropout: {many.mean():.3f}")
