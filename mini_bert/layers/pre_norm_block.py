"""The block with norms before the sublayers ("pre-norm"): GPT-2, ModernBERT, and nearly every model since.

    x' = x + dropout(Attention(LayerNorm(x)))
    y  = x' + dropout(FeedForward(LayerNorm(x')))

BERT normalises after each addition (block.py), so its residual stream passes through 2L norms, and so does the gradient
on its way back. Here, only what enters a sublayer is normalised. The stream itself is a plain sum: every block adds to
it, nothing rescales it, and the gradient at the output reaches each block unchanged, plus what the sublayers above add.
Deep models train without a long warm-up. The price: the stream grows with depth, and the model needs one norm after the
last block. (Radford et al. 2019; Xiong et al. 2020, "On layer normalization in the transformer architecture".)

Backward. Of a sum, both terms get the gradient; the sublayer's share comes back through its norm:

    dx' = dy + LN′(FF′(dy))            dx = dx' + LN′(Attention′(dx'))

Attention and feed-forward network are passed in, so that GPT-2 and ModernBERT share the block. `feed_forward.forward`
takes (x, run, at); `attention.forward` takes (x, run, mask, chosen) and what else the block is given (a past).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from mini_bert.layers.attention import named_arrays
from mini_bert.layers.base import Layer, Run, Unchanged, bind
from mini_bert.layers.chosen import choose_rows, choose_rows_backward
from mini_bert.layers.dropout import dropout, dropout_backward
from mini_bert.layers.efficient_attention import EfficientAttention
from mini_bert.layers.feed_forward import FeedForward
from mini_bert.layers.layer_norm import LayerNorm, LayerNormCache


class PreNormCache(NamedTuple):
    input: np.ndarray  # (B,T,H)
    attention_norm: LayerNormCache | None
    attention: Any  # AttentionCache or ChosenCache
    chosen: Any  # cache of choose_rows, or None
    attention_dropped: Any
    feed_forward_norm: LayerNormCache
    feed_forward: Any
    output_dropped: Any

    @property
    def attention_weights(self) -> np.ndarray:  # (B,A,T,T)
        """Lean attention computes them on each access."""
        return self.attention.attended.probs

    def named(self) -> dict[str, np.ndarray]:
        """Norms are shown as x̂, before γ and β; `feed_forward_inner` is what the second product reads."""
        norm = {} if self.attention_norm is None else {"attention_norm": self.attention_norm.x_hat}
        return {
            **norm,
            **named_arrays(self.attention),
            "feed_forward_norm": self.feed_forward_norm.x_hat,
            "feed_forward_inner": self.feed_forward.contract,
        }


class PreNormBlock(Layer):
    """x' = x + Attention(LN(x)),  y = x' + FeedForward(LN(x'))"""

    switches = Layer.switches | {"attention"}

    def __init__(
        self,
        attention_norm: LayerNorm | Unchanged,
        attention: Any,
        feed_forward_norm: LayerNorm,
        feed_forward: Any,
        p: float = 0.0,
        feed_forward_p: float = 0.0,
    ):
        """p: dropout after attention; feed_forward_p: after the feed-forward network"""
        self.attention_norm, self.attention = attention_norm, attention
        self.feed_forward_norm, self.feed_forward = feed_forward_norm, feed_forward
        self.p, self.feed_forward_p = p, feed_forward_p

    def forward(self, x, run, mask=None, chosen=None, **more):  # x (B,T,H)
        """With `chosen`, y is (N,H): everything after the keys and values runs on these rows only (chosen.py)."""
        start = x
        n, attention_norm = self.attention_norm.forward(x, run)
        a, attention = self.attention.forward(n, run.fork(0), mask=mask, chosen=chosen, **more)
        rows = at = None
        if chosen is not None:
            at = np.divmod(chosen, x.shape[1])  # sequence and token of each row
            x, rows = choose_rows(x, chosen)
        a, attention_dropped = dropout(a, self.p, run.fork(1), at)
        a += x  # x', in place
        n, feed_forward_norm = self.feed_forward_norm.forward(a, run)
        y, feed_forward = self.feed_forward.forward(n, run.fork(2), at)
        feed_forward = feed_forward._replace(expand=None)  # its input n: backward recomputes it from x̂
        y, output_dropped = dropout(y, self.feed_forward_p, run.fork(3), at)
        y += a
        return y, PreNormCache(
            start, attention_norm, attention, rows, attention_dropped, feed_forward_norm, feed_forward, output_dropped
        )

    def backward(self, dy, cache, run):  # dy (B,T,H) or (N,H)
        df = dropout_backward(dy, cache.output_dropped)
        n = self.feed_forward_norm.rescale(cache.feed_forward_norm.x_hat)
        dn = self.feed_forward.backward(df, cache.feed_forward._replace(expand=n), run)
        del n
        dx = self.feed_forward_norm.backward(dn, cache.feed_forward_norm, run)
        dx += dy  # the gradient of x', and of both terms of x + a
        da = dropout_backward(dx, cache.attention_dropped)
        dn = self.attention.backward(da, cache.attention, run)  # (B,T,H)
        if cache.chosen is not None:
            dx = choose_rows_backward(dx, cache.chosen)
        dx += self.attention_norm.backward(dn, cache.attention_norm, run)
        return dx


if __name__ == "__main__":
    x = np.random.default_rng(0).normal(size=(2, 5, 8)).astype(np.float32)
    y, caches = x, []
    blocks = [
        PreNormBlock(LayerNorm(8), EfficientAttention(8, heads=2), LayerNorm(8), FeedForward(8, 32)) for _ in range(4)
    ]
    for block in blocks:
        bind(block, seed=0)
        y, cache = block.forward(y, Run())
        caches.append(cache)
        print(f"{y.shape}: the stream has grown from {x.std():.2f} to {y.std():.2f}")
    dx = np.ones_like(y)
    for block in reversed(blocks):
        dx = block.backward(dx, caches.pop(), Run())
    print(f"the gradient went from 1 to {dx.mean():.2f} ± {dx.std():.2f}")
