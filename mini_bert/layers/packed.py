"""Packed: what a layer computed is kept in 16 bits until backward asks for it.

Most memory of training is caches: every block keeps its input, q, k, v, the attention weights, the inner features of
its feed-forward network. `Packed(block)` computes as the block does, in float32, and then rounds its cache to 16 bits
(common/sixteen_bit.py); backward widens it again, one block at a time. Half the memory, and gradients that are off by
the rounding: run this file to see by how much.

Lean attention makes its weights again from q and k, as exp(s − L). Rounding q and k moves a score s by about s/500 in
bfloat16 (s/4000 in float16), and the weight by that share. Measured on a random block of 640 tokens, the gradient of
W_qkv is as good as plain attention's, which keeps its weights, while the largest L is 8; at 12 it is off 1.8 times as
much, at 23 by 3, at 46 by 6. L itself stays float32, for an error there would scale all weights of its row.

The alternative that costs time instead of precision is Recompute (encoder.py).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from mini_bert.common.sixteen_bit import LARGEST, check_kind, narrow, stored, widen
from mini_bert.layers.base import Layer, Run, bind

SMALL = 1024  # numbers, below which an array is kept as it is


class View(NamedTuple):
    """An array that was a part of one that is kept only once: q, k and v lie in one array."""

    whole: int  # which
    offset: int  # in bytes
    shape: tuple[int, ...]
    strides: tuple[int, ...]


class PackedCache(NamedTuple):
    tree: Any  # the cache, with a View in place of every array
    wholes: list[np.ndarray]  # 16 bits a number

    def unpacked(self) -> Any:
        """The cache as the layer made it, but for rounding"""
        wholes = [widen(bits) for bits in self.wholes]

        def view(leaf: View) -> np.ndarray:
            return np.ndarray(leaf.shape, np.float32, wholes[leaf.whole].data, leaf.offset, leaf.strides)

        return _each(self.tree, View, view)


def pack(cache: Any, kind: str) -> PackedCache:
    wholes: list[np.ndarray] = []
    places: dict[int, tuple[int, np.ndarray]] = {}  # by the id of an owner, which is held so that its id stays its own

    def keep(array: np.ndarray) -> Any:
        if array.dtype != np.float32 or array.size < SMALL:
            return array
        whole = _owner(array)
        if whole is None:
            array = whole = np.ascontiguousarray(array)
        if id(whole) not in places:
            bits = stored(whole.size, kind)
            narrow(whole.reshape(-1), bits)
            if kind == "float16":  # what is beyond its range becomes its largest: one gradient is off, not all infinite
                beyond = np.isinf(bits)
                if beyond.any():
                    bits[beyond] = np.copysign(np.float16(LARGEST), bits[beyond])
            places[id(whole)] = len(wholes), whole
            wholes.append(bits)
        return View(places[id(whole)][0], array.ctypes.data - whole.ctypes.data, array.shape, array.strides)

    return PackedCache(_each(cache, np.ndarray, keep), wholes)


def _owner(array: np.ndarray) -> np.ndarray | None:
    """The array whose memory it is, if that holds little else"""
    whole = array
    while isinstance(whole.base, np.ndarray):
        whole = whole.base
    fits = whole.dtype == np.float32 and whole.flags.c_contiguous and whole.size <= 4 * array.size
    return whole if fits else None


def _each(tree: Any, kind: type, change: Any) -> Any:
    """The same tree of tuples and lists, with every leaf of that kind changed, but for what a cache names as `exact`"""
    if isinstance(tree, kind):
        return change(tree)
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        exact = getattr(tree, "exact", ())
        changed = (
            branch if name in exact else _each(branch, kind, change)
            for name, branch in zip(tree._fields, tree, strict=True)
        )  # fmt: skip
        return type(tree)(*changed)
    if isinstance(tree, tuple | list):
        return type(tree)(_each(branch, kind, change) for branch in tree)
    return tree


class Packed(Layer):
    """Same function as the layer inside; its cache takes half the memory."""

    def __init__(self, layer: Layer, kind: str = "bfloat16"):
        check_kind("kind", kind)
        self.layer, self.kind = layer, kind

    def children(self):
        return self.layer.children()  # weights keep their names, wrapped or not

    def forward(self, x, run, **inputs):
        y, cache = self.layer.forward(x, run, **inputs)
        return y, pack(cache, self.kind)

    def backward(self, dy, cache, run):
        return self.layer.backward(dy, cache.unpacked(), run)


if __name__ == "__main__":
    from mini_bert.layers.block import TransformerBlock

    def size(tree: Any) -> int:
        if isinstance(tree, np.ndarray):
            return tree.nbytes
        return sum(size(branch) for branch in tree) if isinstance(tree, tuple | list) else 0

    block = TransformerBlock(64, heads=4, inner=256)
    grad = bind(block, seed=0).grad
    x, dy = np.random.default_rng(0).normal(size=(2, 4, 32, 64)).astype(np.float32)
    y, cache = block.forward(x, Run())
    exact = block.backward(dy, cache, Run())
    kept = pack(cache, "bfloat16")
    for kind in ("bfloat16", "float16"):
        packed = Packed(block, kind)
        y, kept = packed.forward(x, Run())
        error = np.linalg.norm(packed.backward(dy, kept, Run()) - exact) / np.linalg.norm(exact)
        print(f"{kind:9} keeps {size(kept.wholes) / 1e3:4.0f} kB; dx is off by one part in {1 / error:,.0f}")
    views = (kept.tree.attention.q, kept.tree.attention.k, kept.tree.attention.attended.v)
    print(f"q, k and v are views of {len({view.whole for view in views})} array, which is kept once")
