"""Topics 1 and 2: the whole model, and how shapes change on the way through it."""

from __future__ import annotations

import numpy as np

from drawing.facts import MASKED, facts
from drawing.svg import LEGEND, Picture, number

ROWS = 12  # of the 192 coordinates that are drawn


def big_picture() -> Picture:
    """Every column is a token, from its id at the top to the guess at the bottom."""
    f = facts()
    picture = Picture(920, 800, "Mini-BERT from ids to guesses: the vectors of ten tokens after each part of the model")
    left, step, count = 270, 62, len(f.pieces)
    centres = [left + step * (i + 0.5) for i in range(count)]

    def stage(y, title, note, shape="", height=66):
        picture.box(24, y, 210, height, title, [note])
        if shape:
            picture.line(110, y + height + 3, 110, y + height + 26, arrow=True)
            picture.text(122, y + height + 19, shape, 12.5, "blue")

    masked = left + step * f.row
    picture.rect(masked + 1, 66, step - 3, 560, "warm", radius=5)
    picture.text(left, 36, MASKED, 18, bold=True)
    picture.text(24, 36, "the text", 15, bold=True)
    stage(72, "tokenizer", "a piece, its id", "(B, T) = (1, 10)", 56)
    for x, piece, index in zip(centres, f.pieces, f.ids[0], strict=True):
        picture.text(x, 92, piece, 13, anchor="middle", bold=piece == "[MASK]")
        picture.text(x, 114, str(index), 13, "soft", "middle")

    strips = [
        ("embeddings", "x = E[ids] + P", f.arrays["embeddings"][0], 0.4),
        ("block 0", "attention, feed-forward", f.arrays["block_input_1"][0], 2.0),
        ("block 1", "attention, feed-forward", f.arrays["block_input_2"][0], 2.0),
        ("block 2", "attention, feed-forward", last_block_output(f), 2.0),
        ("final norm", "LayerNorm(x)", f.arrays["hidden"][0], 4.0),
    ]
    y = 158
    for title, note, values, scale in strips:
        stage(y, title, note, "(B, T, H) = (1, 10, 192)")
        for token, x in enumerate(centres):
            picture.heat(x - 19, y, values[token, :ROWS, None], 38, 5.5, scale)
        y += 96
    stage(y, "head", "softmax(x W + b)", "(B, T, V) = (1, 10, 8192)")
    x = centres[f.row]
    picture.line(x, y - 30, x, y - 4, "orange", 2, arrow=True)
    picture.text(left, y + 16, "the likeliest of 8,192 words", 13, "soft")
    picture.text(left, y + 35, "for the hidden one:", 13, "soft")
    for place, word in enumerate(f.best[:5]):
        top = y + place * 24
        share = float(f.probs[word])
        picture.text(x + 14, top + 15, f.tokenizer.readable(word), 14, anchor="end", bold=place == 0)
        picture.rect(x + 22, top + 3, 700 * share, 15, "blue", radius=2, opacity=1 if place == 0 else 0.6)
        picture.text(x + 30 + 700 * share, top + 15, f"{share:.1%}", 13, "soft")
    picture.text(24, 784, "Drawn: the first 12 of each token's 192 numbers,", 12.5, "soft")
    picture.words(338, 784, [*LEGEND, (", fading towards 0; each stage has its own scale.", "soft")], 12.5)
    return picture


def last_block_output(f) -> np.ndarray:
    """What the final norm gets: its cache holds x̂, so the last block's own norm is applied again."""
    return f.model.encoder.blocks[-1].output_norm.rescale(f.arrays["output_norm_2"])[0]


OTHER = "The door was open."


def batch() -> Picture:
    """Two sentences of different length in one batch: ids, padding, and one vector per token."""
    f = facts()
    texts = [MASKED, OTHER]
    made = f.tokenizer(texts, padding=True, return_tensors="np")
    ids, mask = made["input_ids"], made["attention_mask"]
    picture = Picture(
        920, 424, "A batch of two sentences: ids with padding, and a vector of 192 numbers for each token"
    )
    left, step = 150, 73
    picture.text(24, 34, "ids", 16, bold=True)
    picture.text(60, 34, "(B, T) = (2, 10)", 14, "soft")
    picture.text(left + step * 5, 34, "T = 10 tokens in the longest", 13, "blue", "middle")
    picture.path(f"M{left} 52V44H{left + 10 * step - 6}V52", "blue")
    for b in range(2):
        y = 60 + b * 58
        picture.text(24, y + 22, f"sentence {b}", 14, bold=True)
        picture.text(24, y + 40, f"{int(mask[b].sum())} tokens", 12.5, "soft")
        for t in range(10):
            real = bool(mask[b, t])
            x = left + t * step
            picture.rect(x, y, step - 6, 48, "tint" if real else "panel", "rule", radius=4)
            picture.text(
                x + (step - 6) / 2, y + 20, f.tokenizer.readable(ids[b, t]), 13, "ink" if real else "soft", "middle"
            )
            picture.text(x + (step - 6) / 2, y + 39, str(ids[b, t]), 13, "soft", "middle")
    picture.text(
        150, 196, "[PAD] fills the shorter sentence. The mask is 0 there, and no token attends to it.", 13, "soft"
    )
    picture.line(75, 196, 75, 222, arrow=True)

    hidden, _ = f.model.encode(ids, attention_mask=mask)
    picture.text(24, 250, "vectors", 16, bold=True)
    picture.text(100, 250, "(B, T, H) = (2, 10, 192)", 14, "soft")
    picture.text(326, 250, "after the final norm: every token has become 192 numbers (12 are drawn)", 13, "soft")
    for b in range(2):
        y = 272 + b * 66
        picture.text(24, y + 32, f"sentence {b}", 14, bold=True)
        for t in range(10):
            x = left + t * step
            if mask[b, t]:
                picture.heat(x, y, hidden[b, t, :12, None], step - 6, 4.5, 4.0)
            else:
                picture.rect(x, y, step - 6, 54, "panel", "rule", radius=2)
                picture.text(x + (step - 6) / 2, y + 32, "not used", 11.5, "soft", "middle")
    return picture


def shapes() -> Picture:
    """Each array of the forward pass; across, ten numbers are three pixels wide."""
    f = facts()
    A, d = 4, 48
    inner = f.arrays["feed_forward_inner_0"].shape[-1]
    rows = [
        ("ids", "", "(B, T)", [1], f.ids),
        ("embeddings", "E[ids] + P", "(B, T, H)", [192], f.arrays["embeddings"]),
        ("queries", "split into heads", "(B, A, T, d)", [d] * A, f.arrays["query_0"]),
        ("keys", "split into heads", "(B, A, T, d)", [d] * A, f.arrays["key_0"]),
        ("values", "split into heads", "(B, A, T, d)", [d] * A, f.arrays["value_0"]),
        ("weights", "softmax(q kᵀ/√d)", "(B, A, T, T)", [10] * A, f.arrays["attention_weights_0"]),
        ("context", "heads side by side", "(B, T, H)", [192], f.arrays["context_0"]),
        ("after attention", "add, norm", "(B, T, H)", [192], f.arrays["attention_norm_0"]),
        ("inner units", "ReLU(x W₁ + b₁)", "(B, T, I)", [inner], f.arrays["feed_forward_inner_0"]),
        ("after the block", "add, norm", "(B, T, H)", [192], f.arrays["block_input_1"]),
        ("logits", "x W + b", "(B, T, V)", [8192], f.logits),
    ]
    top, step = 62, 47
    picture = Picture(
        920, top + step * len(rows) + 54, "The shape of every array between the ids and the logits, drawn to scale"
    )
    for x, heading in ((24, "array"), (266, "drawn to scale"), (580, "shape"), (690, "here"), (896, "numbers")):
        picture.text(x, 34, heading, 13, "soft", "end" if x == 896 else "start")
    block = top + 2 * step - 6
    picture.rect(14, block, 892, 8 * step, "panel", radius=8)
    for index, (name, formula, letters, widths, array) in enumerate(rows):
        y = top + index * step
        picture.text(24, y + 14, name, 14.5, bold=True)
        picture.text(24, y + 31, formula, 12.5, "soft")
        x = 266.0
        for width in widths:
            across = min(0.3 * width, 280)
            picture.rect(x, y + 3, max(across, 1.5), 30, "blue", opacity=0.75)
            x += across + 4
        if widths == [8192]:
            picture.path(f"M{number(470)} {y}l8 12l-8 12l8 12M{number(482)} {y}l8 12l-8 12l8 12", "paper", 3)
        picture.text(580, y + 24, letters, 14, "blue")
        picture.text(690, y + 24, str(array.shape).replace(" ", "").replace(",", ", "), 14)
        picture.text(896, y + 24, f"{array.size:,}", 14, "ink", "end")
    y = top + step * len(rows) + 16
    picture.note(
        y, "Shaded: one block. It ends with the shape it started with, so blocks can be stacked: three times here."
    )
    picture.note(y + 22, "The logits are cut: to scale they would be 2,458 pixels wide, 43 times as wide as a vector.")
    return picture
