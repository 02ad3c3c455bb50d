"""What a model takes and what it computed on the way, in the same form for every architecture.

    hidden, cache = model.encode(ids)           also: output, cache = model.forward(ids)
    cache["attention_weights_0"]                (B,A,T,T): row t holds how much token t attends to each token, block 0
    cache.hidden_states()                       [embeddings, after block 1, …, hidden], L+1 arrays (B,T,H)

Names that every model has; `list(cache)` has all names:

    embeddings              (B,T,H)     the input of the first block
    block_input_i           (B,T,H)     for each block i, counted from 0
    attention_input_i       (B,T,H)     the block's input, or its norm where norms come before sublayers
    query_i key_i value_i   (B,A,T,d)
    attention_weights_i     (B,A,T,T)   not with lean attention: cache.attention_weights() computes them
    context_i               (B,T,H)     the contexts of all heads side by side
    hidden                  (B,T,H)     the output of the encoder

Names that depend on the architecture (a norm is shown as x̂, before γ and β):

    embedding_norm          (B,T,E)     BERT and its relatives; E: the width of the embeddings, H for most
    attention_norm_i        (B,T,H)     all so far
    output_norm_i           (B,T,H)     all so far
    feed_forward_inner_i    (B,T,I)     all so far: the hidden layer after its activation
    final_norm              (B,T,H)     Mini-BERT
    convolution_norm_0      (B,T,H)     DeBERTa v2

With a memory of M tokens (Transformer-XL, XLNet), the names above are for the tokens of this segment, and

    memory_key_i            (B,A,M,d)   those of the memory; also memory_value_i
    memory_weights_i        (B,A,T,M)   how much each token attends to it; with attention_weights_i, rows sum to 1

XLNet with an order of prediction has two streams. The content stream has the names above, `hidden` is of the query
stream, and the query stream has names of its own, for the N rows that are predicted, at most P in one sequence:

    query_stream_input_i                (N,H)       also query_stream_context_i, query_stream_output_norm_i, …
    query_stream_query_i                (B,A,P,d)   its keys and values are those of the content stream
    query_stream_attention_weights_i    (B,A,P,T)   also query_stream_memory_weights_i, (B,A,P,M)

With gradient checkpointing a block keeps only its input. With `chosen`, the last block and what follows have N rows; if
these are rows of the query stream, the last block has keys and values, but computes no content stream.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np


class Inputs(NamedTuple):
    """Checked inputs of one batch. Architectures without positions, a memory or an order ignore these."""

    ids: np.ndarray  # (B,T)
    mask: np.ndarray | None = None  # broadcasts to (B,A,T,T), True for tokens that may be attended to; None: all
    types: np.ndarray | None = None  # (B,T) 0 in the first text, 1 in the second; None: 0 everywhere
    positions: np.ndarray | None = None  # (B,T); None: 0, 1, 2, …
    memory: Any = None  # the input of each block in the previous segment, L arrays (B,M,H); gets no gradient
    order: np.ndarray | None = None  # (B,T) the place of each token in the order of prediction (XLNet); None: no order


class EncodeCache(Mapping[str, np.ndarray]):
    """The intermediate results of `encode`, for `encode_backward` and for inspection by name.

    embedding, final     caches of `embed` and `finish`
    blocks               the cache of each block, with `input`, `attention_weights` and `named()`; backward empties it
    more                 arrays outside the blocks, by name
    outputs              caches of output heads, by name, if `forward` ran them
    memory               for the next segment, where the architecture has one
    """

    def __init__(
        self,
        inputs: Inputs,
        embedded: np.ndarray,
        embedding: Any,
        blocks: list[Any],
        final: Any,
        hidden: np.ndarray,
        more: Mapping[str, np.ndarray] | None = None,
    ):
        self.inputs, self.embedded, self.embedding = inputs, embedded, embedding
        self.blocks, self.final, self.hidden = blocks, final, hidden
        self.more = more or {}
        self.outputs: dict[str, Any] = {}
        self.memory: Any = None

    def hidden_states(self) -> list[np.ndarray]:
        """[embeddings, after block 1, …, after block L−1, hidden]: L+1 arrays (B,T,H). Read them before backward."""
        return [*(block.input for block in self.blocks), self.hidden]

    def attention_weights(self) -> list[np.ndarray]:
        """The weights of each block, (B,A,T,T); every row sums to 1, without those of a memory. Lean attention computes
        them on request."""
        return [block.attention_weights for block in self.blocks]

    def arrays(self) -> dict[str, np.ndarray]:
        named = {"embeddings": self.embedded}
        for index, block in enumerate(self.blocks):
            named[f"block_input_{index}"] = block.input
            named |= {f"{name}_{index}": array for name, array in block.named().items()}
        return {**named, **self.more, "hidden": self.hidden}

    def __getitem__(self, name: str) -> np.ndarray:
        arrays = self.arrays()
        if name not in arrays:
            why = "" if self.blocks else " (backward has used up the caches of the blocks)"
            if name.startswith("attention_weights_") and name.replace("attention_weights", "query") in arrays:
                why = " (lean attention keeps none; cache.attention_weights() computes them)"
            elif (block := name.rpartition("_")[2]) and f"block_input_{block}" in arrays:
                if f"key_{block}" not in arrays:
                    why = " (gradient checkpointing keeps only a block's input)"
                elif f"query_{block}" not in arrays:
                    why = " (only the chosen rows of the query stream were needed; encode without `chosen` to see it)"
            raise KeyError(f"no array {name!r} in this cache{why}; it has {', '.join(arrays)}")
        return arrays[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.arrays())

    def __len__(self) -> int:
        return len(self.arrays())
