"""Messages about a folder that is one level too high."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

SHOWN = 6  # names


def folders_inside(folder: Path, file: str, fits: Callable[[Path], bool] = Path.is_dir) -> str:
    """The remedy in a message, if a folder lacks a file that some of its subfolders have; otherwise an empty string.

    `runs` with the runs a and b: "its folders a, b have one; choose one of these, such as runs/a"

    fits: whether a subfolder with that file is what is looked for
    """
    names = sorted(path.parent.name for path in folder.glob(f"*/{file}") if fits(path.parent))
    if not names:
        return ""
    shown = ", ".join([*names[:SHOWN], *(["…"] if len(names) > SHOWN else [])])
    if len(names) == 1:
        return f"its folder {shown} has one; choose {folder / names[0]}"
    return f"its folders {shown} have one; choose one of these, such as {folder / names[0]}"
