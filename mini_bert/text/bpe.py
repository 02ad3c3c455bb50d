"""Byte-level BPE: pieces are made of bytes, so every text can be spelt, in any script.

WordPiece needs a piece for every character, and a word with any other character is [UNK]. Here the smallest pieces are
the 256 bytes, and longer ones were learnt by merging the most frequent pair of neighbours, again and again
(text/bpe_learning.py). There is no unknown word, upper case and spaces are kept, and text survives the round trip:

    text       "The naïve zebra"
    words      The ␣naïve ␣zebra                    (text/byte_level.py: each word has the space before it)
    pieces     The | Ġna ïve | Ġz ebra              merged in the order learnt (text/merging.py); Ġ is a space
    decoded    "The naïve zebra"

In the vocabulary, bytes are written as printable characters, ï as Ã¯. A piece may end inside a character; both pieces
then have the span of the character. A word is spelt differently at the start of a text ("The") and after a space
("ĠThe"), unless `add_prefix_space` puts a space before every text.

GPT-2, RoBERTa, DeBERTa and ModernBERT spell words in this way. They differ in special tokens and templates
(text/bpe_conventions.py), which come from the tokenizer's files (text/bpe_files.py).

Speed comes from memory, as in WordPiece: nearly all text between two spaces has occurred before. A text is cut at
spaces, which is faster than any regular expression, and the ids of each chunk, punctuation included, are kept. That is
exact if no chunk is empty or starts with white space; otherwise the text is cut by the pattern.
On one core this had TIMES the throughput of the `tokenizers` library on two (`benchmarks/tokenization.py`), with equal
ids.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain, compress, islice
from pathlib import Path
from typing import Any, Self

import numpy as np

from mini_bert.text.base import Memory, Special, Tokenizer
from mini_bert.text.bpe_conventions import ROBERTA, Conventions
from mini_bert.text.bpe_files import VOCAB_JSON, read
from mini_bert.text.bpe_saving import write
from mini_bert.text.byte_level import (
    BYTE_CHARACTERS,
    SPACE,
    as_bytes,
    byte_places,
    kind,
    unwritten,
    words,
)
from mini_bert.text.canonical import composed
from mini_bert.text.chunk_spans import ChunkSpans, Span, one_piece, put_together
from mini_bert.text.finding import BLANKS, Finder
from mini_bert.text.merging import Speller
from mini_bert.text.tokenizer_files import JSON, find

CHUNKS_KEPT = 1 << 18  # chunks, and words, until a cache is cleared; this many take about 40 MB
SPANS_KEPT = 1 << 18  # spans take twice as much
MARK = "▁"  # how `readable` shows a space
UNKNOWN = chr(0x10FFFF)  # stands for a byte that is not in the vocabulary


class Irregular(Exception):
    """The text must not be cut at every space."""


class BpeTokenizer(Tokenizer):
    """Text to ids and back.

    vocab: the pieces, in the order of their ids, with bytes written as printable characters.
    merges: the pairs of pieces that are merged, in the order learnt.
    """

    files = (JSON, VOCAB_JSON)
    space = " "

    def __init__(self, vocab: Sequence[str], merges: Iterable[Sequence[str]], conventions: Conventions = ROBERTA):
        self.conventions = rules = conventions
        self.single, self.pair = rules.single, rules.pair
        super().__init__(vocab, rules.roles, rules.special_tokens, rules.lstrip, rules.rstrip)
        self.merges = check_merges(merges, self.vocab)
        self._added = Finder(rules.added_tokens, rules.lstrip, rules.rstrip)
        self._trim = rules.trim_offsets and rules.trim_first  # otherwise not at all, or later, in `spans`

        self._raw = [unwritten(token) for token in self.tokens]  # the bytes of each piece, as characters
        raw = dict(zip(self.tokens, self._raw, strict=True))
        self.continues = np.array([not piece.startswith(" ") for piece in self._raw])
        self._speller = Speller([(raw[left], raw[right]) for left, right in self.merges])
        pieces = [*BYTE_CHARACTERS, *(left + right for left, right in self.merges)]
        self._id_of_symbol = {self._speller.symbols[raw[t]]: self.vocab[t] for t in pieces if t in self.vocab}
        self._sizes = list(map(len, self._raw))
        self._absent: dict[int, str | None] = {}  # bytes that are not in the vocabulary, and what they become
        self._set_absent_bytes()

        self._words = Memory(self._word_ids, CHUNKS_KEPT)
        self._firsts = Memory(lambda chunk: self._all_ids(words(chunk)), CHUNKS_KEPT)
        self._chunks = Memory(self._chunk_ids, CHUNKS_KEPT)
        self._first_spans = Memory(lambda chunk: self._spans_of(words(chunk), 0), SPANS_KEPT)
        self._chunk_spans = Memory(self._spans_of_chunk, SPANS_KEPT)

    def _set_absent_bytes(self) -> None:
        bytes_without_piece = [byte for byte, character in enumerate(BYTE_CHARACTERS) if character not in self.vocab]
        if bytes_without_piece and self.conventions.unknown is not None:
            unknown = self.vocab[self.conventions.unknown]
            self._speller.symbols[UNKNOWN], self._id_of_symbol[UNKNOWN], self._sizes[unknown] = UNKNOWN, unknown, 1
            self._absent = dict.fromkeys(bytes_without_piece, UNKNOWN)
        else:
            self._absent = dict.fromkeys(bytes_without_piece)

    # ---- from text to ids

    def plain_ids(self, text: str) -> list[int]:
        if self.conventions.compose:
            text = composed(text)[0]
        if self._added.absent(text):
            return self._segment_ids(text)
        ids: list[int] = []
        for segment, _, token in self._added.cut(text):
            if token is None:
                ids += self._segment_ids(segment)
            else:
                ids.append(self.vocab[token])
        return ids

    def encode_bytes(self, data: bytes) -> list[int]:
        """The ids of any bytes, also if they are not UTF-8, without special tokens; `decode_bytes` restores them.

        Bytes are spelt as they are: no space is put before them, and they are not normalised.
        """
        if not isinstance(data, bytes | bytearray | memoryview):
            raise TypeError(f"expected bytes, got {type(data).__name__}: {data!r:.60}; for text, use encode")
        return list(self._all_ids(words(bytes(data).decode("utf-8", "surrogateescape"))))

    def _segment_ids(self, text: str) -> list[int]:
        if self.conventions.add_prefix_space and text and text[0] != " ":
            text = " " + text
        chunks = iter(text.split(" "))
        try:
            ids = list(self._firsts[next(chunks)])
            ids.extend(chain.from_iterable(map(self._chunks.__getitem__, chunks)))
        except Irregular:
            return list(self._all_ids(words(text)))
        return ids

    def _chunk_ids(self, chunk: str) -> tuple[int, ...]:
        """The ids of a chunk with a space before it."""
        text = regular(chunk)
        if chunk.isascii() and chunk.isalpha():
            return self._words[text]
        return self._all_ids(words(text))

    def _all_ids(self, found: Iterable[str]) -> tuple[int, ...]:
        return tuple(chain.from_iterable(map(self._words.__getitem__, found)))

    def _word_ids(self, word: str) -> tuple[int, ...]:
        raw = as_bytes(word)
        whole = self._whole.get(raw)
        if whole is not None:
            return whole
        if self._absent:
            raw = raw.translate(self._absent)
        return tuple(map(self._id_of_symbol.__getitem__, self._speller.spell(raw)))

    @cached_property
    def _whole(self) -> dict[str, tuple[int]]:
        """Words that are one piece."""
        if self.conventions.ignore_merges:
            return {self._raw[i]: (i,) for i in range(len(self.tokens))}
        return {self._raw[i]: (i,) for i in self._id_of_symbol.values()} if self._speller.regular else {}

    # ---- where each piece comes from

    def spans(self, text: str, special: Special = True) -> tuple[list[Span], list[int]]:
        offsets, word_ids = super().spans(text, special)
        if self.conventions.trim_offsets and not self._trim:  # all but a single space at the start of the text
            for place, (i, (first, last)) in enumerate(zip(self._row(text, special), offsets, strict=True)):
                piece = text[first:last] if i in self.special_ids else self.tokens[i]
                offsets[place] = trimmed(first, last, *blanks(piece), keep=first == 0)
        return offsets, word_ids

    def special_span(self, found: str) -> Span:
        return trimmed(0, len(found), *blanks(found)) if self._trim else (0, len(found))

    def plain_spans(self, text: str) -> tuple[list[Span], list[int], int]:
        sources: Sequence[int] = range(len(text))
        if self.conventions.compose:
            text, sources = composed(text)
        offsets: list[Span] = []
        word_ids: list[int] = []
        count = 0
        for segment, start, token in [(text, 0, None)] if self._added.absent(text) else self._added.cut(text):
            if not segment:
                continue
            here = sources[start : start + len(segment)]
            if token is None:
                within, found, more = self._segment_spans(segment, here)
            else:
                first, last = self.special_span(segment)
                within, found, more = [(here[0] + first, here[0] + last)], [0], 1
            offsets += within
            word_ids += [word + count for word in found] if count else found
            count += more
        return offsets, word_ids, count

    def _segment_spans(self, text: str, sources: Sequence[int]) -> tuple[list[Span], list[int], int]:
        """Spans and word indices of text without added tokens. sources: the position that each character comes from."""
        if self.conventions.add_prefix_space and text[0] != " ":
            text, sources = " " + text, [sources[0], *sources]
        if isinstance(sources, range):  # one after the other
            chunks = text.split(" ")
            try:
                found = [self._first_spans[chunks[0]], *map(self._chunk_spans.__getitem__, islice(chunks, 1, None))]
                return put_together(chunks, found, sources.start)
            except Irregular:
                pass
        offsets, word_ids, place, number = [], [], 0, -1
        for number, word in enumerate(words(text)):
            for i, first, last in self._word_spans(word, place):
                offsets.append(self._trimmed(i, sources[first], sources[last - 1] + 1))
                word_ids.append(number)
            place += len(word)
        return offsets, word_ids, number + 1

    def _spans_of_chunk(self, chunk: str) -> ChunkSpans:
        """Of a chunk with a space before it, which is at position -1."""
        text = regular(chunk)
        if chunk.isascii() and chunk.isalpha() and not self._absent and len(self._words[text]) == 1:
            return one_piece(len(chunk), 0 if self._trim else -1)
        return self._spans_of(words(text), -1)

    def _spans_of(self, found: list[str], place: int) -> ChunkSpans:
        """Of words that start at `place`."""
        spans: list[Span] = []
        begins: list[int] = []
        for word in found:
            pieces = [self._trimmed(*piece) for piece in self._word_spans(word, place)]
            if not pieces:
                raise Irregular  # all its bytes were dropped, but it counts as a word
            spans += pieces
            begins += [1, *[0] * (len(pieces) - 1)]
            place += len(word)
        return tuple(spans), tuple(begins)

    def _word_spans(self, word: str, place: int) -> Iterator[tuple[int, int, int]]:
        """Of a word that starts at `place`, the pieces: id, first character, the one after the last."""
        characters, start = byte_places(word), 0
        if self._absent and self.conventions.unknown is None:  # some bytes may be missing; the reference then miscounts
            kept = [byte not in self._absent for byte in map(ord, as_bytes(word))]
            characters = list(compress(characters, kept))
        for i in self._words[word]:
            end = start + self._sizes[i]
            yield i, place + characters[start], place + characters[end - 1] + 1
            start = end

    def _trimmed(self, i: int, first: int, last: int) -> Span:
        return trimmed(first, last, *self._blanks[i]) if self._trim else (first, last)

    @cached_property
    def _blanks(self) -> list[tuple[int, int]]:
        return list(map(blanks, self.tokens))

    def continuing(self, ids: np.ndarray) -> np.ndarray:
        """As a piece begins a word also if its first character is of another class than the one before, 2 after a."""
        more = super().continuing(ids)
        first, last = self._kinds
        before, after = last[ids[..., :-1]], first[ids[..., 1:]]
        more[..., 1:] &= (before == after) | (before == 0) | (after == 0)
        return more

    @cached_property
    def _kinds(self) -> tuple[np.ndarray, np.ndarray]:
        """The classes of the first and the last character of every piece; see `byte_level.kind`."""
        texts = [raw.encode("latin-1").decode("utf-8", "surrogateescape") for raw in self._raw]
        first = [kind((text.removeprefix(" ") or text or "\udc80")[0]) for text in texts]
        last = [kind((text.rstrip(" ") or "\udc80")[-1]) for text in texts]  # a space alone begins any word
        return np.array(first), np.array(last)

    # ---- from ids to text

    def piece_text(self, i: int) -> str:
        return self.join([self.tokens[i]]).removeprefix(" ")

    def readable(self, i: int) -> str:
        """Its bytes as text, with ▁ for a space: "ĠnaÃ¯" is "▁naï". Bytes that are no text are numbers: \\xc3."""
        if i in self.special_ids:
            return self.tokens[i]
        text = self._raw[i].encode("latin-1").decode("utf-8", "backslashreplace").replace(" ", MARK)
        return "".join(sign if sign.isprintable() else ascii(sign)[1:-1] for sign in text)

    def join(self, tokens: Sequence[str]) -> str:
        """The text of the pieces' bytes; \ufffd where they are not UTF-8."""
        return "".join(map(unwritten, tokens)).encode("latin-1").decode("utf-8", "replace")

    def decode_bytes(self, ids: Iterable[int]) -> bytes:
        """The bytes that ids stand for, exactly."""
        return "".join(self._raw[self._checked_id(i)] for i in ids).encode("latin-1")

    # ---- the tokenizer as a whole

    def with_templates(self, single: str, pair: str) -> BpeTokenizer:
        return type(self)(self.tokens, self.merges, self.conventions._replace(single=single, pair=pair))

    @property
    def settings(self) -> dict[str, Any]:
        """Everything besides the vocabulary that affects the ids: the other arguments of the constructor."""
        return {"merges": self.merges, "conventions": self.conventions}

    @classmethod
    def load(cls, source: str | os.PathLike[str]) -> Self:
        """From a tokenizer.json, a vocab.json with its merges.txt, a model folder, or by name: "bpe-8k"."""
        return cls.from_file(find(source, cls.files))

    @classmethod
    def from_file(cls, path: Path, content: dict[str, Any] | None = None) -> Self:
        return cls(*read(path, content))

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write tokenizer.json, vocab.json, merges.txt and tokenizer_config.json, which `tokenizers` and
        `transformers` open."""
        write(Path(folder), self.tokens, self.merges, self.conventions)

    @classmethod
    def train(cls, source: Any, vocab_size: int = 8192, **options: Any) -> Self:
        """Learn a vocabulary from text. `mini_bert.text.bpe_learning.learn` explains how, and lists the options."""
        from mini_bert.text.bpe_learning import learn

        return cls(*learn(source, vocab_size, **options))


def regular(chunk: str) -> str:
    """A chunk with the space before it, if the space begins a word; otherwise the text is Irregular.

    White space at the start of a chunk, or an empty chunk, means that the space is part of longer white space.
    """
    if not chunk or chunk[0] in BLANKS:
        raise Irregular
    return " " + chunk


def blanks(token: str) -> tuple[int, int]:
    """The number of spaces, and of other white space, at both ends of a token."""
    spaces = BLANKS + SPACE
    return len(token) - len(token.lstrip(spaces)), len(token) - len(token.rstrip(spaces))


def trimmed(first: int, last: int, before: int, after: int, keep: bool = False) -> Span:
    """A span without the white space at its ends, but as in the reference never negative. keep: one space may stay."""
    first = first if keep and before == 1 else min(first + before, last)
    return first, max(last - after, first) if after <= last else last


def check_merges(merges: Iterable[Sequence[str]], vocab: Mapping[str, int]) -> list[tuple[str, str]]:
    checked = []
    for rank, pair in enumerate(merges):
        if len(pair) != 2 or isinstance(pair, str):
            raise ValueError(f"merge {rank} is {pair!r:.60}, expected two pieces")
        left, right = pair
        for piece in (left, right, left + right):
            if piece not in vocab:
                raise ValueError(
                    f"merge {rank}, {left!r} + {right!r}, needs the piece {piece!r}, which is not in the vocabulary; "
                    "are the merges from another vocabulary?"
                )
        checked.append((left, right))
    return checked


if __name__ == "__main__":
    from mini_bert.text.bpe_learning import learn

    texts = ["the cat sat on the mat", "then the cat sat at the table", "at that the cat sat"]
    tokenizer = BpeTokenizer(*learn(iter(texts), vocab_size=280, progress=False))
    print(tokenizer.explain("the cats at the café"))
