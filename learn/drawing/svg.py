"""A canvas for SVG pictures that suit light and dark pages, and that can tell whether their texts overlap.

Each colour is a CSS variable with one value for light and one for dark pages. A program without CSS variables uses the
light value. The name of a colour is a class that fills (`blue`), and with `-line` one that strokes (`blue-line`).
"""

from __future__ import annotations

from itertools import combinations
from typing import NamedTuple
from xml.sax.saxutils import escape, quoteattr

import numpy as np

COLOURS = {  # name: (light, dark)
    "paper": ("#ffffff", "#0f141b"),
    "panel": ("#f3f6fa", "#1a222d"),
    "tint": ("#dfebf7", "#1c3450"),
    "warm": ("#fbe9d9", "#44301f"),
    "rule": ("#c5ced9", "#3d4958"),
    "ink": ("#1d2430", "#e8ecf2"),
    "soft": ("#556072", "#a3afbf"),
    "blue": ("#0b5fa5", "#6fb5f7"),
    "orange": ("#bd5200", "#ffa45f"),
    "green": ("#18794a", "#5fd29a"),
    "on": ("#ffffff", "#0f141b"),  # text on a strong blue, orange or green
}
LEGEND = [("blue positive", "blue"), (", ", "soft"), ("orange negative", "orange")]  # for Picture.words
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, Helvetica, Arial, 'DejaVu Sans', sans-serif"

# Advances in DejaVu Sans, in hundredths of the font size. It is the widest of the fonts above, so what fits here fits.
ADVANCES = {
    28: "'ijl", 30: "IJ", 32: " ,.·", 35: "/:;\\|f", 39: "-()[]t₁₂ᵀ²", 41: "!r", 50: '"*_`–', 53: "sz?", 55: "cε",
    58: "LFk", 60: "vxyP", 62: "TYaoe", 64: "ESbdghnpqu$0123456789{}√σγβΣ", 69: "KAVBRXZC", 75: "UHN", 79: "DG&OQ",
    84: "w#+<=>^~×→−≈", 86: "M", 100: "%mW@…",
}  # fmt: skip
WIDTHS = {letter: width / 100 for width, letters in ADVANCES.items() for letter in letters}


def text_width(text: str, size: float, bold: bool = False) -> float:
    return size * sum(WIDTHS.get(letter, 0.7) for letter in text) * (1.1 if bold else 1)


def number(value: float) -> str:
    """At most two decimals: 3, 0.5, 12.25"""
    return f"{value:.2f}".rstrip("0").rstrip(".") if value % 1 else f"{value:.0f}"


class Label(NamedTuple):
    text: str
    left: float
    top: float
    right: float
    bottom: float


class Picture:
    """Collects shapes and texts; `svg()` is the file."""

    def __init__(self, width: int, height: int, title: str):
        self.width, self.height, self.title = width, height, title
        self.parts: list[str] = []
        self.labels: list[Label] = []

    # ------------------------------------------------------------------ shapes

    def rect(self, x, y, width, height, colour="panel", line="", radius=0.0, opacity=None, thick=1.2):
        more = f' rx="{number(radius)}"' if radius else ""
        if opacity is not None:
            more += f' fill-opacity="{opacity:.2f}"'
        if line:
            more += f' stroke-width="{thick}"'
        classes = " ".join(filter(None, (colour or "none", line and f"{line}-line")))
        self.parts.append(
            f'<rect x="{number(x)}" y="{number(y)}" width="{number(width)}" height="{number(height)}"{more} '
            f'class="{classes}"/>'
        )

    def path(self, d: str, colour="soft", thick=1.4, arrow=False, dashes="", opacity=None):
        more = f' marker-end="url(#{colour})"' if arrow else ""
        if dashes:
            more += f' stroke-dasharray="{dashes}"'
        if opacity is not None:
            more += f' stroke-opacity="{opacity:.2f}"'
        self.parts.append(f'<path d="{d}" stroke-width="{number(thick)}"{more} class="none {colour}-line"/>')

    def line(self, x1, y1, x2, y2, colour="soft", thick=1.4, arrow=False, dashes="", opacity=None):
        self.path(f"M{number(x1)} {number(y1)}L{number(x2)} {number(y2)}", colour, thick, arrow, dashes, opacity)

    def area(self, d: str, colour="blue", opacity=1.0):
        self.parts.append(f'<path d="{d}" fill-opacity="{opacity:.2f}" class="{colour}"/>')

    def circle(self, x, y, radius, colour="blue", opacity=1.0):
        self.parts.append(
            f'<circle cx="{number(x)}" cy="{number(y)}" r="{number(radius)}" fill-opacity="{opacity:.2f}" '
            f'class="{colour}"/>'
        )

    def heat(self, x, y, values, cell: float, high: float | None = None, scale=1.0, gap=0.6, frame=True):
        """A matrix as cells: blue where positive, orange where negative, stronger for larger numbers.

        scale   the number that gets the full colour
        """
        values = np.atleast_2d(values)
        high = high or cell
        rows, columns = values.shape
        if frame:
            self.rect(x - 1, y - 1, columns * cell + 2 - gap, rows * high + 2 - gap, "panel", "rule", thick=0.8)
        cells: dict[str, list[str]] = {"blue": [], "orange": []}
        for (row, column), value in np.ndenumerate(values):
            strength = min(1.0, abs(float(value)) / scale)
            if round(strength, 2) > 0:
                d = f"M{number(x + column * cell)} {number(y + row * high)}"
                d += f"h{number(cell - gap)}v{number(high - gap)}h{number(gap - cell)}z"
                cells["blue" if value > 0 else "orange"].append(f'<path d="{d}" opacity="{number(strength)}"/>')
        self.parts += [f'<g class="{colour}">{"".join(paths)}</g>' for colour, paths in cells.items() if paths]

    # ------------------------------------------------------------------ text

    def text(self, x, y, text, size=14.0, colour="ink", anchor="start", bold=False, slanted=False):
        """y is the baseline."""
        width = text_width(text, size, bold)
        left = {"start": x, "middle": x - width / 2, "end": x - width}[anchor]
        self.labels.append(Label(text, left, y - 0.74 * size, left + width, y + 0.2 * size))
        more = "" if anchor == "start" else f' text-anchor="{anchor}"'
        more += ' font-weight="600"' if bold else ""
        more += ' font-style="italic"' if slanted else ""
        self.parts.append(
            f'<text x="{number(x)}" y="{number(y)}" font-size="{number(size)}"{more} class="{colour}">'
            f"{escape(text)}</text>"
        )
        return left + width

    def note(self, y, *parts: str, x=24.0, size=13.0):
        """A line of explanation, given in parts."""
        self.text(x, y, " ".join(parts), size, "soft")

    def words(self, x, y, parts, size=14.0):
        """Texts of several colours on one line: [("q", "blue"), (" · k", "ink")]."""
        whole = "".join(text for text, _ in parts)
        self.labels.append(Label(whole, x, y - 0.74 * size, x + text_width(whole, size), y + 0.2 * size))
        spans = "".join(f'<tspan class="{colour}">{escape(text)}</tspan>' for text, colour in parts)
        self.parts.append(
            f'<text x="{number(x)}" y="{number(y)}" font-size="{number(size)}" xml:space="preserve">{spans}</text>'
        )

    def box(self, x, y, width, height, title, notes=(), colour="panel", line="rule", size=15.0, note_size=13.0):
        """A rounded box with a centred title and lines below it."""
        self.rect(x, y, width, height, colour, line, radius=7)
        step = note_size * 1.42
        start = y + height / 2 + size * 0.36 - len(notes) * step / 2
        self.text(x + width / 2, start, title, size, "ink", "middle", bold=True)
        for index, note in enumerate(notes, 1):
            self.text(x + width / 2, start + index * step, note, note_size, "soft", "middle")

    # ------------------------------------------------------------------ the file

    def svg(self) -> str:
        body = "\n".join(self.parts)
        used = [name for name in COLOURS if name == "paper" or f'"{name}' in body or f"{name}-line" in body]
        light = "".join(f"--{name}:{COLOURS[name][0]};" for name in used)
        dark = "".join(f"--{name}:{COLOURS[name][1]};" for name in used)
        rules = "".join(
            f".{name}{{fill:{COLOURS[name][0]};fill:var(--{name})}}"
            f".{name}-line{{stroke:{COLOURS[name][0]};stroke:var(--{name})}}\n"
            for name in used
        )
        arrows = "".join(
            f'<marker id="{name}" viewBox="0 0 10 10" refX="8" refY="5" markerWidth="9" markerHeight="9" '
            f'markerUnits="userSpaceOnUse" orient="auto"><path d="M0 0.8L9 5L0 9.2z" class="{name}"/></marker>'
            for name in used
            if f"url(#{name})" in body
        )
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" width="{self.width}" '
            f'height="{self.height}" font-family="{FONT}" role="img" aria-label={quoteattr(self.title)}>\n'
            f"<title>{escape(self.title)}</title>\n<style>\n:root{{{light}}}\n"
            f"@media (prefers-color-scheme:dark){{:root{{{dark}}}}}\n"
            f"{rules}.none{{fill:none}}\n</style>\n"
            + (f"<defs>{arrows}</defs>\n" if arrows else "")
            + f'<rect width="{self.width}" height="{self.height}" rx="8" class="paper"/>\n{body}\n</svg>\n'
        )

    def misplaced(self) -> list[str]:
        """Texts that leave the picture, and pairs of texts that overlap, measured in a wide font."""
        told = [
            f"{label.text!r} leaves the picture"
            for label in self.labels
            if label.left < 4 or label.top < 2 or label.right > self.width - 4 or label.bottom > self.height - 2
        ]
        for one, other in combinations(self.labels, 2):
            across = min(one.right, other.right) - max(one.left, other.left)
            down = min(one.bottom, other.bottom) - max(one.top, other.top)
            if across > 1 and down > 1:
                told.append(f"{one.text!r} overlaps {other.text!r}")
        return told
