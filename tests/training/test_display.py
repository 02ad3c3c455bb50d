"""The training display: a live board on a terminal, plain lines elsewhere, and always training.log."""

import doctest
import io
import json
import logging
import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
from rich.console import Console

from mini_bert.training import board as board_module
from mini_bert.training import display as module
from mini_bert.training.board import BLOCKS, ROWS, Board, curve
from mini_bert.training.display import Display, collected_warnings, eval_line, train_line
from tests.training.made_up import made_up_run

RUN = made_up_run()


def board(records, total=4000, minutes=None):
    drawn = Board(total, minutes)
    for record in records:
        drawn.take(record)
    return drawn


def drawn(records, width, **kwargs):
    """The board as a terminal of this width shows it, without colours."""
    console = Console(record=True, force_terminal=True, width=width, file=io.StringIO())
    console.print(board(records, **kwargs))
    return console.export_text().splitlines()


@pytest.mark.parametrize("width", [60, 80, 120])
def test_the_board_shows_everything(width):
    """Progress bar, time left, loss curve with the unigram baseline, and all numbers, at any width; nothing is
    cut off."""
    lines = drawn(RUN[:50], width)
    held = next(record["loss"] for record in RUN if record["kind"] == "eval" and record["step"] == 2000)
    text = "\n".join(lines)
    assert max(map(len, lines)) <= width and "…" not in text
    for words in (
        "step 2,250 of 4,000",
        "56%",
        "1:45 left",
        "6.51┤",  # the unigram baseline, at its height
        "unigram baseline",
        f"held-out loss {held:.3f}",
        "learning rate 4.9e-04",
        "34,000",
        "180 MB",
        "gradient norm",
        "accuracy",
    ):
        assert words.replace(" ", "") in text.replace(" ", ""), words


@pytest.mark.parametrize("count", [0, 1, 2, 3])
def test_the_board_before_there_is_much_to_show(count):
    """The first moments of a run are drawn, too, with dashes for unknown values."""
    lines = drawn(RUN[:count], 80)
    assert lines[0].startswith("step") and lines[-1].startswith("learning rate")


def test_the_curve_has_the_shape_of_the_numbers():
    """In each column the height is the loss, from one eighth for the lowest to the top for the highest."""
    rows = curve([4.0, 3.0, 2.0, 1.0], 10, 2, 1.0, 4.0)
    heights = [sum(BLOCKS.index(row[column]) for row in rows) for column in range(4)]
    assert heights == [16, 11, 6, 1]
    assert curve([1.0, 1.0], 10, 3, 1.0, 1.0) == ["  ", "▄▄", "██"]  # nothing moves: half-way up


def test_a_terminal_without_block_characters():
    """If the encoding is not Unicode, everything is ASCII."""
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding="ascii")  # an impossible character would be an error here
    console = Console(force_terminal=True, color_system=None, width=80, file=file)
    console.print(board(RUN[:50]))
    file.flush()
    text = raw.getvalue().decode("ascii")
    assert "6.51|" in text and "#" in text and "- unigram baseline -" in text


def test_a_run_by_the_clock():
    """With minutes instead of steps, the progress bar follows the time."""
    record = {"kind": "train", "step": 70, "loss": 7.0, "seconds": 60.0, "eta": 180.0}
    assert board([record], total=None, minutes=4.0).done() == 0.25
    assert board([record | {"eta": None}], total=None, minutes=4.0).done() == 0.25
    assert "step 70 " in drawn([record], 80, total=None, minutes=4.0)[0]


def test_the_time_left_runs_down(monkeypatch):
    """Between two records, the time left counts down."""
    now = time.monotonic()
    monkeypatch.setattr(module.time, "monotonic", lambda: now)
    shown = board([{"kind": "train", "step": 1, "eta": 90.0}])
    now += 30
    console = Console(record=True, force_terminal=True, width=80, file=io.StringIO())
    console.print(shown)
    assert "1:00 left" in console.export_text()


def test_losses_that_are_no_numbers():
    """NaN is not a point of the curve, and does not stop the drawing."""
    bad = [{"kind": "train", "step": 100 + i, "loss": float("nan"), "grad_norm": float("inf")} for i in range(3)]
    shown = board(RUN[:5] + bad)
    assert len(shown.losses) == 4
    assert "gradient norm  -" in "\n".join(drawn(RUN[:5] + bad, 80))


def test_a_resumed_board_forgets_what_is_done_again():
    """After a resume, the curve continues from the checkpoint."""
    shown = board([*RUN[:10], {"kind": "resume", "step": 200}])
    assert [step for step, _ in shown.losses] == [50, 100, 150, 200]


def test_a_resumed_run_shows_what_was_before(tmp_path):
    """When a new process resumes a run, the board shows its curve, its unigram baseline and its last evaluation."""
    records = [*RUN[:20], {"kind": "resume", "step": 700}]
    (tmp_path / "metrics.jsonl").write_text("\n".join(map(json.dumps, records)), encoding="utf-8")
    with Display(tmp_path, 4000, None, quiet=True) as display:
        display.record(records[-1])
        display.record(RUN[16])
    assert [step for step, _ in display.board.losses] == list(range(50, 800, 50))
    assert display.board.baseline == 6.51 and display.board.latest["eval"]["step"] == 500


def test_plain_lines_off_a_terminal(tmp_path, capsys):
    """The first and the last record and all evaluations are printed; the same lines are in training.log."""
    with Display(tmp_path / "run", 4000, None) as display:
        display.note("hello [bold]")
        for record in RUN[:14]:
            display.record(record)
    captured = capsys.readouterr()
    assert captured.out == ""
    lines = captured.err.splitlines()
    assert lines == (tmp_path / "run" / "training.log").read_text(encoding="utf-8").splitlines()
    assert lines[0] == "hello [bold]"
    assert lines[1].startswith("step 50 of 4,000: loss 8.")
    assert lines[2].startswith("step 500 of 4,000: loss 6.")  # before its evaluation
    assert lines[3].startswith("step 500, held-out text: loss 6.") and "the unigram baseline)" in lines[3]
    assert lines[4].startswith("step 600 of 4,000") and len(lines) == 5


def test_at_most_one_line_every_ten_seconds(tmp_path, capsys, monkeypatch):
    """Records come faster than anyone can read."""
    now = 0.0
    monkeypatch.setattr(module.time, "monotonic", lambda: now)
    with Display(tmp_path, 100, None) as display:
        for step in range(100):
            now = step * 1.0
            display.record({"kind": "train", "step": step, "loss": 1.0})
    steps = [int(line.split()[1]) for line in capsys.readouterr().err.splitlines()]
    assert steps == [0, 10, 20, 30, 40, 50, 60, 70, 80, 90, 99]


def test_the_log_is_continued(tmp_path):
    """A resumed run appends to the log."""
    for words in ("first", "second"):
        with Display(tmp_path, 10, None, quiet=True) as display:
            display.note(words)
    assert (tmp_path / "training.log").read_text(encoding="utf-8") == "first\nsecond\n"


def test_quiet_means_quiet(tmp_path, capsys):
    """Nothing is printed; the log is written."""
    with Display(tmp_path, 4000, None, quiet=True) as display:
        display.note("hello")
        display.record(RUN[1])
    assert capsys.readouterr() == ("", "")
    assert len((tmp_path / "training.log").read_text(encoding="utf-8").splitlines()) == 2


def test_what_must_be_said_is_said_in_quiet_too(tmp_path, capsys, monkeypatch):
    """Required messages are printed once to standard error, also on a terminal, where nothing else is drawn."""
    for terminal in (False, True):
        monkeypatch.setattr(sys.stderr, "isatty", lambda terminal=terminal: terminal, raising=False)
        with Display(tmp_path, 4000, None, quiet=True) as display:
            display.note("hello")
            display.note("go on with --resume", must=True)
        assert capsys.readouterr() == ("", "go on with --resume\n")


def test_a_log_that_cannot_be_written_stops_nothing(tmp_path, capsys):
    """A full disk, or a folder in its place: reported once, and training continues."""
    (tmp_path / "training.log").mkdir()
    with Display(tmp_path, 4000, None) as display:
        display.note("one")
        display.note("two")
    err = capsys.readouterr().err
    assert err.count("cannot write") == 1 and err.startswith("one\n") and err.endswith("two\n")


def test_on_a_terminal(tmp_path, capsys, monkeypatch):
    """The board is drawn with messages above it, and the log still has the plain lines."""
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    with Display(tmp_path, 4000, None) as display:
        display.note("hello [bold]")
        for record in RUN[:14]:
            display.record(record)
        display.record({"kind": "nonfinite", "step": 620, "what": "loss", "tensors": ["head.w"]})
    captured = capsys.readouterr()
    assert captured.out == "" and "hello [bold]" in captured.err and "unigram baseline" in captured.err
    assert "step 620: the loss is no longer finite, first in head.w" in captured.err
    log = (tmp_path / "training.log").read_text(encoding="utf-8")
    assert "step 500, held-out text" in log and "┤" not in log


def test_a_dumb_terminal_gets_lines(tmp_path, capsys, monkeypatch):
    """If the cursor cannot be moved, there is no board."""
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    with Display(tmp_path, 4000, None) as display:
        display.record(RUN[1])
    assert capsys.readouterr().err.startswith("step 50 of 4,000: loss")


def test_an_error_passes_through_and_the_screen_is_left_in_order(tmp_path, monkeypatch, capsys):
    """Exceptions inside are not swallowed, and the last record is still printed."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    with pytest.raises(KeyboardInterrupt), Display(tmp_path, 4000, None) as display:
        display.record(RUN[1])
        display.record(RUN[2])
        raise KeyboardInterrupt
    assert capsys.readouterr().err.rstrip().endswith("\x1b[?25h")  # the cursor is back
    assert "step 100" in (tmp_path / "training.log").read_text(encoding="utf-8")


def test_records_with_little_in_them():
    """Missing fields are not printed, except that a missing loss is reported."""
    assert train_line({"kind": "train", "step": 7, "loss": None, "eta": None}) == "step 7: loss is not a finite number"


def test_height():
    """The board needs at most eleven lines of a small terminal."""
    assert len(drawn(RUN, 60)) == 1 + ROWS + 5 and len(drawn(RUN, 80)) == 1 + ROWS + 3


@pytest.mark.parametrize("tested", [module, board_module])
def test_examples_in_docstrings(tested):
    assert doctest.testmod(tested).failed == 0


def test_a_reader_who_left_does_not_stop_the_run(tmp_path, monkeypatch):
    """`mini-bert train 2>&1 | head -1`: the rest is written to training.log only."""

    class Gone:
        def write(self, text):
            raise BrokenPipeError

        def flush(self): ...

        def isatty(self):
            return False

    monkeypatch.setattr("sys.stderr", Gone())
    with Display(tmp_path, 10, None) as display:
        display.note("hello")
        display.record({"kind": "eval", "step": 1, "loss": 2.0})
    assert (tmp_path / "training.log").read_text().startswith("hello")


def test_what_is_said_at_the_end_stands_below_the_board(tmp_path, capsys, monkeypatch):
    """The command to resume is the last thing on the screen; the board is not drawn again after it."""
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    with Display(tmp_path, 4000, None) as display:
        for record in RUN[:14]:
            display.record(record)
        display.end()
        display.note("go on with --resume", must=True)
    assert capsys.readouterr().err.endswith("go on with --resume\n")
    assert (tmp_path / "training.log").read_text(encoding="utf-8").endswith("go on with --resume\n")


@pytest.mark.parametrize("configured", [False, True])
def test_warnings_are_on_the_screen_once_and_in_the_log(tmp_path, capsys, monkeypatch, configured):
    """Warnings during a run and before there was a log; also if the program has its own log handler."""
    log = logging.getLogger("mini_bert.training.checkpoint")
    root = [logging.StreamHandler(sys.stderr)] if configured else []
    monkeypatch.setattr(logging.getLogger(), "handlers", root)
    with collected_warnings() as said:
        log.warning("the text has %d odd bytes", 3)
    with Display(tmp_path, 4000, None) as display:
        for line in said:
            display.keep(line)
        log.warning("a checkpoint is damaged")
    log.warning("nobody listens any more")
    lines = ["the text has 3 odd bytes", "a checkpoint is damaged"]
    assert capsys.readouterr().err.splitlines() == [*lines, "nobody listens any more"]
    assert (tmp_path / "training.log").read_text(encoding="utf-8").splitlines() == lines


def test_an_error_that_ends_a_run_is_in_its_log(tmp_path):
    with pytest.raises(OSError), Display(tmp_path, 4000, None):
        raise OSError("the disk is full")
    assert (tmp_path / "training.log").read_text(encoding="utf-8") == "ended by an error: the disk is full\n"


HIDDEN = """
from pathlib import Path
from rich.live import Live
from mini_bert.common.progress import showing
from mini_bert.training.display import Display

def stop(self):
    raise KeyboardInterrupt  # the second Ctrl-C, before rich shows the cursor again

Live.stop = stop
with %s as it:
    raise KeyboardInterrupt
"""


@pytest.mark.skipif(os.name == "nt", reason="terminals of POSIX")
@pytest.mark.parametrize("what", ['Display(Path("out"), 10, None)', "showing()"])
def test_the_cursor_is_shown_again_after_a_second_ctrl_c(tmp_path, what):
    import pty

    screen, terminal = pty.openpty()
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2]), "TERM": "xterm-256color"}
    process = subprocess.Popen([sys.executable, "-c", HIDDEN % what], stderr=terminal, cwd=tmp_path, env=environment)
    os.close(terminal)
    drawn = b""
    with suppress(OSError):  # the end of a terminal
        while more := os.read(screen, 4096):
            drawn += more
    process.wait(timeout=20)
    os.close(screen)
    assert 0 <= drawn.rfind(b"\x1b[?25l") < drawn.rfind(b"\x1b[?25h"), drawn


def test_a_huge_perplexity_has_an_exponent():
    """That of a model that diverged is not printed with all its digits."""
    record = {"kind": "eval", "step": 3, "loss": 50.0, "perplexity": 5.1847e21, "top1": 0.0, "top5": 0.0}
    assert ", perplexity 5.2e21, top-1 " in eval_line(record)
