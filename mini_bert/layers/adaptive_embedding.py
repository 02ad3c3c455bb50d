"""Adaptive embeddings: short vectors for rare words (Transformer-XL).

    y = √H · E_c[id − start_c] P_c             id in cluster c:   start_c ≤ id < start_{c+1}

Ids are sorted by frequency and cut into clusters. The vectors of cluster c have E/k^c numbers, and a matrix P_c brings
them to the width H of the model. A rare word gives a long vector little to learn from, and most words are rare: with
267,735 words, cutoffs at 20,000, 40,000 and 200,000, and k = 4, the tables have 37 million numbers instead of 274.
(Baevski & Auli 2018.) With k = 1 there is one table, and P only if E ≠ H.

√H: the same tables predict words (adaptive_softmax.py), for which their numbers should be small.

Backward. As for an embedding and a linear layer, for the rows of each cluster:

    dP_c += √H e_cᵀ dy_c         dE_c[id − start_c] += √H dy_c P_cᵀ          e_c: the rows of E_c that were looked up
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from mini_bert.layers.base import Layer, Run, bind
from mini_bert.layers.embedding import Embedding
from mini_bert.layers.linear import Linear
from mini_bert.layers.matrices import rows
from mini_bert.layers.operation import operation


class AdaptiveEmbedding(Layer):
    """y = √H · E_c[id − start_c] P_c        dP_c += √H e_cᵀ dy,   dE_c[id − start_c] += √H dy P_cᵀ"""

    def __init__(
        self,
        count: int,
        width: int,
        embedding: int,
        cutoffs: Sequence[int] = (),
        divisor: int = 1,
        std: float = 0.02,
        projection_std: float = 0.01,
    ):
        self.width, self.scale = width, math.sqrt(width)
        self.edges = [0, *(cutoffs if divisor > 1 else ()), count]  # start_c
        sizes = [embedding // divisor**index for index in range(len(self.edges) - 1)]
        spans = [stop - start for start, stop in pairwise(self.edges)]
        self.tables = [Embedding(span, size, std) for span, size in zip(spans, sizes, strict=True)]
        projected = divisor > 1 or embedding != width
        self.projections = [Linear(size, width, bias=False, std=projection_std) if projected else None
                            for size in sizes]  # fmt: skip
        # Not in 8 bits: the words of each cluster would have a scale of their own, which a graph cannot express.
        for projection in filter(None, self.projections):
            projection.eight_bit = {}  # type: ignore[misc]

    @operation
    def forward(self, ids, run):  # ids (B,T)
        listed = ids.ravel()
        y = np.empty((listed.size, self.width), self.tables[0].table.data.dtype)
        caches = []
        for start, stop, table, projection in self._clusters():
            places = np.flatnonzero((start <= listed) & (listed < stop))
            e, own = table.forward(listed[places] - start, run)  # (n,E_c)
            projected = None
            if projection is not None:
                e, projected = projection.forward(e, run)
            y[places] = e
            caches.append((places, own, projected))
        y *= self.scale
        return y.reshape(*ids.shape, self.width), caches

    def backward(self, dy, caches, run):  # dy (B,T,H)
        dy = rows(dy) * self.scale
        for (_, _, table, projection), (places, own, projected) in zip(self._clusters(), caches, strict=True):
            de = dy[places]
            if projection is not None:
                de = projection.backward(de, projected, run)
            table.backward(de, own, run)
        return None  # ids have no gradient

    def _clusters(self):
        return zip(self.edges, self.edges[1:], self.tables, self.projections, strict=False)


if __name__ == "__main__":
    layer, run = AdaptiveEmbedding(20, width=6, embedding=4, cutoffs=[5, 10], divisor=2), Run()
    flat = bind(layer, seed=0)
    y, cache = layer.forward(np.array([[2, 7, 19]]), run)
    layer.backward(np.ones_like(y), cache, run)
    for name, param in layer.named_params().items():
        print(f"{name:18} {param.shape!s:8} rows with a gradient: {np.flatnonzero(param.grad.any(1)).tolist()}")
    print(f"20 words: {flat.data.size} weights; y {y.shape}")
