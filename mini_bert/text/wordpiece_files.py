"""The files of a WordPiece tokenizer.

Reading is strict. A tokenizer.json describes how its text is split; if that is not exactly BERT's way, the file is
refused with a message that names the difference, because it would silently give wrong ids.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from mini_bert.common.json_values import read_object
from mini_bert.common.progress import counted
from mini_bert.text.templates import LAYOUTS, Layout
from mini_bert.text.tokenizer_files import (
    CONFIG,
    JSON,
    VOCAB,
    Added,
    checked_ids,
    in_order,
    input_names,
    json_content,
    model_in,
    padding_entries,
    read_added,
    read_config,
    read_padding,
    read_template,
    switch,
    template_processor,
    write_json,
)

ROLES = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
SPECIAL_TOKENS = tuple(ROLES.values())
BERT = LAYOUTS["bert"]
PREFIX = "##"  # marks a piece that continues a word

CAPITALS = 0.01  # the share of tokens with capital letters from which on a vocabulary is not a lower-case one

Read = tuple[list[str], dict[str, Any]]  # tokens in the order of their ids; the arguments of WordPieceTokenizer


def read(path: Path, content: dict[str, Any] | None = None) -> Read:
    """A tokenizer.json, whose content may be given if it was read before, or a vocab.txt."""
    if path.suffix == ".json":
        return _read_json(path, read_object(path) if content is None else content)
    return _read_vocab(path)


def _read_vocab(path: Path) -> Read:
    """One token per line, in the order of the ids. How text is split is in tokenizer_config.json, if that exists."""
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 text ({error}); a {VOCAB} has one token per line") from None
    # Only "\n" ends a line: some vocabularies have tokens that str.splitlines would cut.
    tokens = text.replace("\r\n", "\n").removesuffix("\n").split("\n") if text else []
    missing = [token for token in SPECIAL_TOKENS if token not in tokens]
    if len(missing) == len(SPECIAL_TOKENS):
        raise ValueError(
            f"{path} is not a vocabulary: expected one token per line, among them {', '.join(missing)}, but its "
            f"{counted(len(tokens), 'line')} contain none of these. To learn a vocabulary from text: "
            f"`mini-bert tokenizer train {path}`"
        )
    if missing:
        raise ValueError(f"{path} is not a vocabulary for BERT: it lacks {', '.join(missing)}; add a line for each")
    config, where = read_config(path), path.with_name(CONFIG)
    settings = {ours: _switch(where, theirs, config[theirs]) for theirs, ours in _NAMES.items() if theirs in config}
    if "lowercase" not in settings:
        capitals = sum(token != token.lower() for token in tokens if not token.startswith(("[", "<")))
        settings["lowercase"] = capitals <= CAPITALS * len(tokens)
        if not settings["lowercase"]:
            import logging  # here, because it is slow to load

            logging.getLogger(__name__).warning(
                "%s has %s with capital letters, so texts keep theirs; if they should be lower-cased, write "
                '{"do_lower_case": true} into %s beside it',
                path, counted(capitals, "token"), CONFIG,
            )  # fmt: skip
    return tokens, settings


_NAMES = {
    "do_lower_case": "lowercase", "strip_accents": "strip_accents", "tokenize_chinese_chars": "chinese_spacing"
}  # fmt: skip


def _read_json(path: Path, content: dict[str, Any]) -> Read:
    model = model_in(path, content, "WordPiece")
    for name, expected in (("unk_token", ROLES["unk"]), ("continuing_subword_prefix", PREFIX)):
        if model.get(name, expected) != expected:
            _refuse(path, f"model's {name}", model[name], expected)
    normalizer = _part(path, content, "normalizer", "BertNormalizer")
    if normalizer.get("clean_text", True) is not True:
        _refuse(path, "normalizer's clean_text", normalizer["clean_text"], "true")
    _part(path, content, "pre_tokenizer", "BertPreTokenizer")
    processor = _part(path, content, "post_processor", "BertProcessing", "TemplateProcessing")
    templates = {}
    if processor["type"] == "TemplateProcessing":
        templates = {name: read_template(path, processor, name, ROLES)[1] for name in ("single", "pair")}

    ids = checked_ids(path, "model.vocab", model["vocab"])
    extra = []
    for token in read_added(path, "added_tokens", content.get("added_tokens")):
        odd = [name for name in ("lstrip", "rstrip", "normalized") if getattr(token, name)]
        if odd:
            _refuse(path, f"added token {token.content!r}", " and ".join(odd), "an exact match in the raw text")
        ids.setdefault(token.content, token.id)
        if token.content not in SPECIAL_TOKENS:
            extra.append(token.content)
    longest = model.get("max_input_chars_per_word", 100)
    if type(longest) is not int or longest < 1:
        raise ValueError(f"{path}: model.max_input_chars_per_word is {longest!r:.60}, expected a number of at least 1")
    return in_order(path, ids), {
        "lowercase": _switch(path, "normalizer.lowercase", normalizer.get("lowercase", True)),
        "strip_accents": _switch(path, "normalizer.strip_accents", normalizer.get("strip_accents")),
        "chinese_spacing": _switch(
            path, "normalizer.handle_chinese_chars", normalizer.get("handle_chinese_chars", True)
        ),
        "max_word_chars": longest,
        "extra_special_tokens": tuple(extra),
        **templates,
        **read_padding(path),
    }


def _switch(path: Path, field: str, value: Any) -> bool | None:
    if value is None and field.endswith("strip_accents"):
        return None  # the same as lowercase
    return switch(path, field, value)


def _part(path: Path, content: Mapping[str, Any], name: str, *expected: str) -> dict[str, Any]:
    part = content.get(name)
    kind = part.get("type") if isinstance(part, dict) else None
    if not isinstance(part, dict) or kind not in expected:
        _refuse(path, name, kind, " or ".join(expected))
    return part


def _refuse(path: Path, what: str, found: Any, expected: str) -> NoReturn:
    raise ValueError(
        f"{path} is not a BERT tokenizer: its {what} is {found}, expected {expected}. WordPieceTokenizer would give "
        "different ids than that tokenizer"
    )


def write(
    folder: Path, tokens: Sequence[str], settings: Mapping[str, Any], special: Sequence[str], layout: Layout
) -> None:
    """Write the three files. Each program reads the one that it prefers; their content agrees."""
    broken = [token for token in tokens if "\n" in token or token.endswith("\r")]
    if broken:
        raise ValueError(
            f"the token {broken[0]!r} contains a line break, but {VOCAB} has one token per line; rename it"
        )
    ids = {token: i for i, token in enumerate(tokens)}
    content = json_content(
        added_tokens=[Added(ids[token], token)._asdict() for token in special],
        normalizer={
            "type": "BertNormalizer",
            "clean_text": True,
            "handle_chinese_chars": settings["chinese_spacing"],
            "strip_accents": settings["strip_accents"],
            "lowercase": settings["lowercase"],
        },
        pre_tokenizer={"type": "BertPreTokenizer"},
        post_processor=template_processor(layout.single, layout.pair, ROLES, ids),
        decoder={"type": "WordPiece", "prefix": PREFIX, "cleanup": True},
        model={
            "type": "WordPiece",
            "unk_token": ROLES["unk"],
            "continuing_subword_prefix": PREFIX,
            "max_input_chars_per_word": settings["max_word_chars"],
            "vocab": ids,
        },
    )
    config = {
        "tokenizer_class": "BertTokenizer" if layout == BERT else "PreTrainedTokenizerFast",
        "do_lower_case": settings["lowercase"],
        "strip_accents": settings["strip_accents"],
        "tokenize_chinese_chars": settings["chinese_spacing"],
        **{f"{role}_token": token for role, token in sorted(ROLES.items())},
        **({} if layout == BERT else input_names(layout.pair) | padding_entries(layout)),
    }
    from mini_bert.common.atomic import write_atomic  # here, because most programs only read tokenizers

    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / JSON, content, indent=2)
    write_atomic(folder / VOCAB, "".join(f"{token}\n" for token in tokens).encode())
    write_json(folder / CONFIG, config, indent=2)
