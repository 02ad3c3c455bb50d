"""Jupyter notebooks from the pages of the course: plain JSON in the notebook format 4.5.

A block of code becomes a cell, with the output that the page shows; a folded answer is a folded cell. After each
exercise comes a cell to write the answer in, and one that checks it:

    check_here("1.2", globals())
"""

from __future__ import annotations

import base64
import html
import json
import mimetypes
import os
import re
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

from mini_bert.common.atomic import write_atomic
from mini_bert.learning.course import PAGES, PHASES, find
from mini_bert.learning.exercise import explain
from mini_bert.learning.pages import Piece, pieces

PICTURE = re.compile(r"!\[(?P<label>[^\]]*)\]\((?P<path>[^)]+)\)")
LINK = re.compile(r"\[(?P<label>[^\]]*)\]\((?!\w+:|#)(?P<path>[^)#\s]+)(?P<anchor>#[^)]*)?\)")
COMMAND = re.compile(r"\n+```console\npython run\.py learn check .*?\n```", re.DOTALL)  # a notebook has a cell for it
CHECK = re.compile(r"^### Exercise (\d\.\d)$", re.MULTILINE)


def write_notebooks(out: Path, pages: Path = PAGES) -> list[Path]:
    """One notebook per page, in the folder `out`. Returns their paths."""
    if not pages.is_dir():
        raise FileNotFoundError(
            f"there is no folder {pages}: the pages of the course are not part of the installed package; clone the "
            "repository and call `python run.py learn notebooks` there"
        )
    out.mkdir(parents=True, exist_ok=True)
    written = []
    for phase in PHASES:
        page = (pages / phase.page).read_text(encoding="utf-8")
        path = out / Path(phase.page).with_suffix(".ipynb").name
        text = json.dumps(notebook(page, Relinked(pages)), indent=1, ensure_ascii=False)
        write_atomic(path, f"{text}\n".encode())
        written.append(path)
    return written


def notebook(page: str, relinked: Callable[[str], str] = str) -> dict[str, Any]:
    """The content of a notebook file. `relinked` changes pictures and links in a text."""
    cells: list[dict[str, Any]] = []
    for piece in pieces(page):
        if piece.is_code:
            cells.append(_code(piece))
            continue
        for text, exercise_id in _at_exercises(relinked(COMMAND.sub("", piece.source))):
            folded = f"<details><summary>Answer</summary>\n\n{text}\n\n</details>"
            cells.append(_markdown(folded if piece.folded else text))
            if exercise_id:
                cells.append(
                    _code(Piece(f"# Exercise {exercise_id}: write your answer here, and run this cell.", True))
                )
                check = f'from mini_bert.learning.notebooks import check_here\n\ncheck_here("{exercise_id}", globals())'
                cells.append(_code(Piece(check, True)))
    for number, cell in enumerate(cells, 1):
        cell["id"] = f"cell-{number}"
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    metadata = {"kernelspec": kernel, "language_info": {"name": "python"}}
    return {"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}


def check_here(exercise_id: str, names: Mapping[str, Any]) -> None:
    """Checks the answer in a notebook: the names that its cells have defined."""
    exercise = find(exercise_id)
    print(explain(exercise, names) or f"{exercise.id} {exercise.title}: right.")


def _at_exercises(text: str) -> list[tuple[str, str]]:
    """The text, cut at the end of each exercise; with the number of that exercise, or an empty string."""
    starts = [0, *(found.start() for found in re.finditer("^##", text, re.MULTILINE) if found.start()), len(text)]
    parts: list[tuple[str, str]] = []
    held = ""
    for start, end in pairwise(starts):
        held += text[start:end]
        exercise = CHECK.search(text[start:end])
        if exercise:
            parts.append((held.strip("\n"), exercise[1]))
            held = ""
    return [*parts, (held.strip("\n"), "")] if held.strip() else parts


def _markdown(text: str) -> dict[str, Any]:
    return {"cell_type": "markdown", "metadata": {}, "source": text.splitlines(keepends=True)}


def _code(piece: Piece) -> dict[str, Any]:
    metadata: dict[str, Any] = {"tags": ["slow"]} if piece.slow else {}
    if piece.folded:
        metadata["jupyter"] = {"source_hidden": True, "outputs_hidden": True}
    outputs = []
    if piece.output is not None:
        outputs = [{"output_type": "stream", "name": "stdout", "text": piece.output.splitlines(keepends=True)}]
    source = piece.source.splitlines(keepends=True)
    return {"cell_type": "code", "execution_count": None, "metadata": metadata, "outputs": outputs, "source": source}


class Relinked:
    """Makes a page independent of the folder it is in. A notebook server shows only what is in its own folder, so
    pictures become part of the text, links between pages lead to the other notebooks, and links to other files become
    text: the name of the file in the repository, and the line."""

    def __init__(self, pages: Path):
        self.pages, self.names = pages, {phase.page for phase in PHASES}

    def __call__(self, text: str) -> str:
        return LINK.sub(self.link, PICTURE.sub(self.picture, text))

    def picture(self, found: re.Match[str]) -> str:
        content = base64.b64encode((self.pages / found["path"]).read_bytes()).decode()
        kind = mimetypes.guess_type(found["path"])[0]
        return f'<img alt="{html.escape(found["label"])}" src="data:{kind};base64,{content}">'

    def link(self, found: re.Match[str]) -> str:
        label, path, anchor = " ".join(found["label"].split()), found["path"], found["anchor"] or ""
        if path in self.names:
            return f"[{label}]({Path(path).with_suffix('.ipynb').name})"
        file = os.path.relpath((self.pages / path).resolve(), self.pages.resolve().parent).replace(os.sep, "/")
        if anchor.startswith("#L"):  # layers/linear.py: Linear.forward
            return f"`{label.split()[-1]}` (`{file}`, line {anchor[2:]})"
        return f"`{file}`" if label.strip("`") in file else f"{label} (`{file}`)"
