"""Tiny random models of every architecture, with the settings that change what is computed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from mini_bert.models.albert import Albert, AlbertConfig
from mini_bert.models.base import MASKED_WORDS, REPLACED, Model
from mini_bert.models.bert import Bert, BertConfig
from mini_bert.models.config import MiniBertConfig
from mini_bert.models.deberta import Deberta, DebertaConfig
from mini_bert.models.deberta_v2 import DebertaV2, DebertaV2Config
from mini_bert.models.distilbert import DistilBert, DistilBertConfig
from mini_bert.models.electra import Electra, ElectraConfig
from mini_bert.models.gpt2 import GPT2, GPT2Config
from mini_bert.models.mini import MiniBERT
from mini_bert.models.modernbert import ModernBert, ModernBertConfig
from mini_bert.models.roberta import Roberta, RobertaConfig
from mini_bert.models.transformer_xl import TransformerXL, TransformerXLConfig
from mini_bert.models.xlnet import XLNet, XLNetConfig

V, H, L, A, I, LONGEST = 43, 20, 2, 5, 23, 40
SIZES: dict[str, Any] = {
    "vocab_size": V, "hidden_size": H, "num_hidden_layers": L, "num_attention_heads": A, "intermediate_size": I,
    "max_position_embeddings": LONGEST, "initializer_range": 0.2,
}  # fmt: skip
DISENTANGLED: dict[str, Any] = {
    **SIZES,
    "relative_attention": True,
    "pos_att_type": ("c2p", "p2c"),
    "position_biased_input": False,
}
V2 = DebertaV2Config(**DISENTANGLED, position_buckets=6, share_att_key=True, norm_rel_ebd="layer_norm")
GPT = GPT2Config(V, LONGEST, H, L, A, initializer_range=0.2)
MODERN = ModernBertConfig(
    V, H, I, 3, 2, max_position_embeddings=LONGEST, local_attention=6, initializer_range=0.2, pad_token_id=0
)
XL: dict[str, Any] = {
    "vocab_size": V, "d_model": H, "n_head": A, "d_head": 3, "d_inner": I, "n_layer": L, "tgt_len": LONGEST,
    "init_std": 0.2, "proj_init_std": 0.2,
}  # fmt: skip
NET: dict[str, Any] = {
    "vocab_size": V, "d_model": H, "n_layer": L, "n_head": A, "d_inner": I, "initializer_range": 0.2, "seq_len": LONGEST
}  # fmt: skip

MODELS: dict[str, Callable[[], Model]] = {
    "mini": lambda: MiniBERT(MiniBertConfig(V, H, L, A, I, LONGEST)),
    "mini-tied": lambda: MiniBERT(MiniBertConfig(V, H, L, A, I, LONGEST, tie_head=True)),
    "bert": lambda: Bert(BertConfig(**SIZES)),
    "bert-tanh": lambda: Bert(BertConfig(**SIZES, hidden_act="gelu_new", type_vocab_size=3, tie_word_embeddings=False)),
    "bert-silu": lambda: Bert(BertConfig(**SIZES, hidden_act="silu")),
    "roberta": lambda: Roberta(RobertaConfig(**SIZES | {"max_position_embeddings": LONGEST + 2}, type_vocab_size=1)),
    "distilbert": lambda: DistilBert(
        DistilBertConfig(V, LONGEST, False, L, A, H, I, initializer_range=0.2, activation="relu")
    ),
    "albert": lambda: Albert(
        AlbertConfig(**SIZES | {"num_hidden_layers": 4}, embedding_size=7, num_hidden_groups=2, inner_group_num=2)
    ),
    "electra-discriminator": lambda: Electra(ElectraConfig(**SIZES, embedding_size=7), (REPLACED,)),
    "electra-generator": lambda: Electra(ElectraConfig(**SIZES, embedding_size=H), (MASKED_WORDS,)),
    "deberta": lambda: Deberta(DebertaConfig(**DISENTANGLED)),
    "deberta-plain": lambda: Deberta(DebertaConfig(**SIZES, type_vocab_size=2)),
    "deberta-talking": lambda: Deberta(
        DebertaConfig(**DISENTANGLED | {"pos_att_type": ("c2p",)}, talking_head=True, max_relative_positions=5)
    ),
    "deberta-v2": lambda: DebertaV2(replace(V2, conv_kernel_size=3, conv_groups=2, conv_act="gelu")),
    "deberta-v2-p2c": lambda: DebertaV2(replace(V2, pos_att_type=("p2c",), share_att_key=False)),
    "deberta-v3": lambda: DebertaV2(V2, (REPLACED,)),
    "gpt2": lambda: GPT2(GPT),
    "gpt2-untied": lambda: GPT2(replace(GPT, tie_word_embeddings=False, scale_attn_by_inverse_layer_idx=True)),
    "modernbert": lambda: ModernBert(MODERN),
    "modernbert-biases": lambda: ModernBert(replace(MODERN, attention_bias=True, mlp_bias=True, norm_bias=True)),
    "transformer-xl": lambda: TransformerXL(
        TransformerXLConfig(**XL, d_embed=12, cutoffs=(5, 17), div_val=2, tie_projs=(False, True, True), mem_len=6)
    ),
    "transformer-xl-pre-norm": lambda: TransformerXL(
        TransformerXLConfig(
            **XL,
            d_embed=H,
            cutoffs=(),
            div_val=1,
            tie_projs=(False,),
            mem_len=4,
            pre_lnorm=True,
            same_length=True,
            clamp_len=7,
            untie_r=False,
        )
    ),
    "transformer-xl-no-memory": lambda: TransformerXL(
        TransformerXLConfig(
            **XL, d_embed=H, cutoffs=(5,), div_val=1, tie_projs=(False, False), mem_len=0, same_length=False
        )
    ),
    "xlnet": lambda: XLNet(XLNetConfig(**NET)),
    "xlnet-uni": lambda: XLNet(XLNetConfig(**NET, attn_type="uni", clamp_len=5, untie_r=False)),
    "xlnet-both-ways": lambda: XLNet(XLNetConfig(**NET, bi_data=True)),
}


def build(name: str, seed: int = 0) -> Model:
    """The model with random weights, biases and norms included"""
    model = MODELS[name]()
    rng = np.random.default_rng(seed)
    model.flat.data[...] += 0.1 * rng.normal(size=model.flat.data.shape)
    return model


def batch(model: Model, B: int, T: int, left: bool = False, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """ids, mask and types of B texts, the first of which is T tokens long"""
    rng = np.random.default_rng((seed, B, T))
    lengths = np.concatenate([[T], rng.integers(1, T + 1, B - 1)])[:, None]
    places = np.arange(T)
    mask = places >= T - lengths if left else places < lengths
    padding = getattr(model.config, "padding_id", None) or 0
    ids = np.where(mask, rng.integers(5, V, (B, T)), padding)
    return ids, mask, np.where(mask, places > T // 2, 0)
