"""The files of a byte-level BPE tokenizer.

    tokenizer.json                  everything, as the `tokenizers` library writes it
    vocab.json and merges.txt       the pieces with their ids; the merges, one per line, in the order learnt
    tokenizer_config.json, special_tokens_map.json, added_tokens.json      beside either: special tokens and their roles

Here they are read; text/bpe_saving.py writes them. Reading is strict: a tokenizer.json that describes anything but
byte-level BPE as GPT-2's is refused with a message that names the difference, because it would silently give wrong ids.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from mini_bert.common.json_values import read_object
from mini_bert.text.bpe_conventions import DEBERTA, GPT2, ROBERTA, Conventions, usual_conventions, usual_roles
from mini_bert.text.byte_level import BYTE_CHARACTERS
from mini_bert.text.tokenizer_files import CONFIG, JSON, checked, checked_ids, in_order

VOCAB_JSON, MERGES = "vocab.json", "merges.txt"
SPECIAL_MAP, ADDED = "special_tokens_map.json", "added_tokens.json"
FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")

Read = tuple[list[str], list[tuple[str, str]], Conventions]  # tokens in the order of their ids, merges, rules


class Added(NamedTuple):
    """A token that is found in a text as a whole."""

    content: str
    id: int
    lstrip: bool = False
    rstrip: bool = False
    special: bool = True


def read(path: Path, content: dict[str, Any] | None = None) -> Read:
    """A tokenizer.json, whose content may be given if it was read before, or a vocab.json with its merges.txt."""
    if path.name == VOCAB_JSON:
        return _read_vocab(path)
    return _read_json(path, read_object(path) if content is None else content)


# ---- tokenizer.json


def _read_json(path: Path, content: dict[str, Any]) -> Read:
    model = content.get("model")
    if not isinstance(model, dict) or not isinstance(model.get("vocab"), (dict, list)):
        raise ValueError(f"{path} is not a {JSON}: it has no model with a vocabulary; give the file of that name")
    if model.get("type", "BPE" if "merges" in model else None) != "BPE":
        _refuse(path, "model", model.get("type"), "BPE")
    for name in ("dropout", "continuing_subword_prefix", "end_of_word_suffix", "byte_fallback"):
        if model.get(name):
            _refuse(path, f"model's {name}", model[name], "none")
    _one_of(path, "decoder", content.get("decoder"), "ByteLevel")
    splitter = _one_of(path, "pre_tokenizer", content.get("pre_tokenizer"), "ByteLevel")
    if splitter.get("use_regex", True) is not True:
        _refuse(path, "pre_tokenizer's use_regex", splitter["use_regex"], "true")
    normalizer = content.get("normalizer")
    compose = bool(normalizer) and _one_of(path, "normalizer", normalizer, "NFC", "nothing")["type"] == "NFC"

    ids = checked_ids(path, "model.vocab", model["vocab"])
    added = _added(
        path, "added_tokens", checked(path, "added_tokens", content.get("added_tokens") or [], list, "a list")
    )
    for token in added:
        ids.setdefault(token.content, token.id)
    unknown = model.get("unk_token")
    if unknown is not None and unknown not in ids:
        raise ValueError(f"{path}: model.unk_token is {unknown!r:.60}, which is not in the vocabulary; add it, or null")
    if unknown is not None and model.get("fuse_unk") and not set(BYTE_CHARACTERS) <= ids.keys():
        _refuse(path, "model's fuse_unk", True, "false, as its vocabulary lacks some bytes")
    roles = usual_roles(_named(path, ids), [token.content for token in added])
    rules = _processed(path, content.get("post_processor"), roles)
    rules = rules._replace(
        add_prefix_space=_switch(path, "pre_tokenizer.add_prefix_space", splitter.get("add_prefix_space", True)),
        compose=compose,
        ignore_merges=_switch(path, "model.ignore_merges", model.get("ignore_merges", False)),
        unknown=unknown,
    )
    merges = [_pair(path, f"model.merges[{rank}]", merge) for rank, merge in enumerate(_list(path, model))]
    return in_order(path, ids), merges, _with_added(rules, added)


def _list(path: Path, model: Mapping[str, Any]) -> list[Any]:
    return checked(path, "model.merges", model.get("merges"), list, "a list of pairs")


def _pair(path: Path, field: str, merge: Any) -> tuple[str, str]:
    parts = merge.split(" ") if isinstance(merge, str) else merge
    if not isinstance(parts, list) or len(parts) != 2 or not all(isinstance(part, str) and part for part in parts):
        raise ValueError(f'{path}: {field} is {merge!r:.60}, expected two pieces with a space between them, as "t h"')
    return parts[0], parts[1]


def _processed(path: Path, processor: Any, roles: Mapping[str, str]) -> Conventions:
    """The templates, and how spans are trimmed, of a post_processor. Its special tokens override `roles`."""
    rules = GPT2._replace(roles=roles)
    steps = processor.get("processors") if isinstance(processor, dict) and processor.get("type") == "Sequence" else None
    for step in [processor] if steps is None else steps:
        if step is None:
            continue
        kinds = ("ByteLevel", "RobertaProcessing", "BertProcessing", "TemplateProcessing")
        kind = _one_of(path, "post_processor", step, *kinds)["type"]
        if kind in ("ByteLevel", "RobertaProcessing"):
            rules = rules._replace(
                trim_offsets=_switch(path, "post_processor.trim_offsets", step.get("trim_offsets", True)),
                trim_first=not _switch(path, "post_processor.add_prefix_space", step.get("add_prefix_space", True)),
            )
        if kind in ("RobertaProcessing", "BertProcessing"):
            alike = ROBERTA if kind == "RobertaProcessing" else DEBERTA
            ends = {role: _end(path, step, role) for role in ("cls", "sep")}
            rules = rules._replace(roles={**rules.roles, **ends}, single=alike.single, pair=alike.pair)
        if kind == "TemplateProcessing":
            named, single = _template(path, step, "single", rules.roles)
            named, pair = _template(path, step, "pair", named)
            rules = rules._replace(roles=named, single=single, pair=pair)
    return rules


def _end(path: Path, step: Mapping[str, Any], role: str) -> str:
    value = step.get(role)
    if not isinstance(value, list) or len(value) != 2 or not isinstance(value[0], str):
        raise ValueError(f'{path}: post_processor.{role} is {value!r:.60}, expected a token and its id, as ["<s>", 0]')
    return value[0]


def _template(path: Path, step: Mapping[str, Any], name: str, roles: Mapping[str, str]) -> tuple[dict[str, str], str]:
    """A template in our notation. A token that has no role yet becomes cls before the text, sep elsewhere."""
    field, named = f"post_processor.{name}", dict(roles)
    parts: list[str] = []
    for piece in checked(path, field, step.get(name), list, "a list of texts and special tokens"):
        kind = next(iter(piece)) if isinstance(piece, dict) and len(piece) == 1 else None
        value = piece[kind] if kind in ("Sequence", "SpecialToken") else None
        if not isinstance(value, dict) or not isinstance(value.get("id"), str) or not isinstance(value["type_id"], int):
            raise ValueError(
                f"{path}: {field} has {piece!r:.60}, expected a Sequence or a SpecialToken with id and type_id"
            )
        role = value["id"]
        if kind == "SpecialToken":
            first = "cls" if not parts else "sep"
            role = next((r for r in (first, "sep", "cls", *named) if named.get(r) == value["id"]), "")
            if not role and first in named:
                _refuse(path, f"{field} template's {value['id']}", "another", f"{first}, which is {named[first]}")
            if not role:
                role, named[first] = first, value["id"]
        parts.append(f"{role}:{value['type_id']}")
    texts = [part[0] for part in parts if part[0] in "AB"]
    if texts != ["A", "B"][: 1 + (name == "pair")]:
        raise ValueError(f"{path}: {field} has the texts {' '.join(texts) or 'none'}, expected A, and B in a pair")
    return named, " ".join(parts)


def _one_of(path: Path, name: str, part: Any, *expected: str) -> dict[str, Any]:
    """A part of a tokenizer.json, if it is one of these types. A sequence of one counts as that one."""
    while isinstance(part, dict) and part.get("type") == "Sequence":
        inner = next((value for value in part.values() if isinstance(value, list)), [])
        part = inner[0] if len(inner) == 1 else {"type": "nothing" if not inner else "Sequence of several"}
        if part.get("type") == "Sequence of several":
            break
    kind = part.get("type") if isinstance(part, dict) else None
    if not isinstance(part, dict) or kind not in expected:
        _refuse(path, name, kind, " or ".join(word for word in expected if word != "nothing"))
    return part


def _switch(path: Path, field: str, value: Any) -> bool:
    return checked(path, field, value, bool, "true or false")


def _refuse(path: Path, what: str, found: Any, expected: str) -> NoReturn:
    raise ValueError(
        f"{path} is not a byte-level BPE tokenizer like GPT-2's: its {what} is {found}, expected {expected}. "
        "BpeTokenizer would give different ids than that tokenizer"
    )


# ---- vocab.json and merges.txt


def _read_vocab(path: Path) -> Read:
    ids = checked_ids(path, "the file", read_object(path))
    merges_path = path.with_name(MERGES)
    if not merges_path.is_file():
        raise FileNotFoundError(f"{path} needs {MERGES} in the same folder, the merges of its pieces; copy it there")
    merges = _read_merges(merges_path)
    added = _added_beside(path, ids)
    for token in added:
        ids.setdefault(token.content, token.id)
    rules = usual_conventions(usual_roles(_named(path, ids), ids))
    config, where = _config(path), path.with_name(CONFIG)
    prefix, trim = (
        _switch(where, name, usual if config.get(name) is None else config[name])
        for name, usual in (("add_prefix_space", False), ("trim_offsets", rules.trim_offsets))
    )
    rules = rules._replace(add_prefix_space=prefix, trim_offsets=trim, trim_first=not prefix)
    for text in dict.fromkeys((*rules.roles.values(), *_additional(path, ids))):
        if not any(text == token.content for token in added):
            added.append(Added(text, ids[text], _lstrip(path, text, text in rules.lstrip)))
    return in_order(path, ids), merges, _with_added(rules, added)


def _additional(path: Path, ids: Mapping[str, int]) -> list[str]:
    """Further special tokens that tokenizer_config.json or special_tokens_map.json name."""
    found = []
    for beside in (path.with_name(SPECIAL_MAP), path.with_name(CONFIG)):
        values = read_object(beside) if beside.is_file() else {}
        field = "additional_special_tokens"
        for entry in checked(beside, field, values.get(field) or [], list, "a list of tokens"):
            token = entry.get("content") if isinstance(entry, dict) else entry
            found.append(_known(beside, field, token, path, ids))
    return found


def _known(beside: Path, field: str, token: Any, path: Path, ids: Mapping[str, int]) -> str:
    checked(beside, field, token, str, "text")
    if token not in ids:
        raise ValueError(
            f"{beside}: {field} is {token!r:.60}, which is not in the vocabulary of {path.name}; add it there, or "
            "remove it here"
        )
    return token


def _lstrip(path: Path, token: str, usual: bool) -> bool:
    """Whether a special token takes the white space before it, if tokenizer_config.json says; otherwise as usual."""
    entries = [value for value in _config(path).values() if isinstance(value, dict) and value.get("content") == token]
    return _switch(path.with_name(CONFIG), f"lstrip of {token}", entries[0].get("lstrip", usual)) if entries else usual


def _read_merges(path: Path) -> list[tuple[str, str]]:
    try:
        lines = path.read_bytes().decode("utf-8-sig").replace("\r\n", "\n").split("\n")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 text ({error}); it has one merge per line") from None
    found = [(number, line) for number, line in enumerate(lines, 1) if line and not line.startswith("#version")]
    return [_pair(path, f"line {number}", line) for number, line in found]


# ---- special tokens, in either case


def _config(path: Path) -> dict[str, Any]:
    beside = path.with_name(CONFIG)
    return read_object(beside) if beside.is_file() else {}


def _named(path: Path, ids: Mapping[str, int]) -> dict[str, str]:
    """The special tokens that tokenizer_config.json and special_tokens_map.json name, by role."""
    named = {}
    for beside in (path.with_name(SPECIAL_MAP), path.with_name(CONFIG)):
        values = read_object(beside) if beside.is_file() else {}
        for role in (*ROBERTA.roles, "bos", "eos"):
            value = values.get(f"{role}_token")
            token = value.get("content") if isinstance(value, dict) else value
            if token is None:
                continue
            named[role] = _known(beside, f"{role}_token", token, path, ids)
    return named


def _added(path: Path, field: str, entries: Sequence[Any]) -> list[Added]:
    added = []
    for place, token in enumerate(entries):
        name = f"{field}[{place}]"
        checked(path, name, token, dict, "an object with content and id")
        content = checked(path, f"{name}.content", token.get("content"), str, "text")
        checked(path, f"{name}.id", token.get("id"), int, "a whole number")
        flags = {flag: _switch(path, f"{name}.{flag}", token.get(flag, False)) for flag in FLAGS}
        if not content:
            raise ValueError(f"{path}: {name}.content is empty, so it would match everywhere; remove the entry")
        if flags["single_word"]:
            _refuse(path, f"added token {content!r}", "single_word", "found anywhere in the text")
        added.append(Added(content, token["id"], flags["lstrip"], flags["rstrip"], flags["special"]))
    return added


def _added_beside(path: Path, ids: Mapping[str, int]) -> list[Added]:
    """Tokens beside a vocab.json: `added_tokens_decoder` of tokenizer_config.json, or added_tokens.json."""
    decoder = _config(path).get("added_tokens_decoder")
    if decoder is not None:
        beside = path.with_name(CONFIG)
        checked(beside, "added_tokens_decoder", decoder, dict, "an object of ids and tokens")
        entries = [
            {**checked(beside, f"added_tokens_decoder[{i!r:.20}]", token, dict, "an object"), "id": _number(beside, i)}
            for i, token in decoder.items()
        ]
        return _added(beside, "added_tokens_decoder", entries)
    beside = path.with_name(ADDED)
    more = checked_ids(beside, "the file", read_object(beside)) if beside.is_file() else {}
    return [Added(token, i, special=False) for token, i in more.items() if token not in ids]


def _number(path: Path, text: str) -> int:
    if not text.isdecimal():
        raise ValueError(f"{path}: added_tokens_decoder has {text!r:.20}, expected ids")
    return int(text)


def _with_added(rules: Conventions, added: Sequence[Added]) -> Conventions:
    own = {*rules.roles.values()}
    return rules._replace(
        special_tokens=tuple(token.content for token in added if token.special and token.content not in own),
        added_tokens=tuple(token.content for token in added if not token.special and token.content not in own),
        lstrip=tuple(token.content for token in added if token.lstrip),
        rstrip=tuple(token.content for token in added if token.rstrip),
    )
