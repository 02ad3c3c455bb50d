"""sentence-transformers and optimum open exported folders, and compute the vectors of `mini-bert embed`."""

from __future__ import annotations

import json

import numpy as np
import pytest

from mini_bert.cli.main import main
from mini_bert.export.onnx_folder import INT8_GRAPH, export_onnx, export_tuned_onnx
from mini_bert.finetuning.model import FineTuned, with_task
from mini_bert.finetuning.tasks.similarity import Similarity
from mini_bert.inference.embed import embed
from mini_bert.inference.loading import load, load_model
from mini_bert.models.bert import Bert, BertConfig
from mini_bert.models.gpt2 import GPT2, GPT2Config
from mini_bert.models.xlnet import XLNet, XLNetConfig
from mini_bert.text.loading import load_tokenizer
from mini_bert.text.wordpiece import WordPieceTokenizer

pytestmark = pytest.mark.peers
pytest.importorskip("onnx", reason="needs the extra `onnx`: pip install -e '.[onnx]'")
TEXTS = ["A cat sat down on the old chair.", "Prices rose.", "Nobody was in, but she went on looking in every room."]
OPTIMUM = "optimum-onnx is not installed: it needs older transformers, and so an environment of its own"
FULL = {"dtype": "float32"}  # sentence-transformers computes in the type of the weights, which may have 16 bits


def published() -> tuple[Bert, WordPieceTokenizer]:
    """A BERT as published ones are, with random weights"""
    config = BertConfig(
        vocab_size=8192, hidden_size=33, num_hidden_layers=2, num_attention_heads=3, intermediate_size=41,
        max_position_embeddings=37, initializer_range=0.3,
    )  # fmt: skip
    return Bert(config, seed=2), WordPieceTokenizer.load("8k")


@pytest.fixture(scope="module")
def opened():
    """SentenceTransformer on a folder of this computer"""
    library = pytest.importorskip("sentence_transformers", reason="not installed: pip install sentence-transformers")
    return lambda folder, **options: library.SentenceTransformer(str(folder), local_files_only=True, **options)


def command(*words: object) -> None:
    try:
        main([str(word) for word in words])
    except SystemExit as end:
        assert not end.code, end.code


@pytest.mark.parametrize("options", [[], ["--bfloat16"]], ids=["float32", "bfloat16"])
def test_an_exported_folder_gives_the_vectors_of_the_command(options, opened, tmp_path):
    """Its mean is our pooling `all`, special tokens included, and not our `mean`."""
    model, tokenizer = published()
    model.save_pretrained(tmp_path / "model")
    tokenizer.save(tmp_path / "model")
    command("export", tmp_path / "model", "--onnx", "--encoder", *options, "--out", tmp_path / "vectors")
    found = {}
    for pooling in ("all", "mean"):
        out = tmp_path / f"{pooling}.npy"
        command("embed", *TEXTS, "--model", tmp_path / "vectors", "--pooling", pooling, "--out", out)
        found[pooling] = np.load(out)
    theirs = opened(tmp_path / "vectors", model_kwargs=FULL)
    assert theirs.max_seq_length == 37
    np.testing.assert_allclose(theirs.encode(TEXTS), found["all"], atol=1e-5)
    assert np.abs(theirs.encode(TEXTS) - found["mean"]).max() > 0.1
    if not options:
        np.testing.assert_allclose(opened(tmp_path / "vectors").encode(TEXTS), found["all"], atol=1e-5)


def test_a_folder_of_sentence_transformers_keeps_the_length_of_its_vectors_and_its_prompts(opened, tmp_path):
    """As all-MiniLM-L6-v2 has them; the graph gives what the source gives."""
    model, tokenizer = published()
    export_onnx(model, tokenizer, tmp_path / "source", "float32", encoder=True)
    modules = json.loads((tmp_path / "source" / "modules.json").read_text())
    modules.append({"idx": 2, "name": "2", "path": "2_Normalize", "type": "sentence_transformers.models.Normalize"})
    (tmp_path / "source" / "modules.json").write_text(json.dumps(modules))
    prompts = {"prompts": {"query": "a question: "}, "default_prompt_name": None}
    (tmp_path / "source" / "config_sentence_transformers.json").write_text(json.dumps(prompts))
    command("export", tmp_path / "source", "--onnx", "--encoder", "--out", tmp_path / "again")
    before, after = (opened(tmp_path / name) for name in ("source", "again"))
    for prompt in (None, "query"):
        wanted = before.encode(TEXTS, prompt_name=prompt)
        np.testing.assert_allclose(np.linalg.norm(wanted, axis=1), 1, rtol=1e-5)
        np.testing.assert_allclose(after.encode(TEXTS, prompt_name=prompt), wanted, atol=1e-5)
    plain, asked = after.encode(TEXTS[:1]), after.encode(TEXTS[:1], prompt_name="query")
    assert np.abs(plain - asked).max() > 1e-3


@pytest.mark.parametrize("pooling", ["all", "cls"])
def test_a_model_that_was_fine_tuned_for_vectors_keeps_its_pooling(pooling, opened, tmp_path):
    model, tokenizer = published()
    task = Similarity(0, 5, vectors=True, pooling=(pooling,))
    export_tuned_onnx(FineTuned(with_task(model, task, 0.0), task, tokenizer, 29), tmp_path / "tuned", "float32")
    theirs = opened(tmp_path / "tuned")
    assert theirs.max_seq_length == 29
    np.testing.assert_allclose(theirs.encode(TEXTS), embed(model, tokenizer, TEXTS, pooling), atol=1e-5)


def test_a_gpt2_with_a_tokenizer_of_bert(opened, tmp_path):
    """The tokenizer makes no token types, which transformers' GPT-2 would add as words. Its mean is that of `embed`."""
    model, tokenizer = (
        GPT2(GPT2Config(8192, 37, 33, 2, 3, initializer_range=0.3), seed=3),
        WordPieceTokenizer.load("8k"),
    )
    export_onnx(model, tokenizer, tmp_path / "gpt", encoder=True)
    theirs = opened(tmp_path / "gpt").encode(TEXTS)
    np.testing.assert_allclose(theirs, embed(model, tokenizer, TEXTS, "all"), atol=1e-5)


def test_an_xlnet_opens(opened, tmp_path):
    """Its weights are float32 unless asked otherwise; in 16 bits, that of transformers 5 stops with an error."""
    model = XLNet(XLNetConfig(8192, 34, 2, 2, 41, initializer_range=0.3), seed=3)
    tokenizer = load_tokenizer("unigram-8k")
    export_onnx(model, tokenizer, tmp_path / "net", encoder=True)
    theirs = opened(tmp_path / "net").encode(TEXTS)
    np.testing.assert_allclose(theirs, embed(model, tokenizer, TEXTS, "all"), atol=1e-4)


# ---------------------------------------------------------------------- the graph


@pytest.fixture(scope="module")
def optimum():
    return pytest.importorskip("optimum.onnxruntime", reason=OPTIMUM)


def mean(model, folder) -> np.ndarray:
    """The mean over the tokens of each text, computed by optimum and PyTorch"""
    from transformers import AutoTokenizer

    batch = AutoTokenizer.from_pretrained(str(folder))(TEXTS, padding=True, return_tensors="pt")
    mask = batch["attention_mask"][..., None]
    return ((model(**batch).last_hidden_state * mask).sum(1) / mask.sum(1)).numpy()


def test_optimum_opens_the_graphs(optimum, opened, tmp_path):
    """It finds onnx/model.onnx itself, and sentence-transformers does, too; graphs in 8 bits are named."""
    (model, tokenizer), kind = published(), optimum.ORTModelForFeatureExtraction
    expected = embed(model, tokenizer, TEXTS, "all")
    export_onnx(model, tokenizer, full := tmp_path / "full", encoder=True)
    np.testing.assert_allclose(mean(kind.from_pretrained(full), full), expected, atol=1e-5)
    np.testing.assert_allclose(opened(full, backend="onnx").encode(TEXTS), expected, atol=1e-5)

    export_onnx(model, tokenizer, small := tmp_path / "small", "int8", encoder=True)
    expected = embed(load_model(small), tokenizer, TEXTS, "all", batch_size=len(TEXTS))
    named = kind.from_pretrained(small, subfolder="onnx", file_name="model_quantized.onnx")
    np.testing.assert_allclose(mean(named, small), expected, atol=1e-2)
    theirs = opened(small, backend="onnx", model_kwargs={"file_name": INT8_GRAPH})
    np.testing.assert_allclose(theirs.encode(TEXTS), expected, atol=1e-2)


def test_optimum_opens_a_mini_bert_with_the_config_of_a_bert(optimum, tmp_path):
    """transformers does not know its model_type; the graph needs nothing from the config."""
    from transformers import BertConfig as Theirs

    model, tokenizer = load("mini-bert")
    export_onnx(model, tokenizer, tmp_path / "m", encoder=True)
    with pytest.raises(ValueError, match="mini_bert"):
        optimum.ORTModelForFeatureExtraction.from_pretrained(tmp_path / "m")
    theirs = optimum.ORTModelForFeatureExtraction.from_pretrained(tmp_path / "m", config=Theirs())
    np.testing.assert_allclose(mean(theirs, tmp_path / "m"), embed(model, tokenizer, TEXTS, "all"), atol=1e-4)
