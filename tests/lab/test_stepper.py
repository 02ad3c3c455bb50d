"""The stepper: every sum gives its number, the chain of operations is the model's own, and source lines exist."""

import base64
from pathlib import Path

import numpy as np
import pytest

import mini_bert
from mini_bert.inference.loading import load
from mini_bert.lab.bench import Bench
from mini_bert.lab.operations import operations
from mini_bert.lab.source import line_of
from mini_bert.lab.stepper import explain, steps, values
from mini_bert.layers.base import Run
from mini_bert.layers.linear import Linear
from mini_bert.layers.softmax import softmax
from mini_bert.models.bert import Bert, BertConfig
from mini_bert.models.registry import PRESETS
from tests.lab.test_family import preset_bench

TEXT = "She opened the door and looked into the [MASK]."
IN_A_BLOCK = [
    *("query", "key", "value", "scores", "attention", "context", "output", "attention_sum", "attention_norm"),
    *("expand", "activation", "contract", "output_sum", "output_norm"),
]


@pytest.fixture(scope="module")
def every(bench):
    return operations(bench, bench.read(TEXT))


@pytest.fixture(scope="module")
def small_bert(bench):
    """A small, random BERT with published BERT's layout: biases, token types, GELU, a tied head."""
    config = BertConfig(
        vocab_size=bench.tokenizer.vocab_size, hidden_size=24, num_hidden_layers=2, num_attention_heads=3,
        intermediate_size=29, max_position_embeddings=31,
    )  # fmt: skip
    model = Bert(config, ("masked_words",), 0, np.float32)
    rng = np.random.default_rng(0)
    for param in model.named_params().values():
        param.data[...] += rng.normal(size=param.shape) * 0.1  # biases and norms count, too
    return Bench("small", model, bench.tokenizer)


def test_the_operations_of_mini_bert_are_complete_and_in_order(every):
    names = [one.step for one in every]
    assert names == [
        *("tokens", "positions", "embeddings"), *IN_A_BLOCK * 3, *("final_norm", "logits", "probabilities"),
    ]  # fmt: skip
    assert [one.layer for one in every[3:-3]] == [layer for layer in range(3) for _ in IN_A_BLOCK]


def test_each_result_is_the_input_of_the_next_operation(bench, every):
    """The arrays that the stepper computes again agree with those that the model's own forward pass left behind."""
    logits, cache = bench.model.forward(np.array([bench.read(TEXT).ids]))
    found = {(one.layer, one.step): one.values for one in every}
    close = {"rtol": 1e-4, "atol": 1e-5}
    np.testing.assert_allclose(found[None, "embeddings"], cache["embeddings"][0], **close)
    for layer in range(3):
        np.testing.assert_allclose(softmax(found[layer, "scores"])[0], cache[f"attention_weights_{layer}"][0], **close)
        for which in ("attention", "output"):
            norm = getattr(bench.model.encoder.blocks[layer], f"{which}_norm")
            expected = norm.forward(found[layer, f"{which}_sum"], Run())[0]
            np.testing.assert_allclose(found[layer, f"{which}_norm"], expected, **close)
        if layer < 2:
            np.testing.assert_allclose(found[layer, "output_norm"], cache[f"block_input_{layer + 1}"][0], **close)
    np.testing.assert_allclose(found[None, "final_norm"], cache["hidden"][0], **close)
    np.testing.assert_allclose(found[None, "logits"], logits[0], **close)
    np.testing.assert_allclose(found[None, "probabilities"].sum(-1), 1, rtol=1e-5)


def _explained(every):
    rng = np.random.default_rng(7)
    for one in every:
        if one.explain is None:
            continue
        for _ in range(4):
            index = tuple(int(rng.integers(size)) for size in one.values.shape)
            yield one, index, one.explain(*index)


def test_every_explanation_gives_its_number(every):
    """The last step of an explanation, or the sum of its terms, is the number itself."""
    for one, index, found in _explained(every):
        expected = float(one.values[index])
        assert found.value == pytest.approx(expected, rel=2e-3, abs=2e-4), (one.layer, one.step, index)
        sizes = [abs(term.value) for term in found.terms]
        assert sizes == sorted(sizes, reverse=True) and len(sizes) <= 8
        assert found.terms or found.steps


def test_every_explanation_of_a_bert_gives_its_number(small_bert):
    """The same for biases, token types, GELU, the norm of the embeddings and a tied head."""
    every = operations(small_bert, small_bert.read("the cat sat on the mat ."))
    names = [one.step for one in every]
    assert names[:4] == ["tokens", "positions", "embeddings", "embedding_norm"] and names[-1] == "probabilities"
    cache = small_bert.encode(small_bert.read("the cat sat on the mat ."))
    np.testing.assert_allclose(every[3].values, cache["embeddings"][0], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(every[4 + 13].values, cache["block_input_1"][0], rtol=1e-4, atol=1e-5)
    for one, index, found in _explained(every):
        assert found.value == pytest.approx(float(one.values[index]), rel=2e-3, abs=2e-4), (one.layer, one.step, index)


def test_terms_are_factors_of_the_model(bench, every):
    """One query number by hand: the inputs of the block times a column of W_q."""
    (query,) = [one for one in every if one.step == "query" and one.layer == 1]
    x = bench.encode(bench.read(TEXT))["block_input_1"][0, 3].astype(float)
    column = bench.model.encoder.blocks[1].attention.qkv.w.data[:, 2 * 48 + 5].astype(float)
    found = query.explain(2, 3, 5)
    largest = np.argmax(np.abs(x * column))
    assert found.terms[0].label == f"x[3,{largest}] × W_q[{largest},101]"
    assert found.terms[0].value == pytest.approx((x * column)[largest])
    assert found.others == 192 - 8 and found.total == pytest.approx((x * column).sum())


def test_source_lines_are_found_where_they_are(every):
    """Each operation names a file of the package, and that line of the file is the one that is shown."""
    root = Path(mini_bert.__file__).parents[1]
    for one in every:
        lines = (root / one.source.file).read_text(encoding="utf-8").splitlines()
        assert lines[one.source.line - 1].strip() == one.source.code


def test_a_fragment_that_is_gone_is_an_error():
    with pytest.raises(ValueError, match="its source has changed"):
        line_of(Linear.forward, "no such code")


ARCHITECTURES = sorted(set(PRESETS) - {"mini", "larger"})


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_every_architecture_is_taken_apart(name):
    """Each sum gives its number, and the last operation of a block is the input of the next block."""
    other, rng = preset_bench(name), np.random.default_rng(0)
    for param in other.model.named_params().values():
        param.data[...] += rng.normal(size=param.shape) * 0.05  # biases and norms count, too
    reading = other.read("A cat sat on the mat.")
    every, blocks = operations(other, reading), other.encode(reading).blocks
    for layer in range(other.model.depth - 1):
        last = [one for one in every if one.layer == layer][-1]
        np.testing.assert_allclose(last.values, blocks[layer + 1].input[0], rtol=1e-3, atol=1e-4)
    for one, index, found in _explained(every):
        assert found.value == pytest.approx(float(one.values[index]), rel=2e-3, abs=2e-4), (one.layer, one.step, index)
        assert one.source.code
    unknown = [one.step for one in every if one.explain is None]
    assert unknown == (["tokens", "logits"] if name == "transformer-xl" else [])  # its adaptive tables


def test_a_layer_that_is_not_known_shows_its_numbers():
    """Talking heads can be stepped through, without sums."""
    other = preset_bench("deberta")
    for block in other.model.encoder.blocks:
        block.attention.__class__ = type("Other", (type(block.attention),), {})
    answer = steps(other, {"text": "the cat sat"})
    assert len(answer["operations"]) > 2 * other.model.depth
    one = next(one for one in answer["operations"] if one["layer"] == 0)
    place = {"text": "the cat sat", "step": one["step"], "layer": 0}
    assert not values(other, place)["explained"]
    with pytest.raises(ValueError, match="not shown for this architecture"):
        explain(other, {**place, "row": 0, "column": 0})


def test_values_are_packed_as_the_page_reads_them(bench, every):
    answer = values(bench, {"text": TEXT, "step": "attention", "layer": 2})
    numbers = np.frombuffer(base64.b64decode(answer["numbers"]), "<f4").reshape(answer["size"])
    np.testing.assert_array_equal(numbers, bench.encode(bench.read(TEXT))["attention_weights_2"][0])
    assert answer["labels"][0] == "[CLS]" and not answer["signed"]


def test_of_all_words_the_best_are_shown(bench):
    """The columns of the probabilities include the best word of every token."""
    answer = values(bench, {"text": TEXT, "step": "probabilities", "layer": -1})
    probs = operations(bench, bench.read(TEXT))[-1].values
    assert set(probs.argmax(-1).tolist()) <= set(answer["columns"])
    assert len(answer["columns"]) == answer["size"][-1] <= 64 and answer["shape"] == [12, 8192]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"step": "soup"}, "expected one of tokens"),
        ({"layer": 3}, "from -1 to 2"),
        ({"row": 12}, "from 0 to 11"),
        ({"column": -1}, "from 0 to 47"),
        ({"head": 4}, "from 0 to 3"),
        ({"column": 1e9}, "whole number"),
        ({"more": 1}, "unknown field"),
    ],
)
def test_a_wrong_index_gets_a_sentence(bench, more, said):
    request = {"text": TEXT, "step": "query", "layer": 0, "row": 0, "column": 0, "head": 0} | more
    with pytest.raises(ValueError, match=said):
        explain(bench, request)


def test_the_model_is_not_changed(bench):
    before = bench.model.flat.data.copy()
    for action, more in (
        (steps, {}),
        (values, {"step": "logits"}),
        (explain, {"step": "logits", "row": 1, "column": 7}),
    ):
        action(bench, {"text": TEXT, **more})
    np.testing.assert_array_equal(bench.model.flat.data, before)
    assert load("mini-bert")[0].flat.data.tobytes() == before.tobytes()
