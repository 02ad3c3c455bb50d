"""What BERT and its closest relatives have in common: RoBERTa, DistilBERT, ALBERT and ELECTRA.

    x = LayerNorm(E[ids] + P[positions] + S[types])       the embeddings: token, position, first or second text

Their own files say what they do differently. Besides the embeddings, they share BERT's block, and the layout of files:
one tensor shows that a file holds a head; the head for masked words shares the token table, and files may repeat what
is shared under further names.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np

from mini_bert.common.inputs import check_ids
from mini_bert.layers.block import TransformerBlock
from mini_bert.layers.dropout import dropout, dropout_backward
from mini_bert.layers.layer_norm import LayerNormCache
from mini_bert.layers.linear import Linear
from mini_bert.models.base import MASKED_WORDS, Model
from mini_bert.models.saving import Name, linear_names, norm_names
from mini_bert.models.starting import attend_to_neighbours

TOKENS = "embeddings.word_embeddings.weight"  # the token table, in the files of all of them
LAYER: Mapping[str, Sequence[str]] = {  # the parts of a block, in the files of BERT, RoBERTa and ELECTRA
    "attention.qkv": ("attention.self.query", "attention.self.key", "attention.self.value"),
    "attention.output": ("attention.output.dense",),
    "attention_norm": ("attention.output.LayerNorm",),
    "feed_forward.expand": ("intermediate.dense",),
    "feed_forward.contract": ("output.dense",),
    "output_norm": ("output.LayerNorm",),
}


class EmbeddingCache(NamedTuple):
    types: np.ndarray  # (B,T)
    positions: Any
    norm: LayerNormCache
    dropped: Any


class BertLike(Model):
    """A model with BERT's embeddings, unless it defines its own, and with files that are laid out as BERT's."""

    positions: Any
    types: Any
    norm: Any
    embedding_parts: ClassVar[tuple[str, ...]] = ("tokens", "positions", "types", "norm")

    head_tensors: ClassVar[Mapping[str, str]]  # for each head, a tensor that only files with this head have
    decoder: ClassVar[str]  # in files: the layer from vectors to words, shared with the token table if tied
    decoder_bias: ClassVar[str]  # in files: the name of its bias if tied

    # ------------------------------------------------------------------ embeddings

    def check_types(self, token_types, ids):
        """With a single type, there is nothing to tell apart: what is given is ignored."""
        if token_types is None or self.config.type_vocab_size == 1:
            return np.zeros_like(ids)
        types = check_ids(token_types, self.config.type_vocab_size, self.max_length, "token_types")
        if types.shape != ids.shape:
            raise ValueError(f"token_types has shape {types.shape}, expected {ids.shape}, the shape of input_ids")
        return types

    def embed(self, inputs, run):
        """x = dropout(LayerNorm(E[ids] + P[positions] + S[types]))        ids, positions, types (B,T) -> x (B,T,H)"""
        types = np.zeros_like(inputs.ids) if inputs.types is None else inputs.types
        x, _ = self.tokens.forward(inputs.ids, run)
        x, positions = self.positions.forward(x, run, inputs.positions)
        s, _ = self.types.forward(types, run)
        x, norm = self.norm.forward(x + s, run)
        x, dropped = dropout(x, self.config.dropout, run)
        return x, EmbeddingCache(types, positions, norm, dropped)

    def embed_backward(self, dx, inputs, cache, run):
        dx = dropout_backward(dx, cache.dropped)
        dx = self.norm.backward(dx, cache.norm, run)
        self.types.backward(dx, cache.types, run)
        self.positions.backward(dx, cache.positions, run)
        self.tokens.backward(dx, inputs.ids, run)
        return dx

    def more_arrays(self, embedding, final):
        return {"embedding_norm": embedding.norm.x_hat}

    @property
    def mapping(self) -> Linear | None:
        """From the embeddings to the blocks, if they differ in width."""
        return None

    def start_attention(self):
        attend_to_neighbours(self, self.mapping)

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
        copies = [tensors[name] for name in (weight, TOKENS) if name in tensors]
        if self.config.tie_head and len(copies) == 2 and not np.array_equal(copies[0], copies[1]):
            warnings.warn(
                f"{source}: config.json says that the head shares the token table, so the file's own matrix for the "
                'head is not used; to use it, set "tie_word_embeddings": false there',
                stacklevel=4,
            )
        used = {name for entry in table for name in entry.theirs}
        return sorted(set(tensors) - used - {weight, bias, self.decoder_bias, "embeddings.position_ids"})

    def file_tensors(self, task=""):
        tensors = super().file_tensors(task)
        if f"{self.decoder}.bias" in tensors:  # not tied: files carry both names
            tensors[self.decoder_bias] = tensors[f"{self.decoder}.bias"].copy()
        return tensors

    def architecture(self) -> str:
        """The published class for a model with these heads, without the family: "ForMaskedLM"."""
        return "Model" if MASKED_WORDS not in self.output_heads else "ForMaskedLM"

    def file_config(self) -> dict[str, Any]:
        values = self.config.to_dict()
        return {"model_type": values.pop("model_type"), "architectures": [self.family + self.architecture()], **values}

    def embedding_names(self) -> list[Name]:
        return [
            Name("tokens.table", (TOKENS,)),
            Name("positions.table", ("embeddings.position_embeddings.weight",)),
            Name("types.table", ("embeddings.token_type_embeddings.weight",)),
            *norm_names("norm", "embeddings.LayerNorm"),
        ]

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
