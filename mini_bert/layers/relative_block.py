"""The block of Transformer-XL: BERT's block with relative attention and a memory.

    x' = LayerNorm(x + dropout(Attention([m, x])))                   m: the memory, (B,M,H), no gradient
    y  = LayerNorm(x' + dropout(FeedForward(x')))

Attention reads the memory, the input that this block had in the previous segment, before the tokens of this one. The
rest is BERT's block (block.py). With norms before the sublayers ("pre-norm"), the memory is normalised as well:

    n  = LayerNorm([m, x])
    x' = x + dropout(Attention(n))
    y  = x' + dropout(FeedForward(LayerNorm(x')))

Backward. As in block.py, where the gradient of a sum goes both ways. The memory gets no gradient, but γ and β of the
norm that it passes through, and W_k and W_v, do: they are used for the memory as for any token.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from mini_bert.layers.base import Layer, Run, bind
from mini_bert.layers.chosen import choose_rows, choose_rows_backward
from mini_bert.layers.dropout import dropout, dropout_backward
from mini_bert.layers.feed_forward import FeedForward, FeedForwardCache
from mini_bert.layers.layer_norm import LayerNorm, LayerNormCache
from mini_bert.layers.relative_attention import (
    RelativeAttention,
    RelativeCache,
    after_memory,
    distance_waves,
    named_relative_arrays,
)


class RestCache(NamedTuple):
    """What follows attention."""

    attention_dropped: Any
    attention_norm: LayerNormCache | None  # None: this norm comes before attention
    feed_forward: FeedForwardCache
    output_dropped: Any
    output_norm: LayerNormCache

    def named(self) -> dict[str, np.ndarray]:
        named = {} if self.attention_norm is None else {"attention_norm": self.attention_norm.x_hat}
        return named | {"feed_forward_inner": self.feed_forward.contract, "output_norm": self.output_norm.x_hat}


class RelativeBlockCache(NamedTuple):
    attention: RelativeCache
    chosen: Any  # cache of choose_rows, or None
    rest: RestCache

    @property
    def input(self) -> np.ndarray:  # (B,T,H)
        return self.attention.x

    @property
    def attention_weights(self) -> np.ndarray:  # (B,A,T,T), without those of the memory
        return named_relative_arrays(self.attention)["attention_weights"]

    def named(self) -> dict[str, np.ndarray]:
        return named_relative_arrays(self.attention) | self.rest.named()


class RelativeBlock(Layer):
    """x' = LN(x + Attention([m, x])),  y = LN(x' + FeedForward(x'))"""

    def __init__(
        self,
        width: int,
        heads: int,
        head_size: int,
        inner: int,
        activation: str = "relu",
        p: float = 0.0,
        attention_p: float = 0.0,
        eps: float = 1e-5,
        std: float | None = None,
    ):
        self.p = p
        self.attention = RelativeAttention(width, heads, head_size, attention_p, std)
        self.attention_norm = LayerNorm(width, eps)
        self.feed_forward = FeedForward(width, inner, activation, std, p)
        self.output_norm = LayerNorm(width, eps)

    def forward(self, x, run, waves, memory=None, mask=None, chosen=None):  # x (B,T,H)
        """waves: see RelativeAttention. With `chosen`, y is (N,H)."""
        a, attention = self.attention.forward(x, run.fork(0), waves, memory, mask=mask, chosen=chosen)
        rows = at = None
        if chosen is not None:
            at = np.divmod(chosen, x.shape[1])  # sequence and token of each row
            x, rows = choose_rows(x, chosen)
        y, rest = self.rest(x, a, run, at)
        return y, RelativeBlockCache(attention, rows, rest)

    def backward(self, dy, cache, run):  # dy (B,T,H) or (N,H)
        dx, da = self.rest_backward(dy, cache.rest, run)
        if cache.chosen is not None:
            dx = choose_rows_backward(dx, cache.chosen)
        dx += self.attention.backward(da, cache.attention, run)
        return dx

    def rest(self, x, a, run, at=None):
        """LN(x' + FeedForward(x')), x' = LN(x + a)        x, a (B,T,H) or (N,H); a is overwritten"""
        a, attention_dropped = dropout(a, self.p, run.fork(1), at)
        a += x
        x, attention_norm = self.attention_norm.forward(a, run)
        f, feed_forward = self.feed_forward.forward(x, run.fork(2), at)
        feed_forward = feed_forward._replace(expand=None)  # its input x': backward recomputes it from x̂
        f, output_dropped = dropout(f, self.p, run.fork(3), at)
        f += x
        y, output_norm = self.output_norm.forward(f, run)
        return y, RestCache(attention_dropped, attention_norm, feed_forward, output_dropped, output_norm)

    def rest_backward(self, dy, cache: RestCache, run):
        """Returns dx and da."""
        dx = self.output_norm.backward(dy, cache.output_norm, run)  # gradient of x' + f, and of both terms
        df = dropout_backward(dx, cache.output_dropped)
        assert cache.attention_norm is not None
        x = self.attention_norm.rescale(cache.attention_norm.x_hat)
        dx += self.feed_forward.backward(df, cache.feed_forward._replace(expand=x), run)
        del x
        dx = self.attention_norm.backward(dx, cache.attention_norm, run)  # gradient of x + a
        return dx, dropout_backward(dx, cache.attention_dropped)


class PreNormCache(NamedTuple):
    input: np.ndarray  # (B,T,H)
    norm: LayerNormCache  # (B,K,H) of the memory and the tokens
    attention: RelativeCache
    chosen: Any
    rest: RestCache

    @property
    def attention_weights(self) -> np.ndarray:
        return named_relative_arrays(self.attention)["attention_weights"]

    def named(self) -> dict[str, np.ndarray]:
        norm = self.norm.x_hat[:, self.attention.keys.first :]
        return named_relative_arrays(self.attention) | self.rest.named() | {"attention_norm": norm}


class PreNormRelativeBlock(RelativeBlock):
    """x' = x + Attention(LN([m, x])),  y = x' + FeedForward(LN(x'))"""

    def forward(self, x, run, waves, memory=None, mask=None, chosen=None):  # x (B,T,H)
        T = x.shape[1]
        both = after_memory(memory, x)  # (B,K,H)
        n, norm = self.attention_norm.forward(both, run)
        a, attention = self.attention.forward(n, run.fork(0), waves, queries=T, mask=mask, chosen=chosen)
        rows, at, kept = None, None, x
        if chosen is not None:
            at = np.divmod(chosen, T)
            x, rows = choose_rows(x, chosen)
        y, rest = self.rest(x, a, run, at)
        return y, PreNormCache(kept, norm, attention, rows, rest)

    def backward(self, dy, cache, run):
        dx, da = self.rest_backward(dy, cache.rest, run)
        if cache.chosen is not None:
            dx = choose_rows_backward(dx, cache.chosen)
        dn = self.attention.backward(da, cache.attention, run)  # (B,K,H)
        dboth = self.attention_norm.backward(dn, cache.norm, run)
        return dx + dboth[:, cache.attention.keys.first :]

    def rest(self, x, a, run, at=None):
        """x' + FeedForward(LN(x')), x' = x + a"""
        a, attention_dropped = dropout(a, self.p, run.fork(1), at)
        a += x
        n, output_norm = self.output_norm.forward(a, run)
        f, feed_forward = self.feed_forward.forward(n, run.fork(2), at)
        feed_forward = feed_forward._replace(expand=None)
        f, output_dropped = dropout(f, self.p, run.fork(3), at)
        f += a
        return f, RestCache(attention_dropped, None, feed_forward, output_dropped, output_norm)

    def rest_backward(self, dy, cache: RestCache, run):
        df = dropout_backward(dy, cache.output_dropped)
        n = self.output_norm.rescale(cache.output_norm.x_hat)
        dn = self.feed_forward.backward(df, cache.feed_forward._replace(expand=n), run)
        dx = dy + self.output_norm.backward(dn, cache.output_norm, run)
        return dx, dropout_backward(dx, cache.attention_dropped)


if __name__ == "__main__":
    block = RelativeBlock(8, heads=2, head_size=4, inner=32)
    bind(block, seed=0)
    x, memory = np.random.default_rng(0).normal(size=(2, 1, 3, 8)).astype(np.float32)
    causal = np.tri(3, 6, 3, dtype=bool)
    y, cache = block.forward(x, Run(), distance_waves(3, 6, 8, later=False), memory, causal)
    print("three tokens after a memory of three. The weights of head 0, the memory first:")
    print(cache.attention.stream.attended.probs[0, 0].round(2))
    print(f"x {x.shape}, memory {memory.shape} -> y {y.shape}, dx {block.backward(y, cache, Run()).shape}")
