"""The package as a whole: its public names, its imports, its start-up time."""

from __future__ import annotations

import ast
import importlib.util
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


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_module_hides_another(path):
    """A module that runs as a script hides modules of the same name as its neighbours: the package, the standard
    library's, or a dependency's."""
    names = {path.stem, *(part for part in path.relative_to(ROOT).parts[1:-1])}
    assert not names & (ALLOWED | sys.stdlib_module_names | {"matplotlib"})


@pytest.mark.parametrize(
    ("code", "absent"),
    [
        ("import mini_bert", {"typer", "rich", "safetensors", "mini_bert.models.bert", "importlib.metadata"}),
        (
            "from mini_bert import MiniBERT, WordPieceTokenizer, Adam",
            {"typer", "rich", "safetensors", "subprocess", "tempfile", "importlib.abc", "logging", "mini_bert.files"}
            | {"numpy.random", "hashlib", "shutil"},
        ),
    ],
)
def test_import_brings_little_along(code, absent):
    """No module that is slow to load and not needed: names come when they are used."""
    code += "; import sys; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not absent & set(loaded)


@pytest.mark.slow
def test_import_takes_less_than_twice_numpy():
    """Medians in new, alternating processes: importing the model takes less than 2× `import numpy` alone."""
    times: dict[str, list[float]] = {"numpy": [], "mini_bert, mini_bert.models.mini": []}
    for _ in range(15):
        for modules, found in times.items():
            code = f"import time; t = time.perf_counter(); import {modules}; print(time.perf_counter() - t)"
            found.append(float(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout))
    numpy, ours = (statistics.median(found) for found in times.values())
    print(
        f"import numpy {numpy * 1e3:.0f} ms, import mini_bert with the model {ours * 1e3:.0f} ms: {ours / numpy:.2f}×"
    )
    assert ours < 2 * numpy


@pytest.mark.parametrize("path", sorted((ROOT / "benchmarks").glob("*.py")), ids=lambda path: path.name)
def test_benchmarks_import_names_that_exist(path):
    """What a benchmark imports from the library is there, although most tests never run it."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(("mini_bert", "larger_bert")):
            module = importlib.import_module(node.module)
            for alias in node.names:
                assert hasattr(module, alias.name) or importlib.util.find_spec(f"{node.module}.{alias.name}"), (
                    alias.name
                )
