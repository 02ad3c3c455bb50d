"""A one-minute tour: build Mini-BERT, run each of its parts once, and check its gradients.

Run it with `mini-bert simple-test`, or `python simple_test.py` in the folder mini_bert/.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from mini_bert.checks.gradcheck import check_model
from mini_bert.checks.gradients import TOLERANCE
from mini_bert.models.mini_bert import MiniBERT
from mini_bert.training.optim import Adam
from mini_bert.training.plan import Choice, describe, predicted_peak


class Tested(NamedTuple):
    part: str
    passed: bool
    text: str


def tour() -> Iterator[Tested]:
    """Test each part in turn."""
    model = MiniBERT()
    config = model.config
    L, H, V = config.num_layers, config.hidden_size, config.vocab_size
    yield Tested("Config", (L, H) == (3, 192), f"L={L}, H={H}")

    count = model.get_parameter_count()
    yield Tested("Model", count == 4_498_880, f"{count:,} parameters")

    ids = np.random.default_rng(0).integers(5, V, (2, 8))
    logits, cache = model.forward(ids)
    yield Tested("Forward", logits.shape == (2, 8, V), f"{ids.shape} -> {logits.shape}")
    del cache

    rows, targets = np.arange(ids.size), ids.ravel()
    loss, cache = model.loss(ids, rows, targets)
    uniform = math.log(V)
    yield Tested("Loss", abs(loss - uniform) < 0.2, f"{loss:.2f} (a uniform guess has ln {V} = {uniform:.2f})")

    dx = model.loss_backward(cache)
    finite = bool(np.isfinite(model.flat.grad).all())
    yield Tested("Backward", finite and dx.shape == (2, 8, H), f"gradient shape {dx.shape}")

    before = model.flat.data.copy()
    Adam(model.flat, lr=1e-3).step()
    change = float(np.linalg.norm(model.flat.data - before))
    after, _ = model.loss(ids, rows, targets)
    yield Tested("Optimizer", after < loss, f"param change = {change:.3f}, loss {loss:.2f} -> {after:.2f}")

    megabytes = predicted_peak(describe(config), Choice(micro_batch=8, threads=2)) / 1e6
    yield Tested("Memory", megabytes < 200, f"{megabytes:.1f} MB to train with two threads, 8 sequences each")

    exact = MiniBERT(dtype=np.float64)
    results = check_model(exact, lambda: exact.loss(ids, rows[::3], targets[::3]), entries=4)
    passed, worst = sum(row.passed() for row in results), max(row.error for row in results)
    yield Tested(
        "Gradient check",
        passed == len(results),
        f"{passed}/{len(results)} tensors passed (worst rel_error: {worst:.2e}, allowed {TOLERANCE:.0e})",
    )
