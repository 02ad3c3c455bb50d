"""The sizes of DeBERTa, for the memory planner: what its blocks keep besides what BERT's blocks keep (sizes.py)."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from mini_bert.layers.relative_positions import TILE, distances
from mini_bert.models.sizes import EveryToken, Kept, Shape, Sizes


class Further(NamedTuple):
    """What a block of DeBERTa depends on besides BERT's sizes."""

    span: int  # half the rows of the table of distances; 0: there is none
    buckets: int
    largest: int
    terms: int  # position terms: 0, 1 or 2
    norm: bool  # of the table
    talking: bool  # heads exchange scores and weights
    convolved: int  # arrays (B,T,H) that the activation of the convolution keeps; 0: no convolution

    def rows(self, T: int) -> int:
        """U, the rows of the table that T tokens need"""
        return _rows(T, self.span, self.buckets, self.largest) if self.span else 0


@cache
def _rows(T: int, span: int, buckets: int, largest: int) -> int:
    """Remembered, because the planner needs it for every choice, and a model may have millions of positions."""
    return len(distances(T, span, buckets, largest).rows)


class DisentangledSizes(Sizes):
    """`head_kept` counts arrays of the width of the embeddings, besides the input of the head."""

    def embedding_cache(self, shape: Shape) -> Kept:
        """The embeddings, and the rows of the table: one array for all blocks, and what its norm keeps"""
        BT, U = shape.B * shape.T, self.more.rows(shape.T)
        narrow = BT * self.embedding if self.embedding != self.width else 0
        table = U * self.width + (U * (self.width + 1) if self.more.norm and U else 0)
        return Kept(BT * (self.width + 1) + narrow + table, BT * self.width if self.dropout else 0)

    def block_cache(self, shape: Shape, index: int, lean: bool = False) -> Kept:
        kept, more, H = super().block_cache(shape, index), self.more, self.width
        rows, queries = self._rows(shape, index == self.depth - 1)
        positions = more.rows(shape.T) * H if more.terms else 0
        floats, masks = more.terms * positions, positions if self.dropout else 0  # kʳ and qʳ; dropout of the table
        if more.talking:
            floats += 2 * queries * self.heads * shape.T  # scores and weights before and after the exchange
        if more.convolved and index == 0:
            floats += rows * (more.convolved * H + H + 1)  # the activation, and a norm
            masks += rows * H if self.dropout else 0
        return Kept(kept.floats + floats, kept.masks + masks)

    def block_temporaries(self, shape: Shape, index: int, lean: bool = False) -> int:
        """The position terms work on some tokens at a time, for which they need scores of more than T distances."""
        T, H, A, BT = shape.T, self.width, self.heads, shape.B * shape.T
        rows, queries = self._rows(shape, index == self.depth - 1)
        n = min(TILE, T)
        scores = queries * A * T
        product = shape.B * A * n * (T + n - 1) + shape.B * (T + n - 1) * H if self.more.terms else 0
        every = BT * A * T if self.more.terms and queries < BT else 0  # a key's scores are those of all queries
        positions = 3 * rows * H + 5 * BT * H + scores + every + product
        return max(super().block_temporaries(shape, index), positions)

    def head_cache(self, shape: Shape) -> Kept:
        return Kept(shape.N * (self.width + self.head_kept * self.embedding + 1 + self.vocab_size + 1))

    def block_operations(self) -> int:
        """With the projections of the table, as if for each sequence, and the scores of distances"""
        H, T, n = self.width, self.max_length, min(TILE, self.max_length)
        more = self.more.terms * (self.more.rows(T) * H * H // 8 + T * (T + n) * H)
        return super().block_operations() + 2 * more


class DisentangledDiscriminatorSizes(EveryToken, DisentangledSizes):
    """DeBERTa v3's discriminator, whose head has a norm."""

    def head_cache(self, shape: Shape) -> Kept:
        kept = super().head_cache(shape)
        return kept._replace(floats=kept.floats + shape.B * shape.T)  # σ
