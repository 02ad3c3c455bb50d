"""Exercises of learn/1_building_blocks.md: embeddings, linear layers, ReLU, layer norm, softmax, a guess.

Letters for shapes: B batch, T tokens, H width, I feed-forward width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mini_bert.learning.exercise import BROADCAST, Answer, Exercise, Mistake, check_function


def random(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape)


# ------------------------------------------------------------------ 1.1


def embed(answer: Answer) -> str | None:
    def right(ids, E, P):
        return E[ids] + P[: ids.shape[1]]

    ids = np.array([[1, 3, 0, 3], [2, 0, 4, 1]])  # (B,T)
    return check_function(
        answer,
        "my_embed",
        right,
        [
            (ids[:1], random(5, 3), random(7, 3, seed=1)),
            (ids, random(5, 3), random(7, 3, seed=1)),
            (ids[:, :3], random(5, 2), random(3, 2, seed=1)),
        ],
        [
            Mistake(
                lambda ids, E, P: E[ids] + P[: len(ids)],
                "You take as many rows of P as there are sentences: len(ids) is B. You need one for each token: P[:T], "
                "with T = ids.shape[1].",
            ),
            Mistake(
                lambda ids, E, P: E[ids],
                "You look up the words, but add no positions: P[0] belongs to the first token of each sequence.",
            ),
            Mistake(
                lambda ids, E, P: E[ids] + P[ids],
                "You index P with the ids of the words. A position is the place in the sequence: 0, 1, 2, …, "
                "the same in each sequence.",
            ),
            Mistake(
                lambda ids, E, P: E[ids] + P[1 : ids.shape[1] + 1],
                "You count positions from 1. The first token has position 0, so the rows are P[:T].",
            ),
            Mistake(
                lambda ids, E, P: E[ids - 1] + P[: ids.shape[1]],
                "You count ids from 1. Id 0 is the first row of E, so the rows are E[ids].",
            ),
            Mistake(
                lambda ids, E, P: P[: ids.shape[1]],
                "You return the rows of P only; the rows of the words are missing.",
            ),
        ],
        hints={BROADCAST: "P has a row for every possible position. You need the first T: P[:T], T = ids.shape[1]."},
    )


# ------------------------------------------------------------------ 1.2


def linear(answer: Answer) -> str | None:
    def right(x, W, b):
        return x @ W + b

    square = (random(3, 3), random(3, 3, seed=1), random(3, seed=2))  # with which all mistakes are possible
    return check_function(
        answer,
        "my_linear",
        right,
        [square, (random(2, 5, 3), random(3, 7, seed=1), random(7, seed=2))],
        [
            Mistake(lambda x, W, b: x @ W, "The bias is missing: add b to every row of x W."),
            Mistake(
                lambda x, W, b: x @ W.T + b,
                "You multiply by Wᵀ. W has a row for each input and a column for each output, so the product is x W.",
            ),
            Mistake(
                lambda x, W, b: W @ x + b,
                "You multiply W x. The rows of x are the tokens, so x stands on the left: x W.",
            ),
            Mistake(lambda x, W, b: x * W + b, "`*` multiplies number by number. The matrix product is `@`."),
            Mistake(
                lambda x, W, b: x @ W + b[:, None],
                "You add b to the columns: b[o] belongs to output o, so it is added to every row, as `+ b` does.",
            ),
            Mistake(
                lambda x, W, b: (x @ W).T + b,
                "You transpose the product. x W has a row for each token already, and b is added to every row.",
            ),
            Mistake(lambda x, W, b: x @ (W + b), "You add b to W before the product. Add it to the result: x W + b."),
        ],
    )


# ------------------------------------------------------------------ 1.3


def feed_forward(answer: Answer) -> str | None:
    def relu(x):
        return np.maximum(x, 0)

    def right(x, W1, b1, W2, b2):
        return relu(x @ W1 + b1) @ W2 + b2

    def case(T, H, I):
        return random(T, H), random(H, I, seed=1), random(I, seed=2), random(I, H, seed=3), random(H, seed=4)

    return check_function(
        answer,
        "my_feed_forward",
        right,
        [case(5, 3, 7), case(2, 2, 11)],
        [
            Mistake(
                lambda x, W1, b1, W2, b2: (x @ W1 + b1) @ W2 + b2,
                "There is no ReLU between the two products, so your network is a single linear layer with the "
                "matrix W1 W2.",
            ),
            Mistake(
                lambda x, W1, b1, W2, b2: relu((x @ W1 + b1) @ W2 + b2),
                "You apply ReLU at the end. It belongs between the two products; the result may be negative.",
            ),
            Mistake(
                lambda x, W1, b1, W2, b2: relu(relu(x @ W1 + b1) @ W2 + b2),
                "You apply ReLU twice. It belongs between the two products only; the result may be negative.",
            ),
            Mistake(lambda x, W1, b1, W2, b2: relu(x @ W1) @ W2 + b2, "b1 is missing: ReLU is applied to x W1 + b1."),
            Mistake(lambda x, W1, b1, W2, b2: relu(x @ W1 + b1) @ W2, "b2 is missing at the end."),
            Mistake(
                lambda x, W1, b1, W2, b2: (relu(x @ W1) + b1) @ W2 + b2,
                "You add b1 after ReLU. The bias moves the bend of ReLU, so it is added before: ReLU(x W1 + b1).",
            ),
            Mistake(
                lambda x, W1, b1, W2, b2: np.abs(x @ W1 + b1) @ W2 + b2,
                "You take the absolute value. ReLU sets negative numbers to 0: np.maximum(x, 0).",
            ),
            Mistake(
                lambda x, W1, b1, W2, b2: np.minimum(x @ W1 + b1, 0) @ W2 + b2,
                "You keep the negative numbers. ReLU keeps the positive ones: np.maximum(x, 0).",
            ),
        ],
    )


# ------------------------------------------------------------------ 1.4


def layer_norm(answer: Answer) -> str | None:
    def moments(x, axis=-1, ddof=0):
        return x.mean(axis, keepdims=True), x.var(axis, keepdims=True, ddof=ddof)

    def right(x, gamma, beta, eps):
        mean, variance = moments(x)
        return gamma * (x - mean) / np.sqrt(variance + eps) + beta

    def with_moments(x, gamma, beta, eps, **options):
        mean, variance = moments(x, **options)
        return gamma * (x - mean) / np.sqrt(variance + eps) + beta

    def scaled(factor):  # factor(variance, eps)
        def norm(x, gamma, beta, eps):
            mean, variance = moments(x)
            return gamma * (x - mean) * factor(variance, eps) + beta

        return norm

    def not_centred(x, gamma, beta, eps):
        return gamma * x / np.sqrt(moments(x)[1] + eps) + beta

    def shifted_first(x, gamma, beta, eps):
        mean, variance = moments(x)
        return gamma * ((x - mean) / np.sqrt(variance + eps) + beta)

    x, gamma, beta = 2 * random(5, 3) + 1, 1 + random(3, seed=1), random(3, seed=2)
    constant = np.full((2, 3), 4.0)  # its variance is 0
    return check_function(
        answer,
        "my_layer_norm",
        right,
        [(x, gamma, beta, 0.1), (random(2, 5, 7), np.ones(7), np.zeros(7), 1e-5), (constant, gamma, beta, 1e-5)],
        [
            Mistake(
                lambda *a: with_moments(*a, axis=0),
                "You average over the tokens (axis 0). Each token is normalised on its own: mean and variance "
                "of its H numbers, the last axis.",
            ),
            Mistake(
                lambda *a: with_moments(*a, axis=1),
                "You average over axis 1, which is the last one only if x has two axes. In (B, T, H) it holds the "
                "tokens: use axis=-1.",
            ),
            Mistake(
                lambda *a: with_moments(*a, axis=None),
                "You use one mean and one variance for the whole array. Each token has its own: use axis=-1 "
                "and keepdims=True.",
            ),
            Mistake(
                lambda *a: with_moments(*a, ddof=1),
                "Your variance divides by H − 1 (ddof=1). Layer norm divides by H: x.var(-1, keepdims=True).",
            ),
            Mistake(
                scaled(lambda v, eps: 1 / (np.sqrt(v) + eps)),
                "You add eps to the standard deviation. In BERT it is added to the variance, inside the root: "
                "√(variance + eps).",
            ),
            Mistake(
                scaled(lambda v, eps: 1 / (v + eps)),
                "You divide by the variance. Divide by its square root, the standard deviation.",
            ),
            Mistake(
                scaled(lambda v, eps: 1 / np.sqrt(v)),
                "eps is missing: a token whose numbers are all equal has variance 0, and you divide by 0. Use "
                "√(variance + eps).",
            ),
            Mistake(not_centred, "You do not subtract the mean from x before you divide."),
            Mistake(
                shifted_first,
                "You add beta before you multiply by gamma: gamma ⊙ (x̂ + beta). The scale comes first: gamma "
                "⊙ x̂ + beta.",
            ),
            Mistake(
                lambda x, g, b, eps: right(x, 1, 0, eps),
                "gamma and beta are missing: the result is gamma ⊙ x̂ + beta, with one scale and one shift per feature.",
            ),
            Mistake(lambda x, g, b, eps: right(x, g, 0, eps), "beta is missing: the result is gamma ⊙ x̂ + beta."),
        ],
    )


# ------------------------------------------------------------------ 1.5


def softmax_of(x: np.ndarray, axis: int | None = -1) -> np.ndarray:
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


NO_AXIS = (
    "Without keepdims=True, sum(-1) and max(-1) lose the last axis, and NumPy applies the number of row j to column j. "
    "Write sum(-1, keepdims=True), and the same for max."
)


def without_keepdims() -> list[Callable[[np.ndarray], np.ndarray]]:
    """Softmax in which max, sum, or both have lost their axis; possible for square arrays only."""

    def version(keep_max: bool, keep_sum: bool) -> Callable[[np.ndarray], np.ndarray]:
        def wrong(x):
            e = np.exp(x - x.max(-1, keepdims=keep_max))
            return e / e.sum(-1, keepdims=keep_sum)

        return wrong

    return [lambda x: np.exp(x) / np.exp(x).sum(-1), version(True, False), version(False, True), version(False, False)]


def softmax(answer: Answer) -> str | None:
    large = np.array([[1000.0, 1001.0, 1002.0], [-1000.0, 0.0, 3.0]])

    def naive(x):
        e = np.exp(x)
        return e / e.sum(-1, keepdims=True)

    def of_the_whole(x):
        e = np.exp(x - x.max())
        return e / e.sum(-1, keepdims=True)

    return check_function(
        answer,
        "my_softmax",
        softmax_of,
        [(random(3, 3),), (random(2, 5, 7),), (large,)],
        [
            Mistake(
                lambda x: softmax_of(x, 0),
                "Your columns sum to 1, not your rows: softmax runs over the last axis, axis=-1.",
            ),
            *(Mistake(no_axis, NO_AXIS) for no_axis in without_keepdims()),
            Mistake(
                of_the_whole,
                "You subtract the maximum of the whole array, so a row of much smaller scores becomes exp(−2000) = 0, "
                "and 0 / 0 is not a number. Each row has its own maximum: x.max(-1, keepdims=True).",
            ),
            Mistake(
                lambda x: softmax_of(x, None),
                "All your numbers together sum to 1. Each row is a distribution of its own: sum over axis=-1, "
                "with keepdims=True.",
            ),
            Mistake(lambda x: np.exp(x), "You take the exponential, but do not divide by the sum of the row."),
            Mistake(
                lambda x: x / x.sum(-1, keepdims=True),
                "You divide x by its sum, without exp. Negative scores then give negative probabilities.",
            ),
            Mistake(
                lambda x: 1 / (1 + np.exp(-x)),
                "This is the sigmoid, of each number on its own. Softmax divides exp(x) by the sum of the row.",
            ),
            Mistake(
                naive,
                "exp(1000) overflows to infinity, and infinity divided by infinity is not a number. Subtract "
                "the maximum of each row first: this does not change the result.",
            ),
            Mistake(lambda x: np.log(softmax_of(x)), "You return the logarithms of the probabilities."),
        ],
    )


# ------------------------------------------------------------------ 1.6


def guess(answer: Answer) -> str | None:
    def right(hidden, W, b):
        p = softmax_of(hidden @ W + b)
        return p.argmax(-1), p.max(-1)

    def with_scores(score):
        def guess(hidden, W, b):
            p = softmax_of(score(hidden, W, b))
            return p.argmax(-1), p.max(-1)

        return guess

    def logits_instead(hidden, W, b):
        scores = hidden @ W + b
        return scores.argmax(-1), scores.max(-1)

    def over_tokens(hidden, W, b):
        p = softmax_of(hidden @ W + b)
        return p.argmax(0), p.max(0)

    def flat(hidden, W, b):
        p = softmax_of(hidden @ W + b)
        return p.argmax(), p.max()

    def swapped(hidden, W, b):
        return right(hidden, W, b)[::-1]

    return check_function(
        answer,
        "my_guess",
        right,
        [(random(3, 5), random(5, 7, seed=1), random(7, seed=2)), (random(2, 5), random(5, 11, seed=1), np.zeros(11))],
        [
            Mistake(
                with_scores(lambda h, W, b: h @ W),
                "The bias is missing: the scores are hidden W + b. b makes frequent words likelier everywhere.",
            ),
            Mistake(
                logits_instead,
                "You return the largest score. A probability comes out of softmax, over all words of a row.",
            ),
            Mistake(
                over_tokens,
                "You look for the maximum over the tokens (axis 0). Each token has its own guess: the maximum "
                "over the words, axis=-1.",
            ),
            Mistake(flat, "You return one guess for the whole array. Each row has its own: use axis=-1."),
            Mistake(swapped, "You return the probabilities first. Return the ids first, then the probabilities."),
            Mistake(
                lambda h, W, b: right(h, W, b)[0],
                "You return the ids only. Return two arrays: the ids and their probabilities.",
            ),
            Mistake(
                lambda h, W, b: (softmax_of(h @ W + b).argmin(-1), softmax_of(h @ W + b).min(-1)),
                "You return the least likely word: argmin and min. Take argmax and max.",
            ),
        ],
    )


EXERCISES = [
    Exercise(
        "1.1",
        "Look up words and add positions",
        "my_embed(ids, E, P): E[ids] plus the first T rows of P, for ids of shape (B, T)",
        embed,
    ),
    Exercise("1.2", "A linear layer", "my_linear(x, W, b): x W + b", linear),
    Exercise(
        "1.3",
        "A feed-forward network",
        "my_feed_forward(x, W1, b1, W2, b2): ReLU(x W1 + b1) W2 + b2",
        feed_forward,
    ),
    Exercise(
        "1.4",
        "Layer norm",
        "my_layer_norm(x, gamma, beta, eps): gamma ⊙ (x − mean) / √(variance + eps) + beta, over the last axis",
        layer_norm,
    ),
    Exercise("1.5", "Softmax", "my_softmax(x): probabilities over the last axis, for scores of any size", softmax),
    Exercise(
        "1.6",
        "A guess for every token",
        "my_guess(hidden, W, b): the id of the likeliest word for each row of hidden, and its probability",
        guess,
    ),
]
