"""Small parts of sentences: a or an, how long something took, and the name that was probably meant."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

from mini_bert.common.progress import counted


def with_article(name: str) -> str:
    """A name with a or an, as it is spoken.

    >>> with_article("BERT"), with_article("ELECTRA"), with_article("XLNet"), with_article("Unigram")
    ('a BERT', 'an ELECTRA', 'an XLNet', 'a Unigram')
    """
    return f"{'an' if name.startswith(('XL', *'AEIOaeio')) else 'a'} {name}"


def duration(seconds: float) -> str:
    """A time in minutes, or in seconds if it is short.

    >>> duration(0.2), duration(59), duration(61), duration(7260)
    ('0 seconds', '59 seconds', '1 minute', '121 minutes')
    """
    return counted(round(seconds), "second") if round(seconds) < 60 else counted(round(seconds / 60), "minute")


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """The end of a message about an unknown name: the one that is spelt most like it, if any is.

    >>> did_you_mean("Elektra", ["bert", "electra"]), did_you_mean("xyz", ["bert", "electra"])
    ('; did you mean electra?', '')
    """
    by_lower = {one.lower(): one for one in names}
    close = get_close_matches(name.lower(), by_lower, 1)
    return f"; did you mean {by_lower[close[0]]}?" if close else ""
