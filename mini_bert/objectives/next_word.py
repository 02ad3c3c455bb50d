"""Causal language modelling: predict each word from the words before it (GPT).

    the cat sat on the         input: T tokens
    cat sat on the mat         targets: the same tokens, one place further

    loss = 1/N Σ_t −log p(x_{t+1} | x_1 … x_t)

No token sees those after it, so a model can be trained to predict all of them at once: every row is a target, where
masked words are 15 %. The separator between documents is predicted like a word, because a model that writes has to
know when to stop. Only unknown words are not: there is nothing to learn from "some word that we do not know", and a
model that never learnt to say it never writes it.

`NextWordWithMemory` is for Transformer-XL, which remembers the segment before: each sequence of a batch continues the
same one of the batch before (data/lanes.py), and the hidden states of that segment are an input of the next. They get
no gradient. The memory of every lane is part of a checkpoint, so that a resumed run continues with the same bits.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from mini_bert.layers.base import Run
from mini_bert.models.base import NEXT_WORD, Inputs, Model
from mini_bert.models.loss import LossCache, Term
from mini_bert.models.sizes import Sizes
from mini_bert.objectives.base import Objective, Part, Predictions, Rows, Size, part_of, predictions_of
from mini_bert.objectives.masked_words import unigram_loss, word_shares
from mini_bert.text.base import Tokenizer


class Batch(NamedTuple):
    """Sequences, and the token after each of theirs."""

    input_ids: np.ndarray  # (B,T)
    targets: np.ndarray  # (N,)
    rows: np.ndarray | None = None  # (N,) the positions of the targets, b·T + t; None: all
    attention_mask: np.ndarray | None = None  # (B,T) False for padding; None: no padding
    token_type_ids: np.ndarray | None = None  # (B,T)
    lanes: np.ndarray | None = None  # (B,) which stream of text a sequence continues; None: none
    starts: np.ndarray | None = None  # (B,) True where nothing precedes the sequence


class NextWord(Objective):
    """Cross-entropy of the next token, at every token.        unknown: the id that is never predicted"""

    name: ClassVar[str] = "next_word"
    heads: ClassVar[tuple[str, ...]] = (NEXT_WORD,)
    targets = "next tokens"
    sequences: ClassVar[dict[str, Any]] = {"mode": "running"}
    layout = "running"  # its models never see a cls token

    def __init__(self, unknown: int | None = None):
        self.unknown = unknown

    @classmethod
    def for_tokenizer(cls, tokenizer: Tokenizer, **options: Any) -> Self:
        roles = tokenizer.roles
        unknown = "unk" in roles and roles["unk"] != roles.get("sep")  # in GPT-2's vocabulary they are the same token
        return cls(tokenizer.unk_id if unknown else None, **options)

    # ------------------------------------------------------------------ batches

    def batch(self, rows: Rows, keys: np.ndarray) -> Batch:
        ids, targets = rows.ids[:, :-1], rows.ids[:, 1:]
        counted = np.ones(targets.shape, bool) if self.unknown is None else targets != self.unknown
        mask = rows.mask
        if mask is not None:
            counted &= mask[:, :-1] & mask[:, 1:]
            mask = mask[:, :-1]
        chosen = None if counted.all() else np.flatnonzero(counted)
        flat = targets.ravel() if chosen is None else targets.ravel()[chosen]
        types = None if rows.types is None else rows.types[:, :-1]
        return Batch(ids, flat, chosen, mask, types, rows.lanes, rows.starts)

    def size(self, batch: Batch) -> Size:
        if not isinstance(batch, Batch):
            raise TypeError(f"a batch is a {type(batch).__name__}, expected a Batch(input_ids, targets, rows, …)")
        return Size(len(batch.input_ids), np.size(batch.input_ids), {NEXT_WORD: len(batch.targets)})

    # ------------------------------------------------------------------ the loss

    def forward(self, model: Model, batch: Batch, run: Run, count: Mapping[str, int]) -> LossCache:
        return self._forward(model, batch, self._inputs(model, batch), run, count)

    def _inputs(self, model: Model, batch: Batch) -> Inputs:
        return model.check_inputs(batch.input_ids, batch.attention_mask, batch.token_type_ids)

    def _forward(self, model: Model, batch: Batch, inputs: Inputs, run: Run, count: Mapping[str, int]) -> LossCache:
        return model.loss_of(inputs, [Term(NEXT_WORD, batch.rows, batch.targets, count[NEXT_WORD])], run)[1]

    # ------------------------------------------------------------------ what it is compared with, and starts from

    def uniform_losses(self, model: Model) -> dict[str, float]:
        return {NEXT_WORD: math.log(model.vocab_size)}

    def start(self, model: Model, counts: np.ndarray) -> None:
        """Initialise the bias of the word head with the words' log frequencies, if it has one that was not trained."""
        model.start_words(word_shares(counts))

    def start_record(self, counts: np.ndarray, log_frequencies: np.ndarray) -> dict[str, Any]:
        return {"unigram_loss": unigram_loss(log_frequencies, counts), "predicted": 1.0}

    @classmethod
    def sizes(cls, model: Sizes, **options: Any) -> Sizes:
        return model._replace(predicted=1.0)

    @property
    def summary(self) -> str:
        return "Trained to predict each word from the words before it."


class NextWordWithMemory(NextWord):
    """The same with the hidden states of the previous segment as an input, which gets no gradient."""

    name = "next_word_with_memory"
    consecutive = True

    def __init__(self, unknown: int | None = None):
        super().__init__(unknown)
        self.memory: dict[str, np.ndarray] = {}  # an array (lanes,M,H) for each block

    @classmethod
    def missing(cls, model: Model) -> list[str]:
        return super().missing(model) + ([] if memory_length(model) else ["memory"])

    def check(self, model: Model) -> None:
        super().check(model)
        if not memory_length(model):
            raise ValueError(
                f"this {type(model).__name__} has no memory, so it cannot carry anything from segment to segment; use "
                "the objective next_word, or a Transformer-XL with a mem_len of at least 1"
            )

    def begin(self, model: Model, sequences: int) -> None:
        """An empty memory for every lane."""
        self.memory = {str(index): array for index, array in enumerate(empty_memory(model, sequences))}

    def loss(self, model: Model, batch: Batch, run: Run, count: Mapping[str, int]) -> dict[str, Part]:
        """Reads and writes the memory of the lanes in this batch only, so that threads do not meet."""
        lanes = self._lanes(batch)
        memory = [array[lanes] for array in self.memory.values()]
        inputs = self._remembering(model, batch, memory)
        cache = self._forward(model, batch, inputs, run, count)
        for array, new in zip(self.memory.values(), cache.encoded.memory, strict=True):
            array[lanes] = new
        parts = {name: part_of(*entropy) for name, entropy in cache.parts().items()}
        model.loss_backward(cache, run=run)
        return parts

    def predictions(self, model: Model, batch: Batch, run: Run) -> dict[str, Predictions]:
        """The segments of each lane one after the other, with a memory of their own."""
        lanes, memory, found = self._lanes(batch), None, []
        for piece in _segments(batch, len(np.unique(lanes))):
            count = len(piece.targets)  # may be 0; the segment is still remembered
            memory = empty_memory(model, len(piece.input_ids)) if memory is None else memory
            inputs = self._remembering(model, piece, memory)
            cache = self._forward(model, piece, inputs, run, {NEXT_WORD: max(count, 1)})
            memory = [part.copy() for part in cache.encoded.memory]  # they may be views of the cache, which is freed
            found += [predictions_of(*entropy) for entropy in cache.parts().values() if count]
            del cache  # before the next one is computed
        if not found:
            return {}
        losses, *arrays = zip(*found, strict=True)
        return {NEXT_WORD: Predictions(math.fsum(losses), *(np.concatenate(parts) for parts in arrays))}

    def _remembering(self, model: Model, batch: Batch, memory: list[np.ndarray]) -> Inputs:
        """The inputs, with a memory that is empty where a lane begins anew.        memory: arrays (B,M,H)"""
        assert batch.starts is not None
        for array in memory:
            array[batch.starts] = 0
        return self._inputs(model, batch)._replace(memory=memory)

    def _lanes(self, batch: Batch) -> np.ndarray:
        if batch.lanes is None:
            raise ValueError("a batch has no lanes, so nothing says which sequence continues which; see data/lanes.py")
        return batch.lanes

    @classmethod
    def sizes(cls, model: Sizes, **options: Any) -> Sizes:
        return super().sizes(model)._replace(carried=model.depth * model.more.memory * model.width)

    @property
    def summary(self) -> str:
        return f"{super().summary} It remembers the hidden states of the segment before."


def memory_length(model: Model) -> int:
    """The number of tokens that a model remembers."""
    return getattr(model.config, "mem_len", None) or 0


def empty_memory(model: Model, sequences: int) -> list[np.ndarray]:
    """What a model remembers before the first segment: zeros, (B,M,H) for each block."""
    return [np.zeros((sequences, memory_length(model), model.width), model.dtype) for _ in range(model.depth)]


def _segments(batch: Batch, width: int) -> list[Batch]:
    """A batch for evaluation, first the first segment of every lane and so on, as one batch for each such row."""
    B, T = batch.input_ids.shape
    pieces = []
    for low in range(0, B, width):
        own = slice(low, low + width)
        mask, types, lanes, starts = (None if array is None else array[own] for array in batch[3:])
        if batch.rows is None:
            rows, targets = None, batch.targets[low * T : (low + width) * T]
        else:
            first, last = np.searchsorted(batch.rows, [low * T, (low + width) * T])
            rows, targets = batch.rows[first:last] - low * T, batch.targets[first:last]
        pieces.append(Batch(batch.input_ids[own], targets, rows, mask, types, lanes, starts))
    return pieces
