"""Exercises of learn/6_experiments.md: comparing runs, counting weights, masking, the learning rate, heads, gradients.

Letters for shapes: T tokens, V vocabulary, H width, L blocks.
"""

from __future__ import annotations

import math

import numpy as np

from mini_bert.learning.exercise import Answer, Exercise, Mistake, call, check_function
from mini_bert.learning.phase1 import random
from mini_bert.learning.results import check_results

# ------------------------------------------------------------------ 6.1


def difference(answer: Answer) -> str | None:
    def with_error(error_of):
        return lambda a, b: (a.mean() - b.mean(), error_of(a, b))

    def correct(a, b):
        return math.sqrt(a.var(ddof=1) / len(a) + b.var(ddof=1) / len(b))

    a, b = np.array([4.98, 5.02, 5.07]), np.array([4.95, 4.97])
    return check_results(
        answer,
        "my_difference",
        with_error(correct),
        [(a, b), (a, np.array([5.5, 5.4, 5.6, 5.2]))],
        {"difference": 0, "standard_error": 1},
        [
            Mistake(
                lambda a, b: (b.mean() - a.mean(), correct(a, b)) if a.mean() > b.mean() else (math.nan, math.nan),
                "You subtract the wrong way round: the mean of a minus the mean of b.",
            ),
            Mistake(
                lambda a, b: (abs(a.mean() - b.mean()), correct(a, b)),
                "Your difference has lost its sign: it is negative if a has the lower loss.",
            ),
            Mistake(
                with_error(lambda a, b: math.sqrt(a.var() / len(a) + b.var() / len(b))),
                "Your variances divide by n. Divide the sum of squared deviations by n − 1: np.var(a, ddof=1).",
            ),
            Mistake(
                with_error(lambda a, b: math.sqrt(a.var(ddof=1) + b.var(ddof=1))),
                "This is the spread of single runs. A mean of n runs varies less: divide each variance by its n.",
            ),
            Mistake(
                with_error(lambda a, b: a.var(ddof=1) / len(a) + b.var(ddof=1) / len(b)),
                "The square root is missing: this is the squared standard error.",
            ),
            Mistake(
                with_error(lambda a, b: a.std(ddof=1) / math.sqrt(len(a)) + b.std(ddof=1) / math.sqrt(len(b))),
                "You add two standard errors. Add the variances, then take the root.",
            ),
            Mistake(
                with_error(lambda a, b: math.sqrt(a.var(ddof=1) / len(a) - b.var(ddof=1) / len(b))),
                "You subtract the variances. Both make the difference less certain: add them.",
            ),
        ],
    )


# ------------------------------------------------------------------ 6.2


def parameters(answer: Answer) -> str | None:
    def count(V, T, H, L, block):
        return (V + T) * H + L * block + 2 * H + H * V + V

    def right(V, T, H, L):
        return count(V, T, H, L, 12 * H * H + 9 * H)

    return check_function(
        answer,
        "my_parameters",
        right,
        [(101, 13, 8, 3), (1024, 32, 64, 2)],
        [
            Mistake(
                lambda V, T, H, L: count(V, T, H, L, 12 * H * H),
                "The biases and norms of the blocks are missing: 9H in each block.",
            ),
            Mistake(
                lambda V, T, H, L: count(V, T, H, L, 12 * H * H + 5 * H),
                "The two norms of each block are missing: γ and β of each have H numbers.",
            ),
            Mistake(
                lambda V, T, H, L: count(V, T, H, L, 12 * H * H + 4 * H),
                "The biases of the feed-forward network are missing: 4H and H in each block.",
            ),
            Mistake(
                lambda V, T, H, L: count(V, T, H, L, 11 * H * H + 9 * H),
                "Attention has four matrices: queries, keys, values, and Wo.",
            ),
            Mistake(
                lambda V, T, H, L: count(V, T, H, L, 8 * H * H + 9 * H),
                "You have counted 4H² too few in each block. Attention has 4H², and W₁ and W₂ have 4H² each.",
            ),
            Mistake(
                lambda V, T, H, L: count(V, T, H, L, 12 * H * H + 13 * H),
                "You have counted biases in attention. Mini-BERT has none there.",
            ),
            Mistake(
                lambda V, T, H, L: right(V, T, H, L) - T * H,
                "The position table is missing: T rows of H numbers.",
            ),
            Mistake(
                lambda V, T, H, L: right(V, T, H, L) - H * V,
                "You have counted only one of the two large tables: the output head has its own matrix of H·V numbers.",
            ),
            Mistake(lambda V, T, H, L: right(V, T, H, L) - V, "The bias of the output head is missing: V numbers."),
            Mistake(lambda V, T, H, L: right(V, T, H, L) - 2 * H, "The final norm is missing: 2H numbers."),
            Mistake(lambda V, T, H, L: right(V, T, H, 1), "You have counted one block. There are L."),
        ],
    )


# ------------------------------------------------------------------ 6.3


def masking(answer: Answer) -> str | None:
    def with_chance(chance):
        return lambda rate, tokens, k: (rate * tokens, chance(rate, k))

    def intact(rate, k):
        return (1 - 0.9 * rate) ** k

    return check_results(
        answer,
        "my_masking_trade",
        with_chance(intact),
        [(0.3, 700, 3), (0.15, 1024, 1), (0.5, 10, 0)],
        {"chosen": 0, "intact": 1},
        [
            Mistake(
                lambda rate, tokens, k: (0.8 * rate * tokens, intact(rate, k)),
                "You count the masked tokens. All chosen ones must be guessed, also those that stay visible.",
            ),
            Mistake(
                lambda rate, tokens, k: (0.9 * rate * tokens, intact(rate, k)),
                "You leave out the chosen tokens that stay. They must be guessed, too.",
            ),
            Mistake(
                with_chance(lambda rate, k: (1 - rate) ** k),
                "A tenth of the chosen tokens stay as they are, so a token is spoilt with probability 0.9 · rate.",
            ),
            Mistake(
                with_chance(lambda rate, k: (1 - 0.8 * rate) ** k),
                "A random word spoils a token as well: 80 % become the mask and 10 % a random word, together 0.9.",
            ),
            Mistake(
                with_chance(lambda rate, k: 1 - (0.9 * rate) ** k),
                "This is the probability that not all k are spoilt. None of them may be: take 1 − 0.9 · rate to the "
                "power of k.",
            ),
            Mistake(
                with_chance(lambda rate, k: 1 - 0.9 * rate * k),
                "You subtract k times the same probability, and may end below 0. Independent events multiply.",
            ),
            Mistake(
                with_chance(lambda rate, k: (0.9 * rate) ** k),
                "This is the probability that all k are spoilt. They are to be intact.",
            ),
            Mistake(
                with_chance(lambda rate, k: (1 - 0.9 * rate) ** 2),
                "This is right for two tokens, as in the table. Their number is the argument k.",
            ),
            Mistake(
                with_chance(lambda rate, k: 1 - 0.9 * rate),
                "This is right for one token. For k tokens, take it to the power of k.",
            ),
        ],
    )


# ------------------------------------------------------------------ 6.4


def path(answer: Answer) -> str | None:
    def schedule(done, warmup):
        return done / warmup if done < warmup else (1 - done) / (1 - warmup)

    def total(steps, peak, warmup, times, length=None):
        return peak * sum(schedule(t / (length or steps + 1), warmup) for t in times)

    def right(steps, peak, warmup, n):
        return total(steps, peak, warmup, range(1, n + 1))

    return check_function(
        answer,
        "my_path",
        right,
        [(19, 0.01, 0.25, 13), (600, 0.002, 0.1, 10), (9, 1.0, 0.0, 4)],
        [
            Mistake(
                lambda steps, peak, warmup, n: total(steps, peak, warmup, range(1, n)),
                "Your sum ends at step n − 1: range(1, n + 1) includes n.",
            ),
            Mistake(
                lambda steps, peak, warmup, n: total(steps, peak, warmup, range(1, n + 1), steps),
                "You divide by steps. Step t is at t/(steps + 1), so that the last step does not have a rate of 0.",
            ),
            Mistake(
                lambda steps, peak, warmup, n: total(steps, peak, warmup, [n]),
                "This is the learning rate of step n. Add up those of all steps from 1 to n.",
            ),
            Mistake(
                lambda steps, peak, warmup, n: total(steps, 1, warmup, range(1, n + 1)),
                "Multiply by the peak: the schedule is a fraction of it.",
            ),
            Mistake(
                lambda steps, peak, warmup, n: peak * n, "You use the peak in every step: the schedule is missing."
            ),
            Mistake(
                lambda steps, peak, warmup, n: (
                    peak * sum(min(t / (steps + 1) / max(warmup, 1e-9), 1) for t in range(1, n + 1))
                ),
                "Your rate stays at the peak after warm-up. It falls to 0 from there.",
            ),
            Mistake(
                lambda steps, peak, warmup, n: peak * sum(1 - t / (steps + 1) for t in range(1, n + 1)),
                "Your rate has no warm-up: it must rise from 0 first.",
            ),
            Mistake(
                lambda steps, peak, warmup, n: right(steps, peak, warmup, n) / n,
                "You return the mean. It is the sum that says how far a weight can move.",
            ),
        ],
    )


# ------------------------------------------------------------------ 6.5


def offset_share(answer: Answer) -> str | None:
    def right(weights, offset):
        return np.diagonal(weights, offset).mean()

    def softmaxed(T, seed):
        exp = np.exp(random(T, T, seed=seed))
        return exp / exp.sum(-1, keepdims=True)

    return check_function(
        answer,
        "my_offset_share",
        right,
        [(softmaxed(5, 0), -1), (softmaxed(7, 1), 2), (softmaxed(3, 2), 0)],
        [
            Mistake(
                lambda weights, offset: right(weights, -offset),
                "You look in the wrong direction. Row i is the query, so the token before it is in column i − 1.",
            ),
            Mistake(
                lambda weights, offset: np.diagonal(weights, offset).sum() / len(weights),
                "You divide by T. Tokens that have no such neighbour do not count: there are T − |offset| others.",
            ),
            Mistake(
                lambda weights, offset: np.diagonal(weights, offset).sum(),
                "You return the sum. Divide by the number of tokens that have such a neighbour.",
            ),
            Mistake(
                lambda weights, offset: np.diagonal(weights).mean(),
                "This is the weight of each token on itself. Use the offset: np.diagonal(weights, offset).",
            ),
            Mistake(
                lambda weights, offset: np.mean([weights[i, (i + offset) % len(weights)] for i in range(len(weights))]),
                "Your index runs around the end: weights[0, −1] is the last token, not the one before the first.",
            ),
            Mistake(
                lambda weights, offset: np.diagonal(weights, offset),
                "You return all these weights. Return their mean.",
            ),
            Mistake(
                lambda weights, offset: weights[:, offset].mean(),
                "You read one column: the weight of all tokens on the same token. The column moves along with the row.",
            ),
        ],
    )


# ------------------------------------------------------------------ 6.6


def gradient_verdict(answer: Answer) -> str | None:
    function = answer.function("my_gradient_verdict")
    wide = np.array([[0.2, -0.4, 0.1], [0.05, 0.3, 0.0]])
    square, noise = np.array([[0.2, -0.4], [0.05, 0.3]]), np.array([[1.0, -1.0, 1.0], [1.0, 1.0, -1.0]])
    row = np.array([0.2, -0.4, 0.1])
    cases = [
        (wide, wide + 0.0003 * noise, "right", "equal up to 0.001 times the largest number, 0.4"),
        (wide, wide * [[1, 1, 1], [1.015, 1, 1]], "wrong", "different in the fourth number only, by more than 0.0004"),
        (wide, -wide, "sign", "−1 times the true one"),
        (wide, -wide + 0.0003 * noise, "sign", "−1 times the true one, up to rounding"),
        (square, 0.5 * square, "factor", "half of the true one"),
        (wide, 0.5 * wide, "factor", "half of the true one, in which a number is 0, so that dividing by it gives NaN"),
        (wide, -3 * wide, "factor", "−3 times the true one"),
        (wide, 0 * wide, "factor", "0 times the true one"),
        (row, 2 * row, "factor", "2 times the true one, with one axis"),
        (wide, abs(wide), "wrong", "the absolute value of the true one"),
        (square, square.T, "wrong", "the true one, transposed"),
        (wide, wide + 0.01, "wrong", "the true one plus 0.01"),
        (wide, wide * [[0.5, 0.5, 2], [2, 0.5, 0.5]], "wrong", "the true one with a factor for each number"),
    ]
    hints = {
        "mismatch in its core dimension": "For the projection, multiply number by number and add up: (analytic * "
        "numeric).sum(). `@` is a matrix product.",
        "not aligned": "For the projection, multiply number by number and add up: (analytic * numeric).sum().",
    }
    for true, analytic, expected, what in cases:
        told = call(function, "my_gradient_verdict", (analytic, true), hints)
        if told != expected:
            shown = f"{analytic.round(4).tolist()}, and the true one is {true.tolist()}"
            return f"You say {told!r:.40} of a gradient that is {what}: {shown}. Expected {expected!r}."
    return None


EXERCISES = [
    Exercise(
        "6.1",
        "Is the difference real?",
        "my_difference(a, b): the difference of two mean losses, and its standard error",
        difference,
    ),
    Exercise("6.2", "Counting weights", "my_parameters(V, T, H, L): the number of weights of a Mini-BERT", parameters),
    Exercise(
        "6.3",
        "What masking costs",
        "my_masking_trade(rate, tokens, k): how many tokens are chosen, and the chance that k others are intact",
        masking,
    ),
    Exercise(
        "6.4",
        "How far weights can move",
        "my_path(steps, peak, warmup, n): the sum of the learning rates of steps 1 to n",
        path,
    ),
    Exercise(
        "6.5",
        "Attention to a neighbour",
        "my_offset_share(weights, offset): the mean weight on the token `offset` places after each token",
        offset_share,
    ),
    Exercise(
        "6.6",
        "A verdict on a gradient",
        'my_gradient_verdict(analytic, numeric): "right", "sign", "factor" or "wrong"',
        gradient_verdict,
    ),
]
