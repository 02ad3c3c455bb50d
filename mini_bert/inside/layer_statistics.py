"""Statistics of the activations while a model reads: mean, standard deviation, percentiles, dead units.

    for place in layer_statistics(model, ids, mask):
        print(place.name, place.std, place.dead)

The arrays come from the cache of `model.encode`, in the order of the computation:

    embeddings          input of the first block                                        (N,H)
    layer 0 context     output of the attention heads, before W_o                       (N,H)
    layer 0 inner       hidden layer of the feed-forward network, after ReLU or GELU    (N,I)
    layer 0 output      output of the block; for the last one, of the model             (N,H)

N tokens, without padding. A unit of the inner layer is *dead* if it is not above 0 for any token. With ReLU, it then
gets no gradient, so it stays dead on such text; GELU lets a little through below 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from mini_bert.layers.base import Run
from mini_bert.models.base import Model
from mini_bert.text.templates import pad

if TYPE_CHECKING:
    from mini_bert.text.base import Tokenizer

PERCENTILES = (1, 25, 50, 75, 99)
TOKENS = 1024  # per batch


class LayerStatistics(NamedTuple):
    name: str
    mean: float
    std: float
    percentiles: tuple[float, ...]  # 1, 25, 50, 75, 99 %
    active: float | None = None  # inner layers only: the share of values above 0
    dead: float | None = None  # inner layers only: the share of units that are above 0 for no token


def layer_statistics(
    model: Model, batches: Sequence[tuple[Any, ...]] | np.ndarray, mask: Any = None
) -> list[LayerStatistics]:
    """Statistics for one batch of ids (B,T) with its mask, or for a list of batches (ids, mask), perhaps with types."""
    if isinstance(batches, np.ndarray):
        batches = [(batches, mask)]
    gathered: dict[str, list[np.ndarray]] = {}
    for ids, mask, *types in batches:
        keep = np.ones(np.shape(ids), bool) if mask is None else np.asarray(mask).astype(bool)
        for name, values in _activations(model, ids, mask, *types).items():
            gathered.setdefault(name, []).append(values[keep])  # (n,H) or (n,I)
    if not gathered:
        raise ValueError("there is no text to compute statistics of; give at least one batch of ids")
    return [measured(name, np.concatenate(parts)) for name, parts in gathered.items()]


def text_statistics(model: Model, tokenizer: Tokenizer, texts: Sequence[str]) -> tuple[list[LayerStatistics], int]:
    """Returns the statistics for some texts, and their number of tokens."""
    room = model.max_length - tokenizer.added_count()
    pieces = sorted((row[:room] for row in tokenizer.ids(texts, special=False)), key=len)
    rows = [tokenizer.assemble(row) for row in pieces]
    size = max(1, TOKENS // len(rows[-1].ids))
    batches = [pad(rows[start : start + size], tokenizer.padding)[:3] for start in range(0, len(rows), size)]
    return layer_statistics(model, batches), sum(len(row.ids) for row in rows)


def _activations(model: Model, ids: Any, mask: Any, types: Any = None) -> dict[str, np.ndarray]:
    _, cache = model.encode(ids, mask, types, Run())
    first, *outputs = cache.hidden_states()
    arrays = cache.arrays()
    if "context_0" not in arrays:
        raise ValueError(
            "gradient checkpointing keeps only the inputs of blocks; analyse the model without gradient checkpointing"
        )
    named = {"embeddings": first}
    for layer, output in enumerate(outputs):
        named[f"layer {layer} context"] = arrays[f"context_{layer}"]
        named[f"layer {layer} inner"] = arrays[f"feed_forward_inner_{layer}"]
        named[f"layer {layer} output"] = output
    return named


def measured(name: str, values: np.ndarray) -> LayerStatistics:
    """The statistics of values (N,H), one row per token."""
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
