"""Graphs in 8 bits: ONNX Runtime and NumPy compute the same integers, and the same results to the last rounding."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from mini_bert.export.engine import Engine, on_onnx
from mini_bert.export.names import INPUT_IDS, MASK
from mini_bert.export.onnx_folder import GRAPH, INT8_GRAPH, export_onnx, export_tuned_onnx
from mini_bert.export.recording import own_head, record
from mini_bert.finetuning.model import FineTuned, is_tuned, with_task
from mini_bert.finetuning.model import load as load_tuned
from mini_bert.finetuning.tasks.classify import Classify
from mini_bert.inference.embed import embed
from mini_bert.inference.loading import load, load_model
from mini_bert.layers.matrices import times
from mini_bert.models.base import Model
from tests.export.test_onnx_graphs import feed, ours
from tests.export.tiny_models import MODELS, batch, build
from tests.finetuning import tiny_tasks as tiny

pytestmark = pytest.mark.peers
onnx, runtime = pytest.importorskip("onnx"), pytest.importorskip("onnxruntime")
FLIPPED = 0.02  # the share of tokens in which a number lies so close to the middle of two integers that it is rounded
# differently, because earlier results differ in the last bit
SOME = ["mini", "bert", "albert", "deberta-v2", "gpt2", "modernbert", "transformer-xl", "xlnet"]


def session(proto: Any, optimised: bool = True) -> Any:
    options = runtime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 3
    if not optimised:
        options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return runtime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])


def in_8_bits(name: str) -> Model:
    return build(name).keep_weights("int8")


def head_of(model: Model) -> str:
    return next(one for one in model.output_heads if one in ("masked_words", "next_word", "replaced"))


@pytest.mark.parametrize("name", MODELS)
def test_whole_models_agree(name):
    model = in_8_bits(name)
    recording = record(model, own_head(model))
    proto = recording.to_onnx()
    onnx.checker.check_model(proto, full_check=True)
    running = session(proto)
    for B, T, left in ((2, 1, False), (2, 7, True), (4, 33, False)):
        inputs = batch(model, B, T, left)
        (found,) = running.run(None, feed(recording, *inputs))
        difference = np.abs(found - ours(model, head_of(model), *inputs)).reshape(B, T, -1).max(-1)
        assert (difference > 1e-5).mean() <= FLIPPED and difference.max() < 0.2


@pytest.mark.parametrize("name", SOME)
@pytest.mark.parametrize("optimised", [True, False])
def test_every_product_is_the_same_to_the_last_rounding(name, optimised):
    """Given the numbers that ONNX Runtime multiplies, NumPy's product is ONNX Runtime's."""
    model = in_8_bits(name)
    recording = record(model, own_head(model))
    proto = recording.to_onnx()
    products = products_of(proto, model)
    assert len(products) > 8
    shown = {one for x, y, _ in products for one in (x, y)} - {one.name for one in proto.graph.output}
    proto.graph.output.extend(onnx.helper.make_empty_tensor_value_info(one) for one in sorted(shown))
    running = session(proto, optimised)
    values = dict(zip([one.name for one in running.get_outputs()],
                      running.run(None, feed(recording, *batch(model, 3, 19))), strict=True))  # fmt: skip
    for x, y, weight in products:
        expected = times(values[x], weight)
        np.testing.assert_allclose(values[y], expected, rtol=3e-7, atol=1e-30, err_msg=f"{x} -> {y}")


def products_of(proto: Any, model: Model) -> list[tuple[str, str, Any]]:
    """The names of x and x W for every product of integers, and W"""
    makers = {name: node for node in proto.graph.node for name in node.output}
    readers = {name: node for node in proto.graph.node for name in node.input}
    params = {f"{path}_quantized": param.frozen for path, param in model.named_params().items()}
    found = []
    for node in proto.graph.node:
        if node.op_type == "MatMulInteger":
            source, transposed = makers.get(node.input[1]), False
            name = node.input[1]
            if source is not None:
                assert source.op_type == "Transpose"
                name, transposed = source.input[0], True
            cast = readers[node.output[0]]
            product = readers[cast.output[0]]
            assert (cast.op_type, product.op_type) == ("Cast", "Mul")
            if name in params:  # not a part of one
                weight = params[name].T if transposed else params[name]
                found.append((makers[node.input[0]].input[0], product.output[0], weight))
    return found


@pytest.mark.parametrize("name", SOME)
def test_the_reference_of_onnx_agrees(name):
    reference = pytest.importorskip("onnx.reference")
    model = in_8_bits(name)
    recording = record(model, own_head(model))
    inputs = batch(model, 3, 7)
    (found,) = reference.ReferenceEvaluator(recording.to_onnx()).run(None, feed(recording, *inputs))
    difference = np.abs(found - ours(model, head_of(model), *inputs)).reshape(3, 7, -1).max(-1)
    assert (difference > 1e-4).mean() <= 3 * FLIPPED


def test_onnx_runtime_has_one_step_for_a_layer(tmp_path):
    """Rounding, product, scales and bias: DynamicQuantizeMatMul, also where the weight is a transposed table."""
    options = runtime.SessionOptions()
    options.optimized_model_filepath, options.log_severity_level = str(tmp_path / "optimised.onnx"), 3
    graph = record(in_8_bits("mini-tied"), own_head(in_8_bits("mini-tied"))).to_onnx().SerializeToString()
    runtime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
    steps = [node.op_type for node in onnx.load(tmp_path / "optimised.onnx").graph.node]
    assert steps.count("DynamicQuantizeMatMul") >= 5 and "MatMulInteger" not in steps


def test_a_folder_in_8_bits(tmp_path):
    """A quarter of the size, the name that others look for, and an engine on integers"""
    model, tokenizer = load("mini-bert")
    written = export_onnx(model, tokenizer, tmp_path / "m", "int8")
    assert written.path == tmp_path / "m" / INT8_GRAPH and not (tmp_path / "m" / GRAPH).exists()
    size = 4 * model.get_parameter_count()
    assert written.size < 0.27 * size and (tmp_path / "m" / "model_int8.safetensors").stat().st_size < 0.27 * size
    config = json.loads((tmp_path / "m" / "config.json").read_text())
    assert config["transformers.js_config"] == {"dtype": "q8"} and "int8" in config["eight_bit"]["weights"]
    card = (tmp_path / "m" / "README.md").read_text()
    assert "`transformers` does not open this file" in card and "products of 8-bit integers" in card
    again = load_model(tmp_path / "m")
    running = runtime.InferenceSession(str(written.path), providers=["CPUExecutionProvider"])
    ids = np.array([[2, 70, 4, 900, 3]])
    (scores,) = running.run(None, {INPUT_IDS: ids, MASK: ids * 0 + 1})
    np.testing.assert_allclose(scores, again.forward(ids)[0], atol=2e-2)
    texts = ["A cat sat down.", "Prices rose."]
    in_numpy = embed(again, tokenizer, texts)
    fast = on_onnx(again)
    assert isinstance(vars(fast)["encode_inputs"].__self__, Engine)
    np.testing.assert_allclose(embed(fast, tokenizer, texts), in_numpy, atol=1e-2)
    exact = embed(model, tokenizer, texts)
    cosines = (in_numpy * exact).sum(-1) / np.linalg.norm(in_numpy, axis=-1) / np.linalg.norm(exact, axis=-1)
    assert (cosines > 0.999).all() and (cosines < 0.999999).all()


def test_a_model_in_8_bits_is_exported_in_floats_again(tmp_path):
    model, tokenizer = load("mini-bert")
    export_onnx(model, tokenizer, tmp_path / "eight", "int8")
    written = export_onnx(load_model(tmp_path / "eight"), tokenizer, tmp_path / "wide", "float32")
    assert written.path.name == "model.onnx" and written.size > 4 * 4e6
    assert not load_model(tmp_path / "wide").in_eight_bits


def test_a_fine_tuned_folder_in_8_bits(tmp_path):
    task = Classify(["neg", "pos"])
    tuned = FineTuned(with_task(tiny.encoder("bert"), task, 0.0), task, tiny.TOKENIZER, 24)
    assert export_tuned_onnx(tuned, tmp_path / "out", "int8").outputs == ["logits"]
    assert is_tuned(tmp_path / "out") and load_tuned(tmp_path / "out").model.in_eight_bits
    assert "## Weights in 8 bits" in (tmp_path / "out" / "README.md").read_text()


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_transformers_opens_folders_in_16_bits(kind, tmp_path):
    """In the type that config.json names, and with the same weights; float32 gives our results."""
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    from mini_bert.export.folder import export
    from tests.export.test_transformers_js import published

    model, tokenizer = published()
    export(model, tokenizer, tmp_path / "m", kind)
    assert json.loads((tmp_path / "m" / "config.json").read_text())["torch_dtype"] == kind
    theirs = transformers.AutoModel.from_pretrained(tmp_path / "m", dtype="auto")
    assert theirs.dtype == getattr(torch, kind)
    wide = transformers.AutoModel.from_pretrained(tmp_path / "m", dtype=torch.float32).eval()
    ids = np.array([[2, 70, 4, 900, 3]])
    with torch.no_grad():
        expected = wide(torch.tensor(ids)).last_hidden_state.numpy()
    np.testing.assert_allclose(load_model(tmp_path / "m").encode(ids)[0], expected, atol=1e-4)


def test_transformers_refuses_8_bits(tmp_path):
    """It finds no weights, and takes no integers for floats."""
    transformers = pytest.importorskip("transformers")
    from mini_bert.export.folder import export
    from tests.export.test_transformers_js import published

    model, tokenizer = published()
    export(model, tokenizer, tmp_path / "m", "int8")
    with pytest.raises(OSError, match=r"no file named .*model.safetensors"):
        transformers.AutoModel.from_pretrained(tmp_path / "m")
    assert transformers.AutoTokenizer.from_pretrained(tmp_path / "m").vocab_size == tokenizer.vocab_size


def test_the_commands(tmp_path):
    def run(*words: str) -> str:
        done = subprocess.run([sys.executable, "-m", "mini_bert", *words], capture_output=True, text=True, timeout=300)
        return done.stdout + done.stderr

    folder = str(tmp_path / "m")
    said = run("export", "mini-bert", "--onnx", "--int8", "--out", folder)
    assert "onnx/model_quantized.onnx: 4.7 MB, input_ids, attention_mask -> logits" in said
    for engine in ("numpy", "onnx"):
        assert "table" in run("fill-mask", "The cat sat on the [MASK].", "--model", folder, "--engine", engine)
    assert "choose one of them" in run("export", "mini-bert", "--int8", "--full", "--out", str(tmp_path / "n"))
