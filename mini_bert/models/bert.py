"""BERT as published by Devlin et al. (2018). Reads and writes published checkpoints.

    x = LayerNorm(E[ids] + P[:T] + S[types])              S: first or second sentence
    x = block_l(x)          l = 1 … L                     biased attention, GELU
    pooled = tanh(x[:,0] W + b)                           the vector of [CLS], for tasks on whole sentences
    mlm    = LayerNorm(gelu(x W + b)) Eᵀ + b              which word belongs here? E: the token table again (tied)
    next   = pooled W + b                                 does the second sentence follow the first?

The differences from Mini-BERT (models/mini.py): token types and a norm at the embeddings, biases in attention, GELU,
no norm after the last block, a pooler, and the heads of published checkpoints. A checkpoint may have all, some or none
of the heads; a `Bert` loaded from it has the same ones.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from mini_bert.common.inputs import check_ids
from mini_bert.layers.activations import activation, tanh, tanh_backward
from mini_bert.layers.base import Layer
from mini_bert.layers.block import TransformerBlock
from mini_bert.layers.dropout import dropout, dropout_backward
from mini_bert.layers.embedding import Embedding, PositionEmbedding
from mini_bert.layers.encoder import Encoder
from mini_bert.layers.initialisers import normal
from mini_bert.layers.layer_norm import LayerNorm, LayerNormCache
from mini_bert.layers.linear import Linear, TiedLinear
from mini_bert.models.base import MASKED_WORDS, NEXT_SENTENCE, POOLER, Model
from mini_bert.models.published import ENCODER, PublishedConfig
from mini_bert.models.saving import Name, linear_names, norm_names
from mini_bert.models.sizes import Sizes, block_parameters, inner_arrays


@dataclass(frozen=True)
class BertConfig(PublishedConfig):
    """The fields of a published `config.json` that affect the results; the defaults are those of BERT-base, uncased."""

    model_type: ClassVar[str] = "bert"
    name: ClassVar[str] = "BERT"
    only: ClassVar[Mapping[str, Any]] = {**ENCODER, "position_embedding_type": "absolute"}

    vocab_size: int = 30522
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    intermediate_size: int = 3072
    hidden_act: str = "gelu"
    hidden_dropout_prob: float = 0.1
    attention_probs_dropout_prob: float = 0.1
    max_position_embeddings: int = 512
    type_vocab_size: int = 2
    initializer_range: float = 0.02
    layer_norm_eps: float = 1e-12
    tie_word_embeddings: bool = True

    def check(self) -> None:
        activation(self.hidden_act)

    def sizes(self) -> Sizes:
        V, H, L, T, inner = self.vocab_size, self.width, self.depth, self.max_length, self.intermediate_size
        parameters = (V + T + self.type_vocab_size) * H + 2 * H + L * (block_parameters(H, inner) + 4 * H)
        parameters += 2 * (H * H + H) + 2 * H + V + (0 if self.tie_head else H * V) + 2 * H + 2  # pooler and heads
        kept, temporary = inner_arrays(self.hidden_act)
        return Sizes(self.name, V, H, L, self.heads, inner, T, parameters, self.tie_head, self.hidden_dropout_prob > 0,
                     self.attention_probs_dropout_prob > 0, True, kept, temporary, 3 + min(kept, 2))  # fmt: skip


PRESET = BertConfig(
    vocab_size=8192,
    hidden_size=192,
    num_hidden_layers=3,
    num_attention_heads=4,
    intermediate_size=768,
    max_position_embeddings=64,
)


class Pooler(Layer):
    """pooled = tanh(x[:,0] W + b)        x (B,T,H) -> (B,H)"""

    def __init__(self, width: int, std: float):
        self.dense = Linear(width, width, std=std)

    def forward(self, x, run):
        h, dense = self.dense.forward(x[:, 0], run)
        y, activated = tanh(h)
        return y, (x.shape, dense, activated)

    def backward(self, dy, cache, run):
        shape, dense, activated = cache
        dx = np.zeros(shape, dy.dtype)
        dx[:, 0] = self.dense.backward(tanh_backward(dy, activated), dense, run)
        return dx


class MaskedWordHead(Layer):
    """logits = LayerNorm(f(x W + b)) Eᵀ + b        x (...,H) -> (...,V)"""

    def __init__(self, config: BertConfig, table):
        width = config.hidden_size
        self.dense = Linear(width, width, std=config.initializer_range)
        self.activation = activation(config.hidden_act)
        self.norm = LayerNorm(width, config.layer_norm_eps)
        self.decoder = (
            TiedLinear(table)
            if config.tie_word_embeddings
            else Linear(width, config.vocab_size, std=config.initializer_range)
        )

    def forward(self, x, run):
        h, dense = self.dense.forward(x, run)
        a, activated = self.activation.forward(h)
        n, norm = self.norm.forward(a, run)
        logits, decoder = self.decoder.forward(n, run)
        return logits, (dense, activated, norm, decoder)

    def backward(self, dlogits, cache, run):
        dense, activated, norm, decoder = cache
        dn = self.decoder.backward(dlogits, decoder, run)
        da = self.norm.backward(dn, norm, run)
        dh = self.activation.backward(da, activated)
        return self.dense.backward(dh, dense, run)


class EmbeddingCache(NamedTuple):
    types: np.ndarray  # (B,T)
    length: int
    norm: LayerNormCache
    dropped: Any


class Bert(Model):
    """Published BERT with a choice of heads."""

    model_type, config_class, family = "bert", BertConfig, "Bert"
    prefix, head_prefixes = "bert.", ("cls.", "classifier.", "qa_outputs.")
    task_heads: ClassVar = {
        "ForSequenceClassification": {"dense": "pooler.dense", "linear": "classifier"},
        "ForTokenClassification": {"linear": "classifier"},
        "ForQuestionAnswering": {"linear": "qa_outputs"},
    }
    task_start: ClassVar = {"task.dense": "pooler.dense"}
    embedding_parts = ("tokens", "positions", "types", "norm")
    head_shapes: ClassVar = {MASKED_WORDS: "(B,T,V)", POOLER: "(B,H)", NEXT_SENTENCE: "(B,2)"}
    head_inputs: ClassVar = {NEXT_SENTENCE: POOLER}
    head_help: ClassVar = {
        MASKED_WORDS: "no head for masked words: it was published without one, for sentence vectors or other tasks; "
        "try `mini-bert embed`, load a masked language model, or build one with Bert(config, masked_words=True)",
        NEXT_SENTENCE: "no next-sentence head: build it with Bert(config, next_sentence=True), or load a "
        "BertForPreTraining",
        POOLER: "no pooler: build it with Bert(config, pooler=True)",
    }

    def __init__(
        self,
        config: BertConfig,
        pooler: bool = True,
        masked_words: bool = True,
        next_sentence: bool = True,
        seed: int | None = 0,
        dtype: Any = np.float32,
    ):
        if next_sentence and not pooler:
            raise ValueError("the next-sentence head reads the pooled vector: it needs pooler=True")
        self.config = config
        width, std = config.hidden_size, config.initializer_range
        self.tokens = Embedding(config.vocab_size, width, std)
        self.positions = PositionEmbedding(config.max_position_embeddings, width, normal(std))
        self.types = Embedding(config.type_vocab_size, width, std)
        self.norm = LayerNorm(width, config.layer_norm_eps)
        self.encoder = Encoder(
            [
                TransformerBlock(
                    width,
                    config.num_attention_heads,
                    config.intermediate_size,
                    config.hidden_act,
                    p=config.hidden_dropout_prob,
                    attention_p=config.attention_probs_dropout_prob,
                    eps=config.layer_norm_eps,
                    std=std,
                )
                for _ in range(config.num_hidden_layers)
            ]
        )
        self.pooler = Pooler(width, std) if pooler else None
        self.masked_words = MaskedWordHead(config, self.tokens.table) if masked_words else None
        self.next_sentence = Linear(width, 2, std=std) if next_sentence else None
        self._own_memory(seed, dtype)

    @classmethod
    def build(cls, config, heads=(MASKED_WORDS, POOLER, NEXT_SENTENCE), seed=0, dtype=np.float32):
        follows = NEXT_SENTENCE in heads
        return cls(config, follows or POOLER in heads, MASKED_WORDS in heads, follows, seed, dtype)

    @property
    def word_bias(self):
        return self.masked_words and self.masked_words.decoder.b

    # ------------------------------------------------------------------ embeddings

    def check_types(self, token_types, ids):
        if token_types is None:
            return np.zeros_like(ids)
        types = check_ids(token_types, self.config.type_vocab_size, self.max_length, "token_types")
        if types.shape != ids.shape:
            raise ValueError(f"token_types has shape {types.shape}, expected {ids.shape}, the shape of input_ids")
        return types

    def embed(self, inputs, run):  # ids, types (B,T) -> (B,T,H)
        types = np.zeros_like(inputs.ids) if inputs.types is None else inputs.types
        x, _ = self.tokens.forward(inputs.ids, run)
        x, length = self.positions.forward(x, run)
        s, _ = self.types.forward(types, run)
        x, norm = self.norm.forward(x + s, run)
        x, dropped = dropout(x, self.config.hidden_dropout_prob, run)
        return x, EmbeddingCache(types, length, norm, dropped)

    def embed_backward(self, dx, inputs, cache, run):
        dx = dropout_backward(dx, cache.dropped)
        dx = self.norm.backward(dx, cache.norm, run)
        self.types.backward(dx, cache.types, run)
        self.positions.backward(dx, cache.length, run)
        self.tokens.backward(dx, inputs.ids, run)
        return dx

    def more_arrays(self, embedding, final):
        return {"embedding_norm": embedding.norm.x_hat}

    # ------------------------------------------------------------------ files

    @classmethod
    def heads_in(cls, values, tensors):
        pooler = "pooler.dense.weight" in tensors
        held = {
            MASKED_WORDS: "cls.predictions.transform.dense.weight" in tensors,
            POOLER: pooler,
            NEXT_SENTENCE: pooler and "cls.seq_relationship.weight" in tensors,
        }
        return [head for head, is_held in held.items() if is_held]

    @classmethod
    def canonical(cls, name: str) -> str:
        """Files differ in the prefix `bert.`, and call γ and β `gamma` and `beta` or `weight` and `bias`."""
        name = name.removeprefix("bert.")
        return name.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias")

    def reconcile(self, tensors, table, source):
        tied = self.config.tie_word_embeddings
        if not tied and "cls.predictions.bias" in tensors:  # older files have only this name
            tensors.setdefault("cls.predictions.decoder.bias", tensors["cls.predictions.bias"])
        names = ("cls.predictions.decoder.weight", "embeddings.word_embeddings.weight")
        copies = [tensors[name] for name in names if name in tensors]
        if tied and len(copies) == 2 and not np.array_equal(copies[0], copies[1]):
            warnings.warn(
                f"{source}: config.json says that the head shares the token table, so the file's own matrix for the "
                'head is not used; to use it, set "tie_word_embeddings": false there',
                stacklevel=4,
            )
        used = {name for entry in table for name in entry.theirs}
        return sorted(set(tensors) - used - _DERIVED)

    def file_tensors(self, task=""):
        tensors = super().file_tensors(task)
        if "cls.predictions.decoder.bias" in tensors:
            tensors["cls.predictions.bias"] = tensors["cls.predictions.decoder.bias"].copy()  # files carry both names
        return tensors

    def file_config(self) -> dict[str, Any]:
        architecture = {
            (True, True): "BertForPreTraining",
            (True, False): "BertForMaskedLM",
            (False, True): "BertForNextSentencePrediction",
            (False, False): "BertModel",
        }[bool(self.masked_words), bool(self.next_sentence)]
        return {"model_type": "bert", "architectures": [architecture], **asdict(self.config)}

    def names(self) -> list[Name]:
        """The table of published tensor names and ours, for loading and saving."""
        names = [
            Name("tokens.table", ("embeddings.word_embeddings.weight",)),
            Name("positions.table", ("embeddings.position_embeddings.weight",)),
            Name("types.table", ("embeddings.token_type_embeddings.weight",)),
            *norm_names("norm", "embeddings.LayerNorm"),
        ]
        parts = ("query", "key", "value")
        for index in range(self.config.num_hidden_layers):
            ours, theirs = f"encoder.blocks.{index}", f"encoder.layer.{index}"
            names += [
                *linear_names(f"{ours}.attention.qkv", *(f"{theirs}.attention.self.{part}" for part in parts)),
                *linear_names(f"{ours}.attention.output", f"{theirs}.attention.output.dense"),
                *norm_names(f"{ours}.attention_norm", f"{theirs}.attention.output.LayerNorm"),
                *linear_names(f"{ours}.feed_forward.expand", f"{theirs}.intermediate.dense"),
                *linear_names(f"{ours}.feed_forward.contract", f"{theirs}.output.dense"),
                *norm_names(f"{ours}.output_norm", f"{theirs}.output.LayerNorm"),
            ]  # fmt: skip
        if self.pooler:
            names += linear_names("pooler.dense", "pooler.dense")
        if self.masked_words:
            names += linear_names("masked_words.dense", "cls.predictions.transform.dense")
            names += norm_names("masked_words.norm", "cls.predictions.transform.LayerNorm")
            if self.config.tie_word_embeddings:
                names += [Name("masked_words.decoder.b", ("cls.predictions.bias",))]
            else:
                names += linear_names("masked_words.decoder", "cls.predictions.decoder")
        if self.next_sentence:
            names += linear_names("next_sentence", "cls.seq_relationship")
        return names


_DERIVED = {  # redundant tensors in files: copies of tied ones, and the positions 0, 1, 2, …
    "cls.predictions.decoder.weight",
    "cls.predictions.decoder.bias",
    "cls.predictions.bias",
    "embeddings.position_ids",
}
