"""Pictures of what is inside a model: the numbers of its layers while it reads, and its vectors on a plane.

    activation_statistics(layer_statistics(model, ids)).savefig("activations.png")
    embedding_pca(vectors, labels, groups).savefig("embeddings.png")          vectors (N,H)

A plane shows two of H directions: the two along which the vectors differ most (principal components). The axes say how
much of all variance each holds; what lies along the others is not seen, so points that meet here may be far apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from mini_bert.common.progress import counted
from mini_bert.inference.loading import DEFAULT_MODEL, load
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
    picture_path,
    plain,
    save,
    spread,
)

if TYPE_CHECKING:
    from mini_bert.inside.layer_statistics import LayerStatistics

ROW = 0.24  # inches for a place
SENTENCES = 200  # of synthetic English, when no text is given
TOKENS = 1024  # that are computed at a time
LABEL = 32  # characters of a label
OFFSETS = ((1, 0), (-1, 0), (0, 1), (0, -1), (1, 1), (-1, 1), (1, -1), (-1, -1))  # where a label may stand
OF = ("tokens", "sentences")


# --- activations -------------------------------------------------------------------------------------------


def activation_statistics(statistics: Sequence[LayerStatistics], title: str = "") -> Figure:
    """Place by place, from the input at the top: spread of the numbers, their mean and deviation, ReLU's share"""
    if not statistics:
        raise ValueError("no statistics to draw; layer_statistics(model, ids) makes them")
    rows = range(len(statistics))
    figure = new_figure(12.0, max(3.6, ROW * len(statistics) + 1.7))
    values, moments, units = figure.subplots(1, 3, sharey=True, width_ratios=(1.4, 1, 0.9))
    if title:
        (line,), font = lettering([title], 110)
        figure.suptitle(line, fontsize=11, fontweight="bold", **font)
    for row, place in zip(rows, statistics, strict=True):
        spread(values, row, place.percentiles)
    dress(values, "values", "middle half thick, 1 % to 99 % thin")
    values.axvline(0, color=GREY, linewidth=0.6)
    values.set_yticks(list(rows), [plain(place.name) for place in statistics], fontsize=8)
    values.set_ylim(len(statistics) - 0.5, -0.5)

    style: dict[str, Any] = {"linestyle": "none", "markersize": 5}
    moments.plot([place.std for place in statistics], rows, "o", color=COLOURS[0], label="deviation", **style)
    moments.plot([place.mean for place in statistics], rows, "D", color=COLOURS[1], label="mean", **style)
    moments.axvline(0, color=GREY, linewidth=0.6)
    dress(moments, "mean and standard deviation", "")
    _legend(moments, len(rows))

    inner = [(row, place) for row, place in zip(rows, statistics, strict=True) if place.active is not None]
    units.plot(
        [100 * (p.active or 0) for _, p in inner],
        [r for r, _ in inner],
        "o",
        color=COLOURS[2],
        label="numbers above 0",
        **style,
    )
    units.plot(
        [100 * (p.dead or 0) for _, p in inner],
        [r for r, _ in inner],
        "X",
        color=COLOURS[1],
        label="dead units",
        **style,
    )
    dress(units, "inside the feed-forward", "per cent")
    most = max((100 * max(place.active or 0, place.dead or 0) for _, place in inner), default=0)
    units.set_xlim(-0.03 * max(most, 20), 1.1 * max(most, 20))
    _legend(units, len(rows))
    return figure


def _legend(panel: Axes, rows: int) -> None:
    """Below the panel, where no point can be: half an inch under its axis"""
    below = -0.5 / max(2.0, ROW * rows)
    panel.legend(fontsize=8, frameon=False, loc="upper center", bbox_to_anchor=(0.5, below), ncols=2)


# --- vectors on a plane ------------------------------------------------------------------------------------


class Projection(NamedTuple):
    points: np.ndarray  # (N,K)
    shares: np.ndarray  # (K,) of all variance
    directions: np.ndarray  # (K,H), of length 1
    centre: np.ndarray  # (H,)


def pca(vectors: np.ndarray, count: int = 2) -> Projection:
    """The `count` directions of largest variance. Each is turned so that its largest number is positive"""
    vectors = np.asarray(vectors, float)
    if vectors.ndim != 2 or len(vectors) < 2:
        raise ValueError(f"vectors have shape {vectors.shape}, expected (N,H) with N at least 2")
    centre = vectors.mean(0)
    _, lengths, directions = np.linalg.svd(vectors - centre, full_matrices=False)
    variance = lengths**2
    if len(directions) < count:  # fewer points or dimensions than asked for: the others hold nothing
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
    """Vectors (N,H) as points; a label for each, where there is room; groups differ in colour and in form"""
    for name, given in (("labels", labels), ("groups", groups)):
        if given is not None and len(given) != len(vectors):
            raise ValueError(f"there are {len(given)} {name} for {len(vectors)} vectors; expected one for each")
    points, shares, *_ = pca(vectors)
    figure = new_figure(8.5, 7.0)
    panel = figure.subplots()
    names = list(dict.fromkeys(groups)) if groups is not None else [""]
    if groups is not None and len(names) > len(COLOURS):  # large groups get a colour of their own
        names.sort(key=groups.count, reverse=True)
    shown, font = lettering(names, LABEL)
    for index, (name, label) in enumerate(zip(names, shown, strict=True)):
        own = points if groups is None else points[[group == name for group in groups]]
        panel.scatter(
            own[:, 0], own[:, 1], s=22, color=colour(index), marker=marker(index), label=label, linewidths=0, alpha=0.85
        )
    dress(panel, "", f"first component, {shares[0]:.1%} of the variance", f"second, {shares[1]:.1%}")
    (line,), face = lettering([title], 110)
    panel.set_title(line, fontsize=10, **face)
    panel.margins(0.08)
    panel.set_aspect("equal", "datalim")  # a centimetre is as much across as up: distances may be compared
    if groups is not None:
        legend = panel.legend(fontsize=8, frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
        for text in legend.get_texts():
            text.set_fontfamily(font["family"])
    if labels is not None:
        left_out = _label(figure, panel, points, labels)
        if left_out:
            panel.annotate(
                f"{left_out} of {len(labels)} labels left out for want of room", (1, 0), (0, 3), fontsize=7, color=GREY,
                ha="right", va="bottom", xycoords="axes fraction", textcoords="offset points",
            )  # fmt: skip
    return figure


def _label(figure: Figure, panel: Axes, points: np.ndarray, labels: Sequence[str]) -> int:
    """Put each label beside its point where it meets no other and no point; -> how many found no place"""
    shown, font = lettering(labels, LABEL)
    figure.draw_without_rendering()  # the layout is settled; labels do not take part in it
    figure.set_layout_engine("none")
    dots = panel.transData.transform(points)
    scale = figure.dpi / 72  # pixels a point
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


# --- commands ----------------------------------------------------------------------------------------------


def activations_command(model: str = DEFAULT_MODEL, file: str | None = None, out: str = "activations.png") -> None:
    """Draw what the numbers in each layer look like on a text of yours, or on synthetic English, and print them"""
    from threadpoolctl import threadpool_limits

    from mini_bert.common.batching import padded
    from mini_bert.inside.layer_statistics import layer_statistics

    path = picture_path(out)
    texts, source = _texts(file)
    loaded, tokenizer = load(model)
    limit = loaded.max_length
    rows = sorted((tokenizer.encode(text, truncation=True, max_length=limit, special=False) for text in texts), key=len)
    every = max(1, TOKENS // len(rows[-1]))
    batches = [padded(rows[start : start + every], tokenizer.pad_id) for start in range(0, len(rows), every)]
    with threadpool_limits(1, "blas"):
        statistics = layer_statistics(loaded, batches)
    tokens = sum(map(len, rows))
    save(activation_statistics(statistics, f"{model} on {counted(tokens, 'token')}: {source}"), path)
    print(f"{counted(tokens, 'token')}: {source}")
    print(f"{'':18}{'mean':>8}{'std':>8}{'1 %':>9}{'median':>9}{'99 %':>9}{'above 0':>9}{'dead':>7}")
    for place in statistics:
        low, _, middle, _, high = place.percentiles
        line = f"{place.name:18}{place.mean:8.3f}{place.std:8.3f}{low:9.3f}{middle:9.3f}{high:9.3f}"
        print(line + (f"{place.active:9.1%}{place.dead:7.1%}" if place.active is not None else ""))
    print(path)


def embeddings_command(
    texts: Sequence[str] | None = None,
    model: str = DEFAULT_MODEL,
    file: str | None = None,
    of: str = "sentences",
    out: str = "embeddings.png",
) -> None:
    """Draw sentences, or words of the vocabulary, as points on a plane

    A .tsv, .csv or .jsonl file with labels colours its sentences by label. With nothing given: the words of our
    synthetic English, coloured by part of speech, or its sentences, by sentiment.
    """
    if of not in OF:
        raise ValueError(f"of is {of!r}, expected one of {', '.join(OF)}")
    if texts and file is not None:
        raise ValueError("give texts or a file of them, not both")
    path = picture_path(out)
    loaded, tokenizer = load(model)
    if of == "tokens":
        words, groups, source = _words(texts, file)
        known = [(word, group) for word, group in zip(words, groups, strict=True) if len(tokenizer.tokenize(word)) == 1]
        if len(known) < 2:
            raise ValueError(
                f"of {counted(len(words), 'word')}, {len(known)} are single tokens of this vocabulary; give at least "
                "two that are (`mini-bert tokenizer show` tells)"
            )
        names = [word for word, _ in known]
        vectors = loaded.tokens.table.data[[tokenizer.ids([word])[0][0] for word in names]]
        title = f"{model}: {counted(len(names), 'token')} of the embedding table, {source}"
        figure = embedding_pca(vectors, names, _or_none([group for _, group in known]), title)
    else:
        from mini_bert.inference.embed import embed

        names, groups, source = _sentences(texts, file)
        if len(names) < 2:
            raise ValueError("one sentence makes no picture; give at least two")
        vectors = embed(loaded, tokenizer, names)
        title = f"{model}: {counted(len(names), 'sentence')}, {source}"
        figure = embedding_pca(vectors, names, _or_none(groups), title)
    save(figure, path)
    print(path)


def _or_none(groups: Sequence[str]) -> Sequence[str] | None:
    return groups if any(groups) else None


def _texts(file: str | None) -> tuple[list[str], str]:
    from mini_bert.inference.embed import read_lines

    if file is not None:
        return read_lines(file), "standard input" if file == "-" else Path(file).name
    from mini_bert.data.synthetic.dataset import SYNTHETIC, sentences

    return [" ".join(one.words) for one in sentences(SENTENCES, seed=0)], SYNTHETIC


def _words(texts: Sequence[str] | None, file: str | None) -> tuple[list[str], list[str], str]:
    """Words, the group of each ("" if none), and where they come from; each word once"""
    if texts or file is not None:
        given = list(texts or ()) or _texts(file)[0]
        words = list(dict.fromkeys(word for text in given for word in text.split()))
        return words, [""] * len(words), "as given" if texts else Path(str(file)).name
    from mini_bert.data.synthetic.dataset import SYNTHETIC, sentences

    tags: dict[str, str] = {}
    for one in sentences(SENTENCES, seed=0):
        for word, tag in zip(one.words, one.tags, strict=True):
            if tag != "PUNCT":
                tags.setdefault(word.lower(), tag)
    return list(tags), list(tags.values()), SYNTHETIC


def _sentences(texts: Sequence[str] | None, file: str | None) -> tuple[list[str], list[str], str]:
    if texts:
        return list(texts), [""] * len(texts), "as given"
    if file is not None:
        from mini_bert.corpora.formats import format_of

        if format_of(file) in ("tsv", "csv", "jsonl"):
            from mini_bert.data.labelled.readers import ColumnError, read_labelled

            try:
                read = read_labelled(file)
            except ColumnError as error:
                raise error.with_remedy("Head the columns of the file text and label") from None
            return [one.text for one in read], [one.label for one in read], Path(file).name
        found, source = _texts(file)
        return found, [""] * len(found), source
    from mini_bert.data.synthetic.dataset import SYNTHETIC, labelled

    examples = labelled(60, seed=0)
    return [one.text for one in examples], [one.label for one in examples], SYNTHETIC
