"""The sizes of Transformer-XL and XLNet for the memory planner: blocks with relative attention and a memory."""

from __future__ import annotations

from typing import Any, NamedTuple

from mini_bert.models.sizes import Kept, Shape, Sizes


class RelativeParts(NamedTuple):
    """What the memory of these models depends on besides the usual sizes."""

    memory: int = 0  # M
    keeps: bool = False  # whether the inputs of the blocks are kept for the next segment
    attention: int = 0  # A·d
    pre_norm: bool = False
    later: bool = False  # whether queries see later keys
    clusters: tuple[tuple[int, int], ...] = ()  # words and width of each cluster of words
    projected: bool = False


class TransformerXLSizes(Sizes):
    pass


class XLNetSizes(Sizes):
    pass
