"""Printed commands can be typed as shown."""

import shlex
from pathlib import Path

from mini_bert.common import invocation as typed
from mini_bert.common.invocation import broken, command, quoted, unbroken


def test_a_command_is_called_as_the_reader_called_us(monkeypatch):
    monkeypatch.delenv("MINI_BERT_CALLED_AS", raising=False)
    assert command("data show") == "mini-bert data show"
    monkeypatch.setenv("MINI_BERT_CALLED_AS", "python run.py")
    assert command("plot", Path("runs")) == "python run.py plot runs"


def test_any_path_is_one_word(monkeypatch):
    """A path is quoted as one word, for the shells of Linux and macOS and with double quotes on Windows."""
    monkeypatch.setattr(typed.os, "name", "posix")
    for path in ("runs/first", "my runs/it's", 'a "b" $HOME;rm', "~"):
        assert shlex.split(quoted(path)) == [path]
    monkeypatch.setattr(typed.os, "name", "nt")
    assert quoted("C:\\my runs\\first") == '"C:\\my runs\\first"' and quoted("C:\\runs") == "C:\\runs"


def test_unbroken_text_comes_back():
    assert broken(unbroken("a b  c")) == "a b  c" and " " not in unbroken("a b")
