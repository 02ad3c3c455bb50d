"""Learning byte-level BPE: which pairs of pieces are merged.

    from mini_bert.text.bpe_learning import learn

    pieces, merges, conventions = learn("my_texts/", vocab_size=8192)

At first, every word is spelt with single bytes. Find the pair of neighbours that occurs most often in all words, make
it one piece, and repeat, until the vocabulary is full (Sennrich, Haddow and Birch 2016, arXiv:1508.07909; with bytes,
Radford et al. 2019).

    count   word     spelt at first    after t+h     after th+e     after Ġ+the    Ġ is a space
      5     Ġthe     Ġ t h e           Ġ th e        Ġ the          Ġthe
      2     then     t h e n           th e n        the n          the n

Unlike for WordPiece (text/vocabulary.py), pieces that are only steps on the way to longer ones cannot be dropped, since
text is spelt by the same merges in the same order. Of pairs that occur equally often, the one with the older pieces is
merged first. This is the rule of the `tokenizers` library, so both learn the same merges.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from mini_bert.common.processes import in_order
from mini_bert.common.progress import Show, counted, showing
from mini_bert.text.bpe_conventions import END_OF_TEXT, ROBERTA, Conventions
from mini_bert.text.byte_level import BYTE_CHARACTERS, as_bytes, words, written
from mini_bert.text.canonical import composed
from mini_bert.text.pair_counts import PairCounts
from mini_bert.text.vocabulary import BLOCK, MIN_FREQUENCY, MOST_PIECES, SLAB, add_up, texts_of

LONGEST_TEXT = BLOCK * SLAB  # characters; longer texts are cut

Learnt = tuple[list[str], list[tuple[str, str]], Conventions]  # pieces in the order of their ids, merges, rules


def learn(
    source: Any,
    vocab_size: int = 8192,
    conventions: Conventions = ROBERTA,
    min_frequency: int = MIN_FREQUENCY,
    processes: int | None = None,
    progress: bool = True,
) -> Learnt:
    """The arguments of a `BpeTokenizer`: special tokens, 256 bytes, pieces in the order learnt; the merges.

    source           a path, a list of paths, or any other source of `mini_bert.corpora.reading.read`; or an iterator
                     of texts, which may together be larger than memory. For a list of texts: iter(texts)
    vocab_size       the number of pieces, special tokens included; a small text may give fewer
    conventions      special tokens and templates: ROBERTA, GPT2, DEBERTA or MODERNBERT of text/bpe_conventions.py
    min_frequency    pairs that occur less often are not merged
    processes        processes that count words in parallel; None: one per core, up to 3

    The same text gives the same merges for any number of processes.
    """
    check_sizes(vocab_size, conventions, min_frequency)
    with showing(progress) as show:
        table = count_words(texts_of(source), processes, show, conventions.compose)
        return choose(table, vocab_size, conventions, min_frequency, show)


def check_sizes(vocab_size: int, conventions: Conventions, min_frequency: int = 1) -> None:
    if min_frequency < 1:
        raise ValueError(f"min_frequency is {min_frequency}, expected at least 1")
    least = len(set(conventions.roles.values())) + len(BYTE_CHARACTERS)
    if not least <= vocab_size <= MOST_PIECES:
        raise ValueError(
            f"vocab_size is {vocab_size:,}, expected at least {least}, for {least - 256} special tokens and 256 bytes, "
            f"and at most {MOST_PIECES:,}; 8192 is usual for a small model, 50000 for a large one"
        )


# --- from text to words and counts -------------------------------------------------------------------------


def count_words(texts: Iterable[str], processes: int | None, show: Show, compose: bool = False) -> Counter[str]:
    """How often each word occurs; bytes are written as printable characters. In bounded memory, see `add_up`.

    compose: normalise text to NFC first, as the tokenizer will
    """
    return add_up(in_order(count_block, compose, blocks(texts), processes), show)


def count_block(compose: bool, block: list[str]) -> tuple[int, str, array[int]]:
    """Returns the number of characters, the different words, and the count of each."""
    found: Counter[str] = Counter()
    for text in block:
        found.update(words(composed(text)[0] if compose else text))
    return sum(map(len, block)), " ".join(written(as_bytes(word)) for word in found), array("q", found.values())


def blocks(texts: Iterable[str]) -> Iterator[list[str]]:
    """Lists of about LONGEST_TEXT characters."""
    block: list[str] = []
    size = 0
    for text in texts:
        for part in parts(text, LONGEST_TEXT):
            block.append(part)
            size += len(part)
            if size >= LONGEST_TEXT:
                yield block
                block, size = [], 0
    if block:
        yield block


def parts(text: str, size: int) -> Iterator[str]:
    """Cuts a long text, at a place where a word begins if there is one: before a space."""
    start = 0
    while len(text) - start > size:
        end = text.rfind(" ", start + size // 2, start + size)
        end = start + size if end < 0 else end
        yield text[start:end]
        start = end
    yield text[start:]


# --- from words to merges ----------------------------------------------------------------------------------


def choose(
    table: Mapping[str, int], vocab_size: int, conventions: Conventions, min_frequency: int, show: Show
) -> Learnt:
    """The vocabulary and the merges for a table of words."""
    if not table:
        raise ValueError("there is no word in the text, so nothing can be learnt from it")
    alphabet = sorted(BYTE_CHARACTERS)
    symbols = {ord(character): chr(i) for i, character in enumerate(alphabet)}
    merging = PairCounts(alphabet, [word.translate(symbols) for word in table], table.values())
    special = dict.fromkeys(conventions.roles.values())
    last = [
        token for token in special if token in (conventions.roles.get("mask"), END_OF_TEXT)
    ]  # as in published models
    first = [token for token in special if token not in last]
    room = vocab_size - len(special) - len(alphabet)
    merges: list[tuple[str, str]] = []
    while len(merging.pieces) - len(alphabet) < room and (pair := merging.best(min_frequency)):
        merges.append((merging.pieces[ord(pair[0])], merging.pieces[ord(pair[1])]))
        merging.merge(pair)
        if len(merges) % 100 == 0:
            show("merging", counted(len(merges), "piece"), len(merges), room)
    show("merging", counted(len(merges), "piece"), room, room)
    return [*first, *merging.pieces, *last], merges, conventions
