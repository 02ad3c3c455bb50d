"""The first view of each room, computed beforehand, so that the page shows something while the model loads.

    python -m mini_bert.lab.first_view          writes static/first_view.json; a test says when that is necessary

The file maps "room/action {request as JSON}" to the answer. The page looks there before it asks the server; these are
the requests that it makes when it is opened without a link of its own.
"""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from mini_bert.common.atomic import write_atomic
from mini_bert.lab import rooms
from mini_bert.lab.bench import Bench
from mini_bert.lab.server import FIRST_VIEW, STATIC


def constant(file: str, name: str) -> str:
    """A text in the source of the page: strings that are joined by + or by line breaks.

    >>> constant("parts/sentence.js", "TEXT")
    'She opened the door and looked into the room.'
    """
    found = re.search(rf"const {name} = (.*?);\n", (STATIC / file).read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None, f"{file} has no constant {name}"
    parts = re.findall(r'"([^"]*)"', found[1])
    return "\n".join(parts[:-1]) if found[1].endswith('.join("\\n")') else "".join(parts)


TEXT = constant("parts/sentence.js", "TEXT")
PIECES, PASTED = (constant("rooms/text.js", name) for name in ("TEXT", "PASTED"))
JUDGE, LINES = (constant("rooms/vectors.js", name) for name in ("TEXT", "LINES"))
REQUESTS: list[tuple[str, str, dict[str, Any]]] = [
    ("mask", "guess", {"text": TEXT, "hidden": [4], "context": "both", "top": 8}),
    ("mask", "surprise", {"text": TEXT}),
    ("stepper", "steps", {"text": TEXT}),
    ("stepper", "values", {"text": TEXT, "step": "embeddings", "layer": -1}),
    ("attention", "maps", {"text": TEXT}),
    ("backward", "flow", {"text": TEXT, "hidden": [4]}),
    ("backward", "values", {"text": TEXT, "hidden": [4], "step": "logits", "layer": -1}),
    ("break", "faults", {}),
    ("text", "pieces", {"text": PIECES}),
    ("text", "spelling", {"text": PIECES, "at": 4}),
    ("text", "learn", {"text": PASTED, "kind": "wordpiece", "step": 12}),
    ("vectors", "probe", {"text": JUDGE}),
    ("vectors", "neighbours", {"text": JUDGE, "position": 3}),
    ("vectors", "plane", {"text": f"{JUDGE}\n{LINES}", "of": "sentences"}),
    ("family", "about", {}),
    ("family", "guesses", {"text": TEXT, "at": 15}),
    ("family", "attention", {"text": TEXT, "layer": 0, "head": 0}),
]


def key(room: str, action: str, request: Mapping[str, Any]) -> str:
    """As in static/parts/api.js: keys in the order in which the page writes them."""
    return f"{room}/{action} {json.dumps(request, ensure_ascii=False, separators=(',', ':'))}"


def first_view(bench: Bench) -> dict[str, Any]:
    return {key(*one): rooms.action(one[0], one[1])(bench, one[2]) for one in REQUESTS}


def same(one: Any, other: Any) -> bool:
    """Whether two answers agree up to rounding: other processors add in another order.

    >>> same({"p": [0.1, "cat"]}, {"p": [0.10001, "cat"]}), same([1, 2], [1, 3])
    (True, False)
    """
    if isinstance(one, dict) and isinstance(other, dict):
        return list(one) == list(other) and all(same(*_unpacked(name, one[name], other[name])) for name in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, float) or isinstance(other, float):
        return isinstance(one, int | float) and isinstance(other, int | float) and math.isclose(
            one, other, rel_tol=1e-2, abs_tol=1e-4
        )  # fmt: skip
    return bool(one == other)


def _unpacked(name: str, *values: Any) -> tuple[Any, ...]:
    """Arrays in base 64 as lists of numbers, other values as they are"""
    kind = {"numbers": "<f4", "weights": "<u2"}.get(name)
    if kind is None or not all(isinstance(value, str) for value in values):
        return values
    arrays = (np.frombuffer(base64.b64decode(value), kind).astype(float) for value in values)
    return tuple((array / (65535 if kind == "<u2" else 1)).tolist() for array in arrays)


def main() -> None:
    text = json.dumps(first_view(Bench.load("mini-bert")), ensure_ascii=False, separators=(",", ":"))
    write_atomic(STATIC / FIRST_VIEW, text.encode())
    print(f"{STATIC / FIRST_VIEW}: {len(text) / 1e3:.0f} kB")


if __name__ == "__main__":
    main()
