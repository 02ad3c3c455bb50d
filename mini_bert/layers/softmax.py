"""Softmax: turn any numbers into probabilities. The largest gets the most, all are positive, they sum to 1.

    p_i = exp(x_i) / Σ_j exp(x_j)

Adding a constant to all x changes nothing, so we subtract the largest first: exp then never overflows. Where all x are
moderate it need not be looked for in every row, which would take as long as a third of the whole.

Backward. Raising x_j raises p_j and, because of the shared sum, lowers all others: ∂p_i/∂x_j = p_i (δ_ij − p_j).
Summed over the outputs,

    dx_j = Σ_i dp_i p_i (δ_ij − p_j) = p_j (dp_j − Σ_i p_i dp_i)

In words: only what is better or worse than the average (under p) makes a difference; dx sums to 0.
"""

import numpy as np

from mini_bert.layers.matrices import dot, total

SAFE = 60.0  # exp(±60) and sums of it are far from the ends of float32


def softmax(x):
    """p = exp(x − max x) / Σ exp(x − max x), over the last axis -> (p, p)"""
    if x.size and x.min() > -SAFE and x.max() < SAFE:  # nothing can overflow or vanish
        p = np.exp(x)
    else:
        p = x - x.max(-1, keepdims=True)
        np.exp(p, out=p)
    p *= 1 / total(p)
    return p, p


def softmax_backward(dp, p):
    """dx = p ⊙ (dp − Σ p ⊙ dp)"""
    dx = dp - dot(p, dp)
    dx *= p
    return dx


if __name__ == "__main__":
    x = np.array([1.0, 0.5, 3.0, 0.2])
    p, cache = softmax(x)
    print("scores       ", x)
    print("probabilities", p.round(3), " sum", p.sum().round(12))
    print(
        "slope of p[2]",
        softmax_backward(np.array([0.0, 0, 1, 0]), cache).round(3),
        " in every score; they sum to 0",
    )
