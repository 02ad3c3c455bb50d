"""Mini-BERT: 4,498,880 numbers that learn to fill gaps in English.

    x = E[ids] + P[:T]                            token and position embeddings
    x = block_l(x)          l = 1 … L             attention, feed-forward: layers/block.py
    y = LayerNorm(x)                              final norm
    logits = y W + b                              one score per word of the vocabulary, for every token

Its differences from published BERT (models/bert.py): no token types and no norm at the embeddings, no bias in
attention, ReLU, one more norm at the end, and a head that is a single matrix of its own.

`forward` gives logits for every token. `loss` is for training: the head and most of the last block run only on the
chosen rows, because no other row enters the loss (layers/chosen.py). Both return a cache, and each has its backward.
"""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, Self

import numpy as np

from mini_bert.common.inputs import check_ids, check_mask, check_rows
from mini_bert.files.model_folder import assign, read_folder, write_folder
from mini_bert.layers.base import Layer, Run
from mini_bert.layers.block import TransformerBlock
from mini_bert.layers.cross_entropy import CrossEntropyCache, cross_entropy, cross_entropy_backward
from mini_bert.layers.dropout import dropout, dropout_backward
from mini_bert.layers.embedding import Embedding, PositionEmbedding
from mini_bert.layers.encoder import Encoder, RecomputeCache
from mini_bert.layers.initialisers import neighbours, normal, sinusoids
from mini_bert.layers.layer_norm import LayerNorm, LayerNormCache
from mini_bert.layers.lean_attention import LeanCache
from mini_bert.layers.linear import Linear, TiedLinear
from mini_bert.models.base import Model
from mini_bert.models.config import MINI_BERT_CONFIG, MiniBertConfig

AMPLITUDE = 0.14  # of the waves that positions start as


class MiniTransformerLayer(TransformerBlock):
    """The block as Mini-BERT uses it: ReLU, and no bias in attention. In the first, heads start by looking around."""

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


class EncodeCache(NamedTuple):
    ids: np.ndarray
    length: int
    embedded: np.ndarray  # (B,T,H) what the first block saw
    dropped: Any
    blocks: list[Any]
    final_norm: LayerNormCache


class ForwardCache(Mapping[str, np.ndarray]):
    """What `forward` computed on the way: for `backward`, and to look at by name.

    cache['attention_weights_0'] is (B,A,T,T): who looks at whom in the first block. `list(cache)` has all names.
    Norms are shown as x̂, before γ and β; `feed_forward_inner` is what ReLU let through.
    """

    def __init__(self, encoded: EncodeCache, head: Any):
        self.encoded, self.head = encoded, head

    def arrays(self) -> dict[str, np.ndarray]:
        named = {"embeddings": self.encoded.embedded}
        for index, block in enumerate(self.encoded.blocks):
            if isinstance(block, RecomputeCache):  # kept its input, and nothing else
                named[f"block_input_{index}"] = block.x
                continue
            named |= {f"{name}_{index}": array for name, array in attention_arrays(block.attention).items()}
            named[f"attention_norm_{index}"] = block.attention_norm.x_hat
            named[f"feed_forward_inner_{index}"] = block.feed_forward.contract
            named[f"output_norm_{index}"] = block.output_norm.x_hat
        named["final_norm"] = self.encoded.final_norm.x_hat
        named["hidden"] = self.head
        return named

    def __getitem__(self, name: str) -> np.ndarray:
        arrays = self.arrays()
        if name not in arrays:
            used = "" if self.encoded.blocks else " (backward has used the blocks' caches up)"
            if name.startswith("attention_weights_") and name.replace("attention_weights", "query") in arrays:
                used = " (lean attention keeps none; encoders.attention_weights(cache.encoded) computes them)"
            if f"block_input_{name.rpartition('_')[2]}" in arrays:
                used = " (gradient checkpointing keeps no more than a block's input)"
            raise KeyError(f"no array {name!r} in this cache{used}; it has {', '.join(arrays)}")
        return arrays[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.arrays())

    def __len__(self) -> int:
        return len(self.arrays())


def attention_arrays(cache) -> dict[str, np.ndarray]:
    """The arrays of one attention cache, by name; lean attention keeps no weights."""
    named = {
        "attention_input": cache.projected,
        "query": cache.q,
        "key": cache.k,
        "value": cache.attended.v,
        "attention_weights": None if isinstance(cache.attended, LeanCache) else cache.attended.probs,
        "context": cache.output,
    }
    return {name: array for name, array in named.items() if array is not None}


class LossCache(NamedTuple):
    encoded: EncodeCache
    head: Any
    entropy: list[CrossEntropyCache]  # one, until backward uses it up: it is the largest of all caches

    @property
    def cross_entropy(self) -> CrossEntropyCache:
        return self.entropy[0]


class MiniBERT(Model):
    """logits = LayerNorm(blocks(E[ids] + P)) W + b

    How the weights start (docs/decisions/0003): positions as waves, and the heads of the first block looking at the
    tokens next to them; tokens as N(0, 0.1²), but 0 in the first d coordinates, which positions have to themselves at
    first; projections as N(0, 1/fan_in), or those that write to the residual stream smaller (config.init); the head as
    N(0, 0.02²), so that the first loss is that of knowing nothing, ln V.
    """

    head: Any  # None in a model that was fine-tuned for something else than masked words

    def __init__(
        self,
        config: MiniBertConfig = MINI_BERT_CONFIG,
        seed: int | None = 0,
        dtype: Any = np.float32,
        head: bool = True,
    ):
        if not isinstance(config, MiniBertConfig):
            raise TypeError(
                f"config must be a MiniBertConfig, not {config!r}; for example MiniBertConfig(num_layers=2)"
            )
        self.config = config
        own = config.head_size // 2 * 2  # coordinates that say where a token stands
        self.tokens = Embedding(config.vocab_size, config.hidden_size, init=normal(0.1, silent=own))
        self.positions = PositionEmbedding(config.max_seq_length, config.hidden_size, sinusoids(AMPLITUDE, even=own))
        self.encoder = Encoder([MiniTransformerLayer(config, first=i == 0) for i in range(config.num_layers)])
        self.final_norm = LayerNorm(config.hidden_size, config.layer_norm_eps)
        self.head = None
        if head:
            self.head = (
                TiedLinear(self.tokens.table)
                if config.tie_head
                else Linear(config.hidden_size, config.vocab_size, std=0.02)
            )
        self._own_memory(seed, dtype)

    # ------------------------------------------------------------------ ids -> one vector per token

    def encode(self, input_ids, attention_mask=None, run=None, chosen=None):
        """(B,T) -> y (B,T,H), the vector of every token after the final norm; or (N,H), those of chosen rows only"""
        run = run or self._new_run()
        ids = check_ids(input_ids, self.config.vocab_size, self.config.max_seq_length)
        mask = check_mask(attention_mask, ids.shape)
        x, _ = self.tokens.forward(ids, run)  # (B,T,H)
        x, length = self.positions.forward(x, run)
        embedded, dropped = dropout(x, self.config.dropout, run)
        x, blocks = self.encoder.forward(embedded, run, mask=mask, chosen=chosen)
        y, final_norm = self.final_norm.forward(x, run)
        return y, EncodeCache(ids, length, embedded, dropped, blocks, final_norm)

    def encode_backward(self, dy, cache, run=None):
        """-> dx (B,T,H), the gradient that reaches the sum of the embeddings (ids have none)"""
        run = run or self.run
        dx = self.final_norm.backward(dy, cache.final_norm, run)
        dx = self.encoder.backward(dx, cache.blocks, run)
        dx = dropout_backward(dx, cache.dropped)
        self.positions.backward(dx, cache.length, run)
        self.tokens.backward(dx, cache.ids, run)
        return dx

    # ------------------------------------------------------------------ logits for every token

    def forward(self, input_ids, attention_mask=None, run=None):
        """(B,T) -> logits (B,T,V), cache"""
        run = run or self._new_run()
        y, encoded = self.encode(input_ids, attention_mask, run)
        logits, head = self._words().forward(y, run)
        return logits, ForwardCache(encoded, head)

    def backward(self, dlogits, cache, run=None):
        """(B,T,V) -> dx (B,T,H); adds to every gradient"""
        run = run or self.run
        if not isinstance(cache, ForwardCache):
            raise TypeError(
                f"backward takes the cache of forward, not a {type(cache).__name__}; see also loss_backward"
            )
        self.encoder.check(cache.encoded.blocks)
        expected = (*cache.encoded.ids.shape, self.config.vocab_size)
        if np.shape(dlogits) != expected:
            raise ValueError(f"dlogits has shape {np.shape(dlogits)}, expected {expected}, the shape of the logits")
        dy = self.head.backward(dlogits, cache.head, run)
        return self.encode_backward(dy, cache.encoded, run)

    # ------------------------------------------------------------------ the loss on chosen tokens

    def loss(self, input_ids, rows, targets, attention_mask=None, run=None, count=None):
        """Mean cross-entropy at the chosen rows -> loss, cache

        Token t of sequence b is row b·T + t; targets are the ids that belong there. `count` divides the sum
        (default: the number of rows), so that parts of a large batch add up to its mean.
        """
        run = self._new_run() if run is None else run
        if not isinstance(run, Run):
            raise TypeError(
                f"run is a {type(run).__name__}, expected a layers.base.Run; Mini-BERT has no token types and no "
                "next-sentence head, so of a batch it takes the first four fields: model.loss(*batch[:4])"
            )
        ids = check_ids(input_ids, self.config.vocab_size, self.config.max_seq_length)
        rows, targets = check_rows(rows, targets, ids.shape)
        y, encoded = self.encode(ids, attention_mask, run, rows)  # (N,H)
        logits, head = self._words().forward(y, run)  # (N,V)
        loss, entropy = cross_entropy(logits, targets, count, out=logits)
        return loss, LossCache(encoded, head, [entropy])

    def loss_backward(self, cache, dloss: float = 1.0, run=None):
        """-> dx (B,T,H); adds to every gradient"""
        run = run or self.run
        if not isinstance(cache, LossCache):
            raise TypeError(f"loss_backward takes the cache of loss, not a {type(cache).__name__}; see also backward")
        self.encoder.check(cache.encoded.blocks)
        entropy = cache.entropy.pop()
        dlogits = cross_entropy_backward(dloss, entropy, out=entropy.exp)
        dy = self.head.backward(dlogits, cache.head, run)
        del entropy, dlogits  # their memory serves the blocks
        return self.encode_backward(dy, cache.encoded, run)

    def _words(self) -> Layer:
        if self.head is None:
            raise ValueError(
                "this MiniBERT has no head for masked words: it was fine-tuned for something else, and does that with "
                "`mini-bert predict`; masked words are guessed by the model that it was made from"
            )
        return self.head

    # ------------------------------------------------------------------ to look at

    @property
    def token_embeddings(self) -> np.ndarray:  # (V,H)
        return self.tokens.table.data

    @property
    def position_embeddings(self) -> np.ndarray:  # (T,H)
        return self.positions.table.data

    def _multi_head_attention(self, X, layer: int = 0):
        """Only the attention of one layer, on vectors of your own: X (B,T,H) -> output (B,T,H), named arrays"""
        if not 0 <= layer < self.config.num_layers:
            raise ValueError(f"layer is {layer}, expected 0 to {self.config.num_layers - 1}")
        X = np.asarray(X, self.dtype)
        if X.ndim != 3 or X.shape[-1] != self.config.hidden_size:
            raise ValueError(f"X has shape {X.shape}, expected (batch, tokens, {self.config.hidden_size})")
        block: Any = self.encoder.blocks[layer]
        output, cache = block.attention.forward(X, self.run)
        return output, attention_arrays(cache)

    # ------------------------------------------------------------------ files

    def save_pretrained(self, folder: str | os.PathLike[str]) -> None:
        """Write `config.json` and `model.safetensors`."""
        write_folder(folder, self.config.to_dict(), {name: p.data for name, p in self.named_params().items()})

    @classmethod
    def from_pretrained(cls, folder: str | os.PathLike[str], dtype: Any = np.float32) -> Self:
        """Read what `save_pretrained` wrote: a folder, that of a run, or "mini-bert", the one in the package.

        Of a fine-tuned folder (finetuning/model.py) this is the encoder, without the layer for the task.
        """
        values, tensors = read_folder(folder)
        fine_tuned = "fine_tuning" in values
        model = cls(MiniBertConfig.from_dict(values), seed=None, dtype=dtype, head=not fine_tuned)
        if fine_tuned and any(name.startswith("task.") for name in tensors):
            warnings.warn(
                f"{folder} was fine-tuned; of it this is the encoder alone (`mini-bert predict` uses all)", stacklevel=2
            )
            tensors = {name: array for name, array in tensors.items() if not name.startswith("task.")}
        assign(model.named_params(), tensors, str(folder))
        return model


if __name__ == "__main__":
    model = MiniBERT()
    ids = np.array([[2, 1045, 4, 2017, 3]])
    logits, cache = model.forward(ids)
    print(f"{model.get_parameter_count():,} parameters; ids {ids.shape} -> logits {logits.shape}; on the way:")
    for name, array in cache.items():
        print(f"  {name:22} {array.shape}")
    loss, loss_cache = model.loss(ids, rows=[2], targets=[77])
    dx = model.loss_backward(loss_cache)
    print(f"loss {loss:.3f}; the gradient reaches the embeddings with length {np.linalg.norm(dx):.4f}")
