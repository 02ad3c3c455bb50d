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

CHUNK = 32_768  # numbers at a time: all of a chunk's passes stay in the processor's cache, and scratch stays small


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
        if not isinstance(flat, Flat):
            raise TypeError(f"Adam works on a model's flat arrays: pass model.flat, not a {type(flat).__name__}")
        self.flat = flat
        self.lr, self.beta1, self.beta2, self.eps, self.weight_decay = lr, beta1, beta2, eps, weight_decay
        self.m = np.zeros_like(flat.data)
        self.v = np.zeros_like(flat.data)
        self.t = 0

    def step(self, lr: float | None = None) -> None:
        """One update from the gradients as they stand; they are left as they are."""
        lr = self.lr if lr is None else lr
        self.t += 1
        self.flat.data[: self.flat.decayed] *= 1 - lr * self.weight_decay
        step_size = lr / (1 - self.beta1**self.t)  # lr m̂ = step_size m
        root_scale = 1 / math.sqrt(1 - self.beta2**self.t)  # √v̂ = root_scale √v
        scratch = np.empty(min(CHUNK, self.m.size), self.m.dtype)
        for start in range(0, self.m.size, CHUNK):
            part = slice(start, start + CHUNK)
            w, g, m, v = self.flat.data[part], self.flat.grad[part], self.m[part], self.v[part]
            s = scratch[: m.size]
            np.subtract(g, m, out=s)
            s *= 1 - self.beta1
            m += s  # m + (1−β1)(g − m)
            np.multiply(g, g, out=s)
            s -= v
            s *= 1 - self.beta2
            v += s
            np.sqrt(v, out=s)
            s *= root_scale
            s += self.eps
            np.divide(m, s, out=s)
            s *= step_size
            w -= s
