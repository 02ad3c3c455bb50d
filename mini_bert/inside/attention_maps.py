"""The attention maps of one text, and statistics of each head.

In every layer, each head gives each token a row of weights that sum to 1: how strongly it attends to each token
(layers/attention.py). Heads are described by means over the words of a text (the rows of [CLS] and [SEP] are left out):

    entropy     −Σ p ln p: 0 if a word attends to one token only, ln n if to all n that it can see equally
    evenness    entropy / ln n, from 0 to 1: comparable between words that see different numbers of tokens
    distance    Σ p |i − j|: mean distance to the attended tokens, in tokens
    shares      of the weight on [CLS], on [SEP], on the previous token, on the next one, and on the word itself

Shares overlap: the token before the first word is [CLS]. Layers and heads are counted from 0, as in
cache['attention_weights_0'][0, 0].

**Not every token sees every other.** In a causal model a token sees those before it, in a local layer those nearby.
A share is the mean over the words that can see such a token at all, and None if no word can: in GPT-2, no word sees the
next one. A word that sees one token only (the first, in GPT-2) has no choice and is left out.

**Memory** (Transformer-XL). A part of the weight is on tokens of earlier segments. `memory` is this part; the other
numbers describe the rest.

**Streams** (XLNet). The content stream reads like other models. The query stream predicts a word without seeing it:
with stream="query", row i is the attention of word i while it is hidden.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from mini_bert.inside.inputs import as_trained, runs_on
from mini_bert.layers.base import Run
from mini_bert.models.base import CONTENT, MASKED_WORDS, QUERY, Model

if TYPE_CHECKING:
    from mini_bert.text.base import Tokenizer

TOP = 3  # tokens listed for a head or a word
SHARES = ("cls", "sep", "previous", "next", "itself")
PREFERRED = ("previous", "next", "itself", "sep", "cls")  # of equal shares, the first one names the pattern
MARKS: Mapping[str, str] = MappingProxyType({"cls": "[CLS]", "sep": "[SEP]"})
logger = logging.getLogger(__name__)


class AttentionMaps(NamedTuple):
    """All attention weights for one text."""

    tokens: list[str]
    ids: np.ndarray  # (T,)
    types: np.ndarray  # (T,) 1 in the second text of a pair
    weights: np.ndarray  # (L,A,T,T): row i holds the weights with which token i attends to each token
    roles: list[str]  # "cls", "sep" or "pad" for tokens that the tokenizer added, "" for tokens of the text
    visible: np.ndarray | None = None  # (L,T,T) which tokens each token can attend to; None: all
    memory: np.ndarray | None = None  # (L,A,T) the weight that is on a memory; None: there is none
    marks: Mapping[str, str] = MARKS  # how the tokenizer calls cls and sep
    stream: str = CONTENT

    def seen(self) -> np.ndarray:
        """(L,T,T) which tokens each token can attend to"""
        L, _, T, _ = self.weights.shape
        return np.ones((L, T, T), bool) if self.visible is None else self.visible

    def within(self) -> np.ndarray:
        """(L,A,T,T) the weights on this text, without a memory: rows sum to 1 again"""
        if self.memory is None:
            return self.weights
        return self.weights / np.maximum(self.weights.sum(-1, keepdims=True), np.finfo(self.weights.dtype).tiny)

    def words(self) -> np.ndarray:
        """The positions of the tokens of the text"""
        return np.flatnonzero([not role for role in self.roles])


def attention_maps(
    model: Model,
    tokenizer: Tokenizer,
    text: str,
    second: str | None = None,
    length: int | None = None,
    stream: str = CONTENT,
) -> AttentionMaps:
    """Runs the model on a text or a pair and returns all attention weights. Long texts are truncated with a warning.

    [MASK] in the text is a mask if the model has a head for masked words; otherwise it is plain text, as in
    `mini-bert predict`. stream: "content", or "query" for an XLNet.
    """
    if stream not in model.streams:
        raise ValueError(
            f"stream is {stream!r}, but this {type(model).__name__} has only the stream "
            f"{' and '.join(map(repr, model.streams))}; only an XLNet has a query stream"
        )
    limit = model.max_length if length is None else length
    special = tokenizer.mask_token if MASKED_WORDS in model.output_heads else False
    rows = tokenizer.ids([text] if second is None else [text, second], special=special)
    together = as_trained(model, tokenizer, *rows)
    whole = len(together.ids)
    if not all(rows):
        raise ValueError(f"the text {text!r:.60} has no words; give a text with at least one word")
    if whole > limit:
        logger.warning("the text has %d tokens, but the model reads at most %d; the rest is cut off", whole, limit)
    if runs_on(model, tokenizer):
        ids, types = np.array(together.ids[:limit]), np.array(together.types[:limit])
    else:
        batch = tokenizer(text, second, truncation=True, max_length=limit, special=special)
        ids, types = np.array(batch["input_ids"]), np.array(batch["token_type_ids"])
    read = _query_stream if stream == QUERY else _content_stream
    weights, memory = read(model, ids, types)
    visible = can_be_seen(weights)
    marks = {role: tokenizer.roles[role] for role in MARKS if role in tokenizer.roles}
    roles = tokenizer.added_roles(ids)
    seen = None if visible.all() else visible
    return AttentionMaps(
        [tokenizer.readable(i) for i in ids.tolist()], ids, types, weights, roles, seen, memory, marks, stream
    )


def can_be_seen(weights: np.ndarray) -> np.ndarray:
    """Which tokens each token can attend to, (…,T,T) from (…,A,T,T): masked ones get a weight of exactly 0 in every
    head, and others at least a tiny one."""
    return np.logical_or.reduce(weights > 0, axis=-3)


def _content_stream(model: Model, ids: np.ndarray, types: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
    """Weights (L,A,T,T), and those of a memory (L,A,T) or None"""
    _, cache = model.encode(ids[None], token_types=types[None], run=Run())
    weights = np.concatenate(cache.attention_weights())  # B is 1
    arrays = cache.arrays()
    memory = [arrays[name] for name in arrays if name.startswith("memory_weights_")]  # (1,A,T,M) each
    return weights, np.concatenate(memory).sum(-1) if memory else None


def _query_stream(model: Model, ids: np.ndarray, types: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
    """The same, where row i is that of sequence i, in which token i alone is hidden"""
    T = ids.size
    rows = np.arange(T) * (T + 1)  # token i of sequence i
    inputs = model.check_inputs(np.tile(ids, (T, 1)), None, np.tile(types, (T, 1)))
    _, cache = model.encode_inputs(model.hide(inputs, rows, int(ids[0])), Run(), rows)
    arrays = cache.arrays()

    def read(name: str) -> list[np.ndarray]:  # (A,T,K) for each block, from (T,A,1,K)
        found = (arrays.get(f"query_stream_{name}_{layer}") for layer in range(model.depth))
        return [array[:, :, 0].transpose(1, 0, 2) for array in found if array is not None]

    memory = read("memory_weights")
    return np.stack(read("attention_weights")), np.stack(memory).sum(-1) if memory else None


class HeadStatistics(NamedTuple):
    """One head in numbers: means over the words of one or more texts. None: no word has such a token."""

    layer: int
    head: int
    entropy: float  # nats
    distance: float  # tokens
    cls: float | None  # share of the weight on [CLS], and so on
    sep: float | None
    previous: float | None
    next: float | None
    itself: float | None
    pattern: str = ""  # the name of the share that exceeds one half, if there is one
    evenness: float | None = None  # entropy, as a share of that of equal weights
    even_distance: float = 0.0  # the distance if all weights were equal
    memory: float | None = None  # share of the weight on tokens before this text


def head_statistics(texts: AttentionMaps | Sequence[AttentionMaps]) -> list[HeadStatistics]:
    """The statistics of all heads, layer by layer."""
    texts = [texts] if isinstance(texts, AttentionMaps) else texts
    sums = [_sums(one) for one in texts if one.words().size]
    if not sums:
        raise ValueError("there are no words to compute statistics of heads: all tokens are special")
    total, count = (sum(parts) for parts in zip(*sums, strict=True))  # (9,L,A), (9,L,1)
    mean = np.where(count > 0, total / np.maximum(count, 1), np.nan)
    names = {**texts[0].marks, "itself": "self"}
    return [
        _statistics(layer, head, [None if np.isnan(value) else value for value in mean[:, layer, head].tolist()], names)
        for layer in range(mean.shape[1])
        for head in range(mean.shape[2])
    ]


def statistics_columns(statistics: Sequence[HeadStatistics], marks: Mapping[str, str] = MARKS) -> dict[str, str]:
    """The fields to show of these heads, with their headings. A share that no head can have is left out."""
    names = {"entropy": "entropy", "evenness": "even", "distance": "distance", "cls": marks.get("cls", "cls"),
             "sep": marks.get("sep", "sep"), "previous": "previous", "next": "next", "itself": "self",
             "memory": "memory"}  # fmt: skip
    return {field: name for field, name in names.items() if any(getattr(one, field) is not None for one in statistics)}


def about_columns(statistics: Sequence[HeadStatistics]) -> str:
    """What the columns mean."""
    even = sorted({round(one.even_distance, 1) for one in statistics})
    distance = f"{even[0]:g}" if len(even) == 1 else f"{even[0]:g} to {even[-1]:g}, depending on the layer"
    return (
        "entropy: in nats, 0 if a word attends to one token only; even: as a share of that of equal weights on all "
        f"tokens that the word sees. distance: in tokens; of equal weights {distance}. The other columns are shares of "
        "a word's weight. All are means over words."
    )


def in_words(one: HeadStatistics, marks: Mapping[str, str] = MARKS) -> str:
    """What a head does, as far as its shares tell.

    >>> in_words(HeadStatistics(0, 0, 0.5, 1.2, 0.11, 0.01, 0.88, 0.01, 0.03, "previous"))
    "attends mostly to the previous token: 88% of a word's weight"
    >>> in_words(HeadStatistics(1, 2, 1.8, 2.5, 0.06, 0.02, 0.04, 0.06, 0.4))
    'has no simple pattern: its largest share by place is 40%, on the word itself'
    """
    places = {"previous": "the previous token", "next": "the next token", "itself": "the word itself"} | dict(marks)
    shares = {field: getattr(one, field) for field in places if getattr(one, field, None) is not None}
    if not shares:
        return "has no simple pattern"
    most = max(shares, key=lambda field: (shares[field], -PREFERRED.index(field)))
    if one.pattern:
        return f"attends mostly to {places[most]}: {shares[most]:.0%} of a word's weight"
    return f"has no simple pattern: its largest share by place is {shares[most]:.0%}, on {places[most]}"


def _statistics(layer: int, head: int, means: list[Any], names: Mapping[str, str]) -> HeadStatistics:
    entropy, distance, *shares, evenness, even, memory = means
    own = dict(zip(SHARES, shares, strict=True))
    named = {name: share for name, share in own.items() if share is not None}
    most = max((name for name in PREFERRED if named.get(name, 0) > 0.5), key=lambda name: named[name], default="")
    pattern = names.get(most, most)
    return HeadStatistics(
        layer, head, entropy, distance, **own, pattern=pattern, evenness=evenness, even_distance=even, memory=memory
    )


def _sums(one: AttentionMaps) -> tuple[np.ndarray, np.ndarray]:
    """Sums over words of each measure (10,L,A), and how many words these are (10,L,1)"""
    rows = one.words()
    weights, seen = one.within()[:, :, rows].astype(float), one.seen()[:, rows]  # (L,A,R,T), (L,R,T)
    memory = np.zeros(weights.shape[:-1]) if one.memory is None else one.memory[:, :, rows].astype(float)
    logs = np.log(np.where(weights > 0, weights, 1))
    names = np.array(one.roles)
    away = np.arange(names.size) - rows[:, None]  # (R,T)
    which = [np.broadcast_to(names == name, away.shape) for name in ("cls", "sep")]
    which += [away == -1, away == 1, away == 0]
    entropy = -(weights * logs).sum(-1)  # (L,A,R)
    number = seen.sum(-1)  # (L,R)
    even_distance = (np.abs(away) * seen).sum(-1) / np.maximum(number, 1)
    values = [
        entropy,
        (weights * np.abs(away)).sum(-1),
        *((weights * chosen).sum(-1) for chosen in which),
        entropy / np.log(np.maximum(number, 2))[:, None],
        np.broadcast_to(even_distance[:, None], entropy.shape),
        memory,
    ]
    choice = number > 1 if (number > 1).any() else number > 0  # a word that sees one token has no choice
    possible = [choice, choice, *(choice & (seen & chosen).any(-1) for chosen in which), number > 1, choice]
    counted = np.stack([*possible, np.full(choice.shape, one.memory is not None)])[:, :, None]  # (10,L,1,R)
    return np.where(counted, np.stack(values), 0).sum(-1), counted.sum(-1)


def most_attended(
    roles: Sequence[str], weights: np.ndarray, top: int = TOP, visible: np.ndarray | None = None
) -> list[tuple[int, float]]:
    """The tokens that get the most weight from the words that see them, with their shares.

    weights, visible (T,T): of one head
    """
    seen = np.ones(weights.shape, bool) if visible is None else visible
    words = [place for place, role in enumerate(roles) if not role]
    rows = [place for place in words if seen[place].sum() > 1] or words  # one that sees one token has no choice
    return largest(weights[rows].sum(0) / np.maximum(seen[rows].sum(0), 1), top)


def largest(values: np.ndarray, top: int = TOP) -> list[tuple[int, float]]:
    """Positions and values of the `top` largest.

    >>> largest(np.array([0.2, 0.5, 0.0, 0.3]), 2)
    [(1, 0.5), (3, 0.3)]
    """
    return [(int(i), float(values[i])) for i in np.argsort(-values, kind="stable")[:top]]
