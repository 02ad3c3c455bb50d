"""The interface of a task, and what all tasks share.

    example    a line of the data: a text with its label, a question with its answer
    item       one sequence of ids for the model; a long example becomes several windows, one item each
    batch      items of similar length, padded

A task defines the head (`layer`), how examples become items (`items`), the loss with its backward (`loss`), the model's
answers (`answers`), how the answers of several windows are combined (`join`), and the scores (`scores`).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from mini_bert.common.batching import RIGHT, Padding
from mini_bert.common.draws import address, shuffled
from mini_bert.common.progress import counted
from mini_bert.layers.base import Layer, Run
from mini_bert.models.base import Model
from mini_bert.text.encoding import cut
from mini_bert.text.templates import Assembled, pad

if TYPE_CHECKING:
    from mini_bert.text.base import Tokenizer

HEAD = 1 << 20  # the fork of the random numbers for the head; no block has this number
logger = logging.getLogger(__name__)
POOL = 50  # number of batches whose items are sorted by length together


class Item(NamedTuple):
    """One sequence for the model."""

    example: int  # the index of its example
    sequence: Assembled
    asked: list[int]  # the positions that the head reads: words, first pieces, possible answer tokens
    target: Any  # a class, classes, positions, or a score; None if unknown
    other: Item | None = None  # a second sequence to compare with this one
    offsets: Sequence[tuple[int, int]] = ()  # the characters of the asked tokens in the text, to extract the answer
    truncated: int = 0  # how many of its texts were cut to fit

    @property
    def ids(self) -> list[int]:
        return self.sequence.ids

    @property
    def length(self) -> int:
        return len(self.ids) if self.other is None else max(len(self.ids), len(self.other.ids))


class Batch(NamedTuple):
    ids: np.ndarray  # (B,T)
    mask: np.ndarray | None  # (B,T) True for a token, False for padding; None without padding
    types: np.ndarray  # (B,T) token types
    asked: np.ndarray  # (B,T) True for the tokens that the head reads
    targets: np.ndarray  # one row per term of the loss
    second: np.ndarray | None = None  # (B,T) True from the start of the second text
    summary: np.ndarray | int = 0  # (B,) the positions of the summary tokens

    @property
    def real(self) -> np.ndarray:  # (B,T)
        """True for tokens, False for padding"""
        return np.ones(self.ids.shape, bool) if self.mask is None else self.mask

    @property
    def chosen(self) -> np.ndarray:  # (N,)
        """The asked tokens, as indices into the B·T tokens of the batch"""
        return np.flatnonzero(self.asked)


class Task:
    """A task. `name` is the name of its command, `metric` the score that decides which weights are best."""

    name = ""
    metric = ""
    labelled = True  # whether it has labels, as the first argument of the constructor
    labels: Sequence[str] = ()
    architecture = "Model"  # the class in transformers, without "Bert" or the name of another family
    published: Mapping[str, Any] = {}  # the settings of its models
    unit = "%"  # of the scores in a table
    group: int | None = None  # items that the loss compares with each other, whatever the number of threads
    counts_right = True  # whether answers are right or wrong, so that the second result of `loss` means something

    @staticmethod
    def fits(labels: int) -> bool:
        """Whether a published model of that architecture with this many labels is for this task"""
        return True

    def more_config(self) -> dict[str, Any]:
        """More entries of config.json, for transformers"""
        return {}

    def layer(self, model: Model, dropout: float) -> Layer:
        raise NotImplementedError

    def items(self, examples: Sequence[Any], tokenizer: Tokenizer, length: int, training: bool) -> list[Item]:
        """length: the longest sequence, in tokens; training: items may be dropped"""
        raise NotImplementedError

    def targets(self, items: Sequence[Item]) -> np.ndarray:
        return np.array([item.target for item in items])

    def loss(self, model: Any, batch: Batch, run: Run, targets: int) -> tuple[float, int]:
        """Forward and backward. Returns this batch's part of the mean over `targets` terms, and how many were right"""
        raise NotImplementedError

    def answers(self, model: Any, batch: Batch, run: Run) -> list[Any]:
        """The model's answer to every item"""
        raise NotImplementedError

    def join(self, examples: Sequence[Any], items: Sequence[Item], answers: Sequence[Any]) -> list[Any]:
        """One prediction for each example"""
        return list(answers)

    def scores(self, examples: Sequence[Any], predictions: Sequence[Any]) -> dict[str, float]:
        raise NotImplementedError

    @staticmethod
    def shown(score: float) -> str:
        """A score as text"""
        return f"{score:.1%}"

    def dev_loss(self, examples: Sequence[Any], predictions: Sequence[Any]) -> float | None:
        """The loss of these predictions, which decides between equal scores; None if the task has none"""
        return None

    def guessing(self, examples: Sequence[Any]) -> tuple[str, list[Any]]:
        """The best guess without reading the texts: its name, and a prediction for each example"""
        raise NotImplementedError

    def settings(self) -> dict[str, Any]:
        """The arguments of the constructor, for config.json"""
        return {}

    def batch(self, items: Sequence[Item], padding: Padding = RIGHT, known: bool = True) -> Batch:
        """Pad the items to one length; sequences to compare with form a second half. known: the items have targets"""
        rows = [*items, *(item.other for item in items if item.other is not None)]
        ids, mask, types, shifts = pad([item.sequence for item in rows], padding)
        asked, second = np.zeros(ids.shape, bool), np.zeros(ids.shape, bool)
        for number, (item, shift) in enumerate(zip(rows, shifts.tolist(), strict=True)):
            asked[number, [shift + place for place in item.asked]] = True
            for start in item.sequence.starts[1:]:
                second[number, shift + start :] = True
        summary = shifts + [item.sequence.summary for item in rows]
        return Batch(ids, mask, types, asked, self.targets(items) if known else np.empty(0), second, summary)


def summary_places(model: Model, batch: Batch) -> np.ndarray | int:
    """The position of the token that stands for each text, (B,).

    The last token if no other has seen the whole text; the first or the last if the config says which, as XLNet's
    does, so that transformers pools the same one; otherwise that of the tokenizer's template.
    """
    where = "last" if model.reads_forward else getattr(model.config, "summary_type", None)
    if where is None:
        return batch.summary
    return batch.real.argmax(1) if where == "first" else batch.ids.shape[1] - 1 - batch.real[:, ::-1].argmax(1)


def packed(tokenizer: Tokenizer, first: list[int], second: list[int] | None, length: int):
    """One text or two with special tokens around them, cut to `length`

    Returns the sequence, the positions of the words, and how many of the texts were cut. A text without any piece
    (only control characters) becomes [UNK], so that there is a word to pool.
    """
    rows = [row or [tokenizer.unk_id] for row in ((first,) if second is None else (first, second))]
    lengths = cut([len(row) for row in rows], length - tokenizer.added_count(len(rows)), True)
    sequence = tokenizer.assemble(*(row[:size] for row, size in zip(rows, lengths, strict=True)))
    words = [start + i for start, size in zip(sequence.starts, lengths, strict=True) for i in range(size)]
    return sequence, words, sum(len(row) > size for row, size in zip(rows, lengths, strict=True))


def warn_about_cuts(items: Sequence[Item], length: int) -> None:
    """Log how many texts were cut. (Words to tag and texts with answers are split into windows instead.)"""
    texts = sum(item.truncated for item in items)
    if texts:
        logger.warning("%s cut to fit into %d tokens: the end was not used", counted(texts, "text"), length)


def windows(count: int, size: int, stride: int) -> list[tuple[int, int]]:
    """Windows of at most `size` over positions 0 … count−1, each `stride` after the one before; the last ends at count

    >>> windows(10, 4, 3)
    [(0, 4), (3, 7), (6, 10)]
    >>> windows(3, 4, 3)
    [(0, 3)]
    """
    if not 0 < stride <= size:
        raise ValueError(f"stride is {stride}, expected 1 to {size}, the size of a window, so that no token is skipped")
    full = [(start, start + size) for start in range(0, max(count - size, 0), stride)]
    return [*full, (max(count - size, 0), count)]


def owners(spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Each window's own part: an overlap is split in the middle, so that every position has context on both sides

    >>> owners([(0, 4), (3, 7), (6, 10)])
    [(0, 3), (3, 6), (6, 10)]
    """
    borders = [0, *((stop + start) // 2 for (_, stop), (start, _) in pairwise(spans))]
    return list(zip(borders, [*borders[1:], spans[-1][1]], strict=True))


def epoch(items: Sequence[Item], batch_size: int, seed: int, number: int) -> Iterator[list[Item]]:
    """All items in random batches of similar length, with little padding

    Items are shuffled and cut into pools of POOL batches; each pool is sorted by length and cut into batches; then the
    batches are shuffled.
    """
    order = shuffled(len(items), address(seed, number))
    batches = []
    for low in range(0, len(order), POOL * batch_size):
        pool = sorted(order[low : low + POOL * batch_size].tolist(), key=lambda place: items[place].length)
        batches += [pool[start : start + batch_size] for start in range(0, len(pool), batch_size)]
    for place in shuffled(len(batches), address(seed, number, 1)):
        yield [items[i] for i in batches[place]]
