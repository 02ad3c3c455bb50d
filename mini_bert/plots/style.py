"""The shared style of all pictures: colours, fonts for any script, panels, atomic writing.

matplotlib is an extra (`plots`), imported only when something is drawn. Figures are created without pyplot: no window
opens, no global setting changes, and threads are safe. The colours are those of Okabe and Ito, which colour-blind
people can tell apart; lines also differ in their dashes, for print without colour. Shades go from white to dark blue
along a straight line in CIELAB, so that equal steps look equal, in greyscale as well.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from functools import lru_cache
from importlib import import_module
from io import BytesIO
from itertools import pairwise
from pathlib import Path
from typing import Any

from mini_bert.common.atomic import write_atomic
from mini_bert.common.extras import extra
from mini_bert.common.visible import visible

Figure = Any  # matplotlib.figure.Figure
Axes = Any  # matplotlib.axes.Axes
Lab = tuple[float, float, float]  # lightness, green to red, blue to yellow

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")  # Okabe & Ito 2008
DASHES: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (1, 1.2)), (0, (6, 2, 1.5, 2)))
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "*")
GREY = "#888888"
PAPER, INK = (100.0, 0.0, 0.0), (18.0, 16.0, -42.0)  # the ends of the shades, in CIELAB: white, dark blue
DPI = 150

SANS = "DejaVu Sans"  # comes with matplotlib, so pictures look the same everywhere
FAMILIAR = ("Noto Sans", "Arial Unicode", "PingFang", "Hiragino", "YaHei", "Malgun", "Nirmala", "WenQuanYi")


def new_figure(width: float, height: float) -> Figure:
    """An empty figure of this size in inches; the layout makes room for labels."""
    extra("matplotlib", "pictures are drawn by matplotlib (the extra `plots`), which is not installed")
    return import_module("matplotlib.figure").Figure(figsize=(width, height), dpi=DPI, layout="constrained")


def picture_path(path: str | os.PathLike[str], besides: str = "") -> Path:
    """The path, with .png if it has no suffix. Raises ValueError if matplotlib cannot write the format.

    besides: another suffix that the caller can write, for this message
    """
    refuse_folder(path)
    path = Path(path)
    if not path.suffix:
        path = path.with_name(f"{path.name}.png")
    _check_suffix(new_figure(1, 1), path, besides)
    return path


def refuse_folder(out: str | os.PathLike[str]) -> None:
    """Without this check, a picture for the folder `plots` would become plots.png."""
    if os.path.isdir(out) or os.fspath(out).endswith(("/", os.sep)):
        raise IsADirectoryError(f"{out} is a folder, expected a file, such as {os.path.join(out, 'picture.png')}")


def _check_suffix(figure: Figure, path: Path, besides: str = "") -> None:
    if path.suffix[1:].lower() not in figure.canvas.get_supported_filetypes():
        others = ", ".join(filter(None, [besides, ".png", ".svg"]))
        raise ValueError(f"{path} ends in {path.suffix!r}, which matplotlib cannot write; try {others} or .pdf")


def save(figure: Figure, path: str | os.PathLike[str]) -> None:
    """Write the picture atomically; the suffix decides its format."""
    path = Path(path)
    _check_suffix(figure, path)
    path.parent.mkdir(parents=True, exist_ok=True)
    picture = BytesIO()
    figure.savefig(picture, format=path.suffix[1:].lower())
    content = picture.getvalue()
    write_atomic(path, for_dark_pages(content) if path.suffix.lower() == ".svg" else content)


def for_dark_pages(svg: bytes) -> bytes:
    """The picture with a rule for readers whose pages are dark: light and dark change places, the hues stay."""
    rule = "@media (prefers-color-scheme: dark) { #figure_1 { filter: invert(0.93) hue-rotate(180deg) } }"
    return svg.replace(b"</style>", f" {rule}</style>".encode(), 1)


def dress(panel: Axes, title: str, x: str, y: str = "") -> None:
    """Title, labels and grid, the same for all panels."""
    panel.set_title(title, fontsize=10)
    panel.set_xlabel(x)
    panel.set_ylabel(y)
    panel.tick_params(labelsize=8)
    if x == "step":  # no fractions of a step
        panel.xaxis.get_major_locator().set_params(integer=True)
    panel.grid(True, color="#DDDDDD", linewidth=0.6)
    panel.set_axisbelow(True)
    for side in ("top", "right"):
        panel.spines[side].set_visible(False)


def plain_decades(axis: Any) -> None:
    """Plain numbers as ticks of a logarithmic axis: 1, 2, 5, 10, 20, …, or for many decades 1, 10, 100, …"""
    ticker = import_module("matplotlib.ticker")
    low, high = sorted(axis.get_view_interval())
    subs = (1, 2, 5) if low > 0 and high < 1000 * low else (1,)
    axis.set_major_locator(ticker.LogLocator(subs=subs, numticks=12))
    axis.set_major_formatter(ticker.StrMethodFormatter("{x:g}"))
    axis.set_minor_formatter(ticker.NullFormatter())


def spread(panel: Axes, row: float, percentiles: Sequence[float]) -> None:
    """Draw percentiles 1, 25, 50, 75 and 99: a line from 1 to 99, thick from 25 to 75, with a mark at 50."""
    p1, p25, p50, p75, p99 = percentiles
    panel.plot([p1, p99], [row, row], color=COLOURS[5], linewidth=1.5, solid_capstyle="butt")
    panel.plot([p25, p75], [row, row], color=COLOURS[0], linewidth=4, solid_capstyle="butt")
    panel.plot([p50], [row], "|", color="black", markersize=5)


def colour(index: int) -> str:
    return COLOURS[index % len(COLOURS)]


def dash(index: int) -> Any:
    return DASHES[index % len(DASHES)]


def marker(index: int) -> str:
    return MARKERS[index % len(MARKERS)]


def edges(centres: Sequence[float]) -> list[float]:
    """The edges of cells with these centres.

    >>> edges([0, 1, 2]), edges([100, 200, 400]), edges([7])
    ([-0.5, 0.5, 1.5, 2.5], [50.0, 150.0, 300.0, 500.0], [6.5, 7.5])
    """
    if len(centres) == 1:
        return [centres[0] - 0.5, centres[0] + 0.5]
    middles = [(a + b) / 2 for a, b in pairwise(centres)]
    return [centres[0] - (middles[0] - centres[0]), *middles, centres[-1] + (centres[-1] - middles[-1])]


def shades(start: Lab = PAPER, end: Lab = INK, count: int = 256) -> list[tuple[float, float, float]]:
    """Colours as (red, green, blue) from 0 to 1, equally spaced on a straight line in CIELAB."""
    return [
        _srgb(*(a + (b - a) * step / (count - 1) for a, b in zip(start, end, strict=True))) for step in range(count)
    ]


def _srgb(L: float, a: float, b: float) -> tuple[float, float, float]:
    """Converts CIELAB under daylight (D65) to sRGB (CIE 15:2004, IEC 61966-2-1)."""
    y = (L + 16) / 116
    X, Y, Z = (
        white * (t**3 if t > 6 / 29 else 3 * (6 / 29) ** 2 * (t - 4 / 29))
        for white, t in ((0.95047, y + a / 500), (1.0, y), (1.08883, y - b / 200))
    )
    linear = (
        3.2404542 * X - 1.5371385 * Y - 0.4985314 * Z,
        -0.9692660 * X + 1.8760108 * Y + 0.0415560 * Z,
        0.0556434 * X - 0.2040259 * Y + 1.0572252 * Z,
    )
    red, green, blue = (
        min(max(12.92 * c if c <= 0.0031308 else 1.055 * c ** (1 / 2.4) - 0.055, 0.0), 1.0) for c in linear
    )
    return red, green, blue


# --- text in pictures --------------------------------------------------------------------------------------


def plain(text: str) -> str:
    """Escapes text for matplotlib, where a dollar starts a formula, a leading _ hides a name from legends, and fonts
    have no control characters."""
    text = visible(text).replace("$", r"\$")
    return f"./{text}" if text.startswith("_") else text


def shortened(text: str, length: int) -> str:
    """
    >>> shortened("internationalisation", 9), shortened("short", 9)
    ('internat…', 'short')
    """
    return text if len(text) <= length else f"{text[: length - 1]}…"


def lettering(texts: Iterable[str], length: int = 24) -> tuple[list[str], dict[str, Any]]:
    """Prepares words of any script; returns the texts, cut to `length`, and font settings that cover their characters.

    Characters that no installed font has are written as code points (U+4E2D); matplotlib would draw boxes and warn.
    """
    shown = [" ".join(text.split()) for text in texts]
    families, missing = _fonts(frozenset("".join(shown)))
    table = {ord(letter): f"U+{ord(letter):04X}" for letter in missing}
    shown = [shortened(text.translate(table), length) for text in shown]
    return [text.replace("$", r"\$") for text in shown], {"family": list(families)}


@lru_cache(64)
def _fonts(letters: frozenset[str]) -> tuple[tuple[str, ...], frozenset[str]]:
    """Returns fonts that cover these characters, best first, and the characters that no font has."""
    manager = import_module("matplotlib.font_manager").fontManager
    families = [SANS]
    missing = {letter for letter in letters if ord(letter) not in _letters(manager.findfont(SANS))}
    if missing:
        fonts = [font for font in manager.ttflist if font.style == "normal" and font.weight == 400]
        paths = {font.name: font.fname for font in fonts if "Last Resort" not in font.name}  # a font of boxes
        for name in sorted(paths, key=lambda name: (not any(word in name for word in FAMILIAR), name)):
            has = {letter for letter in missing if ord(letter) in _letters(paths[name])}
            if has:
                families.append(name)
                missing -= has
            if not missing:
                break
    return tuple(families), frozenset(missing)


@lru_cache(512)
def _letters(path: str) -> frozenset[int]:
    try:
        return frozenset(import_module("matplotlib.ft2font").FT2Font(path).get_charmap())
    except (RuntimeError, OSError):  # a colour font, or one that was removed
        return frozenset()
