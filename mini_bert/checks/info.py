"""The architecture of a model as a table of shapes, for `mini-bert info`."""

from __future__ import annotations

from typing import Any, NamedTuple

from mini_bert.layers.base import Layer, Param
from mini_bert.models.base import Model


class Part(NamedTuple):
    name: str
    layer: Any
    weights: str  # with their shapes


def architecture(model: Model, inner: bool = False) -> list[tuple[str, str, str]]:
    """Returns (layer, shape of its output, its weights), from the ids to the heads. inner: it is a part of a model."""
    letters = {"T": model.max_length, "H": model.width, "V": model.vocab_size}
    hidden = _shape("(B,T,H)", letters)
    parts = _parts(model, inner)
    before = [part for part in parts if part.name in model.embedding_parts]
    after = [part for part in parts if part not in before and part.layer is not model.encoder]
    beside = [part for part in _parts(model.encoder) if part.name != "blocks"]
    outputs = {id(getattr(model, name)): _shape(model.head_shapes[name], letters) for name in model.output_heads}
    return [
        ("ids", _shape("(B,T)", letters), ""),
        *((f"embeddings: {part.name}", _shape(f"(B,T,{_width(part)})", letters), part.weights) for part in before),
        *((f"encoder: {part.name}", "", part.weights) for part in beside),
        *_blocks(model.encoder.blocks, hidden),
        *(row for part in after for row in _after(part, outputs.get(id(part.layer), hidden))),
    ]


def _after(part: Part, shape: str) -> list[tuple[str, str, str]]:
    """What follows the blocks; a model inside this one has rows of its own."""
    if not isinstance(part.layer, Model):
        return [(part.name, shape, part.weights)]
    rows = [(f"  {name}", output, weights) for name, output, weights in architecture(part.layer, inner=True)]
    return [(f"{part.name}:", "", ""), *rows]


def _width(part: Part) -> int:
    """The width of an embedding's output: by default, the last axis of its weights."""
    if isinstance(part.layer, Param):
        return part.layer.shape[-1]
    return getattr(part.layer, "width", next(iter(part.layer.named_params().values())).shape[-1])


def _blocks(blocks: list[Layer], hidden: str) -> list[tuple[str, str, str]]:
    rows = []
    for number, block in enumerate(blocks):
        start = f"block {number}: "
        if (first := blocks.index(block)) < number:
            rows.append((f"{start}the same as block {first}", hidden, ""))
            continue
        for part in _parts(block):
            heads = getattr(part.layer, "heads", None)
            split = f", {heads} heads of {part.layer.head_size}" if heads else ""
            rows.append((f"{start}{part.name}{split}", hidden, part.weights))
            start = " " * len(start)
    return rows


def _parts(layer: Layer, inner: bool = False) -> list[Part]:
    """The parts of a layer that have weights"""
    weights: dict[str, list[str]] = {}
    for path, param in layer.named_params().items():
        name, _, rest = path.partition(".")
        shared = " (shared)" if inner and param.name == path else ""  # its own weights have longer names there
        weights.setdefault(name, []).append(f"{rest} {_shape(param.shape)}{shared}".strip())
    return [Part(name, layer.children()[name], "  ".join(listed)) for name, listed in weights.items()]


def _shape(shape: Any, letters: Any = None) -> str:
    """A shape as text, without spaces. Letters are replaced by their numbers."""
    return "".join(str((letters or {}).get(letter, letter)) for letter in str(shape) if letter != " ")
