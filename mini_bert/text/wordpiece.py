"""WordPiece: text to ids and back, with a vocabulary that is small and yet has a spelling for every word.

A vocabulary of whole words is never complete; one of letters makes long sequences that mean little. WordPiece stands
between: frequent words are one piece, rare ones are spelt with several. A piece that continues a word begins with ##.

    vocabulary     [PAD] [UNK] [CLS] [SEP] [MASK] , un ##aff ##able ##ably the a ##b
    text           "Unaffably, the ZEBRA"
    words          unaffably , the zebra                   (text/wordsplit.py: clean, lower-case, split)
    pieces         un ##aff ##ably | , | the | [UNK]
    ids            6 7 9 5 10 1

How a word is spelt: **greedy longest match**. Take the longest piece of the vocabulary that the word begins with, then
the longest ##piece that the rest begins with, and so on. If at some place nothing fits, the whole word is [UNK].

    unaffably    "unaffably" no, "unaffabl" no, ... "un" yes    rest affably
    affably      "##affably" no, ... "##aff" yes                rest ably
    ably         "##ably" yes                                   done

The special tokens are found in the raw text, before anything else: "[MASK]" stays one token, "[mask]" is three words.

Two things to know of the speed. Most of a text is words that came before, so how a word is spelt is remembered: 10 MB
of Wikipedia and books hold 2.0 million words and 60 thousand different ones. And `str.replace` and `str.split` find the
words of a whole line (`WordSplitter.quick_words`), faster than any regular expression. Text with many characters beyond
ASCII is cut at white space instead, and what became of each chunk is remembered, punctuation and all.
On one core that gave 2.41 times the throughput of the `tokenizers` library on two, in seven rounds 2.02 to 2.80 times
(`benchmarks/tokenization.py --megabytes 10`), with equal ids.
"""

from __future__ import annotations

import gc
import hashlib
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from itertools import chain
from operator import index
from pathlib import Path
from typing import Any

import numpy as np

from mini_bert.text.encoding import Batch, Encoding, cut, room
from mini_bert.text.wordsplit import JOINING, WordSplitter

SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
Special = bool | str  # which special tokens are recognised in a text: all, none, or this one
PREFIX = "##"  # marks a piece that continues a word

CHUNKS_KEPT = 1 << 18  # chunks, and words, until a cache starts afresh; so many take about 40 MB
SPANS_KEPT = 1 << 16  # where pieces come from takes three times as much
LONGEST_KEPT = 64  # characters; what is longer (addresses, base64) hardly comes twice


class WordPieceTokenizer:
    """Text to ids and back.  vocab: the pieces, in the order of their ids."""

    def __init__(
        self,
        vocab: Sequence[str],
        lowercase: bool = True,
        strip_accents: bool | None = None,
        chinese_spacing: bool = True,
        max_word_chars: int = 100,
        extra_special_tokens: Sequence[str] = (),
    ):
        self.tokens = _checked(vocab)
        self.vocab = {token: i for i, token in enumerate(self.tokens)}
        self.splitter = WordSplitter(lowercase, strip_accents, chinese_spacing)
        self.max_word_chars = max_word_chars
        self.extra_special_tokens = tuple(extra_special_tokens)

        special = dict.fromkeys((*SPECIAL_TOKENS, *self.extra_special_tokens))
        missing = [token for token in special if token not in self.vocab]
        if "" in special:
            raise ValueError("an extra special token is empty, and would be found everywhere; leave it out")
        if missing:
            raise ValueError(
                f"the vocabulary of {len(self.tokens):,} tokens has no {', '.join(missing)}; BERT needs "
                f"{', '.join(SPECIAL_TOKENS)}: put them first, as WordPieceTokenizer.train does"
            )
        self.pad_id, self.unk_id, self.cls_id, self.sep_id, self.mask_id = (self.vocab[t] for t in SPECIAL_TOKENS)
        self.special_ids = tuple(sorted(self.vocab[token] for token in special))
        self.continues = np.array([token.startswith(PREFIX) for token in self.tokens])

        longest_first = sorted(special, key=len, reverse=True)
        self._special = re.compile("|".join(map(re.escape, longest_first)))
        self._begins = sorted({token[0] for token in special})  # text without these has no special token

        self._first = {token: i for token, i in self.vocab.items() if len(token) <= max_word_chars}
        self._inner = {token[len(PREFIX) :]: i for token, i in self.vocab.items() if token.startswith(PREFIX)}
        self._lengths = [len(token) - 2 * bool(more) for token, more in zip(self.tokens, self.continues, strict=True)]
        self._longest = max(self._lengths)
        self._words = _Memory(self.match, CHUNKS_KEPT)
        self._chunks = _Memory(self._chunk_ids, CHUNKS_KEPT)
        self._spans = _Memory(self._chunk_spans, SPANS_KEPT)
        self.latest_spans = lru_cache(2)(self.spans)  # who asks a text or pair for offsets, next asks for word ids

    # ---- from text to ids

    def match(self, word: str) -> tuple[int, ...]:
        """Greedy longest match: the ids of the pieces that spell a word."""
        if len(word) > self.max_word_chars:
            return (self.unk_id,)
        ids: list[int] = []
        pieces, start = self._first, 0
        while start < len(word):
            end = min(len(word), start + self._longest)
            while (piece := pieces.get(word[start:end])) is None:
                end -= 1
                if end == start:
                    return (self.unk_id,)
            ids.append(piece)
            pieces, start = self._inner, end
        return tuple(ids)

    def ids(self, texts: Iterable[str], special: Special = True) -> list[list[int]]:
        """Ids of many texts, the fastest way. Nothing is added. Special tokens in the text are recognised, unless
        special=False: then "[SEP]" is a bracket, a word and a bracket, as a text that *speaks* of it means it.
        special="[MASK]": this one is recognised, the others are text."""
        if isinstance(texts, str):
            raise TypeError("ids takes a list of texts, got one str; write ids([text]), or encode(text)")
        texts = list(texts)  # here, so that nobody else's code runs without collection
        with _no_collection():
            return [self._row(text, special) for text in texts]

    def encode(
        self,
        text: str,
        pair: str | None = None,
        add_special_tokens: bool = True,
        truncation: bool | str = False,
        max_length: int | None = None,
        special: Special = True,
    ) -> list[int]:
        """[CLS] text [SEP], or [CLS] text [SEP] pair [SEP], as ids. special: as for `ids`."""
        if pair is None and not truncation and max_length is None:
            row = self._row(text, special)
            return [self.cls_id, *row, self.sep_id] if add_special_tokens else row
        if not truncation and max_length is not None:
            raise ValueError(f"max_length={max_length} does nothing here; add truncation=True to cut")
        return self._encoding(text, pair, add_special_tokens, truncation, max_length, special).ids

    def tokenize(self, text: str) -> list[str]:
        """The pieces of a text, nothing added."""
        return [self.tokens[i] for i in self._row(text)]

    def encode_batch(
        self, texts: Iterable[str | tuple[str, str]], add_special_tokens: bool = True, special: Special = True
    ) -> list[Encoding]:
        """An `Encoding` for every text or (text, pair): ids, and when asked offsets and word ids."""
        if isinstance(texts, str):
            raise TypeError("encode_batch takes a list of texts, got one str; write encode_batch([text])")
        pairs = (item if isinstance(item, tuple) and len(item) == 2 else (item, None) for item in texts)
        return [self._encoding(text, pair, add_special_tokens, special=special) for text, pair in pairs]

    def __call__(
        self,
        text: str | Sequence[str | tuple[str, str]],
        pair: str | Sequence[str] | None = None,
        add_special_tokens: bool = True,
        truncation: bool | str = False,
        max_length: int | None = None,
        padding: bool | str = False,
        return_offsets_mapping: bool = False,
        return_tensors: str | None = None,
        special: Special = True,
    ) -> Batch:
        """input_ids, token_type_ids and attention_mask of a text, a pair, or a batch of either.

        truncation   True or "longest_first": cut the longer of a pair; "only_first", "only_second"
        padding      True or "longest": to the longest of the batch; "max_length"
        return_tensors="np" gives arrays (B,T); return_offsets_mapping=True adds offset_mapping
        """
        single, items = _paired(text, pair)
        encodings = [self._encoding(a, b, add_special_tokens, truncation, max_length, special) for a, b in items]
        if max_length is not None and not truncation and padding != "max_length":
            raise ValueError(
                f'max_length={max_length} does nothing here; add truncation=True to cut, or padding="max_length" to pad'
            )
        return Batch(encodings, single, padding, max_length, return_offsets_mapping, return_tensors)

    def _encoding(self, text, pair, add_special_tokens, truncation=False, max_length=None, special=True) -> Encoding:
        texts = (text,) if pair is None else (text, pair)
        rows = [self._row(text, special) for text in texts]
        if truncation:
            space = room(max_length, (len(texts) + 1) * add_special_tokens)
            for row, length in zip(rows, cut([len(row) for row in rows], space, truncation), strict=True):
                del row[length:]
        return Encoding(self, texts, rows, add_special_tokens, special)

    def _row(self, text: str, special: Special = True) -> list[int]:
        if not isinstance(text, str):
            raise TypeError(_not_text(text))
        if not special or not any(map(text.__contains__, self._begins)):
            return self._plain_row(text)
        ids: list[int] = []
        for segment, _, token in self._segments(text, special):
            if token is None:
                ids += self._plain_row(segment)
            else:
                ids.append(token)
        return ids

    def _plain_row(self, text: str) -> list[int]:
        words = self.splitter.quick_words(text)
        if words is not None:
            return list(chain.from_iterable(map(self._words.__getitem__, words)))
        return list(chain.from_iterable(map(self._chunks.__getitem__, self.splitter.chunks(text))))

    def _segments(self, text: str, special: Special = True) -> Iterator[tuple[str, int, int | None]]:
        """Cut at the special tokens written in the text -> what, where, and its id if it is one of them."""
        end = 0
        for found in self._special.finditer(text) if special else ():
            if special is not True and found.group() != special:
                continue
            yield text[end : found.start()], end, None
            yield found.group(), found.start(), self.vocab[found.group()]
            end = found.end()
        yield text[end:], end, None

    def _chunk_ids(self, chunk: str) -> tuple[int, ...]:
        ids: list[int] = []
        for word in self.splitter.words(chunk):
            whole = self._first.get(word)
            if whole is None:
                ids += self._words[word]
            else:
                ids.append(whole)
        return tuple(ids)

    # ---- where the pieces come from, computed when asked

    def spans(self, text: str, special: Special = True) -> tuple[list[tuple[int, int]], list[int]]:
        """For each piece of a text: first character and the one after the last; and the number of its word."""
        offsets: list[tuple[int, int]] = []
        word_ids: list[int] = []
        count = 0
        for segment, start, token in self._segments(text, special):
            if token is not None:
                offsets.append((start, start + len(segment)))
                word_ids.append(count)
                count += 1
                continue
            end = 0
            whole = any(map(segment.__contains__, JOINING))  # then cutting at white space would not be exact
            for chunk in [segment] if whole else segment.split():
                place = segment.index(chunk, end)
                end = place + len(chunk)
                shift = start + place
                within, words, more = self._spans[chunk]
                if len(within) == 1:  # nearly always; 1.6 times as fast as without this branch
                    offsets.append((within[0][0] + shift, within[0][1] + shift))
                    word_ids.append(count)
                else:
                    offsets += [(first + shift, last + shift) for first, last in within]
                    word_ids += [word + count for word in words]
                count += more
        return offsets, word_ids

    def _chunk_spans(self, chunk: str) -> tuple[tuple[tuple[int, int], ...], tuple[int, ...], int]:
        """As spans, counted from the chunk's begin; and the number of its words."""
        offsets, word_ids = [], []
        words = self.splitter.words_with_sources(chunk)
        for number, (word, sources) in enumerate(words):
            start = 0
            for i in self._words[word]:
                end = len(word) if i == self.unk_id else start + self._lengths[i]
                offsets.append((sources[start], sources[end - 1] + 1))
                word_ids.append(number)
                start = end
        return tuple(offsets), tuple(word_ids), len(words)

    def explain(self, text: str) -> str:
        """A table for people: every piece, its id, its word, and the part of the text that it comes from."""
        encoding = self.encode_batch([text])[0]
        lines = [f"{'piece':14}{'id':>6}{'word':>6}  from"]
        for token, i, word, (first, last) in zip(
            encoding.tokens, encoding.ids, encoding.word_ids, encoding.offsets, strict=True
        ):
            lines.append(f"{token:14}{i:6}{'-' if word is None else word:>6}  {text[first:last]!r}")
        return "\n".join([*lines, f"decoded: {self.decode(encoding.ids)}"])

    # ---- from ids to text

    def decode(self, ids: Iterable[int], skip_special_tokens: bool = False) -> str:
        """The text that ids spell: ## joins, other pieces are set apart by spaces, a comma or full stop by none."""
        tokens = [self._token(i) for i in ids]
        if skip_special_tokens:
            special = {self.tokens[i] for i in self.special_ids}
            tokens = [token for token in tokens if token not in special]
        parts = tokens[:1]
        parts += [token[len(PREFIX) :] if token.startswith(PREFIX) else f" {token}" for token in tokens[1:]]
        return "".join(map(_tidy, parts))

    def _token(self, i: Any) -> str:
        try:
            number = index(i)
        except TypeError:
            raise TypeError(
                f"decode takes one row of ids, and met {i!r:.80}; of a batch: [decode(row) for row in ids]"
            ) from None
        if not 0 <= number < len(self.tokens):
            raise ValueError(
                f"id {number} is outside of the vocabulary, 0 to {len(self.tokens) - 1}; do the ids come from another "
                "tokenizer, or are they labels with a -100 among them?"
            )
        return self.tokens[number]

    # ---- the tokenizer as a whole

    @property
    def vocab_size(self) -> int:
        return len(self.tokens)

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def settings(self) -> dict[str, Any]:
        """What beside the vocabulary decides the ids; the arguments of the constructor."""
        return {
            "lowercase": self.splitter.lowercase,
            "strip_accents": self.splitter.strip_accents,
            "chinese_spacing": self.splitter.chinese_spacing,
            "max_word_chars": self.max_word_chars,
            "extra_special_tokens": self.extra_special_tokens,
        }

    @property
    def fingerprint(self) -> str:
        """The same for two tokenizers exactly if they have the same vocabulary and settings."""
        return hashlib.sha256(json.dumps([self.tokens, self.settings], sort_keys=True).encode()).hexdigest()

    @classmethod
    def load(cls, source: str | os.PathLike[str], lowercase: bool | None = None) -> WordPieceTokenizer:
        """From a tokenizer.json, a vocab.txt, a model folder, or by the name of a bundled one: "8k", "50k".

        lowercase: overrides what the files say; a bare vocab.txt says nothing, and is then taken as lower-case.
        """
        from mini_bert.text.tokenizer_files import read

        tokens, settings = read(source)
        return cls(tokens, **settings | ({} if lowercase is None else {"lowercase": lowercase}))

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write tokenizer.json, vocab.txt and tokenizer_config.json, which `tokenizers` and `transformers` open."""
        from mini_bert.text.tokenizer_files import write

        write(Path(folder), self.tokens, self.settings, [self.tokens[i] for i in self.special_ids])

    @classmethod
    def train(cls, source: Any, vocab_size: int = 8192, lowercase: bool = True, **options: Any) -> WordPieceTokenizer:
        """Learn a vocabulary from text; `mini_bert.text.vocabulary.learn` says how, and what the options are."""
        from mini_bert.text.vocabulary import learn

        tokens = learn(source, vocab_size=vocab_size, lowercase=lowercase, **options)
        settings = {"strip_accents", "chinese_spacing", "max_word_chars"} & options.keys()
        return cls(tokens, lowercase, **{name: options[name] for name in settings})

    def __reduce__(self):  # a pickle or a copy starts with empty caches
        return _rebuild, (self.tokens, self.settings)

    def __repr__(self) -> str:
        return f"WordPieceTokenizer({len(self.tokens):,} tokens, {'lower' if self.splitter.lowercase else 'cased'})"


@contextmanager
def _no_collection() -> Iterator[None]:
    """Lists of numbers cannot form cycles; to look for some while they are made takes a tenth of the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


class _Memory(dict[str, Any]):
    """Remembers what `work` made of a string. Bounded, so that endless text costs no more than long text."""

    def __init__(self, work: Callable[[str], Any], entries: int):
        self.work, self.entries = work, entries

    def __missing__(self, key: str) -> Any:
        value = self.work(key)
        if len(key) <= LONGEST_KEPT:
            if len(self) >= self.entries:
                self.clear()
            self[key] = value
        return value


def _rebuild(tokens: list[str], settings: dict[str, Any]) -> WordPieceTokenizer:
    return WordPieceTokenizer(tokens, **settings)


_TIDY = {
    " .": ".", " ?": "?", " !": "!", " ,": ",", " ' ": "'", " n't": "n't", " 'm": "'m", " do not": " don't",
    " 's": "'s", " 've": "'ve", " 're": "'re",
}  # fmt: skip


def _tidy(part: str) -> str:
    """The space before a piece goes where English has none. The reference looks at each piece alone, so do we."""
    for spaced, written in _TIDY.items():
        part = part.replace(spaced, written)
    return part


# ---- saying what is wrong


def _checked(vocab: Sequence[str]) -> list[str]:
    if isinstance(vocab, (str, bytes, Mapping)):
        raise TypeError(
            f"vocab is a {type(vocab).__name__}, expected a list of tokens in the order of their ids; of a dict make "
            "one with sorted(vocab, key=vocab.get), a file is read by WordPieceTokenizer.load"
        )
    tokens = list(vocab)
    if not tokens:
        raise ValueError(f"the vocabulary is empty; it should hold {', '.join(SPECIAL_TOKENS)} and pieces of words")
    first: dict[str, int] = {}
    for i, token in enumerate(tokens):
        if not isinstance(token, str):
            raise TypeError(f"token {i} of the vocabulary is {token!r:.80}, a {type(token).__name__}, expected str")
        if first.setdefault(token, i) != i:
            raise ValueError(
                f"the vocabulary has {token!r} twice, as ids {first[token]} and {i}; each token has one id: remove "
                "one, or rename it to something unused, so that later ids stay"
            )
    return tokens


def _paired(text: Any, pair: Any) -> tuple[bool, list[tuple[Any, Any]]]:
    """-> was it a single text, and a list of (text, pair or None)"""
    if isinstance(text, str):
        if pair is not None and not isinstance(pair, str):
            raise TypeError(f"text is one str, so pair must be one str, got {type(pair).__name__}")
        return True, [(text, pair)]
    if isinstance(text, tuple) and len(text) == 2:
        raise TypeError(
            "a tuple of two texts could be a pair or a batch; write tokenizer(a, b) for a pair, "
            "tokenizer([a, b]) for a batch of two, tokenizer([(a, b)]) for a batch of one pair"
        )
    if isinstance(text, (bytes, bytearray, Mapping)) or not isinstance(text, Iterable):
        raise TypeError(_not_text(text))
    items = list(text)
    if pair is None:
        return False, [item if isinstance(item, tuple) and len(item) == 2 else (item, None) for item in items]
    if isinstance(pair, str) or not isinstance(pair, Iterable):
        raise TypeError(f"text is a batch of {len(items)}, so pair must be a list as long, got {type(pair).__name__}")
    pairs = list(pair)
    if len(pairs) != len(items):
        raise ValueError(f"{len(items)} texts and {len(pairs)} pairs; every text needs its own")
    for item in pairs:
        if not isinstance(item, str):
            raise TypeError(_not_text(item))
    return False, list(zip(items, pairs, strict=True))


def _not_text(value: Any) -> str:
    remedy = {
        bytes: 'decode it first: value.decode("utf-8")',
        bytearray: 'decode it first: value.decode("utf-8")',
        type(None): "is a field missing from the data?",
        list: "a batch is a flat list of texts; words that are split already can be joined with spaces",
        tuple: "a pair has exactly two texts",
    }
    hint = remedy.get(type(value), "convert it with str(value) if that is what you mean")
    return f"expected text (str), got {type(value).__name__}: {value!r:.60}; {hint}"


if __name__ == "__main__":
    vocabulary = [*SPECIAL_TOKENS, ",", "un", "##aff", "##able", "##ably", "the", "a", "##b"]
    print(WordPieceTokenizer(vocabulary).explain("Unaffably, the ZEBRA"))
