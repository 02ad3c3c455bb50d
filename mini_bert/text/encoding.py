"""A tokenizer's output: ids with token types and masks, cut to a length, padded to a common one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from mini_bert.text.base import Tokenizer


class Encoding:
    """The ids of one text or pair. Everything else is computed on demand, since most uses never need it.

    ids             the pieces with the special tokens around them; padding on the tokenizer's side
    type_ids        token types, for BERT 0 for the text and for padding, 1 for the pair
    attention_mask  1 for tokens, 0 for padding
    tokens          the pieces as strings
    offsets         the span of each piece in its text: (first character, the one after the last)
    word_ids        the index of the word that a piece belongs to, from 0 in each text
    Special tokens that were added have offsets (0, 0) and no word (None); those written in the text are words.
    """

    __slots__ = ("_added", "_lengths", "_padding", "_special", "_texts", "_tokenizer", "ids")

    def __init__(
        self,
        tokenizer: Tokenizer,
        texts: Sequence[str],
        rows: Sequence[list[int]],
        added: bool,
        special: bool | str | None = True,
    ):
        """added: with special tokens around the texts; special: which are recognised in them, as for tokenizer.ids"""
        self._tokenizer, self._texts = tokenizer, texts
        self._lengths = [len(row) for row in rows]
        self._added, self._special = added, special
        self._padding = 0
        self.ids = tokenizer.template(len(rows), added).join(rows)

    @property
    def type_ids(self) -> list[int]:
        types = self._tokenizer.template(len(self._texts), self._added).token_types(self._lengths)
        return self._filled_up(types, self._tokenizer.padding_type)

    @property
    def attention_mask(self) -> list[int]:
        return self._filled_up([1] * (len(self.ids) - self._padding), 0)

    @property
    def tokens(self) -> list[str]:
        return [self._tokenizer.tokens[i] for i in self.ids]

    @property
    def offsets(self) -> list[tuple[int, int]]:
        return self._laid_out(0, (0, 0))

    @property
    def word_ids(self) -> list[int | None]:
        return self._laid_out(1, None)

    def _laid_out(self, which: int, filler: Any) -> list[Any]:
        """One value per token: from the tokenizer's spans for pieces of the texts, `filler` for all other tokens."""
        before, *after = self._tokenizer.template(len(self._texts), self._added).ids
        values = [filler] * len(before)
        for found, special in zip(self._spans(), after, strict=True):
            values += found[which]
            values += [filler] * len(special)
        return self._filled_up(values, filler) if self._padding else values

    def _spans(self) -> list[tuple[list[tuple[int, int]], list[int]]]:
        """For each text the spans and word indices of its pieces. The tokenizer keeps the latest."""
        encoding, found = self._tokenizer.latest
        if encoding is self:
            return found
        found = []
        start = self._padding if self._tokenizer.padding_side == "left" else 0
        groups = self._tokenizer.template(len(self._texts), self._added).ids
        for text, length, special in zip(self._texts, self._lengths, groups, strict=False):
            start += len(special)
            ids = self.ids[start : start + length]
            offsets, words = self._tokenizer.spans(text, self._special, ids)
            found.append((offsets, words) if len(offsets) == length else (offsets[:length], words[:length]))
            start += length
        self._tokenizer.latest = self, found
        return found

    def _filled_up(self, values: list[Any], filler: Any) -> list[Any]:
        """Values of the tokens, with `filler` for padding"""
        more = [filler] * self._padding
        return more + values if self._tokenizer.padding_side == "left" else values + more

    def pad(self, length: int) -> None:
        more = [self._tokenizer.pad_id] * (length - len(self.ids))
        self.ids = more + self.ids if self._tokenizer.padding_side == "left" else self.ids + more
        self._padding += len(more)

    def __len__(self) -> int:
        return len(self.ids)

    def __repr__(self) -> str:
        return f"Encoding({' '.join(self.tokens)})"


class Batch(dict[str, Any]):
    """A dict of input_ids, token_type_ids, attention_mask and perhaps offset_mapping, with methods for the rest."""

    def __init__(
        self,
        encodings: list[Encoding],
        single: bool,
        padding: bool | str,
        max_length: int | None,
        offsets: bool,
        tensors: str | None,
    ):
        self.encodings = encodings
        if tensors not in (None, "np"):
            raise ValueError(f'return_tensors={tensors!r}, expected "np" for NumPy arrays or None for lists')
        if padding:
            length = padded_length(encodings, padding, max_length)
            for encoding in encodings:
                encoding.pad(length)
        fields = {
            "input_ids": [encoding.ids for encoding in encodings],
            "token_type_ids": [encoding.type_ids for encoding in encodings],
            "attention_mask": [encoding.attention_mask for encoding in encodings],
        }
        rows: dict[str, Any] = fields | (
            {"offset_mapping": [encoding.offsets for encoding in encodings]} if offsets else {}
        )
        if tensors == "np":
            lengths = sorted({len(encoding) for encoding in encodings})
            if len(lengths) > 1:
                raise ValueError(
                    f"texts of {lengths[0]} to {lengths[-1]} tokens do not fit into one array; pad them with "
                    "padding=True, and perhaps cut long ones with truncation=True, max_length=..."
                )
            shape = (len(encodings), lengths[0] if lengths else 0)
            for name, values in rows.items():
                rows[name] = np.array(values, np.int64).reshape(*shape, *[2] * (name == "offset_mapping"))
        elif single:
            rows = {name: values[0] for name, values in rows.items()}
        super().__init__(rows)

    def word_ids(self, i: int = 0) -> list[int | None]:
        """The word of each token of text i; None for special tokens and padding."""
        return self.encodings[i].word_ids

    def tokens(self, i: int = 0) -> list[str]:
        return self.encodings[i].tokens


def padded_length(encodings: Sequence[Encoding], padding: bool | str, max_length: int | None) -> int:
    longest = max(map(len, encodings), default=0)
    if padding in (True, "longest"):
        return longest
    if padding != "max_length":
        raise ValueError(f'padding={padding!r}, expected False, True, "longest" or "max_length"')
    if max_length is None:
        raise ValueError('padding="max_length" needs max_length, for example max_length=64')
    return max(longest, max_length)


def room(max_length: int | None, special: int) -> int:
    """The number of pieces of text that fit beside the special tokens."""
    if max_length is None:
        raise ValueError("truncation needs max_length, for example truncation=True, max_length=64")
    if not isinstance(max_length, int | np.integer):
        raise TypeError(f"max_length is {max_length!r}, expected a whole number, such as 64")
    if max_length < special:
        raise ValueError(
            f"max_length={max_length} is too small even for the {special} special tokens; use at least {special + 1}, "
            "or add_special_tokens=False"
        )
    return max_length - special


def cut(lengths: Sequence[int], space: int, truncation: bool | str) -> list[int]:
    """The lengths to which a text, or a text and its pair, are cut so that together they fit into `space`."""
    strategy = "longest_first" if truncation is True else truncation
    if strategy not in ("longest_first", "only_first", "only_second"):
        raise ValueError(
            f'truncation={truncation!r}, expected False, True, "longest_first", "only_first" or "only_second"'
        )
    excess = sum(lengths) - space
    if excess <= 0:
        return list(lengths)
    if space == 0:
        return [0] * len(lengths)
    if strategy == "longest_first":
        if len(lengths) == 1:
            return [space]
        short = min(*lengths, space // 2)  # the longer gets the rest; if both are cut, the second gets the odd token
        first = short if lengths[0] <= lengths[1] else space - short
        return [first, space - first]
    which = ("only_first", "only_second").index(str(strategy))
    if which >= len(lengths) or lengths[which] <= excess:
        have = f"has only {lengths[which]}" if which < len(lengths) else "is missing"
        raise ValueError(
            f"there are {excess} tokens too many, but truncation={truncation!r} cuts only the "
            f"{('first', 'second')[which]} text, which {have}; raise max_length or use truncation=True"
        )
    return [length - excess * (i == which) for i, length in enumerate(lengths)]
