"""Mini-BERT: its size, its mathematics, its entry points and its files."""

import json
import math
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from larger_bert import LARGER_BERT_CONFIG, LargerBERT
from mini_bert.checks import gradcheck, objective_cases
from mini_bert.checks.gradcheck import MODELS
from mini_bert.checks.gradients import TOLERANCE, gradient_check
from mini_bert.files.model_folder import read_tensors
from mini_bert.layers.base import Run
from mini_bert.layers.encoder import Recompute
from mini_bert.models.config import MINI_BERT_CONFIG, MiniBertConfig
from mini_bert.models.mini import MiniBERT, MiniTransformerLayer
from mini_bert.training.optim import Adam

GOLDEN = Path(__file__).parents[1] / "golden" / "mini_bert"
TINY = MiniBertConfig(vocab_size=31, hidden_size=10, num_layers=2, num_heads=2, intermediate_size=13, max_seq_length=11)


def relative(a, b):
    return np.abs(a - b).max() / max(np.abs(b).max(), 1e-12)


@pytest.fixture(scope="module")
def model():
    return MiniBERT()


def random_ids(config, shape, seed=0):
    return np.random.default_rng(seed).integers(5, config.vocab_size, shape)


def test_parameter_count(model):
    """4,498,880 exactly, and the components add up to it."""
    assert model.get_parameter_count() == 4_498_880
    parts = model.get_parameter_count(by_component=True)
    assert sum(parts.values()) == 4_498_880
    assert parts["encoder.blocks.0"] == 4 * 192**2 + 2 * 192 * 768 + 768 + 192 + 4 * 192
    assert (parts["tokens"], parts["positions"], parts["head"]) == (8192 * 192, 64 * 192, 192 * 8192 + 8192)


def test_larger_bert_is_the_same_class_with_other_numbers():
    """49,137,488 parameters, 29,937,488 with a tied head; one forward pass at full size."""
    larger = LargerBERT(LARGER_BERT_CONFIG, seed=None)  # no weights are drawn: two seconds
    assert larger.get_parameter_count() == 49_137_488
    assert larger.forward([[2, 49_999, 3]])[0].shape == (1, 3, 50_000)
    assert MiniBERT(replace(LARGER_BERT_CONFIG, tie_head=True), seed=None).get_parameter_count() == 29_937_488


def test_forward_shapes_and_names(model):
    """(B,T) -> (B,T,V), and intermediate arrays are available by name."""
    ids = random_ids(model.config, (2, 8))
    logits, cache = model.forward(ids)
    assert logits.shape == (2, 8, 8192) and logits.dtype == np.float32
    assert cache["attention_weights_0"].shape == (2, 4, 8, 8)
    np.testing.assert_allclose(cache["attention_weights_2"].sum(-1), 1, rtol=1e-5)
    shapes = {name: array.shape for name, array in cache.items()}
    assert shapes["embeddings"] == (2, 8, 192) and shapes["query_1"] == (2, 4, 8, 48)
    assert list(cache) == list(shapes) and len(cache) == len(shapes)
    with pytest.raises(KeyError, match="no array 'attention_weights_3'"):
        cache["attention_weights_3"]


def test_documented_calls(model):
    """The attributes and calls that the guide's readers type."""
    assert model.config.hidden_size == 192
    assert model.token_embeddings.shape == (8192, 192) and model.position_embeddings.shape == (64, 192)
    output, cache = model._multi_head_attention(np.random.default_rng(0).normal(size=(1, 4, 192)), layer=0)
    assert output.shape == (1, 4, 192) and cache["attention_weights"].shape == (1, 4, 4, 4)
    assert all(isinstance(value, np.ndarray) for value in cache.values())
    assert model.set_training(False) is model
    assert len(MiniTransformerLayer().named_params()) == 10


def test_initial_loss_is_that_of_knowing_nothing(model):
    """About ln 8192 = 9.01 before any training."""
    ids = random_ids(model.config, (8, 64))
    rows = np.arange(0, 512, 7)
    loss, _ = model.loss(ids, rows, ids.ravel()[rows])
    assert abs(loss - math.log(8192)) < 0.1


def test_golden_forward_and_every_gradient():
    """Output, loss and the gradient of every tensor equal PyTorch's, in float64, to 1e-9."""
    expected = read_tensors(GOLDEN / "expected.safetensors")
    model = MiniBERT.from_pretrained(GOLDEN, dtype=np.float64)
    ids, mask = expected["input_ids"], expected["attention_mask"]
    logits, cache = model.forward(ids, mask)
    assert relative(logits, expected["logits"]) < 1e-9
    assert relative(cache["hidden"], expected["hidden"]) < 1e-9

    loss, cache = model.loss(ids, expected["rows"], expected["targets"], mask)
    assert abs(loss - expected["loss"][0]) < 1e-9 * expected["loss"][0]
    model.loss_backward(cache)
    params = model.named_params()
    assert set(params) == {name.removeprefix("grad.") for name in expected if name.startswith("grad.")}
    for name, param in params.items():
        assert relative(param.grad, expected[f"grad.{name}"]) < 1e-9, name


def test_loss_on_chosen_rows_is_the_loss_of_the_full_forward():
    """Running the head on the chosen rows only changes nothing: loss and every gradient equal those of all rows."""
    model = MiniBERT(TINY, dtype=np.float64)
    ids, rows = random_ids(TINY, (3, 7)), np.array([1, 4, 9, 20])
    targets = ids.ravel()[rows]
    loss, cache = model.loss(ids, rows, targets)
    dx = model.loss_backward(cache)
    short = model.flat.grad.copy()

    model.zero_grad()
    logits, cache = model.forward(ids)
    flat = logits.reshape(21, -1)
    probabilities = np.exp(flat) / np.exp(flat).sum(-1, keepdims=True)
    dlogits = np.zeros_like(flat)
    dlogits[rows] = probabilities[rows]
    dlogits[rows, targets] -= 1
    dx_full = model.backward(dlogits.reshape(logits.shape) / len(rows), cache)
    assert loss == pytest.approx(-np.log(probabilities[rows, targets]).mean(), rel=1e-12)
    np.testing.assert_allclose(dx, dx_full, atol=1e-14)
    np.testing.assert_allclose(short, model.flat.grad, atol=1e-13)


@pytest.mark.parametrize("name", [name for name in MODELS if "full size" not in name])
def test_whole_model_gradients(name, monkeypatch):
    """Every tensor of a whole model agrees with central differences to 1e-6, for the largest gradients and some
    others."""

    def four(loss, arrays, claims, entries, *others):
        return gradient_check(loss, arrays, claims, min(entries, 4), *others)

    for module in (gradcheck, objective_cases):
        monkeypatch.setattr(module, "gradient_check", four)
    for row in MODELS[name]():
        assert row.error <= TOLERANCE, row


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_whole_model_gradients_number_by_number(name):
    """All numbers of tiny models, and half a minute's worth of the full-sized one (simple_test checks fewer)."""
    for row in MODELS[name]():
        assert row.error <= TOLERANCE, row


def test_padding_changes_nothing(model):
    """A sequence gives the same output alone and inside a padded batch."""
    ids = random_ids(model.config, (3, 12))
    mask = np.ones((3, 12), int)
    mask[0, 7:] = 0
    ids[0, 7:] = 0
    together, _ = model.forward(ids, mask)
    alone, _ = model.forward(ids[:1, :7])
    assert np.abs(together[0, :7] - alone[0]).max() <= 1e-5
    ids[0, 7:] = 99
    other, _ = model.forward(ids, mask)
    assert np.abs(together[0, :7] - other[0, :7]).max() <= 1e-5


def test_permuting_the_batch_permutes_the_output(model):
    """Sequences of a batch do not affect each other."""
    ids, order = random_ids(model.config, (5, 9)), np.array([3, 0, 4, 1, 2])
    logits, _ = model.forward(ids)
    np.testing.assert_allclose(model.forward(ids[order])[0], logits[order], atol=1e-5)


def test_overfits_one_batch():
    """Eight sequences can be memorised: the loss falls below 0.01."""
    model = MiniBERT(
        MiniBertConfig(vocab_size=101, hidden_size=48, num_layers=2, intermediate_size=96, max_seq_length=16)
    )
    ids = random_ids(model.config, (8, 16))
    rows = np.random.default_rng(1).choice(128, 20, replace=False)
    targets = ids.ravel()[rows].copy()
    ids.reshape(-1)[rows] = 4
    optimiser = Adam(model.flat, lr=3e-3)
    for _ in range(200):
        model.zero_grad()
        loss, cache = model.loss(ids, rows, targets)
        if loss < 0.01:
            break
        model.loss_backward(cache)
        optimiser.step()
    assert loss < 0.01


def test_training_mode_draws_and_inference_repeats():
    """With dropout, training passes differ, the same run repeats a pass, and inference is deterministic."""
    config = MiniBertConfig(31, 10, 2, 2, 13, 11, dropout=0.2)
    model, ids = MiniBERT(config), random_ids(config, (2, 5))
    steady = [model.forward(ids)[0] for _ in range(2)]
    np.testing.assert_array_equal(*steady)
    model.set_training(True)
    noisy = [model.forward(ids)[0] for _ in range(2)]
    assert np.abs(noisy[0] - noisy[1]).max() > 1e-3
    repeated = [model.forward(ids, run=Run(7, train=True))[0] for _ in range(2)]
    np.testing.assert_array_equal(*repeated)


def test_recomputed_blocks_give_the_same_bits():
    """With every block recomputed, loss and gradients are identical, dropout included."""
    config = MiniBertConfig(31, 10, 2, 2, 13, 11, dropout=0.2)
    ids, outcomes = random_ids(config, (2, 5)), []
    for recompute in (False, True):
        model = MiniBERT(config)
        if recompute:
            model.encoder.blocks = [Recompute(block) for block in model.encoder.blocks]
        loss, cache = model.loss(ids, np.array([1, 7]), np.array([3, 4]), run=Run(5, train=True))
        model.loss_backward(cache)
        outcomes.append((loss, model.flat.grad))
    assert outcomes[0][0] == outcomes[1][0]
    np.testing.assert_array_equal(outcomes[0][1], outcomes[1][1])


def test_save_and_load_are_bit_identical(tmp_path):
    """What save_pretrained writes, from_pretrained and load_checkpoint read back exactly."""
    model = MiniBERT(TINY, seed=3)
    model.save_pretrained(tmp_path / "model")
    loaded = MiniBERT.from_pretrained(tmp_path / "model")
    assert loaded.config == TINY
    np.testing.assert_array_equal(loaded.flat.data, model.flat.data)
    other = MiniBERT(TINY, seed=4).load_checkpoint(tmp_path / "model" / "model.safetensors")
    np.testing.assert_array_equal(other.flat.data, model.flat.data)
    assert sorted(path.name for path in (tmp_path / "model").iterdir()) == [
        "config.json",
        "model.safetensors",
    ]


@pytest.mark.parametrize(
    ("ids", "mask", "error", "message"),
    [
        ([[5, 8192]], None, ValueError, r"input_ids\[0, 1\] is 8192, expected 0 to 8191"),
        ([[5, -1]], None, ValueError, r"input_ids\[0, 1\] is -1, expected 0 to 8191"),
        ([[5.0, 6.5]], None, TypeError, "must be integers, got dtype float64, for example .*5.0"),
        ([["the", "cat"]], None, TypeError, "must be integers"),
        ([5, 6], None, ValueError, r"shape \(batch, tokens\).* got \(2,\)"),
        ([[]], None, ValueError, "at least one token"),
        ([[5, 6], [7]], None, ValueError, "sequences of different lengths; pad them"),
        (np.zeros((0, 3), int), None, ValueError, "at least one token"),
        ([[5] * 65], None, ValueError, "65 tokens, but this model is configured for at most 64"),
        ([[5, 6]], [[1]], ValueError, r"attention_mask has shape \(1, 1\), expected \(1, 2\)"),
        ([[5, 6]], [[1, 2]], ValueError, "attention_mask contains .*2.*, expected 1 for tokens and 0"),
    ],
)
def test_bad_input_is_named(model, ids, mask, error, message):
    """Each error names the value and what was expected."""
    with pytest.raises(error, match=message):
        model.forward(ids, mask)


@pytest.mark.parametrize(
    ("rows", "targets", "error", "message"),
    [
        ([8], [5], ValueError, r"rows lie in \[8, 8\], expected 0 to 7"),
        ([1, 2], [5], ValueError, "2 rows but 1 targets"),
        ([1], [9000], ValueError, r"targets lie in \[9000, 9000\]"),
        ([1.5], [5], TypeError, "rows must be a list of integers"),
        ([], [], ValueError, "no row was chosen"),
    ],
)
def test_bad_rows_are_named(model, rows, targets, error, message):
    """The error names the invalid row or target."""
    with pytest.raises(error, match=message):
        model.loss(random_ids(model.config, (2, 4)), rows, targets)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_heads": 5}, "hidden_size 192 cannot be split among 5 heads.*choose one of"),
        ({"num_layers": 0}, "num_layers is 0, expected a whole number .* of at least 1"),
        ({"vocab_size": 8192.0}, "vocab_size is 8192.0, expected a whole number"),
        ({"dropout": 1.0}, "dropout is 1.0, expected a probability"),
        ({"layer_norm_eps": 0}, "layer_norm_eps is 0"),
        ({"layer_norm_eps": "1e-5"}, "layer_norm_eps is '1e-5'"),
        ({"tie_head": "no"}, "tie_head is 'no', expected True or False"),
    ],
)
def test_bad_configs_are_named(change, message):
    """An invalid config is refused when it is created."""
    with pytest.raises(ValueError, match=message):
        MiniBertConfig(**change)


def test_config_files_are_strict(tmp_path):
    """An unknown field or another architecture's config is an error, not a guess."""
    with pytest.raises(ValueError, match=r"unknown field.*hidden_sise.* Correct or remove"):
        MiniBertConfig.from_dict({"model_type": "mini_bert", "hidden_sise": 3})
    with pytest.raises(ValueError, match="model_type 'bert', expected 'mini_bert'"):
        MiniBertConfig.from_dict({"model_type": "bert"})
    assert MiniBertConfig.from_dict(json.loads(json.dumps(TINY.to_dict()))) == TINY


def test_only_float_dtypes():
    """Half precision is for storage; a model computes in float32 or float64."""
    with pytest.raises(ValueError, match="dtype is float16, expected float32"):
        MiniBERT(TINY, dtype=np.float16)


def test_caches_and_configs_are_not_confused(model):
    """A cache from the wrong call, a gradient of the wrong shape, and sizes instead of a config are all named in the
    error."""
    ids = random_ids(model.config, (2, 4))
    logits, forward = model.forward(ids)
    _, loss = model.loss(ids, [1], [5])
    with pytest.raises(TypeError, match="backward takes the cache of forward, not a LossCache"):
        model.backward(logits, loss)
    with pytest.raises(TypeError, match="loss_backward takes the cache of loss, not a EncodeCache"):
        model.loss_backward(forward)
    with pytest.raises(ValueError, match=r"dlogits has shape \(2, 4\), expected \(2, 4, 8192\)"):
        model.backward(ids, forward)
    with pytest.raises(TypeError, match="config must be a MiniBertConfig"):
        MiniBERT({"hidden_size": 8})


def test_named_arrays_are_what_they_are_called():
    """query, key, value, weights and context of each block, recomputed from the block's input."""
    model, ids = MiniBERT(TINY, dtype=np.float64), random_ids(TINY, (2, 5))
    _, cache = model.forward(ids)
    np.testing.assert_array_equal(cache["embeddings"], model.token_embeddings[ids] + model.position_embeddings[:5])
    for layer in range(2):
        block = model.encoder.blocks[layer]
        x = cache[f"attention_input_{layer}"]
        parts = np.split(x @ block.attention.qkv.w.data, 3, axis=-1)
        for name, part in zip(("query", "key", "value"), parts, strict=True):
            heads = part.reshape(2, 5, 2, 5).transpose(0, 2, 1, 3)
            np.testing.assert_allclose(cache[f"{name}_{layer}"], heads, atol=1e-12)
        context = (cache[f"attention_weights_{layer}"] @ cache[f"value_{layer}"]).transpose(0, 2, 1, 3)
        np.testing.assert_allclose(cache[f"context_{layer}"], context.reshape(2, 5, 10), atol=1e-12)
        norm = block.attention_norm
        x_hat = norm.forward(x + cache[f"context_{layer}"] @ block.attention.output.w.data, Run())[1].x_hat
        np.testing.assert_allclose(cache[f"attention_norm_{layer}"], x_hat, atol=1e-12)
        inside = x_hat * norm.gamma.data + norm.beta.data
        inner = np.maximum(inside @ block.feed_forward.expand.w.data + block.feed_forward.expand.b.data, 0)
        np.testing.assert_allclose(cache[f"feed_forward_inner_{layer}"], inner, atol=1e-12)
        only, arrays = model._multi_head_attention(x, layer=layer)
        np.testing.assert_allclose(arrays["attention_weights"], cache[f"attention_weights_{layer}"], atol=1e-12)
        assert only.shape == x.shape
    assert not np.array_equal(cache["output_norm_1"], cache["attention_norm_1"])
    with pytest.raises(ValueError, match="layer is 2, expected 0 to 1"):
        model._multi_head_attention(x, layer=2)


def test_dropout_is_everywhere_it_should_be():
    """Embeddings, attention weights and both sub-layer outputs of every block have their own masks, with a rate of
    about p."""
    config = MiniBertConfig(101, 48, 2, 4, 64, 32, dropout=0.3)
    model = MiniBERT(config)
    _, cache = model.forward(random_ids(config, (8, 32)), run=Run(1, train=True))
    masks = [cache.embedding[-1].keep]
    for block in cache.blocks:
        drops = (block.attention.attended.dropped, block.attention_dropped, block.output_dropped)
        masks += [dropped.keep for dropped in drops]
    for mask in masks:
        assert abs((~mask).mean() - 0.3) < 0.03
    same_shape = [mask for mask in masks if mask.shape == masks[0].shape]
    assert len(same_shape) == 5
    for i, one in enumerate(same_shape):
        assert not any(np.array_equal(one, other) for other in same_shape[:i])


def test_settings_reach_every_block():
    """Every norm uses the config's ε; projections have an initial standard deviation of 1/√fan_in, tokens 0.1, the head
    0.02."""
    config = replace(MINI_BERT_CONFIG, layer_norm_eps=1e-3, dropout=0.25)
    model = MiniBERT(config)
    norms = [norm for block in model.encoder.blocks for norm in (block.attention_norm, block.output_norm)]
    assert {norm.eps for norm in [*norms, model.final_norm]} == {1e-3}
    assert (
        {block.p for block in model.encoder.blocks} == {block.attention.p for block in model.encoder.blocks} == {0.25}
    )
    for name, param in model.named_params().items():
        wanted = {"tokens.table": 0.1, "head.w": 0.02}.get(name, param.shape[0] ** -0.5)
        drawn = param.data[:, 48:] if name == "tokens.table" else param.data
        if name == "encoder.blocks.0.attention.qkv.w":
            drawn = param.data[48:]  # what is above looks at the neighbours
        if name.endswith(".w") or name == "tokens.table":
            assert abs(drawn.std() / wanted - 1) < 0.03, name
    assert not model.token_embeddings[:, :48].any()
    assert np.abs(model.named_params()["encoder.blocks.0.attention.qkv.w"].data[:48]).max() > 1


def test_count_and_dloss_scale_the_loss():
    """count divides the summed loss, and loss_backward(dloss) scales every gradient."""
    model, ids = MiniBERT(TINY, dtype=np.float64), random_ids(TINY, (2, 5))
    rows, targets = [1, 4, 8], [7, 8, 9]
    loss, cache = model.loss(ids, rows, targets)
    dx = model.loss_backward(cache)
    gradient = model.flat.grad.copy()
    model.zero_grad()
    scaled, cache = model.loss(ids, rows, targets, count=12)
    assert scaled == pytest.approx(loss / 4)
    np.testing.assert_allclose(model.loss_backward(cache, dloss=8.0), 2 * dx, atol=1e-15)
    np.testing.assert_allclose(model.flat.grad, 2 * gradient, atol=1e-14)


def test_the_gradient_at_the_embeddings():
    """loss_backward returns the gradient at the embeddings: summed over the batch, it equals the position table's
    gradient."""
    model, ids = MiniBERT(TINY, dtype=np.float64), random_ids(TINY, (3, 5))
    _, cache = model.loss(ids, [1, 7], [7, 8])
    dx = model.loss_backward(cache)
    np.testing.assert_allclose(dx.sum(0), model.positions.table.grad[:5], atol=1e-15)
    assert np.abs(dx).max() > 1e-4


def test_training_can_be_turned_off_again():
    """After set_training(True) and then False, outputs are deterministic again."""
    config = replace(TINY, dropout=0.5)
    model, ids = MiniBERT(config), random_ids(config, (2, 5))
    before = model.forward(ids)[0]
    model.set_training(True).set_training(False)
    np.testing.assert_array_equal(model.forward(ids)[0], before)


def test_a_refused_backward_changes_nothing():
    """A second backward on a used cache is refused before any gradient is touched."""
    model, ids = MiniBERT(TINY), random_ids(TINY, (2, 5))
    _, cache = model.loss(ids, [1], [7])
    model.loss_backward(cache)
    before = model.flat.grad.copy()
    with pytest.raises(ValueError, match="already used by a backward pass"):
        model.loss_backward(cache)
    np.testing.assert_array_equal(model.flat.grad, before)


def test_a_replica_shares_weights_and_has_gradients_of_its_own():
    """Both models see a change of the weights, but their gradients are separate."""
    for config in (TINY, replace(TINY, tie_head=True)):
        model = MiniBERT(config, seed=1)
        twin = model.replica()
        assert twin.flat.data is model.flat.data and twin.flat.grad is not model.flat.grad
        assert twin.flat.decayed == model.flat.decayed and list(twin.named_params()) == list(model.named_params())
        ids = random_ids(config, (2, 7))
        for one in (model, twin):
            _, cache = one.loss(ids, [3], [5])
            one.loss_backward(cache)
        np.testing.assert_array_equal(model.flat.grad, twin.flat.grad)
        model.zero_grad()
        assert not model.flat.grad.any() and twin.flat.grad.any()
        model.token_embeddings[...] *= 2
        np.testing.assert_array_equal(model.forward(ids)[0], twin.forward(ids)[0])
        np.testing.assert_array_equal(twin.tokens.table.data, model.token_embeddings)
        assert twin.config == model.config and twin.run is not model.run


def test_a_deep_copy_is_a_model_of_its_own():
    model = MiniBERT(TINY, seed=1)
    twin = deepcopy(model)
    ids = random_ids(TINY, (2, 7))
    before = model.forward(ids)[0]
    np.testing.assert_array_equal(twin.forward(ids)[0], before)
    twin.flat.data[...] = 0
    np.testing.assert_array_equal(model.forward(ids)[0], before)
    assert not twin.head.w.data.any()


def test_replicas_in_threads_compute_what_one_would():
    """Four threads at once, each with part of the batch: their gradients add up to those of the whole."""
    model = MiniBERT(TINY, seed=1, dtype=np.float64)
    ids = random_ids(TINY, (8, 7))
    rows = np.arange(0, 56, 3)
    _, cache = model.loss(ids, rows, ids.ravel()[rows])
    model.loss_backward(cache)
    expected, replicas = model.flat.grad.copy(), [model.replica() for _ in range(4)]

    def work(part):
        mine = rows[(rows >= part * 14) & (rows < part * 14 + 14)]
        for _ in range(20):
            replicas[part].zero_grad()
            _, cache = replicas[part].loss(
                ids[2 * part : 2 * part + 2], mine - part * 14, ids.ravel()[mine], count=rows.size
            )
            replicas[part].loss_backward(cache)

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(work, range(4)))
    np.testing.assert_allclose(sum(replica.flat.grad for replica in replicas), expected, atol=1e-14)


def test_a_whole_batch_of_pairs_is_refused_with_the_remedy(model):
    ids = random_ids(MINI_BERT_CONFIG, (2, 7))
    with pytest.raises(ValueError, match=r"leave next_sentence out: model.loss\(\*batch\[:4\]\)"):
        model.loss(ids, [3], [5], None, np.zeros_like(ids), np.zeros(2, int))
