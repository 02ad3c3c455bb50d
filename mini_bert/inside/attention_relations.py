"""Does an attention head follow grammar? All heads of a model are scored on a treebank.

A dependency tree links each word to its syntactic head: in "the old cat", the syntactic head of "the" is "cat", by the
relation det. Clark et al. (2019, "What does BERT look at?", section 4.2) predict it from an attention map in two ways:

    child → parent     the word that the child (the dependent) attends to most
    parent → child     the word that attends to the child most

and measure the accuracy for each relation. First the map of pieces becomes a map of words: the attention *to* a word is
the sum over its pieces, the attention *from* a word is their mean. [CLS], [SEP] and the word itself are excluded.

In a causal model (GPT-2) a word attends only to those before it. A parent that comes later can be found only in the
second way, and one that comes before only in the first.

The baseline is a fixed offset: "the next word is the syntactic head" is right for half of all determiners without any
attention. Both the best attention head and the best offset are chosen on the sentences they are scored on.

"Head" alone means attention head in the code below; the head of a dependency is called its parent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from mini_bert.common.batching import batches
from mini_bert.common.progress import counted
from mini_bert.inside.inputs import as_trained
from mini_bert.layers.base import Run
from mini_bert.models.base import Model
from mini_bert.probing.word_vectors import word_pieces
from mini_bert.text.templates import pad

if TYPE_CHECKING:
    from mini_bert.data.labelled.readers import Parsed
    from mini_bert.text.base import Tokenizer

DIRECTIONS = ("child → parent", "parent → child")
ALL = "all"  # every relation except these:
LEFT_OUT = ("punct", "root")  # the parent of a comma is a convention, and a root has none
OFFSETS = tuple(offset for offset in range(-10, 11) if offset)  # of the baseline, in words
TOKENS = 1024  # per batch
NONE = -2  # no parent is predicted
MIN_COUNT = 20  # rarer relations are not shown


class RelationScore(NamedTuple):
    """The best attention head for a relation, and the best fixed offset."""

    relation: str
    times: int  # number of occurrences
    direction: str
    layer: int
    head: int
    accuracy: float
    offset: int  # +1: the next word
    baseline: float

    @property
    def gain(self) -> float:
        return self.accuracy - self.baseline


class Relations(NamedTuple):
    """Correct predictions for each relation: by attention head and by offset."""

    counts: dict[str, int]
    by_head: dict[str, np.ndarray]  # (2,L,A): two directions, layers, heads
    by_offset: dict[str, np.ndarray]  # (O,)
    sentences: int
    left_out: int  # sentences that are too long for the model

    def accuracy(self, relation: str) -> np.ndarray:
        """The accuracy of all heads in both directions, (2,L,A)."""
        if relation not in self.counts:
            raise ValueError(
                f"there is no relation {relation!r} in this treebank; it has {', '.join(sorted(self.counts))}"
            )
        return self.by_head[relation] / self.counts[relation]

    def highest(self, relation: str) -> float:
        """The accuracy of the best head in the better direction."""
        return float(self.accuracy(relation).max())

    def best(self, least: int = 1) -> list[RelationScore]:
        """The best head for each relation with at least `least` occurrences, sorted by the gain over the baseline."""
        scores = []
        for relation, count in self.counts.items():
            if count < least:
                continue
            direction, layer, head = _largest(self.accuracy(relation))
            (place,) = _largest(self.by_offset[relation])
            scores.append(
                RelationScore(
                    relation,
                    count,
                    DIRECTIONS[direction],
                    layer,
                    head,
                    float(self.accuracy(relation)[direction, layer, head]),
                    OFFSETS[place],
                    float(self.by_offset[relation][place] / count),
                )
            )
        return sorted(scores, key=lambda score: (-score.gain, score.relation))


def _largest(values: np.ndarray) -> tuple[int, ...]:
    return tuple(int(i) for i in np.unravel_index(int(values.argmax()), values.shape))


def word_attention(weights: np.ndarray, sizes: Sequence[int] | np.ndarray, start: int) -> np.ndarray:
    """Attention between words (…,N,N) from attention between pieces (…,T,T). Word n has sizes[n] pieces.

    start: the position of the first word. Special tokens around the words are dropped. To a word: the sum over its
    pieces; from a word: the mean.
    """
    sizes = np.asarray(sizes, int)
    starts = np.cumsum(sizes) - sizes
    inner = weights[..., start : start + sizes.sum(), start : start + sizes.sum()]
    to_words = np.add.reduceat(inner, starts, axis=-1)
    return np.add.reduceat(to_words, starts, axis=-2) / sizes[:, None].astype(weights.dtype)


def predicted_parents(words: np.ndarray) -> np.ndarray:
    """The parent that each attention head predicts for each word, (2,L,A,N), from 0.        words (L,A,N,N)

    NONE where there is no weight to choose by: in a causal model, the first word sees no other, and no other sees the
    last.
    """
    N = words.shape[-1]
    others = np.where(np.eye(N, dtype=bool), 0.0, words)
    return np.stack([np.where(others.any(axis), others.argmax(axis), NONE) for axis in (-1, -2)])


def count_correct(sentence: Parsed, predicted: np.ndarray, into: Relations) -> None:
    """Compares the predictions for one sentence (2,L,A,N) with its tree, and adds to the counts."""
    gold = np.array(sentence.heads) - 1  # from 0; −1: the root
    places = np.arange(gold.size)
    correct = predicted == gold  # (2,L,A,N)
    offsets = np.array(OFFSETS)[:, None] == gold - places  # (O,N)
    for place, relation in enumerate(sentence.relations):
        if gold[place] < 0:
            continue
        for name in (relation,) if relation in LEFT_OUT else (relation, ALL):
            if name not in into.counts:
                into.counts[name] = 0
                into.by_head[name] = np.zeros(predicted.shape[:-1], int)
                into.by_offset[name] = np.zeros(len(OFFSETS), int)
            into.counts[name] += 1
            into.by_head[name] += correct[..., place]
            into.by_offset[name] += offsets[:, place]


def relation_scores(
    model: Model,
    tokenizer: Tokenizer,
    sentences: Sequence[Parsed],
    after_each: Callable[[int], None] | None = None,
) -> Relations:
    """Scores all attention heads of a model. `after_each` is called with the number of finished sentences."""
    if not sentences:
        raise ValueError("there are no sentences to score heads on; give a treebank with at least one")
    limit, added = model.max_length, len(as_trained(model, tokenizer, []).ids)
    read, left_out = [], 0
    for sentence in sentences:
        pieces = word_pieces(tokenizer, sentence.words)
        if sum(map(len, pieces)) + added > limit:
            left_out += 1
        elif len(pieces) > 1:  # a single word is the root
            read.append((sentence, pieces))
    read.sort(key=lambda item: sum(map(len, item[1])))
    relations = Relations({}, {}, {}, len(sentences) - left_out, left_out)
    done = len(sentences) - len(read)
    for batch in batches(read, lambda item: sum(map(len, item[1])) + added, TOKENS):
        rows = [as_trained(model, tokenizer, [i for row in pieces for i in row]) for _, pieces in batch]
        ids, mask, types, shifts = pad(rows, tokenizer.padding)
        _, cache = model.encode(ids, mask, types, Run())
        weights = np.stack(cache.attention_weights(), 1)  # (B,L,A,T,T)
        for (sentence, pieces), maps, row, shift in zip(batch, weights, rows, shifts, strict=True):
            parents = predicted_parents(word_attention(maps, [len(own) for own in pieces], row.starts[0] + shift))
            count_correct(sentence, parents, relations)
        done += len(batch)
        if after_each is not None:
            after_each(done)
    if not relations.counts:
        raise ValueError(
            f"none of the {len(sentences)} sentences has a dependency and fits into the model's {limit} tokens; "
            "give a treebank with shorter sentences"
        )
    return relations


def relation_rows(
    relations: Relations, source: str, least: int = 1, most: int | None = None, untrained: Relations | None = None
) -> tuple[str, list[str], list[list[str]], list[str]]:
    """Title, column names, rows and notes of a table of relations.

    The gain is measured against the better of the best fixed offset and the best untrained head, if given. Relations
    without a gain are not listed: they show nothing that was learnt.
    """
    title = f"{counted(relations.sentences, 'sentence')}, {source}"
    if relations.left_out:
        title += f"; {relations.left_out:,} too long for the model"
    columns = ["relation", "count", "head", "direction", "accuracy", "offset", "accuracy"]
    columns += ["untrained", "gain"] if untrained else ["gain"]

    def gain(score: RelationScore) -> float:
        return score.accuracy - max(score.baseline, untrained.highest(score.relation) if untrained else 0)

    scores = sorted(relations.best(least), key=gain, reverse=True)
    shown = [score for score in scores if score.relation == ALL]
    better = [score for score in scores if score.relation != ALL and gain(score) > 0]
    shown += better[:most]
    rows = []
    for score in shown:
        row = [score.relation, f"{score.times:,}", f"{score.layer}.{score.head}", score.direction]
        row += [f"{score.accuracy:.1%}", f"{score.offset:+}", f"{score.baseline:.1%}"]
        row += [f"{untrained.highest(score.relation):.1%}"] if untrained else []
        rows.append([*row, f"{100 * gain(score):+.1f}"])
    notes = [
        "all: every relation except punctuation.",
        "direction: of attention, between a word (child) and its syntactic head (parent).",
        "offset: the best fixed offset, +1 is the next word.",
    ]
    if untrained:
        notes.append(
            "untrained: the best head of an untrained model; some models, such as Mini-BERT, start with heads that "
            "attend to neighbours and so follow many relations from the start. gain: over the better of the two."
        )
    hidden = len(better) - len(better[:most])
    if hidden:
        notes.append(f"{counted(hidden, 'more relation')} with a gain; --json lists all.")
    without = sum(score.relation != ALL for score in scores) - len(better)
    if without:
        notes.append(f"{counted(without, 'relation')} without a gain are not shown.")
    return title, columns, rows, notes
