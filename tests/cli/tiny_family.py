"""Every preset of the family as a tiny untrained model: the same architecture and switches, a few thousand weights."""

from __future__ import annotations

import string
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from mini_bert.models.base import Model
from mini_bert.models.registry import PRESETS, model_class, preset
from mini_bert.text.wordpiece import SPECIAL_TOKENS, WordPieceTokenizer
from mini_bert.training.setup import default_objective

WORDS = ["the", "cat", "dog", "sat", "ran", "on", "mat", "good", "bad", "was", "a", "film", "very", "##s", "##ing", ".",
         ",", "?", "in", "to", "and", "it"]  # fmt: skip
LETTERS = [mark + letter for letter in string.ascii_lowercase for mark in ("", "##")]
TOKENIZER = WordPieceTokenizer(list(dict.fromkeys([*SPECIAL_TOKENS, *WORDS, *LETTERS])))
LENGTH = 48
WIDTH, DEPTH, HEADS, INNER = 12, 2, 3, 14
SMALL: dict[str, Any] = {  # by the names that the configs of the family use
    "vocab_size": len(TOKENIZER),
    **dict.fromkeys(("hidden_size", "dim", "n_embd", "d_model", "d_embed"), WIDTH),
    **dict.fromkeys(("num_layers", "num_hidden_layers", "n_layers", "n_layer"), DEPTH),
    **dict.fromkeys(("num_heads", "num_attention_heads", "n_heads", "n_head"), HEADS),
    **dict.fromkeys(("intermediate_size", "hidden_dim", "n_inner", "d_inner"), INNER),
    **dict.fromkeys(("max_seq_length", "max_position_embeddings", "n_positions", "seq_len", "tgt_len"), LENGTH),
    **dict.fromkeys(("initializer_range", "init_std"), 0.2),
    "embedding_size": 10,
    "d_head": WIDTH // HEADS,
    "cutoffs": (20, 50),
    "local_attention": 4,
    "position_buckets": 8,
    "generator": {"hidden_size": 8, "num_attention_heads": 2, "intermediate_size": 10},
}
FAMILY = [name for name in PRESETS if name != "larger"]  # a larger Mini-BERT


def tiny_config(name: str) -> Any:
    """The preset with small sizes; sizes that it does not use (None) stay so."""
    config = preset(name)
    present = {field.name for field in fields(config) if getattr(config, field.name) is not None}
    sizes = {field: value for field, value in SMALL.items() if field in present}
    if name == "roberta":
        sizes["max_position_embeddings"] = LENGTH + 2  # positions start at 2
    if name == "transformer-xl":
        sizes["mem_len"] = 5
    return replace(config, **sizes)


def tiny_model(name: str, seed: int = 1, dtype: Any = np.float32) -> Model:
    """With the output heads that it is trained with"""
    config = tiny_config(name)
    objective = default_objective(config)
    config = objective.adapted(config).with_padding(TOKENIZER.pad_id)
    return model_class(config.to_dict()).build(config, objective.heads, seed, dtype)


def saved(folder: Path, name: str) -> Path:
    tiny_model(name).save_pretrained(folder)
    for part in (folder, folder / "generator"):
        if part.is_dir():
            TOKENIZER.save(part)
    return folder
