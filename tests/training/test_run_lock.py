"""One process at a time in a run folder, and no lock outlives its holder."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from mini_bert.training import run_lock
from mini_bert.training.run_lock import RunInUse, RunLock

HOLD = """
import sys, time
from pathlib import Path
from mini_bert.training.run_lock import RunLock
with RunLock(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(600)
"""


@pytest.fixture
def holder(tmp_path):
    """Another process that holds the lock of tmp_path."""
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def test_another_process_is_named_and_its_death_frees_the_folder(tmp_path, holder):
    """The message says which process and what to do; SIGKILL leaves the file, which then blocks nobody."""
    expected = rf"is in use: process {holder.pid} on .* has been training there since 2.*; or choose another folder"
    with pytest.raises(RunInUse, match=expected), RunLock(tmp_path):
        raise AssertionError("two hold it")
    holder.kill()
    holder.wait()
    assert (tmp_path / ".lock").exists()
    with RunLock(tmp_path):
        pass
    assert not (tmp_path / ".lock").exists()


def test_a_second_lock_of_one_process_is_refused_but_the_same_may_be_entered_again(tmp_path):
    """Two runs in threads of one process are two runs; and leaving the inner block does not free the folder."""
    lock = RunLock(tmp_path)
    with lock:
        with lock:
            pass
        with pytest.raises(RunInUse, match=f"process {os.getpid()}"), RunLock(tmp_path):
            pass
    with RunLock(tmp_path):
        pass


def test_what_stands_in_the_file_decides_nothing(tmp_path, holder):
    """Neither rubbish nor the number of a process that is alive."""
    (tmp_path / ".lock").write_text("rubbish")
    with pytest.raises(RunInUse, match="another process is training there"), RunLock(tmp_path):
        pass
    holder.kill()
    holder.wait()
    (tmp_path / ".lock").write_text(f'{{"process": {os.getpid()}, "computer": "here", "since": "now"}}')
    with RunLock(tmp_path):
        pass


@pytest.mark.skipif(os.name == "nt", reason="there an open file keeps its name")
def test_a_file_that_was_removed_meanwhile_is_no_lock(tmp_path, monkeypatch):
    """Its owner left between our opening it and locking it: another might have made a new one by now."""
    real, opened = run_lock._lock, []

    def lock(handle):
        opened.append(handle)
        if len(opened) == 1:
            (tmp_path / ".lock").unlink()
        return real(handle)

    monkeypatch.setattr(run_lock, "_lock", lock)
    with RunLock(tmp_path):
        assert len(opened) == 2
        with pytest.raises(RunInUse), RunLock(tmp_path):
            pass


@pytest.mark.skipif(os.name == "nt", reason="fcntl")
def test_where_files_cannot_be_locked_a_warning_says_so(tmp_path, monkeypatch, caplog):
    import fcntl

    def refuse(*arguments):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with RunLock(tmp_path):
        assert "files cannot be locked here" in caplog.text


def test_windows_locks_a_byte_that_nobody_reads(tmp_path, monkeypatch):
    """The same steps with a stand-in for msvcrt: the place of the lock is far behind what is written."""
    calls = []

    class Msvcrt:
        LK_NBLCK = 2

        @staticmethod
        def locking(handle, mode, count):
            calls.append((os.lseek(handle, 0, os.SEEK_CUR), mode, count))
            if len(calls) > 1:
                raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setitem(sys.modules, "msvcrt", Msvcrt)
    monkeypatch.setattr(run_lock.sys, "platform", "win32")
    with RunLock(Path(tmp_path)):
        assert calls == [(1 << 30, 2, 1)] and (tmp_path / ".lock").stat().st_size < 1000
        with pytest.raises(RunInUse, match=f"process {os.getpid()}"), RunLock(tmp_path):
            pass
