"""Compares training runs by steps and by hours: a table of held-out losses and accuracies, and a picture.

    python benchmarks/runs_side_by_side.py runs/mini runs/larger --out docs/pictures/larger.svg

Losses with different vocabularies cannot be compared directly: 50,000 tokens are harder to predict than 8,192. So each
loss is also given relative to the unigram baseline, the loss of a model that only predicts the token frequencies of its
training text. Hours are hours of training, without pauses.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import NamedTuple

from mini_bert.common.progress import counted
from mini_bert.models.config import MiniBertConfig
from mini_bert.plots.style import colour, dash, dress, marker, new_figure, save
from mini_bert.training.history import History, read_run
from mini_bert.training.run_folder import RunFolder

HOURS = (0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0)


class Point(NamedTuple):
    step: int
    hours: float
    loss: float
    top1: float


def measured(history: History) -> list[Point]:
    """Every evaluation on held-out text, with the training time up to then"""
    times = {0: 0.0} | {record["step"]: record["seconds"] / 3600 for record in history.of("train")}
    return [
        Point(found["step"], times[max(step for step in times if step <= found["step"])], found["loss"], found["top1"])
        for found in history.of("eval")
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--out", type=Path, help="the picture (.svg, .png)")
    options = parser.parse_args()
    runs: dict[str, tuple[History, list[Point]]] = {}
    models = [MiniBertConfig.from_dict(RunFolder.config(run)["model"]).name for run in options.runs]
    names = {name for name in models if models.count(name) > 1}  # shared by several runs
    for run in options.runs:
        config = RunFolder.config(run)
        name = MiniBertConfig.from_dict(config["model"]).name
        name = f"{name} ({run})" if name in names else name
        history = read_run(run)
        if not history.of("eval") or not history.of("train"):
            raise SystemExit(
                f"{run} has no evaluations on held-out text yet; wait for the first one, or leave the run out"
            )
        runs[name] = history, measured(history)
        start, last, resumed = history.last("start"), history.last("train"), len(history.of("resume"))
        print(f"{name}: {start['parameters']:,} parameters, {start['tokens_per_step']:,} tokens per step, learning "
              f"rate {config['training']['learning_rate']:g}, {history.steps:,} steps, {last['tokens'] / 1e6:.1f} "
              f"million tokens in {last['seconds'] / 3600:.2f} hours; resumed {counted(resumed, 'time')}")  # fmt: skip
    table("hours", HOURS, runs, lambda point: point.hours)
    common = set.intersection(*({point.step for point in points} for _, points in runs.values()))
    if common:
        table("steps", tuple(sorted(common)), runs, lambda point: point.step)
    if options.out:
        picture(options.out, runs)


def table(title: str, places: tuple[float, ...], runs, place) -> None:
    """The last evaluation up to each of these hours or steps"""
    print(
        f"\n| {title} | " + " | ".join(f"{name}: step | loss | below unigram baseline | top-1" for name in runs) + " |"
    )
    print("|---:|" + "---:|---:|---:|---:|" * len(runs))
    for limit in places:
        cells = []
        for history, points in runs.values():
            until = [point for point in points if place(point) <= 1.02 * limit]
            if not until or limit > 1.1 * place(points[-1]):
                cells.append(" | | | ")
                continue
            step, _, loss, top1 = until[-1]
            cells.append(f"{step:,} | {loss:.3f} | {history.unigram_loss - loss:.3f} | {top1:.1%}")
        if any(cell.strip(" |") for cell in cells):
            print(f"| {limit:,} | " + " | ".join(cells) + " |")


def picture(path: Path, runs: dict[str, tuple[History, list[Point]]]) -> None:
    figure = new_figure(9.0, 6.4)
    (by_step, by_hour), (gain_step, gain_hour) = figure.subplots(2, 2, sharex="col", sharey="row")
    for index, (name, (history, points)) in enumerate(runs.items()):
        style = {"color": colour(index), "linestyle": dash(index), "marker": marker(index), "markersize": 3.5}
        losses = [point.loss for point in points]
        gains = [history.unigram_loss - loss for loss in losses]
        by = {(by_step, gain_step): [point.step for point in points],
              (by_hour, gain_hour): [point.hours for point in points]}  # fmt: skip
        for panels, x in by.items():
            panels[0].plot(x, losses, label=name, **style)
            panels[1].plot(x, gains, label=name, **style)
            panels[0].axhline(history.unigram_loss, color=colour(index), linewidth=0.9, linestyle=(0, (1, 2)))
    dress(by_step, "by steps", "", "loss on held-out text\n(dotted: unigram baseline)")
    dress(by_hour, "by hours on two cores", "")
    dress(gain_step, "", "step", "nats below the unigram baseline")
    dress(gain_hour, "", "hours")
    by_step.set_xscale("log")
    gain_hour.legend(fontsize=9, frameon=False, loc="lower right")
    save(figure, path)
    print(f"\n{path}")


if __name__ == "__main__":
    main()
