"""Dropout: while training, set a random share p of the numbers to zero, so that no feature can be relied on alone.

    y = x ⊙ m          m = 0 with probability p, else 1/(1−p)

The factor 1/(1−p) keeps the expected value of y equal to x, so that at inference dropout is simply absent.
(Srivastava et al. 2014.)

Backward. y is x times a constant, element by element: dx = dy ⊙ m, with the very mask of the forward pass.
"""

import numpy as np

from mini_bert.layers.base import Run


def dropout(x, p: float, run: Run):
    """y = x ⊙ m in training, y = x otherwise -> (y, m)"""
    if not run.train or p == 0:
        return x, None
    keep = run.rng.random(x.shape, np.float32) >= p  # float32 draws in either dtype: the same mask for both
    mask = keep.astype(x.dtype) / (1 - p)
    return x * mask, mask


def dropout_backward(dy, mask):
    """dx = dy ⊙ m"""
    return dy if mask is None else dy * mask


if __name__ == "__main__":
    x = np.ones((2, 8), np.float32)
    print("training, p = 0.25:\n", dropout(x, 0.25, Run(seed=0, train=True))[0].round(3))
    print("inference:\n", dropout(x, 0.25, Run())[0])
    many = dropout(np.ones(100_000, np.float32), 0.25, Run(train=True))[0]
    print(f"the mean of 100,000 dropped ones is still {many.mean():.3f}")
