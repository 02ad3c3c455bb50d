"""Estimating the probabilities of pieces by expectation-maximisation, for all words at once.

The text is given, but not how it was cut into pieces. If it were, the best probability of a piece would be its share of
all pieces. So guess, and improve the guess. With the probabilities p so far, each segmentation s of a word has a
probability, proportional to the product of its pieces; count every piece with these probabilities as weights
(**expectation**), and take the shares of the counts as the new p (**maximisation**). The likelihood never falls.

A word of n characters has up to 2ⁿ⁻¹ segmentations, but sums over all of them need only n steps (the forward-backward
algorithm; Baum 1972). Let α(j) be the sum of the products over all segmentations of the first j characters, and β(i)
that over all segmentations of the characters after i:

    α(0) = 1,  α(j) = Σ over pieces word[i:j]  α(i) p(word[i:j])        β(n) = 1,  β(i) = Σ  p(word[i:j]) β(j)

α(n) = β(0) is the probability of the word. The segmentations in which the piece word[i:j] occurs have the share

    α(i) p(word[i:j]) β(j) / α(n)

of it, which times the count of the word is added to the expected count c of the piece. β is the derivative of α(n) by
α(i), so going backward is the same chain rule as in a network's backward pass.

For the new p, not c/Σc but exp(ψ(c)) / exp(ψ(Σc)) is taken, where ψ(c) ≈ log(c - ½) is the digamma function: the
variational estimate with a sparse prior (Liang and Klein 2007), which takes half a count from every piece and so makes
rare ones rarer.

**Which pieces are missed least?** Without a piece, the words that use it are spelt with the best segmentation of the
piece itself into others. The logarithm of the likelihood changes by about

    c · (score of the piece - score of its best segmentation into other pieces)

and pieces with the smallest loss go first. Single characters stay.

Everything is done for all words together. A **node** is a position in a word. Nodes are numbered by their position j,
and within a position by word, the longest words first. An **edge** is an occurrence of a piece, from node (i, word) to
(j, word). Edges are sorted by the node at which they end, so that α(j) of all words with at least j characters is one
slice, computed by one `np.add.reduceat`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

LONGEST = 16  # characters of a piece
FEWEST = 0.5  # expected occurrences of a piece
SMALLEST = 1e-200  # of α, before rounding to 0 becomes a danger


class Level(NamedTuple):
    """Substrings of one length."""

    at: np.ndarray  # where they occur: positions in all words, one after the other
    which: np.ndarray  # which substring of this length occurs there
    first: np.ndarray  # for each substring, a position where it occurs
    counts: np.ndarray  # how often it occurs in the text
    prefix: np.ndarray  # without its last character: which substring of the length before
    suffix: np.ndarray  # without its first


class Substrings:
    """All substrings of words that occur at least `rarest` times, by length."""

    def __init__(self, words: Mapping[str, int], rarest: float = 2):
        longest_first = sorted(words, key=lambda word: (-len(word), word))
        self.text = "".join(longest_first)
        self.lengths = np.array([len(word) for word in longest_first])
        self.counts = np.array([words[word] for word in longest_first], float)
        self.starts = np.concatenate([[0], np.cumsum(self.lengths)[:-1]])
        self.word = np.repeat(np.arange(len(longest_first)), self.lengths)  # of each position
        left = (self.starts + self.lengths)[self.word] - np.arange(len(self.text))  # characters to the end of the word
        codes = np.frombuffer(self.text.encode("utf-32-le"), np.uint32)
        alphabet, letters, first = _unique(codes)
        weight = self.counts[self.word]
        nothing = np.zeros(len(alphabet), np.int32)
        at = np.arange(len(codes), dtype=np.int32)
        self.levels = [Level(at, letters, first, np.bincount(letters, weight), nothing, nothing)]
        dense = letters  # at each position, which substring of the present length begins there, or -1
        for length in range(2, LONGEST + 1):
            at = self.levels[-1].at
            at = at[left[at] >= length]
            at = at[(dense[at] >= 0) & (dense[at + 1] >= 0)]
            if not len(at):
                break
            keys, which, first = _unique(dense[at].astype(np.int64) * len(alphabet) + letters[at + length - 1])
            first = at[first]
            count = np.bincount(which, weight[at])
            kept = count >= rarest
            new = np.cumsum(kept, dtype=np.int32) - 1
            at, which, first, keys, count = (
                at[kept[which]],
                new[which[kept[which]]],
                first[kept],
                keys[kept],
                count[kept],
            )
            self.levels.append(
                Level(at, which, first, count, (keys // len(alphabet)).astype(np.int32), dense[first + 1])
            )
            dense = np.full(len(codes), -1, np.int32)
            dense[at] = which

    def seeds(self, most: int) -> Pieces:
        """All characters, and the substrings that cover most of the text: frequent and long.

        A substring that is always followed by the same character is left out, since the longer one replaces it.
        """
        covers = []
        for length, level in enumerate(self.levels, 1):
            cover = level.counts * length
            if length < len(self.levels):
                longer = self.levels[length]
                cover[longer.prefix[longer.counts == level.counts[longer.prefix]]] = 0
            covers.append(cover if length > 1 else np.full(len(level.counts), np.inf))
        everything = np.concatenate(covers)
        order = np.argsort(-everything, kind="stable")[: max(most, len(covers[0]))]
        chosen = np.zeros(len(everything), bool)
        chosen[order[everything[order] > 0]] = True
        return Pieces(self, chosen)


class Pieces:
    """Pieces with their probabilities, and their occurrences in all words as a graph.

    chosen: for each substring of all lengths, whether it is a piece.
    """

    def __init__(self, substrings: Substrings, chosen: np.ndarray):
        self.substrings = substrings
        levels = substrings.levels
        self.offsets = np.cumsum([0, *(len(level.counts) for level in levels)])
        self.piece_of = np.full(len(chosen) + 1, -1, np.int32)  # of a substring, counted over all lengths
        self.substring = np.flatnonzero(chosen)  # of a piece
        self.piece_of[self.substring] = np.arange(len(self.substring))
        self.lengths = np.searchsorted(self.offsets, self.substring, side="right")
        count = np.concatenate([level.counts for level in levels])[self.substring] * self.lengths
        self.scores = np.log(count / count.sum())
        self.expected = count
        self._number_nodes()
        self._make_edges()
        self.first = np.concatenate([level.first for level in levels])
        self.prefix, self.suffix = (
            np.concatenate(
                [
                    np.empty(0, int),
                    *(getattr(one, name) + below for one, below in zip(levels[1:], self.offsets, strict=False)),
                ]
            )
            for name in ("prefix", "suffix")
        )
        substrings.levels.clear()  # they have done their duty, and take much memory

    def __len__(self) -> int:
        return len(self.substring)

    def texts(self) -> list[str]:
        first = self.first[self.substring]
        return [
            self.substrings.text[at : at + length]
            for at, length in zip(first.tolist(), self.lengths.tolist(), strict=True)
        ]

    def _number_nodes(self) -> None:
        lengths = self.substrings.lengths
        longest = int(lengths[0])
        # words with at least j characters; they come first
        self.reaching = np.searchsorted(-lengths, -np.arange(longest + 1), side="right")
        self.reaching[0] = len(lengths)
        self.base = np.concatenate(
            [[0], np.cumsum(self.reaching)]
        )  # the first node of each position, and the number of all
        self.ends = self.base[lengths] + np.arange(len(lengths))  # the last node of each word

    def _make_edges(self) -> None:
        """Edges sorted by their end, without comparing: count those of each node, then give each a place."""
        text = self.substrings
        inside = (np.arange(len(text.text)) - text.starts[text.word]).astype(np.int32)  # the position in its word
        found = []
        place = np.zeros(self.base[-1] + 1, np.int32)
        for length, level in enumerate(text.levels, 1):
            piece = self.piece_of[self.offsets[length - 1] + level.which]
            at, piece = level.at[piece >= 0], piece[piece >= 0]
            place[1 + self.base[inside[at] + length] + text.word[at]] += 1  # at most one piece of each length
            found.append((at, piece))
        np.cumsum(place, out=place)
        self.start, self.end, self.piece = (np.empty(place[-1], np.int32) for _ in range(3))
        for length, (at, piece) in enumerate(found, 1):
            end = self.base[inside[at] + length] + text.word[at]
            edge = place[end]
            place[end] += 1
            self.start[edge] = self.base[inside[at]] + text.word[at]
            self.end[edge], self.piece[edge] = end, piece
        self._find_slices()

    def _find_slices(self) -> None:
        self.slices = np.searchsorted(self.end, self.base[1:])  # the edges that end at each position
        self.first_edges = np.searchsorted(self.end, np.arange(self.base[1], self.base[-1] + 1))  # of each node

    def estimate(self) -> None:
        """One round of expectation and maximisation."""
        expected = self._expectation()
        kept = (_clear(expected) >= FEWEST) | (self.lengths == 1)
        self.expected = np.maximum(expected, FEWEST)  # characters stay, even if hardly ever used
        self.scores = _digamma(self.expected) - _digamma(self.expected[kept].sum())
        self._keep(kept)

    def _expectation(self) -> np.ndarray:
        # Scaled by a constant per character, so that long words do not underflow; where they do, by their own.
        scale = -(self.expected @ self.scores) / (self.expected @ self.lengths)
        p = np.exp(self.scores + scale * self.lengths)
        more: np.ndarray | None = None
        alpha = self._forward(p, more)
        lost = ~((alpha[self.ends] > SMALLEST) & (alpha[self.ends] < 1 / SMALLEST))
        if lost.any():
            more = np.where(lost, -self._best_scores() / self.substrings.lengths - scale, 0.0)
            alpha = self._forward(p, more)
        beta = np.zeros(self.base[-1])
        beta[self.ends] = self.substrings.counts / alpha[self.ends]  # instead of 1, so that shares become counts
        expected = np.zeros(len(self))
        for j in range(len(self.reaching) - 1, 0, -1):
            edges, _, _ = self._ending_at(j)
            start = self.start[edges]
            flow = self._weights(j, edges, p, more) * beta[self.end[edges]]
            low = self.base[max(0, j - LONGEST)]
            beta[low : self.base[j]] += np.bincount(start - low, flow, self.base[j] - low)
            expected += np.bincount(self.piece[edges], alpha[start] * flow, len(self))
        return expected

    def _forward(self, p: np.ndarray, more: np.ndarray | None) -> np.ndarray:
        """α of every node."""
        alpha = np.zeros(self.base[-1])
        alpha[: self.base[1]] = 1.0
        for j in range(1, len(self.reaching)):
            edges, nodes, firsts = self._ending_at(j)
            alpha[nodes] = np.add.reduceat(alpha[self.start[edges]] * self._weights(j, edges, p, more), firsts)
        return alpha

    def _weights(self, j: int, edges: slice, p: np.ndarray, more: np.ndarray | None) -> np.ndarray:
        """The p of the edges that end at position j. more: how much each word is scaled per character, beyond p."""
        piece = self.piece[edges]
        if more is None:
            return p[piece]
        return p[piece] * np.exp(more[self.end[edges] - self.base[j]] * self.lengths[piece])

    def _best_scores(self) -> np.ndarray:
        """The score of the best segmentation of each word: `_forward` with logarithms, and max for sum."""
        best = np.zeros(self.base[-1])
        for j in range(1, len(self.reaching)):
            edges, nodes, firsts = self._ending_at(j)
            best[nodes] = np.maximum.reduceat(best[self.start[edges]] + self.scores[self.piece[edges]], firsts)
        return best[self.ends]

    def _ending_at(self, j: int) -> tuple[slice, slice, np.ndarray]:
        """The edges that end at position j, its nodes, and for each node the first of its edges among these."""
        edges = slice(self.slices[j - 1], self.slices[j])
        nodes = slice(self.base[j], self.base[j + 1])
        return edges, nodes, self.first_edges[nodes.start - self.base[1] : nodes.stop - self.base[1]] - edges.start

    def prune(self, most: int) -> None:
        """Keeps the pieces whose loss would lower the likelihood most."""
        loss = self.expected * (self.scores - self._without())
        loss[self.lengths == 1] = np.inf
        kept = np.zeros(len(self), bool)
        kept[np.argsort(-_clear(loss), kind="stable")[:most]] = True
        self._keep(kept | (self.lengths == 1))

    def _without(self) -> np.ndarray:
        """For each piece the score of its best segmentation into other pieces."""
        one = self.offsets[1]  # substrings of one character have no shorter ones
        scores = np.append(self.scores, -np.inf)
        result = np.full(len(self), -np.inf)
        for length in range(2, int(self.lengths.max()) + 1):
            of_length = np.flatnonzero(self.lengths == length)
            best = np.full((length + 1, len(of_length)), -np.inf)
            best[0] = 0.0
            tail = self.substring[of_length]  # the piece from position i on
            for i in range(length):
                part = tail
                for j in range(length, i, -1):
                    if j - i < length:
                        best[j] = np.maximum(best[j], best[i] + scores[self.piece_of[part]])
                    if j - i > 1:
                        part = self.prefix[part - one]
                if i < length - 1:
                    tail = self.suffix[tail - one]
            result[of_length] = best[length]
        return result

    def _keep(self, kept: np.ndarray) -> None:
        if kept.all():
            return
        new = np.where(kept, np.cumsum(kept) - 1, -1).astype(np.int32)
        self.substring, self.lengths = self.substring[kept], self.lengths[kept]
        self.scores, self.expected = self.scores[kept], self.expected[kept]
        self.piece_of[:] = -1
        self.piece_of[self.substring] = np.arange(len(self.substring))
        piece = new[self.piece]
        edges = piece >= 0
        self.start, self.end, self.piece = self.start[edges], self.end[edges], piece[edges]
        self._find_slices()


def _unique(values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The different values, for each value which it is, and for each different one where it comes first."""
    order = np.argsort(values, kind="stable")
    new = np.ones(len(values), bool)
    new[1:] = values[order[1:]] != values[order[:-1]]
    which = np.empty(len(values), np.int32)
    which[order] = np.cumsum(new) - 1
    return values[order[new]], which, order[new]


def _clear(values: np.ndarray) -> np.ndarray:
    """Without the last digits, in which processors differ, so that equal values (of "cat" and "sat") stay equal."""
    return values.astype(np.float32)


def _digamma(x: np.ndarray | float) -> np.ndarray:
    """ψ(x), by its recurrence ψ(x) = ψ(x+1) - 1/x up to 6, and from there by its asymptotic series."""
    x = np.array(x, float)
    result = np.zeros_like(x)
    for _ in range(6):
        small = x < 6
        result -= np.where(small, 1 / x, 0.0)
        x = np.where(small, x + 1, x)
    y = 1 / (x * x)
    return result + np.log(x) - 0.5 / x - y * (1 / 12 - y * (1 / 120 - y * (1 / 252 - y / 240)))
