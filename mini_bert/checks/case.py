"""A row in the table of layers that `mini-bert gradcheck` and the tests of the layer contract go through."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from mini_bert.layers.base import Layer


class Case(NamedTuple):
    """A small layer with inputs for it."""

    name: str
    build: Callable[[], Layer]
    shapes: tuple[tuple[int, ...], ...]  # of inputs with gradients
    fixed: tuple[Any, ...] = ()  # other inputs: ids
    keywords: dict[str, Any] = {}  # masks  # noqa: RUF012


class Function(Layer):
    """A pair of functions without weights, as a layer for the table."""

    def __init__(self, forward: Callable[..., Any], backward: Callable[..., Any]):
        self._forward, self._backward = forward, backward

    def forward(self, *inputs, **keywords):
        *arrays, run = inputs
        return self._forward(*arrays, run=run, **keywords)

    def backward(self, dy, cache, run):
        return self._backward(dy, cache)


def plain(forward: Callable[..., Any], backward: Callable[..., Any], *arguments: Any) -> Callable[[], Layer]:
    """The same for functions that take no `run`."""
    return lambda: Function(lambda x, run: forward(x, *arguments), backward)
