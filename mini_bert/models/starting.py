"""How `train` starts a new BERT-like model: by attending to neighbouring tokens, as Mini-BERT does.

    P = waves, and the tokens' own table is 0 in the first d coordinates        d: the width of a head
    W_qkv of the first block += weights with which each head attends to a neighbour

Published models started with noise everywhere, and much text. A small model then predicts by word frequency for
thousands of steps, before it finds out that neighbouring tokens matter (docs/decisions/0003). These are initial values
only, and a model that was trained before keeps its own.

The waves are as large as the noise of the tokens' table. The norm at the embeddings divides both by the standard
deviation of their sum; ALBERT and ELECTRA then map E coordinates to H, which must leave the waves as they are:

    W[:, :d] = 0,   W[:d, :d] = 1          the other columns N(0, 1/E), so that vectors keep their length
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from mini_bert.layers.initialisers import neighbour_weights, sinusoids
from mini_bert.layers.linear import Linear

RATIO = 1.4  # amplitude of the waves / standard deviation of the tokens' table: both then have the same variance


def attend_to_neighbours(model: Any, mapping: Linear | None = None) -> None:
    """Set the initial values of a model with tables of tokens and positions; mapping: from the embeddings to blocks."""
    positions, d = model.positions.table.data, model.width // model.heads // 2 * 2  # (T,E)
    added = [part.table.data for part in (model.tokens, getattr(model, "types", None)) if part]
    if not 2 <= d < positions.shape[1]:
        return  # no room for waves beside the tokens
    for table in added:
        table[:, :d] = 0
    amplitude = RATIO * float(added[0][:, d:].std())
    positions[...] = sinusoids(amplitude, even=d)(np.random.default_rng(0), positions.shape)
    amplitude /= math.sqrt(sum(float(np.square(table).mean()) for table in (*added, positions)))  # after the norm
    if mapping is not None:
        w = mapping.w.data  # (E,H)
        w /= float(w.std()) * math.sqrt(len(w))
        w[:, :d] = np.eye(len(w), d)
    model.encoder.blocks[0].attention.qkv.w.data += neighbour_weights(model.width, model.heads, amplitude)
