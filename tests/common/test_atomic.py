"""Files and folders are replaced completely or not at all."""

import os
import subprocess
import sys
import time

import numpy as np
import pytest

from mini_bert.common import atomic
from mini_bert.common.atomic import old_version, recover_folder, replaced_folder, write_atomic
from mini_bert.files.model_folder import write_tensors


def write(target, text):
    with replaced_folder(target) as new:
        (new / "sub").mkdir()
        (new / "sub" / "file").write_text(text)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_folder_is_created_and_replaced(tmp_path):
    target = tmp_path / "home" / "target"
    for text in ("old", "new"):
        write(target, text)
        assert (target / "sub" / "file").read_text() == text
        assert names(target.parent) == ["target"]


@pytest.mark.parametrize("error", [OSError("full"), KeyboardInterrupt()])
def test_an_error_while_writing_leaves_the_old_version(tmp_path, error):
    write(tmp_path / "target", "old")
    with pytest.raises(type(error)), replaced_folder(tmp_path / "target") as new:
        (new / "file").write_text("half")
        raise error
    assert (tmp_path / "target" / "sub" / "file").read_text() == "old" and names(tmp_path) == ["target"]


@pytest.mark.parametrize("failing", [1, 2])
def test_an_interruption_between_the_renames_restores_the_old_version(tmp_path, monkeypatch, failing):
    write(tmp_path / "target", "old")
    rename, calls = os.rename, []

    def interrupted(*paths):
        calls.append(paths)
        if len(calls) == failing:
            raise KeyboardInterrupt
        rename(*paths)

    monkeypatch.setattr(os, "rename", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write(tmp_path / "target", "new")
    assert (tmp_path / "target" / "sub" / "file").read_text() == "old" and names(tmp_path) == ["target"]


KILLED = """
import os, sys
from pathlib import Path
from mini_bert.common.atomic import replaced_folder
calls, target = [], Path(sys.argv[1])
def killed(event, arguments):
    if event == "os.rename":
        calls.append(arguments)
        if len(calls) == int(sys.argv[2]):
            os._exit(9)
sys.addaudithook(killed)
with replaced_folder(target) as new:
    (new / "file").write_text("new")
"""


@pytest.mark.parametrize("moment", [1, 2])
def test_a_killed_process_leaves_a_whole_version(tmp_path, moment):
    """If a process is killed before or between the renames, the old version is found, and the next attempt succeeds."""
    target = tmp_path / "target"
    write(target, "old")
    assert subprocess.run([sys.executable, "-c", KILLED, str(target), str(moment)]).returncode == 9
    found = target if moment == 1 else old_version(target)
    assert (found / "sub" / "file").read_text() == "old" and target.exists() == (moment == 1)
    if moment == 2:
        recover_folder(target)
        assert (target / "sub" / "file").read_text() == "old"
    write(target, "new")
    assert (target / "sub" / "file").read_text() == "new" and not old_version(target).exists()


def test_an_old_version_is_kept_until_the_new_one_is_in_place(tmp_path):
    write(tmp_path / ".target.old", "only version")
    with pytest.raises(ValueError), replaced_folder(tmp_path / "target"):
        raise ValueError
    recover_folder(tmp_path / "target")
    assert (tmp_path / "target" / "sub" / "file").read_text() == "only version"


def test_abandoned_folders_are_removed_after_a_day(tmp_path):
    for name, age in ((".unfinished-target-1", 90_000), (".unfinished-target-2", 60)):
        (tmp_path / name).mkdir()
        os.utime(tmp_path / name, (time.time() - age,) * 2)
    write(tmp_path / "target", "new")
    assert names(tmp_path) == [".unfinished-target-2", "target"]


@pytest.mark.skipif(os.name == "nt", reason="permissions of POSIX")
@pytest.mark.parametrize("umask", [0o022, 0o077])
def test_the_umask_is_respected(tmp_path, umask):
    before = os.umask(umask)
    try:
        write(tmp_path / "target", "new")
        write_atomic(tmp_path / "file", b"x")
        write_tensors(tmp_path / "weights", {"x": np.ones(3)})
    finally:
        os.umask(before)
    assert (tmp_path / "weights").stat().st_mode & 0o777 == 0o666 & ~umask
    assert (tmp_path / "target").stat().st_mode & 0o777 == 0o777 & ~umask
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o666 & ~umask


@pytest.mark.skipif(os.name == "nt", reason="links need a privilege")
def test_the_folder_behind_a_link_is_replaced(tmp_path):
    write(tmp_path / "real", "old")
    (tmp_path / "link").symlink_to("real")
    write(tmp_path / "link", "new")
    assert (tmp_path / "real" / "sub" / "file").read_text() == "new" and (tmp_path / "link").is_symlink()


def test_a_file_is_not_replaced_by_a_folder(tmp_path):
    (tmp_path / "target").write_text("mine")
    with pytest.raises(FileExistsError, match="target is a file, expected a folder"):
        write(tmp_path / "target", "new")
    assert (tmp_path / "target").read_text() == "mine" and names(tmp_path) == ["target"]


def test_everything_is_on_the_disk_before_the_rename(tmp_path, monkeypatch):
    events, rename = [], os.rename
    monkeypatch.setattr(atomic, "to_disk", lambda path: events.append(path.name))
    monkeypatch.setattr(os, "rename", lambda *paths: (events.append("rename"), rename(*paths)))
    write(tmp_path / "target", "new")
    place = events.index("rename")
    assert {"sub", "file"} < set(events[:place]) and events[place + 1 :] == [tmp_path.name]
