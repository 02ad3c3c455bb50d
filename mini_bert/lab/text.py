"""The text room: a text in pieces, by three kinds of tokenizer, and how each makes the pieces of a word.

    WordPiece    the longest piece that the word starts with, then the longest that the rest starts with, …
    BPE          single bytes, then merges in the order learnt
    Unigram      of all ways to spell the word, the one with the highest sum of scores, the logarithms of probabilities

The vocabularies are bundled and of equal size: 8k, bpe-8k, unigram-8k. lab/vocabularies.py learns new ones, step by
step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from itertools import pairwise
from typing import Any

from mini_bert.lab.bench import Bench, rounded
from mini_bert.lab.fields import BadRequest, Fields
from mini_bert.lab.vocabularies import learn, shown
from mini_bert.text.base import Tokenizer
from mini_bert.text.bpe import BpeTokenizer
from mini_bert.text.byte_level import unwritten
from mini_bert.text.encoding import Encoding
from mini_bert.text.loading import load_tokenizer
from mini_bert.text.unigram import UnigramTokenizer
from mini_bert.text.unigram_lattice import UNKNOWN
from mini_bert.text.wordpiece import PREFIX, WordPieceTokenizer

KINDS = {"wordpiece": "8k", "bpe": "bpe-8k", "unigram": "unigram-8k"}
MOST_PIECES = 1000  # of a text: a hostile one has several for each character
LONGEST_WORD = 60  # characters of a word that is explained
WAYS = 3  # to spell a word by Unigram


@cache
def tokenizer(kind: str) -> Any:
    return load_tokenizer(KINDS[kind])


def pieces(bench: Bench, request: Mapping[str, Any]) -> dict[str, Any]:
    """The pieces of a text by each kind of tokenizer.        text"""
    fields = Fields(request)
    text = fields.text()
    fields.end()
    return {"kinds": [_pieces(kind, text) for kind in KINDS]}


def _pieces(kind: str, text: str) -> dict[str, Any]:
    own = tokenizer(kind)
    encoding = encoded(own, text)
    if len(encoding.ids) > MOST_PIECES:
        raise BadRequest(f"the text has {len(encoding.ids):,} pieces; at most {MOST_PIECES:,} are shown, so shorten it")
    roles = own.added_roles(encoding.ids)
    rows = zip(encoding.ids, roles, encoding.word_ids, encoding.offsets, strict=True)
    return {
        "kind": kind,
        "name": KINDS[kind],
        "size": own.vocab_size,
        "count": len(encoding.ids) - own.added_count(),
        "pieces": [
            {"text": own.readable(i), "id": i, "role": role, "word": word, "start": start, "end": end}
            for i, role, word, (start, end) in rows
        ],
    }


def encoded(own: Tokenizer, text: str) -> Encoding:
    """The mask token counts as one; the names of other special tokens are plain text."""
    return own.encode_batch([text], special=own.mask_token)[0]


def spelling(bench: Bench, request: Mapping[str, Any]) -> dict[str, Any]:
    """How each tokenizer spells the word at a place.        text, at (the position of a character)"""
    fields = Fields(request)
    text = fields.text()
    at = fields.integer("at", 0, max(0, len(text) - 1))
    fields.end()
    found = {kind: word_at(tokenizer(kind), text, at) for kind in KINDS}
    known = {kind: one for kind, one in found.items() if one is not None}
    if not known:
        raise BadRequest("there is no word at this place; choose a piece")
    return {
        "word": text[min(start for start, _, _ in known.values()) : max(end for _, end, _ in known.values())].strip(),
        "kinds": [{"kind": kind, **explained(kind, text[start:end], ids)} for kind, (start, end, ids) in known.items()],
    }


def word_at(own: Tokenizer, text: str, at: int) -> tuple[int, int, list[int]] | None:
    """The word that has the character at this position, or the next one: where it is, and the ids of its pieces."""
    encoding = encoded(own, text)
    spans, words = encoding.offsets, encoding.word_ids
    place = next((n for n, (start, end) in enumerate(spans) if at < max(end, start + 1) and words[n] is not None), None)
    if place is None:
        return None
    same = [n for n, word in enumerate(words) if word == words[place]]
    return spans[same[0]][0], max(spans[n][1] for n in same), [encoding.ids[n] for n in same]


def explained(kind: str, text: str, ids: list[int]) -> dict[str, Any]:
    """How a word is spelt.        text: where it comes from; ids: of its pieces"""
    own = tokenizer(kind)
    if len(text) > LONGEST_WORD:
        return {"why": f"This word has {len(text)} characters; words of at most {LONGEST_WORD} are explained."}
    if own.mask_token is not None and own.mask_id in ids:
        return {"why": f"{own.mask_token} is a special token, one entry of the vocabulary, which is never split."}
    how = HOW[kind](own, text, ids)
    return {"ids": ids, "pieces": [own.readable(i) for i in ids], **how}


def longest_match(own: WordPieceTokenizer, text: str, ids: list[int]) -> dict[str, Any]:
    """Each step: the rest of the word, what was looked up in vain, the longest first, and the piece that was found."""
    word = "".join(own.splitter.words(text)) if own.unk_id in ids else "".join(map(own.piece_text, ids))
    steps: list[dict[str, Any]] = []
    start = 0
    while start < len(word):
        mark = PREFIX if start else ""
        ends = range(len(word), start, -1)
        end = next((end for end in ends if mark + word[start:end] in own.vocab), None)
        tried = [mark + word[start:other] for other in ends if end is None or other > end]
        found = None if end is None else mark + word[start:end]
        steps.append({"rest": mark + word[start:], "tried": tried, "piece": found, "id": own.vocab.get(found or "")})
        if end is None:  # the whole word is [UNK]
            break
        start = end
    return {"steps": steps, "unknown": own.unk_id in ids}


def merges(own: BpeTokenizer, text: str, ids: list[int]) -> dict[str, Any]:
    """The word as bytes, and after each merge; rank: the place of the merge in the order in which all were learnt."""
    ranks = {(unwritten(left), unwritten(right)): rank for rank, (left, right) in enumerate(own.merges)}
    parts = list(own.decode_bytes(ids).decode("latin-1"))
    steps: list[dict[str, Any]] = [{"pieces": [shown(part) for part in parts], "rank": None, "place": None}]
    while found := [(ranks[pair], place) for place, pair in enumerate(pairwise(parts)) if pair in ranks]:
        rank, place = min(found)
        parts[place : place + 2] = [parts[place] + parts[place + 1]]
        steps.append({"pieces": [shown(part) for part in parts], "rank": rank + 1, "place": place})
    return {"steps": steps, "merges": len(own.merges)}


def best_paths(own: UnigramTokenizer, text: str, ids: list[int]) -> dict[str, Any]:
    """The best ways to spell a word, each with the score of every piece."""
    word = own.text.normalised(text) if own.unk_id in ids else "".join(own.tokens[i] for i in ids)
    ways = []
    for cut in own.lattice.several(word, WAYS):
        start, parts = 0, []
        for i, length, score in zip(cut.ids, cut.lengths, cut.scores, strict=True):
            parts.append({"text": word[start : start + length], "score": rounded(score), "known": i != UNKNOWN})
            start += length
        ways.append({"pieces": parts, "total": rounded(sum(cut.scores))})
    return {"ways": ways}


HOW: dict[str, Callable[[Any, str, list[int]], dict[str, Any]]] = {
    "wordpiece": longest_match, "bpe": merges, "unigram": best_paths,
}  # fmt: skip
ACTIONS = {"pieces": pieces, "spelling": spelling, "learn": learn}
