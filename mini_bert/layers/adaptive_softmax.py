"""Adaptive softmax: frequent words in one step, rare words in two (Transformer-XL).

    z⁰ = [x P_0ᵀ E_0ᵀ + b_0,  x P_0ᵀ Cᵀ + b_C]          a score for each frequent word and for each cluster of rare ones
    zᶜ = x P_cᵀ E_cᵀ + b_c                              a score for each word of cluster c
    log p(w) = log softmax(z⁰)[w]                                            w frequent
             = log softmax(z⁰)[cluster c] + log softmax(zᶜ)[w − start_c]     w in cluster c        (Grave et al. 2016)

The tables E_c are those of the embeddings (adaptive_embedding.py), or others of the same shapes. P_c brings x to the
width of cluster c. Most words of a text are frequent, so most rows need z⁰ only: **the loss computes zᶜ for the rows
whose word is in cluster c, and for no others.** To choose the next word, all of them are needed (`forward`).

Backward. The loss −log p(w) is the sum of two cross-entropies, each with the gradient of any cross-entropy: predicted
minus correct distribution. For the log-probabilities themselves, with y = log softmax(z),

    y_v = z_v − log Σ exp z        dz_v = dy_v − softmax(z)_v Σ_u dy_u

where the gradient at "cluster c" in z⁰ is the sum of those of its words, since it is a term of each.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from mini_bert.layers.base import Layer, Param, Run, bind
from mini_bert.layers.cross_entropy import CrossEntropyCache, check_targets, cross_entropy, cross_entropy_backward
from mini_bert.layers.initialisers import normal, zeros
from mini_bert.layers.matrices import rows, sum_rows, times, total
from mini_bert.layers.operation import operation

SOME = 1 << 18  # log-probabilities computed at a time


class Part(NamedTuple):
    """The weights of the scores of one cluster; views of the layer's."""

    table: Param  # (n,E)
    bias: Param  # (n,)
    projection: Param | None  # (E,H)


class Tail(NamedTuple):
    """The rows whose word is in a cluster."""

    places: np.ndarray  # (n,)
    inner: np.ndarray  # (n,E) x P_cᵀ
    entropy: CrossEntropyCache


class AdaptiveLossCache(NamedTuple):
    layer: AdaptiveSoftmax
    x: np.ndarray  # (N,H)
    targets: np.ndarray  # (N,)
    inner: np.ndarray  # (N,E) x P_0ᵀ
    head: CrossEntropyCache
    tails: list[Tail | None]  # None: no row needs this cluster
    correct: int  # how often the target is the most likely word

    def pieces(self) -> Iterator[CrossEntropyCache]:
        """The probabilities of all words, for some rows at a time"""
        for some in self.layer.some_rows(len(self.x)):
            y, _ = self.layer.forward(self.x[some], Run())
            yield cross_entropy(y, self.targets[some], out=y)[1]


class AdaptiveSoftmax(Layer):
    """log p(w) = log softmax(z⁰)[w], or log softmax(z⁰)[c] + log softmax(zᶜ)[w − start_c]        x (…,H) -> (…,V)

    tables, projections: to share those of the embeddings; None: its own. Tables are (n,E), projections (E,H).
    """

    def __init__(
        self,
        count: int,
        width: int,
        embedding: int,
        cutoffs: Sequence[int] = (),
        divisor: int = 1,
        tables: Sequence[Param | None] | None = None,
        projections: Sequence[Param | None] | None = None,
        std: float = 0.02,
        projection_std: float = 0.01,
    ):
        self.edges = [0, *cutoffs, count]  # start_c
        clusters = len(self.edges) - 1
        blocks = self.edges if divisor > 1 else [0, count]  # with one width for all there is one table
        spans = [stop - start for start, stop in pairwise(blocks)]
        sizes = [embedding // divisor**index for index in range(clusters)]
        tables = tables or [None] * len(spans)
        projections = projections or [None] * clusters
        projected = divisor > 1 or embedding != width
        self.tables = [table or Param((span, size), normal(std))
                       for table, span, size in zip(tables, spans, sizes, strict=False)]  # fmt: skip
        self.biases = [Param((span,), zeros, decay=False) for span in spans]
        self.projections = [shared or (Param((size, width), normal(projection_std)) if projected else None)
                            for shared, size in zip(projections, sizes, strict=True)]  # fmt: skip
        self.clusters = Param((clusters - 1, embedding), normal(std)) if clusters > 1 else None  # C
        self.cluster_bias = Param((clusters - 1,), zeros, decay=False) if clusters > 1 else None

    # ------------------------------------------------------------------ all words

    @operation
    def forward(self, x, run):  # x (...,H)
        """Returns log p. The cache is x: backward computes the scores again, which would take as much memory as y."""
        listed = rows(x)
        y = np.empty((len(listed), self.edges[-1]), x.dtype)
        for some in self.some_rows(len(listed)):  # so that the scores take little memory
            self._fill(y[some], listed[some])
        return y.reshape(*x.shape[:-1], -1), x

    def backward(self, dy, x, run):  # dy (...,V)
        listed, dlisted = rows(x), rows(dy)
        dhead = np.empty((len(listed), self.edges[1] + len(self.edges) - 2), dy.dtype)
        dhead[:, : self.edges[1]] = dlisted[:, : self.edges[1]]
        dx = np.zeros_like(listed)
        for c, start, stop in self._tails():
            dpart = dlisted[:, start:stop]
            dhead[:, self._column(c)] = total(dpart)[:, 0]
            z, inner = self._scores(c, listed)
            dx += self._scores_backward(c, _log_softmax_backward(dpart, z), listed, inner, run)
        z, inner = self._scores(0, listed)
        dx += self._scores_backward(0, _log_softmax_backward(dhead, z), listed, inner, run)
        return dx.reshape(x.shape)

    def some_rows(self, N: int) -> list[slice]:
        """N rows in parts with about SOME log-probabilities each"""
        size = max(1, SOME // self.edges[-1])
        return [slice(first, first + size) for first in range(0, N, size)]

    def _fill(self, y, x):
        """y = log p"""
        z, _ = self._scores(0, x)
        head = _log_softmax(z)
        y[:, : self.edges[1]] = head[:, : self.edges[1]]
        for c, start, stop in self._tails():
            z, _ = self._scores(c, x)
            y[:, start:stop] = _log_softmax(z)
            y[:, start:stop] += head[:, self._column(c), None]

    # ------------------------------------------------------------------ the loss

    def loss(self, x, targets, count: float | None, run):
        """loss = Σ −log p(target) / count        x (N,H), targets (N,). The same as cross_entropy(forward(x))."""
        check_targets(targets, len(x), self.edges[-1])
        count, first = len(targets) if count is None else count, self.edges[1]
        cluster = np.searchsorted(self.edges[1:-1], targets, side="right")  # 0: frequent
        z, inner = self._scores(0, x)
        loss, head = cross_entropy(z, np.where(cluster == 0, targets, first + cluster - 1), count, out=z)
        tails: list[Tail | None] = []
        for c, start, _ in self._tails():
            places = np.flatnonzero(cluster == c)
            if not places.size:
                tails.append(None)
                continue
            z, own = self._scores(c, x[places])
            part, entropy = cross_entropy(z, targets[places] - start, count, out=z)
            loss += part
            tails.append(Tail(places, own, entropy))
        correct = self._correct(x, targets, cluster, head, tails)
        return loss, AdaptiveLossCache(self, x, targets, inner, head, tails, correct)

    def loss_backward(self, dloss: float, cache: AdaptiveLossCache, run):
        """Returns dx. The cache cannot be used again: its memory is reused."""
        dz = cross_entropy_backward(dloss, cache.head, out=cache.head.exp)
        dx = self._scores_backward(0, dz, cache.x, cache.inner, run)
        for (c, _, _), tail in zip(self._tails(), cache.tails, strict=True):
            if tail is not None:
                dz = cross_entropy_backward(dloss, tail.entropy, out=tail.entropy.exp)
                dx[tail.places] += self._scores_backward(c, dz, cache.x[tail.places], tail.inner, run)
        return dx

    def _correct(self, x, targets, cluster, head: CrossEntropyCache, tails: list[Tail | None]) -> int:
        """How often the target is the most likely of all words.

        No word of a cluster is more likely than the cluster. So other clusters need a look only if they are more likely
        than the target, and the target is the most likely word so far.
        """
        first = self.edges[1]
        own = head.exp[np.arange(len(x)), head.targets]  # p(target), up to a factor per row
        best = np.where(cluster == 0, head.exp[:, :first].argmax(1) == targets, False)
        for tail in tails:
            if tail is not None:
                n = np.arange(len(tail.places))
                own[tail.places] *= tail.entropy.exp[n, tail.entropy.targets] / tail.entropy.sums[:, 0]
                most = tail.entropy.exp.argmax(1) == tail.entropy.targets
                best[tail.places] = most & (own[tail.places] > head.exp[tail.places, :first].max(1))
        for c, _, _ in self._tails():
            share = head.exp[:, self._column(c)]
            unsure = np.flatnonzero(best & (cluster != c) & (share > own))
            if unsure.size:
                log_p = _log_softmax(self._scores(c, x[unsure])[0])
                best[unsure] = share[unsure] * np.exp(log_p.max(1)) < own[unsure]
        return int(best.sum())

    # ------------------------------------------------------------------ the scores of one cluster

    def _scores(self, c: int, x):
        """z = x Pᵀ Eᵀ + b, and x Pᵀ        x (n,H). For c = 0, the scores of the clusters follow those of the words."""
        part = self._part(c)
        inner = x if part.projection is None else times(x, part.projection.data.T)  # (n,E)
        if c or self.clusters is None:
            z = times(inner, part.table.data.T)
            z += part.bias.data
            return z, inner
        words = part.table.shape[0]
        z = np.empty((len(x), words + self.clusters.shape[0]), x.dtype)
        z[:, :words] = times(inner, part.table.data.T)
        z[:, :words] += part.bias.data
        z[:, words:] = times(inner, self.clusters.data.T)
        z[:, words:] += self.cluster_bias.data  # type: ignore[union-attr]
        return z, inner

    def _scores_backward(self, c: int, dz, x, inner, run):
        """dE += dzᵀ inner,   db += Σ dz,   dinner = dz E,   dP += dinnerᵀ x,   dx = dinner P"""
        part = self._part(c)
        words = part.table.shape[0]
        part.table.add_product(dz[:, :words].T, inner, run)
        part.bias.add(sum_rows(dz[:, :words]))
        dinner = times(dz[:, :words], part.table.data)
        if not c and self.clusters is not None:
            self.clusters.add_product(dz[:, words:].T, inner, run)
            self.cluster_bias.add(sum_rows(dz[:, words:]))  # type: ignore[union-attr]
            dinner += times(dz[:, words:], self.clusters.data)
        if part.projection is None:
            return dinner
        part.projection.add_product(dinner.T, x, run)
        return times(dinner, part.projection.data)

    def _part(self, c: int) -> Part:
        if len(self.tables) == len(self.edges) - 1:
            return Part(self.tables[c], self.biases[c], self.projections[c])
        words = slice(self.edges[c], self.edges[c + 1])  # of the only table
        return Part(self.tables[0].part(words), self.biases[0].part(words), self.projections[c])

    def _tails(self) -> list[tuple[int, int, int]]:
        """Number, first word and end of each cluster of rare words."""
        return [(c, *self.edges[c : c + 2]) for c in range(1, len(self.edges) - 1)]  # type: ignore[misc]

    def _column(self, c: int) -> int:
        """Where the score of cluster c is in z⁰."""
        return self.edges[1] + c - 1

    def set_frequencies(self, shares: np.ndarray) -> None:
        """Set the biases such that p(w) is the share of w in the text, before anything is learnt.        shares (V,)"""
        log = np.log(shares)
        edges = self.edges if len(self.biases) > 1 else [0, self.edges[-1]]
        for bias, (start, stop) in zip(self.biases, pairwise(edges), strict=True):
            bias.data[...] = log[start:stop]
        if self.cluster_bias is not None:
            self.cluster_bias.data[...] = [math.log(shares[start:stop].sum()) for _, start, stop in self._tails()]


def _log_softmax(z: Any):
    """z − log Σ exp z, in place"""
    z -= z.max(-1, keepdims=True)
    z -= np.log(total(np.exp(z)))
    return z


def _log_softmax_backward(dy, z):
    """dz = dy − softmax(z) Σ dy"""
    p = np.exp(_log_softmax(z))
    p *= total(dy)
    return dy - p


if __name__ == "__main__":
    layer, run = AdaptiveSoftmax(20, 6, embedding=4, cutoffs=[5, 10], divisor=2, std=1.0, projection_std=1.0), Run()
    bind(layer, seed=0)
    x = np.random.default_rng(0).normal(size=(3, 6)).astype(np.float32)
    log_p, _ = layer.forward(x, run)
    print("three rows of 20 log-probabilities; the probabilities sum to", np.exp(log_p).sum(1).round(6))
    targets = np.array([2, 7, 19])
    loss, cache = layer.loss(x, targets, None, run)
    print(
        f"the loss at words 2, 7 and 19: {loss:.5f}; from all log-probabilities: {-log_p[range(3), targets].mean():.5f}"
    )
    computed = [tail and tail.places.tolist() for tail in cache.tails]
    print("rows for which the scores of the two clusters of rare words were computed:", computed)
