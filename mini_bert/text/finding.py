"""Finding special tokens, which are written out in a text, before the text is split."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator

from mini_bert.text.unicode_tables import WHITE_SPACE

BLANKS = "".join(WHITE_SPACE)
Cut = tuple[str, int, str | None]  # a part of a text, its position, and the token that it is, or None


class Finder:
    """Cuts a text at tokens. Where two begin at the same place, the longer one is found.

    lstrip, rstrip: those of the tokens that take the white space before, or after, them with them: in RoBERTa,
    "a  <mask> b" is "a", "  <mask>" and " b".
    """

    def __init__(self, tokens: Iterable[str], lstrip: Collection[str] = (), rstrip: Collection[str] = ()):
        longest_first = sorted(tokens, key=len, reverse=True)
        self.pattern = re.compile("|".join(map(re.escape, longest_first)) or "(?!)")
        self.lstrip, self.rstrip = frozenset(lstrip), frozenset(rstrip)
        self.begins = beginnings(longest_first)

    def absent(self, text: str) -> bool:
        """True only if no token is in the text; much faster than cutting it."""
        return not any(map(text.__contains__, self.begins))

    def cut(self, text: str, only: str | None = None) -> Iterator[Cut]:
        """Yields all parts of a text. only: find just this token."""
        end = 0
        for match in self.pattern.finditer(text):
            token, (start, stop) = match.group(), match.span()
            if start < end or (only is not None and token != only):
                continue
            if token in self.lstrip:
                start = end + len(text[end:start].rstrip(BLANKS))
            if token in self.rstrip:
                stop = len(text) - len(text[stop:].lstrip(BLANKS))
            yield text[end:start], end, None
            yield text[start:stop], start, token
            end = stop
        yield text[end:], end, None


def beginnings(tokens: Iterable[str]) -> list[str]:
    """For each first character, the longest string with which all tokens begin that begin with this character.

    >>> beginnings(["<s>", "<mask>", "[SEP]"])
    ['<', '[SEP]']
    """
    found: dict[str, str] = {}
    for token in tokens:
        begin = found.setdefault(token[0], token)
        same = [a == b for a, b in zip(begin, token, strict=False)]
        found[token[0]] = begin[: [*same, False].index(False)]
    return list(found.values())
