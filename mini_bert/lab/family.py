"""The family room: one model on a sentence, in short; the page asks two models the same.

Models may have different tokenizers, so a word is named by the place of a character, `at`. All its pieces are hidden:

    a head for masked words       p(piece | the words around it)
    a head for the next word      p(piece | the words before it), since such a model reads forward
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from mini_bert.lab.bench import Bench, Reading, rounded
from mini_bert.lab.fields import Fields, Unable
from mini_bert.lab.mask import way_of, word_probabilities
from mini_bert.lab.stepper import packed
from mini_bert.models.base import MASKED_WORDS

TOP = 6  # guesses
MOST_PIECES = 8  # of a hidden word


def about(bench: Bench, request: Mapping[str, Any]) -> dict[str, Any]:
    """What kind of model it is."""
    Fields(request).end()
    model = bench.model
    return {
        "name": bench.name,
        "kind": type(model).__name__,
        "tokenizer": type(bench.tokenizer).__name__.removesuffix("Tokenizer"),
        "vocabulary": bench.tokenizer.vocab_size,
        "parameters": int(model.flat.data.size),
        "layers": model.depth,
        "heads": model.heads,
        "width": model.width,
        "longest": bench.longest,
        "forward": model.reads_forward,
        "output_heads": [name.replace("_", " ") for name in model.output_heads],
    }


def guesses(bench: Bench, request: Mapping[str, Any]) -> dict[str, Any]:
    """The tokens of a text, and what the model would put in place of one word.        text, at (a character)"""
    fields = Fields(request)
    reading = bench.read(fields.text())
    at = fields.integer("at", 0, max(0, len(reading.text) - 1))
    fields.end()
    places = word_places(reading, at)
    answer = {"tokens": reading.shown(), "places": places, "from": "", "gaps": [], "why": None}
    if not places:
        answer["why"] = "There is no word at this place; press one."
    elif len(places) > MOST_PIECES:
        answer["why"] = f"This word has {len(places)} pieces; at most {MOST_PIECES} are guessed."
    else:
        try:
            answer["gaps"] = _gaps(bench, reading, places, word_probabilities(bench, reading, places))
            answer["from"] = "both sides" if way_of(bench) == MASKED_WORDS else "the words before it"
        except Unable as problem:
            answer["why"] = str(problem)
    return answer


def word_places(reading: Reading, at: int) -> list[int]:
    """The positions of the pieces of the word that has this character, or of the next word."""
    spans = [
        (start, end, word)
        for (start, end), word, role in zip(reading.spans, reading.words, reading.roles, strict=True)
        if word is not None and role in ("", "mask")
    ]
    word = next((word for start, end, word in spans if at < max(end, start + 1)), None)
    return [place for place, own in enumerate(reading.words) if own is not None and own == word]


def _gaps(bench: Bench, reading: Reading, places: list[int], probs: np.ndarray) -> list[dict[str, Any]]:
    found = []
    for place, row in zip(places, probs, strict=True):
        own, offered = reading.ids[place], row.copy()
        offered[list(bench.tokenizer.special_ids)] = -1
        best = np.argsort(-offered, kind="stable")[:TOP].tolist()
        hidden = reading.roles[place] != "mask"
        if hidden and own not in best:
            best.append(own)
        found.append(
            {
                "position": place,
                "own": reading.tokens[place] if hidden else None,
                "guesses": [
                    {"word": bench.tokenizer.readable(i), "p": rounded(row[i]), "own": hidden and i == own}
                    for i in best
                ],
            }
        )
    return found


def attention(bench: Bench, request: Mapping[str, Any]) -> dict[str, Any]:
    """The weights of one head; a layer or head that the model does not have is its last.        text, layer, head"""
    fields = Fields(request)
    reading = bench.read(fields.text())
    layer, head = (min(fields.integer(name, 0, 999, 0), most - 1)
                   for name, most in (("layer", bench.model.depth), ("head", bench.model.heads)))  # fmt: skip
    fields.end()
    weights = bench.encode(reading).attention_weights()[layer][0]  # (A,T,T)
    head = min(head, len(weights) - 1)
    return {
        "tokens": list(reading.tokens),
        "layer": layer,
        "head": head,
        "layers": bench.model.depth,
        "heads": bench.model.heads,
        "numbers": packed(weights[head]),
    }


ACTIONS = {"about": about, "guesses": guesses, "attention": attention}
