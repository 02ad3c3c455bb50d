"""JSON files that cannot be read: one sentence that names the file."""

from __future__ import annotations

import pytest

from mini_bert.common import json_values
from mini_bert.common.json_values import parse_json, read_json, read_object


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"[" * 100_000, "nested too deeply"),
        (b"{" * 100_000, "not valid JSON"),
        (b'{"a":' * 100_000, "nested too deeply"),
        (b"\xff\xfe", "not UTF-8"),
        (b"", "not valid JSON"),
        (b"{,}", "not valid JSON"),
        (b"9" * 10_000, "not valid JSON"),
    ],
)
def test_unreadable(content, says, tmp_path):
    """Nested too deeply, not UTF-8, not JSON: a ValueError that names the file."""
    path = tmp_path / "odd.json"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=rf"odd\.json.*{says}"):
        read_json(path)


def test_too_large(tmp_path, monkeypatch):
    """A file above the limit is refused before it is parsed."""
    monkeypatch.setattr(json_values, "LARGEST_FILE", 10)
    (tmp_path / "large.json").write_text("[" + " " * 10 + "]")
    with pytest.raises(ValueError, match=r"large\.json has more than 10 bytes"):
        read_json(tmp_path / "large.json")


def test_object(tmp_path):
    """read_object returns an object and refuses anything else."""
    path = tmp_path / "a.json"
    path.write_text('{"a": 1}')
    assert read_object(path) == {"a": 1} == parse_json('{"a": 1}', "text")
    path.write_text("[1]")
    with pytest.raises(ValueError, match=r"a\.json contains a list, expected an object"):
        read_object(path)
