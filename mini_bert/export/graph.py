"""A graph of ONNX nodes, as it is recorded: nothing twice, and no node for what changes nothing.

    graph = Graph({"head.w": w})
    x = graph.input("input_ids", np.int64, ("batch_size", "sequence_length"))
    y = graph.node("Gather", [graph.constant(w), x], axis=0)        the name of a value
    graph.to_onnx({"y": y}, …)

A node with the same operator, inputs and attributes as an earlier one is that node: the mask of padding is computed
once for all blocks. `to_onnx` leaves out what no output needs. Only `to_onnx` imports the package `onnx`.

Weights are initialisers with the names of their Params. A transposed weight (a tied head) is a `Transpose` node of it,
so that the file holds it once; ONNX Runtime transposes it when it loads the graph.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from mini_bert.common.extras import extra
from mini_bert.export.sizes import Quotient, Size, is_quotient, same, terms_of

OPSET = 17  # the first with LayerNormalization; every runtime of the last years has it
IR_VERSION = 8  # the format of the file that goes with it
MOST_BYTES = 2_000_000_000  # a protobuf file has at most 2 GiB
Dims = Sequence[int]


class Node(NamedTuple):
    op: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: tuple[tuple[str, Any], ...]


class Graph:
    """weights: the arrays that are initialisers under their own names; longest: the length of a text, at most"""

    def __init__(self, weights: Mapping[str, np.ndarray] | None = None, longest: int = 0):
        self.longest = longest
        self.nodes: list[Node] = []
        self.producer: dict[str, Node] = {}
        self.initialisers: dict[str, np.ndarray] = {}
        self.inputs: dict[str, tuple[Any, tuple[str | int, ...]]] = {}
        self._known: dict[Any, tuple[str, ...]] = {}  # nodes by what they compute
        self._constants: dict[Any, str] = {}
        self._reshaped: dict[str, tuple[str, Dims]] = {}  # where it comes from, and the shape there
        self._weights = {_memory(array): name for name, array in (weights or {}).items()}
        self._arrays = dict(weights or {})

    # ------------------------------------------------------------------ values

    def input(self, name: str, dtype: Any, axes: tuple[str | int, ...]) -> str:
        self.inputs[name] = (np.dtype(dtype), axes)
        return name

    def node(self, op: str, inputs: Sequence[str], outputs: int = 1, **attributes: Any) -> Any:
        """The name of the value that this node computes; a tuple of names if `outputs` is more than 1."""
        settings = tuple(sorted((name, _frozen(value)) for name, value in attributes.items()))
        key = op, tuple(inputs), settings
        if key not in self._known:
            number = len(self.nodes)
            names = tuple(f"{op}_{number}" + (f"_{part}" if outputs > 1 else "") for part in range(outputs))
            node = Node(op, tuple(inputs), names, settings)
            self.nodes.append(node)
            self.producer.update(dict.fromkeys(names, node))
            self._known[key] = names
        names = self._known[key]
        return names[0] if outputs == 1 else names

    def constant(self, array: Any) -> str:
        """The name of an array that is the same for every batch: a weight, a part of one, or a constant"""
        memory = _memory(array)
        if memory in self._weights:
            return self._initialiser(self._weights[memory], array)
        if array.ndim > 1 and _memory(array.T) in self._weights:
            name = self._initialiser(self._weights[_memory(array.T)], array.T)
            return self.node("Transpose", [name], perm=tuple(range(array.ndim))[::-1])
        key = array.dtype.str, array.shape, array.tobytes()
        if key not in self._constants:
            self._constants[key] = self._initialiser(f"{self._stem(array)}_{len(self.initialisers)}", array)
        return self._constants[key]

    def _stem(self, array: np.ndarray) -> str:
        """The weight that an array is a part of"""
        owner = (name for name, weight in self._arrays.items() if np.may_share_memory(weight, array))
        return next(owner, "constant") if array.base is not None else "constant"

    def _initialiser(self, name: str, array: np.ndarray) -> str:
        self.initialisers.setdefault(name, array)
        return name

    # ------------------------------------------------------------------ sizes

    def sizes(self, numbers: Dims) -> str:
        """A vector of int64: constant, or computed from the shapes of the inputs"""
        if not any(isinstance(number, Size) for number in numbers):
            return self.constant(np.array([int(number) for number in numbers], np.int64))
        parts = [self.size(number) for number in numbers]
        return parts[0] if len(parts) == 1 else self.node("Concat", parts, axis=0)

    def size(self, number: int) -> str:
        """One number, as a vector of length 1"""
        total = None
        for symbols, factor in sorted(terms_of(number).items(), key=repr):
            term = None
            for one in symbols:
                term = self._symbol(one) if term is None else self.node("Mul", [term, self._symbol(one)])
            if term is None:
                term = self.constant(np.array([factor], np.int64))
            elif factor != 1:
                term = self.node("Mul", [term, self.constant(np.array([factor], np.int64))])
            total = term if total is None else self.node("Add", [total, term])
        return self.constant(np.zeros(1, np.int64)) if total is None else total

    def scalar(self, number: int) -> str:
        """One number, without an axis"""
        if not isinstance(number, Size):
            return self.constant(np.array(int(number), np.int64))
        return self.node("Squeeze", [self.size(number), self.constant(np.array([0], np.int64))])

    def _symbol(self, one: Any) -> str:
        if isinstance(one, Quotient):
            dividend = Size(0)
            dividend.terms = dict(one.dividend)
            return self.node("Div", [self.size(dividend), self.constant(np.array([one.divisor], np.int64))])
        for name, (_, axes) in self.inputs.items():
            if one in axes:
                axis = axes.index(one)
                return self.node("Shape", [name], start=axis, end=axis + 1)
        raise ValueError(f"no input of this graph has an axis {one!r}; its inputs are {', '.join(self.inputs)}")

    # ------------------------------------------------------------------ what changes the shape only

    def transpose(self, x: str, perm: Sequence[int]) -> str:
        """A transposition of a transposition is one"""
        before = self.producer.get(x)
        if before is not None and before.op == "Transpose":
            first = dict(before.attributes)["perm"]
            x, perm = before.inputs[0], [first[axis] for axis in perm]
        return x if list(perm) == list(range(len(perm))) else self.node("Transpose", [x], perm=tuple(perm))

    def reshape(self, x: str, old: Dims, new: Dims) -> str:
        """As few computed sizes as possible: 0 copies a size of the input, −1 stands for the one that is left.
        A reshape of a reshape is one node."""
        x, old = self._reshaped.get(x, (x, old))
        name = self._reshape(x, old, new)
        if name != x:
            self._reshaped[name] = x, old
        return name

    def _reshape(self, x: str, old: Dims, new: Dims) -> str:
        if len(old) == len(new) and all(map(same, old, new)):
            return x
        if (place := _inserted(old, new)) is not None:
            return self.node("Unsqueeze", [x, self.constant(np.array(place, np.int64))])
        if (place := _inserted(new, old)) is not None:
            return self.node("Squeeze", [x, self.constant(np.array(place, np.int64))])
        target: list[int] = [0 if axis < len(old) and isinstance(size, Size) and same(size, old[axis]) else size
                             for axis, size in enumerate(new)]  # fmt: skip
        unknown = sorted((axis for axis, size in enumerate(target) if isinstance(size, Size)),
                         key=lambda axis: is_quotient(target[axis]))  # fmt: skip
        if unknown:
            target[unknown[-1]] = -1
        return self.node("Reshape", [x, self.sizes(target)])

    # ------------------------------------------------------------------ the result

    def needed(self, outputs: Sequence[str]) -> list[Node]:
        """The nodes that these values depend on, in order"""
        wanted, nodes = set(outputs), []
        for node in reversed(self.nodes):
            if wanted & set(node.outputs):
                nodes.append(node)
                wanted |= set(node.inputs)
        return nodes[::-1]

    def to_onnx(self, outputs: Mapping[str, tuple[str, Any, tuple[Any, ...]]], description: str = "") -> Any:
        """An onnx.ModelProto.        outputs: name -> value, dtype, axes"""
        onnx = extra("onnx", "writing an ONNX graph needs the package onnx")
        helper = onnx.helper
        nodes = self.needed([value for value, _, _ in outputs.values()])
        used = set(chain.from_iterable(node.inputs for node in nodes)) | {value for value, _, _ in outputs.values()}
        arrays = {name: array for name, array in self.initialisers.items() if name in used}
        size = sum(array.nbytes for array in arrays.values())
        if size > MOST_BYTES:
            raise ValueError(
                f"the weights of this model have {size / 1e9:.1f} GB, but an ONNX file holds at most 2 GB; export a "
                "smaller model"
            )
        made = [helper.make_node(node.op, node.inputs, node.outputs, name=node.outputs[0], **dict(node.attributes))
                for node in nodes]  # fmt: skip
        made += [helper.make_node("Identity", [value], [name], name=name) for name, (value, _, _) in outputs.items()]
        rename = {value: name for name, (value, _, _) in outputs.items() if value in self.producer}
        made = [node for node in made if not (node.op_type == "Identity" and rename.get(node.input[0]) == node.name)]
        for node in made:
            for names in (node.input, node.output):
                names[:] = [rename.get(name, name) for name in names]
        kind = helper.np_dtype_to_tensor_dtype
        graph = helper.make_graph(
            made,
            "mini-bert",
            [helper.make_tensor_value_info(name, kind(dtype), axes) for name, (dtype, axes) in self.inputs.items()],
            [helper.make_tensor_value_info(name, kind(np.dtype(dtype)), [_axis(axis) for axis in axes])
             for name, (_, dtype, axes) in outputs.items()],
            [onnx.numpy_helper.from_array(np.asarray(array, order="C"), name) for name, array in arrays.items()],
            doc_string=description,
        )  # fmt: skip
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], producer_name="mini-bert")
        model.ir_version = IR_VERSION
        return model


def differences(a: Graph, b: Graph, a_outputs: Sequence[str], b_outputs: Sequence[str]) -> list[str]:
    """How two recordings of the same forward pass differ, in what their outputs depend on"""
    ours, theirs = a.needed(a_outputs), b.needed(b_outputs)
    same_as = {name: name for name in a.inputs}  # values of a -> the same in b
    messages = [] if len(ours) == len(theirs) else [f"one has {len(ours)} nodes, the other {len(theirs)}"]
    for one, other in zip(ours, theirs, strict=False):
        if (one.op, one.attributes, len(one.inputs)) != (other.op, other.attributes, len(other.inputs)):
            messages.append(f"{one.op} became {other.op}")
        for left, right in zip(one.inputs, other.inputs, strict=False):
            x, y = a.initialisers.get(left), b.initialisers.get(right)
            if x is None or y is None:
                equal = same_as.get(left) == right
            else:
                equal = _memory(x) == _memory(y) or (x.dtype == y.dtype and np.array_equal(x, y))
            if not equal:
                messages.append(f"{one.op} got {left} and then {right}")
        same_as.update(zip(one.outputs, other.outputs, strict=False))
    return messages


def _inserted(old: Dims, new: Dims) -> list[int] | None:
    """The places of further axes of length 1 in `new`, if that is all that is different"""
    places, rest = [], list(old)
    for axis, size in enumerate(new):
        if rest and same(size, rest[0]):
            rest.pop(0)
        elif same(size, 1):
            places.append(axis)
        else:
            return None
    return places if not rest and places else None


def _memory(array: np.ndarray) -> tuple[Any, ...]:
    """What two arrays have in common if they are the same numbers in the same place"""
    return array.__array_interface__["data"][0], array.shape, array.strides, array.dtype.str


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _axis(axis: Any) -> Any:
    """As in a list of axes: a name for what depends on the batch"""
    return axis.formula if isinstance(axis, Size) else axis
