"""The ids of many texts in byte-level BPE at once, with NumPy.

    texts       "The cat sat,"   "The cat"       joined with spaces, as bytes
    chunks      The ␣cat ␣sat, The ␣cat          cut at spaces; the first chunk of a text has no space before it
    numbers     0   1    2     0   1             of chunks, from a table (text/chunk_table.py)
    ids         464 3797 3332 11 464 3797        of all chunks, one after the other; then cut into texts

New chunks are cut into words by the pattern, and new words are spelt together (text/merging_together.py). The result is
the same as for one text at a time (text/bpe.py), and here, too, some texts must not be cut at every space.
In 20 MB of English, 3.6 million chunks are 240 thousand different ones, made of 110 thousand words.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain, pairwise

import numpy as np

from mini_bert.text.byte_level import words
from mini_bert.text.chunk_table import LONGEST, PADDING, ChunkTable, keys_of
from mini_bert.text.finding import BLANKS

AT_LEAST = 1 << 13  # characters of all texts; with fewer, one text after the other is faster
AT_MOST = 1 << 19  # so at most 2¹⁸ new chunks, for which the table has room
CHUNKS_KEPT = 1 << 18  # until all are forgotten; they take about 20 MB
IRREGULAR = -1  # in the place of ids: the text must not be cut before this chunk
SPACE = ord(" ")

Ids = tuple[int, ...]
Rows = list[list[int] | None]


class ManyTexts:
    """Spells texts together.

    word_ids: the ids of words, which are computed if necessary. prepare: called with new words; may spell them together
    pieces: the size of the vocabulary
    """

    def __init__(self, word_ids: Mapping[str, Ids], prepare: Callable[[Iterable[str]], None], pieces: int):
        self._word_ids, self._prepare = word_ids, prepare
        self._integers = np.array([*range(pieces), IRREGULAR], object)  # so that equal ids are one object
        self._lock = threading.Lock()
        self._forget()

    def _forget(self) -> None:
        self._table = ChunkTable(4 * CHUNKS_KEPT)
        self._long: dict[bytes, int] = {}  # the numbers of chunks that are too long for the table
        self._ids = np.zeros(0, np.int32)  # of all chunks, one after the other
        self._borders = np.zeros(1, np.int64)  # those of chunk i are between borders i and i + 1

    def rows(self, texts: Sequence[str]) -> Rows:
        """The ids of each text. None for one that must not be cut at every space; for all if one is not Unicode, or
        another thread is at work here."""
        nothing: Rows = [None] * len(texts)
        if not texts or not self._lock.acquire(blocking=False):
            return nothing
        try:
            return self._rows(texts, " ".join(texts).encode())
        except UnicodeEncodeError:
            return nothing
        except BaseException:
            self._forget()  # as it may be incomplete
            raise
        finally:
            self._lock.release()

    def _rows(self, texts: Sequence[str], data: bytes) -> Rows:
        spaces = np.flatnonzero(np.frombuffer(data, np.uint8) == SPACE)
        starts, ends = np.append(0, spaces), np.append(spaces, len(data))
        last = np.cumsum([text.count(" ") + 1 for text in texts])  # the chunk after the last of each text
        starts[last[:-1]] += 1
        numbers = self._numbers(data, starts, ends)

        first = self._borders[numbers]
        counts = self._borders[numbers + 1] - first
        places = np.cumsum(counts)
        ids = self._ids[np.repeat(first - places + counts, counts) + np.arange(places[-1])]
        limits = [0, *places[last - 1].tolist()]
        together = self._integers[ids].tolist()
        rows: Rows = [together[start:end] for start, end in pairwise(limits)]
        for place in np.flatnonzero(ids == IRREGULAR):
            rows[int(np.searchsorted(limits, place, "right")) - 1] = None
        return rows

    def _numbers(self, data: bytes, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
        """The number of each chunk. New chunks get numbers."""
        if len(self._borders) > CHUNKS_KEPT:
            self._forget()
        lengths = ends - starts
        low, high = keys_of(data + PADDING, starts, lengths)
        numbers = self._table.find(low, high)
        numbers[lengths > LONGEST] = -1
        unknown = np.flatnonzero(numbers < 0)
        chunks = [data[start:end] for start, end in zip(starts[unknown].tolist(), ends[unknown].tolist(), strict=True)]
        place = dict(zip(chunks, unknown.tolist(), strict=True))
        new = [chunk for chunk in place if chunk not in self._long]
        number = dict(zip(new, range(len(self._borders) - 1, len(self._borders) - 1 + len(new)), strict=True))
        if new:
            self._learn([chunk.decode() for chunk in new])
            short = [chunk for chunk in new if len(chunk) <= LONGEST]
            places = [place[chunk] for chunk in short]
            self._table.enter(low[places], high[places], np.array([number[chunk] for chunk in short], np.int64))
            self._long |= {chunk: i for chunk, i in number.items() if len(chunk) > LONGEST}
        numbers[unknown] = [number[chunk] if chunk in number else self._long[chunk] for chunk in chunks]
        return numbers

    def _learn(self, chunks: Sequence[str]) -> None:
        """Chunks with the space before them, if there is one."""
        found = [words(chunk) for chunk in chunks]
        self._prepare(chain.from_iterable(found))
        of_word = self._word_ids.__getitem__
        rows = [of_word(its[0]) if len(its) == 1 else (*chain.from_iterable(map(of_word, its)),) for its in found]
        for place, chunk in enumerate(chunks):
            if chunk[:1] == " " and chunk[1:2] in BLANKS:  # or nothing: the space is part of longer white space
                rows[place] = (IRREGULAR,)
        self._ids = np.append(self._ids, np.array([*chain.from_iterable(rows)], np.int32))
        self._borders = np.append(self._borders, self._borders[-1] + np.cumsum([*map(len, rows)]))
