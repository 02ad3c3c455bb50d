"""Spans and word indices of the pieces of byte-level BPE, from their ids and tables, for text of the usual kind.

`BpeTokenizer.plain_spans` finds words by the pattern and counts bytes. Nearly always, the ids tell both:

    pieces       The   Ġna   Ã¯   ve   Ġ1   90   's
    words        0     1     1    1    2    2    3        a piece begins a word if it begins with a space, or with a
                                                          character of another class than the last one before it
    characters   3     3     1    2    2    2    2        that begin in each piece; sums of them are where pieces end

That takes a few passes over the ids, none of them in Python itself. `suffice` says where it is not enough.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from functools import cached_property
from itertools import accumulate, chain
from operator import add, ne, sub

import numpy as np

from mini_bert.text.byte_level import SPACE, STARTS, kind
from mini_bert.text.chunk_spans import Span
from mini_bert.text.finding import BLANKS

SPACED = 9  # no class of characters, so that it differs from all
CONTRACTIONS = ("'s", "'t", "'m", "'d", "'re", "'ve", "'ll")  # of the pattern in text/byte_level.py
CUT_BY_CONTRACTION = re.compile(rf"(?:{'|'.join(CONTRACTIONS)})[^\W\d_]")  # "'tis" may be "'t" and "is"


class SpanTables:
    """What is known of each piece.

    raw: the bytes of the pieces, as characters. found_whole: ids that are not spelt, such as those of special tokens.
    contractions_are_pieces: whether each of CONTRACTIONS is one piece
    """

    def __init__(
        self, tokens: Sequence[str], raw: Sequence[str], found_whole: Collection[int], contractions_are_pieces: bool
    ):
        self._tokens, self._raw, self._contractions_are_pieces = tokens, raw, contractions_are_pieces
        first, last = self.kinds
        # Pieces that begin or end inside a character, or with a space that belongs to the next piece
        self._unclear = {*np.flatnonzero((first == 0) | (last == 0)).tolist(), *found_whole}

    def suffice(self, text: str, ids: Sequence[int]) -> bool:
        """Whether spans and words follow from the ids: white space is single spaces, and no word is ambiguous."""
        if not text.isprintable() or "  " in text or text.endswith(" ") or not self._unclear.isdisjoint(ids):
            return False
        return "'" not in text or (self._contractions_are_pieces and not CUT_BY_CONTRACTION.search(text))

    def word_ids(self, ids: Sequence[int]) -> list[int]:
        first, last = self._borders
        begins = map(ne, map(first.__getitem__, ids), chain((0,), map(last.__getitem__, ids)))
        return list(accumulate(begins, initial=-1))[1:]

    def offsets(self, text: str, ids: Sequence[int], trim: bool) -> list[Span]:
        """trim: without the spaces at both ends

        A character ends where the next one begins, so the characters up to the end of a piece are as many as begin
        before it. A piece that begins inside a character also has this one.
        """
        begun, inside = self._characters
        places = list(accumulate(map(begun.__getitem__, ids), initial=0))
        first: Iterable[int] = places[:-1]
        last: Iterable[int] = places[1:]
        if not text.isascii():
            first = map(sub, first, map(inside.__getitem__, ids))
        if trim:
            before, after = self._blanks
            first, last = map(add, first, map(before.__getitem__, ids)), map(sub, last, map(after.__getitem__, ids))
        return list(zip(first, last, strict=True))

    @cached_property
    def kinds(self) -> tuple[np.ndarray, np.ndarray]:
        """The classes of the first and the last character of every piece; see `byte_level.kind`."""
        texts = [raw.encode("latin-1").decode("utf-8", "surrogateescape") for raw in self._raw]
        first = [kind((text.removeprefix(" ") or text or "\udc80")[0]) for text in texts]
        last = [kind((text.rstrip(" ") or "\udc80")[-1]) for text in texts]  # a space alone begins any word
        return np.array(first), np.array(last)

    @cached_property
    def _borders(self) -> tuple[list[int], list[int]]:
        """Of each piece the class of its first character, or SPACED if it begins with a space, and of its last."""
        first, last = (kinds.tolist() for kinds in self.kinds)
        return [SPACED if raw.startswith(" ") else kind for raw, kind in zip(self._raw, first, strict=True)], last

    @cached_property
    def _characters(self) -> tuple[list[int], list[int]]:
        """The number of characters that begin in each piece; and 1 for a piece that begins inside one, otherwise 0."""
        starts = [raw.encode("latin-1").translate(STARTS) for raw in self._raw]
        return list(map(sum, starts)), [int(flags[:1] == b"\0") for flags in starts]

    @cached_property
    def _blanks(self) -> tuple[list[int], list[int]]:
        """The number of spaces at the start and at the end of each piece. One of spaces only has all at its start."""
        ends = [blanks(token) for token in self._tokens]
        after = [
            0 if before == len(token) else after for token, (before, after) in zip(self._tokens, ends, strict=True)
        ]
        return [before for before, _ in ends], after


def blanks(token: str) -> tuple[int, int]:
    """The number of spaces, and of other white space, at both ends of a token."""
    spaces = BLANKS + SPACE
    return len(token) - len(token.lstrip(spaces)), len(token) - len(token.rstrip(spaces))


def trimmed(first: int, last: int, before: int, after: int, keep: bool = False) -> Span:
    """A span without the white space at its ends, but as in the reference never negative. keep: one space may stay."""
    first = first if keep and before == 1 else min(first + before, last)
    return first, max(last - after, first) if after <= last else last
