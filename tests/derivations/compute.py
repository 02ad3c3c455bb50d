"""Runs a layer of the library on the numbers of an example."""

from __future__ import annotations

from typing import Any

import numpy as np

from mini_bert.layers.base import Layer, Run, bind


def with_weights(layer: Layer, **weights: Any) -> Layer:
    """The layer in float64. Weights that are not given are 0, those of norms 1 (γ).        "qkv.w" is given as qkv_w"""
    bind(layer, dtype=np.float64)
    params = layer.named_params()
    for name, param in params.items():
        param.data[...] = weights.pop(name.replace(".", "_"), 1.0 if name.endswith("gamma") else 0.0)
    assert not weights, f"{list(weights)} are not among {list(params)}"
    return layer


def both(layer: Layer, *inputs: Any, dy: Any, **keywords: Any) -> tuple[Any, Any, dict[str, np.ndarray]]:
    """y, the gradients of the inputs, and the gradients of the weights by name"""
    y, cache = layer.forward(*inputs, Run(), **keywords)
    dx = layer.backward(dy, cache, Run())
    return y, dx, {name.replace(".", "_"): param.grad for name, param in layer.named_params().items()}


def side_by_side(*matrices: Any) -> np.ndarray:
    return np.concatenate(matrices, -1)
