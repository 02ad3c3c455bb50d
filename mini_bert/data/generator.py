"""MLMDataGenerator: from any text to batches for masked language modelling, in one call.

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
from mini_bert.data.sequences import open_source
from mini_bert.data.shards import Shards, check_tokenizer, prepare
from mini_bert.objectives.masked_words import Batch as Batch
from mini_bert.objectives.masked_words import MaskedWords, MaskedWordsAndSentences
from mini_bert.objectives.masking import MASK_PROB, Masking

if TYPE_CHECKING:
    from mini_bert.text.base import Tokenizer

MODES, TASKS, SPLITS = ("packed", "sentences", "pairs"), ("next", "order"), ("train", "validation")


class MLMDataGenerator(Batches):
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
        check_positive("max_seq_length", max_seq_length)
        check_positive("batch_size", batch_size)
        if processes is not None:
            check_positive("processes", processes)
        for name, value, choices in (("mode", mode, MODES), ("task", task, TASKS), ("split", split, SPLITS)):
            if value not in choices:
                raise ValueError(f"{name} is {value!r}, expected one of {', '.join(map(repr, choices))}")
        if isinstance(held_out, bool) or not isinstance(held_out, int | float) or not 0 <= held_out < 1:
            raise ValueError(f"held_out is {held_out!r}, expected a fraction of the documents from 0 to below 1")
        if split == "validation" and not held_out:
            raise ValueError('split="validation" reads the held-out documents: also pass held_out, such as 0.01')
        if vocab_size is not None and tokenizer.vocab_size > vocab_size:
            raise ValueError(
                f"the tokenizer has {tokenizer.vocab_size:,} tokens, but the model has only {vocab_size:,} ids; use "
                f"the model's own tokenizer, or build the model with vocab_size={tokenizer.vocab_size}"
            )
        fixed = split == "validation" if fixed is None else fixed
        self.tokenizer = tokenizer
        self.arguments: dict[str, Any] = dict(
            max_seq_length=max_seq_length, batch_size=batch_size, seed=seed, mode=mode, task=task, mask_prob=mask_prob,
            whole_word=whole_word, span=span, held_out=held_out, split=split, fixed=fixed,
        )  # fmt: skip
        self.masking = Masking(
            tokenizer.vocab_size,
            tokenizer.mask_id,
            tokenizer.special_ids,
            mask_prob,
            continues=tokenizer.continuing,
            whole_word=whole_word,
            span=span,
        )
        if isinstance(data_path, Shards):
            shards = data_path
            if shards.info["tokenizer"] != tokenizer.fingerprint:
                raise ValueError(f"the shards in {shards.folder} were made with another tokenizer; prepare them again")
        else:
            shards = prepare(data_path, tokenizer, cache_dir=cache_dir, processes=processes, progress=progress)
        kind = task if mode == "pairs" else mode
        source = open_source(shards, tokenizer, max_seq_length, kind, held_out, split == "validation")
        objective = (MaskedWordsAndSentences if mode == "pairs" else MaskedWords)(self.masking)
        super().__init__(source, objective, batch_size, seed, fixed)

    def __str__(self) -> str:
        return (
            f"{counted(self.sequences, 'sequence')} ({self.arguments['mode']}, at most "
            f"{self.arguments['max_seq_length']} tokens) from {counted(self.tokens, 'token')} of "
            f"{counted(self.documents.count, 'document')}: {counted(len(self), 'batch')} of {self.batch_size} per "
            f"epoch. Left out: {self.source.left_out}"
        )

    def __repr__(self) -> str:
        arguments = ", ".join(f"{name}={value!r}" for name, value in self.arguments.items())
        return f"<MLMDataGenerator of {self.shards.folder}: {counted(self.sequences, 'sequence')}, {arguments}>"

    def validation(self, **changes: Any) -> Self:
        """A generator of the documents that this one holds out, with fixed masks. `changes` override its arguments."""
        arguments = self.arguments | {"split": "validation", "fixed": True} | changes
        return type(self)(self.shards, self.tokenizer, **arguments)

    # ------------------------------------------------------------------ the position in the data

    def state(self) -> dict[str, Any]:
        """The exact position, as numbers and strings for a JSON file."""
        return {"next": self.next, "data": self.shards.digest, **self.arguments}

    def restore(self, state: dict[str, Any]) -> None:
        """Go to the position in `state`: the next batch is the one that would have come next there."""
        ours = self.state()
        if not isinstance(state, dict):
            raise TypeError(f"the state is {state!r:.60}, a {type(state).__name__}; expected what state() returned")
        if set(state) != set(ours):
            odd = ", ".join(sorted(set(state) ^ set(ours)))
            raise ValueError(f"this state is not from this version of the data generator: it differs in {odd}")
        if state["data"] != ours["data"]:
            raise ValueError(
                "the saved position belongs to another text or vocabulary; restore it with the data it was saved with"
            )
        for name in self.arguments:
            if state[name] != ours[name]:
                raise ValueError(
                    f"the position was saved with {name}={state[name]!r}, but this generator has {ours[name]!r}; "
                    f"build it with {name}={state[name]!r}"
                )
        if isinstance(state["next"], bool) or not isinstance(state["next"], int) or state["next"] < 0:
            raise ValueError(f"the saved position is {state['next']!r}, expected a batch number")
        self.next = state["next"]
