"""The pages of the course have the form that CONTRIBUTING.md describes, and become notebooks that run."""

from __future__ import annotations

import ast
import contextlib
import io
import json
import re
from urllib.request import urlopen

import pytest

from mini_bert.learning import notebooks
from mini_bert.learning.course import PAGES, PHASES
from mini_bert.learning.notebooks import check_here, notebook, write_notebooks
from mini_bert.learning.pages import Piece, pieces

ROOT = PAGES.parent

PARTS = ["By hand", "In the library", "Predict, then run", "Exercise", "In the lab"]
every_page = pytest.mark.parametrize("phase", PHASES, ids=lambda phase: phase.page)


def text_of(phase) -> str:
    return (PAGES / phase.page).read_text(encoding="utf-8")


def run_cells(cells: list[dict], slow: bool) -> dict[str, object]:
    """Runs the code of a notebook; what it prints is what the notebook shows."""
    names: dict[str, object] = {}
    for cell in cells:
        if cell["cell_type"] != "code" or ("slow" in cell["metadata"].get("tags", []) and not slow):
            continue
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec("".join(cell["source"]), names)
        if cell["outputs"]:
            assert printed.getvalue() == "".join(cell["outputs"][0]["text"])
        elif "check_here" in "".join(cell["source"]):
            assert "You have not defined `my_" in printed.getvalue()  # the page itself contains no answer
    return names


@every_page
def test_a_page_has_its_parts(phase):
    """Title, idea, a section with all parts for each exercise, and a summary of ten lines."""
    title, *sections = re.split(r"^## ", text_of(phase), flags=re.MULTILINE)
    assert title.startswith(f"# {phase.number}. {phase.title}\n\n**The idea.** ")
    *numbered, summary = sections
    assert len(numbered) == len(phase.exercises)
    for exercise, section in zip(phase.exercises, numbered, strict=True):
        assert section.startswith(f"{exercise.id} ")
        headings = re.findall(r"^### (.*)$", section, re.MULTILINE)
        parts = [heading.removesuffix(f" {exercise.id}") for heading in headings]
        assert [part for part in parts if part in PARTS] == PARTS, exercise.id
        assert f"```console\npython run.py learn check {exercise.id} my_answer.py\n```" in section
        assert f"`{exercise.task.split('(')[0]}(" in section  # the function to write
        assert section.count("<details><summary>Answer</summary>\n\n") == section.count("\n</details>\n") >= 1
        assert "```python\n" in section.split("<details>")[1] and "/mini_bert/" in section
        assert re.search(r"`#[a-z]+(\?\S+)?`", section.split("### In the lab")[1])
    lines = re.findall(r"^(\d+)\. ", summary, re.MULTILINE)
    assert summary.startswith("Summary\n") and lines == [str(number) for number in range(1, 11)]


@every_page
def test_every_notebook_runs(phase, tmp_path, monkeypatch):
    """It has all blocks of the page, and prints what the page shows. The page defines no `my_…`, as learners do."""
    cells = notebook(text_of(phase))["cells"]
    sources = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    blocks = re.findall(r"^```python\n(.*?)\n```$", text_of(phase), re.DOTALL | re.MULTILINE)
    assert [source for source in sources if source in blocks] == blocks
    assert len(sources) == len(blocks) + 2 * len(phase.exercises)
    assert sum(bool(cell.get("outputs")) for cell in cells) == text_of(phase).count("```text\n")
    monkeypatch.chdir(tmp_path)
    names = run_cells(cells, slow=False)
    assert not [name for name in names if name.startswith("my_")]


@pytest.mark.slow
@every_page
def test_every_notebook_runs_with_its_slow_cells(phase, tmp_path, monkeypatch):
    if "<!-- slow -->" not in text_of(phase):
        pytest.skip("no slow blocks")
    monkeypatch.chdir(tmp_path)
    run_cells(notebook(text_of(phase))["cells"], slow=True)


@every_page
def test_a_page_does_not_need_its_folded_answers(phase):
    """Who opens no answer can run the rest: no block outside of them uses a name that was last set inside of one."""
    folded: dict[str, bool] = {}
    for piece in pieces(text_of(phase)):
        for statement in ast.parse(piece.source).body if piece.is_code else []:
            names = [node for node in ast.walk(statement) if isinstance(node, ast.Name)]
            used = {node.id for node in names if isinstance(node.ctx, ast.Load)}
            own = {node.id for node in names if isinstance(node.ctx, ast.Store)}
            if not isinstance(statement, ast.Assign | ast.AugAssign):  # for i in …: print(i)
                used -= own
            if not piece.folded:
                assert not [name for name in used if folded.get(name)], ast.unparse(statement)
            own |= {
                alias.asname or alias.name
                for node in ast.walk(statement)
                for alias in getattr(node, "names", [])
                if isinstance(node, ast.Import | ast.ImportFrom)
            }
            folded |= dict.fromkeys(own, piece.folded)


def test_notebooks_work_in_any_folder(tmp_path):
    """One valid notebook per page. It needs no file but the other notebooks: pictures are part of it, and a link to
    another file is the name of that file, because a notebook server shows only what is in its own folder."""
    out = tmp_path / "some where" / "notebooks"
    written = write_notebooks(out)
    assert [path.name for path in written] == [phase.page.replace(".md", ".ipynb") for phase in PHASES]
    for path in written:
        book = json.loads(path.read_text(encoding="utf-8"))
        assert (book["nbformat"], book["nbformat_minor"]) == (4, 5)
        assert len({cell["id"] for cell in book["cells"]}) == len(book["cells"])
        text = "".join("".join(cell["source"]) for cell in book["cells"] if cell["cell_type"] == "markdown")
        for target in re.findall(
            r"(?<!`)\]\((?!http:)([^)]+)", re.sub(r"```.*?```|`[^`\n]*`", "", text, flags=re.DOTALL)
        ):
            assert target in {other.name for other in written}, target
        for source in re.findall(r'<img alt="[^"]+" src="([^"]*)">', text):
            with urlopen(source) as picture:
                assert b"<svg" in picture.read()
        for named, line in re.findall(r"\(`([\w/]+\.\w+)`, line (\d+)\)", text):
            assert len((ROOT / named).read_text(encoding="utf-8").splitlines()) >= int(line)
        assert "<img" in text or "(../docs/pictures" not in text_of(PHASES[written.index(path)])
        assert "learn check" not in text and "(`mini_bert/" in text
        assert "```python" not in text and "```text" not in text.split("```console")[0]


def test_without_the_pages_the_remedy_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="clone the repository"):
        write_notebooks(tmp_path / "out", tmp_path / "no pages")


def test_pieces_of_a_page():
    """Text, code, its output, a folded answer and a slow block are told apart."""
    page = (
        "# T\n\ntext\n\n```python\nprint(1)\n```\n```text\n1\n```\n\n```console\n$ x\n```\n\n"
        "<details><summary>Answer</summary>\n\n"
        "why\n\n<!-- slow -->\n```python\nprint(2)\n```\n\n</details>\n\nend\n"
    )
    assert list(pieces(page)) == [
        Piece("# T\n\ntext", False),
        Piece("print(1)", True, "1\n"),
        Piece("```console\n$ x\n```", False),
        Piece("why", False, folded=True),
        Piece("print(2)", True, None, True, True),
        Piece("end", False),
    ]


def test_a_notebook_has_cells_for_its_exercises(monkeypatch, capsys):
    """An exercise is followed by a cell for the answer and one that checks it."""
    cells = notebook("# T\n\n## 1.2 S\n\n### Exercise 1.2\n\nWrite it.\n\n### In the lab\n\nLook.\n")["cells"]
    assert [cell["cell_type"] for cell in cells] == ["markdown", "code", "code", "markdown"]
    assert cells[2]["source"][-1] == 'check_here("1.2", globals())'
    check_here("1.2", {"my_linear": lambda x, W, b: x @ W + b})
    check_here("1.2", {"my_linear": lambda x, W, b: x @ W})
    assert capsys.readouterr().out.splitlines() == [
        "1.2 A linear layer: right.",
        "The bias is missing: add b to every row of x W.",
    ]
    assert notebooks.CHECK.search("### Exercise 1.2")
