"""Which words did an answer depend on? Gradient × input, through our own backward.

Ask a model for a number s, such as the log-probability of a hidden word, or of a class. Backward gives the gradient of
s at the vector that stands for each token; its product with the vector of the word is that token's saliency:

    s = log p(word | the others)          g_t = ∂s/∂x_t  (H,)          saliency_t = g_t · E[id_t]

Scale the word's vector by 1 + ε, and s changes by ε · saliency_t: to first order, a word with a positive number
speaks for the answer, one with a negative number against it. (Only the word's own vector is multiplied; the position
that is added to it is no property of the word. Simonyan et al. 2014 and Li et al. 2016 have the idea, Shrikumar et al.
2017 the product.) Unlike attention it is about an answer, and it follows every path from a word to it: all heads, all
layers, residual connections and feed-forward networks. But it is a slope at one point: a word that is fully accounted
for may have none, and two words that say the same share it.

    found = word_saliency(model, tokenizer, ids, [6])[0]      token 6 is hidden, and asked for
    found.of, found.value, found.scores
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
    from mini_bert.models.mini_bert import MiniBERT
    from mini_bert.text.base import Tokenizer

# A number for every sequence, and its gradient: model, y (B,T,H) or the chosen rows (N,H), run -> s (B,), dy
Scalar = Callable[[Any, np.ndarray, Run], tuple[np.ndarray, np.ndarray]]
TOKENS = 1024  # that are computed at a time, when many words are asked for


class Saliency(NamedTuple):
    of: str  # the number that was asked for, in words
    position: int | None  # the token it is about; None: the whole text
    value: float  # that number
    tokens: list[str]  # as the model read them
    scores: np.ndarray  # (T,) what each adds to it, to first order


def gradient_times_input(
    model: Model, ids: Any, scalar: Scalar, mask: Any = None, types: Any = None, chosen: Any = None
) -> tuple[np.ndarray, np.ndarray]:
    """-> s (B,) and saliency (B,T): how s of each sequence changes as the vector of a word grows

    The model's own gradients stay as they are: a replica does the work. `scalar` is handed that replica.
    """
    twin, run = model.replica(), Run()
    ids = np.asarray(ids)
    y, cache = twin.encode(ids, mask, types, run, chosen)
    values, dy = scalar(twin, y, run)
    dx = twin.encode_backward(dy, cache, run)  # (B,T,H)
    return values, np.vecdot(dx, twin.tokens.table.data[ids])


def word_log_probability(targets: Sequence[int] | np.ndarray) -> Scalar:
    """s_n = log p(targets[n]) at row n of those that were chosen, one of each sequence"""
    targets = np.asarray(targets)

    def scalar(model: Any, y: np.ndarray, run: Run) -> tuple[np.ndarray, np.ndarray]:  # y (N,H)
        return _log_probability(model.output_head(MASKED_WORDS), y, targets, run)

    return scalar


def class_log_probability(labels: Sequence[int] | np.ndarray, head: Layer | None = None, **inputs: Any) -> Scalar:
    """s_b = log p(labels[b]) by a head that makes (B,C) scores of y (B,T,H), and of more inputs if it takes some

    Without a head it is that of a fine-tuned model, `model.task`. The gradients of a head of your own are added to.
    """
    labels = np.asarray(list(labels))

    def scalar(model: Any, y: np.ndarray, run: Run) -> tuple[np.ndarray, np.ndarray]:
        return _log_probability(head or model.task, y, labels, run, **inputs)

    return scalar


def _log_probability(
    head: Layer, y: np.ndarray, targets: np.ndarray, run: Run, **inputs: Any
) -> tuple[np.ndarray, np.ndarray]:
    """-> log softmax(head(y))[target] of every row (N,), and the gradient of their sum at y"""
    logits, cache = head.forward(y, run, **inputs)  # (N,V)
    own = logits[np.arange(len(targets)), targets] - logits.max(-1)
    _, entropy = cross_entropy(logits, targets, count=1)  # Σ −log p
    dy = head.backward(cross_entropy_backward(-1.0, entropy), cache, run)
    return own - np.log(entropy.sums[:, 0]), dy  # not the log of p, which may be too small for a number


def word_saliency(
    model: Model,
    tokenizer: Tokenizer,
    ids: Sequence[int] | np.ndarray,
    positions: Sequence[int],
    types: Any = None,
    after_each: Callable[[int], None] | None = None,
) -> list[Saliency]:
    """For each of these tokens of one text: hide it behind [MASK], and ask which of the others its guess depends on

    Of a token that is [MASK] already there is nothing to hide: the word asked for is then the model's first guess.
    """
    ids = np.asarray(ids)
    T = ids.size
    wrong = next((position for position in positions if not 0 <= position < T), None)
    if wrong is not None:
        raise ValueError(f"there is no token {wrong}; the text has {T}, 0 to {T - 1}")
    every = max(1, TOKENS // T)
    found: list[Saliency] = []
    for start in range(0, len(positions), every):
        places = np.asarray(positions[start : start + every], int)
        rows = np.arange(len(places))
        hidden = np.repeat(ids[None], len(places), 0)  # (B,T)
        hidden[rows, places] = tokenizer.mask_id
        kinds = None if types is None else np.repeat(np.asarray(types)[None], len(places), 0)
        chosen = rows * T + places
        guessed = ids[places] == tokenizer.mask_id
        targets = np.where(guessed, 0, ids[places])
        if guessed.any():
            targets = np.where(guessed, _first_guess(model, tokenizer, hidden, kinds, chosen), targets)
        values, scores = gradient_times_input(model, hidden, word_log_probability(targets), types=kinds, chosen=chosen)
        for row, place in enumerate(places.tolist()):
            tokens = [tokenizer.tokens[i] for i in hidden[row]]
            word = tokenizer.tokens[targets[row]]
            how = "its first guess" if guessed[row] else "hidden"
            of = f"log p({word}) at token {place}, {how}"
            found.append(Saliency(of, place, float(values[row]), tokens, scores[row]))
        if after_each is not None:
            after_each(len(found))
    return found


def class_saliency(tuned: FineTuned, text: str, second: str | None = None, label: str | None = None) -> list[Saliency]:
    """Of a model fine-tuned to classify: which tokens its answer depends on, or that `label`; then the other classes"""
    from mini_bert.data.labelled.readers import Labelled
    from mini_bert.finetuning.tasks.classify import seen_by

    model, task, tokenizer, length = tuned
    if task.name != "classify":
        raise ValueError(f"this model is fine-tuned for {task.name!r}; classes are asked of one fine-tuned to classify")
    if label is not None and label not in task.labels:
        raise ValueError(f"there is no label {label!r}; this model knows {', '.join(task.labels)}")
    if task.pairs and second is None:
        raise ValueError("this model compares two texts, and 1 text was given; give the other with --second")
    item = task.items([Labelled(text, second, "", 1)], tokenizer, length, training=False)[0]
    C, T = len(task.labels), len(item.ids)
    ids, asked, types = np.tile(item.ids, (C, 1)), np.zeros((C, T), bool), np.zeros((C, T), int)
    asked[:, item.asked] = True
    if item.second is not None:
        types[:, item.second :] = 1
    looked_at = seen_by(model.task, asked, types)
    values, scores = gradient_times_input(model, ids, class_log_probability(range(C), asked=looked_at), types=types)
    answer = int(values.argmax())
    first = answer if label is None else task.labels.index(label)
    tokens = [tokenizer.tokens[i] for i in item.ids]
    return [
        Saliency(
            f"log p({task.labels[number]})" + (", its answer" if number == answer else ""),
            None,
            float(values[number]),
            tokens,
            scores[number],
        )
        for number in (first, *(number for number in range(C) if number != first))
    ]


def _first_guess(model: Any, tokenizer: Any, ids: np.ndarray, types: Any, chosen: np.ndarray) -> np.ndarray:
    run = Run()
    y, _ = model.encode(ids, None, types, run, chosen)
    logits = model.output_head(MASKED_WORDS).forward(y, run)[0][:, : tokenizer.vocab_size].copy()
    logits[:, list(tokenizer.special_ids)] = -np.inf
    return logits.argmax(-1)


def default_position(tokenizer: Tokenizer, ids: Sequence[int] | np.ndarray) -> int:
    """Which word to ask for, when nobody says: the first mask, else the last word that has a letter

    >>> from mini_bert.text.wordpiece import SPECIAL_TOKENS, WordPieceTokenizer
    >>> tokenizer = WordPieceTokenizer([*SPECIAL_TOKENS, "the", "cat", "sat", "."])
    >>> default_position(tokenizer, tokenizer.encode("the cat sat."))
    3
    >>> default_position(tokenizer, tokenizer.encode("the [MASK] sat."))
    2
    """
    ids = [int(i) for i in ids]
    if tokenizer.mask_id in ids:
        return ids.index(tokenizer.mask_id)
    inner = [place for place, role in enumerate(tokenizer.added_roles(ids)) if not role]
    words = [place for place in inner if ids[place] not in tokenizer.special_ids]
    lettered = [place for place in words if any(map(str.isalpha, tokenizer.tokens[ids[place]]))]
    if not inner:
        raise ValueError(f"there is no word in {tokenizer.decode(ids)!r:.80}; give a text with at least one")
    return (lettered or inner)[-1]


if __name__ == "__main__":
    from mini_bert.models.config import MiniBertConfig
    from mini_bert.models.mini_bert import MiniBERT
    from mini_bert.text.wordpiece import SPECIAL_TOKENS, WordPieceTokenizer

    tokenizer = WordPieceTokenizer([*SPECIAL_TOKENS, "the", "cat", "sat", "on", "mat"])
    model = MiniBERT(MiniBertConfig(vocab_size=10, hidden_size=24, num_layers=2, num_heads=2), dtype=np.float64)
    ids = tokenizer.encode("the cat sat on the mat")
    found = word_saliency(model, tokenizer, ids, [6])[0]
    print(f"a model that has learnt nothing yet; {found.of}: {found.value:.3f}")
    for token, score in zip(found.tokens, found.scores, strict=True):
        print(f"  {token:8}{score:+.4f}")
