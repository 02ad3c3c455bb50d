"""Replaced-token detection: a small model fills gaps with plausible words, a larger one finds them (ELECTRA).

    the  cat    sat on the mat         original
    the [MASK]  sat on the [MASK]      the generator predicts the masked words …
    the  dog    sat on the mat         … and gaps are filled by sampling from its predictions
     0    1      0   0  0   0          the discriminator says of every token: was it replaced?

    loss = MLM of the generator + 50 · binary cross-entropy of the discriminator, over all real tokens

Of the 15 % of words that are chosen, 85 % are masked and 15 % stay visible, as in the authors' code; all of them are
predicted and sampled. The visible ones are worth a lot to a small generator: it learns to copy them first, which gives
every word a vector that the output head can read, and only then has attention to other words something to carry.
Without them, a small generator stays at word frequencies for thousands of steps.

A chosen word that the generator guessed right counts as original. Both models are trained at the same time, and no
gradient flows through the sampling: the generator learns to predict words, not to deceive (Clark et al. 2020). So the
passes are independent once the words are drawn, and the generator's backward pass is done before the discriminator's
forward pass begins. The factor 50 compensates that a binary loss is small: ln 2 at most for a fair guess, where the
generator's begins near ln V. With Adam, whose steps hardly depend on the size of gradients, it mainly decides that the
tables that both models share follow the discriminator more than the generator. That can stop both
(docs/decisions/0013), so `mini-bert train` gives a new model the factor 0.02, with which the tables follow the
generator, as in DeBERTa v3.

Samples are drawn by inverting the cumulative distribution: word v is drawn if c_{v−1} ≤ u < c_v, where c_v = p_0 + … +
p_v and u is a uniform random number for each sequence and token (common/draws.py). So the same batch and weights give
the same words, on any thread.

**Which part is "the loss"?** The generator's, because it means the same at every step. That of the discriminator
depends on its opponent: while the generator improves, the task gets harder, so it may rise although the discriminator
gets better. It is recorded as `replaced_loss` and `replaced_accuracy`. Compare the accuracy with always saying
"original", which is right for about 90 % of the tokens.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from mini_bert.common.draws import draws, uniform
from mini_bert.common.inputs import check_rows
from mini_bert.common.values import check_positive_number
from mini_bert.layers.base import Run
from mini_bert.layers.cross_entropy import CrossEntropyCache
from mini_bert.models.base import MASKED_WORDS, REPLACED, Inputs, Model
from mini_bert.models.loss import LossCache, Term
from mini_bert.models.pairs import PairConfig
from mini_bert.models.sizes import Sizes
from mini_bert.objectives.base import Part, Predictions, Rows, Size, part_of, predictions_of
from mini_bert.objectives.masked_words import MaskedWords, masking_for, percent, word_shares
from mini_bert.objectives.masking import Masking
from mini_bert.text.base import Tokenizer

WEIGHT, FOR_NEW = 50.0, 0.02  # of the discriminator's loss: published, and for a new model
TO_MASK = 0.85  # of the chosen words; the others stay as they are
SAMPLED = 6  # the stream of random numbers; masking.py has 0 to 4
GENERATOR = 1 << 30  # a number for the generator's own dropout, larger than that of any block
AT_A_TIME = 64  # rows whose cumulative distribution is computed together


class Batch(NamedTuple):
    """Masked sequences, and the random keys with which gaps are filled."""

    input_ids: np.ndarray  # (B,T) with masked words
    rows: np.ndarray  # (N,) the chosen positions, b·T + t
    targets: np.ndarray  # (N,) the original ids there
    attention_mask: np.ndarray | None = None  # (B,T) False for padding; None: no padding
    token_type_ids: np.ndarray | None = None  # (B,T)
    keys: np.ndarray | None = None  # (B,) random keys


class ReplacedTokens(MaskedWords):
    """The generator's cross-entropy at the masked tokens, plus 50 times that of "was it replaced?" at every token.

    A model has the head REPLACED and a `generator`, which is a model with the head MASKED_WORDS.
    """

    name = "replaced_tokens"
    heads = (REPLACED,)
    visible = 1 - TO_MASK
    owners: ClassVar = {"": "generator", REPLACED: "discriminator"}
    options: ClassVar = (*MaskedWords.options, "replaced_weight")

    def __init__(self, masking: Masking | None = None, weight: float = WEIGHT):
        super().__init__(masking)
        check_positive_number("replaced_weight", weight)
        self.weight = weight

    @classmethod
    def for_tokenizer(cls, tokenizer: Tokenizer, replaced_weight: float = WEIGHT, **options: Any) -> Self:
        return cls(masking_for(tokenizer, **{"mask_prob": cls.share, **options}), replaced_weight)

    @property
    def arguments(self) -> dict[str, Any]:
        return super().arguments | {"replaced_weight": self.weight}

    @classmethod
    def missing(cls, model: Model) -> list[str]:
        return [*super().missing(model), *([] if getattr(model, "generator", None) is not None else ["generator"])]

    def check(self, model: Model) -> None:
        super().check(model)
        if self.missing(model):
            raise ValueError(
                f"this {type(model).__name__} has no generator to fill the gaps with; build it from a config that has "
                "one: config.with_generator()"
            )

    # ------------------------------------------------------------------ batches

    def batch(self, rows: Rows, keys: np.ndarray) -> Any:
        masked, targets, positions = self._masking(rows.ids, keys, TO_MASK, TO_MASK)
        return Batch(masked, positions, targets, rows.mask, rows.types, keys)

    def size(self, batch: Any) -> Size:
        if not isinstance(batch, Batch):
            raise TypeError(f"a batch is a {type(batch).__name__}, expected a Batch(input_ids, rows, targets, …)")
        tokens = np.size(batch.input_ids)
        real = tokens if batch.attention_mask is None else int(np.sum(batch.attention_mask))
        return Size(len(batch.input_ids), tokens, {MASKED_WORDS: len(batch.targets), REPLACED: real})

    # ------------------------------------------------------------------ the loss

    def loss(self, model: Any, batch: Any, run: Run, count: Mapping[str, int]) -> dict[str, Part]:
        filling, inputs = self._fill(model, batch, run, count)
        words, sampled = filling.parts()[MASKED_WORDS], self._sample(filling, batch)
        parts = {MASKED_WORDS: part_of(*words)}
        model.generator.loss_backward(filling, run=run)
        del filling, words
        finding = self._find(model, batch, inputs, sampled, run, count)
        parts[REPLACED] = part_of(*finding.parts()[REPLACED])
        model.loss_backward(finding, run=run)
        return parts

    def predictions(self, model: Any, batch: Any, run: Run) -> dict[str, Predictions]:
        count = self.size(batch).targets
        if not count[MASKED_WORDS]:
            return {}
        filling, inputs = self._fill(model, batch, run, count)
        sampled, found = self._sample(filling, batch), predictions_of(*filling.parts()[MASKED_WORDS])
        del filling
        finding = self._find(model, batch, inputs, sampled, run, count)
        return {MASKED_WORDS: found, REPLACED: predictions_of(*finding.parts()[REPLACED])}

    def _fill(self, model: Any, batch: Batch, run: Run, count: Mapping[str, int]) -> tuple[LossCache, Inputs]:
        """The generator's forward pass."""
        inputs = model.check_inputs(batch.input_ids, batch.attention_mask, batch.token_type_ids)
        rows, targets = check_rows(batch.rows, batch.targets, inputs.ids.shape)
        terms = [Term(MASKED_WORDS, rows, targets, count[MASKED_WORDS])]
        return model.generator.loss_of(inputs, terms, run.fork(GENERATOR))[1], inputs

    def _sample(self, filling: LossCache, batch: Batch) -> np.ndarray:
        """A word for each masked position, (N,)"""
        T, keys = np.shape(batch.input_ids)[1], batch.keys
        if keys is None:
            raise ValueError("a batch has no keys to draw words with; expected a random key for each sequence")
        u = uniform(draws(keys[batch.rows // T], SAMPLED, batch.rows % T))
        return sample(filling.parts()[MASKED_WORDS][1], u)

    def _find(
        self, model: Any, batch: Batch, inputs: Inputs, sampled: np.ndarray, run: Run, count: Mapping[str, int]
    ) -> LossCache:
        """The discriminator's forward pass on the text with filled gaps."""
        ids, labels = inputs.ids.copy(), np.zeros(inputs.ids.size, np.int64)
        ids.ravel()[batch.rows] = sampled
        labels[batch.rows] = sampled != batch.targets
        real = None if batch.attention_mask is None else np.flatnonzero(batch.attention_mask)
        term = Term(REPLACED, real, labels if real is None else labels[real], count[REPLACED], self.weight)
        return model.loss_of(inputs._replace(ids=ids), [term], run)[1]

    # ------------------------------------------------------------------ what it is compared with, and starts from

    def uniform_losses(self, model: Model) -> dict[str, float]:
        return {MASKED_WORDS: math.log(model.vocab_size), REPLACED: math.log(2)}

    def start(self, model: Any, counts: np.ndarray) -> None:
        model.generator.start_words(word_shares(counts))

    def word_model(self, model: Any) -> Model | None:
        return model.generator

    @classmethod
    def adapted(cls, config: Any) -> Any:
        """A config without a generator gets one of the usual sizes, if the architecture has pairs."""
        return config.with_generator() if isinstance(config, PairConfig) and config.generator is None else config

    @classmethod
    def sizes(cls, model: Sizes, **options: Any) -> Sizes:
        before = None if model.before is None else super().sizes(model.before, **options)
        return model._replace(predicted=1.0, before=before)

    def note(self, model: Model) -> str:
        return (
            "two models are trained: the generator predicts masked words, and the discriminator, the model to keep, "
            "says of every token whether the generator replaced it; each has a loss of its own"
        )

    @property
    def summary(self) -> str:
        return (
            f"Trained to find replaced words: a generator, trained at the same time, fills in "
            f"{percent(self.predicted)} of the words{self._units}, and the model, the discriminator, says of every "
            "token whether it is the original.\nThe generator is in the folder `generator`. Its loss is that of "
            'predicting the masked words, the discriminator\'s that of yes or no. Always saying "original" would be '
            f"right for at least {percent(1 - self.predicted)} of the tokens."
        )


def sample(entropy: CrossEntropyCache, u: np.ndarray) -> np.ndarray:
    """The class v of each row with c_{v−1} ≤ u < c_v; c: the cumulative probabilities.        u (N,) -> (N,)"""
    drawn = np.empty(len(u), np.int64)
    for low in range(0, len(u), AT_A_TIME):
        own = slice(low, low + AT_A_TIME)
        below = np.cumsum(entropy.exp[own], axis=1, dtype=np.float64)  # (n,V)
        drawn[own] = (below <= u[own, None] * below[:, -1:]).sum(1)
    return np.minimum(drawn, entropy.exp.shape[1] - 1)  # NaN: a word that exists, until the loop notices
