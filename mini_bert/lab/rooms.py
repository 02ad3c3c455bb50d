"""The rooms of the lab: a table from name to module. docs/lab.md says how to add one.

A room's module has ACTIONS, a table from name to function. An action takes the bench and the request, a dict from JSON,
and returns a dict for JSON; it raises BadRequest with a sentence if something is wrong with the request.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from mini_bert.lab.bench import Bench
from mini_bert.lab.fields import NotFound

Action = Callable[[Bench, Mapping[str, Any]], dict[str, Any]]

ROOMS = {
    "mask": "mini_bert.lab.mask",
    "stepper": "mini_bert.lab.stepper",
    "attention": "mini_bert.lab.attention",
    "backward": "mini_bert.lab.backward",
    "training": "mini_bert.lab.training",
    "break": "mini_bert.lab.breaking",
    "text": "mini_bert.lab.text",
    "vectors": "mini_bert.lab.vectors",
    "family": "mini_bert.lab.family",
}


def action(room: str, name: str) -> Action:
    """The function for POST /api/room/name."""
    if room not in ROOMS:
        raise NotFound(f"there is no room {room!r:.40}; the rooms are {', '.join(ROOMS)}")
    actions: Mapping[str, Action] = import_module(ROOMS[room]).ACTIONS
    if name not in actions:
        raise NotFound(f"the room {room} has no action {name!r:.40}; it has {', '.join(actions)}")
    return actions[name]
