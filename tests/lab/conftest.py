import pytest
from threadpoolctl import threadpool_limits

from mini_bert.lab.bench import Bench

threadpool_limits(1)  # again: NumPy, which the bench has loaded, may not have been there the first time


@pytest.fixture(scope="session")
def bench():
    """The bundled model; no room may change it."""
    return Bench.load("mini-bert")
