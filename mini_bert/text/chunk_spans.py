"""Spans and word indices of a text, from those of its chunks between spaces, which a tokenizer remembers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from itertools import accumulate, chain, repeat
from operator import add

SPACE = "▁"
Span = tuple[int, int]  # first character, and the one after the last

# Of the pieces of a chunk: where they are in it; and 1 for each that begins a word, 0 for the others. (Plain tuples, as
# garbage collection does not look at those of numbers again and again.)
ChunkSpans = tuple[tuple[Span, ...], tuple[int, ...]]


@cache
def one_piece(length: int, start: int = 0) -> ChunkSpans:
    """A chunk of this length that is one piece; shared, since most chunks are."""
    return ((start, length),), (1,)


def side_by_side(words: Iterable[Sequence[int]], start: int = 0) -> ChunkSpans:
    """Words without a gap between them, each given as the lengths of its pieces."""
    spans, begins = [], []
    for lengths in words:
        begin = 1
        for length in lengths:
            spans.append((start, start + length))
            begins.append(begin)
            begin = 0
            start += length
    return tuple(spans), tuple(begins)


def put_together(
    chunks: Sequence[str], found: Sequence[ChunkSpans], start: int = 0
) -> tuple[list[Span], list[int], int]:
    """Spans and word indices of all chunks, with one space between two, and the number of words.

    start: the position of the first chunk.
    """
    starts = accumulate(map(add, map(len, chunks), repeat(1)), initial=start)
    offsets = [(a + at, b + at) for at, (spans, _) in zip(starts, found, strict=False) for a, b in spans]
    word_ids = list(accumulate(chain.from_iterable([begins for _, begins in found]), initial=-1))
    count = word_ids[-1] + 1
    del word_ids[0]
    return offsets, word_ids, count


def laid_out(normalised: str, sources: Sequence[Span], lengths: Iterable[int]) -> ChunkSpans:
    """A span covers the characters of a piece without its ▁. A word begins with ▁."""
    spans: list[Span] = []
    begins: list[int] = []
    place = 0
    for length in lengths:
        begins.append(int(place == 0 or (length > 0 and normalised[place] == SPACE)))
        first, last = place, max(place + length, place + 1) - 1  # all bytes of a character have its span
        while first < last and normalised[first] == SPACE:
            first += 1
        while first < last and normalised[last] == SPACE:  # with some models, ▁ ends a word
            last -= 1
        spans.append((sources[first][0], sources[last][1]))
        place += length
    return tuple(spans), tuple(begins)
