"""The folder for what can be made or downloaded again: data sets, the built-in corpus, tokenized shards."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder(*parts: str) -> Path:
    """A path in `MINI_BERT_HOME` if that is set, else in the user's cache folder. It is not created here.

    Linux: $XDG_CACHE_HOME/mini-bert or ~/.cache/mini-bert; macOS: ~/Library/Caches/mini-bert;
    Windows: %LOCALAPPDATA%\\mini-bert.
    """
    home = os.environ.get("MINI_BERT_HOME")
    if home:
        try:
            return Path(home).expanduser().joinpath(*parts)
        except RuntimeError:
            raise ValueError(f"MINI_BERT_HOME is {home!r}, but that user has no home; give a full path") from None
    from platformdirs import user_cache_path

    return user_cache_path("mini-bert", appauthor=False, opinion=False).joinpath(*parts)


def make_folder(folder: Path, remedy: str = "set MINI_BERT_HOME to another") -> None:
    """Create a folder and its parents; an error says why it cannot be done."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError, PermissionError) as error:
        there = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
        why = f"no permission to write in {there}" if there.is_dir() else f"{there} is a file"
        raise type(error)(f"cannot create the folder {folder}: {why}; {remedy}") from error
