"""Control characters in texts of others."""

import io

from mini_bert.cli.main import main
from mini_bert.common.visible import Visible, visible


def test_control_characters_are_written_out():
    """Escape sequences, bells and carriage returns become readable; letters, tabs and line ends stay."""
    assert visible("a\x1b[31m\x07\r\x9b é\t\n日") == "a\\x1b[31m\\x07\\x0d\\x9b é\t\n日"


def test_stream_passes_the_rest_on():
    """A Visible stream has the other one's attributes."""
    memory = io.StringIO()
    print("a\x1bb", file=Visible(memory))
    assert memory.getvalue() == "a\\x1bb\n"
    assert not Visible(memory).isatty()


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
