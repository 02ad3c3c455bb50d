"""Clumsy and hostile uses of everything: each ends in the stated way, with a sentence instead of a traceback.

The tables are in clumsy.py, hostile.py, calls.py and family_*.py, one line per case. Commands run in their own
process, in an empty folder, under a time limit and a memory limit. What a case was given must be unchanged afterwards,
no file PWNED may appear (harmful files try to make one), and no escape sequence may reach the terminal.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from calls import CALLS
from clumsy import CLUMSY
from family_clumsy import FAMILY_CLUMSY
from family_hostile import FAMILY_CALLS, FAMILY_HOSTILE
from hostile import HOSTILE

pytestmark = pytest.mark.slow

SECONDS, MEMORY = 60, 6 << 30
ROOT = Path(__file__).parents[2]


def contents(folder: Path) -> dict[str, str]:
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def set_limits(limits: dict[str, int]) -> None:
    import resource

    for name, value in ({"AS": MEMORY} | limits).items():
        resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (value, value))


@pytest.mark.parametrize("case", [*CLUMSY, *HOSTILE, *FAMILY_CLUMSY, *FAMILY_HOSTILE], ids=repr)
def test_command(case, tmp_path):
    """The command ends in time with this exit code, says what it must, prints no traceback and harms no file."""
    made, here = tmp_path / "made", tmp_path / "here"
    made.mkdir(), here.mkdir()
    paths = {}
    for name, maker in case.makers.items():
        (made / name).mkdir()
        paths[name] = shlex.quote(str(maker(made / name)))
    words = shlex.split(re.sub(r"\{(\w+)\}", lambda match: paths.get(match[1], match[0]), case.run))
    environment = os.environ | {"PYTHONPATH": str(ROOT), "COLUMNS": "100"} | case.env
    if case.limits:
        environment["PYTHONDONTWRITEBYTECODE"] = "1"  # under a limit on files, Python writes half a .pyc
    before = contents(made)
    stdin = case.stdin if isinstance(case.stdin, bytes) else case.stdin.encode()
    with open(case.stdout or tmp_path / "stdout", "w+b") as stdout:
        done = subprocess.run(
            [sys.executable, "-X", "utf8", "-m", "mini_bert", *words], input=stdin, stdout=stdout, cwd=here,
            stderr=subprocess.PIPE, env=environment, timeout=SECONDS,
            preexec_fn=(lambda: set_limits(case.limits)) if os.name == "posix" else None,
        )  # fmt: skip
    answer = b"" if case.stdout else (tmp_path / "stdout").read_bytes()
    printed = (answer + b"\n" + done.stderr).decode(errors="replace")
    assert "Traceback" not in printed, printed[-3000:]
    assert done.returncode == case.end, printed[-3000:]
    assert re.search(case.says, re.sub(r"\s+", " ", printed)), printed[-3000:]
    assert case.writes or contents(made) == before
    assert "\x1b" not in printed
    assert not list(tmp_path.rglob("PWNED*"))
    if case.check:
        case.check(here)


@pytest.mark.parametrize("case", [*CALLS, *FAMILY_CALLS], ids=repr)
def test_call(case, tmp_path, monkeypatch):
    """The call returns (None) or raises this kind of error with a message that says what it must."""
    monkeypatch.chdir(tmp_path)
    names = {name: maker(tmp_path) for name, maker in case.makers.items()}
    code = f"from mini_bert import *\n{case.run}"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if case.end is None:
            exec(code, {"np": np, "nan": np.nan, "inf": np.inf, **names})
            return
        with pytest.raises(case.end) as raised:
            exec(code, {"np": np, "nan": np.nan, "inf": np.inf, **names})
    assert type(raised.value) is case.end
    assert re.search(case.says, str(raised.value)), raised.value
