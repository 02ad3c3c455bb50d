"""What the doctor reads from a run's records, and how it says numbers and places in words. The checks:
training/doctor.py."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator, Sequence
from statistics import mean

from mini_bert.common.invocation import command, unbroken
from mini_bert.training.history import History, Record, finite


def last_part(values: Sequence[float], divisor: int) -> Sequence[float]:
    """The last half, third, …; at least one."""
    return values[-max(len(values) // divisor, 1) :]


def smoothed(values: Sequence[float], over: int = 3) -> list[float]:
    """Means of neighbours, so that one odd record decides nothing."""
    return [mean(values[max(0, i - over + 1) : i + 1]) for i in range(min(over, len(values)) - 1, len(values))]


def peak_learning_rate(history: History) -> float:
    _, rates = history.series("train", "lr")
    return max(rates, default=finite(history.last("nonfinite").get("lr")) or 0.0)


def end_of_warmup(history: History) -> int | None:
    """The step of the first record at the highest learning rate; None while it may still be rising."""
    steps, rates = history.series("train", "lr")
    if not rates or (rates[-1] == max(rates) and rates[-1] > rates[0] and rates.count(rates[-1]) == 1):
        return None if rates else 0
    return steps[rates.index(max(rates))]


def number(value: float) -> str:
    """Two digits that count, and powers of ten only where nobody would want to count zeros.

    >>> number(1234.5), number(12.34), number(0.00123), number(3e-9), number(2.5e7), number(0), number(0.99)
    ('1,200', '12', '0.0012', '3e-9', '2.5e7', '0', '0.99')
    """
    if value and not 1e-5 <= abs(value) < 1e6:
        return re.sub(r"\.0(?=e)", "", f"{value:.1e}").replace("e+0", "e").replace("e+", "e").replace("e-0", "e-")
    rounded = float(f"{value:.2g}")
    return f"{rounded:,.0f}" if abs(rounded) >= 10 else f"{rounded:.10f}".rstrip("0").rstrip(".")


def gentler(lr: float) -> float:
    """A learning rate to try instead: a tenth, and at most the 1e-3 that suits small BERTs.

    >>> gentler(0.1), gentler(3e-3), gentler(0.0)
    (0.001, 0.00030000000000000003, 0.001)
    """
    return min(lr / 10, 1e-3) or 1e-3


def gaps_over_time(history: History) -> Iterator[float]:
    """At each evaluation: held-out loss minus the training loss of that time."""
    steps, losses = history.series("train", "loss")
    for step, held in zip(*history.series("eval", "loss"), strict=True):
        before = [loss for at, loss in zip(steps, losses, strict=True) if at <= step]
        if before:
            yield held - mean(before[-3:])


def last_tensors(history: History) -> dict[str, Record]:
    return history.last("tensors").get("tensors") or {}


def by_layer(tensors: dict[str, Record]) -> dict[str, float]:
    """Gradient norms of layers: the roots of the sums of squares over their tensors; what is not finite is infinite."""
    squares: dict[str, float] = {}
    for name, tensor in tensors.items():
        norm = finite(tensor.get("gradient"))
        squares[layer_of(name)] = squares.get(layer_of(name), 0.0) + (math.inf if norm is None else norm**2)
    return {layer: math.sqrt(square) for layer, square in squares.items()}


def layer_of(tensor: str) -> str:
    """
    >>> layer_of("encoder.blocks.1.feed_forward.expand.w"), layer_of("tokens.table"), layer_of("head.w")
    ('block 1', 'tokens', 'head')
    """
    block = re.search(r"\bblocks\.(\d+)\.", tensor)
    return f"block {block[1]}" if block else tensor.partition(".")[0]


def place(tensor: str) -> str:
    """A tensor's name in words.

    >>> place("encoder.blocks.1.feed_forward.expand.w"), place("final_norm.gamma"), place("tokens.table")
    ('block 1, feed forward', 'final norm', 'tokens')
    """
    inside = re.search(r"\bblocks\.\d+\.(\w+)", tensor)
    return f"{layer_of(tensor)}, {inside[1]}".replace("_", " ") if inside else layer_of(tensor).replace("_", " ")


def typed(name: str, *words: str | os.PathLike[str]) -> str:
    """A command to be copied: on one line, however `report` breaks the text around it."""
    return unbroken(f"`{command(name, *words)}`")


def more_text(history: History) -> str:
    tokens = finite(history.last("start").get("train_tokens"))
    return "More text" if tokens is None else f"More text than these {tokens:,.0f} tokens"


def sentence(parts: Sequence[str]) -> str:
    """
    >>> sentence(["the loss rose", "the norm grew"])
    'The loss rose; the norm grew.'
    """
    text = "; ".join(parts) + "."
    return text[0].upper() + text[1:]
