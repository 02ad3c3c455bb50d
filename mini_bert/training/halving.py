"""Successive halving: train all settings for a while, drop the worse half, train the rest for twice as long, repeat.

With 3 rungs and 8 settings: all 8 train to a quarter of the run, the best 4 of these to a half, the best 2 to the end.

    cost = Σₖ nₖ (fₖ − fₖ₋₁),    fₖ = 2^(k − K),    nₖ = ⌈n / 2^(k − 1)⌉,    k = 1 … K,    f₀ = 0

That is the work of 4 whole runs instead of 8. (Jamieson and Talwalkar, 2016: Non-stochastic best arm identification and
hyperparameter optimization.)
"""

from __future__ import annotations

import math
from collections.abc import Mapping

MOST_RUNGS = 8


def rung_shares(rungs: int) -> list[float]:
    """The shares of a run after which the settings are compared; the last is 1.

    >>> rung_shares(3), rung_shares(1)
    ([0.25, 0.5, 1.0], [1.0])
    """
    if not 1 <= rungs <= MOST_RUNGS:
        raise ValueError(f"--rungs is {rungs}, expected 1 (every run is trained to its end) to {MOST_RUNGS}")
    return [2.0 ** (k - rungs) for k in range(1, rungs + 1)]


def counts(settings: int, rungs: int) -> list[int]:
    """How many settings train in each rung.

    >>> counts(8, 3), counts(5, 3), counts(1, 2)
    ([8, 4, 2], [5, 3, 2], [1, 1])
    """
    return [math.ceil(settings / 2**k) for k in range(rungs)]


def cost(settings: int, rungs: int) -> float:
    """The work of all rungs, in whole runs.

    >>> cost(8, 3), cost(8, 1)
    (4.0, 8.0)
    """
    ends = rung_shares(rungs)
    return sum(
        number * (end - start) for number, start, end in zip(counts(settings, rungs), [0.0, *ends], ends, strict=False)
    )


def default_rungs(settings: int) -> int:
    """At most 3, and few enough that at least two settings reach the end and can be compared there.

    >>> [default_rungs(settings) for settings in (1, 3, 4, 7, 8, 100)]
    [1, 1, 2, 2, 3, 3]
    """
    return max(1, min(3, int(math.log2(settings))))


def survivors(losses: Mapping[str, float], keep: int) -> list[str]:
    """The `keep` names with the lowest losses, in the order in which they were given. Infinite losses never survive.

    >>> survivors({"a": 5.3, "b": 5.1, "c": math.inf, "d": 5.2}, keep=2)
    ['b', 'd']
    """
    finite = [name for name in losses if math.isfinite(losses[name])]
    best = sorted(finite, key=lambda name: losses[name])[:keep]  # of equal losses, the first
    return [name for name in losses if name in best]
