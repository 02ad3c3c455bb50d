"""Transformer-XL (Dai et al. 2019): reads a text in segments, with a memory of those before.

    x   = √H · E_c[ids] P_c                                 adaptive embeddings: short vectors for rare words
    x   = block_l([memory_l, x])       l = 1 … L            causal relative attention, ReLU
    next word: log p = adaptive softmax of x                the same tables again

What differs from BERT, and why:

- It predicts the **next word** from those before it. A token sees no later one, every token is predicted, and there is
  no [MASK], [CLS] or token type.
- The hidden states of the previous segment are the **memory**: keys and values in front of those of this segment. BERT
  does not see what came before its first token. `Inputs.memory` is the memory, `cache.memory` that for the next
  segment; no gradient flows into it. Without one, the memory is `mem_len` vectors of zeros, as in `transformers`.
- **Distances** instead of positions (layers/relative_attention.py), since a token in the memory would have the same
  position as one in this segment.
- **Adaptive** embeddings and softmax (layers/adaptive_embedding.py, adaptive_softmax.py), because its vocabulary has
  267,735 words, not pieces of words.
- No biases in attention, and the width of a head is chosen freely (`d_head`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar, NamedTuple

import numpy as np

from mini_bert.layers.adaptive_embedding import AdaptiveEmbedding
from mini_bert.layers.adaptive_softmax import AdaptiveSoftmax
from mini_bert.layers.base import Run
from mini_bert.layers.dropout import dropout, dropout_backward
from mini_bert.layers.encoder import Encoder
from mini_bert.layers.initialisers import frequencies
from mini_bert.layers.masks import both, causal, with_memory
from mini_bert.layers.relative_attention import distance_waves
from mini_bert.layers.relative_block import PreNormRelativeBlock, RelativeBlock
from mini_bert.models.base import MASKED_WORDS, NEW_HEAD, NEXT_WORD, POOLER
from mini_bert.models.cache import EncodeCache, Inputs
from mini_bert.models.recurrence import Recurrent, next_memory, share_biases, waves_run
from mini_bert.models.saving import Name, linear_names, norm_names
from mini_bert.models.transformer_xl_config import TransformerXLConfig

BIASES = {"content_bias": "r_w_bias", "distance_bias": "r_r_bias"}  # ours -> theirs

PRESET = TransformerXLConfig(
    vocab_size=8192,
    cutoffs=(1024, 2048, 4096),  # ids of a learnt vocabulary are roughly sorted by frequency
    d_model=192,
    d_embed=192,
    n_head=4,
    d_head=48,
    d_inner=768,
    div_val=1,
    n_layer=3,
    mem_len=64,
    clamp_len=-1,
    same_length=False,
    dropout=0.0,
    tgt_len=64,
)


class RecurrentEncoder(Encoder):
    """y = block_L(… block_1(x)), and the input of every block, for the memory of the next segment"""

    def forward(self, x, run, chosen=None, **inputs):  # x (B,T,H)
        caches, states = [], []
        for index, block in enumerate(self.blocks):
            states.append(x)
            last = {"chosen": chosen} if index == len(self.blocks) - 1 else {}
            x, cache = block.forward(x, run.fork(index), **self.block_inputs(index, inputs), **last)
            caches.append(cache)
        return (x, states), caches

    def block_inputs(self, index, inputs):
        """Each block has a memory of its own."""
        memory = inputs["memory"]
        return inputs | {"memory": None if memory is None else memory[index]}


class EmbeddingCache(NamedTuple):
    tokens: Any
    dropped: Any


class TransformerXL(Recurrent):
    """Transformer-XL, with or without the head for the next word."""

    model_type, config_class, family = "transfo-xl", TransformerXLConfig, "TransfoXL"
    with_head = "LMHeadModel"
    in_transformers = "up to version 4"
    prefix, head_prefixes = "transformer.", ("crit.", "score.", "task.")
    objective, layout = "next_word_with_memory", "gpt2"
    reads_forward = True
    empty_memory = ()
    task_heads: ClassVar = {"ForSequenceClassification": {"linear": "score"}}
    sentence_head: ClassVar = {"bias": False}
    head_shapes: ClassVar = {NEXT_WORD: "(B,T,V)"}
    head_help: ClassVar = {
        NEXT_WORD: f"no head for the next word: it was published without one; load a TransfoXLLMHeadModel, {NEW_HEAD}",
        MASKED_WORDS: "no head for masked words: a Transformer-XL predicts the next word; try `mini-bert generate`",
        POOLER: "no pooler: use the vector of the last token, which has seen all others",
    }
    sharing = ("tie_word_embeddings", "tie_projs", "untie_r")
    config: TransformerXLConfig

    def __init__(
        self, config: TransformerXLConfig, output_heads=(NEXT_WORD,), seed: int | None = 0, dtype: Any = np.float32
    ):
        self.config = config
        V, H, E, std, cut = config.vocab_size, config.d_model, config.d_embed, config.std, config.cutoffs
        self.tokens = AdaptiveEmbedding(V, H, E, cut, config.div_val, std, config.proj_init_std)
        kind = PreNormRelativeBlock if config.pre_lnorm else RelativeBlock
        blocks = [
            kind(H, config.n_head, config.d_head, config.d_inner, "relu", config.dropout, config.dropatt,
                 config.layer_norm_epsilon, std)
            for _ in range(config.n_layer)
        ]  # fmt: skip
        if not config.untie_r:
            share_biases(blocks)
        self.encoder = RecurrentEncoder(blocks)
        self.next_word = self._softmax() if NEXT_WORD in output_heads else None
        self._own_memory(seed, dtype)

    def _softmax(self) -> AdaptiveSoftmax:
        """The head, with the tables and projections of the embeddings where these are shared."""
        config, tokens = self.config, self.tokens
        tables = [table.table for table in tokens.tables] if config.tie_word_embeddings else None
        shared = [projection and projection.w for projection in tokens.projections]
        if config.div_val == 1:
            shared *= len(config.cutoffs) + 1
        projections = [own if tied else None for own, tied in zip(shared, config.tie_projs, strict=True)]
        return AdaptiveSoftmax(
            config.vocab_size, config.d_model, config.d_embed, config.cutoffs, config.div_val, tables, projections,
            config.std, config.proj_init_std,
        )  # fmt: skip

    def start_words(self, shares):
        """The biases of words and clusters"""
        head = self.next_word
        if head is None or any(bias.data[...].any() for bias in head.biases):
            return
        missing = np.full(self.vocab_size - shares.size, shares.min())
        head.set_frequencies(np.concatenate([shares, missing]))

    # ------------------------------------------------------------------ ids -> one vector per token

    def embed_tokens(self, ids):
        return self.tokens.forward(np.asarray(ids), Run())[0]

    def embed(self, inputs, run):  # ids (B,T) -> (B,T,H)
        x, tokens = self.tokens.forward(inputs.ids, run)
        x, dropped = dropout(x, self.config.dropout, run)
        return x, EmbeddingCache(tokens, dropped)

    def embed_backward(self, dx, inputs, cache, run):
        dx = dropout_backward(dx, cache.dropped)
        self.tokens.backward(dx, cache.tokens, run)
        return dx

    def encode_inputs(self, inputs: Inputs, run: Run, chosen=None):
        config, (B, T) = self.config, inputs.ids.shape
        memory = self.check_memory(inputs.memory, B)
        if memory is None and config.mem_len:
            nothing = np.zeros((), self.dtype, like=inputs.ids)
            memory = [np.broadcast_to(nothing, (B, config.mem_len, self.width))] * self.depth
        M = memory[0].shape[1] if memory else 0
        embedded, embedding = self.embed(inputs, run)  # (B,T,H)
        waves = distance_waves(T, M + T, self.width, later=False, clamp=config.clamp_len, dtype=self.dtype)
        waves, _ = dropout(waves, config.dropout, waves_run(run, self.depth), (np.arange(len(waves)),))
        seen = causal(T, M + T, config.mem_len if config.same_length else None)
        mask = both(seen, with_memory(inputs.mask, M))
        (x, states), blocks = self.encoder.forward(embedded, run, chosen, waves=waves, memory=memory, mask=mask)
        at = None if chosen is None else np.divmod(chosen, T)
        hidden, final = dropout(x, config.dropout, run.fork(self.depth), at)
        cache = EncodeCache(inputs, embedded, embedding, blocks, final, hidden)
        if config.mem_len:
            cache.memory = next_memory(memory, states, config.mem_len)
        return hidden, cache

    def finish_backward(self, dy, cache, run):
        return dropout_backward(dy, cache)

    # ------------------------------------------------------------------ files

    @classmethod
    def heads_in(cls, values, tensors):
        return [NEXT_WORD] if "crit.out_layers.0.bias" in tensors else []

    def names(self) -> list[Name]:
        """The table of published tensor names and ours, for loading and saving."""
        tokens, head, config = self.tokens, self.next_word, self.config
        names = [
            Name(f"tokens.tables.{c}.table", (f"word_emb.emb_layers.{c}.weight",)) for c in range(len(tokens.tables))
        ]
        names += [
            Name(f"tokens.projections.{c}.w", (f"word_emb.emb_projs.{c}",), transposed=True)
            for c, projection in enumerate(tokens.projections)
            if projection is not None
        ]
        for index in range(config.n_layer):
            ours, theirs = f"encoder.blocks.{index}", f"layers.{index}"
            names += [
                Name(f"{ours}.attention.qkv.w", (f"{theirs}.dec_attn.qkv_net.weight",), transposed=True),
                Name(f"{ours}.attention.r.w", (f"{theirs}.dec_attn.r_net.weight",), transposed=True),
                Name(f"{ours}.attention.output.w", (f"{theirs}.dec_attn.o_net.weight",), transposed=True),
                *norm_names(f"{ours}.attention_norm", f"{theirs}.dec_attn.layer_norm"),
                *linear_names(f"{ours}.feed_forward.expand", f"{theirs}.pos_ff.CoreNet.0"),
                *linear_names(f"{ours}.feed_forward.contract", f"{theirs}.pos_ff.CoreNet.3"),
                *norm_names(f"{ours}.output_norm", f"{theirs}.pos_ff.layer_norm"),
            ]
            if index == 0 or config.untie_r:
                inside = f"{theirs}.dec_attn." if config.untie_r else ""
                names += [Name(f"{ours}.attention.{own}", (f"{inside}{name}",)) for own, name in BIASES.items()]
        if head:
            names += [Name(f"next_word.biases.{c}", (f"crit.out_layers.{c}.bias",)) for c in range(len(head.biases))]
            own = {id(param): name for name, param in self.named_params().items() if name.startswith("next_word.")}
            for kind, theirs in (("tables", "crit.out_layers.{}.weight"), ("projections", "crit.out_projs.{}")):
                names += [
                    Name(own[id(param)], (theirs.format(c),), transposed=kind == "projections")
                    for c, param in enumerate(getattr(head, kind))
                    if id(param) in own
                ]
            if head.clusters is not None:
                names += [Name("next_word.clusters", ("crit.cluster_weight",)),
                          Name("next_word.cluster_bias", ("crit.cluster_bias",))]  # fmt: skip
        return names

    def file_tensors(self, task=""):
        """Files also hold the frequencies of the waves."""
        tensors = super().file_tensors(task)
        prefix = self.prefix if any(name.startswith(self.prefix) for name in tensors) else ""
        return tensors | {f"{prefix}pos_emb.inv_freq": frequencies(self.width).astype(self.dtype)}

    def reconcile(self, tensors, table, source):
        return [name for name in super().reconcile(tensors, table, source) if name != "pos_emb.inv_freq"]

    def task_names(self, task):
        """Heads of tasks that were never published have our own names."""
        if task in self.task_heads:
            return super().task_names(task)
        return [Name(name, (name,)) for name in self.named_params() if name.startswith("task.")]

    def copies(self) -> dict[str, str]:
        copies: dict[str, str] = {}
        head, config = self.next_word, self.config
        if not config.untie_r:
            for name in BIASES.values():
                copies |= {f"layers.{index}.dec_attn.{name}": name for index in range(config.n_layer)}
        if head:
            if config.tie_word_embeddings:
                copies |= {f"crit.out_layers.{c}.weight": f"word_emb.emb_layers.{c}.weight"
                           for c in range(len(head.tables))}  # fmt: skip
            if config.projected:
                last = len(self.tokens.projections) - 1
                copies |= {f"crit.out_projs.{c}": f"word_emb.emb_projs.{min(c, last)}"
                           for c, tied in enumerate(config.tie_projs) if tied}  # fmt: skip
        return copies


if __name__ == "__main__":
    model, run = TransformerXL(replace(PRESET, mem_len=4)), Run()
    text = np.arange(5, 13)[None]
    first, cache = model.encode_inputs(Inputs(text[:, :4]), run)
    second, after = model.encode_inputs(Inputs(text[:, 4:], memory=cache.memory), run)
    alone, _ = model.encode_inputs(Inputs(text[:, 4:]), run)
    print("the memory of 4 tokens, for each of 3 blocks:", [part.shape for part in cache.memory])
    weights = after["memory_weights_0"][0, 0].sum(-1).round(2)
    print("share of its attention that each token of the next segment pays to it (head 0):", weights)
    print(f"without it, their vectors differ by up to {np.abs(second - alone).max():.3f}")
