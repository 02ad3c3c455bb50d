"""Initialisers: the values that weights have before training. Each is a function (rng, shape) -> array.

    normal(std)            N(0, std²)
    cut_normal(std, c)     the same without its tails beyond c · std
    zeros, ones            biases and norms
    sinusoids(a)           a position table of waves
    neighbours(A, a)       query and key weights with which each head attends to a token next to it

Why Mini-BERT starts with the last two, and its relatives as well (models/starting.py):
docs/decisions/0003-start-by-looking-around.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import numpy as np

Initialiser = Callable[["np.random.Generator", tuple[int, ...]], np.ndarray]


def normal(std: float, silent: int = 0) -> Initialiser:
    """N(0, std²), with zeros in the first `silent` columns."""
    return partial(_normal, std, silent)


def _normal(std, silent, rng, shape):
    drawn = rng.normal(0.0, std, shape)
    drawn[..., :silent] = 0
    return drawn


def cut_normal(std: float, factor: float) -> Initialiser:
    """N(0, std²), drawn again wherever it is further from 0 than factor · std."""
    return partial(_cut_normal, std, factor)


def _cut_normal(std, factor, rng, shape):
    drawn = rng.normal(0.0, std, shape)
    while (far := np.abs(drawn) > factor * std).any():
        drawn[far] = rng.normal(0.0, std, far.sum())
    return drawn


def zeros(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return np.zeros(shape)


def ones(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return np.ones(shape)


def frequencies(width: int, even: int = 0) -> np.ndarray:
    """Returns ω_i for each pair of `width` coordinates: 10000^(−2i/width).

    In the first `even` coordinates, ω_i is evenly spaced between 0 and π instead. Evenly spaced waves cancel everywhere
    but at one position: Σ_i cos(ω_i (t − s)) is even/2 for t = s, and 0 for all other s less than `even` away. These
    coordinates encode the exact position, the others the approximate one.
    """
    pairs = even // 2
    omega = 10000.0 ** (-2 * np.arange((width + 1) // 2) / width)
    omega[:pairs] = math.pi * (np.arange(pairs) + 0.5) / max(pairs, 1)
    return omega


def sinusoids(amplitude: float, even: int = 0) -> Initialiser:
    """P[t, 2i] = a sin(t ω_i),   P[t, 2i+1] = a cos(t ω_i)        P (T,H)

    A step from t to t+1 rotates every (sin, cos) pair by the angle ω_i, so "the next token" is the same rotation at
    every position. In a table of noise, it would have to be learnt for each position separately.
    """
    return partial(_sinusoids, amplitude, even)


def _sinusoids(amplitude, even, rng, shape):
    length, width = shape
    angle = np.arange(length)[:, None] * frequencies(width, even)  # (T, H/2)
    waves = np.stack([np.sin(angle), np.cos(angle)], -1)  # (T, H/2, 2)
    return amplitude * waves.reshape(length, -1)[:, :width]


def neighbours(heads: int, amplitude: float, score: float = 4.0) -> Initialiser:
    """`neighbour_weights`, plus the usual N(0, 1/H), so that training can turn the heads into something else."""
    return partial(_neighbours, heads, amplitude, score)


def _neighbours(heads, amplitude, score, rng, shape):
    return rng.normal(0.0, 1 / math.sqrt(shape[0]), shape) + neighbour_weights(shape[0], heads, amplitude, score)


def neighbour_weights(width: int, heads: int, amplitude: float, score: float = 4.0) -> np.ndarray:
    """W_qkv (H,3H): head 0 attends to the token before, head 1 to the one after, the next to two before, two after, …

    The first d input coordinates must be sinusoids(amplitude, even=d), and 0 apart from that. Keys copy these
    coordinates. Queries rotate each pair by ω·offset, which turns the waves of position t into those of t + offset. So
    the score (after division by √d) is `score` for the key at that offset, and close to 0 for all others.
    """
    H, d = width, width // heads
    w = np.zeros((H, 3 * H))
    pairs = d // 2
    sin, cos = np.arange(pairs) * 2, np.arange(pairs) * 2 + 1
    gain = math.sqrt(score * math.sqrt(d) / (max(pairs, 1) * amplitude**2))
    for head in range(heads):
        turn = frequencies(H, 2 * pairs)[:pairs] * (head // 2 + 1) * (-1 if head % 2 == 0 else 1)
        q, k = head * d, H + head * d  # the first column of each
        w[sin, q + sin] = gain * np.cos(turn)  # sin(ωt + turn) = sin ωt cos turn + cos ωt sin turn
        w[cos, q + sin] = gain * np.sin(turn)
        w[cos, q + cos] = gain * np.cos(turn)  # cos(ωt + turn) = cos ωt cos turn − sin ωt sin turn
        w[sin, q + cos] = -gain * np.sin(turn)
        w[sin, k + sin] = gain
        w[cos, k + cos] = gain
    return w


if __name__ == "__main__":
    np.set_printoptions(precision=2, suppress=True)
    table = sinusoids(1.0, even=8)(np.random.default_rng(0), (5, 8))
    print("positions as evenly spaced waves, five of width 8:\n", table, sep="")
    print("their dot products, 4 on the diagonal and 0 elsewhere:\n", (table @ table.T).round(2) + 0.0, sep="")
