"""Adam: every weight gets a step of its own size, from the recent history of its gradient.

    m = β1 m + (1−β1) g              a running mean of the gradient: the direction, with the jitter averaged out
    v = β2 v + (1−β2) g²             a running mean of its square: how large it usually is
    m̂ = m / (1−β1ᵗ),  v̂ = v / (1−β2ᵗ)     both start at 0; this undoes the bias of the first steps
    w = w − lr (m̂ / (√v̂ + ε) + λ w)  λ: weight decay, for matrices only

(Kingma & Ba 2015, algorithm 1; decay outside the fraction as in Loshchilov & Hutter 2019, "AdamW".) m̂/√v̂ is
about ±1 whatever the scale of the gradient, so lr says how far a weight moves in one step.
"""

from __future__ import annotations

import math

import numpy as np

from mini_bert.layers.base import Flat


class Adam:
    """Updates `flat.data` from `flat.grad`, in place; weights that decay are the first `flat.decayed` numbers."""

    def __init__(
        self,
        flat: Flat,
        lr: float = 1e-3,
        beta1: float = 0.9,
        beta2: float = 0.999,
        eps: float = 1e-8,
        weight_decay: float = 0.01,
    ):
        self.flat = flat
        self.lr, self.beta1, self.beta2, self.eps, self.weight_decay = lr, beta1, beta2, eps, weight_decay
        self.m = np.zeros_like(flat.data)
        self.v = np.zeros_like(flat.data)
        self.t = 0

    def step(self, lr: float | None = None) -> None:
        """One update from the gradients as they stand; they are left as they are."""
        w, g, m, v = self.flat.data, self.flat.grad, self.m, self.v
        lr = self.lr if lr is None else lr
        self.t += 1
        m += (1 - self.beta1) * (g - m)
        v += (1 - self.beta2) * (g * g - v)
        m_hat = m / (1 - self.beta1**self.t)
        root = np.sqrt(v) / math.sqrt(1 - self.beta2**self.t)  # √v̂
        w[: self.flat.decayed] *= 1 - lr * self.weight_decay
        w -= lr * m_hat / (root + self.eps)
