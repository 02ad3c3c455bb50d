"""Distillation: a small model learns from a large one, its teacher, besides the text (DistilBERT).

    loss = (2 · MLM + 5 · soft + 1 · hidden) / 8

    MLM      cross-entropy of the masked words                                  what was there?
    soft     τ² KL(teacher ‖ student) of the words' distributions, at τ = 2     what else could have been there?
    hidden   1 − cos(student's vector, teacher's vector), where both are of the same width

**All three are learnt at the masked tokens only**, and are means over these. The published training compares
distributions and vectors at every token. But where a token is visible, the teacher's distribution says little more than
that token, and 15 % of the rows take 15 % of the memory and time of two heads over all words. The weights are those of
the published DistilBERT (Sanh et al. 2019), whose training has them in the ratio 2 : 5 : 1, divided by their sum.
layers/soft_cross_entropy.py explains the second part, layers/similarity.py the cosine.

The teacher is any model that predicts masked words with the same vocabulary. It runs forward only, without dropout, on
the same inputs. All threads share its weights. Its folder is part of the run's description, and a checksum of its
weights part of the position in the data, so that a run can only be resumed with the same teacher.

`first_weights` starts a student with layers of its teacher: DistilBERT with six layers takes 0, 2, 4, 7, 9 and 11 of
twelve, evenly spaced from the first to the last.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np

from mini_bert.common.inputs import check_rows
from mini_bert.common.values import check_positive_number
from mini_bert.common.wording import with_article
from mini_bert.files.model_folder import locate, read_config
from mini_bert.layers.base import Run
from mini_bert.layers.cross_entropy import CrossEntropyCache, cross_entropy, cross_entropy_backward
from mini_bert.layers.similarity import cosine, cosine_backward
from mini_bert.layers.soft_cross_entropy import (
    SoftCrossEntropyCache,
    soft_cross_entropy,
    soft_cross_entropy_backward,
)
from mini_bert.models.base import MASKED_WORDS, Model
from mini_bert.models.cache import EncodeCache
from mini_bert.models.loss import ScoreCache
from mini_bert.models.registry import load_config, model_class
from mini_bert.models.sizes import Sizes
from mini_bert.objectives.base import Part, Predictions, Size, part_of, predictions_of
from mini_bert.objectives.masked_words import Batch, MaskedWords, masking_for
from mini_bert.objectives.masking import Masking
from mini_bert.text.base import Tokenizer

SOFT_TARGETS, HIDDEN_STATES = "soft_targets", "hidden_states"  # parts of the loss
WEIGHTS = {MASKED_WORDS: 2 / 8, SOFT_TARGETS: 5 / 8, HIDDEN_STATES: 1 / 8}
TEMPERATURE, LOWEST, HIGHEST = 2.0, 0.01, 1000
WITHOUT = "leave out --init-from-teacher to start from random weights"  # a remedy, in messages
BLOCK = re.compile(r"encoder\.blocks\.(\d+)\.")


class DistillationCache(NamedTuple):
    encoded: EncodeCache
    scores: ScoreCache
    words: tuple[float, CrossEntropyCache]
    soft: tuple[float, SoftCrossEntropyCache]
    hidden: tuple[float, Any] | None  # None: the widths differ
    guesses: np.ndarray  # (N,) the teacher's


class Distillation(MaskedWords):
    """Masked words, the teacher's distribution over words, and its vectors, all at the masked tokens."""

    name = "distillation"
    options = (*MaskedWords.options, "teacher", "temperature")

    def __init__(self, masking: Masking | None, teacher: Model, temperature: float = TEMPERATURE, source: str = ""):
        """source: where the teacher comes from, for the model card"""
        super().__init__(masking)
        check_positive_number("temperature", temperature)
        if not LOWEST <= temperature <= HIGHEST:
            raise ValueError(
                f"temperature is {temperature:g}, expected from {LOWEST} (only the teacher's first guess counts) to "
                f"{HIGHEST:,} (all words are alike)"
            )
        teacher.output_head(MASKED_WORDS)
        self.teacher, self.temperature, self.source = teacher, temperature, source or type(teacher).__name__
        self.digest = hashlib.sha256(teacher.flat.data.tobytes()).hexdigest()

    @classmethod
    def for_tokenizer(
        cls, tokenizer: Tokenizer, teacher: str = "", temperature: float = TEMPERATURE, **options: Any
    ) -> Self:
        """teacher: a model folder"""
        model = load_teacher(teacher)  # first: its error explains why its tokenizer has no mask token
        return cls(masking_for(tokenizer, **options), model, temperature, folder_name(teacher))

    @property
    def arguments(self) -> dict[str, Any]:
        return super().arguments | {"teacher": self.digest, "temperature": self.temperature}

    def check(self, model: Model) -> None:
        super().check(model)
        if model.vocab_size != self.teacher.vocab_size:
            raise ValueError(
                f"the student has {model.vocab_size:,} words, but its teacher, {self.source}, has "
                f"{self.teacher.vocab_size:,}; both need the same vocabulary"
            )

    def compares_vectors(self, model: Model) -> bool:
        return model.width == self.teacher.width

    def size(self, batch: Batch) -> Size:
        size = super().size(batch)
        count = size.targets[MASKED_WORDS]
        return size._replace(targets={name: count for name in (MASKED_WORDS, SOFT_TARGETS, HIDDEN_STATES)})

    # ------------------------------------------------------------------ the loss

    def loss(self, model: Model, batch: Batch, run: Run, count: Mapping[str, int]) -> dict[str, Part]:
        cache = self._compare(model, batch, run, count[MASKED_WORDS])
        parts, (soft_loss, soft), N = {MASKED_WORDS: part_of(*cache.words)}, cache.soft, len(cache.guesses)
        agreed = int((soft.p.argmax(-1) == cache.guesses).sum())
        parts[SOFT_TARGETS] = Part(float(soft_loss), agreed, N)
        if cache.hidden is not None:
            parts[HIDDEN_STATES] = Part(float(cache.hidden[0]), None, N)

        words = cache.words[1]
        dscores = cross_entropy_backward(WEIGHTS[MASKED_WORDS], words, out=words.exp)
        dscores += soft_cross_entropy_backward(WEIGHTS[SOFT_TARGETS], soft, out=soft.p)
        dhidden = model.score_backward(MASKED_WORDS, dscores, cache.scores, run)  # (N,H)
        if cache.hidden is not None:  # hidden = Σ (1 − c) / count
            dc = np.full(N, -WEIGHTS[HIDDEN_STATES] / count[HIDDEN_STATES], dhidden.dtype)
            dhidden += cosine_backward(dc, cache.hidden[1])[0]
        encoded = cache.encoded
        del words, soft, dscores, cache  # the blocks reuse their memory
        model.encode_backward(dhidden, encoded, run)
        return parts

    def predictions(self, model: Model, batch: Batch, run: Run) -> dict[str, Predictions]:
        """Masked words, and how often the student's first guess is the teacher's."""
        N = len(batch.targets)
        if not N:
            return {}
        cache = self._compare(model, batch, run, N)
        loss, words = cache.words
        agreement = predictions_of(cache.soft[0], words._replace(targets=cache.guesses))
        return {MASKED_WORDS: predictions_of(loss, words), SOFT_TARGETS: agreement}

    def _compare(self, model: Model, batch: Batch, run: Run, count: int) -> DistillationCache:
        """The forward passes of teacher and student."""
        given = batch.input_ids, batch.attention_mask, batch.token_type_ids
        inputs = model.check_inputs(*given)
        rows, targets = check_rows(batch.rows, batch.targets, inputs.ids.shape)
        still, teacher = Run(pool=run.pool), self.teacher  # without dropout
        wanted, _ = teacher.encode_inputs(teacher.asking(teacher.check_inputs(*given), rows), still, rows)  # (N,H)
        answers, _ = teacher.score(MASKED_WORDS, wanted, still)  # (N,V)
        guesses = answers.argmax(-1)

        hidden, encoded = model.encode_inputs(inputs, run, rows)  # (N,H)
        scores, scored = model.score(MASKED_WORDS, hidden, run)  # (N,V)
        answers = answers.astype(scores.dtype, copy=False)
        soft = soft_cross_entropy(scores, answers, self.temperature, count, out=answers)
        del answers
        words = cross_entropy(scores, targets, count, out=scores)
        vectors = None
        if self.compares_vectors(model):
            c, compared = cosine(hidden, wanted.astype(hidden.dtype, copy=False))
            vectors = ((1 - c).sum() / count, compared)
        return DistillationCache(encoded, scored, words, soft, vectors, guesses)

    # ------------------------------------------------------------------ for the memory planner and the model card

    @classmethod
    def sizes(cls, model: Sizes, **options: Any) -> Sizes:
        found = super().sizes(model, **options)
        teacher = load_config(locate(options["teacher"])).sizes()
        held = 4 * teacher.parameters
        teacher = teacher._replace(max_length=model.max_length, predicted=found.predicted)
        return found._replace(before=teacher, held=held, more_scores=3)

    def note(self, model: Model) -> str:
        vectors = "the vectors of teacher and student are compared, too" if self.compares_vectors(model) else (
            "the vectors of teacher and student are not compared, because their widths are "
            f"{self.teacher.width} and {model.width}"
        )  # fmt: skip
        return f"teacher: {self.source}, with {self.teacher.get_parameter_count():,} parameters; {vectors}"

    @property
    def summary(self) -> str:
        return (
            f"{super().summary}\nAlso trained to agree with its teacher, {self.source}: with its distribution over "
            f"words at temperature {self.temperature:g}, and with its vectors if they are of the same width."
        )


def load_teacher(folder: str) -> Model:
    """The model in a folder, which must predict masked words."""
    if not folder:
        raise ValueError("distillation needs a teacher: give its folder with --teacher")
    found = locate(folder)
    teacher = model_class(read_config(found)).from_pretrained(found)
    if MASKED_WORDS not in teacher.output_heads:
        raise ValueError(
            f"{folder} cannot be a teacher: its {type(teacher).__name__} does not predict masked words, its output "
            f"heads are {', '.join(teacher.output_heads) or 'none'}; choose a masked language model"
        )
    return teacher


def folder_name(folder: str) -> str:
    """A short name for a model folder. That of a run's best model is `model`, so the run's is added.

    >>> folder_name("/home/me/runs/first/model"), folder_name("/home/me/bert-base")
    ('first/model', 'bert-base')
    """
    path = Path(folder)
    return f"{path.parent.name}/{path.name}" if path.name == "model" and path.parent.name else path.name or folder


def first_weights(student: Model, teacher: Model) -> list[str]:
    """Copy the teacher's weights into a student: its layers, evenly spaced from the first to the last, and all other
    weights that have the same name and shape. Returns the names of the student's weights that have no counterpart."""
    chosen = layers_of_teacher(student.depth, teacher.depth)
    theirs, new = teacher.named_params(), []
    for name, param in student.named_params().items():
        source = theirs.get(BLOCK.sub(lambda found: f"encoder.blocks.{chosen[int(found[1])]}.", name))
        if source is not None and source.shape == param.shape:
            param.data[...] = source.data
        else:
            new.append(name)
    if any(BLOCK.match(name) for name in new):
        raise ValueError(
            f"the blocks of {with_article(type(student).__name__)} of width {student.width} cannot start with those of "
            f"its teacher, {with_article(type(teacher).__name__)} of width {teacher.width}: their weights differ in "
            f"name or shape; {WITHOUT}, or choose a teacher with the same kind of blocks"
        )
    return new


def layers_of_teacher(student: int, teacher: int) -> list[int]:
    """
    >>> layers_of_teacher(6, 12), layers_of_teacher(2, 3), layers_of_teacher(1, 3)
    ([0, 2, 4, 7, 9, 11], [0, 2], [0])
    """
    if student > teacher:
        raise ValueError(
            f"the student has {student} layers, more than the {teacher} of its teacher to start from; {WITHOUT}, or "
            f"choose a student with at most {teacher} layers"
        )
    return [round(layer * (teacher - 1) / max(student - 1, 1)) for layer in range(student)]
