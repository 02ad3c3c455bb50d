"""The switches of a run, which save memory at the cost of time or precision. They can be applied to any model.

    checkpointing      a block keeps only its input and runs forward again in backward (layers/encoder.Recompute):
                       all layers (True), some (0, 2, 4), or none (False). The results are bit-identical
    attention          "plain", "lean" or "auto": whether attention weights are stored (layers/lean_attention.py)
    activations        what the other blocks keep for backward is stored in 16 bits (layers/packed.py)
    weights            are stored in 16 bits, and rounded stochastically at every step (common/sixteen_bit.py)

Adam's moments in 16 bits are an option of the optimiser: Adam(moments="bfloat16").

`apply` sets a model's switches to those of a TrainingConfig, whatever they were before. `applied` does so for a `with`
block and restores the model afterwards, so that the caches of all layers can be inspected again.

`mini-bert plan` shows which switches a run needs (training/plan.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from mini_bert.layers.base import Layer
from mini_bert.layers.encoder import Recompute
from mini_bert.layers.packed import Packed
from mini_bert.training.settings import TrainingConfig

if TYPE_CHECKING:
    from mini_bert.models.base import Model


def apply(model: Model, settings: TrainingConfig) -> None:
    """Set the model's switches. Call this before making replicas, which copy them."""
    check(model, settings)
    for attention in _switchable_attention(model):
        attention.method = settings.attention
    every = checkpointed_layers(settings.checkpointing, len(model.encoder.blocks))
    for part in (model, *model.inner_models()):  # a generator may have fewer layers
        blocks = [bare(block) for block in part.encoder.blocks]
        recomputed = every if settings.checkpointing is not True else range(len(blocks))
        if settings.activations != "float32":
            blocks = [
                block if index in recomputed else Packed(block, settings.activations)
                for index, block in enumerate(blocks)
            ]
        part.encoder.blocks = [Recompute(block) if index in recomputed else block for index, block in enumerate(blocks)]
    if settings.weights != "float32" or model.flat.data.itemsize == 2 or model.in_eight_bits:
        model.keep_weights(settings.weights)


def check(model: Model, settings: TrainingConfig) -> None:
    """Raise the error that `apply` would raise for this model, before anything is changed."""
    blocks = [bare(block) for block in model.encoder.blocks]
    recomputed = checkpointed_layers(settings.checkpointing, len(blocks))
    wanted = {"checkpointing": bool(recomputed), "attention": settings.attention == "lean",
              "activations": settings.activations != "float32"}  # fmt: skip
    for index, block in enumerate(blocks):
        for switch in sorted(name for name, is_wanted in wanted.items() if is_wanted and name not in block.switches):
            if switch != "checkpointing" or index in recomputed:
                raise ValueError(
                    f"{switch} is {getattr(settings, switch)!r}, but layer {index} of this {type(model).__name__}, a "
                    f"{type(block).__name__}, does not support that; leave {switch} at its default"
                )
    if settings.weights != "float32":
        model.check_weights(settings.weights)


@contextmanager
def applied(model: Model, settings: TrainingConfig) -> Iterator[None]:
    """Apply the switches inside the `with` block; afterwards, restore the old ones, and weights in float32."""
    parts = (model, *model.inner_models())
    before = [part.encoder.blocks for part in parts]
    methods = [attention.method for attention in _switchable_attention(model)]
    try:
        apply(model, settings)
        yield
    finally:
        for part, blocks in zip(parts, before, strict=True):
            part.encoder.blocks = blocks
        for attention, method in zip(_switchable_attention(model), methods, strict=True):
            attention.method = method
        if model.flat.data.itemsize == 2:
            model.keep_weights("float32")


def _switchable_attention(model: Model) -> list[Any]:
    """The attention layers that can work in tiles"""
    parts = (model, *model.inner_models())
    blocks: list[Any] = [bare(block) for part in parts for block in part.encoder.blocks]
    return [block.attention for block in blocks if "attention" in block.switches]


def bare(block: Layer) -> Layer:
    """The block without a wrapper."""
    return block.layer if isinstance(block, Recompute | Packed) else block


def checkpointed_layers(checkpointing: bool | tuple[int, ...], layers: int) -> frozenset[int]:
    """The numbers of the layers that are recomputed in backward."""
    if isinstance(checkpointing, bool):
        return frozenset(range(layers) if checkpointing else ())
    beyond = [layer for layer in checkpointing if not 0 <= layer < layers]
    if beyond:
        raise ValueError(
            f"checkpointing names layer {beyond[0]}, but the model has layers 0 to {layers - 1}; "
            "choose among these, or leave out the numbers to checkpoint all layers"
        )
    return frozenset(checkpointing)


def parse_checkpointing(text: str) -> bool | tuple[int, ...]:
    """The value of --checkpointing: "all", "none", or layer numbers such as "0,2,4"."""
    if text in ("all", "none"):
        return text == "all"
    try:
        return tuple(int(number) for number in text.split(","))
    except ValueError:
        raise ValueError(
            f"--checkpointing is {text!r}, expected nothing or all (every layer), none, or numbers such as 0,2,4"
        ) from None
