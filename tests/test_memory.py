"""Freed memory is kept where the system lets us say so."""

import subprocess
import sys

import pytest

CODE = """
import resource, sys
import numpy as np
from mini_bert.memory import keep_freed_memory
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
    """With freed memory kept, the same work over again touches no new page."""
    from mini_bert.memory import keep_freed_memory

    faults = {}
    for mode in ("keep", "plain"):
        answer = subprocess.run([sys.executable, "-c", CODE, mode], capture_output=True, text=True)
        if mode == "keep" and "AssertionError" in answer.stderr:
            assert not keep_freed_memory()
            pytest.skip("this C library has no such dial")
        faults[mode] = int(answer.stdout)
    assert faults["keep"] < 100 < faults["plain"]


def test_other_systems_are_left_alone(monkeypatch):
    """Where there is no glibc nothing happens, and the answer says so."""
    from mini_bert import memory

    monkeypatch.setattr(memory.sys, "platform", "darwin")
    assert memory.keep_freed_memory() is False
