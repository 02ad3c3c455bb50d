"""Canonical forms of Unicode: é as one character or as e and ´, in the Unicode version of the reference (9.0).

    decomposed("é")      "e" and U+0301: the letter and its mark
    order(mark)          marks of one letter are sorted by this number; 0 for everything that is not such a mark
    composed("e" + ´)    "é", Normalization Form C (NFC), which some tokenizers apply before anything else

`unicodedata` does the same for the Unicode version of Python. Characters that are newer than the reference's version
are left as they are here; for all others Unicode guarantees that nothing changes.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence
from itertools import groupby

from mini_bert.text.unicode_tables import MARKS, MOVING, UNDIVIDED


def decomposed(character: str) -> str:
    return character if character in UNDIVIDED else unicodedata.normalize("NFD", character)


def order(character: str) -> int:
    """The canonical combining class, by which the marks of a run are sorted; 0 ends the run."""
    return unicodedata.combining(character) if character in MARKS or character in MOVING else 0


def composed(text: str) -> tuple[str, Sequence[int]]:
    """The text in NFC, and for each of its characters the position in `text` that it comes from.

    As in the reference, a letter with its marks comes from the position of the letter.
    """
    if text.isascii() or unicodedata.is_normalized("NFC", text):  # also normal in the older version, which merges less
        return text, range(len(text))
    characters, sources = [], []
    place = 0
    for character, change in _recomposed(_in_order(text)):
        characters.append(character)
        sources.append(place if change <= 0 else max(place - 1, 0))
        place += 1 - change
    return "".join(characters), sources


# A character with the change in length that it stands for: 0 for one that replaces another, 1 for one that was
# inserted, -n for one that replaces n + 1.
_Changed = tuple[str, int]


def _in_order(text: str) -> Iterator[_Changed]:
    """The text decomposed, every run of marks sorted."""
    parts = [(part, int(i > 0)) for character in text for i, part in enumerate(decomposed(character))]
    for _, run in groupby(parts, lambda pair: order(pair[0]) > 0):
        yield from sorted(run, key=lambda pair: order(pair[0]))


def _recomposed(parts: Iterator[_Changed]) -> Iterator[_Changed]:
    """Joins each letter with those of its marks that make one character with it."""
    letter: _Changed | None = None
    marks: list[_Changed] = []  # those that stay
    for part, change in parts:
        kind = order(part)
        blocked = bool(marks) and order(marks[-1][0]) >= kind  # only the first mark of its kind joins
        both = None if letter is None or blocked else _joined(letter[0], part)
        if letter is not None and both is not None:
            letter = both, letter[1] + change - 1
        elif kind:
            if letter is None:
                yield part, change
            else:
                marks.append((part, change))
        else:
            if letter is not None:
                yield letter
            yield from marks
            letter, marks = (part, change), []
    if letter is not None:
        yield letter
        yield from marks


def _joined(letter: str, mark: str) -> str | None:
    both = unicodedata.normalize("NFC", letter + mark)
    return both if len(both) == 1 and both not in UNDIVIDED else None


if __name__ == "__main__":
    for text in ("e\u0301a\u0323\u0301", "\u1112\u1161\u11ab"):
        normal, sources = composed(text)
        print(ascii(text), "->", ascii(normal), *sources)
