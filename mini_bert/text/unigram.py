"""Unigram: pieces with probabilities, and the most probable way to spell a text with them.

The tokenizer of ALBERT, XLNet and DeBERTa-v3, in files made by SentencePiece (spiece.model) or by the `tokenizers`
library (tokenizer.json).

    text           "Unaffable zebras"
    words          ▁unaffable ▁zebras                  text/sentencepiece_text.py or text/metaspace_text.py
    pieces         ▁un aff able ▁zebra s               text/unigram_lattice.py: the best segmentation
    ids            367 11475 579 21675 18

A space is a character, ▁, at the beginning of a word. So pieces say where spaces are, and text can be put together
again.

Which rules a text goes through depends on the file. From a spiece.model, ids are those of the `sentencepiece` library;
from a tokenizer.json, those of `tokenizers`. The two differ in rare cases: see Precompiled in text/normalizers.py, and
Rounding in text/unigram_lattice.py.

Words do not influence each other if no piece has a ▁ inside, which is checked. Then the pieces of each chunk between
spaces are cached, and a line costs one lookup per chunk.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, chain, pairwise
from operator import add
from pathlib import Path
from typing import Any

import numpy as np

from mini_bert.text.base import Spans, Tokenizer
from mini_bert.text.chunk_spans import SPACE, ChunkSpans, Span, laid_out, put_together, side_by_side
from mini_bert.text.finding import Finder
from mini_bert.text.memory import Memory
from mini_bert.text.metaspace_text import MetaspaceText
from mini_bert.text.plain_chunks import PlainChunks
from mini_bert.text.sentencepiece_model import SentencePieceModel, byte_piece
from mini_bert.text.sentencepiece_text import SentencePieceText
from mini_bert.text.tokenizer_files import JSON
from mini_bert.text.unigram_conventions import BERT_LIKE
from mini_bert.text.unigram_files import SPIECE, SPM, read, write
from mini_bert.text.unigram_lattice import RESET, UNKNOWN, UNKNOWN_PENALTY, Cut, Lattice
from mini_bert.text.user_input import checked_scores

PARTS_KEPT = 1 << 18  # until a cache is cleared; this many take about 100 MB
CERTAIN = 5_000.0  # the pieces of a part are looked up if rounding cannot change them while scores are below this
SPANS_KEPT = 1 << 16  # spans take more
DELICATE = -1  # stands for the pieces of other parts
UNKNOWN_RUN = 4  # characters that an unknown token may stand for in parts that are looked up
SETTINGS = (
    "scores", "roles", "rules", "symbols", "unused", "byte_fallback", "single", "pair", "padding_side", "padding_type",
    "extra_special_tokens", "lstrip", "rstrip",
)  # fmt: skip


class UnigramTokenizer(Tokenizer):
    """Text to ids and back.

    vocab, scores      the pieces in the order of their ids, and the logarithms of their probabilities
    roles              the special tokens by role
    rules              how text becomes words; see below
    symbols            user-defined symbols: pieces that are always kept whole
    unused             pieces that are never chosen
    byte_fallback      whether unknown characters are spelt with the pieces of their bytes
    single, pair, padding_side, padding_type       see text/templates.py
    lstrip, rstrip     special tokens that take the white space beside them with them

    Rules are {"type": "sentencepiece", ...} with the arguments of `SentencePieceText.read`, and "split_commas" for
    ALBERT's pieces such as "2000,"; or {"type": "tokenizers", "normalizer": ..., "pre_tokenizer": ...} as in a
    tokenizer.json.
    """

    files = (JSON, SPIECE, SPM)

    def __init__(
        self,
        vocab: Sequence[str],
        scores: Sequence[float],
        roles: Mapping[str, str],
        rules: Mapping[str, Any],
        symbols: Sequence[str] = (),
        unused: Sequence[str] = (),
        byte_fallback: bool = False,
        single: str = BERT_LIKE.single,
        pair: str = BERT_LIKE.pair,
        padding_side: str = "right",
        padding_type: int = 0,
        extra_special_tokens: Sequence[str] = (),
        lstrip: Sequence[str] = (),
        rstrip: Sequence[str] = (),
    ):
        self.single, self.pair, self.padding_side, self.padding_type = single, pair, padding_side, padding_type
        self.lstrip, self.rstrip = tuple(lstrip), tuple(rstrip)
        super().__init__(vocab, roles, extra_special_tokens, lstrip, rstrip)
        self.scores = checked_scores(self.tokens, scores)
        self.rules, self.symbols, self.unused = dict(rules), tuple(symbols), tuple(unused)
        self.byte_fallback = byte_fallback
        self.model_file: SentencePieceModel | None = None  # what this was read from; it may have more than is used
        self.continues = np.array([not token.startswith(SPACE) for token in self.tokens])
        self.continues[list(self.special_ids)] = False
        self._bytes = [self._byte_id(byte) for byte in range(256)] if byte_fallback else []

        self.as_sentencepiece = self.rules["type"] == "sentencepiece"
        self.lattice = self._lattice()
        self.text: SentencePieceText | MetaspaceText
        if self.as_sentencepiece:
            self.text = SentencePieceText.read(self.rules, self.symbols)
        else:
            self.text = MetaspaceText.read(self.rules["normalizer"], self.rules["pre_tokenizer"])
        self.space = "" if self.text.puts_space_in_front else " "
        self._added = Finder(() if self.as_sentencepiece else self.symbols)
        largest = max(map(abs, self.scores))
        self._short = CERTAIN / largest if largest else math.inf  # so many known pieces cannot have a higher score
        self._unk = self.unk_id
        self._sizes = [abs(score) for score in self.scores]
        self._sizes[self.unk_id] = UNKNOWN_RUN * abs(self.lattice.unknown_score)
        self._commas: dict[int, Cut] = {}
        self._cuts = Memory(self._cut, PARTS_KEPT)
        if self.rules.get("split_commas"):
            self._commas = self._pieces_with_commas()
            self._cuts.clear()
        self._parts = Memory(self._part_ids, PARTS_KEPT)
        self._chunks = Memory(self._chunk_ids, PARTS_KEPT)
        self._chunk_spans = Memory(self._spans_in_chunk, SPANS_KEPT)
        self._plain = PlainChunks(self.text.normalised, PARTS_KEPT)
        self._lengths = list(map(len, self.tokens))
        self._begins = [int(token.startswith(SPACE)) for token in self.tokens]

    def _lattice(self) -> Lattice:
        """Of all pieces but special tokens, bytes and unused ones."""
        excluded = {*self.special_ids, *(self.vocab[token] for token in self.unused), *self._bytes}
        pieces = {token: (i, self.scores[i]) for i, token in enumerate(self.tokens) if i not in excluded}
        if not self.as_sentencepiece:
            return Lattice(pieces, min(self.scores) - UNKNOWN_PENALTY, single=False)
        lowest = min((score for token, (_, score) in pieces.items() if token not in self.symbols), default=0.0)
        for symbol in self.symbols:  # a score by its length in bytes, higher than any other, so that it is chosen
            pieces[symbol] = self.vocab[symbol], float(np.float32(0.1 * (len(symbol.encode()) - 1)))
        return Lattice(pieces, float(np.float32(lowest - UNKNOWN_PENALTY)))

    def _byte_id(self, byte: int) -> int:
        if byte_piece(byte) not in self.vocab:
            raise ValueError(f"byte_fallback is true, but the vocabulary has no piece {byte_piece(byte)}; add all 256")
        return self.vocab[byte_piece(byte)]

    # ---- from text to ids

    def plain_ids(self, text: str) -> list[int]:
        if self._added.absent(text):
            return self._ids(text)
        return self._ids_of_parts(self._added.cut(text), self._ids)

    def _ids(self, text: str) -> list[int]:
        row = self._looked_up(text)
        if self._is_certain(row):
            return row
        return [i for cut in self._segmented(self.text.normalised(text)) for i in cut.ids]

    def _looked_up(self, text: str) -> list[int]:
        """The ids of a text, or DELICATE for some, if rounding does not matter."""
        if self._is_chunked(text):
            return list(chain.from_iterable(map(self._chunks.__getitem__, text.split(" "))))
        return list(self._by_parts(self.text.normalised(text)))

    def _is_chunked(self, text: str) -> bool:
        return self.lattice.parts is not None and self.text.can_be_chunked(text)

    def _is_certain(self, row: list[int]) -> bool:
        """Whether the score of a text is so small that rounding does not matter for any of its parts."""
        if DELICATE in row:
            return False
        return (len(row) <= self._short and self._unk not in row) or sum(map(self._sizes.__getitem__, row)) < CERTAIN

    def _chunk_ids(self, chunk: str) -> tuple[int, ...]:
        normalised = self.text.normalised(chunk)
        self._plain.add(chunk, normalised)  # which offsets will need
        return tuple(self._by_parts(normalised))

    def _by_parts(self, text: str) -> Iterator[int]:
        """The ids of a normalised text, or DELICATE for some."""
        if self.lattice.parts is None:
            return iter((DELICATE,))
        return chain.from_iterable(map(self._parts.__getitem__, self.lattice.parts.findall(text)))

    def _part_ids(self, part: str) -> tuple[int, ...]:
        ids, limit = self.lattice.best_ids(part)
        if limit < CERTAIN or (UNKNOWN in ids and len(part) > UNKNOWN_RUN):
            return (DELICATE,)
        return self._cut(part).ids if UNKNOWN in ids or not self._commas.keys().isdisjoint(ids) else ids

    def _cut(self, part: str) -> Cut:
        return self._finished(self.lattice.best(part), part)

    def _segmented(self, text: str) -> list[Cut]:
        """The parts of a normalised text in pieces. Where rounding could matter, scores are added as by the library."""
        if self.lattice.parts is None:
            return [self._finished(self.lattice.exactly(unit, 0.0)[0], unit) for unit in self.text.units(text)]
        most = RESET if self.as_sentencepiece else math.inf
        found: list[Cut] = []
        for unit in self.text.units(text):
            score = 0.0
            for part in self.lattice.parts.findall(unit):
                cut = self._cuts[part]
                if abs(score) + len(part) * self.lattice.worst < min(cut.limit, most):
                    score = self.lattice.added(score, cut.scores)
                else:
                    exact, score = self.lattice.exactly(part, score)
                    cut = self._finished(exact, part)
                found.append(cut)
        return found

    def _finished(self, cut: Cut, word: str) -> Cut:
        """With tokens for unknown characters, and ALBERT's rule for commas."""
        if UNKNOWN not in cut.ids and self._commas.keys().isdisjoint(cut.ids):
            return cut
        ids: list[int] = []
        lengths: list[int] = []
        place, before = 0, 0
        for i, length in zip(cut.ids, cut.lengths, strict=True):
            if i != UNKNOWN:
                other = self._commas.get(i)
                ids += other.ids if other else (i,)
                lengths += other.lengths if other else (length,)
            elif self.byte_fallback:
                spelt = [self._bytes[byte] for byte in word[place : place + length].encode()]
                ids += spelt
                lengths += [0] * (len(spelt) - 1) + [length]
            elif before == UNKNOWN:
                lengths[-1] += length
            else:
                ids.append(self.unk_id)
                lengths.append(length)
            place, before = place + length, i
        return cut._replace(ids=tuple(ids), lengths=tuple(lengths))

    def _pieces_with_commas(self) -> dict[int, Cut]:
        """ALBERT's tokenizer splits a piece such as "2000," again, into the pieces of "2000" and a comma."""
        found = {}
        for i, piece in enumerate(self.tokens):
            if len(piece) > 1 and piece[-1] == "," and piece[-2].isdigit() and i not in self.special_ids:
                parts = self._spelt(piece[:-1].replace(SPACE, ""))
                if piece[0] != SPACE and parts[0].startswith(SPACE):
                    parts = [part for part in (parts[0].removeprefix(SPACE), *parts[1:]) if part]
                parts.append(",")
                found[i] = Cut(tuple(self.vocab.get(part, self.unk_id) for part in parts), tuple(map(len, parts)), ())
        return found

    def _spelt(self, text: str) -> list[str]:
        """The parts of the normalised text that its pieces stand for; unlike `tokenize`, also of unknown ones."""
        text = self.text.normalised(text)
        ends = list(accumulate((length for cut in self._segmented(text) for length in cut.lengths), initial=0))
        return [text[first:last] for first, last in pairwise(ends)]

    # ---- offsets

    def plain_spans(self, text: str) -> Spans:
        if self._added.absent(text):
            return self._spans(text)
        return self._spans_of_parts(self._added.cut(text), self._spans)

    def _spans(self, text: str) -> Spans:
        if self._is_chunked(text) and self._is_certain(self._looked_up(text)):
            chunks = text.split(" ")
            return put_together(chunks, [self._chunk_spans[chunk] for chunk in chunks])
        normalised, sources = self.text.traced(text)
        lengths = [length for cut in self._segmented(normalised) for length in cut.lengths]
        spans, begins = laid_out(normalised, sources, lengths)
        word_ids = list(accumulate(begins, initial=-1))
        return list(spans), word_ids[1:], word_ids[-1] + 1

    def spans_of_ids(self, text: str, ids: Sequence[int]) -> tuple[list[Span], list[int]]:
        """Piece after piece, as the ids give the length of each, if normalising replaces each character by one."""
        if self._unk in ids or not self._is_plain(text):
            return self.plain_spans(text)[:2]
        marked = list(map(self._begins.__getitem__, ids))
        ends = list(accumulate(map(self._lengths.__getitem__, ids), initial=-1))  # the ▁ in front is not in the text
        starts = map(add, ends, marked)
        word_ids = list(accumulate(marked, initial=-1 if marked and marked[0] else 0))
        return list(zip(starts, ends[1:], strict=False)), word_ids[1:]

    def _is_plain(self, text: str) -> bool:
        """Whether the normalised text is ▁ and, for each character of the text, one character; ▁ for a space."""
        if self.byte_fallback or not self._added.absent(text) or not self._is_chunked(text):
            return False
        return all(map(self._plain.__getitem__, text.split(" ")))

    def _spans_in_chunk(self, chunk: str) -> ChunkSpans:
        ids = self._chunks[chunk]
        if ids.count(self._unk) <= 1 and not self.byte_fallback and self._plain[chunk]:
            lengths = [0 if i == self._unk else self._lengths[i] - self._begins[i] for i in ids]
            if self._unk in ids:  # which stands for the rest
                lengths[ids.index(self._unk)] = len(chunk) - sum(lengths)
            return side_by_side([lengths])
        normalised, sources = self.text.traced(chunk)
        if self._unk in ids or self.byte_fallback:
            lengths = [length for cut in self._segmented(normalised) for length in cut.lengths]
        else:
            lengths = [len(self.tokens[i]) for i in ids]
        return laid_out(normalised, sources, lengths)

    # ---- from ids to text

    def piece_text(self, i: int) -> str:
        byte = self._byte_of(self.tokens[i])
        return self.tokens[i].removeprefix(SPACE) if byte is None else bytes((byte,)).decode("utf-8", "replace")

    def join(self, tokens: Sequence[str]) -> str:
        """▁ is a space, except at the beginning of the text; bytes are decoded together."""
        text = ""
        spelt = bytearray()
        at_beginning = self.text.drops_first_space
        for token in tokens:
            byte = self._byte_of(token)
            if byte is not None:
                spelt.append(byte)
                continue
            text += _decoded(spelt)
            spelt.clear()
            at_beginning = at_beginning and not text
            if at_beginning:
                at_beginning = self.text.drops_all_first_spaces or not token.startswith(SPACE)
                token = token.removeprefix(SPACE)
            text += token.replace(SPACE, " ")
        return text + _decoded(spelt)

    def _byte_of(self, token: str) -> int | None:
        is_byte = self.byte_fallback and len(token) == 6 and token.startswith("<0x")
        return int(token[3:5], 16) if is_byte else None

    # ---- the tokenizer as a whole

    @property
    def settings(self) -> dict[str, Any]:
        """Everything besides the vocabulary that affects the ids: the other arguments of the constructor."""
        return {name: getattr(self, name) for name in SETTINGS}

    @classmethod
    def from_file(cls, path: Path, content: dict[str, Any] | None = None) -> UnigramTokenizer:
        tokens, settings, model_file = read(path, content)
        try:
            tokenizer = cls(tokens, **settings)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None
        tokenizer.model_file = model_file
        return tokenizer

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write tokenizer_config.json, and tokenizer.json or spiece.model, whichever this tokenizer was read from."""
        write(Path(folder), self)

    @classmethod
    def train(cls, source: Any, vocab_size: int = 8192, lowercase: bool = True, **options: Any) -> UnigramTokenizer:
        """Learn a vocabulary from text. `mini_bert.text.unigram_learning` explains how, and lists the options."""
        from mini_bert.text.unigram_learning import learn

        return cls(**learn(source, vocab_size=vocab_size, lowercase=lowercase, **options))

    def __repr__(self) -> str:
        return f"UnigramTokenizer({len(self.tokens):,} tokens, {'SentencePiece' if self.as_sentencepiece else JSON})"


def _decoded(spelt: bytearray) -> str:
    """Bytes as text; each that is not UTF-8 becomes U+FFFD."""
    return re.sub("[\udc80-\udcff]", "\ufffd", bytes(spelt).decode("utf-8", "surrogateescape"))


if __name__ == "__main__":
    scores = {
        "▁un": -3.0,
        "aff": -5.0,
        "able": -4.0,
        "▁the": -2.0,
        "▁": -4.0,
        "a": -4.5,
        "b": -5.0,
        "l": -5.0,
        "e": -4.0,
    }
    special = {"pad": "<pad>", "unk": "<unk>", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
    tokenizer = UnigramTokenizer(
        [*special.values(), *scores], [0.0] * 5 + list(scores.values()), special, {"type": "sentencepiece"}
    )
    print(tokenizer.explain("the unaffable x"))
