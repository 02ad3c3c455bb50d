"""Chosen rows: compute only the rows that enter the loss.

    y = x[chosen]          x (B,T,H) as a list of B·T rows; token t of sequence b is row b·T + t;  y (N,H)

Masked language modelling predicts about 15 % of the tokens, and no other row enters the loss. So the output head, and
everything in the last block after its keys and values, needs to run on these rows only. The numbers are the same, and
a training step has a quarter less work.

Backward. Each gradient goes back to the row it came from; a row chosen twice gets the sum; all others get 0.

Attention for chosen rows is in efficient_attention.py. There, queries meet the keys of their own sequence only.
`RowLayout` arranges the N chosen rows as a small padded batch (B,M,...), where M is the largest number of chosen rows
in any sequence.
"""

import math
from typing import NamedTuple

import numpy as np

from mini_bert.layers.matrices import add_rows, rows


def choose_rows(x, chosen):
    """y = x[chosen]        x (...,H), chosen (N,), y (N,H)"""
    return rows(x)[chosen], (x.shape, chosen)


def choose_rows_backward(dy, cache):
    """dx[chosen] += dy"""
    shape, chosen = cache
    dx = np.zeros(shape, dy.dtype)
    add_rows(rows(dx), chosen, dy)
    return dx


class RowLayout(NamedTuple):
    """Row n of the list is at [sequence[n], slot[n]] in the batch (B,M,...)."""

    sequence: np.ndarray  # (N,)
    slot: np.ndarray  # (N,)
    token: np.ndarray  # (B,M) the position of each row in its sequence; 0 in empty slots

    def query_rows(self, heads: int):
        """Sequence, head and token of every query, as arrays that broadcast to (B,A,M)."""
        sequence, head, _ = np.indices((len(self.token), heads, 1), sparse=True)
        return sequence, head, self.token[:, None, :]

    def to_batch(self, listed):
        """(N,H) -> (B,M,H), with zeros in empty slots."""
        batch = np.zeros((*self.token.shape, listed.shape[-1]), listed.dtype)
        batch[self.sequence, self.slot] = listed
        return batch

    def to_list(self, batch):
        """(B,M,A,d) -> (N,H)"""
        listed = batch[self.sequence, self.slot]
        return listed.reshape(len(listed), math.prod(listed.shape[1:]))


def row_layout(chosen, B: int, T: int) -> RowLayout:
    """Returns a layout for row numbers b·T + t, in any order, repeated or not."""
    sequence = chosen // T
    order = np.argsort(sequence, kind="stable")
    counts = np.bincount(sequence, minlength=B)
    slot = np.empty(chosen.size, np.intp)
    slot[order] = np.arange(chosen.size) - np.repeat(np.cumsum(counts) - counts, counts)
    token = np.zeros((B, counts.max()), np.intp)
    token[sequence, slot] = chosen % T
    return RowLayout(sequence, slot, token)


if __name__ == "__main__":
    x = np.arange(12.0).reshape(2, 3, 2)
    chosen = np.array([1, 3, 5])
    y, cache = choose_rows(x, chosen)
    print("two sequences of three tokens:\n", x, "\nrows 1, 3 and 5 of the six:\n", y, sep="")
    print("gradients of ones go back to these rows:\n", choose_rows_backward(np.ones_like(y), cache), sep="")
    print("as a batch, with one empty slot:\n", row_layout(chosen, 2, 3).to_batch(y), sep="")
