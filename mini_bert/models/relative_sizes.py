"""The sizes of Transformer-XL and XLNet for the memory planner: blocks with relative attention and a memory."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

from mini_bert.models.sizes import Kept, Shape, Sizes


class RelativeParts(NamedTuple):
    """What the memory of these models depends on besides the usual sizes."""

    memory: int = 0  # M
    keeps: bool = False  # whether the inputs of the blocks are kept for the next segment
    attention: int = 0  # D = A·d, the contexts of all heads side by side
    pre_norm: bool = False
    later: bool = False  # whether queries see later keys
    clusters: tuple[tuple[int, int], ...] = ()  # words and width of each cluster of words; (): one softmax over all
    projected: bool = False  # whether word vectors are projected to the model's width


class RelativeSizes(Sizes):
    """Transformer-XL: K = M + T keys, J distances, and the memory for the next segment."""

    def embedding_cache(self, shape: Shape) -> Kept:
        """The vectors that are projected, the waves, the memory, and that for the next segment where it is a copy."""
        BT, parts = shape.B * shape.T, self.more
        shares = _shares(parts.clusters)
        widths = [width if parts.projected else 0 for _, width in parts.clusters]
        looked_up = sum(share * width for share, width in zip(shares, widths, strict=True))
        memories = 2 if parts.keeps and parts.memory > shape.T else 1  # this one and the next
        floats = round(BT * looked_up) + self._distances(shape) * self.width
        floats += memories * self.depth * shape.B * parts.memory * self.width
        return Kept(floats, BT * self.width if self.dropout else 0)

    def block_cache(self, shape: Shape, index: int, lean: bool = False) -> Kept:
        B, T, H, D, K = shape.B, shape.T, self.width, self.more.attention, self._keys(shape)
        chosen = index == self.depth - 1 and not shape.every
        rows, queries = self._rows(shape, chosen)
        weights = queries * self.heads * K
        floats = B * K * (H + 2 * D) + self._distances(shape) * D  # x, k, v; r
        floats += queries * D + rows * D + weights + (rows * H if chosen else 0)  # q, context, weights, x of the rows
        floats += rows * (H + 1 + self.inner_kept * self.intermediate)  # the network and a norm
        if self.more.pre_norm:
            floats += B * K * (H + 1) + B * T * H  # the norm before attention, and the block's input
        else:
            floats += rows * (H + 1)
            floats += B * T * H if self.more.keeps and self.more.memory <= T else 0  # the input, for the next segment
        masks = rows * (2 * H + self.intermediate) if self.dropout else 0
        return Kept(floats, masks + (weights if self.attention_dropout else 0))

    def block_temporaries(self, shape: Shape, index: int, lean: bool = False) -> int:
        rows, queries = self._rows(shape, index == self.depth - 1 and not shape.every)
        return self._temporaries(shape, rows, queries)

    def _temporaries(self, shape: Shape, rows: int, queries: int) -> int:
        """The worst moment of a stream's backward pass: at the end or in the middle of attention, or in the network"""
        B, H, D = shape.B, self.width, self.more.attention
        K, J, A = self._keys(shape), self._distances(shape), self.heads
        scores = 2 * rows * H + queries * (2 * D + 2 * A * K) + B * K * D
        distances = 2 * rows * H + queries * (3 * D + A * (K + J)) + B * D * (2 * K + J)
        projections = 3 * rows * H + B * K * (4 * D + H) + queries * D
        network = 5 * rows * H + int(self.inner_temporary * rows * self.intermediate)
        return max(scores, distances, projections, network)

    @property
    def classes(self) -> int:
        """With clusters: the frequent words, the clusters, and the words of some clusters"""
        clusters = self.more.clusters
        if not clusters:
            return self.vocab_size
        tails = sum(share * words for share, (words, _) in zip(_shares(clusters)[1:], clusters[1:], strict=True))
        return round(clusters[0][0] + len(clusters) - 1 + tails)

    def head_cache(self, shape: Shape) -> Kept:
        """Its input, the scores, and the sum of each row of their exponentials; both inputs of each cluster"""
        clusters = self.more.clusters
        inner = sum(share * (width + 1) for share, (_, width) in zip(_shares(clusters)[1:], clusters[1:], strict=True))
        inner += clusters[0][1] if clusters and self.more.projected else 0
        floats = shape.N * (self.width + self.classes + 1) + round(shape.N * inner)
        return Kept(floats, shape.N * self.width if self.dropout else 0)

    def block_operations(self) -> int:
        shape = Shape(1, self.max_length, 0, 0)
        T, H, D, K, J = self.max_length, self.width, self.more.attention, self._keys(shape), self._distances(shape)
        products = T * (2 * H * D + 2 * H * self.intermediate) + K * 2 * H * D + J * H * D  # of weights
        return 2 * (products + T * (2 * K + J) * D)

    def _keys(self, shape: Shape) -> int:
        return self.more.memory + shape.T

    def _distances(self, shape: Shape) -> int:
        return self._keys(shape) + (shape.T if self.more.later else 1)


class TwoStreamSizes(RelativeSizes):
    """XLNet: a content stream of all tokens in every block but the last, and a query stream of the predicted ones."""

    def embedding_cache(self, shape: Shape) -> Kept:
        kept = super().embedding_cache(shape)
        return kept._replace(masks=kept.masks + (shape.N * self.width if self.dropout else 0))

    def input_cache(self, shape: Shape) -> Kept:
        return Kept((shape.B * shape.T + shape.N) * self.width)  # of both streams

    def block_cache(self, shape: Shape, index: int, lean: bool = False) -> Kept:
        B, T, H, K = shape.B, shape.T, self.width, self._keys(shape)
        floats = B * K * 3 * H + self._distances(shape) * H  # x, k, v; r
        floats += B * T * H if self.more.keeps and T >= self.more.memory > 0 else 0
        masks = 0
        streams = [(shape.N, B * shape.M, shape.N)] if index == self.depth - 1 else [
            (B * T, B * T, 0), (shape.N, B * shape.M, shape.N)]  # fmt: skip
        for rows, queries, inputs in streams:
            weights = queries * self.heads * K
            floats += inputs * H + queries * H + rows * H + weights  # g, q, context
            floats += rows * (2 * (H + 1) + self.inner_kept * self.intermediate)
            masks += rows * (2 * H + self.intermediate) + weights if self.dropout else 0
        return Kept(floats, masks)

    def block_temporaries(self, shape: Shape, index: int, lean: bool = False) -> int:
        """The content stream goes first. Then its gradients, with those of keys and values, wait for the other's."""
        query = self._temporaries(shape, shape.N, shape.B * shape.M)
        if index == self.depth - 1:
            return query
        BT, H = shape.B * shape.T, self.width
        waiting = 2 * BT * H + 2 * shape.B * self._keys(shape) * H
        return max(self._temporaries(shape, BT, BT) + 2 * shape.N * H, query + waiting)

    def block_operations(self) -> int:
        return round(super().block_operations() * 1.15)  # the query stream has about a sixth of the rows


def _shares(clusters: tuple[tuple[int, int], ...]) -> list[float]:
    """The share of a text's words in each cluster, by Zipf's law: the n-th word has a share of 1/n of the first's."""
    ends, total = [0], 0
    for count, _ in clusters:
        total += count
        ends.append(total)
    sums = [sum(1 / n for n in range(start + 1, stop + 1)) for start, stop in pairwise(ends)]
    return [part / sum(sums) for part in sums]
