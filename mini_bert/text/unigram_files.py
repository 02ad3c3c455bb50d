"""The files of a Unigram tokenizer.

    spiece.model, spm.model       made by SentencePiece: pieces, scores, kinds of pieces, rules for text
    tokenizer.json                made by `tokenizers`: pieces, scores, rules for text, special tokens and template
    tokenizer_config.json         beside either: the class of the tokenizer, special tokens, lower case

A spiece.model does not say which special tokens surround a text, nor whether it is lower-cased first. That depends on
the class of the tokenizer, which is in tokenizer_config.json, or else follows from model_type in the model's
config.json. Without both, special tokens are recognised by their spelling, and text is treated exactly as in the
`sentencepiece` library. STYLES has the classes.

Reading is strict: a tokenizer.json with rules that Mini-BERT does not have is refused, because it would silently give
wrong ids.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from mini_bert.common.json_values import read_object
from mini_bert.text.sentencepiece_model import (
    BYTE_FALLBACK,
    CHARACTER_MAP,
    CONTROL,
    DUMMY_PREFIX,
    ESCAPE_SPACES,
    REMOVE_SPACES,
    SPACE_AS_SUFFIX,
    UNKNOWN,
    UNUSED,
    USER_DEFINED,
    SentencePieceModel,
)
from mini_bert.text.tokenizer_files import CONFIG, checked

if TYPE_CHECKING:
    pass

SPIECE, SPM = "spiece.model", "spm.model"
ADDED = "added_tokens.json"
ANY_CLASS = "PreTrainedTokenizerFast"  # of `transformers`: a tokenizer.json as it is
SWITCHES = {  # in tokenizer_config.json: the step that each is about, and when it is taken
    "remove_space": ("spaces", True), "keep_accents": ("accents", False), "do_lower_case": ("lower", True),
}  # fmt: skip

BERT_LIKE = {"single": "cls:0 A:0 sep:0", "pair": "cls:0 A:0 sep:0 B:1 sep:1"}
XLNET_LIKE = {
    "single": "A:0 sep:0 cls:2", "pair": "A:0 sep:0 B:1 sep:1 cls:2", "padding_side": "left", "padding_type": 3,
}  # fmt: skip
BARE = {"single": "A:0", "pair": "A:0 B:1"}


class Style(NamedTuple):
    """What the class of a tokenizer decides."""

    tokenizer_class: str
    model_type: str  # in the model's config.json
    roles: dict[str, str]
    template: dict[str, Any]
    steps: tuple[str, ...]  # before SentencePiece's own rules; see STEPS in text/unigram.py
    split_commas: bool = False


ALBERT = Style(
    "AlbertTokenizer", "albert",
    {"pad": "<pad>", "unk": "<unk>", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"},
    BERT_LIKE, ("spaces", "quotes", "accents", "lower"), True,
)  # fmt: skip
XLNET = Style(
    "XLNetTokenizer", "xlnet",
    {"pad": "<pad>", "unk": "<unk>", "cls": "<cls>", "sep": "<sep>", "mask": "<mask>"},
    XLNET_LIKE, ("spaces", "quotes", "accents"), True,
)  # fmt: skip
DEBERTA = Style(
    "DebertaV2Tokenizer", "deberta-v2",
    {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"},
    BERT_LIKE, (),
)  # fmt: skip
STYLES = (ALBERT, XLNET, DEBERTA)

Read = tuple[list[str], dict[str, Any], SentencePieceModel | None]  # tokens; the other arguments of UnigramTokenizer


def read(path: Path, content: dict[str, Any] | None = None) -> Read:
    """A tokenizer.json, whose content may be given if it was read before, or a spiece.model."""
    config = read_object(path.with_name(CONFIG)) if path.with_name(CONFIG).is_file() else {}
    if path.suffix == ".json":
        return _read_json(path, read_object(path) if content is None else content, config)
    return _read_model(path, config)


def _style(path: Path, config: Mapping[str, Any]) -> Style | None:
    name = str(config.get("tokenizer_class") or "").removesuffix("Fast")
    beside = path.with_name("config.json")
    kind = read_object(beside).get("model_type") if not name and beside.is_file() else None
    return next((style for style in STYLES if style.tokenizer_class == name or style.model_type == kind), None)


# ---- spiece.model


def _read_model(path: Path, config: Mapping[str, Any]) -> Read:
    model = SentencePieceModel.read(path)
    style = _style(path, config)
    tokens = [piece.text for piece in model.pieces]
    unknown = next(piece.text for piece in model.pieces if piece.kind == UNKNOWN)
    tokens += _added(path, config, tokens, style)
    roles = _roles(path, config, tokens, style, unknown)
    control = [piece.text for piece in model.pieces if piece.kind == CONTROL] + tokens[len(model.pieces) :]
    spec = model.normalizer
    rules = {
        "type": "sentencepiece",
        "character_map": base64.b64encode(spec.blob(CHARACTER_MAP)).decode(),
        "add_dummy_prefix": spec.flag(DUMMY_PREFIX, True),
        "remove_extra_whitespaces": spec.flag(REMOVE_SPACES, True),
        "escape_whitespaces": spec.flag(ESCAPE_SPACES, True),
        "space_as_suffix": model.trainer.flag(SPACE_AS_SUFFIX, False),
        "steps": _steps(path.with_name(CONFIG), config, style),
        "split_commas": style is not None and style.split_commas,
    }
    settings = {
        "scores": [piece.score for piece in model.pieces] + [0.0] * (len(tokens) - len(model.pieces)),
        "roles": roles,
        "rules": rules,
        "symbols": tuple(piece.text for piece in model.pieces if piece.kind == USER_DEFINED),
        "unused": tuple(piece.text for piece in model.pieces if piece.kind == UNUSED),
        "byte_fallback": model.trainer.flag(BYTE_FALLBACK, False),
        "extra_special_tokens": tuple(token for token in control if token not in roles.values()),
        **template_of(roles, style),
        **_padding(path, config, style or (XLNET if roles.get("cls") == XLNET.roles["cls"] else None)),
    }
    return tokens, settings, model


def _steps(path: Path, config: Mapping[str, Any], style: Style | None) -> list[str]:
    """The steps before SentencePiece's own, where settings take precedence over the class."""
    chosen = dict.fromkeys(("spaces", "quotes", "accents", "lower"), False)
    chosen.update(dict.fromkeys(style.steps if style else (), True))
    for name, (step, meaning) in SWITCHES.items():
        if name in config:
            chosen[step] = checked(path, name, config[name], bool, "true or false") is meaning
    return [step for step, wanted in chosen.items() if wanted]


def _added(path: Path, config: Mapping[str, Any], tokens: Sequence[str], style: Style | None) -> list[str]:
    """Tokens that are not in the model but follow its pieces: DeBERTa's mask."""
    added: dict[int, str] = {}
    for i, token in (config.get("added_tokens_decoder") or {}).items():
        text = token.get("content") if isinstance(token, dict) else token
        added[int(i)] = checked(path.with_name(CONFIG), f"added_tokens_decoder[{i!r}]", text, str, "text")
    if path.with_name(ADDED).is_file():
        for text, i in read_object(path.with_name(ADDED)).items():
            added[checked(path.with_name(ADDED), text, i, int, "a whole number")] = text
    extra = [text for i, text in sorted(added.items()) if text not in tokens]
    ids = [i for i, text in sorted(added.items()) if text not in tokens]
    if ids != list(range(len(tokens), len(tokens) + len(ids))):
        raise ValueError(
            f"{path} has {len(tokens):,} pieces, so added tokens should have the ids from {len(tokens):,} on, but "
            f"{extra[0]!r} has {ids[0]}; take all files from the same folder"
        )
    if style is DEBERTA and DEBERTA.roles["mask"] not in (*tokens, *extra):
        extra.append(DEBERTA.roles["mask"])
    return extra


# ---- special tokens and templates

SPELLINGS = {
    "pad": ("<pad>", "[PAD]"),
    "cls": ("[CLS]", "<cls>", "<s>"),
    "sep": ("[SEP]", "<sep>", "</s>"),
    "mask": ("[MASK]", "<mask>"),
}


def _roles(
    path: Path, config: Mapping[str, Any], tokens: Sequence[str], style: Style | None, unknown: str
) -> dict[str, str]:
    """The special tokens by role: from tokenizer_config.json, the class, or their usual spelling."""
    known = set(tokens)
    roles: dict[str, str] = {}
    for role in ("pad", "unk", "cls", "sep", "mask"):
        named = config.get(f"{role}_token")
        named = named.get("content") if isinstance(named, dict) else named
        if named is not None:
            checked(path.with_name(CONFIG), f"{role}_token", named, str, "text")
            if named not in known:
                raise ValueError(
                    f"{path.with_name(CONFIG)}: {role}_token is {named!r}, which {path.name} does not have; "
                    "take both files from the same folder"
                )
        usual = (style.roles[role],) if style else SPELLINGS.get(role, ())
        spelt = next((token for token in usual if token in known), None)
        token = unknown if role == "unk" else named if named is not None else spelt
        if token is not None:
            roles[role] = token
    return roles


def template_of(roles: Mapping[str, str], style: Style | None) -> dict[str, Any]:
    if not {"cls", "sep"} <= roles.keys():
        return BARE
    if style:
        return style.template
    return XLNET_LIKE if roles["cls"] == XLNET.roles["cls"] else BERT_LIKE


# ---- tokenizer.json


def _read_json(path: Path, content: Mapping[str, Any], config: Mapping[str, Any]) -> Read:
    model = content.get("model")
    if not isinstance(model, dict) or model.get("type", "Unigram") != "Unigram":
        kind = model.get("type") if isinstance(model, dict) else model
        raise ValueError(f"{path}: model.type is {kind!r:.60}, expected 'Unigram'; load it with load_tokenizer")
    tokens, scores = _pieces(path, model.get("vocab"))
    unk_id = checked(path, "model.unk_id", model.get("unk_id"), int, "the id of the unknown token")
    if not 0 <= unk_id < len(tokens):
        raise ValueError(
            f"{path}: model.unk_id is {unk_id}, expected an id of the vocabulary, 0 to {len(tokens) - 1:,}"
        )
    special, symbols, stripping = _added_tokens(path, content, tokens, scores)
    style = _style(path, config)
    roles = _roles(path, config, tokens, style, tokens[unk_id])
    template = _read_template(path, content.get("post_processor"), roles)
    settings = {
        "scores": scores,
        "roles": roles,
        "rules": {
            "type": "tokenizers",
            "normalizer": content.get("normalizer"),
            "pre_tokenizer": content.get("pre_tokenizer"),
        },
        "symbols": tuple(symbols),
        "byte_fallback": checked(path, "model.byte_fallback", model.get("byte_fallback", False), bool, "true or false"),
        "extra_special_tokens": tuple(token for token in special if token not in roles.values()),
        **_padding(path, config, style),
        **template,
        **stripping,
    }
    return tokens, settings, None


def _pieces(path: Path, vocab: Any) -> tuple[list[str], list[float]]:
    checked(path, "model.vocab", vocab, list, "a list of pieces with scores")
    for i, entry in enumerate(vocab):
        if (
            not isinstance(entry, list)
            or len(entry) != 2
            or not isinstance(entry[0], str)
            or isinstance(entry[1], bool)
            or not isinstance(entry[1], int | float)
        ):
            _refuse(path, f"model.vocab[{i}]", entry, "a piece and its score")
    return [piece for piece, _ in vocab], [float(score) for _, score in vocab]


def _added_tokens(
    path: Path, content: Mapping[str, Any], tokens: list[str], scores: list[float]
) -> tuple[list[str], list[str], dict[str, list[str]]]:
    """Special tokens; other tokens that are recognised in the raw text; those that take white space with them.

    New ones are appended to the vocabulary.
    """
    special: list[str] = []
    stripping: dict[str, list[str]] = {"lstrip": [], "rstrip": []}
    symbols: list[str] = []
    known = {token: i for i, token in enumerate(tokens)}
    for place, token in enumerate(checked(path, "added_tokens", content.get("added_tokens") or [], list, "a list")):
        field = f"added_tokens[{place}]"
        checked(path, field, token, dict, "an object with content and id")
        text = checked(path, f"{field}.content", token.get("content"), str, "text")
        i = checked(path, f"{field}.id", token.get("id"), int, "a whole number")
        if known.setdefault(text, len(tokens)) == len(tokens):
            tokens.append(text)
            scores.append(0.0)
        if known[text] != i:
            raise ValueError(
                f"{path}: {field} gives {text!r} the id {i}, expected {known[text]}, its place in the vocabulary"
            )
        if token.get("single_word"):
            _refuse(path, f"{field}.single_word", True, "false: an exact match in the text")
        for name in ("lstrip", "rstrip"):
            if token.get(name) and not token.get("special"):
                _refuse(path, f"{field}.{name}", True, "false, except for special tokens")
            stripping[name] += [text] * bool(token.get(name))
        (special if token.get("special") else symbols).append(text)
    return special, symbols, stripping


def _read_template(path: Path, processor: Any, roles: Mapping[str, str]) -> dict[str, str]:
    """The template that a post_processor describes."""
    if processor is None:
        return BARE
    if not isinstance(processor, dict) or processor.get("type") != "TemplateProcessing":
        kind = processor.get("type") if isinstance(processor, dict) else processor
        _refuse(path, "post_processor.type", kind, "TemplateProcessing")
    names = {token: role for role, token in reversed(list(roles.items()))}
    found = {}
    for name in ("single", "pair"):
        field = f"post_processor.{name}"
        parts = []
        for part in checked(path, field, processor.get(name), list, "a list"):
            kind, value = next(iter(part.items())) if isinstance(part, dict) and len(part) == 1 else ("", None)
            if not isinstance(value, dict) or type(value.get("type_id")) is not int:
                _refuse(path, field, part, "special tokens and sequences, each with a type_id")
            word = value.get("id") if kind == "Sequence" else names.get(str(value.get("id")))
            if kind == "Sequence" and word not in ("A", "B"):
                _refuse(path, field, part, "sequences A and B")
            if word is None:
                _refuse(path, field, value.get("id"), f"one of the special tokens {', '.join(names)}")
            parts.append(f"{word}:{value['type_id']}")
        found[name] = " ".join(parts)
    return found


def _padding(path: Path, config: Mapping[str, Any], style: Style | None) -> dict[str, Any]:
    padding = {name: value for name, value in (style.template if style else {}).items() if name.startswith("padding")}
    side = config.get("padding_side", padding.get("padding_side", "right"))
    if side not in ("left", "right"):
        raise ValueError(f"{path.with_name(CONFIG)}: padding_side is {side!r:.60}, expected left or right")
    kind = config.get("pad_token_type_id", padding.get("padding_type", 0))
    checked(path.with_name(CONFIG), "pad_token_type_id", kind, int, "a token type")
    return {"padding_side": side, "padding_type": kind}


def _refuse(path: Path, field: str, found: Any, expected: str) -> NoReturn:
    raise ValueError(
        f"{path}: {field} is {found!r:.80}, expected {expected}. UnigramTokenizer would give different ids than that "
        "tokenizer"
    )
