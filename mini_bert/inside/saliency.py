"""Saliency: which words does an answer depend on? Gradient × input, computed by our own backward.

Take a scalar output s, such as the log-probability of a masked word or of a class. Backward gives the gradient of s at
the input vector of each token; its product with the token's embedding is the token's saliency:

    s = log p(word | the others)          g_t = ∂s/∂x_t  (H,)          saliency_t = g_t · E[id_t]

If the embedding is scaled by 1 + ε, s changes by ε · saliency_t: to first order, a positive token supports the answer
and a negative one opposes it. (Only the token embedding is multiplied, not the position embedding added to it. The idea
is from Simonyan et al. 2014 and Li et al. 2016, the product from Shrikumar et al. 2017.) Unlike attention, saliency
explains one answer and covers every path to it: all heads, layers, residual connections and feed-forward networks. But
it is a gradient at one point: a word whose effect is saturated may have none, and words with the same meaning share it.

    result = word_saliency(model, tokenizer, ids, [6])[0]      masks token 6 and explains the model's prediction for it
    result.of, result.value, result.scores
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from mini_bert.evaluation.likelihood import way_of
from mini_bert.layers.base import Layer, Run
from mini_bert.layers.cross_entropy import cross_entropy, cross_entropy_backward
from mini_bert.models.base import MASKED_WORDS, NEXT_WORD, REPLACED, Inputs, Model

if TYPE_CHECKING:
    from mini_bert.finetuning.model import FineTuned
    from mini_bert.text.base import Tokenizer

# (model, hidden states (B,T,H) or chosen rows (N,H), run) -> a scalar for each sequence (B,), and its gradient dy
Scalar = Callable[[Any, np.ndarray, Run], tuple[np.ndarray, np.ndarray]]
TOKENS = 1024  # per batch, for the saliency of many words


class Saliency(NamedTuple):
    of: str  # describes the scalar, such as "log p(cat) at token 3, masked"
    position: int | None  # of its token; None: it belongs to the whole text
    value: float  # of the scalar
    tokens: list[str]  # the model's input
    scores: np.ndarray  # (T,) saliency of each token


def gradient_times_input(
    model: Model, ids: Any, scalar: Scalar, mask: Any = None, types: Any = None, chosen: Any = None
) -> tuple[np.ndarray, np.ndarray]:
    """Returns s (B,) and the saliency of each token (B,T).

    A replica is used (and passed to `scalar`), so the model's own gradients do not change.
    """
    return gradient_times_inputs(model, model.check_inputs(ids, mask, types), scalar, chosen)


def gradient_times_inputs(
    model: Model, inputs: Inputs, scalar: Scalar, chosen: Any = None
) -> tuple[np.ndarray, np.ndarray]:
    """The same for inputs that are already checked, in which words may be hidden (`Model.hide`)."""
    twin, run = model.replica(), Run()
    y, cache = twin.encode_inputs(inputs, run, chosen)
    values, dy = scalar(twin, y, run)
    dx = twin.encode_backward(dy, cache, run)  # (B,T,H) at the sum of the embeddings
    return values, np.vecdot(dx, twin.embed_tokens(inputs.ids))


# ---------------------------------------------------------------------- scalars


def head_log_probability(head: str, targets: Sequence[int] | np.ndarray, at: np.ndarray | None = None) -> Scalar:
    """s_n = log p(targets[n]) by an output head of the model, at the n-th chosen row, one row per sequence.

    at: the rows, for a head that reads whole sequences (`Model.sequence_heads`), which are then not chosen before
    """
    targets = np.asarray(targets)

    def scalar(model: Any, y: np.ndarray, run: Run) -> tuple[np.ndarray, np.ndarray]:  # y (N,H) or (B,T,H)
        scores, cache = model.score(head, y, run, at)  # (N,C)
        values, dscores = _log_softmax(scores, targets)
        return values, model.score_backward(head, dscores, cache, run).reshape(y.shape)

    return scalar


def word_log_probability(targets: Sequence[int] | np.ndarray) -> Scalar:
    """s_n = log p(targets[n]) of masked words, at the n-th chosen row, one row per sequence."""
    return head_log_probability(MASKED_WORDS, targets)


def class_log_probability(labels: Sequence[int] | np.ndarray, head: Layer | None = None, **inputs: Any) -> Scalar:
    """s_b = log p(labels[b]) by a head that maps y (B,T,H), and possibly more inputs, to scores (B,C).

    Default head: that of a fine-tuned model, `model.task`. Backward adds to the gradients of a head passed here.
    """
    labels = np.asarray(list(labels))

    def scalar(model: Any, y: np.ndarray, run: Run) -> tuple[np.ndarray, np.ndarray]:
        used = head or model.task
        scores, cache = used.forward(y, run, **inputs)
        values, dscores = _log_softmax(scores, labels)
        return values, used.backward(dscores, cache, run)

    return scalar


def _log_softmax(scores: np.ndarray, targets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns log softmax(scores)[target] of each row (N,), and the gradient of their sum at the scores (N,C)."""
    chosen = scores[np.arange(len(targets)), targets] - scores.max(-1)
    _, entropy = cross_entropy(scores, targets, count=1)  # Σ −log p
    return chosen - np.log(entropy.sums[:, 0]), cross_entropy_backward(-1.0, entropy)  # not np.log(p): it may underflow


# ---------------------------------------------------------------------- words


class Question(NamedTuple):
    """What is asked about some tokens of a text, one sequence for each."""

    inputs: Inputs  # B sequences
    rows: np.ndarray  # (B,) the rows of the answers
    targets: np.ndarray  # (B,)
    shown: np.ndarray  # (B,T) the ids as the model sees them
    of: list[str]  # (B,) descriptions of the scalars


def word_saliency(
    model: Model,
    tokenizer: Tokenizer,
    ids: Sequence[int] | np.ndarray,
    positions: Sequence[int],
    types: Any = None,
    after_each: Callable[[int], None] | None = None,
) -> list[Saliency]:
    """Which tokens does the probability of a word depend on? Asks about each of these positions of one text in turn.

    A model of masked words gets the word masked; if the text itself has a mask there, the word is the model's top
    prediction. A model of the next word predicts it from those before it. A discriminator (ELECTRA) sees all words, and
    says how likely it is that this one was not replaced.
    """
    ids = np.asarray(ids)
    T = ids.size
    head = way_of(model)
    wrong = next((position for position in positions if not 0 <= position < T), None)
    if wrong is not None:
        raise ValueError(f"there is no token {wrong}; the text has tokens 0 to {T - 1}")
    if min(positions, default=T) < first_position(model):
        raise ValueError("nothing comes before token 0, so this model does not predict it; choose a later token")
    every = max(1, TOKENS // T)
    results: list[Saliency] = []
    for start in range(0, len(positions), every):
        places = np.asarray(positions[start : start + every], int)
        repeated = None if types is None else np.tile(np.asarray(types), (places.size, 1))
        inputs = model.check_inputs(np.tile(ids, (places.size, 1)), None, repeated)
        asked = QUESTIONS[head](model, tokenizer, inputs, places)
        whole = head in model.sequence_heads
        scalar = head_log_probability(head, asked.targets, asked.rows if whole else None)
        values, scores = gradient_times_inputs(model, asked.inputs, scalar, None if whole else asked.rows)
        for row, place in enumerate(places.tolist()):
            tokens = [tokenizer.readable(i) for i in asked.shown[row]]
            results.append(Saliency(asked.of[row], place, float(values[row]), tokens, scores[row]))
        if after_each is not None:
            after_each(len(results))
    return results


def first_position(model: Model) -> int:
    """The first token of a text that the model predicts."""
    return 1 if way_of(model) == NEXT_WORD else 0


def _masked(model: Model, tokenizer: Tokenizer, inputs: Inputs, places: np.ndarray) -> Question:
    B, T = inputs.ids.shape
    rows = np.arange(B) * T + places
    masked = inputs.ids == tokenizer.mask_id
    own = masked.reshape(-1)[rows]  # the text has a mask there
    masked.reshape(-1)[rows] = True
    hidden = model.hide(inputs, np.flatnonzero(masked), tokenizer.mask_id)
    targets = np.where(own, 0, inputs.ids.reshape(-1)[rows])
    if own.any():
        targets = np.where(own, _top_prediction(model, tokenizer, hidden, rows), targets)
    how = ["the top prediction" if mask else "masked" for mask in own]
    of = [
        f"log p({tokenizer.readable(i)}) at token {place}, {why}"
        for i, place, why in zip(targets, places, how, strict=True)
    ]
    return Question(hidden, rows, targets, np.where(masked, tokenizer.mask_id, inputs.ids), of)


def _next(model: Model, tokenizer: Tokenizer, inputs: Inputs, places: np.ndarray) -> Question:
    B, T = inputs.ids.shape
    targets = inputs.ids[np.arange(B), places]
    of = [
        f"log p({tokenizer.readable(i)}) at token {place}, given those before it"
        for i, place in zip(targets, places, strict=True)
    ]
    return Question(inputs, np.arange(B) * T + places - 1, targets, inputs.ids, of)


def _original(model: Model, tokenizer: Tokenizer, inputs: Inputs, places: np.ndarray) -> Question:
    B, T = inputs.ids.shape
    words = [tokenizer.readable(i) for i in inputs.ids[np.arange(B), places]]
    of = [f"log p({word} at token {place} was not replaced)" for word, place in zip(words, places, strict=True)]
    return Question(inputs, np.arange(B) * T + places, np.zeros(B, int), inputs.ids, of)


QUESTIONS: dict[str, Callable[[Model, Any, Inputs, np.ndarray], Question]] = {
    MASKED_WORDS: _masked, NEXT_WORD: _next, REPLACED: _original,
}  # fmt: skip


def _top_prediction(model: Model, tokenizer: Tokenizer, inputs: Inputs, rows: np.ndarray) -> np.ndarray:
    y, _ = model.encode_inputs(inputs, Run(), rows)
    scores = model.score(MASKED_WORDS, y, Run())[0][:, : tokenizer.vocab_size].copy()
    scores[:, list(tokenizer.special_ids)] = -np.inf
    return scores.argmax(-1)


# ---------------------------------------------------------------------- classes


def class_saliency(tuned: FineTuned, text: str, second: str | None = None, label: str | None = None) -> list[Saliency]:
    """For a model fine-tuned to classify: the saliency of `label` (default: the prediction), then of the others."""
    from mini_bert.data.labelled.readers import Labelled
    from mini_bert.finetuning.tasks.base import summary_places
    from mini_bert.finetuning.tasks.classify import seen_by

    model, task, tokenizer, length = tuned
    if task.name != "classify":
        raise ValueError(f"this model is fine-tuned for {task.name!r}, but labels need a model fine-tuned to classify")
    if label is not None and label not in task.labels:
        raise ValueError(f"there is no label {label!r}; this model has {', '.join(task.labels)}")
    if task.pairs and second is None:
        raise ValueError("this model compares two texts, but only one was given; give the other with --second")
    item = task.items([Labelled(text, second, "", 1)], tokenizer, length, training=False)[0]
    C = len(task.labels)
    batch = task.batch([item] * C, tokenizer.padding, known=False)
    scalar = class_log_probability(range(C), asked=seen_by(model.task, batch), summary=summary_places(model, batch))
    values, scores = gradient_times_input(model, batch.ids, scalar, types=batch.types)
    answer = int(values.argmax())
    first = answer if label is None else task.labels.index(label)
    tokens = [tokenizer.readable(i) for i in item.ids]
    return [
        Saliency(
            f"log p({task.labels[number]})" + (", the predicted label" if number == answer else ""),
            None,
            float(values[number]),
            tokens,
            scores[number],
        )
        for number in (first, *(number for number in range(C) if number != first))
    ]


def default_position(tokenizer: Tokenizer, ids: Sequence[int] | np.ndarray) -> int:
    """The position to explain by default: the first mask, else the last word that contains a letter.

    >>> from mini_bert.text.wordpiece import SPECIAL_TOKENS, WordPieceTokenizer
    >>> tokenizer = WordPieceTokenizer([*SPECIAL_TOKENS, "the", "cat", "sat", "."])
    >>> default_position(tokenizer, tokenizer.encode("the cat sat."))
    3
    >>> default_position(tokenizer, tokenizer.encode("the [MASK] sat."))
    2
    """
    ids = [int(i) for i in ids]
    if tokenizer.mask_token is not None and tokenizer.mask_id in ids:
        return ids.index(tokenizer.mask_id)
    inner = [place for place, role in enumerate(tokenizer.added_roles(ids)) if not role]
    words = [place for place in inner if ids[place] not in tokenizer.special_ids]
    lettered = [place for place in words if any(map(str.isalpha, tokenizer.piece_text(ids[place])))]
    if not inner:
        raise ValueError(f"the text {tokenizer.decode(ids)!r:.80} has no words; give a text with at least one word")
    return (lettered or inner)[-1]


def find_word(tokenizer: Tokenizer, ids: Sequence[int] | np.ndarray, word: str) -> int:
    """The position of a token, given as text or as a number.

    >>> from mini_bert.text.wordpiece import SPECIAL_TOKENS, WordPieceTokenizer
    >>> tokenizer = WordPieceTokenizer([*SPECIAL_TOKENS, "the", "cat"])
    >>> ids = tokenizer.encode("the cat")
    >>> find_word(tokenizer, ids, "Cat"), find_word(tokenizer, ids, "1")
    (2, 1)
    """
    tokens, roles = [tokenizer.readable(i) for i in ids], tokenizer.added_roles(ids)
    spelt = tokenizer.split_ids([word])[0]  # as in a text: lower-case, for example
    texts = {word, *(tokenizer.piece_text(i) for i in spelt if len(spelt) == 1 and i not in tokenizer.special_ids)}
    same = [place for place, i in enumerate(ids) if word in (tokens[place], tokenizer.tokens[i])]
    named = same or [place for place, i in enumerate(ids) if not roles[place] and tokenizer.piece_text(int(i)) in texts]
    if len(named) == 1:
        return named[0]
    if word.isdecimal() and not named and int(word) < len(tokens) and not roles[int(word)]:
        return int(word)
    listed = " ".join(f"{place}:{token}" for place, token in enumerate(tokens))
    problem = f"occurs {len(named)} times in the text" if named else "is not a token of the text"
    raise ValueError(f"{word!r} {problem}; give the number of a token: {listed}")
