"""Learning merges: words spelt with pieces, and how often each pair of neighbours occurs in them.

A merge changes only the words that contain its pair, so pairs are counted once, and after each merge only the
differences are added. That makes thousands of merges affordable in plain Python; text/vocabulary.py and
text/bpe_learning.py have examples.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from heapq import heapify, heappop, heappush
from operator import add


class PairCounts:
    """Words spelt with pieces, and the pairs of neighbours in them; `merge` makes a pair one piece.

    Piece i is written as one character, chr(i). So a word is a string, a pair a string of two characters, and a merge
    is `str.replace`, which works from left to right as it should.

    pieces: those that exist at first. spelt: the different words; counts: how often each occurs in the text.
    """

    def __init__(self, pieces: Sequence[str], spelt: Iterable[str], counts: Iterable[int]):
        self.pieces = list(pieces)
        self.numbers = {piece: i for i, piece in enumerate(self.pieces)}
        self.spelt, self.counts = list(spelt), list(counts)
        self.uses = [0] * len(self.pieces)
        self.pairs: defaultdict[str, int] = defaultdict(int)  # how often each occurs in the text
        self.where: defaultdict[str, list[int]] = defaultdict(list)  # the words that contain it, or did before a merge
        for i, (word, count) in enumerate(zip(self.spelt, self.counts, strict=True)):
            for symbol in word:
                self.uses[ord(symbol)] += count
            for pair in map(add, word, word[1:]):
                self.pairs[pair] += count
                self.where[pair].append(i)
        self.heap = [(-count, pair) for pair, count in self.pairs.items()]
        heapify(self.heap)

    def joined(self, left: str, right: str) -> str:
        """The piece that two pieces become."""
        return left + right

    def best(self, min_frequency: int = 1) -> str | None:
        """The most frequent pair, or None if it occurs less than `min_frequency` times; ties go to older pieces.

        Counts in the heap may be out of date. A count that rose was pushed again, so the true count of the top entry is
        at most the one in the heap; if it is lower, the entry is pushed back with the true count.
        """
        while self.heap:
            negative, pair = self.heap[0]
            count = self.pairs.get(pair, 0)
            if count == -negative:
                return pair if count >= min_frequency else None
            heappop(self.heap)
            if count:
                heappush(self.heap, (-count, pair))
        return None

    def merge(self, pair: str) -> None:
        left, right = pair[0], pair[1]
        text = self.joined(self.pieces[ord(left)], self.pieces[ord(right)])
        if text not in self.numbers:  # aa+a and a+aa give the same piece
            self.numbers[text] = len(self.pieces)
            self.pieces.append(text)
            self.uses.append(0)
        number = self.numbers[text]
        symbol = chr(number)
        merged = 0
        change: defaultdict[str, int] = defaultdict(int)
        for i in self.where.pop(pair):
            old = self.spelt[i]
            new = old.replace(pair, symbol)
            if len(new) == len(old):  # an earlier merge removed the pair, or the word is listed twice
                continue
            self.spelt[i] = new
            count = self.counts[i]
            merged += count * (len(old) - len(new))
            for other in map(add, old, old[1:]):
                change[other] -= count
            for other in map(add, new, new[1:]):
                change[other] += count
                if symbol in other:
                    self.where[other].append(i)
        self.uses[number] += merged
        self.uses[ord(left)] -= merged
        self.uses[ord(right)] -= merged
        for other, more in change.items():
            if more:
                self.pairs[other] += more
                if more > 0:
                    heappush(self.heap, (-self.pairs[other], other))
                elif not self.pairs[other]:
                    del self.pairs[other]
                    self.where.pop(other, None)
