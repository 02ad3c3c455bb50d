"""Chosen rows: masked language modelling asks about 15 % of the tokens, and no other row enters the loss.

So all that looks at one token at a time, after the last look around, needs to run on these rows alone: the head, and
of the last block everything behind its keys and values. The result is the same number for number; a quarter of the
work of a training step is gone.

    y = x[chosen]          x (B,T,H) read as a list of B·T rows; token t of sequence b is row b·T + t;  y (N,H)

Backward. A row that was chosen gets its gradient back, twice if it was chosen twice; the others get none.

Within attention every sequence is a matter of its own: queries ask the keys of their own sequence only. `seats` puts
the N chosen rows there as a small batch: (B,M,...), where M is the largest number of them in any sequence and the
remaining seats stay empty.
"""

import math
from typing import NamedTuple

import numpy as np

from mini_bert.layers.base import add_rows, rows


def choose_rows(x, chosen):
    """(...,H) and positions in its list of rows -> (N,H)"""
    return rows(x)[chosen], (x.shape, chosen)


def choose_rows_backward(dy, cache):
    """Every gradient goes back to the row it was read from; rows not chosen get none."""
    shape, chosen = cache
    dx = np.zeros(shape, dy.dtype)
    add_rows(rows(dx), chosen, dy)
    return dx


class Seats(NamedTuple):
    """Row n of the list sits at [sequence[n], seat[n]] of (B,M,...)."""

    sequence: np.ndarray  # (N,)
    seat: np.ndarray  # (N,)
    token: np.ndarray  # (B,M) which token of its sequence sits there; 0 where nobody does

    def asking(self, heads: int):
        """Sequence, head and token of every query -> arrays that broadcast to (B,A,M)"""
        sequence, head, _ = np.indices((len(self.token), heads, 1), sparse=True)
        return sequence, head, self.token[:, None, :]

    def lay_out(self, listed):  # (N,H) -> (B,M,H), empty seats 0
        laid = np.zeros((*self.token.shape, listed.shape[-1]), listed.dtype)
        laid[self.sequence, self.seat] = listed
        return laid

    def collect(self, laid):  # (B,M,A,d) -> (N,H), what sits in no seat is not read
        found = laid[self.sequence, self.seat]
        return found.reshape(len(found), math.prod(found.shape[1:]))


def seats(chosen, B: int, T: int) -> Seats:
    """Positions b·T + t, in any order, repeated or not -> a seat for each"""
    sequence = chosen // T
    order = np.argsort(sequence, kind="stable")
    counts = np.bincount(sequence, minlength=B)
    seat = np.empty(chosen.size, np.intp)
    seat[order] = np.arange(chosen.size) - np.repeat(np.cumsum(counts) - counts, counts)
    token = np.zeros((B, counts.max()), np.intp)
    token[sequence, seat] = chosen % T
    return Seats(sequence, seat, token)


if __name__ == "__main__":
    x = np.arange(12.0).reshape(2, 3, 2)
    chosen = np.array([1, 3, 5])
    y, cache = choose_rows(x, chosen)
    print("two sequences of three tokens:\n", x, "\nrows 1, 3 and 5 of the six:\n", y, sep="")
    print("gradients of ones go back to them:\n", choose_rows_backward(np.ones_like(y), cache), sep="")
    print("as a batch, one seat empty:\n", seats(chosen, 2, 3).lay_out(y), sep="")
