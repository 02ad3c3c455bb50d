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

from mini_bert.layers.base import Layer, Run
from mini_bert.layers.cross_entropy import cross_entropy, cross_entropy_backward
from mini_bert.models.base import MASKED_WORDS, Model

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
    twin, run = model.replica(), Run()
    ids = np.asarray(ids)
    y, cache = twin.encode(ids, mask, types, run, chosen)
    values, dy = scalar(twin, y, run)
    dx = twin.encode_backward(dy, cache, run)  # (B,T,H) at the sum of the embeddings
    return values, np.vecdot(dx, twin.embed_tokens(ids))


def word_log_probability(targets: Sequence[int] | np.ndarray) -> Scalar:
    """s_n = log p(targets[n]) at the n-th chosen row, one row per sequence."""
    targets = np.asarray(targets)

    def scalar(model: Any, y: np.ndarray, run: Run) -> tuple[np.ndarray, np.ndarray]:  # y (N,H)
        return _log_probability(model.output_head(MASKED_WORDS), y, targets, run)

    return scalar


def class_log_probability(labels: Sequence[int] | np.ndarray, head: Layer | None = None, **inputs: Any) -> Scalar:
    """s_b = log p(labels[b]) by a head that maps y (B,T,H), and possibly more inputs, to scores (B,C).

    Default head: that of a fine-tuned model, `model.task`. Backward adds to the gradients of a head passed here.
    """
    labels = np.asarray(list(labels))

    def scalar(model: Any, y: np.ndarray, run: Run) -> tuple[np.ndarray, np.ndarray]:
        return _log_probability(head or model.task, y, labels, run, **inputs)

    return scalar


def _log_probability(
    head: Layer, y: np.ndarray, targets: np.ndarray, run: Run, **inputs: Any
) -> tuple[np.ndarray, np.ndarray]:
    """Returns log softmax(head(y))[target] of each row (N,), and the gradient of their sum at y."""
    logits, cache = head.forward(y, run, **inputs)  # (N,V)
    chosen = logits[np.arange(len(targets)), targets] - logits.max(-1)
    _, entropy = cross_entropy(logits, targets, count=1)  # Σ −log p
    dy = head.backward(cross_entropy_backward(-1.0, entropy), cache, run)
    return chosen - np.log(entropy.sums[:, 0]), dy  # not np.log(p): p may underflow


def word_saliency(
    model: Model,
    tokenizer: Tokenizer,
    ids: Sequence[int] | np.ndarray,
    positions: Sequence[int],
    types: Any = None,
    after_each: Callable[[int], None] | None = None,
) -> list[Saliency]:
    """Masks each of these positions of one text in turn: which tokens does the probability of the word depend on?

    If the text itself has a mask at the position, the word is the model's top prediction.
    """
    ids = np.asarray(ids)
    T = ids.size
    wrong = next((position for position in positions if not 0 <= position < T), None)
    if wrong is not None:
        raise ValueError(f"there is no token {wrong}; the text has tokens 0 to {T - 1}")
    every = max(1, TOKENS // T)
    results: list[Saliency] = []
    for start in range(0, len(positions), every):
        places = np.asarray(positions[start : start + every], int)
        rows = np.arange(len(places))
        inputs = np.repeat(ids[None], len(places), 0)  # (B,T)
        inputs[rows, places] = tokenizer.mask_id
        token_types = None if types is None else np.repeat(np.asarray(types)[None], len(places), 0)
        chosen = rows * T + places
        masked = ids[places] == tokenizer.mask_id
        targets = np.where(masked, 0, ids[places])
        if masked.any():
            targets = np.where(masked, _top_prediction(model, tokenizer, inputs, token_types, chosen), targets)
        values, scores = gradient_times_input(
            model, inputs, word_log_probability(targets), types=token_types, chosen=chosen
        )
        for row, place in enumerate(places.tolist()):
            tokens = [tokenizer.tokens[i] for i in inputs[row]]
            word = tokenizer.tokens[targets[row]]
            how = "the top prediction" if masked[row] else "masked"
            of = f"log p({word}) at token {place}, {how}"
            results.append(Saliency(of, place, float(values[row]), tokens, scores[row]))
        if after_each is not None:
            after_each(len(results))
    return results


def class_saliency(tuned: FineTuned, text: str, second: str | None = None, label: str | None = None) -> list[Saliency]:
    """For a model fine-tuned to classify: the saliency of `label` (default: the prediction), then of the others."""
    from mini_bert.data.labelled.readers import Labelled
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
    scalar = class_log_probability(range(C), asked=seen_by(model.task, batch), summary=batch.summary)
    values, scores = gradient_times_input(model, batch.ids, scalar, types=batch.types)
    answer = int(values.argmax())
    first = answer if label is None else task.labels.index(label)
    tokens = [tokenizer.tokens[i] for i in item.ids]
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


def _top_prediction(model: Any, tokenizer: Any, ids: np.ndarray, types: Any, chosen: np.ndarray) -> np.ndarray:
    run = Run()
    y, _ = model.encode(ids, None, types, run, chosen)
    logits = model.output_head(MASKED_WORDS).forward(y, run)[0][:, : tokenizer.vocab_size].copy()
    logits[:, list(tokenizer.special_ids)] = -np.inf
    return logits.argmax(-1)


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
    tokens, roles = [tokenizer.tokens[i] for i in ids], tokenizer.added_roles(ids)
    spelt = tokenizer.split_ids([word])[0]  # as in a text: lower-case, for example
    texts = {word, *(tokenizer.piece_text(i) for i in spelt if len(spelt) == 1 and i not in tokenizer.special_ids)}
    named = [place for place, token in enumerate(tokens) if token == word] or [
        place for place, i in enumerate(ids) if not roles[place] and tokenizer.piece_text(int(i)) in texts
    ]
    if len(named) == 1:
        return named[0]
    if word.isdecimal() and not named and int(word) < len(tokens) and not roles[int(word)]:
        return int(word)
    listed = " ".join(f"{place}:{token}" for place, token in enumerate(tokens))
    problem = f"occurs {len(named)} times in the text" if named else "is not a token of the text"
    raise ValueError(f"{word!r} {problem}; give the number of a token: {listed}")
