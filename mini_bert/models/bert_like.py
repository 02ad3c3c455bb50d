"""What BERT and its closest relatives have in common: RoBERTa, DistilBERT, ALBERT and ELECTRA.

    x = LayerNorm(E[ids] + P[positions] + S[types])       the embeddings: token, position, first or second text

Their own files say what they do differently. Besides the embeddings, they share BERT's block, and the layout of files:
one tensor shows that a file holds a head; the head for masked words shares the token table, and files may repeat what
is shared under further names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, ClassVar, NamedTuple

import numpy as np

from mini_bert.common.inputs import check_token_types
from mini_bert.layers.activations import activation
from mini_bert.layers.block import TransformerBlock
from mini_bert.layers.dropout import dropout, dropout_backward
from mini_bert.layers.embedding import Embedding, PositionEmbedding
from mini_bert.layers.initialisers import normal
from mini_bert.layers.layer_norm import LayerNorm, LayerNormCache
from mini_bert.models.base import MASKED_WORDS, Model
from mini_bert.models.heads import MaskedWordHead
from mini_bert.models.published import ENCODER, PublishedConfig
from mini_bert.models.saving import Name, linear_names, norm_names, warn_of_own_matrix
from mini_bert.models.sizes import Sizes, inner_arrays
from mini_bert.models.starting import attend_to_neighbours

TOKENS = "embeddings.word_embeddings.weight"  # the token table, in the files of all of them
POSITIONS = "embeddings.position_embeddings.weight"
LAYER: Mapping[str, Sequence[str]] = {  # the parts of a block, in the files of BERT, RoBERTa and ELECTRA
    "attention.qkv": ("attention.self.query", "attention.self.key", "attention.self.value"),
    "attention.output": ("attention.output.dense",),
    "attention_norm": ("attention.output.LayerNorm",),
    "feed_forward.expand": ("intermediate.dense",),
    "feed_forward.contract": ("output.dense",),
    "output_norm": ("output.LayerNorm",),
}

SMALL: dict[str, Any] = {  # the sizes of the presets, about those of Mini-BERT
    "vocab_size": 8192, "hidden_size": 192, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 768,
    "max_position_embeddings": 64, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0,
}  # fmt: skip


@dataclass(frozen=True)
class BertLikeConfig(PublishedConfig):
    """The fields of BERT's `config.json` that affect the results; the defaults are those of BERT-base, uncased."""

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
        activation(self.hidden_act, "hidden_act")

    def sizes_with(self, parameters: int, head_kept: int, kind: type[Sizes] = Sizes, *more: Any) -> Sizes:
        """The sizes of a model with this many parameters. head_kept, more: fields of `Sizes`"""
        kept, temporary = inner_arrays(self.hidden_act)
        return kind(
            self.name, self.vocab_size, self.width, self.depth, self.heads, self.intermediate_size, self.max_length,
            parameters, self.tie_head, self.hidden_dropout_prob > 0, self.attention_probs_dropout_prob > 0, True, kept,
            temporary, head_kept, *more,
        )  # fmt: skip


class EmbeddingCache(NamedTuple):
    types: np.ndarray | None  # (B,T)
    positions: Any
    norm: LayerNormCache
    dropped: Any
    project: np.ndarray | None  # (B,T,E)


class BertLike(Model):
    """A model with BERT's embeddings, unless it defines its own, and with files that are laid out as BERT's."""

    positions: Any
    types: Any  # None: the model has no token types
    norm: Any
    project: Any = None  # from the width of the embeddings to that of the blocks, where they differ
    embedding_parts: ClassVar[tuple[str, ...]] = ("tokens", "positions", "types", "norm", "project")

    head_tensors: ClassVar[Mapping[str, str]]  # for each head, a tensor that only files with this head have
    decoder: ClassVar[str]  # in files: the layer from vectors to words, shared with the token table if tied
    decoder_bias: ClassVar[str]  # in files: the name of its bias if tied

    def add_embeddings(self, width: int) -> None:
        """Tables of tokens, positions and types, and the norm of their sum."""
        config, std = self.config, self.config.initializer_range
        self.tokens = Embedding(config.vocab_size, width, std)
        self.positions = PositionEmbedding(config.max_position_embeddings, width, normal(std))
        self.types = Embedding(config.type_vocab_size, width, std)
        self.norm = LayerNorm(width, config.layer_norm_eps)

    def word_head(self, activation_name: str | None = None) -> MaskedWordHead:
        config = self.config
        return MaskedWordHead(
            config.hidden_size, self.tokens.table, activation_name or config.hidden_act, config.layer_norm_eps,
            config.initializer_range, config.tie_head,
        )  # fmt: skip

    # ------------------------------------------------------------------ embeddings

    def check_types(self, token_types, ids):
        """With one type or none, there is nothing to tell apart: what is given is ignored."""
        if self.types is None:
            return None
        if token_types is None or self.config.type_vocab_size == 1:
            return np.zeros_like(ids)
        return check_token_types(token_types, ids, self.config.type_vocab_size)

    def embed(self, inputs, run):
        """x = dropout(LayerNorm(E[ids] + P[positions] + S[types]))        ids, positions, types (B,T) -> x (B,T,H)

        Where the tables have a width E of their own, x W + b        (B,T,E) -> (B,T,H)
        """
        x, _ = self.tokens.forward(inputs.ids, run)
        x, positions = self.positions.forward(x, run, inputs.positions)
        types = None
        if self.types is not None:
            types = np.zeros_like(inputs.ids) if inputs.types is None else inputs.types
            x = x + self.types.forward(types, run)[0]
        x, norm = self.norm.forward(x, run)
        x, dropped = dropout(x, self.config.dropout, run)
        project = None
        if self.project is not None:
            x, project = self.project.forward(x, run)
        return x, EmbeddingCache(types, positions, norm, dropped, project)

    def embed_backward(self, dx, inputs, cache, run):
        if self.project is not None:
            dx = self.project.backward(dx, cache.project, run)
        dx = dropout_backward(dx, cache.dropped)
        dx = self.norm.backward(dx, cache.norm, run)
        if self.types is not None:
            self.types.backward(dx, cache.types, run)
        self.positions.backward(dx, cache.positions, run)
        self.tokens.backward(dx, inputs.ids, run)
        return dx

    def more_arrays(self, embedding, final):
        return {"embedding_norm": embedding.norm.x_hat}

    def start_attention(self):
        attend_to_neighbours(self, self.project)

    # ------------------------------------------------------------------ files

    @property
    def word_bias(self):
        words = getattr(self, MASKED_WORDS, None)
        return words and words.decoder.b

    @classmethod
    def heads_in(cls, values, tensors):
        held = [head for head, name in cls.head_tensors.items() if name in tensors]
        return [head for head in held if cls.head_inputs.get(head, head) in held]

    @classmethod
    def canonical(cls, name: str) -> str:
        """Files differ in the prefix, and call γ and β `gamma` and `beta` or `weight` and `bias`."""
        name = name.removeprefix(cls.prefix)
        return name.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias")

    def reconcile(self, tensors, table, source):
        weight, bias = f"{self.decoder}.weight", f"{self.decoder}.bias"
        for one, other in ((bias, self.decoder_bias), (self.decoder_bias, bias)):  # some files have only one of them
            if one in tensors:
                tensors.setdefault(other, tensors[one])
        if self.config.tie_head:
            warn_of_own_matrix(tensors, weight, TOKENS, source)
        known = {weight, bias, self.decoder_bias, "embeddings.position_ids"}
        return [name for name in super().reconcile(tensors, table, source) if name not in known]

    def file_tensors(self, task=""):
        tensors = super().file_tensors(task)
        if f"{self.decoder}.bias" in tensors:  # not tied: files carry both names
            tensors[self.decoder_bias] = tensors[f"{self.decoder}.bias"].copy()
        return tensors

    def architecture(self):
        return "Model" if MASKED_WORDS not in self.output_heads else "ForMaskedLM"

    def embedding_names(self) -> list[Name]:
        names = [Name("tokens.table", (TOKENS,)), *norm_names("norm", "embeddings.LayerNorm")]
        if self.positions is not None:
            names += [Name("positions.table", (POSITIONS,))]
        if self.types is not None:
            names += [Name("types.table", ("embeddings.token_type_embeddings.weight",))]
        return names

    def encoder_names(self, path: str = "encoder.layer", table: Mapping[str, Sequence[str]] = LAYER) -> list[Name]:
        """The names of the embeddings and the blocks, given those of a block's path and parts in files."""
        blocks = [block_names(f"encoder.blocks.{index}", f"{path}.{index}", table) for index in range(self.depth)]
        return [*self.embedding_names(), *chain.from_iterable(blocks)]

    def word_names(self, dense: str, norm: str) -> list[Name]:
        """The names of the head for masked words, given those of its dense layer and its norm."""
        names = [*linear_names("masked_words.dense", dense), *norm_names("masked_words.norm", norm)]
        if self.config.tie_head:
            return [*names, Name("masked_words.decoder.b", (self.decoder_bias,))]
        return names + linear_names("masked_words.decoder", self.decoder)


def block(config: Any) -> TransformerBlock:
    """BERT's block, with the sizes and settings of a config that has BERT's field names."""
    return TransformerBlock(
        config.hidden_size,
        config.num_attention_heads,
        config.intermediate_size,
        config.hidden_act,
        p=config.hidden_dropout_prob,
        attention_p=config.attention_probs_dropout_prob,
        eps=config.layer_norm_eps,
        std=config.initializer_range,
    )


def block_names(ours: str, theirs: str, table: Mapping[str, Sequence[str]] = LAYER) -> list[Name]:
    """The names of one block, given its path here and in files, and how its parts are called in files."""
    names: list[Name] = []
    for part, published in table.items():
        paths = [f"{theirs}.{name}" for name in published]
        names += (norm_names if part.endswith("norm") else linear_names)(f"{ours}.{part}", *paths)
    return names
