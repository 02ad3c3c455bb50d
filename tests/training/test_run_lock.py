"""One process at a time in a run folder, and no lock outlives its holder."""

import errno
import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

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
    """Another process that holds the lock on tmp_path."""
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def test_another_process_is_named_and_its_death_frees_the_folder(tmp_path, holder):
    """The message says which process and what to do; after SIGKILL, the leftover file does not block anything."""
    expected = rf"is in use: process {holder.pid} on .* has been training there since 2.*; or choose another folder"
    with pytest.raises(RunInUse, match=expected), RunLock(tmp_path):
        raise AssertionError("two hold it")
    holder.kill()
    holder.wait()
    assert (tmp_path / ".lock").exists()
    with RunLock(tmp_path):
        pass
    assert os.name == "nt" or not (tmp_path / ".lock").exists()


def test_a_second_lock_of_one_process_is_refused_but_the_same_may_be_entered_again(tmp_path):
    """Two runs in threads of one process are two runs; leaving an inner block does not release the folder."""
    lock = RunLock(tmp_path)
    with lock:
        with lock:
            pass
        with pytest.raises(RunInUse, match=f"process {os.getpid()}"), RunLock(tmp_path):
            pass
    with RunLock(tmp_path):
        pass


def test_the_content_of_the_file_is_only_for_the_message(tmp_path, holder):
    """Neither garbage nor the id of a live process changes who holds the lock."""
    (tmp_path / ".lock").write_text("rubbish")
    with pytest.raises(RunInUse, match="another process is training there"), RunLock(tmp_path):
        pass
    holder.kill()
    holder.wait()
    (tmp_path / ".lock").write_text(f' {{"process": {os.getpid()}, "computer": "here", "since": "now"}}')
    with RunLock(tmp_path):
        pass


@pytest.mark.skipif(os.name == "nt", reason="fcntl")
def test_where_files_cannot_be_locked_a_warning_says_so(tmp_path, monkeypatch, caplog):
    import fcntl

    def refuse(*arguments):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with RunLock(tmp_path):
        assert "cannot lock files here" in caplog.text


def test_the_holder_is_readable_where_the_first_byte_is_locked(tmp_path, holder):
    """On Windows, other processes cannot read the locked byte, so nothing is stored in it."""
    content = (tmp_path / ".lock").read_bytes()
    assert content[:1] == b"\0" and json.loads(content[1:])["process"] == holder.pid


def test_many_take_turns(tmp_path):
    """The file is removed and created again all the time, but two processes never hold the lock at once."""
    inside, most, entered = 0, 0, 0

    def enter(_):
        nonlocal inside, most, entered
        for _ in range(100):
            with suppress(RunInUse), RunLock(tmp_path):
                inside += 1
                most = max(most, inside)
                entered += 1
                time.sleep(0.0001)
                inside -= 1

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(enter, range(4)))
    assert most == 1 and entered
