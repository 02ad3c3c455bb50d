"""The engine onnx: the same API and the same answers, computed by ONNX Runtime."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from copy import deepcopy
from pathlib import Path

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from mini_bert.cli.main import main
from mini_bert.export.engine import Engine, on_onnx, session_of, with_engine
from mini_bert.export.onnx_folder import GRAPH, INT8_GRAPH, export_onnx, export_tuned_onnx
from mini_bert.export.recording import own_head, record
from mini_bert.finetuning.model import FineTuned, is_tuned, save, with_task
from mini_bert.finetuning.model import load as load_tuned
from mini_bert.finetuning.predict import predictions
from mini_bert.finetuning.tasks.classify import Classify
from mini_bert.finetuning.tasks.similarity import Similarity
from mini_bert.finetuning.tasks.tag import Tag
from mini_bert.inference.embed import embed, pooling_in
from mini_bert.inference.fill_mask import fill_mask
from mini_bert.inference.generate import generate_ids
from mini_bert.inference.loading import load, load_model
from mini_bert.layers.base import Run
from mini_bert.serving.served import Served
from tests.export.tiny_models import MODELS, batch, build
from tests.finetuning import tiny_tasks as tiny

pytestmark = pytest.mark.peers
pytest.importorskip("onnxruntime")
ROOT = Path(__file__).parents[2]
TEXTS = ["The cat sat on the mat.", "Prices rose.", "She opened the door and looked into the room, but nobody was in."]


@pytest.fixture(scope="module")
def bundled():
    return load("mini-bert")


@pytest.fixture(scope="module")
def fast():
    return on_onnx(load_model("mini-bert"), threads=1)


@pytest.mark.parametrize("pooling", ["mean", "cls", "all"])
def test_the_same_vectors(bundled, fast, pooling):
    model, tokenizer = bundled
    for threads in (1, 2):
        np.testing.assert_allclose(
            embed(fast, tokenizer, TEXTS, pooling, batch_size=2, threads=threads),
            embed(model, tokenizer, TEXTS, pooling),
            atol=1e-5,
        )


def test_the_same_guesses(bundled, fast):
    model, tokenizer = bundled
    text = "The cat [MASK] on the [MASK]."
    ours, theirs = fill_mask(model, tokenizer, text), fill_mask(fast, tokenizer, text)
    assert ours.text == theirs.text
    for one, other in zip(ours.gaps, theirs.gaps, strict=True):
        assert [guess.word for guess in one] == [guess.word for guess in other]
        np.testing.assert_allclose([g.probability for g in one], [g.probability for g in other], atol=1e-5)


@pytest.mark.parametrize("name", MODELS)
def test_every_architecture_runs_on_it(name):
    model, ids, mask, types = (one := build(name)), *batch(one, 2, 7)
    expected, some = model.encode(ids, mask, types)[0], model.encode(ids, mask, types, chosen=np.array([1, 9, 3]))[0]
    on_onnx(model, threads=1)
    found, cache = model.encode(ids, mask, types)
    np.testing.assert_allclose(found, expected, atol=1e-4)
    np.testing.assert_allclose(model.encode(ids, mask, types, chosen=np.array([1, 9, 3]))[0], some, atol=1e-4)
    assert cache.memory is None and cache.hidden is found
    np.testing.assert_allclose(model.encode(ids)[0][0], build(name).encode(ids)[0][0], atol=1e-4)  # no mask, no types


def test_what_the_graph_cannot_do_is_computed_in_numpy():
    """A memory of earlier tokens, and training"""
    model, fast = build("gpt2"), on_onnx(build("gpt2"))
    assert list(generate_ids(model, [5, 6, 7], 8)) == list(generate_ids(fast, [5, 6, 7], 8))
    ids, _, _ = batch(model, 2, 5)
    hidden, cache = fast.encode(ids, run=Run(train=True))
    assert fast.encode_backward(np.ones_like(hidden), cache).shape == hidden.shape


@pytest.mark.parametrize("task", [Classify(["neg", "pos"]), Tag(["B-PER", "O"])], ids=["classify", "tag"])
def test_the_same_predictions(task):
    model = with_task(tiny.encoder("bert"), task, 0.0)
    examples = tiny.labelled(5) if task.name == "classify" else tiny.tagged(5)
    tuned = FineTuned(model, task, tiny.TOKENIZER, 24)
    expected = predictions(tuned, examples)
    on_onnx(model)
    for one, other in zip(expected, predictions(tuned, examples), strict=True):
        assert one.keys() == other.keys() and one.get("label") == other.get("label")
        np.testing.assert_allclose(
            *(list(p["probabilities"].values()) if task.name == "classify" else p["probabilities"]
              for p in (one, other)),
            atol=1e-5,
        )  # fmt: skip


def test_a_model_on_it_is_not_copied():
    """The session has the weights of the moment; a copy with others would still compute with these."""
    model = on_onnx(build("mini"))
    with pytest.raises(ValueError, match="cannot be copied or trained; load it again"):
        deepcopy(model)


def test_a_graph_without_vectors_is_refused():
    model = build("mini")
    graph = record(model, own_head(model)).to_onnx().SerializeToString()
    with pytest.raises(ValueError, match="this graph gives logits, but the engine needs last_hidden_state"):
        on_onnx(model, graph)


# ---------------------------------------------------------------------- threads


def blas_threads() -> set[int]:
    return {one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas"}


@pytest.fixture
def two_blas_threads():
    with threadpool_limits(2, "blas"):
        assert blas_threads() == {2}
        yield


def test_numpy_has_one_thread_beside_onnx_runtime(two_blas_threads):
    """Threads of BLAS and of ONNX Runtime compete for cores. The engine numpy keeps both of its own."""
    with_engine(build("mini"), "numpy")
    assert blas_threads() == {2}
    with_engine(build("mini"), "onnx", threads=1)
    assert blas_threads() == {1}


@pytest.mark.parametrize("command", ["fill-mask", "embed", "predict", "serve"])
def test_every_command_computes_with_one_blas_thread(command, tmp_path, monkeypatch, two_blas_threads):
    """Whenever ONNX Runtime is called, NumPy has one thread."""
    seen = []

    def spy(*given):
        seen.append(blas_threads())
        return encode(*given)

    encode = Engine.encode_inputs
    monkeypatch.setattr(Engine, "encode_inputs", spy)
    if command == "serve":
        Served.load("mini-bert", "mini-bert", "onnx")
    elif command == "predict":
        task = Classify(["neg", "pos"])
        save(tmp_path / "tuned", with_task(tiny.encoder("bert"), task, 0.0), task, tiny.TOKENIZER, 24)
        main_ends(["predict", str(tmp_path / "tuned"), "the cat", "--engine", "onnx"])
    else:
        main_ends([command, "The cat [MASK]." if command == "fill-mask" else "A cat.", "--engine", "onnx"])
    assert seen and all(one == {1} for one in seen)


@pytest.mark.skipif(sys.platform == "win32", reason="looks for a file of Linux and macOS")
def test_onnx_runtime_reports_nothing(tmp_path):
    """It keeps no identifier of the user, which would be the sign that it reports to its makers."""
    code = "from mini_bert.export.engine import on_onnx; from mini_bert.model import MiniBERT; on_onnx(MiniBERT())"
    home = {"HOME": str(tmp_path), "PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-c", code], env=home, check=True, timeout=60)
    assert not list(tmp_path.rglob("*onnxruntime*"))


# ---------------------------------------------------------------------- folders and commands


def test_a_pretrained_model_as_a_folder(tmp_path, bundled):
    """The graph has the words' scores; with --encoder, vectors, and the files for sentence-transformers."""
    model, tokenizer = bundled
    written = export_onnx(model, tokenizer, tmp_path / "words")
    assert (written.inputs, written.outputs) == (["input_ids", "attention_mask"], ["logits"])
    assert (tmp_path / "words" / GRAPH).stat().st_size == written.size
    assert "onnx/model.onnx" in (tmp_path / "words" / "README.md").read_text()
    assert not (tmp_path / "words" / "modules.json").exists()
    ids = np.array([tokenizer("the cat sat")["input_ids"]])
    (scores,) = session_of(tmp_path / "words" / GRAPH).run(None, {"input_ids": ids, "attention_mask": ids * 0 + 1})
    np.testing.assert_allclose(scores, model.forward(ids)[0], atol=1e-4)
    assert export_onnx(model, tokenizer, tmp_path / "vectors", encoder=True).outputs == ["last_hidden_state"]
    modules = json.loads((tmp_path / "vectors" / "modules.json").read_text())
    assert [module["path"] for module in modules] == ["", "1_Pooling"]
    pooling = json.loads((tmp_path / "vectors" / "1_Pooling" / "config.json").read_text())
    assert pooling["word_embedding_dimension"] == 192 and pooling["pooling_mode_mean_tokens"]
    length = json.loads((tmp_path / "vectors" / "sentence_bert_config.json").read_text())["max_seq_length"]
    assert length == 64
    assert pooling_in(tmp_path / "vectors") == "mean"  # which sentence-transformers cannot say
    on_onnx(load_model(tmp_path / "vectors"), tmp_path / "vectors" / GRAPH)


def test_a_fine_tuned_model_as_a_folder(tmp_path):
    """It loads again, with its head, and its config names the labels."""
    task = Classify(["neg", "pos"])
    model = with_task(tiny.encoder("bert"), task, 0.0)
    save(tmp_path / "tuned", model, task, tiny.TOKENIZER, 24)
    assert is_tuned(tmp_path / "tuned")
    main_ends(["export", str(tmp_path / "tuned"), "--onnx", "--out", str(tmp_path / "out")])
    assert is_tuned(tmp_path / "out") and (tmp_path / "out" / GRAPH).is_file()
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config["id2label"] == {"0": "neg", "1": "pos"} and config["architectures"] == [
        "BertForSequenceClassification"
    ]


@pytest.mark.parametrize("weights", ["float32", "float16", "bfloat16"])
def test_weights_and_graph_of_a_folder_are_the_same_numbers(weights, tmp_path):
    """The graph is traced from the rounded weights, whatever they are rounded to."""
    task, ids = Classify(["neg", "pos"]), np.array([[2, 11, 23, 3]])
    tuned = FineTuned(with_task(tiny.encoder("bert"), task, 0.0), task, tiny.TOKENIZER, 24)
    export_onnx(tiny.encoder("bert"), tiny.TOKENIZER, tmp_path / "one", weights, encoder=True)
    export_tuned_onnx(tuned, tmp_path / "other", weights, encoder=True)
    feed = {"input_ids": ids, "attention_mask": ids * 0 + 1, "token_type_ids": ids * 0}
    for name, stored in (("one", load_model(tmp_path / "one")), ("other", load_tuned(tmp_path / "other").model)):
        (vectors,) = session_of(tmp_path / name / GRAPH).run(None, feed)
        np.testing.assert_allclose(vectors, stored.encode(ids)[0], atol=1e-5)
        assert json.loads((tmp_path / name / "config.json").read_text()).get("torch_dtype", "float32") == weights


def test_pooling_of_a_model_for_vectors(tmp_path):
    task = Similarity(0, 5, vectors=True, pooling=("cls",))
    tuned = FineTuned(with_task(tiny.encoder("bert"), task, 0.0), task, tiny.TOKENIZER, 24)
    assert export_tuned_onnx(tuned, tmp_path / "out").outputs == ["last_hidden_state"]
    pooling = json.loads((tmp_path / "out" / "1_Pooling" / "config.json").read_text())
    assert pooling["pooling_mode_cls_token"] and not pooling["pooling_mode_mean_tokens"]


def test_both_models_of_a_pair_have_a_graph(tmp_path):
    from mini_bert.models.base import REPLACED
    from mini_bert.models.electra import Electra, ElectraConfig
    from tests.export.tiny_models import SIZES

    sizes = SIZES | {"vocab_size": len(tiny.TOKENIZER)}
    pair = Electra(ElectraConfig(**sizes, embedding_size=7).with_generator(), (REPLACED,))
    export_onnx(pair, tiny.TOKENIZER, tmp_path / "pair")
    assert (tmp_path / "pair" / GRAPH).is_file() and (tmp_path / "pair" / "generator" / GRAPH).is_file()
    export_onnx(pair, tiny.TOKENIZER, tmp_path / "int8", "int8")
    for part in ("", "generator"):
        graph = (tmp_path / "int8" / part / INT8_GRAPH).read_bytes()
        assert b"MatMulInteger" in graph


def main_ends(words):
    try:
        main(words)
    except SystemExit as end:
        assert not end.code, end.code


def test_the_commands(tmp_path, capsys):
    main_ends(["export", "mini-bert", "--onnx", "--out", str(tmp_path / "m")])
    assert "onnx/model.onnx: 18.0 MB, input_ids, attention_mask -> logits" in capsys.readouterr().out
    assert "torch_dtype" not in json.loads((tmp_path / "m" / "config.json").read_text())  # float32
    printed = []
    for engine in ("numpy", "onnx"):
        main_ends(["fill-mask", "The cat [MASK].", "--engine", engine])
        main_ends(["embed", *TEXTS, "--engine", engine])
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1]


def test_encoder_alone_is_an_error(tmp_path):
    with pytest.raises(SystemExit, match="--encoder and --past say what the ONNX graph computes; add --onnx"):
        main(["export", "mini-bert", "--encoder", "--out", str(tmp_path / "m")])
