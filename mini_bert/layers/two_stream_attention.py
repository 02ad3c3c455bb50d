"""Two streams of attention: predict any word from any others, without seeing it (XLNet).

XLNet predicts the words of a sequence in a random order, each from those before it in that order. At a place i two
different vectors are needed:

    h_i   content stream: what is known of the word at i, its own embedding included, for the words that come later
    g_i   query stream: what is known of the place i without its word, to predict that word

    h'_i = Attention(queries h_i, keys and values h_j, for all j with order_j ≤ order_i)
    g'_i = Attention(queries g_i, keys and values h_j, for all j with order_j < order_i)     (Yang et al. 2019, eq. 3-4)

Both use the same weights; g starts as the same learnt vector at every place. No query ever reads g of another place, so
g is needed at the predicted words only. The order decides which keys are visible; distances are still those in the text
(relative_attention.py), and from these g_i learns where in the text its word is missing.

Backward. The two streams share keys and values, and their gradients are added:

    dk = dk_content + dk_query,   the same for v and r;       dh: from its queries, and from k and v;   dg: from its own

**Relative segments.** The scores have a third term: whether query and key are in the same text (of a pair).

    S_ij += (q_i + s) · e_{σ(i,j)} / √d          σ = 0 in the same text, 1 in different ones        e (2,A,d), s (A,d)

Only two products per query are needed; σ selects one of the two for each key. Backward, with E_iσ = (q_i + s) · e_σ:

    dE_iσ = Σ_{j: σ(i,j) = σ} dS_ij        dq_i += Σ_σ dE_iσ e_σ        de_σ = Σ_i dE_iσ (q_i + s)        ds = Σ_i dq_i
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from mini_bert.layers.base import Layer, Param, Run, bind
from mini_bert.layers.chosen import choose_rows, choose_rows_backward, row_layout
from mini_bert.layers.initialisers import normal
from mini_bert.layers.matrices import total
from mini_bert.layers.relative_attention import Keys, RelativeAttention, Stream, distance_waves


class RelativeSegments(Layer):
    """S_ij = (q_i + s) · e_{σ(i,j)}        de_σ += Σ_i dE_iσ (q_i + s),   ds += Σ_i dq_i"""

    def __init__(self, heads: int, head_size: int, std: float = 0.02):
        self.embedding = Param((2, heads, head_size), normal(std))  # e
        self.bias = Param((heads, head_size), normal(std), decay=False)  # s

    def scores(self, q, differs):  # q (B,A,T,d), differs (B,1,T,K) booleans: σ
        each = (q + self.bias.data[:, None]) @ self._table().swapaxes(-1, -2)  # E (B,A,T,2)
        return np.where(differs, each[..., 1:], each[..., :1])  # (B,A,T,K)

    def scores_backward(self, dscores, q, differs):
        """Returns dq."""
        other = total(np.where(differs, dscores, 0))
        deach = np.concatenate([total(dscores) - other, other], -1)  # dE (B,A,T,2)
        shifted = q + self.bias.data[:, None]
        self.embedding.add((deach.swapaxes(-1, -2) @ shifted).sum(0).swapaxes(0, 1))  # (2,A,d)
        dq = deach @ self._table()  # (B,A,T,d)
        self.bias.add(dq.sum((0, 2)))
        return dq

    def _table(self):
        return self.embedding.data[...].swapaxes(0, 1)  # (A,2,d)


class TwoStreamCache(NamedTuple):
    keys: Keys
    content: Stream | None  # None: not computed
    query: Stream | None
    rows: Any = None  # cache of choose_rows, for rows of the content stream

    @property
    def x(self) -> np.ndarray:  # (B,T,H)
        return self.keys.x[:, self.keys.first :]


class TwoStreamAttention(RelativeAttention):
    """h' = Attention(h; h),   g' = Attention(g; h), with the same weights        h (B,T,H), g (N,H)"""

    def __init__(self, width: int, heads: int, head_size: int, p: float = 0.0, std: float = 0.02):
        super().__init__(width, heads, head_size, p, std)
        self.segments = RelativeSegments(heads, head_size, std)

    def forward(self, h, g, run, waves, memory=None, mask=None, query_mask=None, differs=None, chosen=None, last=False):
        """Returns (h', g') and the cache.

        h (B,T,H) are the keys and values. g (N,H) are the queries at the chosen rows (b·T + t), which see `query_mask`;
        None: only the content stream. Then `chosen` selects rows of the content stream: h' (N,H).
        differs: (B,1,T,K) σ, or None without segments. last: h' is not needed, and None.
        """
        keys = self.keys(h, run, waves, memory)
        layout = None if chosen is None else row_layout(chosen, *h.shape[:2])
        if g is None:
            tokens, rows = (h, None) if chosen is None else choose_rows(h, chosen)
            y, content = self.stream(tokens, keys, run.fork(0), mask, layout, differs)
            return (y, None), TwoStreamCache(keys, self._kept(content, keys), None, rows)
        y = content = None
        if not last:
            y, content = self.stream(h, keys, run.fork(0), mask, None, differs)
            content = self._kept(content, keys)
        z, query = self.stream(g, keys, run.fork(1), query_mask, layout, differs)
        return (y, z), TwoStreamCache(keys, content, query)

    def backward(self, dy, cache, run):
        """dy = (dh', dg'), None where that output is not part of the loss. Returns dh and dg."""
        dstreams: list[Any] = []
        dkeys: Any = None
        for dstream, stream in zip(dy, (cache.content, cache.query), strict=True):
            if stream is None or dstream is None:
                dstreams.append(None)
                continue
            dtokens, found = self.stream_backward(dstream, stream, cache.keys, run)
            dstreams.append(dtokens)
            dkeys = found if dkeys is None else [a + b for a, b in zip(dkeys, found, strict=True)]
        dh = self.keys_backward(dkeys, cache.keys, run)
        dcontent, dg = dstreams
        if dcontent is not None:
            dh += dcontent if cache.rows is None else choose_rows_backward(dcontent, cache.rows)
        return dh, dg

    def _kept(self, stream: Stream, keys: Keys) -> Stream:
        """All tokens are part of the keys already: keep them once."""
        return stream if stream.layout is not None else stream._replace(x=keys.x[:, keys.first :])


if __name__ == "__main__":
    layer, run = TwoStreamAttention(8, heads=2, head_size=4, std=0.5), Run()
    bind(layer, seed=0)
    h = np.random.default_rng(0).normal(size=(1, 4, 8)).astype(np.float32)
    types = np.array([0, 0, 1, 1])
    differs = (types[:, None] != types)[None, None]
    order, chosen = np.array([0, 2, 0, 1]), np.array([1, 3])
    masks = {"mask": order[:, None] >= order, "query_mask": order[:, None] > order}
    waves = distance_waves(4, 4, 8, later=True)
    (y, z), cache = layer.forward(h, h[0, chosen], run, waves, differs=differs, chosen=chosen, **masks)
    print("the place of each word in the order of prediction:", order)
    print("word 1 as content sees all four words, as a query all but itself; head 0:")
    print(cache.content.attended.probs[0, 0, 1].round(2), cache.query.attended.probs[0, 0, 0].round(2))
    dh, dg = layer.backward((np.ones_like(y), np.ones_like(z)), cache, run)
    print(f"h {h.shape}, g {z.shape} -> {y.shape}, {z.shape}; dh {dh.shape}, dg {dg.shape}")
