"""The kinds of operations that all architectures are made of, each with its formula, source line and sums.

linear_operation    y = x W + b
norm_operation      y = γ (x − μ) / σ + β
residual_operation  y = x + a
activation_operation, feed_forward_operations
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from mini_bert.lab.explaining import Explain, activated, added, gated, normed, product
from mini_bert.lab.source import Source, line_of
from mini_bert.layers.activations import ACTIVATIONS
from mini_bert.layers.base import Run
from mini_bert.layers.gated_feed_forward import GatedFeedForward
from mini_bert.layers.layer_norm import LayerNorm
from mini_bert.layers.linear import Linear, TiedLinear

FEATURES, KEYS, WORDS = "features", "keys", "words"  # what the columns of a result are


class Operation(NamedTuple):
    step: str  # its name in links, unique within a layer
    layer: int | None  # None: before or after the blocks
    title: str
    formula: str
    about: str
    shape: str  # with letters, such as (A,T,d)
    values: np.ndarray  # (T,columns), or (A,T,columns)
    columns: str = FEATURES
    source: Source | None = None
    explain: Explain | None = None  # None: its sums are not known here


def linear_operation(
    step: str, layer: int | None, title: str, letters: str, shape: str, linear: Any, x: np.ndarray, about: str,
    columns: str = FEATURES,
) -> Operation:  # fmt: skip
    """y = x W + b        letters: how result, input, weights and bias are called here, such as "h x W₁ b₁" """
    result, of, by, plus = letters.split()
    tied = isinstance(linear, TiedLinear)
    weights, by = (linear.w.data.T, "Eᵀ") if tied else (linear.w.data, by)
    bias = None if linear.b is None else linear.b.data
    formula = f"{result} = {of} {by}" + ("" if bias is None else f" + {plus}")
    source = line_of(TiedLinear.forward if tied else Linear.forward, "times(x, self.w.data")
    y = linear.forward(x, Run())[0]
    return Operation(step, layer, title, formula, about, shape, y, columns, source,
                     product(x, weights, bias, of, by, plus))  # fmt: skip


def norm_operation(step: str, layer: int | None, title: str, norm: Any, x: np.ndarray) -> Operation:
    y = norm.forward(x, Run())[0]
    beta = None if norm.beta is None else norm.beta.data
    shift = "" if beta is None else " and shifted by β"
    about = f"The numbers of each token are shifted and scaled to mean 0 and variance 1, then scaled by γ{shift}."
    formula = "y = γ (x − μ) / σ" + ("" if beta is None else " + β")
    source = line_of(LayerNorm.rescale, "self.gamma.data * x_hat")
    explain = normed(x, norm.gamma.data, beta, norm.eps)
    return Operation(step, layer, title, formula, about, "(T,H)", y, FEATURES, source, explain)


def residual_operation(
    step: str, layer: int, parts: dict[str, np.ndarray], function: Callable[..., Any], code: str, title: str = ""
) -> Operation:
    """The sum of two results        code: a fragment of its line in `function`"""
    about = "What was computed is added to what was there before, so nothing is lost on the way up."
    explain = added(list(parts), list(parts.values()))
    return Operation(step, layer, title or "Residual connection", " + ".join(parts), about, "(T,H)",
                     sum(parts.values()), FEATURES, line_of(function, code), explain)  # type: ignore[arg-type] # fmt: skip


def activation_operation(
    step: str, layer: int | None, activation: Any, h: np.ndarray, shape: str = "(T,I)", letter: str = "h"
) -> Operation:
    names = {"relu": f"max({letter}, 0)", "gelu": f"{letter} Φ({letter})", "tanh": f"tanh {letter}"}
    name = next(name for name, pair in ACTIVATIONS.items() if pair is activation)
    title = {"relu": "ReLU", "tanh": "tanh", "silu": "SiLU"}.get(name, "GELU")
    formula = names.get(name, f"{title}({letter})")
    y = activation.forward(h.copy())[0]
    about = f"Each number on its own. Here {(y > 0).mean():.0%} of the features are above 0."
    source = line_of(activation.forward, "y = np" if name == "tanh" else "y = ")
    explain = activated(h, y, formula, letter)
    return Operation(step, layer, f"Activation: {title}", f"g = {formula}", about, shape, y, FEATURES, source, explain)


def feed_forward_operations(layer: int, network: Any, x: np.ndarray, letter: str = "x") -> list[Operation]:
    """expand, activation, contract; with a gate, one of two halves is multiplied with the other"""
    is_gated = isinstance(network, GatedFeedForward)
    expand = linear_operation(
        "expand", layer, "Feed-forward: expand", f"h {letter} W₁ b₁", "(T,2I)" if is_gated else "(T,I)", network.expand,
        x, f"Each token on its own: {network.expand.w.shape[-1]} features are computed from its {x.shape[-1]} numbers.",
    )  # fmt: skip
    found = [expand]
    if is_gated:
        u, g = np.split(expand.values, 2, -1)
        found.append(activation_operation("activation", layer, network.activation, u, letter="u"))
        inner = found[-1].values * g
        found.append(Operation(
            "gate", layer, "Feed-forward: gate", "z = f(u) ⊙ g",
            "The features are two halves, u and g. A feature passes as far as its partner in g lets it.", "(T,I)",
            inner, FEATURES, line_of(GatedFeedForward.forward, "activated * gate"), gated(found[-1].values, g),
        ))  # fmt: skip
    else:
        found.append(activation_operation("activation", layer, network.activation, expand.values))
        inner = found[-1].values
    letters = "f z W₂ b₂" if is_gated else "f g W₂ b₂"
    about = "The active features are turned into a vector again."
    contract = ("contract", layer, "Feed-forward: contract", letters, "(T,H)", network.contract, inner, about)
    return [*found, linear_operation(*contract)]


def plain(step: str, layer: int | None, title: str, shape: str, values: np.ndarray) -> Operation:
    return Operation(step, layer, title, "", "An intermediate result of this architecture.", shape, values)


def scale_of(values: np.ndarray) -> float:
    """The size at which colours saturate: nearly all numbers are smaller"""
    size = float(np.quantile(np.abs(values), 0.99)) if values.size else 0.0
    return size if math.isfinite(size) and size > 0 else 1.0
