"""Helper processes: results come in order, errors are passed on, and no process is left behind."""

import errno
import operator
import os
import pickle
import signal
import subprocess
import sys
import time
import types

import pytest

from mini_bert.common import processes
from mini_bert.common.processes import Helper, HelperError, cores, in_order


@pytest.fixture
def started(monkeypatch):
    """All helpers that a test has started"""
    found = []

    class Watched(Helper):
        def __init__(self):
            super().__init__()
            found.append(self)

    monkeypatch.setattr(processes, "Helper", Watched)
    return found


@pytest.mark.parametrize("count", [1, 2, 3])
def test_results_come_in_order(count, started):
    """There is one result per job, in order, from the requested number of processes; afterwards all processes have
    ended."""
    assert list(in_order(operator.mul, 3, range(50), count)) == [3 * i for i in range(50)]
    assert len(started) == (count if count > 1 else 0)
    assert all(helper.process.returncode is not None for helper in started)


def test_few_jobs_are_done_here(started):
    """For a handful of jobs no process is started; an empty list works, too."""
    assert list(in_order(operator.mul, 3, range(3), 2)) == [0, 3, 6]
    assert list(in_order(operator.mul, 3, [], 2)) == []
    assert not started and cores() >= 1


def test_jobs_are_taken_as_they_are_needed():
    """However long the list, only a few jobs are read ahead of the results; large jobs fit through the pipes."""
    taken = []

    def jobs():
        for i in range(40):
            taken.append(i)
            yield bytes(300_000)

    for done, result in enumerate(in_order(operator.concat, b"x", jobs(), 2)):
        assert len(result) == 300_001 and len(taken) - done <= 5
    assert len(taken) == 40


def test_an_error_arrives_with_its_traceback(started):
    """An exception in a helper is raised in the caller, after all earlier results."""
    results = in_order(operator.floordiv, 12, [1, 2, 3, 4, 6, 0, 12], 2)
    assert [next(results) for _ in range(5)] == [12, 6, 4, 3, 2]
    with pytest.raises(HelperError, match=r"(?s)Traceback.*ZeroDivisionError"):
        next(results)
    assert len(started) == 2 and all(helper.process.returncode is not None for helper in started)


def test_whoever_stops_early_leaves_nobody_behind(started):
    """Closing the iterator, as an exception in the caller's loop does, ends the helpers."""
    results = in_order(operator.mul, 3, range(1000), 2)
    assert next(results) == 0
    results.close()
    assert len(started) == 2 and all(helper.process.returncode is not None for helper in started)


def test_a_helper_that_dies_is_an_error(started):
    """If a helper dies, for example out of memory, the message has the exit code and says what to do."""
    results = in_order(os.truncate, "nowhere", range(10), 2)
    with pytest.raises(HelperError, match="No such file"):
        next(results)
    results = in_order(operator.call, os._exit, [9] * 10, 2)
    with pytest.raises(HelperError, match=r"ended before its work was done \(exit code 9\).*processes=1"):
        next(results)


def test_a_dead_pipe_is_a_dead_helper(started, monkeypatch):
    """A broken pipe means a dead helper, whatever the system's error: "invalid argument" on Windows, "broken pipe"
    elsewhere."""

    def dump(message, pipe):
        if len(started) == 2 and pickle.loads(message) == 7:
            started[0].process.kill()
            started[1].process.kill()
            raise OSError(errno.EINVAL, "Invalid argument")
        pipe.write(pickle.dumps(message))

    monkeypatch.setattr(processes.pickle, "dump", dump)
    with pytest.raises(HelperError, match="ended before its work was done"):
        list(in_order(operator.mul, 2, range(9), 2))


def test_files_that_lie_around_are_not_imported(started, tmp_path, monkeypatch, caplog):
    """Helpers do not import a json.py from the current folder."""
    (tmp_path / "json.py").write_text("raise SystemExit('the wrong json')")
    monkeypatch.chdir(tmp_path)
    assert list(in_order(operator.mul, 2, range(9), 2)) == list(range(0, 18, 2))
    assert len(started) == 2 and not caplog.records


def test_without_helpers_the_work_is_done_here(monkeypatch, caplog):
    """If the state cannot be pickled or unpickled, or no process can be started, the work is done in this process, with
    a warning."""
    here = types.ModuleType("only_here")  # a helper cannot import it
    here.Doubling = type("Doubling", (), {"__module__": "only_here", "__mul__": lambda self, job: 2 * job})
    monkeypatch.setitem(sys.modules, "only_here", here)
    assert list(in_order(operator.mul, here.Doubling(), range(9), 2)) == list(range(0, 18, 2))
    assert list(in_order(operator.call, lambda job: -job, range(9), 2)) == [-i for i in range(9)]
    monkeypatch.setattr(sys, "executable", "")
    assert list(in_order(operator.mul, 2, range(9), 2)) == list(range(0, 18, 2))
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    assert list(in_order(operator.mul, 2, range(9), 2)) == list(range(0, 18, 2))
    assert [record.message.count("using a single process") for record in caplog.records] == [1] * 4


def test_what_a_job_prints_does_not_disturb(capfd):
    """Output of jobs goes to standard error. (Two processes may interleave words and line endings.)"""
    assert list(in_order(operator.call, print, ["hello"] * 6, 2)) == [None] * 6
    out, err = capfd.readouterr()
    assert not out and err.count("hello") == 6 == err.count("\n") and len(err) == 36


def test_no_processes_is_an_error():
    """With zero processes, nothing would do the work."""
    with pytest.raises(ValueError, match="processes is 0, expected at least 1"):
        list(in_order(operator.mul, 2, [1], 0))


SCRIPT = """
import operator, time
from mini_bert.common import processes
print("main runs", flush=True)  # a helper that ran this file again would say so again

class Told(processes.Helper):
    def __init__(self):
        super().__init__()
        print(self.process.pid, flush=True)
processes.Helper = Told

for _ in processes.in_order(operator.call, time.sleep, [0.05] * 1000, 2):
    print("result", flush=True)
"""


def alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="POSIX signals")
@pytest.mark.parametrize("by", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_ctrl_c_and_worse_leave_no_orphans(by, tmp_path):
    """A program that is interrupted, terminated or killed leaves no helper processes behind."""
    (tmp_path / "script.py").write_text(SCRIPT)
    program = subprocess.Popen(
        [sys.executable, str(tmp_path / "script.py")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    lines = [program.stdout.readline().strip() for _ in range(4)]
    helpers = [int(line) for line in lines[1:3]]
    assert lines[0] == "main runs" and lines[3] == "result" and all(map(alive, helpers))
    if by == signal.SIGINT:
        os.killpg(program.pid, by)  # as a terminal does: to all of them
    else:
        os.kill(program.pid, by)
    _, errors = program.communicate(timeout=20)
    assert program.returncode != 0 and errors.count("Traceback") <= 1
    deadline = time.monotonic() + 10
    while any(map(alive, helpers)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(map(alive, helpers))
