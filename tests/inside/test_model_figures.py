"""Figures of a model: no text is cut off, PNG and SVG work, no global state changes, and numbers are correct."""

import io
import sys
import warnings
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from mini_bert.cli.inside import plot_activations, plot_embeddings
from mini_bert.common.batching import padded
from mini_bert.inside import inputs
from mini_bert.inside.attention_figures import attention_grid, attention_map
from mini_bert.inside.layer_statistics import layer_statistics, measured
from mini_bert.inside.model_figures import activation_statistics, embedding_pca, pca
from mini_bert.inside.saliency import Saliency
from mini_bert.layers.encoder import Recompute
from mini_bert.layers.packed import Packed
from mini_bert.models.bert import Bert, BertConfig
from mini_bert.models.config import MiniBertConfig
from mini_bert.models.mini import MiniBERT
from mini_bert.plots import style as plots_style
from mini_bert.plots.style import lettering, shades
from mini_bert.text.wordpiece import WordPieceTokenizer

matplotlib = pytest.importorskip("matplotlib")

MINI = MiniBertConfig(vocab_size=31, hidden_size=10, num_layers=3, num_heads=2, intermediate_size=13, max_seq_length=11)
BERT = BertConfig(
    vocab_size=31, hidden_size=10, num_hidden_layers=3, num_attention_heads=2, intermediate_size=13,
    max_position_embeddings=11,
)  # fmt: skip
ODD = [
    "[CLS]",
    "שלום",
    "##ات",
    "привет",
    "中国",
    "हिन्दी",
    "🙂",
    "$x$",
    "_a",
    "\\frac",
    "e\u0301",
    "<b>",
    "a\tb",
    "",
    "[SEP]",
]
LONG = ["internationalisationally", "##counterrevolutionaries" * 3]


@pytest.fixture(autouse=True)
def coarse(monkeypatch):
    """A lower resolution draws faster."""
    monkeypatch.setattr(plots_style, "DPI", 50)


def texts_of(figure):
    """Lay out the figure and return its texts, all of which must be on the page; a missing glyph is a warning"""
    figure.draw_without_rendering()
    axes = [axis for panel in figure.get_axes() for axis in (panel.xaxis, panel.yaxis)]
    beyond = {id(tick.label1) for axis in axes for tick in axis.get_major_ticks()}  # matplotlib keeps some in reserve
    beyond -= {id(tick.label1) for axis in axes for tick in axis._update_ticks()}
    texts, page = [], figure.bbox
    for text in figure.findobj(matplotlib.text.Text):
        if text.get_visible() and text.get_text().strip() and id(text) not in beyond:
            box = text.get_window_extent()
            assert box.x0 >= 0 and box.y0 >= 0 and box.x1 <= page.x1 and box.y1 <= page.y1, (text, box, page)
            texts.append(text.get_text())
    return texts


def heads(T, L=2, A=3):
    """Weights, mostly on one token each: non-zero weights are printed into small maps, and drawing text is slow"""
    return np.random.default_rng(T).dirichlet(np.full(T, 0.02), size=(L, A, T))


def of(tokens):
    scores = np.linspace(-1, 2, len(tokens)) if len(tokens) > 1 else np.zeros(1)
    return Saliency("log p(中国) at token 3, masked", 3, -2.0, list(tokens), scores)


# --- attention ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tokens", [["[SEP]"], [*ODD, *LONG], ["gyroscope"] * 64], ids=["one", "odd", "64"])
def test_a_map_names_every_token(tokens):
    """One token, any script, long tokens, 64 tokens: all are labelled on both axes and under the bars, and none is cut
    off."""
    weights = heads(len(tokens))
    figure = attention_map(tokens, weights, 1, 2, saliency=of(tokens))
    texts = texts_of(figure)
    panel, _, bars = figure.get_axes()
    shown = lettering(tokens, 16)[0]
    for axis in (panel.xaxis, panel.yaxis, bars.xaxis):
        assert [label.get_text() for label in axis.get_ticklabels()] == shown
        assert all(label.get_fontsize() >= 7 for label in axis.get_ticklabels())
    assert "layer 1, head 2" in texts and max(map(len, shown)) <= 17
    np.testing.assert_array_equal(panel.images[0].get_array(), weights[1, 2])
    for axis in (panel.xaxis, panel.yaxis, bars.xaxis) if len(tokens) == 64 else ():  # names stand side by side
        boxes = sorted(
            (box.x0, box.x1) if axis.axis_name == "x" else (box.y0, box.y1)
            for box in (label.get_window_extent() for label in axis.get_ticklabels())
        )
        overlap = max(before[1] - after[0] for before, after in pairwise(boxes))
        assert overlap < 0.25 * (boxes[0][1] - boxes[0][0])  # a box is taller than its letters


def test_small_maps_have_their_weights_in_figures():
    """Up to 20 tokens, weights are printed: white on dark, black on light."""
    weights = np.zeros((1, 1, 2, 2))
    weights[0, 0] = [[0.9, 0.1], [0.001, 0.999]]
    figure = attention_map(["a", "b"], weights, 0, 0)
    assert {"90", "10", "100"} <= set(texts_of(figure))
    inks = {text.get_text(): text.get_color() for text in figure.get_axes()[0].texts}
    assert inks == {"90": "white", "10": "black", "100": "white"}
    assert not attention_map(["a"] * 21, heads(21), 0, 0).get_axes()[0].texts


def test_a_grid_of_all_heads():
    """One panel per head, all on one scale; labels only on the left and at the bottom; the title may contain
    anything."""
    figure = attention_grid(ODD, heads(len(ODD), 2, 2), title="$5_模型", saliency=of(ODD))
    texts = texts_of(figure)
    for layer in range(2):
        for head in range(2):
            assert f"layer {layer}, head {head}" in texts
    panels = figure.get_axes()[:4]
    assert [bool(panel.get_yticks().size) for panel in panels] == [True, False] * 2
    assert [bool(panel.get_xticks().size) for panel in panels] == [False] * 2 + [True] * 2
    assert {(panel.images[0].norm.vmin, panel.images[0].norm.vmax) for panel in panels} == {(0, 1)}


def test_a_grid_of_64_tokens_or_of_some_heads():
    """Up to 64 tokens are labelled; larger grids say where to find the labels. Heads can be chosen."""
    words = [f"word{number}" for number in range(64)]
    figure = attention_grid(words, heads(64), [(0, 0), (0, 1)])
    texts = texts_of(figure)
    assert sum(text.startswith("layer") for text in texts) == 2 and {"from token", "to token"} <= set(texts)
    assert all(texts.count(word) == 3 for word in words)  # at the left, and below both
    texts = texts_of(attention_grid(["word"] * 65, heads(65), [(0, 1), (1, 2)]))
    assert any("65 tokens" in text for text in texts) and "word" not in texts
    with pytest.raises(ValueError, match="no heads to draw"):
        attention_grid(["a"], heads(1), [])
    with pytest.raises(ValueError, match=r"weights have shape \(2, 3, 2, 2\), expected \(layers, heads, 1, 1\)"):
        attention_map(["a"], heads(2), 0, 0)


def test_bars_differ_in_more_than_colour():
    """Negative bars are hatched."""
    figure = attention_map(["a", "b", "c"], heads(3), 0, 0, saliency=of(["a", "b", "c"]))
    bars = figure.get_axes()[-1].patches
    assert {(bar.get_height() < 0, bar.get_hatch()) for bar in bars} == {(True, "////"), (False, None)}


# --- colours and letters -----------------------------------------------------------------------------------


def lab(red, green, blue):
    """sRGB to CIELAB, from the formulas of the standards"""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in (red, green, blue)]
    matrix = [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]
    xyz = np.array(matrix) @ linear / [0.95047, 1, 1.08883]
    f = np.where(xyz > (6 / 29) ** 3, np.cbrt(xyz), xyz / (3 * (6 / 29) ** 2) + 4 / 29)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def test_shades_are_steps_that_look_equal():
    """From white to dark, all steps have the same distance in CIELAB and get darker, also in greyscale."""
    colours = np.array([lab(*colour) for colour in shades(count=20)])
    steps = np.linalg.norm(np.diff(colours, axis=0), axis=1)
    assert steps.max() / steps.min() < 1.05
    assert (np.diff(colours[:, 0]) < -3).all() and colours[0, 0] == pytest.approx(100, abs=0.1)
    assert colours[-1, 0] < 25


def test_letters_without_a_font_are_written_as_numbers(monkeypatch):
    """No box, no warning: U+4E2D if no font has the character; a font that has it is used."""
    manager = matplotlib.font_manager.fontManager
    monkeypatch.setattr(manager, "ttflist", [font for font in manager.ttflist if font.name.startswith("DejaVu")])
    plots_style._fonts.cache_clear()
    texts, font = lettering(["中国", "cat", "a$b"], 24)
    assert texts == ["U+4E2DU+56FD", "cat", r"a\$b"] and font == {"family": ["DejaVu Sans"]}
    assert lettering(["中国人民"], 9)[0] == ["U+4E2DU+…"]
    plots_style._fonts.cache_clear()
    monkeypatch.setattr(plots_style, "_letters", lambda path: {ord("a")} if "Serif" in path else {ord("b")})
    assert lettering(["ab"])[1] == {"family": ["DejaVu Sans", "DejaVu Serif"]}
    plots_style._fonts.cache_clear()


# --- activations -------------------------------------------------------------------------------------------


def test_statistics_of_known_numbers():
    """Two tokens, four units: a unit that was never above 0 is dead."""
    found = measured("layer 0 inner", np.array([[0.0, 1, 0, 2], [0, 0, 3, 2]]))
    assert (found.mean, found.active, found.dead) == (1.0, 0.5, 0.25)
    assert found.std == pytest.approx(np.sqrt(10 / 8)) and found.percentiles[2] == 0.5
    assert measured("layer 0 output", np.ones((2, 2))).active is None


@pytest.mark.parametrize("model", [MiniBERT(MINI, seed=3), Bert(BERT, seed=3)], ids=["mini", "bert"])
def test_statistics_come_from_the_caches(model):
    """Layers are in order; padding does not count; several batches give the same as one; packed caches nearly
    the same."""
    ids, mask = padded([[2, 7, 8, 9, 3], [2, 5, 3]])
    found = layer_statistics(model, ids, mask)
    assert [place.name for place in found][:5] == [
        "embeddings", "layer 0 context", "layer 0 inner", "layer 0 output", "layer 1 context",
    ]  # fmt: skip
    assert len(found) == 10
    apart = layer_statistics(model, [(ids[:1], None), (ids[1:, :3], None)])
    y, cache = model.encode(ids, mask)
    assert found[-1].std == pytest.approx(y[mask.astype(bool)].std(), rel=1e-5)
    inner = cache.blocks[1].feed_forward.contract[mask.astype(bool)]
    assert found[5].active == pytest.approx((inner > 0).mean())
    for one, other in zip(found, apart, strict=True):
        np.testing.assert_allclose(one.percentiles, other.percentiles, rtol=1e-4, atol=1e-5)
        assert one.mean == pytest.approx(other.mean, abs=1e-5) and one.dead == other.dead
    blocks = model.encoder.blocks
    model.encoder.blocks = [Packed(block, "bfloat16") for block in blocks]
    for one, other in zip(found, layer_statistics(model, ids, mask), strict=True):
        assert one.std == pytest.approx(other.std, rel=0.02)
    model.encoder.blocks = [Recompute(block) for block in blocks]
    with pytest.raises(ValueError, match="without gradient checkpointing"):
        layer_statistics(model, ids, mask)
    model.encoder.blocks = blocks


def test_the_picture_of_activations():
    """Every layer is labelled; deviation, mean, active and dead units are drawn at their values."""
    ids, mask = padded([[2, 7, 8, 9, 3], [2, 5, 3]])
    found = layer_statistics(MiniBERT(MINI, seed=3), ids, mask)
    figure = activation_statistics(found, "tiny on 8 tokens")
    texts = texts_of(figure)
    assert {"embeddings", "layer 2 inner", "dead units", "standard deviation", "tiny on 8 tokens"} <= set(texts)
    _, moments, units = figure.get_axes()
    deviation, mean, _ = moments.get_lines()
    assert list(deviation.get_xdata()) == [place.std for place in found]
    active, dead = units.get_lines()
    assert list(dead.get_ydata()) == [2, 5, 8] and list(active.get_xdata()) == [
        100 * found[row].active for row in (2, 5, 8)
    ]
    assert active.get_marker() != dead.get_marker() and deviation.get_marker() != mean.get_marker()
    texts_of(activation_statistics([place._replace(name=f"layer {n}") for n in range(2) for place in found]))
    with pytest.raises(ValueError, match="no statistics to draw"):
        activation_statistics([])


# --- vectors on a plane ------------------------------------------------------------------------------------


def test_principal_components_of_a_known_cloud():
    """For points spread along two given directions, these are found, with their shares of the variance."""
    first, second = np.array([0.6, 0.8, 0, 0]), np.array([0, 0, 1, 0])
    along = np.array([[3, 0], [-3, 0], [0, 1], [0, -1]])
    points, shares, directions, centre = pca(5 + along @ np.stack([first, second]))
    np.testing.assert_allclose(directions, [first, second], atol=1e-12)
    np.testing.assert_allclose(points, along, atol=1e-12)
    np.testing.assert_allclose(shares, [0.9, 0.1])
    np.testing.assert_allclose(centre, 5)


def test_principal_components_of_little():
    """Two points have one direction, equal points none; one point is an error."""
    points, shares, *_ = pca(np.array([[0.0, 0], [1, 1]]))
    np.testing.assert_allclose(shares, [1, 0], atol=1e-12)  # how exactly LAPACK finds the 0 depends on the machine
    np.testing.assert_allclose(points[:, 1], 0, atol=1e-12)
    assert pca(np.ones((3, 1))).shares.tolist() == [0, 0]
    with pytest.raises(ValueError, match=r"expected \(N,H\) with N at least 2"):
        pca(np.ones((1, 4)))


@pytest.mark.peers
def test_principal_components_as_scikit_learn_has_them():
    """Points, shares and directions agree, except for the sign, which scikit-learn chooses differently."""
    decomposition = pytest.importorskip("sklearn.decomposition")
    vectors = np.random.default_rng(0).normal(size=(40, 7)) @ np.diag([5, 4, 3, 2, 1, 1, 1])
    found, theirs = pca(vectors, 3), decomposition.PCA(3).fit(vectors)
    np.testing.assert_allclose(found.shares, theirs.explained_variance_ratio_, atol=1e-12)
    np.testing.assert_allclose(np.abs((found.directions * theirs.components_).sum(1)), 1, atol=1e-12)
    np.testing.assert_allclose(np.abs(found.points), np.abs(theirs.transform(vectors)), atol=1e-10)


def test_the_picture_of_embeddings():
    """Shares on the axes, groups in the legend by colour and marker, and labels that overlap neither each other nor a
    point."""
    rng = np.random.default_rng(1)
    vectors = rng.normal(size=(60, 5))
    groups = ["verbs", "中"] * 30
    figure = embedding_pca(vectors, [f"word{n}" for n in range(59)] + [LONG[1]], groups, "words")
    assert figure.get_axes()[0].get_aspect() == 1  # distances in the picture are distances
    texts = texts_of(figure)
    shares = pca(vectors).shares
    assert f"first component, {shares[0]:.1%} of the variance" in texts and f"second, {shares[1]:.1%}" in texts
    assert "verbs" in texts and "words" in texts
    (panel,) = figure.get_axes()
    marks = panel.collections
    assert len(marks) == 2 and len(marks[0].get_offsets()) == 30
    assert not np.array_equal(marks[0].get_paths()[0].vertices, marks[1].get_paths()[0].vertices)
    boxes = [note.get_window_extent() for note in panel.texts if note.get_text().startswith("word")]
    assert len(boxes) > 30
    inside = panel.get_window_extent()
    dots = panel.transData.transform(pca(vectors).points)
    for number, box in enumerate(boxes):
        assert inside.x0 <= box.x0 and box.x1 <= inside.x1 and inside.y0 <= box.y0 and box.y1 <= inside.y1
        assert not any(box.overlaps(other) for other in boxes[number + 1 :])
        assert not any(box.x0 < x < box.x1 and box.y0 < y < box.y1 for x, y in dots)
    left_out = [text for text in texts if "not shown" in text]
    assert left_out == [] or len(boxes) + int(left_out[0].split()[0]) >= 59
    with pytest.raises(ValueError, match="there are 2 labels for 60 vectors"):
        embedding_pca(vectors, ["a", "b"])


def test_of_many_groups_the_large_have_colours_of_their_own():
    """Nine groups, seven colours: the first and the last are small, and share the colours of large ones."""
    groups = [name for name, size in zip("abcdefghi", (1, *[3] * 7, 1), strict=True) for _ in range(size)]
    (panel,) = embedding_pca(np.random.default_rng(0).normal(size=(len(groups), 3)), groups=groups).get_axes()
    assert [text.get_text() for text in panel.get_legend().get_texts()] == list("bcdefghai")
    marks = panel.collections
    assert len({tuple(mark.get_facecolor()[0]) for mark in marks[:7]}) == 7
    assert len({str(mark.get_paths()[0].vertices.tolist()) for mark in marks}) == 9


def test_points_in_one_place():
    """Twenty equal vectors still give a figure, with a note about the labels that are not shown."""
    figure = embedding_pca(np.ones((20, 3)), ["same"] * 20)
    texts = texts_of(figure)
    assert any("labels not shown" in text for text in texts)


# --- commands, and what no picture may do ------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "tiny"
    tokenizer = WordPieceTokenizer.load("8k")
    config = MiniBertConfig(
        vocab_size=len(tokenizer), hidden_size=8, num_layers=2, num_heads=2, intermediate_size=11, max_seq_length=16
    )
    MiniBERT(config, seed=5).save_pretrained(path)
    tokenizer.save(path)
    return str(path)


def test_the_commands(folder, tmp_path, capsys, monkeypatch):
    """Synthetic English by default, labelled as such; or your own texts or file; labels set colours; the path is
    printed."""
    monkeypatch.setattr(inputs, "SYNTHETIC_SENTENCES", 8)
    monkeypatch.chdir(tmp_path)
    plot_embeddings(["A cat sat.", "A dog lay down.", "Prices rose."], folder, out="three")
    assert capsys.readouterr().out == "three.png\n" and (tmp_path / "three.png").stat().st_size > 1000

    drawn = []
    monkeypatch.setattr(plots_style, "save", lambda figure, path: drawn.append((figure, path.name)))
    (tmp_path / "mine.txt").write_text("A cat sat.\nA dog lay down on the very long way home, and slept.\n")
    (tmp_path / "mine.tsv").write_text("sentence\tlabel\nA cat sat.\tgood\nA dog lay.\tbad\nIt slept.\tbad\n")
    plot_activations(folder)
    out = capsys.readouterr().out
    assert "synthetic English (mini_bert/data/synthetic)" in out and "layer 1 inner" in out
    assert out.endswith("activations.png\n")
    plot_activations(folder, "mine.txt", "mine.svg")
    assert capsys.readouterr().out.startswith("22 tokens: mine.txt\n")
    plot_embeddings(None, folder, "mine.tsv", out="labels.svg")
    plot_embeddings(None, folder, of="tokens", out="words.png")
    plot_embeddings(["one two three", "zyzzyvaqq"], folder, of="tokens", out="few.png")
    assert [name for _, name in drawn] == ["activations.png", "mine.svg", "labels.svg", "words.png", "few.png"]
    labels, words, few = (figure.get_axes()[0] for figure, _ in drawn[2:])
    assert [text.get_text() for text in labels.get_legend().get_texts()] == ["good", "bad"]
    assert "NOUN" in [text.get_text() for text in words.get_legend().get_texts()]
    assert few.get_legend() is None and len(few.collections[0].get_offsets()) == 3
    for arguments, message in (
        ({"texts": ["one"], "of": "letters"}, "--of is 'letters', expected tokens or sentences"),
        ({"texts": ["one"]}, "one sentence is not enough"),
        ({"texts": ["one", "zyzzyvaqq"], "of": "tokens"}, "of 2 words, 1 are single tokens"),
        ({"texts": ["one"], "file": "mine.txt"}, "not both"),
        ({"texts": ["one", "two"], "out": "a.docx"}, "ends in '.docx', which matplotlib cannot write"),
    ):
        with pytest.raises(ValueError, match=message):
            plot_embeddings(model=folder, **arguments)


def test_every_picture_as_png_and_svg_touches_nothing_global():
    """Each figure can be saved in both formats; rcParams and warning filters stay unchanged, and pyplot is not
    loaded."""
    before, filters = dict(dict.items(matplotlib.rcParams)), list(warnings.filters)
    tokens, (ids, mask) = ["[CLS]", "שלום", "中"], padded([[2, 7, 8, 9, 3]])
    for figure in (
        attention_grid(tokens, heads(3, 1, 2), saliency=of(tokens)),
        attention_map(tokens, heads(3), 0, 0),
        activation_statistics(layer_statistics(MiniBERT(MINI), ids, mask)),
        embedding_pca(np.eye(4), ["a", "b", "c", "d"]),
    ):
        assert type(figure) is import_module("matplotlib.figure").Figure
        for format, begin in (("png", b"\x89PNG"), ("svg", b"<?xml")):
            content = io.BytesIO()
            figure.savefig(content, format=format)
            assert content.getvalue().startswith(begin) and len(content.getvalue()) > 5000
    assert dict(dict.items(matplotlib.rcParams)) == before and warnings.filters == filters
    assert "matplotlib.pyplot" not in sys.modules


def test_a_saved_svg_has_colours_for_dark_pages(tmp_path):
    """The rule names the group that holds the whole figure, and appears once; other formats have none. The pictures of
    the documents have it, too."""
    for suffix in ("svg", "png"):
        plots_style.save(embedding_pca(np.eye(4), ["a", "b", "c", "d"]), tmp_path / f"a.{suffix}")
    root = ElementTree.fromstring((tmp_path / "a.svg").read_bytes())
    (style,) = (node.text for node in root.iter("{http://www.w3.org/2000/svg}style"))
    assert style.count("prefers-color-scheme: dark") == 1 and "#figure_1 { filter: invert" in style
    assert [node.get("id") for node in root if node.tag.endswith("}g")] == ["figure_1"]
    assert b"prefers-color-scheme" not in (tmp_path / "a.png").read_bytes()
    pictures = Path(__file__).parents[2] / "docs" / "pictures"
    for picture in pictures.glob("*.svg"):
        assert b"prefers-color-scheme" in picture.read_bytes(), picture.name
