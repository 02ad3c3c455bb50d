"""A model that is served: what requests need of it, as functions that read texts and compute batches.

served = Served.load("sentiment", "runs/sentiment")
rows = served.rows(["a text"])              ids, cut to what the model reads
served.vectors(rows)                        a batch; served.token_vectors, served.gaps, served.task_results, …
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from mini_bert.common.inputs import check_finite
from mini_bert.common.json_values import read_object
from mini_bert.export.engine import with_engine
from mini_bert.files.model_folder import locate
from mini_bert.finetuning.model import is_tuned
from mini_bert.finetuning.model import load as load_fine_tuned
from mini_bert.finetuning.tasks.base import Item
from mini_bert.inference.embed import POOLING, pooling_in, sparse_vectors, token_vectors, vectors_of
from mini_bert.inference.fill_mask import gap_probabilities
from mini_bert.inference.loading import for_masked_words, load
from mini_bert.layers.base import Run
from mini_bert.models.base import MASKED_WORDS, NEXT_WORD, Model
from mini_bert.serving.failures import Failure
from mini_bert.text.base import Tokenizer


class Served:
    """A model with its tokenizer. task: of a fine-tuned model; filler: the model that fills gaps, if there is one"""

    def __init__(
        self,
        name: str,
        model: Model,
        task: Any,
        tokenizer: Tokenizer,
        length: int | None = None,
        pooling: Sequence[str] = ("mean",),
        prompts: dict[str, str] | None = None,
        filler: Any = None,
    ):
        self.name, self.model, self.tokenizer, self.task, self.filler = name, model, tokenizer, task, filler
        self.length = length or model.max_length
        self.pooling, self.prompts = tuple(pooling), prompts or {}
        self.loaded = int(time.time())
        self.writes = NEXT_WORD in model.output_heads

    @classmethod
    def load(cls, name: str, source: str, engine: str = "numpy", pooling: str | None = None) -> Served:
        """Load a model folder, and compute a vector: weights that are not finite are an error now, not later."""
        if pooling is not None and pooling not in POOLING:
            raise ValueError(f"pooling is {pooling!r}, expected one of {', '.join(POOLING)}")
        folder = locate(source)
        if is_tuned(folder):
            served = cls(name, *load_fine_tuned(folder))
            served.pooling = getattr(served.task, "pooling", served.pooling)  # not as sentence-transformers says it
        else:
            model, tokenizer = load(folder)
            filler = for_masked_words(model, folder)
            served = cls(name, model, None, tokenizer)
            served.filler = filler if MASKED_WORDS in filler.output_heads else None
            if pooling is None:
                pooling = pooling_in(folder)
        for one in {id(one): one for one in (served.model, served.filler) if one is not None}.values():
            with_engine(one, engine, threads=1)  # batches run side by side
        settings = folder / "config_sentence_transformers.json"
        served.prompts = read_object(settings).get("prompts", {}) if settings.is_file() else {}
        if pooling is not None:
            served.pooling = (pooling,)
        served.vectors(served.trial())
        return served

    # ------------------------------------------------------------------ reading

    def rows(
        self, inputs: Sequence[str | list[int]], truncate: bool = True, side: str = "right", prompt: str | None = None
    ) -> list[list[int]]:
        """The ids of texts, without special tokens, none empty or too long. A text may be given as ids."""
        start = self.prompt(prompt)
        texts = iter(self.tokenizer.ids([start + one for one in inputs if isinstance(one, str)], special=False))
        rows = [next(texts) if isinstance(one, str) else self.given(one) for one in inputs]
        room = self.model.max_length - self.tokenizer.added_count()
        for number, row in enumerate(rows):
            if not row:
                raise Failure("Empty", f"input {number + 1} of {len(rows)} has no words; leave it out")
            if len(row) > room and not truncate:
                given = len(row) + self.tokenizer.added_count()
                raise too_many_tokens(self.model.max_length, given)
            if len(row) > room:
                rows[number] = row[-room:] if side == "left" else row[:room]
        return rows

    def trial(self) -> list[list[int]]:
        """A row to try the model with, whatever its vocabulary"""
        return [[next(i for i in range(self.tokenizer.vocab_size) if i not in self.tokenizer.special_ids)]]

    def prompt(self, name: str | None) -> str:
        if name is not None and name not in self.prompts:
            known = ", ".join(self.prompts) or "none"
            raise Failure("Validation", f"this model has no prompt {name!r:.60}; it has {known}")
        return "" if name is None else self.prompts[name]

    def given(self, ids: list[int]) -> list[int]:
        """Ids that a client gave: those of /tokenize with special tokens around them, or without."""
        if not all(0 <= i < self.tokenizer.vocab_size for i in ids):
            raise Failure("Validation", f"token ids are from 0 to {self.tokenizer.vocab_size - 1}, got {ids!r:.60}")
        before, after = (list(group) for group in self.tokenizer.template().ids)
        if before + after and ids[: len(before)] == before and ids[len(ids) - len(after) :] == after:
            return ids[len(before) : len(ids) - len(after)]
        return list(ids)

    def lengths(self, rows: Sequence[Sequence[int]]) -> list[int]:
        """How many tokens the model reads for each row"""
        added = self.tokenizer.added_count()
        return [len(row) + added for row in rows]

    def items(self, examples: Sequence[Any]) -> list[Item]:
        return self.task.items(examples, self.tokenizer, self.length, training=False)

    # ------------------------------------------------------------------ computing a batch

    def vectors(self, rows: Sequence[Sequence[int]]) -> np.ndarray:
        """(B,H)"""
        vectors = vectors_of(self.model, self.tokenizer, rows, *self.pooling)
        check_finite(vectors, "the vectors of these texts")
        return vectors

    def token_vectors(self, rows: Sequence[Sequence[int]]) -> list[np.ndarray]:
        """(T,H) each"""
        return _finite(token_vectors(self.model, self.tokenizer, rows), "the vectors of these texts")

    def sparse(self, rows: Sequence[Sequence[int]]) -> list[np.ndarray]:
        """(V,) each"""
        return _finite(sparse_vectors(self.filler, self.tokenizer, rows), "the vectors of these texts")

    def gaps(self, rows: Sequence[Sequence[int]]) -> list[np.ndarray]:
        """(gaps,V) each"""
        return gap_probabilities(self.filler, self.tokenizer, rows)

    def task_results(self, items: Sequence[Item]) -> Sequence[Any]:
        """The answer of a task to each item; of a classifier, scores before the softmax."""
        batch = self.task.batch(items, self.tokenizer.padding, known=False)
        return getattr(self.task, "logits", self.task.answers)(self.model, batch, Run())


def _finite(arrays: list[np.ndarray], what: str) -> list[np.ndarray]:
    for array in arrays:
        check_finite(array, what)
    return arrays


def too_many_tokens(most: int, given: int) -> Failure:
    return Failure("Validation", f"Input validation error: `inputs` must have less than {most} tokens. Given: {given}")
