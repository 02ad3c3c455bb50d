"""The family at a glance: each architecture's paper, published sizes, tokenizer, objective, and what it changed about
BERT.

Only facts that no code can compute stand here; `mini-bert family` (checks/family.py) computes the rest: parameters from
the configs below, memory from the planner, and the time of a step from running one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple


class Member(NamedTuple):
    preset: str  # its name for `mini-bert train --model`
    name: str  # for people
    paper: str
    tokenizer: str  # of the published models; our presets have those of training/setup.py
    objective: str  # of the published models, a name from objectives/registry.py; our presets may have another
    differences: tuple[str, ...]  # from BERT
    # Name -> the fields of its config that are not the default. First the usual size (base), last the largest.
    published: Mapping[str, Mapping[str, Any]]
    note: str = ""  # where our code is not what was published


class Variant(NamedTuple):
    """A preset that differs from a member."""

    member: str  # its preset
    about: str  # what is different
    published: Mapping[str, Mapping[str, Any]] = {}
    objective: str = "masked_words"


def _sizes(width: int, layers: int, heads: int, inner: int) -> dict[str, int]:
    return {"hidden_size": width, "num_hidden_layers": layers, "num_attention_heads": heads, "intermediate_size": inner}


_DEBERTA_V2 = {  # of both versions
    "vocab_size": 128100, "relative_attention": True, "position_buckets": 256, "norm_rel_ebd": "layer_norm",
    "share_att_key": True, "pos_att_type": ["p2c", "c2p"], "position_biased_input": False,
    "max_relative_positions": -1, "type_vocab_size": 0,
}  # fmt: skip

MEMBERS = (
    Member(
        "bert",
        "BERT",
        "Devlin et al. 2018",
        "WordPiece",
        "masked_words_and_next_sentence",
        ("the starting point: an encoder with post-norm blocks and learnt positions",),
        {"bert-base": {}, "bert-tiny": _sizes(128, 2, 2, 512), "bert-large": _sizes(1024, 24, 16, 4096)},
    ),
    Member(
        "roberta",
        "RoBERTa",
        "Liu et al. 2019",
        "byte-level BPE",
        "masked_words",
        ("no next-sentence prediction, one token type", "positions start at 2 and count only real tokens"),
        {
            "roberta-base": {"vocab_size": 50265, "max_position_embeddings": 514, "type_vocab_size": 1},
            "roberta-large": {
                **_sizes(1024, 24, 16, 4096), "vocab_size": 50265, "max_position_embeddings": 514, "type_vocab_size": 1,
            },
        },
    ),
    Member(
        "albert",
        "ALBERT",
        "Lan et al. 2019",
        "Unigram",
        "masked_words_and_sentence_order",
        ("all layers share one block", "embeddings of width E, then a matrix to width H", "sentence order"),
        {
            "albert-base-v2": _sizes(768, 12, 12, 3072),
            "albert-large-v2": _sizes(1024, 24, 16, 4096),
            "albert-xlarge-v2": _sizes(2048, 24, 16, 8192),
            "albert-xxlarge-v2": _sizes(4096, 12, 64, 16384),
        },
    ),
    Member(
        "distilbert",
        "DistilBERT",
        "Sanh et al. 2019",
        "WordPiece",
        "distillation",
        ("half the layers, trained to imitate a teacher", "no token types, no pooler"),
        {"distilbert-base": {}},
        "Our preset starts from random weights and learns masked words alone. `--teacher FOLDER` adds a teacher. With "
        "`--init-from-teacher`, it starts with layers of the teacher, as the published model did with six of twelve. "
        "The teacher must have blocks of the same kind and width, as a BERT may.",
    ),
    Member(
        "electra",
        "ELECTRA",
        "Clark et al. 2020",
        "WordPiece",
        "replaced_tokens",
        ("a small generator replaces tokens", "the model says of every token whether it was replaced"),
        {
            "electra-base": {**_sizes(768, 12, 12, 3072), "embedding_size": 768},
            "electra-small": {**_sizes(256, 12, 4, 1024), "embedding_size": 128},
            "electra-large": {**_sizes(1024, 24, 16, 4096), "embedding_size": 1024},
        },
    ),
    Member(
        "deberta",
        "DeBERTa",
        "He et al. 2020",
        "byte-level BPE",
        "masked_words",
        ("attention compares content with content and with relative positions", "no positions in the embeddings"),
        {
            "deberta-base": {
                "vocab_size": 50265, "max_relative_positions": -1, "relative_attention": True,
                "position_biased_input": False, "pos_att_type": ["c2p", "p2c"], "type_vocab_size": 0,
            },
            "deberta-large": {
                **_sizes(1024, 24, 16, 4096), "vocab_size": 50265, "max_relative_positions": -1,
                "relative_attention": True, "position_biased_input": False, "pos_att_type": ["c2p", "p2c"],
                "type_vocab_size": 0,
            },
        },
        "The paper's enhanced mask decoder is not part of it. It brings in absolute positions near the last layer when "
        "masked words are predicted, only in pretraining; `transformers`, with which our outputs agree, has none.",
    ),
    Member(
        "deberta-v3",
        "DeBERTa v3",
        "He et al. 2021",
        "Unigram",
        "replaced_tokens",
        ("distances in logarithmic buckets", "positions share the projections of content", "replaced tokens"),
        {
            f"deberta-v3-{size}": {**_sizes(*sizes), **_DEBERTA_V2}
            for size, sizes in {
                "base": (768, 12, 12, 3072), "small": (768, 6, 12, 3072), "large": (1024, 24, 16, 4096)
            }.items()
        },
    ),
    Member(
        "transformer-xl",
        "Transformer-XL",
        "Dai et al. 2019",
        "words",
        "next_word_with_memory",
        ("reads left to right", "remembers the hidden states of the segment before", "relative positions"),
        {"transfo-xl-wt103": {}},
        "The published vocabulary is a list of whole words. Mini-BERT has no tokenizer for it: it reads the weights of "
        "a published folder, but not the vocabulary. Our preset reads pieces of words.",
    ),
    Member(
        "xlnet",
        "XLNet",
        "Yang et al. 2019",
        "Unigram",
        "permutation",
        ("predicts words in a random order", "two streams: with and without the word itself", "relative positions"),
        {
            "xlnet-base": {"d_model": 768, "n_layer": 12, "n_head": 12, "d_inner": 3072},
            "xlnet-large": {"d_model": 1024, "n_layer": 24, "n_head": 16, "d_inner": 4096},
        },
    ),
    Member(
        "gpt2",
        "GPT-2",
        "Radford et al. 2019",
        "byte-level BPE",
        "next_word",
        ("each token sees only those before it, and predicts the next", "norms before sublayers"),
        {
            "gpt2": {},
            "gpt2-medium": {"n_embd": 1024, "n_layer": 24, "n_head": 16},
            "gpt2-large": {"n_embd": 1280, "n_layer": 36, "n_head": 20},
            "gpt2-xl": {"n_embd": 1600, "n_layer": 48, "n_head": 25},
        },
    ),
    Member(
        "modernbert",
        "ModernBERT",
        "Warner et al. 2024",
        "byte-level BPE",
        "masked_words",
        ("norms before sublayers, no biases", "rotary positions, gated feed-forward", "mostly local attention"),
        {
            "ModernBERT-base": {},
            "ModernBERT-large": {
                "hidden_size": 1024, "num_hidden_layers": 28, "num_attention_heads": 16, "intermediate_size": 2624
            },
        },
    ),
)  # fmt: skip

VARIANTS: Mapping[str, Variant] = {
    "deberta-v2": Variant(
        "deberta-v3",
        "DeBERTa v2 has the same architecture, with a convolution beside the first block, and is trained "
        "on masked words instead of replaced tokens",
        {
            f"deberta-v2-{size}": {
                **_sizes(1536, layers, 24, 6144), **_DEBERTA_V2, "conv_kernel_size": 3, "conv_act": "gelu"
            }
            for size, layers in {"xlarge": 24, "xxlarge": 48}.items()
        },
    ),
    "mini": Variant(
        "bert",
        "Mini-BERT is a small BERT without token types and pooler: no norm at the embeddings, but one after the last "
        "block, no biases in attention, ReLU, and a head with a matrix of its own",
    ),
    "larger": Variant(
        "bert", "Larger-BERT is a Mini-BERT with more of everything, to be trained for longer on more text"
    ),
}  # fmt: skip
