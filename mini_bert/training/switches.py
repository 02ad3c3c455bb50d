"""The switches of a run: what a large model can trade for memory, put on a model that knows nothing of them.

    checkpointing      a block keeps only its input and runs forward again in backward (layers/encoder.Recompute):
                       of every layer (True), of some (0, 2, 4), of none (False). Same results, to the last bit
    attention          "plain", "lean" or "auto": whether who looks at whom is written down (layers/lean_attention.py)
    activations        what the other blocks hold for backward is kept in 16 bits (layers/packed.py)
    weights            are kept in 16 bits, and rounded stochastically at every step (common/sixteen_bit.py)

Adam's moments in 16 bits are the optimiser's own affair: Adam(moments="bfloat16").

`apply` sets a model to what a TrainingConfig says, whatever it was before. `applied` does so for a `with` block, and
leaves the model as it was found: whoever looks at it afterwards finds the caches of every layer again.

`mini-bert plan` says which switches a run needs (training/plan.py).
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
    """Set the model's switches; call before replicas are made of it, which then have them, too."""
    check(model, settings)
    blocks = [bare(block) for block in model.encoder.blocks]
    for attention in _switchable_attention(model):
        attention.method = settings.attention
    again = checkpointed_layers(settings.checkpointing, len(blocks))
    if settings.activations != "float32":
        blocks = [
            block if index in again else Packed(block, settings.activations) for index, block in enumerate(blocks)
        ]
    model.encoder.blocks = [Recompute(block) if index in again else block for index, block in enumerate(blocks)]
    if settings.weights != "float32" or model.flat.data.itemsize == 2:
        model.keep_weights(settings.weights)


def check(model: Model, settings: TrainingConfig) -> None:
    """Refuse what `apply` could not do to this model, before anything is changed"""
    blocks = [bare(block) for block in model.encoder.blocks]
    again = checkpointed_layers(settings.checkpointing, len(blocks))
    wanted = {"checkpointing": bool(again), "attention": settings.attention == "lean",
              "activations": settings.activations != "float32"}  # fmt: skip
    for index, block in enumerate(blocks):
        for switch in sorted(name for name, is_wanted in wanted.items() if is_wanted and name not in block.switches):
            if switch != "checkpointing" or index in again:
                raise ValueError(
                    f"{switch} is {getattr(settings, switch)!r}, but layer {index} of this {type(model).__name__}, a "
                    f"{type(block).__name__}, does not support that; leave {switch} at its default"
                )
    if settings.weights != "float32":
        model.check_weights(settings.weights)


@contextmanager
def applied(model: Model, settings: TrainingConfig) -> Iterator[None]:
    """The switches are on inside the `with` block, and as before behind it; weights are then float32 again."""
    before = model.encoder.blocks
    methods = [attention.method for attention in _switchable_attention(model)]
    try:
        apply(model, settings)
        yield
    finally:
        model.encoder.blocks = before
        for attention, method in zip(_switchable_attention(model), methods, strict=True):
            attention.method = method
        if model.flat.data.itemsize == 2:
            model.keep_weights("float32")


def _switchable_attention(model: Model) -> list[Any]:
    """The attention layers that can work in tiles"""
    blocks: list[Any] = [bare(block) for block in model.encoder.blocks]
    return [block.attention for block in blocks if "attention" in block.switches]


def bare(block: Layer) -> Layer:
    """The block itself, wrapped or not"""
    return block.layer if isinstance(block, Recompute | Packed) else block


def checkpointed_layers(checkpointing: bool | tuple[int, ...], layers: int) -> frozenset[int]:
    """The numbers of the layers that run again in backward"""
    if isinstance(checkpointing, bool):
        return frozenset(range(layers) if checkpointing else ())
    beyond = [layer for layer in checkpointing if not 0 <= layer < layers]
    if beyond:
        raise ValueError(
            f"checkpointing names layer {beyond[0]}, but the model has layers 0 to {layers - 1}; "
            "name some of these, or leave the numbers out to take all"
        )
    return frozenset(checkpointing)


def parse_checkpointing(text: str) -> bool | tuple[int, ...]:
    """What stands behind --checkpointing: "all", "none", or numbers of layers as "0,2,4\""""
    if text in ("all", "none"):
        return text == "all"
    try:
        return tuple(int(number) for number in text.split(","))
    except ValueError:
        raise ValueError(
            f"--checkpointing is {text!r}, expected nothing or all (every layer), none, or numbers such as 0,2,4"
        ) from None
