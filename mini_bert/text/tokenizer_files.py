"""What the files of all kinds of tokenizer have in common: where they are, and the parts of a tokenizer.json."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from mini_bert.common.json_values import read_object
from mini_bert.text.templates import LAYOUTS, Layout

JSON, VOCAB, CONFIG = "tokenizer.json", "vocab.txt", "tokenizer_config.json"
SPECIAL_MAP, ADDED = "special_tokens_map.json", "added_tokens.json"
UNREADABLE = ", which Mini-BERT cannot read"  # in messages
BUNDLED = Path(__file__).parent / "vocabularies"  # a folder for each bundled tokenizer
FIELDS = {  # the types of models in loading.py, KINDS -> a field of such a model, for old files without a type
    "WordPiece": "max_input_chars_per_word", "BPE": "merges", "Unigram": "unk_id",
}  # fmt: skip


def find(source: str | os.PathLike[str], names: Sequence[str] = (JSON, VOCAB)) -> Path:
    """The file to read, given its path, a folder that has one of `names`, or the name of a bundled tokenizer."""
    path = Path(source)
    if path.suffix in (".pkl", ".pickle"):
        raise ValueError(
            f"{path} is a pickle, and loading a pickle runs whatever code it contains, so Mini-BERT never loads one. "
            f"Tokenizers are JSON and text files: tokenizer.save(folder) writes {JSON} and {VOCAB}; load('8k') gives "
            "the bundled one"
        )
    if not path.exists():
        path = _bundled(os.fspath(source))
    if path.is_file():
        return path
    for name in names:
        if (path / name).is_file():
            return path / name
    also = read_object(path / CONFIG).get("tokenizer_class") if (path / CONFIG).is_file() else None
    raise FileNotFoundError(
        f"the folder {path} has neither {' nor '.join(names)}"
        + (f"; its {CONFIG} names a {also}, which Mini-BERT cannot read without them" if also else "")
    )


def checked(path: Path, field: str, value: Any, kind: type, expected: str) -> Any:
    """The value of a field of a file, if it has this type. True is not taken for a number."""
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise ValueError(f"{path}: {field} is {value!r:.60}, expected {expected}")
    return value


def switch(path: Path, field: str, value: Any) -> bool:
    return checked(path, field, value, bool, "true or false")


def read_config(path: Path) -> dict[str, Any]:
    """The content of the tokenizer_config.json beside a file; empty if there is none."""
    beside = path.with_name(CONFIG)
    return read_object(beside) if beside.is_file() else {}


def model_in(path: Path, content: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """The model in a tokenizer.json, which has the vocabulary, of this type."""
    model = content.get("model")
    if not isinstance(model, dict) or not isinstance(model.get("vocab"), (dict, list)):
        raise ValueError(f"{path} is not a {JSON}: it has no model with a vocabulary; give the file of that name")
    found = type_of(model)
    if found != kind:
        unknown, remedy = ("", "; load it with load_tokenizer") if found in tuple(FIELDS) else (UNREADABLE, "")
        raise ValueError(f"{path} is a tokenizer {of_type(model)}{unknown}, expected {kind}{remedy}")
    return model


def type_of(model: Mapping[str, Any]) -> Any:
    """The type of the model in a tokenizer.json; None if it neither says so nor has one of FIELDS."""
    return model["type"] if "type" in model else next((kind for kind in FIELDS if FIELDS[kind] in model), None)


def of_type(model: Mapping[str, Any]) -> str:
    """The same for a message."""
    return "of an unknown type" if (found := type_of(model)) is None else f"of type {found!r:.60}"


def checked_ids(path: Path, field: str, vocab: Any) -> dict[str, int]:
    """A vocabulary: an object of tokens and their ids."""
    checked(path, field, vocab, dict, "an object of tokens and their ids")
    for token, i in vocab.items():
        if type(i) is not int:
            checked(path, f"{field}[{token!r:.40}]", i, int, "a whole number")
    return dict(vocab)


def in_order(path: Path, ids: dict[str, int]) -> list[str]:
    """The tokens of a vocabulary by id; the ids must be 0, 1, 2 ..."""
    tokens = sorted(ids, key=lambda token: ids[token])
    for place, token in enumerate(tokens):
        if ids[token] != place:
            raise ValueError(f"{path}: no token has id {place} ({token!r} has {ids[token]}); expected ids 0, 1, 2 ...")
    return tokens


def _bundled(source: str) -> Path:
    names = sorted(folder.name for folder in BUNDLED.iterdir() if folder.is_dir()) if BUNDLED.is_dir() else []
    name = source.removeprefix("tokenizer_").removesuffix(".json")
    if name in names:
        return BUNDLED / name
    raise FileNotFoundError(
        f"there is no file or folder {source}, and no bundled tokenizer of that name; give the path of a {JSON}, a "
        f"{VOCAB} or a folder with one" + (f", or one of {', '.join(names)}" if names else "")
    )


class Added(NamedTuple):
    """A token that is found in a text as a whole."""

    id: int
    content: str
    single_word: bool = False  # always; others are refused
    lstrip: bool = False  # takes the white space before it with it
    rstrip: bool = False
    normalized: bool = False
    special: bool = True


def read_added(path: Path, field: str, entries: Any) -> list[Added]:
    """The added_tokens of a tokenizer.json, or a list of the same form. field: its name, for errors."""
    found = []
    for place, token in enumerate(checked(path, field, entries or [], list, "a list")):
        name = f"{field}[{place}]"
        checked(path, name, token, dict, "an object with content and id")
        content = checked(path, f"{name}.content", token.get("content"), str, "text")
        checked(path, f"{name}.id", token.get("id"), int, "a whole number")
        if not content:
            raise ValueError(f"{path}: {name}.content is empty, so it would match everywhere; remove the entry")
        flags = {flag: switch(path, f"{name}.{flag}", token.get(flag, False)) for flag in Added._fields[2:]}
        if flags["single_word"]:
            raise ValueError(
                f"{path}: {name}.single_word is True, expected false: {content!r} would be found anywhere in a text"
            )
        found.append(Added(token["id"], content, **flags))
    return found


def added_beside(path: Path, tokens: Collection[str]) -> list[Added]:
    """Tokens beside a vocabulary: `added_tokens_decoder` of tokenizer_config.json, or added_tokens.json, of which only
    those count that are not among `tokens`."""
    field, beside = "added_tokens_decoder", path.with_name(CONFIG)
    decoder = read_config(path).get(field)
    if decoder is None:
        beside = path.with_name(ADDED)
        more = checked_ids(beside, "the file", read_object(beside)) if beside.is_file() else {}
        return [Added(i, token, special=False) for token, i in more.items() if token not in tokens]
    entries = []
    for i, token in checked(beside, field, decoder, dict, "an object of ids and tokens").items():
        if not i.isdecimal():
            raise ValueError(f"{beside}: {field} has {i!r:.20}, expected ids")
        entries.append({**checked(beside, f"{field}[{i!r:.20}]", token, dict, "an object"), "id": int(i)})
    return read_added(beside, field, entries)


def named_tokens(path: Path, roles: Iterable[str], tokens: Collection[str]) -> dict[str, str]:
    """The special tokens that tokenizer_config.json and special_tokens_map.json name, by role."""
    named = {}
    for beside, values in configs(path):
        for role in roles:
            value = values.get(f"{role}_token")
            token = value.get("content") if isinstance(value, dict) else value
            if token is not None:
                named[role] = known_token(beside, f"{role}_token", token, path, tokens)
    return named


def configs(path: Path) -> list[tuple[Path, dict[str, Any]]]:
    """The files with settings beside a vocabulary; later ones take precedence."""
    found = [path.with_name(SPECIAL_MAP), path.with_name(CONFIG)]
    return [(beside, read_object(beside)) for beside in found if beside.is_file()]


def known_token(beside: Path, field: str, token: Any, path: Path, tokens: Collection[str]) -> str:
    """A token that is named in one file, if another, `path`, has it."""
    checked(beside, field, token, str, "text")
    if token not in tokens:
        raise ValueError(
            f"{beside}: {field} is {token!r:.60}, which is not in the vocabulary of {path.name}; add it there, or take "
            "both files from the same folder"
        )
    return token


def read_template(
    path: Path, processor: Mapping[str, Any], name: str, roles: Mapping[str, str]
) -> tuple[dict[str, str], str]:
    """The template "single" or "pair" of a TemplateProcessing in our notation (text/templates.py), and the roles.

    A token that has no role yet becomes cls before the text, sep elsewhere.
    """
    field, named = f"post_processor.{name}", dict(roles)
    parts: list[str] = []
    for piece in checked(path, field, processor.get(name), list, "a list of texts and special tokens"):
        kind = next(iter(piece)) if isinstance(piece, dict) and len(piece) == 1 else None
        value = piece[kind] if kind in ("Sequence", "SpecialToken") else None
        if not isinstance(value, dict) or not isinstance(value.get("id"), str) or type(value.get("type_id")) is not int:
            raise ValueError(
                f"{path}: {field} has {piece!r:.60}, expected a Sequence or a SpecialToken with id and type_id"
            )
        role = value["id"]
        if kind == "SpecialToken":
            first = "cls" if not parts else "sep"
            role = next((r for r in (first, "sep", "cls", *named) if named.get(r) == value["id"]), "")
            if not role and first in named:
                raise ValueError(
                    f"{path}: {field} has the special token {value['id']!r}, expected {first}, which is "
                    f"{named[first]!r}, or another of {', '.join(named.values())}"
                )
            if not role:
                role, named[first] = first, value["id"]
        parts.append(f"{role}:{value['type_id']}")
    texts = [part[0] for part in parts if part[0] in "AB"]
    if texts != ["A", "B"][: 1 + (name == "pair")]:
        raise ValueError(f"{path}: {field} has the texts {' '.join(texts) or 'none'}, expected A, and B in a pair")
    return named, " ".join(parts)


# ---- padding, which is in tokenizer_config.json

_PADDING = {"padding_side": "padding_side", "pad_token_type_id": "padding_type"}  # their names there, and ours


def read_padding(path: Path, usual: Layout = LAYOUTS["bert"]) -> dict[str, Any]:
    """padding_side and padding_type; as in `usual` if the tokenizer_config.json beside `path` does not say."""
    beside, config = path.with_name(CONFIG), read_config(path)
    padding = {ours: config.get(theirs, getattr(usual, ours)) for theirs, ours in _PADDING.items()}
    if padding["padding_side"] not in ("left", "right"):
        raise ValueError(f"{beside}: padding_side is {padding['padding_side']!r:.60}, expected left or right")
    checked(beside, "pad_token_type_id", padding["padding_type"], int, "a token type")
    return padding


def unusual_padding(layout: Layout) -> dict[str, Any]:
    """padding_side and padding_type as settings of a tokenizer, if they differ from BERT's."""
    usual = LAYOUTS["bert"]
    return {ours: getattr(layout, ours) for ours in _PADDING.values() if getattr(layout, ours) != getattr(usual, ours)}


def padding_entries(layout: Layout) -> dict[str, Any]:
    """The same for tokenizer_config.json."""
    unusual = unusual_padding(layout)
    return {theirs: unusual[ours] for theirs, ours in _PADDING.items() if ours in unusual}


# ---- writing a tokenizer.json


def json_content(**parts: Any) -> dict[str, Any]:
    return {"version": "1.0", "truncation": None, "padding": None, **parts}


def template_pieces(template: str, roles: Mapping[str, str]) -> list[dict[str, Any]]:
    """A template as in tokenizer.json."""
    pieces = []
    for part in template.split():
        name, _, kind = part.partition(":")
        what = "Sequence" if name in ("A", "B") else "SpecialToken"
        pieces.append({what: {"id": roles.get(name, name), "type_id": int(kind)}})
    return pieces


def template_processor(single: str, pair: str, roles: Mapping[str, str], ids: Mapping[str, int]) -> dict[str, Any]:
    templates = {"single": template_pieces(single, roles), "pair": template_pieces(pair, roles)}
    names = {part.partition(":")[0] for part in f"{single} {pair}".split()} - {"A", "B"}
    tokens = sorted(roles[name] for name in names)
    special = {token: {"id": token, "ids": [ids[token]], "tokens": [token]} for token in tokens}
    return {"type": "TemplateProcessing", **templates, "special_tokens": special}


def input_names(pair: str) -> dict[str, Any]:
    """For tokenizer_config.json: what the general class of transformers returns. It leaves out token types unless they
    are named here; a model that tells the texts of a pair apart would then read the second as part of the first."""
    types = ["token_type_ids"] if any(not part.endswith(":0") for part in pair.split()) else []
    return {"model_input_names": ["input_ids", *types, "attention_mask"]}


def write_json(path: Path, content: Mapping[str, Any], indent: int | None = None) -> None:
    from mini_bert.common.atomic import write_atomic  # here, because most programs only read tokenizers

    separators = (",", ":") if indent is None else None
    text = json.dumps(content, indent=indent, ensure_ascii=False, separators=separators)
    write_atomic(path, f"{text}\n".encode())
