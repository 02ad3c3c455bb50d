"""The architecture of a model as a table of shapes, for `mini-bert info`."""

from __future__ import annotations

from typing import Any, NamedTuple

from mini_bert.layers.base import Layer
from mini_bert.models.base import Model


class Part(NamedTuple):
    name: str
    layer: Any
    weights: str  # with their shapes


def architecture(model: Model) -> list[tuple[str, str, str]]:
    """Returns (layer, shape of its output, its weights), from the ids to the heads."""
    letters = {"T": model.max_length, "H": model.width, "V": model.vocab_size}
    hidden = _shape("(B,T,H)", letters)
    parts = _parts(model)
    before = [part for part in parts if part.name in model.embedding_parts]
    after = [part for part in parts if part not in before and part.layer is not model.encoder]
    beside = [part for part in _parts(model.encoder) if part.name != "blocks"]
    outputs = {id(getattr(model, name)): _shape(model.head_shapes[name], letters) for name in model.output_heads}
    return [
        ("ids", _shape("(B,T)", letters), ""),
        *((f"embeddings: {part.name}", hidden, part.weights) for part in before),
        *((f"encoder: {part.name}", "", part.weights) for part in beside),
        *_blocks(model.encoder.blocks, hidden),
        *((part.name, outputs.get(id(part.layer), hidden), part.weights) for part in after),
    ]


def _blocks(blocks: list[Layer], hidden: str) -> list[tuple[str, str, str]]:
    rows = []
    for number, block in enumerate(blocks):
        start = f"block {number}: "
        if (first := blocks.index(block)) < number:
            rows.append((f"{start}the same as block {first}", hidden, ""))
            continue
        for part in _parts(block):
            heads = getattr(part.layer, "heads", None)
            split = f", {heads} heads of {part.layer.width // heads}" if heads else ""
            rows.append((f"{start}{part.name}{split}", hidden, part.weights))
            start = " " * len(start)
    return rows


def _parts(layer: Layer) -> list[Part]:
    """The parts of a layer that have weights"""
    weights: dict[str, list[str]] = {}
    for path, param in layer.named_params().items():
        name, _, rest = path.partition(".")
        weights.setdefault(name, []).append(f"{rest} {_shape(param.shape)}".strip())
    return [Part(name, layer.children()[name], "  ".join(listed)) for name, listed in weights.items()]


def _shape(shape: Any, letters: Any = None) -> str:
    """A shape as text, without spaces. Letters are replaced by their numbers."""
    return "".join(str((letters or {}).get(letter, letter)) for letter in str(shape) if letter != " ")
