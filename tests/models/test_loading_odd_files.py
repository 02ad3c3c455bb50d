"""Model folders that are damaged or do not fit together: one sentence that names the tensor or the field."""

from __future__ import annotations

import json
import re
import warnings

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from mini_bert.cli.main import main
from mini_bert.finetuning.model import load as load_tuned
from mini_bert.finetuning.model import save, with_task
from mini_bert.finetuning.tasks.classify import Classify
from mini_bert.inference.loading import load_model
from mini_bert.models import memory
from mini_bert.models.base import Model
from mini_bert.models.bert import Bert, BertConfig
from mini_bert.models.config import MiniBertConfig
from mini_bert.models.deberta import Deberta, DebertaConfig
from mini_bert.models.mini import MiniBERT
from mini_bert.models.modernbert import ModernBert, ModernBertConfig
from mini_bert.text.wordpiece import SPECIAL_TOKENS, WordPieceTokenizer

MINI = MiniBertConfig(
    vocab_size=11, hidden_size=4, num_layers=2, num_heads=2, intermediate_size=6, max_seq_length=7, tie_head=True
)
BERT = BertConfig(
    vocab_size=11, hidden_size=4, num_hidden_layers=2, num_attention_heads=2, intermediate_size=6,
    max_position_embeddings=7,
)  # fmt: skip
MODELS = {
    "mini": (lambda: MiniBERT(MINI), "encoder.blocks.1.feed_forward.expand.w"),
    "bert": (lambda: Bert(BERT), "bert.encoder.layer.1.attention.self.key.weight"),
}


def change(folder, name, change):
    """Replace one tensor of a model folder."""
    arrays = load_file(folder / "model.safetensors")
    save_file({**arrays, name: np.ascontiguousarray(change(arrays[name]))}, folder / "model.safetensors")


def with_one(value):
    def change(array):
        array = array.copy()
        array.flat[-1] = value
        return array

    return change


@pytest.mark.parametrize(
    ("change_to", "says"),
    [
        (with_one(np.nan), r"has 1 of \d+ values that are NaN"),
        (with_one(-np.inf), r"has 1 of \d+ values that are inf"),
        (lambda array: array.astype(np.float64) * 1e300, "has .* values that are inf"),
        (lambda array: array.astype(np.int64), "has dtype int64, expected floating-point"),
        (lambda array: array > 0, "has dtype bool, expected floating-point"),
    ],
)
@pytest.mark.parametrize("kind", MODELS)
def test_bad_numbers(kind, change_to, says, tmp_path):
    """NaN, infinity, a number too large for float32, integers: the error names the tensor, and no weight changes."""
    make, name = MODELS[kind]
    model = make()
    model.save_pretrained(tmp_path)
    change(tmp_path, name, change_to)
    with pytest.raises(ValueError, match=f"tensor {name.removeprefix('bert.')} {says}"):
        load_model(tmp_path)
    before = model.flat.data.copy()
    with pytest.raises(ValueError, match=says):
        model.load_checkpoint(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(model.flat.data, before)


def test_16_bit_weights_are_checked(tmp_path):
    """A NaN is found in bfloat16, too."""
    model = MiniBERT(MINI).keep_weights("bfloat16")
    model.flat.data[0] = 0x7FC0
    model.save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=r"tensor tokens\.table has 1 of 44 values that are NaN"):
        load_model(tmp_path)


def test_integers_that_nothing_uses(tmp_path):
    """Old files of BERT contain the positions 0, 1, 2, … as integers: these are ignored without a warning."""
    model = Bert(BERT)
    model.save_pretrained(tmp_path)
    arrays = load_file(tmp_path / "model.safetensors")
    save_file({**arrays, "bert.embeddings.position_ids": np.arange(7)[None]}, tmp_path / "model.safetensors")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_array_equal(load_model(tmp_path).flat.data, model.flat.data)


@pytest.mark.parametrize(
    ("kind", "field", "value"),
    [
        ("mini", "num_layers", 200),
        ("mini", "vocab_size", 10**7),
        ("mini", "max_seq_length", 10**7),
        ("bert", "intermediate_size", 10**7),
    ],
)
def test_config_of_a_larger_model(kind, field, value, tmp_path, monkeypatch):
    """A config that describes far more weights than the file has is refused before anything is built."""
    MODELS[kind][0]().save_pretrained(tmp_path)
    values = json.loads((tmp_path / "config.json").read_text()) | {field: value}
    (tmp_path / "config.json").write_text(json.dumps(values))
    monkeypatch.setattr(memory, "bind", None)
    with pytest.raises(ValueError, match=rf"parameters \(.*{field} {value:,}.*\), but the weights file has only \d+"):
        load_model(tmp_path)


DEBERTA = DebertaConfig(11, 4, 2, 2, 6, max_position_embeddings=7, relative_attention=True, pos_att_type=("c2p", "p2c"))
MODERN = ModernBertConfig(11, 4, 6, 2, 2, max_position_embeddings=7, pad_token_id=0)


@pytest.mark.parametrize(
    ("model", "field", "value"),
    [
        (MiniBERT(MINI), "num_layers", 1),
        (MiniBERT(MINI), "num_layers", 3),
        (MiniBERT(MINI), "hidden_size", 6),
        (Bert(BERT), "num_hidden_layers", 1),
        (Deberta(DEBERTA), "relative_attention", False),
        (Deberta(DEBERTA), "pos_att_type", ["c2p"]),
        (ModernBert(MODERN), "norm_bias", True),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Model) else str(value),
)
def test_a_field_that_contradicts_the_tensors_is_in_the_error(model, field, value, tmp_path):
    """Sizes of 1 and switches, too, also if they have their default values; and what to do about it."""
    model.save_pretrained(tmp_path)
    values = json.loads((tmp_path / "config.json").read_text()) | {field: value}
    (tmp_path / "config.json").write_text(json.dumps(values))
    with pytest.raises(ValueError, match=re.escape(f" {field} {json.dumps(value)}") + r"[,)].* must be those of one"):
        load_model(tmp_path)


def test_fine_tuned(tmp_path):
    """Fine-tuned folders are checked in the same way."""
    task = Classify(["bad", "good"])
    model = with_task(MiniBERT(MINI), task, seed=0, dropout=0.0)
    save(tmp_path / "tuned", model, task, WordPieceTokenizer([*SPECIAL_TOKENS, *"abcdef"]), 7)
    load_tuned(tmp_path / "tuned")
    values = json.loads((tmp_path / "tuned/config.json").read_text()) | {"vocab_size": 10**7}
    (tmp_path / "tuned/config.json").write_text(json.dumps(values))
    with pytest.raises(ValueError, match="vocab_size 10,000,000"):
        load_tuned(tmp_path / "tuned")


def test_models_without_heads_load(tmp_path):
    """A file without heads has fewer numbers than its config describes, which is normal."""
    for kind, (make, _) in MODELS.items():
        type(make())(make().config, ()).save_pretrained(tmp_path / kind)
    assert load_model(tmp_path / "bert").output_heads == ()


def test_too_little_memory(monkeypatch, capsys):
    """The error says how much the model needs; the command prints it as a sentence that names `plan`."""

    def full(*_, **__):
        raise MemoryError

    monkeypatch.setattr(memory, "bind", full)
    with pytest.raises(MemoryError, match=r"model of 4,498,880 parameters: it needs 0\.0 GB.*0\.1 GB to train"):
        MiniBERT()
    with pytest.raises(SystemExit, match=r"not enough memory.*4,498,880 parameters.*plan` shows"):
        main(["info"])
