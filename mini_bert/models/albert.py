"""ALBERT (Lan et al. 2019): BERT with far fewer weights, which are used again and again.

    e = LayerNorm(E[ids] + P[:T] + S[types])              rows of width E, much less than H
    x = e W + b                                           (E,H): widened once
    x = block_g(x)          L times                       the same block in every layer (or one per group)
    pooled = tanh(x[:,0] W + b)
    mlm    = LayerNorm(f(x W + b)) Eᵀ + b                 W (H,E): back to the width of the table
    order  = dropout(pooled) W + b                        are the two texts in their order, or swapped?

What differs from BERT (models/bert.py), and why:

- **Shared blocks.** The L layers are one block, used L times, with one gradient: the sum over its uses. Weights shrink
  by a factor of L; time does not, because every layer is still computed. `num_hidden_groups` makes it several blocks,
  each for L/groups layers in a row, and with `inner_group_num` each "layer" is a row of blocks.
- **Factorised embeddings.** A word's vector on its own says less than the vector of a word in its context, so the table
  need not be as wide as the blocks: V·E + E·H weights in place of V·H.
- **Sentence order** in place of next sentence. A random second text is easy to spot by its topic. With the two texts
  swapped, the topic is the same, and the model must learn what follows what.
- **SentencePiece Unigram** in place of WordPiece, and masked runs of one to three words (`train --masking ngram`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from mini_bert.layers.base import Layer, Run, bind
from mini_bert.layers.dropout import dropout, dropout_backward
from mini_bert.layers.encoder import Encoder
from mini_bert.layers.linear import Linear
from mini_bert.models.base import (
    MASKED_WORDS,
    NEW_HEAD,
    NEXT_SENTENCE,
    NO_POOLER,
    NO_WORD_HEAD,
    POOLER,
    SENTENCE_ORDER,
)
from mini_bert.models.bert_like import SMALL, BertLike, BertLikeConfig, block, block_names
from mini_bert.models.heads import Pooler
from mini_bert.models.saving import Name, linear_names
from mini_bert.models.sizes import FactorisedSizes, Sizes, block_parameters, inner_arrays

LAYER = {  # the parts of a block, in files
    "attention.qkv": ("attention.query", "attention.key", "attention.value"),
    "attention.output": ("attention.dense",),
    "attention_norm": ("attention.LayerNorm",),
    "feed_forward.expand": ("ffn",),
    "feed_forward.contract": ("ffn_output",),
    "output_norm": ("full_layer_layer_norm",),
}


@dataclass(frozen=True)
class AlbertConfig(BertLikeConfig):
    """The fields of a published `config.json` that affect the results. The defaults are those of ALBERT-xxlarge."""

    model_type: ClassVar[str] = "albert"
    name: ClassVar[str] = "ALBERT"
    only: ClassVar[Mapping[str, Any]] = {
        **BertLikeConfig.only, "gap_size": 0, "net_structure_type": 0,
        "num_memory_blocks": 0, "down_scale_factor": 1, "layers_to_keep": [],
    }  # fmt: skip

    vocab_size: int = 30000
    embedding_size: int = 128
    hidden_size: int = 4096
    num_hidden_groups: int = 1
    num_attention_heads: int = 64
    intermediate_size: int = 16384
    inner_group_num: int = 1
    hidden_act: str = "gelu_new"
    hidden_dropout_prob: float = 0.0
    attention_probs_dropout_prob: float = 0.0
    classifier_dropout_prob: float = 0.1

    def check(self) -> None:
        super().check()
        if self.num_hidden_groups > self.num_hidden_layers:
            raise ValueError(
                f"num_hidden_groups is {self.num_hidden_groups}, expected at most {self.num_hidden_layers}, the "
                "number of layers (num_hidden_layers), so that each group has one"
            )
        if self.depth > 256:
            raise ValueError(
                f"num_hidden_layers {self.num_hidden_layers} times inner_group_num {self.inner_group_num} is "
                f"{self.depth}, expected at most 256 blocks"
            )

    @property
    def depth(self) -> int:
        """How many blocks a text passes through"""
        return self.num_hidden_layers * self.inner_group_num

    def group(self, layer: int) -> int:
        return int(layer / (self.num_hidden_layers / self.num_hidden_groups))

    def sizes(self) -> Sizes:
        V, E, H, T, inner = self.vocab_size, self.embedding_size, self.width, self.max_length, self.intermediate_size
        blocks = self.num_hidden_groups * self.inner_group_num
        parameters = (V + T + self.type_vocab_size) * E + 2 * E + E * H + H
        parameters += blocks * (block_parameters(H, inner) + 4 * H) + H * H + H + 2 * H + 2  # pooler, sentence order
        parameters += H * E + 3 * E + V + (0 if self.tie_head else E * V)
        return self.sizes_with(parameters, 2 + min(inner_arrays(self.hidden_act)[0], 2), FactorisedSizes, E)


PRESET = AlbertConfig(
    **SMALL | {"hidden_size": 256, "num_hidden_layers": 6, "intermediate_size": 1024},
    embedding_size=128,
    classifier_dropout_prob=0.0,
)


class SentenceOrderHead(Layer):
    """y = dropout(pooled) W + b        pooled (B,H) -> y (B,2): 0 if the texts are in their order, 1 if swapped"""

    def __init__(self, width: int, p: float, std: float):
        self.p = p
        self.classifier = Linear(width, 2, std=std)

    def forward(self, pooled, run):
        h, dropped = dropout(pooled, self.p, run)
        y, classifier = self.classifier.forward(h, run)
        return y, (dropped, classifier)

    def backward(self, dy, cache, run):
        dropped, classifier = cache
        return dropout_backward(self.classifier.backward(dy, classifier, run), dropped)


class Albert(BertLike):
    """Published ALBERT with a choice of heads."""

    model_type, config_class, family = "albert", AlbertConfig, "Albert"
    vocabulary = "unigram-8k"
    objective = "masked_words_and_sentence_order"
    masking = "ngram"
    head_shapes: ClassVar = {MASKED_WORDS: "(B,T,V)", POOLER: "(B,H)", SENTENCE_ORDER: "(B,2)"}
    head_inputs: ClassVar = {SENTENCE_ORDER: POOLER}
    head_help: ClassVar = {
        MASKED_WORDS: NO_WORD_HEAD,
        NEXT_SENTENCE: "no next-sentence head: ALBERT predicts the order of sentences instead",
        SENTENCE_ORDER: f"no head for the order of sentences: load an AlbertForPreTraining, {NEW_HEAD}",
        POOLER: NO_POOLER,
    }
    prefix, head_prefixes = "albert.", ("predictions.", "sop_classifier.", "classifier.", "qa_outputs.")
    decoder, decoder_bias = "predictions.decoder", "predictions.bias"
    head_tensors: ClassVar = {
        MASKED_WORDS: "predictions.dense.weight",
        POOLER: "pooler.weight",
        SENTENCE_ORDER: "sop_classifier.classifier.weight",
    }
    task_heads: ClassVar = {
        "ForSequenceClassification": {"dense": "pooler", "linear": "classifier"},
        "ForTokenClassification": {"linear": "classifier"},
        "ForQuestionAnswering": {"linear": "qa_outputs"},
    }
    task_start: ClassVar = {"task.dense": "pooler.dense"}

    def __init__(
        self,
        config: AlbertConfig,
        output_heads=(MASKED_WORDS, POOLER, SENTENCE_ORDER),
        seed: int | None = 0,
        dtype: Any = np.float32,
    ):
        self.config = config
        size, width, std = config.embedding_size, config.hidden_size, config.initializer_range
        self.add_embeddings(size)
        self.project = Linear(size, width, std=std)
        groups = [[block(config) for _ in range(config.inner_group_num)] for _ in range(config.num_hidden_groups)]
        self.encoder = Encoder(
            [shared for layer in range(config.num_hidden_layers) for shared in groups[config.group(layer)]]
        )
        ordered = SENTENCE_ORDER in output_heads
        self.pooler = Pooler(width, std) if ordered or POOLER in output_heads else None
        self.masked_words = self.word_head() if MASKED_WORDS in output_heads else None
        self.sentence_order = SentenceOrderHead(width, config.classifier_dropout_prob, std) if ordered else None
        self._own_memory(seed, dtype)

    # ------------------------------------------------------------------ files

    def architecture(self):
        if self.masked_words and self.sentence_order:
            return "ForPreTraining"
        return super().architecture()

    def names(self) -> list[Name]:
        """The table of published tensor names and ours, for loading and saving. A block has the name of its first use;
        the others are the same Params."""
        config = self.config
        names = [*self.embedding_names(), *linear_names("project", "encoder.embedding_hidden_mapping_in")]
        for group in range(config.num_hidden_groups):
            layer = next(layer for layer in range(config.num_hidden_layers) if config.group(layer) == group)
            for inner in range(config.inner_group_num):
                ours = f"encoder.blocks.{layer * config.inner_group_num + inner}"
                theirs = f"encoder.albert_layer_groups.{group}.albert_layers.{inner}"
                names += block_names(ours, theirs, LAYER)
        if self.pooler:
            names += linear_names("pooler.dense", "pooler")
        if self.masked_words:
            names += self.word_names("predictions.dense", "predictions.LayerNorm")
        if self.sentence_order:
            names += linear_names("sentence_order.classifier", "sop_classifier.classifier")
        return names


if __name__ == "__main__":
    shared = Albert(PRESET)
    print(f"{PRESET.depth} layers use {len({id(one) for one in shared.encoder.blocks})} block; weights by component:")
    for component, count in shared.get_parameter_count(by_component=True).items():
        print(f"  {component:18} {count:10,}")
    head = SentenceOrderHead(6, 0.1, 0.5)
    bind(head, seed=0)
    scores, _ = head.forward(np.ones((2, 6), np.float32), Run())
    print(f"the order of two pairs of texts: scores {scores.shape}")
