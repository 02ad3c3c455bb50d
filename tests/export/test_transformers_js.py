"""transformers.js, in Node, opens exported folders and computes the same vectors and guesses."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from mini_bert.export.onnx_folder import export_onnx
from mini_bert.inference.embed import embed
from mini_bert.inference.fill_mask import fill_mask
from mini_bert.inference.generate import generate
from mini_bert.inference.loading import load, load_model
from mini_bert.inference.sampling import Sampling
from mini_bert.models.bert import Bert, BertConfig
from mini_bert.models.gpt2 import GPT2, GPT2Config
from mini_bert.text.loading import load_tokenizer
from mini_bert.text.wordpiece import WordPieceTokenizer

pytestmark = pytest.mark.peers
pytest.importorskip("onnx")
PACKAGE = "@huggingface/transformers"
ROOT = Path(__file__).parents[2]
SCRIPT = Path(__file__).with_name("read_folder.mjs")
TEXT, MASKED = "A cat sat down on the old chair.", "The cat sat on the [MASK]."


@pytest.fixture(scope="module")
def library() -> Path:
    """transformers.js, installed once into the cache of the tests"""
    if not (shutil.which("node") and shutil.which("npm")):
        pytest.skip("there is no Node; Debian and Ubuntu: apt install nodejs npm")
    folder = ROOT / ".pytest_cache" / "transformers-js"
    entry = folder / "node_modules" / PACKAGE / "dist" / "transformers.node.mjs"
    if not entry.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        # Without scripts: that of onnxruntime-node fetches a version for graphics cards.
        install = ["npm", "install", PACKAGE, "--ignore-scripts", "--no-audit", "--no-fund", "--prefix", str(folder)]
        done = subprocess.run(install, capture_output=True, text=True, timeout=600)
        if done.returncode or not entry.is_file():
            pytest.skip(f"npm cannot install {PACKAGE}: {done.stderr.strip()[-200:]}")
    return entry


def test_a_gpt2_writes_the_same(library, tmp_path):
    """With --past, transformers.js generates token by token; without sampling, the text is ours."""
    model = GPT2(GPT2Config(8192, 32, 24, 2, 3, initializer_range=0.3), seed=3)
    tokenizer, prompt = load_tokenizer("bpe-8k"), "Once upon a time"
    export_onnx(model, tokenizer, tmp_path / "gpt", past=True)
    script = """
        import { pathToFileURL } from "node:url";
        const [library, folder, prompt] = process.argv.slice(1);
        const { env, pipeline } = await import(pathToFileURL(library));
        env.allowRemoteModels = false;
        env.localModelPath = "";
        const write = await pipeline("text-generation", folder, { dtype: "fp32" });
        const options = { max_new_tokens: 8, do_sample: false, return_full_text: false };
        const [{ generated_text }] = await write(prompt, options);
        process.stdout.write(generated_text);
    """
    command = ["node", "--input-type=module", "--eval", script, str(library), str(tmp_path / "gpt"), prompt]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("".join(generate(model, tokenizer, prompt, 8, Sampling(0.0))))


def test_the_examples_of_the_page_run(library, tmp_path):
    """The JavaScript of docs/export.md, as it stands, beside folders of these names."""
    for name, (model, tokenizer) in {"my-bert": published(), "my-model": load("mini-bert")}.items():
        export_onnx(model, tokenizer, tmp_path / name)
    (tmp_path / "node_modules").symlink_to(library.parents[3])
    page = (ROOT / "docs" / "export.md").read_text(encoding="utf-8")
    examples = re.findall(r"```js\n(.*?)```", page, re.DOTALL)
    assert len(examples) == 2
    for example in examples:
        script = tmp_path / "example.mjs"
        script.write_text(example.replace("await guess(", "console.log(await guess(").replace('.");', '."));'))
        done = subprocess.run(["node", script], cwd=tmp_path, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
    assert "token_str: 'table'" in done.stdout


def published():
    """A BERT as published ones are, with random weights"""
    config = BertConfig(
        vocab_size=8192, hidden_size=24, num_hidden_layers=2, num_attention_heads=3, intermediate_size=40,
        max_position_embeddings=32, initializer_range=0.3,
    )  # fmt: skip
    return Bert(config, seed=2), WordPieceTokenizer.load("8k")


@pytest.mark.parametrize("kind", ["bundled", "published"])
def test_the_same_vectors_and_guesses(kind, library, tmp_path):
    """A BERT opens by its model_type. Mini-BERT's own type is unknown there: any class with the same inputs will do."""
    model, tokenizer = load("mini-bert") if kind == "bundled" else published()
    export_onnx(model, tokenizer, tmp_path / "words")
    export_onnx(model, tokenizer, tmp_path / "vectors", encoder=True)
    name = "BertForMaskedLM" if kind == "bundled" else ""
    arguments = [library, tmp_path / "words", tmp_path / "vectors", name, TEXT, MASKED]
    done = subprocess.run(["node", SCRIPT, *map(str, arguments)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    np.testing.assert_allclose(answer["vector"], embed(model, tokenizer, [TEXT], "all")[0], atol=1e-4)
    ours = fill_mask(model, tokenizer, MASKED).gaps[0]
    assert [word for word, _ in answer["guesses"]] == [guess.word for guess in ours]
    np.testing.assert_allclose([p for _, p in answer["guesses"]], [guess.probability for guess in ours], atol=1e-4)


def test_8_bits_open_by_default(library, tmp_path):
    """config.json says which graph to take: without an option, transformers.js opens onnx/model_quantized.onnx."""
    model, tokenizer = published()
    written = export_onnx(model, tokenizer, tmp_path / "eight", "int8", encoder=True)
    assert written.path.name == "model_quantized.onnx"
    script = """
        import { pathToFileURL } from "node:url";
        const [library, folder, text] = process.argv.slice(1);
        const { env, pipeline } = await import(pathToFileURL(library));
        env.allowRemoteModels = false;
        env.localModelPath = "";
        const embed = await pipeline("feature-extraction", folder);
        process.stdout.write(JSON.stringify(Array.from((await embed(text, { pooling: "mean" })).data)));
    """
    command = ["node", "--input-type=module", "--eval", script, str(library), str(tmp_path / "eight"), TEXT]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    ours = embed(load_model(tmp_path / "eight"), tokenizer, [TEXT], "all")[0]
    np.testing.assert_allclose(json.loads(done.stdout), ours, atol=1e-2)
