"""How a run changes on its way: the learning rate, the batch, the length of its sequences, the mask rate.

A schedule is a function of progress, the share of the run that is done, from 0 to 1. All learning rates rise during
`warmup` in a straight line, because Adam's means have seen few gradients, and end at 0, so that the weights settle.
They differ in between:

    linear     down in a straight line                                         (optim.lr_schedule)
    cosine     down along half a cosine: slow, fast, slow                      Loshchilov & Hutter 2017, "SGDR"
    wsd        at the peak until the last part, `decay`; then straight down    warm-up, stable, decay: Hu et al. 2024,
                                                                               "MiniCPM"

Everything else moves from a start to its final value during the first part of the run, the `ramp`:

    batch size             few sequences while every gradient points the same way, many when noise is left to average
                           (Smith et al. 2018, "Don't decay the learning rate, increase the batch size")
    length of sequences    short ones first: attention is cheap, and most of what there is to learn is nearby
                           (Devlin et al. 2019, "BERT", appendix A.2; Press et al. 2021, "Shortformer")
    mask rate              many masks first, which are easy to guess from frequencies; few at the end, as in use
                           (Yang et al. 2023, "Learning better masking for better language model pre-training")
"""

from __future__ import annotations

import math
from collections.abc import Callable

from mini_bert.training.optim import lr_schedule


def linear(progress: float, warmup: float, decay: float) -> float:
    return lr_schedule(progress, warmup)


def cosine(progress: float, warmup: float, decay: float) -> float:
    if progress < warmup:
        return progress / warmup
    done = min(1.0, (progress - warmup) / (1 - warmup))
    return (1 + math.cos(math.pi * done)) / 2


def wsd(progress: float, warmup: float, decay: float) -> float:
    rising = progress / warmup if progress < warmup else 1.0
    return max(0.0, min(rising, (1 - progress) / decay))


SCHEDULES: dict[str, Callable[[float, float, float], float]] = {"linear": linear, "cosine": cosine, "wsd": wsd}

WORDS = {
    "linear": "then down to 0",
    "cosine": "then down to 0 along a cosine",
    "wsd": "constant until the last {:.0%}, then down to 0",
}


def lr_share(schedule: str, progress: float, warmup: float, decay: float) -> float:
    """The learning rate as a fraction of its peak.

    >>> [round(lr_share("wsd", progress, 0.1, 0.3), 2) for progress in (0.05, 0.1, 0.7, 0.85, 1.0)]
    [0.5, 1.0, 1.0, 0.5, 0.0]
    """
    return SCHEDULES[schedule](progress, warmup, decay)


def ramp(progress: float, start: float, end: float, share: float) -> float:
    """From start to end in a straight line, over this share of the run; then it stays.

    >>> [ramp(progress, 8, 32, 0.5) for progress in (0, 0.25, 0.5, 1)]
    [8.0, 20.0, 32, 32]
    """
    return end if progress >= share else start + (end - start) * progress / share


def batch_parts(progress: float, start: int, end: int, share: float) -> int:
    """How many micro-batches there are in a step, if their number grows from start to end.

    >>> [batch_parts(progress, 1, 4, 0.8) for progress in (0, 0.15, 0.25, 0.45, 0.65, 1)]
    [1, 1, 2, 3, 4, 4]
    """
    return min(end, start + int((end - start + 1) * progress / share)) if progress < share else end


def lengths(start: int, end: int) -> list[int]:
    """The lengths of a ramp: each twice the one before, and the last as it is.

    >>> lengths(16, 64), lengths(24, 64), lengths(64, 64)
    ([16, 32, 64], [24, 48, 64], [64])
    """
    return [*(start << stage for stage in range(end.bit_length()) if start << stage < end), end]


def length_stage(progress: float, stages: int, share: float) -> int:
    """Which of the lengths it is: the ramp is divided equally among all but the last.

    >>> [length_stage(progress, 3, 0.5) for progress in (0, 0.24, 0.25, 0.49, 0.5, 1)]
    [0, 0, 1, 1, 2, 2]
    """
    return stages - 1 if progress >= share else int((stages - 1) * progress / share)
