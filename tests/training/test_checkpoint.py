"""Checkpoints are complete or absent, and damage is detected."""

import errno
import json
import os

import numpy as np
import pytest
from safetensors import SafetensorError

from mini_bert.common import atomic
from mini_bert.training import checkpoint
from mini_bert.training.checkpoint import CheckpointError, checksum, clean, folders, latest, read, save

MOMENTS = {"m": np.arange(5, dtype=np.float32), "v": np.ones(5, np.float32)}


def write_model(folder):
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(b"weights")


def saved(run, *steps):
    return [save(run, step, {"place": step}, MOMENTS, write_model) for step in steps]


def test_what_was_saved_is_read(tmp_path):
    (path,) = saved(tmp_path, 500)
    assert path == tmp_path / "checkpoints" / "step-00000500"
    found = read(path)
    assert found.state["step"] == found.state["place"] == 500
    assert sorted(found.state["files"]) == ["config.json", "model.safetensors", "optimizer.safetensors"]
    assert latest(tmp_path) == found
    assert [entry.name for entry in (tmp_path / "checkpoints").iterdir()] == ["step-00000500"]


def test_the_newest_comes_first_and_the_same_step_may_be_saved_again(tmp_path):
    saved(tmp_path, 9, 100, 20, 100)
    assert [path.name for path in folders(tmp_path)] == ["step-00000100", "step-00000020", "step-00000009"]
    assert latest(tmp_path).state["step"] == 100


@pytest.mark.parametrize("name", ["model.safetensors", "optimizer.safetensors", "state.json", "config.json"])
@pytest.mark.parametrize("harm", ["changed", "shorter", "gone"])
def test_a_damaged_checkpoint_is_found_out(tmp_path, caplog, name, harm):
    """The previous one is used, and a warning names the file."""
    saved(tmp_path, 1, 2)
    victim = tmp_path / "checkpoints" / "step-00000002" / name
    data = victim.read_bytes()
    if harm == "gone":
        victim.unlink()
    else:
        victim.write_bytes(data[:-1] + bytes([data[-1] ^ 1]) if harm == "changed" else data[: len(data) // 2])
    assert latest(tmp_path).state["step"] == 1
    (warning,) = caplog.messages
    assert name in warning and "skipping this damaged checkpoint and trying the previous one" in warning


@pytest.mark.parametrize("where", ["a file", "state.json", "the folder", "a newer format"])
def test_a_checkpoint_that_may_be_intact_is_neither_skipped_nor_deleted(tmp_path, monkeypatch, where):
    """For example, if a network drive does not answer. The error says what to do."""
    *_, newest = saved(tmp_path, 1, 2)

    def silent(*arguments):
        raise OSError(errno.EIO, os.strerror(errno.EIO), str(newest))

    with monkeypatch.context() as patch:
        if where == "a file":
            patch.setattr(checkpoint, "checksum", silent)
        elif where == "state.json":
            patch.setattr(checkpoint, "read_json", silent)
        elif where == "the folder":
            patch.setattr(os, "listdir", silent)
        else:
            state = json.loads((newest / "state.json").read_text())
            (newest / "state.json").write_text(json.dumps(state | {"format": 99}))
        with pytest.raises(OSError, match="Input/output error" if where == "the folder" else r"may be intact.*move "):
            latest(tmp_path)
    assert newest.is_dir()
    if where != "a newer format":
        assert latest(tmp_path).state["step"] == 2


def test_nothing_to_resume_is_said(tmp_path):
    with pytest.raises(FileNotFoundError, match="has no checkpoints, so there is nothing to resume"):
        latest(tmp_path)
    (path,) = saved(tmp_path, 1)
    (path / "config.json").write_text("other")
    with pytest.raises(ValueError, match=r"all 1 checkpoints in .* are damaged"):
        latest(tmp_path)


def test_a_changed_state_is_found_out(tmp_path):
    """Not only files that no longer parse: a single changed number is detected."""
    (path,) = saved(tmp_path, 1)
    state = json.loads((path / "state.json").read_text())
    (path / "state.json").write_text(json.dumps(state | {"place": 7}))
    with pytest.raises(ValueError, match="has changed since it was written: its checksum differs"):
        read(path)
    for content in ("[]", "3", '{"format": 1, "files": []}'):
        (path / "state.json").write_text(content)
        with pytest.raises(ValueError, match=r"state\.json"):
            read(path)


def test_what_is_newer_than_the_checkpoint_gone_on_from_makes_room(tmp_path):
    saved(tmp_path, 1, 2, 3)
    (tmp_path / "checkpoints" / "step-other").mkdir()
    checkpoint.forget_after(tmp_path, tmp_path / "checkpoints" / "step-00000002")
    assert [path.name for path in folders(tmp_path)] == ["step-00000002", "step-00000001"]
    assert (tmp_path / "checkpoints" / "step-other").is_dir()


def test_another_format_is_refused(tmp_path):
    (path,) = saved(tmp_path, 1)
    state = json.loads((path / "state.json").read_text()) | {"format": 99}
    (path / "state.json").write_text(json.dumps(state))
    with pytest.raises(ValueError, match="has format 99, this version reads 1"):
        read(path)


@pytest.mark.parametrize("where", ["write_tensors", "to_disk", "checksum"])
def test_a_full_disk_leaves_the_last_one_whole(tmp_path, monkeypatch, where):
    """The error says what is left, and no unfinished folder remains."""
    saved(tmp_path, 1)

    def full(*arguments):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(atomic if where == "to_disk" else checkpoint, where, full)
    with pytest.raises(CheckpointError, match=r"step 2 in .* could not be .*No space left.* step-00000001, is intact"):
        saved(tmp_path, 2)
    monkeypatch.undo()
    assert [entry.name for entry in (tmp_path / "checkpoints").iterdir()] == ["step-00000001"]
    assert latest(tmp_path).state["step"] == 1


def test_what_the_library_says_of_a_full_disk_is_an_os_error(tmp_path, monkeypatch):
    """safetensors has its own exception for this."""
    import safetensors.numpy

    def full(*arguments, **keywords):
        raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")

    monkeypatch.setattr(safetensors.numpy, "save_file", full)
    with pytest.raises(CheckpointError, match="No space left on device"):
        saved(tmp_path, 2)


def test_all_is_on_the_disk_before_it_gets_its_name(tmp_path, monkeypatch):
    """Every file and the folder are flushed before the rename, and the parent folder afterwards."""
    events, fsync, rename = [], os.fsync, os.rename
    monkeypatch.setattr(os, "fsync", lambda handle: (fsync(handle), events.append(os.fstat(handle).st_ino))[0])
    monkeypatch.setattr(os, "rename", lambda *names: (rename(*names), events.append("renamed"))[0])
    (path,) = saved(tmp_path, 1)
    place, folder = events.index("renamed"), [] if os.name == "nt" else [path]
    assert {entry.stat().st_ino for entry in [*path.iterdir(), *folder]} <= set(events[:place])
    assert os.name == "nt" or events[place + 1 :] == [path.parent.stat().st_ino]


class PowerCut(BaseException):
    """Nothing in the library catches it, so nothing is cleaned up, as when a process is killed."""


@pytest.mark.parametrize("keep", [1, 2])
def test_the_power_may_go_at_any_moment(tmp_path, monkeypatch, keep):
    """Before every system call while a checkpoint is written and old ones are removed: the newest finished checkpoint
    is found complete, and the next attempt leaves nothing else behind."""
    for moment in range(1, 99):
        run, calls = tmp_path / str(moment), []
        saved(run, 1, 2)
        clean(run, keep, None)

        def counted(function, calls=calls, moment=moment):
            def call(*arguments, **keywords):
                calls.append(function.__name__)
                if len(calls) == moment:
                    raise PowerCut
                return function(*arguments, **keywords)

            return call

        with pytest.MonkeyPatch.context() as patch:
            for name in ("mkdir", "open", "fsync", "replace", "rename", "unlink", "rmdir"):
                patch.setattr(os, name, counted(getattr(os, name)))
            try:
                saved(run, 3)
                clean(run, keep, None)
                break
            except PowerCut:
                pass
        renamed = "rename" in calls[: moment - 1]
        assert latest(run).state["step"] == (3 if renamed else 2), calls
        saved(run, 3)
        clean(run, keep, None)
        assert sorted(entry.name for entry in (run / "checkpoints").iterdir()) == [
            f"step-{step:08d}" for step in range(4 - keep, 4)
        ]
    assert len(calls) > 10 and {"fsync", "replace", "rename"} <= set(calls)


def test_the_power_may_go_while_the_same_step_is_saved_again(tmp_path):
    """Before every rename and deletion, the old or the new version is found, complete."""
    for moment in range(1, 99):
        run, calls = tmp_path / str(moment), []
        saved(run, 1)

        def cut(function, calls=calls, moment=moment):
            def call(*arguments, **keywords):
                calls.append(function.__name__)
                if len(calls) >= moment:  # and everything after it: nothing is repaired
                    raise PowerCut
                return function(*arguments, **keywords)

            return call

        with pytest.MonkeyPatch.context() as patch:
            for name in ("replace", "rename", "unlink", "rmdir"):
                patch.setattr(os, name, cut(getattr(os, name)))
            try:
                save(run, 1, {"place": "new"}, MOMENTS, write_model)
                break
            except PowerCut:
                pass
        renamed = calls[: moment - 1].count("rename")
        assert latest(run).state["place"] == ("new" if renamed == 2 else 1), calls
        clean(run, 1, None)
        assert [path.name for path in (run / "checkpoints").iterdir()] == ["step-00000001"]
    assert calls.count("rename") == 2


def test_the_only_version_is_not_cleaned_up(tmp_path, monkeypatch):
    """If the old version of a checkpoint cannot be renamed, it stays where it is."""
    (path,) = saved(tmp_path, 1)
    old = path.rename(atomic.old_version(path))
    monkeypatch.setattr(checkpoint, "recover_folder", lambda target: None)
    clean(tmp_path, 1, None)
    assert old.is_dir()


@pytest.mark.skipif(os.name == "nt", reason="permissions of POSIX")
def test_checkpoints_follow_the_umask(tmp_path):
    before = os.umask(0o027)
    try:
        (path,) = saved(tmp_path, 1)
    finally:
        os.umask(before)
    assert {entry.stat().st_mode & 0o777 for entry in path.iterdir()} == {0o640}
    assert {folder.stat().st_mode & 0o777 for folder in (path, path.parent)} == {0o750}


def test_a_checkpoint_whose_replacement_was_cut_short_is_found(tmp_path):
    """After a crash between the two renames, only the old version is left, under a hidden name."""
    (path,) = saved(tmp_path, 1)
    path.rename(path.with_name(f".{path.name}.old"))
    assert latest(tmp_path).state["step"] == 1 and path.is_dir()


def test_cleaning_keeps_the_newest_and_the_best(tmp_path):
    saved(tmp_path, 1, 2, 3, 4, 5)
    (tmp_path / "checkpoints" / ".step-00000006.abc").mkdir()
    clean(tmp_path, keep=2, best="step-00000002")
    assert [path.name for path in folders(tmp_path)] == ["step-00000005", "step-00000004", "step-00000002"]
    assert not list((tmp_path / "checkpoints").glob(".step-*"))


def test_a_checksum_is_sha256(tmp_path):
    (tmp_path / "x").write_bytes(b"abc")
    assert checksum(tmp_path / "x") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
