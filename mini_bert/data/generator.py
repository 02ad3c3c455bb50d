"""Batches for masked language modelling: from any text to what a model's `loss` takes.

    tokenizer = WordPieceTokenizer.load("8k")
    batches = MLMDataGenerator("my_texts/", tokenizer, max_seq_length=64, batch_size=32)
    for batch in batches:  # endless
        loss, cache = model.loss(batch.input_ids, batch.rows, batch.targets, batch.attention_mask)

The text is tokenized once (data/shards.py), cut into sequences (data/sequences.py), shuffled anew every epoch, and
masked anew
every time a sequence is seen (objectives/masking.py). All that is random comes from common/draws.py: it depends on the
seed, the epoch and the number of the sequence, and on nothing else. Hence

- `batch(k)` is the k-th batch whoever asks, in any order, from any thread: micro-batch m of step s with 4 to a step is
  batch(4·s + m). One of 32 sequences is the same as four of 8, one after the other (not so with mode="sentences",
  where like lengths are put together within a batch);
- the exact place in the data is one number. `state()` has it, with what it counts in, and `restore` goes there;
- a run that was stopped and resumed sees every token and mask that one never stopped would have seen.

Epochs follow each other without a gap: a batch may hold the last sequences of one and the first of the next. In each
epoch every sequence comes once.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from functools import lru_cache
from operator import index as whole
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

from mini_bert.common.draws import address, shuffled
from mini_bert.common.progress import counted
from mini_bert.common.values import check_positive
from mini_bert.corpora.reading import Source
from mini_bert.data.sequences import Documents, Packed, Pairs, Sentences, Special
from mini_bert.data.shards import Shards, check_tokenizer, prepare
from mini_bert.objectives.masking import MASK_PROB, Masking

if TYPE_CHECKING:
    from mini_bert.text.base import Tokenizer

MODES = {"packed": 3, "sentences": 3, "pairs": 5}  # and the shortest sequence that holds a word, or two
TASKS = ("next", "order")
POOL = 64  # batches whose sentences are sorted by length together
SHUFFLE, GROUPS = 2**62, 2**62 + 1  # what draws are used for: far from the number of any epoch
logger = logging.getLogger(__name__)


class Batch(NamedTuple):
    """What `loss` takes, in its order: model.loss(*batch[:4]) for MiniBERT, bert.loss(*batch) for Bert."""

    input_ids: np.ndarray  # (B,T) with masks in them
    rows: np.ndarray  # (N,) the chosen positions, b·T + t
    targets: np.ndarray  # (N,) the ids that belong there
    attention_mask: np.ndarray | None = None  # (B,T) False where padded; None: nowhere
    token_type_ids: np.ndarray | None = None  # (B,T) 1 in the second part of a pair
    next_sentence: np.ndarray | None = None  # (B,) 0: as in the text, 1: not

    def split(self, parts: int) -> list[Batch]:
        """The batch in equal parts. Give each `count=batch.rows.size`, and their losses add up to that of the whole."""
        B, T = self.input_ids.shape
        if parts < 1 or B % parts:
            raise ValueError(f"{B} sequences cannot be split into {parts} equal parts; try a divisor of {B}")
        size = B // parts
        edges = np.searchsorted(self.rows, np.arange(0, B + 1, size) * T)
        found = []
        for part in range(parts):
            own, chosen = slice(part * size, (part + 1) * size), slice(edges[part], edges[part + 1])
            others = (array if array is None else array[own] for array in self[3:])
            found.append(Batch(self.input_ids[own], self.rows[chosen] - part * size * T, self.targets[chosen], *others))
        return found


class MLMDataGenerator:
    """Endless batches, and any batch by its number.

    data_path       what corpora.read takes: a file, folder, pattern, "-", "builtin", a download, a list of these, an
                    iterator of texts; or opened Shards
    mode            "packed": full sequences of running text. "sentences": one a sequence, padded, like lengths
                    together. "pairs": two parts, `task` "next" (does it follow?) or "order" (are they swapped?)
    mask_prob, whole_word, span      how words are chosen: see objectives/masking.py
    held_out        a share of the documents that is left out for validation; `split` says which side this is
    fixed           the same masks and order in every epoch, as measuring wants them (default: for validation)
    vocab_size      of the model, if it is to be checked that the tokenizer fits
    cache_dir, processes, progress   for the tokenizing: see shards.prepare
    """

    def __init__(
        self,
        data_path: Source | Shards,
        tokenizer: Tokenizer,
        max_seq_length: int = 64,
        batch_size: int = 32,
        *,
        seed: int = 0,
        mode: str = "packed",
        task: str = "next",
        mask_prob: float = MASK_PROB,
        whole_word: bool = False,
        span: bool = False,
        held_out: float = 0.0,
        split: str = "train",
        fixed: bool | None = None,
        vocab_size: int | None = None,
        cache_dir: str | os.PathLike[str] | None = None,
        processes: int | None = None,
        progress: bool = True,
    ):
        check_tokenizer(tokenizer)
        check_positive("batch_size", batch_size)
        check_positive("max_seq_length", max_seq_length)
        if processes is not None:
            check_positive("processes", processes)
        _check_choice("mode", mode, MODES)
        _check_choice("task", task, TASKS)
        _check_choice("split", split, ("train", "validation"))
        if isinstance(seed, bool) or not isinstance(seed, int):
            raise ValueError(f"seed is {seed!r}, expected a whole number")
        if max_seq_length < MODES[mode]:
            raise ValueError(
                f"max_seq_length is {max_seq_length}, but in mode {mode!r} special tokens alone take "
                f"{MODES[mode] // 2 + 1} of a sequence: expected at least {MODES[mode]}, such as 64"
            )
        if isinstance(held_out, bool) or not isinstance(held_out, int | float) or not 0 <= held_out < 1:
            raise ValueError(f"held_out is {held_out!r}, expected a share of the documents from 0 to below 1")
        if split == "validation" and not held_out:
            raise ValueError('split="validation" reads the documents that are held out: pass held_out, such as 0.01')
        if vocab_size is not None and tokenizer.vocab_size > vocab_size:
            raise ValueError(
                f"the tokenizer has {tokenizer.vocab_size:,} tokens, but the model knows {vocab_size:,} ids: use the "
                f"tokenizer that belongs to the model, or build the model with vocab_size={tokenizer.vocab_size}"
            )
        self.masking = Masking(
            tokenizer.vocab_size,
            tokenizer.mask_id,
            tokenizer.special_ids,
            mask_prob,
            continues=tokenizer.continues,
            whole_word=whole_word,
            span=span,
        )
        self.fixed = split == "validation" if fixed is None else fixed
        self.arguments: dict[str, Any] = dict(
            max_seq_length=max_seq_length, batch_size=batch_size, seed=seed, mode=mode, task=task, mask_prob=mask_prob,
            whole_word=whole_word, span=span, held_out=held_out, split=split, fixed=self.fixed,
        )  # fmt: skip
        self.tokenizer, self.seed, self.batch_size = tokenizer, seed, batch_size
        if isinstance(data_path, Shards):
            self.shards = data_path
            if self.shards.info["tokenizer"] != tokenizer.fingerprint:
                raise ValueError(
                    f"the shards in {self.shards.folder} were made with another tokenizer; prepare them anew"
                )
        else:
            self.shards = prepare(data_path, tokenizer, cache_dir=cache_dir, processes=processes, progress=progress)
        self.documents = Documents(self.shards, held_out, split == "validation")
        if not self.documents.sentences.size:
            raise ValueError(
                f"held_out is {held_out}, and of {len(self.shards.hashes):,} documents that leaves none for "
                f"split={split!r}; choose another share, or give validation a text of its own"
            )
        special = Special(tokenizer.pad_id, tokenizer.cls_id, tokenizer.sep_id)
        self.source: Packed | Sentences | Pairs
        word = self.masking.is_word
        try:
            if mode == "pairs":
                self.source = Pairs(self.documents, max_seq_length, special, word, task)
            else:
                self.source = (Packed if mode == "packed" else Sentences)(self.documents, max_seq_length, special, word)
        except ValueError as error:
            if not held_out:
                raise
            raise ValueError(
                f"held_out is {held_out}, and of {len(self.shards.hashes):,} documents that leaves "
                f"{self.documents.count:,} for split={split!r}: {error}; or choose another share"
            ) from error
        self.sequences = self.source.count
        if self.sequences < batch_size and split == "train":
            logger.warning(
                "the text makes %s, and a batch has %d: some come in it more than once, with other masks; "
                "give more text, or a smaller batch_size or max_seq_length",
                counted(self.sequences, "sequence"),
                batch_size,
            )
        self.pool = max(1, min(POOL, self.sequences // batch_size)) if mode == "sentences" else 1
        self.next = 0  # number of the batch that iteration comes to
        self._order = lru_cache(2)(lambda epoch: shuffled(self.sequences, address(seed, SHUFFLE, epoch)))
        self._groups = lru_cache(4)(self._pool_groups)

    # ------------------------------------------------------------------ what there is

    @property
    def tokens(self) -> int:
        """Tokens of the documents in use, a [SEP] for each document included"""
        return self.documents.tokens.size

    def __len__(self) -> int:
        """Batches in an epoch; the last may be shared with the next epoch"""
        return -(-self.sequences // self.batch_size)

    def __str__(self) -> str:
        return (
            f"{counted(self.sequences, 'sequence')} ({self.arguments['mode']}, at most "
            f"{self.arguments['max_seq_length']} tokens) from {counted(self.tokens, 'token')} of "
            f"{counted(self.documents.count, 'document')}: {counted(len(self), 'batch')} of {self.batch_size} an epoch"
            f". Left out: {self.source.left_out}"
        )

    def __repr__(self) -> str:
        arguments = ", ".join(f"{name}={value!r}" for name, value in self.arguments.items())
        return f"<MLMDataGenerator of {self.shards.folder}: {counted(self.sequences, 'sequence')}, {arguments}>"

    def validation(self, **changes: Any) -> Self:
        """The generator of the documents that this one holds out, with fixed masks; changes: other arguments."""
        arguments = self.arguments | {"split": "validation", "fixed": True} | changes
        return type(self)(self.shards, self.tokenizer, **arguments)

    # ------------------------------------------------------------------ batches

    def batch(self, index: int) -> Batch:
        """Batch number `index`, from 0, counted through all epochs."""
        try:
            index = whole(index)
        except TypeError:
            raise TypeError(f"the number of a batch is {index!r}, expected a whole number from 0") from None
        if index < 0:
            raise IndexError(f"there is no batch {index}; they are counted from 0")
        return self._batch(self._groups(index // self.pool)[index % self.pool])

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Batch:
        batch = self.batch(self.next)
        self.next += 1
        return batch

    def once(self, epoch: int = 0, most: int | None = None) -> Iterator[Batch]:
        """Every sequence once, as in that epoch, or the first `most`; the last batch may be smaller. For measuring."""
        first, size = epoch * self.sequences, self.pool * self.batch_size
        end = self.sequences if most is None else min(most, self.sequences)
        for low in range(0, end, size):
            for places in self._grouped(np.arange(first + low, first + min(low + size, end))):
                yield self._batch(places)

    def _batch(self, places) -> Batch:
        epochs, numbers = self._numbers(places)
        keys = address(self.seed, epochs, numbers)
        ids, lengths, types, labels = self.source.rows(numbers, keys)
        masked, targets, rows = self.masking(ids, keys)
        mask = None if lengths is None else np.arange(ids.shape[1]) < lengths[:, None]
        return Batch(masked, rows, targets, None if mask is None or mask.all() else mask, types, labels)

    def _numbers(self, places):
        """Places in the endless stream -> their epochs, and the numbers of the sequences that stand there"""
        epochs, places = np.divmod(places, self.sequences)
        if self.fixed:
            epochs = np.zeros_like(epochs)
        numbers = np.empty_like(places)
        for epoch in np.unique(epochs):
            now = epochs == epoch
            numbers[now] = self._order(int(epoch))[places[now]]
        return epochs, numbers

    def _pool_groups(self, pool: int) -> list[np.ndarray]:
        """The places of the batches of one pool, these in random order: or all short ones would come first"""
        size = self.pool * self.batch_size
        groups = self._grouped(np.arange(pool * size, (pool + 1) * size))
        return [groups[i] for i in shuffled(len(groups), address(self.seed, GROUPS, pool))]

    def _grouped(self, places) -> list[np.ndarray]:
        """Places in batches, those of like length together"""
        if isinstance(self.source, Sentences):
            lengths = np.minimum(self.source.lengths(self._numbers(places)[1]), self.source.length)
            places = places[np.argsort(lengths, kind="stable")]
        return np.split(places, range(self.batch_size, len(places), self.batch_size))

    # ------------------------------------------------------------------ the place in the data

    def state(self) -> dict[str, Any]:
        """The exact place, as plain numbers and strings for a JSON file."""
        return {"next": self.next, "data": self.shards.digest, **self.arguments}

    def restore(self, state: dict[str, Any]) -> None:
        """Go to the place that `state` says: the next batch is the one that would have come next there."""
        ours = self.state()
        if not isinstance(state, dict):
            raise TypeError(f"the state is {state!r:.60}, a {type(state).__name__}; expected what state() returned")
        if set(state) != set(ours):
            odd = ", ".join(sorted(set(state) ^ set(ours)))
            raise ValueError(f"this is not the state of a data generator of this version: it differs in {odd}")
        if state["data"] != ours["data"]:
            raise ValueError(
                "the saved place is one in another text, or in one tokenized with another vocabulary; "
                "restore it with the data it was saved with"
            )
        for name in self.arguments:
            if state[name] != ours[name]:
                raise ValueError(
                    f"the place was saved with {name}={state[name]!r}, and this generator has {ours[name]!r}; "
                    f"build it with {name}={state[name]!r}"
                )
        if isinstance(state["next"], bool) or not isinstance(state["next"], int) or state["next"] < 0:
            raise ValueError(f"the saved place is {state['next']!r}, expected the number of a batch")
        self.next = state["next"]


def _check_choice(name: str, value: Any, choices: Any) -> None:
    if value not in choices:
        raise ValueError(f"{name} is {value!r}, expected one of {', '.join(map(repr, choices))}")
