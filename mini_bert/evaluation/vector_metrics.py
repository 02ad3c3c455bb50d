"""Metrics of sets of vectors; metrics.py offers them together with all other scores.

mean_cosine, partition_ratio        do the vectors use all directions, or lie in a narrow cone?
nearest                             the nearest neighbours of a vector
"""

from __future__ import annotations

from typing import Any

import numpy as np


def mean_cosine(vectors: np.ndarray) -> float:
    """(|Σ_n u_n|² − N) / (N (N−1)),  u_n = v_n / |v_n|        the mean cosine of all pairs of different vectors

    0: random directions. Near 1: a narrow cone, in which a cosine of 0.9 says little. Papers average over random
    pairs; this is the exact mean over all pairs, since Σ_n Σ_m u_n·u_m = |Σ_n u_n|².
    """
    v = _vectors(vectors, 2)
    lengths = np.linalg.norm(v, axis=1, keepdims=True)
    if not lengths.all():
        raise ValueError(f"vector {int(np.flatnonzero(lengths == 0)[0])} is 0 and has no direction; leave it out")
    N, total = len(v), (v / lengths).sum(0)
    return float((total @ total - N) / (N * (N - 1)))


def partition_ratio(vectors: np.ndarray, rescale: bool = False) -> float:
    """min_a Z(a) / max_a Z(a),   Z(a) = Σ_n exp(a·v_n),   a: the eigenvectors of VᵀV, each in both directions

    The isotropy of Mu & Viswanath (2018): 1 if no direction is preferred, near 0 if one is. For a round, centred cloud
    Z(a) is the same in all directions. Solvers may return an eigenvector with either sign, so both are used.

    Unlike cosines, it depends on the lengths of the vectors: vectors ten times as long give almost 0. rescale: first
    scale the mean square length to 1, so that models can be compared.
    """
    v = _vectors(vectors, 1)
    if rescale:
        size = np.sqrt((v * v).sum(1).mean())
        if size == 0:
            raise ValueError("all vectors are 0; they have no direction")
        v = v / size
    _, directions = np.linalg.eigh(v.T @ v)  # (H,H), a column each
    along = v @ directions
    z = np.concatenate([_log_sum_exp(along), _log_sum_exp(-along)])
    return float(np.exp(z.min() - z.max()))


def nearest(query: np.ndarray, vectors: np.ndarray, count: int = 10) -> list[tuple[int, float]]:
    """The `count` vectors of (N,H) with the largest cosine with query (H,): (index, cosine), best first

    The cosine with a vector of length 0 counts as 0.
    """
    v, q = _vectors(vectors, 1), np.asarray(query, float)
    if q.shape != v.shape[1:]:
        raise ValueError(f"query has shape {q.shape}, expected {v.shape[1:]}, like each of the vectors")
    lengths = np.linalg.norm(v, axis=1) * np.linalg.norm(q)
    cosines = v @ q / np.where(lengths > 0, lengths, 1)
    return [(int(i), float(cosines[i])) for i in np.argsort(-cosines, kind="stable")[:count]]


def _vectors(vectors: Any, least: int) -> np.ndarray:
    v = np.asarray(vectors, float)
    if v.ndim != 2 or len(v) < least:
        raise ValueError(f"vectors have shape {v.shape}, expected (N,H) with N at least {least}")
    if not np.isfinite(v).all():
        raise ValueError(f"vector {int(np.flatnonzero(~np.isfinite(v).all(1))[0])} contains NaN or infinity")
    return v


def _log_sum_exp(x: np.ndarray) -> np.ndarray:
    """log Σ_n exp(x_nk), (N,K) -> (K,)"""
    top = x.max(0)
    return np.log(np.exp(x - top).sum(0)) + top
