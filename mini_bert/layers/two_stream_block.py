"""The block of XLNet: Transformer-XL's block for two streams, which share all weights (two_stream_attention.py).

    h' = LayerNorm(h + dropout(Attention(h; h)))         h'' = LayerNorm(h' + dropout(FeedForward(h')))
    g' = LayerNorm(g + dropout(Attention(g; h)))         g'' = LayerNorm(g' + dropout(FeedForward(g')))

Backward. Each stream goes back through norms, feed-forward network and residual connections on its own; the gradients
of the weights add up. In attention the streams meet: the gradients of keys and values, which both read, go to h.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from mini_bert.layers.base import Run, bind
from mini_bert.layers.chosen import choose_rows, choose_rows_backward
from mini_bert.layers.relative_attention import RelativeCache, distance_waves, named_keys, named_relative_arrays
from mini_bert.layers.relative_block import RelativeBlock, RestCache
from mini_bert.layers.two_stream_attention import TwoStreamAttention, TwoStreamCache

QUERY_STREAM = "query_stream_"  # before the usual names, for the arrays of the query stream


class TwoStreamBlockCache(NamedTuple):
    attention: TwoStreamCache
    chosen: Any  # cache of choose_rows, or None
    content: RestCache | None  # None: not computed
    query: RestCache | None

    @property
    def input(self) -> np.ndarray:  # (B,T,H)
        return self.attention.x

    @property
    def attention_weights(self) -> np.ndarray:  # (B,A,T,T), of the content stream, without those of the memory
        stream = self.attention.content
        if stream is None:
            raise ValueError(
                "the content stream of the last block was not computed, because only the chosen rows of the query "
                "stream were needed; encode without `chosen` to see its attention weights"
            )
        return stream.attended.probs[..., self.attention.keys.first :]

    def named(self) -> dict[str, np.ndarray]:
        keys, content, query, _ = self.attention
        named = named_keys(keys)
        if content is not None and self.content is not None:
            named = named_relative_arrays(RelativeCache(keys, content)) | self.content.named()
        if query is not None and self.query is not None:
            found = named_relative_arrays(RelativeCache(keys, query)) | self.query.named()
            found = {name: array for name, array in found.items() if name not in named_keys(keys)}
            named |= {f"{QUERY_STREAM}{name}": array for name, array in {"input": query.x, **found}.items()}
        return named


class TwoStreamBlock(RelativeBlock):
    """(h'', g'') from (h, g)        h (B,T,H), g (N,H) at the chosen rows, or None"""

    def __init__(self, width: int, heads: int, inner: int, activation: str, p: float, eps: float, std: float):
        super().__init__(width, heads, width // heads, inner, activation, p, p, eps, std)
        self.attention: TwoStreamAttention = TwoStreamAttention(width, heads, width // heads, p, std)

    def forward(self, h, g, run, chosen=None, **inputs):  # h (B,T,H)
        """The other inputs are those of TwoStreamAttention. Without g, `chosen` selects rows of h: (N,H)."""
        (a, b), attention = self.attention.forward(h, g, run.fork(0), chosen=chosen, **inputs)
        at = None if chosen is None else np.divmod(chosen, h.shape[1])  # sequence and token of each row
        rows = content = query = y = z = None
        if a is not None:
            everything = g is not None or chosen is None
            if not everything:
                h, rows = choose_rows(h, chosen)
            y, content = self.rest(h, a, run.fork(1), None if everything else at)
        if b is not None:
            z, query = self.rest(g, b, run.fork(2), at)
        return (y, z), TwoStreamBlockCache(attention, rows, content, query)

    def backward(self, dy, cache, run):
        """dy = (dh'', dg''). Returns (dh, dg)."""
        (dh, da), (dg, db) = (
            (None, None) if rest is None or d is None else self.rest_backward(d, rest, run)
            for d, rest in zip(dy, (cache.content, cache.query), strict=True)
        )
        if cache.chosen is not None:
            dh = choose_rows_backward(dh, cache.chosen)
        dh_attention, dg_attention = self.attention.backward((da, db), cache.attention, run)
        if dh is not None:
            dh_attention += dh
        if dg is not None:
            dg_attention += dg
        return dh_attention, dg_attention


if __name__ == "__main__":
    block = TwoStreamBlock(8, heads=2, inner=32, activation="gelu", p=0.0, eps=1e-12, std=0.3)
    bind(block, seed=0)
    h = np.random.default_rng(0).normal(size=(1, 4, 8)).astype(np.float32)
    order, chosen = np.array([0, 2, 0, 1]), np.array([1, 3])  # words 1 and 3 are predicted: first 3, then 1
    masks = {"mask": order[:, None] >= order, "query_mask": order[:, None] > order}
    g = np.zeros((2, 8), np.float32)
    (y, z), cache = block.forward(h, g, Run(), waves=distance_waves(4, 4, 8, later=True), chosen=chosen, **masks)
    print("words 0 and 2 are context; word 3 is predicted from them, then word 1 from all others")
    named = cache.named()
    print("content stream, head 0:\n", named["attention_weights"][0, 0].round(2), sep="")
    print("query stream, words 1 and 3:\n", named["query_stream_attention_weights"][0, 0].round(2), sep="")
    print(f"h {h.shape}, g {g.shape} -> {y.shape}, {z.shape}")
