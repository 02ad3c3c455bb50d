"""What every layer agrees on: weights that know their gradient, and a forward that forgets nothing backward needs.

A layer is a function with weights. It never remembers what passed through it: `forward` returns its
output together with a *cache*, and `backward` is handed that cache again.

    y, cache = layer.forward(x, run)
    dx = layer.backward(dy, cache, run)        # dy = ∂loss/∂y in, dx = ∂loss/∂x out

So one layer can be in use twice at once (two threads, or one block applied twelve times), and memory
lives exactly as long as somebody holds the cache. Gradients of weights are always *added* to
`param.grad`: calling twice sums, which is what shared weights and accumulated batches need.

Three small things make this work:

- `Param`   one weight array and its gradient;
- `bind`    lays all Params of a model into two long flat arrays, so that optimiser, clipping and saving
            are operations on one vector;
- `Run`     what one thread needs while computing: random numbers, whether we are training, scratch memory.

Letters used for shapes in all layers: B batch, T tokens, H hidden width, A heads, d = H/A,
I feed-forward width, V vocabulary, L layers, N rows (all tokens of all sequences, or the chosen ones, in one list).
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator
from copy import copy
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from mini_bert.common.draws import address
from mini_bert.common.sixteen_bit import Stored

SCATTER = 512  # rows that are added to a table at a time
PRODUCT = 1 << 18  # numbers of a product that are computed at a time

Initialiser = Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]


def normal(std: float, silent: int = 0) -> Initialiser:
    """Draw from N(0, std²); the first `silent` columns are 0."""

    def init(rng, shape):
        drawn = rng.normal(0.0, std, shape)
        drawn[..., :silent] = 0
        return drawn

    return init


def zeros(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return np.zeros(shape)


def ones(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return np.ones(shape)


class Param:
    """A weight and its gradient: two views, `data` and `grad`, into the flat arrays made by `bind`.

    A constructor only declares the shape, how the weight starts, and whether weight decay may shrink it.

    A gradient may be `fresh`: nothing has been added yet, and whatever its memory holds does not count. `add` and
    `add_product` then write instead of adding, and `settle` makes it 0 for those who add in another way. That spares a
    step of training both the setting to 0 and the first addition.
    """

    fresh = False
    name: str
    data: Any  # an array, or a Stored one
    grad: np.ndarray
    place: slice  # where they lie in the flat arrays

    def __init__(self, shape: tuple[int, ...], init: Initialiser, decay: bool = True):
        self.shape, self.init, self.decay = shape, init, decay
        self.size = math.prod(shape)

    def add(self, gradient: np.ndarray) -> None:
        """grad += gradient"""
        if self.fresh:
            self.grad[...] = gradient
            self.fresh = False
        else:
            self.grad += gradient

    def settle(self) -> None:
        """A gradient to which nothing was added is 0."""
        if self.fresh:
            self.grad[...] = 0
            self.fresh = False

    def part(self, index: Any) -> Param:
        """Some of its numbers, as a Param that shares their memory."""
        self.settle()
        part = copy(self)
        part.data = self.data.part(index) if isinstance(self.data, Stored) else self.data[index]
        part.grad = self.grad[index]
        part.shape, part.size = part.data.shape, part.data.size
        vars(part).pop("place", None)  # it may lie here and there
        return part

    def __deepcopy__(self, memo: Any) -> Param:
        """A copy is a new weight of the same kind, which `bind` has yet to give its memory."""
        return Param(self.shape, self.init, self.decay)

    def __getattr__(self, name: str) -> Any:  # reached only while `data` and `grad` do not exist yet
        if name in ("data", "grad", "name", "place"):
            raise AttributeError(f"this weight of shape {self.shape} has no memory yet: call bind(layer) first")
        raise AttributeError(name)

    def __repr__(self) -> str:
        return f"Param{self.shape}"


class Layer:
    """Holds hyper-parameters and `Param`s, never activations."""

    forward: Callable[..., tuple[Any, Any]]  # (x, run) -> y, cache
    backward: Callable[..., Any]  # (dy, cache, run) -> dx; adds to the `grad` of every Param on the way

    def children(self) -> dict[str, Any]:
        """Where to look for Params: the attributes, in order of declaration."""
        return vars(self)

    def named_params(self) -> dict[str, Param]:
        """Every distinct Param under its dotted path (`blocks.0.attention.qkv.w`), in order of declaration.

        A shared Param (a tied head) appears once, under the first path that leads to it.
        """
        found: dict[int, tuple[str, Param]] = {}
        for path, param in _walk(self, ""):
            found.setdefault(id(param), (path, param))
        return dict(found.values())


def _walk(item: Any, path: str) -> Iterator[tuple[str, Param]]:
    if isinstance(item, Param):
        yield path, item
    elif isinstance(item, Layer):
        for name, value in item.children().items():
            yield from _walk(value, f"{path}.{name}" if path else name)
    elif isinstance(item, list):
        for index, value in enumerate(item):
            yield from _walk(value, f"{path}.{index}")


class Flat(NamedTuple):
    """All weights of a model as one vector, all gradients as another."""

    data: np.ndarray  # (P,)
    grad: np.ndarray  # (P,)
    decayed: int  # weight decay applies to data[:decayed]; biases and norms lie behind


def bind(
    layer: Layer,
    data: np.ndarray | None = None,
    grad: np.ndarray | None = None,
    *,
    dtype: Any = np.float32,
    seed: int | None = None,
) -> Flat:
    """Give every Param its place in two flat arrays, weights that decay first. Weights may be in 16 bits
    (common/sixteen_bit.py).

    Pass `data` to share weights that exist already (a replica: same weights, own gradient); with a
    `seed` the weights are drawn anew. The draw is made in float64 and rounded, so a float32 and a float64
    model of the same seed start from the same point.
    """
    params = layer.named_params()
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
    """Scratch buffers that are lent and come back, because fresh memory is slow to touch the first time."""

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
def _of_seed(seed: tuple[int, ...]) -> np.ndarray:
    """Where the addresses of a seed begin; its length comes first, so that no seed goes on as another ends"""
    return address(len(seed), *seed)


class Run:
    """What one thread needs while it computes.

    seed    of its random numbers: a Run with the same seed draws the same ones, so a second dropout needs a fork
    first   the number of its first sequence, where a batch is computed in parts: it decides which masks they meet
    train   whether dropout is on
    take    a scratch buffer with undefined content; whoever takes one gives it back
    """

    def __init__(self, seed: int | tuple[int, ...] = 0, train: bool = False, pool: Pool | None = None, first: int = 0):
        self.seed = tuple(map(operator.index, seed if isinstance(seed, tuple) else (seed,)))
        self.train = train
        self.pool = pool
        self.first = first

    def keys(self, sequence: Any, *place: Any) -> np.ndarray:
        """A key for the random numbers (common/draws.py) of each place: token 5 of the batch's sequence 2, for one"""
        return address(sequence + self.first, *place, after=_of_seed(self.seed))

    def fork(self, *key: int) -> Run:
        """A Run with random numbers of its own, decided by our seed and `key`."""
        return Run(self.seed + key, self.train, self.pool, self.first)

    def again(self, ticket: tuple[tuple[int, ...], bool, int]) -> Run:
        """Replay: a Run that draws what the Run of that ticket drew, in the memory of this one."""
        seed, train, first = ticket
        return Run(seed, train, self.pool, first)

    @property
    def ticket(self) -> tuple[tuple[int, ...], bool, int]:
        return self.seed, self.train, self.first

    def take(self, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        return np.empty(shape, dtype) if self.pool is None else self.pool.take(shape, dtype)

    def give(self, array: np.ndarray) -> None:
        if self.pool is not None:
            self.pool.give(array)


def rows(x: np.ndarray) -> np.ndarray:
    """All tokens of all sequences as one list: (..., H) -> (N,H), without copying where possible."""
    return x.reshape(math.prod(x.shape[:-1]), x.shape[-1])  # -1 would not do for no rows at all


def total(x: np.ndarray) -> np.ndarray:
    """Σ x over the last axis, (...,H) -> (...,1). As a product with ones, 4 times as fast as x.sum(-1)."""
    return (rows(x) @ np.ones(x.shape[-1], x.dtype)).reshape(*x.shape[:-1], 1)


def mean(x: np.ndarray) -> np.ndarray:
    """The mean over the last axis, (...,H) -> (...,1)."""
    return total(x) / x.shape[-1]


def dot(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Σ x ⊙ y over the last axis, (...,H) -> (...,1), with no array for x ⊙ y."""
    return np.vecdot(x, y)[..., None]


def sum_rows(x: np.ndarray) -> np.ndarray:
    """The sum of all rows, (...,H) -> (H,). As a product with ones, 1.6 times as fast as x.sum(0)."""
    x = rows(x)
    return np.ones(len(x), x.dtype) @ x


def times(x: np.ndarray, w: np.ndarray | Stored) -> np.ndarray:
    """x w as one product of two matrices: (...,in) (in,out) -> (...,out).

    `x @ w` says the same, but NumPy would make B small products of it.
    """
    if isinstance(w, Stored) and w.size > PRODUCT:  # in 16 bits: some columns at a time are widened
        y = np.empty((*x.shape[:-1], w.shape[1]), x.dtype)
        columns = max(1, PRODUCT // w.shape[0])
        for start in range(0, w.shape[1], columns):
            part = slice(start, start + columns)
            np.matmul(rows(x), w[:, part], out=rows(y)[:, part])
        return y
    return (rows(x) @ w).reshape(*x.shape[:-1], w.shape[1])


def add_product(param: Param, a: np.ndarray, b: np.ndarray, run: Run) -> None:
    """param.grad += a @ b. NumPy cannot add into a product, so the product passes through a scratch buffer.

    A part at a time: what was just computed is then still in the processor's cache, and scratch stays small. Of a wide
    gradient some columns, of a tall one some rows (a tied head's has 50,000: five columns at a time would be slow).
    """
    total = param.grad
    if param.fresh:
        np.matmul(a, b, out=total)
        param.fresh = False
        return
    height, width = total.shape
    if height > width:
        count = min(height, max(1, PRODUCT // width))
        product = run.take((count, width), total.dtype)
        for start in range(0, height, count):
            rows_of_total = total[start : start + count]
            piece = product[: len(rows_of_total)]
            np.matmul(a[start : start + count], b, out=piece)
            rows_of_total += piece
    else:
        count = min(width, max(1, PRODUCT // max(height, 1)))
        product = run.take((height, count), total.dtype)
        for start in range(0, width, count):
            columns_of_total = total[:, start : start + count]
            piece = product[:, : columns_of_total.shape[1]]
            np.matmul(a, b[:, start : start + count], out=piece)
            columns_of_total += piece
    run.give(product)


def add_rows(total: np.ndarray, index: np.ndarray, values: np.ndarray) -> None:
    """total[index[n]] += values[n] for every n, also where an index repeats.      index (N,), values (N,H)

    `total[index] += values` would keep only the last of repeated indices, and `np.add.at` is slow. So equal indices are
    brought together by sorting. Those that stand alone are added as they are; of the others, a matrix with a row for
    each index and a 1 wherever it stands makes their sums, a product. (`np.add.reduceat` takes twice the time.)
    """
    for start in range(0, index.size, SCATTER):  # some at a time: that matrix grows with the square
        _add_some_rows(total, index[start : start + SCATTER], values[start : start + SCATTER])


def _add_some_rows(total: np.ndarray, index: np.ndarray, values: np.ndarray) -> None:
    order = np.argsort(index, kind="stable")
    found = index[order]
    starts = np.flatnonzero(np.r_[True, found[1:] != found[:-1]])
    counts = np.diff(starts, append=found.size)
    alone = starts[counts == 1]
    total[found[alone]] += values[order[alone]]
    repeated, counts = starts[counts > 1], counts[counts > 1]
    if repeated.size:
        places = order[np.repeat(repeated - np.cumsum(counts) + counts, counts) + np.arange(counts.sum())]
        which = np.zeros((repeated.size, places.size), values.dtype)
        which[np.repeat(np.arange(repeated.size), counts), np.arange(places.size)] = 1
        total[found[repeated]] += which @ values[places]
