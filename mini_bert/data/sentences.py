"""Splitting text into sentences: a few rules, good enough for training sequences.

    split("Dr. No met J. R. Smith at 5 p.m. on Sunday. They spoke.\\nThen?")
    -> ["Dr. No met J. R. Smith at 5 p.m. on Sunday.", "They spoke.", "Then?"]

1. A sentence ends after . ! ? … (and any closing quotation marks or brackets) before white space, unless a lower-case
   letter follows.
2. A full stop does not end it after an abbreviation that precedes a name or a number (Dr. fig. No.), after a single
   capital (J. Smith), or after an abbreviation that is always followed by more (e.g. i.e. cf.).
3. The end of a line ends a sentence, unless the text was only wrapped there: the next line starts with a lower-case
   letter, the line does not end with a mark of rule 1, and the next word would not have fitted on it. In a text
   without capitals every line ends a sentence, because that is how lower-cased sentences are stored.
4. 。！？ and similar marks always end a sentence; so do । ؟ ۔ before white space.

Every character except white space is in exactly one sentence, so the pieces of words are those of the unsplit text.
The rules are made for English; in other languages they fail more often on abbreviations. "U.S. Army" is not split,
which is right, and neither is "in the U.S. It rained", which is wrong. Such errors hardly matter for training.
"""

import re
from itertools import pairwise

CLOSERS = "\"'”’»)\\]」』）】"
CLOSING, MARKS = CLOSERS.replace("\\", ""), (*".!?…।؟۔。！？｡",)
WIDEST = 120  # characters; longer lines are paragraphs, not wrapped lines
END = re.compile(  # one class of characters first: 5 times as fast as two alternatives
    r"[.!?…।؟۔。！？｡](?:"
    rf"(?<=[。！？｡])[。！？｡{CLOSERS}]*"  # scripts without spaces between sentences
    rf"|[.!?…{CLOSERS}]{{0,9}}(?=\s)(?!\s+[a-z]))"  # scripts with spaces; {0,9}: fast on a million dots
)
OPENERS = "\"'“‘«([{*_—–-… \t\r\v\f\n\u00a0\u2028\u2029"  # may precede the first letter of a sentence
BEFORE_NAME = (
    "mr mrs ms messrs mme mlle dr prof rev hon st sr jr gen col maj capt lt cmdr sgt cpl adm gov sen rep pres supt "
    "mt ft fr bro no nos vol vols fig figs ch chap sec art p pp ed eds trans op dept univ assn ave blvd rd "
    "jan feb mar apr jun jul aug sept oct nov dec "
    "e.g i.e cf viz vs v ca c al approx resp incl esp"
)
ABBREVIATIONS = frozenset(BEFORE_NAME.split())


def split(text: str) -> list[str]:
    """The non-empty sentences of a text, in order."""
    sentences = []
    for paragraph in paragraphs(text):
        start = 0
        for match in END.finditer(paragraph):
            end = match.end()
            if ends(paragraph, match.start(), end):
                sentences.append(paragraph[start:end].strip())
                start = end
        if rest := paragraph[start:].strip():
            sentences.append(rest)
    return sentences


def paragraphs(text: str) -> list[str]:
    """The lines of a text; wrapped lines are joined."""
    lines = text.split("\n")
    if len(lines) == 1 or text.islower():
        return lines
    width = max((len(line) for line in lines if len(line) <= WIDEST), default=0)
    joined = [[lines[0]]]
    for before, line in pairwise(lines):
        if len(line) <= WIDEST and line[:24].lstrip(OPENERS)[:1].islower() and wrapped(before.rstrip(), line, width):
            joined[-1].append(line)
        else:
            joined.append([line])
    return ["\n".join(lines) for lines in joined]


def wrapped(before: str, line: str, width: int) -> bool:
    """Whether `line` continues the line before it, in a text whose longest wrapped line has `width` characters."""
    if not width - len(line.split(maxsplit=1)[0]) <= len(before) <= WIDEST:
        return False
    if before.rstrip(CLOSING)[-1:] not in MARKS:
        return True
    *_, last = before[-24:].split() or [""]
    return last.lstrip(OPENERS).rstrip(".").lower() in ABBREVIATIONS


def ends(text: str, mark: int, end: int) -> bool:
    """Whether a sentence ends with the marks (full stop, question mark, …) in text[mark:end]."""
    if text[mark] != "." or text[mark + 1] in ".!?":
        if text[mark] in "。！？｡।؟۔":
            return True
    else:
        *_, last = text[max(0, mark - 24) : mark].split() or [""]
        last = last.lstrip(OPENERS)
        if last.lower() in ABBREVIATIONS or (last[-1:].isupper() and last[-2:-1] in ("", ".")):  # Dr.  J.  U.S.
            return False
    return not text[end : end + 24].lstrip(OPENERS)[:1].islower()
