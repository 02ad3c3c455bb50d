"""Exercises of learn/2_attention.md: weighted averages, scores, √d, masks, heads, entropy.

Letters for shapes: T tokens, H width, A heads, d = H/A.
"""

from __future__ import annotations

import numpy as np

from mini_bert.learning.exercise import Answer, Exercise, Mistake, check_function
from mini_bert.learning.phase1 import random
from mini_bert.learning.phase1 import softmax_of as softmax

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
                "Your weights sum to 1 over the columns, not over the rows: softmax runs over the keys, the last axis.",
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
                lambda x: softmax(x @ x.T).T @ x,
                "You multiply by the transposed weights. Row i of the weights belongs to the new vector of "
                "token i: weights @ x.",
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

    def queries(scores, mask):
        return softmax(np.where(mask[:, None], scores, -1e30))

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
            Mistake(
                queries,
                "You mask rows. A mask hides keys, which are the columns: the row of a hidden token still exists.",
            ),
            Mistake(
                lambda s, m: softmax(s - 10 * ~m),
                "You subtract 10 from the masked scores, so their weights are small, but not 0. Set the "
                "scores to −∞ (-np.inf).",
            ),
            Mistake(
                lambda s, m: softmax(np.where(m, s, -np.inf), 0),
                "Your weights sum to 1 over the columns, not over the rows: softmax runs over the keys, the last axis.",
            ),
        ],
    )


# ------------------------------------------------------------------ 2.5


def multi_head(answer: Answer) -> str | None:
    def attend(q, k, v, d):  # (...,T,d)
        return softmax(q @ k.swapaxes(-1, -2) / np.sqrt(d)) @ v

    def split(x, heads):
        return x.reshape(len(x), heads, -1).swapaxes(0, 1)  # (A,T,d)

    def join(c):
        return c.swapaxes(0, 1).reshape(c.shape[1], -1)  # (T,H)

    def right(q, k, v, heads):
        return join(attend(split(q, heads), split(k, heads), split(v, heads), q.shape[1] // heads))

    def whole_width(q, k, v, heads):
        return join(attend(split(q, heads), split(k, heads), split(v, heads), q.shape[1]))

    def not_joined(q, k, v, heads):
        return attend(split(q, heads), split(k, heads), split(v, heads), q.shape[1] // heads)

    def other_split(cut):
        def heads_of(q, k, v, heads):
            d = q.shape[1] // heads
            return join(attend(cut(q, heads, d), cut(k, heads, d), cut(v, heads, d), d))

        return heads_of

    def wrong_join(q, k, v, heads):
        return not_joined(q, k, v, heads).reshape(len(q), -1)

    def reshaped_twice(q, k, v, heads):
        d = q.shape[1] // heads
        q, k, v = (x.reshape(heads, len(x), d) for x in (q, k, v))
        return attend(q, k, v, d).reshape(q.shape[1], -1)

    def case(T, H, A):
        return random(T, H), random(T, H, seed=1), random(T, H, seed=2), A

    return check_function(
        answer,
        "my_multi_head",
        right,
        [case(5, 6, 2), case(7, 15, 3), case(3, 5, 1)],
        [
            Mistake(
                lambda q, k, v, heads: attend(q, k, v, q.shape[1]),
                "You compute one head of the whole width. Cut q, k and v into `heads` groups of d = H / heads "
                "columns, one for each head.",
            ),
            Mistake(
                whole_width,
                "You divide by √H. Each head has vectors of d = H / heads numbers, so its scores are divided by √d.",
            ),
            Mistake(
                not_joined,
                "You return the heads as (A, T, d). Put them side by side again: (T, H), head 0 in the first "
                "d columns.",
            ),
            Mistake(
                other_split(lambda x, heads, d: x.reshape(heads, len(x), d)),
                "reshape(heads, T, d) mixes tokens: it cuts the rows one after the other. Use reshape(T, "
                "heads, d), then swap the first two axes.",
            ),
            Mistake(
                reshaped_twice,
                "reshape(heads, T, d) mixes tokens: it cuts the rows one after the other. Use reshape(T, "
                "heads, d), then swap the first two axes.",
            ),
            Mistake(
                other_split(lambda x, heads, d: x.reshape(len(x), d, heads).transpose(2, 0, 1)),
                "Your head 0 takes every second column or so. Head 0 owns the first d columns, head 1 the "
                "next d: reshape(T, heads, d).",
            ),
            Mistake(
                wrong_join,
                "The heads are right, but reshape(T, H) of (A, T, d) mixes tokens. Swap the first two axes "
                "back, then reshape.",
            ),
        ],
    )


# ------------------------------------------------------------------ 2.6


def entropy(answer: Answer) -> str | None:
    def right(p):
        return -(p * np.log(np.where(p > 0, p, 1))).sum(-1)

    def naive(p):
        return -(p * np.log(p)).sum(-1)

    with_zeros = np.array([[0.5, 0.5, 0.0], [1.0, 0.0, 0.0], [0.2, 0.3, 0.5]])
    return check_function(
        answer,
        "my_entropy",
        right,
        [(softmax(random(3, 3)),), (softmax(random(2, 5, 7)),), (with_zeros,)],
        [
            Mistake(
                lambda p: -right(p),
                "The sign is missing: ln p is negative, so the entropy is −Σ p ln p, at least 0.",
            ),
            Mistake(
                lambda p: right(p) / np.log(2),
                "You use the logarithm to base 2, which counts bits. Here the entropy is in nats: np.log.",
            ),
            Mistake(
                lambda p: right(p).sum(),
                "You add up all rows. Each row of weights has its own entropy: sum over axis=-1.",
            ),
            Mistake(
                lambda p: right(p.swapaxes(-1, -2)),
                "You sum over the columns. A row is a distribution, so sum over the last axis, axis=-1.",
            ),
            Mistake(
                lambda p: -np.log(np.where(p > 0, p, 1)).sum(-1),
                "You add up ln p without the factor p: the entropy is the mean of −ln p, weighted by p.",
            ),
            Mistake(
                naive,
                "A weight of exactly 0 (a masked key) gives 0 · ln 0, which NumPy computes as NaN. It counts "
                "as 0: replace p by 1 in the logarithm where p is 0.",
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
