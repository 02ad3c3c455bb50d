"""Tiny models of BERT's relatives and of DeBERTa, for several tests: every dimension is different."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from mini_bert.models.albert import Albert, AlbertConfig
from mini_bert.models.base import MASKED_WORDS, POOLER, REPLACED, SENTENCE_ORDER, Model
from mini_bert.models.deberta import Deberta, DebertaConfig
from mini_bert.models.deberta_v2 import DebertaV2, DebertaV2Config
from mini_bert.models.distilbert import DistilBert, DistilBertConfig
from mini_bert.models.electra import Electra, ElectraConfig
from mini_bert.models.loss import Term
from mini_bert.models.roberta import Roberta, RobertaConfig

B, T, V = 3, 7, 31
SIZES: dict[str, Any] = {
    "vocab_size": V, "hidden_size": 10, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 13,
    "type_vocab_size": 2, "initializer_range": 0.3,
}  # fmt: skip
GENERATOR = {"hidden_size": 6, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 17}

ROBERTA = RobertaConfig(**SIZES, max_position_embeddings=13)
DISTILBERT = DistilBertConfig(V, 11, n_layers=3, n_heads=2, dim=10, hidden_dim=13, initializer_range=0.3)
ALBERT = AlbertConfig(
    **SIZES | {"num_hidden_layers": 2}, embedding_size=5, num_hidden_groups=2, inner_group_num=2,
    max_position_embeddings=11, hidden_dropout_prob=0.1, attention_probs_dropout_prob=0.1,
)  # fmt: skip
SHARED = AlbertConfig(**SIZES, embedding_size=5, max_position_embeddings=11)  # one block, three times
ELECTRA = ElectraConfig(**SIZES, embedding_size=5, max_position_embeddings=11)
PAIR = ElectraConfig(**SIZES, embedding_size=5, max_position_embeddings=11, generator=GENERATOR)

# name -> config, class, the heads that it is trained with
MODELS: dict[str, tuple[Any, type[Any], tuple[str, ...]]] = {
    "roberta": (ROBERTA, Roberta, (MASKED_WORDS,)),
    "distilbert": (DISTILBERT, DistilBert, (MASKED_WORDS,)),
    "albert": (ALBERT, Albert, (MASKED_WORDS, POOLER, SENTENCE_ORDER)),
    "albert, one block": (SHARED, Albert, (MASKED_WORDS,)),
    "electra": (ELECTRA, Electra, (REPLACED,)),
    "electra, generator": (ELECTRA, Electra, (MASKED_WORDS,)),
}
BOTH: dict[str, Any] = {"max_position_embeddings": 11, "relative_attention": True, "pos_att_type": ("c2p", "p2c")}
ALONE: dict[str, Any] = {"type_vocab_size": 0, "position_biased_input": False}
V1 = DebertaConfig(**SIZES, **BOTH, max_relative_positions=4, embedding_size=5)
V2 = DebertaV2Config(
    **SIZES | ALONE, **BOTH, position_buckets=4, norm_rel_ebd="layer_norm", conv_kernel_size=3, conv_groups=2
)
V3 = replace(V2, conv_kernel_size=0, share_att_key=True, legacy=False)
DEBERTA_PAIR = replace(V3, embedding_size=5, legacy=True, generator=GENERATOR)

DEBERTAS: dict[str, tuple[Any, type[Any], tuple[str, ...]]] = {
    "v1": (V1, Deberta, (MASKED_WORDS,)),
    "v1, one term": (replace(V1, pos_att_type=("p2c",), embedding_size=None), Deberta, (MASKED_WORDS,)),
    "v1, talking": (replace(V1, talking_head=True), Deberta, (MASKED_WORDS,)),
    "v1, without distances": (replace(V1, relative_attention=False), Deberta, (MASKED_WORDS,)),
    "v2": (V2, DebertaV2, (MASKED_WORDS,)),
    "v3": (V3, DebertaV2, (MASKED_WORDS, REPLACED)),
    "v3, discriminator": (V3, DebertaV2, (REPLACED,)),
}
EVERY = MODELS | DEBERTAS
PAIRS: dict[str, tuple[Any, type[Any]]] = {"electra": (PAIR, Electra), "deberta": (DEBERTA_PAIR, DebertaV2)}
IDS = np.random.default_rng(0).integers(2, V, (B, T))
MASK = np.arange(T) < np.array([[7], [5], [4]])
TYPES = np.array([[0] * 3 + [1] * 4, [0] * 2 + [1] * 3 + [0] * 2, [0] * 7])


def build(name: str, dtype: Any = np.float64, **options: Any) -> Model:
    config, kind, heads = EVERY[name]
    return kind(config, heads, dtype=dtype, **options)


def scattered(model: Any, seed: int = 0) -> Any:
    """Weights away from their initial values, where mistakes in biases and norms could hide"""
    model.flat.data[...] += 0.2 * np.random.default_rng(seed).normal(size=model.flat.data.size).astype(model.dtype)
    return model


def terms_of(model: Model) -> list[Term]:
    """What the model is trained on"""
    rng, heads = np.random.default_rng(1), model.output_heads
    rows = np.array([1, 3, 4, 8, 15])
    terms = [Term(MASKED_WORDS, rows, rng.integers(0, V, rows.size))] if MASKED_WORDS in heads else []
    if SENTENCE_ORDER in heads:
        terms.append(Term(SENTENCE_ORDER, np.arange(B) * T, np.array([0, 1, 1])))
    if REPLACED in heads:
        real = np.flatnonzero(MASK)
        terms.append(Term(REPLACED, real, rng.integers(0, 2, real.size), weight=50.0))
    return terms


def gradient(model: Any, run: Any = None) -> tuple[float, np.ndarray]:
    """The loss and all gradients"""
    model.zero_grad()
    inputs = model.check_inputs(IDS, MASK, TYPES)
    loss, cache = model.loss_of(inputs, terms_of(model), run)
    model.loss_backward(cache, run=run)
    return float(loss), model.flat.grad.copy()
