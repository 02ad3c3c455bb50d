"""Sequences cut from hand-made token files: where sentences are, what is left out, and which pairs there are."""

import logging

import numpy as np
import pytest

from mini_bert.common.draws import address
from mini_bert.data import sequences
from mini_bert.data.sequences import Documents, Packed, Pairs, Sentences, fair_share
from mini_bert.data.shards import Shards
from mini_bert.text.wordpiece import SPECIAL_TOKENS, WordPieceTokenizer

PAD, UNK, CLS, SEP, MASK = range(5)
SPECIAL = WordPieceTokenizer([*SPECIAL_TOKENS, "a"])
WORD = np.arange(100_000) > 4


def shards_of(documents):
    """Turns documents (lists of sentences, which are lists of ids) into the arrays of data/shards.py, with a
    plain loop"""
    tokens, sentences, starts = [], [], []
    for document in documents:
        tokens.append(SEP)
        starts.append(len(sentences))
        for sentence in document:
            sentences.append(len(tokens))
            tokens += sentence
    tokens.append(SEP)
    sentences, starts = [*sentences, len(tokens)], [*starts, len(sentences)]
    hashes = np.random.default_rng(0).integers(2**64, size=len(documents), dtype=np.uint64)
    return Shards("", {}, np.array(tokens), np.array(sentences), np.array(starts), hashes)


def numbered(lengths):
    """Turns sentence lengths per document into sentences whose ids count up from 5"""
    ids = iter(range(5, 100_000))
    return [[[next(ids) for _ in range(length)] for length in document] for document in lengths]


def random_lengths(count, seed=0, most=7, longest=15):
    random = np.random.default_rng(seed)
    return [random.integers(1, longest, random.integers(0, most)).tolist() for _ in range(count)]


def small_blocks(monkeypatch, size=7):
    """Makes blocks so small that a small text has many"""
    monkeypatch.setattr(
        sequences, "_blocks", lambda n: (np.arange(low, min(low + size, n)) for low in range(0, n, size))
    )


def rows_of(source, epochs=1):
    """All sequences without padding, and the labels of pairs"""
    found, labels = [], []
    for epoch in range(epochs):
        numbers = np.arange(source.count)
        rows = source.rows(numbers, address(3, epoch, numbers))
        lengths = np.full(len(numbers), rows.ids.shape[1]) if rows.lengths is None else rows.lengths
        found += [row[:length].tolist() for row, length in zip(rows.ids, lengths, strict=True)]
        labels += [] if rows.labels is None else rows.labels.tolist()
    return (found, labels) if labels else found


# ------------------------------------------------------------------ sentences


def test_where_sentences_lie():
    """With empty documents anywhere, and ids of special tokens in the text, only separators are removed."""
    documents = [[], [], [[5, 6, SEP], [SEP]], [], [], [[SEP, 7], [8], [PAD, SEP, SEP]], [[9]], [], []]
    documents = Documents(shards_of(documents))
    flat = [[5, 6, SEP], [SEP], [SEP, 7], [8], [PAD, SEP, SEP], [9]]
    starts, ends = documents.span(np.arange(6), np.arange(1, 7))
    assert [documents.shards.tokens[a:b].tolist() for a, b in zip(starts, ends, strict=True)] == flat
    starts, ends = documents.span(np.array([0, 2, 3]), np.array([2, 5, 5]))
    assert [documents.shards.tokens[a:b].tolist() for a, b in zip(starts, ends, strict=True)] == [
        [5, 6, SEP, SEP],
        [SEP, 7, 8, PAD, SEP, SEP],
        [8, PAD, SEP, SEP],
    ]
    assert [edge.tolist() for edge in documents.around(np.arange(6))] == [[0, 0, 2, 2, 2, 5], [2, 2, 5, 5, 5, 6]]


def test_much_that_is_left_out_is_told(caplog):
    """If more than a tenth of the text is cut off, a warning says how much and what to do. Less is only in the
    summary."""
    documents = Documents(shards_of(numbered([[20, 3], [2]])))
    assert Sentences(documents, 21, SPECIAL, WORD).left_out == "1 token of 1 sentence longer than 19"
    assert not caplog.records
    Sentences(documents, 12, SPECIAL, WORD)
    assert "37 % of the text is left out, because sentences are truncated to 10 tokens" in caplog.text
    assert "10 tokens of 1 sentence" in caplog.text and 'mode="packed"' in caplog.text


# ------------------------------------------------------------------ a word in every sequence


def spoilt_by_unk(seed, share=0.7):
    """Documents in which most tokens are [UNK]"""
    random = np.random.default_rng(seed)
    documents = numbered([lengths or [1] for lengths in random_lengths(60, seed)])
    return [[[UNK if random.random() < share else i for i in sentence] for sentence in d] for d in documents]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("held_out", [0.0, 0.3])
def test_what_has_no_word_is_left_out(monkeypatch, seed, held_out):
    """Exactly the sequences with nothing but special tokens are left out, and their number is reported."""
    small_blocks(monkeypatch)
    made = shards_of(spoilt_by_unk(seed))
    documents = Documents(made, held_out)
    used = np.array([d for d in range(60) if made.hashes[d] >= np.uint64(int(held_out * 2**64))])

    def texts(first, last):
        return [made.tokens[a:b].tolist() for a, b in zip(*documents.span(first, last), strict=True)]

    starts = made.documents
    stream = [token for text in texts(starts[used], starts[used + 1]) for token in [SEP, *text]][1:]
    windows = [stream[i : i + 4] for i in range(0, len(stream) - 3, 4)]
    expected = [[CLS, *window, SEP] for window in windows if max(window) > 4]
    packed = Packed(documents, 6, SPECIAL, WORD)
    assert rows_of(packed) == expected and packed.count == len(expected) < len(windows)
    assert packed.left_out.endswith(f", {len(windows) - len(expected)} sequences without a word")

    sentences = np.array([s for d in used for s in range(starts[d], starts[d + 1])])
    cut = [sentence[:5] for sentence in texts(sentences, sentences + 1)]
    expected = [[CLS, *sentence, SEP] for sentence in cut if max(sentence) > 4]
    alone = Sentences(documents, 7, SPECIAL, WORD)
    assert rows_of(alone) == expected and len(expected) < len(cut)
    assert alone.left_out.endswith(f", {len(cut) - len(expected)} sentences without a word")
    assert alone.lengths(np.arange(alone.count)).min() >= 3

    for task in ("next", "order"):
        pairs, labels = rows_of(Pairs(documents, 9, SPECIAL, WORD, task), 20)
        assert all(max(row) > 4 for row in pairs) and 0.3 < np.mean(labels) < 0.7


def test_pairs_that_step_in_are_the_same_each_time():
    """The pair at a position depends on its number and key, not on its neighbours in the batch."""
    pairs = Pairs(Documents(shards_of(spoilt_by_unk(1, 0.9))), 9, SPECIAL, WORD, "next")
    numbers = np.arange(pairs.count)
    keys = address(3, 0, numbers)
    whole = pairs.rows(numbers, keys)
    assert len(np.unique(whole.ids, axis=0)) < pairs.count  # some did step in
    for number in numbers:
        alone = pairs.rows(numbers[[number]], keys[[number]])
        np.testing.assert_array_equal(whole.ids[number, : alone.ids.shape[1]], alone.ids[0])


def test_text_without_any_word_is_an_error(caplog):
    """If all tokens are [UNK], the tokenizer is probably wrong: an error. If many are, a warning."""
    documents = Documents(shards_of([[[UNK] * 5, [UNK] * 4]] * 3))
    for make in (Packed, Sentences, lambda *a: Pairs(*a, "next"), lambda *a: Pairs(*a, "order")):
        with pytest.raises(ValueError, match=r"hardly any word .*is \[UNK\].*another language"):
            make(documents, 7, SPECIAL, WORD)
    assert not caplog.records
    Sentences(Documents(shards_of([[[UNK] * 5, [5] * 4]] * 3)), 7, SPECIAL, WORD)
    assert [r.levelno for r in caplog.records] == [logging.WARNING] and "3 of 6 sentences are left out" in caplog.text


# ------------------------------------------------------------------ pairs


def naive_chunks(lengths, room):
    """The first sentence of each chunk, by a plain loop, and the number of documents of one sentence"""
    found, single, number = [], 0, 0
    for document in lengths:
        at = 0
        while at < len(document):
            end = at + 2
            while end < len(document) - 1 and sum(document[at : end + 1]) <= room:
                end += 1
            if end == len(document) - 1 and sum(document[at:]) < room:  # the [SEP] behind a document takes room, too
                end += 1
            if at + 1 < len(document):
                found.append(number + at)
            elif at:
                found.append(number + at - 1)
            else:
                single += 1
            at = min(end, len(document))
        number += len(document)
    return found, single


@pytest.mark.parametrize("room", [2, 9, 30, 57])
@pytest.mark.parametrize("block", [1, 7, 64])
def test_chunks(monkeypatch, room, block):
    """A chunk has as many sentences as fit, at least two; a single last sentence joins the chunk before it. Block sizes
    make no difference."""
    small_blocks(monkeypatch, block)
    lengths = [*random_lengths(40), [1] * 100, *random_lengths(40, 1)]
    lengths = [document for document in lengths if document]
    pairs = Pairs(Documents(shards_of(numbered(lengths))), room + 3, SPECIAL, WORD, "order")
    chunks, single = naive_chunks(lengths, room)
    assert pairs.chunks.tolist() == chunks and pairs.left_out.startswith(f"{single} document") and single


def test_what_fits_exactly():
    """Sentences of 4, 5 and 6 tokens are one chunk if 15 tokens fit, and two if 14 fit; an odd length favours the first
    part."""
    documents = numbered([[4, 5, 6, 7, 3, 3], [2, 2]])
    for room, chunks in ((15, [0, 3, 6]), (14, [0, 2, 4, 6])):
        pairs = Pairs(Documents(shards_of(documents)), room + 3, SPECIAL, WORD, "order")
        assert pairs.chunks.tolist() == chunks
    pairs = Pairs(Documents(shards_of(numbered([[20, 30], [30, 20], [20, 2], [2, 20]]))), 10, SPECIAL, WORD, "order")
    for row in rows_of(pairs, 9)[0]:
        one = row.index(SEP) - 1
        assert len(row) == 10 and one in (4, 5, 2)
        if one != 4:  # the short part is whole, and stands first or last
            assert (row[1:3] if one == 2 else row[-3:-1]) in ([125, 126], [127, 128])
        else:
            assert row[4] in (24, 54, 84, 104) and row[6] in (
                5,
                25,
                55,
                85,
            )  # the end of one, the beginning of the other


def test_every_cut_comes():
    """A chunk of five sentences is cut at each of its four places equally often, newly drawn in each epoch."""
    pairs = Pairs(Documents(shards_of(numbered([[3] * 5, [3, 3]]))), 40, SPECIAL, WORD, "order")
    rows, labels = rows_of(pairs, 400)
    cuts = [row.index(SEP) - 1 for row, label in zip(rows[::2], labels[::2], strict=True) if not label]
    counts = np.bincount(cuts, minlength=13)[[3, 6, 9, 12]]
    assert counts.sum() == len(cuts) and counts.min() > 0.6 * len(cuts) / 4


@pytest.mark.parametrize("held_out", [0.0, 0.4])
def test_false_parts_are_from_elsewhere(held_out):
    """False parts come from all other documents, never from the same or a held-out one; they are complete sentences
    where these fit."""
    lengths = random_lengths(30, 2)
    made = shards_of(numbered(lengths))
    own = np.repeat(np.arange(30), [sum(document) for document in lengths])  # of each id, less 5
    documents = Documents(made, held_out)
    held = np.flatnonzero(made.hashes < np.uint64(int(held_out * 2**64)))
    seen = set()
    rows, labels = rows_of(Pairs(documents, 30, SPECIAL, WORD, "next"), 150)
    for row, label in zip(rows, labels, strict=True):
        middle = row.index(SEP)
        one, two = (set(own[np.array(part) - 5].tolist()) for part in (row[1:middle], row[middle + 1 : -1]))
        assert len(one) == len(two) == 1 and (one != two) == bool(label)
        seen |= two if label else set()
    assert seen == {d for d in range(30) if lengths[d]} - set(held.tolist())


def area(scores, labels):
    """The area under the ROC curve: how likely a pair with label 1 has the larger score (ties count half)"""
    scores, labels = np.array(scores), np.array(labels)
    one, two = scores[labels == 1], scores[labels == 0]
    return np.mean((one[:, None] > two) + 0.5 * (one[:, None] == two))


@pytest.mark.parametrize("length", [20, 45, 200])
def test_lengths_do_not_tell_the_label(length):
    """Neither the length of a pair, nor that of its second part, nor whether it ends at a sentence boundary reveals the
    label."""
    lengths = random_lengths(260, 5, most=12, longest=25)
    made = shards_of(numbered(lengths))
    last = set((made.tokens[1:][made.tokens[:-1] == SEP] - 1).tolist()) | {made.tokens[-2]}
    last |= set((made.tokens[made.sentences[:-1]] - 1).tolist())
    rows, labels = rows_of(Pairs(Documents(made), length, SPECIAL, WORD, "next"), 6)
    totals, seconds = [len(row) for row in rows], [len(row) - row.index(SEP) for row in rows]
    whole = [row[-2] in last for row in rows]
    assert len(rows) > 1000 and all(abs(area(scores, labels) - 0.5) < 0.06 for scores in (totals, seconds, whole))


@pytest.mark.parametrize("fits", [True, False])
def test_false_parts_are_cut_where_true_ones_are(fits):
    """Half of the sentences are too long: the search finds one that fits, or one that does not, as requested."""
    lengths = [[2, 30] * 4] * 50
    made = shards_of(numbered(lengths))
    pairs = Pairs(Documents(made), 23, SPECIAL, WORD, "next")
    n = 2000
    sentence, room, most = np.arange(n) % 400, np.full(n, 20), np.ones(n, int)
    other = pairs._elsewhere(sentence, room, np.full(n, fits), most, address(1, np.arange(n)))
    assert (other // 8 != sentence // 8).all()
    wanted = (np.array([2, 30])[other % 2] <= 20) == fits
    assert abs(wanted.mean() - (1 - 0.5**4)) < 0.03  # the best of four


@pytest.mark.parametrize("seed", range(40))
def test_a_fair_share_leaves_a_sequence_on_both_sides(seed):
    """If some share leaves a sequence on both sides and at least half of the text for training, one is found; else 0.
    Compared with every share."""
    random = np.random.default_rng(seed)
    shards = shards_of(numbered(random_lengths(random.integers(0, 12), seed, most=4)))
    if seed % 4 == 0 and len(shards.hashes) > 3:
        shards.hashes[1] = shards.hashes[3]  # the same text twice
    content, wanted = int(random.integers(1, 40)), float(random.choice([0.01, 0.2, 0.9]))

    def good(share):
        train, held = (Documents(shards, share, side).tokens.size for side in (False, True))
        return train > content and held > content and held <= train

    every = [float(np.nextafter(value / 2**64, 1)) for value in shards.hashes.tolist()]
    found = fair_share(shards, wanted, content)
    if found:
        assert good(found)
        if good(wanted):
            assert found == wanted
        for side in (False, True):
            assert Packed(Documents(shards, found, side), content + 2, SPECIAL, WORD).count >= 1
    else:
        assert not good(wanted) and not any(map(good, every))


def test_fair_shares_of_all_kinds_occur():
    """The test above covers all cases: nothing to hold out, the requested share, more, and less."""
    kinds = set()
    for seed in range(40):
        random = np.random.default_rng(seed)
        shards = shards_of(numbered(random_lengths(random.integers(0, 12), seed, most=4)))
        content, wanted = int(random.integers(1, 40)), float(random.choice([0.01, 0.2, 0.9]))
        found = fair_share(shards, wanted, content)
        kinds.add("none" if not found else "more" if found > wanted else "less" if found < wanted else "asked")
    assert kinds == {"none", "more", "less", "asked"}
