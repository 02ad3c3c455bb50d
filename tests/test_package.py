"""The package as a whole: its public names, its imports, its start-up time."""

from __future__ import annotations

import ast
import statistics
import subprocess
import sys
from pathlib import Path

import pytest

import larger_bert
import mini_bert

ROOT = Path(__file__).parent.parent
DEPENDENCIES = {"numpy", "safetensors", "threadpoolctl", "filelock", "platformdirs", "typer"}
ALLOWED = {*DEPENDENCIES, "rich", "mini_bert", "larger_bert"}  # typer brings rich
SOURCES = [path for name in ("mini_bert", "larger_bert") for path in sorted((ROOT / name).rglob("*.py"))]


def test_public_names():
    """Exactly these names are public, and each can be imported."""
    assert mini_bert.__all__ == [
        "LARGER_BERT_CONFIG",
        "MINI_BERT_CONFIG",
        "Adam",
        "Bert",
        "BertConfig",
        "MLMDataGenerator",
        "MiniBERT",
        "MiniBertConfig",
        "MiniTransformerLayer",
        "TrainingConfig",
        "WordPieceTokenizer",
        "gradient_check",
        "load_model",
        "load_tokenizer",
        "mask_tokens",
    ]
    for name in mini_bert.__all__:
        assert getattr(mini_bert, name) is not None
    assert set(larger_bert.__all__) == {"LARGER_BERT_CONFIG", "LargerBERT"}
    assert mini_bert.__version__.count(".") == 2
    with pytest.raises(AttributeError, match="has no attribute 'GPT5'; it offers"):
        _ = mini_bert.GPT5


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_pure_numpy(path):
    """The library imports only the standard library, its dependencies and itself; itself only by full name."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: relative import"
            names = [node.module or ""]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        for name in names:
            top = name.split(".")[0]
            assert top in ALLOWED or top in sys.stdlib_module_names, f"line {node.lineno}: {name}"


def test_import_brings_little_along():
    """`import mini_bert` loads no slow module: names are loaded when they are used."""
    code = "import sys, mini_bert; print(*sys.modules)"
    loaded = set(
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    )
    assert not loaded & {"typer", "rich", "safetensors", "mini_bert.models.bert", "importlib.metadata"}


@pytest.mark.slow
def test_import_takes_less_than_twice_numpy():
    """Medians in new, alternating processes: importing the model takes less than 2× `import numpy` alone."""
    times: dict[str, list[float]] = {"numpy": [], "mini_bert, mini_bert.models.mini_bert": []}
    for _ in range(15):
        for modules, found in times.items():
            code = f"import time; t = time.perf_counter(); import {modules}; print(time.perf_counter() - t)"
            found.append(float(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout))
    numpy, ours = (statistics.median(found) for found in times.values())
    print(
        f"import numpy {numpy * 1e3:.0f} ms, import mini_bert with the model {ours * 1e3:.0f} ms: {ours / numpy:.2f}×"
    )
    assert ours < 2 * numpy
