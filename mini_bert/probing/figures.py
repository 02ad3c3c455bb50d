"""A figure of probe results by layer: accuracy, control task, random weights and baselines.

    probe_results(setting, results).savefig("probes.png")

One row of panels per probe. Curves differ in marker and dash as well as in colour (plots/style.py).
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path

from mini_bert.plots.style import COLOURS, DASHES, GREY, Axes, Figure, dress, new_figure, plain
from mini_bert.probing.report import Results, Scores, Setting, spread

MODEL, RANDOM = COLOURS[0], COLOURS[1]


def probe_results(setting: Setting, results: Sequence[Results]) -> Figure:
    """Left: accuracy of the model and of random weights, with their control tasks. Right: selectivity, F1."""
    if not results:
        raise ValueError("there are no results to draw; expected those of at least one probe")
    columns = 3 if all(scores.f1 for one in results for scores in one.trained.values()) else 2
    figure = new_figure(5.0 * columns, 4.2 * len(results) + 0.4)
    source = setting.train if setting.synthetic else Path(setting.dev).name
    figure.suptitle(plain(f"{setting.model}, probed on {source}"), fontsize=11, fontweight="bold")
    grid = figure.subplots(len(results), columns, squeeze=False)
    for row, one in zip(grid, results, strict=True):
        _accuracy(row[0], one)
        _curves(row[1], one, "selectivity")
        _dress(row[1], one, f"{one.title}: selectivity", "accuracy − control, %")
        if columns == 3:
            _curves(row[2], one, "f1")
            _dress(row[2], one, f"{one.title}: whole entities", "F1, %")
    return figure


def _accuracy(panel: Axes, one: Results) -> None:
    for by_layer, colour, mark, name in (
        (one.trained, MODEL, "o", "the model"),
        (one.random, RANDOM, "s", "random weights"),
    ):
        _line(panel, by_layer, "accuracy", name, color=colour, marker=mark)
        faint = {"color": colour, "marker": mark, "markerfacecolor": "white", "linestyle": DASHES[1], "alpha": 0.8}
        _line(panel, by_layer, "control", f"{name}, control", **faint)
    for (name, value), dash in zip(one.baselines.items(), (DASHES[2], DASHES[3]), strict=True):
        panel.axhline(100 * value, color=GREY, linestyle=dash, linewidth=1.2, label=plain(name))
    _dress(panel, one, f"{one.title}: accuracy", "%")


def _curves(panel: Axes, one: Results, what: str) -> None:
    _line(panel, one.trained, what, "the model", color=MODEL, marker="o")
    _line(panel, one.random, what, "random weights", color=RANDOM, marker="s")


def _line(panel: Axes, by_layer: dict[int, Scores], what: str, label: str, **style) -> None:
    """Mean by layer, with error bars if there are several seeds."""
    values = [[100 * value for value in getattr(scores, what)] for scores in by_layer.values()]
    heights, bars = [statistics.fmean(runs) for runs in values], [spread(runs) for runs in values]
    panel.errorbar(
        list(by_layer),
        heights,
        bars if any(bars) else None,
        label=label,
        linewidth=1.4,
        markersize=5,
        capsize=3,
        **style,
    )


def _dress(panel: Axes, one: Results, title: str, label: str) -> None:
    layers = list(one.trained)
    dress(panel, title, "layer (e: embeddings)", label)
    every = -(-len(layers) // 13)  # room for about 13 labels
    panel.set_xticks(layers[::every], ["e" if state == 0 else str(state - 1) for state in layers[::every]])
    panel.legend(fontsize=8, frameon=False, loc="upper left", bbox_to_anchor=(0, -0.16), ncols=2)  # below the panel
