"""Lanes: each sequence of a batch continues the one of the batch before."""

from __future__ import annotations

import json

import numpy as np
import pytest

from mini_bert.data.batches import Batches
from mini_bert.data.generator import TextBatches
from mini_bert.data.lanes import SEGMENTS, Lanes
from mini_bert.data.sequences import open_source
from mini_bert.data.shards import prepare
from mini_bert.objectives.masked_words import MaskedWords
from mini_bert.objectives.next_word import NextWord, NextWordWithMemory
from mini_bert.text.wordpiece import WordPieceTokenizer

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmnopqrstuvwxyz"]


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    """Documents of letters, a few of which are not in the vocabulary."""
    folder = tmp_path_factory.mktemp("lanes")
    rng = np.random.default_rng(0)
    documents = [" ".join(rng.choice([*"abcdefghijklmnopqrstuvwxyz", "é"], 23)) for _ in range(40)]
    (folder / "text.txt").write_text("\n\n".join(documents), encoding="utf-8")
    return prepare(str(folder / "text.txt"), TOKENIZER, cache_dir=folder / "cache", progress=False)


TOKENIZER = WordPieceTokenizer(WORDS, lowercase=False)


def test_each_lane_reads_on():
    """From step to step its number grows by one, or it begins anew; together the lanes of an epoch repeat nothing."""
    order = Lanes(sequences=31, batch_size=2, lanes=6, seed=3)
    assert order.steps == 5
    before = None
    for step in range(12):
        parts = [order.batch(3 * step + part) for part in range(3)]
        epochs, numbers, lanes, starts = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
        assert lanes.tolist() == list(range(6)) and set(epochs) == {step // 5}
        if step % 5 == 0:
            seen, begins = [], numbers.copy()
            assert starts.all()
        else:
            np.testing.assert_array_equal(numbers, (before + 1) % 31)
            np.testing.assert_array_equal(starts, numbers == 0)
        seen += numbers.tolist()
        assert len(seen) == len(set(seen)) <= 30
        before = numbers
    assert begins.tolist() != order.batch(0).numbers.tolist()


def test_every_epoch_begins_elsewhere_unless_it_is_fixed():
    """The offset of 40 epochs takes many values; a fixed order repeats the first epoch."""
    firsts = {int(Lanes(31, 2, 6).batch(3 * 5 * epoch).numbers[0]) for epoch in range(40)}
    assert len(firsts) > 15 and firsts <= set(range(31))
    fixed = Lanes(31, 2, 6, fixed=True)
    for one, other in zip(fixed.batch(4), fixed.batch(4 + 7 * 15), strict=True):
        np.testing.assert_array_equal(one, other)


def test_the_split_into_micro_batches_changes_nothing():
    for step in range(9):
        whole, parts = Lanes(31, 6, 6).batch(step), [Lanes(31, 2, 6).batch(3 * step + part) for part in range(3)]
        for one, other in zip(whole, zip(*parts, strict=True), strict=True):
            np.testing.assert_array_equal(one, np.concatenate(other))


@pytest.mark.parametrize(("sequences", "most"), [(100, None), (100, 70), (100, 7), (SEGMENTS * 4, None), (3, 1024)])
def test_evaluation_reads_stretches(sequences, most):
    """Every sequence once; within a batch, row n + width continues row n, and the first row of each lane begins."""
    seen = []
    for _, numbers, lanes, starts in Lanes(sequences, 2, 4, fixed=True).once(most=most):
        width = len(np.unique(lanes))
        assert width <= 2 and starts.tolist() == [True] * width + [False] * (len(numbers) - width)
        np.testing.assert_array_equal(numbers[width:], numbers[:-width] + 1)
        np.testing.assert_array_equal(lanes[width:], lanes[:-width])
        seen += numbers.tolist()
    assert sorted(seen) == list(range(min(sequences, most or sequences)))


def test_running_text(shards):
    """Rows of T+1 tokens without special tokens around them; the last is the first of the next."""
    source = open_source(shards, TOKENIZER, 7, "running")
    keys = np.zeros(source.count, np.uint64)
    rows = source.rows(np.arange(source.count), keys)
    text = shards.tokens[source.documents.tokens.locate(np.arange(1, source.documents.tokens.size))]
    assert rows.ids.shape == (source.count, 8) and rows.types is None and rows.mask is None
    assert source.count == (text.size - 1) // 7
    for number, row in enumerate(rows.ids):
        np.testing.assert_array_equal(row, text[7 * number : 7 * number + 8])
    assert (rows.ids == TOKENIZER.sep_id).any() and not (rows.ids == TOKENIZER.cls_id).any()
    with pytest.raises(ValueError, match="too few for one sequence"):
        open_source(shards, TOKENIZER, 10_000, "running")


def test_every_token_but_the_first_is_predicted_once(shards):
    """Except unknown ones."""
    objective = NextWord.for_tokenizer(TOKENIZER)
    batches = TextBatches(shards, TOKENIZER, objective, 7, 5, mode="running")
    targets = np.concatenate([batch.targets for batch in batches.once()])
    source = batches.source
    text = shards.tokens[source.documents.tokens.locate(np.arange(1, source.documents.tokens.size))]
    text = text[1 : 7 * source.count + 1]
    np.testing.assert_array_equal(np.sort(targets), np.sort(text[text != TOKENIZER.unk_id]))
    assert (text == TOKENIZER.unk_id).any()


def make(shards, **more):
    objective = NextWordWithMemory.for_tokenizer(TOKENIZER)
    return TextBatches(shards, TOKENIZER, objective, 7, 2, **{"mode": "running", "lanes": 6, "held_out": 0.3} | more)


def test_the_position_is_one_number(shards):
    """Restored, the next batches are the same."""
    batches = make(shards)
    for _ in range(5):
        next(batches)
    state = json.loads(json.dumps(batches.state()))
    assert state["next"] == 5 and state["lanes"] == 6
    again = make(shards)
    again.restore(state)
    for _ in range(4):
        one, other = next(batches), next(again)
        np.testing.assert_array_equal(one.input_ids, other.input_ids)
        np.testing.assert_array_equal(one.lanes, other.lanes)
    with pytest.raises(ValueError, match="saved with lanes=6, but this generator has 4"):
        make(shards, lanes=4).restore(state)


@pytest.mark.parametrize("step", [6, None])
def test_an_epoch_has_as_many_batches_as_it_says(shards, step):
    """Lanes are equally long, so the last segments may be left out."""
    batches = make(shards, step=step)
    assert batches.sequences % 6
    said = f"{batches.order.steps} batches of 6 per" if step else f"{3 * batches.order.steps} batches of 2 per"
    assert said in str(batches)


def test_a_lane_is_continuous_text(shards):
    """The first input of a lane's next segment is its last target now."""
    batches = make(shards, held_out=0.0)
    before = [batches.batch(part) for part in range(3)]
    for step in range(1, batches.order.steps):
        for part in range(3):
            now = batches.batch(3 * step + part)
            for lane in range(2):
                if not now.starts[lane]:
                    assert now.input_ids[lane, 0] == _target(before[part], lane)
            before[part] = now


def _target(batch, lane):
    """The token after the last input of a sequence"""
    T = batch.input_ids.shape[1]
    if batch.rows is None:
        return batch.targets[(lane + 1) * T - 1]
    found = np.flatnonzero(batch.rows == (lane + 1) * T - 1)
    return batch.targets[found[0]] if found.size else TOKENIZER.unk_id


def test_held_out_text_needs_no_whole_batch(shards):
    """Validation may have fewer segments than lanes; training may not."""
    batches = make(shards, lanes=60, held_out=0.3)
    held = batches.validation()
    assert sum(len(batch.input_ids) for batch in held.once()) == held.sequences
    with pytest.raises(ValueError, match=r"the text makes [\d,]+ segments, too few for a batch of 2000"):
        make(shards, lanes=2000)


def test_lanes_and_objective_fit(shards):
    with pytest.raises(ValueError, match="lanes is None, but the objective next_word_with_memory carries a memory"):
        make(shards, lanes=None)
    source = open_source(shards, TOKENIZER, 7)
    with pytest.raises(ValueError, match="lanes is 4, but the objective masked_words has none"):
        Batches(source, MaskedWords.for_tokenizer(TOKENIZER), 2, lanes=4)
    with pytest.raises(ValueError, match=r"lanes is 7, expected a multiple of the 2 sequences of a \(micro-\)batch"):
        make(shards, lanes=7)
