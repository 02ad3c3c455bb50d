"""The commands themselves, on every architecture: trained for a few steps, then used in every way."""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import tiny_family as tiny

from mini_bert.cli.main import main
from mini_bert.inference.loading import load_tokenizer
from mini_bert.models.base import MASKED_WORDS, NEXT_WORD, REPLACED

pytestmark = pytest.mark.slow
TEXT = "the cat sat on the mat ."


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A text, a table of labels and minimal pairs"""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MINI_BERT_HOME", str(tmp_path / "home"))
    rng = random.Random(0)
    lines = [f"the {rng.choice(['cat', 'dog'])} {rng.choice(['sat', 'ran'])} {rng.choice(['on', 'to'])} the mat ."
             for _ in range(600)]  # fmt: skip
    documents = ["\n".join(lines[low : low + 5]) for low in range(0, len(lines), 5)]
    Path("text.txt").write_text("\n\n".join(documents), encoding="utf-8")
    rows = [f"the film was {word} .\t{label}\n" for word, label in (("good", "pos"), ("bad", "neg"))] * 20
    Path("labels.tsv").write_text("text\tlabel\n" + "".join(rows), encoding="utf-8")
    pair = {"sentence_good": "the cat sat .", "sentence_bad": "the cat the ."}
    Path("pairs.jsonl").write_text(f"{json.dumps(pair)}\n", encoding="utf-8")
    return tmp_path


@pytest.fixture
def run(capsys):
    """Runs a command, and returns what it printed; an error of the command fails the test, unless it is wanted."""

    def call(*words, fails=""):
        capsys.readouterr()
        with pytest.raises(SystemExit) as end:
            main([str(word) for word in words])
        if fails:
            assert isinstance(end.value.code, str) and fails in end.value.code, end.value.code
            return end.value.code
        assert not end.value.code, end.value.code
        return capsys.readouterr().out

    return call


@pytest.mark.parametrize("name", tiny.FAMILY)
def test_every_command(place, run, name):
    config = tiny.tiny_config(name)
    Path("config.json").write_text(json.dumps(config.to_dict()), encoding="utf-8")
    tiny.tokenizer_for(name).save(place)
    quick = ("--steps", 12, "--batch-size", 8, "--micro-batch", 4, "--threads", 1, "--held-out", 0.2, "--quiet")
    run("train", "--model", "config.json", "--corpus", "text.txt", "--out", "run", *quick)
    assert run("doctor", "run") and "parameters" in run("info", "--model", "config.json")
    assert config.name in run("plan", "--model", "config.json")
    model = tiny.tiny_model(name)
    assert (load_tokenizer("run").template().cls is None) == (NEXT_WORD in model.output_heads)  # it has never seen cls
    run("train", "--out", "run", "--resume", "--steps", 14, "--quiet")
    mask = tiny.tokenizer_for(name).mask_token
    if {MASKED_WORDS, REPLACED} & set(model.output_heads):  # an ELECTRA fills gaps with its generator
        assert "%" in run("fill-mask", f"the cat {mask} .", "--model", "run")
    else:
        run("fill-mask", "the cat [MASK] .", "--model", "run", fails="no head for masked words")
    if NEXT_WORD in model.output_heads:
        assert run("generate", "the cat", "--model", "run", "--tokens", 5).startswith("the cat")
    else:
        run("generate", "the cat", "--model", "run", fails="cannot write")
    assert "closest" in run("embed", TEXT, "a dog ran .", "--model", "run", "--pooling", "cls")
    measured = run(
        "eval", "run", "--corpus", "text.txt", "--text", TEXT, "--pairs", "pairs.jsonl", "--neighbours", "cat"
    )
    assert "unigram baseline" in measured and "minimal pair right" in measured and "nearest to cat" in measured
    assert json.loads(run("eval", "run", "--corpus", "text.txt", "--text", TEXT, "--json"))["results"]
    assert "Gradient × input" in run("attention", TEXT, "--model", "run", "--out", "page.html")
    assert run("attention", TEXT, "--model", "run", "--layer", 1, "--head", 2, "--no-relations", "--out", "head.svg")
    probed = run("probe", "pos", "--model", "run", "--max-sentences", 20, "--threads", 1)
    assert "random weights" in probed and ("reads forward" in probed) == (NEXT_WORD in model.output_heads)
    assert run("plot-model", "activations", "--model", "run", "--out", "activations.svg")
    assert run("plot-model", "embeddings", TEXT, "a dog", "it ran", "--model", "run", "--out", "plane.svg")
    run("export", "run", "--out", "exported")
    if REPLACED in model.output_heads:
        assert "%" in run("fill-mask", "the cat [MASK] .", "--model", "run/model/generator")
        assert "discriminator: loss" in run("eval", "run", "--corpus", "text.txt")
        assert "%" in run("fill-mask", "the cat [MASK] .", "--model", "exported/generator")
    assert "closest" in run("embed", TEXT, "a dog ran .", "--model", "exported")
    tune = ("--train", "labels.tsv", "--dev", "labels.tsv", "--epochs", 1, "--threads", 1)
    run("finetune", "classify", "--model", "run", "--out", "tuned", *tune)
    assert "pos" in run("predict", "tuned/model", "the film was good .")
    assert "log p(" in run("attention", TEXT, "--model", "tuned/model", "--no-relations")
