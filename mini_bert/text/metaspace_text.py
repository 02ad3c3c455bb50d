"""The rules of a tokenizer.json with a Unigram model, up to the words that are then split into pieces.

normalizer        any of text/normalizers.py
pre_tokenizer     WhitespaceSplit: cut at white space, which is dropped (ALBERT, XLNet)
                  Metaspace: write spaces as ▁, put one in front, and cut before each

"Hello, world"  →  ▁Hello,  ▁world
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from mini_bert.text.chunk_spans import SPACE, Span
from mini_bert.text.normalizers import (
    SPACES,
    Step,
    Traced,
    has_mark_without_letter,
    normalised,
    read_steps,
    refuse,
    traced,
)
from mini_bert.text.sentencepiece_text import plainly_traced

_WORD = re.compile(f"[^{SPACES}]+")
_ALL = re.compile(r"(?s:.+)")


class MetaspaceText:
    """How text is normalised.

    whitespace    cut at white space first, and drop it
    prefix        put ▁ in front of the text, or of each part, if it has none
    cut           whether scores are added word by word, instead of over the whole text
    """

    def __init__(self, steps: Sequence[Step], whitespace: bool, prefix: bool, cut: bool):
        self.steps = tuple(steps)
        self.whitespace, self.prefix, self.cut = whitespace, prefix, cut
        self.puts_space_in_front = prefix
        self.drops_first_space, self.drops_all_first_spaces = prefix, False  # when pieces are joined again
        self._part = _WORD if whitespace else _ALL
        self._by_chunk = whitespace and all(step.local for step in steps)

    @classmethod
    def read(cls, normalizer: Any, pre_tokenizer: Any) -> MetaspaceText:
        """From these two fields of a tokenizer.json."""
        return cls(read_steps("normalizer", normalizer), *_read_splits(pre_tokenizer))

    def normalised(self, text: str) -> str:
        """The normalised text: words, each with ▁ in front."""
        parts = self._part.findall(normalised(self.steps, text))
        if self.whitespace and SPACE not in text:  # the same, faster
            return SPACE.join(["", *parts])
        return "".join(map(self._marked, parts))

    def can_be_chunked(self, text: str) -> bool:
        """Whether the normalised text is that of its chunks between spaces, one after the other."""
        return self._by_chunk and not has_mark_without_letter(text)

    def traced(self, text: str) -> Traced:
        """The normalised text, and for each of its characters the span that it comes from."""
        plain = plainly_traced(text, self.normalised(text))
        if plain is not None:
            return plain
        found = traced(self.steps, text)
        spans: list[Span] = []
        for match in self._part.finditer(found.text):
            within = found.spans[match.start() : match.end()]
            if len(self._marked(match.group())) > len(within):  # ▁ was put in front
                spans.append((within[0][0], within[0][0]))
            spans += within
        return Traced("".join(self._marked(part) for part in self._part.findall(found.text)), spans)

    def units(self, text: str) -> list[str]:
        """The parts of a normalised text in which scores are added."""
        if not self.cut:
            return [text]
        before, *words = text.split(SPACE)
        return [before] * bool(before) + [SPACE + word for word in words]

    def _marked(self, part: str) -> str:
        part = part.replace(" ", SPACE)
        return part if part.startswith(SPACE) or not self.prefix else SPACE + part


def _read_splits(spec: Any) -> tuple[bool, bool, bool]:
    where = "pre_tokenizer"
    parts = spec.get("pretokenizers") if isinstance(spec, dict) and spec.get("type") == "Sequence" else [spec]
    if not isinstance(parts, list) or not parts or not all(isinstance(part, dict) for part in parts):
        refuse(where, f" is {spec!r:.60}", "Metaspace, perhaps after WhitespaceSplit")
    *first, last = parts
    if last.get("type") != "Metaspace" or [part.get("type") for part in first] not in ([], ["WhitespaceSplit"]):
        refuse(
            where,
            f" is {' '.join(str(part.get('type')) for part in parts)}",
            "Metaspace, perhaps after WhitespaceSplit",
        )
    if last.get("replacement", SPACE) != SPACE:
        refuse(where, f".replacement is {last['replacement']!r:.60}", f"{SPACE} (U+2581)")
    scheme = last.get("prepend_scheme", "always" if last.get("add_prefix_space", True) is True else "never")
    if scheme not in ("always", "never"):
        refuse(where, f".prepend_scheme is {scheme!r:.60}", '"always" or "never"')
    if first and scheme == "never":
        refuse(where, " is WhitespaceSplit, and Metaspace with prepend_scheme 'never'", "prepend_scheme 'always'")
    return bool(first), scheme == "always", last.get("split", True) is True
