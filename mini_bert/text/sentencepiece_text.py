"""SentencePiece's rules for text, up to the words that are then split into pieces.

    "Hello,  ½ world"   →   ▁Hello,  ▁1⁄2  ▁world

From left to right, at each position:

    1   a user-defined symbol of the model, the longest that fits, stays as it is
    2   otherwise the longest key of the character map is replaced (text/character_map.py)
    3   otherwise the character stays; a byte that is not UTF-8 becomes U+FFFD

Spaces, by the settings of the model, all three nearly always on:

    remove_extra_whitespaces    several in a row become one, and those at the beginning and at the end are dropped
    add_dummy_prefix            a space is put in front, so that the first word looks like the others
    escape_whitespaces          a space is written ▁ (U+2581)

Before all this, ALBERT's tokenizer changes `` and '' to ", and if its settings say so, drops accents and lower-cases.
XLNet's does the same.

If no key has a space, chunks between spaces are normalised one by one.

Bytes that are not UTF-8 can be in a str if they are decoded with errors="surrogateescape".
"""

from __future__ import annotations

import base64
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from mini_bert.text.character_map import CharacterMap
from mini_bert.text.chunk_spans import SPACE
from mini_bert.text.memory import Memory
from mini_bert.text.normalizers import Part, Replace, Step, Traced, normalised, traced
from mini_bert.text.unicode_tables import half_a_pair

CHUNKS_KEPT = 1 << 16  # only chunks beyond plain ASCII are cached


class SentencePieceText:
    """How text is normalised.

    symbols       the user-defined symbols
    steps         changes before all others
    """

    def __init__(
        self,
        map: CharacterMap | None = None,
        symbols: Sequence[str] = (),
        add_dummy_prefix: bool = True,
        remove_extra_whitespaces: bool = True,
        escape_whitespaces: bool = True,
        space_as_suffix: bool = False,
        steps: Sequence[Step] = (),
    ):
        self.map = map or CharacterMap()
        self.add_dummy_prefix = add_dummy_prefix
        self.remove_extra_whitespaces = remove_extra_whitespaces
        self.escape_whitespaces = escape_whitespaces
        self.space_as_suffix = space_as_suffix
        self.steps = tuple(steps)
        self._symbols = re.compile("|".join(re.escape(one) for one in sorted(symbols, key=len, reverse=True)) or "(?!)")
        self._chunks_are_independent = (
            escape_whitespaces
            and not space_as_suffix
            and not any(" " in symbol or SPACE in symbol for symbol in symbols)
            and self.map.keeps_chunks_apart()
        )
        self._by_chunk = self._chunks_are_independent and add_dummy_prefix and remove_extra_whitespaces
        self.puts_space_in_front = add_dummy_prefix
        self.drops_first_space = add_dummy_prefix or remove_extra_whitespaces  # when pieces are joined again
        self.drops_all_first_spaces = remove_extra_whitespaces
        self._chunks = Memory(self._chunk, CHUNKS_KEPT)

    @classmethod
    def read(cls, rules: Mapping[str, Any], symbols: Sequence[str]) -> SentencePieceText:
        """From values that can be saved: the character map in base64, names of STEPS, other arguments by name."""
        names = ("add_dummy_prefix", "remove_extra_whitespaces", "escape_whitespaces", "space_as_suffix")
        return cls(
            CharacterMap(base64.b64decode(rules.get("character_map", ""))),
            symbols,
            steps=[STEPS[name]() for name in rules.get("steps", ())],
            **{name: rules[name] for name in names if name in rules},
        )

    def normalised(self, text: str) -> str:
        """The normalised text: words, each with ▁ in front."""
        if self.steps:
            text = normalised(self.steps, text)
        if self._by_chunk and " " not in text and text and self.map.leaves(text):  # a plain word
            return SPACE + text
        if not self._chunks_are_independent or SPACE in text:
            return self._by_character(Traced(text, [(0, 0)] * len(text))).text
        if not text:
            return ""
        if not self.map.leaves(text):
            text = " ".join(map(self._chunks.__getitem__, text.split(" ")))
        if self.remove_extra_whitespaces and ("  " in text or text[:1] in ("", " ") or text[-1] == " "):
            text = " ".join(filter(None, text.split(" ")))
            if not text:
                return ""
        return SPACE * self.add_dummy_prefix + text.replace(" ", SPACE)

    def can_be_chunked(self, text: str) -> bool:
        """Whether the normalised text is that of its chunks between spaces, one after the other."""
        return self._by_chunk and SPACE not in text

    def traced(self, text: str) -> Traced:
        """The normalised text, and for each of its characters the span that it comes from."""
        return plainly_traced(text, self.normalised(text)) or self._by_character(traced(self.steps, text))

    def units(self, text: str) -> list[str]:
        """The parts of a normalised text in which scores are added: all of it."""
        return [text]

    def _chunk(self, chunk: str) -> str:
        return "".join(new for _, _, new in self._edits(chunk))

    def _by_character(self, source: Traced) -> Traced:
        """In the order of SentencePiece: spaces at the beginning, everything else, spaces at the end."""
        text: list[str] = []
        spans: list[tuple[int, int]] = []
        space = SPACE if self.escape_whitespaces else " "
        edits = list(self._edits(source.text))
        begin = 0
        if self.remove_extra_whitespaces:
            while begin < len(edits) and edits[begin][2] == " ":
                begin += 1
        if begin == len(edits):
            return Traced("", [])
        after_space = self.remove_extra_whitespaces
        for first, last, new in edits[begin:]:
            if after_space:
                new = new.lstrip(" ")
            if new:
                whole = source.spans[first][0], source.spans[last - 1][1]
                same = len(new) == last - first
                for i, character in enumerate(new):
                    text.append(space if character == " " else character)
                    spans.append(source.spans[first + i] if same else whole)
                after_space = self.remove_extra_whitespaces and new[-1] == " "
        start = source.spans[edits[begin][0]][0]
        if self.add_dummy_prefix and not self.space_as_suffix:
            text.insert(0, space)
            spans.insert(0, (start, start))
        if self.remove_extra_whitespaces:
            while text and text[-1] == space:
                text.pop()
                spans.pop()
        if self.add_dummy_prefix and self.space_as_suffix:
            end = spans[-1][1] if spans else start
            text.append(space)
            spans.append((end, end))
        return Traced("".join(text), spans)

    def _edits(self, text: str) -> Iterator[Part]:
        """What each position of the text becomes: (first, last, new), one after the other."""
        place = 0
        while place < len(text):
            symbol = self._symbols.match(text, place)
            if symbol:
                end, new = symbol.end(), symbol.group()
            else:
                new, length = self.map.match(text, place) or (_character(text[place]), 1)
                end = place + length
            yield place, end, new
            place = end


def plainly_traced(text: str, normalised: str) -> Traced | None:
    """For a word to which nothing happened but ▁ in front and lower case: where its characters come from."""
    if not (text.isascii() and normalised.startswith(SPACE) and normalised[1:] in (text, text.lower())):
        return None
    return Traced(normalised, [(0, 0), *((place, place + 1) for place in range(len(text)))])


def _character(character: str) -> str:
    if "\ud800" <= character <= "\udfff":
        if not "\udc80" <= character <= "\udcff":
            raise half_a_pair(character)
        return "\ufffd"  # errors="surrogateescape" writes the byte 0x80 as U+DC80, and so on
    return character


# ---- what ALBERT's and XLNet's tokenizers do first; names and order as in their published code


QUOTES = partial(Replace, re.compile("``|''"), '"')  # `` and '' become a double quote


class OneSpace(Step):
    """White space becomes single spaces, none at the beginning and at the end."""

    def text(self, text: str) -> str:
        return " ".join(text.split())

    def parts(self, text: str) -> Iterable[Part]:
        for match in re.finditer(r"\s+", text):
            outside = match.start() == 0 or match.end() == len(text)
            yield *match.span(), "" if outside else " "


class DropAccents(Step):
    """Compatibly decomposed, without characters that combine with others."""

    def text(self, text: str) -> str:
        if text.isascii():
            return text
        return "".join(part for part in unicodedata.normalize("NFKD", text) if not unicodedata.combining(part))

    def parts(self, text: str) -> Iterable[Part]:
        # One character at a time: others move only among those that are dropped.
        return [(place, place + 1, self.text(character)) for place, character in enumerate(text)]


class LowerText(Step):
    """str.lower, in which Σ at the end of a word becomes ς."""

    def text(self, text: str) -> str:
        return text.lower()

    def parts(self, text: str) -> Iterable[Part]:
        lower, place = text.lower(), 0
        for i, character in enumerate(text):
            end = place + len(character.lower())
            yield i, i + 1, lower[place:end]
            place = end


STEPS: dict[str, Callable[[], Step]] = {
    "spaces": OneSpace, "quotes": QUOTES, "accents": DropAccents, "lower": LowerText,
}  # fmt: skip


if __name__ == "__main__":
    albert = SentencePieceText(steps=(OneSpace(), QUOTES(), DropAccents(), LowerText()))
    for text in ("Hello,  world", " ``Zoë'' "):
        print(repr(text), "->", albert.normalised(text), albert.traced(text).spans)
