"""What Transformer-XL and XLNet share: blocks that read a memory, and the memory for the next segment.

    memory_l' = the last mem_len of [memory_l, x_l]          x_l: the input of block l, (B,T,H); one memory per block

Block l reads the memory of its own input, so its tokens see one segment further back, and after L blocks L segments.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from mini_bert.common.inputs import check_ids, check_mask
from mini_bert.layers.base import Run
from mini_bert.models.base import Inputs, Model
from mini_bert.models.saving import Name

ANY_LENGTH = 1 << 40
LONGEST_MEMORY = 100_000  # tokens; published models remember at most 4,000
OTHER_NAMES = {  # under which files of both may have these fields
    "n_token": "vocab_size", "hidden_size": "d_model", "num_attention_heads": "n_head", "num_hidden_layers": "n_layer"
}  # fmt: skip


class Recurrent(Model):
    """A model with a memory and relative distances, and therefore without a limit to the length of a text.

    `config.max_length` is the length of the segments it is trained on.
    """

    sharing: ClassVar[tuple[str, ...]] = ("tie_word_embeddings", "untie_r")  # fields of the config

    def check_inputs(self, input_ids, attention_mask=None, token_types=None) -> Inputs:
        ids = check_ids(input_ids, self.vocab_size, ANY_LENGTH)
        return Inputs(ids, check_mask(attention_mask, ids.shape), self.check_types(token_types, ids))

    def room(self, memory: Any) -> float:
        return math.inf

    def check_memory(self, memory: Any, B: int) -> list[np.ndarray] | None:
        """The memory as a list of L arrays (B,M,H), or None."""
        if memory is None or len(memory) == 0:
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

    # ------------------------------------------------------------------ files: copies of what is shared

    def copies(self) -> dict[str, str]:
        """Names of tensors in files that repeat another: copy -> original"""
        return {}

    def file_tensors(self, task: str = "") -> dict[str, Any]:
        """As `transformers` writes them: biases that blocks share are in each, tables of a tied head are in none."""
        tensors = super().file_tensors(task)
        prefix = self.prefix if any(name.startswith(self.prefix) for name in tensors) else ""
        for copy, original in self.copies().items():
            if not copy.startswith(self.head_prefixes):
                tensors[prefix + copy] = tensors[prefix + original].copy()
        return tensors

    def reconcile(self, tensors: dict[str, Any], table: list[Name], source: str) -> list[str]:
        """Files may hold copies of what is shared. They must be equal: the model has only one."""
        for copy, original in self.copies().items():
            if copy in tensors and not np.array_equal(tensors[copy], tensors.setdefault(original, tensors[copy])):
                raise ValueError(
                    f"{source}: config.json says that {copy} and {original} are shared, but they differ; change "
                    f"{' or '.join(self.sharing)} there to what the model was trained with"
                )
        return [name for name in super().reconcile(tensors, table, source) if name not in self.copies()]


def next_memory(memory: Sequence[np.ndarray] | None, states: Sequence[np.ndarray], most: int | None = None):
    """The last `most` rows of [memory, state], for each block: (B,M,H). None: all of them"""
    memories = []
    for index, state in enumerate(states):
        T = state.shape[1]
        before = 0 if memory is None else memory[index].shape[1]
        kept = before if most is None else min(before, max(0, most - T))  # rows of the old memory
        if kept:
            state = np.concatenate([memory[index][:, before - kept :], state], 1)  # type: ignore[index]
        elif most is not None and most < T:
            state = state[:, T - most :]
        memories.append(state)
    return memories


def share_biases(blocks: Sequence[Any]) -> None:
    """All blocks use the biases of the first one."""
    first = blocks[0].attention
    for block in blocks[1:]:
        block.attention.content_bias, block.attention.distance_bias = first.content_bias, first.distance_bias
        if first.segments is not None:
            block.attention.segments.bias = first.segments.bias


def waves_run(run: Run, number: int) -> Run:
    """For dropout in the waves, which are the same for all sequences, whatever part of a batch these are."""
    return Run((*run.seed, number + 1), run.train, run.pool)
