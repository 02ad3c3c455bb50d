"""Figures of attention: the maps of all heads side by side, or one head large enough to label every token.

    attention_grid(tokens, weights).savefig("heads.png")                all heads, weights (L,A,T,T)
    attention_map(tokens, weights, layer=1, head=2).savefig("head.svg")     one of them

Row i shows what token i attends to; darker means more. All heads share one square-root colour scale: most weights are
small, and on a linear scale a map of 64 tokens is nearly white.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from mini_bert.plots.style import COLOURS, GREY, Axes, Figure, dress, lettering, new_figure, shades

if TYPE_CHECKING:
    from mini_bert.inside.saliency import Saliency

NAMED = 64  # up to this many tokens, the maps of a grid have labels
FEW = 32  # up to this many, labels are larger
NUMBERED = 20  # up to this many, the map of one head shows its weights as numbers
LETTERS = 16  # maximum length of a label
FROM, TO = "from token", "to token"  # axis labels
UNSEEN = "#dcdcdc"  # cells of tokens that cannot be seen
TICKS = (0.0, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0)  # of the square-root scale


def attention_grid(
    tokens: Sequence[str],
    weights: np.ndarray,
    heads: Sequence[tuple[int, int]] | None = None,
    title: str = "",
    saliency: Saliency | None = None,
    visible: np.ndarray | None = None,
) -> Figure:
    """The maps of all heads, or of the given (layer, head) pairs: one row per layer, one column per head.

    visible: (L,T,T) which tokens each token can attend to; the other cells are grey
    """
    T = _checked(tokens, weights)
    L, A = weights.shape[:2]
    chosen = [(layer, head) for layer in range(L) for head in range(A)] if heads is None else list(heads)
    if not chosen:
        raise ValueError("there are no heads to draw; expected at least one (layer, head)")
    layers = sorted({layer for layer, _ in chosen})
    columns = sorted({head for _, head in chosen})
    named = T <= NAMED
    names, font = lettering(tokens, LETTERS)
    size = max(1.6, (0.125 if T <= FEW else 0.1) * T) if named else 2.2  # inches
    label = _width(names) if named else 0.0
    bars = 0.15 * T + 1.2 if saliency else 0.0  # inches for the bars
    size = max(size, min((bars - label - 1.4) / len(columns), 3.4))
    width, height = size * len(columns) + label + 1.4, (size + 0.25) * len(layers) + label + (0.5 if title else 0.2)
    strip = 0.0 if saliency is None else 1.3 + _width(names)
    figure = new_figure(max(width, 6.0, bars), height + strip)
    upper, lower = _split(figure, height, strip)
    inner = upper.subgridspec(len(layers), len(columns))
    if title:
        (line,), face = lettering([title], 100)
        figure.suptitle(line, fontsize=11, fontweight="bold", **face)
    panels, image = [], None
    for row, layer in enumerate(layers):
        for column, head in enumerate(columns):
            if (layer, head) not in chosen:
                continue
            panel = figure.add_subplot(inner[row, column])
            panels.append(panel)
            image = _shade(panel, weights[layer, head], None if visible is None else visible[layer])
            panel.set_title(f"layer {layer}, head {head}", fontsize=8, pad=3)
            below, left = row == len(layers) - 1, column == 0
            _name(panel, names, font, _points(T, small=True), x=named and below, y=named and left)
            panel.set_xlabel(_to(visible) if below else "", fontsize=8)
            panel.set_ylabel(FROM if left else "", fontsize=8)
    _scale(figure, image, panels)
    if saliency is not None:
        saliency_bars(figure.add_subplot(lower), saliency)
    elif not named:
        figure.supxlabel(f"{T} tokens, too many to label here; the map of a single head labels them", fontsize=8)
    return figure


def attention_map(
    tokens: Sequence[str],
    weights: np.ndarray,
    layer: int,
    head: int,
    title: str = "",
    saliency: Saliency | None = None,
    visible: np.ndarray | None = None,
) -> Figure:
    """One head, with labels for all tokens on both axes."""
    T = _checked(tokens, weights)
    names, font = lettering(tokens, LETTERS)
    size = max(3.2, 0.16 * T)  # inches; 0.16 is 11.5 points, enough for 8-point letters
    label = _width(names)
    width, height = size + label + 1.6, size + label + 1.0
    strip = 0.0 if saliency is None else 1.3 + label
    figure = new_figure(max(width, 5.0), height + strip)
    upper, lower = _split(figure, height, strip)
    panel = figure.add_subplot(upper)
    image = _shade(panel, weights[layer, head], None if visible is None else visible[layer])
    (line,), face = lettering([title or f"layer {layer}, head {head}"], 100)
    panel.set_title(line, fontsize=10, **face)
    _name(panel, names, font, _points(T), x=True, y=True)
    panel.set_ylabel(FROM, fontsize=8)
    panel.set_xlabel(_to(visible), fontsize=8)
    if T <= NUMBERED:
        _numbers(panel, weights[layer, head])
    _scale(figure, image, panel)
    if saliency is not None:
        saliency_bars(figure.add_subplot(lower), saliency)
    return figure


def saliency_bars(panel: Axes, saliency: Saliency) -> None:
    """A bar for each token: up and blue if it supports the answer, down, orange and hatched if it opposes it."""
    names, font = lettering(saliency.tokens, LETTERS)
    for positive in (True, False):
        places = [place for place, score in enumerate(saliency.scores) if (score >= 0) == positive]
        panel.bar(
            places,
            [float(saliency.scores[place]) for place in places],
            color=COLOURS[0 if positive else 1],
            hatch=None if positive else "////",
            edgecolor="white",
            linewidth=0.3,
        )
    dress(panel, "", "")
    (line,), face = lettering([f"gradient × input for {saliency.of}"], 100)
    panel.set_title(line, fontsize=10, **face)
    panel.set_ylabel("– opposes,  supports +", fontsize=8)
    panel.axhline(0, color=GREY, linewidth=0.8)
    panel.set_xlim(-0.7, len(names) - 0.3)
    panel.grid(False, axis="x")
    panel.set_xticks(range(len(names)), names, rotation=90, fontsize=_points(len(names)), **font)
    panel.tick_params(axis="x", length=2, pad=2)


def _checked(tokens: Sequence[str], weights: np.ndarray) -> int:
    T = len(tokens)
    if weights.ndim != 4 or weights.shape[-2:] != (T, T):
        raise ValueError(f"weights have shape {weights.shape}, expected (layers, heads, {T}, {T}) for {T} tokens")
    return T


def _split(figure: Figure, height: float, strip: float) -> tuple[Any, Any]:
    """Grid cells for the maps and for the bars below them."""
    if not strip:
        return figure.add_gridspec(1, 1)[0], None
    upper, lower = figure.add_gridspec(2, 1, height_ratios=(height, strip))
    return upper, lower


def _shade(panel: Axes, weights: np.ndarray, visible: np.ndarray | None = None) -> Any:
    """A map; cells of tokens that cannot be seen are grey."""
    colors = import_module("matplotlib.colors")
    scale = {"cmap": colors.ListedColormap(shades(), bad=UNSEEN), "norm": colors.PowerNorm(0.5, 0, 1)}
    shown = weights.astype(float) if visible is None else np.where(visible, weights.astype(float), np.nan)
    image = panel.imshow(shown, interpolation="nearest", aspect="equal", **scale)
    for spine in panel.spines.values():
        spine.set_linewidth(0.5)
    return image


def _name(panel: Axes, names: Sequence[str], font: dict[str, Any], points: float, x: bool, y: bool) -> None:
    """Token labels below and on the left, if requested."""
    panel.tick_params(length=2, pad=2)
    panel.set_xticks(range(len(names)) if x else [])
    panel.set_yticks(range(len(names)) if y else [])
    if x:
        panel.set_xticklabels(names, rotation=90, fontsize=points, **font)
    if y:
        panel.set_yticklabels(names, fontsize=points, **font)


def _to(visible: np.ndarray | None) -> str:
    return TO if visible is None else f"{TO} (grey: cannot be seen)"


def _numbers(panel: Axes, weights: np.ndarray) -> None:
    """Writes the weights into a small map, in per cent."""
    for i, row in enumerate(weights.tolist()):
        for j, weight in enumerate(row):
            if weight >= 0.005:
                ink = "white" if weight > 0.25 else "black"
                panel.text(j, i, f"{100 * weight:.0f}", ha="center", va="center", fontsize=5.5, color=ink)


def _scale(figure: Figure, image: Any, panels: Any) -> None:
    bar = figure.colorbar(image, ax=panels, shrink=0.8, aspect=30, pad=0.02, ticks=TICKS)
    bar.ax.set_yticklabels([f"{tick:.0%}" for tick in TICKS], fontsize=7)
    bar.set_label("weight", fontsize=8)


def _points(count: int, small: bool = False) -> float:
    """Font size of the labels; smaller in the maps of a grid with many tokens."""
    return 7.5 if count <= FEW else 6.0 if small else 8.0


def _width(names: Sequence[str]) -> float:
    """Approximate width of the longest label, in inches."""
    return 0.085 * max(map(len, names), default=0) + 0.1
