"""Attention with a past: new tokens attend to the keys and values of earlier ones, which were kept.

    K = [k_past; k]     V = [v_past; v]     C = softmax(q Kᵀ/√d) V        q, k, v: of the T new tokens

A causal model writes one token at a time. Nothing that it computed for earlier tokens changes when one is added,
because no token sees a later one. Of the earlier tokens, only their keys and values are needed again. With these, a new
token costs one row instead of a whole sequence.

This is the attention that training uses: without a past, it is EfficientAttention. The past is an input, and the cache
has the longer one: `k` and `attended.v` are K and V.

Backward. K and V are concatenations, so their gradients are split. The past was computed before and gets none:

    dk = dK[P:]     dv = dV[P:]          for P tokens in the past
"""

from __future__ import annotations

import numpy as np

from mini_bert.layers.base import Run, bind
from mini_bert.layers.efficient_attention import EfficientAttention
from mini_bert.layers.masks import causal


class PastAttention(EfficientAttention):
    """C = softmax(q [k_past; k]ᵀ/√d) [v_past; v]        dk = dK[P:],   dv = dV[P:]"""

    def before_scores(self, q, k, v, tokens=None, past=None):
        """past: k and v of earlier tokens, (B,A,P,d) each"""
        if past is None:
            return q, k, v
        earlier_k, earlier_v = past
        return q, np.concatenate([earlier_k, k], 2), np.concatenate([earlier_v, v], 2)

    def before_scores_backward(self, dq, dk, dv, cache):
        T = cache.x.shape[1]  # the new tokens are the last
        return dq, dk[:, :, -T:], dv[:, :, -T:]


if __name__ == "__main__":
    layer, run = PastAttention(8, heads=2), Run()
    bind(layer, seed=0)
    x = np.random.default_rng(0).normal(size=(1, 6, 8)).astype(np.float32)
    whole, _ = layer.forward(x, run, mask=causal(6))
    past = None
    for first, last in ((0, 3), (3, 4), (4, 5), (5, 6)):
        y, cache = layer.forward(x[:, first:last], run, mask=causal(last - first, last), past=past)
        past = cache.k, cache.attended.v
        apart = np.abs(y - whole[:, first:last]).max()
        print(f"tokens {first} to {last - 1}, {cache.k.shape[2]} keys: {apart:.0e} from all six at once")
