"""The backward room: gradients at operations and weights, against finite differences and the model's own backward."""

import base64

import numpy as np
import pytest

from mini_bert.lab.backward import STEPS, check, derivation, flow, relative_error, values, weights
from mini_bert.lab.bench import Bench
from mini_bert.lab.derivations import read_pages, sections
from mini_bert.lab.gradients import backward_pass, loss_at
from mini_bert.layers.base import Run
from mini_bert.models.base import MASKED_WORDS
from mini_bert.models.bert import Bert, BertConfig
from tests.lab.test_family import preset_bench

TEXT = "She opened the door and looked into the room."


def numbers(answer, name="numbers"):
    return np.frombuffer(base64.b64decode(answer[name]), "<f4")


def test_the_flow_leads_from_the_loss_to_the_embeddings(bench):
    answer = flow(bench, {"text": TEXT, "hidden": [4]})
    steps = [(one["step"], one["layer"]) for one in answer["operations"]]
    assert steps[:2] == [("logits", None), ("final_norm", None)] and steps[-1] == ("embeddings", None)
    assert len(steps) == 2 + 3 * 14 + 1 and {step for step, _ in steps} | {"hidden"} == set(STEPS)
    assert [layer for step, layer in steps if step == "scores"] == [2, 1, 0]
    assert all(one["norm"] > 0 for one in answer["operations"]) and len(answer["paths"]) == 6
    assert answer["loss"] == pytest.approx(-np.log(answer["words"][0]["p"]), rel=1e-4)
    assert answer["words"][0]["word"] == "door" and answer["hidden"] == [4]


def test_gradients_are_those_of_the_model(bench):
    """Weights and embeddings get what `loss_backward` computes, in float32, from the chosen row alone."""
    reading = bench.read(TEXT)
    passed = backward_pass(bench, reading, [4])
    twin = bench.model.replica()
    inputs = twin.hide(twin.check_inputs([reading.ids]), [4], bench.tokenizer.mask_id)
    loss, cache = twin.loss(inputs.ids, [4], [reading.ids[4]])
    dx = twin.loss_backward(cache, run=Run())
    assert passed.loss == pytest.approx(float(loss), rel=1e-4)
    np.testing.assert_allclose(passed.found["embeddings", None], dx[0], atol=1e-5)
    for name, param in twin.named_params().items():
        np.testing.assert_allclose(passed.params[name].grad, param.grad, atol=2e-5, err_msg=name)


def test_a_gradient_at_an_operation_is_the_slope_of_the_loss(bench):
    """Adding ε·direction to the final norm's output changes the loss by ε times the product with its gradient."""
    reading = bench.read(TEXT)
    passed = backward_pass(bench, reading, [4])
    model = type(bench.model)(bench.model.config, bench.model.output_heads, None, np.float64)
    model.flat.data[...] = bench.model.flat.data
    inputs = model.hide(model.check_inputs([reading.ids]), [4], bench.tokenizer.mask_id)
    direction = np.random.default_rng(0).normal(size=192)
    losses = []
    for step in (1e-5, -1e-5):  # β is added to every row, but only row 4 is in the loss
        model.final_norm.beta.data += step * direction
        losses.append(loss_at(model, inputs, [4], [reading.ids[4]]))
        model.final_norm.beta.data -= step * direction
    slope = passed.found["final_norm", None][4] @ direction
    assert (losses[0] - losses[1]) / 2e-5 == pytest.approx(slope, rel=1e-6)
    others = np.delete(passed.found["final_norm", None], 4, axis=0)
    assert not others.any()


def test_paths_that_meet_are_added(bench):
    """At each norm inside a block: the gradient is that past the network plus that through it."""
    found = backward_pass(bench, bench.read(TEXT), [4]).found
    for layer in range(3):
        np.testing.assert_allclose(
            found["attention_norm", layer], found["output_sum", layer] + found["feed_forward_input", layer], atol=1e-12
        )
        below = found["embeddings", None] if layer == 0 else found["output_norm", layer - 1]
        np.testing.assert_allclose(below, found["attention_sum", layer] + found["attention_input", layer], atol=1e-12)


def test_scores_get_the_jacobian_of_softmax(bench):
    """dS = J dP with J = diag(p) − p pᵀ, row by row; and rows of dS sum to 0."""
    reading = bench.read(TEXT)
    found = backward_pass(bench, reading, [4]).found
    hidden = bench.model.hide(bench.model.check_inputs([reading.ids]), [4], bench.tokenizer.mask_id)
    _, cache = bench.model.encode_inputs(hidden, Run())
    p = cache["attention_weights_1"][0, 2, 4].astype(float)
    expected = (np.diag(p) - np.outer(p, p)) @ found["attention", 1][2, 4]
    np.testing.assert_allclose(found["scores", 1][2, 4], expected, atol=1e-6)
    np.testing.assert_allclose(found["scores", 1].sum(-1), 0, atol=1e-12)


@pytest.mark.parametrize("tensor", ["tokens.table", "encoder.blocks.0.attention.qkv.w",
                                    "encoder.blocks.1.attention.output.w", "encoder.blocks.2.feed_forward.expand.w",
                                    "final_norm.gamma", "head.b"])  # fmt: skip
def test_a_weight_agrees_with_its_finite_difference(bench, tensor):
    part = weights(bench, {"text": TEXT, "hidden": [4, 9], "tensor": tensor})
    row, column = part["largest"]
    answer = check(bench, {"text": TEXT, "hidden": [4, 9], "tensor": tensor, "row": row, "column": column})
    assert answer["error"] < 1e-6 and answer["analytic"] != 0
    own = numbers(part).reshape(len(part["rows"]), -1)[part["rows"].index(row), part["columns"].index(column)]
    assert own == pytest.approx(answer["analytic"], rel=1e-5)


def test_a_weight_is_put_back_after_the_check(bench):
    request = {"text": TEXT, "hidden": [4], "tensor": "head.b", "row": 0, "column": 7, "exponent": 1}
    before = backward_pass(bench, bench.read(TEXT), [4]).params["head.b"].data.copy()
    first = check(bench, request)
    np.testing.assert_array_equal(backward_pass(bench, bench.read(TEXT), [4]).params["head.b"].data, before)
    assert check(bench, request) == first


def test_a_word_that_is_not_there_has_no_gradient(bench):
    unused = next(i for i in range(100, 200) if i not in bench.read(TEXT).ids)
    request = {"text": TEXT, "hidden": [4], "tensor": "tokens.table", "row": unused, "column": 3}
    answer = check(bench, request)
    assert answer["analytic"] == answer["numeric"] == answer["error"] == 0


def test_at_the_scores_the_hidden_word_should_rise_and_others_fall(bench):
    answer = values(bench, {"text": TEXT, "hidden": [4], "step": "logits"})
    found = numbers(answer)
    assert answer["labels"][int(found.argmin())] == "door" and (np.delete(found, found.argmin()) > 0).all()
    assert answer["rows"] == ["door"] and answer["shape"] == [1, 8192]


@pytest.mark.parametrize("step", [step for step in STEPS if step != "hidden"])
def test_every_operation_has_numbers_a_source_and_a_derivation(bench, step):
    answer = values(bench, {"text": TEXT, "hidden": [4], "step": step, "layer": 1})
    assert numbers(answer).size == np.prod(answer["size"]) and answer["norm"] > 0
    assert answer["source"]["file"].startswith("mini_bert/layers/") and answer["source"]["line"] > 1
    named = {name: answer["derivation"][name] for name in ("page", "anchor")}
    shown = derivation(bench, named)
    assert shown["title"] == answer["derivation"]["title"] and "**Example.**" in shown["text"] and answer["about"]


def test_derivations_are_those_of_the_documentation():
    """If this fails: python -m mini_bert.lab.derivations"""
    assert sections() == read_pages() and len({(one["page"], one["anchor"]) for one in sections()}) == len(sections())


def test_a_mask_in_the_text_stands_for_the_best_guess(bench):
    answer = flow(bench, {"text": "She opened the [MASK] and looked into the room.", "hidden": []})
    assert [word["word"] for word in answer["words"]] == ["door"]


def test_other_models_and_their_limits(bench, monkeypatch):
    """BERT has no final norm; a model that is too large or has no head for words is refused with a sentence."""
    config = BertConfig(vocab_size=bench.tokenizer.vocab_size, hidden_size=12, num_hidden_layers=2,
                        num_attention_heads=3, intermediate_size=20, max_position_embeddings=64)  # fmt: skip
    small = Bench("bert", Bert(config, (MASKED_WORDS,)), bench.tokenizer)
    answer = flow(small, {"text": TEXT, "hidden": [4]})
    assert [one["step"] for one in answer["operations"]][:3] == ["logits", "hidden", "output_norm"]
    name = "encoder.blocks.1.attention.qkv.w"
    part = weights(small, {"text": TEXT, "hidden": [4], "tensor": name})
    row, column = part["largest"]
    assert check(small, {"text": TEXT, "hidden": [4], "tensor": name, "row": row, "column": column})["error"] < 1e-4
    headless = Bench("none", Bert(config, ()), bench.tokenizer)
    with pytest.raises(ValueError, match="no output head that guesses words"):
        flow(headless, {"text": TEXT, "hidden": [4]})
    monkeypatch.setattr("mini_bert.lab.gradients.MOST_WEIGHTS", 1000)
    with pytest.raises(ValueError, match="takes models with at most 1,000"):
        flow(Bench("large", small.model, bench.tokenizer), {"text": TEXT, "hidden": [4]})


@pytest.mark.parametrize(("action", "wrong", "said"), [
    (values, {"step": "soup"}, "expected one of"),
    (weights, {"tensor": "no.such"}, "expected one of"),
    (check, {"tensor": "head.b", "row": 1, "column": 0}, "row is 1, expected a whole number from 0 to 0"),
    (check, {"tensor": "head.b", "row": 0, "column": 8192}, "column is 8192"),
    (check, {"tensor": "head.b", "row": 0, "column": 0, "exponent": 300}, "exponent is 300"),
    (flow, {"hidden": [0]}, "is not a word"),
    (flow, {"more": 1}, "unknown field"),
])  # fmt: skip
def test_wrong_requests_get_a_sentence(bench, action, wrong, said):
    with pytest.raises(ValueError, match=said):
        action(bench, {"text": TEXT, "hidden": [4], **wrong})


def test_relative_error():
    assert relative_error(1.0, 0.9) == pytest.approx(0.1) and relative_error(-1.0, 1.0) == 2.0


@pytest.mark.parametrize(("name", "inside"), [("roberta", True), ("deberta", True), ("deberta-v2", True),
                                              ("transformer-xl", True), ("gpt2", False), ("xlnet", False)])  # fmt: skip
def test_other_architectures_are_followed_as_far_as_possible(name, inside):
    """Inside blocks with norms after the sums, where paths that meet are added; other blocks as a whole."""
    small = preset_bench(name)
    reading = small.read(TEXT)
    found = backward_pass(small, reading, [4]).found
    steps = {step for step, layer in found if layer == 1}
    assert ("output_sum" in steps) == inside and ("scores" in steps) == (name == "roberta")
    assert {layer for _, layer in found} >= set(range(small.model.depth)) and found["embeddings", None].any()
    if inside:
        below = found["attention_sum", 1] + found["attention_input", 1][-len(reading.ids) :]
        if name != "deberta-v2":  # whose first block ends with a convolution
            np.testing.assert_allclose(found["output_norm", 0], below, atol=1e-12)
    assert len(flow(small, {"text": TEXT, "hidden": [4]})["operations"]) >= small.model.depth + 3
