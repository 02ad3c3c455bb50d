"""BERT as published by Devlin et al. (2018). Reads and writes published checkpoints.

    x = LayerNorm(E[ids] + P[:T] + S[types])              S: first or second sentence
    x = block_l(x)          l = 1 … L                     biased attention, GELU
    pooled = tanh(x[:,0] W + b)                           the vector of [CLS], for tasks on whole sentences
    mlm    = LayerNorm(gelu(x W + b)) Eᵀ + b              which word belongs here? E: the token table again (tied)
    next   = pooled W + b                                 does the second sentence follow the first?

The differences from Mini-BERT (models/mini.py): token types and a norm at the embeddings, biases in attention, GELU,
no norm after the last block, a pooler, and the heads of published checkpoints. A checkpoint may have all, some or none
of the heads; a `Bert` loaded from it has the same ones.

The embeddings are in bert_like.py, the heads in heads.py, because BERT's relatives use them, too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from mini_bert.layers.encoder import Encoder
from mini_bert.layers.linear import Linear
from mini_bert.models.base import MASKED_WORDS, NEW_HEAD, NEXT_SENTENCE, NO_POOLER, NO_WORD_HEAD, POOLER
from mini_bert.models.bert_like import SMALL, BertLike, BertLikeConfig, block
from mini_bert.models.heads import Pooler
from mini_bert.models.saving import Name, linear_names
from mini_bert.models.sizes import Sizes, block_parameters, inner_arrays


@dataclass(frozen=True)
class BertConfig(BertLikeConfig):
    """BERT's fields, with the defaults of BERT-base, uncased."""

    model_type: ClassVar[str] = "bert"
    name: ClassVar[str] = "BERT"

    def sizes(self) -> Sizes:
        V, H, L, T, inner = self.vocab_size, self.width, self.depth, self.max_length, self.intermediate_size
        parameters = (V + T + self.type_vocab_size) * H + 2 * H + L * (block_parameters(H, inner) + 4 * H)
        parameters += 2 * (H * H + H) + 2 * H + V + (0 if self.tie_head else H * V) + 2 * H + 2  # pooler and heads
        return self.sizes_with(parameters, 3 + min(inner_arrays(self.hidden_act)[0], 2))


PRESET = BertConfig(**SMALL)


class Bert(BertLike):
    """Published BERT with a choice of heads."""

    model_type, config_class, family = "bert", BertConfig, "Bert"
    prefix, head_prefixes = "bert.", ("cls.", "classifier.", "qa_outputs.")
    decoder, decoder_bias = "cls.predictions.decoder", "cls.predictions.bias"
    head_tensors: ClassVar = {
        MASKED_WORDS: "cls.predictions.transform.dense.weight",
        POOLER: "pooler.dense.weight",
        NEXT_SENTENCE: "cls.seq_relationship.weight",
    }
    task_heads: ClassVar = {
        "ForSequenceClassification": {"dense": "pooler.dense", "linear": "classifier"},
        "ForTokenClassification": {"linear": "classifier"},
        "ForQuestionAnswering": {"linear": "qa_outputs"},
    }
    task_start: ClassVar = {"task.dense": "pooler.dense"}
    head_shapes: ClassVar = {MASKED_WORDS: "(B,T,V)", POOLER: "(B,H)", NEXT_SENTENCE: "(B,2)"}
    head_inputs: ClassVar = {NEXT_SENTENCE: POOLER}
    head_help: ClassVar = {
        MASKED_WORDS: NO_WORD_HEAD,
        NEXT_SENTENCE: f"no next-sentence head: load a BertForPreTraining, {NEW_HEAD} and --next-sentence",
        POOLER: NO_POOLER,
    }

    def __init__(
        self,
        config: BertConfig,
        output_heads=(MASKED_WORDS, POOLER, NEXT_SENTENCE),
        seed: int | None = 0,
        dtype: Any = np.float32,
    ):
        self.config = config
        width, std = config.hidden_size, config.initializer_range
        self.add_embeddings(width)
        self.encoder = Encoder([block(config) for _ in range(config.num_hidden_layers)])
        follows = NEXT_SENTENCE in output_heads
        self.pooler = Pooler(width, std) if follows or POOLER in output_heads else None
        self.masked_words = self.word_head() if MASKED_WORDS in output_heads else None
        self.next_sentence = Linear(width, 2, std=std) if follows else None
        self._own_memory(seed, dtype)

    # ------------------------------------------------------------------ files

    def architecture(self):
        return {
            (True, True): "ForPreTraining",
            (True, False): "ForMaskedLM",
            (False, True): "ForNextSentencePrediction",
            (False, False): "Model",
        }[bool(self.masked_words), bool(self.next_sentence)]

    def names(self) -> list[Name]:
        """The table of published tensor names and ours, for loading and saving."""
        names = self.encoder_names()
        if self.pooler:
            names += linear_names("pooler.dense", "pooler.dense")
        if self.masked_words:
            names += self.word_names("cls.predictions.transform.dense", "cls.predictions.transform.LayerNorm")
        if self.next_sentence:
            names += linear_names("next_sentence", "cls.seq_relationship")
        return names


if __name__ == "__main__":
    model = Bert(PRESET)
    print(f"{model.get_parameter_count():,} parameters; a table for each of three questions about a token:")
    for name, part in {"which word": "tokens", "at which position": "positions", "in which text": "types"}.items():
        print(f"  {name:18} {getattr(model, part).table.shape}")
    ids, types = np.array([[2, 45, 4, 3, 78, 3]]), np.array([[0, 0, 0, 0, 1, 1]])
    output, _ = model.forward(ids, token_types=types)
    print(f"scores of words at every token {output.masked_words.shape}; follows or not {output.next_sentence.shape}")
    other, _ = model.forward(ids, token_types=1 - types)
    change = np.abs(output.masked_words - other.masked_words).max()
    print(f"with the two texts exchanged, scores differ by up to {change:.3f}")
