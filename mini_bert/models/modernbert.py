"""ModernBERT (Warner et al. 2024): BERT's task with what was learnt in the six years after it.

    x = LayerNorm(E[ids])
    x = x + Attention(LayerNorm(x))         rotary positions; two layers in three see only the neighbourhood
    x = x + GatedFeedForward(LayerNorm(x))  L times; the first block has no norm before its attention
    y = LayerNorm(x)
    logits = LayerNorm(gelu(y W)) Eᵀ + b

The differences from BERT (models/bert.py), and why:

- **Rotary positions** (layers/rotary.py) instead of a table: queries and keys are rotated, so that scores depend on the
  distance of two tokens. There is no longest position to learn, and texts can have 8,192 tokens.
- **Local attention.** Scores of all pairs cost T². Every third layer is global; in the others a token sees only the 64
  on each side (layers/masks.py). Local layers rotate faster (θ = 10,000) than global ones (θ = 160,000), because their
  distances are shorter.
- **Norms before the sublayers** and one at the end (layers/pre_norm_block.py). The embeddings have a norm of their own,
  so the first block does not need another before its attention.
- **A gated feed-forward network** (layers/gated_feed_forward.py), which learns more per weight.
- **No biases**, in projections and norms: they hardly help, and the weights go into more layers instead.
- **No token types, no next sentence, no pooler**: as in RoBERTa, they did not help. A sequence is classified by the
  vector of [CLS] or by the mean of all vectors (`classifier_pooling`), after the same dense layer and norm as masked
  words.

The published code also removes padding before it computes ("unpadding"); that changes the speed and not the results.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from mini_bert.layers.activations import activation
from mini_bert.layers.base import Layer, Param, Unchanged
from mini_bert.layers.dropout import dropout, dropout_backward
from mini_bert.layers.embedding import Embedding
from mini_bert.layers.encoder import Encoder
from mini_bert.layers.gated_feed_forward import GatedFeedForward
from mini_bert.layers.initialisers import cut_normal
from mini_bert.layers.layer_norm import LayerNorm
from mini_bert.layers.linear import Linear, TiedLinear
from mini_bert.layers.masks import both, local
from mini_bert.layers.pre_norm_block import PreNormBlock
from mini_bert.layers.rotary import RotaryAttention
from mini_bert.models.base import MASKED_WORDS, NEW_HEAD, NEXT_SENTENCE, POOLER, Model
from mini_bert.models.modernbert_config import GLOBAL, LOCAL, ModernBertConfig
from mini_bert.models.saving import Name, linear_names, norm_names, warn_of_own_matrix

PRESET = ModernBertConfig(
    vocab_size=8192, hidden_size=192, intermediate_size=512, num_hidden_layers=3, num_attention_heads=4,
    max_position_embeddings=128, local_attention=16, pad_token_id=0, bos_token_id=2, eos_token_id=3, cls_token_id=2,
    sep_token_id=3,
)  # fmt: skip


class PredictionHead(Layer):
    """y = LayerNorm(f(x W + b))        x (...,H) -> (...,H)        In front of every output of a ModernBERT."""

    def __init__(self, config: ModernBertConfig):
        self.dense = Linear(config.width, config.width, config.classifier_bias)
        self.dense.w.init = _initial(config, residual=True)
        self.activation = activation(config.classifier_activation)
        self.norm = LayerNorm(config.width, config.norm_eps, config.norm_bias)

    def forward(self, x, run):
        h, dense = self.dense.forward(x, run)
        a, activated = self.activation.forward(h)
        y, norm = self.norm.forward(a, run)
        return y, (dense, activated, norm)

    def backward(self, dy, cache, run):
        dense, activated, norm = cache
        dh = self.activation.backward(self.norm.backward(dy, norm, run), activated)
        return self.dense.backward(dh, dense, run)


class ModernWordHead(Layer):
    """logits = LayerNorm(f(x W + b)) Eᵀ + b        x (...,H) -> (...,V)"""

    def __init__(self, config: ModernBertConfig, table: Param):
        self.transform = PredictionHead(config)
        if config.tie_word_embeddings:
            self.decoder: Any = TiedLinear(table, config.decoder_bias)
        else:
            self.decoder = Linear(config.width, config.vocab_size, config.decoder_bias)
            self.decoder.w.init = _initial(config, residual=True)

    def forward(self, x, run):
        y, transform = self.transform.forward(x, run)
        logits, decoder = self.decoder.forward(y, run)
        return logits, (transform, decoder)

    def backward(self, dlogits, cache, run):
        transform, decoder = cache
        return self.transform.backward(self.decoder.backward(dlogits, decoder, run), transform, run)


class ModernEncoder(Encoder):
    """Global and local blocks. `near` is the mask of the local ones."""

    def __init__(self, blocks, kinds: tuple[str, ...]):
        super().__init__(blocks)
        self.kinds = kinds

    def block_inputs(self, index, inputs):
        rest = {name: value for name, value in inputs.items() if name != "near"}
        return rest | {"mask": inputs["near"]} if self.kinds[index] == LOCAL else rest


class ModernBert(Model):
    """logits = head(LayerNorm(blocks(LayerNorm(E[ids]))))"""

    model_type, config_class, family = "modernbert", ModernBertConfig, "ModernBert"
    vocabulary = "bpe-8k"
    prefix, head_prefixes = "model.", ("head.", "decoder.", "classifier.")
    embedding_parts = ("tokens", "norm")
    task_heads: ClassVar = {
        task: {"transform.dense": "head.dense", "transform.norm": "head.norm", "linear": "classifier"}
        for task in ("ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering")
    }
    task_start: ClassVar = {
        "task.transform.dense": "masked_words.transform.dense",
        "task.transform.norm": "masked_words.transform.norm",
    }
    drops_spans = True
    head_shapes: ClassVar = {MASKED_WORDS: "(B,T,V)"}
    head_help: ClassVar = {
        MASKED_WORDS: "no head for masked words: it was published without one; load a ModernBertForMaskedLM, "
        f"{NEW_HEAD}",
        NEXT_SENTENCE: "no next-sentence head: it was trained on masked words alone",
        POOLER: "no pooler: use the vector of the first token, or the mean of all",
    }

    def __init__(
        self, config: ModernBertConfig, output_heads=(MASKED_WORDS,), seed: int | None = 0, dtype: Any = np.float32
    ):
        self.config = config
        self.tokens = Embedding(config.vocab_size, config.width, init=_initial(config))
        self.norm = _norm(config)
        blocks = [_block(config, index) for index in range(config.depth)]
        self.encoder = ModernEncoder(blocks, config.kinds)
        self.final_norm = _norm(config)
        self.masked_words = ModernWordHead(config, self.tokens.table) if MASKED_WORDS in output_heads else None
        self._own_memory(seed, dtype)

    @property
    def word_bias(self):
        return self.masked_words and self.masked_words.decoder.b

    # ------------------------------------------------------------------ embeddings and blocks

    def embed(self, inputs, run):  # ids (B,T) -> (B,T,H)
        x, _ = self.tokens.forward(inputs.ids, run)
        x, norm = self.norm.forward(x, run)
        x, dropped = dropout(x, self.config.embedding_dropout, run)
        return x, (norm, dropped)

    def embed_backward(self, dx, inputs, cache, run):
        norm, dropped = cache
        dx = self.norm.backward(dropout_backward(dx, dropped), norm, run)
        self.tokens.backward(dx, inputs.ids, run)
        return dx

    def encoder_inputs(self, inputs):
        near = both(local(inputs.ids.shape[1], self.config.reach), inputs.mask)
        return {"mask": inputs.mask, "near": near}

    def more_arrays(self, embedding, final):
        return {"embedding_norm": embedding[0].x_hat, "final_norm": final.x_hat}

    # ------------------------------------------------------------------ files

    def task_transform(self):
        return PredictionHead(self.config)

    @classmethod
    def sentence_settings(cls, config):
        """The mean is over all tokens, the special ones included."""
        return {"pooling": ["all" if config.classifier_pooling == "mean" else "cls"], "dense": False}

    @classmethod
    def heads_in(cls, values, tensors):
        """A fine-tuned model has `head.dense` as well, but neither the decoder's bias nor its matrix."""
        written = " ".join(map(str, values.get("architectures") or ()))
        is_held = "decoder.bias" in tensors or "decoder.weight" in tensors or "MaskedLM" in written
        return [MASKED_WORDS] if is_held and "head.dense.weight" in tensors else []

    def reconcile(self, tensors, table, source):
        if self.masked_words and "decoder.bias" in tensors and not self.config.decoder_bias:
            raise ValueError(
                f"{source}: config.json says that the head has no bias (decoder_bias is false), but the weights have "
                "decoder.bias; set decoder_bias to true, or use the weights that belong to this config.json"
            )
        if self.config.tie_word_embeddings:
            warn_of_own_matrix(tensors, "decoder.weight", "embeddings.tok_embeddings.weight", source)
        return [name for name in super().reconcile(tensors, table, source) if name != "decoder.weight"]

    def names(self) -> list[Name]:
        """The table of published tensor names and ours, for loading and saving."""
        names = [
            Name("tokens.table", ("embeddings.tok_embeddings.weight",)),
            *norm_names("norm", "embeddings.norm"),
            *norm_names("final_norm", "final_norm"),
        ]
        for index in range(self.config.depth):
            ours, theirs = f"encoder.blocks.{index}", f"layers.{index}"
            names += [
                *norm_names(f"{ours}.attention_norm", f"{theirs}.attn_norm"),
                *linear_names(f"{ours}.attention.qkv", f"{theirs}.attn.Wqkv"),
                *linear_names(f"{ours}.attention.output", f"{theirs}.attn.Wo"),
                *norm_names(f"{ours}.feed_forward_norm", f"{theirs}.mlp_norm"),
                *linear_names(f"{ours}.feed_forward.expand", f"{theirs}.mlp.Wi"),
                *linear_names(f"{ours}.feed_forward.contract", f"{theirs}.mlp.Wo"),
            ]
        names += linear_names("masked_words.transform.dense", "head.dense")
        names += norm_names("masked_words.transform.norm", "head.norm")
        names += linear_names("masked_words.decoder", "decoder")
        params = self.named_params()
        return [entry for entry in names if entry.ours in params]  # most have no bias


def _norm(config: ModernBertConfig) -> LayerNorm:
    return LayerNorm(config.width, config.norm_eps, config.norm_bias)


def _initial(config: ModernBertConfig, residual: bool = False):
    """Projections into the residual stream start smaller, because 2L of them add up."""
    std = config.initializer_range / (math.sqrt(2 * config.depth) if residual else 1)
    return cut_normal(std, config.initializer_cutoff_factor)


def _block(config: ModernBertConfig, index: int) -> PreNormBlock:
    width, p = config.width, config.attention_dropout
    theta = config.global_rope_theta if config.kinds[index] == GLOBAL else config.local_rope_theta
    attention = RotaryAttention(width, config.heads, theta, config.attention_bias, p)
    feed_forward = GatedFeedForward(
        width, config.intermediate_size, config.hidden_activation, config.mlp_bias, config.mlp_dropout
    )
    for part in (attention.qkv, feed_forward.expand):
        part.w.init = _initial(config)
    for part in (attention.output, feed_forward.contract):
        part.w.init = _initial(config, residual=True)
    return PreNormBlock(_norm(config) if index else Unchanged(), attention, _norm(config), feed_forward, p)


if __name__ == "__main__":
    model = ModernBert(replace(PRESET, local_attention=4))
    _, cache = model.encode(np.arange(5, 15)[None])
    for index, kind in enumerate(model.config.kinds):
        seen = np.flatnonzero(cache[f"attention_weights_{index}"][0, 0, 5]).tolist()
        print(f"layer {index}, {kind}: token 5 sees tokens {seen}")
    T, reach = ModernBertConfig.max_position_embeddings, ModernBertConfig.local_attention
    print(f"ModernBERT-base has {T:,} scores per token in a global layer and {reach + 1} in a local one")
    biases = [name for name in model.named_params() if name.endswith((".b", ".beta"))]
    print(f"{len(model.named_params())} weights, of which biases: {', '.join(biases)}")
