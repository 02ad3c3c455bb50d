"""Everything that the pictures show: the bundled Mini-BERT on one sentence, forward and backward."""

from __future__ import annotations

from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np

from mini_bert import load_model, load_tokenizer

SENTENCE = "He put his hand in his pocket."
HIDDEN_WORD = "hand"
MASKED = SENTENCE.replace(HIDDEN_WORD, "[MASK]")
BLOCK, HEAD = 1, 0  # the head that the pictures look into: "his" attends to "he"
QUERY = 3  # the first "his"


@cache
def facts() -> Any:
    """A forward pass over the sentence with its hidden word, and what was computed on the way."""
    model, tokenizer = load_model("mini-bert"), load_tokenizer("mini-bert")
    ids = np.array([tokenizer.encode(MASKED)])
    row = int(np.flatnonzero(ids[0] == tokenizer.mask_id)[0])
    logits, arrays = model.forward(ids)
    (target,) = tokenizer.encode(HIDDEN_WORD)[1:-1]
    scores = logits[0, row].astype(np.float64)
    probs = np.exp(scores) / np.exp(scores).sum()
    return SimpleNamespace(
        model=model,
        tokenizer=tokenizer,
        ids=ids,
        pieces=[tokenizer.readable(i) for i in ids[0]],
        row=row,
        logits=logits,
        arrays=arrays,
        target=target,
        probs=probs,
        best=np.argsort(-probs, kind="stable"),
    )
