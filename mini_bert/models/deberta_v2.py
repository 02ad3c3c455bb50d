"""DeBERTa v2 and v3 (He et al. 2021): larger DeBERTa, and DeBERTa trained as ELECTRA. One architecture, many switches.

    x = u ⊙ LayerNorm(E[ids])
    x = block_l(x, p)       l = 1 … L                     p: a table of distances, in buckets, with a norm
    x = u ⊙ LayerNorm(x + f(u ⊙ Convolution(embeddings)))         after the first block, if there is a convolution
    mlm      = LayerNorm(gelu(x W + b)) Eᵀ + b
    replaced = f(LayerNorm(x + x_0) W + b) w + b          x_0: the vector of [CLS].     v3: was this token replaced?

What differs from version 1 (models/deberta.py), and why:

- **Buckets** (`position_buckets`, layers/relative_positions.py). Near distances keep a vector each, far ones share
  them: whether a word is 300 or 310 tokens away hardly matters. `norm_rel_ebd` normalises the table.
- **Shared projections** (`share_att_key`). Distances use the W_q and W_k of words: a third fewer weights.
- **A convolution beside the first block** (`conv_kernel_size`, layers/disentangled_encoder.py) for n-grams, because the
  new vocabulary cuts words into smaller pieces. v3 has none.
- **Biases everywhere**, also of keys; W_q, W_k and W_v are three matrices. No talking heads.

**v3** ("DeBERTaV3", 2023) keeps the architecture and changes the training: like ELECTRA (models/electra.py), it learns
to tell which words a generator has replaced. But two models pull the token table they share in different directions:
the generator moves words of like meaning together, the discriminator apart. So the gradients are disentangled as well
(layers/disentangled_embedding.py):

    E_discriminator = stop(E_generator) + Δ               Δ starts at 0

The generator trains E_generator; the discriminator reads it, but its gradient goes to Δ alone. With `generator` in its
config, a `DebertaV2` with the head REPLACED contains the generator it is trained with, in the same flat memory, as an
`Electra` does. When the pair is saved, the folder holds the discriminator, with the sum as its table, and the subfolder
`generator` the generator.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from mini_bert.common.sixteen_bit import Stored
from mini_bert.layers.activations import activation
from mini_bert.layers.base import Layer
from mini_bert.layers.disentangled_attention import DisentangledAttention
from mini_bert.layers.disentangled_embedding import DisentangledEmbedding
from mini_bert.layers.disentangled_encoder import ConvolvedBlock, DisentangledBlock
from mini_bert.layers.layer_norm import LayerNorm
from mini_bert.layers.linear import Linear
from mini_bert.models.base import MASKED_WORDS, NEW_HEAD, REPLACED
from mini_bert.models.bert_like import SMALL, block_names
from mini_bert.models.disentangled import (
    LAYER,
    Disentangled,
    DisentangledConfig,
    Signed,
    check_whole,
)
from mini_bert.models.disentangled_sizes import DisentangledDiscriminatorSizes
from mini_bert.models.pairs import GENERATOR, Pair, PairConfig
from mini_bert.models.saving import Name, linear_names, norm_names
from mini_bert.models.sizes import inner_arrays

ATTENTION = {"query": "query_proj", "key": "key_proj", "value": "value_proj", "position_key": "pos_key_proj",
             "position_query": "pos_query_proj"}  # fmt: skip
NORMS = ("none", "layer_norm")  # of the table


@dataclass(frozen=True)
class DebertaV2Config(PairConfig, DisentangledConfig):
    """The fields of a published `config.json` that affect the results. The defaults are those of `transformers`."""

    model_type: ClassVar[str] = "deberta-v2"
    name: ClassVar[str] = "DeBERTa v2"
    only: ClassVar[Mapping[str, Any]] = {**DisentangledConfig.only, "talking_head": False}
    shares_tables: ClassVar[bool] = False  # the discriminator has a difference of its own

    vocab_size: int = 128100
    hidden_size: int = 1536
    num_hidden_layers: int = 24
    num_attention_heads: int = 24
    intermediate_size: int = 6144
    position_buckets: Signed = -1  # less than 1: none
    share_att_key: bool = False
    norm_rel_ebd: str = "none"
    conv_kernel_size: Signed = 0  # less than 1: no convolution
    conv_act: str = "tanh"
    conv_groups: int = 1
    attention_head_size: int | None = None  # None: hidden_size / num_attention_heads
    generator: Mapping[str, int] | None = None  # of a pair: the sizes in which the generator differs

    def check(self) -> None:
        super().check()
        for name in ("position_buckets", "conv_kernel_size"):
            check_whole(name, getattr(self, name))
        activation(self.conv_act, "conv_act")
        if self.attention_head_size not in (None, self.hidden_size // self.num_attention_heads):
            raise ValueError(
                f"attention_head_size is {self.attention_head_size!r}, but {self.num_attention_heads} heads of a width "
                f"of {self.hidden_size} have {self.hidden_size // self.num_attention_heads}; leave it out"
            )
        if not isinstance(self.norm_rel_ebd, str) or not set(self.norms) <= set(NORMS):
            raise ValueError(f"norm_rel_ebd is {self.norm_rel_ebd!r}, expected {' or '.join(map(repr, NORMS))}")
        if self.conv_kernel_size > 0 and self.conv_kernel_size % 2 == 0:
            raise ValueError(f"conv_kernel_size is {self.conv_kernel_size}, expected an odd number")
        if self.conv_kernel_size > 0 and self.hidden_size % self.conv_groups:
            raise ValueError(f"conv_groups is {self.conv_groups}, which does not divide hidden_size {self.hidden_size}")
        self.check_generator()
        middle = self.position_buckets // 2
        wide = middle >= self.farthest - 1 and self.max_position_embeddings - 1 > middle
        if self.relative_attention and (self.position_buckets == 1 or (self.position_buckets > 1 and wide)):
            raise ValueError(
                f"position_buckets is {self.position_buckets}, but distances go up to {self.farthest}; expected from 2 "
                f"to {2 * (self.farthest - 1) - 1}, or -1 for no buckets"
            )

    @property
    def norms(self) -> list[str]:
        return [part.strip() for part in self.norm_rel_ebd.lower().split("|")]

    def table(self):
        buckets = max(0, self.position_buckets)
        return {
            "span": (buckets or self.farthest) if self.relative_attention else 0,
            "buckets": buckets,
            "largest": self.farthest,
            "eps": self.layer_norm_eps if "layer_norm" in self.norms else None,
        }

    @property
    def generator_config(self) -> DebertaV2Config:
        """Embeddings of the same width as the discriminator's, whatever the width of the blocks"""
        own: dict[str, Any] = dict(self.generator or {})
        legacy = self.legacy or own.get("hidden_size", self.hidden_size) != self.embedding_width
        own |= {"legacy": legacy, "embedding_size": self.embedding_width}
        return self.alone(**own, attention_head_size=None, pooler_hidden_size=None)

    def with_generator(self) -> Self:
        """The config of a pair as the authors of v3 trained it: the generator has half as many blocks."""
        return replace(self, generator={"num_hidden_layers": max(1, self.num_hidden_layers // 2)})

    # ------------------------------------------------------------------ sizes

    def further(self):
        table, kept = self.table(), inner_arrays(self.conv_act)[0]
        return (
            super()
            .further()
            ._replace(
                buckets=table["buckets"],
                largest=table["largest"],
                norm=table["eps"] is not None,
                convolved=min(kept, 2) if self.conv_kernel_size > 0 else 0,
            )
        )

    def position_parameters(self):
        projections = 0 if self.share_att_key or not self.relative_attention else len(self.pos_att_type)
        return self.width + projections * (self.width**2 + self.width)  # keys have a bias, too

    def sizes(self):
        sizes = super().sizes()
        H, more = self.width, 2 * self.width if "layer_norm" in self.norms else 0
        if self.conv_kernel_size > 0:
            more += self.conv_kernel_size * H * H // self.conv_groups + 3 * H
        sizes = sizes._replace(parameters=sizes.parameters + more)
        if self.generator is None:
            return sizes
        V, E = self.vocab_size, self.embedding_width
        words = H * E + 3 * E + V + (0 if self.tie_head else E * V)
        generator = self.generator_config.sizes()
        return DisentangledDiscriminatorSizes(*sizes)._replace(
            parameters=sizes.parameters - words + H * H + 4 * H + 1 + generator.parameters,
            head_kept=2 + inner_arrays(self.hidden_act)[0],
            before=generator,
        )


PRESET = DebertaV2Config(
    **SMALL,
    relative_attention=True,
    position_buckets=32,
    pos_att_type=("p2c", "c2p"),
    position_biased_input=False,
    share_att_key=True,
    norm_rel_ebd="layer_norm",
    conv_kernel_size=3,
    conv_act="gelu",
)
V3_PRESET = replace(PRESET, conv_kernel_size=0, generator={"num_hidden_layers": 1})


class ReplacedHead(Layer):
    """z = f(LayerNorm(x + x_0) W + b) w + b        x (B,T,H) -> z (B,T,1): the token was replaced with probability σ(z)

    ds = the gradient at the sum;   dx = ds,   dx_0 += Σ_t ds_t: the first token is part of all sums
    """

    def __init__(self, width: int, activation_name: str, eps: float, std: float):
        self.norm = LayerNorm(width, eps)
        self.dense = Linear(width, width, std=std)
        self.activation = activation(activation_name)
        self.linear = Linear(width, 1, std=std)

    def forward(self, x, run):  # x (B,T,H)
        n, norm = self.norm.forward(x + x[:, :1], run)
        h, dense = self.dense.forward(n, run)
        a, activated = self.activation.forward(h)
        z, linear = self.linear.forward(a, run)  # (B,T,1)
        return z, (norm, dense, activated, linear)

    def backward(self, dz, cache, run):  # dz (B,T,1)
        norm, dense, activated, linear = cache
        da = self.linear.backward(dz, linear, run)
        dh = self.activation.backward(da, activated)
        dx = self.norm.backward(self.dense.backward(dh, dense, run), norm, run)  # ds
        dx[:, 0] += dx.sum(1)
        return dx  # (B,T,H)


class DebertaV2(Pair, Disentangled):
    """Published DeBERTa, versions 2 and 3: with a head for masked words, for replaced words, both or none."""

    model_type, config_class, family = "deberta-v2", DebertaV2Config, "DebertaV2"
    vocabulary = "unigram-8k"
    head_shapes: ClassVar = {**Disentangled.head_shapes, REPLACED: "(B,T,1)"}
    sequence_heads = frozenset({REPLACED})
    head_help: ClassVar = {
        **Disentangled.head_help,
        REPLACED: "no head for replaced words: load a DeBERTa v3 as its authors published it, "
        f"{NEW_HEAD} and --objective replaced_tokens",
    }
    head_prefixes = (*Disentangled.head_prefixes, f"{GENERATOR}.")
    generator: DebertaV2 | None

    def __init__(
        self,
        config: DebertaV2Config,
        output_heads: Sequence[str] = (MASKED_WORDS,),
        seed: int | None = 0,
        dtype: Any = np.float32,
        inside: bool = False,
    ):
        """inside: this model is a part of another one, which has the memory"""
        self.assemble(config, output_heads)
        self.replaced = self.generator = None
        if REPLACED in output_heads:
            self.replaced = ReplacedHead(
                config.width, config.hidden_act, config.layer_norm_eps, config.initializer_range
            )
            if config.generator is not None:
                self.generator = DebertaV2(config.generator_config, (MASKED_WORDS,), inside=True)
                self.tokens = DisentangledEmbedding(self.generator.tokens.table)
        if not inside:
            self._own_memory(seed, dtype)

    def blocks(self):
        config, options = self.config, self.block_options()
        blocks = [DisentangledBlock(self.attention(), **options) for _ in range(config.depth)]
        if config.conv_kernel_size > 0:
            size, groups = config.conv_kernel_size, config.conv_groups
            blocks[0] = ConvolvedBlock(self.attention(), **options, size=size, groups=groups, conv_act=config.conv_act)
        return blocks

    def attention(self) -> DisentangledAttention:
        config = self.config
        return DisentangledAttention(
            config.width,
            config.heads,
            terms=config.pos_att_type,
            relative=config.relative_attention,
            share=config.share_att_key,
            p=config.attention_probs_dropout_prob,
            position_p=config.hidden_dropout_prob,
            std=config.initializer_range,
        )

    # ------------------------------------------------------------------ a pair

    def embed_tokens(self, ids):
        if self.generator is None:
            return super().embed_tokens(ids)
        return self.tokens.forward(np.asarray(ids), self.run)[0]

    @classmethod
    def joined(cls, weights):
        """Δ is the difference of the two token tables."""
        if {"tokens.table", f"{GENERATOR}.tokens.table"} <= set(weights):
            weights["tokens.difference"] = np.asarray(weights["tokens.table"]) - weights[f"{GENERATOR}.tokens.table"]
        return weights

    def own_weights(self):
        weights = super().own_weights()
        return weights if self.generator is None else weights | {"tokens.table": self.tokens.sum()}

    # ------------------------------------------------------------------ files

    @classmethod
    def heads_in(cls, values, tensors):
        replaced = [REPLACED] if "mask_predictions.dense.weight" in tensors else []
        own = {name: array for name, array in tensors.items() if not name.startswith(f"{GENERATOR}.")}
        return super().heads_in(values, own) + replaced

    @classmethod
    def canonical(cls, name: str) -> str:
        return super().canonical(name).replace("mask_predictions.classifer.", "mask_predictions.classifier.")

    def names(self) -> list[Name]:
        names = super().names()
        if self.replaced is not None:
            names += [
                *norm_names("replaced.norm", "mask_predictions.LayerNorm"),
                *linear_names("replaced.dense", "mask_predictions.dense"),
                *linear_names("replaced.linear", "mask_predictions.classifier"),
            ]
        if self.generator is None:
            return names
        table = Name("tokens.difference", ("embeddings.word_embeddings._weight",))
        own = [table if entry.ours == "tokens.table" else entry for entry in names]
        return [*own, *(entry.under(GENERATOR) for entry in self.generator.names())]

    def block_names(self, ours: str, theirs: str) -> list[Name]:
        names = [*self.attention_names(ours, theirs, ATTENTION), *block_names(ours, theirs, LAYER)]
        if self.config.conv_kernel_size > 0 and ours.endswith(".0"):
            names += [
                KernelName(f"{ours}.convolution.w", ("encoder.conv.conv.weight",)),
                Name(f"{ours}.convolution.b", ("encoder.conv.conv.bias",)),
                *norm_names(f"{ours}.convolution_norm", "encoder.conv.LayerNorm"),
            ]
        return names


class KernelName(Name):
    """The matrices of a convolution: files have (out, in of its group, size), we have (size, group, in, out)."""

    def _joined(self, parts: list[np.ndarray]) -> np.ndarray:
        (published,) = parts
        width, part, size = published.shape
        return published.reshape(width // part, part, part, size).transpose(3, 0, 2, 1)

    def save(self, array: Any) -> dict[str, Any]:
        if isinstance(array, Stored):
            return {name: Stored(part) for name, part in self.save(array.bits).items()}
        size, groups, part, _ = array.shape
        return {self.theirs[0]: array.transpose(1, 3, 2, 0).reshape(groups * part, part, size)}


if __name__ == "__main__":
    for title, config, heads in (("v2", PRESET, (MASKED_WORDS,)), ("v3, a pair", V3_PRESET, (REPLACED,))):
        model = DebertaV2(config, heads)
        print(f"{title}: weights by component")
        for component, count in model.get_parameter_count(by_component=True).items():
            print(f"  {component:18} {count:10,}")
