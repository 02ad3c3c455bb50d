"""Finding the files of a tokenizer: tokenizer.json, vocab.txt and so on, as in published models."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

JSON, VOCAB, CONFIG = "tokenizer.json", "vocab.txt", "tokenizer_config.json"
BUNDLED = Path(__file__).parent / "vocabularies"  # a folder for each bundled tokenizer


def find(source: str | os.PathLike[str], names: Sequence[str] = (JSON, VOCAB)) -> Path:
    """The file to read, given its path, a folder that has one of `names`, or the name of a bundled tokenizer."""
    path = Path(source)
    if path.suffix in (".pkl", ".pickle"):
        raise ValueError(
            f"{path} is a pickle, and loading a pickle runs whatever code it contains, so Mini-BERT never loads one. "
            f"Tokenizers are JSON and text files: tokenizer.save(folder) writes {JSON} and {VOCAB}"
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


def _bundled(source: str) -> Path:
    names = sorted(folder.name for folder in BUNDLED.iterdir() if folder.is_dir()) if BUNDLED.is_dir() else []
    name = source.removeprefix("tokenizer_").removesuffix(".json")
    if name in names:
        return BUNDLED / name
    raise FileNotFoundError(
        f"there is no file or folder {source}, and no bundled tokenizer of that name; give the path of a {JSON}, a "
        f"{VOCAB} or a folder with one" + (f", or one of {', '.join(names)}" if names else "")
    )


def read_object(path: Path) -> dict[str, Any]:
    """The object in a JSON file."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:  # not UTF-8, or not JSON
        raise ValueError(f"{path} is not valid JSON ({error})") from error
    if not isinstance(content, dict):
        raise ValueError(f"{path} contains a {type(content).__name__}, expected an object")
    return content
