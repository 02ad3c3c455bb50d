"""Guess masked words: the task that BERT was trained on.

    $ mini-bert fill-mask "The capital of France is [MASK]."

If a text has several masks, each is predicted independently while the others stay masked. The sentence made of the best
words is therefore not necessarily the most likely sentence.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from mini_bert.common.inputs import check_finite
from mini_bert.common.progress import bar, counted
from mini_bert.layers.base import Run
from mini_bert.layers.softmax import softmax
from mini_bert.models.base import MASKED_WORDS, Model
from mini_bert.text.templates import pad

if TYPE_CHECKING:
    from mini_bert.text.base import Tokenizer


class Guess(NamedTuple):
    word: str
    probability: float
    id: int


class Filled(NamedTuple):
    gaps: list[list[Guess]]  # the best guesses for each mask, in the order of the text
    text: str  # with the best guess for each
    mask: str  # the mask token


def fill_mask(model: Model, tokenizer: Tokenizer, text: str, top: int = 5) -> Filled:
    """The `top` likeliest words for every [MASK] in a text, and the text with the likeliest filled in.

    Probabilities are over the whole vocabulary; special tokens are not offered.
    """
    if top < 1:
        raise ValueError(f"top is {top}, expected at least 1")
    (probs,) = gap_probabilities(model, tokenizer, [read_gaps(model, tokenizer, text)])
    gaps = [best_guesses(tokenizer, row, top) for row in probs]
    mask = tokenizer.mask_token or ""
    return Filled(gaps, filled_in(tokenizer, text, [guesses[0].id for guesses in gaps]), mask)


def read_gaps(model: Model, tokenizer: Tokenizer, text: str) -> list[int]:
    """The ids of a text with masks in it, without special tokens around it."""
    model.output_head(MASKED_WORDS)  # raises an error for a model without one
    mask, mask_id = tokenizer.mask_token or "", tokenizer.mask_id
    (ids,) = tokenizer.ids([text], special=mask)
    if mask_id not in ids:
        almost = re.search(r"[\[<]mask[\]>]|___", text, re.IGNORECASE)
        hint = f"; it has {almost[0]}, write {mask} instead" if almost else f", such as: The cat sat on the {mask}."
        raise ValueError(f"there is no {mask} in the text {text!r:.80}; put one where a word is to be guessed{hint}")
    length = len(ids) + tokenizer.added_count()
    if length > model.max_length:
        raise ValueError(
            f"the text has {counted(length, 'token')}, including special ones, but this model is configured for "
            f"at most {model.max_length}; shorten the context around the mask"
        )
    return ids


def gap_probabilities(model: Model, tokenizer: Tokenizer, rows: Sequence[Sequence[int]]) -> list[np.ndarray]:
    """For each text of a batch the probability of every word in each of its gaps, (gaps,V). rows: of `read_gaps`"""
    head, run = model.output_head(MASKED_WORDS), Run()
    ids, mask, types, _ = pad([tokenizer.assemble(row) for row in rows], tokenizer.padding)
    hidden_rows = np.flatnonzero(ids == tokenizer.mask_id)
    inputs = model.hide(model.check_inputs(ids, mask, types), hidden_rows, tokenizer.mask_id)
    hidden, _ = model.encode_inputs(inputs, run, hidden_rows)  # (N,H), only the masks
    probs, _ = softmax(head.forward(hidden, run)[0])  # (N,V)
    check_finite(probs, "the probabilities of words")
    probs = probs[:, : tokenizer.vocab_size]  # a model may have more ids than the vocabulary has words
    return np.split(probs, np.cumsum((ids == tokenizer.mask_id).sum(1))[:-1])


def best_guesses(tokenizer: Tokenizer, probs: np.ndarray, top: int) -> list[Guess]:
    """The likeliest words of a gap; special tokens are not offered. probs: (V,)"""
    offered = probs.copy()
    offered[list(tokenizer.special_ids)] = -1
    best = np.argsort(-offered, kind="stable")[: min(top, offered.size - len(tokenizer.special_ids))]
    return [Guess(tokenizer.readable(i), float(probs[i]), int(i)) for i in best]


def filled_in(tokenizer: Tokenizer, text: str, ids: Sequence[int | None]) -> str:
    """The text as it was typed, with pieces in its first gaps; None leaves a gap. A piece that continues a word joins
    the text before it."""
    mask = tokenizer.mask_token or ""
    written, *parts = text.split(mask, len(ids))
    for i, after in zip(ids, parts, strict=True):
        if i is None:
            written += mask + after
        else:
            written = (written.rstrip() if tokenizer.continues[i] else written) + tokenizer.piece_text(i) + after
    return written


def report(filled: Filled) -> str:
    """A table of words, probabilities and bars for each mask, and the completed text."""
    several = len(filled.gaps) > 1
    width = max(len(guess.word) for guesses in filled.gaps for guess in guesses)
    lines = []
    for number, guesses in enumerate(filled.gaps, 1):
        if several:
            lines += [f"{_ordinal(number)} {filled.mask}"]
        for guess in guesses:
            lines.append(f"  {guess.word:{width}}  {guess.probability:6.1%}  {bar(guess.probability)}".rstrip())
        lines.append("")
    return "\n".join([*lines, filled.text])


def _ordinal(number: int) -> str:
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"
