"""The family side by side: what `mini-bert family` prints, computed from the code.

    overview()            a table of all architectures: sizes, objective, tokenizer, context, memory, time of a step
    portrait("albert")    one of them: its differences, and what its idea is worth in the numbers of its configs
"""

from __future__ import annotations

import statistics
import textwrap
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from mini_bert.checks.family_stories import parameters, story
from mini_bert.models.family import MEMBERS, Member
from mini_bert.models.registry import PRESETS, model_class, preset
from mini_bert.objectives.base import Rows
from mini_bert.objectives.registry import objective_class
from mini_bert.text.loading import load_tokenizer
from mini_bert.training.parallel import Team
from mini_bert.training.plan import memory_by_purpose, planned
from mini_bert.training.setup import set_up

BATCH, MICRO_BATCH, LENGTH = 32, 8, 64
WIDTH = 100


class Row(NamedTuple):
    """One architecture in numbers; those of the preset are for `mini-bert train --model NAME`."""

    member: Member
    parameters: int
    published: int  # of its first published size
    published_name: str
    objective: str
    context: int  # tokens
    memory: int  # bytes to train the preset
    seconds: float | None  # a step of 32 × 64 tokens


def published_config(member: Member, name: str) -> Any:
    kind = model_class(preset(member.preset).to_dict()).config_class
    return kind(**member.published[name])


def members() -> list[Member]:
    return [member for member in MEMBERS if member.preset in PRESETS]
