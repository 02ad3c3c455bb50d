"""Similarity of two vectors, and losses that train it.

    cosine              c = u·v / (|u| |v|)                        1: same direction, 0: orthogonal
    beside each other   y = [u, v, |u − v|, u ∘ v]                 lets a linear layer compare coordinates
    squared error       loss = 1/N Σ (y − target)²                 for scores or cosines
    contrastive         loss = 1/N Σ ½ s d² + ½ (1−s) max(0, m−d)²     d = 1 − c

The contrastive loss (Hadsell, Chopra & LeCun 2006; with cosines as in Sentence-BERT, Reimers & Gurevych 2019) pulls
similar pairs together (s = 1) and pushes others apart (s = 0) until their distance is m. An s between 0 and 1 mixes
both.

Backward. With û = u/|u| and v̂ = v/|v|, c = û·v̂. Scaling u does not change c, so only the part of v̂ orthogonal to û
matters:

    du = dc (v̂ − c û) / |u|            dv = dc (û − c v̂) / |v|

    beside              du = dy₁ + sign(u − v) dy₃ + v ∘ dy₄,   dv = dy₂ − sign(u − v) dy₃ + u ∘ dy₄
    squared error       dy = 2 (y − target) / N
    contrastive         dc = −dd,   dd = (s d − (1−s) max(0, m−d)) / N
"""

from __future__ import annotations

import math

import numpy as np

from mini_bert.layers.matrices import dot

MARGIN = 0.5  # the distance beyond which dissimilar pairs have no loss


def cosine(u, v):
    """c = û·v̂        u, v (B,H), c (B,);  for a vector of zeros, c and the gradients are 0"""
    lengths = [np.sqrt(dot(x, x)) for x in (u, v)]  # (B,1)
    unit_u, unit_v = (np.divide(x, n, out=np.zeros_like(x), where=n > 0) for x, n in zip((u, v), lengths, strict=True))
    c = dot(unit_u, unit_v)
    return c[:, 0], (unit_u, unit_v, *lengths, c)


def cosine_backward(dc, cache):
    """du = dc (v̂ − c û) / |u|,   dv = dc (û − c v̂) / |v|"""
    u, v, n_u, n_v, c = cache
    dc = dc[:, None]
    du = np.divide(dc * (v - c * u), n_u, out=np.zeros_like(u), where=n_u > 0)
    dv = np.divide(dc * (u - c * v), n_v, out=np.zeros_like(v), where=n_v > 0)
    return du, dv


def beside(u, v):
    """y = [u, v, |u − v|, u ∘ v]        u, v (B,H), y (B,4H)

    A linear function of u and v cannot measure their similarity; a linear function of these can (Conneau et al. 2017,
    InferSent).
    """
    difference = u - v
    return np.concatenate((u, v, np.abs(difference), u * v), -1), (u, v, np.sign(difference))


def beside_backward(dy, cache):
    """du = dy₁ + sign(u − v) dy₃ + v ∘ dy₄,   dv = dy₂ − sign(u − v) dy₃ + u ∘ dy₄"""
    u, v, sign = cache
    du, dv, d_apart, d_product = np.split(dy, 4, -1)
    return du + sign * d_apart + v * d_product, dv - sign * d_apart + u * d_product


def squared_error(y, targets, count: float | None = None):
    """loss = Σ (y − target)² / count        y, targets (N,); count: N by default, see cross_entropy"""
    if y.shape != targets.shape:
        raise ValueError(f"targets have shape {targets.shape}, expected {y.shape}, the shape of the values")
    count = len(y) if count is None else count
    difference = y - targets.astype(y.dtype)
    return (difference * difference).sum() / count, (difference, count)


def squared_error_backward(dloss: float, cache):
    """dy = 2 (y − target) dloss / count"""
    difference, count = cache
    return difference * (2 * float(dloss) / count)


def contrastive(cosines, alike, count: float | None = None, margin: float = MARGIN):
    """loss = Σ (½ s d² + ½ (1−s) max(0, m−d)²) / count,   d = 1 − c        cosines: c (N,), alike: s (N,)"""
    count = len(cosines) if count is None else count
    alike = alike.astype(cosines.dtype)
    distance = 1 - cosines
    short = np.clip(margin - distance, 0, math.inf)  # max(0, m−d)
    loss = 0.5 * (alike * distance * distance + (1 - alike) * short * short).sum() / count
    return loss, (alike, distance, short, count)


def contrastive_backward(dloss: float, cache):
    """dc = −(s d − (1−s) max(0, m−d)) dloss / count"""
    alike, distance, short, count = cache
    return ((1 - alike) * short - alike * distance) * (float(dloss) / count)


if __name__ == "__main__":
    u, v = np.array([[1.0, 0.0], [1.0, 1.0], [2.0, 1.0]]), np.array([[3.0, 0.0], [1.0, -1.0], [1.0, 2.0]])
    c, cache = cosine(u, v)
    print("cosines of three pairs:", c.round(3))
    du, _ = cosine_backward(np.ones(3), cache)
    print("to raise each cosine, move the first vector by\n", du.round(3), "\n(orthogonal to itself)", sep="")
    wanted = np.array([1.0, 0.0, 0.0])
    print("with targets of 1 for the first pair and 0 for the others:")
    loss, errors = squared_error(c, wanted)
    print(f"squared error {loss:.3f}, gradient {squared_error_backward(1.0, errors).round(3)}")
    loss, errors = contrastive(c, wanted)
    print(f"contrastive {loss:.3f}, gradient {contrastive_backward(1.0, errors).round(3)}")
