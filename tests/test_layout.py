"""The layout of the package: subpackages in order, no cycles, only re-exports at the top."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

import mini_bert

PACKAGE = Path(mini_bert.__file__).parent
ORDER = [
    *("common", "files", "layers", "models", "corpora", "text", "objectives", "data", "inference", "evaluation"),
    *("plots", "training", "finetuning", "probing", "inside", "export", "serving", "learning", "checks", "lab", "cli"),
]
DOORS = {
    *("config", "model", "tokenizer", "mlm", "gradients", "train", "metrics", "simple_test", "probe_pos"),
    "finetune_sst2",
}
MODULES = sorted(path for path in PACKAGE.rglob("*.py") if path.parent != PACKAGE)


def name_of(path: Path) -> str:
    return ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")


NAMES = {name_of(path): path for path in PACKAGE.rglob("*.py")}


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def imports(path: Path, types_too: bool = True) -> frozenset[str]:
    """The modules of this package that a file imports, at the top or inside functions, or names in a string, as a table
    of modules to import does."""
    tree = tree_of(path)
    for_types = {
        id(node)
        for branch in ast.walk(tree)
        if isinstance(branch, ast.If) and "TYPE_CHECKING" in ast.unparse(branch.test)
        for node in ast.walk(branch)
    }
    modules: set[str] = set()
    for node in ast.walk(tree):
        if not types_too and id(node) in for_types:
            continue
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "mini_bert":
            inside = {f"{node.module}.{alias.name}" for alias in node.names}
            modules |= {name if name in NAMES else node.module for name in inside}
        elif isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names if alias.name.startswith("mini_bert.")}
        elif isinstance(node, ast.Constant) and node.value in NAMES:
            modules.add(node.value)
    return frozenset(modules - {"mini_bert", name_of(path)})


def test_strings_that_name_modules_are_imports():
    """The registries import by name."""
    assert "mini_bert.models.bert" in imports(PACKAGE / "models" / "registry.py")
    assert "mini_bert.text.wordpiece" in imports(PACKAGE / "text" / "loading.py")


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_nothing_is_imported_from_the_top(path):
    """`from mini_bert import MiniBERT` would hide from where it comes, and that it may come from a later subpackage."""
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.ImportFrom) and node.module == "mini_bert":
            assert all(f"mini_bert.{alias.name}" in NAMES for alias in node.names), ast.unparse(node)


def test_every_folder_has_its_place_in_the_order():
    assert {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").is_file()} == set(ORDER)


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_a_subpackage_imports_only_from_those_before_it(path):
    """Imports inside functions and for type checkers count, too."""
    own = ORDER.index(path.relative_to(PACKAGE).parts[0])
    for name in imports(path):
        other = name.split(".")[1]
        assert other in ORDER, f"{name} is at the top of the package: import the module that it re-exports"
        assert ORDER.index(other) <= own, f"{name_of(path)} imports {name}"


def test_there_are_no_cycles():
    """There are none even within a subpackage or by imports inside functions; imports only for type checkers do not
    count."""
    graph = {name: imports(path, types_too=False) for name, path in NAMES.items()}
    done: set[str] = set()

    def visit(name: str, above: tuple[str, ...]) -> None:
        assert name not in above, " -> ".join([*above[above.index(name) :], name])
        if name not in done:
            for other in graph[name] & set(graph):
                visit(other, (*above, name))
            done.add(name)

    for name in graph:
        visit(name, ())


def test_the_top_holds_only_re_exports():
    """Each top-level file has only a docstring, imports, `__all__`, and at most a call of its command."""
    files = {path.stem: path for path in PACKAGE.glob("*.py") if not path.stem.startswith("_")}
    assert set(files) == DOORS
    for path in files.values():
        docstring, *statements = tree_of(path).body
        assert isinstance(docstring, ast.Expr)
        for statement in statements:
            assert isinstance(statement, ast.Import | ast.ImportFrom | ast.Assign | ast.If), path.name
