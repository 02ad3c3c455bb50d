"""How the next token is chosen from a model's scores. Each step changes the scores x (V,) of one token, in this order:

    temperature τ     x / τ                  below 1: likely tokens become likelier; towards 0: only the likeliest
    top-k             −∞ outside the k largest
    top-p             −∞ outside the fewest tokens that have a probability of at least p together ("nucleus")

Then p = softmax(x), and a token is drawn: with u uniform in [0, 1), the first token whose cumulative probability is
above u. τ = 0 is greedy: the token with the largest score, and nothing is drawn.

Without top-k and top-p, thousands of tokens with a tiny probability each have a large one together, and one of them in
a text is enough to derail it. (Fan et al. 2018; Holtzman et al. 2020, "The curious case of neural text degeneration".)

u is a number by address (common/draws.py): that of the n-th token depends on the seed and n alone, and never changes
between versions.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from mini_bert.common.draws import address, draws, uniform
from mini_bert.common.values import check_positive

WRITING = 7  # the stream of random numbers


class Sampling(NamedTuple):
    """Settings; the defaults draw from the model's own probabilities."""

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    seed: int = 0

    def check(self) -> None:
        """Raise an error that names a wrong setting."""
        if isinstance(self.temperature, bool) or not 0 <= self.temperature < math.inf:
            raise ValueError(f"temperature is {self.temperature!r}, expected a number of at least 0 (0: no randomness)")
        if self.top_k is not None:
            check_positive("top_k", self.top_k)
        if self.top_p is not None and (isinstance(self.top_p, bool) or not 0 < self.top_p <= 1):
            raise ValueError(f"top_p is {self.top_p!r}, expected a probability above 0 and up to 1")

    def choose(self, scores: np.ndarray, step: int) -> int:
        """The next token, given the scores (V,) of all; −∞: not allowed. step: the index of the token in the text"""
        if not np.isfinite(scores.max()):  # NaN or infinity
            raise ValueError("no token has a finite score, so none can be drawn; are the model's weights damaged?")
        if self.temperature == 0:
            return int(scores.argmax())
        p = self.probabilities(scores)
        possible = np.flatnonzero(p)
        cumulative = np.cumsum(p[possible])
        u = uniform(draws(address(self.seed), WRITING, step))[0]
        place = np.searchsorted(cumulative, u * cumulative[-1], "right")
        return int(possible[min(place, possible.size - 1)])  # rounding may lead past the end

    def probabilities(self, scores: np.ndarray) -> np.ndarray:
        """What tokens are drawn from: softmax of the scores after every step, in float64.        (V,) -> (V,)"""
        x = scores.astype(np.float64)
        with np.errstate(over="ignore"):  # the largest is 0; with a tiny temperature, the others are −∞
            x = (x - x.max()) / self.temperature
        if self.top_k is not None:
            x = top_k(x, self.top_k)
        if self.top_p is not None:
            x = top_p(x, self.top_p)
        p = np.exp(x)
        return p / p.sum()


PLAIN = Sampling()


def top_k(x: np.ndarray, k: int) -> np.ndarray:
    """−∞ outside the k largest. Ties with the k-th largest stay."""
    if k >= x.size:
        return x
    return np.where(x < np.partition(x, -k)[-k], -np.inf, x)


def top_p(x: np.ndarray, p: float) -> np.ndarray:
    """−∞ outside the fewest tokens with a probability of at least p together; of equal ones, the first come first."""
    order = np.argsort(-x, kind="stable")
    shares = np.exp(x[order] - x.max())
    before = np.cumsum(shares) - shares  # of all likelier tokens
    kept = np.full(x.shape, -np.inf)
    inside = order[before < p * shares.sum()]
    kept[inside] = x[inside]
    return kept
