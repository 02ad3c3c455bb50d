"""Every operation of a forward pass, in order, with its result, formula, source line and the sums behind its numbers.

    for one in operations(bench, reading):
        one.title, one.formula, one.values.shape, one.source, one.explain(2, 17)

Embeddings and output heads are here, blocks in block_operations.py. Every architecture of the family is taken apart;
a layer that is not known (talking heads, an adaptive softmax) shows its numbers without sums.

Letters: T tokens, H hidden width, A heads, d = H/A, I feed-forward width, V vocabulary.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mini_bert.lab.bench import Bench, Reading
from mini_bert.lab.block_operations import block_operations
from mini_bert.lab.explaining import added, lookup, shares
from mini_bert.lab.operation_kinds import (
    FEATURES,
    WORDS,
    Operation,
    activation_operation,
    linear_operation,
    norm_operation,
    plain,
)
from mini_bert.lab.source import line_of
from mini_bert.layers.base import Run
from mini_bert.layers.embedding import Embedding, PositionEmbedding
from mini_bert.layers.linear import Linear, TiedLinear
from mini_bert.layers.softmax import softmax
from mini_bert.models.base import MASKED_WORDS, NEXT_WORD, REPLACED
from mini_bert.models.cache import EncodeCache
from mini_bert.models.disentangled import Disentangled


def operations(bench: Bench, reading: Reading) -> list[Operation]:
    """All operations of the forward pass of a text."""
    cache, model = bench.encode(reading), bench.model
    found = embedding_operations(model, reading, cache)
    for layer, (block, own) in enumerate(zip(model.encoder.blocks, cache.blocks, strict=True)):
        found += block_operations(block, own, layer, reading.tokens)
    if model.final_norm is not None:
        norm = norm_operation("final_norm", None, "Final norm", model.final_norm, found[-1].values)
        found.append(norm if close(norm.values, cache.hidden[0])
                     else plain("final_norm", None, "Final norm", "(T,H)", cache.hidden[0]))  # fmt: skip
    return found + output_operations(bench, cache)


def close(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether what was computed here is what the model has computed."""
    return one.shape == other.shape and bool(np.allclose(one, other, rtol=1e-3, atol=1e-3 * np.abs(other).max()))


# ---------------------------------------------------------------------- before the blocks


def embedding_operations(model: Any, reading: Reading, cache: EncodeCache) -> list[Operation]:
    """E[ids], + P, + S, and what else an architecture has: a norm, a projection to the width of the blocks"""
    ids = list(reading.ids)
    parts = {"E": model.embed_tokens(ids)}  # (T,E)
    table = isinstance(model.tokens, Embedding)
    found = [
        Operation(
            "tokens", None, "Token embeddings", "E[ids]",
            "Each token has a row of numbers of its own in the table E. It is the same in every sentence.",
            "(T,H)", parts["E"], FEATURES, line_of(Embedding.forward, "self.table.data[ids]") if table else None,
            lookup("E", ids, parts["E"]) if table else None,
        )
    ]  # fmt: skip
    if getattr(model, "positions", None) is not None:
        rows = positions_of(model, cache, len(ids))
        parts["P"] = model.positions.table.data[rows]
        found.append(
            Operation(
                "positions", None, "Position embeddings", f"P[{rows[0]}], P[{rows[0] + 1}], …",
                "A second table has a row for each position. Without it, the order of words would make no difference.",
                "(T,H)", parts["P"], FEATURES, line_of(type(model.positions).forward, "self.table.data"),
                lookup("P", rows, parts["P"]),
            )
        )  # fmt: skip
    if getattr(model, "types", None) is not None:  # DistilBERT has none, DeBERTa may have none
        parts["S"] = model.types.table.data[np.array(reading.types) % len(model.types.table.data)]
    if len(parts) > 1:
        found.append(
            Operation(
                "embeddings", None, "Their sum", f"x = {' + '.join(parts)}",
                "The input of the first block: what the token is, plus where it is.", "(T,H)", sum(parts.values()),
                FEATURES, line_of(PositionEmbedding.forward, "x + self.table.data[:T]"),
                added(list(parts), list(parts.values())),
            )
        )  # fmt: skip
    more = {"norm": getattr(model, "norm", None), "project": getattr(model, "project", None)}
    for part in ("project", "norm") if isinstance(model, Disentangled) else ("norm", "project"):
        if more[part] is not None:
            found.append(
                norm_operation("embedding_norm", None, "Norm of the embeddings", more[part], found[-1].values)
                if part == "norm"
                else linear_operation("projection", None, "To the width of the blocks", "x e W b", "(T,H)", more[part],
                                      found[-1].values, "Embeddings are narrower than the blocks, which saves weights.")
            )  # fmt: skip
    return found if close(found[-1].values, cache.embedded[0]) else [
        plain("embeddings", None, "Embeddings", "(T,H)", cache.embedded[0])
    ]  # fmt: skip


def positions_of(model: Any, cache: EncodeCache, T: int) -> list[int]:
    """The row of P for each token; RoBERTa counts positions from another number."""
    given = cache.inputs.positions
    if given is None and hasattr(model, "positions_of"):
        given = model.positions_of(cache.inputs.ids)
    return list(range(T)) if given is None else given[0].tolist()


# ---------------------------------------------------------------------- after the blocks


def output_operations(bench: Bench, cache: EncodeCache) -> list[Operation]:
    """What a head computes from the output of the encoder: the scores and probabilities of words"""
    model: Any = bench.model
    name = next((name for name in (MASKED_WORDS, NEXT_WORD, REPLACED) if name in model.output_heads), None)
    if name is None:
        return []
    head, y = model.output_head(name), cache.hidden[0]
    found = transform_operations(getattr(head, "transform", head), y)
    y = found[-1].values if found else y
    if name == REPLACED:
        about = "One score per token: above 0, the model takes it for a word that was replaced."
        return [
            *found,
            linear_operation("replaced", None, "Was it replaced?", "z g W b", "(T,1)", head.linear, y, about),
        ]
    logits = head.forward(cache.hidden[0], Run())[0]  # (T,V)
    said = (
        f"One score for each of the {logits.shape[-1]:,} words of the vocabulary. "
        "Only some columns are shown: the best words for each token."
    )
    last = getattr(head, "decoder", head)
    if isinstance(last, Linear | TiedLinear):
        found.append(
            linear_operation("logits", None, "Scores of all words", "logits y W b", "(T,V)", last, y, said, WORDS)
        )
    else:  # an adaptive softmax
        found.append(Operation("logits", None, "Log-probabilities of words", "ln p", said, "(T,V)", logits, WORDS))
    probs, _ = softmax(logits)
    names = [bench.tokenizer.readable(i) for i in range(bench.tokenizer.vocab_size)]
    names += ["(unused)"] * (probs.shape[-1] - len(names))
    about = {
        MASKED_WORDS: "What the model would answer at each position. It was trained to do so where words are hidden.",
        NEXT_WORD: "Which word the model expects after each token, from this token and those before it.",
    }[name]
    found.append(
        Operation("probabilities", None, "Probabilities of words", "p = softmax(logits)", about, "(T,V)", probs, WORDS,
                  line_of(softmax, "p *= 1 / total(p)"), shares(logits, names))
    )  # fmt: skip
    return found


def transform_operations(head: Any, y: np.ndarray) -> list[Operation]:
    """LayerNorm(f(y W + b)), as far as a head has these parts"""
    if not hasattr(head, "dense"):
        return []
    about = "The head prepares each vector for the comparison with the rows of the table."
    found = [linear_operation("head", None, "Head: linear layer", "h y W b", "(T,E)", head.dense, y, about)]
    found.append(activation_operation("head_activation", None, head.activation, found[-1].values, "(T,E)"))
    if hasattr(head, "norm"):
        found.append(norm_operation("head_norm", None, "Head: norm", head.norm, found[-1].values))
    return found
