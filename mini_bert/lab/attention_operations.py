"""Attention, operation by operation, for every kind in the family. They differ in how scores are made:

BERT, GPT-2        q · k
ModernBERT         q and k are rotated first (layers/rotary.py)
DeBERTa            q · k + q · kʳ + k · qʳ                  (layers/disentangled_attention.py)
Transformer-XL     (q + u) · k + (q + w) · r                (layers/relative_attention.py)
XLNet              and + (q + s) · e                        (layers/two_stream_attention.py)

found = Attended.of(attention, cache)      None for a kind that is not known here
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from mini_bert.lab.explaining import Product, averaged, per_head, product, rotated, scaling, scores, shares
from mini_bert.lab.operation_kinds import FEATURES, KEYS, Operation, linear_operation
from mini_bert.lab.source import Source, line_of
from mini_bert.layers.attention import MultiHeadAttention, attend
from mini_bert.layers.disentangled_attention import DisentangledAttention
from mini_bert.layers.efficient_attention import EfficientAttention
from mini_bert.layers.past import PastAttention
from mini_bert.layers.relative_attention import RelativeAttention
from mini_bert.layers.rotary import RotaryAttention, rotate, waves
from mini_bert.layers.two_stream_attention import TwoStreamAttention

FAR = 80.0  # a score so far below the largest has weight 0 in float32 without being masked
PURPOSES = {
    "query": ("q", "what a token is looking for"),
    "key": ("k", "what a token can be found by"),
    "value": ("v", "what a token passes on"),
}


class Attended(NamedTuple):
    """The attention of one block for one text, B = 1."""

    attention: Any
    x: np.ndarray  # (T,H) its input
    q: np.ndarray  # (A,T,d) as in the scores
    k: np.ndarray  # (A,K,d) those of a memory first
    v: np.ndarray  # (A,K,d)
    weights: np.ndarray  # (A,T,K)
    context: np.ndarray  # (T,A·d)
    raw: np.ndarray  # (A,T,K) scores before the mask
    products: list[Product]
    memory: int  # K − T

    @classmethod
    def of(cls, attention: Any, cache: Any) -> Attended | None:
        """From the cache of the attention layer."""
        make = KINDS.get(type(attention))
        return None if make is None else make(attention, cache)

    @property
    def scores(self) -> np.ndarray:
        """(A,T,K) with −∞ where a mask hides a key"""
        seen = np.where(self.weights > 0, self.raw, -np.inf)
        hidden = (self.weights == 0) & (self.raw > seen.max(-1, keepdims=True) - FAR)
        return np.where(hidden, -np.inf, self.raw)

    def names(self, tokens: tuple[str, ...]) -> list[str]:
        """Of the keys"""
        return [*(f"memory {place - self.memory}" for place in range(self.memory)), *tokens]


def dot_products(attention: Any, cache: Any) -> Attended:
    """S = q kᵀ / √d"""
    q, k, v = cache.q[0], cache.k[0], cache.attended.v[0]
    raw = (q @ k.swapaxes(-1, -2)) * attention.scale
    content = Product("q · k", "q[{i},{c}] × k[{j},{c}]", lambda a, i, j: (q[a, i], k[a, j]))
    return Attended(attention, cache.x[0], q, k, v, cache.attended.probs[0], cache.context[0], raw, [content], 0)


def disentangled(attention: Any, cache: Any) -> Attended:
    """S = (q · k + q · kʳ + k · qʳ) / √(n d)"""
    plain = dot_products(attention, cache)
    raw = cache.q @ cache.k.swapaxes(-1, -2)
    attention.add_position_scores(raw, cache.q, cache.k, cache.positions, None)
    products, T = list(plain.products), len(plain.x)
    if cache.positions is not None:
        row_of, key, query = cache.positions.distances.row_of, cache.positions.key, cache.positions.query
        if key is not None:
            products.append(Product("q · kʳ", "q[{i},{c}] × kʳ[{i}−{j},{c}]",
                                    lambda a, i, j: (plain.q[a, i], key[a, row_of[i - j + T - 1]])))  # fmt: skip
        if query is not None:
            products.append(Product("k · qʳ", "k[{j},{c}] × qʳ[{i}−{j},{c}]",
                                    lambda a, i, j: (plain.k[a, j], query[a, row_of[i - j + T - 1]])))  # fmt: skip
    return plain._replace(raw=raw[0] * attention.scale, products=products)


def relative(attention: Any, cache: Any) -> Attended:
    """S = ((q + u) · k + (q + w) · r) / √d, and for XLNet + (q + s) · e / √d; keys of the memory come first"""
    keys, stream = cache.keys, cache.content if isinstance(attention, TwoStreamAttention) else cache.stream
    q, k, r, T = stream.q[0], keys.k[0], keys.r[0], stream.q.shape[2]
    u, w = attention.content_bias.data, attention.distance_bias.data  # (A,d)
    none = np.zeros_like(u[0])  # later tokens, which a mask hides, have no row in r

    def distance(a: int, i: int, j: int) -> tuple[np.ndarray, np.ndarray]:
        return q[a, i] + w[a], r[a, j + T - i] if j + T - i < r.shape[1] else none

    products = [
        Product("(q + u) · k", "(q + u)[{i},{c}] × k[{j},{c}]", lambda a, i, j: (q[a, i] + u[a], k[a, j])),
        Product("(q + w) · r", "(q + w)[{i},{c}] × r[{i}−{j},{c}]", distance),
    ]  # fmt: skip
    if stream.differs is not None:
        s, e, differs = attention.segments.bias.data, attention.segments.embedding.data, stream.differs[0, 0]
        products.append(Product("(q + s) · e", "(q + s)[{i},{c}] × e[{c}]",
                                lambda a, i, j: (q[a, i] + s[a], e[int(differs[i, j]), a])))  # fmt: skip
    raw = attention.scores(stream.q, keys, None, stream.differs)[0]
    content = ((q + u[:, None]) @ k.swapaxes(-1, -2)) * attention.scale
    raw = np.where(np.arange(k.shape[1]) + T - np.arange(T)[:, None] < r.shape[1], raw, content)
    return Attended(attention, cache.x[0], q, k, keys.v[0], stream.attended.probs[0], stream.context[0], raw, products,
                    keys.first)  # fmt: skip


KINDS: dict[type, Any] = {
    EfficientAttention: dot_products, PastAttention: dot_products, RotaryAttention: dot_products,
    DisentangledAttention: disentangled, RelativeAttention: relative, TwoStreamAttention: relative,
}  # fmt: skip


# ---------------------------------------------------------------------- as operations


def attention_operations(own: Attended, layer: int, tokens: tuple[str, ...], of: str = "x") -> list[Operation]:
    """q, k, v; scores; weights; context; output        of: the letter of its input"""
    names, first, masked = own.names(tokens), own.memory, own.scores
    formula = " + ".join(one.formula for one in own.products)
    many = "S = q kᵀ" if formula == "q · k" else f"S_ij = ({formula})"
    of_distance = {"(q + w) · r": " r belongs to their distance.", "q · kʳ": " kʳ and qʳ belong to their distance."}
    more = "".join(text for name, text in of_distance.items() if name in formula)
    return [
        *projections(own, layer, of),
        Operation("scores", layer, "Scores", f"{many} {scaling(own.attention.scale).replace('÷', '/')}",
                  "How well each query (row) fits each key (column). The division keeps scores from growing with the "
                  f"number of terms.{more}", "(A,T,T)", own.raw[..., first:], KEYS,
                  source_of_scores(own.attention),
                  _after(scores(own.products, own.attention.scale), first)),
        Operation("attention", layer, "Attention weights", "P = softmax(S)",
                  "Each row becomes positive and sums to 1: how strongly this token attends to each token."
                  + (" The rest is on the memory." if first else "")
                  + (" A mask hides some keys, such as later tokens." if np.isinf(masked).any() else ""),
                  "(A,T,T)", own.weights[..., first:], KEYS, line_of(attend, "softmax(scores)"),
                  shares(masked, names, first)),
        Operation("context", layer, "Context", "C = P v",
                  "For each token, the average of all values, weighted by its row of P; all heads side by side.",
                  "(T,H)", own.context, FEATURES, line_of(attend, "weights @ v"),
                  averaged(own.weights, own.v, names)),
        linear_operation("output", layer, "Output of attention", "a C W_o b", "(T,H)", own.attention.output,
                         own.context, "The contexts of all heads are mixed into one vector per token."),
    ]  # fmt: skip


def source_of_scores(attention: Any) -> Source:
    if isinstance(attention, DisentangledAttention):
        return line_of(DisentangledAttention.forward, "self.add_position_scores")
    if isinstance(attention, RelativeAttention):
        return line_of(RelativeAttention.scores, "scores += relative_shift")
    return line_of(MultiHeadAttention.dot_product_attention, "scores = q @ k")


def _after(explain: Any, first: int) -> Any:
    """The same for keys that are counted from the first token after the memory."""
    return lambda a, i, j: explain(a, i, j + first)


def projections(own: Attended, layer: int, of: str) -> list[Operation]:
    """q, k and v, and their rotation where there is one"""
    attention, d = own.attention, own.attention.head_size
    found = []
    for step, (letter, purpose) in PURPOSES.items():
        w, b, source = weights_of(attention, step)
        y = own.x @ w + (0 if b is None else b)  # (T,A·d)
        values = y.reshape(len(y), -1, d).transpose(1, 0, 2)
        found.append(
            Operation(step, layer, step.capitalize(), f"{letter} = {of} W_{letter}{'' if b is None else ' + b'}",
                      f"One vector of {d} numbers for each token and head: {purpose}.", "(A,T,d)", values, FEATURES,
                      source, per_head(product(own.x, w, b, of, f"W_{letter}"), d))
        )  # fmt: skip
    return found + (rotations(own, layer, found) if isinstance(attention, RotaryAttention) else [])


def weights_of(attention: Any, step: str) -> tuple[np.ndarray, np.ndarray | None, Any]:
    """The matrix and the bias of queries, keys or values, and the line of source."""
    if isinstance(attention, DisentangledAttention):
        linear = getattr(attention, step)
        source = line_of(DisentangledAttention.forward, f"self.{step}.forward")
        return linear.w.data, None if linear.b is None else linear.b.data, source
    size = attention.heads * attention.head_size
    part = slice(list(PURPOSES).index(step) * size, (list(PURPOSES).index(step) + 1) * size)
    bias = None if attention.qkv.b is None else attention.qkv.b.data[part]
    function: Any = MultiHeadAttention.forward
    line = "self.qkv.forward(x, run)"
    if isinstance(attention, RelativeAttention):
        function, line = ((RelativeAttention.stream, "_w_q().forward") if step == "query" else
                          (RelativeAttention.keys, "_w_kv().forward"))  # fmt: skip
    return attention.qkv.w.data[:, part], bias, line_of(function, line)


def rotations(own: Attended, layer: int, before: list[Operation]) -> list[Operation]:
    """Queries and keys, turned by their position"""
    cos, sin = waves(own.attention.theta, own.attention.head_size, len(own.x), own.q.dtype)
    return [
        Operation(f"{step}_rotated", layer, f"{step.capitalize()}, rotated", f"{letter}′ = R_t {letter}",
                  "Pairs of numbers are turned by an angle that grows with t, so that scores depend on distances.",
                  "(A,T,d)", turned, FEATURES, line_of(rotate, "turned -= b * sin"),
                  rotated(one.values, cos, sin, letter))
        for (step, letter), one, turned in zip((("query", "q"), ("key", "k")), before, (own.q, own.k), strict=False)
    ]  # fmt: skip
