"""Several processes at one kind of work, results in order: Python's threads share one core, processes have their own.

    for result in in_order(work, state, jobs, processes=2):   # the same as work(state, job) for each job, only sooner
        ...

Helpers are plain `python` processes at the end of two pipes: `work` and `state` go down first, then job by job, and
for each a result comes up. That is all, so that nothing can go wrong which a pipe does not know:

- Whatever the caller's program looks like (a script without `if __name__ == "__main__"`, a notebook, standard input),
  a helper does not run it again, as `multiprocessing` does on macOS and Windows: it imports what `work` needs.
- At most two jobs a helper are under way, so memory stays bounded however long the list of jobs is.
- A helper ends when its pipe does. If the caller is interrupted, crashes or is killed, no helper stays behind.
- Where helpers cannot be started, or `state` cannot be sent, the work is done here: slower, with the same results.
"""

from __future__ import annotations

import json
import logging
import os
import pickle
import signal
import struct
import subprocess
import sys
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import chain, count, islice
from queue import SimpleQueue
from typing import Any, BinaryIO, TypeVar

State = TypeVar("State")
Job = TypeVar("Job")
Result = TypeVar("Result")

MOST = 3  # helpers, unless asked for more: each takes the memory of a Python, and of what it remembers
FEW = 4  # jobs that are done here at once, because starting helpers (0.3 s) would take longer
START = "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from mini_bert.common.processes import serve; serve()"
logger = logging.getLogger(__name__)


def cores() -> int:
    """The cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def in_order(
    work: Callable[[State, Job], Result], state: State, jobs: Iterable[Job], processes: int | None = None
) -> Iterator[Result]:
    """work(state, job) for each job, in order. `work` is a function of a module; default: a process a core, up to 3."""
    processes = min(cores(), MOST) if processes is None else processes
    if processes < 1:
        raise ValueError(f"processes is {processes}, expected at least 1")
    jobs = iter(jobs)
    few = list(islice(jobs, FEW)) if processes > 1 else []
    helpers = start(work, state, processes) if len(few) == FEW else []
    if not helpers:
        for job in chain(few, jobs):
            yield work(state, job)
        return
    free: SimpleQueue[Helper] = SimpleQueue()
    for helper in helpers:
        free.put(helper)

    def pass_on(job: Job) -> Result:
        helper = free.get()
        try:
            return helper.ask(job)
        finally:
            free.put(helper)

    threads = ThreadPoolExecutor(len(helpers))  # a thread each, which waits at the pipe
    try:
        waiting = deque(threads.submit(pass_on, job) for job in few)
        for number, job in enumerate(jobs):
            while len(waiting) >= 2 * len(helpers):
                yield waiting.popleft().result()
            waiting.append(threads.submit(pass_on, job))
            if number % 16 == 0:
                give_back()
        while waiting:
            yield waiting.popleft().result()
    finally:  # done, interrupted, or failed
        for helper in helpers:
            helper.stop()
        threads.shutdown(cancel_futures=True)
        for helper in helpers:
            helper.close()


def start(work: Callable[[State, Job], Result], state: State, processes: int) -> list[Helper]:
    """Helpers that are ready for jobs, or none if they cannot be had."""
    helpers: list[Helper] = []
    try:
        if not sys.executable or getattr(sys, "frozen", False):
            raise OSError("this Python cannot start another one")
        order = pickle.dumps((work, state))
        for _ in range(processes):
            helpers.append(Helper())
        for helper in helpers:
            send(helper.down, order)
        for helper in helpers:
            helper.answer()
    except BaseException as error:
        for helper in helpers:
            helper.stop()
            helper.close()
        if not isinstance(error, OSError | HelperError | pickle.PicklingError | AttributeError | TypeError):
            raise
        why = str(error).strip().splitlines()[-1]
        logger.warning("working in one process, which takes longer, because helpers cannot be started: %s", why)
        return []
    return helpers


def give_back() -> None:
    """Return freed memory to the system. glibc keeps it in holes: 134 MB instead of 68 after 2 GB of text."""
    if sys.platform == "linux":
        with suppress(ImportError, OSError, AttributeError):  # another C library
            import ctypes

            ctypes.CDLL(None).malloc_trim(0)


class HelperError(RuntimeError):
    """What went wrong in a helper, with its traceback."""


class Helper:
    """One process, seen from here."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-c", START, json.dumps(sys.path)],  # -P: a json.py that lies here is not ours
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | {"OPENBLAS_NUM_THREADS": "1"},  # helpers multiply no matrices
        )
        assert self.process.stdin is not None and self.process.stdout is not None
        self.down: Any = self.process.stdin
        self.up: Any = self.process.stdout

    def ask(self, job: Any) -> Any:
        message = pickle.dumps(job)
        with suppress(OSError):  # the helper is gone (a broken pipe; on Windows, an invalid argument); reading says so
            send(self.down, message)
        return self.answer()

    def answer(self) -> Any:
        message = receive(self.up)
        if message is None:
            code = self.process.wait()
            raise HelperError(
                f"a helper process ended before its work was done (exit code {code}). If it was killed because memory "
                "ran out, work in this one: processes=1"
            )
        good, result = pickle.loads(message)
        if not good:
            raise HelperError(f"in a helper process:\n{result}")
        return result

    def stop(self) -> None:
        self.process.kill()

    def close(self) -> None:
        self.process.wait()
        for pipe in (self.down, self.up):
            with suppress(OSError):  # what was still to be sent: nobody wants it
                pipe.close()


# --- the pipes: a message is its length and its bytes ------------------------------------------------------


def send(pipe: BinaryIO, message: bytes) -> None:
    pipe.write(struct.pack("<Q", len(message)))
    pipe.write(message)
    pipe.flush()


def receive(pipe: BinaryIO) -> bytes | None:
    """The next message; None if the other end is gone."""
    head = pipe.read(8)
    if len(head) < 8:
        return None
    (length,) = struct.unpack("<Q", head)
    message = pipe.read(length)
    return message if len(message) == length else None


# --- the helper's side -------------------------------------------------------------------------------------


def serve() -> None:
    """Take orders from standard input and answer on standard output, until there are no more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes; the caller ends its helpers
    with suppress(OSError), os.fdopen(os.dup(0), "rb") as down, os.fdopen(os.dup(1), "wb") as up:
        os.dup2(2, 1)  # whatever is printed must not get among the answers
        order = receive(down)
        if order is None:
            return
        try:
            work, state = pickle.loads(order)
        except Exception:  # a class of the caller's own script, say
            send(up, pickle.dumps((False, traceback.format_exc())))
            return
        send(up, pickle.dumps((True, None)))
        for number in count():
            if (job := receive(down)) is None:
                return
            try:
                answer = (True, work(state, pickle.loads(job)))
            except Exception:
                answer = (False, traceback.format_exc())
            send(up, pickle.dumps(answer))
            if number % 16 == 0:
                give_back()
