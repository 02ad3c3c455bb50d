"""`train --init` with the folders of all architectures, as published, fine-tuned, or trained for something else."""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "cli"))
import tiny_family as tiny

from mini_bert.cli.main import main
from mini_bert.files.model_folder import write_folder
from mini_bert.inference.loading import model_of, with_generator
from mini_bert.models.base import MASKED_WORDS, NEXT_WORD, REPLACED
from mini_bert.models.pairs import GENERATOR
from mini_bert.models.registry import preset
from mini_bert.training.initial_weights import start_from_folder
from mini_bert.training.setup import Wanted, set_up

IDS = np.array([[2, 7, 8, 9, 3]])


def started(folder, **options):
    """The model that a run would begin with, and what it says about its weights"""
    model = set_up(Wanted(init=str(folder), **options)).build(seed=3)
    return model, start_from_folder(model, str(folder))


@pytest.mark.parametrize("name", tiny.FAMILY)
def test_a_fine_tuned_model_of_every_architecture_continues(name, tmp_path):
    """Its encoder computes the same; the heads that pretraining needs are new. GPT-2's has no weights of its own."""
    source = model_of(tiny.tuned(tmp_path, name))
    model, start = started(tmp_path)
    generator = [GENERATOR] if getattr(model, "generator", None) is not None else []
    assert start.new == ([] if name == "gpt2" else [*generator, *sorted(model.output_heads)]) and model.output_heads
    assert start.word_head_is_new == (name != "gpt2")
    assert name == "gpt2" or start.note.endswith(f"; new, with random weights: {', '.join(start.new)}")
    np.testing.assert_allclose(model.encode(IDS)[0], source.encode(IDS)[0], atol=1e-6)


@pytest.mark.parametrize("name", [name for name in tiny.FAMILY if name != "mini"])
def test_an_encoder_without_heads_continues_with_new_ones(name, tmp_path):
    config = tiny.tiny_config(name)
    source = type(tiny.tiny_model(name))(config.alone() if hasattr(config, "alone") else config, (), seed=1)
    source.save_pretrained(tmp_path)
    tiny.tokenizer_for(name).save(tmp_path)
    model, start = started(tmp_path)
    assert model.output_heads and set(model.output_heads) - {*start.new} <= {NEXT_WORD}
    np.testing.assert_allclose(model.encode(IDS)[0], source.encode(IDS)[0], atol=1e-6)


@pytest.mark.parametrize("command", ["train", "plan", "info"])
@pytest.mark.parametrize("name", ["electra", "deberta-v3"])
def test_a_folder_with_weights_is_no_model_to_train_from_scratch(command, name, tmp_path, capsys):
    """`info` and `plan` show what `train` builds, so they refuse what it refuses; with --init they show the folder."""
    tiny.saved(tmp_path, name)
    with pytest.raises(SystemExit, match=r"has trained weights, but --model starts from random weights.*: --init "):
        main([command, "--model", str(tmp_path)])
    if command != "train":
        with pytest.raises(SystemExit) as ended:
            main([command, "--init", str(tmp_path)])
        count = f"{tiny.tiny_model(name).get_parameter_count():,} parameters"
        assert ended.value.code == 0 and count in capsys.readouterr().out


def test_a_preset_is_not_a_folder_with_its_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tiny.saved(tmp_path / "electra", "electra")
    assert set_up(Wanted("electra")).config == preset("electra")


@pytest.mark.parametrize("name", tiny.FAMILY)
def test_a_model_of_every_architecture_continues_with_its_heads(name, tmp_path):
    source = model_of(tiny.saved(tmp_path, name))
    model, start = started(tmp_path)
    assert start.new == [] and "new" not in start.note
    np.testing.assert_allclose(model.encode(IDS)[0], source.encode(IDS)[0], atol=1e-6)


@pytest.mark.parametrize("name", ["electra", "deberta-v3"])
@pytest.mark.parametrize("use", [lambda it: with_generator(model_of(it), it), lambda it: set_up(Wanted(init=str(it)))])
def test_a_generator_of_another_pair_is_told(use, name, tmp_path):
    """Both folders, both values, and what to do."""
    tiny.saved(tmp_path, name)
    config = tiny.tiny_config(name).generator_config
    other = type(tiny.tiny_model(name))(replace(config, vocab_size=91), (MASKED_WORDS,))
    other.save_pretrained(tmp_path / GENERATOR)
    told = (
        rf"the generator in {tmp_path}/generator does not fit the discriminator in {tmp_path}: its vocab_size is 91, "
    )
    with pytest.raises(ValueError, match=rf"{told}not {config.vocab_size}, but .*; copy both .*, or remove {tmp_path}"):
        use(tmp_path)
    tiny.tiny_model("bert").save_pretrained(tmp_path / GENERATOR)
    with pytest.raises(ValueError, match=r"generator is of another architecture: it is a BERT, and the .*; copy both"):
        use(tmp_path)


@pytest.mark.parametrize("name", ["electra", "deberta-v3"])
def test_of_a_checkpoint_of_a_pair_masked_words_continue_the_discriminator(name, tmp_path):
    """The checkpoint is one file with both models."""
    pair = tiny.tiny_model(name)
    write_folder(tmp_path, pair.file_config(), pair.kept_tensors(), tiny.tokenizer_for(name))
    model, start = started(tmp_path, objective="masked_words")
    assert start.new == [MASKED_WORDS] and "left out: replaced" in start.note
    np.testing.assert_allclose(model.encode(IDS)[0], pair.encode(IDS)[0], atol=1e-6)


@pytest.mark.parametrize("name", ["deberta-v2", "deberta-v3"])
@pytest.mark.parametrize("fine_tuned", [False, True])
def test_a_deberta_without_a_discriminator_becomes_one(name, fine_tuned, tmp_path):
    """Its encoder is that of the discriminator, and the generator starts from its token table."""
    if fine_tuned:
        tiny.tuned(tmp_path, name)
    else:
        config = tiny.tiny_config(name).alone()
        type(tiny.tiny_model(name))(config, (MASKED_WORDS,), seed=1).save_pretrained(tmp_path)
        tiny.tokenizer_for(name).save(tmp_path)
    source = model_of(tmp_path)
    model, start = started(tmp_path, objective="replaced_tokens")
    assert start.new == [GENERATOR, REPLACED]
    assert ("left out: masked_words" in start.note) == (not fine_tuned)
    np.testing.assert_allclose(model.encode(IDS)[0], source.encode(IDS)[0], atol=1e-6)
    np.testing.assert_array_equal(model.generator.tokens.table.data, source.tokens.table.data)
    assert not model.tokens.difference.data.any()
