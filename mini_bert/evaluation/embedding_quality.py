"""How good are a model's vectors? Three measures that need no training.

    agreement    Spearman's correlation between the cosines of sentence pairs and people's similarity scores
    isotropy     do the vectors use all directions, or lie in a narrow cone? (metrics.mean_cosine, partition_ratio)
    neighbours   the tokens whose vectors are nearest to a word's

The vectors of a language model usually share a large common part, which raises every cosine and carries no meaning.
Subtracting the mean vector often agrees better with people, so both correlations are reported.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from mini_bert.common.progress import counted
from mini_bert.data.labelled.readers import ColumnError, Scored, read_scored
from mini_bert.evaluation.metrics import pearson, spearman
from mini_bert.evaluation.vector_metrics import mean_cosine, nearest, partition_ratio
from mini_bert.inference.embed import embed
from mini_bert.models.base import Model

if TYPE_CHECKING:
    from mini_bert.text.base import Tokenizer


class Isotropy(NamedTuple):
    mean_cosine: float
    partition_ratio: float  # at a mean square length of 1


def isotropy(vectors: np.ndarray) -> Isotropy:
    """Both measures of vectors (N,H); the mean cosine of a single vector is NaN."""
    cone = mean_cosine(vectors) if len(vectors) > 1 else float("nan")
    return Isotropy(cone, partition_ratio(vectors, rescale=True))


class Agreement(NamedTuple):
    """Correlations of cosines with people's scores; NaN if all scores are the same."""

    spearman: float
    pearson: float
    centred_spearman: float  # after subtracting the mean vector
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
    """Correlate the cosine of each pair's vectors with its score, with and without the mean vector.

    A sentence that occurs several times is embedded, and counts in the mean, once. After each batch,
    `after_each(sentences done, sentences in all)` is called.
    """
    if not pairs:
        raise ValueError("there are no pairs of sentences to compare")
    number: dict[str, int] = {}  # sentence -> its row, in order of first occurrence
    first = [number.setdefault(pair.first, len(number)) for pair in pairs]
    second = [number.setdefault(pair.second, len(number)) for pair in pairs]
    progress = None if after_each is None else lambda done: after_each(done, len(number))
    vectors = embed(model, tokenizer, list(number), pooling, batch_size, threads, progress).astype(float)  # (N,H)
    scores = [pair.score for pair in pairs]
    plain, centred = (_cosines(v[first], v[second]) for v in (vectors, vectors - vectors.mean(0)))
    return Agreement(
        spearman(plain, scores), pearson(plain, scores), spearman(centred, scores), pearson(centred, scores),
        len(pairs), isotropy(vectors),
    )  # fmt: skip


def _cosines(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """(N,H), (N,H) -> (N,): row by row; 0 where a vector has length 0."""
    lengths = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    return (a * b).sum(1) / np.where(lengths > 0, lengths, 1)


class Neighbour(NamedTuple):
    token: str
    cosine: float


class Neighbours(NamedTuple):
    word: str
    pieces: list[str]  # if several, the mean of their vectors is used
    nearest: list[Neighbour]  # best first


def word_table(model: Model, tokenizer: Tokenizer) -> tuple[np.ndarray, np.ndarray]:
    """Returns ids (N,) and embedding vectors (N,H) of all tokens that are not special."""
    ids = np.setdiff1d(np.arange(tokenizer.vocab_size), tokenizer.special_ids)
    return ids, model.embed_tokens(ids).astype(float)


def neighbours(model: Model, tokenizer: Tokenizer, word: str, count: int = 10) -> Neighbours:
    """The tokens whose embedding vectors have the largest cosines with a word's.

    These are the input embeddings, before any context: a word has the same vector in every sentence.
    """
    own = [i for i in tokenizer.ids([tokenizer.space + word])[0] if i not in tokenizer.special_ids]
    if not own:
        raise ValueError(f"{word!r:.40} is not a word in this model's vocabulary; try another")
    ids, table = word_table(model, tokenizer)
    query = model.embed_tokens(own).astype(float).mean(0)
    closest = [(int(ids[i]), cosine) for i, cosine in nearest(query, table, count + len(own))]
    others = [Neighbour(tokenizer.readable(i), cosine) for i, cosine in closest if i not in own]
    return Neighbours(word, [tokenizer.readable(i) for i in own], others[:count])


REMEDY = (
    "Name the columns of the file sentence1, sentence2 and score; or, for minimal pairs, give a .jsonl file with "
    "sentence_good and sentence_bad"
)


def read_pairs(path: str) -> list[Scored]:
    """Sentence pairs with scores, from a file with columns sentence1, sentence2 and score."""
    try:
        pairs = read_scored(path)
    except ColumnError as error:
        raise error.with_remedy(REMEDY) from None
    if len({pair.score for pair in pairs}) == 1:
        raise ValueError(
            f"{path}: the score of {counted(len(pairs), 'pair')} is always {pairs[0].score:g}, so there is no "
            "correlation; give pairs with different scores"
        )
    return pairs


def report_pairs(names: Sequence[str], results: Sequence[Agreement]) -> str:
    """A table with a row per file."""
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
        "\nSpearman, Pearson: correlation of the cosine of two sentences' vectors with the pair's score; 1 is best.\n"
        "centred: after subtracting the mean vector. mean cosine: over all pairs of sentences; 0 if directions are\n"
        "random. isotropy: 1 if no direction is preferred."
    )
    return "\n".join(lines)


def report_neighbours(results: Sequence[Neighbours], table: Isotropy) -> str:
    """The nearest tokens of each word, and the isotropy of all token vectors."""
    lines = []
    for found in results:
        pieces = "" if len(found.pieces) == 1 else f" (the mean of {' '.join(found.pieces)})"
        near = ", ".join(f"{token} {cosine:.2f}" for token, cosine in found.nearest)
        lines.append(f"nearest to {found.word}{pieces}: {near}")
    lines.append(
        "\nCosines of token embeddings, before any context. Over all pairs of tokens, the mean is "
        f"{table.mean_cosine:.3f}\n"
        f"and the isotropy {table.partition_ratio:.3f} (1 if no direction is preferred)."
    )
    return "\n".join(lines)
