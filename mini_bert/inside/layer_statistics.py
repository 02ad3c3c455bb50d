"""What the numbers inside a model look like while it reads: mean, spread, percentiles, place by place; units that died.

    for place in layer_statistics(model, ids, mask):
        print(place.name, place.std, place.dead)

All is read from the caches that backward needs anyway. Places, in the order of the computation:

    embeddings          the sum that enters the first block                     (N,H)
    layer 0 context     what the heads gathered, before W_o                     (N,H)
    layer 0 inner       the feed-forward's inside, after ReLU or GELU           (N,I)
    layer 0 output      what leaves the block; of the last, what leaves the model       (N,H)

N tokens: padding does not count. A unit of the inside is *dead* if ReLU let nothing of it through for any token: no
gradient reaches it either, so it stays dead on such text. GELU lets a little through below 0; there a unit is called
dead if it never rose above 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from mini_bert.layers.base import Run
from mini_bert.layers.encoder import RecomputeCache
from mini_bert.layers.packed import PackedCache
from mini_bert.models.base import Model

if TYPE_CHECKING:
    pass

PERCENTILES = (1, 25, 50, 75, 99)


class LayerStatistics(NamedTuple):
    name: str
    mean: float
    std: float
    percentiles: tuple[float, ...]  # 1, 25, 50, 75, 99 %
    active: float | None = None  # of the feed-forward's inside: the share of numbers above 0
    dead: float | None = None  # and the share of units that are above 0 for no token


def layer_statistics(
    model: Model, batches: Sequence[tuple[Any, Any]] | np.ndarray, mask: Any = None
) -> list[LayerStatistics]:
    """Of one batch of ids (B,T) with its mask, or of several as a list of (ids, mask)"""
    if isinstance(batches, np.ndarray):
        batches = [(batches, mask)]
    gathered: dict[str, list[np.ndarray]] = {}
    for ids, own in batches:
        keep = np.ones(np.shape(ids), bool) if own is None else np.asarray(own).astype(bool)
        for name, values in _places(model, ids, own).items():
            gathered.setdefault(name, []).append(values[keep])  # (n,H) or (n,I)
    if not gathered:
        raise ValueError("there is no text to measure on; give at least one batch of ids")
    return [measured(name, np.concatenate(parts)) for name, parts in gathered.items()]


def _places(model: Model, ids: Any, mask: Any) -> dict[str, np.ndarray]:
    _, cache = model.encode(ids, mask, run=Run())
    first, *outputs = cache.hidden_states()
    found = {"embeddings": first}
    for layer, (block, output) in enumerate(zip(cache.blocks, outputs, strict=True)):
        if isinstance(block, PackedCache):
            block = block.unpacked()
        if isinstance(block, RecomputeCache):
            raise ValueError(
                "these blocks were wrapped in Recompute, which keeps only what enters them; look at the model without "
                "gradient checkpointing"
            )
        found[f"layer {layer} context"] = block.attention.output
        found[f"layer {layer} inner"] = block.feed_forward.contract
        found[f"layer {layer} output"] = output
    return found


def measured(name: str, values: np.ndarray) -> LayerStatistics:
    """values (N,H): every token a row"""
    inner = name.endswith("inner")
    above = values > 0
    return LayerStatistics(
        name,
        float(values.mean(dtype=float)),
        float(values.std(dtype=float)),
        tuple(np.percentile(values, PERCENTILES).tolist()),
        float(above.mean()) if inner else None,
        float((~above.any(0)).mean()) if inner else None,
    )
