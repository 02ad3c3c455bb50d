"""Objectives: losses by part, batches made by hand, checkpoints of any objective."""

from __future__ import annotations

import json

import numpy as np
import pytest

from mini_bert.data.batches import Batches
from mini_bert.data.sequences import open_source
from mini_bert.data.shards import prepare
from mini_bert.evaluation.evaluate import measure
from mini_bert.models.base import MASKED_WORDS, NEXT_SENTENCE
from mini_bert.models.bert import Bert, BertConfig
from mini_bert.models.config import MiniBertConfig
from mini_bert.models.mini import MiniBERT
from mini_bert.objectives.masked_words import Batch, MaskedWords, MaskedWordsAndSentences
from mini_bert.objectives.registry import OBJECTIVES, objective_class, objective_of_run
from mini_bert.text.wordpiece import WordPieceTokenizer
from mini_bert.training import checkpoint
from mini_bert.training.loop import train
from mini_bert.training.run_folder import RunFolder
from mini_bert.training.settings import TrainingConfig

IDS = [[2, 5, 4, 7, 3], [2, 8, 9, 4, 3]]
SETTINGS = TrainingConfig(steps=2, batch_size=2, micro_batch=2, threads=1)
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "cats", "purr", "dogs", "bark", "."]


def model(**changes):
    return MiniBERT(MiniBertConfig(14, 8, 1, 2, 8, 5, **changes))


@pytest.mark.parametrize(
    ("batch", "error", "message"),
    [
        (Batch([[2, -1, 3]], [1], [5]), ValueError, r"input_ids\[0, 1\] is -1, expected 0 to 13"),
        (Batch([[2, 14, 3]], [1], [5]), ValueError, r"input_ids\[0, 1\] is 14, expected 0 to 13"),
        (
            Batch([[2, 5, 5, 5, 5, 3]], [1], [5]),
            ValueError,
            "sequences of 6 tokens, but this model is configured for at most 5",
        ),
        (Batch([[2, 5, 3], [2, 3]], [1], [5]), ValueError, "sequences of different lengths"),
        (Batch(IDS, [10], [5]), ValueError, "rows lie in .10, 10., expected 0 to 9"),
        (Batch(IDS, [2], [-5]), ValueError, "targets lie in .-5, -5., expected ids from 0 to 13"),
        (Batch(IDS, [], []), ValueError, "no row was chosen"),
        ((IDS, [2], [5]), TypeError, "a batch is a tuple, expected a Batch"),
    ],
)
def test_batches_made_by_hand_are_checked(batch, error, message):
    with pytest.raises(error, match=message):
        train(model(), [batch] * 2, SETTINGS)


@pytest.mark.parametrize("attention", ["plain", "lean"])
def test_lists_and_integer_masks_are_as_good_as_arrays(attention):
    """The same weights come out of lists, arrays, and masks of integers or booleans, with either attention."""
    settings = TrainingConfig(steps=2, batch_size=2, micro_batch=2, threads=1, attention=attention)
    mask = np.array([[1, 1, 1, 1, 1], [1, 1, 1, 1, 0]])
    found = []
    for batch in (
        Batch(IDS, [2, 8], [6, 7], mask.tolist()),
        Batch(np.array(IDS), np.array([2, 8]), np.array([6, 7]), mask),
        Batch(np.array(IDS), np.array([2, 8]), np.array([6, 7]), mask.astype(bool)),
    ):
        trained = model()
        assert train(trained, [batch] * 2, settings).step == 2
        found.append(trained.flat.data)
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[1], found[2])


def test_held_out_text_measures_every_part():
    """The same numbers as the model's own loss, whole and in parts; the first part is "the" result."""
    bert = Bert(BertConfig(14, 8, 1, 2, 8, max_position_embeddings=9), seed=3, dtype=np.float64)
    ids = np.random.default_rng(0).integers(5, 14, (4, 7))
    rows = np.array([1, 9, 20, 23])
    batch = Batch(ids, rows, ids.ravel()[rows], None, (ids > 8).astype(int), np.array([0, 1, 1, 0]))
    found = measure(bert, batch.split(2), objective=MaskedWordsAndSentences())
    words, _ = bert.loss(*batch[:5])
    both, cache = bert.loss(*batch)
    assert list(found.parts) == [MASKED_WORDS, NEXT_SENTENCE] and found.result == found.parts[MASKED_WORDS]
    assert found.result.loss == pytest.approx(float(words)) and found.result.targets == 4
    other = found.parts[NEXT_SENTENCE]
    assert other.loss == pytest.approx(float(both - words)) and other.targets == 4
    predicted = cache.parts()[NEXT_SENTENCE][1].exp.argmax(-1)
    assert other.top1 == pytest.approx((predicted == batch.next_sentence).mean())
    assert list(measure(bert, [batch]).parts) == [MASKED_WORDS]


def test_labels_are_needed_where_they_are_predicted():
    bert = Bert(BertConfig(14, 8, 1, 2, 8))
    with pytest.raises(ValueError, match="a batch has no next_sentence labels"):
        train(bert, [Batch(IDS, [2], [5])] * 2, SETTINGS, objective=MaskedWordsAndSentences())
    with pytest.raises(ValueError, match="has no next-sentence head"):
        train(model(), [Batch(IDS, [2], [5])] * 2, SETTINGS, objective=MaskedWordsAndSentences())


def test_objectives_have_names():
    """Run folders of older versions name none; they still open."""
    assert all(objective_class(name) is kind and kind.name == name for name, kind in OBJECTIVES.items())
    assert objective_of_run({"data": {}}) is MaskedWords
    assert objective_of_run({"data": {"next_sentence": True}}) is MaskedWordsAndSentences
    assert objective_of_run({"data": {}, "objective": "masked_words"}) is MaskedWords
    with pytest.raises(ValueError, match="objective is 'guessing', expected one of 'masked_words'"):
        objective_of_run({"data": {}, "objective": "guessing"})


class WithMemory(MaskedWords):
    """Carries an array from batch to batch, as Transformer-XL does, and lets it change the loss's gradient."""

    name = "with_memory"

    def __init__(self, masking=None):
        super().__init__(masking)
        self.memory = {"seen": np.zeros(3)}

    def loss(self, model, batch, run, count):
        self.memory["seen"] += [1, batch.rows.sum(), batch.targets.sum()]
        parts = super().loss(model, batch, run, count)
        model.flat.grad[:3] += 1e-3 * self.memory["seen"].astype(np.float32)
        return parts


def test_any_objective_is_checkpointed(tmp_path, monkeypatch):
    """Batches without a data generator, an objective with a memory: stopped and resumed, it ends with the same bits."""
    monkeypatch.setenv("MINI_BERT_HOME", str(tmp_path / "home"))
    path = tmp_path / "text.txt"
    path.write_text("\n\n".join("cats purr . dogs bark . " * 5 for _ in range(20)))
    tokenizer = WordPieceTokenizer(WORDS)
    source = open_source(prepare(str(path), tokenizer, progress=False), tokenizer, 5)
    settings = TrainingConfig(steps=6, batch_size=4, micro_batch=2, threads=1, save_every=3, keep=2)
    found = {}
    for name in ("whole", "cut"):
        RunFolder.create(tmp_path / name, {})
        for attempt in range(1 if name == "whole" else 2):
            objective = WithMemory.for_tokenizer(tokenizer)
            trained, batches = model(), Batches(source, objective, 2, seed=1)
            latest = None
            if attempt:
                newest = tmp_path / name / "checkpoints" / "step-00000006"
                for file in newest.iterdir():
                    file.unlink()
                newest.rmdir()
                latest = checkpoint.latest(tmp_path / name)
            run = RunFolder(tmp_path / name, tokenizer, 2, latest)
            assert train(trained, batches, settings, run=run).step == 6
        found[name] = trained.flat.data, objective.memory["seen"], batches.state()
    for one, other in zip(found["whole"][:2], found["cut"][:2], strict=True):
        np.testing.assert_array_equal(one, other)
    assert found["whole"][2] == found["cut"][2] and found["whole"][2]["objective"] == "with_memory"
    with pytest.raises(ValueError, match="saved with seed=1, but this generator has 2"):
        Batches(source, WithMemory.for_tokenizer(tokenizer), 2, seed=2).restore(found["cut"][2])


def test_checkpoints_of_older_versions_load():
    """They list the numbers of a step without names."""
    from mini_bert.training.recorder import State

    old = {"step": 3, "seconds": 1.0, "tokens": 9, "best": None, "best_checkpoint": None, "tokens_before": 0,
           "seconds_before": 0.0, "stopped": "", "since": [[2.0, 0.5, 1.5, 1.0]]}  # fmt: skip
    state = State.from_dict(json.loads(json.dumps(old)))
    assert state.since == [{"loss": 2.0, "accuracy": 0.5, "grad_norm": 1.5, "clipped": 1.0}]
