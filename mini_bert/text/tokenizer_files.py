"""Finding the files of a tokenizer: tokenizer.json, vocab.txt and so on, as in published models."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mini_bert.common.json_values import read_object

JSON, VOCAB, CONFIG = "tokenizer.json", "vocab.txt", "tokenizer_config.json"
BUNDLED = Path(__file__).parent / "vocabularies"  # a folder for each bundled tokenizer


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
