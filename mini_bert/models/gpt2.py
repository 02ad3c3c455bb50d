"""GPT-2 (Radford et al. 2019): a model that writes. It predicts the next word, where BERT fills gaps.

    x = E[ids] + P[:T]
    x = x + Attention(LayerNorm(x))         a token sees itself and the tokens before it, never those after
    x = x + FeedForward(LayerNorm(x))       L times
    y = LayerNorm(x)
    logits = y Eᵀ                           at every token: which word comes next?

The differences from BERT (models/bert.py), and why:

- **A causal mask.** BERT reads in both directions, so it must hide the words that it predicts, about 15 %. If no token
  sees what follows, every token can be trained to predict the next one, and a text can be written from left to right:
  each new word is appended and read in turn. The price is that a token's vector reflects only what is on its left.
- **Norms before the sublayers** and one at the end (layers/pre_norm_block.py), so that deep models train stably.
  Projections into the residual stream start smaller, by 1/√(2L), because 2L of them add up.
- **GELU in its tanh form** (layers/activations.py), because the published weights were trained with it.
- **No token types, no norm at the embeddings, no pooler.** The head is the token table alone, without a bias.

Because no token depends on later ones, the keys and values of a text can be kept while it grows (layers/past.py):

    hidden, cache = model.encode_inputs(Inputs(ids, memory=()), run)          of a prompt
    hidden, cache = model.encode_inputs(Inputs(next, memory=cache.memory), run)     of each token after it

Published files store these weights as (in, out), like ours, because the original code had convolutions of width 1.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from mini_bert.common.values import check_size
from mini_bert.layers.activations import activation
from mini_bert.layers.dropout import dropout, dropout_backward
from mini_bert.layers.embedding import Embedding
from mini_bert.layers.encoder import Encoder
from mini_bert.layers.feed_forward import FeedForward
from mini_bert.layers.initialisers import normal
from mini_bert.layers.layer_norm import LayerNorm
from mini_bert.layers.linear import Linear, TiedLinear
from mini_bert.layers.masks import both, causal, with_memory
from mini_bert.layers.past import PastAttention
from mini_bert.layers.pre_norm_block import PreNormBlock
from mini_bert.models.base import MASKED_WORDS, NEW_HEAD, NEXT_SENTENCE, NEXT_WORD, POOLER, Model
from mini_bert.models.pre_norm_sizes import PreNormSizes
from mini_bert.models.published import ENCODER, PublishedConfig
from mini_bert.models.saving import Name, linear_names, norm_names, warn_of_own_matrix
from mini_bert.models.sizes import Sizes, block_parameters, inner_arrays


@dataclass(frozen=True)
class GPT2Config(PublishedConfig):
    """The fields of a published `config.json` that affect the results; the defaults are those of the smallest GPT-2."""

    model_type: ClassVar[str] = "gpt2"
    name: ClassVar[str] = "GPT-2"
    only: ClassVar[Mapping[str, Any]] = {
        **{name: value for name, value in ENCODER.items() if name != "is_decoder"},
        "is_causal": True,
    }
    neutral: ClassVar[frozenset[str]] = frozenset({
        "is_decoder", "predict_special_tokens",
        # of the multiple-choice head of GPT2DoubleHeadsModel, which we do not have
        "summary_type", "summary_use_proj", "summary_activation", "summary_proj_to_labels", "summary_first_dropout",
        "summary_last_dropout",
        "condition_on_chain", "condition_on_species",  # of IgLM: how its texts begin
    })  # fmt: skip
    other_names: ClassVar[Mapping[str, str]] = {  # transformers takes these names, too; n_ctx is the first code's
        "n_ctx": "n_positions",
        "hidden_size": "n_embd",
        "max_position_embeddings": "n_positions",
        "num_attention_heads": "n_head",
        "num_hidden_layers": "n_layer",
    }

    vocab_size: int = 50257
    n_positions: int = 1024
    n_embd: int = 768
    n_layer: int = 12
    n_head: int = 12
    n_inner: int | None = None  # None: 4 times the width
    activation_function: str = "gelu_new"
    resid_pdrop: float = 0.1
    embd_pdrop: float = 0.1
    attn_pdrop: float = 0.1
    layer_norm_epsilon: float = 1e-5
    initializer_range: float = 0.02
    scale_attn_weights: bool = True  # False: scores are not divided by √d
    scale_attn_by_inverse_layer_idx: bool = False  # True: scores of block l are divided by l, counted from 1
    reorder_and_upcast_attn: bool = False  # True: scores in float32 even if weights have 16 bits; ours always are
    tie_word_embeddings: bool = True
    bos_token_id: int | None = None
    eos_token_id: int | list[int] | None = None
    pad_token_id: int | None = None

    def check(self) -> None:
        activation(self.activation_function, "activation_function")
        if self.n_inner is not None:
            check_size("n_inner", self.n_inner)
        ends = self.eos_token_id if isinstance(self.eos_token_id, list) else [self.eos_token_id]
        if any(end is not None and type(end) is not int for end in ends):
            raise ValueError(f"eos_token_id is {self.eos_token_id!r:.60}, expected an id, a list of ids, or null")

    @property
    def inner(self) -> int:
        return 4 * self.n_embd if self.n_inner is None else self.n_inner

    @property
    def dropout(self) -> float:
        return self.resid_pdrop

    def with_padding(self, pad_id: int) -> GPT2Config:
        return replace(self, pad_token_id=pad_id)

    def sizes(self) -> Sizes:
        V, H, L, T = self.vocab_size, self.width, self.depth, self.max_length
        parameters = (V + T) * H + L * (block_parameters(H, self.inner) + 4 * H) + 2 * H
        parameters += 0 if self.tie_head else H * V
        kept, temporary = inner_arrays(self.activation_function)
        return PreNormSizes(self.name, V, H, L, self.heads, self.inner, T, parameters, self.tie_head,
                            self.resid_pdrop > 0, self.attn_pdrop > 0, False, kept, temporary, 2)  # fmt: skip


PRESET = GPT2Config(
    vocab_size=8192, n_positions=64, n_embd=192, n_layer=3, n_head=4, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0
)


class GPT2Encoder(Encoder):
    """The blocks, each with its own past."""

    def block_inputs(self, index, inputs):
        return inputs | {"past": inputs["past"][index] if inputs["past"] else None}


class GPT2(Model):
    """logits = LayerNorm(blocks(E[ids] + P)) Eᵀ"""

    model_type, config_class, family = "gpt2", GPT2Config, "GPT2"
    with_head = "LMHeadModel"
    vocabulary, layout = "bpe-8k", "gpt2"
    prefix = "transformer."
    head_prefixes = ("lm_head.", "multiple_choice_head.", "score.", "classifier.", "qa_outputs.")
    objective = "next_word"
    empty_memory = ()
    keeps_keys = True
    reads_forward = True
    task_heads: ClassVar = {
        "ForSequenceClassification": {"linear": "score"},
        "ForTokenClassification": {"linear": "classifier"},
        "ForQuestionAnswering": {"linear": "qa_outputs"},
    }
    sentence_head: ClassVar = {"bias": False}
    embedding_parts = ("tokens", "positions")
    head_shapes: ClassVar = {NEXT_WORD: "(B,T,V)"}
    head_help: ClassVar = {
        NEXT_WORD: f"no head for the next word: it was published without one; load a GPT2LMHeadModel, {NEW_HEAD}",
        MASKED_WORDS: "no head for masked words: a GPT-2 predicts the next word; try `mini-bert generate`",
        NEXT_SENTENCE: "no next-sentence head: a GPT-2 predicts the next word",
        POOLER: "no pooler: use the vector of the last token, which has seen all others",
    }
    encoder: GPT2Encoder
    next_word: Any

    def __init__(self, config: GPT2Config, output_heads=(NEXT_WORD,), seed: int | None = 0, dtype: Any = np.float32):
        self.config = config
        width, std = config.width, config.initializer_range
        self.tokens = Embedding(config.vocab_size, width, std)
        self.positions = Embedding(config.n_positions, width, std)
        self.encoder = GPT2Encoder([_block(config, index) for index in range(config.depth)])
        self.final_norm = LayerNorm(width, config.layer_norm_epsilon)
        self.next_word = None
        if NEXT_WORD in output_heads:
            self.next_word = (
                TiedLinear(self.tokens.table, bias=False)
                if config.tie_word_embeddings
                else Linear(width, config.vocab_size, bias=False, std=std)
            )
        self._own_memory(seed, dtype)

    # ------------------------------------------------------------------ embeddings

    def embed(self, inputs, run):  # ids (B,T) -> (B,T,H)
        places = self._positions_of(inputs)
        x, _ = self.tokens.forward(inputs.ids, run)
        p, _ = self.positions.forward(places, run)
        x, dropped = dropout(x + p, self.config.embd_pdrop, run)
        return x, (places, dropped)

    def embed_backward(self, dx, inputs, cache, run):
        places, dropped = cache
        dx = dropout_backward(dx, dropped)
        self.positions.backward(dx.sum(0) if places.ndim == 1 else dx, places, run)
        self.tokens.backward(dx, inputs.ids, run)
        return dx

    def _positions_of(self, inputs) -> np.ndarray:
        """The positions of the tokens: (B,T) as given, or (T,), after those in the memory."""
        if inputs.positions is not None:
            return inputs.positions
        first, T = remembered(inputs.memory), inputs.ids.shape[1]
        if self.room(inputs.memory) < T:
            raise ValueError(
                f"{first} earlier tokens and {T} new ones are {first + T}, but this model has {self.max_length} "
                "positions; start again with the last of them and an empty memory"
            )
        return np.arange(first, first + T, like=inputs.ids)

    def room(self, memory):
        return self.max_length - remembered(memory)

    # ------------------------------------------------------------------ blocks

    def encoder_inputs(self, inputs):
        """A memory holds the keys and values of earlier tokens. The new tokens see all of these, unless the mask is for
        the earlier tokens as well."""
        first, T, mask = remembered(inputs.memory), inputs.ids.shape[1], inputs.mask
        if mask is not None and mask.shape[-1] == T:
            mask = with_memory(mask, first)
        return {"mask": both(causal(T, first + T), mask), "past": inputs.memory}

    def encode_inputs(self, inputs, run, chosen=None):
        """With a memory (at first, an empty one), `cache.memory` is the next: keys and values of all tokens so far."""
        hidden, cache = super().encode_inputs(inputs, run, chosen)
        if inputs.memory is not None:
            cache.memory = [keys_and_values(block) for block in cache.blocks]
        return hidden, cache

    # ------------------------------------------------------------------ files

    @classmethod
    def heads_in(cls, values, tensors):
        """A tied head is in no file, so the class that wrote it tells. Without a class, a GPT-2 predicts words."""
        written = " ".join(map(str, values.get("architectures") or ["GPT2LMHeadModel"]))
        return [NEXT_WORD] if "lm_head.weight" in tensors or re.search("LMHead|DoubleHeads", written) else []

    def reconcile(self, tensors, table, source):
        if self.config.tie_word_embeddings:
            warn_of_own_matrix(tensors, "lm_head.weight", "wte.weight", source)
        unused = super().reconcile(tensors, table, source)
        return [name for name in unused if name != "lm_head.weight" and not _CAUSAL_MASK.fullmatch(name)]

    def file_tensors(self, task=""):
        """As in the files of transformers, the encoder's names have a prefix wherever there is a head, tied or not."""
        tensors = super().file_tensors(task)
        if self.next_word and not any(name.startswith(self.prefix) for name in tensors):
            return {self.prefix + name: array for name, array in tensors.items()}
        return tensors

    def names(self) -> list[Name]:
        """The table of published tensor names and ours, for loading and saving."""
        names = [Name("tokens.table", ("wte.weight",)), Name("positions.table", ("wpe.weight",))]
        for index in range(self.config.depth):
            ours, theirs = f"encoder.blocks.{index}", f"h.{index}"
            names += [
                *norm_names(f"{ours}.attention_norm", f"{theirs}.ln_1"),
                *_convolution(f"{ours}.attention.qkv", f"{theirs}.attn.c_attn"),
                *_convolution(f"{ours}.attention.output", f"{theirs}.attn.c_proj"),
                *norm_names(f"{ours}.feed_forward_norm", f"{theirs}.ln_2"),
                *_convolution(f"{ours}.feed_forward.expand", f"{theirs}.mlp.c_fc"),
                *_convolution(f"{ours}.feed_forward.contract", f"{theirs}.mlp.c_proj"),
            ]
        names += norm_names("final_norm", "ln_f")
        if self.next_word and not self.config.tie_word_embeddings:
            names += linear_names("next_word", "lm_head")[:1]  # without a bias
        return names


def _block(config: GPT2Config, index: int) -> PreNormBlock:
    width, std, eps = config.width, config.initializer_range, config.layer_norm_epsilon
    attention = PastAttention(width, config.heads, p=config.attn_pdrop, std=std)
    attention.scale = attention.scale if config.scale_attn_weights else 1.0
    if config.scale_attn_by_inverse_layer_idx:
        attention.scale /= index + 1
    feed_forward = FeedForward(width, config.inner, config.activation_function, std)
    for projection in (attention.output.w, feed_forward.contract.w):  # 2L of them add to the residual stream
        projection.init = normal(std / math.sqrt(2 * config.depth))
    p = config.resid_pdrop
    return PreNormBlock(LayerNorm(width, eps), attention, LayerNorm(width, eps), feed_forward, p, p)


def remembered(memory: Any) -> int:
    """The number of tokens whose keys and values are in a memory."""
    return memory[0][0].shape[2] if memory else 0


def keys_and_values(block: Any) -> tuple[np.ndarray, np.ndarray]:
    """Of all tokens so far, (B,A,P+T,d) each, from the cache of a block."""
    arrays = block.named()
    if "key" not in arrays:
        raise ValueError("gradient checkpointing keeps no keys and values; use the model without it to remember them")
    return arrays["key"], arrays["value"]


def _convolution(ours: str, theirs: str) -> list[Name]:
    return [Name(f"{ours}.w", (f"{theirs}.weight",)), Name(f"{ours}.b", (f"{theirs}.bias",))]


_CAUSAL_MASK = re.compile(r"h\.\d+\.(attn|crossattention)\.(bias|masked_bias)")  # constants that older files hold


if __name__ == "__main__":
    from mini_bert.layers.base import Run
    from mini_bert.models.base import Inputs

    model, run = GPT2(PRESET), Run()
    ids = np.array([[5, 6, 7, 8]])
    hidden, cache = model.encode(ids)
    print(
        "attention weights of head 0: a token sees itself and those before it\n",
        cache["attention_weights_0"][0, 0].round(2),
    )
    changed, _ = model.encode(np.array([[5, 6, 7, 99]]))
    print("change of each vector when the last word changes:", np.abs(changed - hidden).max(-1)[0].round(3))
    _, first = model.encode_inputs(Inputs(ids[:, :3], memory=()), run)
    last, _ = model.encode_inputs(Inputs(ids[:, 3:], memory=first.memory), run)
    difference = np.abs(last - hidden[:, 3:]).max()
    print(f"the last token alone, with the keys and values of three: the same up to {difference:.0e}")
