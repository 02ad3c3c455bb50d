"""Rotary positions: turn queries and keys by an angle that grows with their position. No table, nothing to learn.

Split the d coordinates of a head into d/2 pairs, coordinate i with i + d/2. At position t, pair i is rotated by t ω_i:

    a' = a cos(t ω_i) − b sin(t ω_i)
    b' = b cos(t ω_i) + a sin(t ω_i)            ω_i = θ^(−2i/d)

For all pairs at once, q' = R_t q with a rotation matrix R_t. Rotations satisfy R_sᵀ R_t = R_{t−s}, so the score of a
query at t and a key at s is

    q'ᵀ k' = qᵀ R_tᵀ R_s k = qᵀ R_{s−t} k

It depends on the distance s − t only: the same pair of words gives the same score anywhere in a text. In BERT, where
positions are added to the word vectors, this must be learnt. The first pair turns by one radian per token and tells
neighbours apart; the last one hardly turns, and tells near from far. A larger θ gives slower pairs, for longer texts.
(Su et al. 2021, "RoFormer", eq. 16. There, pairs are neighbouring coordinates; published models use halves.)

Backward. y = R x, so dx = Rᵀ dy, and the transpose of a rotation is the rotation by the opposite angle. The same
function with −sin instead of sin.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from mini_bert.layers.base import Run, bind
from mini_bert.layers.efficient_attention import ChosenCache, EfficientAttention
from mini_bert.layers.operation import operation


@lru_cache(64)
def waves(theta: float, d: int, length: int, dtype: Any) -> tuple[np.ndarray, np.ndarray]:
    """cos(t ω_i) and sin(t ω_i) for t < length        (T,d/2) each

    The angles are float64: at position 8,000, float32 would be wrong by up to 0.0005.
    """
    angles = np.arange(length)[:, None] * theta ** (-2 * np.arange(d // 2) / d)
    return np.cos(angles).astype(dtype), np.sin(angles).astype(dtype)


def rotate(x, cos, sin) -> None:
    """a' = a cos − b sin,   b' = b cos + a sin, in place.        x (B,A,T,d); cos, sin broadcast to (B,A,T,d/2)"""
    half = x.shape[-1] // 2
    a, b = x[..., :half], x[..., half:]
    turned = a * cos
    turned -= b * sin
    b *= cos
    b += a * sin
    a[...] = turned


class RotaryAttention(EfficientAttention):
    """S = (R q) (R k)ᵀ / √d        dq = Rᵀ d(R q),   dk = Rᵀ d(R k)"""

    def __init__(
        self, width: int, heads: int, theta: float, bias: bool = True, p: float = 0.0, std: float | None = None
    ):
        super().__init__(width, heads, bias, p, std)
        if width // heads % 2:
            raise ValueError(f"rotary positions need heads of even width, but {width} / {heads} = {width // heads}")
        self.theta = theta

    @operation
    def before_scores(self, q, k, v, tokens=None):
        self._rotate(q, k, tokens, 1)
        return q, k, v

    def before_scores_backward(self, dq, dk, dv, cache):
        self._rotate(dq, dk, cache.layout.token if isinstance(cache, ChosenCache) else None, -1)
        return dq, dk, dv

    def _rotate(self, q, k, tokens, direction: int) -> None:
        """Both in place; keys are at 0, 1, 2, …, and queries at `tokens` or there as well."""
        cos, sin = waves(self.theta, k.shape[3], k.shape[2], k.dtype)
        sin = direction * sin
        rotate(k, cos, sin)
        if tokens is None:
            rotate(q, cos, sin)
        else:
            rotate(q, cos[tokens][:, None], sin[tokens][:, None])  # (B,1,M,d/2)


if __name__ == "__main__":
    rng = np.random.default_rng(0)
    q, k = np.broadcast_to(rng.normal(size=(2, 1, 1, 1, 8)), (2, 1, 1, 7, 8)).copy()  # the same two words everywhere
    cos, sin = waves(10_000.0, 8, 7, np.float64)
    rotate(q, cos, sin)
    rotate(k, cos, sin)
    print("scores of one query and one key at seven positions: equal along every diagonal")
    print((q @ k.swapaxes(-1, -2))[0, 0].round(2))
    layer = RotaryAttention(8, heads=2, theta=10_000.0)
    bind(layer, seed=0)
    x = rng.normal(size=(1, 5, 8)).astype(np.float32)
    y, cache = layer.forward(x, Run())
    print("x", x.shape, "-> y", y.shape, "-> dx", layer.backward(np.ones_like(y), cache, Run()).shape)
