"""Writing the files of a Unigram tokenizer, such that they are read back as the same tokenizer.

A tokenizer with the rules of SentencePiece gets a spiece.model, others a tokenizer.json; the two formats cannot express
the same rules. Both get a tokenizer_config.json.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mini_bert.common.atomic import write_atomic
from mini_bert.text.sentencepiece_model import (
    BYTE,
    CONTROL,
    NORMAL,
    UNIGRAM,
    UNKNOWN,
    UNUSED,
    USER_DEFINED,
    Piece,
    SentencePieceModel,
    byte_piece,
)
from mini_bert.text.sentencepiece_text import SPACE
from mini_bert.text.tokenizer_files import CONFIG, JSON
from mini_bert.text.unigram_files import ANY_CLASS, DEBERTA, SPIECE, STYLES, SWITCHES, template_of

if TYPE_CHECKING:
    from mini_bert.text.unigram import UnigramTokenizer


def write(folder: Path, tokenizer: UnigramTokenizer) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    if tokenizer.as_sentencepiece:
        model_of(tokenizer).write(folder / SPIECE)
    else:
        write_atomic(folder / JSON, (json.dumps(json_of(tokenizer), indent=1, ensure_ascii=False) + "\n").encode())
    write_atomic(folder / CONFIG, (json.dumps(_config_of(tokenizer), indent=2, ensure_ascii=False) + "\n").encode())


def model_of(tokenizer: UnigramTokenizer) -> SentencePieceModel:
    """The spiece.model of a tokenizer: what it was read from, or a new one."""
    if tokenizer.model_file is not None:
        return tokenizer.model_file
    kinds = dict.fromkeys((tokenizer.tokens[i] for i in tokenizer.special_ids), CONTROL)
    kinds |= dict.fromkeys(tokenizer.symbols, USER_DEFINED) | dict.fromkeys(tokenizer.unused, UNUSED)
    kinds[tokenizer.roles["unk"]] = UNKNOWN
    if tokenizer.byte_fallback:
        kinds |= {byte_piece(byte): BYTE for byte in range(256)}
    pieces = tuple(
        Piece(token, score, kinds.get(token, NORMAL))
        for token, score in zip(tokenizer.tokens, tokenizer.scores, strict=True)
    )
    empty = SentencePieceModel(pieces)
    rules = tokenizer.rules if tokenizer.as_sentencepiece else {}
    trainer = empty.trainer.with_fields(
        model_type=UNIGRAM,
        vocab_size=len(pieces),
        treat_whitespace_as_suffix=int(rules.get("space_as_suffix", False)),
        byte_fallback=int(tokenizer.byte_fallback),
        unk_id=tokenizer.unk_id,
        bos_id=-1,
        eos_id=-1,
        pad_id=tokenizer.vocab.get(tokenizer.roles.get("pad", ""), -1),
    )
    switches = ("add_dummy_prefix", "remove_extra_whitespaces", "escape_whitespaces")
    normalizer = empty.normalizer.with_fields(
        name=b"mini_bert",
        precompiled_charsmap=base64.b64decode(rules.get("character_map", "")),
        **{name: int(rules.get(name, True)) for name in switches},
    )
    return SentencePieceModel(pieces, trainer, normalizer)


def json_of(tokenizer: UnigramTokenizer) -> dict[str, Any]:
    """The content of a tokenizer.json."""
    shown = [
        *((tokenizer.tokens[i], True) for i in tokenizer.special_ids),
        *((one, False) for one in tokenizer.symbols),
    ]
    special = [tokenizer.roles[role] for role in ("cls", "sep") if role in tokenizer.roles]
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {
                "id": tokenizer.vocab[text],
                "content": text,
                "single_word": False,
                "lstrip": text in tokenizer.lstrip,
                "rstrip": text in tokenizer.rstrip,
                "normalized": False,
                "special": is_special,
            }
            for text, is_special in sorted(shown, key=lambda one: tokenizer.vocab[one[0]])
        ],
        "normalizer": tokenizer.rules["normalizer"],
        "pre_tokenizer": tokenizer.rules["pre_tokenizer"],
        "post_processor": {
            "type": "TemplateProcessing",
            "single": _processor(tokenizer.single, tokenizer.roles),
            "pair": _processor(tokenizer.pair, tokenizer.roles),
            "special_tokens": {
                token: {"id": token, "ids": [tokenizer.vocab[token]], "tokens": [token]} for token in special
            },
        },
        "decoder": _decoder(tokenizer),
        "model": {
            "type": "Unigram",
            "unk_id": tokenizer.unk_id,
            "vocab": [list(entry) for entry in zip(tokenizer.tokens, tokenizer.scores, strict=True)],
            "byte_fallback": tokenizer.byte_fallback,
        },
    }


def _decoder(tokenizer: UnigramTokenizer) -> dict[str, Any]:
    scheme = "always" if tokenizer.text.drops_first_space else "never"
    spaces = {"type": "Metaspace", "replacement": SPACE, "prepend_scheme": scheme, "split": True}
    parts = [{"type": "ByteFallback"}, {"type": "Fuse"}, spaces]
    return {"type": "Sequence", "decoders": parts} if tokenizer.byte_fallback else spaces


def _processor(template: str, roles: Mapping[str, str]) -> list[dict[str, Any]]:
    parts = []
    for part in template.split():
        name, _, kind = part.partition(":")
        of_text = name in ("A", "B")
        parts.append(
            {"Sequence" if of_text else "SpecialToken": {"id": name if of_text else roles[name], "type_id": int(kind)}}
        )
    return parts


def _config_of(tokenizer: UnigramTokenizer) -> dict[str, Any]:
    """The content of tokenizer_config.json."""
    config: dict[str, Any] = {"tokenizer_class": ANY_CLASS}
    if tokenizer.as_sentencepiece:
        config["tokenizer_class"] = _class_of(tokenizer)
        steps = tokenizer.rules.get("steps", ())
        config |= {name: (step in steps) is meaning for name, (step, meaning) in SWITCHES.items()}
        model = tokenizer.model_file
        more = tokenizer.tokens[len(model.pieces) :] if model else []
        config["added_tokens_decoder"] = {
            str(tokenizer.vocab[token]): {"content": token, "special": True} for token in more
        }
    config |= {f"{role}_token": token for role, token in tokenizer.roles.items()}
    return config | {"padding_side": tokenizer.padding_side, "pad_token_type_id": tokenizer.padding_type}


def _class_of(tokenizer: UnigramTokenizer) -> str:
    """The class of `transformers` by which the folder is read back as the same tokenizer."""
    for style in STYLES:
        template = template_of(tokenizer.roles, style)
        if (
            tokenizer.rules.get("split_commas", False) == style.split_commas
            and (tokenizer.single, tokenizer.pair) == (template["single"], template["pair"])
            and (style is not DEBERTA or style.roles["mask"] in tokenizer.vocab)  # this class would add its mask
        ):
            return style.tokenizer_class
    return ANY_CLASS
