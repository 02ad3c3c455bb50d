"""Small parts of sentences: a or an, lists, how long something took, numbers, and the name that was probably meant."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from difflib import get_close_matches

from mini_bert.common.progress import counted


def with_article(name: str) -> str:
    """A name with a or an, as it is spoken.

    >>> with_article("BERT"), with_article("ELECTRA"), with_article("XLNet"), with_article("Unigram")
    ('a BERT', 'an ELECTRA', 'an XLNet', 'a Unigram')
    """
    return f"{'an' if name.startswith(('XL', *'AEIOaeio')) else 'a'} {name}"


def either(names: Sequence[str]) -> str:
    """Names to choose from.

    >>> either(["bert"]), either(["bert", "gpt2"]), either(["bert", "gpt2", "xlnet"])
    ('bert', 'bert or gpt2', 'bert, gpt2 or xlnet')
    """
    return " or ".join([", ".join(names[:-1]), names[-1]]) if len(names) > 1 else names[0]


def duration(seconds: float) -> str:
    """A time in minutes, or in seconds if it is short.

    >>> duration(0.2), duration(59), duration(61), duration(7260)
    ('0 seconds', '59 seconds', '1 minute', '121 minutes')
    """
    return counted(round(seconds), "second") if round(seconds) < 60 else counted(round(seconds / 60), "minute")


def number(value: float) -> str:
    """Two significant digits, with an exponent only for very small or large numbers.

    >>> number(1234.5), number(12.34), number(0.00123), number(3e-9), number(2.5e7), number(0), number(0.99)
    ('1,200', '12', '0.0012', '3e-9', '2.5e7', '0', '0.99')
    """
    if value and not 1e-5 <= abs(value) < 1e6:
        return re.sub(r"\.0(?=e)", "", f"{value:.1e}").replace("e+0", "e").replace("e+", "e").replace("e-0", "e-")
    rounded = float(f"{value:.2g}")
    return f"{rounded:,.0f}" if abs(rounded) >= 10 else f"{rounded:.10f}".rstrip("0").rstrip(".")


def perplexity_text(value: float, digits: int = 0) -> str:
    """A perplexity, with this many digits after the point; that of a model that diverged has an exponent.

    >>> perplexity_text(446.1), perplexity_text(12345.67, 1), perplexity_text(5.2e21)
    ('446', '12,345.7', '5.2e21')
    """
    return f"{value:,.{digits}f}" if value < 1e6 else number(value)


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """The end of a message about an unknown name: the one that is spelt most like it, if any is.

    >>> did_you_mean("Elektra", ["bert", "electra"]), did_you_mean("xyz", ["bert", "electra"])
    ('; did you mean electra?', '')
    """
    by_lower = {one.lower(): one for one in names}
    close = get_close_matches(name.lower(), by_lower, 1)
    return f"; did you mean {by_lower[close[0]]}?" if close else ""
