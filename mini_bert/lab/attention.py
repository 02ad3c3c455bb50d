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
from mini_bert.lab.attention_operations import Attended
from mini_bert.lab.bench import Bench, Reading, rounded
from mini_bert.lab.explaining import scaling
from mini_bert.lab.fields import Fields, Unable
from mini_bert.lab.mask import gaps_of, word_probabilities
from mini_bert.layers.disentangled_encoder import ConvolvedBlock

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
    block, cache = bench.model.encoder.blocks[layer], bench.encode(reading).blocks[layer]
    inner = cache.block if isinstance(block, ConvolvedBlock) else cache
    found = Attended.of(getattr(block, "attention", None), getattr(inner, "attention", None))
    if found is None:
        raise Unable("the scores of this architecture are not shown number by number")
    first, T = found.memory, len(reading.ids)
    pairs = [[product.vectors(head, position, first + key) for key in range(T)] for product in found.products]
    scores = found.scores[head, position].astype(float)  # (K,) with −∞ where masked
    powers = np.exp(scores - scores.max())
    return {
        "size": found.q.shape[-1],
        "query": [rounded(value, 4) for value in pairs[0][0][0]],
        "keys": [[rounded(value, 4) for value in key] for _, key in pairs[0]],
        "products": {
            product.formula: [rounded(one.astype(float) @ other) for one, other in own]
            for product, own in zip(found.products, pairs, strict=True)
        },
        "scale": scaling(found.attention.scale),
        "scores": [rounded(value) if math.isfinite(value) else None for value in scores[first:]],
        "largest": rounded(scores.max()),
        "powers": [rounded(value) for value in powers[first:]],
        "sum": rounded(powers.sum()),
        "memory": rounded(found.weights[head, position, :first].sum()),
        "weights": [rounded(value) for value in found.weights[head, position, first:]],
    }


def saliency(bench: Bench, request: Mapping[str, Any]) -> dict[str, Any]:
    """Gradient × input: the words that the probability of one hidden word depends on.        text, position"""
    fields = Fields(request)
    reading = bench.read(fields.text())
    position = _gap(reading, fields)
    fields.end()
    try:
        (found,) = word_saliency(bench.model, bench.tokenizer, reading.ids, [position], list(reading.types))
    except ValueError as problem:  # it has no head for words, or nothing comes before this one
        raise Unable(str(problem)) from None
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
    weaker = weakened(bench, [divmod(one, A) for one in off])
    gaps = gaps_of(reading, [position])
    row = gaps.index(position)
    before, after = (word_probabilities(one, reading, gaps)[row].astype(float) for one in (bench, weaker))
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
        raise Unable(f"this model has {len(every)} heads, too many to try all of them here; switch off one")
    gaps = gaps_of(reading, [position])
    row = gaps.index(position)
    before = word_probabilities(bench, reading, gaps)[row].astype(float)
    changes = []
    for one in every:
        after = word_probabilities(weakened(bench, [one]), reading, gaps)[row]
        changes.append(rounded(divergence(before, after.astype(float))))
    return {"divergences": changes}


def weakened(bench: Bench, heads: list[tuple[int, int]]) -> Bench:
    """The same bench without some heads"""
    try:
        return Bench(bench.name, without_heads(bench.model, heads), bench.tokenizer)
    except ValueError as problem:
        raise Unable(str(problem)) from None


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
