"""The labels of examples: their names, and a check that the dev data has no others."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from mini_bert.data.labelled.examples import LabelError, Labelled, Parsed, Path, Tagged, listed


def label_names(examples: Iterable[Labelled | Tagged | Parsed]) -> list[str]:
    """All labels or tags, sorted (numbers by value)

    >>> label_names([Labelled("fine", None, "10", 1), Labelled("bad", None, "9", 2)])
    ['9', '10']
    """
    names = {name for example in examples for name in _labels(example)}
    if all(name.isdecimal() for name in names):
        return sorted(names, key=lambda name: (int(name), name))
    return sorted(names)


def check_labels(
    examples: Iterable[Labelled | Tagged | Parsed], known: Iterable[str], path: Path | None = None
) -> None:
    """Raise LabelError at the first label that is not among the known ones, those of the training data"""
    names = list(dict.fromkeys(known))
    allowed = set(names)
    for example in examples:
        for number, name in enumerate(_labels(example)):
            if name not in allowed:
                at = "" if isinstance(example, Labelled) else f" of word {number + 1}, {example.words[number]!r},"
                close = difflib.get_close_matches(name, names, 1)
                meant = f"; did you mean {close[0]!r}?" if close else ""
                problem = f"the label{at} {name!r} is not in the training data, which has {listed(names)}{meant}"
                raise LabelError("examples" if path is None else path, example.line, problem)


def _labels(example: Labelled | Tagged | Parsed) -> list[str]:
    return [example.label] if isinstance(example, Labelled) else example.tags
