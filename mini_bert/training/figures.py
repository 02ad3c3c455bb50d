"""Pictures of training runs: the curves of one or several runs, and the gradients of one run by tensor.

    training_curves([Path("runs/a"), Path("runs/b")]).savefig("runs.png")
    gradient_flow(Path("runs/a")).savefig("gradients.png")

Both return a matplotlib Figure. plots/style.py has the shared style.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from mini_bert.objectives.base import Objective
from mini_bert.plots.style import (
    COLOURS,
    DASHES,
    GREY,
    Axes,
    Figure,
    colour,
    dash,
    dress,
    edges,
    new_figure,
    picture_path,
    plain,
    plain_decades,
    save,
    spread,
)
from mini_bert.training.history import METRICS, History, Record, finite, further_parts, read_run

COLUMNS = 4  # runs in one row
ROW = 0.21  # inches per tensor name
LONG = 32  # characters of a name that fit above a panel
RAMPS = {"batch_size": ("sequences per step", "-"), "length": ("tokens per sequence", "--"),
         "mask_prob": ("masked share", ":")}  # fmt: skip


def training_curves(runs: Sequence[str | os.PathLike[str]]) -> Figure:
    """Top: a panel with the loss of each run, the others in grey. Bottom: accuracy, learning rate, gradient norm."""
    histories = [read_run(run) for run in runs]
    if not histories:
        raise ValueError("no run to draw; expected at least one run folder")
    for history in histories:
        if not history.series("train", "loss")[0] and not history.series("eval", "loss")[0]:
            raise ValueError(f"{history.run / METRICS} has no loss to draw yet")
    names = labels([history.run for history in histories])

    columns = min(len(histories), COLUMNS)
    rows = math.ceil(len(histories) / columns)
    ramped = [history for history in histories if history.ramps]
    figure = new_figure(max(12.0 if ramped else 9.0, 3.4 * columns), 3.6 * rows + 3.0)
    upper, lower = figure.subfigures(2, 1, height_ratios=(3.6 * rows, 3.0))
    panels = upper.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    for index, panel in enumerate(panels.flat):
        if index < len(histories):
            _loss_panel(panel, histories, index, names[index])
            panel.label_outer()
            panel.legend(loc="upper center", bbox_to_anchor=(0.5, 0), borderaxespad=4.2,  # below the axis' own labels
                         ncols=4 if columns == 1 else 2, fontsize=8, frameon=False)  # fmt: skip
        else:
            panel.remove()

    accuracy, rate, norm, *more = lower.subplots(1, 4 if ramped else 3)
    rate_title = "learning rate"
    for index, (history, name) in enumerate(zip(histories, names, strict=True)):
        style: dict[str, Any] = {"color": colour(index), "linestyle": dash(index), "linewidth": 1.3}
        accuracy.plot(*history.series("train", "accuracy"), label=name, **style)
        for part in further_parts(history.last("train")):
            accuracy.plot(*history.series("train", f"{part}_accuracy"), **style | {"linestyle": ":"})
        rate.plot(*history.series("train", "lr"), **style)
        if history.series("train", "muon_lr")[1] not in ([], history.series("train", "lr")[1]):
            rate.plot(*history.series("train", "muon_lr"), **style | {"linestyle": ":"})
            rate_title = "learning rate\n(dotted: Muon's)"
        norm.plot(*history.series("train", "grad_norm"), **style)
        for panel in more:
            _ramps(panel, history, style)
    for panel in more:
        dress(panel, "batch, length, masks", "step", "of their final values")
        panel.set_ylim(bottom=0)
        _name_ramps(panel, ramped)
    dress(accuracy, accuracy_title(histories), "step", "share")
    dress(rate, rate_title, "step")
    dress(norm, "gradient norm, before clipping", "step")
    accuracy.set_ylim(bottom=0)
    rate.set_ylim(bottom=0)
    rate.ticklabel_format(axis="y", style="sci", scilimits=(-2, 3))
    rate.yaxis.get_offset_text().set_fontsize(8)
    norms = [value for history in histories for value in history.series("train", "grad_norm")[1]]
    if norms and 0 < 30 * min(norms) < max(norms):
        norm.set_yscale("log")
        plain_decades(norm.yaxis)
    else:
        norm.set_ylim(bottom=0)
    if len(histories) > 1:
        lines, words = accuracy.get_legend_handles_labels()
        fit = int(72 * figure.get_figwidth() / (5 * max(map(len, words)) + 45))  # a letter is about 5 points wide
        lower.legend(lines, words, loc="outside lower center", ncols=max(1, fit), fontsize=8, frameon=False)
    return figure


def _ramps(panel: Axes, history: History, style: dict[str, Any]) -> None:
    """What changes in the course of a run, relative to its final values"""
    for name in history.ramps:
        steps, values = history.series("train", name)
        last = history.final(name) or values[-1]
        panel.plot(steps, [value / last for value in values], **style | {"linestyle": RAMPS[name][1]})


def _name_ramps(panel: Axes, histories: Sequence[History]) -> None:
    """A legend for the kinds of lines; the colours are those of the runs."""
    for name, (words, line) in RAMPS.items():
        if any(name in history.ramps for history in histories):
            panel.plot([], [], color="black", linestyle=line, linewidth=1.3, label=words)
    panel.legend(fontsize=7, frameon=False)


def _loss_panel(panel: Axes, histories: list[History], index: int, name: str) -> None:
    """One run's training and held-out loss and unigram baseline, with the other runs in the background."""
    for other, history in enumerate(histories):
        if other != index:
            panel.plot(*history.series("train", "loss"), color=GREY, alpha=0.6, linewidth=0.8)
    history = histories[index]
    panel.plot(*history.series("train", "loss"), color=colour(index), linewidth=1.1, alpha=0.75, label="training")
    steps, held = history.series("eval", "loss")
    if held:
        words = "held-out text, averaged weights" if history.averaged else "held-out text"
        panel.plot(steps, held, color="black", linewidth=1.4, marker="o", markersize=3.5, label=words)
    for part in further_parts(history.last("train")):
        words = f"{history.kind.part_name(part)}, training"
        panel.plot(
            *history.series("train", f"{part}_loss"), color=colour(index), linestyle=":", linewidth=1.1, label=words
        )
    baseline = history.unigram_loss
    if baseline is not None:
        words = f"unigram baseline {baseline:.2f}"
        panel.axhline(baseline, color=COLOURS[4], linestyle=DASHES[1], linewidth=1.3, label=words)
    for lost in history.of("nonfinite"):
        panel.axvline(lost["step"], color=COLOURS[1], linewidth=1.5, label=f"not finite, step {lost['step']:,}")
    dress(panel, name, "step", history.loss_name)
    panel.set_title(name, fontsize=10, fontweight="bold", color=colour(index))


def accuracy_title(histories: Sequence[History]) -> str:
    """What is predicted, if that is the same for all runs; other parts of the loss are dotted."""
    what = {"tokens" if history.kind is Objective else history.kind.targets for history in histories}
    title = f"accuracy on {what.pop()}" if len(what) == 1 else "accuracy"
    last = [(history.kind, history.last("train")) for history in histories]
    more = {
        kind.part_name(part) for kind, record in last for part in further_parts(record) if f"{part}_accuracy" in record
    }
    dotted = ", ".join(sorted(more))
    return f"{title}\n(dotted: {dotted})" if more else title


def gradient_flow(run: str | os.PathLike[str]) -> Figure:
    """One row per tensor, from the input to the head: gradient norm over time, its distribution now, update now."""
    history = read_run(run)
    records = [record for record in history.of("tensors") if record.get("tensors")]
    if not records:
        raise ValueError(f"{history.run / METRICS} has no gradients by tensor yet (records of kind 'tensors')")
    last = records[-1]["tensors"]
    names = in_model_order(last)
    rows = range(len(names))

    figure = new_figure(13.0, max(4.0, ROW * len(names) + 1.6))
    norms, singles, update = figure.subplots(1, 3, sharey=True, width_ratios=(1.25, 1, 0.8))
    figure.suptitle(f"{labels([history.run])[0]}: gradients by tensor", fontsize=11, fontweight="bold")

    grid = [[log10(record["tensors"].get(name, {}).get("gradient")) for record in records] for name in names]
    steps = [record["step"] for record in records]
    image = norms.pcolormesh(edges(steps), edges(list(rows)), grid, cmap="cividis", shading="flat")
    figure.colorbar(image, ax=norms, label="log10 of the gradient norm", pad=0.01)
    dress(norms, "gradient norm over time", "step")
    norms.grid(False)
    norms.set_yticks(list(rows), [plain(name.removeprefix("encoder.")) for name in names], fontsize=8)
    norms.set_ylim(len(names) - 0.5, -0.5)

    for row, name in enumerate(names):
        found = map(finite, last[name].get("gradient_percentiles") or ())
        percentiles = [value for value in found if value is not None]
        if len(percentiles) == 5:
            spread(singles, row, percentiles)
    dress(singles, f"gradients at step {steps[-1]:,}", "thick: middle half, thin: 1 % to 99 %")
    narrow, wide = ranges(last)
    singles.set_xscale("symlog", linthresh=narrow, linscale=0.5)
    singles.set_xticks(symmetric_ticks(narrow, wide))
    singles.minorticks_off()
    singles.axvline(0, color=GREY, linewidth=0.6)
    singles.tick_params(axis="x", labelrotation=45)

    points = [(finite(last[name].get("ratio")), row) for row, name in enumerate(names)]
    ratios = [(ratio, row) for ratio, row in points if ratio]
    update.plot([ratio for ratio, _ in ratios], [row for _, row in ratios], "o", color=COLOURS[0], markersize=4)
    update.axvspan(1e-4, 1e-2, color=COLOURS[2], alpha=0.15, linewidth=0)
    if ratios:
        update.set_xscale("log")
    dress(update, "update norm / weight norm", "green: normal for matrices")
    return figure


def loss_picture(
    run: str | os.PathLike[str], path: str | os.PathLike[str], say: Callable[[str], None] | None = None
) -> bool:
    """Draw a run's curves into a file and return True; if that fails, say why and return False."""
    try:
        save(training_curves([run]), path)
    except (ValueError, OSError) as error:  # a missing matplotlib is a ValueError, too
        (say or partial(print, file=sys.stderr))(f"no {Path(path).name}: {error}")
        return False
    return True


def draw_runs(runs: Sequence[str | os.PathLike[str]], out: str | os.PathLike[str] | None = None) -> Iterator[Path]:
    """Draw one run (curves and gradients) or the curves of several side by side; yields the files written.

    `out` is the file of the curves: .png, .svg or .pdf. The default is RUN/loss.png for one run, runs.png for several.
    """
    if out is None:
        out = Path(runs[0]) / "loss.png" if len(runs) == 1 else Path("runs.png")
    path = picture_path(out)
    save(training_curves(runs), path)
    yield path
    if len(runs) == 1 and read_run(runs[0]).of("tensors"):
        beside = path.with_name(f"{path.stem}-gradients{path.suffix}")
        save(gradient_flow(runs[0]), beside)
        yield beside


# --- names, order, scales ----------------------------------------------------------------------------------


def labels(runs: Sequence[Path]) -> list[str]:
    """Short names for runs: as many of the last parts of their paths as it takes to tell them apart.

    >>> labels([Path("a/first"), Path("a/second")]), labels([Path("a/run"), Path("b/run")])
    (['first', 'second'], ['a/run', 'b/run'])
    """
    paths = [run.resolve().parts for run in runs]
    count = 1
    while len({path[-count:] for path in paths}) < len(set(paths)):
        count += 1
    names = ["/".join(path[-count:]) for path in paths]
    return [plain(name if len(name) <= LONG else f"…{name[1 - LONG :]}") for name in names]


def in_model_order(tensors: dict[str, Record]) -> list[str]:
    """Embeddings, blocks in order, the rest. (Records list the weights with decay first.)

    >>> in_model_order(dict.fromkeys(["encoder.blocks.10.a.w", "head.w", "encoder.blocks.2.a.w", "tokens.table"], {}))
    ['tokens.table', 'encoder.blocks.2.a.w', 'encoder.blocks.10.a.w', 'head.w']
    """

    def key(name: str) -> tuple[int, int]:
        _, found, after = name.partition("blocks.")
        if found:
            return 1, int(after.partition(".")[0])
        return (0 if name.endswith(".table") or name.startswith("norm.") else 2), 0

    return sorted(tensors, key=key)


def log10(value: Any) -> float:
    """NaN, which is drawn white, where there is no positive number."""
    number = finite(value)
    return math.log10(number) if number else math.nan


def ranges(tensors: dict[str, Record]) -> tuple[float, float]:
    """The largest absolute gradient of the tensor with the smallest ones, and of the tensor with the largest.

    The first is at least a millionth of the second; the scale is linear below it.
    """
    found = [
        max((abs(finite(value) or 0.0) for value in tensor.get("gradient_percentiles") or ()), default=0.0)
        for tensor in tensors.values()
    ]
    wide = max(found, default=0.0) or 1.0
    return max(min((size for size in found if size), default=wide), wide * 1e-6), wide


def symmetric_ticks(narrow: float, wide: float) -> list[float]:
    """At most four powers of ten on each side of 0, none so close to 0 that labels would overlap.

    >>> symmetric_ticks(2e-6, 3e-2)
    [-0.01, -0.001, -0.0001, 0.0, 0.0001, 0.001, 0.01]
    >>> symmetric_ticks(1.0, 1.0)
    [-1.0, 0.0, 1.0]
    """
    highest = math.floor(math.log10(wide))
    lowest = min(math.floor(math.log10(narrow)) + 2, highest)
    every = math.ceil((highest - lowest + 1) / 4)
    powers = [float(f"1e{power}") for power in range(highest, lowest - 1, -every)]
    return [*(-power for power in powers), 0.0, *reversed(powers)]
