"""Progress is shown, on a terminal and elsewhere, and never mixes with a command's output."""

import doctest
import sys

import pytest

from mini_bert.common import progress as module
from mini_bert.common.progress import showing


def work(wanted=True):
    with showing(wanted) as show:
        for stage in ("reading", "merging"):
            for done in range(3):
                show(stage, f"{done} of 3 pieces", done, 3)


def test_plain_lines_off_a_terminal(capsys):
    """Each stage ends with a line that shows how far it got; nothing goes to standard output."""
    work()
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err == "reading: 2 of 3 pieces\nmerging: 2 of 3 pieces\n"


def test_a_line_now_and_then(capsys, monkeypatch):
    """Long stages print lines in between, with the fraction done."""
    monkeypatch.setattr(module, "EVERY", -1)
    work()
    assert "reading: 1 of 3 pieces, 33%\n" in capsys.readouterr().err


def test_nothing_if_not_wanted(capsys):
    """showing(False) is silent."""
    work(wanted=False)
    assert capsys.readouterr() == ("", "")


def test_bars_on_a_terminal(capsys, monkeypatch):
    """On a terminal the stages are drawn as bars."""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    work()
    err = capsys.readouterr().err
    assert "reading" in err and "merging" in err and "2 of 3 pieces" in err


def test_examples_in_docstrings():
    """Numbers and sizes are formatted as in the examples, with singular and plural."""
    assert doctest.testmod(module) == (0, 3)


def test_an_error_passes_through(capsys):
    """Exceptions inside the block are not swallowed."""
    with pytest.raises(KeyError), showing() as show:
        show("reading", "1", 1, None)
        raise KeyError("x")
