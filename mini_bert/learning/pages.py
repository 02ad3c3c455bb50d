"""Read a page of the course: text, code with the output it prints, and folded answers.

    # 1. Building blocks                    the title, then one paragraph: the idea
    ## 1.1 A word is a row                  sections, each with the parts
    ### By hand
    ### In the library                      a ```python block, and its exact output as the next ```text block
    ### Predict, then run                   a question; its answer between <details> and </details>
    ### Exercise 1.1                        what to write, and a ```console block with the command that checks it
    ### In the lab
    ## Summary                              a numbered list of ten lines

The ```python blocks of a page run in order and share their names. A block after the line `<!-- slow -->` takes more
than a second or two; only the slow tests run it, so later blocks must not need its names.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

PIECES = re.compile(
    r"(?P<slow>^<!-- slow -->\n)?^```python\n(?P<code>.*?)^```\n(?:\s*^```text\n(?P<output>.*?)^```\n)?"
    r"|(?P<open>^<details>.*?</summary>\n)|(?P<close>^</details>\n)",
    re.DOTALL | re.MULTILINE,
)


class Piece(NamedTuple):
    source: str
    is_code: bool
    output: str | None = None  # what the code prints, if the page shows it
    folded: bool = False  # part of an answer
    slow: bool = False


def pieces(page: str) -> Iterator[Piece]:
    """The page as pieces of text and blocks of code, in order."""
    end, folded = 0, False
    for found in PIECES.finditer(page):
        text = page[end : found.start()].strip("\n")
        if text:
            yield Piece(text, False, folded=folded)
        if found["code"] is not None:
            yield Piece(found["code"].rstrip("\n"), True, found["output"], folded, found["slow"] is not None)
        else:
            folded = found["open"] is not None
        end = found.end()
    if page[end:].strip():
        yield Piece(page[end:].strip("\n"), False, folded=folded)
