"""Talking heads: attention heads exchange scores before softmax, and weights after it.

    S' = mix(S, W_s)       P = softmax(S')       C = mix(dropout(P), W_p) v
    mix(x, W)_a' = Σ_a x_a W_aa'                                        x (B,A,M,T), W (A,A)

Usually each head works on its own until W_o. Here, the scores of head a' are a weighted sum of the scores of all heads,
and so are the weights that average the values. (Shazeer et al. 2020, "Talking-Heads Attention". DeBERTa v1 has it as an
option, `talking_head`.)

Backward. `mix` is a linear layer over the heads, the same for all pairs of tokens:

    dx_a = Σ_a' dy_a' W_aa'         dW_aa' += Σ_{b,i,j} x_a dy_a'

and the steps between are those of attention.py.
"""

from typing import Any, NamedTuple

import numpy as np

from mini_bert.layers.base import Layer, Param, Run, bind
from mini_bert.layers.disentangled_attention import DisentangledAttention
from mini_bert.layers.dropout import Dropped, dropout, dropout_backward
from mini_bert.layers.initialisers import normal
from mini_bert.layers.softmax import softmax, softmax_backward


class HeadMix(Layer):
    """y_a' = Σ_a x_a W_aa'        dx_a = Σ_a' dy_a' W_aa',   dW_aa' += Σ x_a dy_a'"""

    def __init__(self, heads: int, std: float | None = None):
        self.w = Param((heads, heads), normal(heads**-0.5 if std is None else std))

    def forward(self, x, run):  # x (B,A,M,T)
        return _over_heads(np.asarray(self.w.data.T), x), x

    def backward(self, dy, x, run):  # dy (B,A,M,T)
        B, A = x.shape[:2]
        self.w.add((x.reshape(B, A, -1) @ dy.reshape(B, A, -1).swapaxes(-1, -2)).sum(0))
        return _over_heads(np.asarray(self.w.data), dy)


def _over_heads(w, x):
    """Σ_a w_a'a x_a        w (A,A), x (B,A,M,T)"""
    B, A = x.shape[:2]
    return (w @ x.reshape(B, A, -1)).reshape(x.shape)


class TalkCache(NamedTuple):
    probs: np.ndarray  # (B,A,M,T) the weights of the values, after the second mix: rows need not add up to 1
    dropped: Dropped | None
    v: np.ndarray  # (B,A,T,d)
    unmixed: np.ndarray  # (B,A,M,T) P, before dropout and the second mix


class TalkingHeadAttention(DisentangledAttention):
    """C = mix(dropout(softmax(mix(S, W_s))), W_p) v        S: the scores of DisentangledAttention"""

    def __init__(self, width: int, heads: int, **options: Any):
        super().__init__(width, heads, **options)
        std = options.get("std")
        self.mix_scores, self.mix_weights = HeadMix(heads, std), HeadMix(heads, std)

    def exchange(self, scores, run):
        return self.mix_scores.forward(scores, run)

    def exchange_backward(self, dscores, cache, run):
        return self.mix_scores.backward(dscores, cache, run)

    def average(self, scores, v, run, at=None):
        unmixed, _ = softmax(scores)
        weights, dropped = dropout(unmixed, self.p, run, at)
        probs, _ = self.mix_weights.forward(weights, run)
        return probs @ v, TalkCache(probs, dropped, v, unmixed)

    def average_backward(self, dcontext, attended, run):
        probs, dropped, v, unmixed = attended
        dv = probs.swapaxes(-1, -2) @ dcontext
        weights = dropout_backward(unmixed, dropped)  # as in forward
        dweights = self.mix_weights.backward(dcontext @ v.swapaxes(-1, -2), weights, run)
        return softmax_backward(dropout_backward(dweights, dropped), unmixed), dv


if __name__ == "__main__":
    from mini_bert.layers.relative_positions import distances

    talking, silent = TalkingHeadAttention(8, heads=2, std=0.5), DisentangledAttention(8, heads=2)
    bind(talking, seed=0)
    bind(silent)
    for name, param in silent.named_params().items():
        param.data[...] = talking.named_params()[name].data
    rng, near = np.random.default_rng(1), distances(4, span=4)
    x, table = (rng.normal(size=shape).astype(np.float32) for shape in ((1, 4, 8), (7, 8)))
    _, cache = silent.forward(x, table, Run(), near)
    print("each head on its own, their weights for token 0:\n", cache.attended.probs[0, :, 0].round(2), sep="")
    for title, mix in (("W_s = W_p = 1", np.eye(2)), ("W_p = ½ everywhere", np.full((2, 2), 0.5))):
        talking.mix_scores.w.data[...], talking.mix_weights.w.data[...] = np.eye(2), mix
        _, cache = talking.forward(x, table, Run(), near)
        print(f"{title}:\n", cache.attended.probs[0, :, 0].round(2), sep="")
