"""From token files to sequences: four ways to cut a long stream of documents into rows of at most T tokens.

    Packed       [CLS] … T−2 tokens of the running text … [SEP]                     every row full, none padded
    Running      T tokens of the running text, and the one after them               for predicting the next word
    Sentences    [CLS] one sentence [SEP] [PAD] [PAD]                               cut at T−2 tokens
    Pairs        [CLS] some sentences [SEP] the next ones, or others [SEP] [PAD]    as in BERT and ALBERT

The tokenizer's templates (text/templates.py) say where special tokens and padding go; here they are written as in BERT.

**Packed.** The text runs on from row to row. A [SEP] separates two documents, so the model can see that they are
unrelated; a document that is shorter than a row shares it with its neighbours. Padding instead would leave part of a
row empty at the end of every document. (RoBERTa's FULL-SENTENCES is the same idea.) Tokens at the end of the text that
do not fill a row are left out.

**Running.** The same, without tokens around a row, because a model that predicts the next word would only learn where
rows end. The last token of a row is the first of the next one, so that every token but the first of the text is
predicted once: row k has the tokens k·T to k·T + T, of which the first T are the input and the last T the targets.

**Pairs.** Each document is cut into chunks of at least two whole sentences that fit in T−3 tokens; a chunk is split in
two between sentences, at a position drawn anew each epoch. Half of the pairs stay as they are, label 0. The others,
label 1, are made false: for "next" (BERT), the second part is replaced by sentences from another document; for "order"
(ALBERT), the two parts are swapped. A pair that is too long loses tokens from its longer part: the first part at its
beginning, the second at its end. This does not depend on the label, so truncation does not give the label away. Lengths
should not either. So a false part takes as many sentences as fit, but no more than the true part had if that was at the
end of its document; and it is truncated if the true part would have been. On Wikipedia and books, with T from 64 to
512, guessing the label from the lengths of the two parts alone is right in 50 to 55 % of cases.

**A target in every sequence.** A row of [UNK] and other special tokens has nothing to predict. All but Pairs
leave such sequences out and count them; in Pairs, where it depends on the split, the next chunk is used instead.

Each class has a method `rows(numbers, keys)`, which returns the sequences with these numbers, in any order. `keys` are
the random keys of common/draws.py. Only a few numbers are stored (Pairs: 8 bytes per chunk), so the text can be of any
size.
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

CUT, LABEL, OTHER = 10, 11, 12  # streams of random numbers; objectives/masking.py uses 0 to 4
CANDIDATES = 4  # sentences to try as the start of a false part; the first suitable one is taken
MUCH = 0.1  # fraction of the text; a warning is logged if more is left out
MODES = {"packed": 1, "running": 1, "sentences": 1, "next": 2, "order": 2}  # mode -> the number of texts in a sequence
TRIES = 1000  # chunks to try instead of one without a word; if none has a word, hardly any chunk does
ONE_DOCUMENT = (
    "the text is a single document; in plain text, empty lines separate documents: put one between texts, or give "
    "a folder with a file for each"
)
logger = logging.getLogger(__name__)


class Stretches:
    """Parts of a long array, numbered as if they were joined end to end, for text with some documents left out."""

    def __init__(self, starts, ends):
        some = ends > starts
        self.starts, lengths = starts[some], (ends - starts)[some]
        self.before = np.cumsum(lengths) - lengths
        self.shift = self.starts - self.before
        self.size = int(lengths.sum())

    def locate(self, numbers):
        """Convert numbers within the parts, 0 to size − 1, to positions in the whole array."""
        if len(self.starts) == 1:
            return numbers + self.starts[0]
        return numbers + self.shift[np.searchsorted(self.before, numbers, side="right") - 1]

    def number(self, places):
        """The inverse of `locate`; all positions must lie within the parts."""
        return places - self.shift[np.searchsorted(self.starts, places, side="right") - 1]


class Documents:
    """The documents to use: all of them or, if some are held out for validation, one of the two sides."""

    def __init__(self, shards: Shards, held_out: float = 0.0, validation: bool = False):
        held = shards.hashes < np.uint64(int(held_out * 2**64))  # depends on the text only, not on tokenizer or seed
        used = held if validation else ~held
        edges = np.flatnonzero(np.diff(used, prepend=False, append=False))
        sentences = [shards.documents[edge] for edge in (edges[::2], edges[1::2])]  # runs of consecutive documents
        self.shards, self.count = shards, int(used.sum())
        self.sentences = Stretches(*sentences)
        self.tokens = Stretches(*(shards.sentences[edge] - 1 for edge in sentences))  # -1: include the [SEP] before

    def span(self, first, last):
        """Returns where the sentences from `first` up to, but not including, `last` start and end in the tokens."""
        documents, sentences = self.shards.documents, self.shards.sentences
        separators = np.searchsorted(documents, last, side="right") - np.searchsorted(documents, last, side="left")
        return sentences[first], sentences[last] - separators  # a [SEP] precedes each document that begins there

    def around(self, sentence):
        """Returns, for the document of each sentence, its first sentence and the one after its last."""
        document = np.searchsorted(self.shards.documents, sentence, side="right")
        return self.shards.documents[document - 1], self.shards.documents[document]


def fair_share(shards: Shards, wanted: float, content: int) -> float:
    """The fraction to hold out: `wanted`, or the nearest that leaves `content` tokens on each side.

    Training keeps at least half of the tokens. Returns 0 if that is impossible, so nothing can be held out.
    """
    order = np.argsort(shards.hashes)
    hashes = shards.hashes[order]  # those that are held out come first
    held = np.cumsum(np.diff(shards.sentences[shards.documents])[order])  # tokens, each document with a [SEP]
    if not held.size:
        return 0.0
    wanted_count = int(np.searchsorted(hashes, np.uint64(int(wanted * 2**64))))
    least = int(np.searchsorted(held, content + 1)) + 1
    for documents in (max(wanted_count, least), least):
        if documents <= len(hashes):
            last = hashes[documents - 1]
            size = held[np.searchsorted(hashes, last, side="right") - 1]  # identical documents stay together
            if size <= held[-1] / 2 and held[-1] - size > content:
                return wanted if documents == wanted_count else float(np.nextafter(float(last) / 2**64, 1.0))
    return 0.0


class Source:
    """Sequences by number: `rows(numbers, keys)` for any of them, in any order."""

    documents: Documents
    count: int  # sequences
    left_out: str  # which part of the text is in no sequence, for messages; "": none
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
    """The sequences of a tokenized text, from the held-out documents (`validation`) or from the others.

    mode: "packed", "running", "sentences", "next" (pairs: does the second part follow?) or "order" (pairs: are they
    swapped?).
    """
    if mode not in MODES:
        raise ValueError(f"mode is {mode!r}, expected one of {', '.join(map(repr, MODES))}")
    added, texts = 0 if mode == "running" else tokenizer.added_count(MODES[mode]), MODES[mode]
    if length < added + texts:
        raise ValueError(
            f"max_seq_length={length} is too short for mode {mode!r}, in which special tokens take up {added} of "
            f"these: expected at least {added + texts}, such as 64"
        )
    documents = Documents(shards, held_out, validation)
    side = f"{len(shards.hashes):,} documents are left for {'validation' if validation else 'training'}"
    if not documents.sentences.size:
        if len(shards.hashes) == 1:
            raise ValueError(f"held_out={held_out} holds out whole documents, but {ONE_DOCUMENT}")
        raise ValueError(
            f"with held_out={held_out}, none of the {side}; choose another fraction, or a separate text for validation"
        )
    is_word = np.ones(tokenizer.vocab_size, bool)
    is_word[list(tokenizer.special_ids)] = False
    kind: Any = {"packed": Packed, "running": Running, "sentences": Sentences}.get(mode, Pairs)
    options = {"task": mode} if kind is Pairs else {}
    try:
        return kind(documents, length, tokenizer, is_word, **options)
    except ValueError as error:
        if not held_out:
            raise
        open_source(shards, tokenizer, length, mode)  # if all of the text fails, too, the fraction is not the reason
        raise ValueError(
            f"with held_out={held_out}, {documents.count:,} of the {side}: {error}; or choose another fraction"
        ) from error


class Packed(Source):
    """[CLS] T−2 tokens of the running text [SEP]"""

    surrounded, overlap = True, 0  # special tokens around a row; tokens that it shares with the next one

    def __init__(self, documents: Documents, length: int, tokenizer: Tokenizer, word: np.ndarray):
        self.documents, self.template = documents, tokenizer.template(add_special_tokens=self.surrounded)
        self.content = content = length - self.template.added
        size = max(documents.tokens.size - 1, 0)  # -1: the first [SEP] separates nothing
        self.types = np.array(self.template.token_types([content]))
        windows = max(size - self.overlap, 0) // content
        rest = max(size - self.overlap, 0) - windows * content
        self.left_out = f"{counted(rest, 'token')} at the end, too few for a sequence"
        if windows < 1:
            most = size - self.overlap + self.template.added
            shorter = f", or at most max_seq_length={most}" if most > self.template.added else ""
            raise ValueError(
                f"the text has {size:,} tokens, too few for one sequence of {content} (max_seq_length={length} minus "
                f"special tokens); use more text{shorter}"
            )
        wordless = []
        for own in _blocks(windows):
            full = np.full(len(own), content)
            wordless.append(own[_wordless(full, lambda some, k, own=own: word[self._tokens(own[some], k)])])
        self.wordless = np.concatenate(wordless)
        self.count = windows - len(self.wordless)
        self.left_out += _wordless_note(len(self.wordless), windows, "sequence")

    def _tokens(self, windows, k):
        """Token k of each of these windows of T−2 tokens."""
        return self.documents.shards.tokens[self.documents.tokens.locate(1 + windows * self.content + k)]

    def rows(self, numbers, keys) -> Rows:
        ((start,), _), (before, after) = self.template.places([self.content]), self.template.ids
        content = self.content + self.overlap
        ids = np.empty((len(numbers), len(self.types) + self.overlap), np.int64)
        ids[:, :start], ids[:, start + content :] = before, after
        ids[:, start : start + content] = self._tokens(_skip(self.wordless, numbers)[:, None], np.arange(content))
        return Rows(ids, types=np.tile(self.types, (len(ids), 1)) if self.types.any() else None)


class Running(Packed):
    """T tokens of the running text, and the one after them, with which the next row begins."""

    surrounded, overlap = False, 1


class Sentences(Source):
    """[CLS] one sentence [SEP] [PAD] …"""

    def __init__(self, documents: Documents, length: int, tokenizer: Tokenizer, word: np.ndarray):
        self.documents, self.template, self.padding = documents, tokenizer.template(), tokenizer.padding
        self.room = room = length - self.template.added
        everything, text = documents.sentences.size, documents.shards.tokens
        tokens, long, wordless = 0, 0, [np.arange(0)]
        for numbers in _blocks(everything):
            starts, sizes = self._span(documents.sentences.locate(numbers))
            over = np.maximum(sizes - room, 0)
            tokens, long = tokens + int(over.sum()), long + int((over > 0).sum())
            wordless.append(
                numbers[_wordless(sizes - over, lambda some, k, starts=starts: word[text[starts[some] + k]])]
            )
        self.wordless = np.concatenate(wordless)
        self.count = everything - len(self.wordless)
        self.left_out = f"{counted(tokens, 'token')} of {counted(long, 'sentence')} longer than {room}"
        self.left_out += _wordless_note(len(self.wordless), everything, "sentence")
        if tokens > MUCH * documents.tokens.size:
            logger.warning(
                "%.0f %% of the text is left out, because sentences are truncated to %d tokens: %s; increase "
                'max_seq_length, or use mode="packed", which truncates nothing. (A line is one sentence or several)',
                100 * tokens / documents.tokens.size,
                room,
                self.left_out,
            )

    def _span(self, sentence):
        """Returns where these sentences begin, and how many tokens they have."""
        starts, ends = self.documents.span(sentence, sentence + 1)
        return starts, ends - starts

    def lengths(self, numbers):
        """Tokens in these sequences, special tokens included"""
        sizes = self._span(self.documents.sentences.locate(_skip(self.wordless, numbers)))[1]
        return np.minimum(sizes, self.room) + self.template.added

    def rows(self, numbers, keys) -> Rows:
        starts, sizes = self._span(self.documents.sentences.locate(_skip(self.wordless, numbers)))
        parts = [(starts, np.minimum(sizes, self.room))]
        return _laid_out(self.documents.shards.tokens, self.template, self.padding, parts)


class Pairs(Source):
    """[CLS] first part [SEP] second part [SEP] [PAD] …        label 0: as in the text, 1: false"""

    def __init__(self, documents: Documents, length: int, tokenizer: Tokenizer, word: np.ndarray, task: str):
        self.documents, self.word, self.task = documents, word, task
        self.template, self.padding = tokenizer.template(2), tokenizer.padding
        self.room = length - self.template.added
        self.chunks, single = self._chunks()
        self.count = len(self.chunks)
        self.left_out = f"{counted(single, 'document')} of one sentence, too short for a pair" if single else ""
        if not self.count:
            raise ValueError(
                f"none of the {documents.count:,} documents has two sentences, so there are no pairs; in plain text, "
                "an empty line ends a document: is there one after every sentence?"
            )
        first, last = documents.around(self.chunks[:1])
        if task == "next" and last - first == documents.sentences.size:
            raise ValueError(
                'the text is a single document, but task="next" takes false sentences from another one; separate '
                'documents by empty lines, or use task="order"'
            )
        self.rows(np.arange(1), address(0))  # raises an error if there are no words

    def _chunks(self):
        """Returns the first sentence of every chunk, and how many documents have only one sentence.

        A chunk begins where the previous one ends, so the chunks form a chain of jumps. It is followed by doubling:
        jumps of 1, 2, 4, 8 … chunks, each composed of two of the previous kind, visit the whole chain in log₂ rounds.
        """
        found, single, at = [], 0, 0
        for numbers in _blocks(self.documents.sentences.size):
            low, size = int(numbers[0]), len(numbers)
            if at >= low + size:
                continue
            sentences = self.documents.sentences.locate(numbers)
            first, last = self.documents.around(sentences)
            steps = self.ends(sentences, self.room) - sentences
            jump = np.append(np.minimum(np.arange(size) + steps, size), size)  # size: beyond this block
            visited = np.zeros(size + 1, bool)
            visited[at - low] = True
            while jump[at - low] < size:
                visited[jump[visited]] = True
                jump = jump[jump]
            chain = np.flatnonzero(visited[:size])
            at = low + int(chain[-1] + steps[chain[-1]])
            begin, end, own = first[chain], last[chain], sentences[chain]
            alone = end - own == 1  # the last sentence of a document is left over: join it with the one before, if any
            single += int((alone & (begin == own)).sum())
            found.append((own - alone)[~alone | (begin < own)])
        return np.concatenate(found), single

    def ends(self, sentence, room, least: int = 2):
        """The end of the run of sentences that fits in `room` tokens: at least `least`, within the document."""
        starts = self.documents.shards.sentences
        fitting = np.searchsorted(starts, starts[sentence] + room, side="right") - 1
        return np.minimum(np.maximum(fitting, sentence + least), self.documents.around(sentence)[1])

    def rows(self, numbers, keys) -> Rows:
        numbers, keys = numbers.copy(), keys.copy()
        for _ in range(TRIES):
            *parts, labels = self._parts(numbers, keys)
            rows = _laid_out(self.documents.shards.tokens, self.template, self.padding, parts, labels)
            wordless = np.flatnonzero(~self.word[rows.ids].any(1))
            if not wordless.size:
                return rows
            numbers[wordless] = (numbers[wordless] + 1) % self.count
            keys[wordless] = mix(keys[wordless])
        raise ValueError(NO_WORD)

    def _parts(self, numbers, keys):
        """Returns the starts and lengths of the first parts, the same for the second parts, and the labels."""
        first = self.chunks[numbers]
        last = self.ends(first, self.room)
        cut = first + 1 + below(draws(keys, CUT, 0), last - first - 1)
        labels = (draws(keys, LABEL, 0) >> np.uint64(63)).astype(np.int64)
        false = np.flatnonzero(labels)
        parts = np.array([self.documents.span(first, cut), self.documents.span(cut, last)])  # part, start or end, row
        if self.task == "order":
            parts[:, :, false] = parts[::-1, :, false]
        else:
            one, two = (parts[:, 1] - parts[:, 0])[:, false]
            room = np.maximum(self.room - one, 0)
            document_ended = (last == self.documents.around(first)[1])[false]
            most = np.where(document_ended, (last - cut)[false], self.room)  # sentences; else only the room limits it
            other = self._elsewhere(first[false], room, two <= room, most, keys[false])
            parts[1][:, false] = self.documents.span(other, np.minimum(self.ends(other, room, least=1), other + most))
        one, two = parts[:, 1] - parts[:, 0]
        one = np.minimum(one, np.maximum(self.room - two, (self.room + 1) // 2))  # the longer part is truncated
        two = np.minimum(two, self.room - one)
        return (parts[0, 1] - one, one), (parts[1, 0], two), labels

    def _elsewhere(self, sentence, room, fits, most, keys):
        """A random sentence from another document.

        If possible, it fits in the room exactly where `fits` is true, and enough of its document follows to fill the
        room or to make `most` sentences.
        """
        first, last = (edge[:, None] for edge in self.documents.around(sentence))
        drawn = draws(keys[:, None], OTHER, np.arange(CANDIDATES))  # numbers among the other documents' sentences
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
    changes = list(template.type_changes(starts, groups))
    if not changes:
        return Rows(ids, lengths, None, labels, padding)
    used = place >= 0 if padding.side == "left" else place < lengths[:, None]
    types, *more = (change * ((place >= np.reshape(begin, (-1, 1))) & used) for begin, change in changes)
    for part in more:
        types += part
    if padding.type:
        types += padding.type * ~used
    return Rows(ids, lengths, types, labels, padding)


def _blocks(size: int) -> Iterator[np.ndarray]:
    """Yields 0 … size − 1 in blocks."""
    for low in range(0, size, 1 << 16):
        yield np.arange(low, min(low + (1 << 16), size))


def _wordless(sizes, is_word):
    """The rows without a word. `sizes` are their lengths; is_word(rows, k) tells whether token k of each is a word.

    Nearly all rows begin with a word, so this takes a few hundredths of a second for 30 million tokens.
    """
    rows, wordless, k = np.arange(len(sizes)), [np.arange(0)], 0
    while rows.size:
        wordless.append(rows[sizes[rows] == k])
        rows = rows[sizes[rows] > k]
        rows = rows[~is_word(rows, k)]
        k += 1
    return np.sort(np.concatenate(wordless))


def _skip(left_out, numbers):
    """Renumber: number i becomes the i-th number, from 0, that is not in `left_out` (sorted)."""
    if not left_out.size:
        return numbers
    return numbers + np.searchsorted(left_out - np.arange(len(left_out)), numbers, side="right")


NO_WORD = (
    "hardly any word of the text is in the tokenizer's vocabulary: everything is [UNK], so there is nothing to "
    "predict; is the tokenizer for another language?"
)


def _wordless_note(wordless: int, of: int, noun: str) -> str:
    """A note on sequences without a word, for `left_out`. Warns if there are many; raises if there are no others."""
    if wordless == of:
        raise ValueError(NO_WORD)
    if wordless > MUCH * of:
        logger.warning(
            "%s of %s are left out, because all of their words are [UNK]; is the tokenizer for another language?",
            f"{wordless:,}",
            counted(of, noun),
        )
    return f", {counted(wordless, noun)} without a word" if wordless else ""
