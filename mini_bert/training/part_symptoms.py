"""Checks of `mini-bert doctor` for the further parts of a loss, such as the discriminator's of ELECTRA."""

from __future__ import annotations

import math
from collections.abc import Iterator
from statistics import mean

from mini_bert.common.wording import number
from mini_bert.models.base import REPLACED
from mini_bert.training.history import History, Record, finite
from mini_bert.training.symptoms import Finding, last_part

BLIND = "The discriminator does not find replaced words"
PATIENCE = 1_000  # steps at the full learning rate
LEARNT = 0.97  # of the loss of knowing only how many words are replaced; below this, it has learnt more


def blind_discriminator(history: History) -> Iterator[Finding]:
    """Long after warm-up, the discriminator's loss is that of knowing only how many words are replaced."""
    steps, losses = history.series("train", f"{REPLACED}_loss")
    _, accuracies = history.series("train", "accuracy")
    share, risen = history.predicted, history.end_of_warmup
    if len(losses) < 6 or share is None or risen is None or steps[-1] - risen < PATIENCE:
        return
    late = mean(last_part(losses, 5))
    replaced, blind = constant_answer(share, mean(last_part(accuracies, 5)))
    if late < LEARNT * blind:
        return
    yield Finding(
        "warning",
        BLIND,
        f"Its loss is {late:.3f}; about {replaced:.0%} of the tokens are replaced, and knowing only that gives "
        f"{blind:.3f}.",
        "It says the same of every token. The generator may be too good for it, because it is nearly as large, or too "
        "bad, because it has not learnt anything yet; or the learning rate is too high or too low.",
        f"A generator of a quarter to half the width; a learning rate near 0.0005 instead of "
        f"{number(history.peak_learning_rate)}; more --steps or --minutes.",
    )


def discriminator(history: History, record: Record) -> str:
    """What its loss in a "train" or "eval" record shows; "" if there is none."""
    held_out = record.get("kind") == "eval"
    loss, accuracy = finite(record.get(f"{REPLACED}_loss")), finite(record.get("top1" if held_out else "accuracy"))
    if loss is None or accuracy is None or history.predicted is None:
        return ""
    replaced, blind = constant_answer(history.predicted, accuracy)
    found = "it finds some of them" if loss < LEARNT * blind else "it does not find them yet"
    where = "held-out " if held_out else ""
    return (
        f"{where}discriminator loss {loss:.3f}; knowing only that about {replaced:.0%} of the tokens are "
        f"replaced gives {blind:.3f}: {found}"
    )


def constant_answer(predicted: float, accuracy: float) -> tuple[float, float]:
    """The share of the tokens that are replaced, and the loss of a discriminator that knows only this share.

    A masked word is filled in wrongly with a probability of about 1 − accuracy, the generator's.
    """
    replaced = predicted * (1 - accuracy)
    return replaced, binary_entropy(replaced)


def binary_entropy(p: float) -> float:
    """−p log p − (1 − p) log(1 − p), in nats

    >>> round(binary_entropy(0.5), 3), round(binary_entropy(0.1), 3), binary_entropy(0.0)
    (0.693, 0.325, 0.0)
    """
    return -sum(share * math.log(share) for share in (p, 1 - p) if share > 0) or 0.0


PART_CHECKS = (blind_discriminator,)
