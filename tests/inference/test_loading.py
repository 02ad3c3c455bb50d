"""A model and its tokenizer, by bundled name, run, checkpoint or folder."""

from __future__ import annotations

import json
import logging
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "cli"))
import tiny_family as tiny

from mini_bert.files import model_folder as pretrained
from mini_bert.inference.loading import check_tokenizer, load, load_model, load_tokenizer
from mini_bert.models.bert import Bert, BertConfig
from mini_bert.models.config import MiniBertConfig
from mini_bert.models.gpt2 import GPT2
from mini_bert.models.mini import MiniBERT
from mini_bert.models.registry import config_from, load_config, model_class
from mini_bert.models.roberta import Roberta
from mini_bert.text.bpe import BpeTokenizer
from mini_bert.text.bpe_conventions import GPT2 as GPT2_RULES
from mini_bert.text.byte_level import BYTE_CHARACTERS
from mini_bert.text.loading import KINDS
from mini_bert.text.loading import load_tokenizer as read_tokenizer
from mini_bert.text.wordpiece import SPECIAL_TOKENS, WordPieceTokenizer
from mini_bert.training.setup import Wanted, set_up
from mini_bert.training.trainer import Trainer

WORDS = [*SPECIAL_TOKENS, ".", "the", "cat", "sat", "on", "mat", "dog", "##s"]
TINY = MiniBertConfig(vocab_size=13, hidden_size=10, num_layers=1, num_heads=2, intermediate_size=7, max_seq_length=11)
TINY_BERT = BertConfig(
    vocab_size=13, hidden_size=10, num_hidden_layers=1, num_attention_heads=2, intermediate_size=7,
    max_position_embeddings=17,
)  # fmt: skip


def save(folder, model, tokenizer: bool = True):
    model.save_pretrained(folder)
    if tokenizer:
        WordPieceTokenizer(WORDS).save(folder)
    return folder


def test_a_mini_bert_folder(tmp_path):
    """model_type mini_bert gives a MiniBERT with the weights of the folder, and its tokenizer."""
    saved = MiniBERT(TINY, seed=3)
    model, tokenizer = load(save(tmp_path, saved))
    assert isinstance(model, MiniBERT) and model.max_length == 11
    np.testing.assert_array_equal(model.flat.data, saved.flat.data)
    assert tokenizer.tokens == WORDS


def test_a_published_bert_folder(tmp_path):
    """model_type bert, or none as in early configs, gives a Bert."""
    save(tmp_path, Bert(TINY_BERT))
    model, _ = load(tmp_path)
    assert isinstance(model, Bert) and model.max_length == 17
    config = json.loads((tmp_path / "config.json").read_text())
    del config["model_type"]
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert isinstance(load(tmp_path)[0], Bert)


def test_the_folder_of_a_run(tmp_path, caplog):
    """From a run, the best model is loaded; if there is none yet, the newest checkpoint, with a message."""
    (tmp_path / "config.json").write_text('{"model": {}, "training": {}}')
    for step in (500, 1000):
        save(tmp_path / f"checkpoints/step-{step:08}", MiniBERT(TINY, seed=step))
    (tmp_path / "checkpoints/step-00001500").mkdir()  # nothing in it yet
    np.testing.assert_array_equal(load(tmp_path)[0].flat.data, MiniBERT(TINY, seed=1000).flat.data)
    assert "no best model yet; using its newest checkpoint" in caplog.text and "step-00001000" in caplog.text
    caplog.clear()
    save(tmp_path / "model", MiniBERT(TINY, seed=7))
    np.testing.assert_array_equal(load(tmp_path)[0].flat.data, MiniBERT(TINY, seed=7).flat.data)
    np.testing.assert_array_equal(MiniBERT.from_pretrained(tmp_path).flat.data, MiniBERT(TINY, seed=7).flat.data)
    assert not caplog.text
    assert load(tmp_path / "checkpoints/step-00000500")[1].tokens == WORDS


def test_bundled_by_name(tmp_path, monkeypatch):
    """ "mini-bert" is the bundled model, unless there is a model folder with that name here."""
    monkeypatch.setattr(pretrained, "BUNDLED", tmp_path / "package")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileNotFoundError, match="bundled model 'mini-bert' is missing from this installation"):
        load("mini-bert")
    save(tmp_path / "package/mini-bert", MiniBERT(TINY, seed=1))
    (tmp_path / "mini-bert").mkdir()  # a clone of the repository, say: no model
    np.testing.assert_array_equal(load()[0].flat.data, MiniBERT(TINY, seed=1).flat.data)
    np.testing.assert_array_equal(MiniBERT.from_pretrained("mini-bert").flat.data, MiniBERT(TINY, seed=1).flat.data)
    save(tmp_path / "mini-bert", MiniBERT(TINY, seed=2))
    np.testing.assert_array_equal(load("mini-bert")[0].flat.data, MiniBERT(TINY, seed=2).flat.data)


def test_no_tokenizer_in_the_folder(tmp_path, caplog):
    """The bundled tokenizer of the model's size is used, with a message; if none fits, it is an error."""
    sizes = {"hidden_size": 2, "num_layers": 1, "num_heads": 1, "intermediate_size": 2}
    save(tmp_path / "a", MiniBERT(MiniBertConfig(vocab_size=8192, **sizes)), tokenizer=False)
    assert load(tmp_path / "a")[1].vocab_size == 8192
    assert "using the bundled tokenizer '8k'" in caplog.text
    save(tmp_path / "b", MiniBERT(TINY), tokenizer=False)
    with pytest.raises(
        FileNotFoundError, match=r"no tokenizer \(tokenizer\.json.*spiece\.model.*\), and no bundled .* 13 tokens"
    ):
        load(tmp_path / "b")
    WordPieceTokenizer([*WORDS, "more"]).save(tmp_path / "b")
    with pytest.raises(ValueError, match="tokenizer has 14 tokens, but its model has only 13 ids"):
        load(tmp_path / "b")


TINY_8K = {
    "bert": {"hidden_size": 2, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 2},
    "roberta": {"hidden_size": 2, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 2},
    "albert": {"hidden_size": 2, "num_attention_heads": 1, "intermediate_size": 2, "embedding_size": 2},
    "gpt2": {"n_embd": 2, "n_layer": 1, "n_head": 1},
}


@pytest.mark.parametrize(
    ("kind", "name"), {"bert": "8k", "roberta": "bpe-8k", "albert": "unigram-8k", "gpt2": "bpe-8k"}.items()
)
def test_a_model_without_a_tokenizer_gets_the_same_one_everywhere(tmp_path, kind, name):
    """To use it, to train it further and to train a student of it: the bundled tokenizer of its architecture's kind."""
    config = config_from({"model_type": kind, "vocab_size": 8192, **TINY_8K[kind]})
    folder = str(save(tmp_path, model_class(config.to_dict())(config), tokenizer=False))
    expected = read_tokenizer(name).fingerprint
    assert load_tokenizer(folder).fingerprint == expected
    assert set_up(Wanted(init=folder)).tokenizer.fingerprint == expected
    assert Trainer(load_model(folder)).load_tokenizer().fingerprint == expected
    if kind != "gpt2":  # which cannot teach
        assert set_up(Wanted("distilbert", teacher=folder)).tokenizer.fingerprint == expected


def test_a_bundled_tokenizer_must_fit_the_model(tmp_path):
    """RoBERTa's positions depend on the id of padding: 1 in the bundled tokenizer, 0 in this model. And no bundled BPE
    has 50,000 tokens: a WordPiece of that size is not used instead."""
    config = config_from({"model_type": "roberta", "vocab_size": 8192, "pad_token_id": 0, **TINY_8K["roberta"]})
    folder = str(save(tmp_path / "a", Roberta(config), tokenizer=False))
    for use in (load_tokenizer, lambda it: set_up(Wanted(init=it)), lambda it: set_up(Wanted("mini", teacher=it))):
        with pytest.raises(ValueError, match="<pad> has the id 1 in its tokenizer, but pad_token_id is 0"):
            use(folder)
    config = config_from({"model_type": "gpt2", "vocab_size": 50_000, **TINY_8K["gpt2"]})
    folder = str(save(tmp_path / "b", GPT2(config), tokenizer=False))
    for use in (load_tokenizer, lambda it: set_up(Wanted(init=it))):
        with pytest.raises(FileNotFoundError, match="no bundled tokenizer for a GPT-2 has its 50,000 tokens"):
            use(folder)


@pytest.mark.parametrize(
    ("kind", "name"), {"bert": "a BERT", "roberta": "a RoBERTa", "albert": "an ALBERT", "gpt2": None}.items()
)
def test_a_tokenizer_has_the_tokens_around_texts_that_the_model_expects(tmp_path, kind, name):
    """GPT-2's tokenizer has no cls token. Every way to use the folder names both sides."""
    config = config_from({"model_type": kind, "vocab_size": 300, **TINY_8K[kind]})
    folder = str(save(tmp_path, model_class(config.to_dict())(config), tokenizer=False))
    BpeTokenizer([*BYTE_CHARACTERS, "<|endoftext|>"], [], GPT2_RULES).save(tmp_path)
    for use in (load, load_tokenizer, lambda it: set_up(Wanted(init=it))):
        if name is None:
            use(folder)
            continue
        told = rf"{tmp_path}: its tokenizer, BpeTokenizer\(257 tokens.*no cls token, but {name} .*replace it with"
        with pytest.raises(ValueError, match=told):
            use(folder)


def test_a_tokenizer_makes_no_more_token_types_than_the_model_has(tmp_path):
    """XLNet's has three. Every way to use an ALBERT with it names both sides, and a student of an XLNet needs three,
    too; a model with one token type ignores them."""
    tiny.saved(tmp_path / "albert", "albert")
    tiny.saved(tmp_path / "xlnet", "xlnet")
    tiny.tokenizer_for("xlnet").save(tmp_path / "albert")
    told = r"albert: its tokenizer, UnigramTokenizer\(.*makes 3 token types, but its model has only 2 .*replace it with"
    for use in (load, load_tokenizer, lambda it: set_up(Wanted(init=str(it)))):
        with pytest.raises(ValueError, match=told):
            use(tmp_path / "albert")
    student = (
        rf"type_vocab_size is 2 in albert, but the tokenizer of the teacher {tmp_path}/xlnet, .* 3 token types.*3 in"
    )
    with pytest.raises(ValueError, match=student):
        set_up(Wanted("albert", teacher=str(tmp_path / "xlnet")))
    path = tmp_path / "albert" / "config.json"
    for types in (1, 3):
        path.write_text(json.dumps(tiny.tiny_config("albert").to_dict() | {"type_vocab_size": types}))
        assert set_up(Wanted(str(path), teacher=str(tmp_path / "xlnet"))).config.type_vocab_size == types
        check_tokenizer(tiny.tokenizer_for("xlnet"), load_config(path), "")


def test_of_trained_weights_no_more_token_types_are_asked_for(tmp_path):
    config = config_from({"model_type": "bert", "vocab_size": 8192, "type_vocab_size": 1, **TINY_8K["bert"]})
    folder = str(save(tmp_path, Bert(config), tokenizer=False))
    with pytest.raises(
        ValueError, match=r"type_vocab_size is 1 .* needs 2.* go up to 1\. Choose --objective masked_words"
    ):
        set_up(Wanted(init=folder, next_sentence=True))


@pytest.mark.parametrize(
    ("ids", "tokens", "warns"),
    [
        (96, 77, True), (32_000, 28_996, True), (32_000, 30_522, True), (257, 77, True),  # other models' tokenizers
        (50_304, 50_257, False), (50_368, 50_280, False), (251_000, 250_102, False), (51_200, 50_257, False),
        (128, 77, False), (77, 77, False), (8_192, 8_192, False),
    ],
)  # fmt: skip
def test_a_tokenizer_that_is_much_too_small_is_told(ids, tokens, warns, caplog):
    """It may be that of another model. Vocabularies that are filled up to a multiple of 64 or 128 are as published."""
    config = replace(load_config("bert"), vocab_size=ids)
    check_tokenizer(WordPieceTokenizer([*SPECIAL_TOKENS, *map(str, range(tokens - 5))]), config, "here")
    assert bool(caplog.messages) == warns
    if warns:
        (said,) = caplog.messages
        assert f"here: its tokenizer, WordPieceTokenizer({tokens:,} tokens" in said
        assert f"its model, a BERT with {ids:,} ids." in said and "replace it with the tokenizer that" in said


def test_errors_name_every_file_that_a_tokenizer_can_come_from(tmp_path):
    save(tmp_path, MiniBERT(TINY), tokenizer=False)
    with pytest.raises(FileNotFoundError) as error:
        load(tmp_path)
    for name in ("tokenizer.json", "merges.txt", *(kind.file for kind in KINDS)):
        assert name in str(error.value)


def test_what_cannot_be_loaded(tmp_path):
    """A missing folder, a file, a pickle and an unknown kind of model are all named in the error."""
    with pytest.raises(FileNotFoundError, match=r"no model folder .*roberta-base; .*a bundled model: mini-bert"):
        load(tmp_path / "roberta-base")
    (tmp_path / "file").touch()
    with pytest.raises(FileNotFoundError, match=r"\(it is a file, in "):
        load(tmp_path / "file")
    with pytest.raises(ValueError, match="is a pickle"):
        load(tmp_path / "model.pkl")
    (tmp_path / "config.json").write_text('{"model_type": "t5"}')
    with pytest.raises(ValueError, match="model_type is 't5', expected one of 'mini_bert', 'bert'"):
        load(tmp_path)


def test_what_is_taken_for_a_bert_says_so(tmp_path):
    """Without model_type and architectures, the error about GPT-2's first field is not all that one is told."""
    config = config_from({"model_type": "gpt2", "vocab_size": 50, **TINY_8K["gpt2"]})
    save(tmp_path, GPT2(config), tokenizer=False)
    values = {name: value for name, value in config.to_dict().items() if name != "model_type"}
    (tmp_path / "config.json").write_text(json.dumps(values))
    with pytest.raises(ValueError, match="no model_type, so it is taken for a BERT: for another model, add model_type"):
        load(tmp_path)


@pytest.mark.parametrize("padding", [1, 7, None])
def test_a_tokenizer_with_another_id_for_padding_is_told(padding, tmp_path, caplog):
    """No result of a GPT-2 depends on it, but it may be a sign that the tokenizer is that of another model."""
    config = config_from({"model_type": "gpt2", "vocab_size": 8192, "pad_token_id": padding, **TINY_8K["gpt2"]})
    folder = save(tmp_path, GPT2(config), tokenizer=False)
    tokenizer = load_tokenizer("bpe-8k")
    tokenizer.save(folder)
    assert tokenizer.pad_id == 1
    load_tokenizer(folder)
    assert ("has the id 1 in its tokenizer" in caplog.text and "pad_token_id is 7" in caplog.text) == (padding == 7)


def test_warnings_become_lines(tmp_path, caplog):
    """Warnings of from_pretrained are logged as plain sentences, without a code location."""
    save(tmp_path, Bert(TINY_BERT))
    tensors = pretrained.read_tensors(tmp_path / "model.safetensors")
    pretrained.write_tensors(tmp_path / "model.safetensors", tensors | {"classifier.weight": np.ones(2)})
    with caplog.at_level(logging.WARNING):
        load(tmp_path)
    assert "no part of this model uses classifier.weight" in caplog.text
    shutil.rmtree(tmp_path)


@pytest.mark.parametrize(
    ("values", "said"),
    [({"fine_tuning": {"task": "tag"}}, "with `mini-bert finetune tag`"), ({"fine_tuning": {}}, "for a task"),
     ({"fine_tuning": {}, "architectures": ["BertForTokenClassification"]}, "as BertForTokenClassification")],
)  # fmt: skip
def test_how_a_model_was_fine_tuned(values, said):
    """As far as config.json says so; a task that is missing is not named."""
    assert MiniBERT.tuned_for(values) == said
