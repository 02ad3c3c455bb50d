"""What stands in the gap? The question that BERT was trained on, asked of a sentence of yours.

    $ mini-bert fill-mask "The capital of France is [MASK]."

Of a text with several gaps each is filled by itself: the other gaps stay open while the model looks around. So the
sentence that the best words make together is a suggestion, not the likeliest of all sentences.
"""

from __future__ import annotations

import json
import re
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

from mini_bert.common.progress import counted
from mini_bert.inference.loading import DEFAULT_MODEL, load
from mini_bert.layers.base import Run
from mini_bert.layers.softmax import softmax
from mini_bert.models.base import MASKED_WORDS, Model

if TYPE_CHECKING:
    from mini_bert.text.base import Tokenizer

BAR = 24  # characters of a bar that stands for certainty


class Guess(NamedTuple):
    word: str
    probability: float
    id: int


class Filled(NamedTuple):
    """The best guesses for every gap, in the order of the text, and the text with the best of each in its place"""

    gaps: list[list[Guess]]
    text: str
    mask: str  # how a gap is written


def fill_mask(model: Model, tokenizer: Tokenizer, text: str, top: int = 5) -> Filled:
    """The `top` likeliest words for every [MASK] in a text, and the text with the likeliest filled in.

    Probabilities are those among all words that the model knows; special tokens are not offered.
    """
    head = model.output_head(MASKED_WORDS)
    if top < 1:
        raise ValueError(f"top is {top}, expected the number of guesses to show, at least 1")
    mask, mask_id = tokenizer.mask_token or "", tokenizer.mask_id
    ids = np.array([tokenizer.encode(text, special=mask)])
    rows = np.flatnonzero(ids[0] == mask_id)
    if not rows.size:
        almost = re.search(r"[\[<]mask[\]>]|___", text, re.IGNORECASE)
        hint = f"; it has {almost[0]}, write {mask} instead" if almost else f", such as: The cat sat on the {mask}."
        raise ValueError(f"there is no {mask} in the text {text!r:.80}; put one where a word is to be guessed{hint}")
    if ids.shape[1] > model.max_length:
        raise ValueError(
            f"the text makes {counted(ids.shape[1], 'token')}, with [CLS] and [SEP], but this model knows "
            f"{model.max_length} positions; give the sentence with the gap and little around it"
        )
    run = Run()
    hidden, _ = model.encode(ids, run=run, chosen=rows)  # (N,H), only the gaps
    probs, _ = softmax(head.forward(hidden, run)[0])  # (N,V)
    probs = probs[:, : tokenizer.vocab_size]  # a model may have more ids than there are words
    offered = probs.copy()
    offered[:, list(tokenizer.special_ids)] = -1
    gaps = []
    for row, words in zip(probs, offered, strict=True):
        best = np.argsort(-words, kind="stable")[: min(top, words.size - len(tokenizer.special_ids))]
        gaps.append([Guess(tokenizer.tokens[i], float(row[i]), int(i)) for i in best])
    return Filled(gaps, _written(tokenizer, text.split(mask), [guesses[0].id for guesses in gaps]), mask)


def _written(tokenizer: Tokenizer, parts: list[str], ids: list[int]) -> str:
    """The text as it was typed, with pieces in its gaps; a piece that continues a word joins the text before it"""
    written = parts[0]
    for i, after in zip(ids, parts[1:], strict=True):
        written = (written.rstrip() if tokenizer.continues[i] else written) + tokenizer.piece_text(i) + after
    return written


def fill_mask_command(text: str, model: str = DEFAULT_MODEL, top: int = 5, as_json: bool = False) -> None:
    """Print the likeliest words for every [MASK] in a text."""
    loaded, tokenizer = load(model)
    with threadpool_limits(1, "blas"):  # a second thread gains nothing in one sentence, and loses on a busy machine
        filled = fill_mask(loaded, tokenizer, text, top)
    print(report_json(text, model, filled) if as_json else report(filled))


def report(filled: Filled) -> str:
    """A table for people: words, probabilities, and a bar for each"""
    several = len(filled.gaps) > 1
    block = "█" if "utf" in (sys.stdout.encoding or "").lower() else "#"
    width = max(len(guess.word) for guesses in filled.gaps for guess in guesses)
    lines = []
    for number, guesses in enumerate(filled.gaps, 1):
        if several:
            lines += [f"{_ordinal(number)} {filled.mask}"]
        for guess in guesses:
            bar = block * round(guess.probability * BAR)
            lines.append(f"  {guess.word:{width}}  {guess.probability:6.1%}  {bar}".rstrip())
        lines.append("")
    return "\n".join([*lines, filled.text])


def report_json(text: str, model: str, filled: Filled) -> str:
    """The same for programs"""
    content: dict[str, Any] = {
        "model": model,
        "text": text,
        "masks": [[guess._asdict() for guess in guesses] for guesses in filled.gaps],
        "filled": filled.text,
    }
    return json.dumps(content, indent=2, ensure_ascii=False)


def _ordinal(number: int) -> str:
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"
