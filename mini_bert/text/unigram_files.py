"""The files of a Unigram tokenizer.

    spiece.model, spm.model       made by SentencePiece: pieces, scores, kinds of pieces, rules for text
    tokenizer.json                made by `tokenizers`: pieces, scores, rules for text, special tokens and template
    tokenizer_config.json         beside either: the class of the tokenizer, special tokens, lower case

A spiece.model does not say which special tokens surround a text, nor whether it is lower-cased first. That depends on
the class of the tokenizer, which is in tokenizer_config.json, or else follows from model_type in the model's
config.json (text/unigram_conventions.py). Without both, special tokens are recognised by their spelling, and text is
treated exactly as in the `sentencepiece` library.

Reading is strict: a tokenizer.json with rules that Mini-BERT does not have is refused, because it would silently give
wrong ids.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from mini_bert.common.json_values import read_object
from mini_bert.text.chunk_spans import SPACE
from mini_bert.text.sentencepiece_model import (
    BYTE,
    CHARACTER_MAP,
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
from mini_bert.text.templates import Layout
from mini_bert.text.tokenizer_files import (
    CONFIG,
    JSON,
    Added,
    added_beside,
    checked,
    input_names,
    json_content,
    model_in,
    named_tokens,
    read_added,
    read_config,
    read_padding,
    read_template,
    switch,
    template_processor,
    write_json,
)
from mini_bert.text.unigram_conventions import BARE, DEBERTA, SPELLINGS, STYLES, Style, layout_of

if TYPE_CHECKING:
    from mini_bert.text.unigram import UnigramTokenizer

SPIECE, SPM = "spiece.model", "spm.model"
TEMPLATES = "templates"  # in tokenizer_config.json, if they differ from those of the class
SPACES = ("add_dummy_prefix", "remove_extra_whitespaces", "escape_whitespaces")  # rules of SentencePiece
ANY_CLASS = "PreTrainedTokenizerFast"  # of `transformers`: a tokenizer.json as it is
SWITCHES = {  # in tokenizer_config.json: the step that each is about, and when it is taken
    "remove_space": ("spaces", True), "keep_accents": ("accents", False), "do_lower_case": ("lower", True),
}  # fmt: skip

Read = tuple[list[str], dict[str, Any], SentencePieceModel | None]  # tokens; the other arguments of UnigramTokenizer


def read(path: Path, content: dict[str, Any] | None = None) -> Read:
    """A tokenizer.json, whose content may be given if it was read before, or a spiece.model."""
    config = read_config(path)
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
    added = added_beside(path, tokens)
    tokens += _following(path, tokens, added, style)
    roles = _roles(path, config, tokens, style, unknown)
    control = [piece.text for piece in model.pieces if piece.kind == CONTROL] + tokens[len(model.pieces) :]
    rules = {
        "type": "sentencepiece",
        "character_map": base64.b64encode(model.normalizer.blob(CHARACTER_MAP)).decode(),
        **{name: model.normalizer.flag(name, True) for name in SPACES},
        "space_as_suffix": model.trainer.flag("treat_whitespace_as_suffix", False),
        "steps": _steps(path.with_name(CONFIG), config, style),
        "split_commas": style is not None and style.split_commas,
    }
    settings = {
        "scores": [piece.score for piece in model.pieces] + [0.0] * (len(tokens) - len(model.pieces)),
        "roles": roles,
        "rules": rules,
        "symbols": tuple(piece.text for piece in model.pieces if piece.kind == USER_DEFINED),
        "unused": tuple(piece.text for piece in model.pieces if piece.kind == UNUSED),
        "byte_fallback": model.trainer.flag("byte_fallback", False),
        "extra_special_tokens": tuple(token for token in control if token not in roles.values()),
        **_stripping(path.with_name(CONFIG), "added_tokens_decoder", added),
        **_layout(path, config, layout_of(roles, style)),
    }
    return tokens, settings, model


def _layout(path: Path, config: Mapping[str, Any], usual: Layout) -> dict[str, Any]:
    """The usual layout of a class, unless tokenizer_config.json has other padding, or "templates" that we wrote."""
    templates = checked(path.with_name(CONFIG), TEMPLATES, config.get(TEMPLATES, {}), dict, "an object")
    for name in templates:
        checked(path.with_name(CONFIG), f"{TEMPLATES}.{name}", templates[name], str, "text")
    return usual._asdict() | templates | read_padding(path, usual)


def _steps(path: Path, config: Mapping[str, Any], style: Style | None) -> list[str]:
    """The steps before SentencePiece's own, where settings take precedence over the class."""
    chosen = dict.fromkeys(("spaces", "quotes", "accents", "lower"), False)
    chosen.update(dict.fromkeys(style.steps if style else (), True))
    for name, (step, meaning) in SWITCHES.items():
        if name in config:
            chosen[step] = switch(path, name, config[name]) is meaning
    return [step for step, wanted in chosen.items() if wanted]


def _following(path: Path, tokens: Sequence[str], added: Sequence[Added], style: Style | None) -> list[str]:
    """Tokens that are not in the model but follow its pieces: DeBERTa's mask."""
    new = sorted(token for token in added if token.content not in tokens)
    for place, token in enumerate(new, len(tokens)):
        if token.id != place:
            raise ValueError(
                f"{path} has {len(tokens):,} pieces, so added tokens should have the ids from {len(tokens):,} on, but "
                f"{token.content!r} has {token.id}; take all files from the same folder"
            )
    extra = [token.content for token in new]
    if style is DEBERTA and DEBERTA.roles["mask"] not in (*tokens, *extra):
        extra.append(DEBERTA.roles["mask"])
    return extra


# ---- special tokens and templates


def _stripping(path: Path, field: str, added: Sequence[Added]) -> dict[str, tuple[str, ...]]:
    """The special tokens that take the white space before, or after, them with them."""
    for place, token in enumerate(added):
        if (token.lstrip or token.rstrip) and not token.special:
            _refuse(path, f"{field}[{place}].lstrip or .rstrip", True, "false, except for special tokens")
    return {side: tuple(token.content for token in added if getattr(token, side)) for side in ("lstrip", "rstrip")}


def _roles(
    path: Path, config: Mapping[str, Any], tokens: Sequence[str], style: Style | None, unknown: str
) -> dict[str, str]:
    """The special tokens by role: from tokenizer_config.json, the class, or their usual spelling."""
    known = set(tokens)
    roles: dict[str, str] = {}
    named = named_tokens(path, ("pad", "unk", "cls", "sep", "mask"), known)
    for role in ("pad", "unk", "cls", "sep", "mask"):
        usual = (style.roles[role],) if style else SPELLINGS.get(role, ())
        spelt = next((token for token in usual if token in known), None)
        token = unknown if role == "unk" else named.get(role, spelt)
        if token is not None:
            roles[role] = token
    return roles


# ---- tokenizer.json


def _read_json(path: Path, content: Mapping[str, Any], config: Mapping[str, Any]) -> Read:
    model = model_in(path, content, "Unigram")
    tokens, scores = _pieces(path, model.get("vocab"))
    unk_id = checked(path, "model.unk_id", model.get("unk_id"), int, "the id of the unknown token")
    if not 0 <= unk_id < len(tokens):
        raise ValueError(
            f"{path}: model.unk_id is {unk_id}, expected an id of the vocabulary, 0 to {len(tokens) - 1:,}"
        )
    added = _added_tokens(path, content, tokens, scores)
    style = _style(path, config)
    roles = _roles(path, config, tokens, style, tokens[unk_id])
    roles, templates = _templates(path, content.get("post_processor"), roles)
    settings = {
        "scores": scores,
        "roles": roles,
        "rules": {
            "type": "tokenizers",
            "normalizer": content.get("normalizer"),
            "pre_tokenizer": content.get("pre_tokenizer"),
        },
        "symbols": tuple(token.content for token in added if not token.special),
        "byte_fallback": switch(path, "model.byte_fallback", model.get("byte_fallback", False)),
        "extra_special_tokens": tuple(t.content for t in added if t.special and t.content not in roles.values()),
        **_stripping(path, "added_tokens", added),
        **read_padding(path, style.layout if style else BARE),
        **templates,
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


def _added_tokens(path: Path, content: Mapping[str, Any], tokens: list[str], scores: list[float]) -> list[Added]:
    """Tokens that are recognised in the raw text. New ones are appended to the vocabulary."""
    known = {token: i for i, token in enumerate(tokens)}
    added = read_added(path, "added_tokens", content.get("added_tokens"))
    for place, token in enumerate(added):
        if known.setdefault(token.content, len(tokens)) == len(tokens):
            tokens.append(token.content)
            scores.append(0.0)
        if known[token.content] != token.id:
            raise ValueError(
                f"{path}: added_tokens[{place}] gives {token.content!r} the id {token.id}, expected "
                f"{known[token.content]}, its place in the vocabulary"
            )
    return added


def _templates(path: Path, processor: Any, roles: dict[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """The roles and templates of a post_processor."""
    if processor is None:
        return roles, {"single": BARE.single, "pair": BARE.pair}
    if not isinstance(processor, dict) or processor.get("type") != "TemplateProcessing":
        kind = processor.get("type") if isinstance(processor, dict) else processor
        _refuse(path, "post_processor.type", kind, "TemplateProcessing")
    roles, single = read_template(path, processor, "single", roles)
    roles, pair = read_template(path, processor, "pair", roles)
    return roles, {"single": single, "pair": pair}


def _refuse(path: Path, field: str, found: Any, expected: str) -> NoReturn:
    raise ValueError(
        f"{path}: {field} is {found!r:.80}, expected {expected}. UnigramTokenizer would give different ids than that "
        "tokenizer"
    )


# ---- writing


def write(folder: Path, tokenizer: UnigramTokenizer) -> None:
    """A spiece.model for SentencePiece's rules, otherwise a tokenizer.json: neither format can express all rules of the
    other. Both with a tokenizer_config.json."""
    folder.mkdir(parents=True, exist_ok=True)
    if tokenizer.as_sentencepiece:
        _model_of(tokenizer).write(folder / SPIECE)
    else:
        write_json(folder / JSON, _json_of(tokenizer), indent=1)
    write_json(folder / CONFIG, _config_of(tokenizer), indent=2)


def _model_of(tokenizer: UnigramTokenizer) -> SentencePieceModel:
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
    empty, rules = SentencePieceModel(pieces), tokenizer.rules
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
    normalizer = empty.normalizer.with_fields(
        name=b"mini_bert",
        precompiled_charsmap=base64.b64decode(rules.get("character_map", "")),
        **{name: int(rules.get(name, True)) for name in SPACES},
    )
    return SentencePieceModel(pieces, trainer, normalizer)


def _json_of(tokenizer: UnigramTokenizer) -> dict[str, Any]:
    tokens = sorted({*tokenizer.special_ids, *(tokenizer.vocab[symbol] for symbol in tokenizer.symbols)})
    scheme = "always" if tokenizer.text.drops_first_space else "never"
    decoder = {"type": "Metaspace", "replacement": SPACE, "prepend_scheme": scheme, "split": True}
    spelt = {"type": "Sequence", "decoders": [{"type": "ByteFallback"}, {"type": "Fuse"}, decoder]}
    return json_content(
        added_tokens=[_added(tokenizer, tokenizer.tokens[i]) for i in tokens],
        normalizer=tokenizer.rules["normalizer"],
        pre_tokenizer=tokenizer.rules["pre_tokenizer"],
        post_processor=template_processor(tokenizer.single, tokenizer.pair, tokenizer.roles, tokenizer.vocab),
        decoder=spelt if tokenizer.byte_fallback else decoder,
        model={
            "type": "Unigram",
            "unk_id": tokenizer.unk_id,
            "vocab": [list(entry) for entry in zip(tokenizer.tokens, tokenizer.scores, strict=True)],
            "byte_fallback": tokenizer.byte_fallback,
        },
    )


def _added(tokenizer: UnigramTokenizer, token: str) -> dict[str, Any]:
    i, sides = tokenizer.vocab[token], {side: token in getattr(tokenizer, side) for side in ("lstrip", "rstrip")}
    return Added(i, token, **sides, special=i in tokenizer.special_ids)._asdict()


def _config_of(tokenizer: UnigramTokenizer) -> dict[str, Any]:
    """The content of tokenizer_config.json."""
    config: dict[str, Any] = {"tokenizer_class": ANY_CLASS}
    if tokenizer.as_sentencepiece:
        style = _style_of(tokenizer)
        config["tokenizer_class"] = style.tokenizer_class if style else ANY_CLASS
        own = layout_of(tokenizer.roles, style)
        if (own.single, own.pair) != (tokenizer.single, tokenizer.pair):  # which a spiece.model has no place for
            config[TEMPLATES] = {"single": tokenizer.single, "pair": tokenizer.pair}
        steps = tokenizer.rules.get("steps", ())
        config |= {name: (step in steps) is meaning for name, (step, meaning) in SWITCHES.items()}
        model = tokenizer.model_file
        more = tokenizer.tokens[len(model.pieces) :] if model else []
        entries = [_added(tokenizer, token) for token in dict.fromkeys((*more, *tokenizer.lstrip, *tokenizer.rstrip))]
        config["added_tokens_decoder"] = {str(entry.pop("id")): entry for entry in entries}
    config |= {f"{role}_token": token for role, token in tokenizer.roles.items()} | input_names(tokenizer.pair)
    return config | {"padding_side": tokenizer.padding_side, "pad_token_type_id": tokenizer.padding_type}


def _style_of(tokenizer: UnigramTokenizer) -> Style | None:
    """The one whose class in `transformers` reads the folder as the same tokenizer, apart from templates."""
    fitting = [
        style
        for style in STYLES
        if tokenizer.rules.get("split_commas", False) == style.split_commas
        and (style is not DEBERTA or style.roles["mask"] in tokenizer.vocab)  # this class would add its mask
    ]
    own = [style for style in fitting if layout_of(tokenizer.roles, style)[:2] == tokenizer.layout[:2]]
    return next(iter(own or fitting), None)
