"""Special tokens around texts, as data of a tokenizer, and sequences of different lengths as one batch.

A template names the parts of a sequence in order: a role, or text A or B, each with its token type.

    BERT       "cls:0 A:0 sep:0 B:1 sep:1"            RoBERTa    "cls:0 A:0 sep:0 sep:0 B:0 sep:0"
    XLNet      "A:0 sep:0 B:1 sep:1 cls:2"            GPT-2      "A:0 B:0"

A layout is a model's templates for one text and for two, and its padding. LAYOUTS has those of the published models. A
model of the next word that is trained here has seen running text, in which documents are separated, but no cls occurs.
"running" is the layout for it: a text begins as a document does.

The *summary* is the token whose vector stands for the whole sequence: cls, or without one the last token.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from mini_bert.common.batching import Padding, padded


class Layout(NamedTuple):
    """What surrounds the texts of a sequence."""

    single: str  # the template of one text
    pair: str  # of two
    padding_side: str = "right"
    padding_type: int = 0  # the token type of padding


LAYOUTS = {
    "bert": Layout("cls:0 A:0 sep:0", "cls:0 A:0 sep:0 B:1 sep:1"),
    "roberta": Layout("cls:0 A:0 sep:0", "cls:0 A:0 sep:0 sep:0 B:0 sep:0"),
    "xlnet": Layout("A:0 sep:0 cls:2", "A:0 sep:0 B:1 sep:1 cls:2", "left", 3),
    "gpt2": Layout("A:0", "A:0 B:0"),
    "running": Layout("sep:0 A:0", "sep:0 A:0 sep:0 B:0"),
}


class Assembled(NamedTuple):
    """One text or two, with special tokens around them."""

    ids: list[int]
    types: list[int]  # token types
    starts: list[int]  # where each text begins
    summary: int  # the position of the summary token


class Template(NamedTuple):
    """Special tokens around n texts."""

    ids: tuple[tuple[int, ...], ...]  # before the first text, between the texts, after the last: n+1 groups
    types: tuple[tuple[int, ...], ...]  # their token types
    text_types: tuple[int, ...]  # the token type of each text
    cls: tuple[int, int] | None = None  # the group that contains cls, and its index in the group

    @classmethod
    def read(cls, text: str, id_of: Callable[[str], int]) -> Template:
        """From a description such as "cls:0 A:0 sep:0 B:1 sep:1" """
        ids: list[tuple[int, ...]] = [()]
        types: list[tuple[int, ...]] = [()]
        text_types: list[int] = []
        summary = None
        for part in text.split():
            name, _, kind = part.partition(":")
            if name in ("A", "B"):
                text_types.append(int(kind))
                ids.append(())
                types.append(())
                continue
            if name == "cls":
                summary = len(ids) - 1, len(ids[-1])
            ids[-1] += (id_of(name),)
            types[-1] += (int(kind),)
        return cls(tuple(ids), tuple(types), tuple(text_types), summary)

    @property
    def added(self) -> int:
        """The number of special tokens"""
        return sum(map(len, self.ids))

    @property
    def type_count(self) -> int:
        """The number of token types that a model needs"""
        return 1 + max((*self.text_types, *(kind for group in self.types for kind in group)))

    def join(self, rows: Sequence[Sequence[int]]) -> list[int]:
        """The ids of the texts with the special tokens around them"""
        before, *after = self.ids
        if len(rows) == 1:
            return [*before, *rows[0], *after[0]]
        return [*before, *rows[0], *after[0], *rows[1], *after[1]]

    def assemble(self, rows: Sequence[Sequence[int]]) -> Assembled:
        lengths = [len(row) for row in rows]
        starts, groups = self.places(lengths)
        last = groups[-1] + len(self.ids[-1]) - 1
        summary = last if self.cls is None else groups[self.cls[0]] + self.cls[1]
        return Assembled(self.join(rows), self.token_types(lengths), starts, summary)

    def places(self, lengths: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """Where each text, and each group of special tokens, begins. Lengths may be arrays, for many sequences."""
        starts: list[Any] = []
        groups: list[Any] = [0]
        for group, length in zip(self.ids, lengths, strict=False):  # no text follows the last group
            starts.append(groups[-1] + len(group))
            groups.append(starts[-1] + length)
        return starts, groups

    def token_types(self, lengths: Sequence[int]) -> list[int]:
        types = [*self.types[0]]
        for length, kind, after in zip(lengths, self.text_types, self.types[1:], strict=True):
            types += [*[kind] * length, *after]
        return types

    def type_changes(self, starts: Sequence[Any], groups: Sequence[Any]) -> Iterator[tuple[Any, int]]:
        """Where the token type changes, and by how much; it is 0 at first. starts, groups: see `places`"""
        before = 0
        for number, (begin, group) in enumerate(zip(groups, self.types, strict=True)):
            parts = [(begin + place, kind) for place, kind in enumerate(group)]
            if number < len(starts):
                parts.append((starts[number], self.text_types[number]))
            for place, kind in parts:
                if kind != before:
                    yield place, kind - before
                before = kind


class Padded(NamedTuple):
    """Sequences of different lengths as a batch."""

    ids: np.ndarray  # (B,T)
    mask: np.ndarray | None  # (B,T) False for padding; None without padding
    types: np.ndarray  # (B,T)
    shifts: np.ndarray  # (B,) how far each sequence was moved by padding on its left


def pad(sequences: Sequence[Assembled], padding: Padding) -> Padded:
    """Sequences padded to one length"""
    ids, mask = padded([one.ids for one in sequences], padding)
    types, _ = padded([one.types for one in sequences], padding._replace(id=padding.type))
    lengths = np.array([len(one.ids) for one in sequences], int)
    return Padded(ids, mask, types, padding.shift(lengths, ids.shape[1]))
