"""Topics 3 and 4: inside multi-head attention, and what the attention of a trained model looks like."""

from __future__ import annotations

import numpy as np

from drawing.facts import BLOCK, HEAD, QUERY, facts
from drawing.svg import LEGEND, Picture, number

SHOWN = 8  # columns of each head that are drawn: every sixth of 48


def heads() -> Picture:
    """x -> q, k, v -> four heads -> weights -> contexts -> side by side -> output, with the arrays of block 1."""
    f = facts()
    arrays = {name: f.arrays[f"{name}_{BLOCK}"][0] for name in ("query", "key", "value")}  # (A,T,d) each
    weights = f.arrays[f"attention_weights_{BLOCK}"][0]  # (A,T,T)
    context = f.arrays[f"context_{BLOCK}"][0]  # (T,H)
    x = f.arrays[f"block_input_{BLOCK}"][0]
    output = context @ f.model.encoder.blocks[BLOCK].attention.output.w.data
    picture = Picture(
        920, 792, "Multi-head attention in block 1: queries, keys and values in four heads, weights, contexts, output"
    )

    def token_names(right, y, step, size=11.5):
        for index, piece in enumerate(f.pieces):
            picture.text(right, y + step * index + step * 0.78, piece, size, "soft", "end")

    def in_heads(left, y, four, scale, cell, step, gap=9):
        """Four arrays side by side, the first one in a frame."""
        for head in range(4):
            place = left + head * (SHOWN * cell + gap)
            picture.heat(place, y, four[head][:, ::6], cell, step, scale)
            if head == HEAD:
                frame = (place - 3.5, y - 3.5, SHOWN * cell + 6.4, 10 * step + 6.4)
                picture.rect(*frame, "", "orange", radius=2, thick=1.8)

    # 1. x
    picture.text(24, 34, "1", 20, "blue", bold=True)
    picture.text(46, 34, "The input x", 15, bold=True)
    picture.text(46, 54, "(10, 192)", 13, "soft")
    token_names(88, 72, 13)
    picture.heat(96, 72, x[:, ::16], 8, 13, 2.0)

    # 2. q, k, v
    picture.text(256, 34, "2", 20, "blue", bold=True)
    picture.text(278, 34, "q, k, v = x W_qkv", 15, bold=True)
    picture.text(278, 54, "(10, 192) each; split into 4 heads of 48 columns: (4, 10, 48)", 13, "soft")
    for place, (name, array) in enumerate(arrays.items()):
        left = 256 + place * 216
        in_heads(left, 98, array, 4.0 if name != "value" else 2.0, 5.2, 10.4)
        picture.text(
            left + 96, 86, {"query": "queries q", "key": "keys k", "value": "values v"}[name], 13, anchor="middle"
        )
        for head in range(4):
            centre = left + head * (SHOWN * 5.2 + 9) + SHOWN * 2.6
            picture.text(centre, 222, f"head {head}", 11, "orange" if head == HEAD else "soft", "middle")
    picture.path("M198 137H246", arrow=True)
    picture.text(222, 130, "W", 12, "soft", "middle")

    # 3. weights
    picture.text(24, 272, "3", 20, "blue", bold=True)
    picture.text(46, 272, "Weights P = softmax(q kᵀ/√48), one matrix per head", 15, bold=True)
    picture.text(46, 292, "(4, 10, 10): row = query, column = key; every row sums to 1", 13, "soft")
    for head in range(4):
        left = 96 + head * 206
        picture.heat(left, 314, np.sqrt(weights[head]), 14, 14, 1.0)
        if head == HEAD:
            picture.rect(left - 3.5, 310.5, 146.4, 146.4, "", "orange", radius=2, thick=1.8)
            for index, piece in enumerate(f.pieces):
                picture.text(left - 8, 325 + index * 14, piece, 11.5, "soft", "end")
        picture.text(left + 70, 474, f"head {head}", 11.5, "orange" if head == HEAD else "soft", "middle")
    picture.line(600, 234, 600, 256, arrow=True)
    picture.text(612, 250, "q and k", 12, "soft")

    # 4. contexts
    picture.text(24, 530, "4", 20, "blue", bold=True)
    picture.text(46, 530, "Contexts C = P v, side by side", 15, bold=True)
    picture.text(46, 550, "(10, 192): 4 heads × 48", 13, "soft")
    token_names(88, 572, 13)
    in_heads(97, 572, [context[:, 48 * head : 48 * head + 48] for head in range(4)], 1.0, 8.4, 13, 10)
    for head in range(4):
        picture.text(97 + head * (SHOWN * 8.4 + 10) + SHOWN * 4.2, 724, f"head {head}", 11.5,
                     "orange" if head == HEAD else "soft", "middle")  # fmt: skip
    picture.line(250, 486, 250, 512, arrow=True)
    picture.text(262, 503, "averages of the values", 12, "soft")

    # 5. output
    picture.text(540, 530, "5", 20, "blue", bold=True)
    picture.text(562, 530, "Output y = [C₀ C₁ C₂ C₃] W_o", 15, bold=True)
    picture.text(562, 550, "(10, 192), the shape of x", 13, "soft")
    picture.path("M424 637H486", arrow=True)
    picture.text(454, 630, "W_o", 12, "soft", "middle")
    token_names(556, 572, 13)
    picture.heat(564, 572, output[:, ::8], 8.4, 13, 1.0)
    drawn = "; drawn: every 6th column of a head (8th of y, 16th of x); weights: stronger colour = larger"
    picture.words(24, 772, [*LEGEND, (drawn, "soft")], 12.5)
    return picture


def one_query() -> Picture:
    """One row of the weights of a head, number by number."""
    f = facts()
    q, k, v = (f.arrays[f"{name}_{BLOCK}"][0, HEAD] for name in ("query", "key", "value"))  # (T,d) each
    products = k @ q[QUERY]
    scores = products / np.sqrt(48)
    powers = np.exp(scores)
    weights = powers / powers.sum()
    context = weights @ v
    picture = Picture(
        920, 560, "One query against ten keys: dot products, scores, weights, and the weighted average of the values"
    )
    top, step, cell = 118, 34, 6.2
    columns = {"key": 96, "product": 338, "score": 412, "power": 492, "weight": 512, "value": 700}
    picture.text(24, 32, f"Head {HEAD} of block {BLOCK}: to which tokens does “his” attend?", 17, bold=True)
    picture.text(86, 77, "his", 14, "orange", "end", bold=True)
    picture.text(columns["key"] + 160, 77, "its query q: drawn, as below, every second of 48 numbers", 12.5, "soft")
    picture.heat(columns["key"], 62, q[QUERY, ::2], cell, 20, 4.0)
    for name, title in (("product", "q · k"), ("score", "q · k / √48"), ("power", "exp")):
        picture.text(columns[name] - 4, 104, title, 12.5, "soft", "end")
    picture.text(columns["key"], 104, "keys k", 12.5, "soft")
    picture.text(columns["weight"] + 14, 104, "weight = exp / sum", 12.5, "soft")
    picture.text(columns["value"], 104, "values v, by weight", 12.5, "soft")
    for index, piece in enumerate(f.pieces):
        y = top + index * step
        strong = index == int(weights.argmax())
        if strong:
            picture.rect(14, y - 5, 892, step, "warm", radius=5)
        picture.text(86, y + 16, piece, 14, "ink", "end", bold=strong)
        picture.heat(columns["key"], y + 2, k[index, ::2], cell, 20, 4.0)
        for name, value in (("product", products), ("score", scores), ("power", powers)):
            digits = 1 if name == "product" else 2
            picture.text(columns[name] - 4, y + 16, f"{value[index]:.{digits}f}", 14, "ink", "end")
        picture.rect(columns["weight"] + 14, y + 4, 110 * weights[index], 16, "blue", radius=2)
        picture.text(columns["weight"] + 20 + 110 * weights[index], y + 16, f"{weights[index]:.3f}", 14, bold=strong)
        picture.heat(columns["value"], y + 2, v[index, ::2] * weights[index], 8, 20, 1.2)
    y = top + 10 * step + 6
    picture.line(columns["product"] - 50, y - 4, 892, y - 4, "rule")
    picture.text(columns["power"] - 4, y + 16, f"{powers.sum():.1f}", 14, "ink", "end", bold=True)
    picture.text(columns["score"] - 60, y + 16, "sum", 13, "soft", "end")
    picture.text(columns["weight"] + 14, y + 16, "1.000", 14, bold=True)
    picture.text(columns["value"] - 12, y + 18, "sum", 13, "soft", "end")
    picture.heat(columns["value"], y + 4, context[::2], 8, 20, 1.2)
    picture.rect(columns["value"] - 4, y, 200, 28, "", "orange", radius=3, thick=1.8)
    picture.text(columns["value"], y + 48, "the context of “his”", 13, "orange")
    own = (float(weights[QUERY]), float(weights.max()))
    picture.text(24, y + 18, f"“his” gives {own[1]:.1%} of its weight to", 13, "soft")
    picture.text(24, y + 38, f"“he”, and {own[0]:.1%} to itself. Its context is", 13, "soft")
    picture.text(24, y + 58, "therefore almost the value of “he”.", 13, "soft")
    return picture


def one_head() -> Picture:
    """A head's weights as a matrix, and as lines from each token to those it attends to."""
    f = facts()
    weights = f.arrays[f"attention_weights_{BLOCK}"][0, HEAD]
    picture = Picture(920, 560, "The weights of head 0 of block 1 as a matrix and as lines: both “his” attend to “he”")
    left, top, cell = 92, 96, 43
    picture.text(24, 34, f"Head {HEAD} of block {BLOCK}", 17, bold=True)
    picture.text(left + 5 * cell, 62, "key: attended to", 12.5, "soft", "middle")
    for index, piece in enumerate(f.pieces):
        picture.text(left + (index + 0.5) * cell, 86, piece, 12, "ink", "middle")
        picture.text(left - 8, top + (index + 0.5) * cell + 5, piece, 13, "ink", "end", bold=piece == "his")
        for key in range(10):
            weight = float(weights[index, key])
            x, y = left + key * cell, top + index * cell
            picture.rect(x, y, cell - 2, cell - 2, "panel")
            picture.rect(x, y, cell - 2, cell - 2, "blue", opacity=weight**0.6)
            picture.text(x + cell / 2 - 1, y + cell / 2 + 4, f"{weight:.2f}"[1:], 12.5,
                         "on" if weight**0.6 > 0.62 else "ink", "middle", bold=weight > 0.5)  # fmt: skip
    for row in (3, 6):
        picture.rect(left - 2, top + row * cell - 2, 10 * cell + 2, cell + 2, "", "orange", radius=3, thick=2)
    picture.text(left, top + 10 * cell + 20, "query: one row per token; a row sums to 1", 12.5, "soft")

    one, two = 650, 820
    picture.text(one - 10, 62, "query", 12.5, "soft", "end")
    picture.text(two + 10, 62, "key", 12.5, "soft")
    height = [top + (index + 0.5) * cell for index in range(10)]
    for query in range(10):
        for key in range(10):
            weight = float(weights[query, key])
            if weight >= 0.05:
                a, b = number(height[query]), number(height[key])
                strong = query in (3, 6) and weight > 0.5
                picture.path(f"M{one} {a}C{one + 70} {a} {two - 70} {b} {two} {b}", "orange" if strong else "blue",
                             10 * weight, opacity=0.9 if strong else 0.5)  # fmt: skip
    for index, piece in enumerate(f.pieces):
        picture.text(
            one - 10, height[index] + 5, piece, 14, "orange" if index in (3, 6) else "ink", "end", bold=index in (3, 6)
        )
        picture.text(two + 10, height[index] + 5, piece, 14, "orange" if index == 1 else "ink", bold=index == 1)
    picture.text((one + two) / 2, top + 10 * cell + 20, "thickness: weight, from 0.05 up", 12.5, "soft", "middle")
    return picture


def all_heads() -> Picture:
    """The twelve heads of the model, and where each puts most of its weight."""
    f = facts()
    picture = Picture(920, 832, "The weights of all twelve heads on the sentence, with the pattern of each")
    cell, across, down = 17, 214, 262
    picture.text(24, 34, "All twelve heads: row = query, column = key", 17, bold=True)
    for block in range(3):
        y = 72 + block * down
        picture.text(24, y, f"block {block}", 14.5, "blue", bold=True)
        for head in range(4):
            left, top = 62 + head * across, y + 14
            weights = f.arrays[f"attention_weights_{block}"][0, head]
            for index, piece in enumerate(f.pieces if head == 0 else ()):
                picture.text(left - 8, top + cell * index + 12.5, short(piece), 11, "soft", "end")
            picture.heat(left, top, np.sqrt(weights), cell, cell, 1.0)
            if (block, head) == (BLOCK, HEAD):
                picture.rect(left - 4, top - 4, 10 * cell + 7.4, 10 * cell + 7.4, "", "orange", radius=2, thick=2)
            name, share = pattern(weights, f.pieces)
            picture.text(left, top + 10 * cell + 20, f"head {head}", 13, bold=True)
            picture.text(left, top + 10 * cell + 38, f"{name} {share:.0%}", 12.5, "soft")
    return picture


def short(piece: str) -> str:
    return {"[MASK]": "[M]", "[CLS]": "[C]", "[SEP]": "[S]", "pocket": "pock."}.get(piece, piece)


def pattern(weights: np.ndarray, pieces: list[str]) -> tuple[str, float]:
    """Where a head puts most of its weight, on average over the queries that have such a key."""
    T = len(pieces)
    special = [index for index, piece in enumerate(pieces) if piece in ("[CLS]", "[SEP]")]
    shares = {
        "one back:": np.diagonal(weights, -1).mean(),
        "one ahead:": np.diagonal(weights, 1).mean(),
        "two back:": np.diagonal(weights, -2).mean(),
        "two ahead:": np.diagonal(weights, 2).mean(),
        "itself:": np.diagonal(weights).mean(),
        "[CLS] or [SEP]:": weights[:, special].sum(1).mean(),
    }
    shares |= {f"“{pieces[t]}”:": weights[:, t].mean() for t in range(T) if t not in special}
    name = max(shares, key=lambda key: shares[key])
    return name, float(shares[name])
