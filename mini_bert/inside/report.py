"""Output of the commands that look inside a model: tables as text, the analysis as JSON, a page or a figure.

print(report(analysis))          report_json(analysis)          draw(analysis, checked_path("heads.png"))
"""

from __future__ import annotations

import json
import os
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mini_bert.common.atomic import write_atomic
from mini_bert.common.progress import counted
from mini_bert.inside.attention_analysis import LIMITS, Analysis
from mini_bert.inside.attention_figures import attention_grid, attention_map
from mini_bert.inside.attention_maps import (
    TOP,
    AttentionMaps,
    about_columns,
    in_words,
    largest,
    most_attended,
    statistics_columns,
)
from mini_bert.inside.attention_page import attention_page
from mini_bert.inside.attention_relations import MIN_COUNT, Relations, relation_rows
from mini_bert.inside.layer_statistics import LayerStatistics
from mini_bert.inside.saliency import Saliency
from mini_bert.plots.style import picture_path, refuse_folder, save

ROWS = 12  # relations that are printed
BAR = 12  # characters of a bar
PAGES = (".html", ".htm")


def report(analysis: Analysis) -> str:
    """All tables as text."""
    parts = []
    if analysis.maps is not None:
        parts += [" ".join(analysis.maps.tokens), _in_words(analysis, analysis.maps)]
        parts += [_head_table(analysis, analysis.maps)]
        if len(analysis.heads) == 1:
            parts += [_token_table(analysis.maps, *analysis.heads[0])]
        if analysis.saliency:
            parts += [f"Which tokens one answer depends on:\n{saliency_table(analysis.saliency[0])}"]
        parts += [textwrap.fill(LIMITS, 100)]
    parts += ["\n".join(textwrap.fill(note, 100) for note in analysis.notes)] * bool(analysis.notes)
    if analysis.relations is not None:
        parts += [relation_table(analysis.relations, analysis.treebank, MIN_COUNT, ROWS, analysis.untrained)]
    return "\n\n".join(parts)


def _in_words(analysis: Analysis, maps: AttentionMaps) -> str:
    """A sentence for each head that has a simple pattern, or for the only one."""
    own = [one for one in analysis.statistics if (one.layer, one.head) in analysis.heads]
    plain = [one for one in own if one.pattern or len(own) == 1]
    lines = [f"Head {one.layer}.{one.head} {in_words(one, maps.marks)}." for one in plain]
    others = len(own) - len(plain)
    if others and plain:
        lines.append(f"The other {counted(others, 'head')} share their weight among several places.")
    return "\n".join(lines) or "No head gives more than half of its weight to one place."


def _head_table(analysis: Analysis, maps: AttentionMaps) -> str:
    names = statistics_columns(analysis.statistics, maps.marks)
    widths = {field: max(6, len(name)) + 2 for field, name in names.items()}
    heading = "".join(f"{name:>{widths[field]}}" for field, name in names.items())
    mostly = max(10, *(len(one.pattern) + 2 for one in analysis.statistics))
    lines = [f"{'head':6}{'mostly':{mostly}}{heading}  attends most to"]
    weights, seen = maps.within(), maps.seen()
    for one in analysis.statistics:
        if (one.layer, one.head) not in analysis.heads:
            continue
        attended = most_attended(maps.roles, weights[one.layer, one.head], visible=seen[one.layer])
        cells = "".join(f"{_cell(field, getattr(one, field)):>{width}}" for field, width in widths.items())
        lines.append(
            f"{f'{one.layer}.{one.head}':6}{one.pattern:{mostly}}{cells}  {_named(maps.tokens, attended)}".rstrip()
        )
    return "\n".join([*lines, textwrap.fill(f"head: layer.head, from 0. {about_columns(analysis.statistics)}", 100)])


def _cell(field: str, value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:.2f}" if field == "entropy" else f"{value:.1f}" if field == "distance" else f"{value:.0%}"


def _token_table(maps: AttentionMaps, layer: int, head: int) -> str:
    """One head, token by token."""
    width = max(map(len, maps.tokens))
    lines = [f"Layer {layer}, head {head}: the tokens that each token attends to most"]
    seen = maps.seen()[layer].sum(-1)
    for place, token in enumerate(maps.tokens):
        most = largest(maps.weights[layer, head, place], min(TOP, int(seen[place])))
        lines.append(f"{place:3}  {token:{width}}  {_named(maps.tokens, most)}")
    return "\n".join(lines)


def _named(tokens: Sequence[str], attended: Sequence[tuple[int, float]]) -> str:
    return ", ".join(f"{tokens[place]} {share:.0%}" for place, share in attended)


def saliency_table(saliency: Saliency) -> str:
    """Each token with its saliency and a bar, to the right if positive, to the left if negative."""
    block = "█" if "utf" in (sys.stdout.encoding or "").lower() else "#"
    width = max(map(len, saliency.tokens))
    reach = float(np.abs(saliency.scores).max()) or 1.0
    lines = [f"Gradient × input for {saliency.of} ({saliency.value:.2f}): + supports it, - opposes it"]
    for token, score in zip(saliency.tokens, saliency.scores.tolist(), strict=True):
        bar = block * round(abs(score) / reach * BAR)
        drawn = f"{bar:>{BAR}}|" if score < 0 else f"{'':{BAR}}|{bar}"
        lines.append(f"  {token:{width}} {round(score, 2) + 0.0:+7.2f}  {drawn}")  # + 0.0: no -0.00
    return "\n".join(lines)


def relation_table(
    relations: Relations, source: str, least: int = 1, most: int | None = None, untrained: Relations | None = None
) -> str:
    """The attention heads that follow a relation; the parameters are those of `relation_rows`."""
    title, columns, rows, notes = relation_rows(relations, source, least, most, untrained)
    first = f"Heads that follow a dependency relation: {title}"
    if not rows:
        return f"{first}\nno relation occurs {least} times or more"
    table = [columns, *rows]
    widths = [max(len(row[column]) for row in table) for column in range(len(columns))]
    lines = [
        "  ".join(
            f"{cell:{'<' if column in (0, 2, 3) else '>'}{widths[column]}}" for column, cell in enumerate(row)
        ).rstrip()
        for row in table
    ]
    return "\n".join([first, *lines, textwrap.fill(" ".join(notes), 100)])


def activation_table(statistics: Sequence[LayerStatistics]) -> str:
    lines = [f"{'':18}{'mean':>8}{'std':>8}{'1 %':>9}{'median':>9}{'99 %':>9}{'above 0':>9}{'dead':>7}"]
    for place in statistics:
        low, _, middle, _, high = place.percentiles
        line = f"{place.name:18}{place.mean:8.3f}{place.std:8.3f}{low:9.3f}{middle:9.3f}{high:9.3f}"
        lines.append(line + (f"{place.active:9.1%}{place.dead:7.1%}" if place.active is not None else ""))
    return "\n".join(lines)


def report_json(analysis: Analysis) -> str:
    """Everything, including all weights, as JSON."""
    content: dict[str, Any] = {"model": analysis.model}
    if analysis.maps is not None:
        content["tokens"] = analysis.maps.tokens
        content["stream"] = analysis.maps.stream
        content["notes"] = analysis.notes
        content["heads"] = [
            {**one._asdict(), "weights": _rounded(analysis.maps.weights[one.layer, one.head])}
            for one in analysis.statistics
            if (one.layer, one.head) in analysis.heads
        ]
        content["saliency"] = [{**one._asdict(), "scores": _rounded(one.scores)} for one in analysis.saliency]
    if analysis.relations is not None:
        scores = [{**score._asdict(), "gain": score.gain} for score in analysis.relations.best()]
        if analysis.untrained is not None:
            for score in scores:
                score["untrained"] = analysis.untrained.highest(score["relation"])
        content["treebank"] = analysis.treebank
        content["sentences"] = analysis.relations.sentences
        content["relations"] = scores
    return json.dumps(content, ensure_ascii=False)


def _rounded(values: np.ndarray) -> Any:
    """Nested lists of numbers, rounded to five decimals."""
    return np.round(values.astype(float), 5).tolist()


def checked_path(out: str | os.PathLike[str]) -> Path:
    """The file to draw into: a page or a picture. Raises before any work if it cannot be written."""
    path = Path(out)
    refuse_folder(out)
    if path.suffix.lower() not in PAGES:
        path = picture_path(path, besides=PAGES[0])
    if not path.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {path.parent} for {path.name}; create it first")
    return path


def draw(analysis: Analysis, path: Path) -> None:
    """Writes the page (.html), or a figure: the map of one head, or a grid of all chosen heads."""
    assert analysis.maps is not None
    if path.suffix.lower() in PAGES:
        write_atomic(path, attention_page(analysis).encode())
        return
    saliency = analysis.saliency[0] if analysis.saliency else None
    tokens, weights, visible = analysis.maps.tokens, analysis.maps.weights, analysis.maps.visible
    if len(analysis.heads) == 1:
        figure = attention_map(tokens, weights, *analysis.heads[0], saliency=saliency, visible=visible)
    else:
        title = f"Attention heads of {analysis.model}"
        figure = attention_grid(tokens, weights, analysis.heads, title, saliency, visible)
    save(figure, path)
