"""The attention maps of one text, and statistics of each head.

In every layer, each head gives each token a row of weights that sum to 1: how strongly it attends to each token
(layers/attention.py). Heads are described by means over the words of a text (the rows of [CLS] and [SEP] are left out):

    entropy     −Σ p ln p: 0 if a word attends to one token only, ln T if to all T equally
    distance    Σ p |i − j|: mean distance to the attended tokens, in tokens
    shares      of the weight on [CLS], on [SEP], on the previous token, on the next one, and on the word itself

Shares overlap: the token before the first word is [CLS]. Layers and heads are counted from 0, as in
cache['attention_weights_0'][0, 0].
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from mini_bert.layers.base import Run
from mini_bert.models.base import MASKED_WORDS, Model

if TYPE_CHECKING:
    from mini_bert.text.base import Tokenizer

TOP = 3  # tokens listed for a head or a word
logger = logging.getLogger(__name__)


class AttentionMaps(NamedTuple):
    """All attention weights for one text."""

    tokens: list[str]
    ids: np.ndarray  # (T,)
    types: np.ndarray  # (T,) 1 in the second text of a pair
    weights: np.ndarray  # (L,A,T,T): row i holds the weights with which token i attends to each token
    roles: list[str]  # "cls", "sep" or "pad" for tokens that the tokenizer added, "" for tokens of the text


def attention_maps(
    model: Model,
    tokenizer: Tokenizer,
    text: str,
    second: str | None = None,
    length: int | None = None,
) -> AttentionMaps:
    """Runs the model on a text or a pair and returns all attention weights. Long texts are truncated with a warning.

    [MASK] in the text is a mask if the model has a head for masked words; otherwise it is plain text, as in
    `mini-bert predict`.
    """
    limit = model.max_length if length is None else length
    special = tokenizer.mask_token if MASKED_WORDS in model.output_heads else False
    whole = len(tokenizer.encode(text, second, special=special))
    texts = 1 if second is None else 2
    if whole < tokenizer.added_count(texts) + texts:
        raise ValueError(f"the text {text!r:.60} has no words; give a text with at least one word")
    if whole > limit:
        logger.warning("the text has %d tokens, but the model reads at most %d; the rest is cut off", whole, limit)
    batch = tokenizer(text, second, truncation=True, max_length=limit, special=special)
    ids, types = np.array(batch["input_ids"]), np.array(batch["token_type_ids"])
    _, cache = model.encode(ids[None], token_types=types[None], run=Run())
    weights = np.concatenate(cache.attention_weights())  # B is 1: (L,A,T,T)
    return AttentionMaps(batch.tokens(), ids, types, weights, tokenizer.added_roles(ids))


class HeadStatistics(NamedTuple):
    """One head in numbers: means over the words of one or more texts."""

    layer: int
    head: int
    entropy: float  # nats
    distance: float  # tokens
    cls: float  # share of the weight on [CLS], and so on
    sep: float
    previous: float
    next: float
    itself: float

    @property
    def pattern(self) -> str:
        """The name of the share that exceeds one half; "" if there is none."""
        shares = {
            "previous": self.previous, "next": self.next, "self": self.itself, "[SEP]": self.sep, "[CLS]": self.cls,
        }  # fmt: skip
        name = max(shares, key=lambda name: shares[name])
        return name if shares[name] > 0.5 else ""


def head_statistics(texts: AttentionMaps | Sequence[AttentionMaps]) -> list[HeadStatistics]:
    """The statistics of all heads, layer by layer."""
    texts = [texts] if isinstance(texts, AttentionMaps) else texts
    total, words = np.zeros(()), 0
    for one in texts:
        rows = np.flatnonzero([not role for role in one.roles])
        measured = _measures(one.weights[:, :, rows].astype(float), one.roles, rows)  # (7,L,A,R)
        total = total + measured.sum(-1)
        words += rows.size
    if not words:
        raise ValueError("there are no words to compute statistics of heads: all tokens are special")
    mean = total / words  # (7,L,A)
    return [
        HeadStatistics(layer, head, *mean[:, layer, head].tolist())
        for layer in range(mean.shape[1])
        for head in range(mean.shape[2])
    ]


def _measures(weights: np.ndarray, roles: Sequence[str], rows: np.ndarray) -> np.ndarray:
    """Entropy, distance and five shares (7,L,A,R) of the rows of weights (L,A,R,T) of the tokens at `rows`."""
    places, names = np.arange(len(roles)), np.array(roles)
    logs = np.log(np.where(weights > 0, weights, 1))
    away = places - rows[:, None]  # (R,T)
    which = [np.broadcast_to(names == name, away.shape) for name in ("cls", "sep")]
    which += [away == -1, away == 1, away == 0]
    shares = [(weights * chosen).sum(-1) for chosen in which]
    return np.stack([-(weights * logs).sum(-1), (weights * np.abs(away)).sum(-1), *shares])


def most_attended(roles: Sequence[str], weights: np.ndarray, top: int = TOP) -> list[tuple[int, float]]:
    """The tokens that get the most weight from the words, with their shares.        weights (T,T): one head"""
    rows = [place for place, role in enumerate(roles) if not role]
    return largest(weights[rows].mean(0), top)


def largest(values: np.ndarray, top: int = TOP) -> list[tuple[int, float]]:
    """Positions and values of the `top` largest.

    >>> largest(np.array([0.2, 0.5, 0.0, 0.3]), 2)
    [(1, 0.5), (3, 0.3)]
    """
    return [(int(i), float(values[i])) for i in np.argsort(-values, kind="stable")[:top]]
