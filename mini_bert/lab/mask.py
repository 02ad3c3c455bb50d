"""The mask lab: hide words, see what the model guesses, and how surprising each word is.

    p(word | what the model may see)        softmax of the logits at the gap

All hidden words are replaced by [MASK]. Each is guessed on its own while the others stay hidden. With `context` "left"
or "right", the words on the other side of a gap are taken away by the attention mask: no layer can attend to them.
[CLS] and [SEP] stay, because the model has never seen a text without them.

A model that reads forward, such as GPT-2, guesses each word from all words before it, hidden ones included. A model
that guesses no words, such as ELECTRA, still says how surprising each word is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from mini_bert.evaluation.pseudo_perplexity import pseudo_perplexity
from mini_bert.lab.bench import Bench, Reading, rounded
from mini_bert.lab.fields import Fields, Unable
from mini_bert.layers.base import Run
from mini_bert.layers.softmax import softmax
from mini_bert.models.base import MASKED_WORDS, NEXT_WORD

CONTEXTS = ("both", "left", "right")
MOST_GAPS = 16
MOST_GUESSES = 20
NOTHING_BEFORE = "This model reads forward, and there is nothing before the first word to guess it from."


def guess(bench: Bench, request: Mapping[str, Any]) -> dict[str, Any]:
    """The likeliest words for every gap.

    text, hidden (positions of tokens), context ("both", "left" or "right"), top (guesses for each gap)
    """
    fields = Fields(request)
    reading = bench.read(fields.text())
    hidden = fields.integers("hidden", 0, len(reading.ids) - 1)
    context = fields.choice("context", CONTEXTS, "both")
    top = fields.integer("top", 1, MOST_GUESSES, 8)
    fields.end()
    gaps, way = gaps_of(reading, hidden), way_of(bench)
    answer: dict[str, Any] = {
        "tokens": reading.shown(), "gaps": [], "filled": reading.text, "forward": way == NEXT_WORD, "why": None,
    }  # fmt: skip
    if way is None:
        answer["why"] = no_guesses(bench)
    elif way == NEXT_WORD and gaps[:1] == [0]:
        answer["why"], gaps = NOTHING_BEFORE, gaps[1:]
    if not gaps or way is None:
        return answer
    probs = word_probabilities(bench, reading, gaps, context)
    answer["gaps"] = [_gap(bench, reading, gap, row, top) for gap, row in zip(gaps, probs, strict=True)]
    best = [one["guesses"][0]["id"] for one in answer["gaps"]]
    answer["filled"] = filled(bench, reading, dict(zip(gaps, best, strict=True)))
    return answer


def way_of(bench: Bench) -> str | None:
    """The output head that guesses words: that for masked words, or for the next word; None: there is none."""
    heads = bench.model.output_heads
    if MASKED_WORDS in heads and bench.tokenizer.mask_token is not None:
        return MASKED_WORDS
    return NEXT_WORD if NEXT_WORD in heads else None


def no_guesses(bench: Bench) -> str:
    """Why a model cannot guess words."""
    heads = " and ".join(name.replace("_", " ") for name in bench.model.output_heads) or "none"
    if MASKED_WORDS in bench.model.output_heads:
        return "Its tokenizer has no mask token, so no word can be hidden."
    return f"This {type(bench.model).__name__} has no output head that guesses words (its output heads: {heads})."


def word_probabilities(bench: Bench, reading: Reading, gaps: list[int], context: str = "both") -> np.ndarray:
    """(N,V) a probability for each word of the vocabulary at each gap, by what the model was trained to do"""
    way = way_of(bench)
    if way is None:
        raise Unable(no_guesses(bench))
    if way == MASKED_WORDS:
        return gap_probabilities(bench, reading, gaps, context)
    if 0 in gaps:
        raise Unable(NOTHING_BEFORE)
    return next_probabilities(bench, reading, gaps)


def next_probabilities(bench: Bench, reading: Reading, places: list[int]) -> np.ndarray:
    """(N,V) p(token at a place | all tokens before it): the output at the place before"""
    hidden = bench.encode(reading).hidden[0, np.array(places) - 1]  # (N,H)
    probs, _ = softmax(bench.model.output_head(NEXT_WORD).forward(hidden, Run())[0])
    return probs[:, : bench.tokenizer.vocab_size]


def gaps_of(reading: Reading, hidden: list[int]) -> list[int]:
    """The positions to guess: those that are hidden, and masks in the text."""
    gaps = sorted({*hidden, *(place for place, role in enumerate(reading.roles) if role == "mask")})
    for place in gaps:
        if reading.roles[place] in ("cls", "sep", "pad"):
            raise ValueError(f"{reading.tokens[place]} at position {place} is not a word, so it cannot be hidden")
    if len(gaps) > MOST_GAPS:
        raise ValueError(f"{len(gaps)} tokens are hidden; at most {MOST_GAPS} can be guessed at once, so show some")
    return gaps


def gap_probabilities(bench: Bench, reading: Reading, gaps: list[int], context: str = "both") -> np.ndarray:
    """(N,V) a probability for each word of the vocabulary at each gap"""
    model, run = bench.model, Run()
    head = model.output_head(MASKED_WORDS)
    sees = visible(reading, gaps, context)  # (S,T): one sequence if all gaps see the same
    S, T = sees.shape
    inputs = model.check_inputs(np.tile(reading.ids, (S, 1)), sees.astype(int), np.tile(reading.types, (S, 1)))
    inputs = model.hide(inputs, (np.arange(S)[:, None] * T + gaps).ravel(), bench.tokenizer.mask_id)
    chosen = np.array(gaps) + (np.arange(S) * T if S > 1 else 0)  # gap n of sequence n, or all gaps of one
    hidden, _ = model.encode_inputs(inputs, run, chosen)  # (N,H)
    probs, _ = softmax(head.forward(hidden, run)[0])
    return probs[:, : bench.tokenizer.vocab_size]


def visible(reading: Reading, gaps: list[int], context: str) -> np.ndarray:
    """(S,T) the tokens that may be seen; a row for each gap, or one row if the context is whole"""
    places = np.arange(len(reading.ids))
    if context == "both":
        return np.ones((1, places.size), bool)
    away = places - np.array(gaps)[:, None]
    added = np.array([role in ("cls", "sep") for role in reading.roles])
    return added | (away <= 0 if context == "left" else away >= 0)


def _gap(bench: Bench, reading: Reading, gap: int, probs: np.ndarray, top: int) -> dict[str, Any]:
    tokenizer, own = bench.tokenizer, reading.ids[gap]
    offered = probs.copy()
    offered[list(tokenizer.special_ids)] = -1
    best = np.argsort(-offered, kind="stable")[:top]
    guesses = [{"word": tokenizer.readable(i), "id": int(i), "p": rounded(probs[i])} for i in best]
    answer: dict[str, Any] = {"position": gap, "guesses": guesses, "own": None}
    if own not in tokenizer.special_ids:
        answer["own"] = {
            "word": reading.tokens[gap],
            "id": int(own),
            "p": rounded(probs[own]),
            "rank": int((offered > offered[own]).sum()) + 1,
            "surprise": rounded(-math.log(max(float(probs[own]), 1e-30))),
        }
    return answer


def filled(bench: Bench, reading: Reading, ids: dict[int, int]) -> str:
    """The text with these pieces in place of its tokens. A piece that continues a word joins the text before it, and
    one that begins a word gets a space if it replaces a piece that continued one."""
    text, done = "", 0
    for place, (start, end) in enumerate(reading.spans):
        if place in ids:
            text += reading.text[done:start]
            piece = ids[place]
            if bench.tokenizer.continues[piece]:
                text = text.rstrip()
            elif reading.words[place] == reading.words[place - 1] and not text.endswith(" "):
                text += " "
            text += bench.tokenizer.piece_text(piece)
            done = end
    return text + reading.text[done:]


def surprise(bench: Bench, request: Mapping[str, Any]) -> dict[str, Any]:
    """How surprising each token is if it alone is hidden: −ln p, and the model's own guess there."""
    fields = Fields(request)
    reading = bench.read(fields.text())
    fields.end()
    result = pseudo_perplexity(bench.model, bench.tokenizer, reading.text)
    places = [place for place, i in enumerate(reading.ids) if i not in bench.tokenizer.special_ids]
    return {
        "perplexity": rounded(result.perplexity),
        "tokens": [
            {
                "position": place,
                "surprise": rounded(one.surprise),
                "guess": one.guess,
                "certainty": rounded(one.certainty),
            }
            for place, one in zip(places, result.tokens, strict=True)
        ],
    }


ACTIONS = {"guess": guess, "surprise": surprise}
