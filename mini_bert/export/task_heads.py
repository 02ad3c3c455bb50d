"""The head of a fine-tuned model as a part of its graph: what it reads is found in the ids and the mask.

    recording = record(tuned.model, task_head(tuned))

In Python, a batch says which tokens are words, where the second text begins, and which token stands for the text. A
graph gets only ids and a mask, as others pass them, so it finds these out:

    words           all tokens but padding and the special ones of the tokenizer's template
    second text     what follows the first separator
    summary         the first token that is not padding, or the last, as the template, the config or the model says
"""

from __future__ import annotations

from typing import Any

from mini_bert.export.names import END, LOGITS, START
from mini_bert.export.numpy_operators import isin, stack
from mini_bert.export.recording import Given, Head, Outputs, vectors
from mini_bert.export.traced import Traced
from mini_bert.finetuning.heads import PairHead
from mini_bert.finetuning.model import FineTuned
from mini_bert.layers.base import Run
from mini_bert.models.base import Model
from mini_bert.text.base import Tokenizer


def task_head(tuned: FineTuned) -> Head:
    """The head of a fine-tuned model. One for vectors of texts has no scores: its graph gives those of the tokens."""
    task, tokenizer = tuned.task, tuned.tokenizer
    if task.name == "tag":
        return lambda model, hidden, given: {LOGITS: model.task.forward(hidden, Run())[0]}
    if task.name == "qa":
        return _spans
    if task.name == "similarity" and task.vectors:
        return vectors

    def scores(model: Model, hidden: Traced, given: Given) -> Outputs:
        asked, summary = words_of(model.task, tokenizer, given), summary_of(model, tokenizer, given)
        return {LOGITS: model.task.forward(hidden, Run(), asked=asked, summary=summary)[0]}

    return scores


def _spans(model: Model, hidden: Traced, given: Given) -> Outputs:
    both = model.task.forward(hidden, Run())[0]  # (B,2,T)
    return {START: both[:, 0], END: both[:, 1]}


def words_of(head: Any, tokenizer: Tokenizer, given: Given) -> Traced:
    """The tokens that a head for texts pools (finetuning/tasks/classify.py, `seen_by`): (B,T), for pairs (2,B,T)"""
    if "all" in head.pool.pooling:
        return given.mask
    special = sorted({token for count in (1, 2) for group in tokenizer.template(count).ids for token in group})
    asked = given.mask & ~isin(given.ids, special)
    if not isinstance(head, PairHead):
        return asked
    between = tokenizer.template(2).ids[1]
    if not between:
        raise ValueError(
            "nothing separates the two texts of a pair in this tokenizer's template, so a graph cannot tell where the "
            "second one begins; fine-tune with --pooling cls, which reads both at once"
        )
    second = (given.ids == between[0]).cumsum(1) > 0
    return stack([asked & ~second, asked & second])


def summary_of(model: Model, tokenizer: Tokenizer, given: Given) -> Any:
    """The position of the token that stands for each text, a number or (B,): `summary_places` in tasks/base.py"""
    where = "last" if model.reads_forward else getattr(model.config, "summary_type", None)
    if where is None:
        sequence = tokenizer.assemble([0])
        where = "first" if sequence.summary == 0 else "last"
    if where == "first":
        return 0 if tokenizer.padding_side == "right" else given.mask.argmax(1)
    T = given.ids.shape[1]
    return given.mask[:, ::-1].argmax(1) * -1 + (T - 1)
