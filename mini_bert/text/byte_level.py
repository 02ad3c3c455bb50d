"""Text as words and words as bytes, GPT-2's way: the steps before byte-level BPE.

    "Hi  all, we've 3 cats"   ->   Hi ␣ ␣all , ␣we 've ␣3 ␣cats                    (␣ is a space)

A word is a run of letters, of numbers, or of other signs, with one space before it if there is one. A contraction such
as 've is a word of its own. Of longer white space, the last space goes to the next word and the rest is a word. No
character is dropped: the words, joined, are the text. This is the published pattern

    's|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+

Python's `re` lacks the classes \\p{L} and \\p{N}, and its \\s has four characters too many, so the classes are spelt
out, from tables of the reference's Unicode version (text/unicode_tables.py).

Then each word is taken as its UTF-8 bytes. A vocabulary file is text, and most bytes are not printable, so there every
byte is written as one printable character: ASCII signs and letters stay, a space is Ġ, a line feed is Ċ.

    " naïve"   ->   20 6E 61 C3 AF 76 65   ->   Ġ n a Ã ¯ v e

A byte that is not UTF-8 is held in a `str` as a lone surrogate (PEP 383), which counts as a sign, so every string of
bytes can be split, spelt and restored.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from itertools import accumulate

from mini_bert.text.unicode_tables import LETTERS, NUMBERS, WHITE_SPACE, Characters, half_a_pair

# The printable bytes stand for themselves; the other 68, in order, are written as the characters from U+0100 on.
_PRINTABLE = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
_HIDDEN = [byte for byte in range(256) if byte not in _PRINTABLE]
BYTE_CHARACTERS = [chr(b if b in _PRINTABLE else 0x100 + _HIDDEN.index(b)) for b in range(256)]
BYTE_OF = {character: byte for byte, character in enumerate(BYTE_CHARACTERS)}
SPACE = BYTE_CHARACTERS[ord(" ")]  # Ġ

STARTS = bytes(byte & 0xC0 != 0x80 for byte in range(256))  # 1 for a byte that begins a character of UTF-8
_WRITTEN = {byte: character for byte, character in enumerate(BYTE_CHARACTERS)}
_READ = {ord(character): chr(byte) for character, byte in BYTE_OF.items()}


def as_bytes(text: str) -> str:
    """The UTF-8 bytes of a text, each as the character of that number (not printable: see `written`)."""
    if text.isascii():
        return text
    try:
        return text.encode("utf-8", "surrogateescape").decode("latin-1")
    except UnicodeEncodeError as error:
        raise half_a_pair(text[error.start]) from None


def written(raw: str) -> str:
    """Bytes in their printable form: " a" as "Ġa"."""
    return raw.translate(_WRITTEN)


def unwritten(token: str) -> str:
    """Bytes from their printable form. A token with a character that stands for no byte is its own UTF-8 bytes."""
    if token.isascii():  # printable, so these bytes stand for themselves; or else it is the second case, the same here
        return token
    if all(map(BYTE_OF.__contains__, token)):
        return token.translate(_READ)
    return as_bytes(token)


def words(text: str) -> list[str]:
    """Cuts a text into words, by the published pattern."""
    return (_ASCII if text.isascii() else _unicode()).findall(text)


def byte_places(text: str) -> Sequence[int]:
    """For each byte of a text the position of its character."""
    if text.isascii():
        return range(len(text))
    try:
        data = text.encode()
    except UnicodeEncodeError:  # some of the characters stand for single bytes
        return [place for place, character in enumerate(text) for _ in as_bytes(character)]
    places = list(accumulate(data.translate(STARTS), initial=-1))
    del places[0]
    return places


def kind(character: str) -> int:
    """The class of a character: 1 white space, 2 letter, 3 number, 4 sign; 0 for a byte that is part of a character."""
    if "\ud800" <= character <= "\udfff":
        return 0
    return 1 if character in WHITE_SPACE else 2 if character in LETTERS else 3 if character in NUMBERS else 4


def _pattern(letters: str, numbers: str, blanks: str) -> re.Pattern[str]:
    contractions = "'(?:[stmd]|re|ve|ll)"
    runs = f" ?[{letters}]+| ?[{numbers}]+| ?[^{blanks}{letters}{numbers}]+"
    return re.compile(f"{contractions}|{runs}|[{blanks}]+(?![^{blanks}])|[{blanks}]+")


_ASCII = _pattern("A-Za-z", "0-9", r"\t-\r ")


@cache
def _unicode() -> re.Pattern[str]:
    """The pattern for all characters; compiled on first use, which takes 12 ms."""
    return _pattern(_class(LETTERS), _class(NUMBERS), _class(WHITE_SPACE))


def _class(characters: Characters) -> str:
    return "".join(f"{chr(first)}-{chr(last)}" for first, last in characters.ranges)


if __name__ == "__main__":
    for text in ("Hi  all, we've 3 cats", "naïve 東京2020年", "a\n\n  b"):
        print(repr(text), "->", *(written(as_bytes(word)) for word in words(text)))
