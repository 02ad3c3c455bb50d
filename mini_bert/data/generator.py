"""Text as batches: MLMDataGenerator for masked language modelling, in one call; TextBatches for any objective.

    tokenizer = WordPieceTokenizer.load("8k")
    batches = MLMDataGenerator("my_texts/", tokenizer, max_seq_length=64, batch_size=32)
    for batch in batches:  # endless
        loss, cache = model.loss(*batch)

The text is tokenized once (shards.py), cut into sequences (sequences.py), shuffled in every epoch (order.py), and
masked differently every time a sequence is seen (objectives/masking.py). batches.py puts these together.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Self

from mini_bert.common.progress import counted
from mini_bert.common.values import check_positive
from mini_bert.corpora.reading import Source as Text
from mini_bert.data.batches import Batches
from mini_bert.data.lanes import Lanes
from mini_bert.data.sequences import open_source
from mini_bert.data.shards import Shards, check_tokenizer, prepare
from mini_bert.objectives.base import Objective
from mini_bert.objectives.masked_words import Batch as Batch
from mini_bert.objectives.masked_words import MaskedWords, MaskedWordsAndSentences
from mini_bert.objectives.masking import MASK_PROB

if TYPE_CHECKING:
    from mini_bert.models.base import Model
    from mini_bert.text.base import Tokenizer

MODES, TASKS, SPLITS = ("packed", "sentences", "pairs"), ("next", "order"), ("train", "validation")
RUNNING = "running"  # a mode for predicting the next word, not for masks


class TextBatches(Batches):
    """Batches of a tokenized text, for any objective.

    mode        "packed": full sequences of running text. "running": the same without special tokens around them, and
                with the next token. "sentences": one sentence per sequence, padded, grouped by length. "pairs": two
                parts, with `task` "next" (does the second follow?) or "order" (are they swapped?)
    held_out    the fraction of the documents to hold out for validation; `split` selects the side to use
    fixed       use the same masks and order in every epoch, for evaluation (default: only for validation)
    lanes, step see Batches
    """

    def __init__(
        self,
        shards: Shards,
        tokenizer: Tokenizer,
        objective: Objective,
        max_seq_length: int = 64,
        batch_size: int = 32,
        *,
        seed: int = 0,
        mode: str = "packed",
        task: str = "next",
        held_out: float = 0.0,
        split: str = "train",
        fixed: bool | None = None,
        lanes: int | None = None,
        step: int | None = None,
    ):
        if shards.info["tokenizer"] != tokenizer.fingerprint:
            raise ValueError(f"the shards in {shards.folder} were made with another tokenizer; prepare them again")
        _check(max_seq_length, batch_size, mode, task, held_out, split, (*MODES, RUNNING))
        fixed = split == "validation" if fixed is None else fixed
        kind = task if mode == "pairs" else mode
        source = open_source(shards, tokenizer, max_seq_length, kind, held_out, split == "validation")
        super().__init__(source, objective, batch_size, seed, fixed, lanes, step)
        self.tokenizer = tokenizer
        self.arguments = {
            "max_seq_length": max_seq_length, "batch_size": batch_size, "seed": seed, "mode": mode, "task": task,
            **objective.arguments, "held_out": held_out, "split": split, "fixed": fixed,
            **({} if lanes is None else {"lanes": lanes}),
        }  # fmt: skip

    def __str__(self) -> str:
        steps = -(-self.sequences // self.step)
        if isinstance(self.order, Lanes):  # which are equally long
            steps = self.order.steps * self.order.lanes // self.step
        return (
            f"{counted(self.sequences, 'sequence')} ({self.arguments['mode']}, at most "
            f"{self.arguments['max_seq_length']} tokens) from {counted(self.tokens, 'token')} of "
            f"{counted(self.documents.count, 'document')}: {counted(steps, 'batch')} of {self.step} per "
            "epoch." + (f" Left out: {self.source.left_out}" if self.source.left_out else "")
        )

    def __repr__(self) -> str:
        arguments = ", ".join(f"{name}={value!r}" for name, value in self.arguments.items())
        return f"<{type(self).__name__} of {self.shards.folder}: {counted(self.sequences, 'sequence')}, {arguments}>"

    def validation(self, **changes: Any) -> TextBatches:
        """The documents that this one holds out, with fixed masks. `changes` override its arguments."""
        own = {name: value for name, value in self.arguments.items() if name not in self.objective.arguments}
        arguments = own | {"split": "validation", "fixed": True} | changes
        return TextBatches(self.shards, self.tokenizer, self.objective, **arguments)

    def shorter(self, length: int) -> TextBatches:
        """The same text in shorter sequences, with as many more in a batch as fit in its tokens."""
        full, own = self.arguments["max_seq_length"], dict(self.arguments)
        changes = {"max_seq_length": length, "batch_size": self.batch_size * (full // length)}
        arguments = {name: value for name, value in own.items() if name not in self.objective.arguments} | changes
        return TextBatches(self.shards, self.tokenizer, self.objective, **arguments)

    def check_fits(self, model: Model) -> None:
        """Raise an error if the model has fewer positions or ids than the sequences need, or lacks a head."""
        length = self.arguments["max_seq_length"]
        if length > model.max_length:
            raise ValueError(
                f"the generator makes sequences of {length} tokens, but the model is configured for at most "
                f"{model.max_length}; build the generator with max_seq_length={model.max_length}"
            )
        check_vocabulary(self.tokenizer, model.vocab_size)
        self.objective.check(model)


class MLMDataGenerator(TextBatches):
    """Endless batches, and any batch by its number.

    data_path       any source for corpora.reading.read: a file, folder, pattern, "-", "builtin", a download, a list of
                    these, or an iterator of texts; or open Shards
    mode            "packed": full sequences of running text. "sentences": one sentence per sequence, padded, grouped
                    by length. "pairs": two parts, with `task` "next" (does the second follow?) or "order" (are they
                    swapped?)
    mask_prob, whole_word, span      how words are chosen for masking: see objectives/masking.py
    held_out        the fraction of the documents to hold out for validation; `split` selects the side to use
    fixed           use the same masks and order in every epoch, for evaluation (default: only for validation)
    vocab_size      the model's, to check that the tokenizer fits
    cache_dir, processes, progress   for tokenizing: see shards.prepare
    """

    def __init__(
        self,
        data_path: Text | Shards,
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
        _check(max_seq_length, batch_size, mode, task, held_out, split)
        if processes is not None:
            check_positive("processes", processes)
        if vocab_size is not None:
            check_vocabulary(tokenizer, vocab_size)
        kind = MaskedWordsAndSentences if mode == "pairs" else MaskedWords
        objective = kind.for_tokenizer(tokenizer, mask_prob=mask_prob, whole_word=whole_word, span=span)
        if not isinstance(data_path, Shards):
            data_path = prepare(data_path, tokenizer, cache_dir=cache_dir, processes=processes, progress=progress)
        super().__init__(
            data_path, tokenizer, objective, max_seq_length, batch_size, seed=seed, mode=mode, task=task,
            held_out=held_out, split=split, fixed=fixed,
        )  # fmt: skip

    def validation(self, **changes: Any) -> Self:
        """The same, where `changes` may also concern masking."""
        arguments = self.arguments | {"split": "validation", "fixed": True} | changes
        return type(self)(self.shards, self.tokenizer, **arguments)


def _check(
    max_seq_length: Any, batch_size: Any, mode: Any, task: Any, held_out: Any, split: Any, modes: Any = MODES
) -> None:
    check_positive("max_seq_length", max_seq_length)
    check_positive("batch_size", batch_size)
    for name, value, choices in (("mode", mode, modes), ("task", task, TASKS), ("split", split, SPLITS)):
        if value not in choices:
            raise ValueError(f"{name} is {value!r}, expected one of {', '.join(map(repr, choices))}")
    if isinstance(held_out, bool) or not isinstance(held_out, int | float) or not 0 <= held_out < 1:
        raise ValueError(f"held_out is {held_out!r}, expected a fraction of the documents from 0 to below 1")
    if split == "validation" and not held_out:
        raise ValueError('split="validation" reads the held-out documents: also pass held_out, such as 0.01')


def check_vocabulary(tokenizer: Tokenizer, vocab_size: int) -> None:
    if tokenizer.vocab_size > vocab_size:
        raise ValueError(
            f"the tokenizer has {tokenizer.vocab_size:,} tokens, but the model has only {vocab_size:,} ids; use the "
            f"model's own tokenizer, or build the model with vocab_size={tokenizer.vocab_size}"
        )
