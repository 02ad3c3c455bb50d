"""The encoder: L blocks in sequence, and the option to trade time for memory.

The same block may be in the list several times: it then has a cache for each time, and one gradient, the sum.

Each block runs with a fork of `run`, so its random numbers depend on its index only. That makes recomputation exact:
`Recompute(block)` stores only the block's input. Its backward first runs forward again, with the same dropout masks.
The results are bit-identical. Memory falls from the caches of L blocks to one, and time grows by one forward pass.
(Chen et al. 2016, "Training deep nets with sublinear memory cost"; usually called gradient checkpointing.)
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from mini_bert.layers.base import Layer, Run, bind
from mini_bert.layers.block import TransformerBlock


class RecomputeCache(NamedTuple):
    arrays: tuple[np.ndarray, ...]  # x, and other inputs that have gradients
    inputs: dict[str, Any]
    state: Any  # of the run, to draw the same random numbers again

    @property
    def input(self) -> np.ndarray:
        return self.arrays[0]

    @property
    def attention_weights(self) -> np.ndarray:
        raise ValueError(
            "gradient checkpointing keeps no attention weights; inspect the model without gradient checkpointing"
        )

    def named(self) -> dict[str, np.ndarray]:
        return {}


class Recompute(Layer):
    """The same function as the inner layer, but its cache holds only the input."""

    def __init__(self, layer: Layer):
        self.layer = layer

    def children(self):
        return self.layer.children()  # so that the weights keep their names

    def forward(self, *arrays_and_run, **inputs):
        *arrays, run = arrays_and_run
        y, _ = self.layer.forward(*arrays, run, **inputs)
        return y, RecomputeCache(tuple(arrays), inputs, run.state)

    def backward(self, dy, cache, run):
        _, inner = self.layer.forward(*cache.arrays, run.replay(cache.state), **cache.inputs)
        return self.layer.backward(dy, inner, run)


class Encoder(Layer):
    """y = block_L(… block_1(x))        With `chosen`, the last block computes these rows only: y (N,H)."""

    def __init__(self, blocks: Sequence[Layer]):
        self.blocks = list(blocks)

    def forward(self, x, run, chosen=None, **inputs):  # x (B,T,H)
        caches = []
        for index, block in enumerate(self.blocks):
            if chosen is not None and index == len(self.blocks) - 1:
                inputs["chosen"] = chosen
            x, cache = block.forward(x, run.fork(index), **self.block_inputs(index, inputs))
            caches.append(cache)
        return x, caches

    def block_inputs(self, index: int, inputs: dict[str, Any]) -> dict[str, Any]:
        """What a block gets besides x: here the same for all, such as the mask. Local attention needs other masks in
        some blocks, and a memory has a part for each."""
        return inputs

    def backward(self, dy, caches, run):  # dy (B,T,H) or (N,H)
        """Empties `caches`, so that the memory of each block is freed as soon as its gradient is done."""
        self.check(caches)
        for block in reversed(self.blocks):
            dy = block.backward(dy, caches.pop(), run)
        return dy

    def check(self, caches) -> None:
        """Raise if backward has already used these caches."""
        if not caches:
            raise ValueError("this cache was already used by a backward pass; run forward again to get a new one")
        if len(caches) != len(self.blocks):
            raise ValueError(
                f"this cache is of another model: it has {len(caches)} blocks, this model has {len(self.blocks)}"
            )


if __name__ == "__main__":
    x, dy = np.random.default_rng(0).normal(size=(2, 2, 5, 8)).astype(np.float32)
    gradients = []
    for recompute in (False, True):
        blocks: list[Layer] = [TransformerBlock(8, heads=2, inner=32, p=0.1) for _ in range(3)]
        encoder = Encoder([Recompute(block) for block in blocks] if recompute else blocks)
        gradients.append(bind(encoder, seed=0).grad)
        y, caches = encoder.forward(x, Run(seed=1, train=True))
        print(f"recompute {recompute!s:5} stores a {type(caches[0]).__name__} per block: {caches[0]._fields}")
        encoder.backward(dy, caches, Run())
    print(f"all {gradients[0].size:,} gradients are bit-identical: {np.array_equal(gradients[0], gradients[1])}")
