"""The one-minute tour: build Mini-BERT, look at it, take one step, and check the mathematics.

python checks/simple_test.py          in this folder, or   mini-bert simple-test   anywhere
"""

from __future__ import annotations

import math

import numpy as np

from mini_bert.checks.gradcheck import check_model
from mini_bert.checks.gradients import TOLERANCE
from mini_bert.models.mini_bert import MiniBERT
from mini_bert.training.optim import Adam
from mini_bert.training.plan import Choice, describe, predicted_peak


def main() -> int:
    """Try every part once -> exit code: 0 if all is well, else 1."""
    failures = []

    def report(part: str, ok: bool, text: str) -> None:
        print(f"[{'OK' if ok else 'FAILED'}] {part}: {text}", flush=True)
        if not ok:
            failures.append(part)

    print("Testing Mini-BERT components...")
    model = MiniBERT()
    config = model.config
    report(
        "Config",
        (config.num_layers, config.hidden_size) == (3, 192),
        f"L={config.num_layers}, H={config.hidden_size}",
    )

    count = model.get_parameter_count()
    report("Model", count == 4_498_880, f"{count:,} parameters")

    rng = np.random.default_rng(0)
    ids = rng.integers(5, config.vocab_size, (2, 8))
    logits, cache = model.forward(ids)
    report("Forward", logits.shape == (2, 8, config.vocab_size), f"{ids.shape} -> {logits.shape}")
    del cache

    rows, targets = np.arange(ids.size), ids.ravel()
    loss, cache = model.loss(ids, rows, targets)
    nothing = math.log(config.vocab_size)
    report(
        "Loss",
        abs(loss - nothing) < 0.2,
        f"{loss:.2f} (knowing nothing costs ln {config.vocab_size} = {nothing:.2f})",
    )

    dx = model.loss_backward(cache)
    finite = bool(np.isfinite(model.flat.grad).all())
    report("Backward", finite and dx.shape == (2, 8, config.hidden_size), f"gradient shape {dx.shape}")

    before = model.flat.data.copy()
    Adam(model.flat, lr=1e-3).step()
    change = float(np.linalg.norm(model.flat.data - before))
    after, _ = model.loss(ids, rows, targets)
    report("Optimizer", after < loss, f"param change = {change:.3f}, loss {loss:.2f} -> {after:.2f}")

    megabytes = predicted_peak(describe(config), Choice(micro_batch=8, threads=2)) / 1e6
    report("Memory", megabytes < 200, f"{megabytes:.1f} MB to train on two threads, 8 sequences at once in each")

    exact = MiniBERT(dtype=np.float64)
    results = check_model(exact, lambda: exact.loss(ids, rows[::3], targets[::3]), entries=4)
    passed = sum(row.passed() for row in results)
    worst = max(row.error for row in results)
    report(
        "Gradient check",
        passed == len(results),
        f"{passed}/{len(results)} tensors passed (worst rel_error: {worst:.2e}, allowed {TOLERANCE:.0e})",
    )

    print(f"\n[FAILED] {', '.join(failures)}" if failures else "\n[SUCCESS] Ready for training!")
    return 1 if failures else 0
