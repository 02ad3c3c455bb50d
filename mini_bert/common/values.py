"""Check single values. Errors name the value and what was expected."""

from __future__ import annotations

from typing import Any


def check_positive(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{name} is {value!r}, expected a whole number (a Python int) of at least 1")


def check_heads(width: int, heads: int) -> None:
    if width % heads:
        divisors = [n for n in range(1, width + 1) if width % n == 0]
        raise ValueError(
            f"hidden_size {width} cannot be split among {heads} heads: "
            f"{heads} must divide {width}; choose one of {', '.join(map(str, divisors))}"
        )


def check_probability(name: str, value: Any) -> None:
    check_share(name, value, "a probability")


def check_share(name: str, value: Any, what: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1:
        raise ValueError(f"{name} is {value!r}, expected {what} from 0 (none) to below 1")
