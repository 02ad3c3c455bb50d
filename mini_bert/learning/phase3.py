"""Exercises of learn/3_the_model.md: a padded batch, add and norm, the block, the head, parameters, several gaps.

Letters for shapes: B batch, T tokens, H width, I feed-forward width, V vocabulary, L blocks.
"""

from __future__ import annotations

import numpy as np

from mini_bert.learning.exercise import Answer, Exercise, Mistake, check_function
from mini_bert.learning.phase1 import random
from mini_bert.learning.phase3_guesses import fill, top_words
from mini_bert.learning.results import check_results

# ------------------------------------------------------------------ 3.1


def batch(answer: Answer) -> str | None:
    def padded(rows, pad_id, left=False):
        T = max(map(len, rows))
        fillers = [[pad_id] * (T - len(row)) for row in rows]
        return np.array(
            [[*filler, *row] if left else [*row, *filler] for row, filler in zip(rows, fillers, strict=True)]
        )

    def mask_of(rows):
        T = max(map(len, rows))
        return np.array([[1] * len(row) + [0] * (T - len(row)) for row in rows])

    def right(rows, pad_id):
        return padded(rows, pad_id), mask_of(rows)

    def cut(rows, pad_id):
        T = min(map(len, rows))
        return np.array([row[:T] for row in rows]), np.ones((len(rows), T))

    return check_results(
        answer,
        "my_batch",
        right,
        [([[2, 7, 3], [2, 5, 9, 8, 3]], 11), ([[2, 3]], 0), ([[2, 6, 0, 3], [2, 7, 6, 5, 3], [2, 3]], 0)],
        {"ids": 0, "mask": 1},
        [
            Mistake(
                lambda rows, pad_id: (padded(rows, pad_id), 1 - mask_of(rows)),
                "Your mask is inverted: 1 marks tokens, 0 marks padding.",
            ),
            Mistake(
                lambda rows, pad_id: (padded(rows, pad_id, left=True), mask_of([row[::-1] for row in rows])[:, ::-1]),
                "You pad on the left, so the first token of a short text is not at position 0. Put the padding "
                "at the end.",
            ),
            Mistake(
                lambda rows, pad_id: (mask_of(rows), padded(rows, pad_id)),
                "You return the mask first. Return the ids first, then the mask.",
            ),
            Mistake(
                cut,
                "You cut all texts to the shortest. Fill the shorter ones with pad_id instead, up to the length "
                "of the longest.",
            ),
            Mistake(
                lambda rows, pad_id: (padded(rows, 0), mask_of(rows)),
                "You fill with 0. The id of padding is the argument pad_id.",
            ),
            Mistake(
                lambda rows, pad_id: (padded(rows, pad_id), np.ones_like(mask_of(rows))),
                "Your mask is 1 everywhere. It must be 0 where you added padding, or tokens would attend to it.",
            ),
            Mistake(
                lambda rows, pad_id: (padded(rows, pad_id), padded(rows, pad_id) != pad_id),
                "You compute the mask by comparing with pad_id. Here a text contains that id itself. Compute the "
                "mask from the lengths of the rows.",
            ),
        ],
    )


# ------------------------------------------------------------------ 3.2


def normalised(x, gamma, beta, eps, axis=-1):
    return gamma * (x - x.mean(axis, keepdims=True)) / np.sqrt(x.var(axis, keepdims=True) + eps) + beta


def add_and_norm(answer: Answer) -> str | None:
    def right(x, f, gamma, beta, eps):
        return normalised(x + f, gamma, beta, eps)

    def case(*shape):
        H = shape[-1]
        return 1 + random(*shape), 3 * random(*shape, seed=1), 1 + random(H, seed=2), random(H, seed=3), 1e-5

    return check_function(
        answer,
        "my_add_and_norm",
        right,
        [case(2, 5, 3), case(3, 2, 7)],
        [
            Mistake(
                lambda x, f, g, b, eps: normalised(f, g, b, eps),
                "The residual connection is missing: you normalise f alone. The input x is added first: "
                "LayerNorm(x + f).",
            ),
            Mistake(
                lambda x, f, g, b, eps: normalised(x, g, b, eps),
                "You normalise x alone; what the part computed, f, is lost. Normalise their sum: LayerNorm(x + f).",
            ),
            Mistake(lambda x, f, g, b, eps: x + f, "You add, but you do not normalise: LayerNorm(x + f)."),
            Mistake(
                lambda x, f, g, b, eps: x + normalised(f, g, b, eps),
                "You normalise f and then add x. In BERT the norm comes after the addition: LayerNorm(x + f).",
            ),
            Mistake(
                lambda x, f, g, b, eps: normalised(x, g, b, eps) + f,
                "You normalise x and then add f. In BERT the norm comes after the addition: LayerNorm(x + f).",
            ),
            Mistake(
                lambda x, f, g, b, eps: normalised(x + f + x, g, b, eps),
                "You add x twice. The residual connection adds it once: LayerNorm(x + f).",
            ),
            Mistake(
                lambda x, f, g, b, eps: x + normalised(x + f, g, b, eps),
                "You add x once more after the norm. The result is the norm of the sum: LayerNorm(x + f).",
            ),
            Mistake(
                lambda x, f, g, b, eps: normalised(x * f, g, b, eps),
                "You multiply x and f. A residual connection adds them.",
            ),
            Mistake(
                lambda x, f, g, b, eps: normalised(x + f, g, b, eps, axis=-2),
                "You average over the tokens. Each token is normalised on its own: mean and variance over the "
                "last axis.",
            ),
            Mistake(
                lambda x, f, g, b, eps: normalised(x + f, 1, 0, eps),
                "gamma and beta are missing: the result is gamma ⊙ x̂ + beta.",
            ),
        ],
        hints={"not callable": "f is an array: what the part has computed from x already. Write x + f."},
    )


# ------------------------------------------------------------------ 3.3


class Part:
    """A function (B,T,H) -> (B,T,H) that the learner's code gets: x M, or tanh(x M)."""

    def __init__(self, name: str, seed: int):
        self.name, self.seed = name, seed

    def __call__(self, x):
        return np.tanh(np.asarray(x) @ random(np.shape(x)[-1], np.shape(x)[-1], seed=self.seed))

    def __repr__(self) -> str:
        return f"a function {self.name}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Part) and self.seed == other.seed

    def __hash__(self) -> int:
        return self.seed


def block(answer: Answer) -> str | None:
    def right(x, A, F, N1, N2):
        middle = N1(x + A(x))
        return N2(middle + F(middle))

    def skips_middle(x, A, F, N1, N2):
        return N2(x + F(N1(x + A(x))))

    def parallel(x, A, F, N1, N2):
        return N2(N1(x + A(x)) + F(x))

    def one_norm(x, A, F, N1, N2):
        middle = x + A(x)
        return N2(middle + F(middle))

    def last_norm_missing(x, A, F, N1, N2):
        middle = N1(x + A(x))
        return middle + F(middle)

    def pre_norm(x, A, F, N1, N2):
        middle = x + A(N1(x))
        return middle + F(N2(middle))

    parts = tuple(Part(name, 10 + i) for i, name in enumerate(("attention", "feed_forward", "norm_1", "norm_2")))
    return check_function(
        answer,
        "my_block",
        right,
        [(random(2, 5, 3), *parts), (random(3, 2, 7), *parts)],
        [
            Mistake(
                lambda x, A, F, N1, N2: N2(F(N1(A(x)))),
                "Both residual connections are missing: each part adds to its input, x + attention(x).",
            ),
            Mistake(
                lambda x, A, F, N1, N2: N2(F(N1(x + A(x)))),
                "The second residual connection is missing: x' + feed_forward(x').",
            ),
            Mistake(
                lambda x, A, F, N1, N2: (lambda m: N2(m + F(m)))(N1(A(x))),
                "The first residual connection is missing: x + attention(x).",
            ),
            Mistake(
                skips_middle,
                "Your second addition adds the input of the block, x. It must add the input of the feed-forward "
                "network, x', which already contains what attention found.",
            ),
            Mistake(
                parallel,
                "Your feed-forward network reads x, the input of the block. It must read x', so that it works "
                "with what attention found.",
            ),
            Mistake(one_norm, "The first norm is missing: x' = norm_1(x + attention(x))."),
            Mistake(last_norm_missing, "The last norm is missing: y = norm_2(x' + feed_forward(x'))."),
            Mistake(
                pre_norm,
                'You normalise the input of each part ("pre-norm", as in GPT-2). BERT normalises after each addition.',
            ),
            Mistake(
                lambda x, A, F, N1, N2: right(x, A, F, N2, N1),
                "You have exchanged the two norms. They have different weights: norm_1 follows attention, norm_2 "
                "the feed-forward network.",
            ),
            *(
                Mistake(
                    lambda x, A, F, N1, N2, which=which: right(x, A, F, (N1, N2)[which], (N1, N2)[which]),
                    f"You use norm_{which + 1} twice. The two norms have different weights: norm_1 follows attention, "
                    "norm_2 the feed-forward network.",
                )
                for which in (0, 1)
            ),
            Mistake(
                lambda x, A, F, N1, N2: right(x, F, A, N1, N2),
                "The feed-forward network comes first in your block. Attention comes first.",
            ),
        ],
    )


# ------------------------------------------------------------------ 3.5


def parameters(answer: Answer) -> str | None:
    def count(
        V, H, L, I, T, attention=4, inner_bias=1, outer_bias=1, norms=2, final=1, head=1, head_bias=1, positions=1
    ):
        block = attention * H * H + 2 * H * I + inner_bias * I + outer_bias * H + norms * 2 * H
        return V * H + positions * T * H + L * block + final * 2 * H + head * H * V + head_bias * V

    def without(**changes):
        return lambda V, H, L, I, T: count(V, H, L, I, T, **changes)

    def biased_attention(V, H, L, I, T):
        return count(V, H, L, I, T) + L * 4 * H

    return check_function(
        answer,
        "my_parameters",
        count,
        [(101, 7, 5, 29, 13), (8192, 192, 3, 768, 64), (50000, 384, 6, 1536, 128)],
        [
            Mistake(
                lambda V, H, L, I, T: count(V, H, 1, I, T),
                "You count one block. There are L of them, each with weights of its own.",
            ),
            Mistake(
                without(inner_bias=0, outer_bias=0),
                "The biases of the feed-forward network are missing: b₁ has I numbers and b₂ has H, in each block.",
            ),
            Mistake(
                without(inner_bias=0),
                "b₁, the first bias of the feed-forward network, is missing: I numbers in each block.",
            ),
            Mistake(
                without(outer_bias=0),
                "b₂, the second bias of the feed-forward network, is missing: H numbers in each block.",
            ),
            Mistake(
                biased_attention,
                "You count biases for queries, keys, values and outputs. Mini-BERT's attention has none; "
                "published BERT's has.",
            ),
            Mistake(
                without(attention=3),
                "The output matrix of attention, W_o (H × H), is missing in each block.",
            ),
            Mistake(
                without(attention=1),
                "You count one H × H matrix for attention. There are four: queries, keys, values and output.",
            ),
            Mistake(without(norms=1), "You count one norm per block. There are two, each with γ and β."),
            Mistake(
                without(norms=0, final=0),
                "The norms are missing: two in each block and one at the end, each with γ and β of H numbers.",
            ),
            Mistake(without(final=0), "The final norm after the last block is missing: 2 H."),
            Mistake(
                without(head=0),
                "The matrix of the head (H × V) is missing. It is not shared with the token table here.",
            ),
            Mistake(
                without(head_bias=0),
                "The bias of the head is missing: one number for each of the V words.",
            ),
            Mistake(without(positions=0), "The table of positions is missing: T × H."),
            Mistake(
                lambda V, H, L, I, T: count(V, H, L, 4 * H, T),
                "You take 4H for the width of the feed-forward network. It is the argument I.",
            ),
            Mistake(
                lambda V, H, L, I, T: count(V, H, L, I, 64),
                "You count 64 positions, as in the bundled model. Their number is the argument T.",
            ),
            Mistake(
                lambda V, H, L, I, T: count(V, H, L, I, T) * T,
                "You multiply by T. The weights are the same for every token, so their number does not depend on "
                "how many tokens there are, except for the table of positions.",
            ),
        ],
    )


EXERCISES = [
    Exercise(
        "3.1",
        "A padded batch",
        "my_batch(rows, pad_id): lists of ids as one array (B, T), padded at the end, and a mask (B, T) "
        "with 0 for padding",
        batch,
    ),
    Exercise(
        "3.2",
        "Add and norm",
        "my_add_and_norm(x, f, gamma, beta, eps): the layer norm of the input x plus what a part computed, f",
        add_and_norm,
    ),
    Exercise(
        "3.3",
        "The block",
        "my_block(x, attention, feed_forward, norm_1, norm_2): BERT's block, from four functions",
        block,
    ),
    Exercise(
        "3.4",
        "The likeliest words",
        "my_top_words(logits, words, k): a list of the k likeliest words that are not in [brackets], and "
        "an array of their probabilities",
        top_words,
    ),
    Exercise(
        "3.5",
        "Count the parameters",
        "my_parameters(V, H, L, I, T): the number of weights of a Mini-BERT of these sizes",
        parameters,
    ),
    Exercise(
        "3.6",
        "Several gaps",
        "my_fill(predict, ids, mask_id): the list ids with all masks filled, one at a time, the most certain first",
        fill,
    ),
]
