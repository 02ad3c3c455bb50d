"""Does a sentence sound right to the model? Hide one token after the other, and ask for each.

    PLL(w) = Σ_i log p(w_i | all other tokens)          pseudo-log-likelihood (Salazar et al. 2020)
    pseudo-perplexity = exp(−PLL / N)                   N tokens: among how many words the model wavers at a gap

−log p(w_i | …) is the surprise at one token, in nats: 0 if nothing else could stand there, ln V if the model has no
idea, more if it was sure of something else.

What it is good for: of two sentences that differ in little, to say which the model finds more usual ("the keys are",
"the keys is"), and to point at the token that does not fit.

What it is not. It is not the probability of the sentence: every token is guessed with all others in sight, so what two
tokens tell about each other is counted twice, and over all sentences such products do not add up to 1. It is therefore
no perplexity as GPT has one, where a token is guessed from those before it alone, and which is usually much larger.
It cannot be compared between models with different vocabularies: who cuts words into more pieces guesses more of them,
and easier ones. And it falls with length, since a longer sentence tells more about each of its tokens: compare
sentences of about the same length.

The pieces of one word give each other away: of "ze ##br ##as" each is easy when two are in sight. With `whole_words`
the pieces behind the hidden one are hidden too, as far as the word goes (Kauf & Ivanova 2023).
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from mini_bert.common.progress import counted
from mini_bert.common.values import check_positive
from mini_bert.layers.base import Run
from mini_bert.models.base import MASKED_WORDS, Model

if TYPE_CHECKING:
    from mini_bert.text.base import Tokenizer

BAR = 24  # characters of the longest bar
LIKE = 1.25  # texts of which none has more tokens than so many times those of another can be compared


class Surprise(NamedTuple):
    token: str
    surprise: float  # −log p, in nats
    guess: str  # what the model would have put there
    certainty: float  # the probability of that


class PseudoPerplexity(NamedTuple):
    text: str
    tokens: list[Surprise]
    unknown: list[str]  # tokens that were not asked for: [UNK], and other special ones
    log_likelihood: float  # PLL
    perplexity: float


def pseudo_perplexity(
    model: Model,
    tokenizer: Tokenizer,
    text: str,
    whole_words: bool = False,
    batch_size: int = 32,
    after_each: Callable[[int, int], None] | None = None,
) -> PseudoPerplexity:
    """How surprised the model is at each token of a text, seeing all others; and exp of the mean

    Special tokens ([CLS], [SEP], and [UNK] for what the vocabulary cannot spell) are seen, but not asked for: the model
    never learnt to guess them. The head runs on the hidden tokens only. after_each: (tokens done, of how many).
    """
    head = model.output_head(MASKED_WORDS)
    check_positive("batch_size", batch_size)
    encoding = tokenizer.encode_batch([text], special=tokenizer.mask_token)[0]
    ids, words = np.array(encoding.ids), encoding.word_ids
    special = np.isin(ids, tokenizer.special_ids)
    places = np.flatnonzero(~special)
    if not places.size:
        raise ValueError(f"there is no word that the model knows in the text {text!r:.80}; give one with words")
    if ids.size > model.max_length:
        raise ValueError(
            f"the text makes {counted(ids.size, 'token')}, with [CLS] and [SEP], but this model knows "
            f"{model.max_length} positions; give one sentence at a time"
        )
    offered = np.zeros(model.vocab_size, bool)  # a model may have more ids than there are words
    offered[: tokenizer.vocab_size] = True
    offered[list(tokenizer.special_ids)] = False

    run, found = Run(), []
    for start in range(0, places.size, batch_size):
        some = places[start : start + batch_size]
        hidden = np.tile(ids, (some.size, 1))  # (B,T), in each row another token
        for row, place in zip(hidden, some, strict=True):
            row[place] = tokenizer.mask_id
            while whole_words and words[place + 1] == words[place]:  # behind the last word stands [SEP], which is none
                place += 1
                row[place] = tokenizer.mask_id
        chosen = np.arange(some.size) * ids.size + some
        y, _ = model.encode(hidden, run=run, chosen=chosen)  # (B,H)
        logits = head.forward(y, run)[0].astype(float)  # (B,V)
        logits -= logits.max(1, keepdims=True)
        log_p = logits - np.log(np.exp(logits).sum(1, keepdims=True))
        best = np.where(offered, log_p, -np.inf).argmax(1)
        for row, place, guess in zip(log_p, some, best, strict=True):
            surprise = Surprise(
                tokenizer.tokens[ids[place]], -float(row[ids[place]]), tokenizer.tokens[guess], math.exp(row[guess])
            )
            found.append(surprise)
        if after_each is not None:
            after_each(len(found), places.size)
    total = -math.fsum(one.surprise for one in found)
    unknown = [tokenizer.tokens[i] for i in ids[special].tolist()[1:-1]]  # between [CLS] and [SEP]
    return PseudoPerplexity(text, found, unknown, total, math.exp(min(-total / len(found), 700)))


def report(results: Sequence[PseudoPerplexity]) -> str:
    """For people: a row and a bar for every token; of several texts of like length, which fits best"""
    block = "█" if "utf" in (sys.stdout.encoding or "").lower() else "#"
    every = [one for result in results for one in result.tokens]
    longest = max([5.0, *(one.surprise for one in every if math.isfinite(one.surprise))])  # one scale for all texts
    width, wide = (max(map(len, column)) for column in zip(*((one.token, one.guess) for one in every), strict=True))
    lines = []
    for result in results:
        lines.append(result.text)
        for one in result.tokens:
            bar = block * round(one.surprise / longest * BAR) if math.isfinite(one.surprise) else ""
            other = "" if one.guess == one.token else f"{one.guess:{wide}} {one.certainty:4.0%}"
            lines.append(f"  {one.token:{width}} {one.surprise:6.2f}  {other:{wide + 5}}  {bar}".rstrip())
        note = f"; not asked for: {' '.join(result.unknown)}" if result.unknown else ""
        lines += [f"pseudo-perplexity {result.perplexity:,.2f} over {counted(len(result.tokens), 'token')}{note}", ""]
    sizes = [len(result.tokens) for result in results]
    if len(results) > 1 and max(sizes) <= LIKE * min(sizes):
        best = min(results, key=lambda result: result.perplexity)
        lines += [f"The model is least surprised by: {best.text}", ""]
    lines.append(
        "Surprise in nats at each token, with all others in sight, and what the model would rather have put there.\n"
        "Pseudo-perplexity is exp of its mean. It is no probability of the sentence; compare it between sentences of\n"
        "like length, under one model."
    )
    return "\n".join(lines)


def content(result: PseudoPerplexity) -> dict[str, Any]:
    """The same for programs"""
    return {
        "text": result.text,
        "pseudo_perplexity": result.perplexity,
        "log_likelihood": result.log_likelihood,
        "tokens": [one._asdict() for one in result.tokens],
        "not_asked_for": result.unknown,
    }
