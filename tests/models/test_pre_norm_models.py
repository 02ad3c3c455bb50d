"""GPT-2 and ModernBERT agree with stored numbers of transformers, and everything that works for BERT works for them."""

import tracemalloc
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mini_bert.checks.gradcheck import check_model
from mini_bert.files.model_folder import read_tensors
from mini_bert.inference.loading import load_model
from mini_bert.layers.base import Run
from mini_bert.layers.encoder import Recompute
from mini_bert.layers.packed import Packed
from mini_bert.models.base import Inputs, Output
from mini_bert.models.gpt2 import GPT2, GPT2Config
from mini_bert.models.gpt2 import PRESET as GPT2_PRESET
from mini_bert.models.loss import Term
from mini_bert.models.modernbert import PRESET as MODERN_PRESET
from mini_bert.models.modernbert import ModernBert, ModernBertConfig
from mini_bert.models.registry import config_from, load_config, preset_name
from mini_bert.models.sizes import Shape
from mini_bert.training.optim import Adam
from mini_bert.training.plan import Choice, caches, describe, peak_activations, shape_of
from mini_bert.training.settings import TrainingConfig
from mini_bert.training.switches import applied, apply
from tests.training.test_plan import distinct

GOLDEN = Path(__file__).parent.parent / "golden"
SMALL = {
    "gpt2": (GPT2, GPT2Config(31, 13, 10, 3, 2, 17), "next_word"),
    "modernbert": (
        ModernBert,
        ModernBertConfig(31, 12, 17, 3, 2, max_position_embeddings=13, local_attention=4, initializer_range=0.3),
        "masked_words",
    ),
}
IDS = np.arange(21).reshape(3, 7) + 5
MASK = np.arange(7) < np.array([[7], [5], [6]])
ROWS, TARGETS = np.array([1, 4, 9, 17]), np.array([3, 7, 8, 9])
both = pytest.mark.parametrize("name", SMALL)


def small(name, dtype=np.float64, **changes):
    kind, config, _ = SMALL[name]
    model = kind(replace(config, **changes), dtype=dtype)
    rng = np.random.default_rng(0)
    model.flat.data[...] += 0.2 * rng.normal(size=model.flat.data.size)  # biases and norms start at 0 and 1
    return model


def loss(model, name, run=None):
    inputs = model.check_inputs(IDS, MASK)
    return model.loss_of(inputs, [Term(SMALL[name][2], ROWS, TARGETS)], run or Run())


def gradient(model, name, run=None):
    model.zero_grad()
    value, cache = loss(model, name, run)
    model.loss_backward(cache)
    return value, model.flat.grad.copy()


@both
def test_stored_outputs_and_gradients(name):
    """Logits, hidden states and the gradient of every tensor are those of transformers, stored in float64."""
    folder, head = GOLDEN / name, SMALL[name][2]
    expected, model = read_tensors(folder / "expected.safetensors"), load_model(folder, np.float64)
    real = expected["attention_mask"].astype(bool)
    output, cache = model.forward(expected["input_ids"], expected["attention_mask"])
    np.testing.assert_allclose(output.hidden[real], expected["hidden"][real], rtol=1e-10, atol=1e-11)
    np.testing.assert_allclose(getattr(output, head)[real], expected["logits"][real], rtol=1e-10, atol=1e-11)
    model.backward(Output(**{head: expected["dlogits"]}), cache)
    model.flat.data[...] = model.flat.grad
    found = model.file_tensors()
    for key in (key for key in expected if key.startswith("grad.")):
        wanted = expected[key]
        np.testing.assert_allclose(found[key[5:]], wanted, rtol=0, atol=1e-9 * np.abs(wanted).max() + 1e-11)


@both
def test_gradients_of_the_loss(name):
    """With dropout of every kind, padding and chosen rows, backward agrees with finite differences."""
    kind, config, _ = SMALL[name]
    model = kind(config.with_dropout(0.2), dtype=np.float64)
    checks = check_model(model, lambda: loss(model, name, Run(3, train=True)), 2)
    assert {check.name for check in checks} == set(model.named_params())
    assert all(check.passed() for check in checks), [check for check in checks if not check.passed()]


@both
def test_chosen_rows_are_those_rows_of_all(name):
    """With dropout, too: what is dropped depends on the place of a token, not on which rows are computed."""
    model = small(name, **{"attn_pdrop": 0.2, "resid_pdrop": 0.3} if name == "gpt2" else {"mlp_dropout": 0.3})
    for run in (Run(), Run(5, train=True)):
        whole, _ = model.encode(IDS, MASK, run=run)
        some, _ = model.encode(IDS, MASK, run=run, chosen=ROWS)
        np.testing.assert_allclose(some, whole.reshape(21, -1)[ROWS], rtol=1e-10, atol=1e-12)


@both
def test_padding_changes_nothing(name):
    """A sequence alone gives the numbers that it gives in a padded batch."""
    model = small(name)
    whole, _ = model.encode(IDS, MASK)
    alone, _ = model.encode(IDS[1:2, :5])
    np.testing.assert_allclose(whole[1, :5], alone[0], rtol=1e-11, atol=1e-13)


@both
def test_switches_of_a_run(name):
    """Recomputation gives the same bits; tiles and 16-bit caches and weights nearly the same numbers."""
    plain = gradient(small(name, np.float32), name, Run(1, train=True))
    for settings, tolerance in (
        ({"checkpointing": True}, 0),
        ({"checkpointing": (1,)}, 0),
        ({"attention": "lean"}, 1e-4),
        ({"activations": "bfloat16"}, 0.02),
        ({"weights": "bfloat16"}, 0.1),
    ):
        model = small(name, np.float32)
        with applied(model, TrainingConfig(steps=1, **settings)):
            found = gradient(model, name, Run(1, train=True))
            wrapped = {type(block) for block in model.encoder.blocks}
            assert (Recompute in wrapped) == ("checkpointing" in settings)
            assert (Packed in wrapped) == ("activations" in settings)
        assert found[0] == pytest.approx(plain[0], rel=tolerance or 1e-7)
        distance = np.linalg.norm(found[1] - plain[1]) / np.linalg.norm(plain[1])
        assert distance <= tolerance, (settings, distance)


@both
def test_replicas_share_weights_and_not_gradients(name):
    model = small(name)
    twin = model.replica()
    value, wanted = gradient(model, name)
    model.zero_grad()
    assert gradient(twin, name)[0] == value
    np.testing.assert_array_equal(twin.flat.grad, wanted)
    assert not model.flat.grad.any()


@both
@pytest.mark.parametrize("checkpointing", [False, (1,), True])
@pytest.mark.parametrize("attention", ["auto", "lean"])
@pytest.mark.parametrize("p", [0.0, 0.1])
def test_the_plan_counts_the_arrays_of_a_real_cache(name, attention, checkpointing, p):
    kind, config, head = SMALL[name]
    config = config.with_dropout(p)
    model = kind(config)
    apply(model, TrainingConfig(steps=1, checkpointing=checkpointing, attention=attention))
    inputs = Inputs(IDS)
    _, cache = model.loss_of(inputs, [Term(head, ROWS, TARGETS)], Run(train=True))
    predicted = caches(describe(config), Shape(3, 7, 4, 2), Choice(3, 1, checkpointing, attention))
    seen, encoded = {}, cache.encoded
    found = [distinct(encoded.embedding, seen), *(distinct(block, seen) for block in encoded.blocks)]
    found += [distinct((encoded.final, cache.terms), seen)]
    if attention == "lean":  # keeps the mask of attention as well, which is small
        assert all(0 <= one.masks - other.masks <= 3 * 7 * 7 for one, other in zip(found, predicted, strict=True))
        found = [one._replace(masks=other.masks) for one, other in zip(found, predicted, strict=True)]
    assert found == predicted


LARGER = {
    "gpt2": GPT2Config(6000, 64, 96, 4, 4),
    "modernbert": ModernBertConfig(6000, 96, 256, 4, 4, max_position_embeddings=64, local_attention=16),
}


@both
@pytest.mark.parametrize(
    ("batch", "tokens", "switches"),
    [
        (8, 64, {}),
        pytest.param(16, 64, {"checkpointing": True}, marks=pytest.mark.slow),
        pytest.param(16, 64, {"activations": "bfloat16"}, marks=pytest.mark.slow),
        pytest.param(2, 512, {"attention": "lean"}, marks=pytest.mark.slow),
        pytest.param(2, 512, {}, marks=pytest.mark.slow),
    ],
)
def test_the_peak_of_a_step_is_foreseen(name, batch, tokens, switches):
    """The peak allocation of a training step is predicted within 10 %, not counting the weights."""
    kind, _, head = SMALL[name]
    config = replace(LARGER[name], **{"n_positions" if name == "gpt2" else "max_position_embeddings": tokens})
    sizes = describe(config)
    shape = shape_of(sizes, batch)
    held, when = peak_activations(sizes, shape, Choice(batch, **switches))
    ranked = shape.N * sizes.vocab_size if when == "at the output head" else 0  # evaluation's share: there is none here
    found = peak_of_a_step(kind, config, head, shape, switches)
    assert found == pytest.approx(held - ranked + 4 * (1 << 18), rel=0.1), when


def peak_of_a_step(kind, config, head, shape, switches):
    """Bytes allocated at the peak of a step."""
    ids = np.random.default_rng(0).integers(5, config.vocab_size, (shape.B, shape.T))
    rows = (np.arange(0, ids.size, shape.T)[:, None] + np.arange(shape.M)).ravel()[: shape.N]
    tracemalloc.start()
    try:
        model = kind(config)
        apply(model, TrainingConfig(steps=1, **switches))
        optimiser = Adam(model.flat)
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(2):
            tracemalloc.reset_peak()
            run = Run(train=True, pool=model.run.pool)
            _, cache = model.loss_of(Inputs(ids), [Term(head, rows, ids.ravel()[rows])], run)
            model.loss_backward(cache, run=run)
            del cache
            optimiser.step()
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


@both
@pytest.mark.parametrize("tied", [True, False])
def test_parameters_are_counted(name, tied):
    """In the sizes, and in the presets, which are about as large as Mini-BERT."""
    kind, config, _ = SMALL[name]
    config = replace(config, tie_word_embeddings=tied)
    assert describe(config).parameters == kind(config).get_parameter_count()
    preset = GPT2_PRESET if name == "gpt2" else MODERN_PRESET
    assert describe(preset).parameters == kind(preset).get_parameter_count()
    assert 2_500_000 < describe(preset).parameters < 5_000_000


@both
def test_presets_have_names(name):
    config = load_config(name)
    assert preset_name(config) == name
    assert config_from(config.to_dict()) == config


@both
def test_a_folder_comes_back(name, tmp_path):
    for heads in ((SMALL[name][2],), ()):
        model = SMALL[name][0](SMALL[name][1], heads, seed=1)
        model.save_pretrained(tmp_path)
        again = load_model(tmp_path)
        assert again.output_heads == heads and again.config == model.config
        np.testing.assert_array_equal(again.flat.data, model.flat.data)


@both
def test_names_in_the_cache(name):
    """The names that all models have, and those of these blocks."""
    model = small(name)
    _, cache = model.encode(IDS, MASK)
    states = cache.hidden_states()
    np.testing.assert_array_equal(states[0], cache["embeddings"])
    for index in range(3):
        for part in ("block_input", "attention_input", "query", "key", "value", "attention_weights", "context"):
            assert f"{part}_{index}" in cache
        np.testing.assert_allclose(cache[f"attention_weights_{index}"].sum(-1).swapaxes(1, 2)[MASK], 1)
    assert ("attention_norm_0" in cache) == (name == "gpt2")  # ModernBERT's first block has no norm there
    np.testing.assert_allclose(cache["feed_forward_norm_1"].mean(-1), 0, atol=1e-12)
