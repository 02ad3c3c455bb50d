"""`mini-bert tokenizer train --kind unigram`: learn a tokenizer from a corpus and measure it on held-out text."""

from __future__ import annotations

import time
from collections.abc import Iterable

from mini_bert.common.progress import showing
from mini_bert.corpora.reading import Report
from mini_bert.text.sentencepiece_text import SPACE
from mini_bert.text.trained import Trained, hold_out, learnt, measured, shown
from mini_bert.text.unigram import UnigramTokenizer
from mini_bert.text.unigram_learning import MAX_WORD_CHARS, Splitter, arguments, check_sizes, choose
from mini_bert.text.vocabulary import count_words


def train(
    corpus: list[str],
    vocab_size: int = 8192,
    lowercase: bool = True,
    limit_alphabet: int = 1000,
    processes: int | None = None,
    column: str | None = None,
) -> Trained:
    """Learn a tokenizer from a corpus, and measure it on one document in a hundred, which is held out."""
    check_sizes(vocab_size, limit_alphabet)
    began = time.perf_counter()
    report, held_out = Report(), list[str]()
    splitter = Splitter(lowercase)
    with showing(True) as show:
        words = count_words(hold_out(corpus, column, held_out, report), splitter, MAX_WORD_CHARS, processes, show)
        pieces, scores = choose(words, vocab_size, limit_alphabet, show)
    tokenizer = UnigramTokenizer(**arguments(pieces, scores, splitter))
    unseen, tokens, unknown = tokens_per_word(tokenizer, held_out)
    lengths = {piece: len(piece.removeprefix(SPACE)) for piece in pieces}
    lines = [
        *learnt(len(tokenizer), vocab_size, words, report, began, "no other part of a word occurs often enough"),
        measured(unseen, tokens, f", {unknown:.4%} of the tokens are <unk>"),
        f"Single characters among the pieces: {sum(len(piece) == 1 for piece in pieces):,}.",
        *shown({piece: length for piece, length in lengths.items() if length > 1}, "Most frequent"),
    ]
    return Trained(tokenizer, "\n".join(lines))


def tokens_per_word(tokenizer: UnigramTokenizer, texts: Iterable[str]) -> tuple[int, float, float]:
    """The number of words between spaces, the mean number of tokens per word, and the share of <unk>."""
    words = pieces = unknown = 0
    for text in texts:
        ids = tokenizer.plain_ids(text)
        words += len(text.split())
        pieces += len(ids)
        unknown += ids.count(tokenizer.unk_id)
    return words, pieces / max(words, 1), unknown / max(pieces, 1)
