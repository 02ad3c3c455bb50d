"""The stepper: a sentence through every operation of the model, and the sum behind any number.

`steps` lists the operations of a forward pass, `values` gives the numbers of one of them, `explain` the terms of one
number. operations.py has the operations themselves.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

import numpy as np

from mini_bert.lab.bench import Bench, Reading, rounded
from mini_bert.lab.fields import Fields
from mini_bert.lab.operation_kinds import KEYS, WORDS, Operation, scale_of
from mini_bert.lab.operations import operations

BEST = 3  # words for each token among the columns of scores
MOST_WORDS = 64
WIDEST = 4096  # columns of a result that are sent


def steps(bench: Bench, request: Mapping[str, Any]) -> dict[str, Any]:
    """The operations of the forward pass of a text, in order, without their numbers."""
    fields = Fields(request)
    reading = bench.read(fields.text())
    fields.end()
    return {
        "tokens": reading.shown(),
        "layers": bench.model.depth,
        "heads": bench.model.heads,
        "operations": [
            {
                "step": one.step,
                "layer": one.layer,
                "title": one.title,
                "formula": one.formula,
                "shape": list(one.values.shape),
                "letters": one.shape,
            }
            for one in bench.kept(operations, reading)
        ],
    }


def values(bench: Bench, request: Mapping[str, Any]) -> dict[str, Any]:
    """The numbers of one operation.        text, step, layer (−1: not in a block)"""
    fields = Fields(request)
    reading = bench.read(fields.text())
    found = _find(bench, reading, fields)
    fields.end()
    columns = shown_columns(found)
    numbers = found.values if columns is None else found.values[..., columns]
    labels = None
    if found.columns == KEYS:
        labels = list(reading.tokens)
    elif columns is not None and found.columns == WORDS:
        labels = [_word(bench, i) for i in columns.tolist()]
    return {
        "step": found.step,
        "layer": found.layer,
        "title": found.title,
        "formula": found.formula,
        "about": found.about,
        "shape": list(found.values.shape),
        "letters": found.shape,
        "kind": found.columns,
        "columns": None if columns is None else columns.tolist(),
        "labels": labels,
        "numbers": packed(numbers),
        "size": list(numbers.shape),
        "scale": rounded(scale_of(numbers)),
        "signed": bool((numbers < 0).any()),
        "explained": found.explain is not None,
        "source": None if found.source is None else found.source._asdict(),
    }


def explain(bench: Bench, request: Mapping[str, Any]) -> dict[str, Any]:
    """Where one number comes from.        text, step, layer, row, column, head (of a result with heads)"""
    fields = Fields(request)
    reading = bench.read(fields.text())
    found = _find(bench, reading, fields)
    *heads, rows, columns = found.values.shape
    index = [fields.integer("head", 0, heads[0] - 1, 0)] if heads else []
    index += [fields.integer("row", 0, rows - 1), fields.integer("column", 0, columns - 1)]
    if not heads:
        fields.integer("head", 0, max(0, bench.model.heads - 1), 0)  # the page may keep it for other steps
    fields.end()
    if found.explain is None:
        raise ValueError(f"the sums of {found.title!r} are not shown for this architecture, only its numbers")
    one = found.explain(*index)
    return {
        "index": index,
        "value": rounded(found.values[tuple(index)]),
        "terms": [{"label": term.label, "detail": term.detail, "value": rounded(term.value)} for term in one.terms],
        "others": one.others,
        "rest": rounded(one.rest),
        "sum": rounded(one.total),
        "sum_is": one.sum_is,
        "steps": [{"label": step.label, "value": rounded(step.value)} for step in one.steps],
        "formula": found.formula,
        "source": None if found.source is None else found.source._asdict(),
    }


def _find(bench: Bench, reading: Reading, fields: Fields) -> Operation:
    """The operation that a request names."""
    every = bench.kept(operations, reading)
    layer = fields.integer("layer", -1, bench.model.depth - 1, -1)
    step = fields.choice("step", list(dict.fromkeys(one.step for one in every)))
    matching = [one for one in every if one.step == step]
    return next((one for one in matching if one.layer in (None, layer)), matching[0])


def shown_columns(found: Operation) -> np.ndarray | None:
    """Of a result as wide as the vocabulary, the best words of each token; None: all columns."""
    if found.columns == WORDS:
        best = np.argsort(-found.values, axis=-1, kind="stable")[:, :MOST_WORDS]
        count = next(n for n in range(BEST, -1, -1) if np.unique(best[:, :n]).size <= MOST_WORDS)
        return np.array(list(dict.fromkeys(best[:, : max(1, count)].ravel().tolist())))
    return None if found.values.shape[-1] <= WIDEST else np.arange(WIDEST)


def _word(bench: Bench, i: int) -> str:
    return bench.tokenizer.readable(i) if i < bench.tokenizer.vocab_size else "(unused)"


def packed(numbers: np.ndarray) -> str:
    """Little-endian float32 in base 64, row by row."""
    return base64.b64encode(np.ascontiguousarray(numbers, "<f4").tobytes()).decode()


ACTIONS = {"steps": steps, "values": values, "explain": explain}
