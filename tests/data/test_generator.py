"""Batches: every token is where it belongs, every sequence comes once per epoch, and a batch is always the same."""

import hashlib
import json
import lzma
import math
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from mini_bert.data.generator import Batch, MLMDataGenerator
from mini_bert.data.sequences import Stretches
from mini_bert.models.bert import Bert, BertConfig
from mini_bert.models.config import MiniBertConfig
from mini_bert.models.mini import MiniBERT
from mini_bert.text.wordpiece import WordPieceTokenizer

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
PAD, CLS, SEP, MASK = 0, 2, 3, 4


def make_documents(count=53, seed=0):
    """Documents as lists of sentences, and sentences as lists of words: every word occurs once, so a token identifies
    its position"""
    random = np.random.default_rng(seed)
    return [
        [[f"w{d}x{s}x{w}" for w in range(random.integers(2, 17))] for s in range(random.integers(1, 9))]
        for d in range(count)
    ]


DOCUMENTS = make_documents()
WORDS = [word for document in DOCUMENTS for sentence in document for word in sentence]
TOKENIZER = WordPieceTokenizer([*SPECIAL, ".", *WORDS])
STOP = 5
PLACE = {
    5 + 1 + i: tuple(map(int, word[1:].split("x"))) for i, word in enumerate(WORDS)
}  # id -> (document, sentence, word)
IDS = [[[TOKENIZER.vocab[word] for word in sentence] + [STOP] for sentence in document] for document in DOCUMENTS]


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def corpus(cache):
    path = cache / "corpus.txt"
    text = [" ".join(" ".join(sentence).capitalize() + "." for sentence in document) for document in DOCUMENTS]
    path.write_text("\n\n".join(text))
    return path


@pytest.fixture
def make(corpus, cache):
    def generator(length=17, batch_size=7, source=corpus, **options):
        options = {"cache_dir": cache, "progress": False, **options}
        return MLMDataGenerator(source, TOKENIZER, length, batch_size, **options)

    return generator


MODES = [
    {"mode": "packed"},
    {"mode": "sentences"},
    {"mode": "pairs", "task": "next"},
    {"mode": "pairs", "task": "order"},
    {"mode": "packed", "held_out": 0.2, "whole_word": True},
    {"mode": "pairs", "held_out": 0.2, "span": True},
    {"mode": "sentences", "held_out": 0.2, "split": "validation"},
]
ALL_MODES = pytest.mark.parametrize("options", MODES, ids=lambda options: "-".join(map(str, options.values())))


def unmasked(batch):
    """The ids before masking"""
    ids = batch.input_ids.copy()
    ids.ravel()[batch.rows] = batch.targets
    return ids


def equal(one, two):
    for name, a, b in zip(Batch._fields, one, two, strict=True):
        assert (a is None) == (b is None), name
        if a is not None:
            np.testing.assert_array_equal(a, b, err_msg=name)


def epoch_of(generator, epoch=0):
    """All sequences of an epoch, unmasked, without padding"""
    return [row[row != PAD].tolist() for batch in generator.once(epoch) for row in unmasked(batch)]


# ------------------------------------------------------------------ packed


@pytest.mark.parametrize("length", [3, 8, 17, 64])
def test_packed_sequences_are_the_running_text(make, length):
    """[CLS] T−2 tokens [SEP]: documents are concatenated with [SEP] between them, and each window comes once per epoch
    (except a window with only a [SEP], which has nothing to predict)."""
    stream = [token for document in IDS for token in [SEP, *(t for sentence in document for t in sentence)]][1:]
    content = length - 2
    expected = [[CLS, *stream[i : i + content], SEP] for i in range(0, len(stream) - content + 1, content)]
    expected = [row for row in expected if row != [CLS, SEP, SEP]]
    generator = make(length)
    for epoch in range(2):
        got = epoch_of(generator, epoch)
        assert got != expected and sorted(got) == sorted(expected)
    assert generator.sequences == len(expected) and generator.tokens == len(stream) + 1
    assert len(generator) == math.ceil(len(expected) / 7)
    assert all(batch.attention_mask is None and batch.token_type_ids is None for batch in generator.once())
    assert f"Left out: {len(stream) % content} tokens at the end" in str(generator)


def test_orders_differ_by_seed_and_epoch(make):
    """Each epoch and each seed has its own order and masks; the same epoch and seed give the same ones."""
    same, other = make(seed=1), make(seed=2)
    orders = [epoch_of(generator, epoch) for generator in (same, other) for epoch in range(3)]
    assert all(a != b for i, a in enumerate(orders) for b in orders[:i])
    assert epoch_of(make(seed=1), 2) == orders[2]

    def hidden(generator):
        """Which positions are masked in which sequence"""
        batches = [(unmasked(batch), batch.input_ids) for batch in generator.once()]
        return {(tuple(before), tuple(after)) for batch in batches for before, after in zip(*batch, strict=True)}

    one, two = hidden(same), hidden(other)
    assert len(one) == len(two) == same.sequences and len(one & two) < 0.1 * len(one)


def test_epochs_follow_without_a_gap(make):
    """Batches are always full; in the stream of batches, each run of `sequences` sequences contains every sequence
    once."""
    generator = make()
    n = generator.sequences
    stream = [tuple(row) for index in range(3 * len(generator)) for row in unmasked(generator.batch(index)).tolist()]
    assert n % 7 and len(stream) == 3 * len(generator) * 7
    whole = set(stream[:n])
    assert len(whole) == n == len(set(stream[n : 2 * n])) and set(stream[n : 2 * n]) == whole == set(
        stream[2 * n : 3 * n]
    )


def test_a_large_batch_is_its_small_ones_in_a_row(make):
    """Four batches of 8 make up one batch of 32, including the masks."""
    small, large = make(batch_size=8), make(batch_size=32)
    for index in range(4):
        parts = [small.batch(4 * index + i) for i in range(4)]
        whole = large.batch(index)
        np.testing.assert_array_equal(np.concatenate([part.input_ids for part in parts]), whole.input_ids)
        for part, one in zip(parts, whole.split(4), strict=True):
            equal(part, one)


# ------------------------------------------------------------------ any batch, anywhere, again


GOLDEN = [  # for each mode, with seed 0 and with seed 1
    ("f149eb5a007e5462", "e6176eff82ec904b"),
    ("66bffc20c4fb368f", "b74ec371a4fd917a"),
    ("117cf2c73d7975e0", "de74ab99a36aecd7"),
    ("eaa4d39b488e81d2", "41e5eebb1d08ddce"),
    ("e6859b10170343cb", "7ed54d40e0ac3d97"),
    ("430056a6d1f30798", "736a282d1e15f3d7"),
    ("07c0e7002b14e812", "e70ee01e18812278"),
]


@ALL_MODES
@pytest.mark.parametrize("seed", [0, 1])
def test_batches_are_the_same_for_ever(make, options, seed):
    """A run resumed with a later version sees the same batches. (If these numbers change, resumed runs break: say so in
    the changelog.)"""
    generator = make(seed=seed, batch_size=3, **options)
    content = hashlib.sha256()
    for index in [*range(5), *range(generator.order.pool, generator.order.pool + 5), 5 * len(generator), 10**9]:
        for array in generator.batch(index):
            content.update(b"none" if array is None else array.astype("<i8").tobytes())
    assert content.hexdigest()[:16] == GOLDEN[MODES.index(options)][seed]


@ALL_MODES
def test_any_thread_gets_the_same_batch(make, options):
    """Eight threads that request batches in another order at the same time get the same batches."""
    one, two = make(**options), make(**options)
    expected = [next(one) for _ in range(40)]
    numbers = np.random.default_rng(0).permutation(np.repeat(np.arange(40), 3))
    with ThreadPoolExecutor(8) as threads:
        for number, batch in zip(numbers, threads.map(lambda n: two.batch(int(n)), numbers), strict=True):
            equal(batch, expected[number])


@ALL_MODES
@pytest.mark.parametrize("at", [0, 1, 13, 29])
def test_a_resumed_stream_is_bit_identical(make, options, at):
    """Stopped anywhere, saved as JSON and restored in a new generator, it continues as if it had never been stopped."""
    whole = make(**options)
    for _ in range(at):
        next(whole)
    saved = json.dumps(whole.state())
    resumed = make(**options)
    resumed.restore(json.loads(saved))
    assert resumed.state() == whole.state()
    for _ in range(15):
        equal(next(resumed), next(whole))


def test_what_was_saved_must_fit(make, cache, corpus):
    """A state from another text or other settings, or a damaged one, is refused, and the position stays."""
    generator = make()
    next(generator)
    state = generator.state()
    other = cache / "other.txt"
    other.write_text(corpus.read_text()[:-400])
    for change, message in [
        ({"data": make(source=other).state()["data"]}, "belongs to another text"),
        ({"seed": 5}, "saved with seed=5, but this generator has 0; build it with seed=5"),
        ({"batch_size": 3}, "saved with batch_size=3"),
        ({"next": -1}, "the saved position is -1, expected a batch number"),
        ({"next": "7"}, "the saved position is '7'"),
        ({"extra": 1}, "not from this version of the data generator: it differs in extra"),
    ]:
        with pytest.raises(ValueError, match=message):
            generator.restore(state | change)
    assert generator.state() == state
    with pytest.raises(IndexError, match="there is no batch -1"):
        generator.batch(-1)


@ALL_MODES
def test_masks_are_as_specified_in_every_mode(make, options):
    """15 % of the words, 80/10/10, never a special token, at least one target per sequence; new masks in each epoch."""
    generator = make(**options, batch_size=64, length=33)
    words = chosen = hidden = same = 0
    for epoch in range(12):
        for batch in generator.once(epoch):
            ids = unmasked(batch)
            assert (batch.targets > 4).all() and len(np.unique(batch.rows // ids.shape[1])) == len(ids)
            now = batch.input_ids.ravel()[batch.rows]
            words, chosen = words + (ids > 4).sum(), chosen + len(now)
            hidden, same = hidden + (now == MASK).sum(), same + (now == batch.targets).sum()
            assert batch.rows.max() < ids.size and batch.input_ids.dtype == np.int64
    error = 0.03 if options["mode"] == "sentences" else 0.01  # short sentences have one target, and so more than 15 %
    assert 0.15 - error < chosen / words < 0.15 + error
    assert abs(hidden / chosen - 0.8) < 0.05 and abs(same / chosen - 0.1) < 0.05


def test_masks_change_with_the_epoch_unless_fixed(make):
    """Training has new masks each epoch; validation has the same ones, in the same order."""
    moving, fixed = make(), make(fixed=True)
    assert any((a.input_ids != b.input_ids).any() for a, b in zip(moving.once(0), moving.once(1), strict=True))
    for one, two in zip(fixed.once(0), fixed.once(5), strict=True):
        equal(one, two)
    held = make(held_out=0.3, split="validation")
    assert (
        held.order.fixed
        and not make(held_out=0.3).order.fixed
        and not make(held_out=0.3, split="validation", fixed=False).order.fixed
    )
    for one, two in zip(held.once(0), held.once(5), strict=True):
        equal(one, two)


# ------------------------------------------------------------------ held out


def documents_of(rows):
    return {PLACE[token][0] for row in rows for token in row if token in PLACE}


@pytest.mark.parametrize("mode", ["packed", "sentences"])
@pytest.mark.parametrize("share", [0.05, 0.2, 0.5])
def test_held_out_documents_are_apart(make, mode, share):
    """The two sides share no document and together contain all; the text decides the side, not the seed."""
    train = make(mode=mode, held_out=share, length=4)
    held = train.validation()
    ours, theirs = documents_of(epoch_of(train)), documents_of(epoch_of(held))
    assert not ours & theirs and ours | theirs == set(range(53)) and theirs
    assert len(ours) == train.documents.count and len(theirs) == held.documents.count
    assert documents_of(epoch_of(make(mode=mode, held_out=share, length=4, seed=9))) == ours
    assert abs(len(theirs) - 53 * share) < 5 * math.sqrt(53 * share * (1 - share))
    assert held.order.fixed and not train.order.fixed and train.validation(batch_size=3).batch_size == 3


def test_packed_text_without_the_held_out_documents(make):
    """Held-out documents are skipped: the rest is packed as if they had never been there."""
    train = make(held_out=0.3)
    kept = sorted(documents_of(epoch_of(train)))
    stream = [token for d in kept for token in [SEP, *(t for sentence in IDS[d] for t in sentence)]][1:]
    expected = [[CLS, *stream[i : i + 15], SEP] for i in range(0, len(stream) - 14, 15)]
    assert sorted(epoch_of(train)) == sorted(expected)


def test_stretches():
    """Maps numbers within the parts to positions in the whole and back; empty parts do not count."""
    parts = Stretches(np.array([2, 7, 7, 20]), np.array([5, 7, 9, 24]))
    places = [2, 3, 4, 7, 8, 20, 21, 22, 23]
    assert parts.size == 9 and parts.locate(np.arange(9)).tolist() == places
    assert parts.number(np.array(places)).tolist() == list(range(9))


# ------------------------------------------------------------------ sentences


@pytest.mark.parametrize("length", [3, 9, 40])
def test_one_sentence_a_sequence(make, length):
    """[CLS] sentence [SEP], truncated if too long, padded to the longest of its batch; each once per epoch."""
    generator = make(length, mode="sentences")
    expected = [[CLS, *sentence[: length - 2], SEP] for document in IDS for sentence in document]
    assert sorted(epoch_of(generator)) == sorted(expected) and generator.sequences == len(expected)
    cut = [len(s) - (length - 2) for document in IDS for s in document if len(s) > length - 2]
    assert f"Left out: {sum(cut):,} tokens of {len(cut):,} sentences" in str(generator)
    for batch in generator.once():
        mask = batch.input_ids != PAD
        assert mask.any(0).all()  # no column of padding alone
        np.testing.assert_array_equal(
            mask, np.ones_like(mask) if batch.attention_mask is None else batch.attention_mask
        )


def test_sentences_of_like_length_come_together(make):
    """There is little padding, but short and long batches come in random order, and each sentence comes once
    per epoch."""
    generator = make(40, mode="sentences", batch_size=5)
    batches = [generator.batch(i) for i in range(len(generator))]
    padding = [1 - (batch.input_ids != PAD).mean() for batch in batches]
    widths = np.array([batch.input_ids.shape[1] for batch in batches])
    assert np.mean(padding) < 0.04 and np.ptp(widths) > 8
    for batch, share in zip(batches, padding, strict=True):
        assert (batch.attention_mask is None) == (share == 0)  # attention needs no mask where nothing is padded
    assert 0 in padding and max(padding) > 0
    once = [1 - (batch.input_ids != PAD).mean() for batch in generator.once()]
    assert np.mean(once) < 0.04 and len(once) == len(generator)
    assert abs(np.corrcoef(widths, np.arange(len(widths)))[0, 1]) < 0.4
    n, pool = generator.sequences, generator.order.pool
    rows = [tuple(row[row != PAD]) for i in range(2 * pool) for row in unmasked(generator.batch(i))]
    assert pool == n // 5 > 40 and len(set(rows[: 5 * pool])) == 5 * pool and len(set(rows)) == n


def test_lower_cased_sentences_a_line(make, cache):
    """Each line is its own sequence, and none is lost."""
    path = cache / "lower.txt"
    lines = [" ".join(sentence) for document in DOCUMENTS for sentence in document]
    path.write_text("\n".join(lines))
    generator = make(40, source=path, mode="sentences")
    expected = [[CLS, *(TOKENIZER.vocab[word] for word in line.split()), SEP] for line in lines]
    assert sorted(epoch_of(generator)) == sorted(expected)
    path.write_text(" .\n".join(lines))
    assert make(40, source=path, mode="sentences").sequences == len(lines)


@pytest.mark.parametrize("options", MODES[:4], ids=lambda options: "-".join(options.values()))
def test_every_sequence_has_a_target(make, cache, options):
    """Half of a chat is emoji that are not in the vocabulary: sequences with nothing else are left out, and this is
    reported."""
    path = cache / "chat.txt"
    chats = ("\U0001f44d\n" * int(i % 3 * 4) + f"W{i}x0x0 w{i}x0x1\n\U0001f44d\n" for i in range(53))
    path.write_text("\n".join(chats), encoding="utf-8")
    generator = make(6, 4, source=path, **options)
    for batch in [*(generator.batch(i) for i in range(100)), *generator.once(7)]:
        assert len(np.unique(batch.rows // batch.input_ids.shape[1])) == len(batch.input_ids)
        assert (unmasked(batch)[:, 1:-1] == 1).any() or options["mode"] == "sentences"
    if options["mode"] != "pairs":
        assert re.search(r", \d+ (sequence|sentence)s without a word", str(generator))


def test_padding_changes_no_loss(make):
    """A padded batch has the same loss as its sentences alone."""
    tiny = {"vocab_size": len(TOKENIZER), "hidden_size": 6, "num_layers": 1, "num_heads": 2, "intermediate_size": 7}
    model = MiniBERT(MiniBertConfig(**tiny, max_seq_length=40), dtype=np.float64)
    generator = make(40, mode="sentences", batch_size=5)
    batch = next(batch for batch in generator if batch.attention_mask is not None)
    total = sum(
        float(model.loss(part.input_ids[:, part.attention_mask[0]], part.rows, part.targets, count=batch.rows.size)[0])
        for part in batch.split(5)
    )
    assert model.loss(*batch[:4])[0] == pytest.approx(total, rel=1e-12)


# ------------------------------------------------------------------ pairs


def parts_of(row, types):
    """The two parts of a pair, after checking the special tokens around them"""
    ends = np.flatnonzero(row == SEP)
    assert row[0] == CLS and len(ends) == 2 and (row[ends[1] + 1 :] == PAD).all() and PAD not in row[: ends[1]]
    inside = np.arange(len(row))
    np.testing.assert_array_equal(types, (inside > ends[0]) & (inside <= ends[1]))
    return row[1 : ends[0]].tolist(), row[ends[0] + 1 : ends[1]].tolist()


def pairs_of(generator, epochs=4):
    for epoch in range(epochs):
        for batch in generator.once(epoch):
            for row, types, label in zip(unmasked(batch), batch.token_type_ids, batch.next_sentence, strict=True):
                yield (*parts_of(row, types), int(label), len(row))


FLAT = [[token for sentence in document for token in sentence] for document in IDS]


def runs_on(one, two):
    """Whether the second part begins where the first ends, at the beginning of a sentence"""
    place = next(PLACE[t] for t in two if t in PLACE)
    document = FLAT[place[0]]
    start = sum(map(len, IDS[place[0]][: place[1]]))
    return document[start : start + len(two)] == two and document[max(0, start - len(one)) : start] == one


@pytest.mark.parametrize("length", [5, 12, 33, 80])
def test_next_sentence_pairs(make, length):
    """Label 0: the second part follows the first in its document. Label 1: it is from another document. Each is half of
    the pairs."""
    labels = []
    for one, two, label, width in pairs_of(make(length, mode="pairs", task="next")):
        assert one and two and len(one) + len(two) + 3 <= length and width <= length
        if label == 0:
            assert runs_on(one, two)
        else:
            first, second = (documents_of([part]) for part in (one, two))
            assert len(second) <= 1 and not first & second
        labels.append(label)
    assert abs(np.mean(labels) - 0.5) < 5 * 0.5 / math.sqrt(len(labels))


@pytest.mark.parametrize("length", [5, 12, 33, 80])
def test_sentence_order_pairs(make, length):
    """Label 0: the parts are in the order of the text. Label 1: they are swapped (complete, unless one had to be
    truncated)."""
    labels, whole = [], 0
    for one, two, label, width in pairs_of(make(length, mode="pairs", task="order")):
        assert len(documents_of([one + two])) <= 1 and width <= length
        if label == 0:
            assert runs_on(one, two)
        elif len(one) + len(two) + 3 < length:
            whole += 1
            assert runs_on(two, one)
        labels.append(label)
    assert abs(np.mean(labels) - 0.5) < 5 * 0.5 / math.sqrt(len(labels))
    assert whole or length < 33


def test_every_sentence_is_in_some_pair(make):
    """If at least two sentences fit, all sentences of documents that have two are used; the rest is reported."""
    generator = make(80, mode="pairs", task="order")
    used = {PLACE[token][:2] for one, two, _, _ in pairs_of(generator, 1) for token in one + two if token in PLACE}
    assert used == {(d, s) for d, document in enumerate(IDS) for s in range(len(document)) if len(document) > 1}
    single = sum(len(document) == 1 for document in IDS)
    assert single and f"Left out: {single} documents of one sentence" in str(generator)


def test_pairs_are_cut_and_spoilt_anew_each_epoch(make):
    """The same chunk has a different cut and a different label in another epoch."""
    generator = make(80, mode="pairs", task="next")
    assert sorted(epoch_of(generator, 0)) != sorted(epoch_of(generator, 1))


def test_false_sentences_come_from_everywhere_else(make):
    """Over many epochs, they come from every other training document, and never from a held-out one."""
    generator = make(40, mode="pairs", held_out=0.3)
    ours = documents_of(epoch_of(generator.validation(mode="sentences")))
    false = [documents_of([two]) for _, two, label, _ in pairs_of(generator, 40) if label]
    seen = set().union(*false)
    assert not seen & ours and seen == set(range(53)) - ours


def test_published_bert_takes_a_batch(make):
    """bert.loss(*batch) is the loss of both objectives, and its gradients can be computed."""
    config = BertConfig(
        vocab_size=len(TOKENIZER), hidden_size=6, num_hidden_layers=1, num_attention_heads=2, intermediate_size=7,
        max_position_embeddings=40,
    )  # fmt: skip
    bert = Bert(config)
    loss, cache = bert.loss(*next(make(40, mode="pairs")))
    assert math.log(len(TOKENIZER)) < loss < math.log(len(TOKENIZER)) + 2
    assert np.isfinite(bert.loss_backward(cache)).all()


# ------------------------------------------------------------------ splitting, errors


@ALL_MODES
def test_parts_add_up_to_the_whole(make, options):
    """With the count of the whole batch, losses and gradients of its micro-batches sum to those of the batch."""
    tiny = {"vocab_size": len(TOKENIZER), "hidden_size": 6, "num_layers": 1, "num_heads": 2, "intermediate_size": 7}
    model = MiniBERT(MiniBertConfig(**tiny, max_seq_length=17), dtype=np.float64)
    batch = next(make(batch_size=8, **options))
    loss, cache = model.loss(*batch[:4])
    model.loss_backward(cache)
    whole = model.flat.grad.copy()
    model.flat.grad[:] = 0
    total = 0.0
    for part in batch.split(4):
        one, cache = model.loss(*part[:4], count=batch.rows.size)
        model.loss_backward(cache)
        total += one
    assert total == pytest.approx(loss, rel=1e-12)
    np.testing.assert_allclose(model.flat.grad, whole, atol=1e-12)
    with pytest.raises(ValueError, match="8 sequences cannot be split into 3 equal parts"):
        batch.split(3)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 0}, "batch_size is 0, expected .* at least 1"),
        ({"length": 2}, "max_seq_length=2 is too short .*expected at least 3"),
        ({"length": 4, "mode": "pairs"}, "max_seq_length=4 is too short .*tokens take up 3.*expected at least 5"),
        ({"length": 0}, "max_seq_length is 0"),
        ({"mode": "sentence"}, "mode is 'sentence', expected one of 'packed', 'sentences', 'pairs'"),
        ({"task": "nsp"}, "task is 'nsp', expected one of 'next', 'order'"),
        ({"split": "test"}, "split is 'test', expected one of 'train', 'validation'"),
        ({"split": "validation"}, "pass held_out"),
        ({"held_out": 1}, "held_out is 1, expected a fraction of the documents from 0 to below 1"),
        ({"held_out": 1e-9, "split": "validation"}, "held_out=1e-09, none of the 53 documents are left for validation"),
        ({"held_out": 1 - 1e-9}, "none of the 53 documents are left for training"),
        (
            {"held_out": 0.1, "split": "validation", "length": 1000},
            r"with held_out=0.1, \d of the 53 documents are left for validation: the text has .*too few "
            "for one sequence of 998 .*; or choose another fraction",
        ),
        (
            {"held_out": 0.9, "length": 1000},
            r"\d of the 53 documents are left for training: the text has .* another fraction",
        ),
        ({"seed": 1.5}, "seed is 1.5, expected a whole number"),
        ({"processes": 0}, "processes is 0, expected a whole number"),
        ({"mask_prob": 0}, "mask_prob is 0"),
        ({"vocab_size": 100}, r"the tokenizer has [\d,]+ tokens, but the model has only 100 ids.*vocab_size="),
        ({"length": 10_000}, r"has [\d,]+ tokens, too few for one sequence of 9998 .*or at most max_seq_length=\d+$"),
    ],
)
def test_errors_name_the_value(make, options, message):
    """Errors are raised before any text is read, where that is possible."""
    with pytest.raises(ValueError, match=message):
        make(**options)


@pytest.mark.parametrize("split", ["train", "validation"])
def test_the_fraction_is_blamed_only_if_another_would_help(make, cache, split):
    """All of the text is [UNK]: whatever is held out, there is nothing to predict."""
    path = cache / "foreign.txt"
    path.write_text("\n\n".join("ж" * number for number in range(1, 41)), encoding="utf-8")
    with pytest.raises(ValueError, match=r"^hardly any word of the text is in the tokenizer's vocabulary.*language\?$"):
        make(source=path, held_out=0.5, split=split, length=6)


@pytest.mark.parametrize("split", ["train", "validation"])
def test_a_single_document_cannot_be_split(make, cache, split):
    """Another fraction would not help, so the error says what separates documents."""
    path = cache / "one.txt"
    path.write_text("W0x0x0.\nW0x0x1.\nW0x1x0.\n")
    held_out = 1 - 1e-9 if split == "train" else 0.001
    with pytest.raises(ValueError, match="the text is a single document; in plain text, empty lines separate") as error:
        make(source=path, held_out=held_out, split=split, length=6)
    assert "fraction" not in str(error.value)


def test_texts_that_make_no_pairs(make, cache):
    """A single document has no other to take false sentences from; documents of one sentence have no next sentence."""
    path = cache / "few.txt"
    path.write_text("W0x0x0. W0x0x1. W0x1x0.")
    assert make(source=path, mode="pairs", task="order").sequences > 0
    with pytest.raises(ValueError, match=r'the text is a single document.*use task="order"'):
        make(source=path, mode="pairs")
    path.write_text("W0x0x0.\n\nW0x0x1.\n\nW0x1x0.")
    with pytest.raises(ValueError, match="none of the 3 documents has two sentences"):
        make(source=path, mode="pairs")


def test_texts_of_hardly_anything(make, cache, caplog):
    """A text without words is an error; if there are fewer sequences than a batch has, they are repeated with other
    masks, and this is reported."""
    path = cache / "small.txt"
    path.write_text("\n")
    with pytest.raises(ValueError, match="there is no text in"):
        make(source=path)
    path.write_text("W0x0x0 w0x0x1. W0x1x0 w0x1x1.")
    with pytest.raises(ValueError, match="the text has 6 tokens, too few for one sequence of 15"):
        make(source=path)
    for options in ({"length": 5}, {"mode": "sentences"}):
        caplog.clear()
        generator = make(source=path, **options)
        assert (
            "the text makes 2 sequences, but a batch has 7: some appear more than once" in caplog.text
            and "smaller batches, or shorter sequences" in caplog.text
        )
        assert generator.sequences == 2 and len(generator) == 1
        assert str(generator).startswith("2 sequences (") and "of 1 document: 1 batch of 7 per epoch. " in str(
            generator
        )
        assert next(generator).input_ids.shape[0] == 7 and len(epoch_of(generator)) == 2


@pytest.mark.parametrize("tokenizer", ["8k", Path("8k")])
def test_the_name_of_a_tokenizer_is_not_one(corpus, tokenizer):
    """The error says how to load a tokenizer."""
    with pytest.raises(TypeError, match=r"the tokenizer is '8k', a name .*load_tokenizer\('8k'\)"):
        MLMDataGenerator(corpus, tokenizer)
    with pytest.raises(TypeError, match=r"the tokenizer is None, a NoneType; expected .*load_tokenizer"):
        MLMDataGenerator(corpus, None)


@pytest.mark.parametrize("source", [None, 5])
def test_what_is_no_source_of_text(make, source):
    """The error says what a source is."""
    with pytest.raises(TypeError, match=f"the source of text is {source}, a .*expected a path"):
        make(source=source)


def test_texts_from_an_iterator(make):
    """Texts from an iterator give the same batches as the same texts in a file."""
    texts = [" ".join(" ".join(sentence).capitalize() + "." for sentence in document) for document in DOCUMENTS]
    equal(next(make(source=iter(texts))), next(make()))


def test_places_that_are_none(make):
    """A batch number must be an integer, and a state must come from state()."""
    generator = make()
    equal(generator.batch(np.int64(2)), generator.batch(2))
    with pytest.raises(TypeError, match=r"the batch number is 1\.5, expected a whole number"):
        generator.batch(1.5)
    with pytest.raises(TypeError, match="the state is None, a NoneType; expected what state"):
        generator.restore(None)


def test_it_shows_itself(make):
    """repr shows where the tokens are, the number of sequences, and every setting."""
    shown = repr(make())
    assert shown.startswith("<MLMDataGenerator of ") and "sequences, max_seq_length=17, batch_size=7, seed=0" in shown


def test_opened_shards_can_be_shared(make, cache):
    """A second generator can use the open files of the first; those of another tokenizer are refused."""
    first = make()
    equal(next(make(source=first.shards)), next(first))
    with pytest.raises(ValueError, match="made with another tokenizer"):
        MLMDataGenerator(first.shards, WordPieceTokenizer([*SPECIAL, "a"]), 17, 7)


# ------------------------------------------------------------------ real text

PRETRAIN = Path(__file__).parents[2].parent / "shared" / "data" / "pretrain"


@pytest.mark.slow
@pytest.mark.skipif(not PRETRAIN.is_dir(), reason="the pretraining text is not here")
def test_real_text(tmp_path):
    """On Wikipedia and books, the number of documents matches the manifest, ids decode to the text, and pairs are
    balanced."""
    tokenizer = WordPieceTokenizer.load("8k")
    sources = [PRETRAIN / "books.txt.xz", PRETRAIN / "wiki.txt.xz"]
    options = {"cache_dir": tmp_path, "progress": False}
    packed = MLMDataGenerator(sources, tokenizer, 64, 32, held_out=0.01, **options)
    assert packed.documents.count + packed.validation().documents.count == len(packed.shards.hashes) == 3_508 + 11_184
    assert 25e6 < packed.tokens < 40e6 and packed.sequences == (packed.tokens - 1) // 62

    with lzma.open(sources[0], "rt", encoding="utf-8") as file:
        first = file.readline()
    ids = tokenizer.encode(first, add_special_tokens=False)
    np.testing.assert_array_equal(packed.shards.tokens[1 : len(ids) + 1], ids)

    words = chosen = 0
    for index in range(300):
        batch = packed.batch(index)
        assert batch.input_ids.shape == (32, 64) and (batch.targets > 4).all()
        words, chosen = words + (unmasked(batch) > 4).sum(), chosen + batch.rows.size
    assert abs(chosen / words - 0.15) < 1e-3

    for task in ("next", "order"):
        pairs = MLMDataGenerator(packed.shards, tokenizer, 128, 64, mode="pairs", task=task)
        batches = [pairs.batch(index) for index in range(150)]
        labels = np.concatenate([batch.next_sentence for batch in batches])
        assert abs(labels.mean() - 0.5) < 5 * 0.5 / math.sqrt(labels.size)
        lengths = np.concatenate([(batch.input_ids != PAD).sum(1) for batch in batches])
        assert abs(lengths[labels == 0].mean() - lengths[labels == 1].mean()) < 8  # length does not tell the label
