"""The sizes of a model, as the memory planner needs them; every config has a `sizes()`."""

from __future__ import annotations

from typing import NamedTuple


class Sizes(NamedTuple):
    """The sizes of a model that its memory depends on."""

    name: str
    vocab_size: int  # V
    width: int  # H
    depth: int  # L
    heads: int  # A
    intermediate: int  # I
    max_length: int  # T
    parameters: int  # P
    tied: bool  # the output head shares the token table
    dropout: bool
    attention_dropout: bool
    embedding_norm: bool
    inner_kept: int  # arrays (B,T,I) that a feed-forward network keeps for backward
    inner_temporary: float  # and those that its backward allocates
    head_kept: int  # arrays (N,H) that the output head keeps, besides the logits


def block_parameters(width: int, inner: int) -> int:
    """The parameters of attention without biases, a feed-forward network and two norms."""
    return 4 * width * width + 2 * width * inner + inner + width + 4 * width
