"""Topics 6 and 10: training by masking, how gradients flow, and the patterns of a block and of training."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from drawing.facts import BLOCK, MASKED, SENTENCE, facts
from drawing.svg import Picture, number
from mini_bert import Adam, load_model


def masking() -> Picture:
    """A word is hidden, the model guesses, the loss is −ln of the right word's probability."""
    f = facts()
    loss = -math.log(f.probs[f.target])
    picture = Picture(
        920, 452, "Masked training: the word “hand” is hidden, and the loss is minus the logarithm of its probability"
    )
    for y, title, text in ((34, "the text", SENTENCE), (66, "the input", MASKED)):
        picture.text(24, y, title, 13, "soft")
        picture.text(120, y, text, 17, bold=True)
    picture.line(24, 86, 896, 86, "rule")
    picture.text(24, 116, "the model's guesses, p", 14.5, bold=True)
    picture.text(448, 116, "gradient at the logits, p − y", 14.5, bold=True)
    for place, word in enumerate(f.best[:6]):
        y, p, right = 148 + place * 29, float(f.probs[word]), word == f.target
        picture.text(100, y, f.tokenizer.readable(word), 14.5, "orange" if right else "ink", "end", bold=right)
        picture.rect(112, y - 13, 700 * p, 17, "orange" if right else "blue", radius=2)
        picture.text(120 + 700 * p, y, f"{p:.3f}", 13.5, "soft")
        slope = p - right
        zero, width = 640, 170 * abs(slope)
        picture.rect(zero - width if slope < 0 else zero, y - 13, width, 17, "orange" if right else "blue", radius=2)
        picture.text(zero + 170 * slope - 8 if right else zero + width + 8, y, f"{slope:+.3f}".replace("-", "−"), 13.5,
                     "soft", "end" if right else "start")  # fmt: skip
    picture.line(640, 130, 640, 300, "rule")
    picture.text(640, 322, "up", 13, "orange", "end")
    picture.text(656, 322, "down, a little each", 13, "blue")
    picture.note(
        348,
        "y: 1 for “hand”, 0 for all other words.",
        "A step against the gradient raises the logit of “hand” and lowers all others.",
    )

    picture.rect(24, 362, 872, 68, "warm", radius=7)
    picture.text(44, 392, "loss = −ln p(hand)", 17, bold=True)
    picture.text(44, 416, f"= −ln {f.probs[f.target]:.3f} = {loss:.2f}", 17, "orange", bold=True)
    picture.text(448, 390, "certain (p = 1): loss 0", 13.5, "soft")
    picture.text(448, 414, f"a uniform guess (p = 1/8192): loss {math.log(8192):.2f}", 13.5, "soft")
    return picture


class Flow(NamedTuple):
    """A part of the model, backward."""

    part: str
    after: np.ndarray  # (T,) length of the gradient at its output, per token
    straight: np.ndarray  # (T,) what goes straight down at each token: past attention
    across: np.ndarray  # (T,T) what attention sends from a query, the row, to a key, the column


def gradients() -> tuple[list[Flow], np.ndarray]:
    """The gradient from the loss back to the embeddings: every part, and (T,) its lengths at the embeddings."""
    f = facts()
    model, T = f.model, len(f.pieces)
    logits, cache = model.forward(f.ids)
    d = np.zeros_like(logits)
    d[0, f.row] = f.probs
    d[0, f.row, f.target] -= 1
    flows = []
    for part, backward in (
        ("head", lambda d: model.head.backward(d, cache.outputs["masked_words"], model.run)),
        ("final norm", lambda d: model.finish_backward(d, cache.final, model.run)),
    ):
        below = backward(d)
        flows.append(Flow(part, lengths(d), lengths(below), np.zeros((T, T))))
        d = below
    for index in (2, 1, 0):
        block, kept, after = model.encoder.blocks[index], cache.blocks[index], d
        past, inside = block.after_attention_backward(d, kept, model.run)
        parts = [block.attention.backward(only(inside, t), kept.attention, model.run) for t in range(T)]
        d = past + sum(parts)
        flows.append(Flow(f"block {index}", lengths(after), lengths(past), np.array([lengths(part) for part in parts])))
    model.zero_grad()
    return flows, lengths(d)


def lengths(vectors: np.ndarray) -> np.ndarray:
    return np.linalg.norm(vectors[0], axis=-1)


def only(vectors: np.ndarray, token: int) -> np.ndarray:
    """The vectors with zeros in all rows but one: backward is linear, so the results of all rows add up."""
    kept = np.zeros_like(vectors)
    kept[:, token] = vectors[:, token]
    return kept


def gradient_flow() -> Picture:
    """How large the gradient is at each token and stage: it starts at [MASK] and spreads through attention."""
    f = facts()
    flows, end = gradients()
    stages = [
        *zip(("logits", "final vectors", "after block 2", "after block 1", "after block 0"), flows, strict=True),
        ("embeddings", Flow("", end, end, np.zeros((10, 10)))),
    ]
    picture = Picture(
        920, 668, "The gradient flows back from the loss at [MASK] through three blocks to the embeddings of all tokens"
    )
    left, step, top, down = 190, 60, 118, 96
    centres = [left + step * (t + 0.5) for t in range(10)]
    picture.text(24, 34, "Backward: from the loss to the embeddings", 17, bold=True)
    picture.note(
        58,
        "Circles: length of the gradient at a token (area).",
        "Lines: what flows down, straight past attention, curved through it (thickness).",
        size=12.5,
    )
    picture.text(896, 84, "all tokens", 12.5, "soft", "end")
    for x, piece in zip(centres, f.pieces, strict=True):
        picture.text(x, 84, piece, 13, "orange" if piece == "[MASK]" else "ink", "middle", bold=piece == "[MASK]")
    heights = [top + index * down for index in range(len(stages))]
    for index, flow in enumerate(flows):
        y, below = heights[index], heights[index + 1]
        for t, x in enumerate(centres):
            for key, at in enumerate(centres):
                width = 5 * float(flow.across[t, key])
                if width >= 0.25 and key != t:
                    curve = f"C{number(x)} {y + 50} {number(at)} {below - 50} {number(at)} {below}"
                    picture.path(f"M{number(x)} {y}{curve}", "orange", width, opacity=0.5)
            if flow.straight[t] > 0.001:
                picture.line(x, y, x, below, "orange", max(0.6, 5 * float(flow.straight[t])), opacity=0.5)
        picture.text(104, y + down / 2 + 5, flow.part, 13, "blue", "middle")
        picture.line(104, y + 12, 104, y + down / 2 - 10, "blue")
        picture.line(104, y + down / 2 + 12, 104, below - 16, "blue", arrow=True)
    for (name, flow), y in zip(stages, heights, strict=True):
        picture.text(104, y + 5, name, 14, anchor="middle", bold=True)
        for x, norm in zip(centres, flow.after, strict=True):
            if norm > 0.001:
                picture.circle(x, y, 11 * math.sqrt(float(norm)), "orange", 0.85)
            else:
                picture.circle(x, y, 2, "rule")
        picture.text(896, y + 5, f"{np.linalg.norm(flow.after):.2f}", 15, "orange", "end", bold=True)
    at_mask = ", ".join(f"{flow.after[f.row]:.2f}" for _, flow in stages)
    picture.text(24, 650, f"At [MASK], from top to bottom: {at_mask}.", 13, "soft")
    return picture


def block_pattern() -> Picture:
    """The two halves of a block, each with its residual path, and the length of [MASK]'s vector at every point."""
    f = facts()
    block = f.model.encoder.blocks[BLOCK]
    x = f.arrays[f"block_input_{BLOCK}"][0, f.row]
    a = f.arrays[f"context_{BLOCK}"][0, f.row] @ block.attention.output.w.data
    middle = block.attention_norm.rescale(f.arrays[f"attention_norm_{BLOCK}"])[0, f.row]
    inner = f.arrays[f"feed_forward_inner_{BLOCK}"][0, f.row]
    y = inner @ block.feed_forward.contract.w.data + block.feed_forward.contract.b.data
    out = f.arrays[f"block_input_{BLOCK + 1}"][0, f.row]
    vectors = {"x": x, "a": a, "x + a": x + a, "middle": middle, "y": y, "sum": middle + y, "out": out}
    length = {name: float(np.linalg.norm(vector)) for name, vector in vectors.items()}
    picture = Picture(
        920,
        330,
        "A block: each half adds its result to its input, then normalises; lengths of the vector of [MASK] in block 1",
    )
    picture.text(
        24,
        34,
        f"A block: add, then normalise, twice. Lengths of the vector of [MASK] in block {BLOCK}",
        16.5,
        bold=True,
    )
    axis = 190
    for start, name, sums, result, label in (
        (70, "a", "x + a", "middle", "attention"), (470, "y", "sum", "out", "feed-forward"),
    ):  # fmt: skip
        end = start + 400 if start == 70 else 872
        picture.line(start, axis, start + 56, axis, arrow=True)
        picture.box(start + 60, axis - 32, 124, 64, label)
        picture.line(start + 186, axis, start + 246, axis, arrow=True)
        picture.text(start + 215, axis - 10, f"{length[name]:.1f}", 14, "blue", "middle", bold=True)
        picture.path(f"M{start + 24} {axis}V100H{start + 264}V{axis - 18}", "orange", 2.2, arrow=True)
        picture.text(start + 144, 92, "the residual path: unchanged", 12.5, "orange", "middle")
        picture.parts.append(
            f'<circle cx="{start + 264}" cy="{axis}" r="15" stroke-width="1.6" class="paper ink-line"/>'
        )
        picture.text(start + 264, axis + 7, "+", 20, anchor="middle")
        picture.line(start + 280, axis, start + 312, axis, arrow=True)
        picture.text(start + 264, axis + 46, f"{length[sums]:.1f}", 14, "blue", "middle", bold=True)
        picture.line(start + 264, axis + 17, start + 264, axis + 31, "rule")
        picture.box(start + 316, axis - 24, 64, 48, "norm", colour="tint", line="blue")
        picture.line(start + 380, axis, end, axis, arrow=start != 70)
        picture.text(472 if start == 70 else 893, axis - 12 if start == 70 else axis + 5, f"{length[result]:.1f}", 14,
                     "blue", "middle", bold=True)  # fmt: skip
    picture.text(40, axis + 5, f"{length['x']:.1f}", 14, "blue", "middle", bold=True)
    cosine = float(out @ x / (np.linalg.norm(out) * np.linalg.norm(x)))
    picture.text(130, 282, "x′ = LayerNorm(x + attention(x))", 14)
    picture.text(530, 282, "y = LayerNorm(x′ + feed_forward(x′))", 14)
    picture.text(
        24, 310, f"What comes out still points in a similar direction as what came in: cosine {cosine:.2f}.", 13, "soft"
    )
    return picture


def training_steps(steps: int = 6) -> list[tuple[float, float, float]]:
    """A few steps of Adam on the one sentence: (loss, probability of the hidden word, gradient norm) before each."""
    f = facts()
    model = load_model("mini-bert")
    adam = Adam(model.flat, lr=1e-4)
    told = []
    for _ in range(steps):
        model.zero_grad()
        loss, cache = model.loss(f.ids, rows=[f.row], targets=[f.target])
        model.loss_backward(cache)
        told.append((float(loss), math.exp(-loss), float(np.linalg.norm(model.flat.grad))))
        adam.step()
    return told


def training_loop() -> Picture:
    """Forward, loss, backward, update, and the numbers of six rounds."""
    told = training_steps()
    picture = Picture(920, 330, "The training loop, and six rounds of it on the one sentence: the loss falls")
    picture.text(24, 34, "The training loop, on this one sentence", 17, bold=True)
    boxes = [
        ("forward", "logits = model(ids)", 24, 62),
        ("loss", "−ln p(hidden word)", 236, 62),
        ("backward", "every gradient, by hand", 236, 196),
        ("update", "Adam, lr 0.0001", 24, 196),
    ]
    for name, note, x, y in boxes:
        picture.box(x, y, 184, 62, name, [note])
    picture.line(208, 93, 232, 93, arrow=True)
    picture.line(328, 124, 328, 192, arrow=True)
    picture.line(236, 227, 212, 227, arrow=True)
    picture.line(116, 196, 116, 128, arrow=True)
    picture.text(222, 166, "again, with the next batch", 12.5, "soft", "middle")
    for x, title in ((506, "step"), (596, "loss"), (736, "gradient norm")):
        picture.text(x, 66, title, 13, "soft", "end")
    picture.text(760, 66, "p(hand)", 13, "soft")
    for index, (loss, p, norm) in enumerate(told):
        y = 96 + index * 32
        picture.text(506, y, str(index), 14.5, "ink", "end")
        picture.text(596, y, f"{loss:.3f}", 14.5, "ink", "end", bold=True)
        picture.text(736, y, f"{norm:.1f}", 14.5, "ink", "end")
        picture.rect(760, y - 13, 76 * p, 17, "blue", radius=2)
        picture.text(766 + 76 * p, y, f"{p:.2f}", 13.5, "soft")
    picture.text(
        24, 308, "It memorises the one sentence. Real training takes a different batch in every round.", 13, "soft"
    )
    return picture
