"""ALBERT's objective: masked words, and whether two parts of a text are in their order or swapped.

    [CLS] the door opened . [SEP] a cat came in . [SEP]        label 0: as in the text
    [CLS] a cat came in . [SEP] the door opened . [SEP]        label 1: swapped

BERT's next sentence (masked_words.py) takes its false parts from other documents, so that a difference in topic gives
the answer away, which the masked words teach anyway. Here both parts are always from one document. Which one comes
first only shows in how they continue each other (Lan et al. 2019, section 3.1).

The pairs are the same as for next sentence, with swapped parts instead of false ones: data/sequences.py.
"""

from __future__ import annotations

from typing import Any, ClassVar

from mini_bert.models.base import MASKED_WORDS, SENTENCE_ORDER
from mini_bert.objectives.masked_words import MaskedWordsAndSentences


class MaskedWordsAndOrder(MaskedWordsAndSentences):
    """Cross-entropy at the masked tokens, plus that of whether the two parts of a text are swapped."""

    name = "masked_words_and_sentence_order"
    heads = (MASKED_WORDS, SENTENCE_ORDER)
    sequences: ClassVar[dict[str, Any]] = {"mode": "pairs", "task": "order"}
    question = "whether two parts of a text are in their order or swapped"
