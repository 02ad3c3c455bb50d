"""Check single values. Errors name the value and what was expected."""

from __future__ import annotations

import math
import sys
from typing import Any

MOST_LAYERS, LARGEST_SIZE = 256, 10**7  # beyond every published model: a larger number in a config is a mistake
LARGEST_SPREAD = 100.0  # of initial weights; published models have 0.02
SMALLEST_EPS = 1e-30  # so that it is not 0 in float32


def check_positive(name: str, value: Any, least: int = 1) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError(f"{name} is {value!r}, expected a whole number (a Python int) of at least {least}")


def check_size(name: str, value: Any, least: int = 1) -> None:
    """A size of a model. The limits keep an absurd config from filling the memory or running forever."""
    check_positive(name, value, least)
    most = MOST_LAYERS if "layer" in name else LARGEST_SIZE
    if value > most:
        raise ValueError(f"{name} is {value}, expected at most {most:,}")


def check_positive_number(name: str, value: Any) -> None:
    """A positive number: not NaN, infinity, True or a string."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= sys.float_info.max:
        raise ValueError(f"{name} is {value!r:.60}, expected a positive number")


def check_eps(name: str, value: Any) -> None:
    """The ε of a norm: small, or nothing would be left of the vectors."""
    check_positive_number(name, value)
    if not SMALLEST_EPS <= value <= 1:
        raise ValueError(f"{name} is {value!r}, expected a small positive number, such as 1e-12 or 1e-5")


def check_spread(name: str, value: Any) -> None:
    """The standard deviation of initial weights."""
    check_positive_number(name, value)
    if value > LARGEST_SPREAD:
        raise ValueError(f"{name} is {value!r}, expected a positive number of at most {LARGEST_SPREAD:g}, such as 0.02")


def check_token_id(name: str, value: Any, vocab_size: int) -> None:
    """The id of a special token; None: there is no such token."""
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < vocab_size):
        raise ValueError(
            f"{name} is {value!r:.60}, expected an id from 0 to {vocab_size - 1}, because vocab_size is {vocab_size}; "
            "use the id that the token has in the tokenizer, or null if there is none"
        )


def check_heads(width: int, heads: int, width_field: str = "hidden_size", heads_field: str = "num_heads") -> None:
    if width % heads:
        small = [n for n in range(1, math.isqrt(width) + 1) if width % n == 0]
        divisors = sorted({*small, *(width // n for n in small)})
        raise ValueError(
            f"{width_field} {width} cannot be split among {heads} heads: "
            f"{heads_field}, {heads}, must divide {width}; choose one of {', '.join(map(str, divisors))}"
        )


def check_probability(name: str, value: Any) -> None:
    check_share(name, value, "a probability")


def check_share(name: str, value: Any, what: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1:
        raise ValueError(f"{name} is {value!r}, expected {what} from 0 (none) to below 1")
