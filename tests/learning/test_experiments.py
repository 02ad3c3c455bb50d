"""The script of page 6: its runs are all recorded, it goes on where it was stopped, and its faults do what they say."""

from __future__ import annotations

import importlib.util
import json
import sys
from dataclasses import replace

import numpy as np
import pytest

from mini_bert import MLMDataGenerator
from mini_bert.learning.course import PAGES
from mini_bert.tokenizer import WordPieceTokenizer


@pytest.fixture
def script(monkeypatch):
    spec = importlib.util.spec_from_file_location("course_experiments", PAGES / "experiments.py")
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def small(script, tmp_path, monkeypatch):
    """The script with a small text instead of the built-in corpus."""
    file = tmp_path / "small.txt"
    file.write_text("\n\n".join(f"the {a} cat sat on the {b} mat" for a in "xyzuvw" for b in "abcdefg"), newline="\n")
    words = WordPieceTokenizer.train(file, vocab_size=60, progress=False)

    def text(masked, seed, batch):
        return MLMDataGenerator(
            file, words, 16, batch, mask_prob=masked, seed=seed, held_out=0.2, mode="sentences", progress=False
        )

    monkeypatch.setattr(script, "text", text)
    monkeypatch.setattr(script, "VOCABULARY", len(words))
    script.log_frequencies.cache_clear()
    return script


def quick(script, **changes):
    return replace(script.BASE, width=16, heads=2, steps=6, batch=4, rate=0.05, **changes)


def test_every_run_of_the_page_is_recorded(script):
    """learn/experiments.jsonl has a result for each run of each experiment, and nothing else."""
    results = script.read(PAGES / "experiments.jsonl")
    assert set(results) == {script.key(run) for runs in script.EXPERIMENTS.values() for run in runs}
    assert set(script.EXPERIMENTS) == set(script.SHOWN)
    page = (PAGES / "6_experiments.md").read_text(encoding="utf-8")
    for name in script.EXPERIMENTS:
        assert f'show("{name}")' in page and script.table(name, results) in page


def test_a_run_is_repeatable_and_measured(small):
    """The same settings give the same numbers, another seed others."""
    first, again, other = (small.train(quick(small, seed=seed)) for seed in (0, 0, 1))
    timeless = [{name: value for name, value in one.items() if name != "seconds"} for one in (first, again, other)]
    assert timeless[0] == timeless[1] != timeless[2]
    assert 0 < first["loss"] < 6 and 0 <= first["top1"] <= 1 and -1 <= first["alike"] <= 1
    assert small.baseline() < np.log(small.VOCABULARY)


def test_faults_do_what_they_say(small):
    """Positions stay 0; one gradient is turned round; frozen blocks have no gradient; scores are not divided by √d."""
    model = small.build(quick(small))
    model.flat.grad[...] = 1
    small.wrong_sign(model)
    assert (model.flat.grad < 0).sum() == model.encoder.blocks[-1].feed_forward.expand.w.size
    small.embeddings_only(model)
    trained = {name.split(".")[0] for name, param in model.named_params().items() if param.grad.any()}
    assert trained == {"tokens", "positions", "final_norm", "head"}
    small.no_positions(model)
    assert not model.positions.table.data.any() and not model.positions.table.grad.any()
    without = small.build(quick(small, fault=small.NO_ROOT))
    assert all(block.attention.scale == 1 for block in without.encoder.blocks)
    normal = small.train(quick(small))["training_loss"]
    for fault in (small.SHIFTED, small.NOT_CLEARED):
        assert small.train(quick(small, fault=fault))["training_loss"] != normal


def test_a_random_start_attends_to_no_neighbour(small):
    ids = np.random.default_rng(0).integers(5, small.VOCABULARY, (3, 32))
    shares = {}
    for start in ("neighbours", "random"):
        _, cache = small.build(replace(small.BASE, start=start)).encode(ids)
        shares[start] = np.diagonal(cache["attention_weights_0"][:, 0], -1, axis1=1, axis2=2).mean()
    assert shares["neighbours"] > 0.5 > 0.1 > shares["random"]


def test_it_goes_on_where_it_was_stopped(script, tmp_path, monkeypatch, capsys):
    """A recorded run is not repeated; a line that was cut off is; another experiment's runs are shared."""
    trained = []

    def train(run):
        trained.append(run)
        return {"parameters": 7, "training_loss": 2.0, "loss": 1.0 + run.seed, "top1": 0.5, "alike": 0.1}

    monkeypatch.setattr(script, "train", train)
    out = tmp_path / "new" / "results.jsonl"
    for names in (["depth"], ["depth"], ["heads"]):
        monkeypatch.setattr(sys, "argv", ["experiments.py", *names, "--results", str(out)])
        script.main()
    assert len(trained) == len(set(trained)) == 6 + 10 - 2  # BASE with two seeds is in both
    lines = out.read_text().splitlines()
    out.write_text("\n".join([*lines[:-1], lines[-1][:20]]))
    script.main()
    assert trained[-1] == script.Run(**json.loads(lines[-1])["run"]) and len(trained) == 15
    assert "1.50    1.00, 2.00" in capsys.readouterr().out  # the mean of two seeds
    monkeypatch.setattr(sys, "argv", ["experiments.py", "nonsense"])
    with pytest.raises(SystemExit):
        script.main()
    assert "there is no experiment 'nonsense'; choose from heads" in capsys.readouterr().err
