"""Objectives by name, as RUN/config.json stores them. A new objective is a file and a line here."""

from __future__ import annotations

from typing import Any

from mini_bert.common.wording import did_you_mean
from mini_bert.objectives.base import Objective
from mini_bert.objectives.distillation import Distillation
from mini_bert.objectives.masked_words import MaskedWords, MaskedWordsAndSentences
from mini_bert.objectives.next_word import NextWord, NextWordWithMemory
from mini_bert.objectives.permutation import Permutation
from mini_bert.objectives.replaced_tokens import ReplacedTokens
from mini_bert.objectives.sentence_order import MaskedWordsAndOrder

_KINDS: tuple[type[Objective], ...] = (
    MaskedWords, MaskedWordsAndSentences, MaskedWordsAndOrder, ReplacedTokens, Permutation, NextWord,
    NextWordWithMemory, Distillation,
)  # fmt: skip
OBJECTIVES: dict[str, type[Objective]] = {kind.name: kind for kind in _KINDS}


def objective_class(name: str) -> type[Objective]:
    """The objective with this name; words may also be joined by hyphens."""
    found = OBJECTIVES.get(name.replace("-", "_"))
    if found is None:
        hint = did_you_mean(name.replace("-", "_"), OBJECTIVES)
        raise ValueError(f"objective is {name!r}, expected one of {', '.join(map(repr, OBJECTIVES))}{hint}")
    return found


def objective_of_run(description: dict[str, Any]) -> type[Objective]:
    """The objective of a run, from its config.json. Older ones do not name it."""
    pairs = description["data"].get("next_sentence", False)
    return objective_class(description.get("objective", (MaskedWordsAndSentences if pairs else MaskedWords).name))
