"""Schedules, averages and ramps: each does what it says, and a run with any of them resumes to the same bits."""

from __future__ import annotations

import json
import math
import random
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from mini_bert.data.generator import MLMDataGenerator
from mini_bert.evaluation.evaluate import evaluate
from mini_bert.files.model_folder import read_tensors
from mini_bert.models.config import MiniBertConfig
from mini_bert.models.mini import MiniBERT
from mini_bert.text.wordpiece import WordPieceTokenizer
from mini_bert.training import checkpoint
from mini_bert.training.averaging import Averaged
from mini_bert.training.defaults import settings_for
from mini_bert.training.doctor import diagnose, summary
from mini_bert.training.figures import training_curves
from mini_bert.training.folder_run import start_record
from mini_bert.training.loop import train
from mini_bert.training.muon import Muon
from mini_bert.training.optim import Adam
from mini_bert.training.ramps import Ramps, steps_left
from mini_bert.training.recorder import Recorder
from mini_bert.training.report import further_settings, rates
from mini_bert.training.run_folder import RunFolder
from mini_bert.training.schedules import SCHEDULES, batch_parts, lr_share
from mini_bert.training.settings import TrainingConfig

WORDS = ["cats", "purr", "dogs", "bark", "birds", "sing", "fish", "swim", "bees", "hum", "."]
CONFIG = MiniBertConfig(5 + len(WORDS), 12, 2, 3, 20, 16)
SETTINGS = TrainingConfig(
    steps=12, batch_size=8, micro_batch=4, threads=2, log_every=2, eval_every=5, eval_sequences=16, save_every=3,
    tensors_every=6, learning_rate=1e-2, keep=9,
)  # fmt: skip
RECIPES = {
    "muon": {"optimizer": "muon", "muon_learning_rate": 0.03, "schedule": "wsd"},
    "muon in 16 bits": {"optimizer": "muon", "moments": "bfloat16", "weights": "bfloat16", "schedule": "cosine"},
    "ema": {"optimizer": "muon", "schedule": "wsd", "average": "ema", "average_every": 2, "ema_decay": 0.7},
    "tail": {"average": "tail", "average_every": 1, "tail_share": 0.5},
    "ramps": {"batch_size": 16, "batch_start": 4, "length_start": 4, "length_ramp": 0.7, "mask_start": 0.5},
    "everything": {"optimizer": "muon", "average": "ema", "average_every": 1, "schedule": "wsd", "batch_start": 4,
                   "length_start": 8, "mask_start": 0.1, "mask_ramp": 0.5},
}  # fmt: skip


@pytest.fixture(scope="module")
def tokenizer():
    return WordPieceTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS])


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    rng = random.Random(0)
    pairs = list(zip(WORDS[:-1:2], WORDS[1::2], strict=True))
    path = tmp_path_factory.mktemp("corpus") / "text.txt"
    path.write_text("\n\n".join(" ".join(f"{a} {b} ." for a, b in rng.choices(pairs, k=40)) for _ in range(40)))
    return path


def generator(corpus, tokenizer, settings=SETTINGS, **options):
    return MLMDataGenerator(
        str(corpus), tokenizer, 16, settings.micro_batch, cache_dir=corpus.parent / "cache", progress=False,
        **{"held_out": 0.2, **options},
    )  # fmt: skip


class Killed(Exception):
    pass


def go(folder, corpus, tokenizer, settings, resume=False, kill_at=None):
    """Train in a folder, or continue there; with `kill_at`, the process dies when that checkpoint was written."""

    def kill(record):
        if record["kind"] == "checkpoint" and record["step"] == kill_at:
            raise Killed

    batches, model = generator(corpus, tokenizer, settings), MiniBERT(CONFIG, seed=1)
    if not resume:
        RunFolder.create(folder, {"model": CONFIG.to_dict(), "training": settings.to_dict(), "data": {}})
    run = RunFolder(folder, tokenizer, settings.keep, checkpoint.latest(folder) if resume else None, [kill])
    validation = batches.validation(batch_size=8)
    if not resume:
        run.start = start_record(model, batches, validation, settings)
    return model, train(model, batches, settings, validation, run)


def records(folder, kind):
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [line for line in lines if line["kind"] == kind]


# --- all of them ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("recipe", ["muon in 16 bits", "ema", "tail", "ramps"])
def test_a_run_resumes_to_the_same_bits(recipe, tmp_path, corpus, tokenizer):
    """Killed at step 3 and again at step 9, it ends with the weights, the optimiser and the records of a whole run."""
    settings = TrainingConfig.from_dict(json.loads(json.dumps(replace(SETTINGS, **RECIPES[recipe]).to_dict())))
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    model, _ = go(whole, corpus, tokenizer, settings)
    for step, resume in ((3, False), (9, True)):
        with pytest.raises(Killed):
            go(cut, corpus, tokenizer, settings, resume, kill_at=step)
    other, state = go(cut, corpus, tokenizer, settings, resume=True)
    assert state.step == 12
    np.testing.assert_array_equal(model.flat.data, other.flat.data)
    for name in ("model", "optimizer"):
        one, two = (run / f"checkpoints/step-00000012/{name}.safetensors" for run in (whole, cut))
        assert one.read_bytes() == two.read_bytes()
    for kind in ("eval", "tensors"):
        assert records(whole, kind) == records(cut, kind)
    numbers = ("loss", "lr", "muon_lr", "batch_size", "length", "mask_prob", "tokens")
    one, two = ([[r.get(name) for name in numbers] for r in records(run, "train")] for run in (whole, cut))
    assert one == two


@pytest.mark.parametrize("recipe", ["muon", "everything"])
def test_a_run_can_be_diagnosed_and_drawn(recipe, tmp_path, corpus, tokenizer):
    pytest.importorskip("matplotlib")
    settings = replace(SETTINGS, **RECIPES[recipe])
    go(tmp_path / "run", corpus, tokenizer, settings)
    go(tmp_path / "plain", corpus, tokenizer, SETTINGS)
    said = summary(tmp_path / "run")
    wanted = {
        "muon": "Muon up to 0.03 (Adam 0.01), schedule wsd",
        "everything": "schedule wsd, average ema, batch 4 to 8, length 8 to 16",
    }
    assert wanted[recipe] in said and "Adam up to 0.0094, schedule linear" in summary(tmp_path / "plain")
    figure = training_curves([tmp_path / "run", tmp_path / "plain"])
    panels = {axes.get_title(): axes for part in figure.subfigs for axes in part.axes}
    assert ("batch, length, masks" in panels) == (recipe == "everything")
    panel = panels["learning rate\n(dotted: Muon's)" if recipe == "muon" else "learning rate"]
    rates = [line for line in panel.lines if len(line.get_xdata())]
    assert len(rates) == (3 if recipe == "muon" else 2)  # its second rate is another one
    words = [text for axes in panels.values() if axes.get_legend() for text in axes.get_legend_handles_labels()[1]]
    assert ("held-out text, averaged weights" in words) == (recipe == "everything")


# --- the learning rate ------------------------------------------------------------------------------------


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_schedules_rise_to_the_peak_and_end_at_zero(schedule):
    """Linear warm-up, 1 at its end, 0 at the end of the run, never above 1 or rising again; warm-up may be 0."""
    shares = [lr_share(schedule, progress, 0.2, 0.3) for progress in np.linspace(0, 1, 1001)]
    assert shares[0] == 0 and shares[100] == pytest.approx(0.5) and shares[200] == pytest.approx(1)
    assert shares[-1] == pytest.approx(0, abs=1e-12) and max(shares) <= 1
    assert all(a >= b for a, b in pairwise(shares[200:]))
    assert lr_share(schedule, 0.0, 0.0, 0.3) == 1 and lr_share(schedule, 1.2, 0.1, 0.3) == pytest.approx(0, abs=1e-12)


def test_schedules_differ_in_between():
    """At half of what follows warm-up: linear and cosine at a half, wsd at the peak; before, cosine is above linear."""
    found = {name: [lr_share(name, progress, 0.2, 0.4) for progress in (0.4, 0.6, 0.8)] for name in SCHEDULES}
    assert found["linear"] == pytest.approx([0.75, 0.5, 0.25])
    assert found["cosine"] == pytest.approx([(1 + math.sqrt(0.5)) / 2, 0.5, (1 - math.sqrt(0.5)) / 2])
    assert found["wsd"] == pytest.approx([1, 1, 0.5])


def test_a_run_follows_its_schedule(tmp_path, corpus, tokenizer):
    settings = replace(
        SETTINGS, warmup=0.25, schedule="wsd", decay_share=0.5, optimizer="muon", muon_learning_rate=0.05
    )
    recorder = Recorder()
    train(MiniBERT(CONFIG), generator(corpus, tokenizer), settings, run=recorder)
    found = [record for record in recorder.records if record["kind"] == "train"]
    wanted = [1e-2 * min(1, (step / 13) / 0.25, (1 - step / 13) / 0.5) for step in range(2, 13, 2)]
    assert [record["lr"] for record in found] == pytest.approx(wanted)
    assert [record["muon_lr"] for record in found] == pytest.approx([5 * rate for rate in wanted])


def test_a_run_is_evaluated_when_its_time_has_come(corpus, tokenizer):
    """And recorded, so that the time of the evaluation is known; once, also after a resume."""
    settings, recorder, batches = replace(SETTINGS, eval_minutes=(1e-9,)), Recorder(), generator(corpus, tokenizer)
    train(MiniBERT(CONFIG), batches, settings, batches.validation(), recorder)
    steps = {kind: [one["step"] for one in recorder.records if one["kind"] == kind] for kind in ("eval", "train")}
    assert steps == {"eval": [1, 5, 10, 12], "train": [1, 2, 4, 6, 8, 10, 12]}


# --- averages ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("steps", "every"), [(60, 3), (11, 1)])
@pytest.mark.parametrize("kind", ["ema", "tail"])
def test_averages_by_hand(kind, steps, every):
    """ema: at first the mean, then decay³ per sample of every third step; tail: the mean of the last half.

    In short runs every step counts.
    """
    model = MiniBERT(CONFIG, seed=1, dtype=np.float64)
    optimiser = Averaged(Adam(model.flat, 0.01), model.flat, kind, every=3, decay=0.9, tail=0.5)
    rng, samples, raw = np.random.default_rng(0), [], []
    for step in range(1, steps + 1):
        model.flat.grad[...] = rng.normal(size=model.flat.grad.size)
        optimiser.step()
        optimiser.sample(step / steps)
        raw.append(model.flat.data.copy())
        if step % every == 0 and (kind == "ema" or step / steps >= 0.5):
            samples.append(raw[-1])
    if kind == "tail":
        wanted = np.mean(samples, 0)
    else:
        wanted = samples[0]
        for count, sample in enumerate(samples[1:], 2):
            share = max(1 / count, 1 - 0.9**every)
            wanted = (1 - share) * wanted + share * sample
    with optimiser.swapped():
        np.testing.assert_allclose(model.flat.data, wanted, atol=1e-12)
        np.testing.assert_array_equal(optimiser.arrays["raw_weights"], raw[-1])
    np.testing.assert_array_equal(model.flat.data, raw[-1])
    assert optimiser.count[0] == len(samples)


def test_a_run_that_is_extended_gets_a_new_tail():
    """Samples of the old tail do not count: until the new one begins, the weights of the step are evaluated.

    The first sample is exactly these weights, whatever the array had before: that depends on when a run was saved.
    """
    model = MiniBERT(CONFIG, seed=1)
    optimiser = Averaged(Adam(model.flat, 0.01), model.flat, "tail", every=1, decay=0.9, tail=0.5)
    model.flat.grad[...] = 1
    for progress, count in ((0.9, 1), (1.0, 2), (0.4, 0), (0.6, 1)):
        optimiser.step()
        optimiser.sample(progress)
        assert optimiser.count[0] == count
        now = model.flat.data.copy()
        if count < 2:
            with optimiser.swapped():
                np.testing.assert_array_equal(model.flat.data, now)


def test_averages_are_evaluated_and_saved_and_leave_training_alone(tmp_path, corpus, tokenizer):
    """The raw weights are those of a run without an average; the checkpoint has both; the loss is the average's."""
    plain, _ = go(tmp_path / "plain", corpus, tokenizer, SETTINGS)
    settings = replace(SETTINGS, average="tail", average_every=1, tail_share=0.5)
    model, _ = go(tmp_path / "run", corpus, tokenizer, settings)
    saved = read_tensors(tmp_path / "run/checkpoints/step-00000012/optimizer.safetensors")
    np.testing.assert_array_equal(saved["raw_weights"], plain.flat.data)
    weights = [read_tensors(tmp_path / f"plain/checkpoints/step-{step:08d}/model.safetensors") for step in (3, 12)]
    averaged = read_tensors(tmp_path / "run/checkpoints/step-00000012/model.safetensors")
    for name, param in model.named_params().items():
        np.testing.assert_array_equal(averaged[name], param.data)  # what the caller gets
        assert not np.array_equal(averaged[name], weights[1][name])
    assert [record["averaged"] for record in records(tmp_path / "run", "eval")] == [0, 4, 6]  # from step 7 on
    early = read_tensors(tmp_path / "run/checkpoints/step-00000003/model.safetensors")
    np.testing.assert_array_equal(early["tokens.table"], weights[0]["tokens.table"])  # before the tail
    batches = generator(corpus, tokenizer)
    found = evaluate(model, batches.validation(batch_size=8).once(most=16)).loss
    assert records(tmp_path / "run", "eval")[-1]["loss"] == pytest.approx(found)


# --- ramps ------------------------------------------------------------------------------------------------


def test_the_batch_grows():
    """From 1 micro-batch to 4 in equal parts of the ramp; the rest of the run has all of them."""
    found = [batch_parts(progress, 1, 4, 0.5) for progress in np.arange(0, 1, 0.05)]
    assert found == sorted(found) and found[0] == 1 and found[10:] == [4] * 10
    assert [found.count(size) for size in (1, 2, 3)] == pytest.approx([2.5] * 3, abs=1)


def test_what_a_step_gets(corpus, tokenizer):
    """Short sequences first, as many tokens per micro-batch; few of them; many masks. Held-out text stays the same."""
    settings = replace(SETTINGS, steps=100, batch_size=16, batch_start=4, batch_ramp=0.4, length_start=4,
                       length_ramp=0.5, mask_start=0.6)  # fmt: skip
    batches = generator(corpus, tokenizer, settings)
    validation = batches.validation()
    before = validation.batch(0)
    ramps, seen = Ramps(batches, settings), []
    for progress in (0.0, 0.2, 0.31, 0.6, 1.0):
        parts = ramps.parts(progress)
        sizes = {part.input_ids.shape for part in parts}
        assert len(sizes) == 1
        masked = sum(len(part.rows) for part in parts) / sum((part.input_ids > 4).sum() for part in parts)
        seen.append((len(parts), *sizes.pop(), ramps.now["mask_prob"], masked))
    assert [one[:3] for one in seen] == [(1, 16, 4), (3, 16, 4), (4, 8, 8), (4, 4, 16), (4, 4, 16)]
    assert [one[3] for one in seen] == pytest.approx([0.6, 0.51, 0.4605, 0.33, 0.15])
    assert seen[0][4] > seen[-1][4]
    with pytest.raises(OSError, match="full"), ramps:
        ramps.parts(0.0)
        raise OSError("the disk is full")
    assert batches.objective.predicted == 0.15
    again = validation.batch(0)
    np.testing.assert_array_equal(before.rows, again.rows)
    np.testing.assert_array_equal(before.input_ids, again.input_ids)
    assert batches.validation().objective.arguments["mask_prob"] == 0.15


def test_the_time_left_counts_smaller_batches_less():
    """The work of all steps, in steps of the full batch: the area under the ramp."""
    settings = replace(SETTINGS, steps=1000, batch_size=32, micro_batch=4, batch_start=8, batch_ramp=0.4)
    for done in (0.0, 0.1, 0.4, 0.7):
        area = np.mean([min(1, (8 + 24 * p / 0.4) / 32) for p in np.linspace(done, 1, 20_001)]) * (1 - done) * 1000
        assert steps_left(done, settings) == pytest.approx(area, rel=1e-3)
    assert steps_left(0.25, SETTINGS) == 9


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"optimizer": "sgd"}, "optimizer is 'sgd', expected one of adam, muon"),
        ({"schedule": "steps"}, "schedule is 'steps', expected one of linear, cosine, wsd"),
        ({"schedule": "wsd", "warmup": 0.5, "decay_share": 0.6}, "together more than the whole run"),
        ({"decay_share": 0}, "decay_share is 0, expected a fraction"),
        ({"muon_learning_rate": 0.1}, "no effect on Adam"),
        ({"momentum": 1.0}, "momentum is 1.0"),
        ({"average": "mean"}, "average is 'mean', expected one of none, ema, tail"),
        ({"average": "tail"}, "tail_share is 0.15, which of 12 steps is less than two"),
        ({"average": "ema", "weights": "bfloat16"}, "average is 'ema' and weights is 'bfloat16'"),
        ({"batch_start": 3}, "batch_start is 3, expected a multiple of micro_batch 4"),
        ({"batch_start": 12}, "batch_start is 12, expected .* at most batch_size 8"),
        ({"length_start": 2}, "length_start is 2"),
        ({"mask_start": 1.5}, "mask_start is 1.5, expected a fraction"),
        ({"mask_ramp": 0.0}, r"mask_ramp is 0.0, expected a fraction"),
    ],
)  # fmt: skip
def test_settings_that_make_no_sense_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        replace(SETTINGS, **changes)


def test_ramps_that_do_not_fit_the_text_are_refused(corpus, tokenizer):
    with pytest.raises(ValueError, match="length_start is 32, expected at most the 16 of a sequence"):
        Ramps(generator(corpus, tokenizer), replace(SETTINGS, length_start=32))
    with pytest.raises(ValueError, match="mask_start has no effect on the objective"):
        Ramps([], replace(SETTINGS, mask_start=0.3))


@pytest.mark.parametrize(
    ("given", "message"),
    [({"decay_share": 0.2, "schedule": "linear"}, "--decay-share has no effect without --schedule wsd"),
     ({"momentum": 0.9, "optimizer": "adam"}, "--momentum has no effect without --optimizer muon"),
     ({"ema_decay": 0.9, "average": "tail"}, "--ema-decay has no effect without --average ema"),
     ({"mask_ramp": 0.9}, "--mask-ramp has no effect without --mask-start;"),
     ({"momentum": 0.9, "continued": True}, "--momentum has no effect without --optimizer muon")],
)  # fmt: skip
def test_a_setting_without_effect_is_refused(given, message):
    with pytest.raises(ValueError, match=message):
        settings_for(CONFIG, steps=10, **given)


@pytest.mark.parametrize(
    ("given", "message"),
    [({"warmup": "0.1"}, "warmup is '0.1', expected a fraction of the run"), ({"warmup": None}, "warmup is None"),
     ({"decay_share": None}, "decay_share is None, expected a fraction"),
     ({"warmup": 0.75, "decay_share": 0.5}, "together more than the whole run; choose a warmup of at most 0.5")],
)  # fmt: skip
def test_the_default_schedule_hides_no_mistake(given, message):
    """A warm-up or decay that cannot be is named, although the schedule is chosen by them."""
    with pytest.raises(ValueError, match=message):
        settings_for(CONFIG, steps=10, **given)


def test_defaults_follow_the_optimiser_and_the_smallest_batch():
    """Muon starts with twice Adam's learning rate; micro-batches divide the first batch, too."""
    settings, _ = settings_for(CONFIG, steps=10, optimizer="muon", batch_start=12, threads=2)
    assert settings.learning_rate == 2 * settings_for(CONFIG, steps=10, optimizer="adam")[0].learning_rate
    assert (settings.batch_size, settings.batch_start, settings.micro_batch) == (32, 12, 2)


def test_new_models_are_trained_with_muon_and_trained_ones_with_adam():
    """Each with the schedule that suits it, unless one is given or the warm-up leaves no time for it."""

    def recipe(**given):
        settings, _ = settings_for(CONFIG, steps=1000, **given)
        return settings.optimizer, settings.schedule

    assert recipe() == ("muon", "wsd") and recipe(continued=True) == ("adam", "linear")
    assert recipe(optimizer="adam") == ("adam", "linear") and recipe(schedule="cosine") == ("muon", "cosine")
    assert recipe(warmup=0.8) == ("muon", "linear") and recipe(warmup=0.8, decay_share=0.1) == ("muon", "wsd")


def test_long_runs_have_larger_batches_and_a_rate_that_falls_all_the_way():
    """Where only some of the words are predicted, from 15 minutes on; what is given stays."""

    def recipe(**given):
        found, _ = settings_for(CONFIG, **given)
        return found.batch_size, found.schedule, found.learning_rate, found.weight_decay

    short, long = (32, "wsd", 2e-3, 0.01), (128, "linear", 3e-3, 0.3)
    assert recipe(minutes=14) == recipe(steps=10**6) == recipe(minutes=60, masked=False) == short
    assert recipe(minutes=15) == recipe(minutes=60) == long
    wide = MiniBertConfig(hidden_size=384)  # four times Mini-BERT's work
    assert settings_for(wide, minutes=59)[0].batch_size == 32 and settings_for(wide, minutes=60)[0].batch_size == 128
    assert recipe(minutes=60, optimizer="adam") == recipe(minutes=60, continued=True, learning_rate=1e-3)
    assert recipe(minutes=60, batch_size=64, schedule="wsd", learning_rate=1e-4) == (64, "wsd", 1e-4, 0.3)
    assert recipe(minutes=60, decay_share=0.2, weight_decay=0.1) == (128, "wsd", 3e-3, 0.1)
    assert recipe(minutes=60, micro_batch=10) == (120, "linear", 2e-3, 0.3)


def test_the_doctor_names_the_rate_that_is_too_high(tmp_path):
    """If the matrices' own rate is the higher one, it is the one to lower."""
    lines = [{"kind": "start", "step": 0, "optimizer": "muon"}]
    for step in range(10, 210, 10):
        lines.append({"kind": "train", "step": step, "loss": 5 + step / 50, "lr": 1e-3, "muon_lr": 0.2})
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (finding,) = [finding for finding in diagnose(tmp_path) if finding.level == "error"]
    assert "learning rate reached 0.2; 0.002 is usual" in finding.what
    assert finding.try_.startswith("--muon-lr 0.001")


def test_the_model_card_says_what_was_unusual():
    assert rates(SETTINGS) == "0.01 at its peak, warm-up 10%, then down to 0" and not further_settings(SETTINGS)
    settings = replace(SETTINGS, **RECIPES["everything"])
    assert "0.01 (Muon, for matrices in blocks) at its peak" in rates(settings)
    assert "constant until the last 30%, then down to 0" in rates(settings)
    card = further_settings(settings, samples=7)
    assert "per step, of 7 samples |" in card and "of a single step" in further_settings(settings, samples=0)
    assert card.count("\n") == 4 and "| masked share | 0.1 at first, as above after 50% of the run |" in card


def test_muon_has_half_the_memory_for_its_matrices():
    model = MiniBERT(CONFIG)
    arrays = Muon(model).arrays
    matrices = sum(param.size for name, param in model.named_params().items() if ".blocks." in name and param.decay)
    assert sum(array.size for array in arrays.values()) == 2 * model.flat.data.size - matrices
