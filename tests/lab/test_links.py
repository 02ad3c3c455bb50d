"""Links into the lab, in the course and the documents, open what they say: a room, with parameters that it reads."""

import re
from pathlib import Path
from urllib.parse import parse_qs

import pytest

from mini_bert.lab.backward import STEPS
from mini_bert.lab.faults import FAULTS
from mini_bert.lab.operations import operations
from mini_bert.lab.rooms import ROOMS
from mini_bert.lab.running import PORT
from mini_bert.lab.server import STATIC
from mini_bert.lab.text import KINDS

ROOT = Path(__file__).parents[2]
LINK = re.compile(rf"http://127\.0\.0\.1:{PORT}/#(\w+)(?:\?([^)\s]*))?")
PAGES = [page for folder in ("learn", "docs") for page in sorted((ROOT / folder).rglob("*.md"))]
CHOICES = {"fault": FAULTS, "kind": KINDS, "way": ("arcs",), "of": ("sentences", "words"), "context": ("left", "right")}
LAST = {"layer": 2, "head": 3}  # of Mini-BERT


def parameters(room):
    """The names that the script of a room looks for; all rooms have a model."""
    script = (STATIC / "rooms" / f"{room}.js").read_text(encoding="utf-8")
    return {"model", *re.findall(r"params\.(\w+)", script)}


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_writes_the_links_that_it_reads(room):
    """Every name in `view.link({ … })` is read again when the link is opened, and the other way round."""
    script = (STATIC / "rooms" / f"{room}.js").read_text(encoding="utf-8")
    written = {name for link in re.findall(r"view\.link\(\{(.*?)\}\)", script, re.DOTALL) for name in
               re.findall(r"(?:^|,)\s*(\w+):", link)}  # fmt: skip
    assert written | {"model"} == parameters(room)


@pytest.mark.parametrize(
    "page", [page for page in PAGES if LINK.search(page.read_text(encoding="utf-8"))], ids=lambda page: page.name
)
def test_links_open_what_they_say(page, bench):
    for room, query in LINK.findall(page.read_text(encoding="utf-8")):
        assert room in ROOMS
        values = {name: value for name, (value,) in parse_qs(query, strict_parsing=bool(query)).items()}
        assert set(values) <= parameters(room), (room, values)
        for name, value in values.items():
            assert value in CHOICES.get(name, [value]) and int(value if name in LAST else 0) <= LAST.get(name, 0)
        reading = bench.read(values.get("text", "A cat."))
        for position in re.findall(r"\d+", f"{values.get('position', '')} {values.get('hidden', '')}"):
            assert int(position) < len(reading.ids), values
        if room == "stepper" and "step" in values:
            layer = int(values["layer"]) if "layer" in values else None
            assert any((one.step, one.layer) == (values["step"], layer) for one in operations(bench, reading)), values
        if room == "backward" and "step" in values:
            assert values["step"] in STEPS, values
