"""Models whose weights are stored in 8 bits: in memory, in copies and in files."""

import pickle
from copy import deepcopy

import numpy as np
import pytest

from mini_bert.files.model_folder import INT8_WEIGHTS, read_config, read_tensors
from mini_bert.finetuning.model import load as load_tuned
from mini_bert.finetuning.model import save, with_task
from mini_bert.finetuning.tasks.classify import Classify
from mini_bert.inference.loading import heads_in, load_model
from mini_bert.models.base import Model
from tests.export.tiny_models import MODELS, batch, build
from tests.finetuning import tiny_tasks as tiny


def outputs(model: Model) -> np.ndarray:
    ids, mask, types = batch(model, 2, 7)
    return model.encode(ids, mask, types)[0]


@pytest.mark.parametrize("name", MODELS)
def test_folders_give_the_same_model(name, tmp_path):
    """The same integers and scales, and so exactly the same results, for every architecture."""
    model = build(name).keep_weights("int8")
    model.save_pretrained(tmp_path)
    assert (tmp_path / INT8_WEIGHTS).is_file() and not (tmp_path / "model.safetensors").exists()
    assert "one scale for each output" in read_config(tmp_path)["eight_bit"]["weights"]
    again = load_model(tmp_path)
    assert again.in_eight_bits and again.output_heads == model.output_heads == tuple(heads_in(tmp_path))
    for path, param in model.named_params().items():
        other = again.named_params()[path]
        assert (param.frozen is None) == (other.frozen is None)
        np.testing.assert_array_equal(np.asarray(other.data), np.asarray(param.data))
        if param.frozen is not None:
            np.testing.assert_array_equal(other.frozen.scales, param.frozen.scales)
    np.testing.assert_array_equal(outputs(again), outputs(model))


def test_linear_layers_and_token_tables_are_stored_in_8_bits():
    model = build("bert").keep_weights("int8")
    kept = {path for path, param in model.named_params().items() if param.frozen is not None}
    assert {"tokens.table", "encoder.blocks.1.attention.qkv.w"} <= kept
    assert not any(path.endswith((".b", ".gamma", ".beta")) or path == "positions.table" for path in kept)
    assert model.flat.data.size == sum(param.size for param in model.named_params().values() if param.frozen is None)


def test_results_are_close_to_those_of_floats():
    exact, model = build("bert"), build("bert").keep_weights("int8")
    difference = np.abs(outputs(model) - outputs(exact))
    assert 1e-4 < difference.mean() < 0.05 * np.abs(outputs(exact)).mean()


def test_back_to_floats():
    """Widening changes no weight: only activations are no longer rounded."""
    model = build("bert").keep_weights("int8")
    rounded = {path: np.asarray(param.data) for path, param in model.named_params().items()}
    wide = deepcopy(model).keep_weights("float32")
    assert not wide.in_eight_bits and wide.flat.data.size == wide.get_parameter_count()
    for path, param in wide.named_params().items():
        np.testing.assert_array_equal(param.data, rounded[path])
    narrow = deepcopy(model).keep_weights("bfloat16")
    assert narrow.flat.data.dtype == np.uint16 and not narrow.in_eight_bits


@pytest.mark.parametrize(
    "copied", [deepcopy, lambda model: model.replica(), lambda model: pickle.loads(pickle.dumps(model))]
)
def test_copies_have_8_bits(copied):
    model = build("mini-tied").keep_weights("int8")
    twin = copied(model)
    assert twin.in_eight_bits
    np.testing.assert_array_equal(outputs(twin), outputs(model))


def test_training_says_what_to_do_first():
    model = build("mini").keep_weights("int8")
    hidden, cache = model.encode(np.array([[3, 4, 5]]))
    with pytest.raises(ValueError, match=r'is stored in 8 bits and has no gradient; call keep_weights\("float32"\)'):
        model.encode_backward(np.ones_like(hidden), cache)


def test_a_new_head_is_trained_on_floats(tmp_path):
    """Fine-tuning starts from the widened weights."""
    model = build("bert").keep_weights("int8")
    twin = with_task(model, Classify(["a", "b"]), 0.0)
    assert not twin.in_eight_bits
    np.testing.assert_array_equal(twin.tokens.table.data, np.asarray(model.tokens.table.data))


def test_the_head_of_a_task_stays_in_floats(tmp_path):
    task = Classify(["neg", "pos"])
    model = with_task(tiny.encoder("bert"), task, 0.0).keep_weights("int8")
    save(tmp_path, model, task, tiny.TOKENIZER, 24)
    again = load_tuned(tmp_path).model
    assert again.in_eight_bits
    for path, param in again.named_params().items():
        assert param.frozen is None or not path.startswith("task.")
        np.testing.assert_array_equal(np.asarray(param.data), np.asarray(model.named_params()[path].data))


def test_float64_is_widened(tmp_path):
    model = build("mini").keep_weights("int8")
    model.save_pretrained(tmp_path)
    exact = load_model(tmp_path, dtype=np.float64)
    assert exact.dtype == np.float64 and not exact.in_eight_bits
    with pytest.raises(ValueError, match="computes in float64; int8 weights need float32"):
        exact.keep_weights("int8")


def test_a_scale_without_its_tensor_is_an_error(tmp_path):
    from safetensors.numpy import load_file, save_file

    build("mini").keep_weights("int8").save_pretrained(tmp_path)
    tensors = load_file(tmp_path / INT8_WEIGHTS)
    del tensors["tokens.table"]
    save_file(tensors, tmp_path / INT8_WEIGHTS)
    with pytest.raises(ValueError, match=r"tokens.table.int8_scale is there, but not the int8 tensor tokens.table"):
        read_tensors(tmp_path / INT8_WEIGHTS)


def test_config_says_which_file_counts(tmp_path):
    """Saved over a folder with float32 weights, and back"""
    model = build("mini")
    model.save_pretrained(tmp_path)
    deepcopy(model).keep_weights("int8").save_pretrained(tmp_path)
    assert (tmp_path / "model.safetensors").is_file() and load_model(tmp_path).in_eight_bits
    model.save_pretrained(tmp_path)
    assert not load_model(tmp_path).in_eight_bits
    np.testing.assert_array_equal(outputs(load_model(tmp_path)), outputs(model))


def test_what_needs_gradients_widens_the_weights(tmp_path):
    """`attention` measures how a guess depends on each word."""
    from mini_bert.export.folder import export
    from mini_bert.inference.loading import load, load_for_gradients

    export(*load("mini-bert"), tmp_path / "small", "int8")
    exact, eight = load_for_gradients(tmp_path / "small")[0], load_model(tmp_path / "small")
    assert not exact.in_eight_bits and exact.get_parameter_count() == eight.get_parameter_count()
    hidden, cache = exact.encode(np.array([[2, 70, 3]]))
    exact.encode_backward(np.ones_like(hidden), cache)
    assert exact.flat.grad.any()
