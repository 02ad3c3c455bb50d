"""Spread work over several processes and get the results in order.

    for result in in_order(work, state, jobs, processes=2):   # the same as work(state, job) for each job, but faster
        ...

Helpers are plain `python` processes connected by two pipes. They receive `work` and `state` first, then one job at a
time, and send back a result for each. The reasons not to use `multiprocessing`:

- A helper never runs the caller's program again, as `multiprocessing` does on macOS and Windows, so this also works in
  a script without `if __name__ == "__main__"`, in a notebook and from standard input.
- At most two jobs are pending for each helper, so memory stays bounded however many jobs there are.
- A helper ends when its pipe closes. If the caller is interrupted, crashes or is killed, no helper stays behind.
- If helpers cannot be started, or `state` cannot be pickled, the work is done in this process.
"""

from __future__ import annotations

import json
import logging
import os
import pickle
import signal
import subprocess
import sys
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from itertools import chain, count, islice
from queue import SimpleQueue
from typing import Any, TypeVar

from mini_bert.common.memory import return_freed_memory

State = TypeVar("State")
Job = TypeVar("Job")
Result = TypeVar("Result")

MOST = 3  # helpers by default: each one needs memory
FEW = 4  # with fewer jobs than this, no helpers are started, because that takes 0.3 s
START = "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from mini_bert.common.processes import serve; serve()"
# Options of a Popen that Ctrl-C in the terminal does not reach. Its caller gets the Ctrl-C and ends it.
APART: dict[str, Any] = (
    {"creationflags": getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0)}
    if sys.platform == "win32"
    else {"start_new_session": True}
)
logger = logging.getLogger(__name__)


def cores() -> int:
    """The number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def in_order(
    work: Callable[[State, Job], Result], state: State, jobs: Iterable[Job], processes: int | None = None
) -> Iterator[Result]:
    """work(state, job) for each job, in order. `work` must be a function of a module.

    By default there are as many processes as cores, but at most 3.
    """
    processes = min(cores(), MOST) if processes is None else processes
    if processes < 1:
        raise ValueError(f"processes is {processes}, expected at least 1")
    jobs = iter(jobs)
    few = list(islice(jobs, FEW)) if processes > 1 else []
    with helpers(work, state, processes if len(few) == FEW else 0) as started:
        if not started:
            for job in chain(few, jobs):
                yield work(state, job)
            return
        free: SimpleQueue[Helper] = SimpleQueue()
        for helper in started:
            free.put(helper)

        def delegate(job: Job) -> Result:
            helper = free.get()
            try:
                return helper.ask(job)
            finally:
                free.put(helper)

        threads = ThreadPoolExecutor(len(started))  # one for each helper, waiting for its pipe
        try:
            waiting = deque(threads.submit(delegate, job) for job in few)
            for number, job in enumerate(jobs):
                while len(waiting) >= 2 * len(started):
                    yield waiting.popleft().result()
                waiting.append(threads.submit(delegate, job))
                if number % 16 == 0:
                    return_freed_memory()
            while waiting:
                yield waiting.popleft().result()
        finally:  # done, interrupted, or failed
            for helper in started:
                helper.process.kill()
            threads.shutdown(cancel_futures=True)


@contextmanager
def helpers(work: Callable[[State, Job], Result], state: State, processes: int) -> Iterator[list[Helper]]:
    """Yields helpers, which end with the block; an empty list, with a warning, if they cannot be started."""
    started: list[Helper] = []
    try:
        try:
            order = pickle.dumps((work, state))
            for _ in range(processes):
                started.append(Helper())
            for helper in started:
                helper.send(order)
            for helper in started:
                helper.answer()
        except (OSError, HelperError, pickle.PicklingError, AttributeError, TypeError) as error:
            why = str(error).strip().splitlines()[-1]
            logger.warning("using a single process, which is slower, because no others can be started: %s", why)
            yield []
        else:
            yield started
    finally:
        for helper in started:
            helper.close()


class HelperError(RuntimeError):
    """An error in a helper, with its traceback."""


class Helper:
    """The caller's side of a helper process. A message is a pickle, sent as pickled bytes to mark its end."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-c", START, json.dumps(sys.path)],  # -P: ignore a json.py in this folder
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | {"OPENBLAS_NUM_THREADS": "1"},  # helpers multiply no matrices
        )
        self.down: Any = self.process.stdin
        self.up: Any = self.process.stdout

    def ask(self, job: Any) -> Any:
        self.send(pickle.dumps(job))
        return self.answer()

    def send(self, message: bytes) -> None:
        with suppress(OSError):  # the helper has died; `answer` reports it
            pickle.dump(message, self.down)
            self.down.flush()

    def answer(self) -> Any:
        try:
            good, result = pickle.loads(pickle.load(self.up))
        except (EOFError, pickle.UnpicklingError):
            raise HelperError(
                f"a helper process ended before its work was done (exit code {self.process.wait()}). If it was killed "
                "because memory ran out, use a single process: processes=1"
            ) from None
        if not good:
            raise HelperError(f"in a helper process:\n{result}")
        return result

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in (self.down, self.up):
            with suppress(OSError):  # unsent data, no longer needed
                pipe.close()


def serve() -> None:
    """The helper's side: read jobs from standard input and write results to standard output until the pipe closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes; the caller stops its helpers
    work: Any = None
    state = None
    with suppress(OSError, EOFError), os.fdopen(os.dup(0), "rb") as down, os.fdopen(os.dup(1), "wb") as up:
        os.dup2(2, 1)  # what `work` prints must not mix with the results
        for number in count():
            message = pickle.load(down)
            try:
                if number:
                    answer = pickle.dumps((True, work(state, pickle.loads(message))))
                else:
                    work, state = pickle.loads(message)
                    answer = pickle.dumps((True, None))
            except Exception:  # such as a class of the caller's own script
                answer = pickle.dumps((False, traceback.format_exc()))
            pickle.dump(answer, up)
            up.flush()
            if number % 16 == 0:
                return_freed_memory()
