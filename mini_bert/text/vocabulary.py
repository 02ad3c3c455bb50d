"""Learning a vocabulary: which pieces of words deserve an entry.

    from mini_bert.text.vocabulary import learn

    pieces = learn("my_texts/", vocab_size=8192)   # [PAD] [UNK] [CLS] [SEP] [MASK], characters, then what was learnt

Two steps. First the text becomes a table of words and how often each occurs; all that follows needs only the table.
Then pieces grow. At the start every word is spelt with single characters, of which those that continue a word are
marked ##. Find the two neighbours that stand together most often, in all words, and make them one piece; again; again.

    count   word     spelt at first     after t + ##h    after th + ##e    after a + ##t
      5     the      t ##h ##e          th ##e           the               the
      2     then     t ##h ##e ##n      th ##e ##n       the ##n           the ##n
      3     at       a ##t              a ##t            a ##t             at

    the pair t ##h stands 7 times, a ##t 3 times: t ##h first. Then th ##e, 7 times. Then a ##t.

So far this is byte-pair encoding (Sennrich, Haddow and Birch 2016, arXiv:1508.07909), which is also what the
`tokenizers` library does when it trains a WordPiece vocabulary. But most pieces were needed only on the way: of the 7
"th" above none is left once there is "the". A vocabulary has no room for scaffolding. So each piece must earn its
entry: **we go on merging until there are enough pieces that are still used at least as often as the best pair that is
left, and keep those.** (A use is an occurrence in the text as it is spelt in the end.) Then no piece in the vocabulary
is used less often than one that was left out, nor than one that could still be made. Text comes out in fewer pieces,
and fewer rows of the model's embedding stand for something that it hardly ever sees; docs/vocabulary.md has numbers.

Single characters always stay, so that every word of these characters can be spelt.
"""

from __future__ import annotations

import os
import re
import time
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from heapq import heapify, heappop, heappush
from operator import add
from pathlib import Path
from typing import Any, NamedTuple

from mini_bert.common.processes import in_order
from mini_bert.common.progress import Show, counted, roughly, showing
from mini_bert.corpora.reading import Report, read
from mini_bert.text.tokenizer_files import CONFIG, JSON, VOCAB
from mini_bert.text.wordpiece import PREFIX, SPECIAL_TOKENS, WordPieceTokenizer
from mini_bert.text.wordsplit import WordSplitter

__all__ = ["learn", "train_command"]

SLAB = 1 << 20  # characters that are cut into chunks at once
LONGEST_CHUNK = 1 << 20  # characters without a space
BLOCK = 2  # slabs that one process counts at once; larger blocks are a little faster, and take memory
MOST_WORDS = 1 << 19  # different words that are kept in mind: learning from so many takes about 400 MB
MOST_PIECES = 1_000_000  # each is one character of Python's 1,114,112
ASIDE, MOST_ASIDE = 100, 1 << 21  # train_command keeps 1 document in 100 aside, up to 2 million characters


def learn(
    source: str | os.PathLike[str] | Iterable[Any],
    vocab_size: int = 8192,
    lowercase: bool = True,
    strip_accents: bool | None = None,
    chinese_spacing: bool = True,
    min_frequency: int = 2,
    limit_alphabet: int = 1000,
    max_word_chars: int = 100,
    processes: int | None = None,
    progress: bool = True,
) -> list[str]:
    """The vocabulary of a text, in the order of the ids: special tokens, characters, pieces in the order learnt.

    source           a path, a list of paths, or any other source of `mini_bert.corpora.reading.read`. Or an iterator
    of str,
                     whose texts may together be larger than memory; for a list of texts: iter(texts)
    vocab_size       how many pieces, special tokens included. Fewer come out if the text has no more to offer
    lowercase, strip_accents, chinese_spacing      how text is split into words, see `WordSplitter`
    min_frequency    a pair that stands together less often is not made a piece
    limit_alphabet   at most so many different characters, the most frequent. Words with others will be [UNK]
    max_word_chars   longer words are ignored: the tokenizer makes them [UNK] anyway
    processes        that count words side by side; None: one a core

    The same text gives the same vocabulary, whatever the number of processes.
    """
    splitter = WordSplitter(lowercase, strip_accents, chinese_spacing)
    return _learn(
        source, vocab_size, splitter, min_frequency, limit_alphabet, max_word_chars, processes, progress
    ).pieces


class Learnt(NamedTuple):
    pieces: list[str]
    characters: int  # of text
    words: int
    different: int


def _learn(
    source: Any,
    vocab_size: int,
    splitter: WordSplitter,
    min_frequency: int,
    limit_alphabet: int,
    max_word_chars: int,
    processes: int | None,
    progress: bool,
) -> Learnt:
    for name, value in (
        ("min_frequency", min_frequency), ("limit_alphabet", limit_alphabet), ("max_word_chars", max_word_chars)
    ):  # fmt: skip
        if value < 1:
            raise ValueError(f"{name} is {value}, expected at least 1")
    if not len(SPECIAL_TOKENS) < vocab_size <= MOST_PIECES:
        raise ValueError(
            f"vocab_size is {vocab_size:,}, expected more than the {len(SPECIAL_TOKENS)} special tokens and at most "
            f"{MOST_PIECES:,}; 8192 is usual for a small model, 30000 to 50000 for a large one"
        )
    characters = 0

    def counted(texts: Iterable[str]) -> Iterator[str]:
        nonlocal characters
        for text in texts:
            characters += len(text)
            yield text

    with showing(progress) as show:
        words = count_words(counted(texts_of(source)), splitter, max_word_chars, processes, show)
        if not words:
            raise ValueError(
                f"there is no word in the text, which has {characters:,} characters; nothing can be learnt from it"
            )
        pieces = choose(words, vocab_size, min_frequency, limit_alphabet, show)
    return Learnt(pieces, characters, sum(words.values()), len(words))


def texts_of(source: Any) -> Iterator[str]:
    """The texts of a place, or of an iterator as they come."""
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

    What is counted by whom depends on the text alone, and results are added in the order of the text; so the number of
    processes changes nothing. Where there are more than MOST_WORDS different words the rarest are forgotten: those
    seen once so far, if that is not enough those seen twice, and so on.
    """
    words: Counter[str] = Counter()
    forgotten, done = 0, 0
    for size, found, counts in in_order(count_block, (splitter, max_word_chars), blocks(texts), processes):
        for word, count in zip(found.split(), counts, strict=True):
            words[word] += count
        if len(words) > MOST_WORDS:
            forgotten += forget_rarest(words, MOST_WORDS // 4 * 3)
        done += size
        note = f"{roughly(done, 'character')}, {counted(len(words), 'different word')}"
        if forgotten:
            note += f" ({forgotten:,} rare ones forgotten)"
        show("counting", note, done, None)
    return words


def blocks(texts: Iterable[str]) -> Iterator[list[str]]:
    """The text in slabs, a few at a time: what one process is given to count."""
    block: list[str] = []
    for slab in slabs(texts, SLAB):
        block.append(slab)
        if len(block) == BLOCK:
            yield block
            block = []
    if block:
        yield block


def slabs(texts: Iterable[str], size: int) -> Iterator[str]:
    """Short texts joined, long ones cut where there is a space: everything in strings of about `size` characters.

    Where no space comes for a million characters, which must be Chinese or no text at all, the cut is made regardless.
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
    """-> characters, the different words (in one string: a tenth of the memory of a dict), and the count of each

    Chunks between white space are counted first, by `Counter`'s fast loop, and only the different ones split into
    words. To split many at a call, chunks of the same count go together.
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
    found = [word for word in words if len(word) <= max_word_chars]
    return sum(map(len, block)), " ".join(found), array("q", [words[word] for word in found])


def forget_rarest(words: Counter[str], most: int) -> int:
    """Remove the words seen once, twice, ... until at most `most` are left -> how many were removed"""
    have = Counter(words.values())
    left, limit = len(words), 0
    while left > most:
        limit += 1
        left -= have[limit]
    forgotten = len(words) - left
    for word in [word for word, count in words.items() if count <= limit]:
        del words[word]
    return forgotten


# --- from words to pieces ----------------------------------------------------------------------------------


def choose(words: Mapping[str, int], vocab_size: int, min_frequency: int, limit_alphabet: int, show: Show) -> list[str]:
    """The vocabulary for a table of words."""
    merges = Merges(frequent_alphabet(words, limit_alphabet))
    characters = len(merges.pieces)
    room = vocab_size - len(SPECIAL_TOKENS) - characters
    if room < 0:
        raise ValueError(
            f"vocab_size is {vocab_size:,}, but {len(SPECIAL_TOKENS)} special tokens and {characters:,} pieces for "
            f"single characters, at the start of words and inside, need {len(SPECIAL_TOKENS) + characters:,} already; "
            f"raise vocab_size, or lower limit_alphabet, which is {limit_alphabet:,}"
        )
    look = room  # after so many merges, see whether enough pieces earn their entry
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
    show("merging", counted(learnt, "piece") + (f", {room:,} of them to keep" if learnt > room else ""), room, room)
    by_use = sorted(range(characters, len(merges.pieces)), key=lambda i: (-merges.uses[i], i))
    kept = sorted(by_use[:room])
    return [*SPECIAL_TOKENS, *merges.pieces[:characters], *(merges.pieces[i] for i in kept)]


def frequent_alphabet(words: Mapping[str, int], limit: int) -> Mapping[str, int]:
    """The words that have none but the `limit` most frequent characters; between equals, the lower code point."""
    seen: Counter[str] = Counter()
    for word, count in words.items():
        for character in word:
            seen[character] += count
    if len(seen) <= limit:
        return words
    kept = set(sorted(seen, key=lambda character: (-seen[character], character))[:limit])
    return {word: count for word, count in words.items() if kept.issuperset(word)}


class Merges:
    """Words spelt with pieces, and the pairs of neighbours in them; `merge` makes a pair one piece.

    Piece number i is written as one character, chr(i). A word is then a string, a pair a string of two characters, and
    a merge is `str.replace`, which goes from left to right as it should.
    """

    def __init__(self, words: Mapping[str, int]):
        # Like the reference, every character has a piece for the start of a word, also if it never stood there;
        # and one for the inside where it did stand there.
        start = sorted(set().union(*words))
        inside = sorted(set().union(*(word[1:] for word in words)))
        self.pieces = start + [PREFIX + character for character in inside]
        self.numbers = {piece: i for i, piece in enumerate(self.pieces)}
        first = {ord(character): chr(i) for i, character in enumerate(start)}
        later = {ord(character): chr(i) for i, character in enumerate(inside, len(start))}

        self.spelt = [word[0].translate(first) + word[1:].translate(later) for word in words]
        self.counts = list(words.values())
        self.uses = [0] * len(self.pieces)
        self.pairs: defaultdict[str, int] = defaultdict(int)  # how often each stands in the text
        self.where: defaultdict[str, list[int]] = defaultdict(list)  # the words that have it, or had it once
        for i, (word, count) in enumerate(zip(self.spelt, self.counts, strict=True)):
            for symbol in word:
                self.uses[ord(symbol)] += count
            for pair in map(add, word, word[1:]):
                self.pairs[pair] += count
                self.where[pair].append(i)
        self.heap = [(-count, pair) for pair, count in self.pairs.items()]
        heapify(self.heap)

    def best(self, min_frequency: int = 1) -> str | None:
        """The pair that stands together most often; between equals, that of the pieces learnt first.

        The heap may hold a pair with a count that it no longer has. Counts that rose were put in again, so what is on
        top has at most the count it claims; if it has less, it goes back with what it has.
        """
        while self.heap:
            claimed, pair = self.heap[0]
            count = self.pairs.get(pair, 0)
            if count == -claimed:
                return pair if count >= min_frequency else None
            heappop(self.heap)
            if count:
                heappush(self.heap, (-count, pair))
        return None

    def merge(self, pair: str) -> None:
        left, right = pair[0], pair[1]
        text = self.pieces[ord(left)] + self.pieces[ord(right)].removeprefix(PREFIX)
        if text not in self.numbers:  # ##aa ##a and ##a ##aa make the same piece
            self.numbers[text] = len(self.pieces)
            self.pieces.append(text)
            self.uses.append(0)
        number = self.numbers[text]
        symbol = chr(number)
        merged = 0
        change: defaultdict[str, int] = defaultdict(int)
        for i in self.where.pop(pair):
            old = self.spelt[i]
            new = old.replace(pair, symbol)
            if len(new) == len(old):  # another merge was here first, or this word stands in the list twice
                continue
            self.spelt[i] = new
            count = self.counts[i]
            merged += count * (len(old) - len(new))
            for other in map(add, old, old[1:]):
                change[other] -= count
            for other in map(add, new, new[1:]):
                change[other] += count
                if symbol in other:
                    self.where[other].append(i)
        self.uses[number] += merged
        self.uses[ord(left)] -= merged
        self.uses[ord(right)] -= merged
        for other, more in change.items():
            if more:
                self.pairs[other] += more
                if more > 0:
                    heappush(self.heap, (-self.pairs[other], other))
                elif not self.pairs[other]:
                    del self.pairs[other]
                    self.where.pop(other, None)


# --- the command -------------------------------------------------------------------------------------------


def train_command(
    corpus: list[str],
    vocab_size: int = 8192,
    out: str | os.PathLike[str] = "tokenizer",
    cased: bool = False,
    min_frequency: int = 2,
    limit_alphabet: int = 1000,
    processes: int | None = None,
    force: bool = False,
    column: str | None = None,
) -> None:
    """Learn a vocabulary, save the tokenizer, and say what was read and learnt.

    One document in a hundred is kept aside (at most two million characters in all): what the vocabulary makes of text
    that it has not seen is the number that counts. `force`: replace a tokenizer that is in the folder `out`.
    """
    check_out(Path(out), force)
    began = time.perf_counter()
    report = Report()
    aside: list[str] = []
    splitter = WordSplitter(lowercase=not cased)
    learnt = _learn(
        _keep_aside(corpus, column, aside, report),
        vocab_size,
        splitter,
        min_frequency,
        limit_alphabet,
        100,
        processes,
        True,
    )
    tokenizer = WordPieceTokenizer(learnt.pieces, lowercase=not cased)
    tokenizer.save(out)
    print(f"Read {report}")
    print(
        f"Learnt {counted(len(learnt.pieces), 'piece')} from {counted(learnt.words, 'word')}, {learnt.different:,} of "
        f"them different, in {time.perf_counter() - began:.1f} s."
    )
    if len(learnt.pieces) < vocab_size:
        print(
            f"(That is fewer than {vocab_size:,}: no other pair of pieces stands together {min_frequency} times. "
            "More text would help.)"
        )
    if aside:
        words = Counter(word for text in aside for word in splitter.words(text))
        tokens, unknown = tokens_per_word(tokenizer, words)
        print(
            f"On text kept aside, {counted(sum(words.values()), 'word')}: {tokens:.4f} tokens per word, "
            f"{unknown:.4%} of the words are [UNK]."
        )
    else:
        print("There were too few documents to keep one aside and measure tokens per word on it.")
    characters = sum(len(piece.removeprefix(PREFIX)) == 1 for piece in learnt.pieces)
    learnt_first = [p for p in learnt.pieces[len(SPECIAL_TOKENS) :] if len(p.removeprefix(PREFIX)) > 1]
    longest = sorted(learnt_first, key=lambda piece: (-len(piece.removeprefix(PREFIX)), piece))
    print(f"Single characters among the pieces: {characters:,}.")
    if learnt_first:
        print("Learnt first:", *learnt_first[:12])
        print("Longest:", *longest[:8])
    print(f"Saved in {Path(out)}: tokenizer.json, vocab.txt, tokenizer_config.json")


def check_out(folder: Path, force: bool) -> None:
    """Before the work, not after it: can the folder be written, and is nothing lost by it?"""
    there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not there.is_dir():
        below = f", so there can be no folder {folder}" if there != folder else ", and a tokenizer is saved as a folder"
        raise NotADirectoryError(f"{there} is a file{below}; give another one with --out")
    if not os.access(there, os.W_OK | os.X_OK):
        raise PermissionError(f"you may not write in {there}; give another folder with --out")
    if not force and any((folder / name).exists() for name in (JSON, VOCAB, CONFIG)):
        raise FileExistsError(
            f"the folder {folder} has a tokenizer in it; give another one with --out, or replace it with --force"
        )


def _keep_aside(corpus: list[str], column: str | None, aside: list[str], report: Report) -> Iterator[str]:
    """The text of a corpus but for every hundredth document, which goes to `aside`."""
    document, size = -1, 0
    for text, first in read(corpus, report, column=column):
        document += first
        if document % ASIDE == ASIDE // 2 and size < MOST_ASIDE:
            aside.append(text)
            size += len(text)
        else:
            yield text


def tokens_per_word(tokenizer: WordPieceTokenizer, words: Mapping[str, int]) -> tuple[float, float]:
    """-> pieces a word, counted as often as it occurs, and the share of words that are [UNK]"""
    pieces = unknown = 0
    for word, count in words.items():
        ids = tokenizer.match(word)
        pieces += count * len(ids)
        unknown += count * (ids == (tokenizer.unk_id,))
    total = sum(words.values())
    return pieces / total, unknown / total


if __name__ == "__main__":
    merges = Merges({"the": 5, "then": 2, "at": 3})
    while pair := merges.best(min_frequency=2):
        spelt = ("".join(f" {merges.pieces[ord(symbol)]}" for symbol in word) for word in merges.spelt)
        parts = " ".join(merges.pieces[ord(symbol)] for symbol in pair)
        print(" |".join(spelt), f"  best pair: {parts}, {merges.pairs[pair]} times", sep="")
        merges.merge(pair)
    used = [f"{piece} {use}" for piece, use in zip(merges.pieces, merges.uses, strict=True) if use]
    print("still used in the end:", ", ".join(used))
