"""Efficient attention: MultiHeadAttention with two savings, as the blocks use it.

    y = MultiHeadAttention(x)[chosen]

Row selection. With `chosen`, only these rows are queries; all tokens are keys and values. Where the loss needs 15 % of
the rows, the last block computes no others (chosen.py). W_q is then applied to the chosen rows, W_k and W_v to all.

Tiling. Scores and weights have T² numbers per head. Lean attention computes the same result in tiles, with memory that
grows with T instead (lean_attention.py).

Both are tested against the plain layer. With neither, this layer *is* the plain layer.
"""

from typing import Any, NamedTuple

import numpy as np

from mini_bert.layers.attention import AttentionCache, MultiHeadAttention, attend, attend_backward
from mini_bert.layers.base import Run, bind
from mini_bert.layers.chosen import RowLayout, choose_rows, choose_rows_backward, row_layout
from mini_bert.layers.lean_attention import TILE, LeanCache, lean_attend, lean_attend_backward

METHODS = ("auto", "plain", "lean")
LONG = 512  # tokens. Above, lean attention needs 1/2 to 1/25 of the memory, and at most 1.05 times the time


def is_lean(method: str, tokens: int) -> bool:
    """Whether this method computes attention over so many tokens in tiles."""
    if method not in METHODS:
        raise ValueError(f"the attention method is {method!r}, expected one of {', '.join(METHODS)}")
    return method == "lean" or (method == "auto" and tokens > LONG)


class Selected(NamedTuple):
    layout: RowLayout
    rows: Any  # cache of choose_rows
    queries: np.ndarray  # (N,H) x[chosen]


class EfficientAttention(MultiHeadAttention):
    """y = MultiHeadAttention(x)[chosen]        y (B,T,H), or (N,H) with `chosen`

    method  "plain": the formula as written; "lean": in tiles; "auto": in tiles for more than LONG tokens.
            All give the same numbers up to rounding, with the same dropout.
    """

    method = "auto"
    tile = TILE

    def forward(self, x, run, mask=None, chosen=None):  # x (B,T,H)
        B, T, _ = x.shape
        lean = is_lean(self.method, T)
        if chosen is None:
            if not lean:
                return super().forward(x, run, mask)
            selected = at = None
            q, k, v = self.split_heads(self.qkv.forward(x, run)[0], 3)  # (B,A,T,d) each
        else:
            layout = row_layout(chosen, B, T)
            queries, rows = choose_rows(x, chosen)  # (N,H)
            selected, at = Selected(layout, rows, queries), layout.query_rows(self.heads)
            (q,) = self.split_heads(layout.to_batch(self._w_q().forward(queries, run)[0]), 1)  # (B,A,M,d)
            k, v = self.split_heads(self._w_kv().forward(x, run)[0], 2)  # (B,A,T,d)
            if mask is not None and mask.shape[-2] > 1:  # the mask differs between queries
                mask = np.take_along_axis(np.broadcast_to(mask, (B, 1, T, T)), layout.token[:, None, :, None], 2)
        attended: Any
        if lean:
            context, attended = lean_attend(q, k, v, self.scale, run, mask, self.p, self.tile, at)  # (B,A,M,d)
        else:
            scores = q @ k.swapaxes(-1, -2)  # (B,A,M,T)
            scores *= self.scale
            context, attended = attend(scores, v, run, mask, self.p, at)  # (B,A,M,d)
        context = context.transpose(0, 2, 1, 3)  # (B,M,A,d)
        joined = context.reshape(x.shape) if selected is None else selected.layout.to_list(context)
        y, output = self.output.forward(joined, run)
        return y, AttentionCache(x, q, k, attended, output, selected)

    def backward(self, dy, cache, run):  # dy (B,T,H) or (N,H)
        lean = isinstance(cache.attended, LeanCache)
        if cache.selected is None and not lean:
            return super().backward(dy, cache, run)
        djoined = self.output.backward(dy, cache.output, run)
        if cache.selected is not None:
            djoined = cache.selected.layout.to_batch(djoined)
        (dcontext,) = self.split_heads(djoined, 1)  # (B,A,M,d)
        if lean:
            dq, dk, dv = lean_attend_backward(dcontext, cache.attended, run)
        else:
            dscores, dv = attend_backward(dcontext, cache.attended)
            dscores *= self.scale
            dq = dscores @ cache.k
            dk = dscores.swapaxes(-1, -2) @ cache.q
        if cache.selected is None:
            return self.qkv.backward(self.join_heads(dq, dk, dv), cache.projected, run)  # dx (B,T,H)
        layout, rows, queries = cache.selected
        dqueries = self._w_q().backward(layout.to_list(dq.transpose(0, 2, 1, 3)), queries, run)  # (N,H)
        dx = self._w_kv().backward(self.join_heads(dk, dv), cache.projected, run)
        dx += choose_rows_backward(dqueries, rows)
        return dx

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
    for efficient.method in ("plain", "lean"):
        some, cache = efficient.forward(x, Run(), chosen=chosen)
        apart = np.abs(some - y.reshape(12, 8)[chosen]).max()
        print(f"{efficient.method}: rows 1, 4 and 9 of 12 have queries {cache.q.shape}, keys {cache.k.shape};")
        print(f"       {apart:.0e} from those rows of the plain layer")
