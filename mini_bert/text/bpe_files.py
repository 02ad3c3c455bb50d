"""The files of a byte-level BPE tokenizer.

    tokenizer.json                  everything, as the `tokenizers` library writes it
    vocab.json and merges.txt       the pieces with their ids; the merges, one per line, in the order learnt
    tokenizer_config.json, special_tokens_map.json, added_tokens.json      beside either: special tokens and their roles

Reading is strict: a tokenizer.json that describes anything but byte-level BPE as GPT-2's is refused with a message that
names the difference, because it would silently give wrong ids.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from mini_bert.common.atomic import write_atomic
from mini_bert.common.json_values import read_object
from mini_bert.text.bpe_conventions import DEBERTA, GPT2, ROBERTA, Conventions, usual_conventions, usual_roles
from mini_bert.text.byte_level import BYTE_CHARACTERS
from mini_bert.text.templates import Layout
from mini_bert.text.tokenizer_files import (
    CONFIG,
    JSON,
    Added,
    added_beside,
    checked,
    checked_ids,
    configs,
    in_order,
    input_names,
    json_content,
    known_token,
    model_in,
    named_tokens,
    padding_entries,
    read_added,
    read_config,
    read_template,
    switch,
    template_processor,
    write_json,
)

VOCAB_JSON, MERGES = "vocab.json", "merges.txt"

Read = tuple[list[str], list[tuple[str, str]], Conventions]  # tokens in the order of their ids, merges, rules


def read(path: Path, content: dict[str, Any] | None = None) -> Read:
    """A tokenizer.json, whose content may be given if it was read before, or a vocab.json with its merges.txt."""
    if path.name == VOCAB_JSON:
        return _read_vocab(path)
    return _read_json(path, read_object(path) if content is None else content)


# ---- tokenizer.json


def _read_json(path: Path, content: dict[str, Any]) -> Read:
    model = model_in(path, content, "BPE")
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
    added = read_added(path, "added_tokens", content.get("added_tokens"))
    for token in added:
        ids.setdefault(token.content, token.id)
    unknown = model.get("unk_token")
    if unknown is not None and unknown not in ids:
        raise ValueError(f"{path}: model.unk_token is {unknown!r:.60}, which is not in the vocabulary; add it, or null")
    if unknown is not None and model.get("fuse_unk") and not set(BYTE_CHARACTERS) <= ids.keys():
        _refuse(path, "model's fuse_unk", True, "false, as its vocabulary lacks some bytes")
    roles = usual_roles(named_tokens(path, (*ROBERTA.roles, "bos", "eos"), ids), [token.content for token in added])
    rules = _processed(path, content.get("post_processor"), roles)
    rules = rules._replace(
        add_prefix_space=switch(path, "pre_tokenizer.add_prefix_space", splitter.get("add_prefix_space", True)),
        compose=compose,
        ignore_merges=switch(path, "model.ignore_merges", model.get("ignore_merges", False)),
        unknown=unknown,
    )
    merges = checked(path, "model.merges", model.get("merges"), list, "a list of pairs")
    pairs = [_pair(path, f"model.merges[{rank}]", merge) for rank, merge in enumerate(merges)]
    return in_order(path, ids), pairs, _with_added(rules, added)


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
                trim_offsets=switch(path, "post_processor.trim_offsets", step.get("trim_offsets", True)),
                trim_first=not switch(path, "post_processor.add_prefix_space", step.get("add_prefix_space", True)),
            )
        if kind in ("RobertaProcessing", "BertProcessing"):
            alike = ROBERTA if kind == "RobertaProcessing" else DEBERTA
            ends = {role: _end(path, step, role) for role in ("cls", "sep")}
            rules = rules._replace(roles={**rules.roles, **ends}, single=alike.single, pair=alike.pair)
        if kind == "TemplateProcessing":
            named, single = read_template(path, step, "single", rules.roles)
            named, pair = read_template(path, step, "pair", named)
            rules = rules._replace(roles=named, single=single, pair=pair)
    return rules


def _end(path: Path, step: Mapping[str, Any], role: str) -> str:
    value = step.get(role)
    if not isinstance(value, list) or len(value) != 2 or not isinstance(value[0], str):
        raise ValueError(f'{path}: post_processor.{role} is {value!r:.60}, expected a token and its id, as ["<s>", 0]')
    return value[0]


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
    added = added_beside(path, ids)
    for token in added:
        ids.setdefault(token.content, token.id)
    rules = usual_conventions(usual_roles(named_tokens(path, (*ROBERTA.roles, "bos", "eos"), ids), ids))
    config, where = read_config(path), path.with_name(CONFIG)
    prefix, trim = (
        switch(where, name, usual if config.get(name) is None else config[name])
        for name, usual in (("add_prefix_space", False), ("trim_offsets", rules.trim_offsets))
    )
    rules = rules._replace(add_prefix_space=prefix, trim_offsets=trim, trim_first=not prefix)
    for text in dict.fromkeys((*rules.roles.values(), *_additional(path, ids))):
        if not any(text == token.content for token in added):
            added.append(Added(ids[text], text, lstrip=_lstrip(path, text, text in rules.lstrip)))
    return in_order(path, ids), merges, _with_added(rules, added)


def _additional(path: Path, ids: Mapping[str, int]) -> list[str]:
    """Further special tokens that tokenizer_config.json or special_tokens_map.json name."""
    found = []
    for beside, values in configs(path):
        field = "additional_special_tokens"
        for entry in checked(beside, field, values.get(field) or [], list, "a list of tokens"):
            token = entry.get("content") if isinstance(entry, dict) else entry
            found.append(known_token(beside, field, token, path, ids))
    return found


def _lstrip(path: Path, token: str, usual: bool) -> bool:
    """Whether a special token takes the white space before it, if tokenizer_config.json says; otherwise as usual."""
    entries = [
        value for value in read_config(path).values() if isinstance(value, dict) and value.get("content") == token
    ]
    return switch(path.with_name(CONFIG), f"lstrip of {token}", entries[0].get("lstrip", usual)) if entries else usual


def _read_merges(path: Path) -> list[tuple[str, str]]:
    try:
        lines = path.read_bytes().decode("utf-8-sig").replace("\r\n", "\n").split("\n")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 text ({error}); it has one merge per line") from None
    found = [(number, line) for number, line in enumerate(lines, 1) if line and not line.startswith("#version")]
    return [_pair(path, f"line {number}", line) for number, line in found]


# ---- special tokens, in either case


def _with_added(rules: Conventions, added: Sequence[Added]) -> Conventions:
    own = {*rules.roles.values()}
    return rules._replace(
        special_tokens=tuple(token.content for token in added if token.special and token.content not in own),
        added_tokens=tuple(token.content for token in added if not token.special and token.content not in own),
        lstrip=tuple(token.content for token in added if token.lstrip),
        rstrip=tuple(token.content for token in added if token.rstrip),
    )


# ---- merges


def check_merges(merges: Iterable[Sequence[str]], vocab: Mapping[str, int]) -> list[tuple[str, str]]:
    checked = []
    for rank, pair in enumerate(merges):
        if len(pair) != 2 or isinstance(pair, str):
            raise ValueError(f"merge {rank} is {pair!r:.60}, expected two pieces")
        left, right = pair
        for piece in (left, right, left + right):
            if piece not in vocab:
                raise ValueError(
                    f"merge {rank}, {left!r} + {right!r}, needs the piece {piece!r}, which is not in the vocabulary; "
                    "are the merges from another vocabulary?"
                )
        checked.append((left, right))
    return checked


# ---- writing


def write(
    folder: Path, tokens: Sequence[str], merges: Sequence[tuple[str, str]], rules: Conventions, layout: Layout
) -> None:
    """Write the four files. Each program reads those that it prefers; their content agrees."""
    ids = {token: i for i, token in enumerate(tokens)}
    lines = [f"{left} {right}" for left, right in merges]
    added = dict.fromkeys((*rules.roles.values(), *rules.special_tokens, *rules.added_tokens))
    content = json_content(
        added_tokens=[_entry(token, ids, rules) for token in sorted(added, key=lambda token: ids[token])],
        normalizer={"type": "NFC"} if rules.compose else None,
        pre_tokenizer=_byte_level(rules.add_prefix_space, True),
        post_processor=_processor(ids, rules),
        decoder=_byte_level(True, True),
        model={
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
    )
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / JSON, content)
    write_json(folder / VOCAB_JSON, ids)
    write_atomic(folder / MERGES, "".join(f"{line}\n" for line in ("#version: 0.2", *lines)).encode())
    write_json(folder / CONFIG, _config_entries(ids, rules) | padding_entries(layout), indent=2)


def _entry(token: str, ids: Mapping[str, int], rules: Conventions) -> dict[str, Any]:
    plain = token in rules.added_tokens
    flags = {"lstrip": token in rules.lstrip, "rstrip": token in rules.rstrip}
    return Added(ids[token], token, **flags, normalized=plain, special=not plain)._asdict()


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
    template = template_processor(rules.single, rules.pair, rules.roles, ids)
    return {"type": "Sequence", "processors": [trim, template]} if rules.trim_offsets else template


def _config_entries(ids: Mapping[str, int], rules: Conventions) -> dict[str, Any]:
    """tokenizer_config.json. transformers has a class for RoBERTa and one for GPT-2; others use its general one."""
    classes = {ROBERTA.pair: "RobertaTokenizer", GPT2.pair: "GPT2Tokenizer"}
    entries: dict[str, Any] = {
        "tokenizer_class": classes.get(rules.pair, "PreTrainedTokenizerFast"),
        "add_prefix_space": rules.add_prefix_space,
        "trim_offsets": rules.trim_offsets,
    }
    if rules.pair not in classes:
        entries |= input_names(rules.pair)
    names = {"bos": "cls", "eos": "sep"} if "cls" in rules.roles else {"bos": "sep", "eos": "sep"}
    for name, role in sorted(({role: role for role in rules.roles} | names).items()):
        if role in rules.roles:
            entries[f"{name}_token"] = rules.roles[role]
    if "mask" in rules.roles:
        entry = _entry(rules.roles["mask"], ids, rules)
        del entry["id"]
        entries["mask_token"] = {"__type": "AddedToken", **entry}
    return entries
