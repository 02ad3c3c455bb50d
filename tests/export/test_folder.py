"""Exported models: half the bytes, and the same results except for rounding."""

import json
import re

import numpy as np
import pytest
from safetensors import safe_open

from mini_bert.cli.main import main
from mini_bert.evaluation.word_frequencies import read_frequencies, write_frequencies
from mini_bert.export.folder import export, export_tuned
from mini_bert.files.model_folder import locate, read_config, weights_of
from mini_bert.finetuning.model import FineTuned, is_tuned, with_task
from mini_bert.finetuning.tasks.classify import Classify
from mini_bert.inference.embed import pooling_in
from mini_bert.inference.generate import end_ids, generate
from mini_bert.inference.loading import load, load_model
from mini_bert.models.base import REPLACED
from mini_bert.models.bert import Bert, BertConfig
from mini_bert.models.config import MiniBertConfig
from mini_bert.models.deberta_v2 import DebertaV2, DebertaV2Config
from mini_bert.models.electra import Electra, ElectraConfig
from mini_bert.models.gpt2 import GPT2, GPT2Config
from mini_bert.models.mini import MiniBERT
from mini_bert.text.loading import load_tokenizer
from mini_bert.text.wordpiece import WordPieceTokenizer

TOKENIZER = WordPieceTokenizer.load("8k")
MINI = MiniBertConfig(hidden_size=8, num_layers=1, num_heads=2, intermediate_size=12, max_seq_length=9)
BERT = BertConfig(
    vocab_size=8192, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=12,
    max_position_embeddings=9,
)  # fmt: skip
IDS = np.array([[2, 70, 4, 900, 3]])


@pytest.mark.parametrize("model", [MiniBERT(MINI), Bert(BERT)], ids=["mini", "bert"])
def test_half_the_bytes_and_nearly_the_same_answers(model, tmp_path):
    half, full = export(model, TOKENIZER, tmp_path / "half"), export(model, TOKENIZER, tmp_path / "full", "float32")
    assert 0.49 < half / full < 0.55
    for folder, error in (("half", 1e-3), ("full", 0.0)):
        loaded, tokenizer = load(tmp_path / folder)
        assert loaded.dtype == np.float32 and tokenizer.vocab_size == 8192
        np.testing.assert_allclose(loaded.flat.data, model.flat.data, rtol=error, atol=error / 1e3)
        np.testing.assert_allclose(loaded.encode(IDS)[0], model.encode(IDS)[0], atol=10 * error)


PAIR = {"vocab_size": 8192, "hidden_size": 24, "num_hidden_layers": 1, "num_attention_heads": 4}
PAIRS = {
    "electra": Electra(ElectraConfig(**PAIR, intermediate_size=13, embedding_size=29).with_generator(), (REPLACED,)),
    "deberta-v3": DebertaV2(DebertaV2Config(**PAIR, intermediate_size=13).with_generator(), (REPLACED,)),
}


@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.parametrize(
    "weights, stored, share", [("float16", "F16", 0.5), ("bfloat16", "BF16", 0.5), ("int8", "I8", 0.25)]
)
def test_both_models_of_a_pair_are_stored_in_as_many_bits(pair, weights, stored, share, tmp_path):
    model = PAIRS[pair]
    for folder, kind in (("full", "float32"), ("less", weights)):
        export(model, TOKENIZER, tmp_path / folder, kind)
    for part in ("", "generator"):
        narrow, full = weights_of(tmp_path / "less" / part), weights_of(tmp_path / "full" / part)
        assert share - 0.01 < narrow.stat().st_size / full.stat().st_size < share + 0.13  # scales and biases
        with safe_open(narrow, "np") as file:
            names = file.keys()
            assert stored in {file.get_slice(name).get_dtype() for name in names}
        config = read_config(tmp_path / "less" / part)
        assert "eight_bit" in config if weights == "int8" else config["torch_dtype"] == weights
        loaded, exact = load_model(tmp_path / "less" / part), load_model(tmp_path / "full" / part)
        assert loaded.in_eight_bits == (weights == "int8")
        np.testing.assert_allclose(loaded.encode(IDS)[0], exact.encode(IDS)[0], atol=0.1)


def test_weights_that_do_not_fit_into_16_bits_are_refused_before_anything_is_written(tmp_path):
    model = MiniBERT(MINI)
    model.head.b.data[3] = 1e5
    with pytest.raises(ValueError, match=r"weight is 100000, but float16 only goes to 65,504; export with --full or"):
        export(model, TOKENIZER, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_the_command_takes_the_card_along_and_overwrites_nothing(tmp_path, capsys):
    export(MiniBERT(MINI), TOKENIZER, tmp_path / "a", weights="float32")
    (tmp_path / "a" / "README.md").write_text("a card")
    write_frequencies(tmp_path / "a", np.log(np.full(8192, 1 / 8192)))
    words = ["export", str(tmp_path / "a"), "--out", str(tmp_path / "b")]
    with pytest.raises(SystemExit) as end:
        main(words)
    assert end.value.code == 0 and "in 16 bits" in capsys.readouterr().out
    card = (tmp_path / "b" / "README.md").read_text()
    assert card.startswith("a card\n\n## How to load it\n")
    export(MiniBERT(MINI), TOKENIZER, tmp_path / "again", card=tmp_path / "b" / "README.md")
    assert (tmp_path / "again" / "README.md").read_text() == card  # the section is not added twice
    np.testing.assert_array_equal(*(read_frequencies(tmp_path / name) for name in "ab"))
    assert json.loads((tmp_path / "b" / "config.json").read_text())["model_type"] == "mini_bert"
    with pytest.raises(SystemExit, match="is not empty; choose a new folder"):
        main(words)
    with pytest.raises(SystemExit, match="the folder that the model is read from"):
        main(["export", str(tmp_path / "a"), "--out", str(tmp_path / "a")])


@pytest.mark.parametrize("model", [MiniBERT(MINI), Bert(BERT)], ids=["mini", "bert"])
def test_the_card_says_how_to_load_the_model(model, tmp_path, monkeypatch):
    """Its example runs; a Mini-BERT says that transformers opens only its tokenizer, and a BERT that it opens all."""
    export(model, TOKENIZER, tmp_path / "FOLDER")
    card = (tmp_path / "FOLDER" / "README.md").read_text()
    assert card.startswith("# FOLDER\n")
    assert ("only the tokenizer opens" in card) == isinstance(model, MiniBERT)
    assert ("AutoModel.from_pretrained" in card) == isinstance(model, Bert)
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    exec(card.split("```python\n")[1].split("```")[0], names)
    assert names["model"].config == model.config


def test_a_model_that_writes_says_where_texts_end(tmp_path):
    """config.json and generation_config.json have the ids with which `generate` begins and ends; others have none."""
    tokenizer = load_tokenizer("bpe-8k")
    for own, ends in ((None, tokenizer.sep_id), (7, [tokenizer.sep_id, 7])):
        model = GPT2(GPT2Config(8192, 11, 6, 1, 2, eos_token_id=own))
        export(model, tokenizer, tmp_path / "gpt2")
        expected = {"bos_token_id": tokenizer.sep_id, "pad_token_id": tokenizer.pad_id, "eos_token_id": ends}
        assert json.loads((tmp_path / "gpt2" / "generation_config.json").read_text()) == expected
        assert read_config(tmp_path / "gpt2").items() >= expected.items()
        again = load_model(tmp_path / "gpt2")
        assert end_ids(again, tokenizer) == end_ids(model, tokenizer)
    export(Bert(BERT), TOKENIZER, tmp_path / "bert")
    assert not (tmp_path / "bert" / "generation_config.json").exists()


@pytest.mark.peers
def test_transformers_ends_a_text_where_we_do(tmp_path):
    """A GPT-2 whose every next token is the end of the document: transformers writes that one token, and stops."""
    transformers = pytest.importorskip("transformers")
    tokenizer, model = load_tokenizer("bpe-8k"), GPT2(GPT2Config(8192, 11, 6, 1, 2))
    end, last = model.tokens.table.data[tokenizer.sep_id], model.final_norm
    end *= 100
    last.gamma.data[...], last.beta.data[...] = 0, end
    export(model, tokenizer, tmp_path / "gpt2", "float32")
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "gpt2")
    prompt = transformers.AutoTokenizer.from_pretrained(tmp_path / "gpt2")("Once upon", return_tensors="pt")
    written = theirs.generate(prompt["input_ids"], max_new_tokens=5, do_sample=False)[0, prompt["input_ids"].shape[1] :]
    assert written.tolist() == [tokenizer.sep_id]
    assert list(generate(model, tokenizer, "Once upon", 5)) == []


@pytest.mark.parametrize("kind", ["float16", "int8"])
def test_a_fine_tuned_model_without_a_card_gets_one(kind, tmp_path):
    """It names the folder, and the command that uses it."""
    task = Classify(["neg", "pos"])
    export_tuned(FineTuned(with_task(Bert(BERT), task, 0.0), task, TOKENIZER, 9), tmp_path / "mine", kind, None)
    assert is_tuned(tmp_path / "mine")
    card = (tmp_path / "mine" / "README.md").read_text()
    assert card.startswith("# mine\n") and 'mini-bert predict . "A text to classify."' in card


GPT = GPT2Config(vocab_size=8192, n_positions=9, n_embd=8, n_layer=1, n_head=2)


@pytest.mark.parametrize("model", [MiniBERT(MINI), Bert(BERT), GPT2(GPT)], ids=["mini", "bert", "gpt2"])
def test_the_tokenizer_of_transformers_makes_the_inputs_of_the_model(model, tmp_path):
    """Token types only for models that tell texts apart: transformers' GPT-2 would add the vectors of words to them."""
    export(model, TOKENIZER, tmp_path / "out")
    names = json.loads((tmp_path / "out" / "tokenizer_config.json").read_text())["model_input_names"]
    assert ("token_type_ids" in names) == isinstance(model, Bert) and {"input_ids", "attention_mask"} <= {*names}
    assert load(tmp_path / "out")[1].ids(["a cat"]) == TOKENIZER.ids(["a cat"])


def test_a_folder_keeps_its_pooling(tmp_path):
    """Whether sentence-transformers wrote it or we did: a model that is served gives the same vectors once exported."""
    export(MiniBERT(MINI), TOKENIZER, tmp_path / "a")
    assert pooling_in(tmp_path / "a") is None
    (tmp_path / "a" / "1_Pooling").mkdir()
    (tmp_path / "a" / "1_Pooling" / "config.json").write_text('{"pooling_mode_mean_tokens": true}')
    for old, new in ("ab", "bc"):
        export(load(tmp_path / old)[0], TOKENIZER, tmp_path / new, card=tmp_path / old / "README.md")
        assert pooling_in(tmp_path / new) == "all"
    (tmp_path / "CARD.md").write_text("a card that is in no model folder")
    export(MiniBERT(MINI), TOKENIZER, tmp_path / "d", card=tmp_path / "CARD.md")
    assert pooling_in(tmp_path / "d") is None
    config = json.loads((tmp_path / "c" / "config.json").read_text())
    (tmp_path / "c" / "config.json").write_text(json.dumps({**config, "sentence_pooling": "avg"}))
    with pytest.raises(ValueError, match=r"sentence_pooling in config\.json is 'avg', expected one of mean, cls, all"):
        pooling_in(tmp_path / "c")


def test_the_card_says_how_the_weights_are_stored(tmp_path):
    """Also after another export of an exported folder, in other bits: nothing remains of what the first said."""
    for source, name, kind in (("mini-bert", "a", "int8"), ("a", "b", "float32"), ("b", "c", "bfloat16")):
        folder = tmp_path / source if name != "a" else locate(source)
        export(MiniBERT(MINI), TOKENIZER, tmp_path / name, kind, folder / "README.md")
        card = (tmp_path / name / "README.md").read_text()
        (stored,) = re.findall(r"stored in (\d+) bits", card)
        assert stored == {"int8": "8", "float32": "32", "bfloat16": "16"}[kind]
        assert ("## Weights in 8 bits" in card) == (kind == "int8")
        assert card.count("## How to load it") == card.count("```python") == 1 and "## How good it is" in card


def a_run_without_model(folder, **start):
    """A run with one checkpoint and a good history, unless `start` adds a bad record."""
    export(MiniBERT(MINI), TOKENIZER, folder / "checkpoints" / "step-00000050", weights="float32")
    (folder / "config.json").write_text("{}")
    records = [{"kind": "start", "step": 0, "unigram_loss": 6.5}]
    records += [{"kind": "train", "step": step, "loss": 6.0, "lr": 1e-3} for step in range(10, 60, 10)]
    (folder / "metrics.jsonl").write_text("\n".join(json.dumps(record) for record in [*records, *start.values()]))
    return folder


def test_a_run_without_a_model_gives_its_newest_checkpoint_and_says_so_once(tmp_path, caplog):
    run = a_run_without_model(tmp_path / "run")
    with pytest.raises(SystemExit) as end:
        main(["export", str(run), "--out", str(tmp_path / "out")])
    assert end.value.code == 0 and (tmp_path / "out" / "model.safetensors").is_file()
    assert [record.getMessage().count("has no best model yet") for record in caplog.records] == [1]


def test_a_run_that_broke_is_not_exported_unless_its_checkpoint_is_named(tmp_path):
    """Nothing is written; the error mentions `doctor` and the checkpoint, which can be exported by its path."""
    broken = {"kind": "nonfinite", "step": 55, "what": "loss", "tensors": ["head.w"], "lr": 0.1}
    run = a_run_without_model(tmp_path / "run", end=broken)
    with pytest.raises(SystemExit, match=r"went wrong \(the numbers are no longer finite\).*mini-bert doctor"):
        main(["export", str(run), "--out", str(tmp_path / "out")])
    assert not (tmp_path / "out").exists()
    with pytest.raises(SystemExit) as end:
        main(["export", str(run / "checkpoints" / "step-00000050"), "--out", str(tmp_path / "out")])
    assert end.value.code == 0 and (tmp_path / "out" / "model.safetensors").is_file()
