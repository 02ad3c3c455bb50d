"""Model folders and weights files: exact round trips, atomic writes, and errors that say what to do."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
import safetensors

from mini_bert.common.atomic import write_atomic
from mini_bert.common.sixteen_bit import Stored, stored
from mini_bert.files.model_folder import read_tensors, write_tensors
from mini_bert.models.config import MiniBertConfig
from mini_bert.models.mini import MiniBERT

TINY = MiniBertConfig(vocab_size=31, hidden_size=10, num_layers=1, num_heads=2, intermediate_size=13, max_seq_length=11)


@pytest.fixture
def folder(tmp_path):
    MiniBERT(TINY).save_pretrained(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    "dtype", [np.float64, np.float32, np.float16, np.int64, np.int32, np.int16, np.int8, np.uint8, bool]
)
def test_every_dtype_survives(tmp_path, dtype):
    """Arrays come back with their values, shape and dtype, including zero-dimensional and empty ones."""
    arrays = {
        "a": np.arange(6).reshape(2, 3).astype(dtype),
        "b": np.array(1, dtype),
        "c": np.zeros((0, 3), dtype),
    }
    write_tensors(tmp_path / "x.safetensors", arrays)
    loaded = read_tensors(tmp_path / "x.safetensors")
    for name, array in arrays.items():
        assert loaded[name].dtype == dtype and loaded[name].shape == array.shape
        np.testing.assert_array_equal(loaded[name], array)


def test_a_view_is_saved_as_what_it_shows(tmp_path):
    """A transposed or strided array is written in row-major order."""
    base = np.arange(12.0).reshape(3, 4)
    write_tensors(tmp_path / "x.safetensors", {"t": base.T, "s": base[:, ::2]})
    loaded = read_tensors(tmp_path / "x.safetensors")
    np.testing.assert_array_equal(loaded["t"], base.T)
    np.testing.assert_array_equal(loaded["s"], base[:, ::2])


@pytest.mark.parametrize(("kind", "name"), [("bfloat16", "BF16"), ("float16", "F16")])
def test_weights_in_16_bits_are_written_as_they_are(tmp_path, kind, name):
    """The file has half the size, the safetensors library accepts it, and the bits are the same when read again."""
    exact = np.random.default_rng(0).normal(size=(3, 5)).astype(np.float32)
    weights = Stored(stored((3, 5), kind))
    weights[...] = exact
    plain, empty = np.arange(7, dtype=np.float32), np.zeros((0, 3), np.float32)
    write_tensors(tmp_path / "x.safetensors", {"w": weights, "v": weights.part(1), "plain": plain, "empty": empty})
    entries = dict(safetensors.deserialize((tmp_path / "x.safetensors").read_bytes()))
    assert entries["w"]["dtype"] == entries["v"]["dtype"] == name and entries["plain"]["dtype"] == "F32"
    assert bytes(entries["w"]["data"]) == weights.bits.tobytes()
    for widened in (True, False):
        found = read_tensors(tmp_path / "x.safetensors", widened)
        for array, expected in (("w", weights), ("v", weights[1]), ("plain", plain), ("empty", empty)):
            assert found[array].shape == expected.shape
            np.testing.assert_array_equal(np.asarray(found[array]), np.asarray(expected))
    again = Stored(stored((3, 5), kind))
    again[...] = found["w"]
    np.testing.assert_array_equal(again.bits, weights.bits)


def test_bfloat16_is_widened_exactly(tmp_path):
    """A bfloat16 is the upper half of a float32; reading one loses nothing."""
    values = np.array([1.0, -2.5, 3.140625, 1e30, 0.0], np.float32)
    raw = (values.view(np.uint32) >> 16).astype("<u2").tobytes()
    header = json.dumps({"x": {"dtype": "BF16", "shape": [5], "data_offsets": [0, 10]}}).encode()
    header += b" " * (-len(header) % 8)
    (tmp_path / "x.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + raw)
    kept = (values.view(np.uint32) & 0xFFFF0000).view(np.float32)
    np.testing.assert_array_equal(read_tensors(tmp_path / "x.safetensors")["x"], kept)


def test_sixteen_bit_weights_load_into_a_float32_model(folder):
    """A folder of half-precision weights gives a float32 model with the same values."""
    half = {name: array.astype(np.float16) for name, array in read_tensors(folder / "model.safetensors").items()}
    write_tensors(folder / "model.safetensors", half)
    model = MiniBERT.from_pretrained(folder)
    assert model.dtype == np.float32
    np.testing.assert_array_equal(model.token_embeddings, half["tokens.table"].astype(np.float32))


@pytest.mark.parametrize("keep", [0, 1, 7, 8, 100, 2000, -1])
def test_truncated_safetensors_are_refused(folder, keep):
    """Wherever the file is truncated, the error names it and says so."""
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(ValueError, match=r"model\.safetensors is not a complete safetensors file.*copy it again"):
        MiniBERT.from_pretrained(folder)


def test_corrupt_safetensors_are_refused(folder):
    """Random bytes instead of a header give the same error."""
    path = folder / "model.safetensors"
    path.write_bytes(np.random.default_rng(0).bytes(5000))
    with pytest.raises(ValueError, match="is not a complete safetensors file"):
        MiniBERT.from_pretrained(folder)


def test_pickles_are_never_loaded(tmp_path):
    """A `.pkl` is refused by its name, before it is opened."""
    with pytest.raises(ValueError, match=r"is a pickle\. Loading a pickle runs the code in it"):
        MiniBERT(TINY).load_checkpoint(tmp_path / "best.pkl")


@pytest.mark.parametrize(
    ("name", "error", "message"),
    [
        ("absent.safetensors", FileNotFoundError, "there is no weights file"),
        ("weights.h5", ValueError, "unknown type of weights file '.h5'"),
    ],
)
def test_other_files_are_named(tmp_path, name, error, message):
    """A missing file, or one of an unknown type."""
    with pytest.raises(error, match=message):
        read_tensors(tmp_path / name)


def test_incomplete_folders_say_what_is_missing(folder):
    """No folder, no config, no weights, a config that is not JSON or not an object."""
    with pytest.raises(FileNotFoundError, match="there is no model folder"):
        MiniBERT.from_pretrained(folder / "nowhere")
    (folder / "config.json").write_text("{")
    with pytest.raises(ValueError, match=r"config\.json is not valid JSON"):
        MiniBERT.from_pretrained(folder)
    (folder / "config.json").write_text("[]")
    with pytest.raises(ValueError, match=r"config\.json contains a list, expected an object"):
        MiniBERT.from_pretrained(folder)
    (folder / "config.json").unlink()
    with pytest.raises(FileNotFoundError, match=r"has no config\.json"):
        MiniBERT.from_pretrained(folder)
    MiniBERT(TINY).save_pretrained(folder)
    (folder / "model.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match=r"has neither model\.safetensors nor pytorch_model\.bin"):
        MiniBERT.from_pretrained(folder)


def test_weights_of_another_model_change_nothing(folder):
    """A checkpoint that does not fit is refused entirely: missing, unknown and misshapen tensors are named."""
    model = MiniBERT(TINY, seed=9)
    before = model.flat.data.copy()
    tensors = dict(read_tensors(folder / "model.safetensors"))
    bias = tensors.pop("head.b")
    write_tensors(folder / "x.safetensors", tensors | {"extra": bias})
    with pytest.raises(ValueError, match=r"lacks head\.b, and has extra instead"):
        model.load_checkpoint(folder / "x.safetensors")
    write_tensors(folder / "x.safetensors", tensors | {"head.b": bias[:-1]})
    with pytest.raises(ValueError, match=r"tensor head\.b has shape \(30,\), but this model .* needs \(31,\)"):
        model.load_checkpoint(folder / "x.safetensors")
    np.testing.assert_array_equal(model.flat.data, before)


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    """If the disk is full or the power fails, the old content stays and no temporary files are left."""
    path = tmp_path / "file"
    write_atomic(path, b"old")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_atomic(path, b"new")
    assert path.read_bytes() == b"old" and list(tmp_path.iterdir()) == [path]


@pytest.mark.skipif(os.name == "nt", reason="permission bits are POSIX")
def test_written_files_have_ordinary_permissions(tmp_path):
    """Temporary files are private; the file that replaces them is as readable as any other."""
    write_atomic(tmp_path / "one", b"")
    (tmp_path / "two").write_bytes(b"")
    assert (tmp_path / "one").stat().st_mode == (tmp_path / "two").stat().st_mode


def test_reading_draws_no_random_weights(folder, monkeypatch):
    """Weights that will be read are not initialised first: for a large model, that would take most of the time."""
    assert not MiniBERT(TINY, seed=None).flat.data.any()
    monkeypatch.setattr(np.random, "default_rng", None)
    assert MiniBERT.from_pretrained(folder).flat.data.any()


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_folder_is_replaced_whole_or_not_at_all(tmp_path, monkeypatch):
    """If writing fails, the folder is the one it was, and nothing else is left."""
    folder = tmp_path / "model"
    MiniBERT(TINY, seed=1).save_pretrained(folder)
    (folder / "notes.txt").write_text("mine")
    before = contents(folder)
    with monkeypatch.context() as patch:
        patch.setattr(json, "dumps", lambda *_, **__: 1 / 0)  # after the weights
        with pytest.raises(ZeroDivisionError):
            MiniBERT(TINY, seed=2).save_pretrained(folder)
    assert contents(folder) == before and list(tmp_path.iterdir()) == [folder]
    MiniBERT(TINY, seed=2).save_pretrained(folder)
    after = contents(folder)
    assert after["notes.txt"] == b"mine" and after["model.safetensors"] != before["model.safetensors"]
    assert list(tmp_path.iterdir()) == [folder]


def test_a_folder_with_others_in_it_stays_where_it_is(tmp_path, monkeypatch):
    """So does the current folder, which somebody is in."""
    (tmp_path / "sub").mkdir()
    inode = tmp_path.stat().st_ino
    MiniBERT(TINY).save_pretrained(tmp_path)
    assert tmp_path.stat().st_ino == inode and (tmp_path / "sub").is_dir() and (tmp_path / "config.json").is_file()
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    inode = Path.cwd().stat().st_ino
    MiniBERT(TINY).save_pretrained(".")
    assert (tmp_path / "here").stat().st_ino == inode and Path("model.safetensors").is_file()


def test_a_folder_that_is_one_level_too_high_names_the_models_in_it(folder):
    """Not the parts of a model, whose own config.json is missing: its generator, its pooling."""
    for part in ("generator", "1_Pooling"):
        (folder / part).mkdir()
        (folder / part / "config.json").write_text("{}")
    MiniBERT(TINY).save_pretrained(folder / "generator")
    MiniBERT(TINY).save_pretrained(folder / "0_Transformer")
    (folder / "config.json").unlink()
    with pytest.raises(FileNotFoundError, match=r"has no config\.json; a model folder has config\.json and model\."):
        MiniBERT.from_pretrained(folder)
    (folder / "model.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match=r"its folder 0_Transformer has one; choose .*0_Transformer$"):
        MiniBERT.from_pretrained(folder)
