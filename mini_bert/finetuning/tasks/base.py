"""What all tasks share: examples become items, items become batches, and a model answers them.

    example    a line of the data: a text with its label, a question with its answer
    item       one sequence of ids for the model; of an example that is too long, one of several windows
    batch      items of about one length, padded

A task is a class that says, for its kind of question: which layer goes on top (`layer`), how examples become items
(`items`), what the loss is (`loss`, forward and backward), what the model answers (`answers`), how the answers of the
windows become one for the example (`join`), and how good that is (`scores`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from mini_bert.common.batching import padded
from mini_bert.common.draws import address, shuffled
from mini_bert.layers.base import Layer, Run
from mini_bert.models.base import Model
from mini_bert.text.encoding import cut

if TYPE_CHECKING:
    from mini_bert.text.base import Tokenizer

HEAD = 1 << 20  # where the head's random numbers fork off: no block has this number
POOL = 50  # batches' worth of items that are sorted by length together


class Item(NamedTuple):
    """One sequence for the model."""

    example: int  # the number of the example that it comes from
    ids: list[int]
    asked: list[int]  # places that the head looks at: words, first pieces, tokens that may be the answer
    target: Any  # what is to be learnt: a class, classes, places, or a score; None where nobody knows
    second: int | None = None  # where the second text begins, if there are two
    other: Item | None = None  # a second sequence to be compared with this one
    offsets: Sequence[tuple[int, int]] = ()  # of the places that are asked, in the text: to find the answer there

    @property
    def length(self) -> int:
        return len(self.ids) if self.other is None else max(len(self.ids), len(self.other.ids))


class Batch(NamedTuple):
    ids: np.ndarray  # (B,T)
    mask: np.ndarray | None  # (B,T) True for a token, False for padding; None where nothing is padded
    types: np.ndarray  # (B,T) 0 in the first text, 1 in the second
    asked: np.ndarray  # (B,T) True where the head looks
    targets: np.ndarray  # a row for each thing that the loss is a mean over

    @property
    def chosen(self) -> np.ndarray:  # (N,)
        """The places that are asked, in the list of all B·T tokens"""
        return np.flatnonzero(self.asked)


class Task:
    """A kind of question. `name` is that of the command, `metric` the score that says which model is the best."""

    name = ""
    metric = ""
    labelled = True  # whether it has labels; they are the first argument of the constructor
    labels: Sequence[str] = ()
    architecture = "BertModel"  # as transformers calls it, and there
    head_name = ""  # the name of the last linear layer
    published: Mapping[str, Any] = {}  # and the settings that its models of that kind have
    unit = "%"  # in which a table of scores counts
    counts = "accuracy"  # what the second number of `loss` says of training, as a share; "": nothing

    @staticmethod
    def fits(labels: int) -> bool:
        """Whether a published model of that architecture, with so many labels, is one for this task"""
        return True

    def more_config(self) -> dict[str, Any]:
        """What transformers wants to read in config.json besides"""
        return {}

    def layer(self, model: Model, dropout: float) -> Layer:
        raise NotImplementedError

    def items(self, examples: Sequence[Any], tokenizer: Tokenizer, length: int, training: bool) -> list[Item]:
        """length: tokens that a sequence may have; training: leave out what need not be learnt"""
        raise NotImplementedError

    def targets(self, items: Sequence[Item]) -> np.ndarray:
        return np.array([item.target for item in items])

    def loss(self, model: Any, batch: Batch, run: Run, targets: int) -> tuple[float, int]:
        """Forward and backward: this batch's share of the mean over `targets` of them -> loss, how many were right"""
        raise NotImplementedError

    def answers(self, model: Any, batch: Batch, run: Run) -> list[Any]:
        """What the model says of every item"""
        raise NotImplementedError

    def join(self, examples: Sequence[Any], items: Sequence[Item], answers: Sequence[Any]) -> list[Any]:
        """One prediction for each example"""
        return list(answers)

    def scores(self, examples: Sequence[Any], predictions: Sequence[Any]) -> dict[str, float]:
        raise NotImplementedError

    @staticmethod
    def shown(score: float) -> str:
        """One score for people: most are shares"""
        return f"{score:.1%}"

    def dev_loss(self, examples: Sequence[Any], predictions: Sequence[Any]) -> float | None:
        """Of the same predictions, lower is better: it decides between equal scores. None where none is at hand"""
        return None

    def guessing(self, examples: Sequence[Any]) -> tuple[str, list[Any]]:
        """The best that one can say without reading: in words, and as a prediction for each example"""
        raise NotImplementedError

    def settings(self) -> dict[str, Any]:
        """What it takes to build the task again, for config.json: arguments of the constructor"""
        return {}

    def batch(self, items: Sequence[Item], pad_id: int, known: bool = True) -> Batch:
        """Sequences side by side; those to be compared with them follow as second half. known: there are targets"""
        rows = [*items, *(item.other for item in items if item.other is not None)]
        ids, mask = padded([item.ids for item in rows], pad_id)
        asked, types = np.zeros(ids.shape, bool), np.zeros(ids.shape, int)
        for number, item in enumerate(rows):
            asked[number, item.asked] = True
            if item.second is not None:
                types[number, item.second : len(item.ids)] = 1
        return Batch(ids, mask, types, asked, self.targets(items) if known else np.empty(0))


def packed(tokenizer: Tokenizer, first: list[int], second: list[int] | None, length: int):
    """[CLS] first [SEP], or [CLS] first [SEP] second [SEP], cut to `length` -> ids, where the second begins, words

    A text of which no piece is left (it is all control characters) is [UNK]: there must be a word to look at.
    """
    first = first or [tokenizer.unk_id]
    if second is None:
        first = first[: length - 2]
        return [tokenizer.cls_id, *first, tokenizer.sep_id], None, list(range(1, len(first) + 1))
    second = second or [tokenizer.unk_id]
    a, b = cut([len(first), len(second)], length - 3, True)
    words = [*range(1, a + 1), *range(a + 2, a + 2 + b)]
    return [tokenizer.cls_id, *first[:a], tokenizer.sep_id, *second[:b], tokenizer.sep_id], a + 2, words


def windows(count: int, size: int, stride: int) -> list[tuple[int, int]]:
    """Places 0 … count−1 as windows of at most `size`, each `stride` behind the one before; the last ends at the end

    >>> windows(10, 4, 3)
    [(0, 4), (3, 7), (6, 10)]
    >>> windows(3, 4, 3)
    [(0, 3)]
    """
    if not 0 < stride <= size:
        raise ValueError(f"stride is {stride}, expected 1 to {size}, the room in a window: else places are left out")
    found = [(start, start + size) for start in range(0, max(count - size, 0), stride)]
    return [*found, (max(count - size, 0), count)]


def owners(spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Each window's own part of them: where two overlap, each owns the half that it sees with more around

    >>> owners([(0, 4), (3, 7), (6, 10)])
    [(0, 3), (3, 6), (6, 10)]
    """
    borders = [0, *((stop + start) // 2 for (_, stop), (start, _) in pairwise(spans))]
    return list(zip(borders, [*borders[1:], spans[-1][1]], strict=True))


def epoch(items: Sequence[Item], batch_size: int, seed: int, number: int) -> Iterator[list[Item]]:
    """All items in random batches, those of one batch of about one length, so that little is padded

    Shuffled, cut into pools of POOL batches, each pool sorted by length and cut into batches, all batches shuffled.
    """
    order = shuffled(len(items), address(seed, number))
    batches = []
    for low in range(0, len(order), POOL * batch_size):
        pool = sorted(order[low : low + POOL * batch_size].tolist(), key=lambda place: items[place].length)
        batches += [pool[start : start + batch_size] for start in range(0, len(pool), batch_size)]
    for place in shuffled(len(batches), address(seed, number, 1)):
        yield [items[i] for i in batches[place]]
