"""Break it: each fault does what it says, its own backward is right (but for the sign error), and runs are bounded."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

from mini_bert.lab import breaking, toy_text, training
from mini_bert.lab.breaking_process import CONFIG, Metrics, build, check_gradients, timed
from mini_bert.lab.faults import FAULTS
from mini_bert.layers.base import Run
from mini_bert.training.history import read_run
from mini_bert.training.loop import train

WAITS = "import sys; sys.stdin.read()"


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pair = breaking.Pair()
    monkeypatch.setattr(breaking, "TRAINER", pair)
    monkeypatch.setattr(training, "TRAINER", training.Trainer())
    monkeypatch.setattr(training, "OTHERS", [pair])
    yield tmp_path
    breaking.TRAINER.close()
    training.TRAINER.close()


@pytest.mark.parametrize("fault", [None, *FAULTS])
def test_only_the_sign_error_is_a_wrong_gradient(fault):
    """All other broken models still compute the exact gradient of what they compute."""
    error = check_gradients(fault)
    assert error == pytest.approx(2, abs=1e-6) if fault == "wrong_sign" else error < 1e-6


@pytest.mark.parametrize("fault", ["no_scale", "no_residual", "no_norm", "inverted_mask"])
def test_a_broken_forward_computes_something_else(fault):
    one = toy_text.batch(np.random.default_rng(0), 3)
    healthy, broken = (build(name)[0] for name in (None, fault))
    np.testing.assert_array_equal(healthy.flat.data, broken.flat.data)  # the same weights
    first, second = (model.encode(one.input_ids, one.attention_mask, run=Run())[0] for model in (healthy, broken))
    assert np.abs(first - second).max() > 0.01


def test_without_residual_connections_nothing_goes_past_a_block():
    """What follows attention does not depend on the input of the block, only on attention's output."""
    block = build("no_residual")[0].encoder.blocks[0]
    a, *xs = np.random.default_rng(0).normal(size=(3, 2, 5, 48)).astype(np.float32)
    first, second = (block.after_attention(x, a.copy(), None, Run())[0] for x in xs)
    np.testing.assert_array_equal(first, second)


def test_without_norms_a_norm_is_the_identity():
    model = build("no_norm")[0]
    x = np.random.default_rng(0).normal(size=(2, 5, 48))
    for norm in (model.encoder.blocks[2].output_norm, model.final_norm):
        np.testing.assert_array_equal(norm.forward(x, Run())[0], x)


def test_with_an_inverted_mask_words_have_no_weight():
    one = toy_text.batch(np.random.default_rng(0), 4)
    _, cache = build("inverted_mask")[0].encode(one.input_ids, one.attention_mask, run=Run())
    weights = cache["attention_weights_0"]  # (B,A,T,T)
    assert not (weights * one.attention_mask[:, None, None, :]).any() and weights.sum() > 0


def test_settings_are_changed_as_said():
    healthy = build(None)[1]
    assert build("no_warmup")[1].warmup == 0 < healthy.warmup
    assert build("high_rate")[1].learning_rate == pytest.approx(100 * healthy.learning_rate)
    assert build("wrong_sign")[1] == healthy == build("no_norm")[1]


def test_the_second_half_of_a_sentence_repeats_the_first():
    for seed in range(20):
        words = toy_text.sentence(np.random.default_rng(seed))
        things = [word for word in words if word in toy_text.ADJECTIVES or word in toy_text.NOUNS]
        assert len(things) == 4 and things[:2] == things[2:] and set(words) <= set(toy_text.WORDS)


def test_batches_hide_one_half_and_an_unknown_word():
    one = toy_text.batch(np.random.default_rng(0), 50)
    assert one.rows.size == 150 and (one.input_ids.ravel()[one.rows] == toy_text.IDS["[MASK]"]).all()
    kinds = [toy_text.WORDS[i] for i in one.targets]
    shares = [np.mean([word in group for word in kinds]) for group in (toy_text.ADJECTIVES, toy_text.NOUNS)]
    assert shares == pytest.approx([1 / 3, 1 / 3]) and (one.attention_mask == (one.input_ids != 0)).all()
    assert toy_text.best_loss() == pytest.approx((math.log(12) + math.log(8)) / 2 / 3)
    assert toy_text.loss_without_context() > 3  # below, the doctor finds that a text has no variety
    assert toy_text.best_loss() < toy_text.loss_without_context() < math.log(len(toy_text.WORDS))


def test_a_run_writes_what_the_doctor_reads(tmp_path):
    """A few steps of the ordinary loop; the time ends it."""
    model, settings = build(None)
    run = Metrics(tmp_path)
    run.record({"kind": "start", "step": 0, "unigram_loss": 3.07})
    state = train(model, timed(0.5), settings, run=run)
    assert state.stopped == "done" and 0 < state.step < settings.steps
    assert read_run(tmp_path).last("stop")["reason"] == "done" and training.verdict(tmp_path)


@pytest.mark.parametrize(("last", "reason", "said"), [
    (0.9, "done", "same"), (1.6, "done", "worse"), (3.1, "done", "nothing"), (4.0, "done", "nothing"),
    (5.0, "done", "explodes"), (4.0, "nonfinite", "explodes"), (4.0, "diverged", "explodes"),
])  # fmt: skip
def test_what_happened(last, reason, said):
    healthy, broken = ([[10, 4.2], *([step, loss] for step in (380, 390, 400))] for loss in (0.8, last))
    assert breaking.outcome(healthy, broken, reason) == said


def test_the_list_keeps_the_explanations_to_itself(bench):
    answer = breaking.faults(bench, {})
    assert [one["name"] for one in answer["faults"]] == list(FAULTS) and len(answer["guesses"]) == 4
    assert not any("why" in one for one in answer["faults"])
    assert str(CONFIG.head_size) in answer["model"]


def test_both_run_at_once_one_pair_at_a_time(bench, home, monkeypatch):
    monkeypatch.setattr(breaking, "PROCESS", ("-c", WAITS))
    monkeypatch.setattr(training, "PROCESS", ("-c", WAITS))
    breaking.start(bench, {"fault": "no_norm", "seconds": 10})
    assert breaking.status(bench, {})["running"] and len(breaking.TRAINER.processes) == 2
    with pytest.raises(ValueError, match="one at a time"):
        breaking.start(bench, {"fault": "no_norm"})
    with pytest.raises(ValueError, match="one run at a time"):
        training.start(bench, {"seconds": 10})
    breaking.stop(bench, {})
    breaking.TRAINER.close()
    assert not breaking.status(bench, {})["running"]
    training.start(bench, {"seconds": 10})
    with pytest.raises(ValueError, match="one at a time"):
        breaking.start(bench, {"fault": "no_norm"})


def test_the_end_says_what_happened_and_why(bench, home, monkeypatch):
    monkeypatch.setattr(breaking, "PROCESS", ("-c", "pass"))
    breaking.start(bench, {"fault": "inverted_mask", "seconds": 10})
    breaking.TRAINER.close()
    assert "outcome" not in breaking.status(bench, {})  # there are no records
    for side, last, error in (("healthy", 0.8, 1e-9), ("broken", 3.1, 2.0)):
        folder = Path("runs/break") / side
        records = [{"kind": "start", "step": 0, "unigram_loss": 3.07}]
        records += [{"kind": "train", "step": step, "loss": 4.0 if step < 100 else last} for step in range(10, 410, 10)]
        lines = [json.dumps(record) for record in [*records, {"kind": "stop", "step": 400, "reason": "done"}]]
        (folder / "metrics.jsonl").write_text("\n".join(lines), encoding="utf-8")
        (folder / "check.json").write_text(json.dumps({"error": error}), encoding="utf-8")
    answer = breaking.status(bench, {})
    assert answer["outcome"] == "nothing" and answer["why"] == FAULTS["inverted_mask"].why
    assert answer["errors"] == {"healthy": 1e-9, "broken": 2.0} and all(answer["doctor"].values())


@pytest.mark.parametrize(
    "wrong", [{"fault": "soup"}, {"fault": "no_norm", "seconds": 61}, {"fault": "no_norm", "x": 1}, {}]
)
def test_wrong_requests_start_nothing(bench, home, wrong):
    with pytest.raises(ValueError):
        breaking.start(bench, wrong)
    assert not Path("runs").exists()


def test_nothing_has_been_run_yet(bench, home):
    assert breaking.status(bench, {}) == {"fault": None, "running": False}


def test_both_models_of_a_pair_start_alike():
    """Without norms, the feed-forward weights of both are three times as large; other pairs are left alone."""
    for name, factor in (("no_norm", 3), ("no_scale", 1)):
        before, after = build(None)[0], build(None)[0]
        FAULTS[name].prepare(after)
        for key, param in after.named_params().items():
            own = factor if "feed_forward" in key and key.endswith(".w") else 1
            np.testing.assert_array_equal(param.data[...], own * before.named_params()[key].data[...], err_msg=key)
    assert [name for name, fault in FAULTS.items() if fault.setting] == ["no_norm"]
