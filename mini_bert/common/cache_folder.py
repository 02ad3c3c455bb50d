"""Where things are kept that can be made or fetched again: downloads, the built-in corpus, tokenized shards."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def cache_folder(*parts: str) -> Path:
    """`MINI_BERT_HOME` if that is set, else `mini-bert` in the place that the system has for caches; not created here.

    Linux: $XDG_CACHE_HOME or ~/.cache; macOS: ~/Library/Caches; Windows: %LOCALAPPDATA%.
    """
    home = os.environ.get("MINI_BERT_HOME")
    if home:
        return Path(home).expanduser().joinpath(*parts)
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base.joinpath("mini-bert", *parts)


def make_folder(folder: Path, remedy: str = "set MINI_BERT_HOME to another") -> None:
    """Make a folder, and those above it, or say why that cannot be."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError, PermissionError) as error:
        there = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
        why = f"you may not write in {there}" if there.is_dir() else f"{there} is a file"
        raise type(error)(f"the folder {folder} cannot be made: {why}; {remedy}") from error
