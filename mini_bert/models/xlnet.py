"""XLNet (Yang et al. 2019): predicts words in any order, each from those before it in that order.

    h = E[ids]                         content stream: a vector for each token, (B,T,H)
    g = mask                           query stream: the same learnt vector for each word to predict, (N,H)
    h, g = block_l(h, g)               l = 1 … L       relative attention in two streams, GELU
    masked words: logits = g Eᵀ + b    (h for texts in which nothing is predicted)

What differs from BERT, and why:

- **No [MASK].** BERT hides words behind a token that no real text contains, and predicts all masked words at once, as
  if they were independent. XLNet draws a random order: a word is predicted from all words before it in the order, on
  both sides in the text. `Inputs.order` (B,T) is the place of each token in the order, 0 for context; a token is seen
  by itself and by those with a higher place, and the last few places are predicted.
- **Two streams** (layers/two_stream_attention.py), since a vector that contains the word cannot predict it. Without an
  order there is only the content stream, and all tokens see each other: so it is fine-tuned and used.
- **Distances** instead of positions, and a **memory**, from Transformer-XL (models/transformer_xl.py). `Inputs.memory`
  and `cache.memory` are as there; without a memory there is none.
- **Relative segments**: attention depends on whether two tokens are in the same text, and there are no token types in
  the embeddings. So a text may have more than two parts.
- <cls> is the last token, and padding is on the left.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np

from mini_bert.common.inputs import check_token_types
from mini_bert.layers.activations import activation
from mini_bert.layers.base import Param, Run
from mini_bert.layers.dropout import dropout, dropout_backward
from mini_bert.layers.embedding import Embedding
from mini_bert.layers.encoder import Encoder
from mini_bert.layers.initialisers import normal
from mini_bert.layers.linear import Linear, TiedLinear
from mini_bert.layers.masks import causal, unless_empty, with_memory
from mini_bert.layers.matrices import sum_rows
from mini_bert.layers.relative_attention import distance_waves
from mini_bert.layers.two_stream_block import TwoStreamBlock
from mini_bert.models.base import CONTENT, MASKED_WORDS, NEW_HEAD, QUERY
from mini_bert.models.cache import EncodeCache, Inputs
from mini_bert.models.published import ENCODER, PublishedConfig
from mini_bert.models.recurrence import (
    ANY_LENGTH,
    OTHER_NAMES,
    Recurrent,
    next_memory,
    share_biases,
    waves_run,
)
from mini_bert.models.relative_sizes import RelativeParts, TwoStreamSizes
from mini_bert.models.saving import Name, linear_names, norm_names
from mini_bert.models.sizes import inner_arrays

BIASES = {"content_bias": "r_w_bias", "distance_bias": "r_r_bias", "segments.bias": "r_s_bias"}  # ours -> theirs


@dataclass(frozen=True)
class XLNetConfig(PublishedConfig):
    """The fields of a published `config.json` that affect the results; the defaults are those of `transformers`."""

    model_type: ClassVar[str] = "xlnet"
    name: ClassVar[str] = "XLNet"
    only: ClassVar[Mapping[str, Any]] = {**ENCODER, "summary_use_proj": True,
                                         "summary_activation": "tanh", "summary_proj_to_labels": False,
                                         "summary_first_dropout": 0}  # fmt: skip
    may_be_zero: ClassVar[frozenset[str]] = frozenset({"mem_len", "reuse_len"})
    neutral: ClassVar[frozenset[str]] = frozenset({"start_n_top", "end_n_top", "tie_encoder_decoder"})
    other_names: ClassVar[Mapping[str, str]] = OTHER_NAMES

    vocab_size: int = 32000
    d_model: int = 1024
    n_layer: int = 24
    n_head: int = 16
    d_inner: int = 4096
    d_head: Any = None  # null or d_model / n_head; the code uses `head_width`
    ff_activation: str = "gelu"
    untie_r: bool = True
    attn_type: str = "bi"  # "uni": a token sees no later one
    initializer_range: float = 0.02
    layer_norm_eps: float = 1e-12
    dropout: float = 0.1
    mem_len: int = 512  # 0 (or null): no limit
    reuse_len: int = 0  # of each segment, only so many tokens enter the memory; 0 (or null): all
    use_mems_eval: bool = True
    use_mems_train: bool = False
    bi_data: bool = False  # the second half of each batch is read from right to left
    clamp_len: Any = -1  # 0 or less: distances are not clamped
    same_length: bool = False
    summary_type: str = "last"  # the token that a classifier pools: "last", or "first" if the texts begin with [CLS]
    summary_last_dropout: float = 0.1  # kept for transformers; here fine-tuning has its own (`finetune --dropout`)
    tie_word_embeddings: bool = True
    seq_len: int = 512  # tokens per sequence in training; the model has no limit

    def check(self) -> None:
        activation(self.ff_activation, "ff_activation")
        if self.d_head not in (None, self.head_width):
            raise ValueError(f"d_head is {self.d_head!r:.60}, expected {self.head_width}, d_model / n_head")
        if self.attn_type not in ("bi", "uni"):
            raise ValueError(f"attn_type is {self.attn_type!r:.60}, expected 'bi' or 'uni'")
        if self.summary_type not in ("first", "last"):
            raise ValueError(f"summary_type is {self.summary_type!r:.60}, expected 'first' or 'last'")
        if self.d_model % 2:
            raise ValueError(f"d_model is {self.d_model}, expected an even number: half sines, half cosines")
        if not isinstance(self.clamp_len, int) or isinstance(self.clamp_len, bool):
            raise ValueError(f"clamp_len is {self.clamp_len!r:.60}, expected a whole number")

    @property
    def head_width(self) -> int:
        return self.d_model // self.n_head

    @property
    def length_field(self) -> str:
        return "seq_len"

    def sizes(self) -> TwoStreamSizes:
        V, H, L, inner = self.vocab_size, self.d_model, self.n_layer, self.d_inner
        block = 5 * H * H + 2 * H + 2 * H * inner + inner + H + 4 * H  # attention with 2 segments, network, norms
        parameters = V * H + H + L * block + 3 * H * (L if self.untie_r else 1) + V + (0 if self.tie_head else H * V)
        kept, temporary = inner_arrays(self.ff_activation)
        drops = self.dropout > 0
        uses = self.use_mems_train
        parts = RelativeParts((self.mem_len or self.seq_len) if uses else 0, uses, H, later=self.attn_type == "bi")
        return TwoStreamSizes(
            self.name, V, H, L, self.n_head, inner, self.seq_len, parameters, self.tie_head, drops, drops, False,
            kept + drops, temporary, 1, more=parts,
        )  # fmt: skip

    def to_dict(self) -> dict[str, Any]:
        """d_head as a number: transformers 4 does not take null."""
        return {**super().to_dict(), "d_head": self.head_width}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]):
        """mem_len and reuse_len may be null; d_head is only checked, since the other sizes determine it."""
        lengths = {name: 0 for name in ("mem_len", "reuse_len") if name in values and values[name] is None}
        return replace(super().from_dict({**values, **lengths}), d_head=None)


PRESET = XLNetConfig(
    vocab_size=8192, d_model=192, n_layer=3, n_head=4, d_inner=768, dropout=0.0, mem_len=0, seq_len=64,
)  # fmt: skip


class TwoStreamEncoder(Encoder):
    """(h, g) through all blocks, and the input h of each, for the memory of the next segment"""

    def forward(self, h, g, run, chosen=None, skip=False, memory=None, **inputs):  # h (B,T,H), g (N,H) or None
        """chosen: the rows of g; without g, the rows of h to return. skip: the last block need not compute h."""
        caches, states = [], []
        for index, block in enumerate(self.blocks):
            states.append(h)
            last = index == len(self.blocks) - 1
            (h, g), cache = block.forward(
                h, g, run.fork(index), chosen=chosen if last or g is not None else None, last=last and skip,
                memory=None if memory is None else memory[index], **inputs,
            )  # fmt: skip
            caches.append(cache)
        return (h, g, states), caches

    def backward(self, dy, caches, run):
        """dy = (dh, dg), None where that stream is not part of the loss. Returns dh and dg at the first block."""
        self.check(caches)
        for block in reversed(self.blocks):
            dy = block.backward(dy, caches.pop(), run)
        return dy


class FinalCache(NamedTuple):
    query: Any  # dropout mask of the query stream before the first block
    dropped: Any
    shape: tuple[int, ...]  # of the output of the last block


class XLNet(Recurrent):
    """XLNet, with or without the head for words."""

    model_type, config_class, family = "xlnet", XLNetConfig, "XLNet"
    with_head = "LMHeadModel"
    vocabulary, layout = "unigram-8k", "xlnet"
    prefix = "transformer."
    head_prefixes = ("lm_loss.", "sequence_summary.", "logits_proj.", "classifier.", "qa_outputs.")
    objective = "permutation"
    task_heads: ClassVar = {
        "ForSequenceClassification": {"dense": "sequence_summary.summary", "linear": "logits_proj"},
        "ForTokenClassification": {"linear": "classifier"},
        "ForQuestionAnswering": {"linear": "qa_outputs"},
    }
    task_classes: ClassVar = {"ForQuestionAnswering": "ForQuestionAnsweringSimple"}
    embedding_parts = ("tokens", "mask")
    streams = (CONTENT, QUERY)
    head_shapes: ClassVar = {MASKED_WORDS: "(B,T,V)"}
    head_help: ClassVar = {
        MASKED_WORDS: f"no head for masked words: it was published without one; load an XLNetLMHeadModel, {NEW_HEAD}",
    }
    config: XLNetConfig
    encoder: Any  # a TwoStreamEncoder

    def __init__(
        self, config: XLNetConfig, output_heads=(MASKED_WORDS,), seed: int | None = 0, dtype: Any = np.float32
    ):
        self.config = config
        width, std = config.d_model, config.initializer_range
        self.tokens = Embedding(config.vocab_size, width, std)
        self.mask = Param((1, 1, width), normal(std))  # the query stream before the first block
        blocks = [
            TwoStreamBlock(width, config.n_head, config.d_inner, config.ff_activation, config.dropout,
                           config.layer_norm_eps, std)
            for _ in range(config.n_layer)
        ]  # fmt: skip
        if not config.untie_r:
            share_biases(blocks)
        self.encoder = TwoStreamEncoder(blocks)
        self.masked_words = None
        if MASKED_WORDS in output_heads:
            tied = config.tie_word_embeddings
            self.masked_words = TiedLinear(self.tokens.table) if tied else Linear(width, config.vocab_size, std=std)
        self._own_memory(seed, dtype)

    @property
    def word_bias(self):
        return self.masked_words and self.masked_words.b

    # ------------------------------------------------------------------ inputs

    def check_types(self, token_types, ids):
        """The number of the text that each token is in. Only whether two are equal matters."""
        if token_types is None:
            return None
        return check_token_types(token_types, ids, ANY_LENGTH)

    def asking(self, inputs, hidden_rows):
        """The masked words come last in the order, all at the same place, so each is predicted from context only."""
        order = np.zeros(inputs.ids.shape, int)
        order.reshape(order.size)[hidden_rows] = 1
        return inputs._replace(order=order)

    def visible(self, inputs: Inputs, M: int) -> tuple[np.ndarray | None, np.ndarray | None]:
        """Masks of content and query stream, (…,T,K): which keys each token may see; None: all"""
        T, given = inputs.ids.shape[1], list[Any]()
        if self.config.attn_type == "uni":
            given.append(causal(T, M + T, M + 1 if self.config.same_length else None))
        if inputs.mask is not None:
            given.append(with_memory(inputs.mask, M))
        content, query = list(given), list(given)
        if inputs.order is not None:
            order = inputs.order[:, None]  # (B,1,T)
            content.append(with_memory(order[..., None] >= order[:, :, None], M))
            query.append(with_memory(order[..., None] > order[:, :, None], M))
        if not content:
            return None, None
        itself = np.eye(T, M + T, M, dtype=bool, like=inputs.ids)
        return _all(content) | itself, _all(query) if query else None

    def differs(self, types: np.ndarray | None, M: int) -> np.ndarray | None:
        """(B,1,T,K) True where query and key are in different texts; None: nowhere. The memory counts as text 0."""
        if types is None:
            return None
        keys = types
        if M:
            keys = np.concatenate([np.zeros((types.shape[0], M), types.dtype, like=types), types], 1)
        return unless_empty(types[:, None, :, None] != keys[:, None, None, :])

    def waves(self, B: int, T: int, M: int, run: Run) -> np.ndarray:
        """R (G,J,H); with bi_data there are two groups of sequences, and distances have opposite signs."""
        config = self.config
        if config.bi_data and B % 2:
            raise ValueError(
                f"bi_data is true, so half of a batch is read backwards, but it has {B} sequences; use 2, 4, 6, …"
            )
        waves = np.stack([
            distance_waves(T, M + T, self.width, config.attn_type == "bi", config.clamp_len, sign, self.dtype)
            for sign in ((1, -1) if config.bi_data else (1,))
        ])  # fmt: skip
        return dropout(waves, config.dropout, waves_run(run, self.depth))[0]

    # ------------------------------------------------------------------ ids -> one vector per token

    def embed(self, inputs, run):  # ids (B,T) -> h (B,T,H)
        h, _ = self.tokens.forward(inputs.ids, run)
        return dropout(h, self.config.dropout, run)

    def embed_backward(self, dh, inputs, dropped, run):
        dh = dropout_backward(dh, dropped)
        self.tokens.backward(dh, inputs.ids, run)
        return dh

    def first_queries(self, chosen, T: int, run):
        """g = mask, at the chosen rows        dmask += Σ dg"""
        g = np.repeat(self.mask.data[0], chosen.size, 0)  # (N,H)
        return dropout(g, self.config.dropout, run.fork(self.depth + 2), np.divmod(chosen, T))

    def first_queries_backward(self, dg, dropped):
        self.mask.add(sum_rows(dropout_backward(dg, dropped)).reshape(self.mask.shape))

    def encode_inputs(self, inputs: Inputs, run: Run, chosen=None):
        """Without an order, the content stream; with one, the query stream: (B,T,H), or (N,H) at the chosen rows."""
        config, (B, T) = self.config, inputs.ids.shape
        memory = self.check_memory(inputs.memory, B)
        M = memory[0].shape[1] if memory else 0
        embedded, embedding = self.embed(inputs, run)
        g = query = None
        queries = chosen
        if inputs.order is not None:
            queries = np.arange(B * T) if chosen is None else chosen
            g, query = self.first_queries(queries, T, run)
        mask, query_mask = self.visible(inputs, M)
        (h, g, states), blocks = self.encoder.forward(
            embedded, g, run, queries, chosen is not None, memory, waves=self.waves(B, T, M, run), mask=mask,
            query_mask=query_mask, differs=self.differs(inputs.types, M),
        )  # fmt: skip
        at = None if queries is None else np.divmod(queries, T)
        hidden, dropped = dropout(h if g is None else g, config.dropout, run.fork(self.depth), at)
        final = FinalCache(query, dropped, hidden.shape)
        if chosen is None:
            hidden = hidden.reshape(B, T, self.width)
        cache = EncodeCache(inputs, embedded, embedding, blocks, final, hidden)
        if config.use_mems_train if run.train else config.use_mems_eval:
            states = [state[:, : config.reuse_len or T] for state in states]
            cache.memory = next_memory(memory, states, config.mem_len or None)
        return hidden, cache

    def encode_backward(self, dhidden, cache, run: Run | None = None):
        """Returns dx (B,T,H), the gradient at the embeddings of the tokens."""
        run = run or self.run
        self.check_gradient(dhidden, cache)
        dx = dropout_backward(dhidden.reshape(cache.final.shape), cache.final.dropped)
        ordered = cache.inputs.order is not None
        dh, dg = self.encoder.backward((None, dx) if ordered else (dx, None), cache.blocks, run)
        if ordered:
            self.first_queries_backward(dg, cache.final.query)
        return self.embed_backward(dh, cache.inputs, cache.embedding, run)

    # ------------------------------------------------------------------ files

    @classmethod
    def heads_in(cls, values, tensors):
        return [MASKED_WORDS] if "lm_loss.bias" in tensors else []

    def names(self) -> list[Name]:
        """The table of published tensor names and ours. Files have weights of shape (H,A,d), for each head apart."""
        config = self.config
        shape = (config.d_model, config.n_head, config.head_width)
        names = [Name("tokens.table", ("word_embedding.weight",)), Name("mask", ("mask_emb",))]
        for index in range(config.n_layer):
            ours, theirs = f"encoder.blocks.{index}", f"layer.{index}"
            attention, file = f"{ours}.attention", f"{theirs}.rel_attn"
            names += [
                Name(f"{attention}.qkv.w", (f"{file}.q", f"{file}.k", f"{file}.v"), shape=shape),
                Name(f"{attention}.r.w", (f"{file}.r",), shape=shape),
                Name(f"{attention}.output.w", (f"{file}.o",), transposed=True, shape=shape),
                Name(f"{attention}.segments.embedding", (f"{file}.seg_embed",)),
                *norm_names(f"{ours}.attention_norm", f"{file}.layer_norm"),
                *linear_names(f"{ours}.feed_forward.expand", f"{theirs}.ff.layer_1"),
                *linear_names(f"{ours}.feed_forward.contract", f"{theirs}.ff.layer_2"),
                *norm_names(f"{ours}.output_norm", f"{theirs}.ff.layer_norm"),
            ]
            if index == 0 or config.untie_r:
                names += [Name(f"{attention}.{own}", (f"{file}.{name}",)) for own, name in BIASES.items()]
        if self.masked_words is not None:
            if config.tie_word_embeddings:
                names += [Name("masked_words.b", ("lm_loss.bias",))]
            else:
                names += linear_names("masked_words", "lm_loss")
        return names

    def copies(self) -> dict[str, str]:
        """Biases that all blocks share; files have them in every block."""
        copies = {} if not self.masked_words or not self.config.tie_word_embeddings else {
            "lm_loss.weight": "word_embedding.weight"}  # fmt: skip
        if self.config.untie_r:
            return copies
        shared = [(index, name) for index in range(1, self.config.n_layer) for name in BIASES.values()]
        return copies | {f"layer.{index}.rel_attn.{name}": f"layer.0.rel_attn.{name}" for index, name in shared}


def _all(masks: list[Any]) -> Any:
    combined = masks[0]
    for mask in masks[1:]:
        combined = combined & mask
    return combined


if __name__ == "__main__":
    model, run = XLNet(PRESET), Run()
    order = np.array([[0, 2, 0, 1]])
    print("order 0 2 0 1: word 3 is predicted from words 0 and 2, then word 1 from the other three")
    hidden, cache = model.encode_inputs(Inputs(np.array([[7, 8, 9, 10]]), order=order), run)
    for name, stream in (("content", "attention_weights_0"), ("query", "query_stream_attention_weights_0")):
        print(f"what each token sees in the {name} stream:", (cache[stream][0, 0] > 0).astype(int).tolist())
    other, _ = model.encode_inputs(Inputs(np.array([[7, 8, 9, 99]]), order=order), run)
    print(
        "change of each prediction when word 3 changes, which only word 1 may use:",
        np.abs(other - hidden).max(-1)[0].round(3),
    )
