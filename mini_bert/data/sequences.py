"""From token files to sequences: three ways to cut a long row of documents into rows of at most T tokens.

    Packed       [CLS] … T−2 tokens of the running text … [SEP]                     every row full, none padded
    Sentences    [CLS] one sentence [SEP] [PAD] [PAD]                               cut at T−2 tokens
    Pairs        [CLS] some sentences [SEP] the next ones, or not [SEP] [PAD]       for published BERT and ALBERT

The tokenizer's templates (text/templates.py) say which special tokens stand where, and on which side padding goes; here
they are written as in BERT.

**Packed.** The text runs on from row to row. Between two documents stands [SEP], so the model can see that what came
before has nothing to do with what follows; a document that is shorter than a row shares it with its neighbours.
Padding instead would leave a part of a row empty at the end of every document. (RoBERTa's FULL-SENTENCES is the same
idea.) The tail of the text that fills no row is left out.

**Pairs.** Each document is cut into chunks of whole sentences, at least two, that fit in T−3 tokens; a chunk is cut in
two between sentences, at a place drawn anew each epoch. Half of the pairs are left so, label 0. The others, label 1,
are spoilt: for "next" (BERT) the second part is replaced by sentences from another document; for "order" (ALBERT) the
two parts change places. What is too long loses tokens of the longer part: the first part at its beginning, the second
at its end, whatever the label, so that cuts do not give it away. Nor shall lengths. So the false part takes as many
sentences as fit, and no more than the true part had if that was at the end of its document; and it has to be cut if
the true part had to. On Wikipedia and books, with T from 64 to 512, who knows the lengths of both parts, and nothing
else, guesses right in 50 to 55 % of the cases.

**A target in every sequence.** A row of [UNK] and other special tokens has nothing to predict. Packed and Sentences
leave such sequences out, and count them; in Pairs, where it depends on the cut, the next chunk steps in.

Each class answers `rows(numbers, keys)`: the sequences with these numbers, any of them, in any order. `keys` are the
random numbers of common/draws.py. Nothing is stored but a few numbers (Pairs: 8 bytes a chunk), so text of any size
will do.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from mini_bert.common.batching import Padding
from mini_bert.common.draws import address, below, draws, mix
from mini_bert.common.progress import counted
from mini_bert.data.shards import Shards
from mini_bert.objectives.base import Rows
from mini_bert.text.base import Tokenizer
from mini_bert.text.templates import Template

CUT, LABEL, OTHER = 10, 11, 12  # what draws are used for; objectives/masking.py has 0 to 4
CANDIDATES = 4  # sentences that a false part may begin with; the first that suits is taken
MUCH = 0.1  # of the text: whoever leaves out more says so
MODES = {"packed": 1, "sentences": 1, "next": 2, "order": 2}  # and the number of texts in a sequence
TRIES = 1000  # chunks that may step in for one without a word; if none has a word, hardly any has
logger = logging.getLogger(__name__)


class Stretches:
    """Parts of a long row, counted through as if they lay end to end: for text of which some documents are left out."""

    def __init__(self, starts, ends):
        some = ends > starts
        self.starts, lengths = starts[some], (ends - starts)[some]
        self.before = np.cumsum(lengths) - lengths
        self.shift = self.starts - self.before
        self.size = int(lengths.sum())

    def locate(self, numbers):
        """Numbers within the parts, from 0 to size − 1 -> places in the whole row"""
        if len(self.starts) == 1:
            return numbers + self.starts[0]
        return numbers + self.shift[np.searchsorted(self.before, numbers, side="right") - 1]

    def number(self, places):
        """The other way: places in the whole row, all within the parts -> numbers"""
        return places - self.shift[np.searchsorted(self.starts, places, side="right") - 1]


class Documents:
    """The documents that are used: all, or those on one side when a share is held out for validation."""

    def __init__(self, shards: Shards, held_out: float = 0.0, validation: bool = False):
        held = shards.hashes < np.uint64(int(held_out * 2**64))  # the text decides, whatever tokenizer and seed
        used = held if validation else ~held
        edges = np.flatnonzero(np.diff(used, prepend=False, append=False))
        sentences = [shards.documents[edge] for edge in (edges[::2], edges[1::2])]  # runs of documents side by side
        self.shards, self.count = shards, int(used.sum())
        self.sentences = Stretches(*sentences)
        self.tokens = Stretches(*(shards.sentences[edge] - 1 for edge in sentences))  # -1: with the [SEP] before

    def span(self, first, last):
        """Where the sentences from `first` up to, not including, `last` lie in the tokens -> starts, ends"""
        documents, sentences = self.shards.documents, self.shards.sentences
        separators = np.searchsorted(documents, last, side="right") - np.searchsorted(documents, last, side="left")
        return sentences[first], sentences[last] - separators  # a [SEP] stands before each document that begins there

    def around(self, sentence):
        """-> the first sentence of the document of each, and the one after its last"""
        document = np.searchsorted(self.shards.documents, sentence, side="right")
        return self.shards.documents[document - 1], self.shards.documents[document]


def fair_share(shards: Shards, wanted: float, content: int) -> float:
    """A share to hold out, `wanted` or as near to it as leaves both sides `content` tokens, and training at least half.

    0 if there is none: then nothing can be held out.
    """
    order = np.argsort(shards.hashes)
    hashes = shards.hashes[order]  # those that are held out come first
    held = np.cumsum(np.diff(shards.sentences[shards.documents])[order])  # tokens, each document with a [SEP]
    if not held.size:
        return 0.0
    asked = int(np.searchsorted(hashes, np.uint64(int(wanted * 2**64))))
    least = int(np.searchsorted(held, content + 1)) + 1
    for documents in (max(asked, least), least):
        if documents <= len(hashes):
            last = hashes[documents - 1]
            size = held[np.searchsorted(hashes, last, side="right") - 1]  # equal documents go together
            if size <= held[-1] / 2 and held[-1] - size > content:
                return wanted if documents == asked else float(np.nextafter(float(last) / 2**64, 1.0))
    return 0.0


class Source:
    """Sequences by number: `rows(numbers, keys)` for any of them, in any order."""

    documents: Documents
    count: int  # sequences
    left_out: str  # what of the text is in none of them
    lengths: Callable[[np.ndarray], np.ndarray] | None = None  # of sequences that differ in length
    rows: Callable[..., Rows]  # (numbers, keys) -> Rows


def open_source(
    shards: Shards,
    tokenizer: Tokenizer,
    length: int,
    mode: str = "packed",
    held_out: float = 0.0,
    validation: bool = False,
) -> Source:
    """The sequences of a tokenized text: of the documents that are held out, or of the others.

    mode: "packed", "sentences", "next" (pairs: does the second part follow?) or "order" (pairs: are they swapped?).
    """
    if mode not in MODES:
        raise ValueError(f"mode is {mode!r}, expected one of {', '.join(map(repr, MODES))}")
    added, texts = tokenizer.added_count(MODES[mode]), MODES[mode]
    if length < added + texts:
        raise ValueError(
            f"max_seq_length is {length}, but in mode {mode!r} special tokens alone take "
            f"{added} of a sequence: expected at least {added + texts}, such as 64"
        )
    documents = Documents(shards, held_out, validation)
    of = f"held_out is {held_out}, and of {len(shards.hashes):,} documents that leaves"
    side = "validation" if validation else "training"
    if not documents.sentences.size:
        raise ValueError(f"{of} none for {side}; choose another share, or give validation a text of its own")
    is_word = np.ones(tokenizer.vocab_size, bool)
    is_word[list(tokenizer.special_ids)] = False
    kind: Any = {"packed": Packed, "sentences": Sentences}.get(mode, Pairs)
    options = {"task": mode} if kind is Pairs else {}
    try:
        return kind(documents, length, tokenizer, is_word, **options)
    except ValueError as error:
        if not held_out:
            raise
        raise ValueError(f"{of} {documents.count:,} for {side}: {error}; or choose another share") from error


class Packed(Source):
    """[CLS] T−2 tokens of the running text [SEP]"""

    def __init__(self, documents: Documents, length: int, tokenizer: Tokenizer, word: np.ndarray):
        self.documents, self.template = documents, tokenizer.template()
        self.content = content = length - self.template.added
        size = max(documents.tokens.size - 1, 0)  # -1: the first [SEP] separates nothing
        self.types = np.array(self.template.token_types([content]))
        windows = size // content
        self.left_out = f"{counted(size % content, 'token')} at the end, too few for a sequence"
        if windows < 1:
            raise ValueError(
                f"the text has {size:,} tokens, too few for one sequence of {content} (max_seq_length {length} less "
                'special tokens); give more text or a smaller max_seq_length, or use mode="sentences", which pads'
            )
        bare = []
        for own in _blocks(windows):
            full = np.full(len(own), content)
            bare.append(own[_bare(full, lambda some, k, own=own: word[self._tokens(own[some], k)])])
        self.bare = np.concatenate(bare)
        self.count = windows - len(self.bare)
        self.left_out += _told_bare(len(self.bare), windows, "sequence")

    def _tokens(self, windows, k):
        """Token k of these windows of T−2 tokens"""
        return self.documents.shards.tokens[self.documents.tokens.locate(1 + windows * self.content + k)]

    def rows(self, numbers, keys) -> Rows:
        ((start,), _), (before, after) = self.template.places([self.content]), self.template.ids
        ids = np.empty((len(numbers), len(self.types)), np.int64)
        ids[:, :start], ids[:, start + self.content :] = before, after
        ids[:, start : start + self.content] = self._tokens(
            _without(self.bare, numbers)[:, None], np.arange(self.content)
        )
        return Rows(ids, types=np.tile(self.types, (len(ids), 1)) if self.types.any() else None)


class Sentences(Source):
    """[CLS] one sentence [SEP] [PAD] …"""

    def __init__(self, documents: Documents, length: int, tokenizer: Tokenizer, word: np.ndarray):
        self.documents, self.template, self.padding = documents, tokenizer.template(), tokenizer.padding
        self.room = room = length - self.template.added
        everything, text = documents.sentences.size, documents.shards.tokens
        tokens, long, bare = 0, 0, [np.arange(0)]
        for numbers in _blocks(everything):
            starts, sizes = self._span(documents.sentences.locate(numbers))
            over = np.maximum(sizes - room, 0)
            tokens, long = tokens + int(over.sum()), long + int((over > 0).sum())
            bare.append(numbers[_bare(sizes - over, lambda some, k, starts=starts: word[text[starts[some] + k]])])
        self.bare = np.concatenate(bare)
        self.count = everything - len(self.bare)
        self.left_out = f"{counted(tokens, 'token')} of {counted(long, 'sentence')} longer than {room}"
        self.left_out += _told_bare(len(self.bare), everything, "sentence")
        if tokens > MUCH * documents.tokens.size:
            logger.warning(
                "%.0f %% of the text is left out, because sentences are cut at %d tokens: %s; a larger max_seq_length "
                'cuts less, mode="packed" nothing. (A line is a sentence, or several)',
                100 * tokens / documents.tokens.size,
                room,
                self.left_out,
            )

    def _span(self, sentence):
        """-> where these sentences begin, and how many tokens they have"""
        starts, ends = self.documents.span(sentence, sentence + 1)
        return starts, ends - starts

    def lengths(self, numbers):
        """Tokens in these sequences, special tokens included"""
        sizes = self._span(self.documents.sentences.locate(_without(self.bare, numbers)))[1]
        return np.minimum(sizes, self.room) + self.template.added

    def rows(self, numbers, keys) -> Rows:
        starts, sizes = self._span(self.documents.sentences.locate(_without(self.bare, numbers)))
        parts = [(starts, np.minimum(sizes, self.room))]
        return _laid_out(self.documents.shards.tokens, self.template, self.padding, parts)


class Pairs(Source):
    """[CLS] first part [SEP] second part [SEP] [PAD] …        label 0: as in the text, 1: spoilt"""

    def __init__(self, documents: Documents, length: int, tokenizer: Tokenizer, word: np.ndarray, task: str):
        self.documents, self.word, self.task = documents, word, task
        self.template, self.padding = tokenizer.template(2), tokenizer.padding
        self.room = length - self.template.added
        self.chunks, single = self._chunks()
        self.count = len(self.chunks)
        self.left_out = f"{counted(single, 'document')} of one sentence: no pair"
        if not self.count:
            raise ValueError(
                f"none of the {documents.count:,} documents has two sentences, so there are no pairs; in plain text an "
                "empty line ends a document: does one stand after every sentence?"
            )
        first, last = documents.around(self.chunks[:1])
        if task == "next" and last - first == documents.sentences.size:
            raise ValueError(
                'the text is one document, and pairs of the task "next" need another to take false sentences from; '
                'separate documents by empty lines, or use the task "order"'
            )
        self.rows(np.arange(1), address(0))  # is there a word at all?

    def _chunks(self):
        """-> the first sentence of every chunk, and how many documents have only one sentence

        A chunk begins where the one before ends: a chain of jumps, which is followed for many sentences at once. Who
        knows the jumps of 1, 2, 4, 8 … chunks (each is the one before, twice) has met all of the chain in log₂ rounds.
        """
        found, single, at = [], 0, 0
        for numbers in _blocks(self.documents.sentences.size):
            low, size = int(numbers[0]), len(numbers)
            if at >= low + size:
                continue
            sentences = self.documents.sentences.locate(numbers)
            first, last = self.documents.around(sentences)
            steps = self.ends(sentences, self.room) - sentences
            jump = np.append(np.minimum(np.arange(size) + steps, size), size)  # size: out of this block
            met = np.zeros(size + 1, bool)
            met[at - low] = True
            while jump[at - low] < size:
                met[jump[met]] = True
                jump = jump[jump]
            chain = np.flatnonzero(met[:size])
            at = low + int(chain[-1] + steps[chain[-1]])
            begin, end, own = first[chain], last[chain], sentences[chain]
            alone = end - own == 1  # one is left of the document: with the one before it makes a pair, if there is one
            single += int((alone & (begin == own)).sum())
            found.append((own - alone)[~alone | (begin < own)])
        return np.concatenate(found), single

    def ends(self, sentence, room, least: int = 2):
        """Where the sentences end that fit in `room` tokens, at least so many, at most to the end of the document"""
        starts = self.documents.shards.sentences
        fitting = np.searchsorted(starts, starts[sentence] + room, side="right") - 1
        return np.minimum(np.maximum(fitting, sentence + least), self.documents.around(sentence)[1])

    def rows(self, numbers, keys) -> Rows:
        numbers, keys = numbers.copy(), keys.copy()
        for _ in range(TRIES):
            *parts, labels = self._parts(numbers, keys)
            rows = _laid_out(self.documents.shards.tokens, self.template, self.padding, parts, labels)
            bare = np.flatnonzero(~self.word[rows.ids].any(1))
            if not bare.size:
                return rows
            numbers[bare] = (numbers[bare] + 1) % self.count
            keys[bare] = mix(keys[bare])
        raise ValueError(NO_WORD)

    def _parts(self, numbers, keys):
        """-> where the first parts begin and their lengths, the same of the second parts, labels"""
        first = self.chunks[numbers]
        last = self.ends(first, self.room)
        cut = first + 1 + below(draws(keys, CUT, 0), last - first - 1)
        labels = (draws(keys, LABEL, 0) >> np.uint64(63)).astype(np.int64)
        spoilt = np.flatnonzero(labels)
        parts = np.array([self.documents.span(first, cut), self.documents.span(cut, last)])  # part, start or end, row
        if self.task == "order":
            parts[:, :, spoilt] = parts[::-1, :, spoilt]
        else:
            one, two = (parts[:, 1] - parts[:, 0])[:, spoilt]
            room = np.maximum(self.room - one, 0)
            document_ended = (last == self.documents.around(first)[1])[spoilt]
            most = np.where(document_ended, (last - cut)[spoilt], self.room)  # sentences; else it was the room
            other = self._elsewhere(first[spoilt], room, two <= room, most, keys[spoilt])
            parts[1][:, spoilt] = self.documents.span(other, np.minimum(self.ends(other, room, least=1), other + most))
        one, two = parts[:, 1] - parts[:, 0]
        one = np.minimum(one, np.maximum(self.room - two, (self.room + 1) // 2))  # the longer part gives way
        two = np.minimum(two, self.room - one)
        return (parts[0, 1] - one, one), (parts[1, 0], two), labels

    def _elsewhere(self, sentence, room, fits, most, keys):
        """A random sentence that is not in the document of this one. If possible it fits in the room, or not, as is
        wanted, and so much of its document follows that it does not end before the room or `most` sentences do."""
        first, last = (edge[:, None] for edge in self.documents.around(sentence))
        drawn = draws(keys[:, None], OTHER, np.arange(CANDIDATES))  # number the others through, and draw
        drawn = below(drawn, self.documents.sentences.size - (last - first))
        drawn += np.where(drawn >= self.documents.sentences.number(first), last - first, 0)
        other = self.documents.sentences.locate(drawn)
        starts, own = self.documents.span(other, other + 1)
        end = self.documents.around(other)[1]
        good = (own - starts <= room[:, None]) == fits[:, None]
        enough = (end - other >= most[:, None]) | (self.documents.shards.sentences[end] - starts > room[:, None])
        return other[np.arange(len(other)), np.argmax(2 * good + enough, axis=1)]


def _laid_out(tokens, template: Template, padding: Padding, parts, labels=None) -> Rows:
    """Texts with special tokens around them, padded. parts: for each text its start in `tokens`, and its length"""
    starts, groups = template.places([size for _, size in parts])
    lengths = groups[-1] + len(template.ids[-1])
    T = lengths.max()
    place, row = np.arange(T), np.arange(0, len(lengths) * T, T)  # in the sequence; of its start in all sequences
    if padding.side == "left":
        place, row = place - (T - lengths)[:, None], row + T - lengths
    source = (parts[0][0] - starts[0])[:, None] + place
    if len(parts) > 1:
        source = np.where(place < groups[1][:, None], source, (parts[1][0] - starts[1])[:, None] + place)
    inside = place < groups[-1][:, None]  # in a text, or a special token, which is put in below
    if padding.side == "left":
        inside &= place >= 0
    ids = np.where(inside, tokens[np.where(inside, source, 0)], padding.id).astype(np.int64)
    flat = ids.ravel()
    for begin, group in zip(groups, template.ids, strict=True):
        for number, token in enumerate(group):
            flat[row + (begin + number)] = token
    types = None
    for begin, change in template.type_changes(starts, groups):
        part = change * (place >= np.reshape(begin, (-1, 1)))
        types = part if types is None else types + part
    rows = Rows(ids, lengths, types, labels, padding)
    if types is None or (mask := rows.mask) is None:
        return rows
    return rows._replace(types=np.where(mask, types, padding.type))


def _blocks(size: int) -> Iterator[np.ndarray]:
    """0 … size − 1, some at a time"""
    for low in range(0, size, 1 << 16):
        yield np.arange(low, min(low + (1 << 16), size))


def _bare(sizes, is_word):
    """Which rows hold no word, when they have these sizes? `is_word` says it of the k-th token of some of them.

    Nearly all rows are done with after a look at their first token: 30 million tokens take some hundredths of a second.
    """
    rows, bare, k = np.arange(len(sizes)), [np.arange(0)], 0
    while rows.size:
        bare.append(rows[sizes[rows] == k])
        rows = rows[sizes[rows] > k]
        rows = rows[~is_word(rows, k)]
        k += 1
    return np.sort(np.concatenate(bare))


def _without(left_out, numbers):
    """The numbers that are left, counted from 0, when these are left out (sorted)"""
    if not left_out.size:
        return numbers
    return numbers + np.searchsorted(left_out - np.arange(len(left_out)), numbers, side="right")


NO_WORD = (
    "hardly a word of the text is in the tokenizer's vocabulary: all is [UNK], so there is nothing to predict; does "
    "the tokenizer belong to another language?"
)


def _told_bare(bare: int, of: int, noun: str) -> str:
    """What is said of those without a word"""
    if bare == of:
        raise ValueError(NO_WORD)
    if bare > MUCH * of:
        logger.warning(
            "%s of %s have no word that the tokenizer knows, only [UNK], and are left out; does the tokenizer belong "
            "to another language?",
            f"{bare:,}",
            counted(of, noun),
        )
    return f", {counted(bare, noun)} without a word" if bare else ""
