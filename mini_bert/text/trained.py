"""Common to all kinds of `mini-bert tokenizer train`: documents held out, and a summary of what was learnt."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from mini_bert.common.progress import counted
from mini_bert.corpora.reading import Report, read
from mini_bert.text.base import Tokenizer
from mini_bert.text.vocabulary import MIN_FREQUENCY

HELD_OUT, MOST_HELD_OUT = 100, 1 << 21  # 1 document in 100, up to 2 million characters


class Trained(NamedTuple):
    tokenizer: Tokenizer
    summary: str  # what was read and learnt, for people


def hold_out(corpus: list[str], column: str | None, held_out: list[str], report: Report) -> Iterator[str]:
    """The text of a corpus except every hundredth document, which is appended to `held_out`."""
    document, size = -1, 0
    for text, first in read(corpus, report, column=column):
        document += first
        if document % HELD_OUT == HELD_OUT // 2 and size < MOST_HELD_OUT:
            held_out.append(text)
            size += len(text)
        else:
            yield text


def learnt(
    pieces: int,
    wanted: int,
    words: Mapping[str, int],
    report: Report,
    began: float,
    why: str = f"no other pair of pieces occurs {MIN_FREQUENCY} times",
) -> list[str]:
    """Lines about what was read, and how many pieces were learnt.

    began: by time.perf_counter. why: the reason if there are fewer pieces than wanted
    """
    lines = [
        f"Read {report}",
        f"Learnt {counted(pieces, 'piece')} from {counted(sum(words.values()), 'word')}, {len(words):,} of them "
        f"different, in {time.perf_counter() - began:.1f} s.",
    ]
    if pieces < wanted:
        lines.append(f"(That is fewer than {wanted:,}: {why}. More text would help.)")
    return lines


def measured(words: int, tokens: float, unknown: str = "") -> str:
    """A line about held-out text."""
    if not words:
        return "There are too few documents to hold one out and measure tokens per word on it."
    return f"On held-out text, {counted(words, 'word')}: {tokens:.4f} tokens per word{unknown}."


def shown(lengths: Mapping[str, int], order: str = "Learnt first") -> list[str]:
    """Lines with some of the pieces. lengths: of all pieces but single characters, in this order"""
    if not lengths:
        return []
    longest = sorted(lengths, key=lambda piece: (-lengths[piece], piece))
    return [f"{order}: {' '.join([*lengths][:12])}", f"Longest: {' '.join(longest[:8])}"]
