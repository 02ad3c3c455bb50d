"""What Transformer-XL and XLNet share: blocks that read a memory, and the memory for the next segment.

    memory_l' = the last mem_len of [memory_l, x_l]          x_l: the input of block l, (B,T,H); one memory per block

Block l reads the memory of its own input, so its tokens see one segment further back, and after L blocks L segments.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from mini_bert.common.inputs import check_ids, check_mask
from mini_bert.models.base import Inputs, Model

ANY_LENGTH = 1 << 40


class Recurrent(Model):
    """A model with a memory and relative distances, and therefore without a limit to the length of a text.

    `config.max_length` is the length of the segments it is trained on.
    """

    def check_inputs(self, input_ids, attention_mask=None, token_types=None) -> Inputs:
        ids = check_ids(input_ids, self.vocab_size, ANY_LENGTH)
        return Inputs(ids, check_mask(attention_mask, ids.shape), self.check_types(token_types, ids))

    def check_memory(self, memory: Any, B: int) -> list[np.ndarray] | None:
        """The memory as a list of L arrays (B,M,H), or None."""
        if memory is None:
            return None
        memory = list(memory)
        shapes = {np.shape(part) for part in memory}
        fits = len(memory) == self.depth and len(shapes) == 1 and len(shape := next(iter(shapes))) == 3
        if not fits or (shape[0], shape[2]) != (B, self.width):
            raise ValueError(
                f"the memory has {len(memory)} arrays of shapes {sorted(shapes)}, expected {self.depth} of shape "
                f"({B}, any number, {self.width}): one for each block, with as many sequences as the batch"
            )
        return [np.asarray(part, self.dtype) for part in memory]


def next_memory(memory: Sequence[np.ndarray] | None, states: Sequence[np.ndarray], most: float = math.inf):
    """The last `most` rows of [memory, state], for each block: (B,M,H)"""
    found = []
    for index, state in enumerate(states):
        if memory is None or state.shape[1] >= most:
            both = state
        else:
            both = np.concatenate([memory[index], state], 1)
        found.append(both[:, max(0, both.shape[1] - most) if most < math.inf else 0 :])
    return found


def with_memory(mask: np.ndarray | None, M: int) -> np.ndarray | None:
    """A mask for T keys becomes one for M + T: the memory is always visible."""
    if mask is None or M == 0:
        return mask
    return np.concatenate([np.ones((*mask.shape[:-1], M), bool), mask], -1)


def causal_mask(T: int, M: int, window: int | None = None) -> np.ndarray:
    """(T,M+T) True where key j may be seen by query i: j ≤ M + i, and only the last `window` of these"""
    distance = M + np.arange(T)[:, None] - np.arange(M + T)
    seen = distance >= 0
    return seen if window is None else seen & (distance < window)
