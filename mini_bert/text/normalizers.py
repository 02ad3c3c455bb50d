"""Changing text before it is split into pieces: the normalizers of a tokenizer.json.

    steps = [Unicode("NFKD"), StripAccents(), Lowercase()]
    "Zoë" → "zoe"                        text: normalised(steps, "Zoë")
    "zoe", (0,1) (1,2) (2,3)             traced: the same, and for each character the span that it comes from

Each step is a class with two methods. `text` changes a string as fast as possible. `parts` says the same as a list of
replacements (first, last, new), from which `traced` computes where each character comes from; this is only needed for
offsets. Results equal those of the `tokenizers` library.
"""

from __future__ import annotations

import base64
import binascii
import re
import unicodedata
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

from mini_bert.text.character_map import CharacterMap
from mini_bert.text.chunk_spans import Span
from mini_bert.text.mark_tables import EXTENDING, OTHER_MARKS, PREPENDED, UNCHANGED
from mini_bert.text.memory import Memory
from mini_bert.text.unicode_tables import LOWER, MARKS, WHITE_SPACE

Part = tuple[int, int, str]  # first character, the one after the last, and what replaces them
CHUNKS_KEPT = 1 << 17
SPACES = "".join(WHITE_SPACE)


class Traced(NamedTuple):
    """A text, and for each of its characters the span of the original text that it comes from."""

    text: str
    spans: list[Span]

    @classmethod
    def of(cls, text: str) -> Traced:
        return cls(text, [(place, place + 1) for place in range(len(text))])

    def replaced(self, parts: Iterable[Part]) -> Traced:
        """With parts replaced. Between texts of equal length, characters correspond one to one."""
        text, spans, end = [], [], 0
        for first, last, new in parts:
            text += [self.text[end:first], new]
            spans += self.spans[end:first]
            if len(new) == last - first:
                spans += self.spans[first:last]
            else:
                spans += [(self.spans[first][0], self.spans[last - 1][1])] * len(new)
            end = last
        return Traced("".join([*text, self.text[end:]]), spans + self.spans[end:])


class Step(ABC):
    """One change of a text."""

    local = True  # whether text can be cut at spaces, changed, and put together again

    @abstractmethod
    def text(self, text: str) -> str: ...

    @abstractmethod
    def parts(self, text: str) -> Iterable[Part]: ...


def normalised(steps: Sequence[Step], text: str) -> str:
    for step in steps:
        text = step.text(text)
    return text


def traced(steps: Sequence[Step], text: str) -> Traced:
    found = Traced.of(text)
    for step in steps:
        found = found.replaced(step.parts(found.text))
    return found


class Replace(Step):
    """Replaces a text, or what a regular expression matches."""

    def __init__(self, pattern: re.Pattern[str], new: str):
        self.pattern, self.new = pattern, new

    def text(self, text: str) -> str:
        return self.pattern.sub(lambda _: self.new, text)

    def parts(self, text: str) -> Iterable[Part]:
        return [(*match.span(), self.new) for match in self.pattern.finditer(text)]


class Unicode(Step):
    """One of Unicode's normal forms: NFC, NFD, NFKC, NFKD, as of Unicode 9.0."""

    def __init__(self, form: str):
        self.form: Any = form

    def text(self, text: str) -> str:
        if text.isascii():
            return text
        if _NEWER_SET.isdisjoint(text):
            return unicodedata.normalize(self.form, text)
        return "".join(
            part if place % 2 else unicodedata.normalize(self.form, part)
            for place, part in enumerate(_NEWER.split(text))
        )

    def parts(self, text: str) -> Iterable[Part]:
        # A run of characters beyond ASCII, with the letter before it, is changed together.
        for match in _RUN.finditer(text):
            first, last = match.span()
            each = [self.text(character) for character in match.group()]
            new = self.text(match.group())
            if "".join(each) == new:
                yield from ((first + i, first + i + 1, part) for i, part in enumerate(each))
            else:
                yield first, last, new


_MARKS_SET = frozenset([*MARKS, *OTHER_MARKS])
_MARKS = re.compile(f"[{''.join(_MARKS_SET)}]")
# Characters that decompose, or move between marks, only since a Unicode version after 9.0
_NEWER_SET = frozenset([*UNCHANGED, *(mark for mark in EXTENDING if mark not in _MARKS_SET)])
_NEWER = re.compile(f"([{''.join(_NEWER_SET)}]+)")
_RUN = re.compile(r"[\x00-\x7f]?[^\x00-\x7f]+")


class StripAccents(Step):
    """Drops marks; after NFD or NFKD, these are the accents."""

    def text(self, text: str) -> str:
        return text if text.isascii() or _MARKS_SET.isdisjoint(text) else _MARKS.sub("", text)

    def parts(self, text: str) -> Iterable[Part]:
        return [(*match.span(), "") for match in _MARKS.finditer(text)]


class Lowercase(Step):
    """Each character by itself in lower case."""

    def text(self, text: str) -> str:
        if text.isascii() or not _ODD_CAPITALS.search(text):
            return text.lower()
        return "".join([LOWER.get(character) or character.lower() for character in text])

    def parts(self, text: str) -> Iterable[Part]:
        return [(place, place + 1, self.text(character)) for place, character in enumerate(text)]


_ODD_CAPITALS = re.compile(f"[Σ{''.join(LOWER)}]")  # str.lower looks at the neighbours of Σ


class Strip(Step):
    """Drops white space at the beginning and at the end."""

    def __init__(self, left: bool, right: bool):
        sides = [rf"\A[{SPACES}]+"] * left + [rf"[{SPACES}]+\Z"] * right
        self._spaces = re.compile("|".join(sides) or "(?!)")

    def text(self, text: str) -> str:
        return self._spaces.sub("", text)

    def parts(self, text: str) -> Iterable[Part]:
        return [(*match.span(), "") for match in self._spaces.finditer(text)]


class Precompiled(Step):
    """Replaces by the character map of a SentencePiece model, in the way of the `tokenizers` library.

    That differs from SentencePiece (text/sentencepiece_text.py): text is cut into grapheme clusters, a letter and its
    marks. A cluster of less than 6 bytes that begins with a key becomes the replacement of its *shortest* key, which
    also swallows the rest; in other clusters, each character is replaced by itself.
    """

    def __init__(self, map: CharacterMap):
        self.map = map
        self.local = map.keeps_chunks_apart()
        self._chunks = Memory(self._changed, CHUNKS_KEPT)

    def text(self, text: str) -> str:
        if self.map.leaves(text):
            return text
        if self.local and not has_mark_without_letter(text):
            return " ".join(map(self._chunks.__getitem__, text.split(" ")))
        return self._changed(text)

    def _changed(self, text: str) -> str:
        return Traced(text, [(0, 0)] * len(text)).replaced(self.parts(text)).text

    def parts(self, text: str) -> Iterable[Part]:
        if self.map.leaves(text):
            return
        for match in _CLUSTER.finditer(text):
            first, last = match.span()
            cluster = match.group()
            new = self.map.shortest(cluster) if len(cluster.encode("utf-8", "surrogatepass")) < 6 else None
            if new is not None:
                yield first, last, new
                continue
            for place in range(first, last):
                new = self.map.shortest(text[place])
                if new is not None:
                    yield place, place + 1, new


_EXTENDING_SET = frozenset(EXTENDING)  # faster than a regular expression for finding out that there is none
_EXTENDING = re.escape("".join(EXTENDING))
# Characters before which a cluster always ends, and after which one always begins: controls, separators.
_CONTROL = "\x00-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff0-\ufffb"
_CLUSTER = re.compile(f"\r\n|[{''.join(PREPENDED)}]*[^{_CONTROL}][{_EXTENDING}]*|(?s:.)")
_MARK_AFTER_SPACE = re.compile(f" [{_EXTENDING}]")


def has_mark_without_letter(text: str) -> bool:
    """Whether a mark is at the beginning of the text, or after a space: not in the same cluster as its chunk."""
    if text.isascii() or _EXTENDING_SET.isdisjoint(text):
        return False
    return text[0] in _EXTENDING_SET or _MARK_AFTER_SPACE.search(text) is not None


# ---- from a tokenizer.json


def read_steps(where: str, spec: Any) -> list[Step]:
    """The steps that the normalizer of a tokenizer.json describes. where: the file, for errors."""
    if spec is None:
        return []
    if not isinstance(spec, dict):
        refuse(where, f"is {spec!r:.60}", "an object with a type")
    kind = spec.get("type")
    if kind == "Sequence":
        parts = spec.get("normalizers")
        if not isinstance(parts, list):
            refuse(where, f".normalizers is {parts!r:.60}", "a list")
        return [step for i, part in enumerate(parts) for step in read_steps(f"{where}.normalizers[{i}]", part)]
    if kind in ("NFC", "NFD", "NFKC", "NFKD"):
        return [Unicode(kind)]
    if kind == "StripAccents":
        return [StripAccents()]
    if kind == "Lowercase":
        return [Lowercase()]
    if kind == "Strip":
        sides = [spec.get(name, True) for name in ("strip_left", "strip_right")]
        if not all(isinstance(side, bool) for side in sides):
            refuse(where, f".strip_left and .strip_right are {sides}", "true or false")
        return [Strip(*sides)]
    if kind == "Replace":
        return [_replace(where, spec)]
    if kind == "Precompiled":
        return _precompiled(where, spec)
    known = "Sequence, Replace, NFC, NFD, NFKC, NFKD, StripAccents, Lowercase, Strip or Precompiled"
    refuse(where, f".type is {kind!r:.60}", known)


def _replace(where: str, spec: Mapping[str, Any]) -> Step:
    pattern, new = spec.get("pattern"), spec.get("content")
    if not isinstance(new, str) or not isinstance(pattern, dict) or len(pattern) != 1:
        refuse(where, f" replaces {pattern!r:.60} by {new!r:.60}", "a pattern and a content")
    ((kind, value),) = pattern.items()
    if kind == "String" and isinstance(value, str) and value:
        step = Replace(re.compile(re.escape(value)), new)
        step.local = not any(character.isspace() or character == "▁" for character in value + new)
        return step
    if kind == "Regex" and value in _EXPRESSIONS:
        step = Replace(re.compile(_EXPRESSIONS[value]), new)
        step.local = new == " "  # spaces that become one space: no difference, if the text is cut at spaces
        return step
    refuse(where, f".pattern is {pattern!r:.60}", f"a String, or one of the expressions {', '.join(_EXPRESSIONS)}")


# Regular expressions that published tokenizers use, as Python writes them.
_EXPRESSIONS = {
    " {2,}": " {2,}",
    r"\s{2,}|[\n\r\t]": rf"[{SPACES}]{{2,}}|[\n\r\t]",
    r"\s+": rf"[{SPACES}]+",
}


def _precompiled(where: str, spec: Mapping[str, Any]) -> list[Step]:
    text = spec.get("precompiled_charsmap")
    field = f"{where}.precompiled_charsmap"
    if text is None:
        return []
    try:
        blob = base64.b64decode(text, validate=True)
    except (TypeError, ValueError, binascii.Error) as error:
        raise ValueError(
            f"{field} is {text!r:.40}, expected bytes in base64 ({error}); download the file again"
        ) from None
    return [Precompiled(CharacterMap(blob, field))] if blob else []


def refuse(where: str, found: str, expected: str) -> NoReturn:
    raise ValueError(
        f"{where}{found}, expected {expected}. Mini-BERT would give different ids than this tokenizer; if its folder "
        "has a spiece.model, load that file instead"
    )


if __name__ == "__main__":
    for text in ("Zoë's ½ ﬁne", "東京 İstanbul"):
        print(text, "->", *zip(*traced([Unicode("NFKD"), StripAccents(), Lowercase()], text), strict=True))
