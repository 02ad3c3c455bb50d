"""A warning about texts that a tokenizer does not know: what a model says of them means nothing."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mini_bert.text.base import Tokenizer

MANY = 0.5  # the share of a text's tokens that are unknown
FIRST = 1000  # texts to look at: enough to notice, and quick
logger = logging.getLogger(__name__)


def warn_about_unknown(tokenizer: Tokenizer, texts: Sequence[str]) -> None:
    """Warn if half of the tokens of some texts, or more, are the one for unknown words. Looks at the first FIRST."""
    if "unk" not in tokenizer.roles:
        return
    mask, unknown = tokenizer.mask_token, tokenizer.unk_id
    rows = tokenizer.ids([text.replace(mask, " ") if mask else text for text in texts[:FIRST]], special=False)
    poor = sum(list(row).count(unknown) >= MANY * len(row) > 0 for row in rows)
    if poor:
        first = "the first " if len(texts) > FIRST else ""
        which = "the text" if len(texts) == 1 else f"{poor:,} of {first}{len(rows):,} texts"
        logger.warning(
            "%s: half of the words or more are unknown to the tokenizer, %r, so the results mean little; "
            "`mini-bert tokenizer show` shows how it splits a text",
            which, tokenizer,
        )  # fmt: skip
