"""Switch attention heads off: the same model, in which some heads pass nothing on.

    y = [C_1 … C_A] W_o         rows a·d … (a+1)·d of W_o read the context of head a; set to 0, they read nothing

A head that is switched off still attends, but its context no longer reaches the residual stream. Later layers notice.
(Michel, Levy & Neubig 2019, "Are sixteen heads really better than one?", do the same by a factor 0 before W_o.)

    weaker = without_heads(model, [(0, 1), (2, 3)])         layer 0, head 1 and layer 2, head 3

The result shares all other weights with the model, which does not change. Use it for forward passes only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mini_bert.models.base import Model


def without_heads(model: Model, heads: Sequence[tuple[int, int]]) -> Model:
    """The model without these heads, given as (layer, head). Only the changed matrices are copied."""
    twin: Any = _shallow(model)
    twin.encoder = _shallow(model.encoder)
    twin.encoder.blocks = list(model.encoder.blocks)
    for layer, head in heads:
        if not (0 <= layer < model.depth and 0 <= head < model.heads):
            raise ValueError(
                f"there is no head {head} in layer {layer}; layers are 0 to {model.depth - 1}, heads 0 to "
                f"{model.heads - 1}"
            )
        block = twin.encoder.blocks[layer]
        attention: Any = getattr(block, "attention", None)
        if not hasattr(attention, "output") or not hasattr(attention, "head_size"):
            raise ValueError(
                f"heads of this {type(model).__name__} cannot be switched off: its attention has other parts than "
                "BERT's; use a Mini-BERT or a BERT"
            )
        output, d = attention.output, attention.head_size
        weights = _shallow(output.w)
        weights.data = output.w.data[:].copy()
        weights.data[head * d : (head + 1) * d] = 0
        twin.encoder.blocks[layer] = _shallow(
            block, attention=_shallow(attention, output=_shallow(output, w=weights))
        )  # fmt: skip
    return twin


def _shallow(item: Any, **changed: Any) -> Any:
    """A copy that shares all attributes except these. (`copy.copy` would leave out weights: Param.__getstate__.)"""
    twin = object.__new__(type(item))
    vars(twin).update(vars(item), **changed)
    return twin
