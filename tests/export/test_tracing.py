"""Tracing: sizes are formulas, every step becomes a node, and what would be right for the example only is refused."""

import numpy as np
import pytest

from mini_bert.export.engine import with_engine
from mini_bert.export.graph import Graph
from mini_bert.export.names import HIDDEN, INPUT_IDS, TYPES
from mini_bert.export.recording import operations, own_head, record
from mini_bert.export.sizes import Size, same, symbol
from mini_bert.export.traced import NotTraceable, Traced
from mini_bert.layers.base import Run
from mini_bert.layers.masks import causal
from mini_bert.layers.operation import operation
from mini_bert.layers.softmax import softmax
from mini_bert.models.base import Inputs
from mini_bert.models.mini import MiniBERT
from tests.export.tiny_models import MODELS, batch, build

B, T = symbol("B", 3), symbol("T", 11)


@pytest.fixture
def x():
    graph = Graph()
    name = graph.input("x", np.float32, ("B", "T", "7"))
    return Traced(graph, name, np.random.default_rng(0).normal(size=(3, 11, 7)).astype(np.float32), (B, T, 7))


def ops(x):
    return [node.op for node in x.graph.nodes]


# ---------------------------------------------------------------------- sizes


def test_sizes_are_numbers_and_formulas():
    for size, value, formula in (
        (2 * T - 1, 21, "2·T - 1"),
        (B * T, 33, "B·T"),
        ((B + 1) * (T - 1) - B * T, 7, "-1·B + T - 1"),
        (B * T // B, 11, "T"),
        (6 * B * T // (2 * T), 9, "3·B"),
        (5 - T, -6, "-1·T + 5"),
        (B // 2, 1, "⌊B / 2⌋"),
    ):
        assert (int(size), size.formula) == (value, formula)
        assert isinstance(size, Size)


def test_what_depends_on_no_symbol_is_a_plain_number():
    for size in (T - T, (T + 4) - T, 3 * T // T, 0 * B):
        assert type(size) is int
    assert 3 * T // T == 3 and T + 4 - T == 4


def test_the_double_of_a_half_is_the_whole():
    """A model that splits a batch in two takes only even ones."""
    assert same(B // 2 * 2, B) and same(5 * T * (B // 2) * 4, 10 * B * T)


def test_a_quotient_that_no_graph_computes_is_refused():
    with pytest.raises(ValueError, match=r"B // T is not a size that a graph can compute"):
        B // T


# ---------------------------------------------------------------------- what is refused


def refused(match):
    return pytest.raises(NotTraceable, match=rf"(?s){match}.*test_tracing\.py, line \d+")


def test_a_branch_on_numbers_is_refused(x):
    with refused("a branch on the numbers"):
        bool(x.any())
    with refused("a branch on the numbers"):
        x.max() if x.min() < 0 else x


def test_numbers_cannot_leave_the_graph(x):
    with refused("as a plain array"):
        np.asarray(x)
    for leave in (float, int):
        with refused("as a plain one"):
            leave(x.sum())
    with refused("as a plain array|as a plain one"):
        np.arange(9)[x.astype(np.int64)]


def test_a_constant_with_the_length_of_the_example_is_refused(x):
    with refused("arrays of lengths T and 11 together"):
        x + np.ones((11, 1), np.float32)
    with refused("whose sizes agree for the example only"):
        np.ones((5, 3), np.float32) @ x[:, 0]
    with refused("in the shape .*right for the example only"):
        x.reshape(33, 7)
    other = Traced(x.graph, "other", np.ones((11, 1), np.float32), (symbol("words", 11), 1))
    with refused("arrays of lengths T and words together"):
        x + other


def test_a_loop_over_the_tokens_is_refused(x):
    with refused("a loop over an axis whose length, T,"):
        list(x[0])


def test_a_function_without_a_word_is_refused(x):
    with refused(r"np\.sort of"):
        np.sort(x)
    with refused(r"np\.arctan"):
        np.arctan(x)


def test_a_plain_array_as_out_is_refused(x):
    with refused("a plain array as `out`"):
        np.exp(x, out=np.empty((3, 11, 7), np.float32))


def test_changing_a_view_is_refused_while_others_see_it(x):
    y = x * 2
    view = y[:, 0]
    with refused("a change of .* in place, while views"):
        view += 1
    with refused("a change of .* in place, while views"):
        y *= 3
    with refused("an assignment to a part"):
        y[:, 0] = 1


def test_changing_the_only_view_is_a_new_node(x):
    """As in Linear: (x @ w).reshape(…), then += b."""
    y = (x * 2).reshape(B * T, 7)
    other = y
    y += 1
    assert ops(x) == ["Mul", "Reshape", "Add"]
    np.testing.assert_array_equal(other.value, x.value.reshape(33, 7) * 2 + 1)  # the same array, by another name
    copied = y.copy()
    y *= 0
    assert copied.value.any()


def test_a_hidden_constant_is_found_by_the_second_recording():
    """A factor made from the length of the text has no shape that would give it away."""

    def scaled(model, hidden, given):
        return {HIDDEN: hidden * int(hidden.shape[1]) ** -0.5}

    with pytest.raises(NotTraceable, match=r"two recordings of this MiniBERT.*depends on the shape of the batch"):
        record(build("mini"), scaled)


# ---------------------------------------------------------------------- what is recorded


def test_the_same_step_is_recorded_once(x):
    a, b = np.exp(x) + 1.5, np.exp(x) + 1.5
    assert a.name == b.name and ops(x) == ["Exp", "Add"]


def test_shapes_need_no_computation_where_a_copied_size_will_do(x):
    """(B,T,7) -> (B,T,7,1) -> (B·T,7): no Shape node."""
    x.reshape(B, T, 7, 1).reshape(-1, 7)
    x.transpose(1, 0, 2).transpose(1, 0, 2)
    assert ops(x) == ["Unsqueeze", "Reshape", "Transpose"]
    assert x.transpose(1, 0, 2).transpose(1, 0, 2).name == x.name
    target = x.graph.producer[x.reshape(-1, 7).name].inputs[1]
    assert x.graph.initialisers[target].tolist() == [-1, 7]


def test_types_are_those_of_numpy(x):
    """ONNX converts nothing by itself: bool times int, int divided by int, a comparison."""
    used = x[..., 0] > 0
    for made, expected in (
        (used * 3, used.value * 3),
        (np.cumsum(used, 1) * used + 1, np.cumsum(used.value, 1) * used.value + 1),
        (used.sum(1) / 2, used.value.sum(1) / 2),
        (x * np.float32(2), x.value * 2),
        (~used | (x[..., 1] != 0), ~used.value | (x.value[..., 1] != 0)),
    ):
        assert made.dtype == expected.dtype
        np.testing.assert_array_equal(made.value, expected)


def test_indices(x):
    value = x.value
    for made, expected in (
        (x[:, 0], value[:, 0]),
        (x[..., None, 1:3], value[..., None, 1:3]),
        (x[:, ::-1], value[:, ::-1]),
        (x[:, : T - 2], value[:, :9]),
        (x[:, -1], value[:, -1]),
        (x[:, np.array([4, 2])], value[:, [4, 2]]),
    ):
        np.testing.assert_array_equal(made.value, expected)
        assert tuple(map(int, made.shape)) == expected.shape
    assert x[:, : T - 2].shape[1].formula == "T - 2"
    assert x[:, 1:].shape[1].formula == "T - 1"


def test_ranges_and_zeros_have_the_length_of_the_text(x):
    places = np.arange(2, T, like=x)
    assert places.shape[0].formula == "T - 2" and places.value.tolist() == list(range(2, 11))
    nothing = np.zeros((B, T), np.float32, like=x)
    assert nothing.shape == (B, T) and nothing.filled == 0
    np.testing.assert_array_equal(np.eye(T, T + 1, 1, dtype=bool, like=x).value, np.eye(11, 12, 1, dtype=bool))


def test_what_no_output_needs_is_left_out(x):
    y = np.exp(x)
    np.tanh(x)
    assert [node.op for node in x.graph.needed([y.name])] == ["Exp"]


# ---------------------------------------------------------------------- operations


def test_an_operation_runs_as_written_for_arrays_and_numbers():
    @operation
    def twice(x, times=2):
        """Docstring"""
        return x * times

    assert twice(np.arange(3)).tolist() == [0, 2, 4] and twice(4, times=3) == 12
    assert (twice.__name__, twice.__doc__) == ("twice", "Docstring")


def test_an_object_may_answer(x):
    class Answering:
        def answer(self, function, args, options):
            return function.__name__, len(args), options

    @operation
    def twice(x, y, times=2):
        raise AssertionError

    assert twice(Answering(), 1, times=5) == ("twice", 2, {"times": 5})
    p, _ = softmax(x)
    assert ops(x) == ["Softmax"]
    np.testing.assert_allclose(p.value, softmax(x.value)[0], rtol=1e-6)


def test_every_operator_belongs_to_an_operation():
    """A renamed function would be traced line by line, without its operator."""
    from importlib import import_module

    for name in operations.OPERATIONS:
        module, _, path = name.partition(".")
        function = import_module(f"mini_bert.layers.{module}")
        for part in path.split("."):
            function = getattr(function, part)
        assert hasattr(function, "__wrapped__"), name


def test_operations_on_sizes_alone_go_to_the_graph_of_the_sizes():
    """Two recordings may run at the same time, as in a server that loads two models."""
    graphs = Graph(), Graph()
    for graph, tokens in zip(graphs, (3, 5), strict=True):
        graph.input("x", np.float32, ("T",))
        size = symbol("T", tokens, graph)
        mask = causal(2 * size - 1, 3 * size)
        assert mask.graph is graph and [one.formula for one in mask.shape] == ["2·T - 1", "3·T"]
        np.testing.assert_array_equal(mask.value, causal(2 * tokens - 1, 3 * tokens))


# ---------------------------------------------------------------------- models


@pytest.mark.parametrize("name", MODELS)
def test_the_example_of_a_recording_is_what_the_model_computes(name):
    """Tracing goes through the same lines, and its operators agree with them, for every architecture."""
    model = build(name)
    recording = record(model)
    (hidden,) = recording.outputs.values()
    ids, mask, types = batch(model, 4, 11)
    expected, _ = model.encode(ids, mask, types)
    found = _computed(model, recording.graph, ids, mask, types if TYPES in recording.input_names else None)
    assert hidden.shape[2] == model.width and [size.formula for size in hidden.shape[:2]] == [
        "batch_size", "sequence_length",
    ]  # fmt: skip
    np.testing.assert_allclose(found, expected, atol=2e-5)


def _computed(model, graph, ids, mask, types):
    """The vectors that the forward pass computes from Traced arrays with these values"""
    shape = symbol("batch_size", 4, graph), symbol("sequence_length", 11, graph)
    traced = [None if one is None else Traced(graph, INPUT_IDS, one, shape) for one in (ids, mask, types)]
    return model.encode_inputs(Inputs(traced[0], traced[1][:, None, None, :], traced[2]), Run())[0].value


def test_weights_keep_their_names_and_are_stored_once():
    model = build("mini-tied")
    graph = record(model, own_head(model)).graph
    params = model.named_params()
    assert set(params) <= set(graph.initialisers)
    assert all(graph.initialisers[name].base is params[name].data.base for name in params)
    parts = {name: array for name, array in graph.initialisers.items() if name not in params}
    assert {name.rpartition("_")[0] for name, array in parts.items() if array.size > 10} == {
        f"encoder.blocks.{block}.attention.qkv.w" for block in range(2)
    }
    assert sum(node.op == "Transpose" and node.inputs == ("tokens.table",) for node in graph.nodes) == 1


def test_the_mask_is_computed_once_for_all_blocks():
    nodes = record(build("bert")).graph.nodes
    assert sum(node.op == "Where" for node in nodes) == 1
    # In a block: three products for q, k and v, scores, context, output, and two of the network
    recording = record(build("bert"))
    needed = recording.graph.needed([recording.outputs[HIDDEN].name])
    assert sum(node.op == "MatMul" for node in needed) == 2 * 8 and not any(node.op == "Split" for node in needed)


def test_models_that_are_not_float32():
    with pytest.raises(ValueError, match=r"weights are float64, expected float32"):
        record(MiniBERT(build("mini").config, dtype=np.float64))
    narrow = build("mini").keep_weights("bfloat16")
    (hidden,) = record(narrow).outputs.values()
    assert hidden.dtype == np.float32 and narrow.flat.data.dtype == np.uint16


def test_more_than_two_gigabytes_are_refused_before_they_are_written():
    pytest.importorskip("onnx")
    graph = Graph({"w": (w := np.broadcast_to(np.float32(0), (600_000_000,)))})
    name = graph.constant(w)
    with pytest.raises(ValueError, match=r"2\.4 GB, but an ONNX file holds at most 2 GB; export a smaller model"):
        graph.to_onnx({HIDDEN: (name, np.float32, w.shape)})


def test_an_unknown_engine_is_an_error():
    with pytest.raises(ValueError, match="engine is 'tensorrt', expected one of numpy, onnx"):
        with_engine(build("mini"), "tensorrt")
    model = build("mini")
    assert with_engine(model, "numpy") is model


def test_without_the_package_an_error_says_what_to_install(monkeypatch):
    from mini_bert.common import extras

    def missing(name):
        raise ImportError(name)

    monkeypatch.setattr(extras, "import_module", missing)
    with pytest.raises(ValueError, match=r"the engine onnx needs the packages onnx and onnxruntime.*pip install onnx"):
        with_engine(build("mini"), "onnx")
