"""Vocabularies learnt from a pasted text, one step at a time, as text/vocabulary.py, text/bpe_learning.py and
text/unigram_learning.py learn them.

    WordPiece, BPE    a step is a merge: the most frequent pair of neighbours becomes one piece
    Unigram           a step estimates the probabilities of all pieces, or takes a quarter of the pieces away

All states of a text are computed at once and kept, so that a slider can move between them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from functools import lru_cache
from heapq import nsmallest
from typing import Any, NamedTuple

import numpy as np

from mini_bert.lab.bench import Bench, rounded
from mini_bert.lab.fields import Fields
from mini_bert.text.byte_level import BYTE_CHARACTERS, as_bytes, unwritten, words, written
from mini_bert.text.chunk_spans import SPACE
from mini_bert.text.pair_counts import PairCounts
from mini_bert.text.unigram_em import Pieces, Substrings
from mini_bert.text.unigram_lattice import UNKNOWN_PENALTY, Lattice
from mini_bert.text.unigram_learning import ROUNDS, SHRINK, Splitter
from mini_bert.text.vocabulary import MAX_WORD_CHARS, MIN_FREQUENCY, Merges
from mini_bert.text.wordsplit import WordSplitter

LONGEST_TEXT = 10_000  # characters
MOST_MERGES = 400
MOST_SEEDS = 3000  # pieces with which Unigram begins
LOWEST = -15.0  # of scores: below that of anything that occurs in LONGEST_TEXT characters, so that no product becomes 0
LONGEST_WORD = 40  # characters, for Unigram; see LOWEST
LEFT = 10  # of so many longer pieces, Unigram keeps one
CANDIDATES = 6  # pairs that could be merged next
MOST_SHOWN = 60  # pieces, the newest or the most probable
MOST_WORDS = 40  # the most frequent
KEPT = 6  # texts and kinds


def learn(bench: Bench, request: Mapping[str, Any]) -> dict[str, Any]:
    """A state of learning.        text, kind, step (0: before the first; too large: the last)"""
    fields = Fields(request)
    text = fields.text(longest=LONGEST_TEXT)
    kind = fields.choice("kind", tuple(STATES))
    step = fields.integer("step", 0, 10_000)
    fields.end()
    states = all_states(kind, text)
    step = min(step, len(states) - 1)
    return {"kind": kind, "step": step, "steps": len(states) - 1, **states[step]}


@lru_cache(KEPT)
def all_states(kind: str, text: str) -> list[dict[str, Any]]:
    table = word_table(kind, text)
    if not table:
        raise ValueError("there is no word in the text, so nothing can be learnt from it; paste some text")
    return list(STATES[kind](table))


def word_table(kind: str, text: str) -> Counter[str]:
    """How often each word occurs. Bytes of BPE are written as printable characters."""
    if kind == "bpe":
        return Counter(written(as_bytes(word)) for word in words(text) if len(word) <= MAX_WORD_CHARS)
    splitter, longest = (WordSplitter(), MAX_WORD_CHARS) if kind == "wordpiece" else (Splitter(), LONGEST_WORD)
    return Counter(word for word in splitter.words(text) if len(word) <= longest)


# ---------------------------------------------------------------------- merging


def wordpiece_states(table: Mapping[str, int]) -> Iterator[dict[str, Any]]:
    return merge_states(Merges(table))


def bpe_states(table: Mapping[str, int]) -> Iterator[dict[str, Any]]:
    alphabet = sorted(BYTE_CHARACTERS)
    symbols = {ord(character): chr(i) for i, character in enumerate(alphabet)}
    return merge_states(PairCounts(alphabet, [word.translate(symbols) for word in table], table.values()))


def merge_states(merging: PairCounts) -> Iterator[dict[str, Any]]:
    """The state at first, and after each merge"""
    characters, merged = len(merging.pieces), None
    frequent = sorted(range(len(merging.counts)), key=lambda i: -merging.counts[i])[:MOST_WORDS]
    total = sum(count * len(word) for count, word in zip(merging.counts, merging.spelt, strict=True))
    length = total
    while True:
        pair = merging.best(MIN_FREQUENCY)
        learnt = len(merging.pieces) - characters
        newest = range(characters + max(0, learnt - MOST_SHOWN), len(merging.pieces))
        yield {
            "pieces": len(merging.pieces),
            "tokens": length,
            "characters": total,
            "merged": merged,
            "next": [_pair(merging, one) for one in _candidates(merging)] if pair else [],
            "learnt": [{"text": _shown(merging, i), "uses": merging.uses[i]} for i in reversed(newest)],
            "words": [
                {"count": merging.counts[i], "pieces": [_shown(merging, ord(one)) for one in merging.spelt[i]]}
                for i in frequent
            ],
        }
        if pair is None or learnt == MOST_MERGES:
            return
        before = merging.uses[ord(pair[0])]
        merged = {**_pair(merging, pair), "text": _shown_text(merging, *_parts(merging, pair))}
        merging.merge(pair)
        made = before - merging.uses[ord(pair[0])]
        length -= made // 2 if pair[0] == pair[1] else made


def _candidates(merging: PairCounts) -> list[str]:
    """The most frequent pairs, in the order of `PairCounts.best`"""
    frequent = nsmallest(CANDIDATES, ((-count, pair) for pair, count in merging.pairs.items()))
    return [pair for count, pair in frequent if -count >= MIN_FREQUENCY]


def _parts(merging: PairCounts, pair: str) -> tuple[str, str]:
    return merging.pieces[ord(pair[0])], merging.pieces[ord(pair[1])]


def _pair(merging: PairCounts, pair: str) -> dict[str, Any]:
    return {"left": _shown(merging, ord(pair[0])), "right": _shown(merging, ord(pair[1])), "count": merging.pairs[pair]}


def _shown(merging: PairCounts, i: int) -> str:
    piece = merging.pieces[i]
    return piece if isinstance(merging, Merges) else _readable(piece)


def _shown_text(merging: PairCounts, left: str, right: str) -> str:
    both = merging.joined(left, right)
    return both if isinstance(merging, Merges) else _readable(both)


def _readable(piece: str) -> str:
    """Bytes as text, with ▁ for a space; those that are no text are numbers."""
    text = unwritten(piece).encode("latin-1").decode("utf-8", "backslashreplace").replace(" ", SPACE)
    return "".join(sign if sign.isprintable() else ascii(sign)[1:-1] for sign in text)


# ---------------------------------------------------------------------- Unigram


class _Snapshot(NamedTuple):
    """Pieces with their scores after a step, the most probable first"""

    doing: str  # "first", "estimate" or "prune"
    scores: dict[str, float]


def unigram_states(table: Mapping[str, int]) -> Iterator[dict[str, Any]]:
    characters = sorted(set().union(*table))
    pieces = Substrings(table, 2).seeds(MOST_SEEDS)
    snapshots = [_snapshot("first", pieces)]
    enough = len(characters) + (len(pieces) - len(characters)) // LEFT
    while True:
        for _ in range(ROUNDS):
            pieces.estimate()
            pieces.scores = np.maximum(pieces.scores, LOWEST)  # for characters that longer pieces have replaced so far
        snapshots.append(_snapshot("estimate", pieces))
        if len(pieces) <= enough:
            break
        pieces.prune(max(enough, int(SHRINK * len(pieces))))
        snapshots.append(_snapshot("prune", pieces))
    before: _Snapshot | None = None
    for own in snapshots:
        yield _unigram_state(table, own, before)
        before = own


def _snapshot(doing: str, pieces: Pieces) -> _Snapshot:
    found = zip(pieces.texts(), pieces.scores.tolist(), strict=True)
    return _Snapshot(doing, dict(sorted(found, key=lambda one: (-one[1], one[0]))))


def _unigram_state(table: Mapping[str, int], own: _Snapshot, before: _Snapshot | None) -> dict[str, Any]:
    lattice = Lattice(
        {text: (i, score) for i, (text, score) in enumerate(own.scores.items())},
        min(own.scores.values()) - UNKNOWN_PENALTY,
        single=False,
    )
    cuts = {word: lattice.best(word) for word in table}
    tokens = sum(count * len(cuts[word].ids) for word, count in table.items())
    characters = sum(count * len(word) for word, count in table.items())
    score = sum(count * sum(cuts[word].scores) for word, count in table.items())
    removed = [] if before is None else [text for text in before.scores if text not in own.scores]
    texts = list(own.scores)
    frequent = sorted(table, key=lambda word: -table[word])[:MOST_WORDS]
    longer = [text for text in texts if len(text) > 1]
    return {
        "doing": own.doing,
        "pieces": len(texts),
        "tokens": tokens,
        "characters": characters,
        "score": rounded(score / tokens),
        "total": rounded(score),
        "learnt": [{"text": text, "score": rounded(own.scores[text])} for text in longer[:MOST_SHOWN]],
        "removed": removed[:MOST_SHOWN],
        "removed_count": len(removed),
        "words": [{"count": table[word], "pieces": [texts[i] for i in cuts[word].ids]} for word in frequent],
    }


STATES = {"wordpiece": wordpiece_states, "bpe": bpe_states, "unigram": unigram_states}
