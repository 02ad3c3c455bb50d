"""The attention room: weights number by number, heads switched off, saliency."""

import base64

import numpy as np
import pytest

from mini_bert.inside.head_ablation import without_heads
from mini_bert.lab.attention import divergence, importance, maps, query, saliency, without
from mini_bert.layers.base import Run

TEXT = "She opened the door and looked into the room."


def test_maps_hold_the_weights_of_all_heads(bench):
    answer = maps(bench, {"text": TEXT})
    weights = np.frombuffer(base64.b64decode(answer["weights"]), "<u2").reshape(3, 4, 12, 12) / 65535
    cache = bench.encode(bench.read(TEXT))
    for layer in range(3):
        np.testing.assert_allclose(weights[layer], cache[f"attention_weights_{layer}"][0], atol=1e-5)
    assert answer["patterns"][:2] == ["previous", "next"] and answer["position"] == 9


def test_a_weight_is_computed_step_by_step(bench):
    """Products, scores, powers and weights follow from the query and the keys that are shown."""
    answer = query(bench, {"text": TEXT, "layer": 1, "head": 2, "position": 4})
    products = np.array(answer["keys"]) @ answer["query"]
    (summed,) = answer["products"].values()
    np.testing.assert_allclose(summed, products, atol=0.02)
    np.testing.assert_allclose(answer["scores"], np.array(summed) / np.sqrt(48), rtol=1e-4)
    powers = np.exp(np.array(answer["scores"]) - answer["largest"])
    np.testing.assert_allclose(answer["powers"], powers, rtol=1e-4)
    np.testing.assert_allclose(answer["weights"], powers / answer["sum"], rtol=1e-3)
    assert sum(answer["weights"]) == pytest.approx(1, abs=1e-4)


def test_a_head_that_is_off_adds_nothing(bench):
    """Its context no longer reaches the output of attention; those of the others are unchanged."""
    weaker = without_heads(bench.model, [(0, 1)])
    x = np.random.default_rng(0).normal(size=(1, 5, 192)).astype(np.float32)
    own, other = (model.encoder.blocks[0].attention for model in (bench.model, weaker))
    _, cache = own.forward(x, Run())
    context = cache.context.copy()
    context[..., 48:96] = 0
    np.testing.assert_allclose(other.forward(x, Run())[0], own.output.forward(context, Run())[0], atol=1e-5)
    np.testing.assert_array_equal(other.forward(x, Run())[1].attended.probs, cache.attended.probs)


def test_switching_off_leaves_the_model_alone_and_shares_its_weights(bench):
    before = bench.model.flat.data.copy()
    weaker = without_heads(bench.model, [(0, 1), (0, 2), (2, 3)])
    np.testing.assert_array_equal(bench.model.flat.data, before)
    assert weaker.tokens is bench.model.tokens and weaker.encoder.blocks[1] is bench.model.encoder.blocks[1]
    assert not weaker.encoder.blocks[0].attention.output.w.data[48:144].any()
    assert (
        without_heads(bench.model, []).encode([[2, 5, 3]])[0].tobytes() == bench.model.encode([[2, 5, 3]])[0].tobytes()
    )


def test_a_head_that_does_not_exist_is_refused(bench):
    with pytest.raises(ValueError, match="no head 4 in layer 0"):
        without_heads(bench.model, [(0, 4)])


def test_guesses_without_heads(bench):
    """Without any head off nothing changes; with one, the change is the one that `importance` lists for it."""
    none = without(bench, {"text": TEXT, "position": 4, "off": []})
    assert none["divergence"] == 0 and all(one["before"] == one["after"] for one in none["guesses"])
    some = without(bench, {"text": TEXT, "position": 4, "off": [0]})
    every = importance(bench, {"text": TEXT, "position": 4})["divergences"]
    assert some["divergence"] == pytest.approx(every[0], rel=1e-3) and len(every) == 12 and min(every) > 0
    assert some["own"] == "door"


def test_divergence_is_that_of_the_textbook():
    p, q = np.array([0.7, 0.2, 0.1]), np.array([0.2, 0.2, 0.6])
    assert divergence(p, q) == pytest.approx(0.7 * np.log(3.5) + 0.1 * np.log(1 / 6))
    assert divergence(np.array([1.0, 0.0]), np.array([0.5, 0.5])) == pytest.approx(np.log(2))


def test_saliency_explains_the_hidden_word(bench):
    answer = saliency(bench, {"text": TEXT, "position": 4})
    assert answer["of"] == "log p(door) at token 4, masked" and answer["tokens"][4] == "[MASK]"
    assert len(answer["scores"]) == 12 and max(map(abs, answer["scores"])) > 0.01


@pytest.mark.parametrize("action", [saliency, without, importance])
def test_only_words_can_be_guessed(bench, action):
    with pytest.raises(ValueError, match="is not a word"):
        action(bench, {"text": TEXT, "position": 0})
