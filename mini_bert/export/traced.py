"""Traced arrays: they compute an example, and record every step as a node of an ONNX graph.

    graph = Graph()
    x = Traced(graph, graph.input("x", np.float32, ("batch_size", "sequence_length")), example, (B, T))
    y = np.tanh(x) * w                      y.value: the result for the example; the graph now has Tanh and Mul

A Traced array goes through the ordinary layers in place of an array. NumPy lets it compute (`__array_ufunc__` for
`x + y`, `__array_function__` for `np.concatenate`; numpy_operators.py), and so do our functions that are marked as an
`operation` (operations.py). What it meets becomes part of the graph: weights and constants as initialisers, sizes
(sizes.py) as formulas.

What would make a graph that is right for the example only is an error, with the line of code that did it:

- a branch on its numbers, `if x.any()`
- its numbers as a plain array or number, `np.asarray(x)`, `float(x)`
- a constant with the length of the example. (If shapes do not show it, the second recording does: recording.py.)
- changing a view, `x[:, 0] += 1`, while others see the same memory: NumPy would change them as well
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from mini_bert.export.graph import Graph
from mini_bert.export.operators import FUNCTIONS, answer
from mini_bert.export.sizes import Size, product, same

HERE = Path(__file__).parent
LAST = np.iinfo(np.int64).max  # the end of a slice that has none
FIRST = np.iinfo(np.int64).min
MAKERS = {np.arange, np.zeros, np.ones, np.empty, np.full, np.eye}  # called with like=x, which NumPy removes


class NotTraceable(TypeError, ValueError):
    """A forward pass does what no graph can. (Also a ValueError, which the command line prints in one line.)"""

    def __init__(self, what: str):
        super().__init__(f"{what} ({_place()}): this cannot be a part of an ONNX graph; see docs/export.md")


def _place() -> str:
    """The line that called us, outside of this folder and of NumPy"""
    frame: Any = sys._getframe(1)
    while frame is not None:
        path = Path(frame.f_code.co_filename)
        if path.parent != HERE and "numpy" not in path.parts and path.name != "operation.py":
            return f"{'/'.join(path.parts[-3:])}, line {frame.f_lineno}, in {frame.f_code.co_name}"
        frame = frame.f_back
    return "place unknown"


class Memory:
    """What a Traced array and its views share."""

    def __init__(self) -> None:
        self._users: list[weakref.ref[Traced]] = []

    def join(self, user: Traced) -> None:
        self._users.append(weakref.ref(user))

    @property
    def users(self) -> int:
        return sum(user() is not None for user in self._users)


class Traced(NDArrayOperatorsMixin):
    """A value of the graph: its name, the example, and its shape, with sizes that may be formulas"""

    __hash__ = object.__hash__
    __array_priority__ = 1000

    def __init__(
        self,
        graph: Graph,
        name: str,
        value: np.ndarray,
        shape: Sequence[int],
        view_of: Traced | None = None,
        filled: Any = None,
        range_of: tuple[str, str] | None = None,
    ):
        """Where it is known: filled, the number that it consists of; range_of, the values of the bounds of a range"""
        self.graph, self.name, self.value, self.shape = graph, name, np.asarray(value), tuple(shape)
        if tuple(map(int, shape)) != self.value.shape:
            raise NotTraceable(f"{name} has shape {self.value.shape}, but sizes give {tuple(map(int, shape))}")
        self.filled, self.range_of = filled, range_of
        self.memory: Memory = Memory() if view_of is None else view_of.memory
        self.memory.join(self)

    # ------------------------------------------------------------------ what arrays have

    @property
    def dtype(self) -> Any:
        return self.value.dtype

    @property
    def ndim(self) -> int:
        return self.value.ndim

    @property
    def size(self) -> Any:
        return product(self.shape)

    @property
    def T(self) -> Traced:
        return self.transpose()

    def __len__(self) -> int:
        return int(self.shape[0])

    def __iter__(self) -> Any:
        if isinstance(self.shape[0], Size):
            raise NotTraceable(f"a loop over an axis whose length, {self.shape[0].formula}, depends on the batch")
        return (self[index] for index in range(self.shape[0]))

    def __repr__(self) -> str:
        axes = ", ".join(size.formula if isinstance(size, Size) else str(size) for size in self.shape)
        return f"Traced({self.name}, {self.dtype}, ({axes}))"

    def answer(self, function: Any, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        """Functions of ours that are marked as an operation (layers/operation.py)"""
        return answer(function, args, options)

    # ------------------------------------------------------------------ what no graph can follow

    def __bool__(self) -> bool:
        raise NotTraceable(f"a branch on the numbers of {self!r}, which are known only when the graph runs")

    def __array__(self, *args: Any, **options: Any) -> Any:
        raise NotTraceable(f"the numbers of {self!r} as a plain array, which would be a constant in the graph")

    def _number(self) -> Any:
        raise NotTraceable(f"a number of {self!r} as a plain one, which would be a constant in the graph")

    __float__ = __int__ = __index__ = _number

    def __setitem__(self, key: Any, values: Any) -> None:
        if key is not Ellipsis:
            raise NotTraceable(f"an assignment to a part of {self!r}")
        self.become(self.new("Identity", lifted(self.graph, values, self.dtype)).broadcast_to(self.shape))

    # ------------------------------------------------------------------ recording

    def new(self, op: str, *inputs: Any, value: Any = None, shape: Any = None, **attributes: Any) -> Traced:
        """The result of a node. value, shape: of the result; by default those of the first input"""
        name = self.graph.node(op, [one if isinstance(one, str) else one.name for one in inputs], **attributes)
        value = inputs[0].value if value is None else value
        return Traced(self.graph, name, np.asarray(value), inputs[0].shape if shape is None else shape)

    def view(self, name: str, value: np.ndarray, shape: Sequence[int]) -> Traced:
        """The same numbers in another order or shape, or some of them"""
        return Traced(self.graph, name, value, shape, view_of=self)

    def become(self, result: Traced) -> Traced:
        """Change in place: all names for this array now mean `result`."""
        if self.memory.users > 1:
            raise NotTraceable(
                f"a change of {self!r} in place, while views of the same memory are in use, which NumPy would change"
            )
        result = result.astype(self.dtype)
        if len(result.shape) != self.ndim or not all(map(same, result.shape, self.shape)):
            raise NotTraceable(f"a change of {self!r} in place to {result!r}")
        self.name, self.value, self.filled, self.range_of = result.name, result.value, None, None
        return self

    # ------------------------------------------------------------------ NumPy's protocols

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, out: Any = None, **options: Any) -> Any:
        if method != "__call__" or options or not any(isinstance(one, Traced) for one in inputs):
            raise NotTraceable(f"np.{ufunc.__name__}.{method}({', '.join(options)}) of {self!r}")
        result = self._recorder(ufunc)(*inputs)
        if out is None:
            return result
        (target,) = out
        if not isinstance(target, Traced):
            raise NotTraceable(f"np.{ufunc.__name__} of {self!r} with a plain array as `out`")
        return target.become(result)

    def __array_function__(self, function: Any, types: Any, args: Any, options: Any) -> Any:
        if function in MAKERS:
            options = {name: options[name] for name in options if name not in ("order", "device")} | {"like": self}
        return self._recorder(function)(*args, **options)

    def _recorder(self, function: Any) -> Any:
        if function not in FUNCTIONS:
            raise NotTraceable(f"np.{function.__name__} of {self!r}, for which there is no ONNX operator here yet")
        return FUNCTIONS[function]

    # ------------------------------------------------------------------ methods of arrays

    def astype(self, dtype: Any, copy: bool = True) -> Traced:
        dtype = np.dtype(dtype)
        if dtype == self.dtype:
            return self if not copy else Traced(self.graph, self.name, self.value, self.shape, filled=self.filled)
        return self.new("Cast", self, value=self.value.astype(dtype), to=onnx_type(dtype))

    def copy(self) -> Traced:
        return Traced(self.graph, self.name, self.value, self.shape, filled=self.filled)

    def reshape(self, *shape: Any) -> Traced:
        sizes = list(shape[0]) if len(shape) == 1 and isinstance(shape[0], tuple | list) else list(shape)
        for axis in (axis for axis, size in enumerate(sizes) if not isinstance(size, Size) and size == -1):
            sizes[axis] = self.size // product(size for other, size in enumerate(sizes) if other != axis)
        if not same(product(sizes), self.size):
            raise NotTraceable(f"{self!r} in the shape {tuple(sizes)}, which is right for the example only")
        name = self.graph.reshape(self.name, self.shape, sizes)
        return self.view(name, self.value.reshape([int(size) for size in sizes]), sizes)

    def ravel(self) -> Traced:
        return self.reshape(-1)

    def transpose(self, *axes: Any) -> Traced:
        order = axes[0] if len(axes) == 1 and isinstance(axes[0], tuple | list) else axes
        perm = [axis % self.ndim for axis in order] if order else list(range(self.ndim))[::-1]
        name = self.graph.transpose(self.name, perm)
        return self.view(name, self.value.transpose(perm), [self.shape[axis] for axis in perm])

    def swapaxes(self, a: int, b: int) -> Traced:
        perm = list(range(self.ndim))
        perm[a], perm[b] = perm[b], perm[a]
        return self.transpose(perm)

    def broadcast_to(self, shape: Sequence[int]) -> Traced:
        if len(shape) == self.ndim and all(map(same, shape, self.shape)):
            return self
        example = np.broadcast_to(self.value, tuple(map(int, shape)))
        name = self.graph.node("Expand", [self.name, self.graph.sizes(shape)])
        return Traced(self.graph, name, example, shape, view_of=self, filled=self.filled)

    def __getitem__(self, key: Any) -> Any:
        keys = list(key) if isinstance(key, tuple) else [key]
        if any(isinstance(one, Traced | np.ndarray | list) for one in keys):
            return self._gathered(keys)
        if Ellipsis in keys:
            place = next(index for index, one in enumerate(keys) if one is Ellipsis)
            missing = self.ndim - sum(one is not None and one is not Ellipsis for one in keys)
            keys[place : place + 1] = [slice(None)] * missing
        keys += [slice(None)] * (self.ndim - sum(one is not None for one in keys))
        return self._sliced([one for one in keys if one is not None])._picked(keys)

    def _gathered(self, keys: list[Any]) -> Traced:
        """x[:, indices]: rows along one axis, which an array of integers names"""
        places = [axis for axis, one in enumerate(keys) if isinstance(one, Traced | np.ndarray | list)]
        plain = all(one == slice(None) for axis, one in enumerate(keys) if axis not in places)
        if len(places) != 1 or not plain:
            raise NotTraceable(f"an index of several arrays into {self!r}")
        return take(self, keys[places[0]], places[0])

    def _sliced(self, keys: list[Any]) -> Traced:
        """Slices, with integers left for later"""
        starts, stops, steps, axes, shape = [], [], [], [], list(self.shape)
        for axis, (one, size) in enumerate(zip(keys, self.shape, strict=True)):
            if not isinstance(one, slice) or one == slice(None):
                continue
            step = 1 if one.step is None else one.step
            start, stop = _bound(one.start, size, 0), _bound(one.stop, size, size)
            if step > 0 and same(start, 0) and same(stop, size) and step == 1:
                continue
            if step == 1:
                shape[axis] = stop - start
            elif step == -1 and one.start is None and one.stop is None:
                start, stop = -1, FIRST
            else:
                raise NotTraceable(f"the slice {one} of {self!r}")
            starts.append(start)
            stops.append(LAST if step == 1 and same(stop, size) else stop)
            steps.append(step)
            axes.append(axis)
        if not axes:
            return self
        example = self.value[tuple(one if isinstance(one, slice) else slice(None) for one in map(_plain, keys))]
        inputs = [self.name, self.graph.sizes(starts), self.graph.sizes(stops), self.graph.sizes(axes)]
        inputs += [self.graph.sizes(steps)] if steps != [1] * len(steps) else []
        return self.view(self.graph.node("Slice", inputs), example, shape)

    def _picked(self, keys: list[Any]) -> Traced:
        """Integers, which take one row and drop the axis, and None, which adds an axis"""
        result, axis = self, 0
        for one in keys:
            if one is None:
                shape = [*result.shape[:axis], 1, *result.shape[axis:]]
                result = result.reshape(shape)
                axis += 1
            elif isinstance(one, slice):
                axis += 1
            else:
                result = result._row(one, axis)
        return result

    def _row(self, index: int, axis: int) -> Traced:
        shape = [size for place, size in enumerate(self.shape) if place != axis]
        value = self.value.take(int(index), axis)
        if same(self.shape[axis], 1):
            return self.view(self.graph.reshape(self.name, self.shape, shape), value, shape)
        name = self.graph.node("Gather", [self.name, self.graph.scalar(index)], axis=axis)
        return self.view(name, value, shape)

    def _reduced(self, op: str, axis: Any, keepdims: bool, as_input: bool, value: Any) -> Traced:
        axes = tuple(range(self.ndim)) if axis is None else axis if isinstance(axis, tuple) else (axis,)
        axes = tuple(one % self.ndim for one in axes)
        shape = [1 if place in axes else size for place, size in enumerate(self.shape) if keepdims or place not in axes]
        if as_input:  # ReduceSum takes its axes as an input since opset 13
            return self.new(op, self, self.graph.sizes(axes), value=value, shape=shape, keepdims=int(keepdims))
        return self.new(op, self, value=value, shape=shape, axes=axes, keepdims=int(keepdims))

    def sum(self, axis: Any = None, keepdims: bool = False) -> Traced:
        x = self.astype(np.int64, copy=False) if self.dtype == bool else self
        return x._reduced("ReduceSum", axis, keepdims, True, x.value.sum(axis, keepdims=keepdims))

    def max(self, axis: Any = None, keepdims: bool = False) -> Traced:
        return self._reduced("ReduceMax", axis, keepdims, False, self.value.max(axis, keepdims=keepdims))

    def min(self, axis: Any = None, keepdims: bool = False) -> Traced:
        return self._reduced("ReduceMin", axis, keepdims, False, self.value.min(axis, keepdims=keepdims))

    def any(self, axis: Any = None, keepdims: bool = False) -> Traced:
        return self.astype(np.int32).max(axis, keepdims).astype(bool)

    def all(self, axis: Any = None, keepdims: bool = False) -> Traced:
        return self.astype(np.int32).min(axis, keepdims).astype(bool)

    def argmax(self, axis: int, keepdims: bool = False) -> Traced:
        x = self.astype(np.int32) if self.dtype == bool else self
        shape = [1 if place == axis else size for place, size in enumerate(self.shape) if keepdims or place != axis]
        value = self.value.argmax(axis, keepdims=keepdims)
        return self.new("ArgMax", x, value=value, shape=shape, axis=axis, keepdims=int(keepdims))

    def cumsum(self, axis: int) -> Traced:
        x = self.astype(np.int64, copy=False) if self.dtype == bool else self
        return self.new("CumSum", x, self.graph.scalar(axis), value=x.value.cumsum(axis), shape=self.shape)


def take(x: Any, indices: Any, axis: int = 0) -> Traced:
    """x[indices] along an axis; x may be a weight"""
    graph = x.graph if isinstance(x, Traced) else indices.graph
    table, places = lifted(graph, x), lifted(graph, indices)
    shape = [*table.shape[:axis], *places.shape, *table.shape[axis + 1 :]]
    if places.range_of is not None:  # neighbours: no need to look up each
        value = table.value.take(places.value, axis)
        return table.new("Slice", table, *places.range_of, graph.sizes([axis]), value=value, shape=shape)
    return table.new("Gather", table, places, value=table.value.take(places.value, axis), shape=shape, axis=axis)


def lifted(graph: Graph, x: Any, dtype: Any = None) -> Traced:
    """A Traced array from an array, a number or a size; a Traced one as it is"""
    if isinstance(x, Traced):
        return x if dtype is None else x.astype(dtype, copy=False)
    if isinstance(x, Size):
        made = Traced(graph, graph.scalar(x), np.array(int(x), np.int64), ())
        return made if dtype is None else made.astype(dtype, copy=False)
    array = np.asarray(x) if dtype is None else np.asarray(x, dtype)
    return Traced(graph, graph.constant(array), array, array.shape)


def onnx_type(dtype: Any) -> int:
    """The number of a dtype in ONNX's files"""
    return {"float32": 1, "uint8": 2, "int8": 3, "int32": 6, "int64": 7, "bool": 9, "float16": 10, "float64": 11}[
        np.dtype(dtype).name
    ]


def _bound(bound: Any, size: Any, default: Any) -> Any:
    """A bound of a slice, counted from the start"""
    if bound is None:
        return default
    bound = bound if isinstance(bound, Size) else int(bound)
    if bound < 0:
        return size + bound
    return size if not isinstance(size, Size) and bound > size else bound


def _plain(key: Any) -> Any:
    if not isinstance(key, slice):
        return key
    bounds = (None if one is None else int(one) for one in (key.start, key.stop, key.step))
    return slice(*bounds)
