"""Objectives whose loss has parts of several models, for `mini-bert gradcheck`: distillation, and a pair of models."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mini_bert.checks.gradients import Checked, gradient_check
from mini_bert.layers.base import Run
from mini_bert.models.base import MASKED_WORDS, REPLACED
from mini_bert.objectives.distillation import WEIGHTS, Distillation
from mini_bert.objectives.masked_words import Batch
from mini_bert.objectives.replaced_tokens import WEIGHT, ReplacedTokens
from mini_bert.objectives.replaced_tokens import Batch as FilledBatch

ENTRIES = 16  # of each tensor: a finite difference needs two passes through both models


def distilled(student: Any, teacher: Any) -> Callable[[], list[Checked]]:
    """(2 · masked words + 5 · soft targets + 1 · vectors) / 8, with respect to the student's weights"""

    def check() -> list[Checked]:
        own = student()
        objective, (ids, rows, targets) = Distillation(None, teacher()), _masked(own.vocab_size)
        return _check(own, objective, Batch(ids, rows, targets), WEIGHTS)

    return check


def pair(build: Any) -> Callable[[], list[Checked]]:
    """Generator and discriminator, whose token and position tables get both gradients. Words are drawn with the same
    random numbers every time, so a small change of the generator's weights draws the same words."""

    def check() -> list[Checked]:
        model = build()
        ids, rows, targets = _masked(model.vocab_size)
        batch = FilledBatch(ids, rows, targets, keys=np.arange(len(ids), dtype=np.uint64))
        return _check(model, ReplacedTokens(), batch, {MASKED_WORDS: 1.0, REPLACED: WEIGHT})

    return check


def _masked(words: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Two sequences of five tokens, four of which are predicted"""
    rng = np.random.default_rng(0)
    return rng.permutation(words)[:10].reshape(2, 5), np.array([1, 3, 4, 7]), rng.integers(0, words, 4)


def _check(model: Any, objective: Any, batch: Any, weights: dict[str, float]) -> list[Checked]:
    count = objective.size(batch).targets

    def loss() -> float:
        parts = objective.loss(model, batch, Run(0, train=True), count)
        return sum(weights[name] * part.loss for name, part in parts.items())

    model.zero_grad()
    loss()
    params = model.named_params()
    gradients = {name: param.grad.copy() for name, param in params.items()}
    return gradient_check(loss, {name: param.data for name, param in params.items()}, gradients, ENTRIES)
