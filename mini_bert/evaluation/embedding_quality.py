"""Are the vectors any good? Three questions that need no training.

    agreement    are sentences that people call alike close together? Spearman's correlation of cosine and their scores
    isotropy     do the vectors use all directions, or lie in a narrow cone? (metrics.mean_cosine, partition_ratio)
    neighbours   which words lie next to a word? An eye sees what no number shows

Vectors of a language model mostly share a common part, which raises every cosine and says nothing. Taking the mean of
all vectors away before comparing often agrees better with people; so both are reported.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from mini_bert.evaluation.metrics import pearson, spearman
from mini_bert.evaluation.vector_metrics import mean_cosine, nearest, partition_ratio
from mini_bert.inference.embed import embed
from mini_bert.models.base import Model

if TYPE_CHECKING:
    from mini_bert.data.labelled.readers import Scored
    from mini_bert.text.base import Tokenizer


class Isotropy(NamedTuple):
    mean_cosine: float
    partition_ratio: float  # at a mean square length of 1


def isotropy(vectors: np.ndarray) -> Isotropy:
    """(N,H) -> both measures; of a single vector the mean cosine is nan"""
    cone = mean_cosine(vectors) if len(vectors) > 1 else float("nan")
    return Isotropy(cone, partition_ratio(vectors, rescale=True))


class Agreement(NamedTuple):
    """How well cosines of sentence vectors agree with the scores that people gave; nan if all scores are the same"""

    spearman: float
    pearson: float
    centred_spearman: float  # with the mean vector taken away
    centred_pearson: float
    pairs: int
    isotropy: Isotropy  # of the sentences' vectors


def agreement(
    model: Model,
    tokenizer: Tokenizer,
    pairs: Sequence[Scored],
    pooling: str = "mean",
    batch_size: int = 32,
    threads: int = 1,
    after_each: Callable[[int, int], None] | None = None,
) -> Agreement:
    """Spearman and Pearson of the cosine of each pair's vectors with its score, as they are and without their mean

    A sentence that occurs several times is computed, and counts in the mean, once. after_each: (texts done, of so many)
    """
    if not pairs:
        raise ValueError("there are no pairs of sentences to compare")
    number: dict[str, int] = {}  # of every sentence, in the order of the first time
    first = [number.setdefault(pair.first, len(number)) for pair in pairs]
    second = [number.setdefault(pair.second, len(number)) for pair in pairs]
    told = None if after_each is None else lambda done: after_each(done, len(number))
    vectors = embed(model, tokenizer, list(number), pooling, batch_size, threads, told).astype(float)  # (N,H)
    scores = [pair.score for pair in pairs]
    plain, centred = (_cosines(v[first], v[second]) for v in (vectors, vectors - vectors.mean(0)))
    return Agreement(
        spearman(plain, scores), pearson(plain, scores), spearman(centred, scores), pearson(centred, scores),
        len(pairs), isotropy(vectors),
    )  # fmt: skip


def _cosines(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """(N,H), (N,H) -> (N,): of each row with its partner; 0 where one has no length"""
    lengths = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    return (a * b).sum(1) / np.where(lengths > 0, lengths, 1)


class Neighbours(NamedTuple):
    word: str
    pieces: list[str]  # more than one: the word is the mean of their vectors
    nearest: list[tuple[str, float]]  # token and cosine, best first


def word_table(model: Model, tokenizer: Tokenizer) -> tuple[np.ndarray, np.ndarray]:
    """-> ids (N,), vectors (N,H): what the model's token table has for every token that is not special"""
    ids = np.setdiff1d(np.arange(tokenizer.vocab_size), tokenizer.special_ids)
    return ids, model.tokens.table.data[ids].astype(float)


def neighbours(model: Model, tokenizer: Tokenizer, word: str, count: int = 10) -> Neighbours:
    """The tokens whose vectors in the token table have the largest cosines with those of a word

    The table is where every text begins, before any context: a word has one vector there, whatever it means where.
    """
    own = [i for i in tokenizer.encode(word)[1:-1] if i not in tokenizer.special_ids]
    if not own:
        raise ValueError(f"{word!r:.40} is no word that this model knows; give a word of its language")
    ids, table = word_table(model, tokenizer)
    query = model.tokens.table.data[own].astype(float).mean(0)
    closest = [(int(ids[i]), cosine) for i, cosine in nearest(query, table, count + len(own))]
    others = [(tokenizer.tokens[i], cosine) for i, cosine in closest if i not in own]
    return Neighbours(word, [tokenizer.tokens[i] for i in own], others[:count])


def report_pairs(names: Sequence[str], results: Sequence[Agreement]) -> str:
    """For people: a row for every file"""
    width = max(len("pairs of sentences"), *map(len, names))
    lines = [
        f"{'pairs of sentences':{width}} {'number':>8} {'Spearman':>9} {'centred':>8} {'Pearson':>8} {'centred':>8} "
        f"{'mean cosine':>12} {'isotropy':>9}"
    ]
    for name, found in zip(names, results, strict=True):
        lines.append(
            f"{name:{width}} {found.pairs:8,} {found.spearman:9.3f} {found.centred_spearman:8.3f} "
            f"{found.pearson:8.3f} {found.centred_pearson:8.3f} {found.isotropy.mean_cosine:12.3f} "
            f"{found.isotropy.partition_ratio:9.3f}"
        )
    lines.append(
        "\nSpearman, Pearson: does the cosine of two sentences' vectors rise with the score that people gave the pair?"
        "\n1: always. centred: without the mean of all vectors. mean cosine: of any two sentences, 0 if they point\n"
        "everywhere. isotropy: 1 if no direction is preferred."
    )
    return "\n".join(lines)


def report_neighbours(results: Sequence[Neighbours], table: Isotropy) -> str:
    """For people: the nearest tokens of each word, and how the whole table lies"""
    lines = []
    for found in results:
        pieces = "" if len(found.pieces) == 1 else f" (the mean of {' '.join(found.pieces)})"
        near = ", ".join(f"{token} {cosine:.2f}" for token, cosine in found.nearest)
        lines.append(f"next to {found.word}{pieces}: {near}")
    lines.append(
        f"\nCosines in the table of token vectors, before any context. Of any two tokens: {table.mean_cosine:.3f} on\n"
        f"the average; isotropy {table.partition_ratio:.3f} (1 if no direction is preferred)."
    )
    return "\n".join(lines)
