"""The config of a Transformer-XL (transformer_xl.py): its sizes, and which of its tables are shared."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, ClassVar

from mini_bert.common.values import check_size
from mini_bert.models.published import ENCODER, PublishedConfig
from mini_bert.models.recurrence import LONGEST_MEMORY, OTHER_NAMES
from mini_bert.models.relative_sizes import RelativeParts, RelativeSizes


@dataclass(frozen=True)
class TransformerXLConfig(PublishedConfig):
    """The fields of a published `config.json` that affect the results; the defaults are those of transfo-xl-wt103."""

    model_type: ClassVar[str] = "transfo-xl"
    name: ClassVar[str] = "Transformer-XL"
    only: ClassVar[Mapping[str, Any]] = {**ENCODER, "attn_type": 0, "sample_softmax": -1, "ext_len": 0,
                                         "tie_weight": True}  # fmt: skip
    may_be_zero: ClassVar[frozenset[str]] = frozenset({"mem_len"})
    neutral: ClassVar[frozenset[str]] = frozenset({"trainer_compatible", "tie_encoder_decoder"})
    other_names: ClassVar[Mapping[str, str]] = OTHER_NAMES

    vocab_size: int = 267735
    cutoffs: tuple[int, ...] = (20000, 40000, 200000)
    d_model: int = 1024
    d_embed: int = 1024
    n_head: int = 16
    d_head: int = 64
    d_inner: int = 4096
    div_val: int = 4
    pre_lnorm: bool = False
    n_layer: int = 18
    mem_len: int = 1600
    clamp_len: Any = 1000  # 0 or less: distances are not clamped
    same_length: bool = True
    proj_share_all_but_first: bool = True
    tie_projs: Any = None  # for each cluster: does the softmax share the projection of the embeddings?
    adaptive: bool = True
    dropout: float = 0.1
    dropatt: float = 0.0
    untie_r: bool = True
    init: str = "normal"
    init_range: float = 0.01
    init_std: float = 0.02
    proj_init_std: float = 0.01
    layer_norm_epsilon: float = 1e-5
    tie_word_embeddings: bool = True
    tgt_len: int = 128  # tokens per segment in training; the model has no limit
    pad_token_id: int | None = None  # by which transformers finds the last token of a text

    def check_heads(self) -> None:
        """d_head need not be d_model / n_head."""

    def check(self) -> None:
        if not isinstance(self.cutoffs, list | tuple):
            raise ValueError(f"cutoffs is {self.cutoffs!r:.60}, expected a list of ids, such as [20000, 40000]")
        for cutoff in self.cutoffs:
            check_size("a number in cutoffs", cutoff)
        edges = [0, *self.cutoffs, self.vocab_size]
        if edges != sorted(set(edges)):
            raise ValueError(
                f"cutoffs are {list(self.cutoffs)}, expected increasing ids below vocab_size, {self.vocab_size}"
            )
        tied = self.tie_projs
        if tied is None:
            tied = [False, *(self.proj_share_all_but_first for _ in self.cutoffs)]
        if not isinstance(tied, list | tuple) or not all(isinstance(tie, bool) for tie in tied):
            raise ValueError(f"tie_projs is {tied!r:.60}, expected a list of true and false, one for each cluster")
        if len(tied) != len(self.cutoffs) + 1:
            raise ValueError(
                f"tie_projs has {len(tied)} entries, but there are {len(self.cutoffs)} cutoffs and therefore "
                f"{len(self.cutoffs) + 1} clusters; give one entry for each cluster, or leave out tie_projs"
            )
        object.__setattr__(self, "cutoffs", tuple(self.cutoffs))
        object.__setattr__(self, "tie_projs", tuple(tied))
        if self.d_embed < self.div_val ** len(self.cutoffs):
            raise ValueError(
                f"d_embed is {self.d_embed}, too small to be divided by div_val, {self.div_val}, for each of "
                f"{len(self.cutoffs)} cutoffs; the last cluster would have vectors without numbers"
            )
        if self.d_model % 2:
            raise ValueError(f"d_model is {self.d_model}, expected an even number: half sines, half cosines")
        if not isinstance(self.clamp_len, int) or isinstance(self.clamp_len, bool):
            raise ValueError(f"clamp_len is {self.clamp_len!r:.60}, expected a whole number")
        if self.mem_len > LONGEST_MEMORY:
            raise ValueError(
                f"mem_len is {self.mem_len}, expected at most {LONGEST_MEMORY:,}: every token sees that many"
            )
        if self.same_length and not self.mem_len:
            raise ValueError("same_length is true, but mem_len is 0: tokens would see nothing; make same_length false")
        if not self.adaptive and self.cutoffs:
            raise ValueError(f"adaptive is false, but cutoffs are {list(self.cutoffs)}; leave out one of the two")
        if self.init not in ("normal", "uniform"):
            raise ValueError(f"init is {self.init!r:.60}, expected 'normal' or 'uniform'")

    def with_vocabulary(self, size):
        """Clusters beyond the last word are left out."""
        cutoffs = tuple(cutoff for cutoff in self.cutoffs if cutoff < size)
        return replace(self, vocab_size=size, cutoffs=cutoffs, tie_projs=self.tie_projs[: len(cutoffs) + 1])

    @property
    def length_field(self) -> str:
        return "tgt_len"

    def with_padding(self, pad: int) -> TransformerXLConfig:
        return replace(self, pad_token_id=pad)

    @property
    def std(self) -> float:
        """Of the initial weights; numbers between −r and r have the standard deviation r/√3."""
        return self.init_std if self.init == "normal" else self.init_range / math.sqrt(3)

    @property
    def embedding_sizes(self) -> list[int]:
        """The width of each cluster"""
        return [self.d_embed // self.div_val**index for index in range(len(self.cutoffs) + 1)]

    @property
    def cluster_sizes(self) -> list[int]:
        """The number of words in each cluster"""
        edges = [0, *self.cutoffs, self.vocab_size]
        return [stop - start for start, stop in pairwise(edges)]

    @property
    def projected(self) -> bool:
        return self.div_val > 1 or self.d_embed != self.d_model

    def sizes(self) -> RelativeSizes:
        H, inner, attention = self.d_model, self.d_inner, self.n_head * self.d_head
        words = sum(count * size for count, size in zip(self.cluster_sizes, self.embedding_sizes, strict=True))
        tables = self.embedding_sizes if self.div_val > 1 else [self.d_embed]
        own = [size for size, tied in zip(self.embedding_sizes, self.tie_projs, strict=True) if not tied]
        parameters = words * (1 if self.tie_word_embeddings else 2) + self.vocab_size  # tables and biases
        parameters += len(self.cutoffs) * (self.d_embed + 1)
        parameters += H * (sum(tables) + sum(own)) if self.projected else 0
        biases = 2 * attention * (self.n_layer if self.untie_r else 1)
        block = 5 * H * attention + 2 * H * inner + inner + H + 4 * H
        parameters += self.n_layer * block + biases
        clusters = tuple(zip(self.cluster_sizes, self.embedding_sizes, strict=True))
        parts = RelativeParts(
            self.mem_len, self.mem_len > 0, attention, self.pre_lnorm, clusters=clusters, projected=self.projected
        )
        return RelativeSizes(
            self.name, self.vocab_size, H, self.n_layer, self.n_head, inner, self.tgt_len, parameters,
            self.tie_word_embeddings, self.dropout > 0, self.dropatt > 0, False, 1 + (self.dropout > 0), 1.25, 1,
            more=parts,
        )  # fmt: skip
