"""The best way to split a word into pieces, if every piece has a probability.

The Unigram model (Kudo 2018, arXiv:1804.10959) takes the pieces of a text as independent, so the probability of a
segmentation is the product of those of its pieces, and its logarithm the sum of their scores. Of all segmentations of a
word, the best is found by **dynamic programming** (Viterbi 1967). Let best(j) be the highest score of the first j
characters. The last piece of that segmentation begins somewhere, at i; what is before it must be the best for i
characters, or it could be improved:

    best(0) = 0,     best(j) = max over i < j of  best(i) + score(word[i:j]),     word[i:j] a piece

Keep the i that was best for each j, and read the pieces from the end. A trie of the pieces gives those that begin at
each i.

    word  ▁abc        scores  ▁a -2   ▁ab -4   b -3   bc -4   c -3.5        (▁ abc are 0 1234)
    best(2) = -2  ▁a        best(3) = max(-4, -2-3) = -4  ▁ab        best(4) = max(-4-3.5, -2-4) = -6  ▁a bc

A character that is no piece by itself is unknown, with the lowest score of all pieces minus 10; unknown characters next
to each other become one token, or the pieces of their bytes if the model has those.

**Rounding.** The `sentencepiece` library adds scores in 32-bit floats from the beginning of the text. Two segmentations
that are nearly equal, such as "aa a" and "a aa", are then decided by rounding, which depends on the score of everything
before. Words can still be looked up, since nearly always one segmentation is clearly better: with n additions of
numbers up to B, each rounded to 24 bits, a sum is off by at most n · B · 2⁻²⁴. `Cut.limit` is the B up to which the
choice is certain. Beyond it, `exactly` repeats the library's additions. (The `tokenizers` library adds 64-bit floats,
with 53 bits, word by word; there, only ties are decided by rounding.)
"""

from __future__ import annotations

import math
import re
from array import array
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from typing import Any, NamedTuple

from mini_bert.text.chunk_spans import SPACE

UNKNOWN_PENALTY = 10.0
RESET = 100_000.0  # `sentencepiece` subtracts the score so far when it is beyond this
UNKNOWN = -1  # as an id; the tokenizer replaces it


class Cut(NamedTuple):
    """A word in pieces."""

    ids: tuple[int, ...]
    lengths: tuple[int, ...]  # the number of characters of each piece
    scores: tuple[float, ...]
    limit: float = math.inf  # how large scores may get before rounding could change the pieces


_NOWHERE: tuple[dict[str, Any], int, float] = {}, UNKNOWN, -math.inf


class Lattice:
    """All segmentations of a word.  pieces: for each its id and score.

    single: whether scores are added in 32-bit numbers, as by `sentencepiece`, or in 64 bits, as by `tokenizers`
    """

    def __init__(self, pieces: Mapping[str, tuple[int, float]], unknown_score: float, single: bool = True):
        self.unknown_score, self.single = unknown_score, single
        self.worst = max([abs(unknown_score), *(abs(score) for _, score in pieces.values())])
        # A node of the trie has its children by character, and the id and score of the piece that ends there.
        self._root: list[Any] = [{}, UNKNOWN, -math.inf]
        for piece, entry in pieces.items():
            node = self._root
            for character in piece:
                node = node[0].setdefault(character, [{}, UNKNOWN, -math.inf])
            node[1:] = entry
        self._entries = {i: (len(piece), score) for piece, (i, score) in pieces.items()} | {UNKNOWN: (1, unknown_score)}
        self._single = frozenset(piece for piece in pieces if len(piece) == 1)
        self.parts = _parts(pieces)

    def best(self, word: str) -> Cut:
        """The best segmentation, in 64-bit arithmetic."""
        ids, limit = self.best_ids(word)
        found = [self._entries[i] for i in ids]
        return Cut(ids, tuple(length for length, _ in found), tuple(score for _, score in found), limit)

    def best_ids(self, word: str) -> tuple[tuple[int, ...], float]:
        """The ids of the best segmentation, and its limit: as in `Cut`."""
        last, gaps = self._search(word)
        ids, gap, end = [], math.inf, len(word)
        while end:
            if gaps[end] < gap:
                gap = gaps[end]
            end, piece = last[end]
            ids.append(piece)
        return tuple(ids[::-1]), gap / (2 * (len(word) + 1)) * (1 << (24 if self.single else 53))

    def _search(self, word: str) -> tuple[list[tuple[int, int]], list[float]]:
        """For each end, where the best last piece begins, and its id; and how much better than others it is."""
        size = len(word)
        best = [-math.inf] * (size + 1)
        best[0] = 0.0
        gaps = [math.inf] * (size + 1)
        last: list[tuple[int, int]] = [(0, 0)] * (size + 1)
        root = self._root[0]
        for start, character in enumerate(word):
            before = best[start]
            children, piece, score = root.get(character) or _NOWHERE
            end = start + 1
            if score == -math.inf:
                piece, score = UNKNOWN, self.unknown_score
            while True:
                if score > -math.inf:
                    total = before + score
                    gap = total - best[end]
                    if gap > 0:
                        best[end] = total
                        last[end] = start, piece
                        gaps[end] = gap
                    elif -gap < gaps[end]:
                        gaps[end] = -gap
                if end == size:
                    break
                node = children.get(word[end])
                if node is None:
                    break
                children, piece, score = node
                end += 1
        return last, gaps

    def exactly(self, text: str, before: float) -> tuple[Cut, float]:
        """The best segmentation by the additions of the library, and the score at its end.

        before: the score of everything before this text
        """
        size = len(text)
        kind = "f" if self.single else "d"
        rounded = array(kind, [0.0])  # storing a number in an array rounds it
        best = array(kind, [before] + [0.0] * size)
        last: list[tuple[int, int] | None] = [None] * (size + 1)
        frontier = 0
        for start in range(size):
            if self.single and abs(best[start]) > RESET:
                offset = best[start]
                for place in range(start, frontier + 1):
                    if place == start or last[place] is not None:
                        best[place] -= offset
            for end, piece, more in self._edges(text, start):
                frontier = max(frontier, end)
                rounded[0] = best[start] + more
                if last[end] is None or rounded[0] > best[end]:
                    best[end] = rounded[0]
                    last[end] = start, piece
        ids, lengths, end = [], [], size
        while end:
            found = last[end]
            assert found is not None
            ids.append(found[1])
            lengths.append(end - found[0])
            end = found[0]
        return Cut(tuple(ids[::-1]), tuple(lengths[::-1]), ()), best[size]

    def several(self, word: str, count: int) -> list[Cut]:
        """The `count` best segmentations, the best first: for each end, the `count` best ways to get there are kept."""
        ways: list[list[tuple[float, tuple[tuple[int, int, float], ...]]]] = [[(0.0, ())], *([] for _ in word)]
        for start in range(len(word)):
            ways[start] = sorted(ways[start], key=lambda way: -way[0])[:count]
            for end, piece, score in self._edges(word, start):
                ways[end] += [(total + score, (*path, (piece, end - start, score))) for total, path in ways[start]]
        best = sorted(ways[-1], key=lambda way: -way[0])[:count]
        return [
            Cut(
                tuple(i for i, _, _ in path), tuple(length for _, length, _ in path), tuple(score for *_, score in path)
            )
            for _, path in best
        ]

    def added(self, before: float, scores: Iterable[float]) -> float:
        """The score after more pieces, rounded as by the library."""
        rounded = array("f" if self.single else "d", [before])
        for score in scores:
            rounded[0] += score
        return rounded[0]

    def _edges(self, text: str, start: int) -> Iterator[tuple[int, int, float]]:
        """The pieces that begin at a position: where they end, their ids and scores."""
        children = self._root[0]
        for end in range(start, len(text)):
            node = children.get(text[end])
            if node is None:
                break
            children, piece, score = node
            if score > -math.inf:
                yield end + 1, piece, score
        if text[start] not in self._single:
            yield start + 1, UNKNOWN, self.unknown_score


def _parts(pieces: Mapping[str, tuple[int, float]]) -> re.Pattern[str] | None:
    """A regular expression that finds parts of a normalised text that no piece crosses, or None.

    Characters that are neighbours in a piece, ▁ aside, are of one class: letters, or digits and points. A part is a run
    of one class, perhaps after ▁, or a run of characters that no piece has; such a run is one unknown token. That
    requires that ▁ is only at the beginning of pieces, and that every character of a piece is also a piece.
    """
    characters = set().union(*pieces)
    if SPACE not in characters or any(character not in pieces for character in characters):
        return None
    if any(SPACE in piece[1:] for piece in pieces):
        return None
    group = {character: character for character in characters}  # its own, or a character of the same class

    def leader(character: str) -> str:
        while group[character] != character:
            group[character] = character = group[group[character]]
        return character

    inside: set[str] = set()
    for piece in pieces:
        for first, second in pairwise(piece.removeprefix(SPACE)):
            group[leader(second)] = leader(first)
            inside.update((first, second))
    classes: defaultdict[str, list[str]] = defaultdict(list)
    for character in sorted(inside):
        classes[leader(character)].append(character)
    weights: defaultdict[str, float] = defaultdict(float)
    for piece, (_, score) in pieces.items():
        weights[leader(piece[-1])] += math.exp(min(score, 0.0))
    runs = [f"[{re.escape(''.join(classes[one]))}]+" for one in sorted(classes, key=lambda one: -weights[one])]
    alone = "".join(sorted(characters - inside - {SPACE}))
    known = "|".join(runs + [f"[{re.escape(alone)}]"] * bool(alone))
    return re.compile(f"{SPACE}(?:{known})?|[^{re.escape(''.join(sorted(characters)))}]+|{known}")


if __name__ == "__main__":
    scores = {"▁a": -2.0, "▁ab": -4.0, "b": -3.0, "bc": -4.0, "c": -3.5}
    lattice = Lattice({piece: (i, score) for i, (piece, score) in enumerate(scores.items())}, -14.0)
    print(lattice.best("▁abc"), *(list(scores)[i] for i in lattice.best("▁abc").ids))
