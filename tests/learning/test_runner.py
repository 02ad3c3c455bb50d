"""The runner: a learner's file runs in its own process, and whatever it does ends in a sentence."""

from __future__ import annotations

import json
import sys

import pytest
from typer.testing import CliRunner

from mini_bert.cli.main import app
from mini_bert.learning import course
from mini_bert.learning.course import done, exercises, find, overview, what_next
from mini_bert.learning.runner import check_file, judge

RIGHT = "def my_linear(x, W, b): return x @ W + b"


@pytest.fixture
def answer(tmp_path):
    """Writes an answer file in a folder with a space in its name."""
    folder = tmp_path / "my answers"
    folder.mkdir()

    def write(source: str | bytes):
        path = folder / "my_answer.py"
        path.write_bytes(source if isinstance(source, bytes) else source.encode())
        return path

    return write


@pytest.fixture(autouse=True)
def own_record(tmp_path, monkeypatch):
    monkeypatch.setenv("MINI_BERT_HOME", str(tmp_path / "home"))


def test_a_file_runs_in_its_own_process(answer, capfd):
    """What it prints appears on standard error; the verdict is not mixed up with it."""
    verdict = check_file(find("1.2"), answer("print('hello √')\nimport os; os.write(1, b'{}')\n" + RIGHT))
    assert verdict == (True, "")
    printed = capfd.readouterr()
    assert "hello √" in printed.err and "{}" in printed.err and not printed.out


def test_a_file_that_never_ends_is_stopped(answer):
    verdict = check_file(find("1.2"), answer("while True: pass"), seconds=1)
    assert verdict == (False, "Your code was stopped after 1 seconds. Does a loop never end?")


def test_a_file_that_ends_python_is_reported(answer):
    verdict = check_file(find("1.2"), answer("import os; os._exit(7)"))
    assert verdict == (False, "Your code ended the Python that ran it (exit code 7).")


@pytest.mark.parametrize(
    ("source", "part"),
    [
        (
            "def my_linear(x, W, b)\n    return x",
            "Line 1 of my_answer.py, `def my_linear(x, W, b)`, is not valid",
        ),
        ("import sys\nsys.exit(0)", "Your file calls exit()"),
        ("x = 1\ny = x / 0\n", "Line 2 of your code, `y = x / 0`, stopped with ZeroDivisionError: division by zero."),
        ("import nonsense_module", "ModuleNotFoundError: No module named 'nonsense_module'"),
        ("input('?')", "EOFError"),
        ("def f(): return f()\nf()", "RecursionError"),
        (b"\x00\x01", "my_answer.py"),
        ("#" * 1_000_001, "expected a short Python file"),
        ("", "You have not defined `my_linear`."),
        ("if __name__ == '__main__': 1 / 0\n" + RIGHT, None),
        ("from my_answer import my_linear", "ImportError"),
    ],
)
def test_errors_in_the_file_are_explained(answer, source, part, monkeypatch):
    """The learner's line, and what happened there; a demo below `if __name__ == "__main__"` does not run."""
    monkeypatch.setattr("builtins.input", lambda *_: (_ for _ in ()).throw(EOFError("no input")))
    monkeypatch.setattr("sys.path", [*sys.path])  # the folders of other answers must not be found here
    monkeypatch.delitem(sys.modules, "my_answer", raising=False)
    explanation = judge(find("1.2"), answer(source))
    assert explanation is None if part is None else part in explanation


def test_helpers_beside_the_file_can_be_imported(answer, monkeypatch):
    path = answer("from my_helper_for_1_2 import my_linear")
    (path.parent / "my_helper_for_1_2.py").write_text(RIGHT)
    monkeypatch.setattr("sys.path", [*sys.path])
    assert judge(find("1.2"), path) is None


# ------------------------------------------------------------------ the command


def test_the_command_lists_and_checks_and_remembers(answer):
    """`learn` says what is next; a right answer is ticked, a wrong one explained with exit code 1."""
    invoke = CliRunner().invoke
    first = invoke(app, ["learn"])
    assert first.exit_code == 0 and "Next: exercise 1.1" in first.stdout
    assert "learn/1_building_blocks.md" in first.stdout and "[x]" not in first.stdout
    wrong = invoke(app, ["learn", "check", "1.2", str(answer("def my_linear(x, W, b): return x @ W"))])
    assert wrong.exit_code == 1 and wrong.stdout.startswith("1.2 A linear layer: not yet.\n\n  The bias is missing")
    assert not done()
    right = invoke(app, ["learn", "check", "1.2", str(answer(RIGHT))])
    assert right.exit_code == 0 and right.stdout.startswith("1.2 A linear layer: right.\n\nNext: exercise 1.1")
    again = invoke(app, ["learn"]).stdout
    assert done() == {"1.2"} and "[x] 1.2" in again and "done.json; `mini-bert learn reset` forgets it." in again
    assert invoke(app, ["learn", "reset"]).stdout == "Forgot 1 exercise.\n"
    assert not done() and invoke(app, ["learn", "reset"]).stdout == "Forgot 0 exercises.\n"


def test_a_missing_file_and_an_unknown_number_are_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = CliRunner().invoke(app, ["learn", "check", "1.2"])
    assert isinstance(found.exception, FileNotFoundError) and "there is no file my_answer.py" in str(found.exception)
    found = CliRunner().invoke(app, ["learn", "check", "7"])
    assert isinstance(found.exception, ValueError) and "no exercise '7'" in str(found.exception)


def test_a_damaged_record_counts_as_empty(tmp_path, monkeypatch):
    """Neither a damaged file nor a folder that cannot be written stops the course."""
    record = tmp_path / "home" / "learn" / "done.json"
    record.parent.mkdir(parents=True)
    for text in ("{", "7", '{"1.2": 1}', "[1, null]"):
        record.write_text(text)
        assert done() <= {"1.2"}
    record.unlink()
    record.mkdir()
    course.mark_done(find("1.1"))
    assert done() == set()


def test_the_overview_ends_when_all_is_done():
    everything = {exercise.id for exercise in exercises()}
    assert overview(everything).endswith("All exercises are done.") and "[ ]" not in overview(everything)
    assert max(map(len, overview(()).splitlines())) <= 120 and json.dumps(what_next(["1.1"])).count("1.2") == 3
