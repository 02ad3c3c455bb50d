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
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from mini_bert.common.values import check_size
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
from mini_bert.models.base import MASKED_WORDS, NEXT_SENTENCE, POOLER, Model
from mini_bert.models.pre_norm_sizes import GatedSizes
from mini_bert.models.published import ENCODER, PublishedConfig
from mini_bert.models.saving import Name, linear_names, norm_names, warn_of_own_matrix
from mini_bert.models.sizes import Sizes

GLOBAL, LOCAL = "full_attention", "sliding_attention"  # the published names of the two kinds of layers


@dataclass(frozen=True)
class ModernBertConfig(PublishedConfig):
    """The fields of a published `config.json` that affect the results; the defaults are those of ModernBERT-base.

    Older files say which layers are global by `global_attn_every_n_layers`, newer ones by `layer_types`; the bases of
    the rotary positions are `global_rope_theta` and `local_rope_theta`, or `rope_parameters`. Both forms are read and
    written. A file that has both must say the same in both: `transformers` reads the newer form and ignores the older.
    """

    model_type: ClassVar[str] = "modernbert"
    name: ClassVar[str] = "ModernBERT"
    only: ClassVar[Mapping[str, Any]] = {**ENCODER, "rope_scaling": None, "head_dim": None}
    # The results do not depend on these: how published code computes them, and fields that it never reads.
    neutral: ClassVar[frozenset[str]] = frozenset({
        "deterministic_flash_attn", "sparse_prediction", "sparse_pred_ignore_index", "reference_compile",
        "repad_logits_with_grad", "position_embedding_type", "layer_norm_eps",
        "global_attn_every_n_layers", "rope_parameters",  # from_dict has read these
    })  # fmt: skip

    vocab_size: int = 50368
    hidden_size: int = 768
    intermediate_size: int = 1152
    num_hidden_layers: int = 22
    num_attention_heads: int = 12
    hidden_activation: str = "gelu"
    max_position_embeddings: int = 8192
    initializer_range: float = 0.02
    initializer_cutoff_factor: float = 2.0
    norm_eps: float = 1e-5
    norm_bias: bool = False
    attention_bias: bool = False
    attention_dropout: float = 0.0
    layer_types: tuple[str, ...] = ()  # (): every third layer is global, starting with the first
    global_rope_theta: float = 160_000.0
    local_rope_theta: float = 10_000.0
    local_attention: int = 128  # a token sees half as many on each side
    embedding_dropout: float = 0.0
    mlp_bias: bool = False
    mlp_dropout: float = 0.0
    decoder_bias: bool = True
    classifier_pooling: str = "cls"
    classifier_dropout: float = 0.0  # kept for transformers; `finetune --dropout` replaces it
    classifier_bias: bool = False
    classifier_activation: str = "gelu"
    tie_word_embeddings: bool = True
    pad_token_id: int | None = 50283
    bos_token_id: int | None = 50281
    eos_token_id: int | list[int] | None = 50282
    cls_token_id: int | None = 50281
    sep_token_id: int | None = 50282

    def check(self) -> None:
        activation(self.hidden_activation, "hidden_activation")
        activation(self.classifier_activation, "classifier_activation")
        if self.classifier_pooling not in ("cls", "mean"):
            raise ValueError(f"classifier_pooling is {self.classifier_pooling!r:.60}, expected 'cls' or 'mean'")
        if not _is_complete(self.kinds, self.depth):
            raise ValueError(
                f"layer_types is {list(self.layer_types)!r:.100}, expected {GLOBAL!r} or {LOCAL!r} for each of the "
                f"{self.depth} layers"
            )
        if self.width // self.heads % 2:
            raise ValueError(
                f"hidden_size {self.width} among {self.heads} heads gives heads of width {self.width // self.heads}, "
                "but rotary positions need an even width"
            )

    @property
    def kinds(self) -> tuple[str, ...]:
        """Of each layer, whether it is global or local."""
        return self.layer_types or every(3, self.depth)

    @property
    def reach(self) -> int:
        """How far a token sees in each direction, in a local layer."""
        return self.local_attention // 2

    @property
    def dropout(self) -> float:
        return self.mlp_dropout

    def with_padding(self, pad_id: int) -> ModernBertConfig:
        return replace(self, pad_token_id=pad_id)

    @classmethod
    def from_dict(cls, values):
        values = dict(values)
        depth, kinds = values.get("num_hidden_layers", cls.num_hidden_layers), values.get("layer_types")
        step = values.get("global_attn_every_n_layers", 3 if kinds is None else None)
        check_size("num_hidden_layers", depth)
        if kinds is None:
            kinds = every(step, depth)
        kinds = tuple(kinds) if isinstance(kinds, list | tuple) else (kinds,)
        if step is not None and _is_complete(kinds, depth) and kinds != every(step, depth):
            refuse_both("global_attn_every_n_layers", step, "layer_types", list(kinds))
        values["layer_types"] = () if kinds == every(3, depth) else kinds
        for kind, field in ((GLOBAL, "global_rope_theta"), (LOCAL, "local_rope_theta")):
            theta = rope_theta(values.get("rope_parameters"), kind)
            if theta is not None:
                if values.get(field, theta) not in (theta, None):
                    refuse_both(field, values[field], "rope_parameters", f"rope_theta {theta!r} for {kind}")
                values[field] = theta
        if "local_rope_theta" in values and values["local_rope_theta"] is None:  # older files: the same for both
            values["local_rope_theta"] = values.get("global_rope_theta", cls.global_rope_theta)
        return super().from_dict(values)

    def to_dict(self) -> dict[str, Any]:
        values = super().to_dict()
        for name in ("pad_token_id", "bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id"):
            if isinstance(values[name], int) and values[name] >= self.vocab_size:
                values[name] = None  # the default is for a larger vocabulary
        thetas = {GLOBAL: self.global_rope_theta, LOCAL: self.local_rope_theta}
        rotary = {kind: {"rope_type": "default", "rope_theta": theta} for kind, theta in thetas.items()}
        step = next((n for n in (3, *range(1, self.depth + 1)) if every(n, self.depth) == self.kinds), None)
        older = {} if step is None else {"global_attn_every_n_layers": step}
        return {**values, "layer_types": list(self.kinds), "rope_parameters": rotary, **older}

    def sizes(self) -> Sizes:
        V, H, L, inner, T = self.vocab_size, self.width, self.depth, self.intermediate_size, self.max_length
        norm = H * (1 + self.norm_bias)
        block = 4 * H * H + 3 * H * inner + 2 * norm + self.attention_bias * 4 * H + self.mlp_bias * (2 * inner + H)
        head = H * H + self.classifier_bias * H + norm + self.decoder_bias * V + (0 if self.tie_head else H * V)
        parameters = V * H + norm + L * block + head  # the first block lacks a norm, the last is followed by one
        return GatedSizes(self.name, V, H, L, self.heads, inner, T, parameters, self.tie_head, self.dropout > 0,
                          self.attention_dropout > 0, True, 4, 5.25, 6)  # fmt: skip


def every(step: Any, depth: int) -> tuple[str, ...]:
    """Every `step`-th layer is global, starting with the first."""
    if isinstance(step, bool) or not isinstance(step, int) or step < 1:
        raise ValueError(f"global_attn_every_n_layers is {step!r:.60}, expected a whole number of at least 1")
    return tuple(LOCAL if index % step else GLOBAL for index in range(depth))


def _is_complete(kinds: tuple[Any, ...], depth: int) -> bool:
    return len(kinds) == depth and all(kind in (GLOBAL, LOCAL) for kind in kinds)


def refuse_both(older: str, given: Any, newer: str, also: Any) -> None:
    """The error for two forms of a setting that have different values"""
    raise ValueError(
        f"{older} is {given!r:.60}, but {newer} says {also!s:.100}; these are two forms of the same setting, and they "
        f"contradict each other. Leave out {older} if {newer} is right, as transformers assumes, or {newer} if not"
    )


def rope_theta(parameters: Any, kind: str) -> float | None:
    """The base of the rotary positions of one kind of layers; None: not given. Other kinds of rotation are refused."""
    if parameters is None:
        return None
    expected = f"expected an object with {GLOBAL!r} and {LOCAL!r}, each with 'rope_type' and 'rope_theta'"
    if not isinstance(parameters, dict) or not set(parameters) <= {GLOBAL, LOCAL}:
        raise ValueError(f"rope_parameters is {parameters!r:.100}, {expected}")
    given = parameters.get(kind) or {}
    if not isinstance(given, dict) or not set(given) <= {"rope_type", "rope_theta"}:
        raise ValueError(f"rope_parameters is {given!r:.100} for {kind}, {expected}")
    if given.get("rope_type", "default") != "default":
        raise ValueError(
            f"rope_type is {given['rope_type']!r:.60} for {kind}, but only 'default' is supported for ModernBERT; with "
            "another value, the model would compute something else"
        )
    return given.get("rope_theta")


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
        MASKED_WORDS: "no head for masked words: it was published without one, or fine-tuned; load a "
        "ModernBertForMaskedLM, or build one with ModernBert(config)",
        NEXT_SENTENCE: "no next-sentence head: it was trained on masked words alone",
        POOLER: "no pooler: use the vector of the first token, or the mean of all",
    }

    def __init__(
        self, config: ModernBertConfig, masked_words: bool = True, seed: int | None = 0, dtype: Any = np.float32
    ):
        self.config = config
        self.tokens = Embedding(config.vocab_size, config.width, init=_initial(config))
        self.norm = _norm(config)
        blocks = [_block(config, index) for index in range(config.depth)]
        self.encoder = ModernEncoder(blocks, config.kinds)
        self.final_norm = _norm(config)
        self.masked_words = ModernWordHead(config, self.tokens.table) if masked_words else None
        self._own_memory(seed, dtype)

    @classmethod
    def build(cls, config, heads=(MASKED_WORDS,), seed=0, dtype=np.float32):
        return cls(config, MASKED_WORDS in heads, seed, dtype)

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
