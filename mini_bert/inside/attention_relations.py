"""Does a head follow grammar? Every head is asked for the heads of dependencies, and scored on a treebank.

A dependency tree says of each word which other word it depends on: of "the" in "the old cat", that its head is "cat",
by the relation det. Clark et al. (2019, "What does BERT look at?", section 4.2) read a guess at that from a map of
attention, in two directions:

    dependent → head     the word that the dependent looks at most
    head → dependent     the word that looks at the dependent most

and count how often the guess is right, for each relation. The map is first made one of words: what is paid *to* a word
is the sum over its pieces, what it pays itself is the mean of its pieces. [CLS], [SEP] and the word itself are no
guesses.

The number to compare with is that of a fixed offset: "the next word is the head" is right for half of all determiners,
and needs no attention. Both the best head and the best offset are chosen on the sentences they are scored on.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from mini_bert.common.batching import batches, padded
from mini_bert.common.progress import counted
from mini_bert.layers.base import Run
from mini_bert.models.base import Model
from mini_bert.probing.word_vectors import word_pieces

if TYPE_CHECKING:
    from mini_bert.data.labelled.readers import Parsed
    from mini_bert.text.base import Tokenizer

DIRECTIONS = ("dependent → head", "head → dependent")
ALL = "all"  # every relation but punct
LEFT_OUT = ("punct", "root")  # of that sum: commas depend by convention, and a root on no word
OFFSETS = tuple(offset for offset in range(-10, 11) if offset)  # of the baseline, in words
TOKENS = 1024  # that are computed at a time


class RelationScore(NamedTuple):
    """The head of attention that follows a relation best, beside the best fixed offset"""

    relation: str
    times: int  # how often it comes
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
    """How often each guess was right: by relation, an array for heads (2,L,A) and one for offsets (O,)"""

    counts: dict[str, int]
    by_head: dict[str, np.ndarray]  # (2,L,A): the two directions
    by_offset: dict[str, np.ndarray]  # (O,)
    sentences: int
    left_out: int  # sentences that are longer than the model's positions

    def accuracy(self, relation: str) -> np.ndarray:
        """(2,L,A): of every head, in both directions"""
        if relation not in self.counts:
            raise ValueError(f"there is no relation {relation!r} here; there are {', '.join(sorted(self.counts))}")
        return self.by_head[relation] / self.counts[relation]

    def highest(self, relation: str) -> float:
        """Of the best head, in the better direction"""
        return float(self.accuracy(relation).max())

    def best(self, least: int = 1) -> list[RelationScore]:
        """For every relation that comes at least so often, the best head; the largest gain over the baseline first"""
        found = []
        for relation, count in self.counts.items():
            if count < least:
                continue
            direction, layer, head = _largest(self.accuracy(relation))
            (place,) = _largest(self.by_offset[relation])
            found.append(
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
        return sorted(found, key=lambda score: (-score.gain, score.relation))


def _largest(values: np.ndarray) -> tuple[int, ...]:
    return tuple(int(i) for i in np.unravel_index(int(values.argmax()), values.shape))


def word_attention(weights: np.ndarray, sizes: Sequence[int] | np.ndarray) -> np.ndarray:
    """(…,T,T) of pieces -> (…,N,N) of words, when word n has sizes[n] pieces; [CLS] before them, [SEP] behind

    To a word: the sum over its pieces. From a word: the mean of its pieces.
    """
    sizes = np.asarray(sizes, int)
    starts = np.cumsum(sizes) - sizes
    inner = weights[..., 1 : 1 + sizes.sum(), 1 : 1 + sizes.sum()]
    paid = np.add.reduceat(inner, starts, axis=-1)
    return np.add.reduceat(paid, starts, axis=-2) / sizes[:, None].astype(weights.dtype)


def guesses(words: np.ndarray) -> np.ndarray:
    """(L,A,N,N) of words -> (2,L,A,N): for every word, which other word (from 0) each head says is its head"""
    N = words.shape[-1]
    others = np.where(np.eye(N, dtype=bool), -1.0, words)
    return np.stack([others.argmax(-1), others.argmax(-2)])


def count_guesses(sentence: Parsed, guessed: np.ndarray, into: Relations) -> None:
    """Add one sentence: guessed (2,L,A,N) against its tree"""
    gold = np.array(sentence.heads) - 1  # from 0; −1: the root
    places = np.arange(gold.size)
    right = guessed == gold  # (2,L,A,N)
    offsets = np.array(OFFSETS)[:, None] == gold - places  # (O,N)
    for place, relation in enumerate(sentence.relations):
        if gold[place] < 0:
            continue
        for name in (relation,) if relation in LEFT_OUT else (relation, ALL):
            if name not in into.counts:
                into.counts[name] = 0
                into.by_head[name] = np.zeros(guessed.shape[:-1], int)
                into.by_offset[name] = np.zeros(len(OFFSETS), int)
            into.counts[name] += 1
            into.by_head[name] += right[..., place]
            into.by_offset[name] += offsets[:, place]


def relation_scores(
    model: Model,
    tokenizer: Tokenizer,
    sentences: Sequence[Parsed],
    after_each: Callable[[int], None] | None = None,
) -> Relations:
    """Ask every head of a model for the heads of all words. `after_each` is told how many sentences are done"""
    if not sentences:
        raise ValueError("there is no sentence to score heads on; give a treebank with at least one")
    limit = model.max_length
    read, left_out = [], 0
    for sentence in sentences:
        pieces = word_pieces(tokenizer, sentence.words)
        if sum(map(len, pieces)) + 2 > limit:
            left_out += 1
        elif len(pieces) > 1:  # the only word of a sentence is its root
            read.append((sentence, pieces))
    read.sort(key=lambda item: sum(map(len, item[1])))
    found = Relations({}, {}, {}, len(sentences) - left_out, left_out)
    done = len(sentences) - len(read)
    for batch in batches(read, lambda item: sum(map(len, item[1])) + 2, TOKENS):
        rows = [[tokenizer.cls_id, *(i for row in pieces for i in row), tokenizer.sep_id] for _, pieces in batch]
        ids, mask = padded(rows, tokenizer.pad_id)
        _, cache = model.encode(ids, mask, run=Run())
        weights = np.stack(cache.attention_weights(), 1)  # (B,L,A,T,T)
        for (sentence, pieces), own in zip(batch, weights, strict=True):
            count_guesses(sentence, guesses(word_attention(own, [len(row) for row in pieces])), found)
        done += len(batch)
        if after_each is not None:
            after_each(done)
    if not found.counts:
        raise ValueError(
            f"none of {len(sentences)} sentences has a dependency and fits into the model's {limit} tokens; "
            "give a treebank of shorter sentences"
        )
    return found


def report_rows(
    relations: Relations, source: str, least: int = 1, most: int | None = None, untrained: Relations | None = None
) -> tuple[str, list[str], list[list[str]], list[str]]:
    """-> title, names of columns, rows, notes: relations that a head follows better than what needs no learning

    The gain is that over the better of the best fixed offset and, where it is given, the best untrained head. Relations
    without one are left out, and counted: they say nothing of what was learnt.
    """
    title = f"{counted(relations.sentences, 'sentence')}, {source}"
    if relations.left_out:
        title += f"; {relations.left_out:,} longer than the model's positions left out"
    columns = ["relation", "count", "head", "direction", "right", "offset", "right"]
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
    notes = ["all: every relation but punctuation.", "offset: the best fixed guess, +1 is the next word."]
    if untrained:
        notes.append(
            "untrained: the best head of a model that has learnt nothing; a Mini-BERT begins with heads that look at "
            "neighbouring words, and so follows many relations from the start. gain: over the better of the two."
        )
    hidden = len(better) - len(better[:most])
    if hidden:
        notes.append(f"{counted(hidden, 'more relation')} with a gain: --json has them all.")
    without = sum(score.relation != ALL for score in scores) - len(better)
    if without:
        notes.append(f"{counted(without, 'relation')} without a gain left out.")
    return title, columns, rows, notes


def report(
    relations: Relations, source: str, least: int = 1, most: int | None = None, untrained: Relations | None = None
) -> str:
    """A table for people"""
    title, columns, rows, notes = report_rows(relations, source, least, most, untrained)
    head = f"Heads that follow a dependency relation: {title}"
    if not rows:
        return f"{head}\nno relation comes {least} times or more"
    table = [columns, *rows]
    widths = [max(len(row[column]) for row in table) for column in range(len(columns))]
    lines = [
        "  ".join(
            f"{cell:{'<' if column in (0, 2, 3) else '>'}{widths[column]}}" for column, cell in enumerate(row)
        ).rstrip()
        for row in table
    ]
    return "\n".join([head, *lines, textwrap.fill(" ".join(notes), 100)])
