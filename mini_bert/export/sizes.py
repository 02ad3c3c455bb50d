"""Sizes that depend on the batch: an int for Python and NumPy, and at the same time a formula.

    B, T = symbol("batch_size", 3), symbol("sequence_length", 11)
    2 * T - 1                       21, and the formula 2·sequence_length − 1
    B * T // B                      11, and sequence_length

A forward pass is traced with an example of 3 × 11 tokens, but the graph is for batches of any shape. So the shapes that
the layers see hold such sizes, and what layers compute from them (`x.reshape(B * T, H)`) stays a formula.

A formula is a polynomial, as a dict from products of symbols to factors: 2·B·T − 1 is {("B", "T"): 2, (): -1}. If no
symbol is left, the result is a plain int.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from mini_bert.export.operators import answer

Product = tuple[Any, ...]  # symbols, sorted: names, or quotients
Terms = Mapping[Product, int]


class Quotient(NamedTuple):
    """A symbol for ⌊dividend / divisor⌋ that is no polynomial.

    Times the divisor, it counts as the dividend: a model that splits a batch in two takes even batches only.
    """

    dividend: tuple[tuple[Product, int], ...]
    divisor: int


class Size(int):
    """An int with a formula. graph: the graph whose inputs have such sizes (graph.py)"""

    terms: Terms
    graph: Any = None

    @property
    def formula(self) -> str:
        return _shown(self.terms)

    def answer(self, function: Any, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        """Operations on sizes alone, such as the causal mask of T tokens (layers/operation.py)"""
        return answer(function, args, options)

    def __add__(self, other: Any) -> Any:
        return _combined(self, other, int.__add__, lambda a, b: _sum(a, b, 1))

    def __sub__(self, other: Any) -> Any:
        return _combined(self, other, int.__sub__, lambda a, b: _sum(a, b, -1))

    def __mul__(self, other: Any) -> Any:
        return _combined(self, other, int.__mul__, _times)

    def __rsub__(self, other: Any) -> Any:
        return (-self) + other

    __radd__, __rmul__ = __add__, __mul__

    def __neg__(self) -> Any:
        return -1 * self

    def __pos__(self) -> Any:
        return self

    def __floordiv__(self, other: Any) -> Any:
        return _combined(self, other, int.__floordiv__, _quotient)


def symbol(name: Any, example: int, graph: Any = None) -> Size:
    """A size that is only known by its name, or as a quotient"""
    return _size(example, {(name,): 1}, graph)


def terms_of(number: int) -> Terms:
    """The formula of a size, or of a plain number"""
    return number.terms if isinstance(number, Size) else {(): number} if number else {}


def same(a: int, b: int) -> bool:
    """Whether two sizes are equal for every batch"""
    return terms_of(a) == terms_of(b)


def is_quotient(number: int) -> bool:
    """Whether it is a size such as ⌊B/2⌋"""
    return any(isinstance(one, Quotient) for symbols in terms_of(number) for one in symbols)


def product(sizes: Any) -> Any:
    total: Any = 1
    for size in sizes:
        total = total * size
    return total


def _size(value: int, terms: Terms, graph: Any) -> Any:
    if not set(terms) - {()}:
        return terms.get((), 0)
    size = Size(value)
    size.terms, size.graph = terms, graph
    return size


def _combined(a: Size, b: Any, number: Callable[[int, int], int], formula: Callable[[Terms, Terms], Terms]) -> Any:
    if not isinstance(b, int):
        return NotImplemented
    return _size(number(int(a), int(b)), formula(terms_of(a), terms_of(b)), a.graph)


def _sum(a: Terms, b: Terms, sign: int) -> Terms:
    total = dict(a)
    for symbols, factor in b.items():
        total[symbols] = total.get(symbols, 0) + sign * factor
    return {symbols: factor for symbols, factor in total.items() if factor}


def _times(a: Terms, b: Terms) -> Terms:
    total: dict[Product, int] = {}
    for left, x in a.items():
        for right, y in b.items():
            symbols = tuple(sorted((*left, *right), key=repr))
            total[symbols] = total.get(symbols, 0) + x * y
    for symbols, factor in total.items():
        for one in symbols:
            if isinstance(one, Quotient) and factor % one.divisor == 0:
                rest = list(symbols)
                rest.remove(one)
                others = {name: number for name, number in total.items() if name != symbols}
                return _sum(others, _times(dict(one.dividend), {tuple(rest): factor // one.divisor}), 1)
    return {symbols: factor for symbols, factor in total.items() if factor}


def _quotient(a: Terms, b: Terms) -> Terms:
    """⌊a / b⌋, where b is a number times symbols that are in every term of a. What is left to divide is a Quotient."""
    if a == b:
        return {(): 1}
    cancelled: dict[Product, int] = {}
    for symbols, number in a.items():
        left = list(symbols)
        for one in next(iter(b)) if len(b) == 1 else ("a sum",):
            if one not in left:
                raise ValueError(f"{_shown(a)} // {_shown(b)} is not a size that a graph can compute")
            left.remove(one)
        cancelled[tuple(left)] = number
    (divisor,) = b.values()
    common = math.gcd(divisor, *cancelled.values())
    reduced = {symbols: number // common for symbols, number in cancelled.items()}
    if divisor == common:
        return reduced
    return {(Quotient(tuple(sorted(reduced.items(), key=repr)), divisor // common),): 1}


def _shown(terms: Terms) -> str:
    return " + ".join(_product(factor, symbols) for symbols, factor in terms.items()).replace("+ -", "- ")


def _product(factor: int, symbols: Product) -> str:
    names = [one if isinstance(one, str) else f"⌊{_shown(dict(one.dividend))} / {one.divisor}⌋" for one in symbols]
    return "·".join([*([str(factor)] if factor != 1 or not names else []), *names])
