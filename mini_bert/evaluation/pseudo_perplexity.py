"""How natural does the model find a sentence? Mask one token at a time and predict it (likelihood.py).

    PLL(w) = Σ_i log p(w_i | all other tokens)          pseudo-log-likelihood (Salazar et al. 2020)
    pseudo-perplexity = exp(−PLL / N)                   N tokens

−log p(w_i | …) is the surprise at one token, in nats: 0 if the model is certain of it, ln V if all words are equally
likely, more if the model is certain of something else.

Use it to compare two sentences that differ little ("the keys are", "the keys is"), and to find the token that does not
fit. It is not the probability of the sentence, and not the perplexity of a left-to-right model, because every token is
predicted from both sides. It cannot be compared between vocabularies, nor between sentences of different lengths:
the more context there is, the easier each token is to predict. docs/metrics.md has more.

The pieces of a word give each other away: each of "ze ##br ##as" is easy to predict from the other two. `whole_words`
also masks the pieces that follow in the same word (Kauf & Ivanova 2023).

A model of the next word (GPT) predicts each token from those before it, in one pass. Then the sum is the log-likelihood
of the text, and exp of its mean the ordinary perplexity. A discriminator (ELECTRA) predicts no words: its surprise is
−log p(the token was not replaced), which also finds the token that does not fit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from mini_bert.common.inputs import check_finite
from mini_bert.common.progress import bar, counted
from mini_bert.common.values import check_positive
from mini_bert.evaluation.likelihood import (
    Sequences,
    context_and_words,
    original_log_probabilities,
    predicted_logits,
    way_of,
)
from mini_bert.models.base import MASKED_WORDS, NEXT_WORD, REPLACED, Model

if TYPE_CHECKING:
    from mini_bert.text.base import Tokenizer

SIMILAR = 1.25  # texts can be compared if the longest has at most this many times the tokens of the shortest


class Surprise(NamedTuple):
    token: str
    surprise: float  # −log p, in nats
    guess: str  # the model's most likely token
    certainty: float  # its probability


class PseudoPerplexity(NamedTuple):
    text: str
    tokens: list[Surprise]
    unknown: list[str]  # [UNK] and other special tokens, which are not predicted
    log_likelihood: float  # PLL
    perplexity: float
    way: str = MASKED_WORDS  # the output head that was asked


class Wording(NamedTuple):
    name: str  # of the result
    meaning: str


WORDING = {
    MASKED_WORDS: Wording(
        "pseudo-perplexity",
        "Surprise, in nats, at each token given all the others, and the model's own guess where it differs.\n"
        "Pseudo-perplexity is exp of the mean surprise. Compare it only between sentences of similar length,\n"
        "and for the same model.",
    ),
    NEXT_WORD: Wording(
        "perplexity",
        "Surprise, in nats, at each token given those before it, and the model's own guess where it differs.\n"
        "Perplexity is exp of the mean surprise. Compare it only between texts, for the same model: those of\n"
        "other vocabularies have other tokens.",
    ),
    REPLACED: Wording(
        "exp of the mean surprise",
        "Surprise, in nats, that a token is the original one: −log of the probability that it was not replaced,\n"
        "0.69 if replaced is as likely as not. It is not a probability of the text; compare it only between\n"
        "sentences that differ little, for the same model.",
    ),
}


def pseudo_perplexity(
    model: Model,
    tokenizer: Tokenizer,
    text: str,
    whole_words: bool = False,
    batch_size: int = 32,
) -> PseudoPerplexity:
    """The model's surprise at each token of a text, given all other tokens (or those before it), and exp of the mean.

    Special tokens are context only: the model was not trained to predict them.
    """
    check_positive("batch_size", batch_size)
    way = way_of(model)
    if whole_words and way != MASKED_WORDS:
        raise ValueError(
            f"whole_words masks the other pieces of a word, too, but this {type(model).__name__} masks nothing; leave "
            "out --whole-words"
        )
    encoding = tokenizer.encode_batch([text], add_special_tokens=False, special=tokenizer.mask_token)[0]
    texts = context_and_words(model, tokenizer, text)
    start = 1 if way == NEXT_WORD else tokenizer.assemble(encoding.ids).starts[0]  # as in context_and_words
    words = dict(enumerate(encoding.word_ids, start))  # place -> the index of its word

    def together(place: int, other: int) -> bool:
        return whole_words and words.get(other) == words[place]

    if way == REPLACED:
        tokens = _at_originals(model, tokenizer, texts)
    else:
        tokens = list(_at_words(model, tokenizer, texts, together, batch_size))
    total = -math.fsum(one.surprise for one in tokens)
    special = np.flatnonzero(~texts.words[0])
    unknown = [tokenizer.readable(texts.ids[0, place]) for place in special if place in words]
    return PseudoPerplexity(text, tokens, unknown, total, math.exp(min(-total / len(tokens), 700)), way)


def _at_words(
    model: Model, tokenizer: Tokenizer, texts: Sequences, together: Callable[[int, int], bool], batch_size: int
) -> Iterator[Surprise]:
    """−log p of each word, and the likeliest word there"""
    offered = np.zeros(model.vocab_size, bool)  # a model may have more ids than the vocabulary has words
    offered[: tokenizer.vocab_size] = True
    offered[list(tokenizer.special_ids)] = False
    for _, places, logits in predicted_logits(model, tokenizer, texts, together, batch_size):
        logits = logits.astype(float)  # (N,V)
        logits -= logits.max(1, keepdims=True)
        check_finite(logits, "the scores of words")
        log_p = logits - np.log(np.exp(logits).sum(1, keepdims=True))
        best = np.where(offered, log_p, -np.inf).argmax(1)
        for row, own, guess in zip(log_p, texts.ids[0, places], best, strict=True):
            yield Surprise(tokenizer.readable(own), -float(row[own]), tokenizer.readable(guess), math.exp(row[guess]))


def _at_originals(model: Model, tokenizer: Tokenizer, texts: Sequences) -> list[Surprise]:
    """−log p(not replaced) of each word; a discriminator guesses no other"""
    surprises = -original_log_probabilities(model, texts)
    words = [tokenizer.readable(i) for i in texts.ids[texts.words]]
    return [
        Surprise(word, one, word, math.exp(-one))
        for word, one in zip(words, surprises[texts.words].tolist(), strict=True)
    ]


def report(results: Sequence[PseudoPerplexity]) -> str:
    """A row and a bar for every token; if there are several texts of similar length, the best one."""
    every = [one for result in results for one in result.tokens]
    longest = max([5.0, *(one.surprise for one in every if math.isfinite(one.surprise))])  # all texts share a scale
    width, wide = (max(map(len, column)) for column in zip(*((one.token, one.guess) for one in every), strict=True))
    name, meaning = WORDING[results[0].way]
    lines = []
    for result in results:
        lines.append(result.text)
        for one in result.tokens:
            length = bar(one.surprise / longest) if math.isfinite(one.surprise) else ""
            other = "" if one.guess == one.token else f"{one.guess:{wide}} {one.certainty:4.0%}"
            lines.append(f"  {one.token:{width}} {one.surprise:6.2f}  {other:{wide + 5}}  {length}".rstrip())
        note = f"; not predicted: {' '.join(result.unknown)}" if result.unknown else ""
        lines += [f"{name} {result.perplexity:,.2f} over {counted(len(result.tokens), 'token')}{note}", ""]
    sizes = [len(result.tokens) for result in results]
    if len(results) > 1 and max(sizes) <= SIMILAR * min(sizes):
        best = min(results, key=lambda result: result.perplexity)
        lines += [f"The model is least surprised by: {best.text}", ""]
    return "\n".join([*lines, meaning])


def content(result: PseudoPerplexity) -> dict[str, Any]:
    """The same for JSON."""
    return {
        "text": result.text,
        ("perplexity" if result.way == NEXT_WORD else "pseudo_perplexity"): result.perplexity,
        "scored_by": result.way,
        "log_likelihood": result.log_likelihood,
        "tokens": result.tokens,
        "not_asked_for": result.unknown,
    }
