"""Figures of runs: their contents, that nothing is cut off, what happens without matplotlib; TensorBoard's files."""

import doctest
import json
import math
import re
import sys
from pathlib import Path

import pytest

from mini_bert.cli.training import plot
from mini_bert.plots import style as plots_style
from mini_bert.training import figures as plots
from mini_bert.training import tensorboard_hook
from mini_bert.training.board import Board
from mini_bert.training.doctor import diagnose
from mini_bert.training.figures import draw_runs, gradient_flow, loss_picture, training_curves
from mini_bert.training.history import read_run
from mini_bert.training.tensorboard_hook import tensorboard
from tests.training.made_up import made_up_run

NAMES = ["tokens.table", "head.w"] + [
    f"encoder.blocks.{block}.feed_forward.{part}" for block in range(2) for part in ("contract.w", "expand.b")
]


def tensors(step, scale=1.0):
    """A "tensors" record: gradients that grow from layer to layer."""
    found = {}
    for number, name in enumerate(NAMES, start=1):
        spread = [-3e-4 * number, -1e-5, 0.0, 1e-5, 2e-4 * number]
        found[name] = {"weight": 20.0, "gradient": 0.01 * number * scale, "update": 0.02, "ratio": 1e-3 * number}
        found[name] |= {"gradient_percentiles": spread, "update_percentiles": spread}
    return {"kind": "tensors", "step": step, "tensors": found}


def write(folder, records):
    folder.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(record) + "\n" for record in records)
    (folder / "metrics.jsonl").write_text(text, encoding="utf-8")
    return folder


@pytest.fixture(autouse=True)
def coarse(monkeypatch):
    """A lower resolution draws faster."""
    monkeypatch.setattr(plots_style, "DPI", 50)


@pytest.fixture
def run(tmp_path):
    return write(tmp_path / "first", [*made_up_run(), tensors(500), tensors(1000), tensors(2000)])


def seen(figure):
    """Draws the figure and returns the texts of its titles, labels, legends and named ticks; all must be on the
    page."""
    agg = pytest.importorskip("matplotlib.backends.backend_agg")
    agg.FigureCanvasAgg(figure).draw()
    texts = [figure._suptitle] if figure._suptitle else []
    for axes in figure.get_axes():
        texts += [axes.title, axes.xaxis.label, axes.yaxis.label, *axes.get_yticklabels()[1:-1]]
        texts += axes.get_legend().get_texts() if axes.get_legend() else []
    for part in figure.subfigs:
        texts += [text for legend in part.legends for text in legend.get_texts()]
    for text in texts:
        if text.get_visible() and text.get_text():
            box = text.get_window_extent()
            assert box.x0 >= -1 and box.y0 >= -1, text
            assert box.x1 <= figure.bbox.x1 + 1 and box.y1 <= figure.bbox.y1 + 1, text
    return [text.get_text() for text in texts]


def lines(axes):
    return {line.get_label(): (list(line.get_xdata()), list(line.get_ydata())) for line in axes.get_lines()}


def test_the_curves_of_one_run(run):
    """Training and held-out loss and the unigram baseline, as recorded; every label is on the page."""
    pytest.importorskip("matplotlib")
    figure = training_curves([run])
    texts = seen(figure)
    for words in ("first", "training", "held-out text", "unigram baseline 6.51", "learning rate", "loss", "step"):
        assert words in texts
    drawn = lines(figure.get_axes()[0])
    records = made_up_run()
    assert drawn["training"][1] == [record["loss"] for record in records if record["kind"] == "train"]
    assert drawn["held-out text"][0] == [500 * number for number in range(1, 9)]
    assert set(drawn["unigram baseline 6.51"][1]) == {6.51}


def test_a_run_of_an_older_version(tmp_path):
    """Older runs recorded the unigram entropy of the held-out text: it is drawn, diagnosed and displayed as the
    baseline."""
    start, *rest = made_up_run()
    new, old = write(tmp_path / "new", [start, *rest]), tmp_path / "old"
    start["unigram_entropy"] = start.pop("unigram_loss")
    write(old, [start, *rest])
    assert read_run(old).unigram_loss == read_run(new).unigram_loss == 6.51
    assert diagnose(old)[0].why == diagnose(new)[0].why and "below the unigram baseline of 6.51" in diagnose(old)[0].why
    assert list(tensorboard_hook.scalars(start)) == [("train/unigram_loss", 6.51)]
    board = Board()
    board.take(start)
    assert board.baseline == 6.51
    pytest.importorskip("matplotlib")
    assert set(lines(training_curves([old]).get_axes()[0])["unigram baseline 6.51"][1]) == {6.51}


def test_a_run_of_three_steps_has_no_half_ones(tmp_path):
    records = [{"kind": "train", "step": n, "loss": 6.0 - n, "accuracy": 0.1, "lr": 1e-3, "grad_norm": 1.0, "tokens": n,
                "tokens_per_second": 10.0, "seconds": float(n)} for n in (1, 2, 3)]  # fmt: skip
    figure = training_curves([write(tmp_path, records)])
    seen(figure)
    ticks = [tick for panel in figure.get_axes() if panel.get_xlabel() == "step" for tick in panel.get_xticks()]
    assert len(ticks) > 6 and all(tick == round(tick) for tick in ticks)


@pytest.mark.parametrize("count", [1, 3, 5])
def test_no_legend_covers_a_curve(tmp_path, count):
    """Legends are outside all panels, and cover no title or label."""
    pytest.importorskip("matplotlib")
    figure = training_curves([write(tmp_path / f"number {n}, a name", made_up_run(800)) for n in range(count)])
    seen(figure)
    legends = [axes.get_legend() for axes in figure.get_axes() if axes.get_legend()]
    assert len(legends) == count
    legends += [legend for part in figure.subfigs for legend in part.legends]
    assert len(legends) == count + (count > 1)
    for legend in legends:
        box = legend.get_window_extent()
        for axes in figure.get_axes():
            for other in (axes.bbox, axes.title.get_window_extent(), axes.xaxis.label.get_window_extent()):
                assert not box.overlaps(other) or other.width < 2, (legend, axes)


def test_three_runs_side_by_side(tmp_path):
    """A loss panel for each, on one scale, with the others in grey behind; colours and dashes all differ."""
    pytest.importorskip("matplotlib")
    runs = [write(tmp_path / name, made_up_run()) for name in ("small", "_hidden", "costs $5 and $6")]
    figure = training_curves(runs)
    texts = seen(figure)
    for name in ("small", "./_hidden", r"costs \$5 and \$6"):
        assert texts.count(name) == 2  # the title and the legend
    panels = figure.get_axes()[:3]
    assert {panel.get_ylim() for panel in panels} == {panels[0].get_ylim()}
    assert [sum(line.get_color() == plots_style.GREY for line in panel.get_lines()) for panel in panels] == [2, 2, 2]
    accuracy = figure.get_axes()[3].get_lines()
    assert len({line.get_color() for line in accuracy}) == len({str(line._dash_pattern) for line in accuracy}) == 3


def test_many_runs(tmp_path):
    """Five runs take two rows; equal names get their parent folders; if there are more runs than colours, dashes
    differ."""
    pytest.importorskip("matplotlib")
    runs = [write(tmp_path / f"{number} with a rather long name" / "same", made_up_run(200)) for number in range(5)]
    figure = training_curves(runs)
    assert "0 with a rather long name/same" in seen(figure)
    assert len(figure.get_axes()) == 5 + 3
    assert len({(plots_style.colour(index), str(plots_style.dash(index))) for index in range(28)}) == 28


def test_a_run_that_went_wrong(tmp_path):
    """NaN is not a point; the step where it happened is marked; an exploding norm gets a logarithmic scale."""
    pytest.importorskip("matplotlib")
    records = made_up_run(1000)
    for number, record in enumerate(records):
        record["grad_norm"] = math.exp(number / 3)
    records += [{"kind": "train", "step": 1050, "loss": math.nan}, {"kind": "nonfinite", "step": 1020, "what": "loss"}]
    figure = training_curves([write(tmp_path, records)])
    assert "not finite, step 1,020" in seen(figure)
    assert 1050 not in lines(figure.get_axes()[0])["training"][0]
    norm = figure.get_axes()[-1]
    assert norm.get_yscale() == "log"
    assert "100" in [label.get_text() for label in norm.get_yticklabels()]  # and not 10²


def test_gradients_by_tensor(run):
    """Every tensor is named, from the input to the head; the colours are the logarithms of the norms."""
    pytest.importorskip("matplotlib")
    figure = gradient_flow(run)
    texts = seen(figure)
    assert "first: gradients by tensor" in texts and "blocks.1.feed_forward.contract.w" in texts
    norms = figure.get_axes()[0]
    names = [label.get_text() for label in norms.get_yticklabels()]
    assert names[0] == "tokens.table" and names[-1] == "head.w" and names[1].startswith("blocks.0")
    grid = norms.collections[0].get_array()
    assert grid.shape == (6, 3) and grid[-1, 0] == pytest.approx(math.log10(0.02))  # head.w was recorded second
    update = figure.get_axes()[2].get_lines()[0]
    assert update.get_xdata()[-1] == 2e-3 and update.get_ydata()[-1] == 5


def test_gradients_with_holes(tmp_path):
    """Zero, null and missing numbers leave white cells, not errors; one record is enough."""
    pytest.importorskip("matplotlib")
    record = tensors(500)
    record["tensors"]["head.w"] = {"gradient": 0.0, "ratio": None, "gradient_percentiles": [None] * 5}
    record["tensors"]["tokens.table"] = {}
    seen(gradient_flow(write(tmp_path, [record])))
    for values in record["tensors"].values():
        values.clear()
    seen(gradient_flow(write(tmp_path, [record])))


def test_nothing_to_draw(tmp_path):
    """For an empty run, a run without gradients, or no run at all, the error says so."""
    write(tmp_path, [])
    with pytest.raises(ValueError, match=r"metrics.jsonl has no loss to draw yet"):
        training_curves([tmp_path])
    with pytest.raises(ValueError, match="no gradients by tensor yet"):
        gradient_flow(tmp_path)
    with pytest.raises(ValueError, match="at least one run folder"):
        training_curves([])


def test_the_picture_at_the_end_of_a_run(run, capsys):
    """training/loop.py gets True and a PNG; no other files are left; pyplot is not loaded."""
    pytest.importorskip("matplotlib")
    assert loss_picture(run, run / "loss.png")
    assert (run / "loss.png").read_bytes().startswith(b"\x89PNG")
    assert sorted(path.name for path in run.iterdir()) == ["loss.png", "metrics.jsonl"]
    assert "matplotlib.pyplot" not in sys.modules and capsys.readouterr() == ("", "")


def test_without_matplotlib(run, capsys, monkeypatch):
    """The run continues, and one line says which extra to install and how; the command says the same."""
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert not loss_picture(run, run / "loss.png")
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.startswith(
        "no loss.png: pictures are drawn by matplotlib (the extra `plots`)"
    )
    assert re.search(r"-m pip install matplotlib$", captured.err.strip()) and not (run / "loss.png").exists()
    said = []
    assert not loss_picture(run, run / "loss.png", said.append) and len(said) == 1
    with pytest.raises(ValueError, match="the extra `plots`"):
        list(draw_runs([run]))


def test_a_picture_that_cannot_be_drawn_stops_nothing(tmp_path, capsys):
    """For an empty run, the result is False and a reason."""
    write(tmp_path, [])
    assert not loss_picture(tmp_path, tmp_path / "loss.png")
    assert "has no loss to draw yet" in capsys.readouterr().err


def test_the_pictures_of_runs(run, tmp_path, monkeypatch):
    """One run: two figures in its folder. Several runs: one in the current folder."""
    figures = pytest.importorskip("matplotlib.figure")
    monkeypatch.setattr(plots, "new_figure", lambda *_: figures.Figure((2, 2), dpi=20))  # tiny, without a layout
    monkeypatch.chdir(tmp_path)
    assert list(draw_runs([run])) == [run / "loss.png", run / "loss-gradients.png"]
    assert list(draw_runs([run, run])) == [Path("runs.png")] and (tmp_path / "runs.png").exists()
    (path,) = draw_runs([write(tmp_path / "no gradients", made_up_run(200))], "pictures/mine")
    assert path == Path("pictures/mine.png") and (tmp_path / path).exists()
    with pytest.raises(ValueError, match=r"ends in '.docx', which matplotlib cannot write; try .png"):
        list(draw_runs([run], "mine.docx"))


def test_the_command(run, capsys):
    """Prints the paths of the figures."""
    pytest.importorskip("matplotlib")
    plot([run])
    assert capsys.readouterr().out.split() == [str(run / "loss.png"), str(run / "loss-gradients.png")]


def test_tensorboard(tmp_path):
    """TensorBoard's own reader finds every number at its step, and the distributions."""
    reading = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    hook = tensorboard(tmp_path)
    records = [*made_up_run(1000), tensors(500), {"kind": "checkpoint", "step": 1000}]
    for record in [*records, {"kind": "train", "step": 1050, "loss": math.nan}, {"kind": "stop", "step": 1050}]:
        hook(record)
    events = reading.EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    losses = [(event.step, event.value) for event in events.Scalars("train/loss")]
    expected = [(record["step"], record["loss"]) for record in records if record["kind"] == "train"]
    assert losses == [(step, pytest.approx(loss, rel=1e-6)) for step, loss in expected]
    assert [event.step for event in events.Scalars("held-out/loss")] == [500, 1000]
    assert events.Scalars("gradient/head.w")[0].value == pytest.approx(0.02)
    assert events.Scalars("train/unigram_loss")[0].value == pytest.approx(6.51)
    spread = events.Histograms("gradient_spread/head.w")[0].histogram_value
    assert spread.num == 100 and spread.max == pytest.approx(4e-4) and sum(spread.bucket) == 100


def test_tensorboard_after_a_resume(tmp_path):
    """Repeated steps are shown once."""
    reading = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    for records in (
        [{"kind": "train", "step": step, "loss": 1.0} for step in (50, 100, 150)],
        [{"kind": "resume", "step": 100}, {"kind": "train", "step": 150, "loss": 2.0}],
    ):
        hook = tensorboard(tmp_path)
        for record in [*records, {"kind": "stop", "step": 150}]:
            hook(record)
    events = reading.EventAccumulator(str(tmp_path / "tensorboard")).Reload().Scalars("train/loss")
    assert [(event.step, event.value) for event in events] == [(50, 1.0), (100, 1.0), (150, 2.0)]


def test_without_tensorboard(tmp_path, monkeypatch):
    """The error names the extra and the command that installs it."""
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    monkeypatch.setitem(sys.modules, "tensorboard.summary.writer.event_file_writer", None)
    with pytest.raises(ValueError, match=r"the extra `tensorboard`.*pip install tensorboard$"):
        tensorboard(tmp_path)


@pytest.mark.parametrize("module", [plots, plots_style, tensorboard_hook])
def test_examples_in_docstrings(module):
    assert doctest.testmod(module).failed == 0
