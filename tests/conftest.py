"""Fixtures shared by all tests."""

import os
import signal
from pathlib import Path

import pytest
from hypothesis import settings
from threadpoolctl import threadpool_limits

threadpool_limits(1)  # small matrix products gain nothing from several BLAS threads, and lose much on a busy machine

settings.register_profile("no deadline", deadline=None)  # a busy machine is not an error
settings.load_profile("no deadline")

# Many tests start a Python of their own: it keeps its bytecode, or each would compile the library again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
os.environ["PYTHONPYCACHEPREFIX"] = str(Path(__file__).parents[1] / ".pytest_cache" / "bytecode")

os.environ["ORT_DISABLE_TELEMETRY"] = "1"  # tests report nothing to anybody
os.environ["MINI_BERT_HOME"] = str(Path(__file__).parents[1] / ".pytest_cache" / "mini-bert")  # not in that of the user


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
