"""Efficient attention: the attention of BERT's blocks. It computes only the rows that are needed.

    y = MultiHeadAttention(x)[chosen]

With `chosen`, only these rows are queries; all tokens are keys and values. If the loss needs 15 % of the rows, the last
block computes no others (chosen.py). W_q is then applied to the chosen rows, W_k and W_v to all.

Long sequences are computed in tiles (lean_attention.py), with `chosen` or without. Both are tested against the plain
layer.
"""

from typing import Any, NamedTuple

import numpy as np

from mini_bert.layers.attention import MultiHeadAttention
from mini_bert.layers.base import Run, bind
from mini_bert.layers.chosen import RowLayout, choose_rows, choose_rows_backward, row_layout
from mini_bert.layers.lean_attention import LeanAttention


class ChosenCache(NamedTuple):
    """The fields of an AttentionCache, for the chosen queries, and where these come from."""

    x: np.ndarray  # (B,T,H)
    q: np.ndarray  # (B,A,M,d)
    k: np.ndarray  # (B,A,T,d)
    attended: Any
    context: np.ndarray  # (N,H)
    layout: RowLayout
    rows: Any  # cache of choose_rows
    queries: np.ndarray  # (N,H) x[chosen]


class EfficientAttention(LeanAttention):
    """y = MultiHeadAttention(x)[chosen]        y (N,H); without `chosen`, (B,T,H)"""

    def forward(self, x, run, mask=None, chosen=None, **more):  # x (B,T,H)
        if chosen is None:
            return super().forward(x, run, mask, **more)
        B, T, _ = x.shape
        layout = row_layout(chosen, B, T)
        queries, rows = choose_rows(x, chosen)  # (N,H)
        q, _ = self._w_q().forward(queries, run)  # (N,H)
        kv, _ = self._w_kv().forward(x, run)  # (B,T,2H)
        (q,) = self.split_heads(layout.to_batch(q), 1)  # (B,A,M,d)
        k, v = self.split_heads(kv, 2)  # (B,A,T,d) each
        q, k, v = self.before_scores(q, k, v, tokens=layout.token, **more)
        if mask is not None and mask.shape[-2] > 1:  # the mask differs between queries
            mask = np.take_along_axis(np.broadcast_to(mask, (B, 1, T, k.shape[2])), layout.token[:, None, :, None], 2)
        at = layout.query_rows(self.heads)
        context, attended = self.dot_product_attention(q, k, v, run, mask, at)  # (B,A,M,d)
        context = layout.to_list(context.transpose(0, 2, 1, 3))  # (N,H)
        y, _ = self.output.forward(context, run)  # (N,H)
        return y, ChosenCache(x, q, k, attended, context, layout, rows, queries)

    def backward(self, dy, cache, run):  # dy (N,H), or (B,T,H)
        if not isinstance(cache, ChosenCache):
            return super().backward(dy, cache, run)
        layout = cache.layout
        djoined = layout.to_batch(self.output.backward(dy, cache.context, run))  # (B,M,H)
        (dcontext,) = self.split_heads(djoined, 1)  # (B,A,M,d)
        dq, dk, dv = self.dot_product_attention_backward(dcontext, cache, run)
        dq, dk, dv = self.before_scores_backward(dq, dk, dv, cache)
        dqueries = self._w_q().backward(layout.to_list(dq.transpose(0, 2, 1, 3)), cache.queries, run)  # (N,H)
        dx = self._w_kv().backward(self.join_heads(dk, dv), cache.x, run)
        dx += choose_rows_backward(dqueries, cache.rows)
        return dx  # (B,T,H)

    def _w_q(self):
        return self.qkv.outputs(slice(0, self.width))

    def _w_kv(self):
        return self.qkv.outputs(slice(self.width, None))


if __name__ == "__main__":
    plain, efficient = MultiHeadAttention(8, heads=2), EfficientAttention(8, heads=2)
    bind(efficient, bind(plain, seed=0).data)
    x = np.random.default_rng(1).normal(size=(2, 6, 8)).astype(np.float32)
    y, _ = plain.forward(x, Run())
    chosen = np.array([1, 4, 9])
    some, cache = efficient.forward(x, Run(), chosen=chosen)
    print(f"rows 1, 4 and 9 of 12: queries {cache.q.shape}, keys {cache.k.shape}, y {some.shape}")
    print(f"largest difference from the plain layer: {np.abs(some - y.reshape(12, 8)[chosen]).max():.0e}")
