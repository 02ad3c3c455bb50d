"""The encoder of DeBERTa: blocks that share a table of relative positions, and a convolution beside the first one.

    p  = table[rows], or LayerNorm(table[rows])        a vector for each distance; the input of all blocks, with x
    x' = LayerNorm(x + dropout(Attention(x, p)))
    y  = LayerNorm(x' + dropout(FeedForward(x')))      a block: BERT's (block.py), with another attention

In v2, the first block's output is corrected by what a convolution finds in its input:

    y' = u ⊙ LayerNorm(y + f(dropout(u ⊙ Convolution(x))))          u: 1 for tokens, 0 for padding

Attention treats a text as a set, and relative positions enter only through scores. The convolution sees neighbours
together, in their order, before anything else does: n-grams, which matter most for pieces of words.

Backward. p affects every block, so dp is the sum over the blocks, and then goes through the norm to the rows of the
table in use. In the first block x has two paths, through the block and through the convolution; dx is their sum.
"""

from typing import Any, NamedTuple

import numpy as np

from mini_bert.layers.activations import activation
from mini_bert.layers.base import Layer, Run, bind
from mini_bert.layers.block import BlockCache, TransformerBlock
from mini_bert.layers.chosen import choose_rows, choose_rows_backward
from mini_bert.layers.convolution import Convolution
from mini_bert.layers.disentangled_attention import DisentangledAttention
from mini_bert.layers.dropout import dropout, dropout_backward
from mini_bert.layers.embedding import Embedding
from mini_bert.layers.encoder import Encoder
from mini_bert.layers.feed_forward import FeedForward
from mini_bert.layers.layer_norm import LayerNorm, LayerNormCache
from mini_bert.layers.relative_positions import distances


class DisentangledBlock(TransformerBlock):
    """x' = LN(x + Attention(x, p)),  y = LN(x' + FeedForward(x'))        two inputs with gradients: x and p"""

    attention: Any
    switches = Layer.switches  # the position terms have no version in tiles

    def __init__(
        self,
        attention: DisentangledAttention,
        inner: int,
        activation_name: str,
        p: float,
        eps: float,
        std: float | None,
    ):
        self.p = p
        self.attention = attention
        self.attention_norm = LayerNorm(attention.width, eps)
        self.feed_forward = FeedForward(attention.width, inner, activation_name, std)
        self.output_norm = LayerNorm(attention.width, eps)

    def forward(self, x, positions, run, distances=None, mask=None, chosen=None):
        """x (B,T,H), positions (U,H) -> y (B,T,H), or (N,H) for chosen rows"""
        a, attention = self.attention.forward(x, positions, run.fork(0), distances=distances, mask=mask, chosen=chosen)
        return self.after_attention(x, a, attention, run, chosen)

    def backward(self, dy, cache, run):
        """Returns dx (B,T,H) and dpositions (U,H)."""
        dx, da = self.after_attention_backward(dy, cache, run)
        more, dpositions = self.attention.backward(da, cache.attention, run)
        dx += more
        return dx, dpositions


class ConvolvedCache(NamedTuple):
    block: BlockCache
    rows: Any  # cache of choose_rows, or None
    used: np.ndarray | None  # (B,T,1) or (N,1), False for padding; None: no padding
    dropped: Any
    activated: Any
    norm: LayerNormCache

    @property
    def input(self) -> np.ndarray:
        return self.block.input

    @property
    def attention_weights(self) -> np.ndarray:
        return self.block.attention_weights

    def named(self) -> dict[str, np.ndarray]:
        return {**self.block.named(), "convolution_norm": self.norm.x_hat}


class ConvolvedBlock(DisentangledBlock):
    """y' = u ⊙ LN(Block(x, p) + f(dropout(u ⊙ Convolution(x))))"""

    def __init__(self, attention, inner, activation_name, p, eps, std, size: int, groups: int, conv_act: str):
        super().__init__(attention, inner, activation_name, p, eps, std)
        self.convolution = Convolution(attention.width, size, groups, std)
        self.convolution_norm = LayerNorm(attention.width, eps)
        self.activation = activation(conv_act)

    def forward(self, x, positions, run, distances=None, mask=None, chosen=None):
        y, block = super().forward(x, positions, run, distances, mask, chosen)
        c, _ = self.convolution.forward(x, run)  # (B,T,H)
        used = None if mask is None else mask[:, 0, 0, :, None]  # (B,T,1)
        at = rows = None
        if chosen is not None:
            at = np.divmod(chosen, x.shape[1])
            c, rows = choose_rows(c, chosen)  # (N,H)
            used = used if used is None else choose_rows(used, chosen)[0]
        c, dropped = dropout(_times(c, used), self.p, run.fork(3), at)
        c, activated = self.activation.forward(c)
        y += c
        y, norm = self.convolution_norm.forward(y, run)
        return _times(y, used), ConvolvedCache(block, rows, used, dropped, activated, norm)

    def backward(self, dy, cache, run):
        dy = self.convolution_norm.backward(_times(dy, cache.used), cache.norm, run)
        dc = self.activation.backward(dy, cache.activated)
        dc = _times(dropout_backward(dc, cache.dropped), cache.used)
        if cache.rows is not None:
            dc = choose_rows_backward(dc, cache.rows)
        dx, dpositions = super().backward(dy, cache.block, run)
        dx += self.convolution.backward(dc, cache.input, run)
        return dx, dpositions


def _times(x, used):
    """x, with zeros for padding"""
    return x if used is None else x * used


class BlockCaches(list[Any]):
    """The caches of the blocks, and that of the table they share."""

    def __init__(self, positions: Any):
        super().__init__()
        self.positions = positions  # distances, cache of the norm; None without a table


class DisentangledEncoder(Encoder):
    """y = block_L(… block_1(x, p), p)        p: the rows of the table that T tokens need, after the norm

    span        half the rows of the table; 0: no table, and p is None
    buckets, largest        of relative_positions.log_buckets; 0: a row for each distance
    eps         of a norm on the table; None: no norm
    """

    def __init__(self, blocks, width: int, span: int, buckets: int = 0, largest: int = 0, eps=None, std: float = 0.02):
        super().__init__(blocks)
        self.span, self.buckets, self.largest = span, buckets, largest
        self.positions = Embedding(2 * span, width, std) if span else None
        self.norm = LayerNorm(width, eps) if eps else None

    def forward(self, x, run, chosen=None, **inputs):  # x (B,T,H)
        positions, cache, inputs["distances"] = self.table_rows(x.shape[1], run)
        caches = BlockCaches(cache)
        for index, block in enumerate(self.blocks):
            if chosen is not None and index == len(self.blocks) - 1:
                inputs["chosen"] = chosen
            x, cache = block.forward(x, positions, run.fork(index), **inputs)
            caches.append(cache)
        return x, caches

    def backward(self, dy, caches, run):
        """Returns dx. Empties `caches`, as in encoder.py."""
        self.check(caches)
        total = None
        for block in reversed(self.blocks):
            dy, dpositions = block.backward(dy, caches.pop(), run)
            total = dpositions if total is None else total + dpositions  # None: no position terms
        self.table_rows_backward(total, caches.positions, run)
        return dy

    def table_rows(self, T: int, run):
        """p (U,H), its cache, and the distances of T tokens"""
        if self.positions is None:
            return None, None, None
        wanted = distances(T, self.span, self.buckets, self.largest)
        p, rows = self.positions.forward(wanted.rows, run)
        norm = None
        if self.norm is not None:
            p, norm = self.norm.forward(p, run)
        return p, (rows, norm), wanted

    def table_rows_backward(self, dp, cache, run) -> None:
        if dp is None:
            return
        rows, norm = cache
        if self.norm is not None:
            dp = self.norm.backward(dp, norm, run)
        self.positions.backward(dp, rows, run)  # type: ignore[union-attr]


if __name__ == "__main__":

    def attention():
        return DisentangledAttention(8, heads=2)

    blocks = [
        ConvolvedBlock(attention(), 32, "gelu", 0.0, 1e-7, None, 3, 1, "tanh"),
        DisentangledBlock(attention(), 32, "gelu", 0.0, 1e-7, None),
    ]
    encoder = DisentangledEncoder(blocks, 8, span=4, eps=1e-7)
    bind(encoder, seed=0)
    x = np.random.default_rng(0).normal(size=(2, 6, 8)).astype(np.float32)
    y, caches = encoder.forward(x, Run())
    dx = encoder.backward(np.random.default_rng(1).normal(size=y.shape).astype(y.dtype), caches, Run())
    print(f"x {x.shape} -> y {y.shape} -> dx {dx.shape}; what is new compared with BERT's encoder:")
    for name, param in encoder.named_params().items():
        if "position" in name or "conv" in name or name.startswith("norm"):
            print(f"  {name:42} {param.shape!s:14} |gradient| {np.linalg.norm(param.grad):.4f}")
