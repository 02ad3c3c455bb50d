"""Canonical composition, against Python's own for characters that the reference has, too."""

from __future__ import annotations

import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from mini_bert.text.canonical import composed, decomposed, order
from mini_bert.text.unicode_tables import UNDIVIDED

OLD = st.one_of(
    st.sampled_from("aeiouAEIOUnc> \u0301\u0308\u0323\u0338\u0344\u0345\u0316\u0327"),
    st.integers(0xC0, 0x17F).map(chr),
    st.integers(0x300, 0x36F).map(chr),
    st.integers(0x1100, 0x1112).map(chr),
    st.integers(0x1161, 0x1175).map(chr),
    st.integers(0x11A8, 0x11C2).map(chr),
    st.integers(0xAC00, 0xAC80).map(chr),
    st.integers(0x1E00, 0x1FFF).map(chr),
)


@given(st.text(OLD, max_size=12))
def test_as_python_composes(text):
    """The same characters, each from a position of the text, in order."""
    normal, sources = composed(text)
    assert normal == unicodedata.normalize("NFC", text) and len(sources) == len(normal)
    assert list(sources) == sorted(sources) and all(0 <= place < len(text) for place in sources)


def test_where_characters_come_from():
    """A letter with its marks comes from the letter, marks that stay from their place; what does not change, from
    itself."""
    assert composed("xe\u0301y") == ("xéy", [0, 1, 3])
    assert composed("a\u0301\u0323b") == ("\u1ea1\u0301b", [0, 2, 3])
    assert composed("\u1112\u1161\u11ab!") == ("한!", [0, 3])
    assert composed("é") == ("é", range(1))


def test_characters_newer_than_the_reference_stay():
    """They neither decompose nor compose, whatever the version of Python."""
    for character in UNDIVIDED:
        assert decomposed(character) == character and composed(f"e\u0301{character}")[0] == f"é{character}"
    assert composed("\U00011935\U00011930")[0] == "\U00011935\U00011930"
    assert order("\u0301") == 230 and order("a") == 0
