"""`mini-bert tokenizer train`: learn a WordPiece tokenizer from a corpus and measure it on held-out text."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from mini_bert.common.progress import counted, showing
from mini_bert.corpora.reading import Report, read
from mini_bert.text.vocabulary import (
    MAX_WORD_CHARS,
    MIN_FREQUENCY,
    check_sizes,
    choose,
    count_words,
    tokens_per_word,
)
from mini_bert.text.wordpiece import PREFIX, SPECIAL_TOKENS, WordPieceTokenizer
from mini_bert.text.wordsplit import WordSplitter

HELD_OUT, MOST_HELD_OUT = 100, 1 << 21  # 1 document in 100, up to 2 million characters


class Trained(NamedTuple):
    tokenizer: WordPieceTokenizer
    summary: str  # what was read and learnt, for people


def train(
    corpus: list[str],
    vocab_size: int = 8192,
    lowercase: bool = True,
    limit_alphabet: int = 1000,
    processes: int | None = None,
    column: str | None = None,
) -> Trained:
    """Learn a tokenizer from a corpus, and measure it on one document in a hundred, which is held out."""
    check_sizes(vocab_size, limit_alphabet=limit_alphabet)
    began = time.perf_counter()
    report, held_out = Report(), list[str]()
    splitter = WordSplitter(lowercase)
    with showing(True) as show:
        texts = _hold_out(corpus, column, held_out, report)
        words = count_words(texts, splitter, MAX_WORD_CHARS, processes, show)
        pieces = choose(words, vocab_size, MIN_FREQUENCY, limit_alphabet, show)
    tokenizer = WordPieceTokenizer(pieces, lowercase)
    lines = [
        f"Read {report}",
        f"Learnt {counted(len(pieces), 'piece')} from {counted(sum(words.values()), 'word')}, {len(words):,} of them "
        f"different, in {time.perf_counter() - began:.1f} s.",
    ]
    if len(pieces) < vocab_size:
        lines.append(
            f"(That is fewer than {vocab_size:,}: no other pair of pieces occurs {MIN_FREQUENCY} times. "
            "More text would help.)"
        )
    unseen = Counter(word for text in held_out for word in splitter.words(text))
    if unseen:
        tokens, unknown = tokens_per_word(tokenizer, unseen)
        lines.append(
            f"On held-out text, {counted(sum(unseen.values()), 'word')}: {tokens:.4f} tokens per word, "
            f"{unknown:.4%} of the words are [UNK]."
        )
    else:
        lines.append("There are too few documents to hold one out and measure tokens per word on it.")
    lengths = {piece: len(piece.removeprefix(PREFIX)) for piece in pieces[len(SPECIAL_TOKENS) :]}
    lines.append(f"Single characters among the pieces: {sum(length == 1 for length in lengths.values()):,}.")
    if merged := [piece for piece, length in lengths.items() if length > 1]:
        longest = sorted(merged, key=lambda piece: (-lengths[piece], piece))
        lines += [f"Learnt first: {' '.join(merged[:12])}", f"Longest: {' '.join(longest[:8])}"]
    return Trained(tokenizer, "\n".join(lines))


def _hold_out(corpus: list[str], column: str | None, held_out: list[str], report: Report) -> Iterator[str]:
    """The text of a corpus except every hundredth document, which is appended to `held_out`."""
    document, size = -1, 0
    for text, first in read(corpus, report, column=column):
        document += first
        if document % HELD_OUT == HELD_OUT // 2 and size < MOST_HELD_OUT:
            held_out.append(text)
            size += len(text)
        else:
            yield text
