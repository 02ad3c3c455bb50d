"""The bench: the model and its tokenizer, as all rooms use them.

    bench = Bench.load("mini-bert")
    reading = bench.read("The cat sat.")        its tokens, with the ids that the model gets
    cache = bench.encode(reading)               the forward pass
    result = bench.kept(function, reading)      function(bench, reading), kept for the next request about the same text

Rooms are pure: they read the model and never change it. Arrays that are kept belong to all requests, so no room may
write to them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from mini_bert.inference.loading import load, load_for_gradients
from mini_bert.inside.inputs import runs_on
from mini_bert.lab.fields import BadRequest
from mini_bert.lab.shelf import UNTRAINED
from mini_bert.layers.base import Run
from mini_bert.models.base import MASKED_WORDS, Model
from mini_bert.models.cache import EncodeCache
from mini_bert.text.base import Tokenizer

LONGEST = 128  # tokens that the lab takes, if the model takes as many
KEPT = 16  # results: forward passes and operations of a few sentences in a few tabs
STATES_KEPT = 64  # sentences: their hidden states alone take little memory


class Reading(NamedTuple):
    """A text as the model reads it. Tuples, so that it can be the key of a cache."""

    text: str
    ids: tuple[int, ...]
    types: tuple[int, ...]
    tokens: tuple[str, ...]
    roles: tuple[str, ...]  # "cls" or "sep" for added tokens, "mask" for a mask in the text, "" for words
    words: tuple[int | None, ...]  # the index of the word that a token belongs to
    spans: tuple[tuple[int, int], ...]  # where it is in the text

    def shown(self) -> list[dict[str, Any]]:
        """For the page."""
        return [
            {"text": token, "role": role, "word": word, "start": start, "end": end}
            for token, role, word, (start, end) in zip(self.tokens, self.roles, self.words, self.spans, strict=True)
        ]


class Bench:
    def __init__(self, name: str, model: Model, tokenizer: Tokenizer):
        self.name, self.model, self.tokenizer = name, model, tokenizer
        self.longest = int(min(LONGEST, model.max_length))
        self.kept: Callable[[Callable[[Bench, Reading], Any], Reading], Any] = lru_cache(KEPT)(self._compute)
        self.states: Callable[[Reading], np.ndarray] = lru_cache(STATES_KEPT)(self._states)  # (L+1,T,H)

    @classmethod
    def load(cls, name: str) -> Bench:
        """A model by name or folder; UNTRAINED is Mini-BERT before its training."""
        if name == UNTRAINED:
            model, tokenizer = load("mini-bert")
            return cls(name, model.untrained(0), tokenizer)
        return cls(name, *load_for_gradients(name))

    def read(self, text: str) -> Reading:
        """The tokens of a text, with the special ones that the model saw in training (inside/inputs.py, as_trained).

        The mask token counts as a mask if the model guesses masked words; other special tokens are plain text.
        """
        mask = self.tokenizer.mask_token if MASKED_WORDS in self.model.output_heads else None
        encoding = self.tokenizer.encode_batch([text], special=mask or False)[0]
        if len(encoding.ids) <= self.tokenizer.added_count():
            raise BadRequest("there is no word yet; type a sentence")
        if len(encoding.ids) > self.longest:
            raise BadRequest(
                f"the sentence has {len(encoding.ids)} tokens, including special ones; at most {self.longest} fit, so "
                "shorten it"
            )
        hidden = None if mask is None else self.tokenizer.mask_id
        roles = self.tokenizer.added_roles(encoding.ids)
        roles = ["mask" if i == hidden else role for i, role in zip(encoding.ids, roles, strict=True)]
        columns = zip(encoding.ids, encoding.type_ids, roles, encoding.word_ids, encoding.offsets, strict=True)
        rows: list[tuple[int, int, str, int | None, tuple[int, int]]] = list(columns)
        if runs_on(self.model, self.tokenizer):  # a model of the next word: only a separator, before the text
            rows = [(self.tokenizer.sep_id, 0, "sep", None, (0, 0)), *(row for row in rows if row[2] in ("", "mask"))]
        ids, types, kinds, words, spans = zip(*rows, strict=True)
        tokens = tuple(self.tokenizer.readable(i) for i in ids)
        return Reading(text, ids, types, tokens, kinds, words, tuple((start, end) for start, end in spans))

    def encode(self, reading: Reading) -> EncodeCache:
        """The cache of a forward pass without a mask or padding."""
        return self.kept(_encode, reading)

    def best(self, scores: np.ndarray, count: int) -> list[int]:
        """The ids of the tokens with the highest scores (V,), special tokens left out."""
        offered = scores.copy()
        offered[list(self.tokenizer.special_ids)] = -np.inf
        return np.argsort(-offered, kind="stable")[:count].tolist()

    def _states(self, reading: Reading) -> np.ndarray:
        return np.stack([state[0] for state in self.encode(reading).hidden_states()])

    def _compute(self, function: Callable[[Bench, Reading], Any], reading: Reading) -> Any:
        return function(self, reading)


def _encode(bench: Bench, reading: Reading) -> EncodeCache:
    ids, types = np.array([reading.ids]), np.array([reading.types])
    return bench.model.encode(ids, token_types=types, run=Run())[1]


def rounded(value: Any, digits: int = 6) -> float:
    """A number for JSON: enough digits for the page, and few bytes."""
    return float(f"{float(value):.{digits}g}")
