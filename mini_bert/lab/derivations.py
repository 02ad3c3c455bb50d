"""The derivations of docs/derivations, section by section, so that an installed package can show them without internet.

python -m mini_bert.lab.derivations         writes derivations.json; a test says when that is necessary

section_of(Linear.backward)                 the section whose line "Code:" names this function
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from mini_bert.common.atomic import write_atomic

FILE = Path(__file__).with_name("derivations.json")
PAGES = Path(__file__).parents[2] / "docs" / "derivations"
CODE = re.compile(r"\[([\w/]+\.py: [\w.]+)\]\([^)]*\)")  # a link to a line, which moves often


def read_pages(folder: Path = PAGES) -> list[dict[str, Any]]:
    """All sections: page, title, anchor, the functions they derive, and their text in Markdown."""
    found = []
    for path in sorted(folder.glob("*.md")):
        for part in re.split(r"\n#{2} ", path.read_text(encoding="utf-8"))[1:]:
            title, _, text = part.partition("\n")
            code, text = CODE.findall(text.partition("**Gradcheck")[0]), CODE.sub(r"`\1`", text)
            found.append(
                {"page": path.name, "title": title, "anchor": anchor(title), "code": code, "text": text.strip("\n")}
            )
    return found


def anchor(title: str) -> str:
    """As on the web page.

    >>> anchor("BERT's block")
    'berts-block'
    """
    return re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-")


@cache
def sections() -> list[dict[str, Any]]:
    return json.loads(FILE.read_text(encoding="utf-8"))


def section_of(function: Callable[..., Any]) -> dict[str, Any]:
    """The section that derives a function."""
    file = function.__module__.removeprefix("mini_bert.").replace(".", "/") + ".py"
    name = f"{file}: {function.__qualname__}"
    return next(one for one in sections() if name in one["code"])


def main() -> None:
    text = json.dumps(read_pages(), ensure_ascii=False, indent=0)
    write_atomic(FILE, text.encode())
    print(f"{FILE}: {len(text) / 1e3:.0f} kB")


if __name__ == "__main__":
    main()
