"""DeBERTa (He et al. 2021, "Decoding-enhanced BERT with Disentangled Attention"): content and position, told apart.

    x = u ⊙ LayerNorm(E[ids])                             u: 0 for padding; no positions are added
    x = block_l(x, p)       l = 1 … L                     p: a table with a vector for each distance, the same for all
    mlm = LayerNorm(gelu(x W + b)) Eᵀ + b

What differs from BERT (models/bert.py), and why:

- **Disentangled attention** (layers/disentangled_attention.py). What two words mean to each other depends on what they
  are and on how far apart they are: "deep" and "learning" matter to each other side by side. BERT adds a vector for the
  place of a token to that of its word, and everything after sees the sum. Here the scores of content and of distance
  are computed apart, each with its own projections, and added.
- **Distances, not places.** Positions beyond ±`max_relative_positions` share a vector, and nothing depends on where in
  the text a pair of words stands. `relative_attention` and `pos_att_type` turn the parts on; both are off by default,
  which leaves BERT's attention, with another scale.
- **Biases.** Queries and values have one, keys have none. Files store W_q, W_k and W_v in one matrix, head by head.
- **No token types, no pooler, no next sentence.** A classifier brings its own dense layer, with GELU.

**The enhanced mask decoder.** Absolute positions do matter sometimes: in "a new *store* opened beside the new *mall*",
both gaps follow "new", but one is the subject. The authors therefore bring in a vector for each place near the end. To
predict masked words, the last layer runs twice on the output x of the layer below: keys and values come from x, and the
queries start as x plus the vectors of the places. They do so only in pretraining. `transformers`, with which these
models are used, has no such decoder, and neither have we: the head reads the last block, and the table of places that
published files contain is not used. Set `position_biased_input` to add places to the embeddings instead, as BERT does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from mini_bert.common.sixteen_bit import Stored
from mini_bert.layers.disentangled_attention import DisentangledAttention
from mini_bert.layers.disentangled_encoder import DisentangledBlock
from mini_bert.layers.talking_heads import TalkingHeadAttention
from mini_bert.models.bert_like import SMALL, block_names
from mini_bert.models.disentangled import LAYER, Disentangled, DisentangledConfig
from mini_bert.models.saving import Name

ATTENTION = {"position_key": "pos_proj", "position_query": "pos_q_proj",
             "mix_scores": "head_logits_proj", "mix_weights": "head_weights_proj"}  # fmt: skip
PARTS = ("query", "key", "value")
IN_PROJ = "in_proj.weight"


@dataclass(frozen=True)
class DebertaConfig(DisentangledConfig):
    """The fields of a published `config.json` that affect the results. The defaults are those of `transformers`."""

    model_type: ClassVar[str] = "deberta"
    name: ClassVar[str] = "DeBERTa"
    only: ClassVar[Mapping[str, Any]] = {  # of DeBERTa v2
        **DisentangledConfig.only, "position_buckets": -1, "share_att_key": False, "norm_rel_ebd": "none",
        "conv_kernel_size": 0,
    }  # fmt: skip

    talking_head: bool = False

    def further(self):
        return super().further()._replace(talking=self.talking_head)

    def position_parameters(self):
        biases = self.width if self.relative_attention and "p2c" in self.pos_att_type else 0  # of position queries
        return super().position_parameters() + biases + (2 * self.heads**2 if self.talking_head else 0)


PRESET = DebertaConfig(
    **SMALL,
    relative_attention=True,
    position_biased_input=False,
    pos_att_type=("c2p", "p2c"),
)


class Deberta(Disentangled):
    """Published DeBERTa, version 1, with or without the head for masked words."""

    model_type, config_class, family = "deberta", DebertaConfig, "Deberta"
    vocabulary = "bpe-8k"

    def blocks(self):
        return [DisentangledBlock(self.attention(), **self.block_options()) for _ in range(self.config.depth)]

    def attention(self) -> DisentangledAttention:
        config = self.config
        kind = TalkingHeadAttention if config.talking_head else DisentangledAttention
        return kind(
            config.width,
            config.heads,
            terms=config.pos_att_type,
            relative=config.relative_attention,
            key_bias=False,
            p=config.attention_probs_dropout_prob,
            position_p=config.hidden_dropout_prob,
            std=config.initializer_range,
        )

    # ------------------------------------------------------------------ files

    def block_names(self, ours: str, theirs: str) -> list[Name]:
        """in_proj.weight is taken apart and put together below; here its parts have names of their own."""
        own, self_ = f"{ours}.attention", f"{theirs}.attention.self"
        return [
            *(Name(f"{own}.{part}.w", (f"{self_}.in_proj.{part}",), transposed=True) for part in PARTS),
            Name(f"{own}.query.b", (f"{self_}.q_bias",)),
            Name(f"{own}.value.b", (f"{self_}.v_bias",)),
            *self.attention_names(ours, theirs, ATTENTION),
            *block_names(ours, theirs, LAYER),
        ]

    def reconcile(self, tensors, table, source):
        for name in [name for name in tensors if name.endswith(IN_PROJ)]:
            for part, weight in zip(PARTS, _apart(tensors.pop(name), self.heads), strict=True):
                tensors[f"{name.removesuffix('.weight')}.{part}"] = weight
        return super().reconcile(tensors, table, source)

    def file_tensors(self, task=""):
        tensors = super().file_tensors(task)
        for name in [name for name in tensors if name.endswith(f"in_proj.{PARTS[0]}")]:
            stem = name.removesuffix(f".{PARTS[0]}")
            tensors[f"{stem}.weight"] = _together([tensors.pop(f"{stem}.{part}") for part in PARTS], self.heads)
        return tensors


def _apart(weight: Any, heads: int) -> list[Any]:
    """W_q, W_k, W_v (H,H) of a matrix (3H,H) whose rows are those of q, k and v of the first head, of the second, …"""
    if isinstance(weight, Stored):
        return [Stored(part) for part in _apart(weight.bits, heads)]
    return [part.reshape(-1, weight.shape[1]) for part in weight.reshape(heads, 3, -1, weight.shape[1]).swapaxes(0, 1)]


def _together(parts: list[Any], heads: int) -> Any:
    """The inverse of `_apart`"""
    if isinstance(parts[0], Stored):
        return Stored(_together([part.bits for part in parts], heads))
    width = parts[0].shape[1]
    return np.stack([part.reshape(heads, -1, width) for part in parts], 1).reshape(-1, width)


if __name__ == "__main__":
    model = Deberta(PRESET)
    print("weights by component; one table of distances serves all blocks:")
    for component, count in model.get_parameter_count(by_component=True).items():
        print(f"  {component:18} {count:10,}")
    _, cache = model.encode(np.arange(12)[None])
    weights = cache["attention_weights_0"][0, 0]
    print(f"how much token 5 attends to tokens 0 to 11 (head 0, not trained): {weights[5].round(3)}")
