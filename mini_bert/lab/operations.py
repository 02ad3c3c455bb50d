"""Every operation of a forward pass, in order, with its result, formula, source line and the sums behind its numbers.

    for one in operations(bench, reading):
        one.title, one.formula, one.values.shape, one.source, one.explain(2, 17)

The arrays are those of the model's cache (models/cache.py). What the cache leaves out, because backward does not need
it (the scores, the sums before the norms), comes from calling the same layer on the cached input again.

Blocks of the kind in layers/block.py are taken apart completely: Mini-BERT, BERT, RoBERTa, DistilBERT, ALBERT, ELECTRA.
Of other architectures, the arrays in their cache are shown, without sums.

Letters: T tokens, H hidden width, A heads, d = H/A, I feed-forward width, V vocabulary.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from mini_bert.lab.bench import Bench, Reading
from mini_bert.lab.explaining import (
    Explain,
    activated,
    added,
    averaged,
    lookup,
    normed,
    per_head,
    product,
    scores,
    shares,
)
from mini_bert.lab.source import Source, line_of
from mini_bert.layers.activations import ACTIVATIONS
from mini_bert.layers.attention import MultiHeadAttention, attend
from mini_bert.layers.base import Run
from mini_bert.layers.block import TransformerBlock
from mini_bert.layers.efficient_attention import EfficientAttention
from mini_bert.layers.embedding import Embedding, PositionEmbedding
from mini_bert.layers.layer_norm import LayerNorm
from mini_bert.layers.linear import Linear, TiedLinear
from mini_bert.layers.softmax import softmax
from mini_bert.models.base import MASKED_WORDS
from mini_bert.models.bert_like import BertLike
from mini_bert.models.cache import EncodeCache
from mini_bert.models.heads import MaskedWordHead
from mini_bert.models.mini import MiniBERT

FEATURES, KEYS, WORDS = "features", "keys", "words"  # what the columns of a result are


class Operation(NamedTuple):
    step: str  # its name in links, unique within a layer
    layer: int | None  # None: before or after the blocks
    title: str
    formula: str
    about: str
    shape: str  # with letters, such as (A,T,d)
    values: np.ndarray  # (T,columns), or (A,T,columns)
    columns: str = FEATURES
    source: Source | None = None
    explain: Explain | None = None  # None: its sums are not known here


def operations(bench: Bench, reading: Reading) -> list[Operation]:
    """All operations of the forward pass of a text."""
    cache = bench.encode(reading)
    found = embedding_operations(bench.model, reading, cache)
    for layer, (block, own) in enumerate(zip(bench.model.encoder.blocks, cache.blocks, strict=True)):
        found += block_operations(block, own, layer, reading)
    return found + output_operations(bench, reading, cache)


def embedding_operations(model: Any, reading: Reading, cache: EncodeCache) -> list[Operation]:
    """E[ids], + P, and what else an architecture has"""
    named = isinstance(model, MiniBERT | BertLike) and isinstance(getattr(model, "positions", None), PositionEmbedding)
    if not named or cache.embedded.shape[-1] != model.tokens.table.shape[-1]:
        return [plain("embeddings", None, "Embeddings", "(T,H)", cache.embedded[0])]
    ids, T = list(reading.ids), len(reading.ids)
    tokens = model.tokens.table.data[ids]  # (T,H)
    parts = {"E": tokens, "P": rows_of_positions(model, cache, T)}
    found = [
        Operation(
            "tokens", None, "Token embeddings", "E[ids]",
            "Each token has a row of numbers of its own in the table E. It is the same in every sentence.",
            "(T,H)", tokens, FEATURES, line_of(Embedding.forward, "self.table.data[ids]"), lookup("E", ids, tokens),
        ),
        Operation(
            "positions", None, "Position embeddings", "P[0], P[1], …, P[T−1]",
            "A second table has a row for each position. Without it, the order of the words would make no difference.",
            "(T,H)", parts["P"], FEATURES, line_of(PositionEmbedding.forward, "self.table.data"),
            lookup("P", range(T), parts["P"]),
        ),
    ]  # fmt: skip
    if getattr(model, "types", None) is not None:  # DistilBERT has none, DeBERTa may have none
        parts["S"] = model.types.table.data[np.array(reading.types) % len(model.types.table.data)]
    total = sum(parts.values())
    found.append(
        Operation(
            "embeddings", None, "Their sum", f"x = {' + '.join(parts)}",
            "The input of the first block: what the token is, plus where it is.", "(T,H)", total, FEATURES,
            line_of(PositionEmbedding.forward, "x + self.table.data[:T]"), added(list(parts), list(parts.values())),
        )
    )  # fmt: skip
    if isinstance(model, BertLike):
        found.append(norm_operation("embedding_norm", None, "Norm of the embeddings", model.norm, total))
    return found


def rows_of_positions(model: Any, cache: EncodeCache, T: int) -> np.ndarray:
    """P for each token; RoBERTa counts positions from another number."""
    positions = cache.inputs.positions
    return model.positions.table.data[:T] if positions is None else model.positions.table.data[positions[0]]


def block_operations(block: Any, cache: Any, layer: int, reading: Reading) -> list[Operation]:
    """One block, operation by operation"""
    known = isinstance(block, TransformerBlock) and type(block.attention) is EfficientAttention
    if not known or type(block).after_attention is not TransformerBlock.after_attention:
        shapes = {2: "(T,H)", 3: "(A,T,·)"}
        arrays = {name: array[0] for name, array in cache.named().items() if array.ndim > 2 and len(array) == 1}
        return [
            plain(name, layer, name.replace("_", " ").capitalize(), shapes[array.ndim], array)
            for name, array in arrays.items()
            if array.ndim in shapes
        ]
    run = Run()
    x, arrays = cache.input[0], {name: array[0] for name, array in cache.named().items()}  # B is 1
    attention, feed_forward = block.attention, block.feed_forward
    a = attention.output.forward(arrays["context"], run)[0]  # (T,H)
    first = x + a
    normal = block.attention_norm.rescale(arrays["attention_norm"])
    h = feed_forward.expand.forward(normal, run)[0]  # (T,I)
    f = feed_forward.contract.forward(arrays["feed_forward_inner"], run)[0]
    return [
        *attention_operations(attention, arrays, x, a, layer, reading),
        residual_operation("attention_sum", layer, "x + a", first, {"x": x, "a": a}, "a += x"),
        norm_operation("attention_norm", layer, "Layer norm", block.attention_norm, first),
        linear_operation("expand", layer, "Feed-forward: expand", "h x W₁ b₁", "(T,I)", feed_forward.expand, normal, h,
                         f"Each token on its own: {h.shape[-1]} features are computed from its {x.shape[-1]} numbers."),
        activation_operation(layer, feed_forward, h, arrays["feed_forward_inner"]),
        linear_operation("contract", layer, "Feed-forward: contract", "f g W₂ b₂", "(T,H)", feed_forward.contract,
                         arrays["feed_forward_inner"], f, "The active features are turned into a vector again."),
        residual_operation("output_sum", layer, "x + f", normal + f, {"x": normal, "f": f}, "f += x"),
        norm_operation("output_norm", layer, "Layer norm: the output of the block", block.output_norm, normal + f),
    ]  # fmt: skip


def attention_operations(attention: Any, arrays: Any, x: np.ndarray, a: np.ndarray, layer: int, reading: Reading):
    """q, k, v; scores; weights; context; output"""
    H, d = attention.width, attention.head_size
    w, b = attention.qkv.w.data, attention.qkv.b
    source = line_of(MultiHeadAttention.forward, "self.qkv.forward(x, run)")
    purposes = {
        "query": ("q", "what a token is looking for"),
        "key": ("k", "what a token can be found by"),
        "value": ("v", "what a token passes on"),
    }
    found = []
    for part, (step, (letter, purpose)) in enumerate(purposes.items()):
        columns = slice(part * H, (part + 1) * H)
        bias = None if b is None else b.data[columns]
        explain = per_head(product(x, w[:, columns], bias, "x", f"W_{letter}"), d)
        found.append(
            Operation(step, layer, step.capitalize(), f"{letter} = x W_{letter}{'' if b is None else ' + b'}",
                      f"One vector of {d} numbers for each token and head: {purpose}.", "(A,T,d)", arrays[step],
                      FEATURES, source, explain)
        )  # fmt: skip
    q, k, v, weights = arrays["query"], arrays["key"], arrays["value"], arrays["attention_weights"]
    raw = (q @ k.swapaxes(-1, -2)) * attention.scale  # as in MultiHeadAttention.dot_product_attention
    return [
        *found,
        Operation("scores", layer, "Scores", "S = q kᵀ / √d",
                  "How well each query (row) fits each key (column): their dot product, divided by √d so that it does "
                  "not grow with d.", "(A,T,T)", raw, KEYS,
                  line_of(MultiHeadAttention.dot_product_attention, "scores = q @ k"), scores(q, k)),
        Operation("attention", layer, "Attention weights", "P = softmax(S)",
                  "Each row becomes positive and sums to 1: how strongly this token attends to each token.", "(A,T,T)",
                  weights, KEYS, line_of(attend, "softmax(scores)"), shares(raw, reading.tokens)),
        Operation("context", layer, "Context", "C = P v",
                  "For each token, the average of all values, weighted by its row of P; all heads side by side.",
                  "(T,H)", arrays["context"], FEATURES, line_of(attend, "weights @ v"),
                  averaged(weights, v, reading.tokens)),
        linear_operation("output", layer, "Output of attention", "a C W_o b", "(T,H)", attention.output,
                         arrays["context"], a, "The contexts of all heads are mixed into one vector per token."),
    ]  # fmt: skip


def output_operations(bench: Bench, reading: Reading, cache: EncodeCache) -> list[Operation]:
    """What follows the last block: a norm, and the scores and probabilities of words"""
    model: Any = bench.model
    found = []
    if isinstance(model, MiniBERT):
        last: Any = model.encoder.blocks[-1]
        x = last.output_norm.rescale(cache.blocks[-1].output_norm.x_hat[0])
        found.append(norm_operation("final_norm", None, "Final norm", model.final_norm, x))
    if MASKED_WORDS not in model.output_heads:
        return found
    head, y, run = model.output_head(MASKED_WORDS), cache.hidden[0], Run()
    if isinstance(head, MaskedWordHead):
        h = head.dense.forward(y, run)[0]
        y = head.norm.forward(head.activation.forward(h)[0], run)[0]
        found.append(plain("head", None, "Before the scores of words", "(T,E)", y))
        head = head.decoder
    logits = model.output_head(MASKED_WORDS).forward(cache.hidden[0], run)[0]  # (T,V)
    said = (
        f"One score for each of the {logits.shape[-1]:,} words of the vocabulary. "
        "Only some columns are shown: the best words for each token."
    )
    if isinstance(head, Linear | TiedLinear):
        found.append(linear_operation("logits", None, "Scores of all words", "logits y W b", "(T,V)", head, y, logits,
                                      said, WORDS))  # fmt: skip
    else:  # the head of another architecture
        found.append(Operation("logits", None, "Scores of all words", "", said, "(T,V)", logits, WORDS))
    probs, _ = softmax(logits)
    names = [bench.tokenizer.readable(i) for i in range(bench.tokenizer.vocab_size)]
    names += ["(unused)"] * (probs.shape[-1] - len(names))
    found.append(
        Operation("probabilities", None, "Probabilities of words", "p = softmax(logits)",
                  "What the model would answer at each position. It was trained to do so only where a word is hidden.",
                  "(T,V)", probs, WORDS, line_of(softmax, "p *= 1 / total(p)"), shares(logits, names))
    )  # fmt: skip
    return found


# ---------------------------------------------------------------------- kinds of operations


def linear_operation(
    step: str, layer: int | None, title: str, letters: str, shape: str, linear: Any, x: np.ndarray, y: np.ndarray,
    about: str, columns: str = FEATURES,
) -> Operation:  # fmt: skip
    """y = x W + b        letters: how result, input, weights and bias are called here, such as "h x W₁ b₁" """
    result, of, by, plus = letters.split()
    tied = isinstance(linear, TiedLinear)
    weights, by = (linear.w.data.T, "Eᵀ") if tied else (linear.w.data, by)
    bias = None if linear.b is None else linear.b.data
    formula = f"{result} = {of} {by}" + ("" if bias is None else f" + {plus}")
    source = line_of(TiedLinear.forward if tied else Linear.forward, "times(x, self.w.data")
    explain = product(x, weights, bias, of, by, plus)
    return Operation(step, layer, title, formula, about, shape, y, columns, source, explain)


def norm_operation(step: str, layer: int | None, title: str, norm: Any, x: np.ndarray) -> Operation:
    y = norm.forward(x, Run())[0]
    beta = None if norm.beta is None else norm.beta.data
    formula = "y = γ (x − μ) / σ" + ("" if beta is None else " + β")
    about = (
        "The numbers of each token are shifted and scaled to mean 0 and variance 1, then scaled by γ and shifted by β."
    )
    explain = normed(x, norm.gamma.data, beta, norm.eps)
    source = line_of(LayerNorm.rescale, "self.gamma.data * x_hat")
    return Operation(step, layer, title, formula, about, "(T,H)", y, FEATURES, source, explain)


def residual_operation(step: str, layer: int, formula: str, y: np.ndarray, parts: dict[str, np.ndarray], code: str):
    about = "What was computed is added to what was there before, so nothing is lost on the way up."
    source = line_of(TransformerBlock.after_attention, code)
    explain = added(list(parts), list(parts.values()))
    return Operation(step, layer, "Residual connection", formula, about, "(T,H)", y, FEATURES, source, explain)


def activation_operation(layer: int, feed_forward: Any, h: np.ndarray, y: np.ndarray) -> Operation:
    names = {"relu": "max(h, 0)", "gelu": "h Φ(h)", "tanh": "tanh h"}
    name = next(name for name, pair in ACTIVATIONS.items() if pair is feed_forward.activation)
    formula = names.get(name, f"{name}(h)")
    source = line_of(feed_forward.activation.forward, "y = ")
    active = (y > 0).mean()
    about = f"Each number on its own. Here {active:.0%} of the features are above 0."
    return Operation(
        "activation", layer, f"Activation: {name.upper() if len(name) > 4 else name.replace('relu', 'ReLU')}",
        f"g = {formula}", about, "(T,I)", y, FEATURES, source, activated(h, y, formula),
    )  # fmt: skip


def plain(step: str, layer: int | None, title: str, shape: str, values: np.ndarray) -> Operation:
    return Operation(step, layer, title, "", "An intermediate result of this architecture.", shape, values)


def scale_of(values: np.ndarray) -> float:
    """The size at which colours saturate: nearly all numbers are smaller"""
    size = float(np.quantile(np.abs(values), 0.99)) if values.size else 0.0
    return size if math.isfinite(size) and size > 0 else 1.0
