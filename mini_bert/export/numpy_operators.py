"""NumPy's functions as ONNX operators: NumPy calls these for Traced arrays, in place of its own (traced.py).

UFUNCS      element by element: np.add, np.exp, …
FUNCTIONS   these and all others: np.matmul, np.concatenate, np.where, np.arange(T, like=x), …

ONNX converts no types by itself, so each ufunc first casts its inputs to what NumPy would compute with.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial, reduce
from typing import Any

import numpy as np

from mini_bert.export.graph import Graph
from mini_bert.export.operators import FUNCTIONS, operator_for
from mini_bert.export.sizes import Size, product, same
from mini_bert.export.traced import NotTraceable, Traced, lifted, take

UFUNCS: dict[Any, str] = {
    np.add: "Add", np.subtract: "Sub", np.multiply: "Mul", np.divide: "Div", np.negative: "Neg", np.power: "Pow",
    np.absolute: "Abs", np.sign: "Sign", np.exp: "Exp", np.log: "Log", np.sqrt: "Sqrt", np.tanh: "Tanh",
    np.sin: "Sin", np.cos: "Cos", np.ceil: "Ceil", np.floor: "Floor", np.maximum: "Max", np.minimum: "Min",
    np.equal: "Equal", np.less: "Less", np.less_equal: "LessOrEqual", np.greater: "Greater",
    np.greater_equal: "GreaterOrEqual", np.bitwise_and: "And", np.bitwise_or: "Or", np.logical_and: "And",
    np.logical_or: "Or", np.invert: "Not", np.logical_not: "Not",
}  # fmt: skip


def _graph_of(items: Sequence[Any]) -> Graph:
    return next(one.graph for one in items if isinstance(one, Traced))


def elementwise(ufunc: Any, *inputs: Any) -> Traced:
    """ufunc(*inputs), each a Traced array, an array, a number or a size"""
    graph = _graph_of(inputs)
    examples = [one.value if isinstance(one, Traced) else int(one) if isinstance(one, Size) else one for one in inputs]
    kinds = [type(one) if type(one) in (int, float) else np.asarray(one).dtype for one in examples]
    loop = ufunc.resolve_dtypes((*kinds, None))
    operands = [lifted(graph, one, dtype) for one, dtype in zip(inputs, loop, strict=False)]
    if UFUNCS[ufunc] in ("And", "Or", "Not") and any(operand.dtype != bool for operand in operands):
        raise NotTraceable(f"np.{ufunc.__name__} of integers, which ONNX has for booleans only")
    shape = broadcast([operand.shape for operand in operands])
    return operands[0].new(UFUNCS[ufunc], *operands, value=ufunc(*examples), shape=shape)


FUNCTIONS.update({ufunc: partial(elementwise, ufunc) for ufunc in UFUNCS})


@operator_for(FUNCTIONS, np.not_equal)
def not_equal(x: Any, y: Any) -> Traced:
    return ~elementwise(np.equal, x, y)


@operator_for(FUNCTIONS, np.matmul)
def matmul(x: Any, y: Any) -> Traced:
    """x @ y"""
    a, b = (lifted(_graph_of([x, y]), one) for one in (x, y))
    if a.ndim < 2 or b.ndim < 2:
        raise NotTraceable("a product of a matrix and a vector; give the vector a second axis")
    if not same(a.shape[-1], b.shape[-2]):
        raise NotTraceable(f"the product of {a!r} and {b!r}, whose sizes agree for the example only")
    shape = [*broadcast([a.shape[:-2], b.shape[:-2]]), a.shape[-2], b.shape[-1]]
    return a.new("MatMul", a, b, value=a.value @ b.value, shape=shape)


def broadcast(shapes: Sequence[Sequence[int]]) -> list[int]:
    """The shape of a sum. A size that depends on the batch broadcasts only with itself and 1."""
    length = max(map(len, shapes))
    result: list[int] = []
    for axis in range(-length, 0):
        sizes = [shape[axis] for shape in shapes if len(shape) >= -axis]
        larger = [size for size in sizes if not same(size, 1)]
        for size in larger[1:]:
            if not same(size, larger[0]):
                one, other = (each.formula if isinstance(each, Size) else each for each in (larger[0], size))
                raise NotTraceable(f"arrays of lengths {one} and {other} together, which are equal in the example only")
        result.append(larger[0] if larger else 1)
    return result


# ---------------------------------------------------------------------- functions


@operator_for(FUNCTIONS, np.where)
def where(condition: Any, x: Any, y: Any) -> Traced:
    graph = _graph_of([condition, x, y])
    arrays = [one.value if isinstance(one, Traced) else one for one in (x, y)]
    dtype = np.result_type(*arrays)
    inputs = [lifted(graph, condition, bool), lifted(graph, x, dtype), lifted(graph, y, dtype)]
    value = np.where(*(one.value for one in inputs))
    return inputs[0].new("Where", *inputs, value=value, shape=broadcast([one.shape for one in inputs]))


@operator_for(FUNCTIONS, np.copyto)
def copyto(target: Any, source: Any, where: Any = True) -> None:
    if not isinstance(target, Traced):
        raise NotTraceable("np.copyto into a plain array")
    new: Any = lifted(target.graph, source, target.dtype)
    result: Any = np.where(where, new, target)
    target.become(result)


@operator_for(FUNCTIONS, np.concatenate)
def concatenate(arrays: Sequence[Any], axis: int = 0) -> Traced:
    graph = _graph_of(arrays)
    dtype = np.result_type(*(one.value if isinstance(one, Traced) else one for one in arrays))
    parts = [lifted(graph, one, dtype) for one in arrays]
    axis %= parts[0].ndim
    shape = list(parts[0].shape)
    for part in parts[1:]:
        others = [size for place, size in enumerate(part.shape) if place != axis]
        if not all(map(same, others, [size for place, size in enumerate(shape) if place != axis])):
            raise NotTraceable(f"{parts[0]!r} and {part!r} side by side, which fit for the example only")
        shape[axis] = shape[axis] + part.shape[axis]
    value = np.concatenate([part.value for part in parts], axis)
    return parts[0].new("Concat", *parts, value=value, shape=shape, axis=axis)


@operator_for(FUNCTIONS, np.stack)
def stack(arrays: Sequence[Any], axis: int = 0) -> Traced:
    graph = _graph_of(arrays)
    parts = [lifted(graph, one) for one in arrays]
    axis %= parts[0].ndim + 1
    return concatenate([part.reshape(*part.shape[:axis], 1, *part.shape[axis:]) for part in parts], axis)


@operator_for(FUNCTIONS, np.split)
def split(x: Traced, parts: int, axis: int = 0) -> list[Traced]:
    axis %= x.ndim
    length = x.shape[axis] // parts
    names = x.graph.node("Split", [x.name, x.graph.sizes([length] * parts)], parts, axis=axis)
    shape = [*x.shape[:axis], length, *x.shape[axis + 1 :]]
    return [x.view(name, value, shape) for name, value in zip(names, np.split(x.value, parts, axis), strict=True)]


@operator_for(FUNCTIONS, np.arange)
def arange(start: int, stop: int | None = None, step: int = 1, *, like: Any) -> Traced:
    first, last = (0, start) if stop is None else (start, stop)
    numbers = [like.graph.scalar(number) for number in (first, last, step)]
    length = (last - first) * step  # step: 1 or −1
    if abs(step) != 1:
        raise NotTraceable(f"np.arange with a step of {step}")
    bounds = (like.graph.sizes([first]), like.graph.sizes([last])) if step == 1 else None
    value = np.arange(int(first), int(last), step)
    return Traced(like.graph, like.graph.node("Range", numbers), value, [length], range_of=bounds)


@operator_for(FUNCTIONS, np.full)
def full(shape: Any, number: Any, dtype: Any = None, *, like: Any) -> Traced:
    shape = shape if isinstance(shape, tuple | list) else (shape,)
    one = lifted(like.graph, np.asarray(number, dtype))
    return Traced(like.graph, one.name, one.value, (), filled=number).broadcast_to(shape)


@operator_for(FUNCTIONS, np.zeros, np.empty)
def zeros(shape: Any, dtype: Any = float, *, like: Any) -> Traced:
    return full(shape, 0, dtype, like=like)


@operator_for(FUNCTIONS, np.ones)
def ones(shape: Any, dtype: Any = float, *, like: Any) -> Traced:
    return full(shape, 1, dtype, like=like)


@operator_for(FUNCTIONS, np.zeros_like)
def zeros_like(x: Traced, dtype: Any = None) -> Traced:
    return full(x.shape, 0, dtype or x.dtype, like=x)


@operator_for(FUNCTIONS, np.ones_like)
def ones_like(x: Traced, dtype: Any = None) -> Traced:
    return full(x.shape, 1, dtype or x.dtype, like=x)


@operator_for(FUNCTIONS, np.eye)
def eye(N: int, M: int, k: int = 0, dtype: Any = float, *, like: Any) -> Traced:
    rows, columns = arange(N, like=like), arange(M, like=like)
    return (columns == rows[:, None] + k).astype(dtype)


@operator_for(FUNCTIONS, np.clip)
def clip(x: Traced, low: Any, high: Any) -> Traced:
    bounds = [lifted(x.graph, np.asarray(bound, x.dtype)) for bound in (low, high)]
    return x.new("Clip", x, *bounds, value=np.clip(x.value, low, high))


@operator_for(FUNCTIONS, np.broadcast_to)
def broadcast_to(x: Any, shape: Any) -> Traced:
    if isinstance(x, Traced):
        return x.broadcast_to(tuple(shape))
    return lifted(_graph_of(shape), x).broadcast_to(tuple(shape))


@operator_for(FUNCTIONS, np.ascontiguousarray, np.asarray)
def ascontiguousarray(x: Traced) -> Traced:
    return x


@operator_for(FUNCTIONS, np.shape)
def shape_of(x: Traced) -> tuple[int, ...]:
    return x.shape


@operator_for(FUNCTIONS, np.size)
def size_of(x: Traced) -> Any:
    return product(x.shape)


@operator_for(FUNCTIONS, np.isin)
def isin(x: Traced, numbers: Sequence[int]) -> Traced:
    return reduce(np.logical_or, (x == number for number in numbers)) if numbers else zeros_like(x, bool)


FUNCTIONS.update(
    {
        np.take: take,
        np.reshape: lambda x, shape: x.reshape(shape),
        np.transpose: lambda x, axes=(): x.transpose(*axes),
        np.swapaxes: lambda x, a, b: x.swapaxes(a, b),
        np.expand_dims: lambda x, axis: x.reshape(*x.shape[:axis], 1, *x.shape[axis:]),
        np.sum: lambda x, axis=None, keepdims=False: x.sum(axis, keepdims),
        np.max: lambda x, axis=None, keepdims=False: x.max(axis, keepdims),
        np.min: lambda x, axis=None, keepdims=False: x.min(axis, keepdims),
        np.any: lambda x, axis=None, keepdims=False: x.any(axis, keepdims),
        np.all: lambda x, axis=None, keepdims=False: x.all(axis, keepdims),
        np.argmax: lambda x, axis, keepdims=False: x.argmax(axis, keepdims),
        np.cumsum: lambda x, axis: x.cumsum(axis),
    }
)
