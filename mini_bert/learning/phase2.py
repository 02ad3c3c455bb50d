"""Exercises of learn/2_attention.md: weighted averages, scores, √d, masks, heads, entropy.

Letters for shapes: T tokens, H width, A heads, d = H/A.
"""

from __future__ import annotations

import numpy as np

from mini_bert.learning.exercise import Answer, Exercise, Mistake, check_function
from mini_bert.learning.phase1 import NO_AXIS, random, without_keepdims
from mini_bert.learning.phase1 import softmax_of as softmax
from mini_bert.learning.phase2_heads import entropy, multi_head

# ------------------------------------------------------------------ 2.1


def average(answer: Answer) -> str | None:
    def right(x):
        return softmax(x @ x.T) @ x

    def normalised(x):
        scores = x @ x.T
        return scores / scores.sum(-1, keepdims=True) @ x

    return check_function(
        answer,
        "my_mix",
        right,
        [(random(3, 3),), (random(5, 2),)],
        [
            Mistake(
                lambda x: softmax(x @ x.T, 0) @ x,
                "Your weights sum to 1 over the columns, not over the rows: softmax runs over the keys, the last axis, "
                "with keepdims=True.",
            ),
            Mistake(
                lambda x: softmax(x @ x.T, None) @ x,
                "All your weights together sum to 1. Each token has weights of its own: sum over axis=-1, with "
                "keepdims=True.",
            ),
            Mistake(
                lambda x: softmax(x @ x.T / np.sqrt(x.shape[1])) @ x,
                "You divide the scores by √H. A good idea, but it comes in section 2.3; here it is softmax(x xᵀ) x.",
            ),
            Mistake(
                lambda x: x @ x.T @ x,
                "You use the scores as weights. Softmax turns each row of scores into weights that sum to 1.",
            ),
            Mistake(
                lambda x: softmax(x @ x.T),
                "You return the weights. The result is the average of the vectors: weights @ x.",
            ),
            Mistake(
                lambda x: softmax(x.T @ x) @ x,
                "You compute xᵀ x, the scores between features. The score of tokens i and j is the dot "
                "product of rows i and j: x xᵀ.",
            ),
            Mistake(
                lambda x: x @ softmax(x.T @ x),
                "You mix features: x softmax(xᵀ x). The weights belong to tokens: softmax(x xᵀ) x.",
            ),
            Mistake(normalised, "You divide the scores by their sum. They may be negative; use softmax."),
        ],
    )


# ------------------------------------------------------------------ 2.2


def scores(answer: Answer) -> str | None:
    def right(x, Wq, Wk):
        return (x @ Wq) @ (x @ Wk).T

    def case(T, H, d):
        return random(T, H), random(H, d, seed=1), random(H, d, seed=2)

    return check_function(
        answer,
        "my_scores",
        right,
        [case(3, 3, 3), case(5, 3, 2)],
        [
            Mistake(
                lambda x, Wq, Wk: (x @ Wk) @ (x @ Wq).T,
                "Your matrix is transposed: row i must hold the scores of query i with all keys, q kᵀ, not k qᵀ.",
            ),
            Mistake(
                lambda x, Wq, Wk: (x @ Wq) @ (x @ Wq).T,
                "You use the queries twice. The keys have their own matrix: k = x Wk.",
            ),
            Mistake(
                lambda x, Wq, Wk: (x @ Wk) @ (x @ Wk).T,
                "You use the keys twice. The queries have their own matrix: q = x Wq.",
            ),
            Mistake(
                lambda x, Wq, Wk: (x @ Wq).T @ (x @ Wk),
                "You compute qᵀ k, of shape (d, d). The scores have a row and a column per token: q kᵀ.",
            ),
            Mistake(
                lambda x, Wq, Wk: (x @ Wq) @ (x @ Wk),
                "The keys are not transposed: the score of tokens i and j is the dot product of two rows, q @ k.T.",
            ),
            Mistake(
                lambda x, Wq, Wk: (x @ Wq.T) @ (x @ Wk.T).T,
                "You multiply by Wqᵀ and Wkᵀ. As in every linear layer, q = x Wq and k = x Wk.",
            ),
            Mistake(
                lambda x, Wq, Wk: (x @ Wq) @ (x @ Wk).T / np.sqrt(Wq.shape[1]),
                "You have divided by √d already. That comes in section 2.3; here the scores are q kᵀ.",
            ),
            Mistake(
                lambda x, Wq, Wk: (x @ Wq) * (x @ Wk),
                "`*` multiplies number by number. The score of two tokens is a dot product: q @ k.T.",
            ),
            Mistake(
                lambda x, Wq, Wk: softmax((x @ Wq) @ (x @ Wk).T),
                "You have already applied softmax. The scores are q kᵀ; the weights come in the next section.",
            ),
            Mistake(
                lambda x, Wq, Wk: x @ x.T,
                "You compute x xᵀ, as in section 2.1. Now queries and keys have their own matrices: q = x Wq, "
                "k = x Wk.",
            ),
        ],
    )


# ------------------------------------------------------------------ 2.3


def attention(answer: Answer) -> str | None:
    def scaled(factor):
        return lambda q, k, v: softmax(q @ k.T * factor(q, k)) @ v

    def scores(q, k):
        return q @ k.T / np.sqrt(q.shape[1])

    def no_axis(q, k, v, wrong):
        return wrong(scores(q, k)) @ v

    def case(T, d):
        return random(T, d), random(T, d, seed=1), random(T, d, seed=2)

    return check_function(
        answer,
        "my_attention",
        scaled(lambda q, k: 1 / np.sqrt(q.shape[1])),
        [case(7, 5), case(3, 3), case(2, 11)],
        [
            Mistake(
                scaled(lambda q, k: 1),
                "The scores are not divided by √d, so softmax gets numbers that are too large.",
            ),
            Mistake(
                scaled(lambda q, k: 1 / q.shape[1]),
                "You divide by d. A sum of d products grows like √d, so divide by √d.",
            ),
            Mistake(
                scaled(lambda q, k: np.sqrt(q.shape[1])),
                "You multiply by √d. Divide by it: the scores shall become smaller.",
            ),
            Mistake(
                scaled(lambda q, k: 1 / np.sqrt(len(k))),
                "You divide by the root of the number of tokens. d is the length of a query, q.shape[-1].",
            ),
            Mistake(
                lambda q, k, v: softmax(q @ k.T) / np.sqrt(q.shape[1]) @ v,
                "You divide by √d after softmax, so your weights do not sum to 1. Divide the scores, before softmax.",
            ),
            Mistake(
                lambda q, k, v: softmax(q @ k.T / np.sqrt(q.shape[1]), 0) @ v,
                "Your weights sum to 1 over the columns, not over the rows: softmax runs over the keys, the last axis.",
            ),
            *(Mistake(lambda q, k, v, w=w: no_axis(q, k, v, w), NO_AXIS) for w in without_keepdims()),
            Mistake(
                lambda q, k, v: softmax(scores(q, k), None) @ v,
                "All your weights together sum to 1. Each query has weights of its own: sum over axis=-1, with "
                "keepdims=True.",
            ),
            Mistake(
                lambda q, k, v: softmax(scores(k, q)) @ v,
                "Your scores are k qᵀ. Row i must hold the scores of query i with all keys: q kᵀ.",
            ),
            Mistake(
                lambda q, k, v: softmax(scores(q, k)).T @ v,
                "You transpose the weights before the average. Row i of the weights belongs to query i: weights @ v.",
            ),
            Mistake(
                lambda q, k, v: softmax(q @ k.T / np.sqrt(q.shape[1])),
                "You return the weights. The result is the average of the values: weights @ v.",
            ),
            Mistake(
                lambda q, k, v: softmax(q @ k.T / np.sqrt(q.shape[1])) @ k,
                "You average the keys. The weights come from the keys; what is averaged are the values: weights @ v.",
            ),
        ],
    )


# ------------------------------------------------------------------ 2.4


def masked_weights(answer: Answer) -> str | None:
    def right(scores, mask):
        return softmax(np.where(mask, scores, -np.inf))

    def queries(scores, mask, low):
        return softmax(np.where(mask[:, None], scores, low))

    rows = "You mask rows. A mask hides keys, which are the columns: the row of a hidden token still exists."
    not_zero = (
        "Your masked scores are small, but finite, so their weights are not 0. Set the scores to −∞ (-np.inf), because "
        "exp(−∞) = 0."
    )

    mask = np.array([True, True, False, True, False])
    return check_function(
        answer,
        "my_masked_weights",
        right,
        [(random(5, 5), mask), (random(3, 3), np.array([True, True, True])), (80 * random(5, 5, seed=3), mask)],
        [
            Mistake(lambda s, m: softmax(s), "The mask has no effect: keys with False must get weight 0."),
            Mistake(
                lambda s, m: softmax(s) * m,
                "You set the weights of masked keys to 0 after softmax, so the rest of a row no longer sums "
                "to 1. Set their scores to −∞ before softmax.",
            ),
            Mistake(
                lambda s, m: softmax(s * m),
                "You set masked scores to 0, but exp(0) = 1 still gives them weight. Set them to −∞ "
                "(-np.inf), because exp(−∞) = 0.",
            ),
            Mistake(
                lambda s, m: softmax(np.where(m, -np.inf, s)),
                "Your mask is inverted: True marks the keys that may be attended to.",
            ),
            Mistake(lambda s, m: queries(s, m, -1e30), rows),
            Mistake(lambda s, m: queries(s, m, -np.inf), rows),
            Mistake(lambda s, m: softmax(s - 10 * ~m), not_zero),
            Mistake(lambda s, m: softmax(np.where(m, s, -10)), not_zero),
            Mistake(
                lambda s, m: softmax(s[:, m]),
                "You cut the masked keys out, so your rows are shorter. They keep their columns, with weight 0.",
            ),
            *(Mistake(lambda s, m, w=w: w(np.where(m, s, -np.inf)), NO_AXIS) for w in without_keepdims()),
            Mistake(
                lambda s, m: softmax(np.where(m, s, -np.inf), 0),
                "Your weights sum to 1 over the columns, not over the rows: softmax runs over the keys, the last axis.",
            ),
        ],
    )


EXERCISES = [
    Exercise("2.1", "Mix vectors by similarity", "my_mix(x): softmax(x xᵀ) x, for x of shape (T, H)", average),
    Exercise("2.2", "Queries and keys", "my_scores(x, Wq, Wk): the scores q kᵀ, with q = x Wq and k = x Wk", scores),
    Exercise("2.3", "Scaled dot-product attention", "my_attention(q, k, v): softmax(q kᵀ / √d) v", attention),
    Exercise(
        "2.4",
        "Masked weights",
        "my_masked_weights(scores, mask): softmax over the keys where mask is True; the others get 0",
        masked_weights,
    ),
    Exercise(
        "2.5",
        "Several heads",
        "my_multi_head(q, k, v, heads): the attention of each head in its own columns, side by side",
        multi_head,
    ),
    Exercise(
        "2.6",
        "The entropy of a head",
        "my_entropy(weights): −Σ p ln p of each row, where 0 ln 0 counts as 0",
        entropy,
    ),
]
