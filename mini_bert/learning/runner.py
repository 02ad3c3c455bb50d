"""Check a learner's file: run it in a process of its own, with a time limit, and explain what is wrong.

    verdict = check_file(exercise("1.2"), Path("my_answer.py"))
    verdict.passed, verdict.text

The file may print, loop forever, call exit() or crash; none of this can disturb the caller. What it prints appears on
standard error. The verdict comes back through standard output, as JSON.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import traceback
from pathlib import Path
from typing import Any, NamedTuple

from mini_bert.learning.course import find
from mini_bert.learning.exercise import Exercise, Wrong, explain, where

SECONDS = 20.0  # NumPy and the bundled model take one or two of them
LARGEST = 1_000_000  # bytes of an answer file
START = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from mini_bert.learning.runner import serve; serve(sys.argv[2], sys.argv[3])"
)


class Verdict(NamedTuple):
    passed: bool
    text: str  # empty if it passed


def check_file(exercise: Exercise, path: Path, seconds: float = SECONDS) -> Verdict:
    """Whether the file is a right answer to the exercise, and if not, what is wrong with it."""
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}; write your answer there, or give the path of another file")
    command = [sys.executable, "-P", "-X", "utf8", "-c", START, json.dumps(sys.path), exercise.id, str(path)]
    try:
        ended = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, timeout=seconds)
    except subprocess.TimeoutExpired:
        return Verdict(False, f"Your code was stopped after {seconds:g} seconds. Does a loop never end?")
    try:
        told = json.loads(ended.stdout)
    except ValueError:
        return Verdict(False, f"Your code ended the Python that ran it (exit code {ended.returncode}).")
    return Verdict(told is None, told or "")


def serve(exercise_id: str, path: str) -> None:
    """The other side: write None or what is wrong to standard output."""
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as up:
        os.dup2(2, 1)  # what the learner's code prints must not mix with the verdict
        json.dump(judge(find(exercise_id), Path(path)), up)


def judge(exercise: Exercise, path: Path) -> str | None:
    """None if the file is a right answer, else what is wrong. Runs the file in this process."""
    try:
        return explain(exercise, names_of(path))
    except Wrong as wrong:
        return str(wrong)


def names_of(path: Path) -> dict[str, Any]:
    """Runs the file and returns the names that it defines."""
    source = path.read_bytes()
    if len(source) > LARGEST:
        raise Wrong(f"{path.name} has {len(source):,} bytes, expected a short Python file.")
    names: dict[str, Any] = {"__name__": path.stem, "__file__": str(path)}  # not __main__: its demo does not run
    sys.path.append(str(path.parent.resolve()))  # its own helpers can be imported
    try:
        exec(compile(source, str(path), "exec"), names)
    except SyntaxError as error:
        line = f", `{error.text.strip()}`," if error.text else ""
        raise Wrong(f"Line {error.lineno} of {path.name}{line} is not valid Python: {error.msg}.") from None
    except SystemExit:
        raise Wrong("Your file calls exit(), so it ends before it can be checked. Remove that line.") from None
    except Exception as error:
        if not traceback.extract_tb(error.__traceback__)[1:]:  # not in the file: it has a null byte, for example
            raise Wrong(f"{path.name} is not a Python file: {error}.") from None
        raise Wrong(where(error)) from None
    return names
