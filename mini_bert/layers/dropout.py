"""Dropout: while training, set a random share p of the numbers to zero, so that no feature can be relied on alone.

    y = x ⊙ m          m = 0 with probability p, else 1/(1−p)

The factor 1/(1−p) keeps the expected value of y equal to x, so that at inference dropout is simply absent.
(Srivastava et al. 2014.)

Backward. y is x times a constant, element by element: dx = dy ⊙ m, with the very mask of the forward pass.

Which numbers are dropped is not the next thing that a generator says, but a hash of where they are: of the run's seed,
of the sequence, the token (and the head), and of the place j in the row (common/draws.py). So it does not matter who
computes
a sequence, beside which others, or how often; and attention that goes tile by tile drops what plain attention drops.

The mask is kept as a byte a number, 0 or 1, and the factor beside it. To draw it, one random byte a number is enough
nearly always: with 256 p = whole + rest, a byte below `whole` drops, one above keeps, and only where it is equal, one
time in 256, further bits decide, so that p is met exactly.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from mini_bert.common.draws import draws
from mini_bert.layers.base import Run

WORDS = 1 << 14  # of 8 random bytes that are drawn at a time: they stay in the cache


class Dropped(NamedTuple):
    """What dropout did: the mask m is keep · factor."""

    keep: np.ndarray  # of x's shape, True or False
    factor: float  # 1/(1−p)

    def times(self, x):
        """x ⊙ m"""
        y = np.multiply(self.keep, x.dtype.type(self.factor))
        y *= x
        return y


def dropout(x, p: float, run: Run, at: Sequence[np.ndarray] | None = None):
    """y = x ⊙ m in training, y = x otherwise -> (y, what was dropped or None)

    at  where the rows of x are: sequences of the batch, tokens, …, arrays that broadcast to x.shape[:-1]. Without it,
        row [b, t] of x is token t of sequence b.
    """
    if not run.train or p == 0:
        return x, None
    keys = run.keys(*(np.indices(x.shape[:-1] or (1,), sparse=True) if at is None else at))
    dropped = Dropped(draw_keep(keys.ravel(), range(x.shape[-1]), p).reshape(x.shape), 1 / (1 - p))
    return dropped.times(x), dropped


def dropout_backward(dy, dropped):
    """dx = dy ⊙ m"""
    return dy if dropped is None else dropped.times(dy)


def draw_keep(keys: np.ndarray, numbers: range, p: float) -> np.ndarray:
    """(R,) a key for each row -> (R,n) for these numbers of it: True with probability 1 − p, False with p

    Number j of a row is decided by byte j mod 8 of draw ⌊j/8⌋.
    """
    first, n = numbers.start // 8, len(numbers)
    words, skipped = np.arange(first, -(-numbers.stop // 8)), numbers.start - 8 * first
    whole = math.floor(256 * p)
    rest = np.uint64(int((256 * p - whole) * 2**64))
    keep = np.empty((len(keys), n), bool)
    some = max(1, WORDS // max(1, len(words)))
    for low in range(0, len(keys), some):
        some_keys, some_keep = keys[low : low + some], keep[low : low + some]
        bits = draws(some_keys[:, None], 0, words).astype("<u8", copy=False)  # the lowest byte first, on every machine
        found = bits.view(np.uint8)[:, skipped : skipped + n]
        np.greater(found, whole, out=some_keep)
        row, column = np.divmod(np.flatnonzero(found == whole), n)
        some_keep[row, column] = draws(some_keys[row], 1, column + numbers.start) >= rest
    return keep


if __name__ == "__main__":
    x = np.ones((2, 8), np.float32)
    print("training, p = 0.25:\n", dropout(x, 0.25, Run(seed=0, train=True))[0].round(3))
    print("inference:\n", dropout(x, 0.25, Run())[0])
    many = dropout(np.ones(100_000, np.float32), 0.25, Run(train=True))[0]
    print(f"the mean of 100,000 dropped ones is still {many.mean():.3f}")
