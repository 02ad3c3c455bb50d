"""Larger-BERT: a larger Mini-BERT. The mathematics is the same (mini_bert/models/mini.py); only the sizes differ.

6 layers, width 384, 8 heads, 128 tokens, vocabulary of 50,000: 49,137,488 parameters (29,937,488 with a tied head)
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mini_bert.models.base import MASKED_WORDS
from mini_bert.models.config import LARGER_BERT_CONFIG, MiniBertConfig
from mini_bert.models.mini import MiniBERT

__all__ = ["LARGER_BERT_CONFIG", "LargerBERT"]


class LargerBERT(MiniBERT):
    """Mini-BERT at Larger-BERT's sizes."""

    def __init__(
        self,
        config: MiniBertConfig = LARGER_BERT_CONFIG,
        output_heads=(MASKED_WORDS,),
        seed: int | None = 0,
        dtype: Any = np.float32,
    ):
        super().__init__(config, output_heads, seed, dtype)
