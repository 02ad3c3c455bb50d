"""The examples in docstrings are correct."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

import mini_bert

PACKAGE = Path(mini_bert.__file__).parent
MODULES = sorted(
    ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")
    for path in PACKAGE.rglob("*.py")
    if ">>>" in path.read_text(encoding="utf-8")
)


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings(name):
    """Every example prints the output below it; a module that contains examples has some that run."""
    found = doctest.testmod(importlib.import_module(name))
    assert found.attempted and not found.failed


def test_they_are_found():
    """Without this check, an empty list would pass."""
    assert {
        "mini_bert.finetuning.tasks.base",
        "mini_bert.data.labelled.labels",
        "mini_bert.objectives.masking",
    } <= set(MODULES)
