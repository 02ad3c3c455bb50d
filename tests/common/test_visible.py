"""Control characters in texts of others."""

import io
import logging
import sys
import warnings

import pytest

from mini_bert.cli.main import interruptible, main
from mini_bert.common.progress import showing
from mini_bert.common.visible import Visible, visible
from mini_bert.training.display import Display

OWNED = "\x1b]0;owned\x07"  # a new title for the terminal's window


def test_control_characters_are_written_out():
    """Escape sequences, bells and carriage returns become readable; letters, tabs and line ends stay."""
    assert visible("a\x1b[31m\x07\r\x9b é\t\n日") == "a\\x1b[31m\\x07\\x0d\\x9b é\t\n日"


def test_stream_passes_the_rest_on():
    """A Visible stream has the other one's attributes."""
    memory = io.StringIO()
    print("a\x1bb", file=Visible(memory))
    assert memory.getvalue() == "a\\x1bb\n"
    assert not Visible(memory).isatty()


def test_warnings_of_commands_are_filtered(capsys, monkeypatch):
    """Log records, Python's warnings and other messages on standard error; afterwards it is as before."""
    monkeypatch.setattr(logging.getLogger(), "handlers", [])  # those of pytest

    def say():
        logging.getLogger("mini_bert.data.shards").warning("a file named %s", OWNED)
        warnings.warn(OWNED, stacklevel=1)
        sys.stderr.writelines([OWNED, "\n"])

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = lambda message, *_: print(message, file=sys.stderr)  # pytest records them instead
        interruptible(say)()
    print("after \x1b", file=sys.stderr)
    said = capsys.readouterr().err
    assert said.count("\\x1b]0;owned\\x07") == 3 and said.count("\x1b") == 1


@pytest.mark.parametrize("bars", [False, True], ids=["board", "bars"])
def test_drawing_is_not_filtered_but_its_texts_are(tmp_path, capsys, monkeypatch, bars):
    """On a terminal rich draws with escape sequences; names, notes, warnings and printed lines have none. Names are no
    markup, either."""
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)

    def draw():
        with showing() if bars else Display(tmp_path, 10, None) as it:
            it(f"reading {OWNED} [/b]", OWNED, 1, 2) if bars else it.note(f"reading {OWNED} [/b]")
            logging.getLogger("mini_bert.data.shards").warning("a file named %s", OWNED)
            print(f"printed {OWNED}", file=sys.stderr)

    before = sys.stderr
    interruptible(draw)()
    assert sys.stderr is before
    said = capsys.readouterr().err
    assert "\x1b[" in said and "\x1b]0;owned" not in said and "\x07" not in said
    for words in ("reading ", "a file named ", "printed "):
        assert f"{words}\\x1b]0;owned\\x07" in said
    assert "[/b]" in said
    assert bars or "\x1b" not in (tmp_path / "training.log").read_text(encoding="utf-8")


def test_commands_print_no_escape_sequences(capsys):
    """A text with escape codes does not reach the terminal raw, and standard output is as before afterwards."""
    try:
        main(["tokenizer", "show", "cat \x1b[31m"])
    except SystemExit as end:
        assert not end.code
    print("after \x1b")
    printed = capsys.readouterr().out
    assert "cat" in printed
    assert printed.count("\x1b") == 1
