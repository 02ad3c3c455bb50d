"""Every preset of the family as a tiny untrained model: the same architecture and switches, a few thousand weights.

Tokenizers are as tiny: the letters, a few words, and each architecture's own special tokens and templates.
"""

from __future__ import annotations

import string
from dataclasses import fields, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from mini_bert.finetuning import model as finetuned
from mini_bert.finetuning.tasks.classify import Classify
from mini_bert.models.base import Model
from mini_bert.models.registry import PRESETS, model_class, preset
from mini_bert.text.base import Tokenizer
from mini_bert.text.bpe import BpeTokenizer
from mini_bert.text.bpe_conventions import GPT2, ROBERTA, Conventions
from mini_bert.text.byte_level import BYTE_CHARACTERS, SPACE
from mini_bert.text.unigram import UnigramTokenizer
from mini_bert.text.wordpiece import SPECIAL_TOKENS, WordPieceTokenizer
from mini_bert.training.setup import default_objective

WORDS = ["the", "cat", "dog", "sat", "ran", "on", "mat", "good", "bad", "was", "a", "film", "very", "in", "to", "and",
         "it"]  # fmt: skip
LETTERS = [mark + letter for letter in string.ascii_lowercase for mark in ("", "##")]
VOCABULARY = list(dict.fromkeys([*SPECIAL_TOKENS, *WORDS, "##s", "##ing", ".", ",", "?", *LETTERS]))
LENGTH = 48
WIDTH, DEPTH, HEADS, INNER = 12, 2, 3, 14
SMALL: dict[str, Any] = {  # by the names that the configs of the family use
    **dict.fromkeys(("hidden_size", "dim", "n_embd", "d_model", "d_embed"), WIDTH),
    **dict.fromkeys(("num_layers", "num_hidden_layers", "n_layers", "n_layer"), DEPTH),
    **dict.fromkeys(("num_heads", "num_attention_heads", "n_heads", "n_head"), HEADS),
    **dict.fromkeys(("intermediate_size", "hidden_dim", "n_inner", "d_inner"), INNER),
    **dict.fromkeys(("max_seq_length", "max_position_embeddings", "n_positions", "seq_len", "tgt_len"), LENGTH),
    **dict.fromkeys(("initializer_range", "init_std"), 0.2),
    "embedding_size": 10,
    "d_head": WIDTH // HEADS,
    "cutoffs": (20, 50),
    "tie_projs": None,
    "local_attention": 4,
    "position_buckets": 8,
    "generator": {"hidden_size": 8, "num_attention_heads": 2, "intermediate_size": 10},
}
FAMILY = [name for name in PRESETS if name != "larger"]  # that is a larger Mini-BERT


@cache
def tokenizer_for(name: str) -> Tokenizer:
    """Byte-level BPE for GPT-2 and RoBERTa, Unigram for ALBERT and XLNet, WordPiece for the others"""
    if name in ("gpt2", "roberta"):
        return bpe(GPT2 if name == "gpt2" else ROBERTA)
    if name == "albert":
        return unigram({"pad": "<pad>", "unk": "<unk>", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"})
    if name == "xlnet":  # <cls> at the end, with a token type of its own; padding on the left
        return unigram(
            {"unk": "<unk>", "cls": "<cls>", "sep": "<sep>", "pad": "<pad>", "mask": "<mask>"},
            single="A:0 sep:0 cls:2", pair="A:0 sep:0 B:1 sep:1 cls:2", padding_side="left", padding_type=3,
        )  # fmt: skip
    return WordPieceTokenizer(VOCABULARY)


def bpe(rules: Conventions) -> BpeTokenizer:
    """A vocabulary of all bytes and of WORDS, at the beginning of a text and after a space"""
    merges = {(word[:end], word[end]): None for word in WORDS for end in range(1, len(word))}
    merges |= {(SPACE, word): None for word in [*WORDS, ".", ",", "?"]}  # last, so that words are whole before
    pieces = [*rules.roles.values(), *BYTE_CHARACTERS, *(left + right for left, right in merges)]
    return BpeTokenizer(list(dict.fromkeys(pieces)), list(merges), rules)


def unigram(roles: dict[str, str], **template: Any) -> UnigramTokenizer:
    """WORDS, signs and letters, each with the space before it or without; longer pieces are likelier"""
    words = [mark + word for word in [*WORDS, *string.ascii_lowercase, ".", ",", "?", "s"] for mark in ("▁", "")]
    pieces = dict.fromkeys([*words, "▁"])
    vocab = [*roles.values(), *pieces]
    scores = [*[0.0] * len(roles), *(-10.0 + len(piece) for piece in pieces)]
    rules = {"type": "sentencepiece", "add_dummy_prefix": True, "remove_extra_whitespaces": True}
    return UnigramTokenizer(vocab, scores, roles, rules, lstrip=(roles["mask"],), **template)


def tiny_config(name: str) -> Any:
    """The preset with small sizes; sizes that it does not use (None) stay so."""
    config = preset(name)
    present = {field.name for field in fields(config) if getattr(config, field.name) is not None}
    sizes = {field: value for field, value in SMALL.items() if field in present}
    sizes["vocab_size"] = len(tokenizer_for(name))
    if name == "roberta":
        sizes["max_position_embeddings"] = LENGTH + 2  # positions start at 2
    if name == "transformer-xl":
        sizes["mem_len"] = 5
    config = default_objective(config).adapted(replace(config, **sizes))
    return config.with_padding(tokenizer_for(name).pad_id)


def tiny_model(name: str, seed: int = 1, dtype: Any = np.float32) -> Model:
    """With the output heads that it is trained with"""
    config = tiny_config(name)
    return model_class(config.to_dict())(config, default_objective(config).heads, seed, dtype)


def saved(folder: Path, name: str) -> Path:
    """The folder of a model, its tokenizer and, inside, its generator"""
    tiny_model(name).save_pretrained(folder)
    for part in (folder, folder / "generator"):
        if part.is_dir():
            tokenizer_for(name).save(part)
    return folder


def tuned(folder: Path, name: str) -> Path:
    """The folder of a model that classifies texts"""
    task = Classify(["neg", "pos"])
    finetuned.save(folder, finetuned.with_task(tiny_model(name), task), task, tokenizer_for(name), LENGTH)
    return folder
