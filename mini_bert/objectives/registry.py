"""Objectives by name, as RUN/config.json stores them. A new objective is a file and a line here."""

from __future__ import annotations

from typing import Any

from mini_bert.objectives.base import Objective
from mini_bert.objectives.masked_words import MaskedWords, MaskedWordsAndSentences

OBJECTIVES: dict[str, type[Objective]] = {kind.name: kind for kind in (MaskedWords, MaskedWordsAndSentences)}


def objective_class(name: str) -> type[Objective]:
    if name not in OBJECTIVES:
        raise ValueError(f"objective is {name!r}, expected one of {', '.join(map(repr, OBJECTIVES))}")
    return OBJECTIVES[name]


def objective_of_run(description: dict[str, Any]) -> type[Objective]:
    """The objective of a run, from its config.json. Older ones do not name it."""
    pairs = description["data"].get("next_sentence", False)
    return objective_class(description.get("objective", (MaskedWordsAndSentences if pairs else MaskedWords).name))
