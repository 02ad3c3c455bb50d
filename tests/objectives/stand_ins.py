"""Tiny models and texts for the tests of objectives."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mini_bert.checks.gradients import gradient_check
from mini_bert.layers.base import Run
from mini_bert.layers.linear import Linear
from mini_bert.models.base import MASKED_WORDS, NEXT_WORD, REPLACED
from mini_bert.models.bert import Bert, BertConfig

V = 19
CONFIG = BertConfig(V, 6, 2, 2, 11, max_position_embeddings=11, initializer_range=0.5)


class Causal(Bert):
    """BERT that looks back only and predicts the next word."""

    head_shapes = {NEXT_WORD: "(B,T,V)"}  # noqa: RUF012
    objective = "next_word"

    def __init__(self, config=CONFIG, seed=0, dtype=np.float64):
        super().__init__(config, output_heads=(), seed=None, dtype=dtype)
        self.next_word = Linear(config.hidden_size, config.vocab_size, std=0.5)
        self._own_memory(seed, dtype)

    def encoder_inputs(self, inputs):
        T = inputs.ids.shape[1]
        seen = np.tri(T, dtype=bool)
        return {"mask": seen if inputs.mask is None else seen & inputs.mask}


@dataclass(frozen=True)
class RememberingConfig(BertConfig):
    mem_len: int = 3


class Remembering(Causal):
    """Adds the mean of the memory of each block to its embeddings, so that all of it matters."""

    objective = "next_word_with_memory"

    def encode_inputs(self, inputs, run, chosen=None):
        hidden, cache = super().encode_inputs(inputs, run, chosen)
        M = self.config.mem_len
        cache.memory = [np.concatenate([old, block.input], 1)[:, -M:] for old, block in zip(
            inputs.memory, cache.blocks, strict=True)]  # fmt: skip
        return hidden, cache

    def embed(self, inputs, run):
        x, cache = super().embed(inputs, run)
        for part in inputs.memory:
            x = x + part.mean(1, keepdims=True)
        return x, cache


class Pair(Bert):
    """A discriminator and, inside, a smaller generator."""

    head_shapes = {REPLACED: "(B,T,1)"}  # noqa: RUF012
    objective = "replaced_tokens"

    def __init__(self, config=CONFIG, seed=0, dtype=np.float64):
        super().__init__(config, output_heads=(), seed=None, dtype=dtype)
        self.replaced = Linear(config.hidden_size, 1, std=0.5)
        self.generator = Bert(
            BertConfig(V, 4, 1, 2, 5, max_position_embeddings=11, initializer_range=0.5), (MASKED_WORDS,), None, dtype
        )
        self._own_memory(seed, dtype)


def check_gradients(model, objective, batch, entries=3, reset=lambda: None, weigh=None, skip=()):
    """Every gradient that `loss` adds, against finite differences of the sum of the parts.

    weigh: the weights of the parts in that sum; reset: restores what `loss` changes; skip: tensors to leave out
    """
    count = objective.size(batch).targets

    def loss():
        reset()
        parts = objective.loss(model, batch, Run(0, train=True), count)
        return sum((weigh or {}).get(name, 1.0) * part.loss for name, part in parts.items())

    model.zero_grad()
    loss()
    params = {name: param for name, param in model.named_params().items() if name not in skip}
    gradients = {name: param.grad.copy() for name, param in params.items()}
    checked = gradient_check(loss, {name: param.data for name, param in params.items()}, gradients, entries)
    for row in checked:
        assert row.passed(1e-6), row
    return checked
