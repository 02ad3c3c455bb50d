"""The examples of blocks_and_models.md and heads.md, computed by the library."""

from __future__ import annotations

import numpy as np

from mini_bert.finetuning.heads import PairHead, SentenceHead, SpanHead
from mini_bert.layers.base import Run, bind
from mini_bert.layers.block import TransformerBlock
from mini_bert.layers.cross_entropy import cross_entropy, cross_entropy_backward
from mini_bert.layers.disentangled_attention import DisentangledAttention
from mini_bert.layers.disentangled_encoder import ConvolvedBlock
from mini_bert.layers.embedding import Embedding
from mini_bert.layers.encoder import Encoder, Recompute
from mini_bert.layers.feed_forward import FeedForward
from mini_bert.layers.layer_norm import LayerNorm
from mini_bert.layers.linear import Linear, TiedLinear
from mini_bert.layers.past import PastAttention
from mini_bert.layers.pooling import POOLING
from mini_bert.layers.pre_norm_block import PreNormBlock
from mini_bert.layers.relative_block import RelativeBlock
from mini_bert.layers.relative_positions import distances
from mini_bert.models.deberta_v2 import ReplacedHead
from mini_bert.models.heads import MaskedWordHead, Pooler
from tests.derivations.compute import both, side_by_side, with_weights

ONE, ZERO = np.eye(2), np.zeros((2, 2))
VALUES_ONLY = side_by_side(ZERO, ZERO, ONE)  # W_q = W_k = 0: every token gets the mean of all


def block(x, ε, dy):
    layer = with_weights(
        TransformerBlock(2, 1, 2, attention_bias=False, eps=ε), attention_qkv_w=VALUES_ONLY, attention_output_w=ONE,
        feed_forward_expand_w=ONE, feed_forward_contract_w=ONE,
    )  # fmt: skip
    y, cache = layer.forward(x[None], Run())
    dsum = layer.output_norm.backward(dy[None], cache.output_norm, Run())
    _, da = layer.after_attention_backward(dy[None], cache, Run())
    return {
        "n": cache.attention_norm.x_hat[0], "y": y[0], "ds2": dsum[0], "ds1": da[0],
        "dx": layer.backward(dy[None], cache, Run())[0],
    }  # fmt: skip


def pre_norm_block(x, ε, dy):
    parts = LayerNorm(2, ε), PastAttention(2, 1, bias=False), LayerNorm(2, ε), FeedForward(2, 2)
    layer = with_weights(
        PreNormBlock(*parts), attention_qkv_w=VALUES_ONLY, attention_output_w=ONE,
        feed_forward_expand_w=ONE, feed_forward_contract_w=ONE,
    )  # fmt: skip
    y, cache = layer.forward(x[None], Run())
    n = layer.feed_forward_norm.rescale(cache.feed_forward_norm.x_hat)
    df = layer.feed_forward.backward(dy[None], cache.feed_forward._replace(expand=n), Run())
    dmiddle = dy + layer.feed_forward_norm.backward(df, cache.feed_forward_norm, Run())[0]
    dx = layer.backward(dy[None], cache, Run())
    return {"n": cache.attention_norm.x_hat[0], "n2": n[0], "y": y[0], "dmiddle": dmiddle, "dx": dx[0]}


def encoder(x, W, dy):
    found = []
    for wrap in (lambda layer: layer, Recompute):
        shared = Linear(2, 2, bias=False)
        bind(shared, dtype=np.float64)
        shared.w.data[...] = W
        layer = Encoder([wrap(shared), wrap(shared)])
        y, caches = layer.forward(x, Run())
        found.append({"y": y, "dx": layer.backward(dy, caches, Run()), "dW": shared.w.grad})
    for name, array in found[0].items():
        np.testing.assert_array_equal(array, found[1][name])
    return found[0]


def convolved_block(x, ε, dy):
    """Without attention and feed-forward network"""
    layer = with_weights(
        ConvolvedBlock(DisentangledAttention(2, 1), 2, "relu", 0.0, ε, None, 3, 1, "relu"),
        convolution_w=np.stack([ZERO, ONE, ZERO])[:, None],
    )  # fmt: skip
    y, cache = layer.forward(x[None], np.zeros((3, 2)), Run(), distances(2, span=2))
    dsum = layer.convolution_norm.backward(dy[None], cache.norm, Run())
    dx, _ = layer.backward(dy[None], cache, Run())
    return {"y": y[0], "ds": dsum[0], "dx": dx[0]}


def relative_block(m, x, ε, dy):
    """Without scores and feed-forward network: attention is the mean of memory and token"""
    layer = with_weights(
        RelativeBlock(2, 1, 2, 2, eps=ε), attention_qkv_w=VALUES_ONLY, attention_output_w=ONE,
    )  # fmt: skip
    y, cache = layer.forward(x[None, None], Run(), np.zeros((3, 2)), memory=m[None, None])
    dx = layer.backward(dy[None, None], cache, Run())
    _, da = layer.rest_backward(dy[None, None], cache.rest, Run())
    dW_v = layer.attention.qkv.w.grad[:, 4:]
    return {"y": y[0, 0], "ds1": da[0, 0], "dW_v": dW_v, "dx": dx[0, 0]}


def whole_model(E, ids, targets, N):
    """A table that looks up words and predicts them, with nothing between"""
    tokens = Embedding(2, 2)
    head = TiedLinear(tokens.table, bias=False)
    bind(tokens, dtype=np.float64)
    tokens.table.data[...] = E
    x, looked_up = tokens.forward(ids.astype(int) - 1, Run())
    logits, cache = head.forward(x, Run())
    loss, entropy = cross_entropy(logits, targets.astype(int) - 1, N)
    dlogits = cross_entropy_backward(1.0, entropy)
    dx = head.backward(dlogits, cache, Run())
    of_head = tokens.table.grad.copy()
    tokens.backward(dx, looked_up, Run())
    return {"loss": loss, "dlogits": dlogits, "dx": dx, "dE_head": of_head, "dE": tokens.table.grad}


def pooling(x, dy):
    found = {}
    for name in ("cls", "mean", "max"):
        y, cache = POOLING[name].forward(x[None], np.ones((1, len(x)), bool))
        found |= {f"y_{name}": y[0], f"dx_{name}": POOLING[name].backward(dy[None], cache)[0]}
    return found


def pooler(x, W, b, dy):
    y, dx, grad = both(with_weights(Pooler(2, 1.0), dense_w=W, dense_b=b), x[None], dy=dy[None])
    return {"y": y[0], "dW": grad["dense_w"], "dx": dx[0]}


def masked_word_head(x, W, E, ε, dy):
    table = Embedding(*E.shape).table
    layer = with_weights(MaskedWordHead(2, table, "relu", ε, 1.0), dense_w=W, decoder_w=E)
    logits, (_, _, norm, _) = layer.forward(x, Run())
    logits, dx, grad = both(layer, x, dy=dy)
    return {"n": norm.x_hat, "logits": logits, "dE": grad["decoder_w"], "dW": grad["dense_w"], "dx": dx}


def replaced_head(x, w, ε, dz):
    layer = with_weights(ReplacedHead(2, "relu", ε, 1.0), dense_w=ONE, linear_w=w[:, None])
    z, dx, grad = both(layer, x[None], dy=dz[None, :, None])
    return {"z": z[0, :, 0], "dw": grad["linear_w"][:, 0], "dx": dx[0]}


def sentence_head(x, W_d, W, dy):
    layer = with_weights(SentenceHead(2, 2, dense=True), dense_w=W_d, linear_w=W)
    y, dx, grad = both(layer, x[None], dy=dy[None], asked=np.ones((1, len(x)), bool))
    return {"y": y[0], "dW": grad["linear_w"], "dW_d": grad["dense_w"], "dx": dx[0]}


def pair_head(x, W, dy):
    asked = np.array([[[True, False]], [[False, True]]])
    y, dx, grad = both(with_weights(PairHead(2, 1), linear_w=W[:, None]), x[None], dy=np.array([[dy]]), asked=asked)
    return {"y": y[0, 0], "dW": grad["linear_w"][:, 0], "dx": dx[0]}


def span_head(x, W, b, dy):
    y, dx, grad = both(with_weights(SpanHead(2), linear_w=W, linear_b=b), x[None], dy=dy[None])
    return {"y": y[0], "dW": grad["linear_w"], "db": grad["linear_b"], "dx": dx[0]}


EXAMPLES = {
    "BERT's block": block,
    "The block with norms before its sublayers": pre_norm_block,
    "Blocks in a row": encoder,
    "DeBERTa's blocks": convolved_block,
    "Blocks with a memory, and with two streams": relative_block,
    "The whole model": whole_model,
    "Pooling": pooling,
    "Pooler": pooler,
    "Heads for words": masked_word_head,
    "Heads for replaced words": replaced_head,
    "Heads for texts": sentence_head,
    "Head for pairs of texts": pair_head,
    "Heads for tokens and for answers": span_head,
}
