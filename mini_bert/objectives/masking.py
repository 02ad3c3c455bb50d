"""Masked language modelling: mask some words of a text, and train the model to predict them.

    [CLS] the cat sat on the mat [SEP]
    [CLS] the [MASK] sat on the mat [SEP]        position 2 is chosen; its target is "cat"

15 % of the words are chosen, anew each time a sequence is seen. Of these,

    80 %  become [MASK]           to be predicted from their context
    10 %  become a random word    so that the model cannot trust any word it sees
    10 %  stay as they are        so that it also makes predictions for visible words

and only the chosen positions enter the loss. Special tokens are never chosen.

How many? A sequence with n words has a budget of 0.15·n. Its words are put in random order, and a word with `before`
words before it in that order is chosen if

    before + v < 0.15·n          v: one uniform random number per sequence

so the count is one of the two whole numbers around the budget, and its mean is exactly the budget. The first word in
the order is always chosen, so every sequence with a word has a target.

Three harder variants keep tokens together in the random order. *Whole words*: the pieces of a word ("un ##break
##able") are chosen together or not at all; each chosen piece then becomes [MASK], becomes a random word or stays,
independently, as in BERT's whole-word models. *Spans* (Joshi et al., SpanBERT, 2020): the text is cut into runs of 1 to
10 words, of geometric length, and each run stays together in the order; all pieces of a run are treated alike (mask,
random, same). *N-grams* (Lan et al., ALBERT, 2019): the runs have 1 to 3 words, n of them with probability ∝ 1/n, and
each piece is treated independently, as for whole words.
A word of `size` pieces is chosen if before + size·v < budget: the same rule, with the same mean.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from mini_bert.common.draws import address, below, draws, uniform
from mini_bert.common.inputs import check_ids

MASK_PROB = 0.15
TO_MASK, TO_RANDOM = 0.8, 0.9  # a uniform number below 0.8: [MASK]; below 0.9: a random word; else the same
SPAN_P, LONGEST_SPAN = 0.2, 10  # SpanBERT's: lengths 1 … 10 with P(l) ∝ 0.2 · 0.8^(l−1), 3.8 words on average
LONGEST_NGRAM = 3  # ALBERT's: lengths 1 … 3 with P(n) ∝ 1/n, 1.6 words on average
SPAN_SHARES = SPAN_P * (1 - SPAN_P) ** np.arange(LONGEST_SPAN)
NGRAM_SHARES = 1 / np.arange(1, LONGEST_NGRAM + 1)
ORDER, ROUNDING, REPLACEMENT, WORD, SPAN = range(5)  # streams of random numbers


class Masked(NamedTuple):
    """masked_ids (B,T) · target_ids (N,), the original ids at the chosen positions · mask_positions (N,), ascending

    Token t of sequence b has position b·T + t.
    """

    masked_ids: np.ndarray
    target_ids: np.ndarray
    mask_positions: np.ndarray


class Masking:
    """How to mask: which ids are words, how many to choose, what to keep together. One object serves all batches."""

    def __init__(
        self,
        vocab_size: int,
        mask_id: int,
        special_ids: Sequence[int] | np.ndarray,
        mask_prob: float = MASK_PROB,
        *,
        continues: np.ndarray | Callable[[np.ndarray], np.ndarray] | None = None,
        whole_word: bool = False,
        span: bool = False,
        ngram: bool = False,
    ):
        """continues: which ids continue a word (V,), or a function that says it of each token of sequences (B,T)"""
        special = np.unique(np.append(np.asarray(special_ids, dtype=np.int64), mask_id))
        if special[0] < 0 or special[-1] >= vocab_size:
            wrong = special[0] if special[0] < 0 else special[-1]
            raise ValueError(
                f"special id {wrong} is not in a vocabulary of {vocab_size}; expected ids from 0 to {vocab_size - 1}"
            )
        if special.size >= vocab_size:
            raise ValueError(f"all {vocab_size} ids of the vocabulary are special; nothing is left to mask")
        if isinstance(mask_prob, bool) or not isinstance(mask_prob, int | float) or not 0 < mask_prob <= 1:
            raise ValueError(f"mask_prob is {mask_prob!r}, expected more than 0 and at most 1, such as {MASK_PROB}")
        if whole_word and continues is None:
            raise ValueError("whole_word also needs the ids that continue a word: pass continues=tokenizer.continues")
        if span and ngram:
            raise ValueError("span and ngram are both True, expected at most one of them: both cut the text into runs")
        if continues is not None and not callable(continues) and np.shape(continues) != (vocab_size,):
            raise ValueError(
                f"continues has shape {np.shape(continues)}, expected ({vocab_size},): one True or False for each id"
            )
        self.mask_id, self.mask_prob, self.span = mask_id, mask_prob, span
        self.arguments = {"mask_prob": mask_prob, "whole_word": whole_word, "span": span} | (
            {"ngram": True} if ngram else {}
        )
        self.bounds: np.ndarray | None = None  # a uniform number between two of these is the length of a run
        if span or ngram:
            shares = SPAN_SHARES if span else NGRAM_SHARES
            self.bounds = np.cumsum(shares / shares.sum())[:-1]
        self.continues: Callable[[np.ndarray], np.ndarray] | None = None
        if continues is not None and (whole_word or span or ngram):
            self.continues = continues if callable(continues) else np.asarray(continues, bool).__getitem__
        self.is_word = np.ones(vocab_size, bool)
        self.is_word[special] = False
        self.words = np.flatnonzero(self.is_word)

    def __call__(self, ids, keys, to_mask: float = TO_MASK, to_random: float = TO_RANDOM) -> Masked:
        """Returns the same as mask_tokens, for ids (B,T) and a 64-bit key per sequence. Equal keys give equal masks."""
        positions, group = self.choose(ids, keys)
        return self._replace(ids, keys, positions, group, to_mask, to_random)

    def choose(self, ids, keys) -> tuple[np.ndarray, np.ndarray | None]:
        """The chosen positions (N,), ascending; and for each token where its word or span begins (B,T), or None."""
        T = ids.shape[1]
        word = self.is_word[ids]  # (B,T)
        budget = self.mask_prob * word.sum(1, keepdims=True)
        rounding = uniform(draws(keys[:, None], ROUNDING, 0))  # (B,1)
        leader, group = self._units(ids, word, keys)  # (B,T) where each token's word begins, and where its span begins
        score = draws(keys[:, None], ORDER, np.arange(T))
        score = np.where(word, score if group is None else np.take_along_axis(score, group, 1), ~np.uint64(0))
        order = np.argsort(score, axis=1, kind=None if group is None else "stable")
        before = np.empty_like(order)  # a token's place in the random order; special tokens come last
        np.put_along_axis(before, order, np.arange(T)[None], 1)
        if leader is None:
            chosen = before + rounding < budget
        else:
            before = np.take_along_axis(before, leader, 1)
            chosen = before + rounding * _sizes(leader) < budget
        return np.flatnonzero((chosen | (before == 0)) & word), group

    def _replace(self, ids, keys, positions, group, to_mask, to_random) -> Masked:
        """By a uniform number u: [MASK] if u < to_mask, a random word if u < to_random, else as before."""
        T = ids.shape[1]
        targets = ids.ravel()[positions].astype(np.int64)
        keys, places = keys[positions // T], positions % T
        u = uniform(draws(keys, REPLACEMENT, group.ravel()[positions] if self.span else places))
        word = self.words[below(draws(keys, WORD, places), len(self.words))]
        masked = ids.astype(np.int64)
        masked.ravel()[positions] = np.where(u < to_mask, self.mask_id, np.where(u < to_random, word, targets))
        return Masked(masked, targets, positions)

    def _units(self, ids, word, keys):
        """For each token, the position of the first piece of its word, and of its span; None: its own position."""
        if self.continues is None and self.bounds is None:
            return None, None
        places = np.arange(ids.shape[1])
        boundary = ~word  # a unit begins at a special token, after one, and at the start of the sequence
        boundary[:, 1:] |= ~word[:, :-1]
        boundary[:, 0] = True
        begins = boundary | (True if self.continues is None else ~self.continues(ids))
        leader = _last(begins, places)
        if self.bounds is None:
            return leader, leader
        number = np.cumsum(begins, 1) - 1  # (B,T) the index of the word
        span_begins = np.zeros((ids.shape[0], number.max() + len(self.bounds) + 2), bool)
        lengths = 1 + np.searchsorted(self.bounds, uniform(draws(keys[:, None], SPAN, places)), side="right")
        starts = np.minimum(np.cumsum(lengths, 1) - lengths, number.max() + 1)
        np.put_along_axis(span_begins, starts, True, 1)
        return leader, _last(begins & (boundary | np.take_along_axis(span_begins, number, 1)), places)


def _last(begins, places):
    """The position where each token's unit begins.        begins (B,T): whether a unit begins there"""
    return np.maximum.accumulate(np.where(begins, places, 0), axis=1)


def _sizes(leader):
    """For each token, the number of tokens with the same leader, (B,T)."""
    B, T = leader.shape
    flat = (leader + np.arange(0, B * T, T)[:, None]).ravel()
    return np.bincount(flat, minlength=B * T)[flat].reshape(B, T)


def mask_tokens(
    ids: Any,
    mask_token_id: int = 4,
    vocab_size: int = 8192,
    mask_prob: float = MASK_PROB,
    *,
    special_ids: Sequence[int] | np.ndarray | None = None,
    seed: int | np.random.Generator | None = None,
    continues: np.ndarray | None = None,
    whole_word: bool = False,
    span: bool = False,
    ngram: bool = False,
) -> Masked:
    """Returns masked_ids (B,T), target_ids (N,) and mask_positions (N,) for ids (B,T), which are not changed.

    Token t of sequence b has position b·T + t, so `model.loss(masked_ids, mask_positions, target_ids)` is the loss.
    Without a seed, every call makes a new choice. `special_ids` are never chosen and never used as random words; by
    default they are 0 to 4, as in Mini-BERT's vocabularies, if mask_token_id is 4. `whole_word` needs
    `continues=tokenizer.continues`; with it, `span` and `ngram` mask runs of whole words; without it, of pieces.

    >>> import numpy as np
    >>> masked_ids, target_ids, mask_positions = mask_tokens(np.array([[2, 1996, 4937, 2938, 3]]), seed=0)
    >>> mask_positions, target_ids
    (array([2]), array([4937]))
    """
    if special_ids is None:
        if mask_token_id != 4:
            raise ValueError(
                f"mask_token_id is {mask_token_id}, so this is not Mini-BERT's vocabulary, where special tokens have "
                "the ids 0 to 4: pass special_ids=tokenizer.special_ids"
            )
        special_ids = range(5)
    masking = Masking(
        vocab_size, mask_token_id, special_ids, mask_prob, continues=continues, whole_word=whole_word, span=span,
        ngram=ngram,
    )  # fmt: skip
    try:
        ids = np.asarray(ids)
    except ValueError:
        raise ValueError(
            "ids contains sequences of different lengths; pad them to one length with [PAD], which is never masked, "
            'for example with tokenizer(texts, padding=True)["input_ids"]'
        ) from None
    ids = check_ids(ids, vocab_size, ids.shape[-1] if ids.ndim else 0, "ids")
    if seed is None or isinstance(seed, np.random.Generator):
        keys = (seed or np.random.default_rng()).integers(2**64, size=len(ids), dtype=np.uint64)
    else:
        if not isinstance(seed, int | np.integer):
            raise TypeError(f"seed is {seed!r}, expected a whole number, a np.random.Generator or None")
        keys = address(int(seed), np.arange(len(ids)))
    return masking(ids, keys)


if __name__ == "__main__":
    from mini_bert.text.wordpiece import SPECIAL_TOKENS

    text = "the cat sat on the mat because it was tired of all the mice that nobody ever catches"
    words = [*SPECIAL_TOKENS, *sorted(set(text.split()))]
    ids = np.array([[2, *map(words.index, text.split()), 3]])
    for span in (False, True):
        for seed in range(3):
            masked, targets, positions = mask_tokens(ids, vocab_size=len(words), seed=seed, span=span)
            print(f"{'spans' if span else 'pieces'}, seed {seed}: ", " ".join(words[i] for i in masked[0]))
            print("   targets:", ", ".join(f"{words[i]} at {t}" for i, t in zip(targets, positions, strict=True)))
