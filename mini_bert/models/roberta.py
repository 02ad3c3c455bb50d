"""RoBERTa (Liu et al. 2019): BERT, trained for longer on more text, with less around it.

    x = LayerNorm(E[ids] + P[positions] + S[types])       positions count from padding + 1
    x = block_l(x)          l = 1 … L                     BERT's block
    mlm = LayerNorm(gelu(x W + b)) Eᵀ + b                 gelu, whatever the blocks use

What differs from BERT (models/bert.py), and why:

- **No next sentence.** Predicting whether two texts belong together did not help, so only masked words are left, masked
  anew each time a text is seen. The pooler has nothing to learn from; a classifier brings its own dense layer.
- **Positions count tokens, not places.** Padding has the position of its own id, p (1 in published models). The first
  token that is not padding has position p + 1, the next one p + 2, … So a table of 514 rows is for 512 tokens, and
  padding on the left does not shift a text.
- **One token type.** A pair is `<s> a </s></s> b </s>`; the table of types has a single row, which is added everywhere.
- **Byte-level BPE** in place of WordPiece: `<s>` 0, `<pad>` 1, `</s>` 2, `<mask>` last.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from mini_bert.common.values import check_token_id
from mini_bert.layers.encoder import Encoder
from mini_bert.models.base import MASKED_WORDS, NEXT_SENTENCE, NO_POOLER, NO_WORD_HEAD, POOLER
from mini_bert.models.bert_like import SMALL, BertLike, BertLikeConfig, block
from mini_bert.models.heads import Pooler
from mini_bert.models.saving import Name, linear_names
from mini_bert.models.sizes import Sizes, block_parameters


@dataclass(frozen=True)
class RobertaConfig(BertLikeConfig):
    """The fields of a published `config.json` that affect the results. The defaults are those of `transformers`."""

    model_type: ClassVar[str] = "roberta"
    name: ClassVar[str] = "RoBERTa"
    may_be_zero: ClassVar[frozenset[str]] = frozenset({"pad_token_id"})

    vocab_size: int = 50265
    pad_token_id: int = 1

    def check(self) -> None:
        super().check()
        check_token_id("pad_token_id", self.pad_token_id, self.vocab_size)
        if self.max_length < 1:
            raise ValueError(
                f"max_position_embeddings is {self.max_position_embeddings}, expected at least "
                f"{self.pad_token_id + 2}: positions start at {self.pad_token_id + 1}, after that of padding "
                f"(pad_token_id {self.pad_token_id})"
            )

    @property
    def max_length(self) -> int:
        return self.max_position_embeddings - self.pad_token_id - 1

    @property
    def padding_id(self) -> int:
        return self.pad_token_id

    def with_padding(self, pad_id: int) -> Self:
        """For a tokenizer with another id for padding; the longest text stays as long."""
        return replace(self, pad_token_id=pad_id, max_position_embeddings=self.max_length + pad_id + 1)

    def sizes(self) -> Sizes:
        V, H, L, inner = self.vocab_size, self.width, self.depth, self.intermediate_size
        parameters = (V + self.max_position_embeddings + self.type_vocab_size) * H + 2 * H
        parameters += L * (block_parameters(H, inner) + 4 * H) + H * H + H  # and the pooler
        parameters += H * H + 3 * H + V + (0 if self.tie_head else H * V)
        return self.sizes_with(parameters, 5)


PRESET = RobertaConfig(
    **SMALL | {"max_position_embeddings": 66},  # for 64 tokens
    type_vocab_size=1,
    layer_norm_eps=1e-5,
)


class Roberta(BertLike):
    """Published RoBERTa with a choice of heads."""

    model_type, config_class, family = "roberta", RobertaConfig, "Roberta"
    vocabulary, layout = "bpe-8k", "roberta"
    head_shapes: ClassVar = {MASKED_WORDS: "(B,T,V)", POOLER: "(B,H)"}
    head_help: ClassVar = {
        MASKED_WORDS: NO_WORD_HEAD,
        NEXT_SENTENCE: "no next-sentence head: RoBERTa is trained on masked words only",
        POOLER: NO_POOLER,
    }
    prefix, head_prefixes = "roberta.", ("lm_head.", "classifier.", "qa_outputs.")
    decoder, decoder_bias = "lm_head.decoder", "lm_head.bias"
    head_tensors: ClassVar = {MASKED_WORDS: "lm_head.dense.weight", POOLER: "pooler.dense.weight"}
    task_heads: ClassVar = {
        "ForSequenceClassification": {"dense": "classifier.dense", "linear": "classifier.out_proj"},
        "ForTokenClassification": {"linear": "classifier"},
        "ForQuestionAnswering": {"linear": "qa_outputs"},
    }
    sentence_head: ClassVar = {"drops_input": True}

    def __init__(
        self, config: RobertaConfig, output_heads=(MASKED_WORDS,), seed: int | None = 0, dtype: Any = np.float32
    ):
        self.config = config
        width, std = config.hidden_size, config.initializer_range
        self.add_embeddings(width)
        self.encoder = Encoder([block(config) for _ in range(config.num_hidden_layers)])
        self.pooler = Pooler(width, std) if POOLER in output_heads else None
        self.masked_words = self.word_head("gelu") if MASKED_WORDS in output_heads else None
        self._own_memory(seed, dtype)

    # ------------------------------------------------------------------ embeddings

    def positions_of(self, ids):  # (B,T) -> (B,T)
        """p + 1, p + 2, … for the tokens that are not padding, p for padding        p: the id of padding"""
        used = ids != self.config.pad_token_id
        return np.cumsum(used, 1) * used + self.config.pad_token_id

    def embed(self, inputs, run):
        if inputs.positions is None:
            inputs = inputs._replace(positions=self.positions_of(inputs.ids))
        return super().embed(inputs, run)

    # ------------------------------------------------------------------ files

    def names(self) -> list[Name]:
        """The table of published tensor names and ours, for loading and saving."""
        names = self.encoder_names()
        if self.pooler:
            names += linear_names("pooler.dense", "pooler.dense")
        if self.masked_words:
            names += self.word_names("lm_head.dense", "lm_head.layer_norm")
        return names


if __name__ == "__main__":
    model = Roberta(PRESET)
    ids = np.array([[0, 7, 8, 9, 2], [1, 1, 0, 7, 2]])  # <pad> is 1
    print("positions count tokens, from 2; padding has position 1, also on the left:")
    for row, positions in zip(ids.tolist(), model.positions_of(ids).tolist(), strict=True):
        print(f"  ids {row} -> positions {positions}")
    padded, _ = model.encode(ids[1:], ids[1:] != 1)
    alone, _ = model.encode(ids[1:, 2:])
    print(f"so padding on the left changes the vectors of a text by {np.abs(padded[:, 2:] - alone).max():.0e}")
