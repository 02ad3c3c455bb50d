"""Checks of what a user passes to a tokenizer: a vocabulary, texts, pairs. Errors name the value and the remedy."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any


def checked_vocabulary(vocab: Sequence[str]) -> list[str]:
    if isinstance(vocab, (str, bytes, Mapping)):
        raise TypeError(
            f"vocab is a {type(vocab).__name__}, expected a list of tokens in the order of their ids; convert a dict "
            "with sorted(vocab, key=vocab.get), and load a file with load_tokenizer"
        )
    tokens = list(vocab)
    if not tokens:
        raise ValueError("the vocabulary is empty; expected special tokens and pieces of words")
    first: dict[str, int] = {}
    for i, token in enumerate(tokens):
        if not isinstance(token, str):
            raise TypeError(f"token {i} of the vocabulary is {token!r:.80}, a {type(token).__name__}, expected str")
        if first.setdefault(token, i) != i:
            raise ValueError(
                f"the vocabulary has {token!r} twice, as ids {first[token]} and {i}; each token has one id: remove "
                "one, or rename it to something unused so that later ids do not change"
            )
    return tokens


def checked_scores(tokens: Sequence[str], scores: Sequence[float]) -> list[float]:
    scores = [float(score) for score in scores]
    if len(scores) != len(tokens):
        raise ValueError(f"there are {len(tokens):,} pieces and {len(scores):,} scores; expected one for each piece")
    for token, score in zip(tokens, scores, strict=True):
        if not math.isfinite(score):
            raise ValueError(
                f"the score of {token!r} is {score}, expected a finite number, the logarithm of a probability"
            )
    return scores


def paired(text: Any, pair: Any) -> tuple[bool, list[tuple[Any, Any]]]:
    """Returns whether this is a single text or pair, and a list of (text, pair or None)."""
    if isinstance(text, str):
        if pair is not None and not isinstance(pair, str):
            raise TypeError(f"text is one str, so pair must be one str, got {type(pair).__name__}")
        return True, [(text, pair)]
    if isinstance(text, tuple) and len(text) == 2:
        raise TypeError(
            "a tuple of two texts could be a pair or a batch; write tokenizer(a, b) for a pair, "
            "tokenizer([a, b]) for a batch of two, tokenizer([(a, b)]) for a batch of one pair"
        )
    if isinstance(text, (bytes, bytearray, Mapping)) or not isinstance(text, Iterable):
        raise TypeError(not_text(text))
    items = list(text)
    if pair is None:
        return False, [item if isinstance(item, tuple) and len(item) == 2 else (item, None) for item in items]
    if isinstance(pair, str) or not isinstance(pair, Iterable):
        raise TypeError(
            f"text is a batch of {len(items)}, so pair must be a list of {len(items)}, got {type(pair).__name__}"
        )
    pairs = list(pair)
    if len(pairs) != len(items):
        raise ValueError(f"there are {len(items)} texts and {len(pairs)} pairs; expected one pair for each text")
    for item in pairs:
        if not isinstance(item, str):
            raise TypeError(not_text(item))
    return False, list(zip(items, pairs, strict=True))


def not_text(value: Any) -> str:
    remedy = {
        bytes: 'decode it first: value.decode("utf-8")',
        bytearray: 'decode it first: value.decode("utf-8")',
        type(None): "is a field missing from the data?",
        list: "a batch is a flat list of texts; join words that are already split with spaces",
        tuple: "a pair has exactly two texts",
    }
    hint = remedy.get(type(value), "convert it with str(value) if that is what you mean")
    return f"expected text (str), got {type(value).__name__}: {value!r:.60}; {hint}"
