"""A tiny language that a small model learns in seconds, if nothing is wrong with it.

    anna saw the red cup near the lake and paul took the red cup .

The second half repeats an adjective and a noun of the first one. Where they are hidden, only attention to the other
half finds them. A name or a verb is hidden as well, and nobody can know these: even a perfect model has a loss.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from mini_bert.objectives.masked_words import Batch
from mini_bert.text.wordpiece_files import ROLES, SPECIAL_TOKENS

NAMES = ["anna", "paul", "maria", "john", "lisa", "peter", "eva", "tom", "nina", "max", "clara", "hugo"]
VERBS = ["saw", "took", "found", "lost", "sold", "gave", "kept", "hid"]
ADJECTIVES = [
    "red", "blue", "green", "black", "white", "brown", "old", "new", "big", "small", "cold", "warm", "soft", "hard",
    "dark", "light", "round", "flat", "long", "short", "wide", "thin", "clean", "dirty", "dry", "wet", "full", "empty",
    "cheap", "rare", "strange", "simple",
]  # fmt: skip
NOUNS = [
    "cup", "book", "lamp", "chair", "coat", "box", "key", "map", "hat", "ring", "bag", "door", "ball", "knife", "plate",
    "clock", "table", "shoe", "glass", "spoon", "bottle", "letter", "picture", "rope", "stone", "flower", "bell",
    "basket", "boat", "wheel", "mirror", "pen",
]  # fmt: skip
PLACES = ["lake", "house", "wood", "road"]
WORDS = [*SPECIAL_TOKENS, *NAMES, *VERBS, *ADJECTIVES, *NOUNS, *PLACES, "the", "near", "and", "."]
IDS = {word: i for i, word in enumerate(WORDS)}
LENGTH = 20  # tokens, including padding


def sentence(rng: np.random.Generator) -> list[str]:
    """One sentence, with or without a place."""
    first, second = rng.choice(NAMES, 2, replace=False)
    adjective, noun = rng.choice(ADJECTIVES), rng.choice(NOUNS)
    place = ["near", "the", str(rng.choice(PLACES))] if rng.random() < 0.5 else []
    thing = ["the", str(adjective), str(noun)]
    return [str(first), str(rng.choice(VERBS)), *thing, *place, "and", str(second), str(rng.choice(VERBS)), *thing, "."]


def batch(rng: np.random.Generator, size: int) -> Batch:
    """Sentences with hidden adjectives and nouns; shorter ones are padded."""
    ids = np.full((size, LENGTH), IDS["[PAD]"])
    rows, targets = [], []
    for b in range(size):
        words = ["[CLS]", *sentence(rng), "[SEP]"]
        ids[b, : len(words)] = [IDS[word] for word in words]
        things = [t for t, word in enumerate(words) if word in ADJECTIVES or word in NOUNS]
        others = [t for t, word in enumerate(words) if word in NAMES or word in VERBS]
        half = things[:2] if rng.random() < 0.5 else things[2:]  # one half is hidden, the other one is shown
        chosen = sorted([*half, int(rng.choice(others))])
        rows += [b * LENGTH + t for t in chosen]
        targets += [int(ids[b, t]) for t in chosen]
        ids[b, chosen] = IDS[ROLES["mask"]]
    return Batch(ids, np.array(rows), np.array(targets), ids != IDS["[PAD]"])


def batches(seed: int, size: int) -> Iterator[Batch]:
    """Endless; the same for the same seed."""
    rng = np.random.default_rng(seed)
    while True:
        yield batch(rng, size)


def loss_without_context() -> float:
    """Of a model that knows at which positions there are adjectives, nouns, names and verbs, and nothing more"""
    counts = (len(ADJECTIVES), len(NOUNS), np.sqrt(len(NAMES) * len(VERBS)))  # a name or a verb, equally often
    return float(np.mean(np.log(counts)))


def best_loss() -> float:
    """Of a perfect model: it finds the adjective and the noun, but names and verbs stay unknown"""
    return float((np.log(len(NAMES)) + np.log(len(VERBS))) / 6)
