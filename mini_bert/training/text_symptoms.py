"""Checks of `mini-bert doctor` for what is learnt from: too little text, too few targets, or nothing to learn."""

from __future__ import annotations

import math
from collections.abc import Iterator
from statistics import mean

from mini_bert.training.history import History, finite
from mini_bert.training.symptoms import Finding, last_part, typed

MANY_EPOCHS = 20
FEW_TARGETS = 20  # predicted tokens per step
USUAL_SHARE = 0.1  # of the tokens are masked, or more; fewer are unusual

OVERFITTING = "Too little text for this many steps"
NOTHING_TO_LEARN = "There is nothing to learn"
SMALL_BATCH = "The batch is very small"

# options of `train`
TEXT = ("corpus",)
BATCH = ("batch_size", "micro_batch", "batch_start", "batch_ramp")
MASKS = ("mask_prob", "mask_start", "mask_ramp")


def nothing_to_learn(history: History) -> Iterator[Finding]:
    """Hardly any tokens to predict, or tokens that can be predicted without any effort."""
    start = history.last("start")
    share, tokens = history.predicted, finite(start.get("tokens_per_step"))
    if share is not None and tokens is not None and share * tokens < FEW_TARGETS:
        what = f"A step predicts about {share * tokens:.0f} tokens: {share:.1%} of {tokens:,.0f}."
        if share >= USUAL_SHARE:
            batch = finite(start.get("batch_size"))
            larger = f" {math.ceil(1000 * batch / tokens)} or more instead of {batch:.0f}" if batch else ""
            yield Finding(
                "warning",
                SMALL_BATCH,
                what,
                "The masks are as usual, but a step sees little text, so its gradient is mostly noise.",
                f"--batch-size{larger}, or longer sequences: at least 1,000 tokens per step.",
                BATCH,
            )
        else:
            yield Finding(
                "error",
                NOTHING_TO_LEARN,
                what,
                "The loss is the mean over the chosen tokens; with so few of them, gradients are mostly noise.",
                "Choose 15 % of the tokens.",
                MASKS,
            )
    _, losses = history.series("train", "loss")
    _, accuracies = history.series("train", "accuracy")
    if losses and mean(last_part(losses, 5)) < 0.05:
        right = f", with an accuracy of {mean(last_part(accuracies, 5)):.0%}" if accuracies else ""
        yield Finding(
            "error",
            NOTHING_TO_LEARN,
            f"The loss is {mean(last_part(losses, 5)):.3f}{right}.",
            "Language cannot be predicted that well. Either the model sees what it predicts (the chosen tokens are not "
            "masked), or the text repeats one passage, or it consists of a few words only.",
            f"Look at the text with {typed('data show')} and at its tokens with {typed('tokenizer show')}; more text.",
            TEXT,
        )
    baseline = history.unigram_loss
    if baseline is not None and baseline < 3:
        yield Finding(
            "warning",
            "The text has hardly any variety",
            f"The unigram baseline is {baseline:.2f}; ordinary text has 6 to 7.",
            "A few tokens make up nearly all of the text. Often that is [UNK]: the vocabulary lacks the alphabet.",
            f"{typed('tokenizer show')} with a sentence of it; {typed('tokenizer train')} makes a vocabulary for it.",
        )


def too_little_data(history: History) -> Iterator[Finding]:
    """Many epochs, and a growing gap between training and held-out loss."""
    epochs = history.epochs
    gaps = list(history.gaps())
    held = history.series("eval", "loss")[1]
    tokens = finite(history.last("start").get("train_tokens"))
    more = "More text" if tokens is None else f"More text than these {tokens:,.0f} tokens"
    if len(gaps) >= 4:
        early, late = mean(gaps[: len(gaps) // 2]), gaps[-1]
        if late > 0.3 and (held[-1] - min(held) > 0.1 or late > early + 0.3):
            yield Finding(
                "warning",
                OVERFITTING,
                f"The text has been seen {epochs:.1f} times. Held-out loss minus training loss was {early:.2f} in the "
                f"first half of the run and is {late:.2f} now; the held-out loss is {held[-1]:.2f}, its best was "
                f"{min(held):.2f}.",
                "The model memorises its text, which lowers the training loss but does not help on other text.",
                f"{more}; or fewer steps (RUN/model is the best checkpoint); or a smaller model, dropout, more weight "
                "decay.",
                TEXT,
            )
            return
    if epochs > MANY_EPOCHS:
        yield Finding(
            "note",
            OVERFITTING,
            f"The text has been seen {epochs:.1f} times"
            + (f"; held-out loss minus training loss is {gaps[-1]:.2f}." if gaps else "; nothing was held out."),
            "Repetition still helps, above all where masks differ each time; after twenty times, more text helps more.",
            f"{more}.",
            TEXT,
        )


TEXT_CHECKS = (nothing_to_learn, too_little_data)
