"""Faults that the table of hostile cases (tests/cases) found: each is one sentence, and no file is lost."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "finetuning"))
import tiny_tasks as tiny

from mini_bert.cli.inside import layer_numbers
from mini_bert.cli.use import embed
from mini_bert.common.cache_folder import cache_folder
from mini_bert.corpora.reading import Report, read
from mini_bert.finetuning import model as finetuned
from mini_bert.finetuning.tasks.classify import Classify
from mini_bert.models.registry import config_from
from mini_bert.training.history import read_run
from mini_bert.training.run_folder import RunFolder


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"id2label": ["no", "yes"]}, "id2label in config.json is"),
        ({"id2label": {"x": "no", "y": "yes"}}, "expected a name for each of 0, 1, 2"),
        ({"id2label": {"-1": "no", "0": "yes"}}, "expected a name for each of 0, 1, 2"),
        ({"id2label": {"0": None, "1": []}}, "expected a name for each of 0, 1, 2"),
        ({"architectures": 5}, "architectures in config.json is 5"),
        ({"fine_tuning": [1]}, "fine_tuning in config.json is"),
        ({"fine_tuning": {"task": ["classify"]}}, "fine-tuned for"),
        ({"fine_tuning": {"task": "classify", "evil": 1}}, "unknown settings: {'evil': 1}"),
        ({"fine_tuning": {"task": "classify", "length": None}}, "length is None"),
        ({"fine_tuning": {"task": "classify", "length": -1}}, "length is -1"),
    ],
)
def test_a_task_with_values_of_other_types(change, says, tmp_path):
    """The error names the field of config.json."""
    model = finetuned.with_task(tiny.encoder(), Classify(["no", "yes"]))
    finetuned.save(tmp_path, model, Classify(["no", "yes"]), tiny.TOKENIZER, 8)
    config = tmp_path / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | change))
    with pytest.raises(ValueError, match=says):
        finetuned.load(tmp_path)


def test_layers_beyond_every_model():
    """A range of 10**30 layers is refused, not listed."""
    with pytest.raises(ValueError, match="expected numbers from 0"):
        layer_numbers(f"0-{10**30}")


def test_the_home_of_an_unknown_user(monkeypatch):
    """The error names the variable."""
    monkeypatch.setenv("MINI_BERT_HOME", "~nobody-of-this-name/x")
    with pytest.raises(ValueError, match="MINI_BERT_HOME is"):
        cache_folder()


def test_vectors_do_not_replace_the_texts(tmp_path):
    """--out that is --file under another name is refused, and the texts stay."""
    texts, link = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    texts.write_text("cat\n")
    link.symlink_to(texts)
    with pytest.raises(ValueError, match="is also --file"):
        embed(file=str(texts), out=str(link))
    assert texts.read_text() == "cat\n"


@pytest.mark.parametrize("tensors", [3, [1], {"a": 5}])
def test_tensors_that_are_no_records(tensors, tmp_path):
    """Such a record in metrics.jsonl is ignored."""
    (tmp_path / "metrics.jsonl").write_text(json.dumps({"kind": "tensors", "step": 1, "tensors": tensors}) + "\n")
    assert read_run(tmp_path).tensors == {}


@pytest.mark.parametrize("change", [{"data": {"corpus": 5}}, {"data": {"corpus": [5]}}, {"objective": ["x"]}])
def test_a_run_with_values_of_other_types(change, tmp_path):
    """Its config.json is refused with its path."""
    (tmp_path / "config.json").write_text(json.dumps({"model": {}, "training": {}, "data": {}} | change))
    with pytest.raises(ValueError, match=r"config\.json: expected a list of names"):
        RunFolder.config(tmp_path)


def test_messages_stay_short():
    """A config.json with endless names does not fill the screen."""
    for values in ({"model_type": "x" * 10**6}, {"model_type": "mini_bert"} | {f"f{i}": 0 for i in range(10**4)}):
        with pytest.raises(ValueError, match=r"model_type|and 9,995 more") as raised:
            config_from(values)
        assert len(str(raised.value)) < 300


def test_a_pattern_over_links_that_lead_back(tmp_path):
    """A file is read once."""
    (tmp_path / "a.txt").write_text("cat")
    (tmp_path / "again").symlink_to(tmp_path)
    report = Report()
    assert [passage.text for passage in read(str(tmp_path / "**" / "*.txt"), report)] == ["cat"]
    assert report.files == 1
