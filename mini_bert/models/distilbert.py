"""DistilBERT (Sanh et al. 2019): BERT with half the layers, taught by a whole one.

    x = LayerNorm(E[ids] + P[:T])                         no token types
    x = block_l(x)          l = 1 … L                     BERT's block
    mlm = LayerNorm(f(x W + b)) Eᵀ + b                    BERT's head; no pooler

What differs from BERT (models/bert.py), and why:

- **Half the layers.** A layer costs the same time whatever the width of the model's output, so the way to a fast model
  is fewer layers. The published ones started as six of the teacher's twelve; ours do with `--init-from-teacher`
  (objectives/distillation.py), and from random weights without it.
- **A teacher.** Besides masked words, the student learns the teacher's probabilities for all words (objectives/): they
  say which wrong words are nearly right, which the correct word alone does not.
- **No token types, no pooler**, because next sentences are not predicted. A classifier brings its own dense layer, with
  ReLU.

The norms have ε = 1e-12, which the config does not name. `sinusoidal_pos_embds` only determines how the table of
positions starts: as waves.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from mini_bert.layers.activations import activation
from mini_bert.layers.block import TransformerBlock
from mini_bert.layers.embedding import Embedding, PositionEmbedding
from mini_bert.layers.encoder import Encoder
from mini_bert.layers.initialisers import normal, sinusoids
from mini_bert.layers.layer_norm import LayerNorm
from mini_bert.models.base import MASKED_WORDS, NEXT_SENTENCE, NO_WORD_HEAD, POOLER
from mini_bert.models.bert_like import BertLike
from mini_bert.models.heads import MaskedWordHead
from mini_bert.models.published import ENCODER, PublishedConfig
from mini_bert.models.saving import Name
from mini_bert.models.sizes import Sizes, block_parameters, inner_arrays

EPS = 1e-12
LAYER = {  # the parts of a block, in files
    "attention.qkv": ("attention.q_lin", "attention.k_lin", "attention.v_lin"),
    "attention.output": ("attention.out_lin",),
    "attention_norm": ("sa_layer_norm",),
    "feed_forward.expand": ("ffn.lin1",),
    "feed_forward.contract": ("ffn.lin2",),
    "output_norm": ("output_layer_norm",),
}


@dataclass(frozen=True)
class DistilBertConfig(PublishedConfig):
    """The fields of a published `config.json` that affect the results. The defaults are those of `transformers`."""

    model_type: ClassVar[str] = "distilbert"
    name: ClassVar[str] = "DistilBERT"
    only: ClassVar[Mapping[str, Any]] = {**ENCODER, "tie_weights_": True}
    other_names: ClassVar[Mapping[str, str]] = {
        "hidden_size": "dim", "num_hidden_layers": "n_layers", "num_attention_heads": "n_heads"
    }  # fmt: skip

    vocab_size: int = 30522
    max_position_embeddings: int = 512
    sinusoidal_pos_embds: bool = False
    n_layers: int = 6
    n_heads: int = 12
    dim: int = 768
    hidden_dim: int = 3072
    dropout: float = 0.1
    attention_dropout: float = 0.1
    activation: str = "gelu"
    initializer_range: float = 0.02
    qa_dropout: float = 0.1  # this and the next are kept for transformers; `finetune --dropout` replaces them
    seq_classif_dropout: float = 0.2
    tie_word_embeddings: bool = True

    def check(self) -> None:
        activation(self.activation, "activation")

    def sizes(self) -> Sizes:
        V, H, L, T, inner = self.vocab_size, self.dim, self.n_layers, self.max_length, self.hidden_dim
        parameters = (V + T) * H + 2 * H + L * (block_parameters(H, inner) + 4 * H)
        parameters += H * H + 3 * H + V + (0 if self.tie_head else H * V)
        kept, temporary = inner_arrays(self.activation)
        return Sizes(self.name, V, H, L, self.heads, inner, T, parameters, self.tie_head, self.dropout > 0,
                     self.attention_dropout > 0, True, kept, temporary, 3 + min(kept, 2))  # fmt: skip


PRESET = DistilBertConfig(
    vocab_size=8192,
    max_position_embeddings=64,
    n_layers=3,
    n_heads=4,
    dim=192,
    hidden_dim=768,
    dropout=0.0,
    attention_dropout=0.0,
)


class DistilBert(BertLike):
    """Published DistilBERT, with or without its head."""

    model_type, config_class, family = "distilbert", DistilBertConfig, "DistilBert"
    head_shapes: ClassVar = {MASKED_WORDS: "(B,T,V)"}
    head_help: ClassVar = {
        MASKED_WORDS: NO_WORD_HEAD,
        NEXT_SENTENCE: "no next-sentence head: DistilBERT is trained on masked words, and on its teacher's answers",
        POOLER: "no pooler: use the mean of the tokens' vectors instead",
    }
    prefix = "distilbert."
    head_prefixes = ("vocab_", "pre_classifier.", "classifier.", "qa_outputs.")
    decoder, decoder_bias = "vocab_projector", "vocab_projector.bias"
    head_tensors: ClassVar = {MASKED_WORDS: "vocab_transform.weight"}
    task_heads: ClassVar = {
        "ForSequenceClassification": {"dense": "pre_classifier", "linear": "classifier"},
        "ForTokenClassification": {"linear": "classifier"},
        "ForQuestionAnswering": {"linear": "qa_outputs"},
    }
    sentence_head: ClassVar = {"activation_name": "relu"}
    drops_spans = True

    def __init__(
        self, config: DistilBertConfig, output_heads=(MASKED_WORDS,), seed: int | None = 0, dtype: Any = np.float32
    ):
        self.config = config
        width, std = config.dim, config.initializer_range
        self.tokens = Embedding(config.vocab_size, width, std)
        start = sinusoids(1.0) if config.sinusoidal_pos_embds else normal(std)
        self.positions = PositionEmbedding(config.max_position_embeddings, width, start)
        self.types = None
        self.norm = LayerNorm(width, EPS)
        self.encoder = Encoder(
            [
                TransformerBlock(
                    width,
                    config.n_heads,
                    config.hidden_dim,
                    config.activation,
                    p=config.dropout,
                    attention_p=config.attention_dropout,
                    eps=EPS,
                    std=std,
                )
                for _ in range(config.n_layers)
            ]
        )
        self.masked_words = None
        if MASKED_WORDS in output_heads:
            self.masked_words = MaskedWordHead(width, self.tokens.table, config.activation, EPS, std, config.tie_head)
        self._own_memory(seed, dtype)

    # ------------------------------------------------------------------ files

    def names(self) -> list[Name]:
        """The table of published tensor names and ours, for loading and saving."""
        names = self.encoder_names("transformer.layer", LAYER)
        if self.masked_words:
            names += self.word_names("vocab_transform", "vocab_layer_norm")
        return names


if __name__ == "__main__":
    from mini_bert.models.bert import Bert, BertConfig

    for name, model in (
        ("BERT-base", Bert(BertConfig(), seed=None)),
        ("DistilBERT", DistilBert(DistilBertConfig(), seed=None)),
    ):
        count = model.get_parameter_count(by_component=True)
        blocks = sum(number for part, number in count.items() if part.startswith("encoder"))
        print(f"{name:10} {model.get_parameter_count():11,} parameters, {blocks:10,} of them in {model.depth:2} layers")
    print("the parts that only BERT has: types (which text), pooler, next_sentence")
