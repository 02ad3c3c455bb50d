"""`mini-bert tokenizer train`: learn a tokenizer of any kind from a corpus, and measure it on held-out text."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from mini_bert.common.progress import counted, showing
from mini_bert.common.wording import did_you_mean
from mini_bert.corpora.reading import Report, read
from mini_bert.text import bpe_learning, byte_level, unigram_learning, vocabulary
from mini_bert.text.base import Tokenizer
from mini_bert.text.bpe import BpeTokenizer
from mini_bert.text.bpe_conventions import DEBERTA, GPT2, MODERNBERT, ROBERTA, Conventions
from mini_bert.text.unigram import UnigramTokenizer
from mini_bert.text.unigram_conventions import ALBERT, XLNET, Style
from mini_bert.text.unigram_conventions import DEBERTA as DEBERTA_V3
from mini_bert.text.vocabulary import MAX_WORD_CHARS, MIN_FREQUENCY
from mini_bert.text.wordpiece import PREFIX, WordPieceTokenizer
from mini_bert.text.wordsplit import WordSplitter

LIKE: dict[str, dict[str, Any]] = {  # of each kind: models, and what decides their special tokens and templates
    "wordpiece": dict.fromkeys(("bert", "distilbert", "electra")),
    "bpe": {"roberta": ROBERTA, "gpt2": GPT2, "deberta": DEBERTA, "modernbert": MODERNBERT},
    "unigram": {"albert": ALBERT, "xlnet": XLNET, "deberta-v3": DEBERTA_V3},
}
HELD_OUT, MOST_HELD_OUT = 100, 1 << 21  # 1 document in 100, up to 2 million characters


class Trained(NamedTuple):
    tokenizer: Tokenizer
    summary: str  # what was read and learnt, for people


def kind_like(kind: str | None, like: str | None) -> tuple[str, str]:
    """The kind of tokenizer and the model to follow. Either may be left out: default WordPiece, as BERT's."""
    kind = kind or next((kind for kind, models in LIKE.items() if like in models), "wordpiece")
    if kind not in LIKE:
        raise ValueError(f"--kind is {kind!r}, expected one of {', '.join(LIKE)}{did_you_mean(kind, LIKE)}")
    if like is None or like in LIKE[kind]:
        return kind, like or next(iter(LIKE[kind]))
    known = [model for models in LIKE.values() for model in models]
    if like in known:
        raise ValueError(
            f"--like {like} has another kind of tokenizer than --kind {kind}; leave out --kind, or choose --like "
            f"{' or '.join(LIKE[kind])}"
        )
    raise ValueError(f"--like is {like!r}, expected a model: {', '.join(known)}{did_you_mean(like, known)}")


def wordpiece(
    corpus: list[str], vocab_size: int, lowercase: bool, limit_alphabet: int, processes: int | None, column: str | None
) -> Trained:
    vocabulary.check_sizes(vocab_size, limit_alphabet=limit_alphabet)
    splitter, text = WordSplitter(lowercase), Corpus(corpus, column)
    with showing(True) as show:
        words = vocabulary.count_words(text.others(), splitter, MAX_WORD_CHARS, processes, show)
        pieces = vocabulary.choose(words, vocab_size, MIN_FREQUENCY, limit_alphabet, show)
    return text.trained(WordPieceTokenizer(pieces, lowercase), vocab_size, words, splitter.words)


def unigram(
    corpus: list[str],
    vocab_size: int,
    lowercase: bool,
    limit_alphabet: int,
    processes: int | None,
    column: str | None,
    style: Style = ALBERT,
) -> Trained:
    vocabulary.check_sizes(vocab_size, limit_alphabet=limit_alphabet)
    splitter, text = unigram_learning.Splitter(lowercase), Corpus(corpus, column)
    with showing(True) as show:
        words = vocabulary.count_words(text.others(), splitter, MAX_WORD_CHARS, processes, show)
        found = unigram_learning.choose(words, vocab_size, limit_alphabet, show)
    tokenizer = UnigramTokenizer(**unigram_learning.arguments(*found, splitter, style))
    return text.trained(
        tokenizer, vocab_size, words, str.split, "no other part of a word occurs often enough", "Most frequent"
    )


def bpe(
    corpus: list[str], vocab_size: int, processes: int | None, column: str | None, rules: Conventions = ROBERTA
) -> Trained:
    bpe_learning.check_sizes(vocab_size, rules)
    text = Corpus(corpus, column)
    with showing(True) as show:
        words = bpe_learning.count_words(text.others(), processes, show, rules.compose)
        found = bpe_learning.choose(words, vocab_size, rules, MIN_FREQUENCY, show)
    return text.trained(BpeTokenizer(*found), vocab_size, words, byte_level.words)


class Corpus:
    """Text from which every hundredth document is held out, and what was learnt from the others."""

    def __init__(self, sources: list[str], column: str | None):
        self.sources, self.column = sources, column
        self.began = time.perf_counter()
        self.report = Report()
        self.held_out: list[str] = []

    def others(self) -> Iterator[str]:
        """The text that is not held out."""
        document, size = -1, 0
        for text, first in read(self.sources, self.report, column=self.column):
            document += first
            if document % HELD_OUT == HELD_OUT // 2 and size < MOST_HELD_OUT:
                self.held_out.append(text)
                size += len(text)
            else:
                yield text

    def trained(
        self,
        tokenizer: Tokenizer,
        wanted: int,
        words: Mapping[str, int],
        split: Callable[[str], Sequence[str]],
        why: str = f"no other pair of pieces occurs {MIN_FREQUENCY} times",
        order: str = "Learnt first",
    ) -> Trained:
        """split: into the words of held-out text. why: the reason if there are fewer pieces than wanted."""
        lines = [
            f"Read {self.report}",
            f"Learnt {counted(len(tokenizer), 'piece')} from {counted(sum(words.values()), 'word')}, {len(words):,} of "
            f"them different, in {time.perf_counter() - self.began:.1f} s.",
        ]
        if len(tokenizer) < wanted:
            lines.append(f"(That is fewer than {wanted:,}: {why}. More text would help.)")
        lines.append(self._measured(tokenizer, sum(len(split(text)) for text in self.held_out)))
        ids = [i for i in range(len(tokenizer)) if i not in tokenizer.special_ids]
        lengths = {tokenizer.readable(i): len(tokenizer.piece_text(i)) for i in ids}
        if not isinstance(tokenizer, BpeTokenizer):
            single = sum(len(piece.removeprefix(PREFIX)) == 1 for piece in lengths)
            lines.append(f"Single characters among the pieces: {single:,}.")
        longer = [piece for piece, length in lengths.items() if length > 1]
        if longer:
            longest = sorted(longer, key=lambda piece: (-lengths[piece], piece))
            lines += [f"{order}: {' '.join(longer[:12])}", f"Longest: {' '.join(longest[:8])}"]
        return Trained(tokenizer, "\n".join(lines))

    def _measured(self, tokenizer: Tokenizer, words: int) -> str:
        if not words:
            return "There are too few documents to hold one out and measure tokens per word on it."
        rows = tokenizer.ids(self.held_out, special=False)
        tokens, unknown = sum(map(len, rows)), sum(row.count(tokenizer.unk_id) for row in rows)
        line = f"On held-out text, {counted(words, 'word')}: {tokens / words:.4f} tokens per word"
        if isinstance(tokenizer, BpeTokenizer):  # it spells everything
            return f"{line}."
        whole = isinstance(tokenizer, WordPieceTokenizer)  # there, a word as a whole is unknown
        share = unknown / (words if whole else max(tokens, 1))
        return f"{line}, {share:.4%} of the {'words' if whole else 'tokens'} are {tokenizer.roles['unk']}."
