"""The files of the page: complete, without foreign addresses, markup from strings or inline code."""

import re
from html.parser import HTMLParser

import pytest

from mini_bert.lab.rooms import ROOMS
from mini_bert.lab.server import STATIC

SCRIPTS = sorted(STATIC.rglob("*.js"))


def test_every_room_has_both_halves():
    """The table of the server, that of the page, and the modules name the same rooms."""
    listed = re.findall(r'name: "(\w+)"', (STATIC / "rooms.js").read_text(encoding="utf-8"))
    assert listed == list(ROOMS) == [room for room in listed if (STATIC / "rooms" / f"{room}.js").is_file()]


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_scripts_make_no_markup_and_load_nothing_foreign(path):
    text = path.read_text(encoding="utf-8")
    for forbidden in (
        "innerHTML",
        "insertAdjacentHTML",
        "document.write",
        "eval(",
        "new Function",
        "https://",
        'setAttribute("style"',
    ):
        assert forbidden not in text
    assert set(re.findall(r"http://[\w./]+", text)) <= {"http://www.w3.org/2000/svg"}
    for target in re.findall(r'from "(\.[^"]+)"', text):
        assert (path.parent / target).is_file(), target


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_lines_can_be_read(path):
    """No line is longer than 150 characters."""
    lines = path.read_text(encoding="utf-8").splitlines()
    assert [number for number, line in enumerate(lines, 1) if len(line) > 150] == []


def test_the_page_has_no_inline_code():
    """The security policy would refuse it."""
    found = []

    class Reader(HTMLParser):
        def handle_starttag(self, tag, attributes):
            names = dict(attributes)
            found.extend(name for name in names if name.startswith("on") or name == "style")
            if tag == "style" or (tag == "script" and "src" not in names):
                found.append(tag)
            for name in ("src", "href"):
                if name in names and not names[name].startswith("#"):
                    assert (STATIC / names[name].lstrip("/")).is_file(), names[name]

    Reader().feed((STATIC / "index.html").read_text(encoding="utf-8"))
    assert not found


def test_the_style_sheet_loads_nothing():
    text = (STATIC / "lab.css").read_text(encoding="utf-8")
    assert "@import" not in text and "url(" not in text
