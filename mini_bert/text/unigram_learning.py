"""Learning the pieces of a Unigram tokenizer and their probabilities.

    from mini_bert.text.unigram import UnigramTokenizer

    tokenizer = UnigramTokenizer.train("my_texts/", vocab_size=8192)

BPE and WordPiece build a vocabulary up, by merging. Unigram (Kudo 2018, arXiv:1804.10959) begins with far too many
pieces and takes away those that are missed least:

    1   count the words of the text; only this table is needed from here on
    2   the first pieces: all characters, and the frequent substrings of words
    3   estimate the probabilities of the pieces, twice, by expectation-maximisation (text/unigram_em.py)
    4   take away the quarter of the pieces that the likelihood of the text loses least by
    5   again from 3, until the vocabulary is small enough

Words are cut at spaces, and between letters and all other characters, so that no piece has both. Rare characters get no
piece, and become <unk>.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

from mini_bert.common.progress import Show, counted, showing
from mini_bert.text.chunk_spans import SPACE
from mini_bert.text.mark_tables import EXTENDING
from mini_bert.text.metaspace_text import MetaspaceText
from mini_bert.text.unigram_conventions import ALBERT, Style
from mini_bert.text.unigram_em import Pieces, Substrings
from mini_bert.text.vocabulary import MAX_WORD_CHARS, check_sizes, count_characters, count_words, texts_of
from mini_bert.text.wordsplit import WordSplitter

SEEDS = 24  # times as many pieces at first as in the end
RARER = 100  # times as rare as the average piece, and a substring is not considered
SHRINK = 0.75  # of the pieces are kept each time
ROUNDS = 2  # of expectation-maximisation before each
SURPLUS = 1.1  # times the final size: here the last estimation is made, and the most probable pieces are kept
DIGITS = 5  # of scores, after the decimal point


class Splitter(WordSplitter):
    """Cuts text into the parts of words that pieces can be made of, instead of BERT's words."""

    def __init__(self, lowercase: bool = True):
        super().__init__(lowercase)
        self.rules = rules_for(lowercase)
        self._text = MetaspaceText.read(self.rules["normalizer"], self.rules["pre_tokenizer"])

    def chunks(self, text: str) -> list[str]:
        return text.split()

    def words(self, text: str) -> list[str]:
        pattern = _ASCII_PART if text.isascii() else _PART
        return pattern.findall(self._text.normalised(text))

    def __reduce__(self):
        return Splitter, (self.lowercase,)


_MARKS = re.escape("".join(EXTENDING))
_PART = re.compile(rf"{SPACE}?(?:(?:[^\W\d_]|[{_MARKS}])+|(?:(?![{SPACE}{_MARKS}])[\W\d_])+)|{SPACE}")
_ASCII_PART = re.compile(f"{SPACE}?(?:[A-Za-z]+|[^A-Za-z{SPACE}]+)|{SPACE}")


def rules_for(lowercase: bool) -> dict[str, Any]:
    """The rules for text of a new tokenizer: those of ALBERT; with upper case and accents, only NFKC and quotes."""
    quotes = [{"type": "Replace", "pattern": {"String": two}, "content": '"'} for two in ("``", "''")]
    names = ("NFKD", "StripAccents", "Lowercase") if lowercase else ("NFKC",)
    return {
        "type": "tokenizers",
        "normalizer": {"type": "Sequence", "normalizers": [*quotes, *({"type": name} for name in names)]},
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [
                {"type": "WhitespaceSplit"},
                {"type": "Metaspace", "replacement": SPACE, "prepend_scheme": "always", "split": True},
            ],
        },
    }


def learn(
    source: Any,
    vocab_size: int = 8192,
    lowercase: bool = True,
    limit_alphabet: int = 1000,
    processes: int | None = None,
    progress: bool = True,
    style: Style = ALBERT,
) -> dict[str, Any]:
    """The arguments of a UnigramTokenizer for a text.

    source           a path, a list of paths, or any other source of `mini_bert.corpora.reading.read`; or an iterator
                     of texts, which may together be larger than memory. For a list of texts: iter(texts)
    vocab_size       the number of pieces, special tokens included; a small text may give fewer
    lowercase        also drops accents
    limit_alphabet   the number of different characters to keep, the most frequent; others become <unk>
    processes        processes that count words in parallel; None: one per core, up to 3
    style            special tokens and templates: ALBERT, XLNET or DEBERTA of text/unigram_conventions.py
    """
    check_sizes(vocab_size, limit_alphabet=limit_alphabet)
    splitter = Splitter(lowercase)
    with showing(progress) as show:
        words = count_words(texts_of(source), splitter, MAX_WORD_CHARS, processes, show)
        pieces, scores = choose(words, vocab_size, limit_alphabet, show)
    return arguments(pieces, scores, splitter, style)


def arguments(pieces: list[str], scores: list[float], splitter: Splitter, style: Style = ALBERT) -> dict[str, Any]:
    special = list(style.roles.values())
    return {
        "vocab": [*special, *pieces],
        "scores": [0.0] * len(special) + scores,
        "roles": dict(style.roles),
        "rules": splitter.rules,
        **style.layout._asdict(),
    }


def choose(words: Mapping[str, int], vocab_size: int, limit_alphabet: int, show: Show) -> tuple[list[str], list[float]]:
    """The pieces for a table of words, the most probable first, and their scores."""
    room = vocab_size - len(ALBERT.roles)
    words, characters = frequent_alphabet(words, limit_alphabet)
    if not words:
        raise ValueError("there is no word in the text, so nothing can be learnt from it")
    if room < len(characters):
        raise ValueError(
            f"vocab_size is {vocab_size:,}, but {len(ALBERT.roles)} special tokens and {len(characters):,} single "
            f"characters already need {len(ALBERT.roles) + len(characters):,}; raise vocab_size, or lower "
            f"limit_alphabet, which is {limit_alphabet:,}"
        )
    show("substrings", counted(len(words), "different word"), 0, None)
    rarest = max(2.0, sum(words.values()) / (RARER * vocab_size))
    pieces = Substrings(words, rarest).seeds(SEEDS * vocab_size)
    enough = int(SURPLUS * room)
    while True:
        for _ in range(ROUNDS):
            pieces.estimate()
        show("pruning", counted(len(pieces), "piece"), 0, None)
        if len(pieces) <= enough:
            break
        pieces.prune(max(enough, int(SHRINK * len(pieces))))
    return finished(pieces, characters, room)


def frequent_alphabet(words: Mapping[str, int], limit: int) -> tuple[dict[str, int], list[str]]:
    """The words without rare characters, at which they are cut, and the characters that are kept, with ▁."""
    seen = count_characters(words)
    seen.pop(SPACE, None)
    kept = sorted(seen, key=lambda character: (-seen[character], character))[:limit]
    if len(kept) < len(seen):
        known = re.compile(f"[{re.escape(SPACE + ''.join(kept))}]+")
        cut: Counter[str] = Counter()
        for word, count in words.items():
            for part in known.findall(word):
                cut[part] += count
        words = cut
    return dict(words), [SPACE, *kept]


def finished(pieces: Pieces, characters: list[str], room: int) -> tuple[list[str], list[float]]:
    """The most probable pieces and all characters; a character that was pruned gets the lowest score."""
    scores = dict(zip(pieces.texts(), pieces.scores.round(DIGITS).tolist(), strict=True))
    lowest = min(scores.values())
    chosen = {character: scores.get(character, lowest) for character in characters}
    for text in sorted(scores, key=lambda text: (-scores[text], text)):
        if len(chosen) == room:
            break
        chosen.setdefault(text, scores[text])
    texts = sorted(chosen, key=lambda text: (-chosen[text], text))
    return texts, [chosen[text] for text in texts]
