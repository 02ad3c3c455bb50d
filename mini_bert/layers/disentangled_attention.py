"""Disentangled attention: scores of content and of relative position, computed apart and added. DeBERTa's attention.

    S_ij = (q_i · k_j  +  q_i · kʳ_δ(i,j)  +  k_j · qʳ_δ(i,j)) / √(n d)          n: the number of terms, here 3
            content to    content to          position to
            content       position            content

BERT adds the vector of a token's position to that of its content, and multiplies the sum with W_q and W_k: the two are
mixed from the start. Here they stay apart. q and k come from the content alone, and a table has a vector p for each
distance of two tokens (relative_positions.py; δ(i,j) is the row for the distance i − j), with projections of its own:

    q = x W_q     k = x W_k     v = x W_v     kʳ = p W_kʳ     qʳ = p W_qʳ

The second term lets a query prefer distances ("the verb is usually the next word"), the third lets a key offer itself
at some distances. (He et al. 2021, "DeBERTa", eq. 4. The paper writes δ(j,i) in the third term; its code, and with it
every published model, uses δ(i,j).) The sum of n terms has n times the variance of one, hence √(n d) instead of √d.
The rest is as in attention.py: weights P = softmax(S), context C = P v, y = [C_1 … C_A] W_o.

W_kʳ and W_qʳ may be W_k and W_q again (v2, `share`): the rows of the table are then treated like the vectors of words.

Backward. S is a sum, so dS goes to all three terms. With D = dS / √(n d):

    dq_i = Σ_j D_ij k_j + Σ_j D_ij kʳ_δ(i,j)          dkʳ_r = Σ D_ij q_i  over all sequences and pairs with δ(i,j) = r
    dk_j = Σ_i D_ij q_i + Σ_i D_ij qʳ_δ(i,j)          dqʳ_r = Σ D_ij k_j  over the same
    dp   = dkʳ W_kʳᵀ + dqʳ W_qʳᵀ

Padding. Its scores are all the same, lowest float: a padding token therefore averages over all tokens, as in published
models, and no gradient reaches scores there. Nothing reads the result.

With `chosen`, only these rows are queries (chosen.py); all tokens are keys and values.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from mini_bert.layers.attention import attend, attend_backward
from mini_bert.layers.base import Layer, Run, bind
from mini_bert.layers.chosen import RowLayout, choose_rows, choose_rows_backward, row_layout
from mini_bert.layers.dropout import dropout, dropout_backward
from mini_bert.layers.linear import Linear
from mini_bert.layers.matrices import add_rows
from mini_bert.layers.operation import operation
from mini_bert.layers.relative_positions import (
    Distances,
    add_distance_scores,
    add_distance_scores_backward,
    distances,
    windows,
    windows_backward,
)

TERMS = ("c2p", "p2c")  # content to position, position to content


class PositionCache(NamedTuple):
    """What the position terms used."""

    table: np.ndarray  # (U,H) p, before dropout
    dropped: Any
    distances: Distances
    key: np.ndarray | None  # (A,U,d) kʳ
    query: np.ndarray | None  # (A,U,d) qʳ

    @property
    def exact(self) -> tuple[str, ...]:
        """packed.py keeps the table as it is: all blocks share it."""
        return ("table",)


class DisentangledCache(NamedTuple):
    """The fields of an AttentionCache, and what is new."""

    x: np.ndarray  # (B,T,H)
    q: np.ndarray  # (B,A,M,d); M = T without `chosen`
    k: np.ndarray  # (B,A,T,d)
    attended: Any
    context: np.ndarray  # (B,T,H), or (N,H)
    positions: PositionCache | None
    exchanged: Any  # cache of `exchange`
    padded: np.ndarray | None  # (B,1,M,1) True for queries that are padding
    layout: RowLayout | None  # of chosen rows
    rows: Any  # cache of choose_rows
    queries: np.ndarray  # (B,T,H) x, or (N,H) its chosen rows


class DisentangledAttention(Layer):
    """y = [C_1 … C_A] W_o        C = softmax((q kᵀ + q kʳᵀ[δ] + (k qʳᵀ)ᵀ[δ]) / √(n d)) v

    terms       the position terms: "c2p", "p2c", both or none
    relative    False: no position terms at all, but n still counts them, as in published models
    share       W_kʳ = W_k and W_qʳ = W_q
    key_bias    whether keys (and position keys) have a bias; queries and values always have one
    p           dropout of the weights; position_p: of the table
    """

    def __init__(
        self,
        width: int,
        heads: int,
        terms: tuple[str, ...] = TERMS,
        relative: bool = True,
        share: bool = False,
        key_bias: bool = True,
        p: float = 0.0,
        position_p: float = 0.0,
        std: float | None = None,
    ):
        if width % heads:
            raise ValueError(f"the width, {width}, is not divisible by the number of heads, {heads}")
        self.width, self.heads, self.head_size = width, heads, width // heads
        self.p, self.position_p = p, position_p
        self.scale = 1 / math.sqrt(self.head_size * (1 + len(terms)))
        self.query = Linear(width, width, std=std)
        self.key = Linear(width, width, key_bias, std)
        self.value = Linear(width, width, std=std)
        self.position_key: Any = None
        self.position_query: Any = None
        if relative and "c2p" in terms:
            self.position_key = self.key if share else Linear(width, width, key_bias, std)
        if relative and "p2c" in terms:
            self.position_query = self.query if share else Linear(width, width, std=std)
        self.output = Linear(width, width, std=std)

    def forward(self, x, positions, run, distances=None, mask=None, chosen=None):
        """x (B,T,H), positions (U,H) -> y (B,T,H), or (N,H) for chosen rows.

        positions: the table rows `distances.rows`. mask (B,1,1,T): False for padding.
        """
        queries, rows, layout = x, None, None
        if chosen is not None:
            queries, rows = choose_rows(x, chosen)  # (N,H)
            layout = row_layout(chosen, *x.shape[:2])
        q, _ = self.query.forward(queries, run)
        q = self.split_heads(q if layout is None else layout.to_batch(q))  # (B,A,M,d)
        k = self.split_heads(self.key.forward(x, run)[0])  # (B,A,T,d)
        v = self.split_heads(self.value.forward(x, run)[0])

        scores = q @ k.swapaxes(-1, -2)  # (B,A,M,T)
        cache = self.project_positions(positions, distances, run)
        self.add_position_scores(scores, q, k, cache, layout)
        scores *= self.scale
        scores, exchanged = self.exchange(scores, run)
        padded = self.mask_scores(scores, mask, layout)

        at = None if layout is None else layout.query_rows(self.heads)
        context, attended = self.average(scores, v, run, at)  # (B,A,M,d)
        context = context.transpose(0, 2, 1, 3)
        context = context.reshape(x.shape) if layout is None else layout.to_list(context)
        y, _ = self.output.forward(context, run)
        return y, DisentangledCache(x, q, k, attended, context, cache, exchanged, padded, layout, rows, queries)

    def backward(self, dy, cache, run):
        """Returns dx (B,T,H) and dpositions (U,H)."""
        x, q, k, positions, layout = cache.x, cache.q, cache.k, cache.positions, cache.layout
        dcontext = self.output.backward(dy, cache.context, run)
        dcontext = self.split_heads(dcontext if layout is None else layout.to_batch(dcontext))  # (B,A,M,d)
        dscores, dv = self.average_backward(dcontext, cache.attended, run)
        if cache.padded is not None:
            np.copyto(dscores, 0, where=cache.padded)  # in forward: all scores of padding were set to the same number
        dscores = self.exchange_backward(dscores, cache.exchanged, run)
        dscores *= self.scale
        dq, dk = dscores @ k, dscores.swapaxes(-1, -2) @ q
        dpositions = self.position_scores_backward(dscores, dq, dk, q, k, positions, layout, run)
        del dscores
        dx = self.value.backward(join_heads(dv), x, run)
        dx += self.key.backward(join_heads(dk), x, run)
        dq = join_heads(dq) if layout is None else layout.to_list(dq.transpose(0, 2, 1, 3))
        dqueries = self.query.backward(dq, cache.queries, run)
        dx += dqueries if layout is None else choose_rows_backward(dqueries, cache.rows)
        return dx, dpositions

    # ------------------------------------------------------------------ the position terms

    def project_positions(self, table, distances, run) -> PositionCache | None:
        """kʳ = p W_kʳ,   qʳ = p W_qʳ        p: the table after dropout, the same for all sequences of a batch"""
        if self.position_key is None and self.position_query is None:
            return None
        p, dropped = dropout(table, self.position_p, run.fork(1), (-run.first, distances.rows))
        key = query = None
        if self.position_key is not None:
            key = self.split_heads(self.position_key.forward(p, run)[0][None])[0]  # (A,U,d)
        if self.position_query is not None:
            query = self.split_heads(self.position_query.forward(p, run)[0][None])[0]
        return PositionCache(table, dropped, distances, key, query)

    @operation
    def add_position_scores(self, scores, q, k, positions, layout) -> None:
        """S_ij += q_i · kʳ_δ(i,j) + k_j · qʳ_δ(i,j)

        Along a row of S, the distance i − j falls from i to i − T + 1; along a row of Sᵀ, it rises. That is the order
        in which add_distance_scores needs the distances.
        """
        if positions is None:
            return
        falling, rising = self.of_distances(positions)
        if falling is not None and layout is None:
            add_distance_scores(scores, q, falling)
        elif falling is not None:
            scores += windows(q @ falling.swapaxes(-1, -2), layout.token)
        if rising is not None:
            every = scores if layout is None else np.zeros((*k.shape[:3], k.shape[2]), k.dtype)  # (B,A,T,T)
            add_distance_scores(every.swapaxes(-1, -2), k, rising)
            if layout is not None:
                scores += every[layout.query_rows(self.heads)]

    def position_scores_backward(self, dscores, dq, dk, q, k, positions, layout, run):
        """Adds to dq and dk. Returns dpositions (U,H)."""
        if positions is None:
            return None
        falling, rising = self.of_distances(positions)
        p = dropout_backward(positions.table, positions.dropped)  # as in forward
        dp = np.zeros_like(p)
        if falling is not None:
            if layout is None:
                dfalling = add_distance_scores_backward(dscores, q, falling, dq)
            else:
                dproduct = windows_backward(dscores, layout.token)
                dq += dproduct @ falling
                dfalling = (dproduct.swapaxes(-1, -2) @ q).sum(0)
            dp += self.position_key.backward(self.of_rows(dfalling[:, ::-1], positions), p, run)
        if rising is not None:
            every = dscores if layout is None else self.all_rows(dscores, layout)
            drising = add_distance_scores_backward(every.swapaxes(-1, -2), k, rising, dk)
            dp += self.position_query.backward(self.of_rows(drising, positions), p, run)
        return dropout_backward(dp, positions.dropped)

    def all_rows(self, dscores, layout):
        """The gradient of the scores of all tokens, from that of chosen ones: (B,A,M,T) -> (B,A,T,T)"""
        B, A, M, T = dscores.shape
        every = np.zeros((B, A, T, T), dscores.dtype)
        for m in range(M):  # a token that is chosen twice gets the sum
            every[np.arange(B)[:, None], np.arange(A), layout.token[:, m, None]] += dscores[:, :, m]
        return every

    def of_distances(self, positions):
        """kʳ for the distances from T−1 down to −(T−1), and qʳ for those from −(T−1) up to T−1: (A,2T−1,d) each"""
        _, _, (_, row_of), key, query = positions
        if positions.distances.shared:
            key, query = (vectors if vectors is None else vectors[:, row_of] for vectors in (key, query))
        return key if key is None else key[:, ::-1], query

    def of_rows(self, dvectors, positions):
        """The sum over the distances that share a row: (A,2T−1,d) -> (U,H)"""
        by_distance = join_heads(dvectors[None])[0]  # (2T−1,H)
        if not positions.distances.shared:
            return by_distance
        total = np.zeros_like(positions.table)
        add_rows(total, positions.distances.row_of, by_distance)
        return total

    # ------------------------------------------------------------------ from scores to contexts

    def exchange(self, scores, run):
        """Heads work on their own, except in talking_heads.py."""
        return scores, None

    def exchange_backward(self, dscores, cache, run):
        return dscores

    def mask_scores(self, scores, mask, layout):
        """Set the scores of padding, as query or key, to the lowest float. Returns which queries are padding."""
        if mask is None:
            return None
        used = mask[:, 0, 0] if layout is None else np.take_along_axis(mask[:, 0, 0], layout.token, 1)  # (B,M)
        padded = ~used[:, None, :, None]
        np.copyto(scores, np.finfo(scores.dtype).min, where=padded | ~mask)
        return padded

    def average(self, scores, v, run, at=None):
        """C = dropout(softmax(S)) v"""
        return attend(scores, v, run, None, self.p, at)

    def average_backward(self, dcontext, attended, run):
        """Returns dscores and dv."""
        return attend_backward(dcontext, attended)

    def split_heads(self, x):
        """(B,T,H) -> (B,A,T,d), as a view"""
        B, T, _ = x.shape
        return x.reshape(B, T, self.heads, self.head_size).transpose(0, 2, 1, 3)


def join_heads(x):
    """(B,A,T,d) -> (B,T,H)"""
    B, A, T, d = x.shape
    return x.transpose(0, 2, 1, 3).reshape(B, T, A * d)


if __name__ == "__main__":
    np.set_printoptions(precision=2, suppress=True)
    layer = DisentangledAttention(8, heads=2, std=0.5)
    bind(layer, seed=0)
    near = distances(5, span=5)
    rng = np.random.default_rng(1)
    x = np.broadcast_to(rng.normal(size=8).astype(np.float32), (1, 5, 8))  # five times the same word
    table = rng.normal(size=(len(near.rows), 8)).astype(np.float32)
    y, cache = layer.forward(x, table, Run(), near)
    print("five times the same word: the weights of head 0 depend on the distance alone")
    print(cache.attended.probs[0, 0])
    dx, dtable = layer.backward(np.ones_like(y), cache, Run())
    print(f"x {x.shape}, table {table.shape} -> y {y.shape} -> dx {dx.shape}, dtable {dtable.shape}")
