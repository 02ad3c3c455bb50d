"""The blocks of all architectures, operation by operation.

    after the sums     x′ = LN(x + a), y = LN(x′ + f)       BERT and its relatives, DeBERTa, Transformer-XL, XLNet
    before the halves  x′ = x + a(LN(x)), y = x′ + f(LN(x′))        GPT-2, ModernBERT

What the cache leaves out, because backward does not need it, comes from calling the same layer on its input again.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mini_bert.lab.attention_operations import Attended, attention_operations
from mini_bert.lab.explaining import convolved
from mini_bert.lab.operation_kinds import (
    FEATURES,
    Operation,
    activation_operation,
    feed_forward_operations,
    norm_operation,
    plain,
    residual_operation,
)
from mini_bert.lab.source import line_of
from mini_bert.layers.base import Unchanged
from mini_bert.layers.block import TransformerBlock
from mini_bert.layers.convolution import Convolution
from mini_bert.layers.disentangled_encoder import ConvolvedBlock
from mini_bert.layers.pre_norm_block import PreNormBlock
from mini_bert.layers.relative_block import PreNormRelativeBlock, RelativeBlock


def block_operations(block: Any, cache: Any, layer: int, tokens: tuple[str, ...]) -> list[Operation]:
    """One block; of a kind that is not known here, the arrays in its cache."""
    inner = cache.block if isinstance(block, ConvolvedBlock) else cache
    own = Attended.of(getattr(block, "attention", None), getattr(inner, "attention", None))
    if own is None or not known(block):
        return arrays_of(cache, layer)
    x = cache.input[0]
    if isinstance(block, PreNormBlock | PreNormRelativeBlock):
        return norms_before(block, own, x, layer, tokens)
    found = norms_after(block, own, x, layer, tokens)
    return found + convolution(block, x, found[-1].values, layer) if isinstance(block, ConvolvedBlock) else found


def known(block: Any) -> bool:
    """Whether what follows attention is that of a kind below, and no subclass has changed it."""
    if isinstance(block, TransformerBlock):
        return type(block).after_attention is TransformerBlock.after_attention
    return isinstance(block, PreNormBlock | RelativeBlock)


def arrays_of(cache: Any, layer: int) -> list[Operation]:
    shapes = {2: "(T,H)", 3: "(A,T,·)"}
    arrays = {name: array[0] for name, array in cache.named().items() if array.ndim > 2 and len(array) == 1}
    return [
        plain(name, layer, name.replace("_", " ").capitalize(), shapes[array.ndim], array)
        for name, array in arrays.items()
        if array.ndim in shapes
    ]


def norms_after(block: Any, own: Attended, x: np.ndarray, layer: int, tokens: tuple[str, ...]) -> list[Operation]:
    """x′ = LN(x + a),  y = LN(x′ + f)"""
    function = RelativeBlock.rest if isinstance(block, RelativeBlock) else TransformerBlock.after_attention
    found = attention_operations(own, layer, tokens)
    found.append(residual_operation("attention_sum", layer, {"x": x, "a": found[-1].values}, function, "a += x"))
    found.append(norm_operation("attention_norm", layer, "Layer norm", block.attention_norm, found[-1].values))
    normal = found[-1].values
    found += feed_forward_operations(layer, block.feed_forward, normal)
    found.append(residual_operation("output_sum", layer, {"x": normal, "f": found[-1].values}, function, "f += x"))
    title = "Layer norm" if isinstance(block, ConvolvedBlock) else "Layer norm: the output of the block"
    return [*found, norm_operation("output_norm", layer, title, block.output_norm, found[-1].values)]


def norms_before(block: Any, own: Attended, x: np.ndarray, layer: int, tokens: tuple[str, ...]) -> list[Operation]:
    """x′ = x + a(n),  y = x′ + f(n′)        n = LN(x), n′ = LN(x′)"""
    function, code = (PreNormRelativeBlock.rest, "f += a") if isinstance(block, RelativeBlock) else (
        PreNormBlock.forward, "y += a")  # fmt: skip
    found = []
    if not isinstance(block.attention_norm, Unchanged):
        found.append(norm_operation("attention_norm", layer, "Layer norm", block.attention_norm, x))
    found += attention_operations(own, layer, tokens, "n" if found else "x")
    found.append(residual_operation("attention_sum", layer, {"x": x, "a": found[-1].values}, function, "a += x"))
    stream = found[-1].values
    norm = block.output_norm if isinstance(block, RelativeBlock) else block.feed_forward_norm
    found.append(norm_operation("feed_forward_norm", layer, "Layer norm", norm, stream))
    found += feed_forward_operations(layer, block.feed_forward, found[-1].values, "n")
    parts = {"x": stream, "f": found[-1].values}
    title = "Residual connection: the output of the block"
    return [*found, residual_operation("output_sum", layer, parts, function, code, title)]


def convolution(block: Any, x: np.ndarray, y: np.ndarray, layer: int) -> list[Operation]:
    """y′ = LN(y + f(Convolution(x))), beside the first block of a DeBERTa v2"""
    conv = block.convolution
    c = conv.forward(x[None], None)[0][0]
    first = Operation(
        "convolution", layer, "Convolution", "c_t = Σ_n x_{t+n} W_n + b",
        f"A sum over each token and its neighbours, {conv.size} in all: it sees word pieces in their order.", "(T,H)",
        c, FEATURES, line_of(Convolution.forward, "y += self.times"), convolved(x, conv.w.data, conv.b.data),
    )  # fmt: skip
    active = activation_operation("convolution_activation", layer, block.activation, c, "(T,H)", "c")
    parts = {"y": y, "g": active.values}
    total = residual_operation("convolution_sum", layer, parts, ConvolvedBlock.forward, "y += c", "Sum with the block")
    title = "Layer norm: the output of the block"
    return [
        first,
        active,
        total,
        norm_operation("convolution_norm", layer, title, block.convolution_norm, total.values),
    ]
