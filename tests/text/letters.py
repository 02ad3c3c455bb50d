"""Toy tokenizers, one token per letter, with the templates of other models."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from mini_bert.text.base import Tokenizer

TOKENS = ["<pad>", "<unk>", "</s>", "<c>", "a", "b"]


class Letters(Tokenizer):
    """Letters as tokens; two separators between the texts of a pair, cls at the end, no mask, one token type."""

    single = "A:0 sep:0 cls:2"
    pair = "A:0 sep:0 sep:0 B:0 sep:0 cls:2"

    spelling = {"pad": "<pad>", "unk": "<unk>", "cls": "<c>", "sep": "</s>"}  # noqa: RUF012

    def __init__(self, tokens):
        super().__init__(tokens, self.spelling)
        self.continues = np.array([token not in self.roles.values() for token in self.tokens])

    def plain_ids(self, text):
        return [self.vocab.get(letter, self.unk_id) for letter in text]

    def plain_spans(self, text):
        return [(i, i + 1) for i in range(len(text))], [0] * len(text), 1

    def piece_text(self, i):
        return self.tokens[i]

    def join(self, tokens):
        return "".join(tokens)

    @property
    def settings(self):
        return {}

    @classmethod
    def from_file(cls, path: Path, content=None):
        return cls(list(content["model"]["vocab"]) if content else path.read_text().split())

    def save(self, folder):
        raise NotImplementedError


class RobertaLetters(Letters):
    """<c> a b </s>, <c> a </s> </s> b </s>, all of type 0"""

    single = "cls:0 A:0 sep:0"
    pair = "cls:0 A:0 sep:0 sep:0 B:0 sep:0"


class XlnetLetters(Letters):
    """a b </s> <c>, a </s> b </s> <c>, types 0, 1 and 2, padded on the left with type 3"""

    single = "A:0 sep:0 cls:2"
    pair = "A:0 sep:0 B:1 sep:1 cls:2"
    padding_side, padding_type = "left", 3


class GptLetters(Letters):
    """No special tokens around texts; </s> between documents"""

    single = "A:0"
    pair = "A:0 B:0"


class NoCls(GptLetters):
    spelling = {"pad": "<pad>", "unk": "<unk>", "sep": "</s>"}  # noqa: RUF012


class MarkedLetters(XlnetLetters):
    """With a mask, and as in byte-level BPE a mark (a letter to Python) at the first letter of a word, but not of a
    text"""

    spelling = {**Letters.spelling, "mask": "<mask>"}  # noqa: RUF012
    mark = "\u0120"

    def __init__(self, tokens):
        super().__init__(tokens)
        self.continues = np.array([not token.startswith(self.mark) for token in self.tokens])

    def plain_ids(self, text):
        letters = [
            after if before != " " else self.mark + after for before, after in zip("." + text, text, strict=False)
        ]
        return [self.vocab.get(letter, self.unk_id) for letter in letters if letter[-1] != " "]

    def plain_spans(self, text):
        places = [i for i, letter in enumerate(text) if letter != " "]
        return [(i, i + 1) for i in places], [text[:i].count(" ") for i in places], text.count(" ") + 1

    def piece_text(self, i):
        return self.tokens[i].removeprefix(self.mark)
