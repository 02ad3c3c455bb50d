"""Exercises 2.5 and 2.6 of learn/2_attention.md: several heads, entropy.

Letters for shapes: T tokens, H width, A heads, d = H/A.
"""

from __future__ import annotations

import numpy as np

from mini_bert.learning.exercise import Answer, Mistake, check_function
from mini_bert.learning.phase1 import random
from mini_bert.learning.phase1 import softmax_of as softmax

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

    def interleaved(q, k, v, heads):
        """Every heads-th column belongs to the same head, also in the result."""
        result = np.empty_like(q)
        for a in range(heads):
            own = slice(a, None, heads)
            result[:, own] = attend(q[:, own], k[:, own], v[:, own], q.shape[1] // heads)
        return result

    every_second = (
        "Your head 0 takes every second column or so. Head 0 owns the first d columns, head 1 the next d: reshape(T, "
        "heads, d), or columns a·d up to (a + 1)·d."
    )

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
                every_second,
            ),
            Mistake(interleaved, every_second),
            Mistake(
                lambda q, k, v, heads: attend(q, k, v, q.shape[1] // heads),
                "You divide by √(H / heads), but there is still one head of the whole width. Cut q, k and v into "
                "`heads` groups of d columns, and let each have its own weights.",
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
                lambda p: right(p) / p.shape[-1],
                "You take the mean of p ln p. The entropy is the sum: the weights p are shares already.",
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
