"""The history of a run is read correctly, however the run ended."""

import doctest
import json
import math

import pytest

from mini_bert.training import history as module
from mini_bert.training.history import read_run, until


def lines(*records):
    return "".join(json.dumps(record) + "\n" for record in records)


def train(step, loss):
    return {"kind": "train", "step": step, "loss": loss}


def test_series_leave_out_what_is_no_number(tmp_path):
    """null, as written by training/loop.py, and NaN, as written by json, are not points of a curve."""
    text = lines(train(1, 9.0), train(2, None), train(3, math.nan), train(4, 8.0))
    (tmp_path / "metrics.jsonl").write_text(text, encoding="utf-8")
    history = read_run(tmp_path)
    assert history.series("train", "loss") == ([1, 4], [9.0, 8.0])
    assert history.steps == 4 and history.last("eval") == {} and history.unigram_loss is None


def test_half_a_last_line(tmp_path):
    """A kill in the middle of a line loses only that line."""
    (tmp_path / "metrics.jsonl").write_text(lines(train(1, 9.0)) + '{"kind": "train", "st', encoding="utf-8")
    assert read_run(tmp_path).series("train", "loss") == ([1], [9.0])


def test_a_record_glued_to_half_a_line(tmp_path):
    """A resumed run that appends after half a line loses none of its own records."""
    text = (
        lines(train(1, 9.0)) + '{"kind": "train", "step": 2, "lo' + lines({"kind": "resume", "step": 1}, train(2, 7.0))
    )
    (tmp_path / "metrics.jsonl").write_text(text, encoding="utf-8")
    assert [record["kind"] for record in read_run(tmp_path).records] == ["train", "resume", "train"]


def test_a_resumed_run_is_one_story(tmp_path):
    """Records after the checkpoint were repeated and count once; an earlier stop does not count."""
    before = [{"kind": "start", "step": 0, "unigram_loss": 6.5}, train(50, 9.0), train(100, 8.0), train(150, 5.0)]
    stop, resume = {"kind": "stop", "step": 100, "reason": "interrupted"}, {"kind": "resume", "step": 100}
    (tmp_path / "metrics.jsonl").write_text(lines(*before, stop, resume, train(150, 7.0)), encoding="utf-8")
    history = read_run(tmp_path)
    assert history.series("train", "loss") == ([50, 100, 150], [9.0, 8.0, 7.0])
    assert history.unigram_loss == 6.5 and not history.last("stop")


def test_what_counts_when_a_run_goes_on():
    """Records up to and including that step; no stop record, wherever it is."""
    records = [train(5, 9.0), {"kind": "stop", "step": 5, "reason": "interrupted"}, train(10, 8.0), train(11, 7.0)]
    assert until(records, 10) == [train(5, 9.0), train(10, 8.0)]


def test_a_new_start_in_an_old_folder(tmp_path):
    """Only the last run counts."""
    text = lines({"kind": "start", "step": 0}, train(50, 9.0), {"kind": "start", "step": 0}, train(10, 8.0))
    (tmp_path / "metrics.jsonl").write_text(text, encoding="utf-8")
    assert read_run(tmp_path).series("train", "loss") == ([10], [8.0])


def test_lines_that_are_no_records(tmp_path):
    """Numbers, lists, objects without kind or step, and bytes that are not text are skipped."""
    text = b'3\n[]\n{"kind": "train"}\n{"step": 3}\n\n' + b"\xff\xfe\n" + lines(train(1, 9.0)).encode()
    (tmp_path / "metrics.jsonl").write_bytes(text)
    assert len(read_run(tmp_path).records) == 1


def test_no_run_folder(tmp_path):
    """The error names the folder, and says how to create a run."""
    with pytest.raises(ValueError, match=r"has no metrics.jsonl; expected a run folder, which `mini-bert train --out"):
        read_run(tmp_path)
    with pytest.raises(ValueError, match="nowhere is not a folder"):
        read_run(tmp_path / "nowhere")


def test_examples_in_docstrings():
    assert doctest.testmod(module).failed == 0
