"""BERT as published by Devlin et al. (2018), able to read and write the checkpoints that people have.

    x = LayerNorm(E[ids] + P[:T] + S[types])              S: first or second sentence
    x = block_l(x)          l = 1 … L                     biased attention, GELU
    pooled = tanh(x[:,0] W + b)                           the vector of [CLS], for whole-sentence questions
    mlm    = LayerNorm(gelu(x W + b)) Eᵀ + b              which word stands here? E: the token table again (tied)
    next   = pooled W + b                                 does the second sentence follow the first?

The difference from Mini-BERT (models/mini_bert.py): token types and a norm at the embeddings, biases in attention,
GELU, no norm after the last block, a pooler, and heads that published checkpoints carry. A checkpoint has some of the
heads or none; a `Bert` has just those.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, NamedTuple, Self

import numpy as np

from mini_bert.common.inputs import check_ids, check_mask, check_rows
from mini_bert.common.values import check_heads, check_positive, check_probability
from mini_bert.files.model_folder import Name, assign, read_folder, write_folder
from mini_bert.layers.activations import activation, tanh, tanh_backward
from mini_bert.layers.base import Layer
from mini_bert.layers.block import TransformerBlock
from mini_bert.layers.cross_entropy import cross_entropy, cross_entropy_backward
from mini_bert.layers.dropout import dropout, dropout_backward
from mini_bert.layers.embedding import Embedding, PositionEmbedding
from mini_bert.layers.encoder import Encoder
from mini_bert.layers.initialisers import normal
from mini_bert.layers.layer_norm import LayerNorm
from mini_bert.layers.linear import Linear, TiedLinear
from mini_bert.models.base import Model


@dataclass(frozen=True)
class BertConfig:
    """The fields of a published `config.json` that change what is computed; the defaults are BERT-base, uncased."""

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
    pad_token_id: int = 0
    tie_word_embeddings: bool = True

    def __post_init__(self) -> None:
        for name in (
            "vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size",
            "max_position_embeddings", "type_vocab_size",
        ):  # fmt: skip
            check_positive(name, getattr(self, name))
        check_heads(self.hidden_size, self.num_attention_heads)
        check_probability("hidden_dropout_prob", self.hidden_dropout_prob)
        check_probability("attention_probs_dropout_prob", self.attention_probs_dropout_prob)
        activation(self.hidden_act)
        for name in ("layer_norm_eps", "initializer_range"):
            value = getattr(self, name)
            if not isinstance(value, int | float) or not value > 0:
                raise ValueError(f"{name} is {value!r}, expected a small positive number")

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> BertConfig:
        """From a published `config.json`, which holds much else; what would change the result is refused."""
        model_type = values.get("model_type", "bert")  # the first configs did not say
        if model_type != "bert":
            hint = "; MiniBERT.from_pretrained reads that folder" if model_type == "mini_bert" else ""
            raise ValueError(f"config.json has model_type {model_type!r}, expected 'bert'{hint}")
        if values.get("position_embedding_type", "absolute") != "absolute":
            raise ValueError(
                f"position_embedding_type {values['position_embedding_type']!r} is not BERT's; expected 'absolute'"
            )
        if values.get("is_decoder") or values.get("add_cross_attention"):
            raise ValueError("config.json describes a decoder (is_decoder, add_cross_attention); expected an encoder")
        known = {field.name for field in fields(cls)}
        return cls(**{name: value for name, value in values.items() if name in known and value is not None})


class Pooler(Layer):
    """pooled = tanh(x[:,0] W + b)        x (B,T,H) -> (B,H)"""

    def __init__(self, width: int, std: float):
        self.dense = Linear(width, width, std=std)

    def forward(self, x, run):
        h, dense = self.dense.forward(x[:, 0], run)
        y, tanned = tanh(h)
        return y, (x.shape, dense, tanned)

    def backward(self, dy, cache, run):
        shape, dense, tanned = cache
        dx = np.zeros(shape, dy.dtype)
        dx[:, 0] = self.dense.backward(tanh_backward(dy, tanned), dense, run)
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


class EncodeCache(NamedTuple):
    ids: np.ndarray
    types: np.ndarray
    length: int
    norm: Any
    dropped: Any
    blocks: list[Any]


class BertOutput(NamedTuple):
    """What forward computes, and in the same places what backward is told; None: this model has no such head."""

    hidden: Any  # (B,T,H)
    pooled: Any = None  # (B,H)
    masked_words: Any = None  # (B,T,V) logits
    next_sentence: Any = None  # (B,2) logits; index 0: it follows


class ForwardCache(NamedTuple):
    encoded: EncodeCache
    pooler: Any
    masked_words: Any
    next_sentence: Any


class LossCache(NamedTuple):
    encoded: EncodeCache
    masked_words: Any
    words_entropy: Any
    pooler: Any
    next_sentence: Any
    next_entropy: Any


class Bert(Model):
    """Published BERT with the heads that you ask for."""

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

    # ------------------------------------------------------------------ ids -> one vector per token

    def encode(self, input_ids, attention_mask=None, token_type_ids=None, run=None, chosen=None):
        """(B,T) -> x (B,T,H), or (N,H) for chosen rows only

        token_type_ids: 0 in the first sentence (default everywhere), 1 in the second.
        """
        run = run or self._new_run()
        config = self.config
        ids = check_ids(input_ids, config.vocab_size, config.max_position_embeddings)
        mask = check_mask(attention_mask, ids.shape)
        types = np.zeros_like(ids) if token_type_ids is None else token_type_ids
        types = check_ids(types, config.type_vocab_size, config.max_position_embeddings, "token_type_ids")
        if types.shape != ids.shape:
            raise ValueError(f"token_type_ids has shape {types.shape}, expected {ids.shape}, the shape of input_ids")
        x, _ = self.tokens.forward(ids, run)  # (B,T,H)
        x, length = self.positions.forward(x, run)
        s, _ = self.types.forward(types, run)
        x, norm = self.norm.forward(x + s, run)
        x, dropped = dropout(x, config.hidden_dropout_prob, run)
        x, blocks = self.encoder.forward(x, run, mask=mask, chosen=chosen)
        return x, EncodeCache(ids, types, length, norm, dropped, blocks)

    def encode_backward(self, dx, cache, run=None):
        """-> dx (B,T,H), the gradient that reaches the sum of the embeddings"""
        run = run or self.run
        dx = self.encoder.backward(dx, cache.blocks, run)
        dx = dropout_backward(dx, cache.dropped)
        dx = self.norm.backward(dx, cache.norm, run)
        self.types.backward(dx, cache.types, run)
        self.positions.backward(dx, cache.length, run)
        self.tokens.backward(dx, cache.ids, run)
        return dx

    # ------------------------------------------------------------------ every output

    def forward(self, input_ids, attention_mask=None, token_type_ids=None, run=None):
        """(B,T) -> BertOutput, cache"""
        run = run or self._new_run()
        hidden, encoded = self.encode(input_ids, attention_mask, token_type_ids, run)
        pooled, pooler = self.pooler.forward(hidden, run) if self.pooler else (None, None)
        words, masked = self.masked_words.forward(hidden, run) if self.masked_words else (None, None)
        follows, following = self.next_sentence.forward(pooled, run) if self.next_sentence else (None, None)
        return BertOutput(hidden, pooled, words, follows), ForwardCache(encoded, pooler, masked, following)

    def backward(self, dout: BertOutput, cache, run=None):
        """Gradients of the outputs (None: it does not enter the loss) -> dx (B,T,H) at the embeddings"""
        run = run or self.run
        self.encoder.check(cache.encoded.blocks)
        dhidden, dpooled = dout.hidden, dout.pooled
        if dout.next_sentence is not None:
            head = self._head("next_sentence")
            dpooled = _add(dpooled, head.backward(dout.next_sentence, cache.next_sentence, run))
        if dpooled is not None:
            dhidden = _add(dhidden, self._head("pooler").backward(dpooled, cache.pooler, run))
        if dout.masked_words is not None:
            head = self._head("masked_words")
            dhidden = _add(dhidden, head.backward(dout.masked_words, cache.masked_words, run))
        if dhidden is None:
            raise ValueError("all gradients are None: there is nothing to go backward from")
        return self.encode_backward(dhidden, cache.encoded, run)

    # ------------------------------------------------------------------ the two pretraining objectives

    def loss(
        self,
        input_ids,
        rows,
        targets,
        attention_mask=None,
        token_type_ids=None,
        next_sentence=None,
        run=None,
        count=None,
        sentences=None,
    ):
        """Masked words, plus next sentence where labels (B,) are given (0: follows, 1: does not) -> loss, cache

        Each is a mean: over `count` chosen rows and over `sentences` pairs. Unless given, these are the numbers in this
        batch; parts of a large batch that are given the numbers of the whole add up to its loss.
        """
        run = run or self._new_run()
        ids = check_ids(input_ids, self.config.vocab_size, self.config.max_position_embeddings)
        rows, targets = check_rows(rows, targets, ids.shape)
        B, T = ids.shape
        first = np.arange(0 if next_sentence is None else B) * T  # the pooler reads the first token of each sequence
        chosen = np.concatenate([rows, first])
        hidden, encoded = self.encode(ids, attention_mask, token_type_ids, run, chosen)  # (N,H), or (N+B,H)
        logits, masked_words = self._head("masked_words").forward(hidden[: rows.size], run)
        loss, words_entropy = cross_entropy(logits, targets, count)
        if next_sentence is None:
            return loss, LossCache(encoded, masked_words, words_entropy, None, None, None)
        head = self._head("next_sentence")
        pooled, pooler = self._head("pooler").forward(hidden[rows.size :, None], run)
        logits, following = head.forward(pooled, run)
        next_sentence = check_ids([next_sentence], 2, B, "next_sentence")[0]
        next_loss, next_entropy = cross_entropy(logits, next_sentence, sentences)
        return loss + next_loss, LossCache(encoded, masked_words, words_entropy, pooler, following, next_entropy)

    def loss_backward(self, cache, dloss: float = 1.0, run=None):
        """-> dx (B,T,H) at the embeddings; adds to every gradient"""
        run = run or self.run
        self.encoder.check(cache.encoded.blocks)
        dlogits = cross_entropy_backward(dloss, cache.words_entropy)
        dhidden = self._head("masked_words").backward(dlogits, cache.masked_words, run)
        if cache.next_entropy is not None:
            dlogits = cross_entropy_backward(dloss, cache.next_entropy)
            dpooled = self._head("next_sentence").backward(dlogits, cache.next_sentence, run)
            dfirst = self._head("pooler").backward(dpooled, cache.pooler, run)  # (B,1,H)
            dhidden = np.concatenate([dhidden, dfirst[:, 0]])
        return self.encode_backward(dhidden, cache.encoded, run)

    def _head(self, name: str) -> Layer:
        head = getattr(self, name)
        if head is None:
            raise ValueError(f"this Bert has no {name} head; build it with Bert(config, {name}=True)")
        return head

    # ------------------------------------------------------------------ files

    @classmethod
    def from_pretrained(cls, folder: str | os.PathLike[str], dtype: Any = np.float32) -> Self:
        """Read a published folder: `config.json` with `model.safetensors` or `pytorch_model.bin`.

        The model has the heads that the file has. Tensors of other heads are named in a warning and left out.
        """
        values, published = read_folder(folder)
        config = BertConfig.from_dict(values)
        published = {canonical(name): array for name, array in published.items()}
        model = cls(
            config,
            pooler="pooler.dense.weight" in published,
            masked_words="cls.predictions.transform.dense.weight" in published,
            next_sentence="cls.seq_relationship.weight" in published and "pooler.dense.weight" in published,
            seed=None,
            dtype=dtype,
        )
        if not config.tie_word_embeddings and "cls.predictions.bias" in published:  # older files have only this name
            published.setdefault("cls.predictions.decoder.bias", published["cls.predictions.bias"])
        names = ("cls.predictions.decoder.weight", "embeddings.word_embeddings.weight")
        copies = [published[name] for name in names if name in published]
        if config.tie_word_embeddings and len(copies) == 2 and not np.array_equal(copies[0], copies[1]):
            warnings.warn(
                f"{folder}: config.json says that the head shares the token table, so the other matrix that the file "
                'has for it is not used; if it should be, say "tie_word_embeddings": false there',
                stacklevel=2,
            )
        table = model.names()
        used = {name for entry in table for name in entry.theirs}
        absent = sorted(used - set(published))
        if absent:
            raise ValueError(f"{folder} lacks {', '.join(absent[:5])}{' and more' if len(absent) > 5 else ''}")
        unused = sorted(set(published) - used - _DERIVED)
        if unused:
            warnings.warn(f"{folder}: no part of this model uses {', '.join(unused)}", stacklevel=2)
        assign(model.named_params(), {entry.ours: entry.load(published) for entry in table}, str(folder))
        return model

    def save_pretrained(self, folder: str | os.PathLike[str]) -> None:
        """Write a folder that `transformers` opens, under the names it expects."""
        params = self.named_params()
        tensors: dict[str, np.ndarray] = {}
        for entry in self.names():
            tensors |= entry.save(params[entry.ours].data)
        if "cls.predictions.decoder.bias" in tensors:
            tensors["cls.predictions.bias"] = tensors["cls.predictions.decoder.bias"].copy()  # files carry both names
        if self.masked_words or self.next_sentence:  # with heads, the encoder is a part with a name
            tensors = {name if name.startswith("cls.") else f"bert.{name}": array for name, array in tensors.items()}
        architecture = {
            (True, True): "BertForPreTraining",
            (True, False): "BertForMaskedLM",
            (False, True): "BertForNextSentencePrediction",
            (False, False): "BertModel",
        }[bool(self.masked_words), bool(self.next_sentence)]
        settings = {"model_type": "bert", "architectures": [architecture], **asdict(self.config)}
        write_folder(folder, settings, tensors)

    def names(self) -> list[Name]:
        """Which published tensor is which of ours: one table for loading and saving."""
        names = [
            Name("tokens.table", ("embeddings.word_embeddings.weight",)),
            Name("positions.table", ("embeddings.position_embeddings.weight",)),
            Name("types.table", ("embeddings.token_type_embeddings.weight",)),
            *_norm("norm", "embeddings.LayerNorm"),
        ]
        parts = ("query", "key", "value")
        for index in range(self.config.num_hidden_layers):
            ours, theirs = f"encoder.blocks.{index}", f"encoder.layer.{index}"
            names += [
                *linear_names(f"{ours}.attention.qkv", *(f"{theirs}.attention.self.{part}" for part in parts)),
                *linear_names(f"{ours}.attention.output", f"{theirs}.attention.output.dense"),
                *_norm(f"{ours}.attention_norm", f"{theirs}.attention.output.LayerNorm"),
                *linear_names(f"{ours}.feed_forward.expand", f"{theirs}.intermediate.dense"),
                *linear_names(f"{ours}.feed_forward.contract", f"{theirs}.output.dense"),
                *_norm(f"{ours}.output_norm", f"{theirs}.output.LayerNorm"),
            ]  # fmt: skip
        if self.pooler:
            names += linear_names("pooler.dense", "pooler.dense")
        if self.masked_words:
            names += linear_names("masked_words.dense", "cls.predictions.transform.dense")
            names += _norm("masked_words.norm", "cls.predictions.transform.LayerNorm")
            if self.config.tie_word_embeddings:
                names += [Name("masked_words.decoder.b", ("cls.predictions.bias",))]
            else:
                names += linear_names("masked_words.decoder", "cls.predictions.decoder")
        if self.next_sentence:
            names += linear_names("next_sentence", "cls.seq_relationship")
        return names


def _add(a, b):
    return b if a is None else a + b


def linear_names(ours: str, *theirs: str) -> list[Name]:
    """Weights are stored (out,in) there and (in,out) here; several side by side make one of ours."""
    return [
        Name(f"{ours}.w", tuple(f"{name}.weight" for name in theirs), transposed=True),
        Name(f"{ours}.b", tuple(f"{name}.bias" for name in theirs)),
    ]


def _norm(ours: str, theirs: str) -> list[Name]:
    return [Name(f"{ours}.gamma", (f"{theirs}.weight",)), Name(f"{ours}.beta", (f"{theirs}.bias",))]


def canonical(name: str) -> str:
    """One spelling for what different versions wrote: with or without `bert.`, γ and β as `gamma` or as `weight`."""
    name = name.removeprefix("bert.")
    return name.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias")


_DERIVED = {  # tensors that files carry and that say nothing new: copies of tied ones, and 0, 1, 2, …
    "cls.predictions.decoder.weight",
    "cls.predictions.decoder.bias",
    "cls.predictions.bias",
    "embeddings.position_ids",
}
