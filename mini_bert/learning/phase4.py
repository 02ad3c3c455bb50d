"""Exercises of learn/4_training.md: hiding words, cross-entropy, gradients, Adam, the learning rate, a small doctor.

Letters for shapes: T tokens, N rows, V vocabulary.
"""

from __future__ import annotations

import numpy as np

from mini_bert.learning.exercise import Answer, Exercise, Mistake, check_function
from mini_bert.learning.phase1 import random
from mini_bert.learning.phase1 import softmax_of as softmax
from mini_bert.learning.phase4_gradients import adam, backward, numerical_gradient
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


# ------------------------------------------------------------------ 4.6


def learning_rate(answer: Answer) -> str | None:
    def right(step, steps, peak, warmup):
        progress = step / steps
        return peak * (progress / warmup if progress < warmup else (1 - progress) / (1 - warmup))

    def no_decay(step, steps, peak, warmup):
        return peak * min(1, step / max(warmup * steps, 1e-9))

    def decays_over_all(step, steps, peak, warmup):
        progress = step / steps
        return peak * (progress / warmup if progress < warmup else 1 - progress)

    def no_warmup(step, steps, peak, warmup):
        return peak * (1 - step / steps)

    def constant_at_first(step, steps, peak, warmup):
        return peak * min(1, (1 - step / steps) / (1 - warmup))

    def in_steps(step, steps, peak, warmup):
        return right(step, steps, peak, warmup / steps)

    def of_the_run(step, steps, peak, warmup):
        progress = step / steps
        return peak * (progress if progress < warmup else (1 - progress) / (1 - warmup))

    return check_function(
        answer,
        "my_learning_rate",
        right,
        [(3, 40, 0.5, 0.25), (22, 40, 0.5, 0.25), (10, 40, 0.5, 0.25), (40, 40, 0.5, 0.25), (0, 10, 0.001, 0.0)],
        [
            Mistake(
                decays_over_all,
                "Your rate jumps down after warm-up, to (1 − warmup) · peak. Divide by 1 − warmup, so that it "
                "falls from the peak.",
            ),
            Mistake(
                no_warmup,
                "There is no warm-up: the rate rises from 0 to the peak in the first part of the run.",
            ),
            Mistake(
                constant_at_first,
                "Your rate is at its peak during warm-up. It rises there in a straight line from 0.",
            ),
            Mistake(
                of_the_run,
                "Your rate rises only to warmup · peak. Divide the progress by warmup, so that it reaches the peak.",
            ),
            Mistake(
                lambda step, steps, peak, warmup: right(step, steps, 1, warmup),
                "Your rate rises to 1. Multiply by the peak.",
            ),
            Mistake(
                in_steps,
                "You use warmup as a number of steps. It is a fraction of the run: warm-up ends at step warmup · "
                "steps.",
            ),
            Mistake(
                no_decay,
                "Your rate stays at the peak after warm-up. It falls in a straight line to 0 at the last step.",
            ),
        ],
    )


# ------------------------------------------------------------------ 4.7


def verdict(answer: Answer) -> str | None:
    def of(memorises=0.1, context=0.8, nan=True, uniform_first=True):
        """The verdict with other bounds, or without a rule"""

        def told(held_out, uniform, baseline):
            last, lowest = held_out[-1], np.nanmin(held_out)
            if (nan and np.isnan(last)) or (uniform_first and last > uniform):
                return "broken"
            if last > lowest + memorises:
                return "memorises"
            return "frequencies" if last > baseline - context else "context"

        return told

    right, uniform, baseline = of(), 9.0, 6.4

    def frequencies_first(held_out, uniform, baseline):
        told = right(held_out, uniform, baseline)
        return "frequencies" if told == "memorises" and held_out[-1] > baseline - 0.8 else told

    def compares_with_first(held_out, uniform, baseline):
        told = right(held_out, uniform, baseline)
        return right(held_out[-1:], uniform, baseline) if told == "memorises" and held_out[-1] < held_out[0] else told

    def above_baseline(held_out, uniform, baseline):
        return "broken" if held_out[-1] > baseline else right(held_out, uniform, baseline)

    losses = [
        [8.9, 6.5, 6.2],  # only just below the baseline
        [8.9, 6.5, 5.2, 4.1],
        [4.6, 4.2, 4.8],
        [8.8, 5.0, 4.2, 4.5],  # lower than at first, but it rises
        [8.9, 5.5, 5.4, 5.8],
        [8.9, 6.5, 6.6, 6.45],
        [8.9, 6.4, 9.4],
        [8.9, 6.4, float("nan")],
        [8.5],
    ]
    return check_function(
        answer,
        "my_verdict",
        right,
        [(held_out, uniform, baseline) for held_out in losses],
        [
            Mistake(
                of(context=0),
                "A loss of 6.2 is only 0.2 below the baseline of 6.4. Copying the visible words explains that; "
                "context begins at 0.8 below.",
            ),
            Mistake(
                frequencies_first,
                "The order matters: a loss of 5.8 after 5.4 is near the baseline, but it rises, so the first "
                'true verdict is "memorises".',
            ),
            Mistake(
                compares_with_first,
                "You compare the last loss with the first. It is 4.5 after 4.2: a run memorises when the last "
                "loss is more than 0.1 above the lowest.",
            ),
            Mistake(
                of(memorises=np.inf),
                'The loss is 4.8 after 4.2: it is more than 0.1 above the lowest, so the verdict is "memorises".',
            ),
            Mistake(
                above_baseline,
                "A loss of 6.45 is a little above the baseline of 6.4, but far below ln V = 9: only above "
                "`uniform` is a run broken.",
            ),
            Mistake(
                of(nan=False),
                "NaN compares as False with everything, so `loss > uniform` does not catch it. Test it on its "
                "own: math.isnan(loss).",
            ),
            Mistake(
                of(uniform_first=False),
                'The last loss is 9.4, worse than a blind guess (ln V = 9): the verdict is "broken", whatever '
                "else is true.",
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
