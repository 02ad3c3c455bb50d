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
