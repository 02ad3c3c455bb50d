"""The sizes of a model, as the memory planner needs them (training/plan.py); every config has a `sizes()`.

`Sizes` counts the arrays of BERT's block: attention, a feed-forward network and two norms. An architecture with other
blocks, embeddings or heads subclasses it and overrides the methods that differ. A test compares the counts with the
arrays of real caches.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from mini_bert.layers.lean_attention import TILE


class Kept(NamedTuple):
    """What a cache holds: floats, which may be kept in 16 bits, and dropout masks, one byte each."""

    floats: int = 0
    masks: int = 0


class Shape(NamedTuple):
    """A micro-batch: B sequences of T tokens, N predicted tokens, at most M of them in one sequence."""

    B: int
    T: int
    N: int
    M: int

    @property
    def every(self) -> bool:
        """Whether every token is predicted, so that no rows are selected."""
        return self.N == self.B * self.T


class Sizes(NamedTuple):
    """The sizes of a model that its memory depends on."""

    name: str
    vocab_size: int  # V
    width: int  # H
    depth: int  # L
    heads: int  # A
    intermediate: int  # I
    max_length: int  # T
    parameters: int  # P
    tied: bool  # the output head shares the token table
    dropout: bool
    attention_dropout: bool
    embedding_norm: bool
    inner_kept: int  # arrays (B,T,I) that a feed-forward network keeps for backward
    inner_temporary: float  # and those that its backward allocates
    head_kept: int  # arrays (N,H) that the output head keeps, besides the logits
    embedding: int = 0  # E, where the embeddings have a width of their own (FactorisedSizes)
    more: Any = None  # further sizes that the blocks of an architecture depend on
    matrices: int = 0  # parameters in matrices of the blocks, for an optimiser that treats them as such
    # what the objective adds (objectives/base.py)
    before: Any = None  # the sizes of a model that runs before this one in every step, and is done then: a generator
    predicted: float = 0.15  # the share of the tokens that are predicted
    held: int = 0  # bytes of arrays that are kept and not trained: the weights of a teacher
    carried: int = 0  # floats that each sequence hands to the next batch: a memory
    more_scores: int = 0  # arrays (N,V) beside the logits

    @property
    def classes(self) -> int:
        """The scores of a token that is predicted"""
        return self.vocab_size

    def embedding_cache(self, shape: Shape) -> Kept:
        BT, H = shape.B * shape.T, self.width
        return Kept(BT * (H + 1) if self.embedding_norm else 0, BT * H if self.dropout else 0)

    def input_cache(self, shape: Shape) -> Kept:
        """What a block keeps that is recomputed in backward"""
        return Kept(shape.B * shape.T * self.width)

    def block_cache(self, shape: Shape, index: int, lean: bool = False) -> Kept:
        """The cache of one block; in the last block, only the predicted tokens are queries."""
        last, H, BT = index == self.depth - 1 and not shape.every, self.width, shape.B * shape.T
        rows, queries = self._rows(shape, last)
        weights = queries * self.heads * shape.T
        kept_weights = queries * self.heads + (queries * H if last else 0) if lean else weights  # lean: log Σ exp
        floats = (
            3 * BT * H + 2 * rows * H + (queries * H if last else 0)  # x, k, v; q and context (last: x of rows, too)
            + kept_weights
            + 2 * rows * (H + 1)  # two norms: x̂ and σ
            + rows * self.inner_kept * self.intermediate
        )  # fmt: skip
        masks = 2 * rows * H if self.dropout else 0
        return Kept(floats, masks + (weights if self.attention_dropout and not lean else 0))

    def block_temporaries(self, shape: Shape, index: int, lean: bool = False) -> int:
        """The number of floats that a block's backward pass allocates at its worst moment"""
        T, H, BT = shape.T, self.width, shape.B * shape.T
        rows, queries = self._rows(shape, index == self.depth - 1)
        tiled = tiles(T) if lean else 0  # stay allocated
        scores = tiled or 2 * queries * self.heads * T
        if lean and self.attention_dropout:
            side = math.ceil(T / math.ceil(T / TILE))
            scores += 5 * side**2 // 4  # a tile after dropout, and its mask, one byte per number
        attention = 3 * rows * H + 4 * BT * H + scores
        projections = 4 * rows * H + 6 * BT * H + tiled  # dq, dk and dv, the same side by side, and their dx
        feed_forward = 5 * rows * H + int(self.inner_temporary * rows * self.intermediate) + tiled
        return max(attention, projections, feed_forward)

    def head_cache(self, shape: Shape) -> Kept:
        """One norm (its σ), the arrays of width H, the logits, and the sum of each row of their exponentials"""
        return Kept(shape.N * (self.head_kept * self.width + 1 + self.vocab_size + 1))

    def block_operations(self) -> int:
        """Multiplications and additions of a block's forward pass, for one sequence"""
        H, T = self.width, self.max_length
        return 2 * T * (4 * H * H + 2 * H * self.intermediate + 2 * T * H)

    def _rows(self, shape: Shape, last: bool) -> tuple[int, int]:
        """Everything after attention runs on rows; queries are padded."""
        everything = shape.B * shape.T
        return (shape.N, shape.B * shape.M) if last else (everything, everything)


class FactorisedSizes(Sizes):
    """Embeddings of width E, which are projected to the width H of the blocks; the head projects its input to E.
    `head_kept` counts arrays of width E, besides that input."""

    def embedding_cache(self, shape: Shape) -> Kept:
        BT, E = shape.B * shape.T, self.embedding
        return Kept(BT * (2 * E + 1), BT * E if self.dropout else 0)

    def head_cache(self, shape: Shape) -> Kept:
        return Kept(shape.N * (self.width + self.head_kept * self.embedding + 1 + self.vocab_size + 1))


def tiles(T: int) -> int:
    """Floats of the two tiles in which lean attention works; each thread keeps its own."""
    return 2 * min(T, TILE) ** 2


def block_parameters(width: int, inner: int) -> int:
    """The parameters of attention without biases, a feed-forward network and two norms."""
    return 4 * width * width + 2 * width * inner + inner + width + 4 * width


def inner_arrays(activation: str) -> tuple[int, float]:
    """The arrays (B,T,I) that a feed-forward network keeps for backward, and those that its backward allocates."""
    return {"relu": (1, 1.25), "tanh": (1, 3.0), "gelu": (2, 3.25)}.get(activation, (2, 4.25))
