"""ELECTRA (Clark et al. 2020): BERT that learns from every token, by telling real words from plausible ones.

    e = LayerNorm(E[ids] + P[:T] + S[types])              rows of width E
    x = e W + b                                           (E,H), only if E and H differ
    x = block_l(x)          l = 1 … L                     BERT's block
    replaced = f(x W + b) w + b                           one logit per token: was it replaced?      the discriminator
    mlm      = LayerNorm(gelu(x W + b)) Eᵀ + b            which word belongs here?                   the generator

What differs from BERT (models/bert.py), and why:

- **Two models.** A small generator fills masked words in by sampling. The discriminator reads the result and says of
  every token whether it is the original. Masked words teach BERT something about 15 % of the tokens; here all tokens
  teach, and the discriminator, which is the one to keep, never sees a [MASK].
- **A small generator.** A good one would leave nothing to tell apart; a quarter to half the width works best. Both
  models share the tables of tokens and positions: the generator trains all of V rows in each step, the discriminator
  only those that occur.
- **No pooler.** A classifier brings its own dense layer, with GELU.

`Electra` is either model, by its heads. With `generator` in its config, a discriminator contains the generator that it
is trained with, in the same flat memory: `model.generator` is an `Electra`, too. When the pair is saved, the folder
holds the discriminator, and its subfolder `generator` the generator, each as `transformers` expects it; a checkpoint of
a training run holds both in one file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from mini_bert.layers.activations import activation
from mini_bert.layers.base import Layer, Run, bind
from mini_bert.layers.encoder import Encoder
from mini_bert.layers.linear import Linear
from mini_bert.models.base import MASKED_WORDS, NEW_HEAD, NEXT_SENTENCE, NO_WORD_HEAD, POOLER, REPLACED
from mini_bert.models.bert_like import SMALL, BertLike, BertLikeConfig, block
from mini_bert.models.pairs import GENERATOR, Pair, PairConfig
from mini_bert.models.saving import Name, linear_names
from mini_bert.models.sizes import DiscriminatorSizes, ProjectedSizes, Sizes, block_parameters, inner_arrays

SHARED = ("tokens.table", "positions.table")


@dataclass(frozen=True)
class ElectraConfig(PairConfig, BertLikeConfig):
    """The fields of a published `config.json` that affect the results. The defaults are those of ELECTRA-small."""

    model_type: ClassVar[str] = "electra"
    name: ClassVar[str] = "ELECTRA"
    neutral: ClassVar[frozenset[str]] = frozenset(  # of the head for multiple choice
        {"summary_type", "summary_use_proj", "summary_activation", "summary_last_dropout"}
    )

    embedding_size: int = 128
    hidden_size: int = 256
    num_attention_heads: int = 4
    intermediate_size: int = 1024
    generator: Mapping[str, Any] | None = None

    def check(self) -> None:
        super().check()
        self.check_generator()

    def with_generator(self, share: int = 4) -> Self:
        """The config of a pair: the generator has 1/share of the width, of the heads and of the inner width."""
        heads = max(1, self.num_attention_heads // share)
        width = max(1, self.hidden_size // share // heads) * heads
        inner = max(1, self.intermediate_size // share)
        sizes = {"hidden_size": width, "num_attention_heads": heads, "intermediate_size": inner}
        return replace(self, generator=sizes)

    def to_dict(self) -> dict[str, Any]:
        values = super().to_dict()
        if self.generator is None:
            del values[GENERATOR]
        return values

    def sizes(self) -> Sizes:
        H = self.width
        kept, _ = inner_arrays(self.hidden_act)
        sizes = self._sizes(DiscriminatorSizes, H * H + H + H + 1, 1 + kept)
        if self.generator is None:
            return sizes
        own = self.generator_config
        E, tables = self.embedding_size, (self.vocab_size + self.max_length) * self.embedding_size
        words = own.width * E + 3 * E + self.vocab_size + (0 if self.tie_head else E * self.vocab_size)
        generator = own._sizes(ProjectedSizes, words, 4)
        return sizes._replace(parameters=sizes.parameters + generator.parameters - tables, before=generator)

    def _sizes(self, kind: type[Sizes], head: int, head_kept: int) -> Sizes:
        V, E, H, T, inner = self.vocab_size, self.embedding_size, self.width, self.max_length, self.intermediate_size
        parameters = (V + T + self.type_vocab_size) * E + 2 * E + (E * H + H if E != H else 0) + head
        parameters += self.depth * (block_parameters(H, inner) + 4 * H)
        return self.sizes_with(parameters, head_kept, kind, E)


PRESET = ElectraConfig(
    **SMALL,
    embedding_size=128,
    generator={"hidden_size": 96, "num_attention_heads": 2, "intermediate_size": 384},
)


class ReplacedHead(Layer):
    """z = f(x W + b) w + b        x (...,H) -> z (...,1): the token was replaced with probability σ(z)"""

    def __init__(self, width: int, activation_name: str, std: float):
        self.dense = Linear(width, width, std=std)
        self.activation = activation(activation_name)
        self.linear = Linear(width, 1, std=std)

    def forward(self, x, run):  # x (...,H)
        h, dense = self.dense.forward(x, run)
        a, activated = self.activation.forward(h)
        z, linear = self.linear.forward(a, run)  # (...,1)
        return z, (dense, activated, linear)

    def backward(self, dz, cache, run):  # dz (...,1)
        dense, activated, linear = cache
        da = self.linear.backward(dz, linear, run)
        dh = self.activation.backward(da, activated)
        return self.dense.backward(dh, dense, run)  # dx (...,H)


class Electra(Pair, BertLike):
    """Published ELECTRA: a discriminator (REPLACED), a generator (MASKED_WORDS), or the first with the second in it."""

    model_type, config_class, family = "electra", ElectraConfig, "Electra"
    objective = "replaced_tokens"
    head_shapes: ClassVar = {MASKED_WORDS: "(B,T,V)", REPLACED: "(B,T,1)"}
    head_help: ClassVar = {
        MASKED_WORDS: NO_WORD_HEAD,
        REPLACED: "no head for replaced words: it is a generator, or an encoder without a head; load an "
        f"ElectraForPreTraining, {NEW_HEAD}",
        NEXT_SENTENCE: "no next-sentence head: ELECTRA is trained on replaced words only",
        POOLER: "no pooler: use the mean of the tokens' vectors instead",
    }
    prefix = "electra."
    head_prefixes = (
        "generator_predictions.", "generator_lm_head.", "discriminator_predictions.", "classifier.", "qa_outputs.",
        f"{GENERATOR}.",
    )  # fmt: skip
    decoder, decoder_bias = "generator_lm_head", "generator_lm_head.bias"
    head_tensors: ClassVar = {
        MASKED_WORDS: "generator_predictions.dense.weight",
        REPLACED: "discriminator_predictions.dense.weight",
    }
    task_heads: ClassVar = {
        "ForSequenceClassification": {"dense": "classifier.dense", "linear": "classifier.out_proj"},
        "ForTokenClassification": {"linear": "classifier"},
        "ForQuestionAnswering": {"linear": "qa_outputs"},
    }
    sentence_head: ClassVar = {"activation_name": "gelu", "drops_input": True}
    generator: Electra | None

    def __init__(
        self,
        config: ElectraConfig,
        output_heads=(REPLACED,),
        seed: int | None = 0,
        dtype: Any = np.float32,
        discriminator: Electra | None = None,
    ):
        """discriminator: the model that this one is the generator of, and whose tables and memory it shares"""
        self.config = config if REPLACED in output_heads else config.alone()
        size, width, std = config.embedding_size, config.hidden_size, config.initializer_range
        self.add_embeddings(size)
        if discriminator is not None:
            self.tokens, self.positions = discriminator.tokens, discriminator.positions
        self.project = Linear(size, width, std=std) if size != width else None
        self.encoder = Encoder([block(config) for _ in range(config.num_hidden_layers)])
        self.masked_words = self.word_head("gelu") if MASKED_WORDS in output_heads else None
        self.replaced = self.generator = None
        if REPLACED in output_heads:
            self.replaced = ReplacedHead(width, config.hidden_act, std)
            if config.generator is not None:
                self.generator = Electra(config.generator_config, (MASKED_WORDS,), discriminator=self)
        if discriminator is None:
            self._own_memory(seed, dtype)

    def start_attention(self):
        """The generator shares the waves, so its heads must be as wide as the discriminator's."""
        super().start_attention()
        if self.generator and self.generator.width // self.generator.heads == self.width // self.heads:
            self.generator.start_attention()

    # ------------------------------------------------------------------ files

    def architecture(self):
        return "ForPreTraining" if self.replaced else super().architecture()

    def names(self) -> list[Name]:
        """The table of published tensor names and ours, for loading and saving."""
        names = self.encoder_names()
        if self.project:
            names += linear_names("project", "embeddings_project")
        if self.masked_words:
            names += self.word_names("generator_predictions.dense", "generator_predictions.LayerNorm")
        if self.replaced:
            names += linear_names("replaced.dense", "discriminator_predictions.dense")
            names += linear_names("replaced.linear", "discriminator_predictions.dense_prediction")
        if self.generator:
            own = [entry for entry in self.generator.names() if entry.ours not in SHARED]
            names += [entry.under(GENERATOR) for entry in own]
        return names


if __name__ == "__main__":
    model = Electra(PRESET)
    print("weights of a pair by component; the generator shares the tables of tokens and positions:")
    for component, count in model.get_parameter_count(by_component=True).items():
        print(f"  {component:18} {count:10,}")
    head = ReplacedHead(6, "gelu", 0.5)
    bind(head, seed=0)
    z, cache = head.forward(np.random.default_rng(0).normal(size=(2, 3, 6)).astype(np.float32), Run())
    print(f"one logit per token {z.shape}; dx {head.backward(np.ones_like(z), cache, Run()).shape}")
