"""Masked language modelling: hide some words of a text, and let the model say what stood there.

    [CLS] the cat sat on the mat [SEP]
    [CLS] the [MASK] sat on the mat [SEP]        position 2 is chosen; its target is "cat"

15 % of the words are chosen, anew each time a sequence is seen. Of the chosen,

    80 %  become [MASK]           the question
    10 %  become a random word    so that the model cannot trust any word it sees
    10 %  stay as they are        so that it has an opinion on visible words, too

and the loss counts the chosen positions only. Special tokens are never chosen.

How many? A sequence with n words has a budget of 0.15·n. Its words are put in random order, and the word that has
`before` words before it in that order is chosen when

    before + v < 0.15·n          v: one uniform number for the sequence

so the count is one of the two whole numbers around the budget, and its mean is the budget exactly. The first in
the order is chosen in any case: every sequence that has a word has a target.

Two harder games differ in what lies together in the random order. *Whole words*: the pieces of a word are chosen
together ("un ##break ##able", or none of it), and then each becomes [MASK], random or nothing for itself, as in BERT's
whole-word models. *Spans* (Joshi et al., SpanBERT, 2020): the text is cut into runs of 1
to 10 words, of geometric length, and whole runs come first or last; what happens to one piece of a run (mask, random,
same) happens to all. A word of `size` pieces is chosen when before + size·v < budget: the same rule, the same mean.
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
_lengths = SPAN_P * (1 - SPAN_P) ** np.arange(LONGEST_SPAN)
SPAN_BOUNDS = np.cumsum(_lengths / _lengths.sum())[:-1]  # a uniform number falls between two of these
ORDER, LUCK, FATE, WORD, SPAN = range(5)  # what draws are used for


class Masked(NamedTuple):
    """masked_ids (B,T) · target_ids (N,), what stood at the chosen places · mask_positions (N,), b·T + t, rising"""

    masked_ids: np.ndarray
    target_ids: np.ndarray
    mask_positions: np.ndarray


class Masking:
    """How to mask: which ids are words, how many to choose, what to keep together. Made once, used on every batch."""

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
            raise ValueError(f"mask_prob is {mask_prob!r}, expected a share above 0 and up to 1, such as {MASK_PROB}")
        if whole_word and continues is None:
            raise ValueError("whole_word needs to know which ids continue a word: pass continues=tokenizer.continues")
        if continues is not None and not callable(continues) and np.shape(continues) != (vocab_size,):
            raise ValueError(
                f"continues has shape {np.shape(continues)}, expected ({vocab_size},): one True or False for each id"
            )
        self.mask_id, self.mask_prob, self.span = mask_id, mask_prob, span
        self.continues: Callable[[np.ndarray], np.ndarray] | None = None
        if continues is not None and (whole_word or span):
            self.continues = continues if callable(continues) else np.asarray(continues, bool).__getitem__
        self.is_word = np.ones(vocab_size, bool)
        self.is_word[special] = False
        self.words = np.flatnonzero(self.is_word)

    def __call__(self, ids, keys) -> Masked:
        """ids (B,T) and a 64-bit key for each sequence -> what mask_tokens returns. The same key, the same masks."""
        T = ids.shape[1]
        word = self.is_word[ids]  # (B,T)
        budget = self.mask_prob * word.sum(1, keepdims=True)
        luck = uniform(draws(keys[:, None], LUCK, 0))  # (B,1)
        leader, group = self._units(ids, word, keys)  # (B,T) where the word, and where the span of a token begins
        score = draws(keys[:, None], ORDER, np.arange(T))
        score = np.where(word, score if group is None else np.take_along_axis(score, group, 1), ~np.uint64(0))
        order = np.argsort(score, axis=1, kind=None if group is None else "stable")
        before = np.empty_like(order)  # a token's place in the random order; special tokens come last
        np.put_along_axis(before, order, np.arange(T)[None], 1)
        if leader is None:
            chosen = before + luck < budget
        else:
            before = np.take_along_axis(before, leader, 1)
            chosen = before + luck * _sizes(leader) < budget
        positions = np.flatnonzero((chosen | (before == 0)) & word)
        return self._replace(ids, keys, positions, group)

    def _replace(self, ids, keys, positions, group) -> Masked:
        """80 % [MASK], 10 % a random word, 10 % as before."""
        T = ids.shape[1]
        targets = ids.ravel()[positions].astype(np.int64)
        keys, places = keys[positions // T], positions % T
        fate = uniform(draws(keys, FATE, group.ravel()[positions] if self.span else places))
        word = self.words[below(draws(keys, WORD, places), len(self.words))]
        masked = ids.astype(np.int64)
        masked.ravel()[positions] = np.where(fate < TO_MASK, self.mask_id, np.where(fate < TO_RANDOM, word, targets))
        return Masked(masked, targets, positions)

    def _units(self, ids, word, keys):
        """-> for each token the place of its word's first piece, and of its span's first piece; None: its own place"""
        if self.continues is None and not self.span:
            return None, None
        places = np.arange(ids.shape[1])
        fresh = ~word  # a unit begins at a special token and after one, and where the sequence begins
        fresh[:, 1:] |= ~word[:, :-1]
        fresh[:, 0] = True
        begins = fresh | (True if self.continues is None else ~self.continues(ids))
        leader = _last(begins, places)
        if not self.span:
            return leader, leader
        number = np.cumsum(begins, 1) - 1  # (B,T) the how-manieth word
        span_begins = np.zeros((ids.shape[0], number.max() + LONGEST_SPAN + 1), bool)
        lengths = 1 + np.searchsorted(SPAN_BOUNDS, uniform(draws(keys[:, None], SPAN, places)), side="right")
        starts = np.minimum(np.cumsum(lengths, 1) - lengths, number.max() + 1)
        np.put_along_axis(span_begins, starts, True, 1)
        return leader, _last(begins & (fresh | np.take_along_axis(span_begins, number, 1)), places)


def _last(begins, places):
    """(B,T) where units begin -> the beginning of each token's unit"""
    return np.maximum.accumulate(np.where(begins, places, 0), axis=1)


def _sizes(leader):
    """(B,T) -> how many tokens have the same leader"""
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
) -> Masked:
    """(B,T) ids -> masked_ids (B,T), target_ids (N,), mask_positions (N,); ids stay as they are.

    Token t of sequence b has position b·T + t, so `model.loss(masked_ids, mask_positions, target_ids)` is the loss.
    Without a seed every call chooses anew. `special_ids` are never chosen and never put in as random words; with
    mask_token_id 4 they are 0 to 4, as in Mini-BERT's vocabularies. `whole_word` needs `tokenizer.continues`; `span`
    takes runs of whole words with it, and runs of pieces without.

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
        vocab_size, mask_token_id, special_ids, mask_prob, continues=continues, whole_word=whole_word, span=span
    )
    try:
        ids = np.asarray(ids)
    except ValueError:
        raise ValueError(
            "ids holds sequences of different lengths; pad them to one length with [PAD], which is never masked, for "
            'example by tokenizer(texts, padding=True)["input_ids"]'
        ) from None
    ids = check_ids(ids, vocab_size, ids.shape[-1] if ids.ndim else 0, "ids")
    if seed is None or isinstance(seed, np.random.Generator):
        keys = (seed or np.random.default_rng()).integers(2**64, size=len(ids), dtype=np.uint64)
    else:
        keys = address(seed, np.arange(len(ids)))
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
