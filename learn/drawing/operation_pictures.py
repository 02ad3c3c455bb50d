"""Topics 5 and 7: the feed-forward network, and three operations with all their numbers."""

from __future__ import annotations

import numpy as np

from drawing.facts import BLOCK, facts
from drawing.svg import Picture, number

COLUMN = 9  # of the queries, for the matrix product


def feed_forward() -> Picture:
    """192 numbers become 768, ReLU keeps the positive ones, and 192 come out; below, how many are left per token."""
    f = facts()
    layer, norm = f.model.encoder.blocks[BLOCK].feed_forward, f.model.encoder.blocks[BLOCK].attention_norm
    x = norm.rescale(f.arrays[f"attention_norm_{BLOCK}"])[0, f.row]  # (H,)
    h = x @ layer.expand.w.data + layer.expand.b.data  # (I,)
    a = np.maximum(h, 0)
    y = a @ layer.contract.w.data + layer.contract.b.data
    firing = int((a > 0).sum())
    picture = Picture(
        920, 634, "The feed-forward network of block 1 on [MASK]: 192 to 768 numbers, ReLU, and back to 192"
    )
    picture.text(24, 34, f"The feed-forward network of block {BLOCK}, on the vector of [MASK]", 17, bold=True)

    def grid(left, values, columns, scale, title, shape, anchor="start"):
        picture.heat(left, 112, values.reshape(-1, columns), 10, 10, scale)
        x = left if anchor == "start" else left + 10 * columns
        picture.text(x, 76, title, 14, anchor=anchor, bold=True)
        picture.text(x, 96, shape, 12.5, "soft", anchor)

    grid(24, x, 8, 2.0, "x", "192 numbers")
    grid(182, h, 24, 4.0, "h = x W₁ + b₁", f"768 numbers, {int((h < 0).sum())} negative")
    grid(500, a, 24, 3.0, "a = ReLU(h) = max(0, h)", f"768 numbers, {firing} above 0")
    grid(818, y, 8, 2.0, "y = a W₂ + b₂", "192 numbers", "end")
    for x1, x2, label in ((112, 172, "expand"), (428, 490, "ReLU"), (746, 808, "contract")):
        picture.line(x1, 232, x2, 232, arrow=True)
        picture.text((x1 + x2) / 2, 224, label, 12, "soft", "middle")
    best = np.argsort(-a, kind="stable")[:5]
    told = ", ".join(f"{a[unit]:.2f} (unit {unit})" for unit in best)
    picture.text(24, 460, f"The five largest inner units: {told}", 13, "soft")

    counts = [(f.arrays[f"feed_forward_inner_{block}"][0] > 0).sum(1) for block in range(3)]
    picture.text(24, 500, "How many of the 768 inner units are left after ReLU?", 15, bold=True)
    for index, piece in enumerate(f.pieces):
        picture.text(150 + index * 78, 526, piece, 13, "ink", "middle", bold=piece == "[MASK]")
    for block in range(3):
        y0 = 552 + block * 27
        picture.text(24, y0, f"block {block}", 13)
        for index, count in enumerate(counts[block]):
            left = 150 + index * 78 - 32
            picture.rect(left, y0 - 13, 64, 17, "panel", radius=2)
            picture.rect(left, y0 - 13, 64 * count / 300, 17, "blue", radius=2, opacity=0.45)
            picture.text(left + 32, y0, str(count), 12.5, "ink", "middle", bold=block == BLOCK and index == f.row)
    return picture


def unit_effects() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """For [MASK] in the last block: its units (I,), what each adds to every logit (I,V), and p(hidden word) without it.

    A unit adds its value times its row of W₂ to the vector of the token. The two norms that follow subtract a mean and
    divide by a standard deviation; with the latter as they are in this sentence, what is added to the logits is a
    product of matrices. It is shown relative to the mean over all words, because softmax ignores a common term.
    """
    f = facts()
    model, block = f.model, f.model.encoder.blocks[-1]
    a = f.arrays["feed_forward_inner_2"][0, f.row]
    x = block.attention_norm.rescale(f.arrays["attention_norm_2"])[0, f.row]
    w = block.feed_forward.contract.w.data
    total = x + a @ w + block.feed_forward.contract.b.data
    middle = block.output_norm.forward(total, model.run)[0]

    added = a[:, None] * w  # (I,H)
    for norm, before in ((block.output_norm, total), (model.final_norm, middle)):
        added = (added - added.mean(-1, keepdims=True)) / before.std() * norm.gamma.data
    effects = added @ model.head.w.data
    effects -= effects.mean(-1, keepdims=True)

    without = []
    for unit in np.argsort(-a, kind="stable")[:8]:
        changed = block.output_norm.forward(total - a[unit] * w[unit], model.run)[0]
        logits = model.head.forward(model.final_norm.forward(changed, model.run)[0], model.run)[0].astype(np.float64)
        without.append(np.exp(logits[f.target]) / np.exp(logits).sum())
    return a, effects, np.array(without)


def units() -> Picture:
    """The strongest inner units of the last block, and the words whose logits each raises most."""
    f = facts()
    a, effects, without = unit_effects()
    picture = Picture(
        920, 430, "The eight strongest inner units of block 2 at [MASK], and the words that each makes likelier"
    )
    picture.text(24, 34, "The eight strongest inner units of block 2, at [MASK]", 17, bold=True)
    for x, title in ((24, "unit"), (84, "its value"), (250, "raises most the logits of")):
        picture.text(x, 68, title, 12.5, "soft")
    picture.text(896, 68, "p(hand) without it", 12.5, "soft", "end")
    for place, unit in enumerate(np.argsort(-a, kind="stable")[:8]):
        y = 98 + place * 38
        if place == 0:
            picture.rect(14, y - 23, 892, 36, "warm", radius=5)
        picture.text(24, y, str(unit), 14.5, bold=True)
        picture.rect(84, y - 13, 28 * a[unit], 17, "blue", radius=2)
        picture.text(90 + 28 * a[unit], y, f"{a[unit]:.2f}", 13.5, "soft")
        words = np.argsort(-effects[unit], kind="stable")[:5]
        told = ", ".join(f"{f.tokenizer.readable(word)} {effects[unit, word]:+.1f}" for word in words)
        picture.text(250, y, told, 13.5)
        picture.text(896, y, f"{without[place]:.3f}", 14.5, "ink", "end", bold=place == 0)
    picture.note(404, f"With all units, p(hand) is {f.probs[f.target]:.3f}. ## continues a word.")
    return picture


def matrix_product() -> Picture:
    """One number of a product is a row times a column."""
    f = facts()
    x = f.arrays[f"block_input_{BLOCK}"][0]  # (T,H)
    w = f.model.encoder.blocks[BLOCK].attention.qkv.w.data[:, : f.model.width]  # (H,H), W_q
    q = x @ w
    picture = Picture(920, 404, "A matrix product: one number of the queries is a row of x times a column of W")
    picture.text(24, 34, "Matrix product: q = x W, row times column", 17, bold=True)
    picture.text(24, 74, "x (10, 192)", 14, bold=True)
    picture.heat(24, 90, x[:, :24], 11, 13, 2.0)
    picture.rect(21, 90 + 13 * f.row - 3, 24 * 11 + 5, 18, "", "orange", radius=2, thick=2)
    picture.text(316, 160, "×", 22, "soft", "middle")
    picture.text(344, 74, "W (192, 192)", 14, bold=True)
    picture.heat(344, 90, w[:24, :24], 11, 7, 0.4)
    picture.rect(341 + 11 * COLUMN, 87, 16, 24 * 7 + 5, "", "orange", radius=2, thick=2)
    picture.text(636, 160, "=", 22, "soft", "middle")
    picture.text(664, 74, "q (10, 192)", 14, bold=True)
    picture.heat(664, 90, q[:, :20], 11, 13, 5.0)
    picture.rect(661 + 11 * COLUMN, 90 + 13 * f.row - 3, 16, 18, "", "orange", radius=2, thick=2)
    picture.text(664, 244, "drawn: the first rows and columns", 12.5, "soft")

    products = x[f.row] * w[:, COLUMN]
    y = 306
    picture.text(
        24,
        y,
        "One number of q: row 4 (the token [MASK]) times column 9. Multiply pair by pair, add all 192 products.",
        13.5,
    )
    terms = " + ".join(f"({x[f.row, i]:.2f} · {w[i, COLUMN]:.2f})" for i in range(4)).replace("-", "−")
    picture.text(24, y + 34, f"{terms} + …", 15, "orange")
    sums = f"= {products[0]:.3f} + {products[1]:.3f} + {products[2]:.3f} + {products[3]:.3f} + …"
    sums = sums.replace("+ -", "− ").replace("-", "−")
    right = picture.text(24, y + 64, sums, 15)
    picture.text(right + 14, y + 64, f"= {q[f.row, COLUMN]:.3f}".replace("-", "−"), 15, "orange", bold=True)
    return picture


def softmax() -> Picture:
    """Scores become probabilities: exp, then divide by the sum."""
    f = facts()
    scores = f.logits[0, f.row].astype(np.float64)
    powers = np.exp(scores)
    picture = Picture(920, 340, "Softmax of the 8,192 logits of [MASK]: exponentials, their sum, probabilities")
    picture.text(24, 34, "Softmax: p = exp(z) / Σ exp(z), for the guesses at [MASK]", 17, bold=True)
    for x, title in ((230, "logit z"), (360, "exp(z)"), (480, "share of the sum")):
        picture.text(x, 70, title, 13, "soft", "end" if x < 480 else "start")
    for place, word in enumerate(f.best[:6]):
        y = 98 + place * 30
        picture.text(24, y, f.tokenizer.readable(word), 14.5, bold=place == 0)
        picture.text(230, y, f"{scores[word]:.2f}", 14.5, "ink", "end")
        picture.text(360, y, f"{powers[word]:.2f}", 14.5, "ink", "end")
        picture.rect(480, y - 13, 380 * f.probs[word], 17, "blue", radius=2)
        picture.text(488 + 380 * f.probs[word], y, f"{f.probs[word]:.3f}", 14.5, bold=place == 0)
    y = 98 + 6 * 30
    rest = f.best[6:]
    picture.text(24, y, f"{rest.size:,} others", 14.5, "soft")
    picture.text(230, y, "…", 14.5, "soft", "end")
    picture.text(360, y, f"{powers[rest].sum():.2f}", 14.5, "soft", "end")
    share = float(f.probs[rest].sum())
    picture.rect(480, y - 13, 380 * share, 17, "soft", radius=2, opacity=0.5)
    picture.text(488 + 380 * share, y, f"{share:.3f}", 14.5, "soft")
    picture.line(280, y + 11, 560, y + 11, "rule")
    picture.text(24, y + 34, "sum", 14.5, bold=True)
    picture.text(360, y + 34, f"{powers.sum():.2f}", 14.5, "ink", "end", bold=True)
    picture.text(480, y + 34, "1.000", 14.5, bold=True)
    return picture


def layer_norm() -> Picture:
    """The numbers of one vector, before the norm, after it, and after scale and shift."""
    f = facts()
    cell = f.model.encoder.blocks[0]
    x = f.arrays["block_input_0"][0, f.row]
    attended = f.arrays["context_0"][0, f.row] @ cell.attention.output.w.data
    total = (x + attended).astype(np.float64)
    mean, sigma = total.mean(), total.std()
    hat = (total - mean) / np.sqrt(sigma**2 + cell.attention_norm.eps)
    out = hat * cell.attention_norm.gamma.data + cell.attention_norm.beta.data
    picture = Picture(
        920,
        374,
        "Layer norm on the vector of [MASK]: subtract the mean, divide by the standard deviation, scale and shift",
    )
    picture.text(24, 34, "Layer norm: the 192 numbers of one vector, [MASK] in block 0", 17, bold=True)
    left, unit = 575, 66

    def strip(y, values, title, formula, colour):
        picture.text(24, y - 6, title, 14.5, bold=True)
        picture.text(24, y + 14, formula, 13, "soft")
        m, s = values.mean(), values.std()
        told = f"mean {round(m, 2) + 0.0:.2f}, standard deviation {s:.2f}"  # + 0.0: no −0.00
        picture.text(24, y + 34, told.replace("-", "−"), 13, "blue")
        picture.line(330, y, 896, y, "rule")
        for value in values:
            place = left + unit * max(-3.6, min(4.8, float(value)))
            picture.line(place, y - 15, place, y + 15, colour, 1.3, opacity=0.45)
        picture.path(f"M{number(left + unit * (m - s))} {y + 20}v6H{number(left + unit * (m + s))}v-6", "orange", 2)

    strip(88, total, "x + attention(x)", "what comes in", "blue")
    strip(178, hat, "x̂ = (x − mean) / σ", "σ: the standard deviation", "blue")
    strip(268, out, "γ x̂ + β", "γ and β are learned", "blue")
    for value in range(-3, 5):
        picture.text(left + unit * value, 326, str(value).replace("-", "−"), 12, "soft", "middle")
        picture.line(left + unit * value, 306, left + unit * value, 312, "rule")
    picture.note(
        356,
        "Each line is one of the 192 numbers;",
        "the orange bracket reaches one standard deviation to each side of the mean.",
        size=12.5,
    )
    return picture
