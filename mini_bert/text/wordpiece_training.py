"""`mini-bert tokenizer train`: learn a WordPiece tokenizer from a corpus and measure it on held-out text."""

from __future__ import annotations

import time
from collections import Counter

from mini_bert.common.progress import showing
from mini_bert.corpora.reading import Report
from mini_bert.text.trained import Trained, hold_out, learnt, measured, shown
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
        texts = hold_out(corpus, column, held_out, report)
        words = count_words(texts, splitter, MAX_WORD_CHARS, processes, show)
        pieces = choose(words, vocab_size, MIN_FREQUENCY, limit_alphabet, show)
    tokenizer = WordPieceTokenizer(pieces, lowercase)
    unseen = Counter(word for text in held_out for word in splitter.words(text))
    tokens, unknown = tokens_per_word(tokenizer, unseen) if unseen else (0.0, 0.0)
    lengths = {piece: len(piece.removeprefix(PREFIX)) for piece in pieces[len(SPECIAL_TOKENS) :]}
    lines = [
        *learnt(len(pieces), vocab_size, words, report, began),
        measured(unseen.total(), tokens, f", {unknown:.4%} of the words are [UNK]"),
        f"Single characters among the pieces: {sum(length == 1 for length in lengths.values()):,}.",
        *shown({piece: length for piece, length in lengths.items() if length > 1}),
    ]
    return Trained(tokenizer, "\n".join(lines))
