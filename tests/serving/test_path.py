"""The commands in docs/serving.md, from pretraining to calls in three languages, work as they are written."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.serving.test_process import process

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "serving.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^<!-- (path|serve)(?:: (\S+))? -->\n```\w+\n(.*?)^```$", re.S | re.M)
PYTHON = [sys.executable, "-m", "mini_bert"]


def run(words: list[str], folder: Path) -> str:
    done = subprocess.run(
        words, cwd=folder, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=False
    )
    assert done.returncode == 0, f"{words}\n{done.stdout}{done.stderr}"
    return done.stdout


def commands(text: str) -> list[list[str]]:
    return [shlex.split(line.replace("python run.py", shlex.join(PYTHON))) for line in text.splitlines()]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="the commands are for a Unix shell")
def test_the_complete_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    before, serve, *calls = BLOCK.findall(TEXT)
    for words in commands(before[2]):
        run(words, tmp_path)
    assert serve[0] == "serve"
    (served,) = commands(serve[2])
    options = served[len(PYTHON) + 1 : served.index("--port")]
    with process(*options, PYTHONPATH=str(ROOT)) as (_, port):
        answers = []
        for _, name, code in calls:
            here = code.replace("127.0.0.1:8080", f"127.0.0.1:{port}")
            if not name:
                answers += [run(words, tmp_path) for words in commands(here)]
                continue
            (tmp_path / name).write_text(here, encoding="utf-8")
            program = sys.executable if name.endswith(".py") else shutil.which("node")
            answers.append(run([program, name], tmp_path) if program else "no Node")
    predicted, filled, similar, widths = answers
    assert '"label": "positive"' in predicted and '"sequence"' in filled
    assert re.fullmatch(r"\[-?[\d.e-]+, -?[\d.e-]+\]\n", similar)
    assert widths in ("[ 192, 192 ]\n", "no Node")


def test_the_systemd_unit_and_the_image_name_options_that_exist():
    from mini_bert.cli.serve import serve

    names = {f"--{name.replace('_', '-')}" for name in serve.__annotations__}
    for option in re.findall(r"`(--[a-z-]+)`", TEXT):
        assert option.replace("--no-", "--") in names | {"--init", "--corpus", "--minutes"}, option
