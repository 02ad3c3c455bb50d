"""Results of probes, and how they are printed: `report` makes the table, `report_json` the same as JSON."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from mini_bert.common.progress import counted


class DataSize(NamedTuple):
    sentences: int
    words: int


class Scores(NamedTuple):
    """The scores of one model at one layer, one number per seed."""

    accuracy: Sequence[float]
    control: Sequence[float]  # accuracy on the control task
    f1: Sequence[float] = ()  # of whole entities; empty for other tasks

    @property
    def selectivity(self) -> list[float]:
        return [a - c for a, c in zip(self.accuracy, self.control, strict=True)]

    @property
    def score(self) -> float:
        """Mean F1 if there is one, else mean accuracy; layers are compared by it."""
        return statistics.fmean(self.f1 or self.accuracy)

    @classmethod
    def joined(cls, parts: Sequence[Scores]) -> Scores:
        """Concatenates the numbers of several seeds."""
        return cls(*([value for part in parts for value in part[field]] for field in range(3)))


class Results(NamedTuple):
    """The results of one probe for all layers of the model and of untrained models."""

    title: str
    classes: int | None  # None: it chooses among the words of the sentence
    train: DataSize
    dev: DataSize
    l2: float
    baselines: dict[str, float]  # accuracy
    trained: dict[int, Scores]  # by hidden state: see `layer_name`
    random: dict[int, Scores]

    @property
    def best(self) -> int:
        """The layer with the highest score; the lowest layer in a tie."""
        return max(self.trained, key=lambda layer: (self.trained[layer].score, -layer))

    @property
    def best_random(self) -> int:
        return max(self.random, key=lambda layer: (self.random[layer].score, -layer))


class Setting(NamedTuple):
    """The settings of an experiment, for the report."""

    task: str
    model: str
    train: str
    dev: str
    synthetic: bool
    seeds: int
    pooling: str
    notes: Sequence[str] = ()  # warnings about the data


def spread(values: Sequence[float]) -> float:
    """The standard deviation over seeds."""
    return statistics.stdev(values) if len(values) > 1 else 0.0


def report(setting: Setting, results: Sequence[Results]) -> str:
    """A table for each probe, as text."""
    lines = [f"model: {setting.model}"]
    if setting.synthetic:
        lines.append(f"data: {setting.train}; generated text, so the numbers are only a demonstration")
    else:
        lines.append(f"data: trained on {Path(setting.train).name}, measured on {Path(setting.dev).name}")
    lines += [f"  {note}" for note in setting.notes]
    for one in results:
        lines += ["", *_table(setting, one)]
    return "\n".join(lines)


def _table(setting: Setting, one: Results) -> list[str]:
    among = "the words of the sentence" if one.classes is None else counted(one.classes, "class")
    lines = [
        f"{one.title}, out of {among}",
        f"trained on {counted(one.train.sentences, 'sentence')} ({counted(one.train.words, 'word')}), measured on "
        f"{one.dev.sentences:,} ({one.dev.words:,})"
        + (f"; mean ± standard deviation of {setting.seeds} seeds" * (setting.seeds > 1)),
        "",
    ]
    names = ["F1"] * bool(next(iter(one.trained.values())).f1) + ["accuracy", "control", "selectivity"]
    width = 13
    block = width * len(names)
    lines.append(f"{'':11}{' the model ':-^{block}}  {' random weights ':-^{block}}".rstrip())
    lines.append(f"{'layer':11}" + "  ".join(["".join(f"{name:>{width}}" for name in names)] * 2))
    for layer in one.trained:
        cells = []
        for scores in (one.trained[layer], one.random[layer]):
            percentages = ([scores.f1] if scores.f1 else []) + [scores.accuracy, scores.control]
            columns = [*(_shown(values, "%") for values in percentages), _shown(scores.selectivity)]
            cells.append("".join(f"{column:>{width}}" for column in columns))
        lines.append(f"{layer_name(layer).removeprefix('layer '):11}" + "  ".join(cells))
    lines.append("")
    pad = max(map(len, one.baselines))
    lines += [f"{name:{pad}} {value:7.1%}" for name, value in one.baselines.items()]
    return [*lines, "", _verdict(one)]


def _shown(values: Sequence[float], unit: str = "") -> str:
    """Mean in per cent, or in points for selectivity, and standard deviation if there are several seeds."""
    text = f"{statistics.fmean(values) * 100:.1f}{unit}"
    return f"{text} ±{spread(values) * 100:.1f}" if len(values) > 1 else text


def _verdict(one: Results) -> str:
    best, other = one.trained[one.best], one.random[one.best_random]
    measure = "F1" if best.f1 else "accuracy"
    gap = (best.score - other.score) * 100
    return (
        f"best: {layer_name(one.best)}, {measure} {best.score:.1%}, {abs(gap):.1f} points "
        f"{'above' if gap >= 0 else 'below'} the best random layer ({layer_name(one.best_random)}, "
        f"{other.score:.1%}); selectivity {statistics.fmean(best.selectivity) * 100:.1f} points"
    )


def layer_name(state: int) -> str:
    """The name that users read for a hidden state: 0 is the embeddings, l + 1 the output of layer l.

    Layers count from 0, as in all commands and in the names of arrays and weights.
    """
    return "embeddings" if state == 0 else f"layer {state - 1}"


def report_json(setting: Setting, results: Sequence[Results]) -> str:
    """The same as JSON."""
    return json.dumps({**setting._asdict(), "probes": [_record(one) for one in results]}, indent=2)


def _record(one: Results) -> dict[str, Any]:
    best, other = one.trained[one.best], one.random[one.best_random]
    return {
        "title": one.title,
        "classes": one.classes,
        "train": one.train._asdict(),
        "dev": one.dev._asdict(),
        "l2": one.l2,
        "baselines": one.baselines,
        "layers": [
            {
                "layer": layer,
                "name": layer_name(layer),
                "trained": _numbers(one.trained[layer]),
                "random": _numbers(one.random[layer]),
            }
            for layer in one.trained
        ],
        "best": {
            "layer": one.best,
            "score": best.score,
            "random_layer": one.best_random,
            "random_score": other.score,
            "above_random": best.score - other.score,
        },
    }


def _numbers(scores: Scores) -> dict[str, Any]:
    named = {"accuracy": scores.accuracy, "control": scores.control, "selectivity": scores.selectivity}
    if scores.f1:
        named["f1"] = scores.f1
    return {
        name: {"mean": statistics.fmean(values), "spread": spread(values), "values": values}
        for name, values in named.items()
    }
