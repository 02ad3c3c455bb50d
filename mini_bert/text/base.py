"""The tokenizer interface that the rest of the library uses, the same for every kind of tokenizer.

    tokenizer = load_tokenizer("8k")                        text/loading.py chooses the class
    tokenizer.encode("the cat")                             [2, 490, 2860, 3]
    tokenizer(["the cat", "a dog"], padding=True)           input_ids, token_type_ids, attention_mask

Special tokens go by role, because their text differs between models: the mask is "[MASK]" in BERT, "<mask>" in
RoBERTa, and GPT-2 has none. `mask_token` is its text (None if there is none) and `mask_id` its id; `pad_id`, `unk_id`,
`cls_id` and `sep_id` are the others. sep also separates the documents of a corpus. Several roles may share a token.

A new kind is a new file with a subclass, and one line in text/loading.py. The subclass defines

    single, pair           the templates (text/templates.py), for example "cls:0 A:0 sep:0 B:1 sep:1"
    padding_side           "right" or "left"; padding_type: the token type of padding
    continues              (V,) booleans: which pieces continue the word before them
    plain_ids, plain_spans the ids of text in which no special token is recognised, and where each piece comes from
    spans_of_ids           the same as plain_spans, from known ids, if that is faster
    space                  " " if a word is spelt with the space before it
    piece_text, join       the characters that a piece stands for; pieces as text
    settings, from_file, save
The constructor takes the settings, and single, pair, padding_side and padding_type, as keywords.
"""

from __future__ import annotations

import json
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from operator import index
from pathlib import Path
from typing import Any, ClassVar, Self

from mini_bert.common.batching import Padding
from mini_bert.text.chunk_spans import Span
from mini_bert.text.encoding import Batch, Encoding, cut, room
from mini_bert.text.finding import Cut
from mini_bert.text.memory import no_collection
from mini_bert.text.special_tokens import Special, SpecialTokens
from mini_bert.text.templates import LAYOUTS, Assembled, Layout, Template
from mini_bert.text.tokenizer_files import JSON, VOCAB, find
from mini_bert.text.user_input import not_text, paired

Spans = tuple[list[Span], list[int], int]  # of each piece its span and the index of its word; the number of words


class Tokenizer(SpecialTokens, ABC):
    """Text to ids and back. Its arguments: see `SpecialTokens`."""

    single: str
    pair: str
    files: ClassVar[tuple[str, ...]] = (JSON, VOCAB)  # the names of its files in a folder, in order of preference
    padding_side: str = "right"
    padding_type: int = 0
    space: str = ""  # put before words and sentences that do not begin a text, if pieces contain their space

    def __init__(
        self,
        tokens: Sequence[str],
        roles: Mapping[str, str],
        extra_special_tokens: Sequence[str] = (),
        lstrip: Sequence[str] = (),
        rstrip: Sequence[str] = (),
    ):
        super().__init__(tokens, roles, extra_special_tokens, lstrip, rstrip)
        one, two = (Template.read(text, self._id_of) for text in (self.single, self.pair))
        self._templates = {
            (1, True): one,
            (2, True): two,
            (1, False): Template(((), ()), ((), ()), one.text_types),
            (2, False): Template(((), (), ()), ((), (), ()), two.text_types),
        }
        self.latest: tuple[Any, Any] = (None, None)  # an encoding, and its spans: offsets and word ids are read in turn

    # ---- what a subclass defines

    @abstractmethod
    def plain_ids(self, text: str) -> list[int]:
        """The ids of a text; no special token is recognised in it."""

    @abstractmethod
    def plain_spans(self, text: str) -> Spans:
        """For each of `plain_ids` its span in the text and the index of its word; and the number of words."""

    @abstractmethod
    def piece_text(self, i: int) -> str:
        """The characters that a piece stands for, without marks such as WordPiece's ##."""

    def readable(self, i: int) -> str:
        """A piece as commands print it. Of the two marks that kinds of tokenizer use, it keeps the one of its own: ##
        for a piece that continues a word (WordPiece), or ▁ for the space before one that begins a word (BPE, Unigram).
        """
        return self.tokens[i]

    @abstractmethod
    def join(self, tokens: Sequence[str]) -> str:
        """Pieces as readable text."""

    @property
    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """Everything besides the vocabulary that affects the ids."""

    @classmethod
    @abstractmethod
    def from_file(cls, path: Path, content: dict[str, Any] | None = None) -> Self:
        """From a tokenizer.json, whose content may be passed if it was read before, or another file of this kind."""

    @abstractmethod
    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write the files that `load_tokenizer`, `tokenizers` and `transformers` open."""

    # ---- special tokens around texts

    def template(self, texts: int = 1, add_special_tokens: bool = True) -> Template:
        """The special tokens around one text, or two."""
        return self._templates[texts, add_special_tokens]

    def added_count(self, texts: int = 1) -> int:
        """The number of special tokens around one text, or two."""
        return self._templates[texts, True].added

    def assemble(self, *rows: Sequence[int]) -> Assembled:
        """One text or two, given as ids, with special tokens around them: ids, types, and where the texts begin."""
        return self._templates[len(rows), True].assemble(rows)

    @property
    def padding(self) -> Padding:
        """How sequences are padded to one length: see text/templates.py."""
        return Padding(self.pad_id, self.padding_side, self.padding_type)

    @property
    def layout(self) -> Layout:
        return Layout(self.single, self.pair, self.padding_side, self.padding_type)

    def in_layout(self, name: str) -> Tokenizer:
        """This tokenizer with the templates and the padding of a model, by its name in LAYOUTS (text/templates.py).

        The ids of texts stay the same. Without a cls token, as GPT-2's, it stays as it is; so it does if it adds no cls
        anyway, and the layout has none.
        """
        layout = LAYOUTS[name]
        if "cls" not in self.roles or (self.template().cls is None and "cls" not in layout.single):
            return self
        return self if layout == self.layout else self.with_layout(layout)

    def with_layout(self, layout: Layout) -> Tokenizer:
        return _rebuild(type(self), self.tokens, {**self.settings, **layout._asdict()})

    # ---- from text to ids

    def ids(self, texts: Iterable[str], special: Special = True) -> list[list[int]]:
        """Ids of many texts, without special tokens around them; the fastest way.

        special: which special tokens are recognised in the text. True: all. False: none, so that "[SEP]" is a bracket,
        a word and a bracket, for text that is *about* such tokens. special=tokenizer.mask_token: only this one.
        """
        if isinstance(texts, str):
            raise TypeError("ids takes a list of texts, got one str; write ids([text]), or encode(text)")
        texts = list(texts)  # before the next line: a generator's code should run with garbage collection
        with no_collection():
            return self._rows(texts, special)

    def split_ids(self, words: Iterable[str]) -> list[list[int]]:
        """The ids of each word as in the middle of a text, for text that is already split into words.

        No special token is recognised.
        """
        return self.ids([self.space + word for word in words], special=False)

    def encode(
        self,
        text: str,
        pair: str | None = None,
        add_special_tokens: bool = True,
        truncation: bool | str = False,
        max_length: int | None = None,
        special: Special = True,
    ) -> list[int]:
        """The ids of a text or a pair, with special tokens around them. special: as for `ids`."""
        if not truncation and max_length is not None:
            raise ValueError(f"max_length={max_length} has no effect; add truncation=True to cut")
        if pair is None and not truncation:
            return self._templates[1, add_special_tokens].join([self._row(text, special)])
        return self._encodings([(text, pair)], add_special_tokens, truncation, max_length, special)[0].ids

    def tokenize(self, text: str) -> list[str]:
        """The pieces of a text, without special tokens around them."""
        return [self.tokens[i] for i in self._row(text)]

    def encode_batch(
        self, texts: Iterable[str | tuple[str, str]], add_special_tokens: bool = True, special: Special = True
    ) -> list[Encoding]:
        """An `Encoding` for every text or (text, pair): ids, and on demand offsets and word ids."""
        if isinstance(texts, str):
            raise TypeError("encode_batch takes a list of texts, got one str; write encode_batch([text])")
        items = [item if isinstance(item, tuple) and len(item) == 2 else (item, None) for item in texts]
        return self._encodings(items, add_special_tokens, special=special)

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
        single, items = paired(text, pair)
        if max_length is not None and not truncation and padding != "max_length":
            raise ValueError(
                f'max_length={max_length} has no effect; add truncation=True to cut, or padding="max_length" to pad'
            )
        encodings = self._encodings(items, add_special_tokens, truncation, max_length, special)
        return Batch(encodings, single, padding, max_length, return_offsets_mapping, return_tensors)

    def _encodings(
        self, items, add_special_tokens, truncation=False, max_length=None, special: Special = True
    ) -> list[Encoding]:
        """Those of pairs (text, pair or None)."""
        with no_collection():
            groups = [(text,) if pair is None else (text, pair) for text, pair in items]
            every = iter(self._rows([text for texts in groups for text in texts], special))
            encodings = []
            for texts in groups:
                rows = [next(every) for _ in texts]
                if truncation:
                    space = room(max_length, self.added_count(len(texts)) if add_special_tokens else 0)
                    for row, length in zip(rows, cut([len(row) for row in rows], space, truncation), strict=True):
                        del row[length:]
                encodings.append(Encoding(self, texts, rows, add_special_tokens, special))
            return encodings

    def _rows(self, texts: Sequence[str], special: Special) -> list[list[int]]:
        """The ids of many texts. Override this if many together are faster."""
        return [self._row(text, special) for text in texts]

    def _row(self, text: str, special: Special = True) -> list[int]:
        if not isinstance(text, str):
            raise TypeError(not_text(text))
        if not special or self._special.absent(text):
            return self.plain_ids(text)
        return self._ids_of_parts(self._segments(text, special), self.plain_ids)

    def special_span(self, found: str) -> Span:
        """Where a special token is in the part of a text that was found for it."""
        return 0, len(found)

    def spans(
        self, text: str, special: Special = True, ids: Sequence[int] | None = None
    ) -> tuple[list[Span], list[int]]:
        """For each piece of a text its span, and the index of its word. ids: of the text, or its beginning, if known"""
        if not special or self._special.absent(text):
            return self.plain_spans(text)[:2] if ids is None else self.spans_of_ids(text, ids)
        return self._spans_of_parts(self._segments(text, special), self.plain_spans)[:2]

    def _ids_of_parts(self, parts: Iterable[Cut], ids_of: Callable[[str], Iterable[int]]) -> list[int]:
        """The ids of a text that was cut at tokens. ids_of: those of a part that is not a token"""
        ids: list[int] = []
        for part, _, token in parts:
            ids += ids_of(part) if token is None else (self.vocab[token],)
        return ids

    def _spans_of_parts(self, parts: Iterable[Cut], spans_of: Callable[[str], Spans]) -> Spans:
        offsets: list[Span] = []
        word_ids: list[int] = []
        count = 0
        for part, start, token in parts:
            within, words, more = spans_of(part) if token is None else ([self.special_span(part)], [0], 1)
            offsets += [(first + start, last + start) for first, last in within] if start else within
            word_ids += [word + count for word in words] if count else words
            count += more
        return offsets, word_ids, count

    def spans_of_ids(self, text: str, ids: Sequence[int]) -> tuple[list[Span], list[int]]:
        """The spans and word indices of `plain_spans`, for a text with known ids. Override this if that is faster."""
        return self.plain_spans(text)[:2]

    def explain(self, text: str) -> str:
        """A table for people: every piece, its id, its word, and the part of the text that it comes from."""
        encoding = self.encode_batch([text])[0]
        lines = [f"{'piece':14}{'id':>6}{'word':>6}  from"]
        for i, word, (first, last) in zip(encoding.ids, encoding.word_ids, encoding.offsets, strict=True):
            lines.append(f"{self.readable(i):14}{i:6}{'-' if word is None else word:>6}  {text[first:last]!r}")
        return "\n".join([*lines, f"decoded: {self.decode(encoding.ids)}"])

    # ---- from ids to text

    def decode(self, ids: Iterable[int], skip_special_tokens: bool = False) -> str:
        """The text that ids spell."""
        if not isinstance(ids, Iterable):
            raise TypeError(f"decode takes one row of ids, got {ids!r:.80}; for a single id: decode([id])")
        numbers = [self._checked_id(i) for i in ids]
        skipped = self.special_ids if skip_special_tokens else ()
        return self.join([self.tokens[i] for i in numbers if i not in skipped])

    def _checked_id(self, i: Any) -> int:
        try:
            number = index(i)
        except TypeError:
            raise TypeError(
                f"decode takes one row of ids, but one of them is {i!r:.80}; for a batch: [decode(row) for row in ids]"
            ) from None
        if not 0 <= number < len(self.tokens):
            raise ValueError(
                f"id {number} is outside the vocabulary, 0 to {len(self.tokens) - 1}; are the ids from another "
                "tokenizer, or are they labels that contain -100?"
            )
        return number

    # ---- the tokenizer as a whole

    @property
    def vocab_size(self) -> int:
        return len(self.tokens)

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def fingerprint(self) -> str:
        """Equal for two tokenizers if and only if their vocabularies and settings are equal."""
        import hashlib  # here, because it is slow to import and seldom needed

        return hashlib.sha256(json.dumps([self.tokens, self.settings], sort_keys=True).encode()).hexdigest()

    @classmethod
    def load(cls, source: str | os.PathLike[str]) -> Self:
        """From a file, a folder with one of `files`, or by the name of a bundled tokenizer: "8k", "bpe-8k"."""
        return cls.from_file(find(source, cls.files))

    @classmethod
    def from_pretrained(cls, source: str | os.PathLike[str]) -> Self:
        """The tokenizer of a model folder, a run or a bundled model ("mini-bert"), a tokenizer file, or a bundled
        tokenizer ("8k"). `load_tokenizer` also chooses the class."""
        from mini_bert.files.model_folder import locate

        with suppress(FileNotFoundError):  # then it is not a model
            source = locate(source)
        return cls.load(source)

    def __reduce__(self):  # a pickle or a copy starts with empty caches
        return _rebuild, (type(self), self.tokens, self.settings)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self.tokens):,} tokens)"


def _rebuild(kind: type[Tokenizer], tokens: list[str], settings: dict[str, Any]) -> Tokenizer:
    return kind(tokens, **settings)
