"""The checks of `mini-bert doctor`: each reads a run's history and yields a `Finding` for one thing that can go wrong.

Two numbers serve as reference: ln V, the loss of a uniform guess (9.01 for 8,192 tokens), and the unigram baseline, the
loss of a model that predicts token frequencies without looking at context (about 6 to 7). The loss falls from the first
to the second in a few hundred steps, may stay on that plateau for thousands, and falls again once the model uses
context.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator, Sequence
from statistics import mean, median
from typing import NamedTuple

from mini_bert.common.invocation import command, unbroken
from mini_bert.common.progress import counted
from mini_bert.common.wording import number
from mini_bert.evaluation.unigram_baseline import ABOVE, against, knows_frequencies
from mini_bert.training.history import History, Record, finite

PATIENCE = 3_000  # steps at the full learning rate; a shorter plateau is normal
HIGH_LR = 5  # times the usual learning rate
LARGE_UPDATE = 1e-2  # of a matrix, in one step
VANISHED = 1e-3  # of the largest gradient among the blocks; 0.04 is normal
EXPLODED = 10.0  # times the earlier gradient norm

RATES = ("learning_rate", "muon_learning_rate")  # options of `train`

NOT_FINITE = "The numbers are no longer finite"
TOO_HIGH = "The learning rate is too high"
PLATEAU = "The loss is stuck on the unigram plateau"
NOT_LEARNING = "The model is not learning"
EXPLODING = "Exploding gradients"
VANISHING = "Vanishing gradients"


class Finding(NamedTuple):
    level: str  # "error", "warning", "early", "good" or "note"
    title: str
    what: str  # the numbers
    why: str  # what they mean
    try_: str
    options: tuple[str, ...] = ()  # of `train` that led to it: `next_steps` does not repeat them


def not_finite(history: History) -> Iterator[Finding]:
    """NaN or infinity in the loss, a gradient or the weights."""
    found = history.last("nonfinite")
    if not found:  # the training loop did not notice, but the records show it
        lost = [record for record in history.of("train") if finite(record.get("loss")) is None]
        if not lost:
            return
        found = lost[0] | {"what": "loss"}
    step, tensors = found["step"], found.get("tensors") or []
    what = f"At step {step:,} the {found.get('what', 'loss')} was NaN or infinite"
    if tensors:
        what += f", first in {tensors[0]}"
        what += f" and in {counted(len(tensors) - 1, 'more tensor')}" if len(tensors) > 1 else ""
    before = [norm for at, norm in zip(*history.series("train", "grad_norm_max"), strict=True) if at < step]
    if before:
        what += f"; the largest gradient norm just before was {number(before[-1])}"
    rates = [number(rate) for name in ("lr", "muon_lr") if (rate := finite(found.get(name))) is not None]
    what += f"; the learning rate was {' (Adam) and '.join(rates) or 0}{' (Muon)' if len(rates) > 1 else ''}."
    if step <= 1:
        why = "It happened in the first step, so the cause is the weights that were loaded, or the text."
        advice = f"Start without the loaded weights, or inspect them; {typed('gradcheck')} checks the mathematics."
    else:
        why = (
            "A number exceeded the range of float32 (3.4e38). The usual cause is a learning rate that is too high: "
            "each step overshoots, and the next gradient is larger."
        )
        peak = history.peak_learning_rate
        advice = (
            f"Start again with {history.rate_option} {number(gentler(peak))} instead of {number(peak)}, and "
            "--warmup 0.1. The last checkpoint was saved before this happened and is intact."
        )
    yield Finding("error", NOT_FINITE, what, why, advice)


def learning_rate_too_high(history: History) -> Iterator[Finding]:
    """The loss rises again, stays on the plateau or is worse than a guess, and the steps are visibly too large."""
    _, losses = history.comparable()
    if not losses:
        return
    baseline, peak, signs = history.unigram_loss, history.peak_learning_rate, signs_of_large_steps(history)
    late, best = mean(last_part(losses, 5)), min(smoothed(losses, max(3, len(losses) // 20)))
    held, uniform = history.series("eval", "loss")[1][-1:], history.uniform_loss
    too_high = peak > HIGH_LR * history.usual_rate
    diverged = history.last("stop").get("reason") == "diverged"
    lost = uniform is not None and max([late, *held]) > uniform + ABOVE
    if len(losses) < 4 and not diverged and not (lost and too_high):
        return
    rises = late > best + ABOVE
    high = baseline is not None and not history.uses_context(late)
    early = losses[len(losses) // 5 : max(1, 2 * len(losses) // 5)] or losses[:1]
    falls = late < mean(early) - 0.05  # not: than a little before, since every run flattens as its rate decays
    learns = baseline is not None and falls and late < baseline  # down to the baseline, it is only word frequencies
    grave = diverged or (too_high and (rises or lost or (high and not learns)))
    if not (grave or rises or (high and not falls and len(signs) >= 2)):
        return
    seen = f"The loss rose to {late:.2f} from {best:.2f}" if rises else f"The loss is {late:.2f}"
    if lost and uniform is not None:
        other = [] if history.changing_task else held  # then all of them are losses on held-out text
        seen += "".join(f", and on held-out text {loss:.2f}" for loss in other) + f"; a uniform guess has {uniform:.2f}"
    if baseline is not None:
        seen += f"; the unigram baseline is {baseline:.2f}"
    if too_high:
        signs.insert(
            0, f"the learning rate reached {number(peak)}; {number(history.usual_rate)} is usual for a small BERT"
        )
    yield Finding(
        "error" if grave else "warning",
        TOO_HIGH,
        "; ".join([seen, *signs]) + ".",
        "The learning rate decides how far a step moves the weights, however long the gradient is, so clipping does "
        "not help. Weights start near 0.07. Steps that are large compared with that overshoot and "
        "undo what was learnt.",
        f"{history.rate_option} {number(gentler(peak))} --warmup 0.1, from a fresh start: such weights seldom recover.",
        RATES,
    )


def signs_of_large_steps(history: History) -> list[str]:
    """Further evidence for steps that are too large, as parts of a sentence."""
    signs = []
    _, norms = history.series("train", "grad_norm")
    if len(norms) >= 8:
        early, late = median(norms[: len(norms) // 4]), median(last_part(norms, 4))
        if late > 3 * early > 0:
            signs.append(f"the gradient norm grew from {number(early)} to {number(late)}")
    _, clipped = history.series("train", "clipped")
    if signs and clipped and mean(last_part(clipped, 2)) > 0.9:  # on its own it means little: healthy runs clip often
        signs.append(f"{mean(last_part(clipped, 2)):.0%} of the later steps were clipped")
    matrices = {
        name: ratio
        for name, tensor in history.tensors.items()
        if name.endswith((".w", ".table")) and (ratio := finite(tensor.get("ratio"))) is not None
    }
    large = {name: ratio for name, ratio in matrices.items() if ratio > LARGE_UPDATE}
    if len(large) * 2 > len(matrices):
        name = max(large, key=large.__getitem__)
        signs.append(f"one step changes most matrices by more than {LARGE_UPDATE:.0%} ({name} by {large[name]:.1%})")
    return signs


def plateau(history: History) -> Iterator[Finding]:
    """Long after warm-up, the last third of the run is flat and close to the unigram baseline."""
    baseline = history.unigram_loss
    steps, losses = history.comparable()
    if baseline is None or len(losses) < 6:
        return
    recent = last_part(losses, 3)
    first_half, second_half = mean(recent[: len(recent) // 2]), mean(recent[len(recent) // 2 :])
    flat = first_half - second_half < 0.1
    stuck = all(knows_frequencies(value, baseline) and not history.uses_context(value) for value in smoothed(recent))
    if not (flat and stuck):
        return
    since = next(step for step, loss in zip(steps, losses, strict=True) if knows_frequencies(loss, baseline))
    risen = history.end_of_warmup
    copying = ", and to copy the chosen tokens that are not masked" if history.kind.visible else ""
    model = history.kind.part_name() or "model"
    if risen is None or (waited := steps[-1] - max(since, risen)) < PATIENCE:  # too early to tell
        return
    yield Finding(
        "warning",
        PLATEAU,
        f"The {history.loss_name} has been near {second_half:.2f} for {waited:,} steps at the full learning rate, "
        f"{against(second_half, baseline)} of {baseline:.2f}. In the last third of the run it "
        f"changed by {second_half - first_half:+.2f}.",
        f"The {model} has learnt token frequencies{copying}. It does not use context yet. "
        "Small BERTs often stay here for 3,000 steps of 2,000 tokens, until attention has found the "
        "neighbouring tokens; then the loss falls quickly.",
        "More --steps or --minutes. After more than 5,000 steps: a learning rate near "
        f"{number(history.usual_rate)} (twice that stays longer), "
        "small batches and short sequences at first, positions that start as sinusoids, and running text instead of "
        "lists or single sentences.",
    )


def not_learning(history: History) -> Iterator[Finding]:
    """After hundreds of steps the model has not even learnt token frequencies."""
    baseline = history.unigram_loss
    steps, losses = history.comparable()
    if baseline is None or len(losses) < 6 or steps[-1] < 300 or history.end_of_warmup is None:
        return
    recent, peak = last_part(losses, 4), history.peak_learning_rate
    if recent[0] - recent[-1] >= 0.2 or knows_frequencies(min(recent), baseline):
        return
    low = peak < 1e-4
    yield Finding(
        "error",
        NOT_LEARNING,
        f"After {steps[-1]:,} steps the loss is {recent[-1]:.2f}, {against(recent[-1], baseline)} of {baseline:.2f}, "
        f"and hardly falls. The highest learning rate was {number(peak)}.",
        "Token frequencies alone give the unigram baseline, and a few hundred steps are enough to learn them. "
        + ("The learning rate is too low." if low else "It is not the learning rate, which is high enough."),
        f"--learning-rate {number(history.usual_rate)}"
        if low
        else f"Look at the text ({typed('data show')}) and the tokenizer ({typed('tokenizer show')}), and run "
        f"{typed('simple-test')}, which checks that one step lowers the loss.",
        RATES if low else (),
    )


def gradients_by_layer(history: History) -> Iterator[Finding]:
    """Exploding: far above earlier norms. Vanishing: one block gets a tiny fraction of another's gradient."""
    layers = by_layer(history.tensors)
    steps, norms = history.series("train", "grad_norm")
    _, highest = history.series("train", "grad_norm_max")
    if len(norms) >= 6 and highest:
        early, late = median(norms[: len(norms) // 2]), max(last_part(norms, 5))
        if late > EXPLODED * max(early, 1.0) or early > EXPLODED**2:
            largest = sorted(layers, key=layers.__getitem__, reverse=True)[:3]
            where = ", ".join(f"{layer} {number(layers[layer])}" for layer in largest)
            yield Finding(
                "error",
                EXPLODING,
                f"The gradient norm was {number(early)} in the first half of the run and reached "
                f"{number(max(highest))} near step {steps[norms.index(max(norms))]:,}."
                + (f" It is largest in {where}." if where else ""),
                "A small change of the weights now changes the loss a lot. Clipping limits the length of each step, "
                "but the few largest gradients decide its direction, and the other weights learn nothing.",
                f"{history.rate_option} {number(gentler(history.peak_learning_rate))} and a longer --warmup; if it "
                "starts at one step, look for a line that repeats endlessly in the text of that step.",
                RATES,
            )
    blocks = {layer: norm for layer, norm in layers.items() if layer.startswith("block")}
    if blocks and 0 < max(blocks.values()) < math.inf:
        top = max(blocks, key=blocks.__getitem__)
        lost = {layer: norm for layer, norm in blocks.items() if norm < VANISHED * blocks[top]}
        if lost:
            small = ", ".join(f"{layer} {number(norm)}" for layer, norm in lost.items())
            lost_in = "Adam rescales gradients, but not below its epsilon (1e-8), so these layers hardly change."
            if history.optimiser == "Muon":
                lost_in = "Muon moves their matrices as far as others, but so small a gradient is mostly rounding."
            yield Finding(
                "warning",
                VANISHING,
                f"Gradient norms at the last record: {small}; but {top} {number(blocks[top])}.",
                "These layers get less than a thousandth of the gradient of the largest; a twentieth is normal. "
                f"{lost_in} In post-norm BERTs the cause is weights above them that have grown too large.",
                f"A lower {history.rate_option} with a longer --warmup, from a fresh start; fewer layers. "
                f"{typed('plot', history.run)} draws the gradients by tensor.",
                RATES,
            )


def unfinished(history: History) -> Iterator[Finding]:
    """The run was interrupted, or there is no record of its end."""
    stop, resume = history.last("stop"), typed("train", "--out", history.run, "--resume")
    if not stop:
        yield Finding(
            "note",
            "The run has not ended",
            f"The last record is of step {history.steps:,}, and there is no record of a stop.",
            "It is still running, or it was killed.",
            f"If it was killed: {resume}",
        )
    elif stop.get("reason") == "interrupted":
        why = "Everything was saved. With the same number of threads, a resumed run ends with exactly the same weights."
        if (history.last("start") | history.last("resume")).get("minutes"):
            why = (
                "Everything was saved. A resumed run has the remaining minutes; its learning rate follows the clock, "
                "so it ends about as well as an uninterrupted run, but not with the same numbers."
            )
        yield Finding("note", "The run was interrupted", f"It was stopped at step {stop['step']:,}.", why, resume)


CHECKS = (not_finite, learning_rate_too_high, gradients_by_layer, not_learning, plateau, unfinished)


# --- numbers and words -------------------------------------------------------------------------------------


def last_part(values: Sequence[float], divisor: int) -> Sequence[float]:
    """The last half, third, …; at least one value."""
    return values[-max(len(values) // divisor, 1) :]


def smoothed(values: Sequence[float], over: int = 3) -> list[float]:
    """Moving averages, so that one outlier decides nothing."""
    return [mean(values[max(0, i - over + 1) : i + 1]) for i in range(min(over, len(values)) - 1, len(values))]


def gentler(lr: float) -> float:
    """A learning rate to try instead: a tenth, and at most the 1e-3 that suits small BERTs.

    >>> gentler(0.1), gentler(3e-3), gentler(0.0)
    (0.001, 0.00030000000000000003, 0.001)
    """
    return min(lr / 10, 1e-3) or 1e-3


def by_layer(tensors: dict[str, Record]) -> dict[str, float]:
    """Gradient norms of layers, from those of their tensors."""
    squares: dict[str, float] = {}
    for name, tensor in tensors.items():
        norm = finite(tensor.get("gradient"))
        squares[layer_of(name)] = squares.get(layer_of(name), 0.0) + (math.inf if norm is None else norm**2)
    return {layer: math.sqrt(square) for layer, square in squares.items()}


def layer_of(tensor: str) -> str:
    """
    >>> layer_of("encoder.blocks.1.feed_forward.expand.w"), layer_of("tokens.table"), layer_of("head.w")
    ('block 1', 'tokens', 'head')
    """
    block = re.search(r"\bblocks\.(\d+)\.", tensor)
    return f"block {block[1]}" if block else tensor.partition(".")[0]


def typed(name: str, *words: str | os.PathLike[str]) -> str:
    """A command in backquotes, which `report` keeps on one line."""
    return unbroken(f"`{command(name, *words)}`")
