"""Mini-BERT and published BERT as the same thing: ids in, a vector for every token out, and all that lies between.

What is built on a trained model (probes, fine-tuning, attention pictures) needs no more than this:

    y, cache = encode(model, ids, mask, types)      y (B,T,H)
    dx = encode_backward(model, dy, cache)          gradients are added to the model's
    hidden_states(y, cache)                         what entered each block, and y: L+1 arrays (B,T,H)
    attention_weights(cache)                        who looked at whom in each block: L arrays (B,A,T,T)

Nothing is computed twice for this: the states and weights are read from the cache that backward needs anyway. Only
lean attention (layers/lean_attention.py), for long sequences, keeps no weights; they are computed again when asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from mini_bert.layers.encoder import RecomputeCache
from mini_bert.layers.packed import PackedCache
from mini_bert.models.mini_bert import MiniBERT

if TYPE_CHECKING:
    from mini_bert.layers.base import Run
    from mini_bert.models.bert import Bert

T = TypeVar("T")


def encode(model: MiniBERT | Bert, ids, mask=None, types=None, run: Run | None = None, chosen=None):
    """-> y (B,T,H), or (N,H) for chosen rows, and the cache

    types: 0 in the first text, 1 in the second, for models that tell them apart; Mini-BERT has only the [SEP] between.
    """
    if isinstance(model, MiniBERT):
        return model.encode(ids, mask, run, chosen)
    return model.encode(ids, mask, types, run, chosen)


def encode_backward(model: MiniBERT | Bert, dy, cache, run: Run | None = None):
    """-> dx (B,T,H), the gradient at the sum of the embeddings; uses the cache up"""
    return model.encode_backward(dy, cache, run)


def hidden_states(y: np.ndarray, cache: Any) -> list[np.ndarray]:
    """[embeddings, after block 1, …, after block L−1, y]: L+1 arrays (B,T,H), read before backward uses the cache up"""
    return [*(_entered(block) for block in cache.blocks), y]


def _entered(block: Any) -> np.ndarray:
    if isinstance(block, RecomputeCache):
        return block.x
    if isinstance(block, PackedCache):
        block = block.unpacked()
    x = block.attention.projected  # what the product for q, k and v saw; with chosen rows, that for k and v
    return x[-1] if isinstance(x, tuple) else x


def attention_weights(cache: Any) -> list[np.ndarray]:
    """The weights of each block, (B,A,T,T): the row of a token says whom it looked at, and sums to 1"""
    if any(isinstance(block, RecomputeCache) for block in cache.blocks):
        raise ValueError(
            "these blocks were wrapped in Recompute, which keeps no attention weights; "
            "look at the model without gradient checkpointing"
        )
    blocks = [block.unpacked() if isinstance(block, PackedCache) else block for block in cache.blocks]
    return [block.attention.attended.probs for block in blocks]


def batches(rows: Iterable[T], length: Callable[[T], int], tokens: int) -> Iterator[list[T]]:
    """Rows that come from short to long, so many at a time that with padding they are at most `tokens`, or one

    >>> list(batches(["a", "bb", "bb", "cccc", "ddddd"], len, 4))
    [['a', 'bb'], ['bb'], ['cccc'], ['ddddd']]
    """
    batch: list[T] = []
    for row in rows:
        if batch and (len(batch) + 1) * length(row) > tokens:
            yield batch
            batch = []
        batch.append(row)
    if batch:
        yield batch
