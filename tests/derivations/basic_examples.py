"""The examples of basics.md and norms_and_activations.md, computed by the library."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mini_bert.layers.activations import ACTIVATIONS
from mini_bert.layers.base import Param, Run
from mini_bert.layers.chosen import choose_rows, choose_rows_backward
from mini_bert.layers.convolution import Convolution
from mini_bert.layers.dropout import Dropped, dropout_backward
from mini_bert.layers.feed_forward import FeedForward
from mini_bert.layers.gated_feed_forward import GatedFeedForward
from mini_bert.layers.initialisers import zeros
from mini_bert.layers.layer_norm import LayerNorm
from mini_bert.layers.linear import Linear, TiedLinear
from mini_bert.layers.softmax import softmax, softmax_backward
from tests.derivations.compute import both, side_by_side, with_weights


def linear(x, W, b, dy):
    y, dx, grad = both(with_weights(Linear(2, 2), w=W, b=b), x, dy=dy)
    return {"y": y, "dW": grad["w"], "db": grad["b"], "dx": dx}


def tied_linear(x, E, b, dy):
    y, dx, grad = both(with_weights(TiedLinear(Param((2, 2), zeros)), w=E, b=b), x, dy=dy)
    return {"y": y, "dE": grad["w"], "db": grad["b"], "dx": dx}


def chosen_rows(x, chosen, dy):
    y, cache = choose_rows(x, chosen.astype(int) - 1)
    return {"y": y, "dx": choose_rows_backward(dy, cache)}


def dropout(x, keep, p, dy):
    dropped = Dropped(keep == 1, 1 / (1 - p))
    return {"m": dropped.times(np.ones_like(x)), "y": dropped.times(x), "dx": dropout_backward(dy, dropped)}


def feed_forward(x, W1, W2, dy):
    layer = with_weights(FeedForward(2, 2), expand_w=W1, contract_w=W2)
    h = layer.expand.forward(x, Run())[0]
    y, dx, grad = both(layer, x, dy=dy)
    return {
        "h": h, "a": layer.activation.forward(h)[0], "y": y, "da": dy @ W2.T, "dh": dy @ W2.T * (h > 0),
        "dW1": grad["expand_w"], "db1": grad["expand_b"], "dW2": grad["contract_w"], "dx": dx,
    }  # fmt: skip


def gated_feed_forward(x, W_u, W_g, W_o, dy):
    layer = with_weights(GatedFeedForward(2, 2, "relu", bias=False), expand_w=side_by_side(W_u, W_g), contract_w=W_o)
    y, cache = layer.forward(x, Run())
    dx = layer.backward(dy, cache, Run())
    dW_u, dW_g = np.split(layer.expand.w.grad, 2, -1)
    return {
        "u": x @ W_u, "g": cache.gate, "z": cache.contract, "y": y, "dz": dy @ W_o.T, "dW_u": dW_u, "dW_g": dW_g,
        "dW_o": layer.contract.w.grad, "dx": dx,
    }  # fmt: skip


def convolution(x, W_left, W_own, W_right, b, dy):
    layer = with_weights(Convolution(2), w=np.stack([W_left, W_own, W_right])[:, None], b=b)
    y, dx, grad = both(layer, x[None], dy=dy[None])
    names = ("dW_left", "dW_own", "dW_right")
    return {"y": y[0], "db": grad["b"], "dx": dx[0]} | dict(zip(names, grad["w"][:, 0], strict=True))


def layer_norm(x, γ, β, ε, dy):
    layer = with_weights(LayerNorm(2, eps=ε), gamma=γ, beta=β)
    y, cache = layer.forward(x, Run())
    dx = layer.backward(dy, cache, Run())
    return {
        "σ": cache.sigma[:, 0], "n": cache.x_hat, "y": y, "g": γ * dy, "dβ": layer.beta.grad, "dγ": layer.gamma.grad,
        "dx": dx,
    }  # fmt: skip


def elementwise(name: str) -> Callable[..., dict[str, Any]]:
    """An activation and its slope"""

    def recompute(x, dy):
        y, cache = ACTIVATIONS[name].forward(x)
        return {"y": y, "dx": ACTIVATIONS[name].backward(dy, cache)}

    return recompute


def soft_max(x, dp):
    p, cache = softmax(x)
    return {"p": p, "dx": softmax_backward(dp, cache)}


EXAMPLES = {
    "Linear": linear,
    "Tied linear": tied_linear,
    "Chosen rows": chosen_rows,
    "Dropout": dropout,
    "Feed-forward": feed_forward,
    "Gated feed-forward": gated_feed_forward,
    "Convolution": convolution,
    "Layer norm": layer_norm,
    "ReLU": elementwise("relu"),
    "GELU": elementwise("gelu"),
    "GELU with tanh": elementwise("gelu_new"),
    "SiLU": elementwise("silu"),
    "Tanh": elementwise("tanh"),
    "Softmax": soft_max,
}
