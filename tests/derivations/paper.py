"""Reads the pages of derivations: their sections, and the examples that are worked on paper.

A section starts with `## Title` and the formula. It names its code (links to lines), its rows in gradcheck (after
**Gradcheck:**, in backticks) and one example, a block of ```text with a line for each array:

    x = [1 2; 3 4]                      given: rows are separated by semicolons
    y = x W + b = [6 1; 12 3]           computed: the last part is the value
    y_12 = 1·0 + 2·1 − 1 = 1            one number of y, row 1 and column 2, with the sum that gives it

A number with four decimals is rounded; every other number is exact.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

ROOT = Path(__file__).parents[2]
INDEX = ROOT / "docs" / "derivations.md"
PAGES = sorted((ROOT / "docs" / "derivations").glob("*.md"))
EXAMPLE = re.compile(r"^```text\n(.*?)^```", re.S | re.M)
FUNCTIONS = {
    "exp": math.exp, "ln": math.log, "√": math.sqrt, "tanh": math.tanh, "sin": math.sin, "cos": math.cos,
    "Φ": lambda x: (1 + math.erf(x / math.sqrt(2))) / 2, "max": max,
}  # fmt: skip
ARITHMETIC = re.compile(r"(?:exp|ln|√|tanh|sin|cos|Φ|max|π|[\d.\s+\-−·/()²³,])+")
ROUNDED = re.compile(r"\d\.\d{4}(?!\d)")


class Line(NamedTuple):
    """One line of an example."""

    name: str  # of the array
    place: tuple[int, ...]  # in the array, counted from 0; empty: all of it
    steps: list[str]  # what stands between the name and the value
    value: str


class Section(NamedTuple):
    page: str
    title: str
    text: str

    @property
    def rows(self) -> list[str]:
        """Names of rows in gradcheck."""
        named = re.findall(r"\*\*Gradcheck:\*\*((?:[^\n]|\n(?!\n))*)", self.text)
        return [name for part in named for name in re.findall(r"`([^`]+)`", part.replace("\n", " "))]

    @property
    def links(self) -> list[str]:
        return re.findall(r"\.py#L\d+\)", self.text)

    @property
    def examples(self) -> list[str]:
        return EXAMPLE.findall(self.text)


def sections(paths: list[Path] = PAGES) -> Iterator[Section]:
    for path in paths:
        _, *parts = re.split(r"^## ", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
        for part in parts:
            heading, text = part.split("\n", 1)
            yield Section(path.name, heading.split(":")[0].strip(), text)


def lines(example: str) -> list[Line]:
    found = []
    for row in filter(None, example.splitlines()):
        name, *steps, value = (piece.strip() for piece in row.split(" = "))
        base, _, digits = name.rpartition("_")
        indexed = bool(base) and digits.isdecimal()
        place = tuple(int(digit) - 1 for digit in digits) if indexed else ()
        found.append(Line(base if indexed else name, place, steps, value))
    return found


def calculate(text: str) -> float:
    """The value of an expression such as 1·2 − √3/exp(4)."""
    text = re.sub(r"(ln|√)\s*(\d+(?:\.\d+)?)", r"\1(\2)", text)
    for sign, python in {"−": "-", "·": "*", "²": "**2", "³": "**3", "√": "root", "π": "pi", "Φ": "cdf"}.items():
        text = text.replace(sign, python)
    names = {"root": FUNCTIONS["√"], "cdf": FUNCTIONS["Φ"], "pi": math.pi, **FUNCTIONS}
    return float(eval(text, {"__builtins__": {}}, names))  # checked by ARITHMETIC, and from our own pages


def numbers(value: str) -> tuple[tuple[int, ...], list[str]]:
    """The shape and the numbers of a value, as text: "[1 2; 3 4]" -> (2, 2), ["1", "2", "3", "4"]"""
    if not value.startswith("["):
        return (), [value]
    assert value.endswith("]"), value
    rows = [row.split() for row in value[1:-1].split(";")]
    assert len({len(row) for row in rows}) == 1, f"rows of different length: {value}"
    flat = [number for row in rows for number in row]
    return ((len(rows), len(rows[0])) if ";" in value else (len(flat),)), flat


def read(value: str) -> Any:
    """An array, or a number"""
    shape, texts = numbers(value)
    assert not ROUNDED.search(value), f"{value} is given, so its numbers must be exact"
    return np.array([calculate(text) for text in texts]).reshape(shape) if shape else calculate(value)


def agrees(text: str, actual: float, rounded: float = 0.5e-4) -> bool:
    """Whether this is the number: rounded, if it has four decimals; else exactly."""
    return abs(calculate(text) - actual) <= (rounded if ROUNDED.search(text) else 0) + 1e-9


def arithmetic(step: str) -> bool:
    return bool(ARITHMETIC.fullmatch(step))
