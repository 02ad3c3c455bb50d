"""Permutation language modelling: predict the words of a text in a random order (XLNet).

    the cat sat on the mat              chosen: "sat" and "mat", in the order mat, sat
    order  0  0  2  0  0  1             0: context, which every token sees

    loss = 1/N Σ_k −log p(x_{z_k} | context, x_{z_1} … x_{z_{k−1}})        z: the chosen positions in their order

Masked words are predicted independently of each other: with both gaps masked, BERT cannot use "mat" to guess "sat".
Here a word is predicted from the context and the words that come before it in the order, as in a causal model, but
from both sides of the text. Nothing is replaced by [MASK], so the model reads the same kind of text in training and in
use.

A token must not see itself when it is predicted, but must be seen by those after it. So XLNet computes two vectors per
token: the content stream, which sees the tokens up to its own place in the order, and the query stream, which sees
those before it, and from which the word is predicted. The numbers of the order decide: a token sees another if the
other's number is smaller, in the content stream also if it is equal.

As in the paper (Yang et al. 2019), only the last part of the order is predicted, about 1/6 of the words, because the
first words of an order have hardly any context. The others all have the number 0, so the order among them does not
matter. The words are chosen like those for masking (masking.py), so whole words and spans are possible, too. Special
tokens are always context.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Self

import numpy as np

from mini_bert.common.draws import draws
from mini_bert.common.inputs import check_rows
from mini_bert.common.wording import with_article
from mini_bert.layers.base import Run
from mini_bert.models.base import MASKED_WORDS, Model
from mini_bert.models.loss import LossCache, Term
from mini_bert.objectives.base import Rows, Size
from mini_bert.objectives.masked_words import MaskedWords, percent
from mini_bert.objectives.masking import Masking
from mini_bert.text.base import Tokenizer

PREDICTED = 1 / 6  # the share of the words that are predicted
PERMUTED = 5  # the stream of random numbers; masking.py has 0 to 4


class Batch(NamedTuple):
    """Sequences, the order in which their words are predicted, and the words of its last part."""

    input_ids: np.ndarray  # (B,T)
    order: np.ndarray  # (B,T) 0: context; 1, 2, …: predicted first, second, …
    rows: np.ndarray  # (N,) the positions that are predicted, b·T + t
    targets: np.ndarray  # (N,) the ids there
    attention_mask: np.ndarray | None = None  # (B,T) False for padding; None: no padding
    token_type_ids: np.ndarray | None = None  # (B,T)


class Permutation(MaskedWords):
    """Cross-entropy of the last words in a random order, each predicted from those before it."""

    name = "permutation"
    targets = "predicted tokens"
    visible = 0.0  # no word sees itself
    share = PREDICTED
    masks = False

    @classmethod
    def for_tokenizer(cls, tokenizer: Tokenizer, mask_prob: float = PREDICTED, **options: Any) -> Self:
        mask_id = tokenizer.mask_id if tokenizer.mask_token else tokenizer.special_ids[0]  # nothing is masked
        masking = Masking(
            tokenizer.vocab_size, mask_id, tokenizer.special_ids, mask_prob, continues=tokenizer.continuing, **options
        )
        return cls(masking)

    @classmethod
    def missing(cls, model: Model) -> list[str]:
        """A model that ignores the order would see the words that it is to predict."""
        return [*super().missing(model), *([] if model.objective == cls.name else ["query stream"])]

    def check(self, model: Model) -> None:
        super().check(model)
        if self.missing(model):
            raise ValueError(
                f"{with_article(type(model).__name__)} cannot be trained on permutations: it has no query stream, so "
                "each token would see itself; use an XLNet, or the objective masked_words"
            )

    # ------------------------------------------------------------------ batches

    def batch(self, rows: Rows, keys: np.ndarray) -> Any:
        chosen, _ = self._masking.choose(rows.ids, keys)
        order = order_of(chosen, rows.ids.shape, keys)
        return Batch(rows.ids, order, chosen, rows.ids.ravel()[chosen], rows.mask, rows.types)

    def size(self, batch: Any) -> Size:
        if not isinstance(batch, Batch):
            raise TypeError(f"a batch is a {type(batch).__name__}, expected a Batch(input_ids, order, rows, …)")
        return Size(len(batch.input_ids), np.size(batch.input_ids), {MASKED_WORDS: len(batch.targets)})

    # ------------------------------------------------------------------ the loss

    def forward(self, model: Model, batch: Any, run: Run, count: Mapping[str, int]) -> LossCache:
        inputs = model.check_inputs(batch.input_ids, batch.attention_mask, batch.token_type_ids)
        rows, targets = check_rows(batch.rows, batch.targets, inputs.ids.shape)
        terms = [Term(MASKED_WORDS, rows, targets, count[MASKED_WORDS])]
        return model.loss_of(inputs._replace(order=np.asarray(batch.order)), terms, run)[1]

    def start_record(self, counts: np.ndarray, log_frequencies: np.ndarray) -> dict[str, Any]:
        record = super().start_record(counts, log_frequencies)
        return record | {"predicted": record.pop("mask_prob")}

    def word_model(self, model: Model) -> Model | None:
        return None

    @property
    def summary(self) -> str:
        return (
            f"Trained to predict {percent(self.predicted)} of the words{self._units} in a random order, each from the "
            "rest of the text and those before it in that order."
        )


def order_of(chosen: np.ndarray, shape: tuple[int, ...], keys: np.ndarray) -> np.ndarray:
    """The place of each token in the order of prediction, (B,T): 1, 2, … for the chosen ones, 0 for all others."""
    T = shape[1]
    score = np.zeros(shape, np.uint64)
    own = keys[chosen // T]
    score.ravel()[chosen] = draws(own, PERMUTED, chosen % T) | np.uint64(1)  # above 0: after all others
    order = np.empty(shape, np.int64)
    np.put_along_axis(order, np.argsort(score, axis=1, kind="stable"), np.arange(T)[None], 1)
    return np.where(score > 0, order - (score == 0).sum(1, keepdims=True) + 1, 0)
