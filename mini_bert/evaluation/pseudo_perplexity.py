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
of the text, and exp of its mean the ordinary perplexity.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from mini_bert.common.progress import bar, counted
from mini_bert.common.values import check_positive
from mini_bert.evaluation.likelihood import context_and_words, predicted_logits
from mini_bert.models.base import Model

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
    forward: bool = False  # predicted from the tokens before alone: an ordinary perplexity


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
    encoding = tokenizer.encode_batch([text], special=tokenizer.mask_token)[0]
    texts = context_and_words(model, tokenizer, text)
    ids, T = texts.ids[0], texts.ids.shape[1]
    words = [*[None] * (T - len(encoding.ids)), *encoding.word_ids]
    offered = np.zeros(model.vocab_size, bool)  # a model may have more ids than the vocabulary has words
    offered[: tokenizer.vocab_size] = True
    offered[list(tokenizer.special_ids)] = False

    def together(place: int, other: int) -> bool:
        return whole_words and words[other] == words[place]

    tokens = []
    for _, places, logits in predicted_logits(model, tokenizer, texts, together, batch_size):
        logits = logits.astype(float)  # (N,V)
        logits -= logits.max(1, keepdims=True)
        log_p = logits - np.log(np.exp(logits).sum(1, keepdims=True))
        best = np.where(offered, log_p, -np.inf).argmax(1)
        for row, own, guess in zip(log_p, ids[places], best, strict=True):
            tokens.append(
                Surprise(tokenizer.tokens[own], -float(row[own]), tokenizer.tokens[guess], math.exp(row[guess]))
            )
    total = -math.fsum(one.surprise for one in tokens)
    special = np.flatnonzero(~texts.words[0])
    unknown = [tokenizer.tokens[ids[place]] for place in special if words[place] is not None]
    return PseudoPerplexity(text, tokens, unknown, total, math.exp(min(-total / len(tokens), 700)), model.reads_forward)


def report(results: Sequence[PseudoPerplexity]) -> str:
    """A row and a bar for every token; if there are several texts of similar length, the best one."""
    every = [one for result in results for one in result.tokens]
    longest = max([5.0, *(one.surprise for one in every if math.isfinite(one.surprise))])  # all texts share a scale
    width, wide = (max(map(len, column)) for column in zip(*((one.token, one.guess) for one in every), strict=True))
    lines = []
    for result in results:
        lines.append(result.text)
        for one in result.tokens:
            length = bar(one.surprise / longest) if math.isfinite(one.surprise) else ""
            other = "" if one.guess == one.token else f"{one.guess:{wide}} {one.certainty:4.0%}"
            lines.append(f"  {one.token:{width}} {one.surprise:6.2f}  {other:{wide + 5}}  {length}".rstrip())
        note = f"; not predicted: {' '.join(result.unknown)}" if result.unknown else ""
        kind = "perplexity" if result.forward else "pseudo-perplexity"
        lines += [f"{kind} {result.perplexity:,.2f} over {counted(len(result.tokens), 'token')}{note}", ""]
    sizes = [len(result.tokens) for result in results]
    if len(results) > 1 and max(sizes) <= SIMILAR * min(sizes):
        best = min(results, key=lambda result: result.perplexity)
        lines += [f"The model is least surprised by: {best.text}", ""]
    given, kind = ("those before it", "Perplexity") if results[0].forward else ("all the others", "Pseudo-perplexity")
    lines.append(
        f"Surprise, in nats, at each token given {given}, and the model's own guess where it differs.\n"
        f"{kind} is exp of the mean surprise. Compare it only between sentences of similar length,\n"
        "and for the same model."
    )
    return "\n".join(lines)


def content(result: PseudoPerplexity) -> dict[str, Any]:
    """The same for JSON."""
    return {
        "text": result.text,
        "pseudo_perplexity": result.perplexity,
        "log_likelihood": result.log_likelihood,
        "tokens": result.tokens,
        "not_asked_for": result.unknown,
    }
