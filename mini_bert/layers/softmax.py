"""Softmax: turn any numbers into probabilities, which are positive and sum to 1. Larger numbers get more.

    p_i = exp(x_i) / Σ_j exp(x_j)

Adding a constant to all x changes nothing, so we subtract the maximum first, and exp cannot overflow. If all x are
moderate this is skipped: finding the maximum of every row would take a third of the total time.

Backward. Raising x_j raises p_j and, through the shared sum, lowers all others: ∂p_i/∂x_j = p_i (δ_ij − p_j). Summed
over the outputs:

    dx_j = Σ_i dp_i p_i (δ_ij − p_j) = p_j (dp_j − Σ_i p_i dp_i)

Only the difference of dp_j from its average under p matters, and dx sums to 0.
"""

import numpy as np

from mini_bert.layers.matrices import dot, total
from mini_bert.layers.operation import operation

SAFE = 60.0  # exp(±60), and sums of it, are well within the range of float32


@operation
def softmax(x):
    """p = exp(x) / Σ exp(x), over the last axis. Returns p, and p again as the cache."""
    if x.size and x.min() > -SAFE and x.max() < SAFE:  # exp cannot overflow or underflow
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
    slopes = softmax_backward(np.array([0.0, 0, 1, 0]), cache)
    print("∂p[2]/∂score ", slopes.round(3), " sum", slopes.sum().round(12) + 0.0)
