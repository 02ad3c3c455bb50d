"""`mini-bert tokenizer train --kind bpe`: learn a byte-level BPE tokenizer and measure it on held-out text."""

from __future__ import annotations

import time

from mini_bert.common.progress import showing
from mini_bert.corpora.reading import Report
from mini_bert.text.bpe import BpeTokenizer
from mini_bert.text.bpe_conventions import GPT2, ROBERTA
from mini_bert.text.bpe_learning import check_sizes, choose, count_words
from mini_bert.text.byte_level import words
from mini_bert.text.trained import Trained, hold_out, learnt, measured, shown
from mini_bert.text.vocabulary import MIN_FREQUENCY


def train(
    corpus: list[str],
    vocab_size: int = 8192,
    like: str = "roberta",
    processes: int | None = None,
    column: str | None = None,
) -> Trained:
    """Learn a tokenizer from a corpus, and measure it on one document in a hundred, which is held out.

    like: "roberta" or "gpt2", whose special tokens and templates it gets
    """
    styles = {"roberta": ROBERTA, "gpt2": GPT2}
    if like not in styles:
        raise ValueError(f"--like is {like!r}, expected {' or '.join(styles)}, whose special tokens are used")
    check_sizes(vocab_size, styles[like])
    began = time.perf_counter()
    report, held_out = Report(), list[str]()
    with showing(True) as show:
        table = count_words(hold_out(corpus, column, held_out, report), processes, show)
        found = choose(table, vocab_size, styles[like], MIN_FREQUENCY, show)
    tokenizer = BpeTokenizer(*found)
    words_seen = sum(len(words(text)) for text in held_out)
    pieces_seen = sum(map(len, tokenizer.ids(held_out, special=False)))
    lines = [
        *learnt(len(tokenizer), vocab_size, table, report, began),
        measured(words_seen, pieces_seen / max(words_seen, 1)),
        *shown({left + right: len(left + right) for left, right in tokenizer.merges}),
    ]
    return Trained(tokenizer, "\n".join(lines))
