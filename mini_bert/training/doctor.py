"""Diagnoses a training run from its records: what is wrong, the numbers that show it, and what to try.

    for finding in diagnose("runs/first"):
        print(finding.level, finding.title)

training/symptoms.py has the checks; text_symptoms.py and part_symptoms.py, those of the text and of the further losses.
"""

from __future__ import annotations

import math
import os
import textwrap
from collections.abc import Sequence

from mini_bert.common.invocation import broken
from mini_bert.common.progress import counted
from mini_bert.common.wording import number, perplexity_text
from mini_bert.evaluation.unigram_baseline import against, knows_frequencies
from mini_bert.training.board import clock
from mini_bert.training.history import METRICS, History, finite, read_run
from mini_bert.training.part_symptoms import PART_CHECKS, discriminator
from mini_bert.training.symptoms import (
    CHECKS,
    NOT_FINITE,
    NOT_LEARNING,
    PATIENCE,
    PLATEAU,
    TOO_HIGH,
    Finding,
)
from mini_bert.training.text_symptoms import TEXT_CHECKS

# in the order of a report
MARKS = {"error": "ERROR", "warning": "WARNING", "early": "EARLY", "good": "HEALTHY", "note": "NOTE"}


def diagnose(run: str | os.PathLike[str]) -> list[Finding]:
    """All findings about a run folder, errors first. If nothing is wrong, one of them says so."""
    history = read_run(run)
    if not history.of("train") and not history.of("nonfinite"):
        return [nothing_yet(history)]
    findings = [finding for check in (*CHECKS, *TEXT_CHECKS, *PART_CHECKS) for finding in check(history)]
    titles = {finding.title for finding in findings}
    if TOO_HIGH in titles or NOT_FINITE in titles:  # which explain these
        findings = [finding for finding in findings if finding.title not in (PLATEAU, NOT_LEARNING)]
    if all(finding.level == "note" for finding in findings):
        findings.append(healthy(history))
    return sorted(findings, key=lambda finding: list(MARKS).index(finding.level))


def weights_are_useless(findings: Sequence[Finding]) -> bool:
    """Whether the run ended with useless weights; an earlier checkpoint may be better."""
    return any(finding.level == "error" and finding.title in (NOT_FINITE, TOO_HIGH) for finding in findings)


def report(findings: Sequence[Finding], width: int = 100) -> str:
    """The findings as text. Commands stay on one line, so that they can be copied."""
    lines = []
    for finding in findings:
        lines += ["", f"{MARKS[finding.level]}: {finding.title}"]
        for name, text in (("seen", finding.what), ("means", finding.why), ("try", finding.try_)):
            lines += textwrap.wrap(text, width, initial_indent=f"  {name:7}", subsequent_indent=" " * 9,
                                   break_long_words=False, break_on_hyphens=False)  # fmt: skip
    return broken("\n".join(lines))


def summary(run: str | os.PathLike[str]) -> str:
    """One line: steps, time, first and last loss."""
    history = read_run(run)
    _, losses = history.series("train", "loss")
    _, held = history.series("eval", "loss")
    parts = [f"{history.steps:,} steps"]
    seconds = finite(history.last("stop").get("seconds")) or finite(history.last("train").get("seconds"))
    if seconds is not None:
        parts[0] += f" in {clock(seconds)}"
    if losses:
        first = f"{losses[0]:.2f} to " if len(losses) > 1 else ""
        parts.append(f"{history.loss_name} {first}{losses[-1]:.2f}")
    if held:
        parts.append(f"{held[-1]:.2f} on held-out text")
    if history.unigram_loss is not None:
        parts.append(f"unigram baseline {history.unigram_loss:.2f}")
    return ", ".join([*parts, *recipe(history)])


def recipe(history: History) -> list[str]:
    """What a run was trained with: optimiser, schedule, average, and what changed on the way."""
    start = history.last("start")
    if "optimizer" not in start:  # of an older version
        return []
    rate, own = history.highest("lr"), history.highest("muon_lr")
    words = [f"{history.optimiser} up to {number(own or rate)}", f"schedule {start.get('schedule', 'linear')}"]
    if own not in (0.0, rate):
        words[0] += f" (Adam {number(rate)})"
    if history.averaged:
        words.append(f"average {start['average']}")
    for name, what in (("batch_size", "batch"), ("length", "length"), ("mask_prob", "mask rate")):
        if name in history.ramps:
            values = history.series("train", name)[1]
            words.append(f"{what} {number(values[0])} to {number(history.final(name) or values[-1])}")
    return words


def nothing_yet(history: History) -> Finding:
    return Finding(
        "note",
        "There is nothing to diagnose yet",
        f"{METRICS} has {len(history.records)} records, none of them of a training step.",
        "The run has just started, or it ended before its first record.",
        f"Try again in a minute; training.log in {history.run} shows what happened.",
    )


def healthy(history: History) -> Finding:
    """Nothing is wrong: how good the model is, and whether more training would help."""
    steps, losses = history.series("train", "loss")
    evals, held = history.series("eval", "loss")
    baseline, last = history.unigram_loss, losses[-1]
    course = f"went from {losses[0]:.2f} to {last:.2f} in" if len(losses) > 1 else f"is {last:.2f} after"
    what = f"The {history.loss_name} {course} {counted(steps[-1], 'step')}."
    if held:
        last = held[-1]
        top1 = finite(history.last("eval").get("top1"))
        right = "" if top1 is None else f", with a top-1 accuracy of {top1:.0%}"
        what += f" On held-out text it is {last:.2f} (perplexity {perplexity_text(math.exp(min(last, 50)))}){right}."
        if (best := history.best)["step"] != evals[-1]:
            what += f" The model that is saved is that of step {best['step']:,}, with {best['loss']:.2f}."
    why, title, advice = "All numbers are in their normal range.", "Nothing is wrong with this run", ""
    if baseline is not None:
        why = f"That is {against(last, baseline)} of {baseline:.2f}: {history.verdict(last)}."
        if not knows_frequencies(last, baseline):
            advice = (
                "Too early to say more. Try again after a few hundred steps. A learning rate near "
                f"{number(history.usual_rate)} works for Mini-BERT; wider models need a lower one."
            )
        elif not history.uses_context(last) and history.end_of_warmup is None:
            advice = "Keep training: the learning rate is still rising, and its effect shows later."
        elif not history.uses_context(last):
            advice = "Keep training. The loss may stay here for a few thousand steps, then falls as context is used."
    if found := discriminator(history, history.last("eval") or history.last("train")):
        why += f" {found[0].upper()}{found[1:]}."
    if advice:
        if baseline is not None and last >= baseline and steps[-1] < (history.end_of_warmup or 0) + PATIENCE:
            return Finding("early", "It is too early to tell; nothing is wrong so far", what, why, advice)
        return Finding("good", "Nothing is wrong so far", what, why, advice)
    fall, over = fall_at_the_end(evals, held) if len(held) >= 4 else fall_at_the_end(steps, losses)
    advice = "It hardly falls any more: more text, a larger model or a longer schedule would be the next step."
    if not over:
        advice = "There is only one record of the loss, so it is too early to tell whether it still falls."
    elif fall > 0.02 * max(over / 1000, 1):
        advice = f"It fell by {fall:.2f} in the last {over:,} steps, so longer training will help."
    return Finding("good", title, what, why, advice)


def fall_at_the_end(steps: Sequence[int], losses: Sequence[float]) -> tuple[float, int]:
    """How much the loss fell over the last quarter of the run, and how many steps that was."""
    start = len(losses) * 3 // 4 - 1
    return (losses[start] - losses[-1], steps[-1] - steps[start]) if start >= 0 else (0.0, 0)
