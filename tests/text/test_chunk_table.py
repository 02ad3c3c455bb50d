"""The table of short strings is a dict."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from mini_bert.text.chunk_table import LONGEST, PADDING, ChunkTable, keys_of

STRINGS = st.lists(st.one_of(st.binary(max_size=LONGEST), st.text("ab\0", max_size=4).map(str.encode)), max_size=40)


def keys(strings):
    lengths = np.array([*map(len, strings)], int)
    return keys_of(b"".join(strings) + PADDING, np.cumsum(lengths) - lengths, lengths)


@given(st.lists(STRINGS, max_size=3), STRINGS)
def test_a_table_is_a_dict(groups, others):
    """Strings that were entered have their numbers, others -1; zeros at the end count; with few slots, many collide."""
    table, known = ChunkTable(256), {}
    for group in groups:
        new = [string for string in dict.fromkeys(group) if string not in known]
        numbers = [7 * (len(known) + i) for i in range(len(new))]
        known.update(zip(new, numbers, strict=True))
        table.enter(*keys(new), np.array(numbers, int))
        for asked in (group, others, [*known]):
            assert table.find(*keys(asked)).tolist() == [known.get(string, -1) for string in asked]


def test_strings_for_one_slot():
    """Those that begin at the same slot, also at the last one, go to the next ones."""

    class Crowded(ChunkTable):
        def _first_slots(self, low, high):
            return np.full(len(low), 15)

    table, strings = Crowded(16), [bytes([i]) for i in range(11)]
    table.enter(*keys(strings[:5]), np.arange(5))
    table.enter(*keys(strings[5:9]), np.arange(5, 9))
    assert table.find(*keys(strings)).tolist() == [*range(9), -1, -1]


def test_long_strings_are_cut():
    """The key of a longer string is that of its first bytes, so it must be told by its length."""
    long = b"abcdefghijklmnopqrst"
    assert [key.tolist() for key in keys([long])] == [key.tolist() for key in keys([long[:LONGEST]])]
