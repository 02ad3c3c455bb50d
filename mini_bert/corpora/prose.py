"""Extract English prose from documentation: from docstrings, comments and pages of the Python reference.

    │ Return the lowest index where ``sub`` is found.    ──▶  Return the lowest index where sub is found.
    │
    │ >>> "banana".find("nan")                                (removed)
    │ 2
    │
    │ Parameters                                              (removed)
    │ ----------
    │ sub : str                                               (removed)
    │     The string to look
    │     for.                                           ──▶  The string to look for.

There are two passes. `blocks` goes through the lines and interprets the usual layout of documentation: indentation,
doctests, literal blocks, headings, bullets, directives, parameter lists. It yields possible paragraphs, each on one
line. `sentences` then removes the markup and keeps the sentences that look like English: most tokens are words, some of
them are function words such as "the", and nothing looks like code. These heuristics also drop some good sentences,
which does no harm: there is plenty of text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

UNDERLINE = re.compile(r"([=\-~^*#\"'+.`_:])\1{2,}$")
TABLE = re.compile(r"[=\-+|: ]{5,}$|\|.*\||\+--|.*\S {3,}\S")
BULLET = re.compile(r"(?:[*+•o-]|\(?[0-9]{1,2}[.)]|\([a-z]\)|[a-z]\)|#\.)\s+(?=\S)")
DIRECTIVE = re.compile(r"\.\.\s+([\w-]+)::\s*(.*)")
FIELD = re.compile(r"(?::(\w+)[^:`]*:|@(\w+)(?:\s+\w+)?\s?:?)\s+(?=\S)")
PARAMETER = re.compile(r"\*{0,2}[\w`'\"./|-]+(?:, ?\*{0,2}[\w`'\"./|-]+)* ?:(?: .*)?$|\S+$")
KEPT_DIRECTIVES = {"note", "warning", "tip", "important", "caution", "hint", "attention", "admonition", "danger"}
LISTS = {"parameters", "other parameters", "returns", "return", "yields", "raises", "attributes", "methods", "warns"}
DROPPED = {"see also", "references", "bibliography", "methods", "routine listings"}


def paragraphs(text: str) -> list[str]:
    """The English paragraphs of a piece of documentation, each on one line."""
    return [" ".join(kept) for block in blocks(text) if (kept := sentences(block))]


def blocks(text: str) -> Iterator[str]:
    """Possible paragraphs, still with markup: lines joined, layout removed."""
    lines = [line.rstrip() for line in text.expandtabs().splitlines()]
    depths = [len(line) - len(line.lstrip()) for line in lines]
    held: list[str] = []
    start = depth = 0  # of the held paragraph: indentation of its first line, of its text
    below: int | None = None  # lines indented more than this are code
    doctest = False
    section, section_depth = "", 0

    for number, (line, indent) in enumerate(zip(lines, depths, strict=True)):
        words = line.strip()
        following = lines[number + 1].strip() if number + 1 < len(lines) else ""
        deeper = bool(following) and depths[number + 1] > indent
        if not words:
            doctest = False
        if below is not None and words and indent <= below:
            below = None
        if held and UNDERLINE.match(words) and below is None:  # the line above is a heading
            section, section_depth, held = held[-1].lower(), indent, []
            continue
        if not words or doctest or below is not None or words.startswith(">>>") or TABLE.match(words):
            doctest = doctest or words.startswith(">>>")
            if held:
                yield " ".join(held)
                if held[-1].endswith("::"):
                    below = start
                held = []
            continue
        if section in DROPPED and indent >= section_depth and not UNDERLINE.match(following):
            continue
        directive, field, bullet = DIRECTIVE.match(words), FIELD.match(words), BULLET.match(words)
        new_paragraph = bool(directive or field or bullet or words.startswith(".. ")) or not held
        if held and (indent < start or (indent > depth and held[-1][-1] in ".:;!?")):
            new_paragraph = True
        if new_paragraph and held:
            yield " ".join(held)
            if held[-1].endswith("::") and indent > start:
                held, below = [], start
                continue
            held = []
        if directive:
            if directive[1] not in KEPT_DIRECTIVES:
                below = indent
                continue
            words = directive[2]
        elif words.startswith(".. "):
            below = indent
            continue
        elif field:
            if (field[1] or field[2]) in ("type", "rtype", "Author", "Date", "Version", "Id", "author", "since"):
                continue
            words = words[field.end() :]
        elif bullet:
            words = words[bullet.end() :]
        elif deeper and not held and (PARAMETER.match(words) or (section in LISTS and indent == section_depth)):
            continue  # a name whose description follows
        if words:
            if not held:
                start, depth = indent, indent + (bullet.end() if bullet else 0)
            held.append(words)
    if held:
        yield " ".join(held)


# --- markup ------------------------------------------------------------------------------------------------

QUOTES = str.maketrans({"‘": "'", "’": "'", "“": '"', "”": '"', "…": "...", "–": "-", "\u00a0": " ", "\u2011": "-"})
MARKUP = [  # (a quick test, the pattern, its replacement)
    (":math:", re.compile(r":math:`\\?(\w+)`"), r"\1"),
    ("`~", re.compile(r":[\w:+.-]+:`~(?:[\w.]*\.)?(\w+(?:\(\))?)`"), r"\1"),  # :meth:`~random.Random.seed` -> seed
    (":`", re.compile(r":(?!math)[\w:+.-]+:`!?([^`<]*?)(?:\s*<[^`>]*>)?`"), r"\1"),
    ("`_", re.compile(r"`([^`<>]+?)\s*<[^`>]+>`__?"), r"\1"),  # `the page <https://...>`_ -> the page
    ("]_", re.compile(r"\s*\[[\w#*]{1,12}\]_(?!\w)"), ""),  # footnotes
    ("`", re.compile(r"``([^`]+)``|`([^`']+)`_{0,2}"), r"\1\2"),
    ("*", re.compile(r"(?<![\w*])\*{1,2}(?=\S)([^*]+?)(?<=\S)\*{1,2}(?![\w*])"), r"\1"),
    ('"', re.compile(r'(?<![\w"\'])"([^\s"\']+)"(?![\w"\'])'), r"\1"),  # "else" -> else
    ("'", re.compile(r"(?<![\w\"'])'([^\s\"']+)'(?![\w\"'])"), r"\1"),
    ("()", re.compile(r"(?<=\w)\(\)"), ""),  # range() -> range
    ("::", re.compile(r"::(?=\s|$)"), ":"),
    ("--", re.compile(r"(?<=\w)--(?=\w)| -- "), " - "),
    ("  ", re.compile(r"\s+"), " "),
]
SENTENCE = re.compile(r"(?<=[a-z0-9)'\"\]][.!?])['\")]* +(?=[\"'(]?[A-Z])")
ABBREVIATION = re.compile(
    r"(?:\b(?:e\.g|i\.e|etc|vs|cf|resp|approx|Dr|Mr|Mrs|St|Fig|Eq|Sec|No|Vol|al|pp|ed)|\b[A-Z])\.$"
)
CODE = re.compile(
    r"[{}\\|<>^~@`$\[\]#]|==|!=|->|::|\w=\S|\s=\s|\w : |%[sdr(]|\S/\S+/|\w\((?!s\)|es\))\S|\.\.\.\S|https?:|www\.|\+\+"
)
WORD = re.compile(r"[\"'(]*[A-Za-z]+(?:['-][A-Za-z]+)*[\"')]*[.,;:!?]*[\"')]*$")
SMALL = frozenset(
    {
        *("a", "all", "an", "and", "any", "are", "as", "at", "be", "but", "by", "can", "do", "does", "each", "for"),
        *("from", "has", "have", "i", "if", "in", "into", "is", "it", "its", "may", "must", "no", "not", "of", "on"),
        *("one", "only", "or", "should", "than", "that", "the", "then", "there", "these", "they", "this", "to", "used"),
        *("was", "we", "when", "which", "will", "with", "you"),
    }
)
CONTINUING = frozenset({"and", "but", "or", "so", "then", "where", "which", "with"})  # a formula was removed before it
HANGING = frozenset(  # an example was removed after it
    {
        *("a", "an", "and", "are", "as", "at", "be", "but", "by", "e.g", "e.g.", "example", "examples", "following"),
        *("follows", "for", "from", "i.e", "i.e.", "if", "in", "is", "like", "namely", "of", "on", "or", "see", "so"),
        *("that", "the", "then", "to", "using", "via", "when", "where", "which", "with"),
    }
)


def sentences(text: str) -> list[str]:
    """The English sentences of a paragraph; an empty list if they are less than half of it."""
    if not text.isascii():
        text = text.translate(QUOTES)
    for sign, pattern, content in MARKUP:
        if sign in text:
            text = pattern.sub(content, text)
    text = text.strip()
    candidates, start = [], 0
    for gap in SENTENCE.finditer(text):
        if not ABBREVIATION.search(text, start, gap.start()):
            candidates.append(text[start : gap.end()].strip())
            start = gap.end()
    candidates.append(text[start:])
    kept = [finished for sentence in candidates if (finished := english(sentence))]
    return kept if 2 * sum(map(len, kept)) > len(text) else []


def english(sentence: str) -> str:
    """The sentence, with a capital letter and a full stop, if it looks like English; else an empty string.

    >>> english("return the number of items")
    'Return the number of items.'
    >>> english("x = foo(bar)[0]"), english("int PyArg_Parse(args)")
    ('', '')
    """
    tokens = sentence.split()
    if not 4 <= len(tokens) <= 120 or CODE.search(sentence):
        return ""
    if sum(WORD.match(token) is not None for token in tokens) < 0.8 * len(tokens):
        return ""
    small = sum(token.lower().strip(".,;:()\"'") in SMALL for token in tokens)
    if small < 0.15 * len(tokens):
        return ""
    if sentence.count("(") != sentence.count(")") or sentence.count('"') % 2 or sentence.count(" - ") > 2:
        return ""
    if tokens[0] in CONTINUING or tokens[-1].rstrip(",:;-") in HANGING:
        return ""
    if sentence[-1] not in ".!?)\"'":
        sentence = sentence.rstrip(",:;- ") + "."
    return sentence[0].upper() + sentence[1:]
