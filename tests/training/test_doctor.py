"""The doctor distinguishes a healthy run from the ways in which runs go wrong, and says what to try."""

import doctest
import json
import math
import random
import re
import shlex

import pytest
import typer

from mini_bert.cli.training import doctor
from mini_bert.training import symptoms
from mini_bert.training.doctor import diagnose, report, summary
from mini_bert.training.history import read_run
from mini_bert.training.part_symptoms import discriminator
from mini_bert.training.symptoms import (
    EXPLODING,
    NOT_FINITE,
    NOT_LEARNING,
    PLATEAU,
    TOO_HIGH,
    VANISHING,
    Finding,
)
from mini_bert.training.text_symptoms import NOTHING_TO_LEARN, OVERFITTING, SMALL_BATCH

U = 6.5  # the unigram baseline of these runs
NAMES = ["tokens.table"] + [
    f"encoder.blocks.{block}.{part}.w" for block in range(3) for part in ("attention.qkv", "feed_forward.expand")
]


def falling(step):
    """A healthy loss: from 9 to the plateau, and below it from step 2,000 on."""
    return 6.3 + 2.7 * math.exp(-step / 150) - 2.2 / (1 + math.exp(-(step - 2200) / 350))


def resting(step):
    """A loss that stays on the plateau."""
    return 6.25 + 2.7 * math.exp(-step / 150)


def run(
    folder,
    loss=falling,
    steps=4000,
    every=50,
    lr=1e-3,
    norm=lambda step: 1.2,
    clipped=0.4,
    gap=lambda step: 0.05,
    ratio=2e-3,
    gradients=(0.02, 0.05, 0.2),
    epochs=2.0,
    reason="done",
    end=(),
    masks=None,
    muon_lr=None,
    **start,
):
    """A made-up run folder."""
    rng = random.Random(0)
    records = [
        {"kind": "start", "step": 0, "steps": steps, "unigram_loss": U, "tokens_per_step": 2048, "mask_prob": 0.15}
        | {"train_tokens": 3_200_000, "vocab_size": 8192, "optimizer": "muon" if muon_lr else "adam"}
        | start
    ]
    for step in range(every, steps + 1, every):
        value = loss(step) + rng.gauss(0, 0.03)
        records.append(
            {"kind": "train", "step": step, "loss": value, "accuracy": 0.2, "lr": lr * min(1, step / 400)}
            | {"grad_norm": norm(step), "grad_norm_max": 1.5 * norm(step), "clipped": clipped}
            | {"epoch": epochs * step / steps, "seconds": 0.06 * step}
            | ({"mask_prob": masks(step)} if masks else {})
            | ({"muon_lr": muon_lr * min(1, step / 400)} if muon_lr else {})
        )
        if step % 500 == 0:
            held = value + gap(step)
            records.append({"kind": "eval", "step": step, "loss": held, "top1": 0.3, "targets": 3000})
            tensors = {}
            for name in NAMES:
                block = int(name.split(".")[2]) if "blocks" in name else 0
                tensors[name] = {"weight": 20.0, "gradient": gradients[block], "update": 20 * ratio, "ratio": ratio}
            records.append({"kind": "tensors", "step": step, "tensors": tensors})
    records += end
    if reason:
        records.append({"kind": "stop", "step": records[-1]["step"], "reason": reason, "seconds": 240.0})
    folder.mkdir(exist_ok=True)
    text = "".join(json.dumps(record) + "\n" for record in records)
    (folder / "metrics.jsonl").write_text(text, encoding="utf-8")
    return folder


def exit_code(folder):
    with pytest.raises(typer.Exit) as stop:
        doctor(folder)
    return stop.value.exit_code


def found(folder):
    """Returns the findings by title"""
    return {finding.title: finding for finding in diagnose(folder)}


def grave(folder):
    return {finding.title for finding in diagnose(folder) if finding.level in ("error", "warning")}


def test_a_healthy_run(tmp_path, capsys):
    """There are no findings; the report says so, with the numbers and whether to continue; the exit code is 0."""
    (finding,) = diagnose(run(tmp_path))
    assert finding.level == "good" and finding.title == "Nothing is wrong with this run"
    assert "On held-out text it is 4.1" in finding.what and "with a top-1 accuracy of 30%" in finding.what
    assert "below the unigram baseline of 6.50: it uses context" in finding.why
    held = read_run(tmp_path).series("eval", "loss")[1][-1]  # and not of the training loss
    assert f"That is {6.5 - held:.2f} below" in finding.why
    assert "longer training will help" in finding.try_
    assert exit_code(tmp_path) == 0
    assert capsys.readouterr().out.startswith(f"{tmp_path}: 4,000 steps in 4:00, loss ")


def test_a_run_that_learnt_all_it_can(tmp_path):
    """If the end of the curve is flat and low, more steps are not suggested."""
    (finding,) = diagnose(run(tmp_path, loss=lambda step: falling(2 * step), steps=8000))
    assert "hardly falls any more" in finding.try_


def test_a_young_run(tmp_path):
    """On the way down to the plateau, everything is fine so far."""
    (finding,) = diagnose(run(tmp_path, steps=1000, loss=resting))
    assert finding.title == "Nothing is wrong so far" and finding.level == "good"
    (finding,) = diagnose(run(tmp_path, steps=100, every=10))
    assert "of 6.50: it has not even learnt word frequencies yet" in finding.why and "Too early" in finding.try_


@pytest.mark.parametrize("above", [0.02, 0.2, 1.0])
def test_above_the_baseline_it_is_too_early_to_tell(tmp_path, above):
    """Such a run is not called healthy, nor is it said to have learnt anything."""
    end = [{"kind": "eval", "step": 60, "loss": U + above}]
    (finding,) = diagnose(run(tmp_path, loss=lambda step: U + above + 0.1, steps=60, every=20, end=end))
    assert finding.level == "early" and "HEALTHY" not in report([finding])
    assert finding.title == "It is too early to tell; nothing is wrong so far"
    assert f"{above:.2f} above the unigram baseline" in finding.why and "it has learnt" not in finding.why


def test_the_summary_and_the_report_give_one_loss(tmp_path):
    """Both give the last record."""
    folder = run(tmp_path, steps=4000, every=20, loss=lambda step: 6.0 - step / 2000)
    last = read_run(folder).series("train", "loss")[1][-1]
    (finding,) = diagnose(folder)
    assert f" to {last:.2f} in 4,000 steps" in finding.what and f" to {last:.2f}," in summary(folder)


def test_one_record_says_nothing_about_a_fall(tmp_path):
    """With a single loss there is nothing to compare it with, so more text is not suggested."""
    finding = found(run(tmp_path, steps=1, every=1, loss=lambda step: 2.0))["Nothing is wrong with this run"]
    assert "too early to tell" in finding.try_ and "after 1 step." in finding.what


def test_the_plateau(tmp_path):
    """Flat just below the unigram baseline for thousands of steps: it is named and explained, with what shortens it."""
    finding = found(run(tmp_path, loss=resting))[PLATEAU]
    assert finding.level == "warning"
    assert ", 0.2" in finding.what and "below the unigram baseline of 6.50" in finding.what
    assert "context" in finding.why and "sinusoids" in finding.try_


@pytest.mark.parametrize("steps", [300, 1000, 3000])
def test_a_plateau_is_not_told_too_soon(tmp_path, steps):
    """A plateau of thousands of steps is normal: the run counts as healthy, and nothing else is reported."""
    (finding,) = diagnose(run(tmp_path, loss=resting, steps=steps, every=20))
    assert finding.level in ("good", "early") and finding.title != PLATEAU


def test_warm_up_is_no_plateau(tmp_path):
    """Thousands of steps of warm-up, starting from the word frequencies, are not reported as a plateau."""
    folder = run(tmp_path, loss=lambda step: 6.4, steps=5000, lr=1e-3)
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    for line in lines:
        if line["kind"] == "train":
            line["lr"] = 1e-7 * line["step"]
    (folder / "metrics.jsonl").write_text("\n".join(map(json.dumps, lines)))
    (finding,) = diagnose(folder)
    assert finding.level == "good" and "still rising" in finding.try_
    for line in lines:  # nor does a loss that hardly falls then mean that nothing is learnt
        if line["kind"] == "train":
            line["loss"] = 8.0
    (folder / "metrics.jsonl").write_text("\n".join(map(json.dumps, lines)))
    assert not grave(folder)


def test_leaving_the_plateau_is_not_resting_on_it(tmp_path):
    """A loss that has begun to fall is healthy, although it is still near the unigram baseline."""
    assert PLATEAU not in found(run(tmp_path, steps=1900))


def test_not_finite(tmp_path, capsys):
    """Reports the tensor, the step and the learning rate; exit code 1."""
    tensors = ["encoder.blocks.1.feed_forward.expand.w", "head.w"]
    lost = {"kind": "nonfinite", "step": 173, "what": "gradient", "tensors": tensors, "lr": 0.1}
    folder = run(tmp_path, steps=150, every=10, lr=0.1, end=[lost], reason="nonfinite")
    finding = diagnose(folder)[0]
    assert (finding.level, finding.title) == ("error", NOT_FINITE)
    assert (
        "At step 173 the gradient was NaN or infinite, first in encoder.blocks.1.feed_forward.expand.w" in finding.what
    )
    assert "and in 1 more tensor;" in finding.what and "learning rate was 0.1" in finding.what
    assert "--learning-rate 0.001 instead of 0.1" in finding.try_
    assert exit_code(folder) == 1 and "ERROR: The numbers are no longer finite" in capsys.readouterr().out


def test_not_finite_before_the_first_record(tmp_path):
    """A run that fails at once has no training record, and is still diagnosed."""
    lost = {"kind": "nonfinite", "step": 1, "what": "weights", "tensors": [], "lr": 1e-5}
    finding = diagnose(run(tmp_path, steps=0, end=[lost], reason="nonfinite"))[0]
    assert finding.title == NOT_FINITE and "At step 1 the weights" in finding.what and "loaded" in finding.why


@pytest.mark.parametrize("value", [math.nan, None])
def test_not_finite_in_silence(tmp_path, value):
    """A loss of NaN or null is detected even without a record that reports it."""
    lost = [{"kind": "train", "step": 200 + i, "loss": value, "lr": 1e-3} for i in range(3)]
    assert "At step 200 the loss" in found(run(tmp_path, steps=150, end=lost))[NOT_FINITE].what


def test_a_learning_rate_a_hundred_times_too_high(tmp_path):
    """As measured with 0.1: the loss stays on the plateau, and lower blocks get gradients of 1e-9; the cause is listed
    first.

    The plateau is then not a separate finding: waiting would not help.
    """
    folder = run(tmp_path, loss=resting, steps=250, every=10, lr=0.1, end=[])
    assert grave(folder) == {TOO_HIGH}
    folder = run(tmp_path, loss=resting, lr=0.1, gradients=(4e-9, 8e-7, 2e-2))
    first, second = diagnose(folder)
    assert (first.level, first.title) == ("error", TOO_HIGH) and "reached 0.1; 0.001 is usual" in first.what
    assert "--learning-rate 0.001" in first.try_
    assert second.title == VANISHING and "block 0 5.7e-9, block 1 1.1e-6; but block 2 0.028" in second.what


def test_a_loss_that_rises_again(tmp_path):
    """A rising loss, growing and clipped gradients and large updates are all reported."""
    folder = run(
        tmp_path,
        loss=lambda step: falling(min(step, 2500)) + max(0, step - 2500) / 800,
        norm=lambda step: 1.0 + max(0, step - 2000) / 400,
        clipped=0.98,
        ratio=0.04,
        lr=4e-3,
    )
    finding = found(folder)[TOO_HIGH]
    assert finding.level == "warning"
    for words in ("The loss rose to", "gradient norm grew from 1 to", "98% of the later steps were clipped", "by 4.0%"):
        assert words in finding.what


@pytest.mark.parametrize("flat", [False, True])
def test_a_slow_fall_is_not_a_rate_too_high(tmp_path, flat):
    """A small model whose loss falls to the end is well, though its gradients grow and the end of its run is flat."""
    folder = run(
        tmp_path,
        loss=lambda step: 6.2 if flat else 6.2 - 0.4 * min(1, step / 2400),
        norm=lambda step: 0.5 + step / 1000,
        clipped=0.98,
        ratio=0.04,
    )
    assert (TOO_HIGH in found(folder)) == flat


def test_a_diverged_run(tmp_path):
    """A run that training/loop.py stopped after its first record is explained, too."""
    folder = run(tmp_path, loss=lambda step: 40.0, steps=50, lr=0.5, reason="diverged")
    assert found(folder)[TOO_HIGH].level == "error"


@pytest.mark.parametrize(("loss", "held"), [(15.0, 16.0), (6.6, 130.0), (2813.0, None)])
def test_a_loss_above_that_of_a_guess_is_not_early(tmp_path, loss, held):
    """Even one record, of training or of held-out text, shows that the learning rate was far too high."""
    end = [] if held is None else [{"kind": "eval", "step": 3, "loss": held}]
    (finding,) = diagnose(run(tmp_path, loss=lambda step: loss, steps=3, every=3, lr=300.0, end=end))
    assert (finding.level, finding.title) == ("error", TOO_HIGH) and "a uniform guess has 9.01;" in finding.what
    end = [{"kind": "eval", "step": 3, "loss": 9.2}]  # a usual rate, and hardly worse than a guess
    assert not grave(run(tmp_path, loss=lambda step: 9.1, steps=3, every=3, end=end))


def test_one_record_is_no_range(tmp_path):
    """Neither the report nor the summary compares the only loss with itself."""
    folder = run(tmp_path, loss=lambda step: 8.0, steps=3, every=3)
    (finding,) = diagnose(folder)
    assert re.match(r"The loss is 8\.\d\d after 3 steps\.", finding.what)
    assert " to " not in summary(folder).partition("Adam")[0]


@pytest.mark.parametrize(("optimizer", "lr"), [("adam", 6e-3), ("muon", 9e-3), ("muon", 12e-3)])
def test_a_high_rate_that_learns_is_no_error(tmp_path, optimizer, lr):
    """A loss that falls steadily, and below the unigram baseline, though it does not show context yet."""
    folder = run(tmp_path, loss=lambda step: 8.2 - 2.3 * (step / 1200) ** 0.5, steps=1200, lr=lr, optimizer=optimizer)
    assert not grave(folder)
    folder = run(tmp_path, loss=resting, lr=lr, optimizer=optimizer)  # twice Adam's rates are usual for Muon
    assert (TOO_HIGH in grave(folder)) == (lr != 9e-3)


def test_advice_names_the_option_that_was_too_high(tmp_path):
    """If Muon's own rate is the higher one, after NaN and exploding gradients, too, even before the first record."""
    lost = {"kind": "nonfinite", "step": 173, "what": "gradient", "tensors": [], "lr": 1e-3, "muon_lr": 0.2}
    for steps in (150, 0):
        finding = found(run(tmp_path, steps=steps, every=10, end=[lost], reason="nonfinite", optimizer="muon"))[
            NOT_FINITE
        ]
        assert "was 0.001 (Adam) and 0.2 (Muon)." in finding.what
        assert "with --muon-lr 0.001 instead of 0.2" in finding.try_
    folder = run(tmp_path, norm=lambda step: math.exp(step / 600), gradients=(900.0, 30.0, 2.0), muon_lr=0.02)
    assert found(folder)[EXPLODING].try_.startswith("--muon-lr 0.001 and")
    folder = run(tmp_path, gradients=(1e-6, 0.05, 0.2), muon_lr=1e-3)
    assert "Muon moves" in found(folder)[VANISHING].why and "--learning-rate" in found(folder)[VANISHING].try_


@pytest.mark.parametrize("moving", [True, False])
def test_a_changing_task_is_no_symptom(tmp_path, moving):
    """A training loss at another mask rate is compared with nothing: held-out text is always masked alike."""
    masks = (lambda step: 0.05 + 0.1 * step / 4000) if moving else None
    folder = run(tmp_path, loss=lambda step: 4 + step / 2000, gap=lambda step: 0.5 - step / 1500, masks=masks)
    assert (TOO_HIGH in grave(folder)) != moving
    folder = run(tmp_path, loss=lambda step: 15.0, gap=lambda step: 1.0, masks=masks, lr=300.0)
    said = found(folder)[TOO_HIGH].what
    assert said.startswith("The loss is 1") and ("and on held-out text" in said) != moving  # of one series, not twice
    folder = run(tmp_path, loss=lambda step: 5 - step / 2000, gap=lambda step: step / 2500, masks=masks)
    assert (OVERFITTING in grave(folder)) != moving


def test_exploding_gradients(tmp_path):
    """The norm grows a hundredfold: the report says when, how much, and in which layers most."""
    folder = run(tmp_path, norm=lambda step: math.exp(step / 600), gradients=(900.0, 30.0, 2.0))
    finding = found(folder)[EXPLODING]
    assert (
        finding.level == "error" and "near step 4,000" in finding.what and "block 0 1,300, tokens 900" in finding.what
    )


def test_gradients_that_were_always_huge(tmp_path):
    """A norm in the hundreds from the start is reported even without growth."""
    assert EXPLODING in found(run(tmp_path, norm=lambda step: 500.0))


def test_vanishing_gradients(tmp_path):
    """A block whose gradient is less than a thousandth of another's is named."""
    finding = found(run(tmp_path, gradients=(1e-6, 0.05, 0.2)))[VANISHING]
    assert "block 0 1.4e-6; but block 2 0.28" in finding.what


def test_too_little_data(tmp_path):
    """The held-out loss rises while the training loss falls, after many epochs."""
    finding = found(run(tmp_path, gap=lambda step: (step / 1500) ** 2, epochs=60.0))[OVERFITTING]
    assert finding.level == "warning"
    assert "seen 60.0 times" in finding.what and "its best was" in finding.what
    assert "than these 3,200,000 tokens" in finding.try_


def test_many_epochs_without_harm(tmp_path):
    """Thirty epochs without a gap: a note, and the run is healthy."""
    findings = diagnose(run(tmp_path, epochs=30.0))
    assert [finding.level for finding in findings] == ["good", "note"] and findings[1].title == OVERFITTING


def test_harder_held_out_text_is_not_overfitting(tmp_path):
    """A gap that existed from the start is a property of the text, not of the training."""
    assert grave(run(tmp_path, gap=lambda step: 0.8)) == set()


def test_masks_that_leave_nothing_to_learn(tmp_path):
    """There is hardly any target in a step."""
    finding = found(run(tmp_path, mask_prob=0.001))[NOTHING_TO_LEARN]
    assert finding.level == "error" and "predicts about 2 tokens: 0.1% of 2,048" in finding.what


def test_a_small_batch_is_not_taken_for_bad_masks(tmp_path, capsys):
    """Four sequences of 16 tokens, 15 % of them masked: the batch is small, which does not make the run a failure."""
    findings = found(run(tmp_path, tokens_per_step=64, batch_size=4))
    assert NOTHING_TO_LEARN not in findings
    finding = findings[SMALL_BATCH]
    assert finding.level == "warning" and finding.what.endswith("about 10 tokens: 15.0% of 64.")
    assert "--batch-size 63 or more instead of 4, or longer" in finding.try_ and exit_code(tmp_path) == 0
    assert "--batch-size, or" in found(run(tmp_path, tokens_per_step=64))[SMALL_BATCH].try_


def test_a_fall_is_told_as_it_was_observed(tmp_path):
    """A few steps are not extrapolated to a thousand."""
    (finding,) = diagnose(run(tmp_path, loss=lambda step: 6.0 - step / 30, steps=61, every=5, lr=1e-3))
    assert re.search(r"It fell by 0\.\d\d in the last 15 steps, so", finding.try_)
    (finding,) = diagnose(run(tmp_path))
    assert re.search(r"It fell by 0\.\d\d in the last 1,\d\d0 steps, so", finding.try_)


def test_the_answer_in_the_question(tmp_path):
    """A loss of zero is too good to be true."""
    finding = found(run(tmp_path, loss=lambda step: 0.01 + 9 * math.exp(-step / 100)))[NOTHING_TO_LEARN]
    assert "not masked" in finding.why


def test_text_without_variety(tmp_path):
    """Mostly [UNK]: the unigram baseline reveals this."""
    assert "The text has hardly any variety" in found(run(tmp_path, unigram_loss=1.2, loss=lambda step: 0.9))


@pytest.mark.parametrize(("lr", "words"), [(1e-6, "--learning-rate 0.001"), (1e-3, "Look at the text")])
def test_not_learning(tmp_path, lr, words):
    """A loss that stays near ln 8192: the learning rate is too low, or something else is wrong."""
    finding = found(run(tmp_path, loss=lambda step: 9.0, lr=lr))[NOT_LEARNING]
    assert "above the unigram baseline of 6.50" in finding.what and words in finding.try_


def test_nothing_recorded_yet(tmp_path, capsys):
    """An empty file, and one with only a start record."""
    (tmp_path / "metrics.jsonl").write_text("", encoding="utf-8")
    assert [finding.title for finding in diagnose(tmp_path)] == ["There is nothing to diagnose yet"]
    assert exit_code(tmp_path) == 0
    run(tmp_path, steps=0, reason="")
    assert [finding.level for finding in diagnose(tmp_path)] == ["note"]


def test_half_a_last_line(tmp_path):
    """A run killed while writing is judged by its complete records, and the report says how to resume."""
    folder = run(tmp_path, reason="")
    with (folder / "metrics.jsonl").open("a", encoding="utf-8") as file:
        file.write('{"kind": "train", "step": 4050, "lo')
    findings = diagnose(folder)
    assert [finding.level for finding in findings] == ["good", "note"]
    assert report(findings).endswith(f"`mini-bert train --out {folder} --resume`")


def test_an_interrupted_run(tmp_path):
    """Ctrl-C is not a problem."""
    assert [finding.level for finding in diagnose(run(tmp_path, reason="interrupted"))] == ["good", "note"]


def test_a_resumed_run_is_promised_only_what_it_keeps(tmp_path):
    """The same weights with --steps; with --minutes, results depend on the clock."""
    title = "The run was interrupted"
    assert "exactly the same weights" in found(run(tmp_path, reason="interrupted"))[title].why
    by_the_clock = found(run(tmp_path, reason="interrupted", minutes=4.0))[title].why
    assert "remaining minutes" in by_the_clock and "exactly the same" not in by_the_clock


def test_numbers_read_well(tmp_path):
    """No 1.5e+02, no 1e-09, no twenty digits of perplexity."""
    folder = run(tmp_path, norm=lambda step: 1.2 if step < 3900 else 1234.0, gradients=(1e-9, 0.05, 150.0))
    told = report(diagnose(folder)) + report(diagnose(run(tmp_path / "b", gap=lambda step: 40.0)))
    assert "e+" not in told and "e-0" not in told and not re.search(r"\d{7}|(,\d{3}){3}", told)
    assert "reached 1,900" in told and "block 0 1.4e-9" in told and "block 2 210" in told


def test_a_resumed_run_is_judged_by_what_it_is_now(tmp_path):
    """Problems after the checkpoint that were overwritten by the resumed run do not count."""
    lost = {"kind": "nonfinite", "step": 3999, "what": "loss", "tensors": [], "lr": 1e-3}
    again = [{"kind": "resume", "step": 3900}, {"kind": "train", "step": 3950, "loss": 4.1, "lr": 1e-3}]
    assert grave(run(tmp_path, end=[lost, *again])) == set()


def test_the_gravest_comes_first(tmp_path):
    """Errors first, then warnings, then notes."""
    folder = run(tmp_path, mask_prob=0.001, gradients=(1e-6, 0.05, 0.2), epochs=30.0, reason="interrupted")
    assert [finding.level for finding in diagnose(folder)] == ["error", "warning", "note", "note"]


@pytest.mark.parametrize(("loss", "says"), [(0.39, "it does not find them yet"), (0.35, "it finds some of them")])
def test_a_discriminator_is_compared_with_a_constant_answer(tmp_path, loss, says):
    """The generator fills in 0.15 · (1 − 0.2) = 12 % of the tokens wrongly; knowing only that costs 0.367 nats. Of the
    generator it is said whether it uses context, which takes 1.1 below the baseline: it copies some of its targets."""
    start = {"kind": "start", "step": 0, "unigram_loss": U, "objective": "replaced_tokens", "mask_prob": 0.15}
    found = {"loss": U - 1.2, "replaced_loss": loss, "replaced_accuracy": 0.88}
    records = [start, *({"kind": "train", "step": step, "lr": 1e-3, **found} for step in range(10, 50, 10))]
    records.append({"kind": "eval", "step": 40, "top1": 0.2, **found})
    (tmp_path / "metrics.jsonl").write_text("\n".join(map(json.dumps, records)), encoding="utf-8")
    finding = next(finding for finding in diagnose(tmp_path) if finding.level == "good")
    assert finding.what.startswith("The generator loss went from") and "the generator uses context." in finding.why
    constant = "knowing only that about 12% of the tokens are replaced gives 0.367"
    assert f"Held-out discriminator loss {loss:.3f}; {constant}: {says}." in finding.why


def test_the_saved_model_is_that_of_the_lowest_loss(tmp_path):
    """All numbers of a sentence are of the same step: the last, or that of the saved model, which is named."""
    start = {"kind": "start", "step": 0, "unigram_loss": U, "objective": "replaced_tokens", "mask_prob": 0.15}
    evals = [{"kind": "eval", "step": step, "loss": loss, "replaced_loss": other, "top1": 0.2}
             for step, loss, other in ((20, 4.68, 0.409), (40, 4.684, 0.411))]  # fmt: skip
    records = [start, *({"kind": "train", "step": step, "lr": 1e-3, "loss": 4.7} for step in (10, 20, 30, 40)), *evals]
    (tmp_path / "metrics.jsonl").write_text("\n".join(map(json.dumps, records)), encoding="utf-8")
    history = read_run(tmp_path)
    assert history.best == evals[0] and "discriminator loss 0.409;" in discriminator(history, history.best)
    finding = next(finding for finding in diagnose(tmp_path) if finding.level == "good")
    assert "On held-out text it is 4.68 (perplexity 108)" in finding.what and "loss 0.411;" in finding.why
    assert "The model that is saved is that of step 20, with 4.68." in finding.what


def test_records_that_lack_most_fields(tmp_path):
    """Loss and step are enough for a verdict."""
    lines = [json.dumps({"kind": "train", "step": step, "loss": falling(step)}) for step in range(50, 4000, 50)]
    (tmp_path / "metrics.jsonl").write_text("\n".join(lines), encoding="utf-8")
    assert grave(tmp_path) == set()


def test_commands_can_be_copied(tmp_path, monkeypatch):
    """Commands start the way the user started the program, with quoted paths, each on one line, however long."""
    monkeypatch.setenv("MINI_BERT_CALLED_AS", "python run.py")
    folder = run(tmp_path / "a folder with spaces, and it's long", reason="interrupted", gradients=(1e-6, 0.05, 0.2))
    lines = report(diagnose(folder), 60).splitlines()
    words = next(line for line in lines if "--resume" in line).strip().removeprefix("try").strip().strip("`")
    assert shlex.split(words) == ["python", "run.py", "train", "--out", str(folder), "--resume"]
    assert any(f"`python run.py plot {shlex.quote(str(folder))}`" in line for line in lines)
    assert "mini-bert" not in "\n".join(lines) and "\0" not in "\n".join(lines)


def test_the_report_fits_its_width():
    """What was seen, what it means and what to try, in lines that fit; commands are not broken at hyphens."""
    text = report([Finding("error", "Title", "word " * 40, "because", "mini-bert train --out a-b-c/" + "d-" * 30)], 60)
    body = text.splitlines()
    assert body[:2] == ["", "ERROR: Title"] and max(map(len, body[:-2])) <= 60
    assert body[2].startswith("  seen   word") and "  means  because" in body
    assert body[-1].strip() == "a-b-c/" + "d-" * 30


def test_examples_in_docstrings():
    assert doctest.testmod(symptoms).failed == 0
