"""How likely is a text to a model? The log-probability of its tokens, by what the model was trained to predict.

    masked words       Σ_i log p(w_i | all other tokens)           each token is hidden in turn: pseudo-log-likelihood
    next word          Σ_i log p(w_i | the tokens before it)       one pass: the log-likelihood of the text
    replaced tokens    Σ_i log p(w_i is original | all tokens)     one pass: not a probability of the text

Special tokens are context only: no model here was trained to predict them. [UNK] is the exception: it stands for a word
of the text, and left out of the sum, an unknown word would make a text more likely than a known one. The three sums
cannot be compared with each other; compare the sums of two texts for one model, such as the sentences of a minimal pair
(minimal_pairs.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate, groupby
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from mini_bert.common.inputs import check_finite
from mini_bert.common.values import check_positive
from mini_bert.layers.base import Run
from mini_bert.layers.matrices import total
from mini_bert.models.base import MASKED_WORDS, NEXT_WORD, REPLACED, Model
from mini_bert.models.cache import Inputs
from mini_bert.objectives.registry import objective_class

if TYPE_CHECKING:
    from mini_bert.text.base import Tokenizer

AT_ONCE = 64  # sequences in one pass


class Sequences(NamedTuple):
    """Texts of equal length, as ids with special tokens."""

    ids: np.ndarray  # (B,T)
    types: np.ndarray  # (B,T)
    words: np.ndarray  # (B,T) whether a token is predicted

    def some(self, index) -> Inputs:
        return Inputs(self.ids[index], types=self.types[index])


def log_likelihoods(
    model: Model,
    tokenizer: Tokenizer,
    texts: Sequence[str],
    threads: int = 1,
    after_each: Callable[[int], None] | None = None,
) -> np.ndarray:
    """The log-likelihood of each text, (N,). After each batch, `after_each(texts done)` is called."""
    way = WAYS[way_of(model)]
    check_positive("threads", threads)
    sequences = [context_and_words(model, tokenizer, text, unknown=True) for text in texts]
    scores = np.empty(len(texts))
    order = sorted(range(len(texts)), key=lambda number: sequences[number].ids.size)
    batches = []
    for _, numbers in groupby(order, key=lambda number: sequences[number].ids.size):
        same = list(numbers)
        batches += [same[start : start + AT_ONCE] for start in range(0, len(same), AT_ONCE)]

    def work(batch: list[int]) -> int:
        joined = Sequences(*(np.concatenate(arrays) for arrays in zip(*(sequences[n] for n in batch), strict=True)))
        scores[batch] = way(model, tokenizer, joined)
        return len(batch)

    with ThreadPoolExecutor(threads) as pool:
        for done in accumulate(pool.map(work, batches)):
            if after_each is not None:
                after_each(done)
    check_finite(scores, "the likelihoods of these texts")
    return scores


def way_of(model: Model) -> str:
    """The output head that measures likelihood in this model."""
    for head in WAYS:
        if head in model.output_heads:
            return head
    return str(model.output_head(objective_class(model.objective).heads[0]))  # raises the error that says what to do


def context_and_words(model: Model, tokenizer: Tokenizer, text: str, unknown: bool = False) -> Sequences:
    """One text, (1,T). For a model of the next word, a document begins: it was trained on running text, in which
    documents are separated, but no other special tokens occur (data/sequences.py).

    unknown: whether [UNK] is predicted, too.
    """
    row = tokenizer.ids([text], special=tokenizer.mask_token)[0]
    if way_of(model) == NEXT_WORD:
        ids, types = [tokenizer.sep_id, *row], [0] * (1 + len(row))
    else:
        whole = tokenizer.assemble(row)
        ids, types = list(whole.ids), list(whole.types)
    words = ~np.isin(ids, tokenizer.special_ids)
    if not words.any():
        raise ValueError(f"the text {text!r:.80} has no word in the model's vocabulary; give another")
    if unknown and "unk" in tokenizer.roles:
        others = [tokenizer.vocab[token] for role, token in tokenizer.roles.items() if role != "unk"]
        words |= (np.array(ids) == tokenizer.unk_id) & ~np.isin(ids, others)  # GPT-2 has one token for both
    if len(ids) > model.max_length:
        raise ValueError(
            f"the text has {len(ids):,} tokens, including special ones, but this model is configured for at most "
            f"{model.max_length}; give one sentence at a time: {text!r:.60}"
        )
    return Sequences(np.array([ids]), np.array([types]), words[None])


def predicted_logits(
    model: Model,
    tokenizer: Tokenizer,
    texts: Sequences,
    together: Callable[[int, int], bool] | None = None,
    at_once: int = AT_ONCE,
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Sequence (N,) and place (N,) of words, with the logits (N,V) that predict them, for all words in parts.

    A hidden word hides the words next to it for which together(place, other place) is true, such as the other pieces of
    the same word.
    """
    if way_of(model) == NEXT_WORD:
        head = model.output_head(NEXT_WORD)
        sequence, place = np.nonzero(texts.words[:, 1:])
        rows = sequence * texts.ids.shape[1] + place  # row t predicts token t+1
        hidden, _ = model.encode_inputs(checked(model, texts.some(slice(None))), Run(), rows)
        yield sequence, place + 1, head.forward(hidden, Run())[0]
        return
    head = model.output_head(MASKED_WORDS)
    sequences, places = np.nonzero(texts.words)
    T = texts.ids.shape[1]
    for start in range(0, sequences.size, at_once):
        sequence, place = sequences[start : start + at_once], places[start : start + at_once]
        own = np.arange(place.size) * T + place
        hidden_rows = [own]
        for number, first in enumerate(place.tolist()):
            other = first + 1
            while together is not None and other < T and together(first, other):
                hidden_rows.append(np.array([number * T + other]))
                other += 1
        inputs = model.hide(checked(model, texts.some(sequence)), np.concatenate(hidden_rows), tokenizer.mask_id)
        hidden, _ = model.encode_inputs(inputs, Run(), own)  # (N,H)
        yield sequence, place, head.forward(hidden, Run())[0]


def checked(model: Model, inputs: Inputs) -> Inputs:
    return model.check_inputs(inputs.ids, None, inputs.types)


def log_probabilities(logits: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """log softmax(logits)[target], (N,V), (N,) -> (N,). Overwrites the logits."""
    logits -= logits.max(-1, keepdims=True)
    picked = logits[np.arange(targets.size), targets].astype(float)
    np.exp(logits, out=logits)
    return picked - np.log(total(logits)[:, 0])


def _of_words(model: Model, tokenizer: Tokenizer, texts: Sequences) -> np.ndarray:
    scores = np.zeros(len(texts.ids))
    for sequence, place, logits in predicted_logits(model, tokenizer, texts):
        np.add.at(scores, sequence, log_probabilities(logits, texts.ids[sequence, place]))
    return scores


def original_log_probabilities(model: Model, texts: Sequences) -> np.ndarray:
    """log p(the token is original), (B,T)"""
    hidden, _ = model.encode_inputs(checked(model, texts.some(slice(None))), Run())
    scores, _ = model.score(REPLACED, hidden, Run())  # (B·T,2): original, replaced
    return log_probabilities(scores, np.zeros(texts.ids.size, int)).reshape(texts.ids.shape)


def _of_originals(model: Model, tokenizer: Tokenizer, texts: Sequences) -> np.ndarray:
    return (original_log_probabilities(model, texts) * texts.words).sum(1)


WAYS = {MASKED_WORDS: _of_words, NEXT_WORD: _of_words, REPLACED: _of_originals}
