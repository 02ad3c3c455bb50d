"""The backward room: the stepper in reverse. The gradient of the loss at every operation, and at any weight.

    loss = −ln p(hidden word)           the mean, if several words are hidden
    ∂loss/∂w ≈ (loss(w + h) − loss(w − h)) / 2h         what `check` compares with the gradient from backward

`flow` gives the size of all gradients, `values` the numbers at one operation, `weights` those of a weight matrix,
`check` a finite difference and `derivation` how a formula follows. gradients.py has the pass itself. All in float64.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from mini_bert.inside.saliency import default_position
from mini_bert.lab.bench import Bench, Reading, rounded
from mini_bert.lab.derivations import section_of, sections
from mini_bert.lab.fields import Fields
from mini_bert.lab.gradients import Pass, backward_pass
from mini_bert.lab.mask import gaps_of
from mini_bert.lab.operation_kinds import FEATURES, KEYS, WORDS, scale_of
from mini_bert.lab.source import line_of
from mini_bert.lab.stepper import packed
from mini_bert.layers.attention import MultiHeadAttention, attend_backward
from mini_bert.layers.block import TransformerBlock
from mini_bert.layers.cross_entropy import cross_entropy_backward
from mini_bert.layers.embedding import Embedding
from mini_bert.layers.feed_forward import FeedForward
from mini_bert.layers.layer_norm import LayerNorm
from mini_bert.layers.linear import Linear
from mini_bert.layers.softmax import softmax_backward

GRID = 16  # rows and columns of a weight matrix that are shown
MOST_WORDS = 24  # columns of the gradient at the scores of words
QKV = ("attention.qkv.w", "attention.qkv.b")
NORM = "(g − mean(g) − x̂ mean(g x̂)) / σ"


class Back(NamedTuple):
    """How the gradient at an operation's result is computed."""

    title: str
    formula: str
    about: str
    function: Callable[..., Any]
    fragment: str  # of its line of source
    columns: str = FEATURES
    tensors: tuple[str, ...] = ()  # the weights of this operation, within its block


STEPS: dict[str, Back] = {
    "logits": Back(
        "Scores of all words",
        "dlogits = (p − correct) / N",
        "The loss is −ln p(word). At the scores, its gradient is what the model predicts minus what is "
        "right: negative for the hidden word, whose score should rise, and positive for all others.",
        cross_entropy_backward,
        "dlogits[np.arange",
        WORDS,
        ("head.w", "head.b"),
    ),
    "final_norm": Back(
        "Final norm",
        "dy = dlogits Wᵀ",
        "Only the rows of hidden words are in the loss; all others are 0.",
        Linear.backward,
        "times(dy, self.w.data.T)",
        tensors=("final_norm.gamma", "final_norm.beta"),
    ),
    "hidden": Back(
        "Output of the encoder",
        "dy: through the head",
        "Only the rows of hidden words are in the loss.",
        Linear.backward,
        "times(dy, self.w.data.T)",
    ),
    "output_norm": Back(
        "Output of the block",
        "dy = dx of what follows",
        "What arrives from above: from the block after this one, or from the norm at the end.",
        TransformerBlock.backward,
        "dx += self.attention.backward",
        tensors=("output_norm.gamma", "output_norm.beta"),
    ),
    "output_sum": Back(
        "Residual connection",
        f"dx = {NORM},  g = γ dy",
        "Back through the norm. A part along 1 and a part along x̂ are taken away: shifting or scaling x "
        "would not have changed the result.",
        LayerNorm.backward,
        "g -= along",
        tensors=("output_norm.gamma", "output_norm.beta"),
    ),
    "contract": Back(
        "Feed-forward: contract",
        "df = dx",
        "The gradient of a sum goes to both terms unchanged: this one goes into the feed-forward network, "
        "the other past it.",
        TransformerBlock.after_attention_backward,
        "df = dropout_backward",
        tensors=("feed_forward.contract.w", "feed_forward.contract.b"),
    ),
    "activation": Back(
        "Activation",
        "dg = df W₂ᵀ",
        "Each feature gets the sum of what its outputs get, weighted by W₂.",
        Linear.backward,
        "times(dy, self.w.data.T)",
        tensors=("feed_forward.contract.w", "feed_forward.contract.b"),
    ),
    "expand": Back(
        "Feed-forward: expand",
        "dh = dg f′(h)",
        "Where ReLU gave 0, nothing comes back.",
        FeedForward.backward,
        "dh =",
        tensors=("feed_forward.expand.w", "feed_forward.expand.b"),
    ),
    "attention_norm": Back(
        "Layer norm",
        "dx = past the network + dh W₁ᵀ",
        "Two paths meet: past the feed-forward network, and through it. Their gradients are added.",
        TransformerBlock.after_attention_backward,
        "dx += self.feed_forward.backward",
        tensors=("attention_norm.gamma", "attention_norm.beta"),
    ),
    "attention_sum": Back(
        "Residual connection",
        f"dx = {NORM},  g = γ dy",
        "Back through the norm, as above.",
        LayerNorm.backward,
        "g -= along",
        tensors=("attention_norm.gamma", "attention_norm.beta"),
    ),
    "output": Back(
        "Output of attention",
        "da = dx",
        "The gradient of a sum goes to both terms: into attention, and past it.",
        TransformerBlock.after_attention_backward,
        "da = dropout_backward",
        tensors=("attention.output.w", "attention.output.b"),
    ),
    "context": Back(
        "Context",
        "dC = da W_oᵀ",
        "What each head should have passed on instead.",
        MultiHeadAttention.backward,
        "self.output.backward(dy, cache.context, run)",
        tensors=("attention.output.w", "attention.output.b"),
    ),
    "value": Back(
        "Value",
        "dv = Pᵀ dC",
        "A value gets the gradients of all tokens that attended to it, weighted by how much they did.",
        attend_backward,
        "dv = weights",
        tensors=QKV,
    ),
    "attention": Back(
        "Attention weights",
        "dP = dC vᵀ",
        "Whether more weight on a token would raise the loss (positive) or lower it.",
        attend_backward,
        "dprobs =",
        KEYS,
        QKV,
    ),
    "scores": Back(
        "Scores",
        "dS = P (dP − Σ dP P)",
        "A row of weights sums to 1, so only differences count: the mean of dP, weighted by P, is taken away.",
        softmax_backward,
        "dx = dp - dot(p, dp)",
        KEYS,
        QKV,
    ),
    "query": Back(
        "Query",
        "dq = dS k / √d",
        "A query is pulled towards keys whose scores should rise, and away from others.",
        MultiHeadAttention.dot_product_attention_backward,
        "return dscores @ cache.k",
        tensors=QKV,
    ),
    "key": Back(
        "Key",
        "dk = dSᵀ q / √d",
        "The same for a key, summed over all queries that met it.",
        MultiHeadAttention.dot_product_attention_backward,
        "return dscores @ cache.k",
        tensors=QKV,
    ),
    "embeddings": Back(
        "Embeddings",
        "dE[ids] += dx,  dP[t] += dx",
        "The end of the way: each token's row of the table E gets the gradient of the places where it is, "
        "and each position's row of P its own.",
        Embedding.backward,
        "add_rows",
        tensors=("tokens.table", "positions.table"),
    ),
}
FIRST, LAST = ("logits", "final_norm", "hidden"), ("embeddings",)
BLOCK = [step for step in STEPS if step not in (*FIRST, *LAST)]
PATHS = ("feed_forward_input", "attention_input")  # what comes out of the two halves of a block


def read(bench: Bench, fields: Fields) -> tuple[Reading, Pass]:
    """text, hidden (positions; default: one word)"""
    reading = bench.read(fields.text())
    hidden = fields.integers("hidden", 0, len(reading.ids) - 1)
    gaps = gaps_of(reading, hidden) or [default_position(bench.tokenizer, reading.ids)]
    return reading, backward_pass(bench, reading, gaps_of(reading, gaps))


def flow(bench: Bench, request: Mapping[str, Any]) -> dict[str, Any]:
    """The size of the gradient at every operation, from the loss to the embeddings.        text, hidden"""
    fields = Fields(request)
    reading, passed = read(bench, fields)
    fields.end()
    return {
        "tokens": reading.shown(),
        "layers": bench.model.depth,
        "hidden": passed.gaps,
        "loss": rounded(passed.loss),
        "words": [
            {"position": gap, "word": bench.tokenizer.readable(target), "p": rounded(p)}
            for gap, target, p in zip(passed.gaps, passed.targets, passed.probabilities, strict=True)
        ],
        "operations": [
            {"step": step, "layer": layer, "title": STEPS[step].title, "norm": size(passed.found[step, layer])}
            for step, layer in order(passed)
        ],
        "paths": {
            f"{step}_{layer}": size(gradient) for (step, layer), gradient in passed.found.items() if step in PATHS
        },
        "tensors": [
            {"name": name, "shape": list(param.shape), "norm": size(param.grad)}
            for name, param in passed.params.items()
        ],
    }


def size(gradient: np.ndarray) -> float:
    """|g|, the square root of the sum of squares"""
    return rounded(np.linalg.norm(gradient))


def order(passed: Pass) -> list[tuple[str, int | None]]:
    """The operations in the order of backward."""
    layers = sorted({layer for _, layer in passed.found if layer is not None}, reverse=True)
    found: list[tuple[str, int | None]] = [(step, None) for step in FIRST if (step, None) in passed.found]
    found += [(step, layer) for layer in layers for step in BLOCK if (step, layer) in passed.found]
    return [*found, ("embeddings", None)]


def values(bench: Bench, request: Mapping[str, Any]) -> dict[str, Any]:
    """The gradient at one operation.        text, hidden, step, layer (−1: not in a block)"""
    fields = Fields(request)
    reading, passed = read(bench, fields)
    places = order(passed)
    step = fields.choice("step", list(dict.fromkeys(step for step, _ in places)))
    layer = fields.integer("layer", -1, bench.model.depth - 1, -1)
    fields.end()
    same = [place for place in places if place[0] == step]
    place = next((one for one in same if one[1] in (None, layer)), same[0])
    back, gradient = STEPS[step], passed.found[place]
    columns, labels = None, None
    rows = [reading.tokens[gap] for gap in passed.gaps] if step == "logits" else list(reading.tokens)
    if back.columns == WORDS:
        columns = np.argsort(-np.abs(gradient).max(0), kind="stable")[:MOST_WORDS]
        labels = [
            bench.tokenizer.readable(i) if i < bench.tokenizer.vocab_size else "(unused)" for i in columns.tolist()
        ]
    elif back.columns == KEYS:
        labels = list(reading.tokens)
    numbers = gradient if columns is None else gradient[..., columns]
    return {
        "step": step,
        "layer": place[1],
        "title": back.title,
        "formula": back.formula,
        "about": back.about,
        "shape": list(gradient.shape),
        "rows": rows,
        "labels": labels,
        "columns": None if columns is None else columns.tolist(),
        "numbers": packed(numbers),
        "size": list(numbers.shape),
        "scale": rounded(scale_of(numbers)),
        "norm": size(gradient),
        "largest": rounded(np.abs(gradient).max()),
        "source": line_of(back.function, back.fragment)._asdict(),
        "derivation": {name: section_of(back.function)[name] for name in ("page", "anchor", "title")},
        "tensors": [name for name in tensors_of(back, place[1]) if name in passed.params],
    }


def tensors_of(back: Back, layer: int | None) -> list[str]:
    """The names of an operation's weights in the model."""
    return [name if layer is None else f"encoder.blocks.{layer}.{name}" for name in back.tensors]


def derivation(bench: Bench, request: Mapping[str, Any]) -> dict[str, Any]:
    """One section of docs/derivations, and the names of all.        page, anchor"""
    fields = Fields(request)
    page = fields.choice("page", list(dict.fromkeys(one["page"] for one in sections())))
    anchors = [one["anchor"] for one in sections() if one["page"] == page]
    wanted = fields.choice("anchor", anchors, anchors[0])
    fields.end()
    found = next(one for one in sections() if (one["page"], one["anchor"]) == (page, wanted))
    return {
        **{name: found[name] for name in ("page", "anchor", "title", "text")},
        "all": [[one["page"], one["anchor"], one["title"]] for one in sections()],
    }


def weights(bench: Bench, request: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a weight's gradient with the largest numbers.        text, hidden, tensor"""
    fields = Fields(request)
    _, passed = read(bench, fields)
    name = fields.choice("tensor", list(passed.params))
    fields.end()
    param = passed.params[name]
    gradient, weight = (np.atleast_2d(array) for array in (param.grad, param.data))  # a bias is one row
    rows = np.sort(np.argsort(-np.linalg.norm(gradient, axis=1), kind="stable")[:GRID])
    columns = np.sort(np.argsort(-np.linalg.norm(gradient[rows], axis=0), kind="stable")[:GRID])
    part = gradient[np.ix_(rows, columns)]
    largest = np.unravel_index(np.abs(part).argmax(), part.shape)
    return {
        "tensor": name,
        "shape": list(gradient.shape),
        "norm": size(gradient),
        "zero": rounded((gradient == 0).mean()),
        "rows": rows.tolist(),
        "columns": columns.tolist(),
        "numbers": packed(part),
        "weights": packed(weight[np.ix_(rows, columns)]),
        "scale": rounded(scale_of(part)),
        "largest": [int(rows[largest[0]]), int(columns[largest[1]])],
    }


def check(bench: Bench, request: Mapping[str, Any]) -> dict[str, Any]:
    """A gradient against a finite difference.

    text, hidden, tensor, row, column, exponent (h = 10^−exponent; 5 is a good one)
    """
    fields = Fields(request)
    _, passed = read(bench, fields)
    name = fields.choice("tensor", list(passed.params))
    param = passed.params[name]
    rows, columns = (1, *param.shape)[-2:]
    row, column = fields.integer("row", 0, rows - 1), fields.integer("column", 0, columns - 1)
    h = 10.0 ** -fields.integer("exponent", 1, 12, 5)
    fields.end()
    index = (row, column) if len(param.shape) == 2 else (column,)
    plus, minus = passed.loss_with(name, index, h)
    numeric, analytic = (plus - minus) / (2 * h), float(param.grad[index])
    return {
        "tensor": name,
        "row": row,
        "column": column,
        "weight": rounded(param.data[index], 9),
        "h": h,
        "plus": plus,
        "minus": minus,
        "numeric": rounded(numeric, 12),
        "analytic": rounded(analytic, 12),
        "error": rounded(relative_error(analytic, numeric), 3),
    }


def relative_error(analytic: float, numeric: float) -> float:
    """|a − n| / max(|a|, |n|), and 0 if both are 0

    >>> relative_error(2.0, 2.0), relative_error(1.0, 2.0), relative_error(0.0, 0.0)
    (0.0, 0.5, 0.0)
    """
    largest = max(abs(analytic), abs(numeric))
    return abs(analytic - numeric) / largest if largest else 0.0


ACTIONS = {"flow": flow, "values": values, "weights": weights, "check": check, "derivation": derivation}
