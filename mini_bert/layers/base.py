"""The contract of all layers, and the three parts that make it work: Param, bind and Run.

A layer is a function with weights. It stores no activations: `forward` returns its output and a *cache*, and the caller
passes that cache to `backward`.

    y, cache = layer.forward(x, run)
    dx = layer.backward(dy, cache, run)        # dy = ∂loss/∂y,  dx = ∂loss/∂x

So one layer can be used several times before its backward (by two threads, or as one block applied twelve times), and
memory is freed as soon as the cache is dropped. Gradients of weights are always *added* to `param.grad`, because shared
weights and accumulated batches need their sum.

- `Param`   one weight array and its gradient
- `bind`    places all Params of a model in two flat arrays; the optimiser, clipping and saving work on these
- `Run`     what one thread needs for a pass: the seed of its random numbers, whether we are training, scratch memory

Letters for shapes, in all layers: B batch, T tokens, H hidden width, A heads, d = H/A, I feed-forward width,
V vocabulary, L layers, N rows (the tokens of all sequences, or those selected, as one list).
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Mapping
from copy import copy
from functools import lru_cache
from typing import Any, ClassVar, NamedTuple

import numpy as np

from mini_bert.common.draws import address
from mini_bert.common.eight_bit import Int8
from mini_bert.common.sixteen_bit import Stored
from mini_bert.layers.initialisers import Initialiser
from mini_bert.layers.matrices import add_product


class Param:
    """A weight and its gradient: `data` and `grad`, two views into the flat arrays made by `bind`.

    The constructor only declares the shape, the initialiser, whether weight decay applies, and how many `matrices` it
    has, side by side in its columns: 1 for y = x W, 3 for queries, keys and values in one, 0 for tables and vectors.
    This is for optimisers that treat a matrix as a whole (training/muon.py).

    While `grad_is_unset`, the contents of `grad` are meaningless and count as 0: the first `add` or `add_product`
    overwrites them. This saves a training step from filling all gradients with zeros first. Code that changes `grad`
    directly calls `zero_if_unset` before.

    A `frozen` weight is stored in 8 bits, outside of the flat arrays. It has no gradient; copies share it.
    """

    grad_is_unset = False
    frozen: Int8 | None = None
    name: str
    data: Any  # an array, a Stored one, or the frozen one
    grad: np.ndarray
    place: slice  # its position in the flat arrays

    def __init__(self, shape: tuple[int, ...], init: Initialiser, decay: bool = True, matrices: int = 0):
        self.shape, self.init, self.decay, self.matrices = shape, init, decay, matrices
        self.size = math.prod(shape)

    def add(self, gradient: np.ndarray) -> None:
        """grad += gradient"""
        if self.grad_is_unset:
            self.grad[...] = gradient
            self.grad_is_unset = False
        else:
            self.grad += gradient

    def add_product(self, a: np.ndarray, b: np.ndarray, run: Run) -> None:
        """grad += a @ b"""
        if self.grad_is_unset:
            np.matmul(a, b, out=self.grad)
            self.grad_is_unset = False
        else:
            add_product(self.grad, a, b, run)

    def zero_if_unset(self) -> None:
        if self.grad_is_unset:
            self.grad[...] = 0
            self.grad_is_unset = False

    def part(self, index: Any) -> Param:
        """Returns data[index] and grad[index] as a Param that shares their memory."""
        self.zero_if_unset()
        part = copy(self)
        part.data = self.data.part(index) if isinstance(self.data, Stored | Int8) else self.data[index]
        if self.frozen is None:
            part.grad = self.grad[index]
        else:
            part.frozen = part.data
        part.shape, part.size = part.data.shape, part.data.size
        vars(part).pop("place", None)  # it need not be contiguous
        return part

    def __deepcopy__(self, memo: Any) -> Param:
        """A copy is a new weight with the same declaration; it needs a `bind` of its own."""
        twin = Param(self.shape, self.init, self.decay, self.matrices)
        twin.frozen = self.frozen
        return twin

    def __getstate__(self) -> dict[str, Any]:  # a pickle contains the declaration; the model's pickle has the weights
        bound = ("data", "grad", "place", "grad_is_unset")
        return {name: value for name, value in vars(self).items() if name not in bound}

    def __getattr__(self, name: str) -> Any:  # called only for attributes that do not exist
        if name in ("grad", "place") and self.frozen is not None:
            raise ValueError(
                f"this weight of shape {self.shape} is stored in 8 bits and has no gradient; call "
                'keep_weights("float32") of the model first'
            )
        if name in ("data", "grad", "name", "place"):
            raise AttributeError(f"this weight of shape {self.shape} has no memory yet: call bind(layer) first")
        raise AttributeError(name)

    def __repr__(self) -> str:
        return f"Param{self.shape}"


class Layer:
    """Holds hyper-parameters and `Param`s, never activations."""

    # What training can change about a layer, to save memory (training/switches.py). A block with "attention" has an
    # `attention.method`; one whose backward needs its cache unrounded has no "activations".
    switches: ClassVar[frozenset[str]] = frozenset({"checkpointing", "activations"})

    # The Params that can be stored in 8 bits: name -> the axis with a scale for each index, that of the outputs
    eight_bit: ClassVar[Mapping[str, int]] = {}

    forward: Callable[..., tuple[Any, Any]]  # (x, run) -> y, cache
    backward: Callable[..., Any]  # (dy, cache, run) -> dx; adds to the `grad` of every Param involved

    def children(self) -> dict[str, Any]:
        """The attributes to search for Params, in order of declaration."""
        return vars(self)

    def named_params(self) -> dict[str, Param]:
        """Every distinct Param by its dotted path (`blocks.0.attention.qkv.w`), in order of declaration.

        A shared Param (a tied head) appears once, under the first path that leads to it.
        """
        first: dict[int, tuple[str, Param]] = {}
        for path, param in _walk(self, ""):
            first.setdefault(id(param), (path, param))
        return dict(first.values())

    def eight_bit_params(self) -> dict[str, int]:
        """The paths of all Params that can be stored in 8 bits, with the axis of their scales"""
        paths = {id(param): path for path, param in self.named_params().items()}
        found: dict[str, int] = {}
        for layer in _layers(self):
            for name, axis in layer.eight_bit.items():
                found.setdefault(paths[id(getattr(layer, name))], axis)
        return found


class Unchanged(Layer):
    """y = x        Where an architecture has a layer in one place and none in another."""

    def forward(self, x, run):
        return x, None

    def backward(self, dy, cache, run):
        return dy


def _walk(item: Any, path: str) -> Iterator[tuple[str, Param]]:
    if isinstance(item, Param):
        yield path, item
    elif isinstance(item, Layer):
        for name, value in item.children().items():
            yield from _walk(value, f"{path}.{name}" if path else name)
    elif isinstance(item, list):
        for index, value in enumerate(item):
            yield from _walk(value, f"{path}.{index}")


def _layers(item: Any) -> Iterator[Layer]:
    """A layer and all layers inside it"""
    if isinstance(item, Layer):
        yield item
        item = list(item.children().values())
    for part in item if isinstance(item, list) else ():
        yield from _layers(part)


class Flat(NamedTuple):
    """All weights of a model as one vector, and all gradients as another."""

    data: np.ndarray  # (P,)
    grad: np.ndarray  # (P,)
    decayed: int  # weight decay applies to data[:decayed]; biases and norms follow


def bind(
    layer: Layer,
    data: np.ndarray | None = None,
    grad: np.ndarray | None = None,
    *,
    dtype: Any = np.float32,
    seed: int | None = None,
) -> Flat:
    """Place every Param in two flat arrays, those with weight decay first.

    Pass `data` to share existing weights: a replica for a second thread has the same weights and its own gradient.
    `data` may be in 16 bits (common/sixteen_bit.py). With a `seed`, the weights are initialised. They are drawn in
    float64 and rounded, so that a float32 and a float64 model with the same seed start from the same point.

    Weights in 8 bits (`Param.frozen`) are not in the flat arrays, and stay as they are.
    """
    params = layer.named_params()
    for name, param in params.items():
        if param.frozen is not None:
            param.name, param.data = name, param.frozen
            for earlier in ("grad", "place"):
                vars(param).pop(earlier, None)
    params = {name: param for name, param in params.items() if param.frozen is None}
    size = sum(param.size for param in params.values())
    data = np.zeros(size, dtype) if data is None else data
    narrow = data.itemsize == 2
    grad = np.zeros(size, np.float32 if narrow else data.dtype) if grad is None else grad
    for label, array in (("data", data), ("grad", grad)):
        if array.shape != (size,):
            raise ValueError(f"bind: {label} has shape {array.shape}, this model needs ({size},)")

    start, decayed = 0, sum(param.size for param in params.values() if param.decay)
    for name, param in sorted(params.items(), key=lambda item: not item[1].decay):  # stable: keeps the order
        param.name, param.place = name, slice(start, start + param.size)
        view = data[param.place].reshape(param.shape)
        param.data = Stored(view) if narrow else view
        param.grad = grad[param.place].reshape(param.shape)
        start += param.size
    if seed is not None:
        rng = np.random.default_rng(seed)
        for param in params.values():
            param.data[...] = param.init(rng, param.shape)
    return Flat(data, grad, decayed)


class Pool:
    """Scratch buffers for reuse, because the first access to new memory is slow."""

    def __init__(self) -> None:
        self._free: list[np.ndarray] = []  # flat byte arrays

    def take(self, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        needed = math.prod(shape) * np.dtype(dtype).itemsize
        fitting = [i for i, buffer in enumerate(self._free) if buffer.nbytes >= needed]
        if fitting:
            buffer = self._free.pop(min(fitting, key=lambda i: self._free[i].nbytes))
        else:
            buffer = np.empty(needed, np.uint8)
        return buffer[:needed].view(dtype).reshape(shape)

    def give(self, array: np.ndarray) -> None:
        while array.base is not None:
            array = array.base
        self._free.append(array)


@lru_cache(1024)
def _seed_key(seed: tuple[int, ...]) -> np.ndarray:
    """The key of a seed. The length is part of it, so that (1, 0) and (1, 0, 0) have different keys."""
    return address(len(seed), *seed)


class Run:
    """What one thread needs while it computes.

    seed    of the random numbers. Two Runs with the same seed draw the same numbers; `fork` gives different ones
    train   whether dropout is on
    pool    scratch memory; without one, `take` allocates
    first   the index of the first sequence, if these sequences are a part of a larger batch: dropout depends on it
    """

    def __init__(self, seed: int | tuple[int, ...] = 0, train: bool = False, pool: Pool | None = None, first: int = 0):
        self.seed = tuple(map(operator.index, seed if isinstance(seed, tuple) else (seed,)))
        self.train = train
        self.pool = pool
        self.first = first

    def keys(self, sequence: Any, *place: Any) -> np.ndarray:
        """The keys of the random numbers (common/draws.py) for a place, such as token 5 of sequence 2 of the batch."""
        return address(sequence + self.first, *place, after=_seed_key(self.seed))

    def fork(self, *key: int) -> Run:
        """Returns a Run with different random numbers, determined by our seed and `key`."""
        return Run(self.seed + key, self.train, self.pool, self.first)

    @property
    def state(self) -> tuple[tuple[int, ...], bool, int]:
        """What `replay` needs to repeat this Run."""
        return self.seed, self.train, self.first

    def replay(self, state: tuple[tuple[int, ...], bool, int]) -> Run:
        """Returns a Run that draws the same random numbers as the Run with this state, and uses our scratch memory."""
        seed, train, first = state
        return Run(seed, train, self.pool, first)

    def take(self, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        """Returns a scratch buffer with undefined contents. Return it with `give`."""
        return np.empty(shape, dtype) if self.pool is None else self.pool.take(shape, dtype)

    def give(self, array: np.ndarray) -> None:
        if self.pool is not None:
            self.pool.give(array)
