"""The first view that is shipped is what the model computes, and what the page asks for."""

import json

from mini_bert.lab.first_view import first_view, same
from mini_bert.lab.server import FIRST_VIEW, STATIC


def test_the_first_view_is_up_to_date(bench):
    """It also holds a line number of the source, so it changes with layers/embedding.py."""
    kept = json.loads((STATIC / FIRST_VIEW).read_text(encoding="utf-8"))
    current = json.loads(json.dumps(first_view(bench)))
    assert same(kept, current), "out of date: run python -m mini_bert.lab.first_view"


def test_differences_are_noticed():
    assert same({"a": [1.0]}, {"a": [1.00001]}) and not same({"a": [1.0]}, {"a": [1.1]})
    assert not same({"a": 1}, {"b": 1}) and not same([1], [1, 2]) and not same("x", "y")
    assert same({"numbers": "AACAPw=="}, {"numbers": "AQCAPw=="}) and not same(
        {"numbers": "AACAPw=="}, {"numbers": "AAAAQA=="}
    )
