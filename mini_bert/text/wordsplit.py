"""Splitting text into words, BERT's way: the step before WordPiece.

    "Don't, Zoë!  東京"   ->   don ' t , zoe ! 東 京

Five rules, in this order:

    clean     control and format characters are removed, so their neighbours join; any white space becomes a space
    Chinese   a Chinese character gets a space on both sides, so each is a word
    accents   é is decomposed into e and ´, and the mark is dropped (only if strip_accents)
    case      A becomes a, each character by itself (only if lowercase)
    split     at spaces, which are dropped, and around punctuation, which becomes a word

Each rule looks at one character at a time, so all five together are one table from a character to its replacement:
"É" to "e", "!" to " ! ", a soft hyphen to "". To split a text, replace all characters and cut at the spaces. The table
is filled as characters occur.

In English text, few different characters of a line need the table. Then `quick_words` is faster: `str.lower` and a few
calls of `str.replace` change the whole line at once.

There is one exception: when accents are stripped, a run of marks is first put into canonical order, and 83 rare
characters (Hangul tone marks, parts of musical notes) take part in that but are not dropped. Text that contains one of
them goes through `_in_order` first.

All results equal those of the `tokenizers` library; `unicode_tables` explains which versions of Unicode that implies.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any

from mini_bert.text.canonical import decomposed, order
from mini_bert.text.unicode_tables import CHINESE, LOWER, MARKS, MOVING, PUNCTUATION, REMOVED, SPACES, half_a_pair

# White space to str.split, but removed by BERT without separating words.
JOINING = "\x0b\x0c\x1c\x1d\x1e\x1f\x85"

_ASCII_WORD = re.compile(r"[0-9A-Za-z]+|[!-/:-@\[-`{-~]")
_ASCII_GAP = re.compile(r"([ \t\n\r]*)(?:[0-9A-Za-z]+|[!-/:-@\[-`{-~])")
_NOT_ASCII = re.compile(r"[^\x00-\x7f]")
_ASCII_REMOVED = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_NOTES = "\U0001d15e-\U0001d164\U0001d1bb-\U0001d1c0"  # musical notes, which decompose into characters of MOVING
_MOVING = re.compile(f"[{re.escape(''.join(MOVING))}{_NOTES}]")
_PLAIN = b" 0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"  # handled by str.lower and str.split
_FEW = 24  # with more characters to replace, looking up chunks is faster
_TABLE_SIZE = 1 << 17  # entries, enough for every living script; about 20 MB when full


class WordSplitter:
    """Splits text into words.  strip_accents=None: the same as lowercase, like the published models."""

    def __init__(self, lowercase: bool = True, strip_accents: bool | None = None, chinese_spacing: bool = True):
        self.lowercase = bool(lowercase)
        self.strip_accents = self.lowercase if strip_accents is None else bool(strip_accents)
        self.chinese_spacing = bool(chinese_spacing)
        self._table = _Table(self.becomes)
        self._alone = _Table(self._becomes_alone)
        self._alike = _Table(self._becomes_alike)

    def words(self, text: str) -> list[str]:
        """The words of a text, normalised."""
        if text.isascii() and (text.isprintable() or not _ASCII_REMOVED.search(text)):  # the same words, faster
            text = text.lower() if self.lowercase else text
            return [text] if text.isalnum() else _ASCII_WORD.findall(text)
        if self.strip_accents and _MOVING.search(text):
            text = "".join(character for character, _ in self._in_order(text))
        return text.translate(self._table).split()

    def quick_words(self, text: str) -> list[str] | None:
        """words(text) if few different characters need the table and can be replaced one by one, otherwise None."""
        others = set(text.encode("utf-8", "surrogatepass").translate(None, _PLAIN).decode("utf-8", "surrogatepass"))
        if len(others) > _FEW:
            return None
        for character in others:
            entry = self._alone[ord(character)]
            if entry is None:
                return None
            text = text.replace(character, entry)
        return (text.lower() if self.lowercase else text).split()

    def words_with_sources(self, text: str) -> list[tuple[str, Sequence[int]]]:
        """Each word, and for each of its characters its position in the text."""
        if text.isascii() and not _ASCII_REMOVED.search(text):
            matches = _ASCII_WORD.finditer(text.lower() if self.lowercase else text)
            return [(match.group(), range(match.start(), match.end())) for match in matches]
        moving = self.strip_accents and _MOVING.search(text)
        characters = self._in_order(text) if moving else [(character, i) for i, character in enumerate(text)]
        table = self._table
        pieces = [(piece, source) for character, source in characters for piece in table[ord(character)]]
        groups = (list(group) for is_space, group in groupby(pieces, lambda pair: pair[0] == " ") if not is_space)
        return [("".join(piece for piece, _ in word), [source for _, source in word]) for word in groups]

    def gaps(self, text: str) -> list[str] | None:
        """For each word of a text the white space before it, if the word is as long in the text; otherwise None.

        So every character must be kept or replaced by one other. `_ASCII_GAP` looks at ASCII only, so each of the
        others, if they are few, is replaced by an ASCII character of the same class first.
        """
        if not text.isascii():
            others = set(_NOT_ASCII.findall(text))
            if len(others) > _FEW:
                return None
            for character in others:
                alike = self._alike[ord(character)]
                if alike is None:
                    return None
                text = text.replace(character, alike)
        return None if _ASCII_REMOVED.search(text) else _ASCII_GAP.findall(text)

    def _becomes_alike(self, character: str) -> str | None:
        """An ASCII character that is treated alike: a space, a sign or a letter; None if one becomes more or fewer."""
        entry = self.becomes(character)
        if len(entry) == 1 and not (self.strip_accents and _MOVING.match(character)):
            return " " if entry == " " else "a"
        return "-" if len(entry) == 3 and entry[0] == entry[2] == " " != entry[1] else None

    def chunks(self, text: str) -> list[str]:
        """Cuts at white space only: words(text) equals words(chunk) of all chunks in turn.

        A long text repeats most of its chunks, so caching the words of each chunk saves most of the work.
        """
        for character in JOINING:
            if character in text:
                text = text.replace(character, "")
        return text.split()

    def becomes(self, character: str) -> str:
        """An entry of the table: the five rules applied to one character."""
        if "\ud800" <= character <= "\udfff":
            raise half_a_pair(character)
        if character in REMOVED:
            return ""
        if character in SPACES:
            return " "
        chinese = self.chinese_spacing and character in CHINESE
        if self.strip_accents:
            character = "".join(part for part in decomposed(character) if part not in MARKS)
        if self.lowercase:
            character = "".join(LOWER.get(part) or part.lower() for part in character)
        character = "".join(f" {part} " if part in PUNCTUATION else part for part in character)
        return f" {character} " if chinese else character

    def _becomes_alone(self, character: str) -> str | None:
        """The character's entry if it can be replaced before other characters and before str.lower, otherwise None.

        So later replacements must not change the entry: ASCII characters are never replaced, other characters must be
        their own entry, and str.lower must leave all as they are. Double spaces do no harm.
        """
        entry = self.becomes(character)
        moves = self.strip_accents and _MOVING.match(character)
        changes = any(not (part.isascii() or part == character or self.becomes(part) == part) for part in entry)
        return None if moves or changes or (self.lowercase and entry.lower() != entry) else entry

    def _in_order(self, text: str) -> list[tuple[str, int]]:
        """Decomposes the text and puts marks into canonical order. Returns characters with their positions in the text.

        Positions are not sorted with the marks: if two marks are exchanged, the first keeps the first position, as in
        the reference.
        """
        kept = [(character, source) for source, character in enumerate(text) if character not in REMOVED]
        parts = [(part, i > 0) for character, _ in kept for i, part in enumerate(decomposed(character))]
        ordered: list[tuple[str, bool]] = []
        for _, run in groupby(parts, lambda pair: order(pair[0]) > 0):
            ordered += sorted(run, key=lambda pair: order(pair[0]))
        place, characters = -1, []
        for part, added in ordered:
            place += not added
            characters.append((part, kept[place][1]))
        return characters

    def __repr__(self) -> str:
        return (
            f"WordSplitter(lowercase={self.lowercase}, strip_accents={self.strip_accents}, "
            f"chinese_spacing={self.chinese_spacing})"
        )

    def __reduce__(self):
        return WordSplitter, (self.lowercase, self.strip_accents, self.chinese_spacing)


class _Table(dict[int, Any]):
    """Maps a code point to the replacement of its character, computed on first use."""

    def __init__(self, becomes: Callable[[str], str | None]):
        self.becomes = becomes

    def __missing__(self, code: int) -> str | None:
        entry = self.becomes(chr(code))
        if len(self) < _TABLE_SIZE:
            self[code] = entry
        return entry


if __name__ == "__main__":
    for text in ("Don't, Zoë!  東京", "ﬁn\u00adally Straße ΟΔΟΣ 한국", "a\u0085b"):
        print(ascii(text), "->", *WordSplitter().words(text), "| cased:", *WordSplitter(lowercase=False).words(text))
