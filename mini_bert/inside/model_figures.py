"""Figures of a model: statistics of its activations, and embeddings projected onto a plane.

    activation_statistics(layer_statistics(model, ids)).savefig("activations.png")
    embedding_pca(vectors, labels, groups).savefig("embeddings.png")          vectors (N,H)

The plane is spanned by the first two principal components. The axis labels give their shares of the variance; points
that are close on the plane may be far apart in the other H − 2 directions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from mini_bert.plots.style import (
    COLOURS,
    GREY,
    Axes,
    Figure,
    colour,
    dress,
    lettering,
    marker,
    new_figure,
    plain,
    spread,
)

if TYPE_CHECKING:
    from mini_bert.inside.layer_statistics import LayerStatistics

ROW = 0.24  # inches per row of the activation figure
LABEL = 32  # maximum length of a label
OFFSETS = ((1, 0), (-1, 0), (0, 1), (0, -1), (1, 1), (-1, 1), (1, -1), (-1, -1))  # directions in which a label may go


# --- activations -------------------------------------------------------------------------------------------


def activation_statistics(statistics: Sequence[LayerStatistics], title: str = "") -> Figure:
    """One row per array, input at the top: percentiles, mean and standard deviation, active and dead units."""
    if not statistics:
        raise ValueError("there are no statistics to draw; layer_statistics(model, ids) computes them")
    rows = range(len(statistics))
    figure = new_figure(12.0, max(3.6, ROW * len(statistics) + 1.7))
    values, moments, units = figure.subplots(1, 3, sharey=True, width_ratios=(1.4, 1, 0.9))
    if title:
        (line,), font = lettering([title], 110)
        figure.suptitle(line, fontsize=11, fontweight="bold", **font)
    for row, place in zip(rows, statistics, strict=True):
        spread(values, row, place.percentiles)
    dress(values, "values", "thick: 25–75 %, thin: 1–99 %")
    values.axvline(0, color=GREY, linewidth=0.6)
    values.set_yticks(list(rows), [plain(place.name) for place in statistics], fontsize=8)
    values.set_ylim(len(statistics) - 0.5, -0.5)

    style: dict[str, Any] = {"linestyle": "none", "markersize": 5}
    moments.plot([place.std for place in statistics], rows, "o", color=COLOURS[0], label="standard deviation", **style)
    moments.plot([place.mean for place in statistics], rows, "D", color=COLOURS[1], label="mean", **style)
    moments.axvline(0, color=GREY, linewidth=0.6)
    dress(moments, "mean and standard deviation", "")
    _legend(moments, len(rows))

    inner = [(row, place) for row, place in zip(rows, statistics, strict=True) if place.active is not None]
    for name, mark, colour_of, label in (
        ("active", "o", COLOURS[2], "values above 0"),
        ("dead", "X", COLOURS[1], "dead units"),
    ):
        shares = [100 * getattr(place, name) for _, place in inner]
        units.plot(shares, [row for row, _ in inner], mark, color=colour_of, label=label, **style)
    dress(units, "feed-forward inner layer", "per cent")
    most = max((100 * max(place.active or 0, place.dead or 0) for _, place in inner), default=0)
    units.set_xlim(-0.03 * max(most, 20), 1.1 * max(most, 20))
    _legend(units, len(rows))
    return figure


def _legend(panel: Axes, rows: int) -> None:
    """Half an inch below the axis, where it hides no point."""
    below = -0.5 / max(2.0, ROW * rows)
    panel.legend(fontsize=8, frameon=False, loc="upper center", bbox_to_anchor=(0.5, below), ncols=2)


# --- vectors on a plane ------------------------------------------------------------------------------------


class Projection(NamedTuple):
    points: np.ndarray  # (N,K)
    shares: np.ndarray  # (K,) of the variance
    directions: np.ndarray  # (K,H), of length 1
    centre: np.ndarray  # (H,)


def pca(vectors: np.ndarray, count: int = 2) -> Projection:
    """The first `count` principal components. Signs are chosen so that the largest component of each is positive."""
    vectors = np.asarray(vectors, float)
    if vectors.ndim != 2 or len(vectors) < 2:
        raise ValueError(f"vectors have shape {vectors.shape}, expected (N,H) with N at least 2")
    centre = vectors.mean(0)
    _, lengths, directions = np.linalg.svd(vectors - centre, full_matrices=False)
    variance = lengths**2
    if len(directions) < count:  # fewer points or dimensions than components: pad with 0
        more = count - len(directions)
        directions = np.pad(directions, ((0, more), (0, 0)))
        variance = np.pad(variance, (0, more))
    directions = directions[:count]
    largest = np.take_along_axis(directions, np.abs(directions).argmax(1)[:, None], 1)
    directions = directions * np.where(largest < 0, -1, 1)
    shares = variance[:count] / (variance.sum() or 1)
    return Projection((vectors - centre) @ directions.T, shares, directions, centre)


def embedding_pca(
    vectors: np.ndarray,
    labels: Sequence[str] | None = None,
    groups: Sequence[str] | None = None,
    title: str = "",
) -> Figure:
    """Vectors (N,H) as points, with a label each where there is room. Groups differ in colour and marker."""
    for name, given in (("labels", labels), ("groups", groups)):
        if given is not None and len(given) != len(vectors):
            raise ValueError(f"there are {len(given)} {name} for {len(vectors)} vectors; expected one per vector")
    points, shares, *_ = pca(vectors)
    figure = new_figure(8.5, 7.0)
    panel = figure.subplots()
    names = list(dict.fromkeys(groups)) if groups is not None else [""]
    if groups is not None and len(names) > len(COLOURS):  # so that large groups get their own colour
        names.sort(key=groups.count, reverse=True)
    shown, font = lettering(names, LABEL)
    for index, (name, label) in enumerate(zip(names, shown, strict=True)):
        members = points if groups is None else points[[group == name for group in groups]]
        panel.scatter(
            members[:, 0],
            members[:, 1],
            s=22,
            color=colour(index),
            marker=marker(index),
            label=label,
            linewidths=0,
            alpha=0.85,
        )
    dress(panel, "", f"first component, {shares[0]:.1%} of the variance", f"second, {shares[1]:.1%}")
    (line,), face = lettering([title], 110)
    panel.set_title(line, fontsize=10, **face)
    panel.margins(0.08)
    panel.set_aspect("equal", "datalim")  # the same scale on both axes, so that distances can be compared
    if groups is not None:
        legend = panel.legend(fontsize=8, frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
        for text in legend.get_texts():
            text.set_fontfamily(font["family"])
    if labels is not None:
        left_out = _label(figure, panel, points, labels)
        if left_out:
            panel.annotate(
                f"{left_out} of {len(labels)} labels not shown: no room", (1, 0), (0, 3), fontsize=7, color=GREY,
                ha="right", va="bottom", xycoords="axes fraction", textcoords="offset points",
            )  # fmt: skip
    return figure


def _label(figure: Figure, panel: Axes, points: np.ndarray, labels: Sequence[str]) -> int:
    """Puts each label beside its point where it overlaps nothing. Returns how many did not fit."""
    shown, font = lettering(labels, LABEL)
    figure.draw_without_rendering()  # fixes the layout before labels are added
    figure.set_layout_engine("none")
    dots = panel.transData.transform(points)
    scale = figure.dpi / 72  # pixels per point
    taken = np.concatenate([dots - 2.5 * scale, dots + 2.5 * scale], 1)  # (N,4): left, bottom, right, top
    room = panel.get_window_extent()
    left_out = 0
    for dot, text in zip(dots, shown, strict=True):
        note = panel.annotate(text, dot, xycoords="figure pixels", fontsize=7, **font)
        box = note.get_window_extent()
        note.remove()
        for x, y in OFFSETS:
            step = (4.5 if not (x and y) else 3.2) * scale
            left = dot[0] + x * step - (box.width if x < 0 else box.width / 2 if not x else 0)
            bottom = dot[1] + y * step - (box.height if y < 0 else box.height / 2 if not y else 0)
            place = np.array([left, bottom, left + box.width, bottom + box.height])
            inside = left > room.x0 and bottom > room.y0 and place[2] < room.x1 and place[3] < room.y1
            if inside and not _meets(place, taken).any():
                shift = ((left - dot[0]) / scale, (bottom - dot[1]) / scale)
                x0, y0 = panel.transData.inverted().transform(dot)
                panel.annotate(text, (x0, y0), shift, textcoords="offset points", fontsize=7, va="bottom", **font)
                taken = np.concatenate([taken, place[None]])
                break
        else:
            left_out += 1
    return left_out


def _meets(box: np.ndarray, others: np.ndarray) -> np.ndarray:
    return (box[0] < others[:, 2]) & (box[2] > others[:, 0]) & (box[1] < others[:, 3]) & (box[3] > others[:, 1])
