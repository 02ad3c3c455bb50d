"""Links to lines of source lead to the definitions that they mention.

    [layers/linear.py: Linear.forward](../mini_bert/layers/linear.py#L38)

Run as a script, this file corrects the line numbers in all documents.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [
    path
    for path in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/**/*.md"), *ROOT.glob("learn/**/*.md")]
    if path.is_file()
]
LINK = re.compile(r"(?<!`)\[`?(?P<label>[^\]`]*)`?\]\((?P<path>[^)#]+\.py)#L(?P<line>\d+)\)")
LABEL = re.compile(r"(?P<file>[\w/]+\.py):\s(?P<name>[\w.]+)")


def definitions(path: Path) -> dict[str, int]:
    """The line of every function, class, method and assigned name in a file: {"Linear.forward": 38, …}."""
    found: dict[str, int] = {}

    def visit(node: ast.AST, prefix: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.ClassDef):
                found.setdefault(prefix + child.name, child.lineno)
                visit(child, f"{prefix}{child.name}.")
            elif isinstance(child, ast.Assign | ast.AnnAssign):
                targets = child.targets if isinstance(child, ast.Assign) else [child.target]
                for target in targets:
                    if isinstance(target, ast.Name):
                        found.setdefault(prefix + target.id, child.lineno)

    visit(ast.parse(path.read_text(encoding="utf-8")), "")
    return found


def problems(page: Path) -> list[str]:
    told = []
    for link in LINK.finditer(page.read_text(encoding="utf-8")):
        label, target = LABEL.fullmatch(link["label"]), page.parent / link["path"]
        if label is None:
            told.append(f"{link[0]}: the text of the link must be like layers/linear.py: Linear.forward")
        elif not target.is_file():
            told.append(f"{link[0]}: there is no such file")
        elif not target.as_posix().endswith(label["file"]):
            told.append(f"{link[0]}: the text names another file")
        elif (line := definitions(target).get(label["name"])) != int(link["line"]):
            told.append(f"{link[0]}: {label['name']} is defined in line {line}")
    return told


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_to_lines_lead_to_what_they_mention(page):
    """The line holds the definition of the name. To correct the numbers: python tests/test_source_links.py"""
    assert not problems(page)


def test_a_wrong_line_is_found(tmp_path):
    """A moved line, a name that does not exist, another file, a missing file and a link without a name are reported."""
    (tmp_path / "code.py").write_text("X = 1\n\n\nclass A:\n    def f(self):\n        pass\n")
    page = tmp_path / "page.md"
    for text, good in {
        "[code.py: A.f](code.py#L5)": True,
        "[`code.py: X`](code.py#L1)": True,
        "[code.py: A.f](code.py#L4)": False,
        "[code.py: A.g](code.py#L5)": False,
        "[other.py: A.f](code.py#L5)": False,
        "[code.py: A](missing.py#L4)": False,
        "[see here](code.py#L4)": False,
    }.items():
        page.write_text(text)
        assert (not problems(page)) == good, text


def corrected(page: Path) -> str:
    """The page with the right line numbers, where the name exists."""

    def link(found: re.Match[str]) -> str:
        label, target = LABEL.fullmatch(found["label"]), page.parent / found["path"]
        line = definitions(target).get(label["name"]) if label and target.is_file() else None
        return found[0] if line is None else found[0].replace(f"#L{found['line']})", f"#L{line})")

    return LINK.sub(link, page.read_text(encoding="utf-8"))


if __name__ == "__main__":
    for page in PAGES:
        text = corrected(page)
        if text != page.read_text(encoding="utf-8"):
            page.write_text(text, encoding="utf-8", newline="\n")
            print(page.relative_to(ROOT))
