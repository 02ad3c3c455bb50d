import pytest

from mini_bert.lab.bench import Bench


@pytest.fixture(scope="session")
def bench():
    """The bundled model; no room may change it."""
    return Bench.load("mini-bert")
