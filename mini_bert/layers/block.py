"""The transformer block: attention between the tokens, then a feed-forward network for each. BERT has L of them.

    x' = LayerNorm(x + dropout(Attention(x)))
    y  = LayerNorm(x' + dropout(FeedForward(x')))

Each half *adds* its result to its input (a residual connection), so a block can pass its input on unchanged, and
gradients have a direct path past every half. BERT normalises after the addition ("post-norm").

Backward. The gradient of a sum goes to both terms: into the half, and past it. Where the two paths meet again, the
gradients are added.
"""

from typing import Any, NamedTuple

import numpy as np

from mini_bert.layers.attention import named_arrays
from mini_bert.layers.base import Layer, Run, bind
from mini_bert.layers.chosen import choose_rows, choose_rows_backward
from mini_bert.layers.dropout import dropout, dropout_backward
from mini_bert.layers.efficient_attention import EfficientAttention
from mini_bert.layers.feed_forward import FeedForward, FeedForwardCache
from mini_bert.layers.layer_norm import LayerNorm, LayerNormCache


class BlockCache(NamedTuple):
    """Of any kind of block, the cache has `input`, `attention_weights` and `named`: models/cache.py reads these."""

    attention: Any  # AttentionCache or ChosenCache
    chosen: Any  # cache of choose_rows, or None
    attention_dropped: Any
    attention_norm: LayerNormCache
    feed_forward: FeedForwardCache
    output_dropped: Any
    output_norm: LayerNormCache

    @property
    def input(self) -> np.ndarray:  # (B,T,H)
        return self.attention.x

    @property
    def attention_weights(self) -> np.ndarray:  # (B,A,T,T)
        """Lean attention computes them on each access."""
        return self.attention.attended.probs

    def named(self) -> dict[str, np.ndarray]:
        """Norms are shown as x̂, before γ and β; `feed_forward_inner` is the activated hidden layer."""
        return {
            **named_arrays(self.attention),
            "attention_norm": self.attention_norm.x_hat,
            "feed_forward_inner": self.feed_forward.contract,
            "output_norm": self.output_norm.x_hat,
        }


class TransformerBlock(Layer):
    """x' = LN(x + Attention(x)),  y = LN(x' + FeedForward(x'))"""

    switches = Layer.switches | {"attention"}

    def __init__(
        self,
        width: int,
        heads: int,
        inner: int,
        activation: str = "relu",
        attention_bias: bool = True,
        p: float = 0.0,
        attention_p: float | None = None,
        eps: float = 1e-5,
        std: float | None = None,
    ):
        self.p = p
        self.attention = EfficientAttention(
            width, heads, attention_bias, p if attention_p is None else attention_p, std
        )
        self.attention_norm = LayerNorm(width, eps)
        self.feed_forward = FeedForward(width, inner, activation, std)
        self.output_norm = LayerNorm(width, eps)

    def forward(self, x, run, mask=None, chosen=None):  # x (B,T,H)
        """With `chosen`, y is (N,H): everything after the keys and values runs on these rows only (chosen.py)."""
        a, attention = self.attention.forward(x, run.fork(0), mask=mask, chosen=chosen)
        return self.after_attention(x, a, attention, run, chosen)

    def backward(self, dy, cache, run):  # dy (B,T,H) or (N,H)
        dx, da = self.after_attention_backward(dy, cache, run)
        dx += self.attention.backward(da, cache.attention, run)
        return dx

    def after_attention(self, x, a, attention, run, chosen=None):
        """x' = LN(x + a),  y = LN(x' + FeedForward(x'))        a: the output of attention, overwritten"""
        rows = at = None
        if chosen is not None:
            at = np.divmod(chosen, x.shape[1])  # sequence and token of each row
            x, rows = choose_rows(x, chosen)
        a, attention_dropped = dropout(a, self.p, run.fork(1), at)
        a += x  # in place, so that the sum needs no array of its own
        x, attention_norm = self.attention_norm.forward(a, run)
        f, feed_forward = self.feed_forward.forward(x, run)
        feed_forward = feed_forward._replace(expand=None)  # its input x': backward recomputes it from x̂
        f, output_dropped = dropout(f, self.p, run.fork(2), at)
        f += x
        y, output_norm = self.output_norm.forward(f, run)
        return y, BlockCache(
            attention, rows, attention_dropped, attention_norm, feed_forward, output_dropped, output_norm
        )

    def after_attention_backward(self, dy, cache, run):
        """Returns dx, past attention, and da."""
        dx = self.output_norm.backward(dy, cache.output_norm, run)  # gradient of x' + f, and of both terms
        df = dropout_backward(dx, cache.output_dropped)
        x = self.attention_norm.rescale(cache.attention_norm.x_hat)
        dx += self.feed_forward.backward(df, cache.feed_forward._replace(expand=x), run)
        del x
        dx = self.attention_norm.backward(dx, cache.attention_norm, run)  # gradient of x + a
        da = dropout_backward(dx, cache.attention_dropped)
        if cache.chosen is not None:
            dx = choose_rows_backward(dx, cache.chosen)
        return dx, da


if __name__ == "__main__":
    block = TransformerBlock(8, heads=2, inner=32)
    bind(block, seed=0)
    x = np.random.default_rng(0).normal(size=(2, 5, 8)).astype(np.float32)
    y, cache = block.forward(x, Run())
    dx = block.backward(np.random.default_rng(1).normal(size=y.shape).astype(y.dtype), cache, Run())
    print(f"x {x.shape} -> y {y.shape}, the same shape, so that blocks can be stacked; dx {dx.shape}")
    for name, param in block.named_params().items():
        print(f"  {name:28} {param.shape!s:10} |gradient| {np.linalg.norm(param.grad):.4f}")
