"""Exercises of learn/4_training.md: hiding words, cross-entropy, gradients, Adam, the learning rate, a small doctor.

Letters for shapes: T tokens, N rows, V vocabulary.
"""

from __future__ import annotations

import numpy as np

from mini_bert.learning.exercise import Answer, Exercise, Mistake, check_function
from mini_bert.learning.phase1 import random
from mini_bert.learning.phase1 import softmax_of as softmax
from mini_bert.learning.phase4_gradients import adam, backward, numerical_gradient
from mini_bert.learning.phase4_runs import learning_rate, verdict
from mini_bert.learning.results import check_results

# ------------------------------------------------------------------ 4.1


def hide(answer: Answer) -> str | None:
    def hidden(ids, positions, new):
        masked = ids.copy()
        masked[positions] = new
        return masked

    def split(to_mask, to_random):
        """80 % and 10 %, or other shares"""

        def made(ids, positions, u, random_ids, mask_id):
            targets = ids[positions]
            new = np.where(u < to_mask, mask_id, np.where(u < to_random, random_ids, targets))
            return hidden(ids, positions, new), targets

        return made

    right = split(0.8, 0.9)

    def exchanged(ids, positions, u, random_ids, mask_id):
        targets = ids[positions]
        new = np.where(u < 0.8, mask_id, np.where(u < 0.9, targets, random_ids))
        return hidden(ids, positions, new), targets

    def bounds_included(ids, positions, u, random_ids, mask_id):
        targets = ids[positions]
        new = np.where(u <= 0.8, mask_id, np.where(u <= 0.9, random_ids, targets))
        return hidden(ids, positions, new), targets

    def first_included(ids, positions, u, random_ids, mask_id):
        targets = ids[positions]
        new = np.where(u <= 0.8, mask_id, np.where(u < 0.9, random_ids, targets))
        return hidden(ids, positions, new), targets

    def overwritten(ids, positions, u, random_ids, mask_id):
        return hidden(ids, positions, np.where(u < 0.9, random_ids, ids[positions])), ids[positions]

    def targets_after(*arguments):
        masked, _ = right(*arguments)
        return masked, masked[arguments[1]]

    def all_targets(*arguments):
        return right(*arguments)[0], arguments[0]

    ids = np.array([2, 21, 22, 23, 24, 25, 26, 27, 28, 3])
    first = ids, np.array([1, 2, 4, 7, 8]), np.array([0.85, 0.05, 0.95, 0.79, 0.15]), np.arange(31, 36), 4
    second = ids, np.array([3, 5]), np.array([0.8, 0.9]), np.array([41, 42]), 6  # the bounds themselves
    return check_results(
        answer,
        "my_hide",
        right,
        [first, second],
        {"new_ids": 0, "targets": 1},
        [
            Mistake(
                split(1.0, 1.0),
                "You replace all chosen words by the mask. Where u is 0.8 or more, they become a random word or stay.",
            ),
            Mistake(
                split(0.8, 0.8),
                "You never use random_ids: where 0.8 ≤ u < 0.9, the token becomes the random word.",
            ),
            Mistake(
                split(0.8, 1.0),
                "None of your chosen words stays as it is: where u ≥ 0.9, the token does not change.",
            ),
            Mistake(
                split(0.1, 0.2),
                "You mask where u < 0.1. Most of the chosen words become the mask: where u < 0.8.",
            ),
            Mistake(
                split(0.1, 0.9),
                "You have exchanged the shares: where u < 0.8 the token becomes the mask, and where 0.8 ≤ u < "
                "0.9 the random word.",
            ),
            Mistake(
                exchanged,
                "You have exchanged the last two: where 0.8 ≤ u < 0.9 the token becomes the random word, and where "
                "u ≥ 0.9 it stays.",
            ),
            *(
                Mistake(
                    included,
                    "u is exactly 0.8 here, and you write the mask. The bounds are u < 0.8 and u < 0.9, not ≤: 0.8 "
                    "itself is a random word.",
                )
                for included in (bounds_included, first_included)
            ),
            Mistake(
                overwritten,
                "Your random words overwrite the masks: u < 0.9 is also true where u < 0.8. Use the random word "
                "only where 0.8 ≤ u < 0.9.",
            ),
            Mistake(
                targets_after,
                "Your targets are the tokens after hiding. The targets are what the model has to find: the "
                "original tokens, ids[positions].",
            ),
            Mistake(
                all_targets,
                "Your targets are all tokens. Only the chosen ones enter the loss: ids[positions].",
            ),
        ],
        hints={"out of bounds": "u and random_ids have one number for each chosen position, (N,): do not index them."},
    )


# ------------------------------------------------------------------ 4.2


def cross_entropy(answer: Answer) -> str | None:
    def losses(logits, targets):
        shifted = logits - logits.max(-1, keepdims=True)
        return np.log(np.exp(shifted).sum(-1)) - shifted[np.arange(len(targets)), targets]

    def right(logits, targets):
        return losses(logits, targets).mean()

    def naive(logits, targets):
        p = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
        return -np.log(p[np.arange(len(targets)), targets]).mean()

    def picked(logits, targets):
        return softmax(logits)[np.arange(len(targets)), targets]

    large = np.array([[1000.0, 990.0, -1000.0], [0.0, 1000.0, 1001.0]])
    return check_function(
        answer,
        "my_cross_entropy",
        right,
        [
            (random(3, 5), np.array([2, 0, 1])),
            (random(7, 11), np.arange(7)),
            (large, np.array([0, 1])),
            (large, np.array([2, 0])),
        ],
        [
            Mistake(
                lambda z, t: -np.log(picked(z, t)).mean(),
                "A probability that is too small for a float becomes 0, and its logarithm −∞. Do not compute p "
                "first: log p = z − max − log Σ exp(z − max).",
            ),
            Mistake(
                naive,
                "exp(1000) overflows. Subtract the largest logit of each row first: this does not change the "
                "probabilities.",
            ),
            Mistake(
                lambda z, t: losses(z, t).sum(),
                "You add up the losses of all rows. Divide by their number: the loss is the mean.",
            ),
            Mistake(losses, "You return a loss for each row. Return their mean, one number."),
            Mistake(
                lambda z, t: -right(z, t),
                "Your sign is wrong. The logarithm of a probability is negative, and the loss is −log p, at least 0.",
            ),
            Mistake(
                lambda z, t: right(z, t) / np.log(2),
                "You use the logarithm to base 2. The loss is in nats: np.log.",
            ),
            Mistake(
                lambda z, t: right(z, t) / np.log(10),
                "You use the logarithm to base 10. The loss is in nats: np.log.",
            ),
            Mistake(
                lambda z, t: (1 - picked(z, t)).mean(),
                "You compute 1 − p. The loss is −log p: it grows without bound when p goes to 0.",
            ),
            Mistake(lambda z, t: -picked(z, t).mean(), "You compute −p. The logarithm is missing: −log p."),
            Mistake(
                lambda z, t: -np.log(picked(z, t).mean()),
                "You take the logarithm of the mean probability. Take the mean of the logarithms.",
            ),
            Mistake(
                lambda z, t: -np.log(softmax(z)[:, t]).mean(),
                "p[:, targets] picks every target from every row. Row n has target n: p[np.arange(N), targets].",
            ),
            Mistake(
                lambda z, t: -np.log(softmax(z)).mean(),
                "You average over all words. Only the probability of the correct word of each row counts: "
                "p[np.arange(N), targets].",
            ),
            Mistake(
                lambda z, t: -np.log(softmax(z, 0)[np.arange(len(t)), t]).mean(),
                "Your softmax runs over the rows. Each row is a distribution over words: axis=-1.",
            ),
            Mistake(
                lambda z, t: -z[np.arange(len(t)), t].mean(),
                "You use the logits as log probabilities. Softmax comes first: log p = z − log Σ exp z.",
            ),
        ],
    )


EXERCISES = [
    Exercise(
        "4.1",
        "Hide words",
        "my_hide(ids, positions, u, random_ids, mask_id): the ids with 80 % of the chosen ones masked, "
        "10 % random, 10 % kept; and the targets",
        hide,
    ),
    Exercise(
        "4.2",
        "Cross-entropy",
        "my_cross_entropy(logits, targets): the mean of −log p[target] over the rows",
        cross_entropy,
    ),
    Exercise(
        "4.3",
        "The backward pass",
        "my_backward(x, W1, W2, targets): dW1, dW2 and dx of the mean cross-entropy of ReLU(x W1) W2",
        backward,
    ),
    Exercise(
        "4.4",
        "The gradient check",
        "my_gradient(f, w, h): (f(w + h) − f(w − h)) / 2h for each number of the array w",
        numerical_gradient,
    ),
    Exercise("4.5", "Adam", "my_adam(w, g, m, v, t, lr): the new w, m and v after step t", adam),
    Exercise(
        "4.6",
        "The learning rate",
        "my_learning_rate(step, steps, peak, warmup): rises from 0 to the peak, then falls to 0",
        learning_rate,
    ),
    Exercise(
        "4.7",
        "A small doctor",
        'my_verdict(held_out, uniform, baseline): "broken", "memorises", "frequencies" or "context"',
        verdict,
    ),
]
