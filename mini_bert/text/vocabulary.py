"""Learning a vocabulary: which pieces of words get an entry.

    from mini_bert.text.vocabulary import learn

    pieces = learn("my_texts/", vocab_size=8192)   # [PAD] [UNK] [CLS] [SEP] [MASK], characters, then learnt pieces

There are two steps. First, count how often each word occurs; the second step needs only this table. Then merge. At the
start every word is spelt with single characters, and those that continue a word are marked ##. Find the pair of
neighbours that occurs most often in all words, make it one piece, and repeat.

    count   word     spelt at first     after t + ##h    after th + ##e    after a + ##t
      5     the      t ##h ##e          th ##e           the               the
      2     then     t ##h ##e ##n      th ##e ##n       the ##n           the ##n
      3     at       a ##t              a ##t            a ##t             at

    The pair t ##h occurs 7 times, a ##t 3 times: t ##h is first. Then th ##e, 7 times. Then a ##t.

So far this is byte-pair encoding (Sennrich, Haddow and Birch 2016, arXiv:1508.07909), which the `tokenizers` library
also uses to train a WordPiece vocabulary. But most pieces are only intermediate steps: once "the" exists, none of the
7 "th" above is left, and its entry is wasted. So each piece must earn its entry: **we keep merging until enough pieces
are still used at least as often as the best remaining pair, and keep those.** (A use is an occurrence in the text as
it is spelt in the end.) Then no piece of the vocabulary is used less often than one that was left out, or than one
that could still be merged. Text takes fewer pieces, and fewer rows of the model's embedding belong to tokens that it
hardly ever sees; docs/vocabulary.md has numbers.

Single characters always stay, so that every word of these characters can be spelt.
"""

from __future__ import annotations

import os
import re
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from mini_bert.common.processes import in_order
from mini_bert.common.progress import Show, counted, roughly, showing
from mini_bert.corpora.reading import read
from mini_bert.text.pair_counts import PairCounts
from mini_bert.text.wordpiece_files import PREFIX, SPECIAL_TOKENS
from mini_bert.text.wordsplit import WordSplitter

if TYPE_CHECKING:
    from mini_bert.text.wordpiece import WordPieceTokenizer

SLAB = 1 << 20  # characters that are cut into chunks at once
LONGEST_CHUNK = 1 << 20  # characters without a space
BLOCK = 2  # slabs per job; larger blocks are a little faster but take more memory
MOST_WORDS = 1 << 19  # different words in the table; learning from this many takes about 400 MB
MOST_PIECES = 1_000_000  # each is one character of Python's 1,114,112
MIN_FREQUENCY = 2
MAX_WORD_CHARS = 100


def learn(
    source: str | os.PathLike[str] | Iterable[Any],
    vocab_size: int = 8192,
    lowercase: bool = True,
    strip_accents: bool | None = None,
    chinese_spacing: bool = True,
    min_frequency: int = MIN_FREQUENCY,
    limit_alphabet: int = 1000,
    max_word_chars: int = MAX_WORD_CHARS,
    processes: int | None = None,
    progress: bool = True,
) -> list[str]:
    """The vocabulary of a text, in the order of the ids: special tokens, characters, pieces in the order learnt.

    source           a path, a list of paths, or any other source of `mini_bert.corpora.reading.read`; or an iterator
                     of texts, which may together be larger than memory. For a list of texts: iter(texts)
    vocab_size       the number of pieces, special tokens included; a small text may give fewer
    lowercase, strip_accents, chinese_spacing      how text is split into words, see `WordSplitter`
    min_frequency    pairs that occur less often are not merged
    limit_alphabet   the number of different characters to keep, the most frequent; words with others become [UNK]
    max_word_chars   longer words are ignored; the tokenizer makes them [UNK]
    processes        processes that count words in parallel; None: one per core, up to 3

    The same text gives the same vocabulary for any number of processes.
    """
    check_sizes(vocab_size, min_frequency=min_frequency, limit_alphabet=limit_alphabet, max_word_chars=max_word_chars)
    splitter = WordSplitter(lowercase, strip_accents, chinese_spacing)
    with showing(progress) as show:
        words = count_words(texts_of(source), splitter, max_word_chars, processes, show)
        return choose(words, vocab_size, min_frequency, limit_alphabet, show)


def tokens_per_word(tokenizer: WordPieceTokenizer, words: Mapping[str, int]) -> tuple[float, float]:
    """Returns the mean number of pieces per word, and the share of words that are [UNK]."""
    pieces = unknown = 0
    for word, count in words.items():
        ids = tokenizer.match(word)
        pieces += count * len(ids)
        unknown += count * (ids == (tokenizer.unk_id,))
    total = sum(words.values())
    return pieces / total, unknown / total


def check_sizes(vocab_size: int, **at_least_1: int) -> None:
    for name, value in at_least_1.items():
        if value < 1:
            raise ValueError(f"{name} is {value}, expected at least 1")
    if not len(SPECIAL_TOKENS) < vocab_size <= MOST_PIECES:
        raise ValueError(
            f"vocab_size is {vocab_size:,}, expected more than the {len(SPECIAL_TOKENS)} special tokens and at most "
            f"{MOST_PIECES:,}; 8192 is usual for a small model, 30000 to 50000 for a large one"
        )


def texts_of(source: Any) -> Iterator[str]:
    """The texts of a corpus, or of an iterator of texts."""
    if isinstance(source, str | os.PathLike | list | tuple):
        for passage in read(source):
            yield passage.text
        return
    if not isinstance(source, Iterable):
        raise TypeError(f"source is a {type(source).__name__}, expected a path, a list of paths or an iterator of str")
    for number, text in enumerate(source):
        if not isinstance(text, str):
            raise TypeError(f"text {number} of the iterator is a {type(text).__name__}, expected str: {text!r:.60}")
        yield text


# --- from text to words and counts -------------------------------------------------------------------------


def count_words(
    texts: Iterable[str], splitter: WordSplitter, max_word_chars: int, processes: int | None, show: Show
) -> Counter[str]:
    """How often each word occurs, in bounded memory.

    The text alone decides how it is divided into jobs, and results are added in the order of the text, so the number of
    processes does not affect the counts.
    """
    return add_up(in_order(count_block, (splitter, max_word_chars), blocks(texts), processes), show)


def add_up(blocks: Iterable[tuple[int, str, array[int]]], show: Show) -> Counter[str]:
    """One table from those of many blocks: the size of each, its words, and the count of each word.

    If there are more than MOST_WORDS different words, the rarest are dropped: those that occurred once so far, then, if
    that is not enough, those that occurred twice, and so on.
    """
    words: Counter[str] = Counter()
    dropped, done = 0, 0
    for size, block_words, counts in blocks:
        for word, count in zip(block_words.split(), counts, strict=True):
            words[word] += count
        if len(words) > MOST_WORDS:
            dropped += drop_rarest(words, MOST_WORDS // 4 * 3)
        done += size
        note = f"{roughly(done, 'character')}, {counted(len(words), 'different word')}"
        if dropped:
            note += f" ({dropped:,} rare ones dropped)"
        show("counting", note, done, None)
    return words


def blocks(texts: Iterable[str]) -> Iterator[list[str]]:
    """Lists of BLOCK slabs: the jobs of `count_words`."""
    block: list[str] = []
    for slab in slabs(texts, SLAB):
        block.append(slab)
        if len(block) == BLOCK:
            yield block
            block = []
    if block:
        yield block


def slabs(texts: Iterable[str], size: int) -> Iterator[str]:
    """Joins short texts and cuts long ones at a space, into strings of about `size` characters.

    Where a million characters have no space (Chinese, or not text at all), the cut is made anyway.
    """
    held: list[str] = []
    length = 0
    for text in texts:
        start = 0
        while len(text) - start > size:
            space = _SPACE.search(text, start + size, start + size + LONGEST_CHUNK)
            end = space.end() if space else start + size + LONGEST_CHUNK
            yield text[start:end]
            start = end
        held.append(text[start:] if start else text)
        length += len(held[-1]) + 1
        if length >= size:
            yield "\n".join(held)
            held, length = [], 0
    if held:
        yield "\n".join(held)


_SPACE = re.compile(r"[ \t\r\n]")


def count_block(state: tuple[WordSplitter, int], block: list[str]) -> tuple[int, str, array[int]]:
    """Returns the number of characters, the different words and the count of each.

    The words are joined in one string, which takes a tenth of the memory of a dict. Chunks between white space are
    counted first, by `Counter`'s fast loop, and only different chunks are split into words; chunks with equal counts
    are split in one call.
    """
    splitter, max_word_chars = state
    chunks: Counter[str] = Counter()
    for slab in block:
        chunks.update(splitter.chunks(slab))
    alike: defaultdict[tuple[int, bool], list[str]] = defaultdict(list)
    for chunk, count in chunks.items():
        alike[count, chunk.isascii()].append(chunk)
    words: defaultdict[str, int] = defaultdict(int)
    for (count, _), group in alike.items():
        for text in slabs(group, 1 << 16):
            for word in splitter.words(text):
                words[word] += count
    short = [word for word in words if len(word) <= max_word_chars]
    return sum(map(len, block)), " ".join(short), array("q", [words[word] for word in short])


def drop_rarest(words: Counter[str], most: int) -> int:
    """Removes the words that occurred once, twice, ... until at most `most` are left. Returns the number removed."""
    have = Counter(words.values())
    left, limit = len(words), 0
    while left > most:
        limit += 1
        left -= have[limit]
    dropped = len(words) - left
    for word in [word for word, count in words.items() if count <= limit]:
        del words[word]
    return dropped


# --- from words to pieces ----------------------------------------------------------------------------------


def choose(words: Mapping[str, int], vocab_size: int, min_frequency: int, limit_alphabet: int, show: Show) -> list[str]:
    """The vocabulary for a table of words."""
    if not words:
        raise ValueError("there is no word in the text, so nothing can be learnt from it")
    merges = Merges(frequent_alphabet(words, limit_alphabet))
    characters = len(merges.pieces)
    room = vocab_size - len(SPECIAL_TOKENS) - characters
    if room < 0:
        raise ValueError(
            f"vocab_size is {vocab_size:,}, but {len(SPECIAL_TOKENS)} special tokens and {characters:,} pieces for "
            f"single characters, at the start of words and inside, already need {len(SPECIAL_TOKENS) + characters:,}; "
            f"raise vocab_size, or lower limit_alphabet, which is {limit_alphabet:,}"
        )
    look = room  # after this many merges, count the pieces that earn their entry
    while pair := merges.best(min_frequency):
        learnt = len(merges.pieces) - characters
        if learnt >= look:
            best = merges.pairs[pair]
            earning = sum(use >= best for use in merges.uses[characters:])
            if earning >= room:
                break
            look = learnt + max(1, room - earning, room // 1000)
        merges.merge(pair)
        if learnt % 100 == 0:
            show("merging", counted(learnt, "piece"), min(learnt, room), room)
    learnt = len(merges.pieces) - characters
    show("merging", counted(learnt, "piece") + (f", keeping {room:,}" if learnt > room else ""), room, room)
    by_use = sorted(range(characters, len(merges.pieces)), key=lambda i: (-merges.uses[i], i))
    kept = sorted(by_use[:room])
    return [*SPECIAL_TOKENS, *merges.pieces[:characters], *(merges.pieces[i] for i in kept)]


def count_characters(words: Mapping[str, int]) -> Counter[str]:
    seen: Counter[str] = Counter()
    for word, count in words.items():
        for character in word:
            seen[character] += count
    return seen


def frequent_alphabet(words: Mapping[str, int], limit: int) -> Mapping[str, int]:
    """The words that consist of the `limit` most frequent characters; ties go to the lower code point."""
    seen = count_characters(words)
    if len(seen) <= limit:
        return words
    kept = set(sorted(seen, key=lambda character: (-seen[character], character))[:limit])
    return {word: count for word, count in words.items() if kept.issuperset(word)}


class Merges(PairCounts):
    """Words spelt with pieces, each with ## if it continues a word; see `PairCounts`."""

    def __init__(self, words: Mapping[str, int]):
        # As in the reference, every character gets a piece for the start of a word, even if it never occurred there,
        # but a piece for the inside only if it did.
        start = sorted(set().union(*words))
        inside = sorted(set().union(*(word[1:] for word in words)))
        first = {ord(character): chr(i) for i, character in enumerate(start)}
        later = {ord(character): chr(i) for i, character in enumerate(inside, len(start))}
        spelt = [word[0].translate(first) + word[1:].translate(later) for word in words]
        super().__init__(start + [PREFIX + character for character in inside], spelt, words.values())

    def joined(self, left: str, right: str) -> str:
        return left + right.removeprefix(PREFIX)


if __name__ == "__main__":
    merges = Merges({"the": 5, "then": 2, "at": 3})
    while pair := merges.best(min_frequency=2):
        spelt = ("".join(f" {merges.pieces[ord(symbol)]}" for symbol in word) for word in merges.spelt)
        parts = " ".join(merges.pieces[ord(symbol)] for symbol in pair)
        print(" |".join(spelt), f"  best pair: {parts}, {merges.pairs[pair]} times", sep="")
        merges.merge(pair)
    used = [f"{piece} {use}" for piece, use in zip(merges.pieces, merges.uses, strict=True) if use]
    print("still used in the end:", ", ".join(used))
