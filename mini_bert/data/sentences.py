"""Where sentences end: a few rules, good enough for making training sequences.

    split("Dr. No met J. R. Smith at 5 p.m. on Sunday. They spoke.\\nThen?")
    -> ["Dr. No met J. R. Smith at 5 p.m. on Sunday.", "They spoke.", "Then?"]

1. A sentence ends after . ! ? … (and any closing quotation marks or brackets) before white space, if what follows can
   begin a sentence: not a small letter.
2. A full stop does not end it after an abbreviation that stands before a name or a number (Dr. fig. No.), after a
   single capital (J. Smith), or after one that is always followed by more (e.g. i.e. cf.).
3. A line ends a sentence, unless the text was only wrapped there: the next line begins with a small letter, the line
   ends with no mark of rule 1, and is so long that the next word would not have fitted. In a text without a single
   capital every line ends a sentence: that is how lower-cased sentences are stored.
4. 。！？ and their kin end a sentence wherever they stand; so do । ؟ ۔ before white space.

Every character but white space is in exactly one sentence, so the pieces of words are those of the unsplit text. The
rules know English; in other languages they err more often on abbreviations. A sentence of "U.S. Army" is cut in no
place, "in the U.S. It rained" in the wrong place: not at all. Both kinds of error cost a training sequence little.
"""

import re
from itertools import pairwise

CLOSERS = "\"'”’»)\\]」』）】"
CLOSING, MARKS = CLOSERS.replace("\\", ""), (*".!?…।؟۔。！？｡",)
WIDEST = 120  # characters of a line that was wrapped; longer ones are paragraphs
END = re.compile(  # one class of characters first: the search for it is fast (5 times as fast as two alternatives)
    r"[.!?…।؟۔。！？｡](?:"
    rf"(?<=[。！？｡])[。！？｡{CLOSERS}]*"  # scripts that put no space between sentences
    rf"|[.!?…{CLOSERS}]{{0,9}}(?=\s)(?!\s+[a-z]))"  # scripts that do; 9: a line of a million dots takes no age
)
OPENERS = "\"'“‘«([{*_—–-… \t\r\v\f\n\u00a0\u2028\u2029"  # may stand before a sentence's first letter
BEFORE_NAME = (
    "mr mrs ms messrs mme mlle dr prof rev hon st sr jr gen col maj capt lt cmdr sgt cpl adm gov sen rep pres supt "
    "mt ft fr bro no nos vol vols fig figs ch chap sec art p pp ed eds trans op dept univ assn ave blvd rd "
    "jan feb mar apr jun jul aug sept oct nov dec "
    "e.g i.e cf viz vs v ca c al approx resp incl esp"
)
ABBREVIATIONS = frozenset(BEFORE_NAME.split())


def split(text: str) -> list[str]:
    """The sentences of a text, in order, none of them empty."""
    found = []
    for paragraph in paragraphs(text):
        start = 0
        for match in END.finditer(paragraph):
            end = match.end()
            if ends(paragraph, match.start(), end):
                found.append(paragraph[start:end].strip())
                start = end
        if rest := paragraph[start:].strip():
            found.append(rest)
    return found


def paragraphs(text: str) -> list[str]:
    """The lines of a text, those that were only wrapped joined to the one before."""
    lines = text.split("\n")
    if len(lines) == 1 or text.islower():
        return lines
    width = max((len(line) for line in lines if len(line) <= WIDEST), default=0)
    found = [[lines[0]]]
    for before, line in pairwise(lines):
        if len(line) <= WIDEST and line[:24].lstrip(OPENERS)[:1].islower() and wrapped(before.rstrip(), line, width):
            found[-1].append(line)
        else:
            found.append([line])
    return ["\n".join(lines) for lines in found]


def wrapped(before: str, line: str, width: int) -> bool:
    """Does a line go on in the next one, in a text that is so wide?"""
    if not width - len(line.split(maxsplit=1)[0]) <= len(before) <= WIDEST:
        return False
    if before.rstrip(CLOSING)[-1:] not in MARKS:
        return True
    *_, last = before[-24:].split() or [""]
    return last.lstrip(OPENERS).rstrip(".").lower() in ABBREVIATIONS


def ends(text: str, mark: int, end: int) -> bool:
    """Does a sentence end with the marks (full stop, question mark, …) that lie from `mark` to `end`?"""
    if text[mark] != "." or text[mark + 1] in ".!?":
        if text[mark] in "。！？｡।؟۔":
            return True
    else:
        *_, last = text[max(0, mark - 24) : mark].split() or [""]
        last = last.lstrip(OPENERS)
        if last.lower() in ABBREVIATIONS or (last[-1:].isupper() and last[-2:-1] in ("", ".")):  # Dr.  J.  U.S.
            return False
    return not text[end : end + 24].lstrip(OPENERS)[:1].islower()
