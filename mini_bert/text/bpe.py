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
exact if no chunk is empty or starts with white space; otherwise the text is cut by the pattern. Many texts are
looked up and spelt together, which is faster (text/bpe_many.py).
docs/tokenizer.md compares the speed with that of the `tokenizers` library.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import accumulate, chain
from pathlib import Path
from typing import Any, Self

import numpy as np

from mini_bert.text.base import Spans, Tokenizer
from mini_bert.text.bpe_conventions import ROBERTA, Conventions
from mini_bert.text.bpe_files import VOCAB_JSON, check_merges, read, write
from mini_bert.text.bpe_many import AT_LEAST, AT_MOST, ManyTexts
from mini_bert.text.bpe_spans import CONTRACTIONS, SpanTables, blanks, trimmed
from mini_bert.text.byte_level import (
    BYTE_CHARACTERS,
    as_bytes,
    byte_places,
    unwritten,
    words,
)
from mini_bert.text.canonical import composed
from mini_bert.text.chunk_spans import Span
from mini_bert.text.finding import BLANKS, Finder
from mini_bert.text.memory import LONGEST_KEPT, Memory
from mini_bert.text.merging import Speller
from mini_bert.text.merging_together import FEW, Merger
from mini_bert.text.special_tokens import Special
from mini_bert.text.templates import Layout
from mini_bert.text.tokenizer_files import JSON, read_padding, unusual_padding

CHUNKS_KEPT = 1 << 18  # chunks, and words, until a cache is cleared; this many take about 40 MB
TOGETHER = 1 << 18  # characters of texts that are spelt together
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

    def __init__(
        self,
        vocab: Sequence[str],
        merges: Iterable[Sequence[str]],
        conventions: Conventions = ROBERTA,
        padding_side: str = "right",
        padding_type: int = 0,
    ):
        self.conventions = rules = conventions
        self.single, self.pair, self.padding_side, self.padding_type = (
            rules.single,
            rules.pair,
            padding_side,
            padding_type,
        )
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
        self._found_whole = {*self.special_ids, *(self.vocab[token] for token in rules.added_tokens)}
        self._sizes = list(map(len, self._raw))
        self._absent: dict[int, str | None] = {}  # bytes that are not in the vocabulary, and what they become
        self._set_absent_bytes()

        self._words = Memory(self._word_ids, CHUNKS_KEPT)
        self._firsts = Memory(lambda chunk: self._all_ids(words(chunk)), CHUNKS_KEPT)
        self._chunks = Memory(self._chunk_ids, CHUNKS_KEPT)

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
        return self._ids_of_parts(self._added.cut(text), self._segment_ids)

    def encode_bytes(self, data: bytes) -> list[int]:
        """The ids of any bytes, also if they are not UTF-8, without special tokens; `decode_bytes` restores them.

        Bytes are spelt as they are: no space is put before them, and they are not normalised.
        """
        if not isinstance(data, bytes | bytearray | memoryview):
            raise TypeError(f"expected bytes, got {type(data).__name__}: {data!r:.60}; for text, use encode")
        return list(self._all_ids(words(bytes(data).decode("utf-8", "surrogateescape"))))

    def _segment_ids(self, text: str) -> list[int]:
        text = self._prefixed(text)
        chunks = iter(text.split(" "))
        try:
            ids = list(self._firsts[next(chunks)])
            ids.extend(chain.from_iterable(map(self._chunks.__getitem__, chunks)))
        except Irregular:
            return list(self._all_ids(words(text)))
        return ids

    def _prefixed(self, text: str) -> str:
        return " " + text if self.conventions.add_prefix_space and text and text[0] != " " else text

    def _chunk_ids(self, chunk: str) -> tuple[int, ...]:
        """The ids of a chunk with a space before it."""
        text = regular(chunk)
        if chunk.isascii():  # the two most frequent cases, without the pattern
            if chunk.isalpha():
                return self._word_ids(text)
            if chunk[:-1].isalpha():
                return self._chunks[chunk[:-1]] + self._words[chunk[-1]]
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
            return {raw: (i,) for i, raw in enumerate(self._raw) if i not in self._found_whole}
        return {self._raw[i]: (i,) for i in self._id_of_symbol.values()} if self._speller.regular else {}

    # ---- many texts at once

    def _rows(self, texts: Sequence[str], special: Special) -> list[list[int]]:
        """Many texts together (text/bpe_many.py), except those with tokens in them."""
        if not all(isinstance(text, str) for text in texts):
            return super()._rows(texts, special)  # which refuses others
        rows: list[list[int]] = []
        for group in groups(texts, TOGETHER):
            if not AT_LEAST <= sum(map(len, group)) <= AT_MOST:
                rows += super()._rows(group, special)
                continue
            plain = [self._plain(text, special) for text in group]
            found = iter(self._many.rows([text for text in plain if text is not None]))
            for text, one in zip(group, plain, strict=True):
                row = None if one is None else next(found)
                rows.append(self._row(text, special) if row is None else row)
        return rows

    def _plain(self, text: str, special: Special) -> str | None:
        """A text as it is spelt, if no token is in it."""
        if special and not self._special.absent(text):
            return None
        if self.conventions.compose:
            text = composed(text)[0]
        return self._prefixed(text) if self._added.absent(text) else None

    @cached_property
    def _many(self) -> ManyTexts:
        return ManyTexts(self._words, self._learn_words, len(self.tokens))

    @cached_property
    def _merger(self) -> Merger:
        return Merger(self._speller)

    def _learn_words(self, found: Iterable[str]) -> None:
        """Spells new words together, if they are many."""
        new = [word for word in dict.fromkeys(found) if word not in self._words and len(word) <= LONGEST_KEPT]
        raw = list(map(as_bytes, new))
        rest = [word.translate(self._absent) if self._absent else word for word in raw if word not in self._whole]
        if len(rest) >= FEW:
            spelt, ids, whole = iter(self._merger.merge(rest)), self._id_of_symbol.__getitem__, self._whole.get
            rows = [whole(word) or tuple(map(ids, next(spelt))) for word in raw]
            self._words.keep_all(dict(zip(new, rows, strict=True)))

    # ---- where each piece comes from

    def spans(
        self, text: str, special: Special = True, ids: Sequence[int] | None = None
    ) -> tuple[list[Span], list[int]]:
        offsets, word_ids = super().spans(text, special, ids)
        if self.conventions.trim_offsets and not self._trim:  # all but a single space at the start of the text
            row = self._row(text, special) if ids is None else ids
            for place, (i, (first, last)) in enumerate(zip(row, offsets, strict=False)):
                piece = text[first:last] if i in self._found_whole else self.tokens[i]
                offsets[place] = trimmed(first, last, *blanks(piece), keep=first == 0)
        return offsets, word_ids

    def special_span(self, found: str) -> Span:
        return trimmed(0, len(found), *blanks(found)) if self._trim else (0, len(found))

    def spans_of_ids(self, text: str, ids: Sequence[int]) -> tuple[list[Span], list[int]]:
        """From tables (text/bpe_spans.py), which give the same faster, if the text is of the usual kind."""
        rules = self.conventions
        if rules.compose or not self._added.absent(text):
            return self.plain_spans(text)[:2]
        if self._absent or rules.add_prefix_space or not self._tables.suffice(text, ids):
            return self._segment_spans(text, range(len(text)), ids)[:2]
        return self._tables.offsets(text, ids, self._trim), self._tables.word_ids(ids)

    @cached_property
    def _tables(self) -> SpanTables:
        whole = all(len(self._words[word]) == 1 for word in CONTRACTIONS)
        return SpanTables(self.tokens, self._raw, self._found_whole, whole)

    def plain_spans(self, text: str) -> Spans:
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

    def _segment_spans(self, text: str, sources: Sequence[int], ids: Sequence[int] | None = None) -> Spans:
        """Spans and word indices of text without added tokens, and the number of words.

        sources: the position that each character comes from. The pieces lie one after the other, so their lengths in
        bytes give all borders; a piece begins a word if it starts at the border of one.
        """
        ids = self._segment_ids(text) if ids is None else ids
        if self._prefixed(text) != text:
            text, sources = " " + text, [sources[0], *sources]
        places, found = byte_places(text), words(text)
        raw = found if text.isascii() else map(as_bytes, found)
        if self._absent and self.conventions.unknown is None:  # bytes may be missing; then the reference miscounts
            raw = [word.translate(self._absent) for word in map(as_bytes, found)]
            places = [
                place for place, byte in zip(places, as_bytes(text), strict=True) if ord(byte) not in self._absent
            ]
        ends = list(accumulate(map(self._sizes.__getitem__, ids)))
        starts = [0, *ends[:-1]][: len(ids)]
        word_at = dict(zip(accumulate(map(len, raw), initial=0), range(len(found)), strict=False))
        number = 0
        word_ids = [number := word_at.get(start, number) for start in starts]
        borders = zip(starts, ends, strict=True)  # in bytes; from bytes to characters, and to where these come from
        offsets = [(sources[places[start]], sources[places[end - 1]] + 1) for start, end in borders]
        if self._trim:
            pairs = zip(offsets, ids, strict=True)
            offsets = [trimmed(*span, *blanks(self.tokens[i])) for span, i in pairs]
        return offsets, word_ids, len(found)

    def continuing(self, ids: np.ndarray) -> np.ndarray:
        """A piece also begins a word if its first character is of another class than the one before it: 2 after a."""
        more = super().continuing(ids)
        first, last = self._tables.kinds
        before, after = last[ids[..., :-1]], first[ids[..., 1:]]
        more[..., 1:] &= (before == after) | (before == 0) | (after == 0)
        return more

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

    def with_layout(self, layout: Layout) -> BpeTokenizer:
        rules = self.conventions._replace(single=layout.single, pair=layout.pair)
        return type(self)(self.tokens, self.merges, rules, layout.padding_side, layout.padding_type)

    @property
    def settings(self) -> dict[str, Any]:
        """Everything besides the vocabulary that affects the ids: the other arguments of the constructor."""
        return {"merges": self.merges, "conventions": self.conventions, **unusual_padding(self.layout)}

    @classmethod
    def from_file(cls, path: Path, content: dict[str, Any] | None = None) -> Self:
        return cls(*read(path, content), **read_padding(path))

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write tokenizer.json, vocab.json, merges.txt and tokenizer_config.json, which `tokenizers` and
        `transformers` open."""
        write(Path(folder), self.tokens, self.merges, self.conventions, self.layout)

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


def groups(texts: Sequence[str], characters: int) -> Iterator[Sequence[str]]:
    """Neighbouring texts, in groups of at least so many characters."""
    start = size = 0
    for end, text in enumerate(texts, 1):
        size += len(text) + 1
        if size >= characters:
            yield texts[start:end]
            start, size = end, 0
    yield texts[start:]


if __name__ == "__main__":
    from mini_bert.text.bpe_learning import learn

    texts = ["the cat sat on the mat", "then the cat sat at the table", "at that the cat sat"]
    tokenizer = BpeTokenizer(*learn(iter(texts), vocab_size=280, progress=False))
    print(tokenizer.explain("the cats at the café"))
