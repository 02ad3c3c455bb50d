"""load_tokenizer: a tokenizer of any kind, chosen by its files.

load_tokenizer("8k")                  bundled
load_tokenizer("runs/first/model")    a folder with tokenizer.json, or with the files of one of KINDS
load_tokenizer("runs/first")          the one of a run's model
"""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from mini_bert.common.json_values import read_object
from mini_bert.files.model_folder import BUNDLED_NAMES, locate
from mini_bert.text.base import Tokenizer
from mini_bert.text.tokenizer_files import JSON, UNREADABLE, VOCAB, find, of_type, type_of


class Kind(NamedTuple):
    """How to recognise a kind of tokenizer, and the class that reads it."""

    model: str  # the type of the model in tokenizer.json
    file: str  # the file to read if there is no tokenizer.json
    module: str
    name: str


KINDS = (
    Kind("WordPiece", VOCAB, "mini_bert.text.wordpiece", "WordPieceTokenizer"),
    Kind("BPE", "vocab.json", "mini_bert.text.bpe", "BpeTokenizer"),
    Kind("Unigram", "spiece.model", "mini_bert.text.unigram", "UnigramTokenizer"),
    Kind("Unigram", "spm.model", "mini_bert.text.unigram", "UnigramTokenizer"),
)  # fmt: skip
FILES = f"{JSON}, {VOCAB}, vocab.json + merges.txt, spiece.model or spm.model"  # for messages


def load_tokenizer(source: str | os.PathLike[str]) -> Tokenizer:
    """A tokenizer from a folder (also of a run), a tokenizer.json, vocab.txt or vocab.json, or a bundled one: "8k"."""
    folder = Path(source)
    if not has_tokenizer(folder) and (folder.is_dir() or os.fspath(source) in BUNDLED_NAMES):
        source = locate(source, quiet=True)  # of a run, or a bundled model
    path = find(source, _files())
    content = read_object(path) if path.suffix == ".json" and path.name not in _files()[1:] else None
    kind = _kind(path, content)
    tokenizer: type[Tokenizer] = getattr(import_module(kind.module), kind.name)
    return tokenizer.from_file(path, content)


def has_tokenizer(folder: Path) -> bool:
    return any((folder / name).is_file() for name in _files())


def _files() -> tuple[str, ...]:
    return JSON, *(kind.file for kind in KINDS)


def _kind(path: Path, content: dict[str, Any] | None) -> Kind:
    if content is None:  # a file of any other name and ending is taken for a vocab.txt
        alike = [kind for kind in KINDS if path.suffix == ".model" == Path(kind.file).suffix]
        return next((kind for kind in KINDS if kind.file == path.name), [*alike, KINDS[0]][0])
    model = content.get("model")
    if not isinstance(model, dict):
        raise ValueError(f"{path} is not a {JSON}: it has no model with a vocabulary; give the file of that name")
    for kind in KINDS:
        if type_of(model) == kind.model:
            return kind
    known = ", ".join(f"{kind.model} ({JSON} or {kind.file})" for kind in KINDS)
    raise ValueError(f"{path} is a tokenizer {of_type(model)}{UNREADABLE}; known: {known}")
