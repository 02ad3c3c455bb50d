"""Heads and their parts, compared with the formulas written out again. Their gradients: layers/test_contract.py."""

from __future__ import annotations

import math

import numpy as np
import pytest

from mini_bert.checks.gradcheck import CASES
from mini_bert.finetuning.heads import (
    PairHead,
    SentenceHead,
    SpanHead,
    TokenHead,
    VectorHead,
    span_loss,
    span_loss_backward,
)
from mini_bert.layers.base import Run, bind
from mini_bert.layers.pooling import POOLING
from mini_bert.layers.similarity import contrastive, cosine, cosine_backward, squared_error

B, T, H, C = 3, 5, 7, 4
X = np.random.default_rng(0).normal(size=(B, T, H))
ASKED = np.array([[0, 1, 1, 1, 0], [0, 1, 0, 0, 0], [1, 0, 0, 1, 1]], bool)


def bound(head, seed=1):
    bind(head, dtype=np.float64, seed=seed)
    return head


def test_every_head_is_in_the_table_of_gradient_checks():
    names = {case.name for case in CASES}
    wanted = {
        "sentence head",
        "sentence head, dense",
        "pair head",
        "vector head",
        "token head",
        "span head",
        "span loss",
        "cosine",
    }
    assert wanted | {f"pooling, {name}" for name in POOLING} | {"contrastive", "squared error", "beside"} <= names


def test_pooling_looks_at_what_is_asked_and_at_nothing_else():
    changed = np.where(ASKED[:, :, None], X, 1e6)
    for b in range(B):
        rows = [X[b, t] for t in range(T) if ASKED[b, t]]
        mean = [sum(row[h] for row in rows) / len(rows) for h in range(H)]
        highest = [max(row[h] for row in rows) for h in range(H)]
        np.testing.assert_allclose(POOLING["mean"].forward(changed, ASKED)[0][b], mean, rtol=1e-9)
        np.testing.assert_array_equal(POOLING["max"].forward(changed, ASKED)[0][b], highest)
    np.testing.assert_array_equal(POOLING["cls"].forward(X, ASKED)[0], X[:, 0])


def test_a_sentence_head_is_its_formula():
    head = bound(SentenceHead(H, C, ("cls", "mean"), dense=True, p=0.0))
    y, _ = head.forward(X, Run(), asked=ASKED)
    params = {name: param.data for name, param in head.named_params().items()}
    for b in range(B):
        pooled = np.r_[X[b, 0], X[b][ASKED[b]].mean(0)]
        hidden = np.tanh(pooled @ params["dense.w"] + params["dense.b"])
        np.testing.assert_allclose(y[b], hidden @ params["linear.w"] + params["linear.b"], rtol=1e-10)


def test_a_pair_head_is_its_formula():
    first, second = np.array([[0, 1, 1, 0, 0]] * B, bool), np.array([[0, 0, 0, 1, 0]] * B, bool)
    head = bound(PairHead(H, C, ("mean",), p=0.0))
    y, _ = head.forward(X, Run(), asked=np.stack((first, second)))
    w, b = head.linear.w.data, head.linear.b.data
    for row, x in enumerate(X):
        u, v = (x[1] + x[2]) / 2, x[3]
        np.testing.assert_allclose(y[row], np.r_[u, v, abs(u - v), u * v] @ w + b, rtol=1e-10)


def test_vectors_stand_side_by_side():
    y, _ = VectorHead(("max", "cls")).forward(X, Run(), asked=ASKED)
    assert y.shape == (B, 2 * H)
    np.testing.assert_array_equal(y[:, H:], X[:, 0])
    with pytest.raises(ValueError, match="pooling is first, expected some of cls, mean, max"):
        VectorHead(("first",))


def test_heads_drop_only_while_training():
    rows = X.reshape(-1, H)
    head = bound(TokenHead(H, C, p=0.5))
    still, _ = head.forward(rows, Run())
    np.testing.assert_array_equal(still, head.forward(rows, Run(seed=5))[0])
    assert not np.allclose(still, head.forward(rows, Run(seed=5, train=True))[0])
    np.testing.assert_allclose(still, rows @ head.linear.w.data + head.linear.b.data)


def test_a_span_loss_is_the_mean_of_two_cross_entropies():
    """Positions that are not allowed have neither probability nor gradient."""
    logits, _ = bound(SpanHead(H)).forward(X, Run())
    assert logits.shape == (B, 2, T)
    targets = np.array([[1, 3], [1, 1], [0, 4]])
    loss, cache = span_loss(logits, targets, ASKED)
    wanted = 0.0
    for b in range(B):
        for side in range(2):
            scores = [math.exp(logits[b, side, t]) for t in range(T) if ASKED[b, t]]
            wanted -= math.log(math.exp(logits[b, side, targets[b, side]]) / sum(scores)) / (2 * B)
    assert loss == pytest.approx(wanted, rel=1e-10)
    gradient = span_loss_backward(1.0, cache)
    assert not gradient[~np.broadcast_to(ASKED[:, None], gradient.shape)].any() and gradient.any()
    half, _ = span_loss(logits[:1], targets[:1], ASKED[:1], count=B)
    rest, _ = span_loss(logits[1:], targets[1:], ASKED[1:], count=B)
    assert half + rest == pytest.approx(loss)


def test_cosines_and_their_losses():
    u, v = np.array([[3.0, 4.0], [1.0, 0.0], [0.0, 0.0]]), np.array([[4.0, 3.0], [-2.0, 0.0], [1.0, 2.0]])
    c, cache = cosine(u, v)
    np.testing.assert_allclose(c, [0.96, -1.0, 0.0])
    du, dv = cosine_backward(np.ones(3), cache)
    assert not du[2].any() and not dv[2].any()  # zeros have no direction: no cosine, no gradient, no division by zero
    np.testing.assert_allclose((du * u).sum(1), 0, atol=1e-12)  # along itself nothing changes
    loss, _ = squared_error(c, np.array([1.0, 0.0, 0.0]))
    assert loss == pytest.approx((0.04**2 + 1) / 3)
    with pytest.raises(ValueError, match=r"targets have shape \(2,\), expected \(3,\)"):
        squared_error(c, np.zeros(2))
    loss, _ = contrastive(np.array([0.9, 0.9, 0.2]), np.array([1.0, 0.0, 0.0]), margin=0.5)
    assert loss == pytest.approx((0.5 * 0.1**2 + 0.5 * 0.4**2 + 0) / 3)  # the third is far enough away
