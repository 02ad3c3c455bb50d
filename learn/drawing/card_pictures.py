"""Topics 8 and 9: where the parameters are, what training keeps in memory, and a reference card."""

from __future__ import annotations

from drawing.facts import facts
from drawing.svg import Picture, text_width
from mini_bert.training.plan import caches, default_choice, describe, shape_of
from mini_bert.training.plan import size as cache_size

MEGABYTE = 1e6


def parameters() -> Picture:
    """All parameters as areas, to scale."""
    f = facts()
    sizes = {name: param.size for name, param in f.model.named_params().items()}

    def size(*starts: str) -> int:
        return sum(count for name, count in sizes.items() if name.startswith(starts))

    total = sum(sizes.values())
    picture = Picture(920, 560, "The 4,498,880 parameters of Mini-BERT as areas, to scale")
    left, top, width, height = 24, 56, 872, 430
    unit = total / (width * height)  # parameters per square pixel
    picture.text(24, 34, f"{total:,} parameters, drawn to scale", 17, bold=True)
    picture.text(896, 34, f"{4 * total / MEGABYTE:.1f} MB with 4 bytes each", 14, "soft", "end")

    def area(x, y, w, h, title, count, colour="tint", line="blue", size=15.0):
        picture.rect(x, y, w - 2, h - 2, colour, line)
        if text_width(title, size, True) < w - 12 and h > 40:
            picture.text(x + w / 2 - 1, y + h / 2 - 2, title, size, "ink", "middle", bold=True)
            picture.text(x + w / 2 - 1, y + h / 2 + size + 2, f"{count:,}", size - 1.5, "soft", "middle")

    x = left
    tokens, head = size("tokens"), size("head")
    w = tokens / unit / height
    area(x, top, w, height, "token table E", tokens)
    picture.text(x + w / 2, top + height / 2 + 38, "8,192 × 192", 13, "soft", "middle")
    x += w
    w = size("positions", "final_norm") / unit / height
    picture.rect(x, top, w - 1, height - 2, "orange")
    thin = x + w / 2
    x += w
    w = size("encoder") / unit / height
    y = top
    for block in range(3):
        name = f"encoder.blocks.{block}."
        h = size(name) / unit / w
        ff, attention = size(name + "feed_forward"), size(name + "attention.")
        across = w * ff / (ff + attention)
        area(x, y, w - across, h, "attention", attention, "warm", "orange", 13.5)
        area(x + w - across, y, across, h, "feed-forward", ff, "warm", "orange", 13.5)
        picture.text(x + 6, y + 19, f"block {block}", 12.5, "orange")
        y += h
    x += w
    area(x, top, head / unit / height, height, "head W, b", head)
    picture.text(x + head / unit / height / 2, top + height / 2 + 38, "192 × 8,192 + 8,192", 13, "soft", "middle")
    picture.line(thin, top + height + 2, thin, 512, "orange")
    small = f"positions {size('positions'):,}, final norm {size('final_norm')}"
    picture.text(thin - 8, 508, small, 13, "orange", "end")
    norms = size(*(f"encoder.blocks.{b}.{n}" for b in range(3) for n in ("attention_norm", "output_norm")))
    picture.text(thin + 12, 508, f"a block has {size('encoder.blocks.0.'):,}, with 768 in its norms", 13, "soft")
    share = (tokens + head) / total
    norms += size("final_norm")
    picture.note(
        540,
        f"Table and head hold {share:.0%}.",
        f"All norms together, {norms:,} parameters, would be {norms / unit:.0f} square pixels.",
    )
    return picture


def memory() -> Picture:
    """What a training step keeps: weights, gradients, Adam's moments, and what backward needs from forward."""
    f = facts()
    model = describe(f.model.config)
    choice = default_choice(8, 1)
    embeddings, *blocks, head = (cache_size(kept) for kept in caches(model, shape_of(model, 8), choice))
    weights = 4 * model.parameters
    rows = [
        ("weights", "4 bytes each", [("", weights)]),
        ("gradients", "one per weight", [("", weights)]),
        ("Adam's moments", "two per weight", [("m", weights), ("v", weights)]),
        ("caches", "kept by forward",
         [("", embeddings), *((f"block {i}", kept) for i, kept in enumerate(blocks)), ("head", head)]),
    ]  # fmt: skip
    picture = Picture(920, 300, "The memory of a training step: weights, gradients, Adam's moments, caches")
    picture.text(24, 34, "What a training step keeps in memory", 17, bold=True)
    for index, (name, note, parts) in enumerate(rows):
        y, x = 58 + index * 48, 210.0
        picture.text(24, y + 15, name, 14.5, bold=True)
        picture.text(24, y + 33, note, 12.5, "soft")
        for label, count in parts:
            width = count / MEGABYTE * 15.5
            picture.rect(x, y + 3, max(width - 1.5, 0.5), 30, "warm" if name == "caches" else "tint",
                         "orange" if name == "caches" else "blue")  # fmt: skip
            if label and text_width(label, 12.5) < width - 6:
                picture.text(x + width / 2, y + 22, label, 12.5, "soft", "middle")
            x += width
        picture.text(x + 8, y + 23, f"{sum(count for _, count in parts) / MEGABYTE:.1f} MB", 14)
    picture.note(
        266,
        "The caches hold what backward needs, here for 8 × 64 tokens.",
        "They grow with the batch; the rest depends on the model only.",
    )
    picture.note(
        286,
        "Block 2 (without a name) keeps little:",
        "after its keys and values, only the rows with a hidden word are computed.",
    )
    return picture


def card() -> Picture:
    """Shapes and settings on one page."""
    f = facts()
    c = f.model.config
    sizes = {name: param.size for name, param in f.model.named_params().items()}

    def count(start: str) -> str:
        return f"{sum(number for name, number in sizes.items() if name.startswith(start)):,}"

    block = "encoder.blocks.0."
    picture = Picture(920, 690, "Reference card: shapes of every operation, settings of Mini-BERT")
    picture.text(24, 36, "Mini-BERT on a card", 19, bold=True)
    for x, heading, anchor in ((36, "operation", "start"), (240, "formula", "start"), (560, "in", "start"),
                               (690, "out", "start"), (884, "parameters", "end")):  # fmt: skip
        picture.text(x, 72, heading, 12.5, "soft", anchor)
    rows = [
        ("token embedding", "E[ids]", "(B, T)", "(B, T, H)", count("tokens")),
        ("position embedding", "+ P[0 … T−1]", "(B, T, H)", "(B, T, H)", count("positions")),
        ("q, k, v", "x W_qkv, split into heads", "(B, T, H)", "3 × (B, A, T, d)", count(block + "attention.qkv")),
        ("weights", "softmax(q kᵀ / √d)", "(B, A, T, d)", "(B, A, T, T)", "0"),
        ("context", "P v, heads side by side", "(B, A, T, T)", "(B, T, H)", "0"),
        ("attention output", "C W_o", "(B, T, H)", "(B, T, H)", count(block + "attention.output")),
        ("add, norm", "LayerNorm(x + y)", "(B, T, H)", "(B, T, H)", count(block + "attention_norm")),
        ("feed-forward", "ReLU(x W₁ + b₁) W₂ + b₂", "(B, T, H)", "(B, T, H)", count(block + "feed_forward")),
        ("add, norm", "LayerNorm(x + y)", "(B, T, H)", "(B, T, H)", count(block + "output_norm")),
        ("final norm", "LayerNorm(x)", "(B, T, H)", "(B, T, H)", count("final_norm")),
        ("head", "x W + b", "(B, T, H)", "(B, T, V)", count("head")),
        ("loss", "mean of −ln softmax(logits)[hidden word]", "(B, T, V)", "1 number", "0"),
    ]
    top, step = 84, 27
    picture.rect(20, top + 2 * step, 880, 7 * step, "tint", radius=6)
    for index, (name, formula, shape, after, number) in enumerate(rows):
        y = top + index * step + 18
        picture.text(36, y, name, 14, bold=True)
        picture.text(240, y, formula, 13.5)
        picture.text(560, y, shape, 13.5, "blue")
        picture.text(690, y, after, 13.5, "blue")
        picture.text(884, y, number, 13.5, "ink", "end")
    y = top + 12 * step + 26
    whole = f"all: {sum(sizes.values()):,}"
    picture.text(36, y, f"shaded: one block, {count(block)} parameters; there are {c.num_layers}", 13, "soft")
    picture.text(884, y, whole, 14, "ink", "end", bold=True)

    y += 34
    picture.line(24, y - 14, 896, y - 14, "rule")
    picture.text(36, y + 12, "Letters and settings", 15, bold=True)
    settings = [
        ("B", "sequences in a batch", "any"), ("T", "tokens, at most", f"{c.max_seq_length}"),
        ("H", "hidden_size", f"{c.hidden_size}"), ("L", "num_layers", f"{c.num_layers}"),
        ("A", "num_heads", f"{c.num_heads}"), ("d", "head size, H / A", f"{c.head_size}"),
        ("I", "intermediate_size", f"{c.intermediate_size}"), ("V", "vocab_size", f"{c.vocab_size:,}"),
    ]  # fmt: skip
    for index, (letter, name, value) in enumerate(settings):
        x, line = 36 + 440 * (index // 4), y + 42 + 26 * (index % 4)
        picture.text(x, line, letter, 15, "blue", bold=True)
        picture.text(x + 34, line, name, 14)
        picture.text(x + 330, line, value, 14, "ink", "end", bold=True)
    y += 156
    special = ", ".join(f"{f.tokenizer.readable(i)} {i}" for i in range(5))
    picture.text(36, y, "special ids", 13.5, "soft")
    picture.text(140, y, special, 13.5)
    picture.text(36, y + 26, "details", 13.5, "soft")
    picture.text(
        140,
        y + 26,
        f"ReLU; norms after the addition, ε = {c.layer_norm_eps:g}; no bias in attention; head not tied to E",
        13.5,
    )
    return picture
