"""The attention room: all heads of a sentence, one query number by number, saliency, and heads switched off.

Attention shows where a head looks; it does not explain an answer (inside/attention_analysis.py, LIMITS). So the page
shows two other measures next to it: saliency, a gradient, and what changes if a head is switched off, an experiment:

    KL(p ‖ q) = Σ_w p(w) ln (p(w) / q(w))       p: the guesses at a hidden word; q: those without the head; 0: no change
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from mini_bert.inside.attention_analysis import LIMITS
from mini_bert.inside.attention_maps import attention_maps, head_statistics
from mini_bert.inside.attention_page import packed
from mini_bert.inside.head_ablation import without_heads
from mini_bert.inside.saliency import default_position, word_saliency
from mini_bert.lab.bench import Bench, Reading, rounded
from mini_bert.lab.fields import Fields
from mini_bert.lab.mask import gap_probabilities, gaps_of
from mini_bert.layers.efficient_attention import EfficientAttention

TOP = 6  # guesses
MOST_HEADS = 24  # that are switched off one after the other


def maps(bench: Bench, request: Mapping[str, Any]) -> dict[str, Any]:
    """The weights of all heads, and what each mostly attends to."""
    fields = Fields(request)
    reading = bench.read(fields.text())
    fields.end()
    found = attention_maps(bench.model, bench.tokenizer, reading.text)
    L, A = found.weights.shape[:2]
    return {
        "tokens": reading.shown(),
        "layers": L,
        "heads": A,
        "weights": packed(found.weights),
        "patterns": [one.pattern for one in head_statistics(found)],
        "position": default_position(bench.tokenizer, reading.ids),
        "limits": LIMITS,
    }


def query(bench: Bench, request: Mapping[str, Any]) -> dict[str, Any]:
    """One query against all keys.        text, layer, head, position (of the query)"""
    fields = Fields(request)
    reading = bench.read(fields.text())
    layer = fields.integer("layer", 0, bench.model.depth - 1)
    head = fields.integer("head", 0, bench.model.heads - 1)
    position = fields.integer("position", 0, len(reading.ids) - 1)
    fields.end()
    attention = getattr(bench.model.encoder.blocks[layer], "attention", None)
    if type(attention) is not EfficientAttention:
        raise ValueError(
            "the scores of this architecture are more than q · k / √d, so they are not shown number by number"
        )
    cache = bench.encode(reading)
    q = cache[f"query_{layer}"][0, head, position].astype(float)  # (d,)
    k = cache[f"key_{layer}"][0, head].astype(float)  # (T,d)
    products = k @ q
    scores = products / math.sqrt(q.size)
    powers = np.exp(scores - scores.max())
    weights = cache[f"attention_weights_{layer}"][0, head, position]
    return {
        "size": q.size,
        "query": [rounded(value, 4) for value in q],
        "keys": [[rounded(value, 4) for value in row] for row in k],
        "products": [rounded(value) for value in products],
        "scores": [rounded(value) for value in scores],
        "largest": rounded(scores.max()),
        "powers": [rounded(value) for value in powers],
        "sum": rounded(powers.sum()),
        "weights": [rounded(value) for value in weights],
    }


def saliency(bench: Bench, request: Mapping[str, Any]) -> dict[str, Any]:
    """Gradient × input: the words that the probability of one hidden word depends on.        text, position"""
    fields = Fields(request)
    reading = bench.read(fields.text())
    position = _gap(reading, fields)
    fields.end()
    (found,) = word_saliency(bench.model, bench.tokenizer, reading.ids, [position], list(reading.types))
    return {
        "of": found.of,
        "value": rounded(found.value),
        "tokens": found.tokens,
        "scores": [rounded(value) for value in found.scores],
    }


def without(bench: Bench, request: Mapping[str, Any]) -> dict[str, Any]:
    """The guesses at a hidden word with and without some heads.        text, position, off (layer · A + head)"""
    fields = Fields(request)
    reading = bench.read(fields.text())
    position = _gap(reading, fields)
    A = bench.model.heads
    off = fields.integers("off", 0, bench.model.depth * A - 1)
    fields.end()
    weaker = Bench(bench.name, without_heads(bench.model, [divmod(one, A) for one in off]), bench.tokenizer)
    gaps = gaps_of(reading, [position])
    row = gaps.index(position)
    before, after = (gap_probabilities(one, reading, gaps)[row].astype(float) for one in (bench, weaker))
    offered = np.maximum(before, after)
    offered[list(bench.tokenizer.special_ids)] = -1
    best = np.argsort(-offered, kind="stable")[:TOP].tolist()
    own = reading.ids[position]
    if own not in bench.tokenizer.special_ids and own not in best:
        best.append(own)
    return {
        "own": reading.tokens[position] if reading.roles[position] != "mask" else None,
        "divergence": rounded(divergence(before, after)),
        "guesses": [
            {"word": bench.tokenizer.readable(i), "before": rounded(before[i]), "after": rounded(after[i])}
            for i in best
        ],
    }


def importance(bench: Bench, request: Mapping[str, Any]) -> dict[str, Any]:
    """How much the guesses at a hidden word change if each head in turn is switched off.        text, position"""
    fields = Fields(request)
    reading = bench.read(fields.text())
    position = _gap(reading, fields)
    fields.end()
    every = [(layer, head) for layer in range(bench.model.depth) for head in range(bench.model.heads)]
    if len(every) > MOST_HEADS:
        raise ValueError(f"this model has {len(every)} heads, too many to try all of them here; switch off one")
    gaps = gaps_of(reading, [position])
    row = gaps.index(position)
    before = gap_probabilities(bench, reading, gaps)[row].astype(float)
    changes = []
    for one in every:
        weaker = Bench(bench.name, without_heads(bench.model, [one]), bench.tokenizer)
        changes.append(rounded(divergence(before, gap_probabilities(weaker, reading, gaps)[row].astype(float))))
    return {"divergences": changes}


def _gap(reading: Reading, fields: Fields) -> int:
    """The position of the word to guess."""
    position = fields.integer("position", 0, len(reading.ids) - 1)
    gaps_of(reading, [position])  # refuses [CLS] and [SEP]
    return position


def divergence(p: np.ndarray, q: np.ndarray) -> float:
    """KL(p ‖ q), in nats

    >>> divergence(np.array([0.5, 0.5]), np.array([0.5, 0.5]))
    0.0
    """
    tiny = np.finfo(float).tiny
    return max(0.0, float((p * (np.log(np.maximum(p, tiny)) - np.log(np.maximum(q, tiny)))).sum()))


ACTIONS = {"maps": maps, "query": query, "saliency": saliency, "without": without, "importance": importance}
