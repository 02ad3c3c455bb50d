"""The architectures that benchmarks/variants.py compares are right: every gradient, and what a folder keeps of them.
Benchmarks go on after a run that diverged, but not after a command that failed."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mini_bert.checks.gradcheck import check_model
from mini_bert.data import batches
from mini_bert.data.order import Order
from mini_bert.layers.base import Run
from mini_bert.objectives.base import Rows
from mini_bert.objectives.masking import Masking

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import bundled
import recipes
import variants

SIZES = {"vocab_size": 31, "hidden_size": 8, "num_attention_heads": 2, "intermediate_size": 12, "num_hidden_layers": 2,
         "max_position_embeddings": 7}  # fmt: skip


@pytest.mark.parametrize("name", variants.variants())
def test_every_gradient(name):
    model = variants.Variant(replace(variants.variants()[name], **SIZES), dtype=np.float64)
    model.flat.data[:] += np.random.default_rng(1).normal(0, 0.1, model.flat.data.shape)  # zeros have no gradients
    rng = np.random.default_rng(0)
    ids, chosen, targets = rng.integers(5, 31, (2, 5)), np.array([1, 3, 6]), rng.integers(5, 31, 3)
    results = check_model(model, lambda: model.loss(ids, chosen, targets, run=Run(0, train=True)), 4)
    assert all(result.error < 1e-6 for result in results), [result for result in results if result.error >= 1e-6]


def test_each_has_the_parts_that_its_name_says():
    """And about as many weights as the others."""
    counts, parts = {}, {}
    for name, config in variants.variants().items():
        model = variants.Variant(config, seed=None)
        counts[name], parts[name] = model.get_parameter_count(), set(model.named_params())
    assert max(counts.values()) < 1.01 * min(counts.values()), counts
    assert "positions.table" in parts["pre-norm"] and "positions.table" not in parts["rotary"]
    assert "final_norm.gamma" in parts["pre-norm"] and "final_norm.gamma" not in parts["post-norm"]
    biases = [name for name in parts["no-bias"] if name.endswith((".b", ".beta")) and name.startswith("encoder.")]
    assert not biases and "encoder.blocks.0.attention.qkv.b" in parts["gated"]
    zero = variants.Variant(variants.variants()["zero"]).named_params()
    assert not zero["encoder.blocks.1.attention.output.w"].data.any()


def test_hidden_words_are_never_seen():
    ids, keys = np.tile(np.arange(5, 69), (64, 1)), np.arange(64, dtype=np.uint64)
    batch = variants.HiddenWords(Masking(500, 4, range(5))).batch(Rows(ids), keys)
    shown = batch.input_ids.ravel()[batch.rows]
    assert (shown == batch.targets).mean() < 0.01  # a random word can be the right one
    assert 0.85 < (shown == 4).mean() < 0.95


def test_the_order_of_the_text(monkeypatch):
    """Training sequences come one after the other, in every epoch; what is held out is drawn as always."""
    monkeypatch.setattr(batches, "Order", Order)
    assert variants.with_order(["train", "--order", "backwards", "--quiet"]) == ["train", "--quiet"]
    assert [batches.Order(7, 3).batch(k)[1].tolist() for k in range(3)] == [[6, 5, 4], [3, 2, 1], [0, 6, 5]]
    variants.with_order(["--order", "text"])
    assert [batches.Order(7, 3).batch(k)[1].tolist() for k in range(3)] == [[0, 1, 2], [3, 4, 5], [6, 0, 1]]
    held_out = [list(one.once()) for one in (batches.Order(7, 3, 0, True), Order(7, 3, 0, True))]
    np.testing.assert_equal(*held_out)
    assert variants.with_order(["train"]) == ["train"]


@pytest.mark.parametrize(
    ("reason", "model", "diverged"),
    [("nonfinite", False, True), ("diverged", False, True), ("done", False, True), ("done", True, False),
     ("interrupted", False, False), (None, False, False)],
)  # fmt: skip
def test_a_run_without_a_model_has_diverged_if_it_has_ended(tmp_path, reason, model, diverged):
    """Then its row says so, and the next one begins. One that was stopped, or failed before it began, has not ended."""
    if reason:
        (tmp_path / "metrics.jsonl").write_text(json.dumps({"kind": "stop", "reason": reason}))
    if model:
        (tmp_path / "model").mkdir()
    assert recipes.diverged(tmp_path) == diverged


def test_a_command_that_fails_ends_the_benchmark(monkeypatch, tmp_path):
    """Hours of other commands do not begin first."""
    begun = []

    def fails(*_):
        raise SystemExit("this command failed")

    def works(*words):
        begun.append(words)
        time.sleep(0.2)

    monkeypatch.setattr(bundled, "probe", fails)
    monkeypatch.setattr(bundled, "measure", works)
    monkeypatch.setattr(bundled, "fine_tune", works)
    monkeypatch.setattr(sys, "argv", ["bundled.py", "--data", str(tmp_path), "--results", str(tmp_path), "--jobs", "1"])
    with pytest.raises(SystemExit, match="this command failed"):
        bundled.main()
    assert len(begun) <= len(bundled.WAYS) + 1
