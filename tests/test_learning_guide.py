"""The blocks of the user's own learning guide run as they are written there.

Most of them are shell commands: `cd mini_bert`, then `python -c "…"`. A block without `cd` is for a reader who is there
already. They run in a copy of the package, because some write a file. Two blocks load `tokenizer_8k.pkl`. A
pickle is never loaded, and the error names the bundled tokenizer, with which they run.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
GUIDE = ROOT.parent / "shared" / "reference" / "learning_guide.md"
PICKLE = "tokenizer_8k.pkl"
TEXT = GUIDE.read_text(encoding="utf-8") if GUIDE.is_file() else ""
BLOCKS = re.findall(r"^```(?:python|bash)\n(.*?)^```", TEXT, re.S | re.M)

SCRIPT = re.compile(r"^python \w+\.py", re.M)  # probes, fine-tuning and the like take seconds each, other blocks do not

pytestmark = [
    pytest.mark.skipif(not BLOCKS, reason="needs ../shared/reference/learning_guide.md"),
    pytest.mark.skipif(shutil.which("bash") is None, reason="the guide's blocks are for a Unix shell"),
]


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """A folder with a copy of the package, and an environment in which `python` is this Python."""
    folder = tmp_path_factory.mktemp("guide")
    shutil.copytree(ROOT / "mini_bert", folder / "mini_bert", ignore=shutil.ignore_patterns("__pycache__"))
    programs = folder / "bin"
    programs.mkdir()
    (programs / "python").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    (programs / "python").chmod(0o755)
    environment = os.environ | {
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(folder),
        "MPLBACKEND": "agg",
        "PYTHONUTF8": "1",
    }
    return folder, environment


def shell(block: str, copy) -> subprocess.CompletedProcess[str]:
    folder, environment = copy
    place = folder if "cd mini_bert" in block else folder / "mini_bert"
    return subprocess.run(
        ["bash", "-e", "-c", block], cwd=place, env=environment, capture_output=True, text=True, encoding="utf-8"
    )


def test_all_blocks_are_found():
    """None is lost to a change of the format of the guide."""
    assert len(BLOCKS) > 25


@pytest.mark.parametrize(
    "block",
    [pytest.param(block, marks=[pytest.mark.slow] * bool(SCRIPT.search(block))) for block in BLOCKS],
    ids=lambda block: block.splitlines()[0].lstrip("# ")[:40],
)
def test_a_block_of_the_guide_runs(block, copy):
    if PICKLE in block:
        assert "load('8k') gives the bundled one" in shell(block, copy).stderr
    ran = shell(block.replace(PICKLE, "8k"), copy)
    assert ran.returncode == 0 and "Traceback" not in ran.stderr, ran.stderr
