"""Fine-tuning: each task is learnt, the same seed gives the same bits, and the best model is kept."""

from __future__ import annotations

import itertools
import os
import signal
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
import tiny_tasks as tiny

from mini_bert.finetuning import loop
from mini_bert.finetuning.loop import FineTuning, Measurement, fine_tune, hide, measuring_steps, predict, split
from mini_bert.finetuning.model import lr_multipliers, with_task
from mini_bert.finetuning.tasks.answer import Answer, best_spans, token_span
from mini_bert.finetuning.tasks.base import Item, epoch, owners, packed, windows
from mini_bert.finetuning.tasks.classify import Classify
from mini_bert.finetuning.tasks.similarity import Similarity
from mini_bert.finetuning.tasks.tag import Tag, spell_entities
from mini_bert.layers.base import Run

SETTINGS = FineTuning(epochs=3, batch_size=8, learning_rate=5e-3, layer_decay=0.9, measurements=1, patience=3)
LENGTH = 24


def learn(task, train, dev, settings=SETTINGS, kind="mini", **hooks):
    """Returns the model and the outcome"""
    model = with_task(tiny.encoder(kind), task, settings.dropout, settings.seed)
    items, dev_items = (task.items(part, tiny.TOKENIZER, LENGTH, part is train) for part in (train, dev))

    def measure(each):
        return Measurement(task.scores(dev, task.join(dev, dev_items, predict(model, task, dev_items, each=each))))

    return model, fine_tune(model, task, items, measure, settings, **hooks)


TASKS = {
    "classify": (lambda: Classify(["neg", "pos"]), tiny.labelled, "accuracy", 0.95),
    "tag": (lambda: Tag(["O", "B-PER", "B-LOC"]), tiny.tagged, "f1", 0.95),
    "qa": (lambda: Answer(), tiny.questions, "f1", 0.9),
    "similarity": (lambda: Similarity(0, 5, pooling=("mean", "max"), dense=True), tiny.scored, "spearman", 0.45),
    "vectors": (lambda: Similarity(0, 5, vectors=True), tiny.scored, "spearman", 0.6),
    "vectors, contrastive": (lambda: Similarity(0, 5, vectors=True, loss="contrastive"), tiny.scored, "spearman", 0.6),
}  # fmt: skip


@pytest.mark.parametrize("name", TASKS)
def test_each_task_is_learnt(name):
    """Scores on unseen examples are far above chance (chance: 50 %, no entity, one word in ten, no correlation)."""
    make, examples, metric, wanted = TASKS[name]
    settings = replace(SETTINGS, epochs=6) if name == "qa" else SETTINGS
    if name == "similarity":  # to compare two texts is the hardest: so it learnt with each of three seeds
        settings = replace(SETTINGS, epochs=10, learning_rate=2e-3, patience=10)
    _, outcome = learn(make(), examples(160), examples(40, seed=1), settings)
    assert outcome.scores[metric] >= wanted, outcome
    assert outcome.stopped in ("done", "early")


@pytest.mark.parametrize("name", ["classify", "qa"])
def test_published_bert_learns_too(name):
    make = {"classify": lambda: Classify(["neg", "pos"], ("cls",), dense=True)}.get(name, TASKS[name][0])
    _, examples, metric, wanted = TASKS[name]
    settings = replace(SETTINGS, epochs=5, learning_rate=3e-3)
    _, outcome = learn(make(), examples(160), examples(40, seed=1), settings, "bert")
    assert outcome.scores[metric] >= wanted - 0.1, outcome


@pytest.mark.parametrize("threads", [1, 2])
def test_the_same_seed_gives_the_same_bits(threads):
    settings = replace(SETTINGS, epochs=1, threads=threads)
    task = Classify(["neg", "pos"])
    runs = [learn(task, tiny.labelled(40), tiny.labelled(8, 1), settings)[0].flat.data for _ in range(2)]
    np.testing.assert_array_equal(*runs)
    other = learn(task, tiny.labelled(40), tiny.labelled(8, 1), replace(settings, seed=1))[0].flat.data
    assert not np.array_equal(runs[0], other)


@pytest.mark.parametrize("name", ["classify", "tag", "similarity"])  # Adam makes steps of what rounding leaves in qa
def test_threads_change_nothing_but_rounding(name):
    """Dropout and masked words belong to the sequence, whichever thread computes it."""
    make, examples, *_ = TASKS[name]
    settings = replace(SETTINGS, epochs=1, dropout=0.3, word_dropout=0.2)
    one, three = (
        learn(make(), examples(40), examples(8, seed=1), replace(settings, threads=n))[0].flat.data for n in (1, 3)
    )
    np.testing.assert_allclose(one, three, atol=2e-4)


# ---------------------------------------------------------------------- the encoder and its task


@pytest.mark.parametrize("kind", ["mini", "bert"])
def test_the_encoder_is_copied_and_the_head_is_new(kind):
    encoder, task = tiny.encoder(kind), Classify(["a", "b", "c"], ("cls",), dense=True)
    model = with_task(encoder, task, 0.1, seed=1)
    ids = np.array([[2, 7, 9, 3]])
    np.testing.assert_array_equal(model.encode(ids)[0], encoder.encode(ids)[0])
    names = set(model.named_params())
    assert {name for name in names if name.startswith("task.")} == {
        "task.dense.w", "task.dense.b", "task.linear.w", "task.linear.b",
    }  # fmt: skip
    assert not any(name.startswith(("head", "masked_words", "next_sentence", "pooler")) for name in names)
    if kind == "bert":  # a pooler is a dense layer that has learnt already
        np.testing.assert_array_equal(model.task.dense.w.data, encoder.pooler.dense.w.data)
    before = encoder.flat.data.copy()
    model.flat.data[...] = 0
    np.testing.assert_array_equal(encoder.flat.data, before)  # nothing is shared
    assert not np.array_equal(
        with_task(encoder, task, 0.1, 2).task.linear.w.data, with_task(encoder, task, 0.1, 3).task.linear.w.data
    )
    assert not np.array_equal(encoder.untrained(1).tokens.table.data, encoder.tokens.table.data)


def test_word_dropout_hides_a_share_of_the_words_and_nothing_else():
    sequence, words, _ = packed(tiny.TOKENIZER, list(range(10, 60)), None, 52)
    batch = Classify(["a", "b"]).batch([Item(0, sequence, words, 0)] * 40)
    run = Run((1, 2))
    hidden = hide(batch, 0.2, 4, run)
    changed = hidden.ids != batch.ids
    assert (hidden.ids[changed] == 4).all() and not changed[~batch.asked].any()
    assert 0.17 < changed[batch.asked].mean() < 0.23  # of 2,000 words: three deviations to either side
    assert len({row.tobytes() for row in changed}) == 40  # each of the 40 sequences, which are the same, in its own way
    assert np.array_equal(hide(batch, 0.2, 4, Run((1, 2), train=True)).ids, hidden.ids)
    for other in (Run((1, 3)), Run((2, 2)), Run((1, 2), first=1)):
        assert not np.array_equal(hide(batch, 0.2, 4, other).ids, hidden.ids)
    one = Classify(["a", "b"]).batch([Item(0, sequence, words, 0)])
    assert np.array_equal(hide(one, 0.2, 4, Run((1, 2), first=7)).ids[0], hidden.ids[7])  # by number, not by company
    assert hide(batch, 0.0, 4, run) is batch


def test_words_are_hidden_while_it_learns_and_shown_when_it_is_measured(monkeypatch):
    seen, loss = [], Classify.loss

    def spy(self, model, batch, run, targets):
        seen.append((batch.ids == 9)[batch.asked].mean())
        return loss(self, model, batch, run, targets)

    monkeypatch.setattr(Classify, "loss", spy)
    settings = replace(SETTINGS, epochs=1, word_dropout=0.5)
    _, outcome = learn(Classify(["neg", "pos"]), tiny.labelled(80), tiny.labelled(40, seed=1), settings, mask_id=9)
    assert len(seen) == outcome.steps == 10 and 0.3 < np.mean(seen) < 0.7 and len(set(seen)) > 1


def test_dropout_is_on_in_fine_tuning_where_the_model_has_none():
    model = with_task(tiny.encoder(), Classify(["a", "b"]), dropout=0.3)
    assert model.config.dropout == 0.3 == model.encoder.blocks[0].p == model.task.p and tiny.MINI.dropout == 0


@pytest.mark.parametrize("kind", ["mini", "bert"])
def test_layer_decay_is_exact(kind):
    """1 for the head, 0.5 for the last block, 0.25 for the first, 0.125 for the embeddings; every weight has a
    multiplier."""
    model = with_task(tiny.encoder(kind), Classify(["a", "b"]))
    wanted = {"task": 1.0, "encoder.blocks.1": 0.5, "final_norm": 0.5, "encoder.blocks.0": 0.25,
              "tokens": 0.125, "positions": 0.125, "types": 0.125, "norm": 0.125}  # fmt: skip
    places = {
        (place.start, place.stop): name
        for name, place in ((name, param.place) for name, param in model.named_params().items())
    }
    found = {places[place.start, place.stop]: share for place, share in lr_multipliers(model, 0.5)}
    assert set(found) == set(model.named_params())
    for name, share in found.items():
        assert share == next(value for start, value in wanted.items() if name.startswith(start + ".")), name


def test_the_first_step_of_each_layer_is_its_share_of_the_learning_rate():
    """Adam's first step moves a weight by the learning rate; here, by its multiple of it."""
    task = Classify(["neg", "pos"])
    settings = replace(SETTINGS, epochs=1, batch_size=40, layer_decay=0.5, weight_decay=0.0, dropout=0.0)
    train = tiny.labelled(40)
    start = with_task(tiny.encoder(), task, 0.0).flat.data
    model, outcome = learn(task, train, train[:4], settings)
    assert outcome.steps == 1
    lr = settings.learning_rate * (1 - 1 / 2) / (1 - settings.warmup)  # of a run of one step, in its middle
    for place, share in lr_multipliers(model, 0.5):
        moved = np.abs(model.flat.data[place] - start[place]).max()
        assert moved == pytest.approx(lr * share, rel=2e-3)


# ---------------------------------------------------------------------- when it ends, and what is kept


def scripted(scores, settings, losses=None, **hooks):
    """A run with given measurements; returns the model, the weights at each measurement, and the outcome"""
    task, seen = Classify(["neg", "pos"]), []
    model = with_task(tiny.encoder(), task)
    items = task.items(tiny.labelled(32), tiny.TOKENIZER, LENGTH, True)

    def measure(each):
        seen.append(model.flat.data.copy())
        return Measurement({"accuracy": scores[len(seen) - 1]}, losses and losses[len(seen) - 1])

    return model, seen, fine_tune(model, task, items, measure, settings, **hooks)


@pytest.fixture
def close(monkeypatch):
    """Patience counts every measurement, however few steps are between them"""
    monkeypatch.setattr(loop, "APART", 1)


def test_it_stops_when_nothing_gets_better_and_the_best_weights_stay(close):
    kept = []
    settings = replace(SETTINGS, epochs=10, measurements=2, patience=3)
    model, seen, outcome = scripted([0.5, 0.8, 0.8, 0.7, 0.6] + [0.9] * 15, settings, keep=kept.append)
    assert outcome.stopped == "early" and len(seen) == 5 and outcome.scores == {"accuracy": 0.8}
    assert (outcome.step, outcome.steps) == (4, 10) and [one.scores["accuracy"] for one in kept] == [0.5, 0.8]
    np.testing.assert_array_equal(model.flat.data, seen[1])


def test_the_average_is_measured_and_kept_and_training_goes_on_without_it():
    """Every step is measured, once without and once with an average. The average is that of the same weights, as in its
    formula: a mean at first, then each sample with a weight of 1 − β."""
    settings = replace(SETTINGS, epochs=4, measurements=4, patience=100)
    rising = [number / 100 for number in range(16)]
    _, weights, _ = scripted(rising, settings)
    model, seen, outcome = scripted(rising, replace(settings, ema_decay=0.5**0.5))
    assert len(weights) == len(seen) == outcome.steps == 16
    average, samples = np.zeros_like(weights[0], np.float64), 0
    for step, (one, measured) in enumerate(zip(weights, seen, strict=True), 1):
        if step % 2 == 0:  # sixteen steps are sampled every second step
            samples += 1
            average += (one - average) * max(1 / samples, 0.5)
        np.testing.assert_allclose(measured, average if samples else one, rtol=0, atol=1e-6)
    np.testing.assert_array_equal(model.flat.data, seen[-1])
    assert np.abs(seen[-1] - weights[-1]).max() > 1e-3


def test_patience_waits_for_twenty_steps_per_measurement():
    """Small data is measured every second step here. Three such measurements are no reason to stop; sixty steps are."""
    settings = replace(SETTINGS, epochs=10, measurements=2, patience=3)
    _, seen, outcome = scripted([0.5] * 20, settings)
    assert outcome.stopped == "done" and outcome.steps == 40 and len(seen) == 20
    _, _, outcome = scripted([0.5] * 20, replace(settings, epochs=30))
    assert outcome.stopped == "early" and 60 < outcome.steps < 80


def test_the_training_loss_is_known_before_and_after(close):
    _, _, outcome = scripted([0.5] * 20, replace(SETTINGS, epochs=10, measurements=2, patience=3))
    first, last = outcome.losses
    assert first == pytest.approx(np.log(2), rel=0.5) and last < 3 * first
    _, _, outcome = scripted([0.5] * 20, replace(SETTINGS, epochs=10, learning_rate=100.0))
    assert outcome.losses[0] == first and outcome.losses[1] > 100 * first


def test_patience_begins_when_warm_up_ends(close):
    """Forty steps, measured every second step; if half of them are warm-up, the eleventh measurement is the first that
    counts."""
    settings = replace(SETTINGS, epochs=10, measurements=2, patience=3, warmup=0.5)
    _, seen, outcome = scripted([0.5] * 20, settings)
    assert outcome.stopped == "early" and len(seen) == 13 and outcome.steps == 26


def test_equal_scores_are_decided_by_the_lower_loss(close):
    """The loss decides only between equal scores: a lower loss with a lower score does not count, and does not reset
    patience."""
    kept = []
    settings = replace(SETTINGS, epochs=10, measurements=2, patience=3)
    scores, losses = [0.5, 0.8, 0.8, 0.8, 0.7] + [0.9] * 15, [0.6, 0.5, 0.4, 0.45, 0.1] + [0.0] * 15
    model, seen, outcome = scripted(scores, settings, losses, keep=kept.append)
    assert outcome.stopped == "early" and len(seen) == 5 and (outcome.step, outcome.loss) == (6, 0.4)
    assert [(one.scores["accuracy"], one.loss) for one in kept] == [(0.5, 0.6), (0.8, 0.5), (0.8, 0.4)]
    np.testing.assert_array_equal(model.flat.data, seen[2])


def test_the_loss_of_the_dev_examples():
    """Computed by hand: −log p of the truth, averaged over examples or words; squared differences of scores."""
    said = [np.array([0.5, 0.5]), np.array([0.2, 0.8])]
    found = Classify(["neg", "pos"]).dev_loss(
        [tiny.Labelled("a", None, "pos", 1), tiny.Labelled("b", None, "neg", 2)], said
    )
    assert found == pytest.approx(-(np.log(0.5) + np.log(0.2)) / 2)
    words = [np.array([[0.9, 0.1], [0.4, 0.6]]), np.array([[1.0, 0.0]])]
    found = Tag(["O", "X"]).dev_loss([tiny.Tagged(["a", "b"], ["O", "X"], 1), tiny.Tagged(["c"], ["O"], 3)], words)
    assert found == pytest.approx(-(np.log(0.9) + np.log(0.6)) / 3)
    assert (
        Similarity(0, 5).dev_loss([tiny.Scored("a", "b", 5.0, 1), tiny.Scored("a", "c", 1.0, 2)], [3.0, 1.5]) == 2.125
    )
    assert Answer().dev_loss([], []) is None


def test_measurements_are_spread_over_the_epochs():
    assert measuring_steps(14, 4) == {3, 7, 10, 14}
    assert measuring_steps(2, 6) == {1, 2}
    many = sorted(measuring_steps(200, 400))  # 200 epochs of a single step: twenty measurements are enough
    assert many == list(range(10, 201, 10))
    assert sorted(measuring_steps(2000, 4000)) == list(range(20, 2001, 20))


def test_ctrl_c_leaves_the_best_model(signals):
    """Interrupted in step 5 of 20: the step is finished, and the best measured weights are restored."""

    def interrupt(record):
        if record["kind"] == "dev" and record["step"] == 4:
            os.kill(os.getpid(), signal.SIGINT)

    model, seen, outcome = scripted([0.9] * 9, replace(SETTINGS, epochs=5), record=interrupt)
    assert outcome.stopped == "interrupted" and outcome.steps == 5 and len(seen) == 1
    np.testing.assert_array_equal(model.flat.data, seen[0])


def test_ctrl_c_before_the_first_measurement_measures(signals):
    def interrupt(record):
        if record["kind"] == "train":
            os.kill(os.getpid(), signal.SIGINT)

    settings = replace(SETTINGS, epochs=2, batch_size=1)  # the first record is that of step 20 of 32
    _, seen, outcome = scripted([0.4] * 9, settings, record=interrupt)
    assert outcome.stopped == "interrupted" and outcome.steps == 20 and len(seen) == 1 and outcome.scores


def test_a_loss_that_is_no_number_stops_it():
    settings = replace(SETTINGS, learning_rate=1e30, clip=1e30)
    with np.errstate(all="ignore"):
        *_, outcome = scripted([0.5] * 9, settings)
    assert outcome.stopped == "nonfinite"


@pytest.mark.parametrize(
    ("name", "value"), [("epochs", 0), ("batch_size", 1.5), ("layer_decay", 0.0), ("learning_rate", -1), ("dropout", 1),
     ("ema_decay", 1)],
)  # fmt: skip
def test_settings_are_checked(name, value):
    with pytest.raises(ValueError, match=f"{name} is {value}"):
        FineTuning(**{name: value})


# ---------------------------------------------------------------------- items and batches


def test_an_epoch_shows_everything_once_and_pads_little():
    rng = np.random.default_rng(0)
    task = Classify(["a", "b"])
    examples = [
        one._replace(label="a", text="cat " * int(n))
        for one, n in zip(tiny.labelled(500), rng.integers(1, 22, 500), strict=True)
    ]
    items = task.items(examples, tiny.TOKENIZER, LENGTH, True)
    found = list(epoch(items, 16, seed=0, number=0))
    assert sorted(item.example for batch in found for item in batch) == list(range(500))
    padding = [
        1 - sum(item.length for item in batch) / (len(batch) * max(item.length for item in batch)) for batch in found
    ]
    assert np.mean(padding) < 0.05
    orders = [[item.example for batch in epoch(items, 16, 0, number) for item in batch] for number in (0, 0, 1)]
    assert orders[0] == orders[1] != orders[2]


def test_batches_are_split_among_threads():
    assert split(list(range(10)), 3) == [[0, 1, 2], [3, 4, 5], [6, 7, 8, 9]]
    assert [len(part) for part in split(list(range(100)), 2)] == [25] * 4
    assert [len(part) for part in split([1], 4)] == [1]


@pytest.mark.parametrize("size", [1, 2, 5, 8])
def test_windows_cover_every_place_and_each_has_one_owner(size):
    for count in range(1, 40):
        for stride in range(1, size + 1):
            spans = windows(count, size, stride)
            assert all(0 < stop - start <= size for start, stop in spans) and spans[-1][1] == count
            own = [place for (first, last), (start, stop) in zip(owners(spans), spans, strict=True)
                   for place in range(first, last) if start <= place < stop]  # fmt: skip
            assert own == list(range(count)), (count, size, stride)
    with pytest.raises(ValueError, match="stride is 0, expected 1 to 4"):
        windows(9, 4, 0)


@pytest.mark.parametrize(("count", "size", "stride"), [(40, 8, 4), (41, 8, 5), (23, 9, 3), (17, 8, 7), (30, 10, 10)])
def test_the_owner_of_a_place_sees_most_around_it(count, size, stride):
    """Where two windows overlap, a token belongs to the first one if it has more tokens after it there than before it
    in the second."""
    spans = windows(count, size, stride)
    own = owners(spans)
    for number, ((_, stop), (start, _)) in enumerate(itertools.pairwise(spans)):
        for place in range(start, stop):
            follows, precedes = stop - 1 - place, place - start
            if own[number][0] <= place < own[number + 1][1]:  # not taken by a third window
                assert (place < own[number][1]) == (follows > precedes), (place, spans, own)


def test_pairs_are_cut_to_fit_and_their_words_are_known():
    (ids, types, starts, summary), words, cut = packed(tiny.TOKENIZER, [10] * 9, [11] * 3, 10)
    assert ids == [2, 10, 10, 10, 10, 3, 11, 11, 11, 3] and types == [0] * 6 + [1] * 4 and starts == [1, 6]
    assert words == [1, 2, 3, 4, 6, 7, 8] and summary == 0 and cut == 1
    (ids, *_), words, cut = packed(tiny.TOKENIZER, [], None, 10)
    assert ids == [2, 1, 3] and words == [1] and not cut  # nothing but control characters


def test_first_pieces_are_asked_and_long_sentences_go_in_windows():
    """ "unknown" is un ##known: one prediction per word. Sixty words in windows of ten get one prediction each."""
    task = Tag(["O", "X"])
    words = ["unknown", "cats", "the"] * 20
    example = tiny.Tagged(words, ["O", "X", "X"] * 20, 1)
    items = task.items([example], tiny.TOKENIZER, 10, False)
    assert len(items) > 10 and max(item.length for item in items) <= 10
    firsts = [tiny.TOKENIZER.tokens[item.ids[place]] for item in items for place in item.asked]
    assert firsts == ["un", "cat", "the"] * 20
    assert [tag for item in items for tag in item.target] == [0, 1, 1] * 20
    batch = task.batch(items)
    assert batch.chosen.size == 60 == batch.targets.size
    model = with_task(tiny.encoder(), task)
    (joined,) = task.join([example], items, predict(model, task, items))
    assert joined.shape == (60, 2)
    np.testing.assert_allclose(joined.sum(1), 1, rtol=1e-5)


def test_a_word_that_is_none_is_unknown():
    (item,) = Tag(["O", "X"]).items([tiny.Tagged(["the", "\u200d", "cat"], [], 1)], tiny.TOKENIZER, 10, False)
    assert [item.ids[place] for place in item.asked] == [
        *tiny.TOKENIZER.ids(["the"])[0],
        1,
        *tiny.TOKENIZER.ids(["cat"])[0],
    ]


def test_entities_are_told_from_other_tags():
    assert spell_entities(["O", "B-PER", "I-PER"]) and Tag(["O", "B-X"]).metric == "f1"
    assert spell_entities(["O", "B-X", "I-X", "L-X", "U-X"]) and not spell_entities(["O", "B-X", "M-X"])
    assert not spell_entities(["NOUN", "VERB"]) and not spell_entities(["O"]) and Tag(["A", "B"]).metric == "accuracy"


# ---------------------------------------------------------------------- questions


def test_windows_of_a_text_hold_question_and_answer():
    """A text of 60 tokens in sequences of 16: every token is in a window; in windows that contain the answer, it is the
    target."""
    task = Answer()
    context = "the old cat was in the old house . " * 6 + "ada is in rome ."
    example = tiny.Question("1", "what is ?", context, ["rome"], [context.index("rome")], 1)
    items = task.items([example], tiny.TOKENIZER, 16, False)
    words = context.split()
    seen = {place for item in items for place in item.offsets}
    assert [context[start:stop] for start, stop in sorted(seen)] == words
    with_answer = [item for item in items if item.target != (0, 0)]
    assert with_answer and all(tiny.TOKENIZER.tokens[item.ids[item.target[0]]] == "rome" for item in with_answer)
    for item in items:
        assert tiny.TOKENIZER.decode(item.ids[1 : item.sequence.starts[1] - 1]) == "what is?" and item.length <= 16
        assert len(item.offsets) == len(item.asked) - 1  # and [CLS], for "not here"
    assert len(task.items([example], tiny.TOKENIZER, 16, True)) == len(with_answer) + 2  # of the others, two


def test_token_spans():
    offsets = [(0, 3), (4, 7), (7, 10), (11, 12)]
    assert (
        token_span(offsets, 4, 6) == (1, 2)
        and token_span(offsets, 5, 1) == (1, 1)
        and token_span(offsets, 3, 1) is None
    )


def test_the_best_spans_are_those_of_trying_all():
    rng = np.random.default_rng(0)
    for n, longest in ((1, 3), (5, 1), (9, 4), (12, 30)):
        starts, ends = rng.normal(size=(2, n + 1))
        every = sorted(
            (
                (starts[i + 1] + ends[j + 1] - starts[0] - ends[0], i, j)
                for i in range(n)
                for j in range(i, min(n, i + longest))
            ),
            reverse=True,
        )
        found = best_spans(starts, ends, longest, count=6)
        assert [(i, j) for _, i, j in found] == [(i, j) for _, i, j in every[:6]]
        np.testing.assert_allclose([score for score, *_ in found], [score for score, *_ in every[:6]])


def test_the_answers_of_windows_are_joined():
    """The same span from two windows counts once, with its better score; the answer is cut from the context."""
    example = tiny.Question("1", "?", "Ada lives in Rome.", ["Rome"], [13], 1)
    offsets = [(0, 3), (4, 9), (10, 12), (13, 17), (17, 18)]
    items = [
        Answer().items([example], tiny.TOKENIZER, 24, False)[0]._replace(offsets=part)
        for part in (offsets[:4], offsets[2:])
    ]
    (spans,) = Answer().join([example], items, [[(1.0, 3, 3), (0.5, 0, 0)], [(2.0, 1, 1), (-1.0, 1, 2)]])
    assert [(span.text, span.score) for span in spans] == [("Rome", 2.0), ("Ada", 0.5), ("Rome.", -1.0)]
    assert sum(span.probability for span in spans) == pytest.approx(1)
    assert Answer().scores([example], [spans]) == {"f1": 1.0, "exact": 1.0}
    assert Answer().scores([example], [[]]) == {"f1": 0.0, "exact": 0.0}


def test_scores_that_are_all_alike_are_no_correlation():
    assert Similarity(0, 5).scores(tiny.scored(5), [1.0] * 5) == {"spearman": 0.0, "pearson": 0.0}
    with pytest.raises(ValueError, match=r"range from 2 to 2; expected low < high"):
        Similarity(2, 2)
    with pytest.raises(ValueError, match="loss is 'contrastive'"):
        Similarity(0, 1, loss="contrastive")
