"""Mini-BERT: 4,498,880 parameters that learn to predict masked English words.

    x = E[ids] + P[:T]                            token and position embeddings
    x = block_l(x)          l = 1 … L             attention, feed-forward: layers/block.py
    y = LayerNorm(x)                              final norm
    logits = y W + b                              one score per word of the vocabulary, for every token

Its differences from published BERT (models/bert.py): no token types and no norm at the embeddings, no bias in
attention, ReLU, one more norm at the end, and a head that is a single, untied matrix.

`forward` gives logits for every token. `loss` is for training: the head and most of the last block run only on the
chosen rows, because no other row enters the loss (layers/chosen.py). Both return a cache, and each has its backward.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np

from mini_bert.layers.attention import named_arrays
from mini_bert.layers.block import TransformerBlock
from mini_bert.layers.dropout import dropout, dropout_backward
from mini_bert.layers.embedding import Embedding, PositionEmbedding
from mini_bert.layers.encoder import Encoder
from mini_bert.layers.initialisers import neighbours, normal, sinusoids
from mini_bert.layers.layer_norm import LayerNorm
from mini_bert.layers.linear import Linear, TiedLinear
from mini_bert.models.base import MASKED_WORDS, NEXT_SENTENCE, POOLER, Model
from mini_bert.models.cache import EncodeCache
from mini_bert.models.config import MINI_BERT_CONFIG, MiniBertConfig

AMPLITUDE = 0.14  # of the initial position embeddings, which are sinusoids


class MiniTransformerLayer(TransformerBlock):
    """Mini-BERT's block: ReLU, and no bias in attention. Heads of the first block initially attend to neighbours."""

    def __init__(self, config: MiniBertConfig = MINI_BERT_CONFIG, first: bool = False):
        super().__init__(
            config.hidden_size,
            config.num_heads,
            config.intermediate_size,
            activation="relu",
            attention_bias=False,
            p=config.dropout,
            eps=config.layer_norm_eps,
        )
        if first:
            self.attention.qkv.w.init = neighbours(config.num_heads, AMPLITUDE)
        if config.init == "depth_scaled":  # what a block adds to the residual stream (docs/decisions/0004)
            for projection in (self.attention.output.w, self.feed_forward.contract.w):
                projection.init = normal(1 / math.sqrt(2 * config.num_layers * projection.shape[0]))


class MiniBERT(Model):
    """logits = LayerNorm(blocks(E[ids] + P)) W + b

    Initial weights (docs/decisions/0003): position embeddings are sinusoids, and the heads of the first block attend to
    neighbouring tokens. Token embeddings are N(0, 0.1²), but 0 in the first d coordinates, which are reserved for
    positions at first. Projections are N(0, 1/fan_in), or smaller where they write to the residual stream
    (config.init). The head is N(0, 0.02²), so that the first loss is about that of a uniform guess, ln V.
    """

    model_type, config_class, family = "mini_bert", MiniBertConfig, "MiniBert"
    in_transformers = None
    pools_cls = False
    embedding_parts = ("tokens", "positions")
    head_shapes: ClassVar = {MASKED_WORDS: "(B,T,V)"}
    head_help: ClassVar = {
        MASKED_WORDS: "no head for masked words: it was built without one; MiniBERT(config) has one",
        NEXT_SENTENCE: "no next-sentence head: only masked words can be predicted, so leave next_sentence out: "
        "model.loss(*batch[:4])",
        POOLER: "no pooler: use the mean of the tokens' vectors instead",
    }
    head: Any  # None in a fine-tuned model

    def __init__(
        self,
        config: MiniBertConfig = MINI_BERT_CONFIG,
        output_heads=(MASKED_WORDS,),
        seed: int | None = 0,
        dtype: Any = np.float32,
    ):
        if not isinstance(config, MiniBertConfig):
            raise TypeError(
                f"config must be a MiniBertConfig, not {config!r}; for example MiniBertConfig(num_layers=2)"
            )
        self.config = config
        own = config.head_size // 2 * 2  # coordinates that encode only the position at first
        self.tokens = Embedding(config.vocab_size, config.hidden_size, init=normal(0.1, silent=own))
        self.positions = PositionEmbedding(config.max_seq_length, config.hidden_size, sinusoids(AMPLITUDE, even=own))
        self.encoder = Encoder([MiniTransformerLayer(config, first=i == 0) for i in range(config.num_layers)])
        self.final_norm = LayerNorm(config.hidden_size, config.layer_norm_eps)
        self.head = None
        if MASKED_WORDS in output_heads:
            self.head = (
                TiedLinear(self.tokens.table)
                if config.tie_head
                else Linear(config.hidden_size, config.vocab_size, std=0.02)
            )
        self._own_memory(seed, dtype)

    @property
    def masked_words(self) -> Any:
        return self.head

    @property
    def word_bias(self):
        return self.head and self.head.b

    # ------------------------------------------------------------------ embeddings

    def embed(self, inputs, run):  # ids (B,T) -> (B,T,H)
        x, _ = self.tokens.forward(inputs.ids, run)
        x, length = self.positions.forward(x, run)
        x, dropped = dropout(x, self.config.dropout, run)
        return x, (length, dropped)

    def embed_backward(self, dx, inputs, cache, run):
        length, dropped = cache
        dx = dropout_backward(dx, dropped)
        self.positions.backward(dx, length, run)
        self.tokens.backward(dx, inputs.ids, run)
        return dx

    # ------------------------------------------------------------------ logits for every token

    def forward(self, input_ids, attention_mask=None, run=None):
        """Returns logits (B,T,V) and a cache of named arrays: `cache["attention_weights_0"]`; `list(cache)` for all."""
        run = run or self._new_run()
        y, cache = self.encode(input_ids, attention_mask, run=run)
        logits, cache.outputs[MASKED_WORDS] = self.output_head(MASKED_WORDS).forward(y, run)
        return logits, cache

    def backward(self, dlogits, cache, run=None):
        """Returns dx (B,T,H); adds to every gradient.        dlogits (B,T,V)"""
        run = run or self.run
        if not isinstance(cache, EncodeCache):
            raise TypeError(
                f"backward takes the cache of forward, not a {type(cache).__name__}; see also loss_backward"
            )
        self.encoder.check(cache.blocks)
        if MASKED_WORDS not in cache.outputs:
            raise ValueError("this cache is from encode, which computes no logits; use encode_backward, or run forward")
        expected = (*cache.inputs.ids.shape, self.config.vocab_size)
        if np.shape(dlogits) != expected:
            raise ValueError(f"dlogits has shape {np.shape(dlogits)}, expected {expected}, the shape of the logits")
        dy = self.head.backward(dlogits, cache.outputs[MASKED_WORDS], run)
        return self.encode_backward(dy, cache, run)

    # ------------------------------------------------------------------ for inspection

    @property
    def token_embeddings(self) -> np.ndarray:  # (V,H)
        return self.tokens.table.data

    @property
    def position_embeddings(self) -> np.ndarray:  # (T,H)
        return self.positions.table.data

    def _multi_head_attention(self, X, layer: int = 0):
        """Runs the attention of one layer on any vectors X (B,T,H). Returns its output (B,T,H) and arrays by name."""
        if not 0 <= layer < self.config.num_layers:
            raise ValueError(f"layer is {layer}, expected 0 to {self.config.num_layers - 1}")
        X = np.asarray(X, self.dtype)
        if X.ndim != 3 or X.shape[-1] != self.config.hidden_size:
            raise ValueError(f"X has shape {X.shape}, expected (batch, tokens, {self.config.hidden_size})")
        block: Any = self.encoder.blocks[layer]
        output, cache = block.attention.forward(X, self.run)
        return output, named_arrays(cache)

    @classmethod
    def heads_in(cls, values, tensors):
        return [] if "fine_tuning" in values else [MASKED_WORDS]


def main() -> None:
    """A model in action: what `python model.py` shows."""
    model = MiniBERT()
    ids = np.array([[2, 1045, 4, 2017, 3]])
    logits, cache = model.forward(ids)
    print(f"{model.get_parameter_count():,} parameters; ids {ids.shape} -> logits {logits.shape}; intermediate arrays:")
    for name, array in cache.items():
        print(f"  {name:22} {array.shape}")
    loss, loss_cache = model.loss(ids, rows=[2], targets=[77])
    dx = model.loss_backward(loss_cache)
    print(f"loss {loss:.3f}; norm of the gradient at the embeddings {np.linalg.norm(dx):.4f}")


if __name__ == "__main__":
    main()
