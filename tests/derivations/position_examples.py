"""The examples of embeddings_and_positions.md, attention.md and attention_variants.md, computed by the library."""

from __future__ import annotations

import numpy as np

from mini_bert.layers.adaptive_embedding import AdaptiveEmbedding
from mini_bert.layers.attention import MultiHeadAttention, attend, attend_backward
from mini_bert.layers.base import Run, bind
from mini_bert.layers.disentangled_attention import DisentangledAttention
from mini_bert.layers.disentangled_embedding import DisentangledEmbedding
from mini_bert.layers.efficient_attention import EfficientAttention
from mini_bert.layers.embedding import Embedding, PositionEmbedding
from mini_bert.layers.lean_attention import lean_attend, lean_attend_backward
from mini_bert.layers.masks import causal
from mini_bert.layers.past import PastAttention
from mini_bert.layers.relative_attention import RelativeAttention, relative_shift, relative_shift_backward
from mini_bert.layers.relative_positions import add_distance_scores, add_distance_scores_backward, distances
from mini_bert.layers.rotary import rotate, waves
from mini_bert.layers.talking_heads import HeadMix
from mini_bert.layers.two_stream_attention import RelativeSegments, TwoStreamAttention
from tests.derivations.compute import both, side_by_side, with_weights

ONE = np.eye(2)


def embedding(E, ids, dy):
    y, _, grad = both(with_weights(Embedding(*E.shape), table=E), ids.astype(int) - 1, dy=dy)
    return {"y": y, "dE": grad["table"]}


def position_embedding(x, P, dy):
    layer = with_weights(PositionEmbedding(2, 1), table=P[:, None])
    y, dx, grad = both(layer, x[..., None], dy=dy[..., None])
    return {"y": y[..., 0], "dP": grad["table"][:, 0], "dx": dx[..., 0]}


def shared_table(G, Δ, ids, dy):
    generator = with_weights(Embedding(*G.shape), table=G)
    layer = with_weights(DisentangledEmbedding(generator.table), difference=Δ)
    y, _, grad = both(layer, ids.astype(int) - 1, dy=dy)
    return {"y": y, "dΔ": grad["difference"], "dG": generator.table.grad}


def adaptive_embedding(E_often, P_often, E_rare, P_rare, ids, dy):
    layer = with_weights(
        AdaptiveEmbedding(4, 2, 2, (2,), 2),
        tables_0_table=E_often, tables_1_table=E_rare[:, None],
        projections_0_w=P_often, projections_1_w=P_rare[None],
    )  # fmt: skip
    y, _, grad = both(layer, ids.astype(int) - 1, dy=dy)
    return {
        "y": y, "dP_often": grad["projections_0_w"], "dP_rare": grad["projections_1_w"][0],
        "dE_often": grad["tables_0_table"], "dE_rare": grad["tables_1_table"][:, 0],
    }  # fmt: skip


def rotary(x, dy):
    cos, sin = waves(10_000.0, 2, 2, np.float64)
    y, dx = x[None, None].copy(), dy[None, None].copy()
    rotate(y, cos, sin)
    rotate(dx, cos, -sin)
    return {"y": y[0, 0], "dx": dx[0, 0]}


def distance_scores(x, r, dS):
    scores, dx = np.zeros((1, 1, 2, 2)), np.zeros((1, 1, 2, 2))
    add_distance_scores(scores, x[None, None], r[None])
    dr = add_distance_scores_backward(dS[None, None], x[None, None], r[None], dx)
    return {"X": x @ r.T, "S": scores[0, 0], "dx": dx[0, 0], "dr": dr[0]}


def shift(X, dY):
    return {
        "Y": relative_shift(X[None, None].copy(), 2)[0, 0],
        "dX": relative_shift_backward(dY[None, None], 4)[0, 0],
    }


def average(S, v, dC, mask=None):
    context, cache = attend(S[None, None], v[None, None], Run(), mask)
    dscores, dv = attend_backward(dC[None, None], cache)
    return {"P": cache.probs[0, 0], "C": context[0, 0], "dv": dv[0, 0], "dP": dC @ v.T, "dS": dscores[0, 0]}


def masked_average(S, v, dC):
    found = average(S, v, dC, causal(2))
    del found["dP"]
    return found


def attention(x, W_q, W_k, W_v, W_o, dy):
    layer = with_weights(MultiHeadAttention(2, 1, bias=False), qkv_w=side_by_side(W_q, W_k, W_v), output_w=W_o)
    y, cache = layer.forward(x[None], Run())
    dcontext = (dy @ W_o.T)[None, None]
    dq, dk, dv = layer.dot_product_attention_backward(dcontext, cache, Run())
    dx = layer.backward(dy[None], cache, Run())
    dW_q, dW_k, dW_v = np.split(layer.qkv.w.grad, 3, -1)
    return {
        "S": x @ W_q @ (x @ W_k).T / np.sqrt(2), "P": cache.attended.probs[0, 0], "y": y[0],
        "dq": dq[0, 0], "dk": dk[0, 0], "dv": dv[0, 0], "dW_q": dW_q, "dW_k": dW_k, "dW_v": dW_v,
        "dW_o": layer.output.w.grad, "dx": dx[0],
    }  # fmt: skip


def chosen_queries(x, W_q, W_k, W_v, chosen, dy):
    layer = with_weights(EfficientAttention(2, 1, bias=False), qkv_w=side_by_side(W_q, W_k, W_v), output_w=ONE)
    y, dx, _ = both(layer, x[None], dy=dy[None], chosen=np.array([int(chosen) - 1]))
    dW_q, dW_k, dW_v = np.split(layer.qkv.w.grad, 3, -1)
    return {"y": y[0], "dW_q": dW_q, "dW_k": dW_k, "dW_v": dW_v, "dx": dx[0]}


def tiles(q, k, v, dC):
    context, cache = lean_attend(q[None, None], k[None, None], v[None, None], 1.0, Run(), tile=1)
    dq, dk, dv = lean_attend_backward(dC[None, None], cache, Run())
    return {
        "C": context[0, 0], "L": cache.logsumexp[0, 0], "D": (dC * context[0, 0]).sum(-1),
        "P": cache.probs[0, 0], "dq": dq[0, 0], "dk": dk[0, 0], "dv": dv[0, 0],
    }  # fmt: skip


def past(k_past, v_past, x, W_q, W_k, W_v, dy):
    layer = with_weights(PastAttention(2, 1, bias=False), qkv_w=side_by_side(W_q, W_k, W_v), output_w=ONE)
    earlier = (k_past[None, None, None], v_past[None, None, None])
    y, cache = layer.forward(x[None, None], Run(), past=earlier)
    dx = layer.backward(dy[None, None], cache, Run())
    dW_q, dW_k, dW_v = np.split(layer.qkv.w.grad, 3, -1)
    return {
        "K": cache.k[0, 0], "V": cache.attended.v[0, 0], "P": cache.attended.probs[0, 0, 0], "y": y[0, 0],
        "dW_q": dW_q, "dW_k": dW_k, "dW_v": dW_v, "dx": dx[0, 0],
    }  # fmt: skip


def disentangled(x, p, W_v, dy):
    names = ("query_w", "key_w", "position_key_w", "position_query_w", "output_w")
    layer = with_weights(DisentangledAttention(2, 1), value_w=W_v, **dict.fromkeys(names, ONE))
    y, cache = layer.forward(x[None], p, Run(), distances(2, span=2))
    dS, _ = attend_backward(dy[None, None], cache.attended)
    dx, dp = layer.backward(dy[None], cache, Run())
    return {"P": cache.attended.probs[0, 0], "y": y[0], "D": dS[0, 0] / np.sqrt(6), "dp": dp, "dx": dx[0]}


def head_mix(x, W, dy):
    y, dx, grad = both(with_weights(HeadMix(2), w=W), x[None, :, None], dy=dy[None, :, None])
    return {"y": y[0, :, 0], "dW": grad["w"], "dx": dx[0, :, 0]}


def relative(x, u, w, R, W_v, dy):
    layer = with_weights(
        RelativeAttention(2, 1, 2), qkv_w=side_by_side(ONE, ONE, W_v), r_w=ONE, output_w=ONE,
        content_bias=u[None], distance_bias=w[None],
    )  # fmt: skip
    y, cache = layer.forward(x[None], Run(), R)
    dS, _ = attend_backward(dy[None, None], cache.stream.attended)
    dx = layer.backward(dy[None], cache, Run())
    return {
        "S": layer.scores(cache.stream.q, cache.keys)[0, 0], "P": cache.stream.attended.probs[0, 0], "y": y[0],
        "D": dS[0, 0] / np.sqrt(2), "du": layer.content_bias.grad[0], "dw": layer.distance_bias.grad[0],
        "dW_r": layer.r.w.grad, "dx": dx[0],
    }  # fmt: skip


def segments(q, e, s, σ, dS):
    layer = RelativeSegments(1, 2)
    bind(layer, dtype=np.float64)
    layer.embedding.data[...], layer.bias.data[...] = e[:, None], s[None]
    differs = σ == 1
    scores = layer.scores(q[None, None], differs)
    dq = layer.scores_backward(dS[None, None], q[None, None], differs)
    return {
        "E": (q + s) @ e.T, "S": scores[0, 0], "dq": dq[0, 0], "de": layer.embedding.grad[:, 0],
        "ds": layer.bias.grad[0],
    }  # fmt: skip


def two_streams(h, g, W_q, W_v, dh_out, dg_out):
    layer = with_weights(TwoStreamAttention(2, 1, 2), qkv_w=side_by_side(W_q, ONE, W_v), output_w=ONE)
    waves = np.zeros((4, 2))
    (y, z), cache = layer.forward(h[None], g, Run(), waves, chosen=np.array([0, 1]))
    dh, dg = layer.backward((dh_out[None], dg_out), cache, Run())
    dW_q, _, dW_v = np.split(layer.qkv.w.grad, 3, -1)
    return {"h_out": y[0], "g_out": z, "dW_q": dW_q, "dW_v": dW_v, "dh": dh[0], "dg": dg}


EXAMPLES = {
    "Embedding": embedding,
    "Positions in a table": position_embedding,
    "A shared table with a difference": shared_table,
    "Adaptive embedding": adaptive_embedding,
    "Rotary positions": rotary,
    "Scores by distance": distance_scores,
    "The relative shift": shift,
    "Weights and their average": average,
    "Masks": masked_average,
    "Attention": attention,
    "Attention for chosen rows": chosen_queries,
    "Attention in tiles": tiles,
    "Attention with a past": past,
    "Disentangled attention": disentangled,
    "Talking heads": head_mix,
    "Relative attention": relative,
    "Relative segments": segments,
    "Two streams": two_streams,
}
