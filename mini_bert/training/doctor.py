"""What is wrong with a training run, in words, with numbers, and what to try: the page behind `mini-bert doctor RUN`.

Each check below reads the run's history (metrics.jsonl) and gives a `Finding` or nothing. All of them measure by two
numbers: ln V, the loss of a model that knows nothing (9.01 for 8,192 words), and the unigram entropy, the loss of one
that knows how frequent words are and does not look at the text (about 6 to 7). A run falls from the first to the second
in a few hundred steps, rests there, sometimes for thousands, and falls again when it has learnt to use the context.
"""

from __future__ import annotations

import math
import os
import shutil
import textwrap
from collections.abc import Iterator, Sequence
from statistics import mean, median
from typing import NamedTuple

from mini_bert.common.invocation import broken
from mini_bert.evaluation.unigram_baseline import ABOVE, against, knows_frequencies, uses_context, verdict
from mini_bert.training.display import clock
from mini_bert.training.history import METRICS, History, finite, read_run
from mini_bert.training.run_signs import (
    by_layer,
    end_of_warmup,
    gaps_over_time,
    gentler,
    last_part,
    last_tensors,
    more_text,
    number,
    peak_learning_rate,
    place,
    sentence,
    smoothed,
    typed,
)

PATIENCE = 3_000  # steps at the full learning rate; whoever sits on the plateau for less may be about to leave it
HIGH_LR = 5e-3  # Adam moves a weight by about the learning rate, and weights start near 0.07: this is a tenth of them
LARGE_UPDATE = 1e-2  # of a matrix, in one step
VANISHED = 1e-3  # of the largest gradient among the blocks; 0.04 is usual
EXPLODED = 10.0  # times what the gradient norm was
MANY_EPOCHS = 20
FEW_TARGETS = 20  # in a step


class Finding(NamedTuple):
    """One thing the doctor saw. Levels: "error", "warning", "note", "good"."""

    level: str
    title: str
    what: str  # what the numbers are
    why: str  # what that means
    try_: str


def diagnose(run: str | os.PathLike[str]) -> list[Finding]:
    """All findings about a run folder, the gravest first; a healthy run is a finding, too."""
    history = read_run(run)
    if not history.of("train") and not history.of("nonfinite"):
        return [nothing_yet(history)]
    findings = [finding for check in CHECKS for finding in check(history)]
    titles = {finding.title for finding in findings}
    if TOO_HIGH in titles or NOT_FINITE in titles:  # then these are not the cause
        findings = [finding for finding in findings if finding.title not in (PLATEAU, NOT_LEARNING)]
    if all(finding.level == "note" for finding in findings):
        findings.append(healthy(history))
    return sorted(findings, key=lambda finding: ("error", "warning", "good", "note").index(finding.level))


def spoilt(findings: Sequence[Finding]) -> bool:
    """Whether the last weights are of no use to anybody; better ones may have been saved before."""
    return any(finding.level == "error" and finding.title in (NOT_FINITE, TOO_HIGH) for finding in findings)


def report(findings: Sequence[Finding], width: int = 100) -> str:
    """The findings as text: what was seen, what it means, what to try."""
    marks = {"error": "WRONG", "warning": "DOUBTFUL", "note": "NOTE", "good": "HEALTHY"}
    lines = []
    for finding in findings:
        lines += ["", f"{marks[finding.level]}: {finding.title}"]
        for name, text in (("seen", finding.what), ("means", finding.why), ("try", finding.try_)):
            lines += textwrap.wrap(
                text,
                width,
                initial_indent=f"  {name:7}",
                subsequent_indent=" " * 9,
                break_long_words=False,  # a command stays whole, to be copied
                break_on_hyphens=False,
            )
    return broken("\n".join(lines))


def doctor_command(run: str | os.PathLike[str]) -> int:
    """Print what is wrong with a run and what to try -> 1 if something is, else 0 (for the shell)"""
    findings = diagnose(run)
    print(f"{os.fspath(run)}: {summary(read_run(run))}")
    print(report(findings, width=min(shutil.get_terminal_size((100, 24)).columns, 100)))
    return int(any(finding.level == "error" for finding in findings))


def summary(history: History) -> str:
    """One line: how far, how long, from where to where."""
    _, losses = history.series("train", "loss")
    _, held = history.series("eval", "loss")
    parts = [f"{history.steps:,} steps"]
    seconds = finite(history.last("stop").get("seconds")) or finite(history.last("train").get("seconds"))
    if seconds is not None:
        parts[0] += f" in {clock(seconds)}"
    if losses:
        parts.append(f"loss {losses[0]:.2f} at first, {losses[-1]:.2f} at last")
    if held:
        parts.append(f"{held[-1]:.2f} on held-out text")
    if history.unigram_entropy is not None:
        parts.append(f"unigram entropy {history.unigram_entropy:.2f}")
    return ", ".join(parts)


# --- the checks --------------------------------------------------------------------------------------------

NOT_FINITE = "The numbers are not finite any more"
TOO_HIGH = "The learning rate is too high"
PLATEAU = "The loss rests on the plateau"
NOT_LEARNING = "The model does not learn"
EXPLODING = "Gradients explode"
VANISHING = "Gradients vanish on their way down"
OVERFITTING = "Too little data for so many steps"
NOTHING_TO_LEARN = "The masks leave nothing to learn"


def not_finite(history: History) -> Iterator[Finding]:
    """NaN or infinity in the loss, a gradient or the weights: where first, and after what."""
    found = history.last("nonfinite")
    if not found:  # a run that was not watched: the records themselves say it
        lost = [record for record in history.of("train") if finite(record.get("loss")) is None]
        if not lost:
            return
        found = {"step": lost[0]["step"], "what": "loss", "tensors": [], "lr": lost[0].get("lr")}
    step, tensors = found["step"], found.get("tensors") or []
    what = f"At step {step:,} the {found.get('what', 'loss')} was NaN or infinite"
    if tensors:
        what += f", first in {tensors[0]} ({place(tensors[0])})"
        what += f" and in {len(tensors) - 1} more of the tensors" if len(tensors) > 1 else ""
    steps, norms = history.series("train", "grad_norm_max")
    before = [norm for at, norm in zip(steps, norms, strict=True) if at < step]
    if before:
        what += f"; the largest gradient norm just before was {number(before[-1])}"
    lr = finite(found.get("lr")) or 0.0
    what += f"; the learning rate was {number(lr)}."
    if step <= 1:
        why = "It was so at the first step already: the weights that were loaded are the cause, or the text."
        advice = f"Start without the loaded weights, or look at them; {typed('gradcheck')} checks the mathematics here."
    else:
        why = (
            "A number has outgrown what 32 bits hold (3.4e38). Nearly always the steps were too long: each overshot, "
            "the next gradient was larger, and so on."
        )
        peak = max(peak_learning_rate(history), lr)
        advice = (
            f"Start anew with --learning-rate {number(gentler(peak))} instead of {number(peak)}, and --warmup 0.1. "
            "The last checkpoint is from before: its model is whole."
        )
    yield Finding("error", NOT_FINITE, what, why, advice)


def learning_rate_too_high(history: History) -> Iterator[Finding]:
    """The loss rises again or stays on the plateau, and the steps are visibly too long."""
    _, losses = history.series("train", "loss")
    diverged = history.last("stop").get("reason") == "diverged"
    if not losses or (len(losses) < 4 and not diverged):
        return
    entropy, peak, signs = history.unigram_entropy, peak_learning_rate(history), signs_of_long_steps(history)
    late, best = mean(last_part(losses, 5)), min(smoothed(losses, max(3, len(losses) // 20)))
    rises = late > best + ABOVE
    high = entropy is not None and not uses_context(late, entropy)
    falls = late < mean(last_part(losses, 2)) - 0.05
    grave = diverged or (peak > HIGH_LR and (rises or high))
    if not (grave or rises or (high and not falls and len(signs) >= 2)):
        return
    seen = f"the loss rose to {late:.2f} after it had been at {best:.2f}" if rises else f"the loss is {late:.2f}"
    if entropy is not None:
        seen += f", and the unigram entropy is {entropy:.2f}"
    if peak > HIGH_LR:
        signs.insert(0, f"the learning rate reached {number(peak)}, where 0.001 is usual for a small BERT")
    yield Finding(
        "error" if grave else "warning",
        TOO_HIGH,
        sentence([seen, *signs]),
        "Adam moves every weight by about the learning rate in each step, whatever the gradient's length, so clipping "
        "does not help. Weights begin near 0.07. Steps that are long against that overshoot, and undo what was learnt.",
        f"--learning-rate {number(gentler(peak))} --warmup 0.1, from a fresh start: weights that were thrown about "
        "seldom recover.",
    )


def signs_of_long_steps(history: History) -> list[str]:
    """What else speaks for steps that are too long, as parts of a sentence."""
    signs = []
    _, norms = history.series("train", "grad_norm")
    if len(norms) >= 8:
        early, late = median(norms[: len(norms) // 4]), median(last_part(norms, 4))
        if late > 3 * early > 0:
            signs.append(f"the gradient norm grew from {number(early)} to {number(late)}")
    _, clipped = history.series("train", "clipped")
    if signs and clipped and mean(last_part(clipped, 2)) > 0.9:  # alone it says little: many healthy runs clip often
        signs.append(f"{mean(last_part(clipped, 2)):.0%} of the later steps were clipped")
    matrices = {
        name: ratio
        for name, tensor in last_tensors(history).items()
        if name.endswith((".w", ".table")) and (ratio := finite(tensor.get("ratio"))) is not None
    }
    large = {name: ratio for name, ratio in matrices.items() if ratio > LARGE_UPDATE}
    if len(large) * 2 > len(matrices):
        name = max(large, key=large.__getitem__)
        signs.append(f"one step changes most matrices by more than {LARGE_UPDATE:.0%} ({name} by {large[name]:.1%})")
    return signs


def plateau(history: History) -> Iterator[Finding]:
    """Long after warm-up, the last third of the run lies flat in the band around the unigram entropy."""
    entropy = history.unigram_entropy
    steps, losses = history.series("train", "loss")
    if entropy is None or len(losses) < 6:
        return
    recent = last_part(losses, 3)
    first_half, second_half = mean(recent[: len(recent) // 2]), mean(recent[len(recent) // 2 :])
    flat = first_half - second_half < 0.1
    resting = all(knows_frequencies(value, entropy) and not uses_context(value, entropy) for value in smoothed(recent))
    if not (flat and resting):
        return
    since = next(step for step, loss in zip(steps, losses, strict=True) if knows_frequencies(loss, entropy))
    risen = end_of_warmup(history)
    if risen is None or (rested := steps[-1] - max(since, risen)) < PATIENCE:  # too soon to tell
        return
    yield Finding(
        "warning",
        PLATEAU,
        f"The loss has been near {second_half:.2f} for {rested:,} steps at the full learning rate, "
        f"{against(second_half, entropy)} of {entropy:.2f}. In the last third of the run it "
        f"changed by {second_half - first_half:+.2f}.",
        "The model knows how frequent words are, and that a word left standing may be copied. It does not use the "
        "context yet. Small BERTs rest here, often for 3,000 steps of 2,000 tokens, until attention has found the "
        "neighbours; then the loss falls quickly.",
        "More --steps or --minutes. If it has been more than 5,000 steps: a learning rate near 0.001 "
        "(0.002 rests longer), small batches and short sequences in the first part, positions that start as sinusoids, "
        "and running text instead of lists or single sentences.",
    )


def not_learning(history: History) -> Iterator[Finding]:
    """Hundreds of steps, and not even the frequencies of words are known."""
    entropy = history.unigram_entropy
    steps, losses = history.series("train", "loss")
    if entropy is None or len(losses) < 6 or steps[-1] < 300 or end_of_warmup(history) is None:
        return
    recent, peak = last_part(losses, 4), peak_learning_rate(history)
    slow = recent[0] - recent[-1] < 0.2
    if not slow or knows_frequencies(min(recent), entropy):
        return
    low = peak < 1e-4
    yield Finding(
        "error",
        NOT_LEARNING,
        f"After {steps[-1]:,} steps the loss is {recent[-1]:.2f}, {against(recent[-1], entropy)} of {entropy:.2f}, and "
        f"hardly falls. The highest learning rate was {number(peak)}.",
        "Knowing how frequent words are would be enough for the unigram entropy; a few hundred steps teach that."
        + (" These steps are too short." if low else " The steps are long enough, so something else is in the way."),
        "--learning-rate 0.001"
        if low
        else f"Look at the text ({typed('data show')}) and the tokenizer ({typed('tokenizer show')}), and run "
        f"{typed('simple-test')}: it checks that one step lowers the loss.",
    )


def gradients_by_layer(history: History) -> Iterator[Finding]:
    """Exploding: far above what they were. Vanishing: a block gets next to nothing of what another gets."""
    layers = by_layer(last_tensors(history))
    steps, norms = history.series("train", "grad_norm")
    _, highest = history.series("train", "grad_norm_max")
    if len(norms) >= 6 and highest:
        early, late = median(norms[: len(norms) // 2]), max(last_part(norms, 5))
        if late > EXPLODED * max(early, 1.0) or early > EXPLODED**2:
            largest = sorted(layers, key=layers.__getitem__, reverse=True)[:3]
            shares = ", ".join(f"{layer} {number(layers[layer])}" for layer in largest)
            yield Finding(
                "error",
                EXPLODING,
                f"The gradient norm was {number(early)} in the first half of the run and reached "
                f"{number(max(highest))} near step {steps[norms.index(max(norms))]:,}."
                + (f" Where it is largest: {shares}." if shares else ""),
                "A small change of the weights now changes the loss very much. Clipping keeps each step short, but its "
                "direction is that of the few largest gradients, and the rest learns nothing.",
                f"--learning-rate {number(gentler(peak_learning_rate(history)))} and a longer --warmup; if it begins "
                "at one step, look at the text of that step for one line repeated endlessly.",
            )
    blocks = {layer: norm for layer, norm in layers.items() if layer.startswith("block")}
    if blocks and 0 < max(blocks.values()) < math.inf:
        top = max(blocks, key=blocks.__getitem__)
        lost = {layer: norm for layer, norm in blocks.items() if norm < VANISHED * blocks[top]}
        if lost:
            step = history.last("tensors")["step"]
            said = ", ".join(f"{layer} {number(norm)}" for layer, norm in lost.items())
            yield Finding(
                "warning",
                VANISHING,
                f"Gradient norms at step {step:,}: {said}; but {top} {number(blocks[top])}.",
                "The lower layers get less than a thousandth of what the upper one gets; a twentieth is usual. Adam "
                "evens out lengths, but not below its epsilon (1e-8), and rounding drowns the rest: these layers stay "
                "as they began. In post-norm BERTs it happens where the weights above have grown too large.",
                "A lower --learning-rate with a longer --warmup, from a fresh start; fewer layers. "
                f"{typed('plot', history.run)} draws it tensor by tensor.",
            )


def too_little_data(history: History) -> Iterator[Finding]:
    """Many epochs, and what is learnt does not hold on other text."""
    epochs = finite(history.last("train").get("epoch")) or 0.0
    gaps = list(gaps_over_time(history))
    held = history.series("eval", "loss")[1]
    if len(gaps) >= 4:
        early, late = mean(gaps[: len(gaps) // 2]), gaps[-1]
        risen = held[-1] - min(held)
        if late > 0.3 and (risen > 0.1 or late > early + 0.3):
            yield Finding(
                "warning",
                OVERFITTING,
                f"Every text has been seen {epochs:.1f} times. Held-out loss minus training loss was {early:.2f} in "
                f"the first half of the run and is {late:.2f} now; the held-out loss is {held[-1]:.2f}, its best was "
                f"{min(held):.2f}.",
                "The model learns its text by heart: that lowers the training loss, and helps with no other text.",
                f"{more_text(history)}; or fewer steps: the best checkpoint is kept, and RUN/model is that one; or a "
                "smaller model, dropout, more weight decay.",
            )
            return
    if epochs > MANY_EPOCHS:
        yield Finding(
            "note",
            OVERFITTING,
            f"Every text has been seen {epochs:.0f} times"
            + (f"; held-out loss minus training loss is {gaps[-1]:.2f}." if gaps else "; nothing was held out."),
            "Masks differ each time, so there is something new in it; but after twenty times more text helps more.",
            f"{more_text(history)}.",
        )


def nothing_to_learn(history: History) -> Iterator[Finding]:
    """Hardly any question is asked, or the answer stands beside it."""
    start = history.last("start")
    share, tokens = finite(start.get("mask_prob")), finite(start.get("tokens_per_step"))
    if share is not None and tokens is not None and share * tokens < FEW_TARGETS:
        yield Finding(
            "error",
            NOTHING_TO_LEARN,
            f"A step asks about {share * tokens:.0f} words: {tokens:,.0f} tokens, of which {share:.1%} are chosen.",
            "The loss is the mean over the chosen words; from so few a gradient is noise, from none it is nothing.",
            "Choose 15 % of the tokens, and at least 1,000 tokens a step.",
        )
    _, losses = history.series("train", "loss")
    _, accuracies = history.series("train", "accuracy")
    if losses and mean(last_part(losses, 5)) < 0.05:
        right = f", {mean(last_part(accuracies, 5)):.0%} of the words are right" if accuracies else ""
        yield Finding(
            "error",
            NOTHING_TO_LEARN,
            f"The loss is {mean(last_part(losses, 5)):.3f}{right}.",
            "Language cannot be guessed so well. The hidden word can be seen (it is not masked), or the text is one "
            "passage over and over, or consists of a few words only.",
            f"Look at the text with {typed('data show')}, at its pieces with {typed('tokenizer show')}; more text.",
        )
    entropy = history.unigram_entropy
    if entropy is not None and entropy < 3:
        yield Finding(
            "warning",
            "The text has hardly any variety",
            f"The unigram entropy is {entropy:.2f}; ordinary text has 6 to 7.",
            "A few tokens make up nearly everything. Often that is [UNK]: the tokenizer does not know the alphabet.",
            f"{typed('tokenizer show')} with a sentence of it; {typed('tokenizer train')} learns a vocabulary for it.",
        )


def unfinished(history: History) -> Iterator[Finding]:
    """The run was interrupted, or does not say how it ended."""
    stop = history.last("stop")
    if not stop:
        yield Finding(
            "note",
            "The run has not ended",
            f"The last record is of step {history.steps:,}; none says that the run stopped.",
            "It is still going on, or it was killed.",
            f"If it was killed: {typed('train', '--out', history.run, '--resume')}",
        )
    elif stop.get("reason") == "interrupted":
        yield Finding(
            "note",
            "The run was interrupted",
            f"Somebody stopped it at step {stop['step']:,}.",
            "Everything was saved. "
            + (
                "A resumed run has the minutes that were left; as its learning rate follows the clock, it ends about "
                "as well as one that was never stopped, but not with the same numbers."
                if history.last("start").get("minutes")
                else "With the same number of threads, a resumed run ends with the very weights of one never stopped."
            ),
            f"{typed('train', '--out', history.run, '--resume')}",
        )


CHECKS = (
    not_finite,
    learning_rate_too_high,
    gradients_by_layer,
    nothing_to_learn,
    not_learning,
    plateau,
    too_little_data,
    unfinished,
)


def nothing_yet(history: History) -> Finding:
    return Finding(
        "note",
        "There is nothing to judge yet",
        f"{METRICS} holds {len(history.records)} records, and none of a training step.",
        "The run has just begun, or it ended before its first record.",
        f"Look again in a minute; training.log in {history.run} says what was going on.",
    )


def healthy(history: History) -> Finding:
    """Nothing is wrong: how good it is, and whether it pays to go on."""
    steps, losses = history.series("train", "loss")
    evals, held = history.series("eval", "loss")
    entropy, last = history.unigram_entropy, mean(last_part(losses, 10))
    what = f"The loss went from {losses[0]:.2f} to {last:.2f} in {steps[-1]:,} steps."
    if held:
        top1 = finite(history.last("eval").get("top1"))
        right = "" if top1 is None else f", and {top1:.0%} of the hidden words are guessed right"
        what += f" On held-out text it is {held[-1]:.2f} (perplexity {number(math.exp(min(held[-1], 50)))}){right}."
    why = "Nothing in the numbers is out of the ordinary."
    if entropy is not None:
        last = held[-1] if held else last  # what is said of the text that it has not seen is the verdict
        why = f"That is {against(last, entropy)} of {entropy:.2f}: {verdict(last, entropy)}."
        if not knows_frequencies(last, entropy):
            advice = (
                "Too early to say more. Look again after a few hundred steps; a learning rate near 0.001 helps, for "
                "models wider than Mini-BERT less."
            )
            return Finding("good", "Nothing is wrong so far", what, why, advice)
        if not uses_context(last, entropy) and end_of_warmup(history) is None:
            advice = "Go on: the learning rate is still rising, and what comes of it is seen only later."
            return Finding("good", "Nothing is wrong so far", what, why, advice)
        if not uses_context(last, entropy):
            advice = "Go on. The loss may rest here for some thousand steps, and then falls as the context is used."
            return Finding("good", "Nothing is wrong so far", what, why, advice)
    falling = fall_at_the_end(evals, held) if len(held) >= 4 else fall_at_the_end(steps, losses)
    if falling > 0.02:
        advice = f"It still falls, by {falling:.2f} in 1,000 steps at the end: training longer will pay."
    else:
        advice = "It hardly falls any more: more text, a larger model or a longer schedule would be the next step."
    return Finding("good", "Nothing is wrong with this run", what, why, advice)


def fall_at_the_end(steps: Sequence[int], losses: Sequence[float]) -> float:
    """How much the loss fell in 1,000 steps, over the last quarter of the run."""
    start = len(losses) * 3 // 4 - 1
    return (losses[start] - losses[-1]) / (steps[-1] - steps[start]) * 1000 if start >= 0 else 0.0
