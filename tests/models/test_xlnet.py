"""XLNet: the numbers of `transformers`, what an order of prediction means, its config and its files."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from mini_bert.inference.loading import load_model
from mini_bert.layers.base import Run
from mini_bert.models.base import MASKED_WORDS
from mini_bert.models.loss import Term
from mini_bert.models.registry import load_config
from mini_bert.models.xlnet import PRESET, XLNet, XLNetConfig
from tests.models.family import agree, agree_on_gradients, stored_gradients

GOLDEN = Path(__file__).parents[1] / "golden" / "xlnet"  # made by make_xlnet.py
variants = pytest.mark.parametrize("variant", ["ordered", "plain", "reversed"])
TINY = XLNetConfig(
    vocab_size=19, d_model=10, n_layer=2, n_head=5, d_inner=13, dropout=0.0, mem_len=4, seq_len=7,
    initializer_range=0.5,
)  # fmt: skip
IDS = np.random.default_rng(0).integers(0, 19, (2, 7))
ORDER = np.array([[0, 3, 0, 1, 0, 2, 4], [1, 0, 0, 3, 2, 4, 0]])
CHOSEN = np.flatnonzero(ORDER)


def golden(variant):
    model, expected = load_model(GOLDEN / variant, np.float64), load_file(GOLDEN / variant / "expected.safetensors")
    assert isinstance(model, XLNet)
    memory = [expected[name] for name in sorted(expected) if name.startswith("memory.")]
    inputs = model.check_inputs(expected["ids"], expected.get("mask"), expected.get("types"))
    inputs = inputs._replace(memory=memory or None, order=expected.get("order"))
    B, T = expected["ids"].shape
    chosen = expected.get("chosen", np.tile(np.arange(2), (B, 1))) + T * np.arange(B)[:, None]
    return model, expected, inputs, chosen.ravel()


@variants
def test_golden_outputs(variant):
    """Hidden states of both streams, the logits, and the memory for the next segment"""
    model, expected, inputs, chosen = golden(variant)
    hidden, cache = model.encode_inputs(inputs, Run())
    streams, B = 1 if inputs.order is None else 2, len(inputs.ids)
    for index in range(model.depth):
        agree(cache[f"block_input_{index}"], expected[f"hidden.{streams * index}"], f"content stream {index}")
        if streams == 2:
            own = cache[f"query_stream_input_{index}"][chosen].reshape(B, 2, -1)
            agree(own, expected[f"hidden.{2 * index + 1}"], f"query stream {index}")
        agree(cache.memory[index], expected[f"next_memory.{index}"], f"memory {index}")
    last = hidden if streams == 1 else hidden.reshape(-1, model.width)[chosen].reshape(B, 2, -1)
    agree(last, expected[f"hidden.{streams * (model.depth + 1) - 1}"], "hidden")
    agree(model.output_head(MASKED_WORDS).forward(last, Run())[0], expected["logits"], "logits")


@variants
def test_golden_loss_and_every_gradient(variant):
    model, expected, inputs, chosen = golden(variant)
    loss, cache = model.loss_of(inputs, [Term(MASKED_WORDS, chosen, expected["targets"])], Run(train=True))
    agree(np.array(loss), expected["loss"][0], "loss")
    model.loss_backward(cache)
    wanted = stored_gradients(expected)
    assert len(wanted) > 10 and agree_on_gradients(model, wanted, least=0)


@variants
def test_what_we_save_is_what_they_saved(variant, tmp_path):
    model, _, _, _ = golden(variant)
    model.save_pretrained(tmp_path)
    ours, theirs = (load_file(folder / "model.safetensors") for folder in (tmp_path, GOLDEN / variant))
    assert set(ours) >= set(theirs)
    for name, array in theirs.items():
        np.testing.assert_array_equal(ours[name], array, err_msg=name)
    np.testing.assert_array_equal(load_model(tmp_path, np.float64).flat.data, model.flat.data)


# ---------------------------------------------------------------------- the order of prediction


def test_a_prediction_sees_the_words_before_it_in_the_order():
    """Changing a word changes the predictions of later places in the order, and neither its own nor earlier ones."""
    model, T = XLNet(TINY, dtype=np.float64), 7
    inputs = model.check_inputs(IDS)._replace(order=ORDER)
    before, _ = model.encode_inputs(inputs, Run(), CHOSEN)
    for changed in CHOSEN:
        ids = IDS.copy()
        ids.flat[changed] = (ids.flat[changed] + 1) % 19
        after, _ = model.encode_inputs(inputs._replace(ids=ids), Run(), CHOSEN)
        same_sequence = changed // T == CHOSEN // T
        later = same_sequence & (ORDER.flat[CHOSEN] > ORDER.flat[changed])
        np.testing.assert_array_equal(~np.isclose(before, after).all(-1), later)


def test_hidden_words_are_predicted_from_all_others():
    """No [MASK] in between: the ids of hidden words do not matter, those of all other words do."""
    model, rows = XLNet(TINY, dtype=np.float64), np.array([2, 4, 10])
    before = model.encode_inputs(model.hide(model.check_inputs(IDS), rows, 0), Run(), rows)[0]
    for place in range(14):
        ids = IDS.copy()
        ids.flat[place] = (ids.flat[place] + 1) % 19
        after = model.encode_inputs(model.hide(model.check_inputs(ids), rows, 0), Run(), rows)[0]
        changed = (rows // 7 == place // 7) & (place not in rows)
        np.testing.assert_array_equal(~np.isclose(before, after).all(-1), changed)


def test_without_an_order_all_tokens_see_each_other():
    model = XLNet(TINY, dtype=np.float64)
    changed = IDS.copy()
    changed[:, -1] = (changed[:, -1] + 1) % 19
    before, after = (model.encode(ids)[0] for ids in (IDS, changed))
    assert not np.isclose(before, after).all(-1).any()


def test_chosen_rows_are_those_of_all_rows():
    """With and without an order; then the last block computes only what is needed."""
    model = XLNet(TINY, dtype=np.float64)
    for order in (None, ORDER):
        inputs, found = model.check_inputs(IDS, None, ORDER % 2)._replace(order=order), []
        for chosen in (None, CHOSEN):
            hidden, cache = model.encode_inputs(inputs, Run(), chosen)
            dhidden = np.zeros_like(hidden)
            dhidden.reshape(-1, 10)[CHOSEN if chosen is None else slice(None)] = 1
            model.zero_grad()
            dx = model.encode_backward(dhidden, cache)
            found.append((hidden.reshape(-1, 10)[CHOSEN] if chosen is None else hidden, dx, model.flat.grad.copy()))
        for one, other in zip(*found, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)


def test_the_streams_by_name():
    """The content stream has the usual names, the query stream its own; what was not computed is not listed."""
    model = XLNet(TINY)
    inputs = model.check_inputs(IDS)._replace(order=ORDER)
    _, cache = model.encode_inputs(inputs, Run())
    assert cache["attention_weights_1"].shape == cache["query_stream_attention_weights_1"].shape == (2, 5, 7, 7)
    assert len(cache.attention_weights()) == 2
    assert not np.diagonal(cache["query_stream_attention_weights_0"], axis1=2, axis2=3).any()  # not its own word
    assert np.diagonal(cache["attention_weights_0"], axis1=2, axis2=3).all()
    _, cache = model.encode_inputs(inputs, Run(), CHOSEN)
    assert "attention_weights_0" in cache and "attention_weights_1" not in cache and "key_1" in cache
    assert cache["query_stream_input_1"].shape == (CHOSEN.size, 10)
    with pytest.raises(ValueError, match="the content stream of the last block was not computed"):
        cache.attention_weights()


def test_segments_are_relative():
    """Only whether two tokens are in the same text matters: other numbers for the texts change nothing."""
    model = XLNet(TINY, dtype=np.float64)
    types = np.array([[0, 0, 0, 1, 1, 2, 2]] * 2)
    first, other, none = (model.encode(IDS, None, given)[0] for given in (types, 7 - types, None))
    np.testing.assert_array_equal(first, other)
    assert not np.allclose(first, none)
    np.testing.assert_array_equal(none, model.encode(IDS, None, 0 * types)[0])


def test_a_memory_in_front():
    """cache.memory is the input of each block, the last mem_len of it; in training there is none, unless asked for."""
    model = XLNet(TINY, dtype=np.float64)
    _, cache = model.encode(IDS)
    np.testing.assert_array_equal(cache.memory[1], cache["block_input_1"][:, -4:])
    inputs = model.check_inputs(IDS[:, :2])._replace(memory=cache.memory)
    hidden, again = model.encode_inputs(inputs, Run())
    np.testing.assert_array_equal(again.memory[0], np.concatenate([cache.memory[0][:, 2:], again["block_input_0"]], 1))
    assert not np.allclose(hidden, model.encode(IDS[:, :2])[0])
    assert again["memory_weights_0"].shape == (2, 5, 2, 4)
    assert model.encode(IDS, run=Run(train=True))[1].memory is None
    model = XLNet(replace(TINY, use_mems_train=True, use_mems_eval=False, mem_len=0, reuse_len=3))
    assert model.encode(IDS)[1].memory is None
    assert model.encode(IDS, run=Run(train=True))[1].memory[0].shape == (2, 3, 10)


def test_half_of_the_batch_is_reversed():
    """With bi_data, a sequence in the second half that is written backwards gives the mirrored result."""
    model = XLNet(replace(TINY, bi_data=True), dtype=np.float64)
    hidden, _ = model.encode(np.stack([IDS[0], IDS[0, ::-1]]))
    np.testing.assert_allclose(hidden[1], hidden[0, ::-1], rtol=1e-9)
    with pytest.raises(ValueError, match="half of a batch is read backwards, but it has 1 sequences"):
        model.encode(IDS[:1])


# ---------------------------------------------------------------------- config


def test_the_published_config():
    """xlnet-base-cased, as it was published"""
    published = {
        "architectures": ["XLNetLMHeadModel"], "attn_type": "bi", "bi_data": False, "bos_token_id": 1, "clamp_len": -1,
        "d_head": 64, "d_inner": 3072, "d_model": 768, "dropout": 0.1, "end_n_top": 5, "eos_token_id": 2,
        "ff_activation": "gelu", "initializer_range": 0.02, "layer_norm_eps": 1e-12, "mem_len": None,
        "model_type": "xlnet", "n_head": 12, "n_layer": 12, "pad_token_id": 5, "reuse_len": None, "same_length": False,
        "start_n_top": 5, "summary_activation": "tanh", "summary_last_dropout": 0.1, "summary_type": "last",
        "summary_use_proj": True, "task_specific_params": {"text-generation": {"do_sample": True, "max_length": 250}},
        "untie_r": True, "vocab_size": 32000,
    }  # fmt: skip
    config = XLNetConfig.from_dict(published)
    assert (config.mem_len, config.reuse_len, config.head_width) == (0, 0, 64)
    assert config.sizes().parameters == 116_750_336
    assert XLNetConfig.from_dict(config.to_dict()) == config


def test_the_width_of_a_head_follows_the_other_sizes():
    """A config can be changed with `replace`; files have the width as a number, which transformers 4 expects."""
    changed = replace(TINY, d_model=20)
    assert (TINY.head_width, changed.head_width, changed.to_dict()["d_head"]) == (2, 4, 4)
    assert XLNetConfig.from_dict(changed.to_dict()) == changed


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("attn_type", "both", "attn_type is 'both', expected 'bi' or 'uni'"),
        ("summary_type", "mean", "summary_type is 'mean', expected 'first' or 'last'"),
        ("summary_use_proj", False, "summary_use_proj is False"),
        ("summary_activation", "relu", "summary_activation is 'relu'"),
        ("d_head", 3, "d_head is 3, expected 2"),
        ("d_model", 15, "d_model is 15, expected an even number"),
        ("n_head", 4, "10.*4"),
        ("ff_activation", "silly", "silly"),
        ("clamp_len", 1.5, "clamp_len is 1.5"),
        ("bi_data", 1, "bi_data is 1, expected True or False"),
        ("reuse_lenn", 3, "did you mean 'reuse_len'"),
    ],
)
def test_what_is_not_supported_is_refused_by_name(field, value, message):
    with pytest.raises(ValueError, match=message):
        XLNetConfig.from_dict({**TINY.to_dict(), "d_head": None, field: value})


@pytest.mark.parametrize("changes", [{}, {"untie_r": False}, {"tie_word_embeddings": False}, {"n_layer": 1}], ids=str)
def test_parameters_are_counted_and_come_back(changes, tmp_path):
    config = replace(TINY, **changes)
    model = XLNet(config, seed=2)
    assert model.get_parameter_count() == config.sizes().parameters
    model.save_pretrained(tmp_path)
    np.testing.assert_array_equal(load_model(tmp_path).flat.data, model.flat.data)
    assert json.loads((tmp_path / "config.json").read_text())["architectures"] == ["XLNetLMHeadModel"]


def test_biases_that_should_be_shared_but_differ_are_refused(tmp_path):
    XLNet(replace(TINY, untie_r=True), seed=1).save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"untie_r": False}))
    with pytest.raises(ValueError, match=r"layer.1.rel_attn.r_w_bias and layer.0.rel_attn.r_w_bias are shared, but"):
        load_model(tmp_path)


def test_the_preset():
    """About the size of Mini-BERT, by its name"""
    assert load_config("xlnet") == PRESET
    assert (PRESET.depth, PRESET.width, PRESET.heads, PRESET.vocab_size) == (3, 192, 4, 8192)
