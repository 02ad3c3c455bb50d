"""Writes the files of a byte-level BPE tokenizer, which `tokenizers` and `transformers` open."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mini_bert.common.atomic import write_atomic
from mini_bert.text.bpe_conventions import GPT2, ROBERTA, Conventions
from mini_bert.text.bpe_files import MERGES, VOCAB_JSON
from mini_bert.text.tokenizer_files import CONFIG, JSON


def write(folder: Path, tokens: Sequence[str], merges: Sequence[tuple[str, str]], rules: Conventions) -> None:
    """Write the four files. Each program reads those that it prefers; their content agrees."""
    ids = {token: i for i, token in enumerate(tokens)}
    lines = [f"{left} {right}" for left, right in merges]
    content = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": _added_entries(ids, rules),
        "normalizer": {"type": "NFC"} if rules.compose else None,
        "pre_tokenizer": _byte_level(rules.add_prefix_space, True),
        "post_processor": _processor(ids, rules),
        "decoder": _byte_level(True, True),
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": rules.unknown,
            "continuing_subword_prefix": "",
            "end_of_word_suffix": "",
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": rules.ignore_merges,
            "vocab": ids,
            "merges": lines,
        },
    }
    folder.mkdir(parents=True, exist_ok=True)
    write_atomic(folder / JSON, _compact(content))
    write_atomic(folder / VOCAB_JSON, _compact(ids))
    write_atomic(folder / MERGES, "".join(f"{line}\n" for line in ("#version: 0.2", *lines)).encode())
    write_atomic(folder / CONFIG, (json.dumps(_config_entries(ids, rules), indent=2) + "\n").encode())


def _compact(content: Mapping[str, Any]) -> bytes:
    return (json.dumps(content, ensure_ascii=False, separators=(",", ":")) + "\n").encode()


def _added_entries(ids: Mapping[str, int], rules: Conventions) -> list[dict[str, Any]]:
    found = dict.fromkeys((*rules.roles.values(), *rules.special_tokens, *rules.added_tokens))
    return [_entry(token, rules, id=ids[token]) for token in sorted(found, key=lambda token: ids[token])]


def _entry(token: str, rules: Conventions, **first: Any) -> dict[str, Any]:
    return {
        **first,
        "content": token,
        "single_word": False,
        "lstrip": token in rules.lstrip,
        "rstrip": token in rules.rstrip,
        "normalized": token in rules.added_tokens,
        "special": token not in rules.added_tokens,
    }


def _byte_level(add_prefix_space: bool, trim_offsets: bool) -> dict[str, Any]:
    return {
        "type": "ByteLevel",
        "add_prefix_space": add_prefix_space,
        "trim_offsets": trim_offsets,
        "use_regex": True,
    }


def _processor(ids: Mapping[str, int], rules: Conventions) -> dict[str, Any]:
    trim = _byte_level(not rules.trim_first, rules.trim_offsets)
    if (rules.single, rules.pair) == (GPT2.single, GPT2.pair):
        return trim
    if (rules.single, rules.pair) == (ROBERTA.single, ROBERTA.pair):
        ends = {role: [rules.roles[role], ids[rules.roles[role]]] for role in ("sep", "cls")}
        flags = {"trim_offsets": rules.trim_offsets, "add_prefix_space": not rules.trim_first}
        return {"type": "RobertaProcessing", **ends, **flags}
    templates = {name: _pieces(getattr(rules, name), rules) for name in ("single", "pair")}
    used = {piece["SpecialToken"]["id"] for pieces in templates.values() for piece in pieces if "SpecialToken" in piece}
    tokens = {token: {"id": token, "ids": [ids[token]], "tokens": [token]} for token in sorted(used)}
    template = {"type": "TemplateProcessing", **templates, "special_tokens": tokens}
    return {"type": "Sequence", "processors": [trim, template]} if rules.trim_offsets else template


def _pieces(template: str, rules: Conventions) -> list[dict[str, Any]]:
    pieces = []
    for part in template.split():
        name, _, kind = part.partition(":")
        what, text = ("Sequence", name) if name in ("A", "B") else ("SpecialToken", rules.roles[name])
        pieces.append({what: {"id": text, "type_id": int(kind)}})
    return pieces


def _config_entries(ids: Mapping[str, int], rules: Conventions) -> dict[str, Any]:
    """tokenizer_config.json. transformers has a class for RoBERTa and one for GPT-2; others use its general one."""
    classes = {ROBERTA.pair: "RobertaTokenizer", GPT2.pair: "GPT2Tokenizer"}
    entries: dict[str, Any] = {
        "tokenizer_class": classes.get(rules.pair, "PreTrainedTokenizerFast"),
        "add_prefix_space": rules.add_prefix_space,
        "trim_offsets": rules.trim_offsets,
    }
    names = {"bos": "cls", "eos": "sep"} if "cls" in rules.roles else {"bos": "sep", "eos": "sep"}
    for name, role in sorted(({role: role for role in rules.roles} | names).items()):
        if role in rules.roles:
            token = rules.roles[role]
            entries[f"{name}_token"] = _entry(token, rules, __type="AddedToken") if name == "mask" else token
    return entries
