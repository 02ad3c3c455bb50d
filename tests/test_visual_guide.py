"""The pictures of the visual guide are what learn/draw.py draws from the bundled model, and can be read."""

from __future__ import annotations

import importlib.util
import re
from functools import cache
from itertools import zip_longest
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import pytest

LEARN = Path(__file__).parent.parent / "learn"
NUMBER = re.compile(r"-?\d+(?:\.\d+)?|-?\.\d+")
NAMES = sorted(path.stem for path in (LEARN / "pictures").glob("*.svg"))


@cache
def script() -> ModuleType:
    """learn/draw.py as a module; it puts its own folder on the path."""
    spec = importlib.util.spec_from_file_location("learn_draw", LEARN / "draw.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@cache
def drawn(name: str):
    return script().PICTURES[name]()


def difference(one: str, other: str) -> str:
    """The first place where two pictures differ by more than rounding: their numbers may differ in the last digit."""
    for left, right in zip_longest(one.splitlines(), other.splitlines(), fillvalue=""):
        if NUMBER.split(left) != NUMBER.split(right):
            return f"{left}\n{right}"
        for a, b in zip(NUMBER.findall(left), NUMBER.findall(right), strict=True):
            digits = max(len(text.partition(".")[2]) for text in (a, b))
            if abs(float(a) - float(b)) > 1.5 * 10.0**-digits * (digits > 0):
                return f"{a} and {b} in\n{left}\n{right}"
    return ""


def test_every_picture_of_the_script_is_stored():
    """The folder holds the script's pictures and no other."""
    assert sorted(script().PICTURES) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_stored_pictures_show_the_numbers_of_the_model(name):
    """Drawn again, a picture has the same shapes, words and numbers. To draw all again: python learn/draw.py"""
    stored = (LEARN / "pictures" / f"{name}.svg").read_text(encoding="utf-8")
    assert not difference(stored, drawn(name).svg())


@pytest.mark.parametrize("name", NAMES)
def test_texts_neither_overlap_nor_leave_the_picture(name):
    """Measured in a wide font."""
    assert not drawn(name).misplaced()


@pytest.mark.parametrize("name", NAMES)
def test_pictures_are_small_valid_and_suit_light_and_dark_pages(name):
    """Every colour is a variable with a value for dark pages; GitHub shows files of this size at once."""
    stored = (LEARN / "pictures" / f"{name}.svg").read_text(encoding="utf-8")
    root = ElementTree.fromstring(stored)
    assert root.get("aria-label") and len(stored) < 150_000
    style = root.findtext("{http://www.w3.org/2000/svg}style")
    light, dark = (set(re.findall(r"(--\w+):", part)) for part in style.split("@media (prefers-color-scheme:dark)"))
    assert light == dark == set(re.findall(r"var\((--\w+)\)", style))
    classes = {c for element in root.iter() for c in element.get("class", "").split()} - {"none"}
    assert {f"--{c.removesuffix('-line')}" for c in classes} == light
    assert not re.search(r"(fill|stroke)=", stored.partition("</style>")[2])  # no colour beside the classes


def test_the_guide_shows_every_picture():
    """Each stored picture is in the page once, with a text for those who cannot see it."""
    page = (LEARN / "visual_guide.md").read_text(encoding="utf-8")
    shown = re.findall(r"!\[[^\]]{20,}\]\(pictures/(\w+)\.svg\)", page)
    assert sorted(shown) == NAMES


def test_a_changed_number_or_word_is_found():
    """The comparison accepts another last digit, and nothing else."""
    assert not difference('<text x="1.5">0.88 of 10</text>', '<text x="1.51">0.89 of 10</text>')
    assert difference("<text>0.88</text>", "<text>0.86</text>")
    assert difference("<text>10</text>", "<text>11</text>")
    assert difference("<text>he 0.88</text>", "<text>she 0.88</text>")
    assert difference("<text>0.88</text>", "<text>0.88</text>\n<text>1</text>")


def test_overlapping_and_overflowing_texts_are_found():
    """`misplaced` names both."""
    picture = type(drawn(NAMES[0]))(200, 100, "three texts")
    picture.text(20, 20, "alone")
    assert not picture.misplaced()
    picture.text(40, 24, "above")
    picture.text(150, 80, "much too wide")
    assert [text.split("'")[1] for text in picture.misplaced()] == ["much too wide", "alone"]
