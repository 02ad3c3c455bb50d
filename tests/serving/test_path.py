"""The commands in docs/serving.md, from pretraining to calls in three languages, work as they are written."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
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


class Calls:
    """Runs the calls of the document, on the port of our server."""

    def __init__(self, folder: Path, port: int, calls: list[tuple[str, str, str]]):
        self.folder = folder
        self.calls = {name: code.replace("127.0.0.1:8080", f"127.0.0.1:{port}") for _, name, code in calls}

    def run(self, program: str, name: str) -> str:
        (self.folder / name).write_text(self.calls[name], encoding="utf-8")
        return run([program, name], self.folder)


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """All commands before the server, and the server"""
    if sys.platform == "win32":
        pytest.skip("the commands are for a Unix shell")
    pytest.importorskip("onnxruntime", reason="needs the extra `onnx`: pip install -e '.[onnx]'")
    folder = tmp_path_factory.mktemp("path")
    blocks = BLOCK.findall(TEXT)
    place = [kind for kind, *_ in blocks].index("serve")
    for _, _, lines in blocks[:place]:
        for words in commands(lines):
            run(words, folder)
    (words,) = commands(blocks[place][2])
    options = words[len(PYTHON) + 1 : words.index("--port")]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        with process(*options, PYTHONPATH=str(ROOT)) as (_, port):
            yield Calls(folder, port, blocks[place + 1 :])


@pytest.mark.peers
def test_the_folders_have_graphs(served):
    found = {str(path.relative_to(served.folder)) for path in served.folder.glob("*/onnx/*")}
    assert found == {
        "base/onnx/model.onnx",
        "sentiment/onnx/model.onnx",
        "sentiment-int8/onnx/model_quantized.onnx",
    }


@pytest.mark.peers
@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl")
def test_with_curl(served):
    """Both models of sentiment are right, the one in 8 bits with about the same score; the third one fills gaps."""
    (good, bad), small, filled = (json.loads(run(words, served.folder)) for words in commands(served.calls[""]))
    assert [good[0]["label"], bad[0]["label"], small[0]["label"]] == ["positive", "negative", "negative"]
    assert small[0]["score"] == pytest.approx(bad[0]["score"], abs=0.05) and small != bad
    assert len(filled) == 5 and all(guess["sequence"].endswith(" sat.") for guess in filled)


@pytest.mark.peers
def test_from_python(served):
    assert re.fullmatch(r"\[-?[\d.e-]+, -?[\d.e-]+\]\n", served.run(sys.executable, "call.py"))


@pytest.mark.peers
@pytest.mark.skipif(shutil.which("node") is None, reason="there is no Node; Debian and Ubuntu: apt install nodejs")
def test_from_javascript(served):
    assert served.run(shutil.which("node"), "call.mjs") == "[ 192, 192 ]\n"


def test_the_systemd_unit_and_the_image_name_options_that_exist():
    from mini_bert.cli.serve import serve

    names = {f"--{name.replace('_', '-')}" for name in serve.__annotations__}
    for option in re.findall(r"`(--[a-z-]+)`", TEXT):
        assert option.replace("--no-", "--") in names | {"--init", "--corpus", "--minutes"}, option


def test_the_image_has_all_that_the_package_is_made_of():
    """Nothing else is copied into it, such as .git, runs or an environment."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    project, packages = settings["project"], settings["tool"]["setuptools"]["packages"]["find"]["include"]
    needed = {"pyproject.toml", project["readme"], *project["license-files"], *(name.rstrip("*") for name in packages)}
    copied = [words.split()[:-1] for words in re.findall(r"^COPY (?!--from)(.*)$", TEXT, re.M)]
    assert {name for names in copied for name in names} == needed


@pytest.mark.peers
@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd-analyze")
def test_systemd_reads_the_unit(tmp_path):
    """It finds no unknown key or value, once the program exists."""
    (unit,) = re.findall(r"^```ini\n(.*?)^```$", TEXT, re.S | re.M)
    (tmp_path / "mini-bert.service").write_text(re.sub("(?<=ExecStart=)\\S+", sys.executable, unit), encoding="utf-8")
    command = ["systemd-analyze", "verify", str(tmp_path / "mini-bert.service")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "mini-bert.service" not in done.stdout + done.stderr, done.stderr
