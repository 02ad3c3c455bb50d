"""Similarity of two vectors, and losses that train it.

    cosine              c = u·v / (|u| |v|)                        1: same direction, 0: orthogonal
    beside each other   y = [u, v, |u − v|, u ∘ v]                 lets a linear layer compare coordinates
    squared error       loss = 1/N Σ (y − target)²                 for scores or cosines
    contrastive         loss = 1/N Σ ½ s d² + ½ (1−s) max(0, m−d)²     d = 1 − c
    views               loss = −1/N Σ_i log p_ii,   p_i = softmax_j(û_i·v̂_j / τ)        which v belongs to u_i?

The contrastive loss (Hadsell, Chopra & LeCun 2006; with cosines as in Sentence-BERT, Reimers & Gurevych 2019) pulls
similar pairs together (s = 1) and pushes others apart (s = 0) until their distance is m. An s between 0 and 1 mixes
both.

The loss of views needs no scores. u_i and v_i are two vectors of the same text, computed with different dropout; each
u_i has to find its own among the v of all texts (Gao, Yao & Chen 2021, SimCSE). What the two share is the text, so
vectors of a text are pulled together and those of different texts apart. The small τ makes near misses count most.

Backward. With û = u/|u| and v̂ = v/|v|, c = û·v̂. Scaling u does not change c, so only the part of v̂ orthogonal to û
matters:

    du = dc (v̂ − c û) / |u|            dv = dc (û − c v̂) / |v|

    beside              du = dy₁ + sign(u − v) dy₃ + v ∘ dy₄,   dv = dy₂ − sign(u − v) dy₃ + u ∘ dy₄
    squared error       dy = 2 (y − target) / N
    contrastive         dc = −dd,   dd = (s d − (1−s) max(0, m−d)) / N
    views               dc_ij = (p_ij − [i = j]) / (τ N),   dû_i = Σ_j dc_ij v̂_j,   dv̂_j = Σ_i dc_ij û_i
                        du = (dû − (dû·û) û) / |u|, the part orthogonal to û again
"""

from __future__ import annotations

import math

import numpy as np

from mini_bert.layers.cross_entropy import cross_entropy, cross_entropy_backward
from mini_bert.layers.matrices import dot

MARGIN = 0.5  # the distance beyond which dissimilar pairs have no loss
TEMPERATURE = 0.05  # τ, as in SimCSE


def unit(x):
    """x̂ = x / |x|, and |x| (B,1)        x (B,H);  0 for a vector of zeros"""
    length = np.sqrt(dot(x, x))
    return np.divide(x, length, out=np.zeros_like(x), where=length > 0), length


def unit_backward(dy, cache):
    """dx = (dx̂ − (dx̂·x̂) x̂) / |x|"""
    y, length = cache
    return np.divide(dy - dot(dy, y) * y, length, out=np.zeros_like(y), where=length > 0)


def cosine(u, v):
    """c = û·v̂        u, v (B,H), c (B,);  for a vector of zeros, c and the gradients are 0"""
    (unit_u, n_u), (unit_v, n_v) = unit(u), unit(v)
    return dot(unit_u, unit_v)[:, 0], (unit_u, unit_v, n_u, n_v)


def cosine_backward(dc, cache):
    """du = dc (v̂ − c û) / |u|,   dv = dc (û − c v̂) / |v|"""
    u, v, n_u, n_v = cache
    dc = dc[:, None]
    return unit_backward(dc * v, (u, n_u)), unit_backward(dc * u, (v, n_v))


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


def views(u, v, count: float | None = None, temperature: float = TEMPERATURE):
    """loss = −Σ_i log p_ii / count,   p_i = softmax_j(û_i·v̂_j / τ)        u, v (N,H)"""
    (unit_u, n_u), (unit_v, n_v) = unit(u), unit(v)
    loss, entropy = cross_entropy(unit_u @ unit_v.T / temperature, np.arange(len(u)), count)
    return loss, (unit_u, n_u, unit_v, n_v, entropy, temperature)


def views_backward(dloss: float, cache):
    """du and dv (N,H)"""
    unit_u, n_u, unit_v, n_v, entropy, temperature = cache
    dc = cross_entropy_backward(dloss, entropy) / temperature  # (N,N)
    return unit_backward(dc @ unit_v, (unit_u, n_u)), unit_backward(dc.T @ unit_u, (unit_v, n_v))


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
    for name, other in (("the same vectors", u), ("the other ones", v)):
        print(f"views, {name}: {views(u, other)[0]:.3f}")
