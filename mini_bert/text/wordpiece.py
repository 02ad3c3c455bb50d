"""WordPiece: a small vocabulary that can still spell every word.

A vocabulary of whole words is never complete, and one of letters gives long sequences of tokens that mean little.
WordPiece lies in between: frequent words are one piece, rare words are several. A piece that continues a word starts
with ##.

    vocabulary     [PAD] [UNK] [CLS] [SEP] [MASK] , un ##aff ##able ##ably the a ##b
    text           "Unaffably, the ZEBRA"
    words          unaffably , the zebra                   (text/wordsplit.py: clean, lower-case, split)
    pieces         un ##aff ##ably | , | the | [UNK]
    ids            6 7 9 5 10 1

Words are spelt by **greedy longest match**: take the longest piece of the vocabulary that the word starts with, then
the longest ##piece that the rest starts with, and so on. If no piece fits at some point, the whole word is [UNK].

    unaffably    "unaffably" no, "unaffabl" no, ... "un" yes    rest affably
    affably      "##affably" no, ... "##aff" yes                rest ably
    ably         "##ably" yes                                   done

Special tokens are found in the raw text, before anything else: "[MASK]" stays one token, "[mask]" is three words.

Two things make it fast. Most words of a text occurred before, so the pieces of each word are cached: 10 MB of
Wikipedia and books hold 2.0 million words, 60 thousand of them different. And `str.replace` and `str.split` find the
words of a whole line (`WordSplitter.quick_words`), faster than any regular expression. Text with many characters beyond
ASCII is cut at white space instead, and the result for each chunk is cached, punctuation included.
docs/tokenizer.md compares the speed with that of the `tokenizers` library.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import accumulate, chain
from pathlib import Path
from typing import Any

import numpy as np

from mini_bert.text.base import Tokenizer
from mini_bert.text.chunk_spans import ChunkSpans, Span, one_piece, put_together, side_by_side
from mini_bert.text.memory import Memory
from mini_bert.text.tokenizer_files import find
from mini_bert.text.wordpiece_files import BERT, PREFIX, ROLES, SPECIAL_TOKENS, read, write
from mini_bert.text.wordsplit import WordSplitter

__all__ = ["PREFIX", "SPECIAL_TOKENS", "WordPieceTokenizer"]

CHUNKS_KEPT = 1 << 18  # chunks, and words, until a cache is cleared; this many take about 40 MB
SPANS_KEPT = 1 << 18  # spans take twice as much


class WordPieceTokenizer(Tokenizer):
    """Text to ids and back.  vocab: the pieces, in the order of their ids."""

    def __init__(
        self,
        vocab: Sequence[str],
        lowercase: bool = True,
        strip_accents: bool | None = None,
        chinese_spacing: bool = True,
        max_word_chars: int = 100,
        extra_special_tokens: Sequence[str] = (),
        **layout: Any,
    ):
        """layout: templates and padding other than BERT's (text/templates.py)"""
        self.single, self.pair, self.padding_side, self.padding_type = BERT._replace(**layout)
        super().__init__(vocab, ROLES, extra_special_tokens)
        self.splitter = WordSplitter(lowercase, strip_accents, chinese_spacing)
        self.max_word_chars = max_word_chars
        self.continues = np.array([token.startswith(PREFIX) for token in self.tokens])
        self._first = {token: i for token, i in self.vocab.items() if len(token) <= max_word_chars}
        self._inner = {token[len(PREFIX) :]: i for token, i in self.vocab.items() if token.startswith(PREFIX)}
        self._lengths = [len(token.removeprefix(PREFIX)) for token in self.tokens]
        self._longest = max(self._lengths)
        self._begins = [int(not more) for more in self.continues]
        self._unk = self.unk_id
        self._words = Memory(self.match, CHUNKS_KEPT)
        self._chunks = Memory(self._chunk_ids, CHUNKS_KEPT)
        self._spans = Memory(self._chunk_spans, SPANS_KEPT)

    # ---- from text to ids

    def match(self, word: str) -> tuple[int, ...]:
        """Greedy longest match: the ids of the pieces that spell a word."""
        if len(word) > self.max_word_chars:
            return (self._unk,)
        ids: list[int] = []
        pieces, start = self._first, 0
        while start < len(word):
            end = min(len(word), start + self._longest)
            while (piece := pieces.get(word[start:end])) is None:
                end -= 1
                if end == start:
                    return (self._unk,)
            ids.append(piece)
            pieces, start = self._inner, end
        return tuple(ids)

    def plain_ids(self, text: str) -> list[int]:
        words = self.splitter.quick_words(text)
        if words is not None:
            return list(chain.from_iterable(map(self._words.__getitem__, words)))
        return list(chain.from_iterable(map(self._chunks.__getitem__, self.splitter.chunks(text))))

    def _chunk_ids(self, chunk: str) -> tuple[int, ...]:
        ids: list[int] = []
        for word in self.splitter.words(chunk):
            whole = self._first.get(word)
            if whole is None:
                ids += self._words[word]
            else:
                ids.append(whole)
        return tuple(ids)

    def plain_spans(self, text: str) -> tuple[list[Span], list[int], int]:
        chunks = text.split(" ")
        return put_together(chunks, list(map(self._spans.__getitem__, chunks)))

    def spans_of_ids(self, text: str, ids: Sequence[int]) -> tuple[list[Span], list[int]]:
        """Piece after piece, as the ids give the length of each, and the text the white space between words."""
        gaps = self.splitter.gaps(text)
        if gaps is None or self._unk in ids:
            return self.plain_spans(text)[:2]
        begins = [self._begins[i] for i in ids]
        before = map(len, gaps)
        skipped = [next(before) if begin else 0 for begin in begins]
        places = accumulate(chain.from_iterable(zip(skipped, map(self._lengths.__getitem__, ids), strict=True)))
        word_ids = list(accumulate(begins, initial=-1))
        del word_ids[0]
        return list(zip(places, places, strict=True)), word_ids

    def _chunk_spans(self, chunk: str) -> ChunkSpans:
        if chunk.isascii() and chunk.isprintable():  # its words have no gap between them, and nothing is removed
            words = self.splitter.words(chunk)
            if len(words) == 1 and len(self._words[words[0]]) == 1:
                return one_piece(len(chunk))
            return side_by_side(map(self._piece_lengths, words))
        offsets, begins = [], []
        for word, sources in self.splitter.words_with_sources(chunk):
            start = 0
            for length in self._piece_lengths(word):
                begins.append(int(start == 0))
                offsets.append((sources[start], sources[start + length - 1] + 1))
                start += length
        return tuple(offsets), tuple(begins)

    def _piece_lengths(self, word: str) -> list[int]:
        ids = self._words[word]
        return [len(word)] if len(ids) == 1 else [self._lengths[i] for i in ids]  # [UNK] stands for the whole word

    # ---- from ids to text

    def piece_text(self, i: int) -> str:
        return self.tokens[i].removeprefix(PREFIX)

    def join(self, tokens: Sequence[str]) -> str:
        """## joins to the piece before; other pieces are separated by spaces, except before a comma or full stop."""
        parts = [token[len(PREFIX) :] if token.startswith(PREFIX) else f" {token}" for token in tokens[1:]]
        return "".join(map(_tidy, [*tokens[:1], *parts]))

    # ---- the tokenizer as a whole

    @property
    def settings(self) -> dict[str, Any]:
        """Everything besides the vocabulary that affects the ids: the other arguments of the constructor."""
        return {
            "lowercase": self.splitter.lowercase,
            "strip_accents": self.splitter.strip_accents,
            "chinese_spacing": self.splitter.chinese_spacing,
            "max_word_chars": self.max_word_chars,
            "extra_special_tokens": self.extra_special_tokens,
            **{name: value for name, value in self.layout._asdict().items() if value != getattr(BERT, name)},
        }

    @classmethod
    def load(cls, source: str | os.PathLike[str], lowercase: bool | None = None) -> WordPieceTokenizer:
        """From a tokenizer.json, a vocab.txt, a model folder, or by the name of a bundled one: "8k", "50k".

        lowercase: overrides the files; a vocab.txt alone is lower-case unless it has capitals.
        """
        tokens, settings = read(find(source))
        return cls(tokens, **settings | ({} if lowercase is None else {"lowercase": lowercase}))

    @classmethod
    def from_file(cls, path: Path, content: dict[str, Any] | None = None) -> WordPieceTokenizer:
        tokens, settings = read(path, content)
        return cls(tokens, **settings)

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write tokenizer.json, vocab.txt and tokenizer_config.json, which `tokenizers` and `transformers` open."""
        write(Path(folder), self.tokens, self.settings, [self.tokens[i] for i in self.special_ids], self.layout)

    @classmethod
    def train(cls, source: Any, vocab_size: int = 8192, lowercase: bool = True, **options: Any) -> WordPieceTokenizer:
        """Learn a vocabulary from text. `mini_bert.text.vocabulary.learn` explains how, and lists the options."""
        from mini_bert.text.vocabulary import learn

        tokens = learn(source, vocab_size=vocab_size, lowercase=lowercase, **options)
        settings = {"strip_accents", "chinese_spacing", "max_word_chars"} & options.keys()
        return cls(tokens, lowercase, **{name: options[name] for name in settings})

    def __repr__(self) -> str:
        return f"WordPieceTokenizer({len(self.tokens):,} tokens, {'lower' if self.splitter.lowercase else 'cased'})"


_TIDY = {
    " .": ".", " ?": "?", " !": "!", " ,": ",", " ' ": "'", " n't": "n't", " 'm": "'m", " do not": " don't",
    " 's": "'s", " 've": "'ve", " 're": "'re",
}  # fmt: skip


def _tidy(part: str) -> str:
    """Removes the space before a piece where English has none. Looks at one piece at a time, like the reference."""
    for spaced, written in _TIDY.items():
        part = part.replace(spaced, written)
    return part


if __name__ == "__main__":
    vocabulary = [*SPECIAL_TOKENS, ",", "un", "##aff", "##able", "##ably", "the", "a", "##b"]
    print(WordPieceTokenizer(vocabulary).explain("Unaffably, the ZEBRA"))
