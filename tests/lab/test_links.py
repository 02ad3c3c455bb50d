"""Links into the lab, in the course and the documents, open a room with a step that exists."""

import re
from pathlib import Path
from urllib.parse import parse_qs

import pytest

from mini_bert.lab.operations import operations
from mini_bert.lab.rooms import ROOMS
from mini_bert.lab.running import PORT
from mini_bert.lab.server import STATIC

ROOT = Path(__file__).parents[2]
LINK = re.compile(rf"http://127\.0\.0\.1:{PORT}/#(\w+)(?:\?([^)\s]*))?")
PAGES = [page for folder in ("learn", "docs") for page in sorted((ROOT / folder).rglob("*.md"))]
PLANNED = {"backward", "training", "break", "text", "vectors", "family"}  # rooms of issue 16 that may not be there yet
NAMES = {"text", "layer", "step", "head", "row", "column", "hidden", "context", "position", "way", "off"}


@pytest.mark.parametrize(
    "page", [page for page in PAGES if LINK.search(page.read_text(encoding="utf-8"))], ids=lambda page: page.name
)
def test_links_open_what_they_say(page, bench):
    for room, query in LINK.findall(page.read_text(encoding="utf-8")):
        assert room in ROOMS or room in PLANNED, room
        if room not in ("mask", "stepper", "attention"):
            continue
        values = {name: value for name, (value,) in parse_qs(query, strict_parsing=bool(query)).items()}
        assert set(values) <= NAMES, values
        reading = bench.read(values.get("text", "A cat."))
        if "step" in values:
            layer = int(values["layer"]) if "layer" in values else None
            assert any((one.step, one.layer) == (values["step"], layer) for one in operations(bench, reading)), values


def test_each_room_reads_what_its_links_may_say():
    """The names above are those that the scripts look for."""
    text = "".join(
        (STATIC / "rooms" / f"{room}.js").read_text(encoding="utf-8") for room in ("mask", "stepper", "attention")
    )
    assert set(re.findall(r"params\.(\w+)", text)) == NAMES
