"""The encoder: L blocks in a row, and the option to trade time for memory.

Every block runs on a fork of `run`, with random numbers decided by its index alone. That makes
recomputation exact: `Recompute(block)` keeps only the block's input, and in the backward pass runs the
forward pass again, drawing the very same dropout masks, before going backward through it. The results are
identical to the last bit; memory falls from L blocks' caches to one, time grows by one forward pass.
(Chen et al. 2016, "Training deep nets with sublinear memory cost".)
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from mini_bert.layers.base import Layer, Run, bind
from mini_bert.layers.block import TransformerBlock


class RecomputeCache(NamedTuple):
    x: Any
    inputs: dict[str, Any]
    state: Any  # of the run, to draw the same random numbers again


class Recompute(Layer):
    """Same function as the layer inside; its cache is the input instead of everything computed from it."""

    def __init__(self, layer: Layer):
        self.layer = layer

    def children(self):
        return self.layer.children()  # weights keep their names, wrapped or not

    def forward(self, x, run, **inputs):
        y, _ = self.layer.forward(x, run, **inputs)
        return y, RecomputeCache(x, inputs, run.state)

    def backward(self, dy, cache, run):
        _, inner = self.layer.forward(cache.x, run.replay(cache.state), **cache.inputs)
        return self.layer.backward(dy, inner, run)


class Encoder(Layer):
    """y = block_L(… block_1(x))        With `chosen`, the last block answers for these rows only: y (N,H)."""

    def __init__(self, blocks: Sequence[Layer]):
        self.blocks = list(blocks)

    def forward(self, x, run, mask=None, chosen=None):  # x (B,T,H)
        caches = []
        for index, block in enumerate(self.blocks):
            last = index == len(self.blocks) - 1
            x, cache = block.forward(x, run.fork(index), mask=mask, chosen=chosen if last else None)
            caches.append(cache)
        return x, caches

    def backward(self, dy, caches, run):  # dy (B,T,H) or (N,H)
        """Uses the caches up: each block's memory is free as soon as its gradient is done."""
        self.check(caches)
        for block in reversed(self.blocks):
            dy = block.backward(dy, caches.pop(), run)
        return dy

    def check(self, caches) -> None:
        """Refuse used caches before any gradient is touched."""
        if len(caches) != len(self.blocks):
            raise ValueError("this cache was used up by an earlier backward; run forward again to get a new one")


if __name__ == "__main__":
    x, dy = np.random.default_rng(0).normal(size=(2, 2, 5, 8)).astype(np.float32)
    gradients = []
    for recompute in (False, True):
        blocks: list[Layer] = [TransformerBlock(8, heads=2, inner=32, p=0.1) for _ in range(3)]
        encoder = Encoder([Recompute(block) for block in blocks] if recompute else blocks)
        gradients.append(bind(encoder, seed=0).grad)
        y, caches = encoder.forward(x, Run(seed=1, train=True))
        print(f"recompute {recompute!s:5} keeps a {type(caches[0]).__name__} per block: {caches[0]._fields}")
        encoder.backward(dy, caches, Run())
    print(
        f"all {gradients[0].size:,} gradients identical to the last bit: {np.array_equal(gradients[0], gradients[1])}"
    )
