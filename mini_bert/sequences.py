"""From token files to sequences: three ways to cut a long row of documents into rows of at most T tokens.

    Packed       [CLS] … T−2 tokens of the running text … [SEP]                     every row full, none padded
    Sentences    [CLS] one sentence [SEP] [PAD] [PAD]                               cut at T−2 tokens
    Pairs        [CLS] some sentences [SEP] the next ones, or not [SEP] [PAD]       for published BERT and ALBERT

**Packed.** The text runs on from row to row. Between two documents stands [SEP], so the model can see that what came
before has nothing to do with what follows; a document that is shorter than a row shares it with its neighbours.
Padding instead would leave a part of a row empty at the end of every document. (RoBERTa's FULL-SENTENCES is the same
idea.) The tail of the text that fills no row is left out.

**Pairs.** Each document is cut into chunks of whole sentences, at least two, that fit in T−3 tokens; a chunk is cut in
two between sentences, at a place drawn anew each epoch. Half of the pairs are left so, label 0. The others, label 1,
are spoilt: for "next" (BERT) the second part is replaced by sentences from another document, as many as fit; for
"order" (ALBERT) the two parts change places. What is too long loses tokens of the longer part: the first part at its
beginning, the second at its end, whatever the label, so that cuts do not give it away.

Each class answers `rows(numbers, keys)`: the sequences with these numbers, any of them, in any order. `keys` are the
random numbers of draws.py. Nothing is stored but a few numbers (Pairs: 8 bytes a chunk), so text of any size will do.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from mini_bert.draws import below, draws
from mini_bert.progress import counted
from mini_bert.shards import Shards

CUT, LABEL, OTHER = 10, 11, 12  # what draws are used for; mlm.py has 0 to 4


class Special(NamedTuple):
    """The ids of special tokens."""

    pad: int
    cls: int
    sep: int


class Rows(NamedTuple):
    """ids (B,T) · lengths (B,), None if all rows are full · token types (B,T) and labels (B,), of pairs only"""

    ids: np.ndarray
    lengths: np.ndarray | None = None
    types: np.ndarray | None = None
    labels: np.ndarray | None = None


class Stretches:
    """Parts of a long row, counted through as if they lay end to end: for text of which some documents are left out."""

    def __init__(self, starts, ends):
        some = ends > starts
        self.starts, lengths = starts[some], (ends - starts)[some]
        self.before = np.cumsum(lengths) - lengths
        self.size = int(lengths.sum())

    def locate(self, numbers):
        """Numbers within the parts, from 0 to size − 1 -> places in the whole row"""
        if len(self.starts) == 1:
            return numbers + self.starts[0]
        return numbers + (self.starts - self.before)[np.searchsorted(self.before, numbers, side="right") - 1]

    def number(self, places):
        """The other way: places in the whole row, all within the parts -> numbers"""
        return places - (self.starts - self.before)[np.searchsorted(self.starts, places, side="right") - 1]


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
        tokens, starts, ends = self.shards.tokens, self.shards.sentences[first], self.shards.sentences[last]
        while (over := (tokens[ends - 1] == tokens[-1]) & (ends > starts)).any():
            ends = ends - over  # the [SEP] after a document is not part of its last sentence
        return starts, ends

    def around(self, sentence):
        """-> the first sentence of the document of each, and the one after its last"""
        document = np.searchsorted(self.shards.documents, sentence, side="right")
        return self.shards.documents[document - 1], self.shards.documents[document]


class Packed:
    """[CLS] T−2 tokens of the running text [SEP]"""

    def __init__(self, documents: Documents, length: int, special: Special):
        self.documents, self.special, self.length = documents, special, length
        content, size = length - 2, max(documents.tokens.size - 1, 0)  # -1: the first [SEP] separates nothing
        self.count = size // content
        self.left_out = f"{counted(size % content, 'token')} at the end, too few for a sequence"
        if self.count < 1:
            raise ValueError(
                f"the text has {size:,} tokens, too few for one sequence of {content} (max_seq_length {length} less "
                '[CLS] and [SEP]); give more text or a smaller max_seq_length, or use mode="sentences", which pads'
            )

    def rows(self, numbers, keys) -> Rows:
        ids = np.empty((len(numbers), self.length), np.int64)
        places = 1 + numbers[:, None] * (self.length - 2) + np.arange(self.length - 2)
        ids[:, 1:-1] = self.documents.shards.tokens[self.documents.tokens.locate(places)]
        ids[:, 0], ids[:, -1] = self.special.cls, self.special.sep
        return Rows(ids)


class Sentences:
    """[CLS] one sentence [SEP] [PAD] …"""

    def __init__(self, documents: Documents, length: int, special: Special):
        self.documents, self.special, self.length = documents, special, length
        self.count = documents.sentences.size
        tokens = sentences = 0
        for numbers in _blocks(self.count):
            over = self.lengths(numbers) - length
            tokens, sentences = tokens + int(over[over > 0].sum()), sentences + int((over > 0).sum())
        self.left_out = f"{counted(tokens, 'token')} of {counted(sentences, 'sentence')} longer than {length - 2}"

    def lengths(self, numbers):
        """Tokens in these sequences, [CLS] and [SEP] included, before any is cut"""
        sentence = self.documents.sentences.locate(numbers)
        starts, ends = self.documents.span(sentence, sentence + 1)
        return ends - starts + 2

    def rows(self, numbers, keys) -> Rows:
        lengths = np.minimum(self.lengths(numbers), self.length)
        place = np.arange(lengths.max())
        inside = place < lengths[:, None] - 1
        starts = self.documents.shards.sentences[self.documents.sentences.locate(numbers)]
        source = np.where(inside, starts[:, None] + place - 1, 0)  # place 0 is that of [CLS]
        ids = np.where(inside, self.documents.shards.tokens[source], self.special.pad).astype(np.int64)
        ids[:, 0], ids[np.arange(len(ids)), lengths - 1] = self.special.cls, self.special.sep
        return Rows(ids, lengths)


class Pairs:
    """[CLS] first part [SEP] second part [SEP] [PAD] …        label 0: as in the text, 1: spoilt"""

    def __init__(self, documents: Documents, length: int, special: Special, task: str):
        self.documents, self.special, self.task = documents, special, task
        self.room = length - 3
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

    def _chunks(self):
        """-> the first sentence of every chunk, and how many documents have only one sentence"""
        found, single, at = array("q"), 0, 0
        for numbers in _blocks(self.documents.sentences.size):
            sentences = self.documents.sentences.locate(numbers)
            first, last = self.documents.around(sentences)
            steps = self.ends(sentences, self.room) - sentences
            columns = zip(sentences.tolist(), first.tolist(), last.tolist(), steps.tolist(), strict=True)
            for number, (sentence, begin, end, step) in enumerate(columns, int(numbers[0])):
                if number < at:
                    continue
                at = number + step
                if end - sentence > 1:
                    found.append(sentence)
                elif begin < sentence:  # one is left of the document: with the one before it makes a pair
                    found.append(sentence - 1)
                else:
                    single += 1
        return np.array(found, np.int64), single

    def ends(self, sentence, room, least: int = 2):
        """Where the sentences end that fit in `room` tokens, at least so many, at most to the end of the document"""
        starts = self.documents.shards.sentences
        fitting = np.searchsorted(starts, starts[sentence] + room, side="right") - 1
        return np.minimum(np.maximum(fitting, sentence + least), self.documents.around(sentence)[1])

    def rows(self, numbers, keys) -> Rows:
        first = self.chunks[numbers]
        last = self.ends(first, self.room)
        cut = first + 1 + below(draws(keys, CUT, 0), last - first - 1)
        labels = (draws(keys, LABEL, 0) >> np.uint64(63)).astype(np.int64)
        spoilt = np.flatnonzero(labels)
        parts = np.array([self.documents.span(first, cut), self.documents.span(cut, last)])  # part, start or end, row
        if self.task == "order":
            parts[:, :, spoilt] = parts[::-1, :, spoilt]
        else:
            other = self._elsewhere(first[spoilt], keys[spoilt])
            room = np.maximum(self.room - (parts[0, 1] - parts[0, 0])[spoilt], 0)
            parts[1][:, spoilt] = self.documents.span(other, self.ends(other, room, least=1))
        one, two = parts[:, 1] - parts[:, 0]
        one = np.minimum(one, np.maximum(self.room - two, (self.room + 1) // 2))  # the longer part gives way
        two = np.minimum(two, self.room - one)
        return self._join(parts[0, 1] - one, one, parts[1, 0], two, labels)

    def _elsewhere(self, sentence, keys):
        """A random sentence that is not in the document of this one: number the others through, and draw."""
        first, last = self.documents.around(sentence)
        drawn = below(draws(keys, OTHER, 0), self.documents.sentences.size - (last - first))
        return self.documents.sentences.locate(
            drawn + np.where(drawn >= self.documents.sentences.number(first), last - first, 0)
        )

    def _join(self, first, one, second, two, labels) -> Rows:
        """Where the parts begin and how long they are -> [CLS] one [SEP] two [SEP] [PAD] …, types 0 and 1"""
        pad, cls, sep = self.special
        lengths = one + two + 3
        place = np.arange(lengths.max())
        begin = (one + 2)[:, None]  # of the second part
        source = np.where(place < begin, first[:, None] + place - 1, second[:, None] + place - begin)
        inside = place < lengths[:, None] - 1
        ids = np.where(inside, self.documents.shards.tokens[np.where(inside, source, 0)], pad).astype(np.int64)
        row = np.arange(len(ids))
        ids[:, 0], ids[row, one + 1], ids[row, lengths - 1] = cls, sep, sep
        types = (place >= begin) & (place < lengths[:, None])
        return Rows(ids, lengths, types.astype(np.int64), labels)


def _blocks(size: int) -> Iterator[np.ndarray]:
    """0 … size − 1, some at a time"""
    for low in range(0, size, 1 << 16):
        yield np.arange(low, min(low + (1 << 16), size))
