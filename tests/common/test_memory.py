"""Freed memory is kept where the system allows it, and memory use is reported where the system provides it."""

import io
import re
import subprocess
import sys
from types import SimpleNamespace

import pytest
from rich.console import Console

from mini_bert.common import memory
from mini_bert.common.memory import memory_mb
from mini_bert.training.board import Board
from mini_bert.training.display import train_line

CODE = """
import resource, sys
import numpy as np
from mini_bert.common.memory import keep_freed_memory
if sys.argv[1] == "keep":
    assert keep_freed_memory()
def work():
    arrays = [np.ones(1 << 20, np.float32) for _ in range(8)]
for _ in range(3):
    work()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    work()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="a dial of glibc")
def test_arrays_find_their_memory_again():
    """With freed memory kept, repeating the same work touches no new pages."""
    from mini_bert.common.memory import keep_freed_memory

    faults = {}
    for mode in ("keep", "plain"):
        answer = subprocess.run([sys.executable, "-c", CODE, mode], capture_output=True, text=True)
        if mode == "keep" and "AssertionError" in answer.stderr:
            assert not keep_freed_memory()
            pytest.skip("this C library has no such dial")
        faults[mode] = int(answer.stdout)
    assert faults["keep"] < 100 < faults["plain"]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="RssAnon is of Linux")
def test_memory_of_our_own_is_counted():
    """Allocating 40 MB raises the number by 40 MB, and freeing them lowers it, in a process that does not keep freed
    memory."""
    program = """
import numpy as np
from mini_bert.common.memory import memory_mb
before = memory_mb()
array = np.ones(5_000_000)
full = memory_mb()
del array
print(full - before, memory_mb() - before)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    more, left = map(float, done.stdout.split())
    assert more == pytest.approx(40, abs=4) and left < 4


def test_a_system_that_does_not_say(monkeypatch):
    """On Windows there is neither /proc nor `resource`, so there is no number, and the display shows none."""

    def missing(*arguments, **keywords):
        raise FileNotFoundError

    monkeypatch.setattr("builtins.open", missing)
    monkeypatch.setitem(sys.modules, "resource", None)
    assert memory_mb() is None
    record = {"kind": "train", "step": 50, "loss": 7.31, "memory_mb": None}
    assert train_line(record) == "step 50: loss 7.310"
    board = Board(100)
    board.take(record)
    console = Console(record=True, width=100, file=io.StringIO())
    console.print(board)
    assert re.search(r"memory +-", console.export_text())


@pytest.mark.parametrize(("system", "megabytes"), [("darwin", 0.2), ("freebsd", 204.8)])
def test_the_peak_where_there_is_no_proc(monkeypatch, system, megabytes):
    """macOS reports the peak in bytes, other systems in kilobytes."""

    def missing(*arguments, **keywords):
        raise FileNotFoundError

    fake = SimpleNamespace(RUSAGE_SELF=0, getrusage=lambda who: SimpleNamespace(ru_maxrss=204_800))
    monkeypatch.setattr("builtins.open", missing)
    monkeypatch.setitem(sys.modules, "resource", fake)
    monkeypatch.setattr(memory.sys, "platform", system)
    assert memory_mb() == megabytes


def test_other_systems_are_left_alone(monkeypatch):
    """Without glibc, `keep_freed_memory` does nothing and returns False."""
    monkeypatch.setattr(memory.sys, "platform", "darwin")
    assert memory.keep_freed_memory() is False
