"""Fixtures shared by all tests."""

import gc
import os
import signal
import sys
from pathlib import Path

import pytest
from hypothesis import settings
from threadpoolctl import threadpool_limits

from mini_bert.training import figures

threadpool_limits(1)  # small matrix products gain nothing from several BLAS threads, and lose much on a busy machine
os.environ["OPENBLAS_NUM_THREADS"] = "1"  # nor do those of the programs that tests start

settings.register_profile("no deadline", deadline=None)  # a busy machine is not an error
settings.load_profile("no deadline")

# Bytecode is kept, or every worker would compile all tests, and each Python that a test starts the library again.
sys.dont_write_bytecode = False
sys.pycache_prefix = str(Path(__file__).parents[1] / ".pytest_cache" / "bytecode")
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
os.environ["PYTHONPYCACHEPREFIX"] = sys.pycache_prefix

gc.disable()  # until all tests are collected: a third of the time, in which hardly anything can be freed


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop():
    """The 13,000 tests stay until the end, so that Python need not look through them again and again."""
    gc.enable()  # also where tests are only handed out to workers
    gc.freeze()


os.environ["ORT_DISABLE_TELEMETRY"] = "1"  # tests report nothing to anybody
os.environ["MINI_BERT_HOME"] = str(Path(__file__).parents[1] / ".pytest_cache" / "mini-bert")  # not in that of the user


def fsync(handle):
    """Tests need not survive a power cut, so they do not wait for the disk; some look at when this is called."""


os.fsync = fsync


@pytest.fixture
def signals():
    """Signal handlers as in a terminal, however the tests were started; restored afterwards."""
    names = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
    before = {name: signal.getsignal(name) for name in names}
    for name in names:
        signal.signal(name, signal.default_int_handler if name == signal.SIGINT else signal.SIG_DFL)
    yield
    for name, handler in before.items():
        signal.signal(name, handler)


@pytest.fixture(autouse=True)
def called_as_the_command(monkeypatch):
    """Advice names the command as the user called it; tests of run.py must not affect this for later tests."""
    monkeypatch.delenv("MINI_BERT_CALLED_AS", raising=False)


@pytest.fixture(autouse=True)
def no_picture_of_every_run(monkeypatch):
    """A run ends with a picture of its curves, which takes half a second; tests that are about it restore it."""
    monkeypatch.setattr(figures, "loss_picture", lambda run, path, say=None: False)
