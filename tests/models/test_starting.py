"""New BERT-like models start training by attending to neighbouring tokens; trained ones keep their weights."""

import json

import numpy as np
import pytest

from mini_bert.cli.main import main
from mini_bert.inference.loading import load_model
from mini_bert.layers.initialisers import neighbour_weights, neighbours
from mini_bert.models.bert import Bert, BertConfig
from mini_bert.models.registry import PRESETS, model_class, preset


def built(name, **options):
    config = preset(name)
    return model_class(config.to_dict())(config, seed=3, **options)


def weights_at_offset(weights, offset):
    """The mean attention weight of the key at this offset, (A,)"""
    return np.diagonal(weights, offset, axis1=2, axis2=3).mean((0, 2))


@pytest.mark.parametrize("name", ["bert", "roberta", "distilbert", "albert", "electra"])
def test_heads_of_the_first_block_attend_to_neighbours(name):
    """Head 0 to the token before, head 1 to the one after, then two before and two after: with a score of 4 or more,
    that is over half of the weight among 29 keys, where noise gives 1/29."""
    model = built(name)
    ids = np.random.default_rng(1).integers(5, 8192, (3, 29))
    for one in [model, *model.inner_models()]:
        before = one.encode(ids)[1]["attention_weights_0"]
        one_of_all = [weights_at_offset(before, offset).max() for offset in (-2, -1, 1, 2)]
        assert max(one_of_all) < 0.1
    model.start_attention()
    for one in [model, *model.inner_models()]:
        weights = one.encode(ids)[1]["attention_weights_0"]
        for head, offset in zip(range(one.heads), (-1, 1, -2, 2), strict=False):
            assert weights_at_offset(weights, offset)[head] > 0.5


@pytest.mark.parametrize("name", [name for name in PRESETS if name not in ("larger", "mini")])
def test_every_preset_can_start(name):
    """Models without a table of positions, such as DeBERTa, keep their weights."""
    model = built(name)
    before = model.flat.data.copy()
    model.start_attention()
    assert np.array_equal(model.flat.data, before) == (getattr(model, "positions", None) is None or name == "gpt2")


def test_a_generator_with_other_heads_keeps_its_noise():
    """Its heads are 24 wide, those of the discriminator 48: waves can only be made for one of them."""
    config = preset("electra")
    config = type(config).from_dict(config.to_dict() | {"generator": {"hidden_size": 48, "num_attention_heads": 2}})
    model = model_class(config.to_dict())(config)
    before = model.generator.encoder.blocks[0].attention.qkv.w.data.copy()
    model.start_attention()
    np.testing.assert_array_equal(model.generator.encoder.blocks[0].attention.qkv.w.data, before)


def test_a_table_without_room_for_waves_is_left_alone():
    """One head is as wide as the model: there would be nothing left to tell words apart."""
    config = preset("bert")
    config = type(config).from_dict(config.to_dict() | {"num_attention_heads": 1})
    model = model_class(config.to_dict())(config)
    before = model.flat.data.copy()
    model.start_attention()
    np.testing.assert_array_equal(model.flat.data, before)


def test_mini_bert_adds_the_same_weights_to_its_noise():
    drawn = neighbours(4, 0.14)(np.random.default_rng(5), (24, 72))
    noise = np.random.default_rng(5).normal(0.0, 1 / np.sqrt(24), (24, 72))
    np.testing.assert_allclose(drawn - noise, neighbour_weights(24, 4, 0.14), atol=1e-12)


def test_only_a_new_run_starts_this_way(tmp_path):
    """The first block of a run with --init is that of the folder, up to what one step at a tiny rate changes."""
    text = tmp_path / "verses.txt"
    text.write_text("Roses are red.\n\nViolets are blue.\n\n" * 40)
    options = ["--tokenizer", "8k", "--corpus", text, "--length", "16"]
    options += ["--steps", "1", "--batch-size", "2", "--lr", "1e-9", "--quiet"]

    def train(*words):
        with pytest.raises(SystemExit) as ended:
            main(["train", *map(str, words)])
        assert not ended.value.code

    def first_block(folder):
        return load_model(folder).encoder.blocks[0].attention.qkv.w.data

    sizes = {"hidden_size": 24, "num_hidden_layers": 1, "num_attention_heads": 3, "intermediate_size": 32}
    small = BertConfig(vocab_size=8192, max_position_embeddings=16, **sizes)
    (tmp_path / "config.json").write_text(json.dumps(small.to_dict()))
    train("--model", tmp_path / "config.json", "--out", tmp_path / "a", *options)
    noise = Bert(small, seed=0).encoder.blocks[0].attention.qkv.w.data
    assert np.abs(first_block(tmp_path / "a") - noise).max() > 1  # neighbours were added
    train("--init", tmp_path / "a", "--out", tmp_path / "b", *options[2:])
    np.testing.assert_allclose(first_block(tmp_path / "b"), first_block(tmp_path / "a"), atol=1e-6)


@pytest.mark.parametrize("name", PRESETS)
def test_unknown_heads_are_refused(name):
    """A constructor only looks for the heads that it knows, so a misspelt one would be missing without a word."""
    config = preset(name)
    kind = model_class(config.to_dict())
    with pytest.raises(ValueError, match=f"'masked_word' is no output head of a {kind.__name__}, which can have "):
        kind(config, ("masked_word",), None)
    for wrong in ("masked_words", 7):
        with pytest.raises(TypeError, match=f"output_heads is {wrong!r}, expected a list of names, such as"):
            kind(config, wrong, None)
