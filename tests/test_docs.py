"""Code in the documents runs and prints what the documents show.

A block of ```python is executed; the blocks of one document share their names, as in a reader's session. If the next
block is ```text, it is the output, compared exactly. A block after the line <!-- slow --> runs only in the slow tests,
one after <!-- onnx --> only where the extra `onnx` is installed.
"""

import contextlib
import io
import re
from importlib.util import find_spec
from pathlib import Path

import pytest

from mini_bert.learning.course import PHASES

ROOT = Path(__file__).parent.parent
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
DOCUMENTS += sorted((ROOT / "learn").rglob("*.md"))
PAGES = [ROOT / "learn" / phase.page for phase in PHASES]  # tests/learning/test_pages.py runs them, as notebooks
BLOCK = re.compile(r"(?:^<!-- (slow|onnx) -->\n)?^```python\n(.*?)^```\n(?:\s*^```text\n(.*?)^```)?", re.S | re.M)
CODE = re.compile(r"^```.*?^```$|`[^`\n]*`", re.S | re.M)
LINK = re.compile(r"\]\(([^)#]+)(?:#[^)]*)?\)")


@pytest.mark.parametrize("slow", [False, pytest.param(True, marks=pytest.mark.slow, id="slow")])
@pytest.mark.parametrize("path", [path for path in DOCUMENTS if path not in PAGES], ids=lambda path: path.name)
def test_code_in_documents(path, slow, tmp_path, monkeypatch):
    """Every python block runs; where an output is shown, it is the actual output."""
    monkeypatch.chdir(tmp_path)
    blocks = BLOCK.findall(path.read_text(encoding="utf-8"))
    if slow and not any(marked == "slow" for marked, *_ in blocks):
        pytest.skip("no slow blocks")
    names: dict[str, object] = {}
    for marked, code, shown in blocks:
        if (marked == "slow" and not slow) or (marked == "onnx" and find_spec("onnxruntime") is None):
            continue
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            exec(compile(code, str(path), "exec"), names)
        if shown:
            assert output.getvalue() == shown


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(path):
    """Every link to a file of this repository resolves."""
    for target in LINK.findall(CODE.sub("", path.read_text(encoding="utf-8"))):
        if "://" not in target:
            assert (path.parent / target).exists(), target


def anchors(path: Path) -> set[str]:
    """The names that GitHub gives to the headings of a document: lower case, no punctuation, hyphens for spaces."""
    headings = re.findall(r"^#+ (.*)$", CODE.sub("", path.read_text(encoding="utf-8")), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_links_to_headings_lead_somewhere(path):
    """A link such as page.md#11-a-section, or #a-section, names a heading that exists."""
    text = CODE.sub("", path.read_text(encoding="utf-8"))
    for target, anchor in re.findall(r"\]\(((?:[\w./-]+\.md)?)#([^)]+)\)", text):
        assert anchor in anchors(path.parent / target if target else path), f"{target}#{anchor}"


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_commands_are_typed_as_in_the_readme(path):
    """A reader who has only cloned the repository types `python run.py …`; there is no program mini-bert yet."""
    assert not re.search(r"(^ *|`|\$ )mini-bert [a-z]", path.read_text(encoding="utf-8"), re.MULTILINE)


PLACEHOLDER = re.compile(r"\b(MEASURED_\w*|TODO|FIXME|TBD|XXX+)\b|\?\?\?|^[A-Z_]{4,}$", re.MULTILINE)


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_nothing_is_left_to_be_filled_in(path):
    """No document contains a placeholder for a number or a sentence."""
    assert not PLACEHOLDER.search(path.read_text(encoding="utf-8"))


def test_the_readme_has_a_short_map_of_every_folder():
    """The map lists each subpackage, in at most 25 lines."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    (shown,) = re.findall(r"^```text\n(run\.py .*?)^```", text, re.S | re.M)
    assert len(shown.splitlines()) <= 25
    for folder in (ROOT / "mini_bert").iterdir():
        if (folder / "__init__.py").is_file():
            assert f"{folder.name}/" in shown, folder.name
