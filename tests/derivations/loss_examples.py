"""The examples of losses.md and optimiser.md, computed by the library."""

from __future__ import annotations

import numpy as np

from mini_bert.checks.gradients import clip
from mini_bert.finetuning.heads import span_loss, span_loss_backward
from mini_bert.layers.adaptive_softmax import AdaptiveSoftmax
from mini_bert.layers.base import Flat, Run
from mini_bert.layers.cross_entropy import cross_entropy, cross_entropy_backward
from mini_bert.layers.similarity import (
    beside,
    beside_backward,
    contrastive,
    contrastive_backward,
    cosine,
    cosine_backward,
    squared_error,
    squared_error_backward,
    views,
    views_backward,
)
from mini_bert.layers.soft_cross_entropy import soft_cross_entropy, soft_cross_entropy_backward
from mini_bert.objectives.distillation import HIDDEN_STATES, MASKED_WORDS, SOFT_TARGETS, WEIGHTS
from mini_bert.training.optim import Adam, lr_schedule
from tests.derivations.compute import with_weights


def cross(x, targets):
    loss, cache = cross_entropy(x, targets.astype(int) - 1)
    return {"p": cache.probs, "loss": loss, "dx": cross_entropy_backward(1.0, cache)}


def yes_or_no(z, labels):
    """As Model.score does it: the scores of a row are [0, z]."""
    loss, cache = cross_entropy(np.pad(z[:, None], ((0, 0), (1, 0))), labels.astype(int))
    return {"σ": cache.probs[:, 1], "loss": loss, "dz": cross_entropy_backward(1.0, cache)[:, 1]}


def soft(x, t, τ):
    loss, cache = soft_cross_entropy(x, t, τ)
    return {"p": cache.p, "q": cache.q, "loss": loss, "dx": soft_cross_entropy_backward(1.0, cache)}


def adaptive(x, E, C, targets):
    layer = with_weights(AdaptiveSoftmax(3, 2, 2, (1,)), tables_0=E, clusters=C[None])
    targets = targets.astype(int) - 1
    log_p, _ = layer.forward(x, Run())
    loss, cache = layer.loss(x, targets, None, Run())
    np.testing.assert_allclose(loss, -log_p[[0, 1], targets].mean())
    dz_head = cross_entropy_backward(1.0, cache.head)
    dz_tail = cross_entropy_backward(1.0, cache.tails[0].entropy)[0]  # only the second row is in the cluster
    dx = layer.loss_backward(1.0, cache, Run())
    return {
        "p": np.exp(log_p), "loss": loss, "dz_head": dz_head, "dz_tail": dz_tail, "dE": layer.tables[0].grad,
        "dC": layer.clusters.grad[0], "dx": dx,
    }  # fmt: skip


def span(x, allowed, targets):
    loss, cache = span_loss(x[None], targets.astype(int)[None] - 1, allowed[None] == 1)
    return {"p": cache.entropy.probs, "loss": loss, "dx": span_loss_backward(1.0, cache)[0]}


def squared(y, target):
    loss, cache = squared_error(y, target)
    return {"loss": loss, "dy": squared_error_backward(1.0, cache)}


def cosines(u, v, dc):
    c, cache = cosine(u, v)
    du, dv = cosine_backward(dc, cache)
    return {"c": c, "du": du, "dv": dv}


def side_by_side(u, v, dy):
    y, cache = beside(u[None], v[None])
    du, dv = beside_backward(dy[None], cache)
    return {"y": y[0], "du": du[0], "dv": dv[0]}


def contrast(c, s, m):
    loss, cache = contrastive(c, s, margin=m)
    return {"loss": loss, "dc": contrastive_backward(1.0, cache)}


def two_views(u, v, τ):
    loss, cache = views(u, v, temperature=τ)
    du, dv = views_backward(1.0, cache)
    return {"p": cache[4].probs, "loss": loss, "du": du, "dv": dv}


def distillation(x, t, targets, u, v):
    """The sums that Distillation.loss computes, without a model"""
    words, word_cache = cross_entropy(x, targets.astype(int) - 1)
    soft, soft_cache = soft_cross_entropy(x, t, 2.0)
    c, angle = cosine(u, v)
    dx = cross_entropy_backward(WEIGHTS[MASKED_WORDS], word_cache)
    dx += soft_cross_entropy_backward(WEIGHTS[SOFT_TARGETS], soft_cache)
    du, _ = cosine_backward(np.full(2, -WEIGHTS[HIDDEN_STATES] / 2), angle)
    loss = WEIGHTS[MASKED_WORDS] * words + WEIGHTS[SOFT_TARGETS] * soft + WEIGHTS[HIDDEN_STATES] * (1 - c).mean()
    return {"loss": loss, "dx": dx, "du": du}


def adam(w, g, g_next, lr, β1, β2, ε, λ):
    data, grad = w.ravel().copy(), g.ravel().copy()
    optimiser = Adam(Flat(data, grad, data.size), lr, β1, β2, ε, λ)
    optimiser.step()
    found = {"m": optimiser.m.copy(), "v": optimiser.v.copy(), "w_new": data.copy()}
    grad[...] = g_next.ravel()
    optimiser.step()
    found |= {"m_next": optimiser.m, "v_next": optimiser.v, "w_next": data}
    return {name: array.reshape(w.shape) for name, array in found.items()}


def clipping(g, limit):
    flat = g.ravel().copy()
    norm = clip(flat, limit)
    return {"norm": norm, "g_new": flat.reshape(g.shape)}


def schedule(progress, warmup, lr):
    return {"rate": lr * np.array([lr_schedule(float(part), warmup) for part in progress])}


EXAMPLES = {
    "Cross-entropy": cross,
    "Yes or no": yes_or_no,
    "Soft cross-entropy": soft,
    "Adaptive softmax": adaptive,
    "Loss of an answer's place": span,
    "Squared error": squared,
    "Cosine": cosines,
    "Two vectors side by side": side_by_side,
    "Contrastive loss": contrast,
    "Loss of views": two_views,
    "Distillation": distillation,
    "Adam": adam,
    "Clipping": clipping,
    "Learning rate": schedule,
}
