"""What DeBERTa v1 and v2 have in common: embeddings, heads and files. Their own files say how they differ from BERT.

    x = u ⊙ LayerNorm((E[ids] + P[:T] + S[types]) W)      u: 1 for tokens, 0 for padding

Each term but the first is optional: absolute positions P (`position_biased_input`), types S (`type_vocab_size` > 0),
and the projection W (E,H) where the embeddings have a width of their own (`embedding_size`).

**Two heads for masked words.** Files come with one of two layouts, which compute the same if E = H:

    cls.predictions.*            `legacy`: what transformers made first. It projects to the width of the table, and its
                                 bias and matrix have copies in the file
    lm_predictions.lm_head.*     what the authors published; the matrix is always the token table

A config does not have to say which; we look at the file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from mini_bert.common.values import check_size
from mini_bert.layers.activations import activation
from mini_bert.layers.disentangled_attention import TERMS
from mini_bert.layers.disentangled_encoder import DisentangledBlock, DisentangledEncoder
from mini_bert.layers.dropout import dropout, dropout_backward
from mini_bert.layers.embedding import Embedding, PositionEmbedding
from mini_bert.layers.initialisers import normal
from mini_bert.layers.layer_norm import LayerNorm, LayerNormCache
from mini_bert.layers.linear import Linear
from mini_bert.models.base import MASKED_WORDS, NEXT_SENTENCE, NO_WORD_HEAD, POOLER
from mini_bert.models.bert_like import LAYER as BERT_LAYER
from mini_bert.models.bert_like import POSITIONS, BertLike, BertLikeConfig
from mini_bert.models.disentangled_sizes import DisentangledSizes, Further
from mini_bert.models.published import ENCODER
from mini_bert.models.saving import Name, linear_names, norm_names
from mini_bert.models.sizes import Sizes, block_parameters, inner_arrays

LAYER = {name: paths for name, paths in BERT_LAYER.items() if name != "attention.qkv"}  # the rest is BERT's
LEGACY_WORDS, OWN_WORDS = "cls.predictions", "lm_predictions.lm_head"
Signed = int  # a whole number that may be −1, for "as many as there are positions" or "off"


@dataclass(frozen=True)
class DisentangledConfig(BertLikeConfig):
    """The fields that both versions have; the defaults are those of `transformers`."""

    only: ClassVar[Mapping[str, Any]] = ENCODER
    may_be_zero: ClassVar[frozenset[str]] = frozenset({"type_vocab_size"})
    neutral: ClassVar[frozenset[str]] = frozenset({"padding_idx", "cls_dropout"})

    vocab_size: int = 50265
    type_vocab_size: int = 0
    layer_norm_eps: float = 1e-7
    relative_attention: bool = False
    max_relative_positions: Signed = -1  # less than 1: max_position_embeddings
    position_biased_input: bool = True
    pos_att_type: tuple[str, ...] = ()  # a file may also have "c2p|p2c"
    embedding_size: int | None = None  # None: hidden_size
    pooler_dropout: float = 0.0  # more than 0: a classifier drops its input, too, with the p of `finetune --dropout`
    pooler_hidden_act: str = "gelu"
    pooler_hidden_size: int | None = None  # None: hidden_size
    legacy: bool = True

    def check(self) -> None:
        object.__setattr__(self, "pos_att_type", _terms(self.pos_att_type))
        super().check()
        activation(self.pooler_hidden_act, "pooler_hidden_act")
        check_whole("max_relative_positions", self.max_relative_positions)
        for name in ("embedding_size", "pooler_hidden_size"):
            if getattr(self, name) is not None:
                check_size(name, getattr(self, name))
        if self.pooler_hidden_size not in (None, self.hidden_size):
            raise ValueError(
                f"pooler_hidden_size is {self.pooler_hidden_size}, but hidden_size is {self.hidden_size}: the pooler "
                "reads a vector of that width"
            )

    @property
    def embedding_width(self) -> int:  # E
        return self.embedding_size or self.hidden_size

    @property
    def farthest(self) -> int:
        """The number of distances on each side that the model tells apart, before buckets"""
        return self.max_relative_positions if self.max_relative_positions >= 1 else self.max_position_embeddings

    def table(self) -> dict[str, Any]:
        """The arguments of DisentangledEncoder that concern the table of distances; span 0: there is none"""
        return {"span": self.farthest if self.relative_attention else 0}

    @property
    def tie_head(self) -> bool:
        return self.tie_word_embeddings or not self.legacy

    def further(self) -> Further:
        """What the sizes depend on besides BERT's"""
        terms = len(self.pos_att_type) if self.relative_attention else 0
        return Further(self.table()["span"], 0, 0, terms, False, False, 0)

    def position_parameters(self) -> int:
        """Of the projections of the table, in one block"""
        return (len(self.pos_att_type) if self.relative_attention else 0) * self.hidden_size**2

    def sizes(self) -> Sizes:
        V, E, H, T, inner = (
            self.vocab_size, self.embedding_width, self.width, self.max_length, self.intermediate_size
        )  # fmt: skip
        parameters = (V + self.type_vocab_size + (T if self.position_biased_input else 0)) * E + 2 * H
        parameters += (E * H if E != H else 0) + 2 * self.table()["span"] * H
        parameters += self.depth * (block_parameters(H, inner) + 3 * H + self.position_parameters())
        parameters += H * E + 3 * E + V + (0 if self.tie_head else E * V)
        kept = 2 + min(inner_arrays(self.hidden_act)[0], 2)
        return self.sizes_with(parameters, kept, DisentangledSizes, E, self.further())

    def with_dropout(self, p: float) -> Self:
        return replace(self, hidden_dropout_prob=p, attention_probs_dropout_prob=p)

    def to_dict(self) -> dict[str, Any]:
        """Fields that are None are left out: published code takes what a file says."""
        values = {name: value for name, value in super().to_dict().items() if value is not None}
        return values | {"pos_att_type": list(self.pos_att_type)}


def _terms(value: Any) -> tuple[str, ...]:
    """("c2p", "p2c"), from that, a list, or "c2p|p2c" """
    parts = [part.strip() for part in value.lower().split("|")] if isinstance(value, str) else value
    terms = [term for term in parts if term not in ("", "none")] if isinstance(parts, list | tuple) else [parts]
    if any(term not in TERMS for term in terms) or len(set(terms)) < len(terms):
        raise ValueError(f"pos_att_type is {value!r:.60}, expected some of {', '.join(map(repr, TERMS))}, each once")
    return tuple(terms)


def check_whole(name: str, value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError(f"{name} is {value!r:.60}, expected a whole number")
    if value > 0:
        check_size(name, value)
    return value


class EmbeddingCache(NamedTuple):
    types: np.ndarray | None  # (B,T)
    positions: Any
    narrow: np.ndarray | None  # (B,T,E) the input of the projection
    norm: LayerNormCache
    used: np.ndarray | None  # (B,T,1) False for padding
    dropped: Any


class Disentangled(BertLike):
    """A model with DeBERTa's embeddings, heads and files. Each version has its own blocks, and names for them."""

    embedding_parts = ("tokens", "positions", "types", "project", "norm")
    head_shapes: ClassVar = {MASKED_WORDS: "(B,T,V)"}
    head_help: ClassVar = {
        MASKED_WORDS: NO_WORD_HEAD,
        NEXT_SENTENCE: "no next-sentence head: DeBERTa is not trained on pairs of sentences",
        POOLER: "no pooler: only its classifiers have one; use the mean of the tokens' vectors instead",
    }
    prefix = "deberta."
    head_prefixes: ClassVar[tuple[str, ...]] = (
        "cls.",
        "lm_predictions.",
        "mask_predictions.",
        "pooler.",
        "classifier.",
        "qa_outputs.",
    )
    task_heads: ClassVar = {
        "ForSequenceClassification": {"dense": "pooler.dense", "linear": "classifier"},
        "ForTokenClassification": {"linear": "classifier"},
        "ForQuestionAnswering": {"linear": "qa_outputs"},
    }

    encoder: DisentangledEncoder
    blocks: Callable[[], list[DisentangledBlock]]  # the blocks of a new model
    block_names: Callable[[str, str], list[Name]]  # the names of a block, given its path here and in files

    def __init__(
        self, config: Any, output_heads: Sequence[str] = (MASKED_WORDS,), seed: int | None = 0, dtype: Any = np.float32
    ):
        self.assemble(config, output_heads)
        self._own_memory(seed, dtype)

    def assemble(self, config: Any, output_heads: Sequence[str]) -> None:
        """All layers, before they have memory."""
        self.config = config
        size, width, std = config.embedding_width, config.hidden_size, config.initializer_range
        self.tokens = Embedding(config.vocab_size, size, std)
        self.positions = self.types = self.project = None
        if config.position_biased_input:
            self.positions = PositionEmbedding(config.max_position_embeddings, size, normal(std))
        if config.type_vocab_size:
            self.types = Embedding(config.type_vocab_size, size, std)
        if size != width:
            self.project = Linear(size, width, bias=False, std=std)
        self.norm = LayerNorm(width, config.layer_norm_eps)
        self.encoder = DisentangledEncoder(self.blocks(), width, **config.table(), std=std)
        self.masked_words = self.word_head() if MASKED_WORDS in output_heads else None

    def word_head(self, activation_name=None):
        config = self.config
        if not config.legacy and config.embedding_width != config.hidden_size:
            raise ValueError(
                f"embedding_size is {config.embedding_width} and hidden_size is {config.hidden_size}, but the head of "
                '"legacy": false multiplies vectors of the blocks with the token table; set "legacy": true'
            )
        return super().word_head(activation_name)

    def block_options(self) -> dict[str, Any]:
        """The arguments of a block, besides its attention"""
        config = self.config
        return {
            "inner": config.intermediate_size,
            "activation_name": config.hidden_act,
            "p": config.hidden_dropout_prob,
            "eps": config.layer_norm_eps,
            "std": config.initializer_range,
        }

    @property
    def sentence_head(self):
        """A classifier pools the first token: dropout, dense, f, dropout, linear."""
        return {"activation_name": self.config.pooler_hidden_act, "drops_input": self.config.pooler_dropout > 0}

    # ------------------------------------------------------------------ embeddings

    def embed(self, inputs, run):
        """x = u ⊙ LayerNorm((E[ids] + P + S[types]) W)        ids, types (B,T) -> x (B,T,H)"""
        x, _ = self.tokens.forward(inputs.ids, run)  # (B,T,E)
        types = positions = narrow = None
        if self.positions is not None:
            x, positions = self.positions.forward(x, run, inputs.positions)
        if self.types is not None:
            types = np.zeros_like(inputs.ids) if inputs.types is None else inputs.types
            x = x + self.types.forward(types, run)[0]
        if self.project is not None:
            x, narrow = self.project.forward(x, run)  # (B,T,H)
        x, norm = self.norm.forward(x, run)
        used = None if inputs.mask is None else inputs.mask[:, 0, 0, :, None]  # (B,T,1)
        x, dropped = dropout(x if used is None else x * used, self.config.hidden_dropout_prob, run)
        return x, EmbeddingCache(types, positions, narrow, norm, used, dropped)

    def embed_backward(self, dx, inputs, cache, run):
        dx = dropout_backward(dx, cache.dropped)
        dx = self.norm.backward(dx if cache.used is None else dx * cache.used, cache.norm, run)
        if self.project is not None:
            dx = self.project.backward(dx, cache.narrow, run)
        if self.types is not None:
            self.types.backward(dx, cache.types, run)
        if self.positions is not None:
            self.positions.backward(dx, cache.positions, run)
        self.tokens.backward(dx, inputs.ids, run)
        return dx  # (B,T,E)

    def start_attention(self):
        """As published: distances are in its attention, and there are no positions whose waves heads could follow."""

    # ------------------------------------------------------------------ files

    @property
    def words(self) -> str:
        """The name of the head for masked words in files"""
        return LEGACY_WORDS if self.config.legacy else OWN_WORDS

    @property
    def decoder(self):
        return f"{self.words}.decoder"

    @property
    def decoder_bias(self):
        return f"{self.words}.bias"

    @classmethod
    def heads_in(cls, values, tensors):
        return [MASKED_WORDS] if _has_words(tensors, LEGACY_WORDS) or _has_words(tensors, OWN_WORDS) else []

    @classmethod
    def config_in(cls, values, tensors, source):
        """Which of the two heads for masked words a model has, is what the file says, not the config."""
        config = super().config_in(values, tensors, source)
        legacy, own = (_has_words(tensors, words) for words in (LEGACY_WORDS, OWN_WORDS))
        return replace(config, legacy=legacy) if legacy != own else config

    def reconcile(self, tensors, table, source):
        """Published files have absolute positions even where the encoder does not add them (see deberta.py)."""
        return [name for name in super().reconcile(tensors, table, source) if name != POSITIONS]

    def names(self) -> list[Name]:
        """The table of published tensor names and ours, for loading and saving."""
        names = [*self.embedding_names()]
        for index in range(self.config.num_hidden_layers):
            names += self.block_names(f"encoder.blocks.{index}", f"encoder.layer.{index}")
        if self.encoder.positions is not None:
            names += [Name("encoder.positions.table", ("encoder.rel_embeddings.weight",))]
        if self.encoder.norm is not None:
            names += norm_names("encoder.norm", "encoder.LayerNorm")
        if self.masked_words is not None:
            words = f"{self.words}.transform" if self.config.legacy else self.words
            names += self.word_names(f"{words}.dense", f"{words}.LayerNorm")
        return names

    def attention_names(self, ours: str, theirs: str, layers: Mapping[str, str]) -> list[Name]:
        """The names of the linear layers and biases that this model has. layers: their names here -> in files"""
        params = self.named_params()
        names = [linear_names(f"{ours}.attention.{here}", f"{theirs}.attention.self.{there}")
                 for here, there in layers.items()]  # fmt: skip
        return [name for some in names for name in some if name.ours in params]

    def embedding_names(self) -> list[Name]:
        names = super().embedding_names()
        if self.project is not None:
            names += [Name("project.w", ("embeddings.embed_proj.weight",), transposed=True)]
        return names


def _has_words(tensors: Mapping[str, Any], words: str) -> bool:
    return any(name.startswith(f"{words}.") for name in tensors)
