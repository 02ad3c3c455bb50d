"""Exercises of learn/5_understanding.md: loss and accuracy, calibration, sentence scores, heads, controls, cosines,
classification.

Letters for shapes: T tokens, N cases, V vocabulary.
"""

from __future__ import annotations

import numpy as np

from mini_bert.learning.exercise import Answer, Exercise, Mistake, check_function
from mini_bert.learning.phase1 import random
from mini_bert.learning.phase5_inside import classify, control, heads_off, mean_cosine
from mini_bert.learning.results import check_results

OVERFLOW = "Your loss is not finite for large logits: exp overflows. Subtract the largest logit of each row first."

# ------------------------------------------------------------------ 5.1


def evaluate(answer: Answer) -> str | None:
    def losses(logits, targets):
        shifted = logits - logits.max(-1, keepdims=True)
        return np.log(np.exp(shifted).sum(-1)) - shifted[np.arange(len(targets)), targets]

    def ranks(logits, targets):
        own = logits[np.arange(len(targets)), targets]
        return (logits > own[:, None]).sum(-1)

    def with_loss(loss_of):
        def made(logits, targets, k):
            loss = loss_of(losses(logits, targets))
            return loss, np.exp(loss), (ranks(logits, targets) < k).mean()

        return made

    right = with_loss(np.mean)

    def with_perplexity(perplexity_of):
        def made(logits, targets, k):
            loss, _, share = right(logits, targets, k)
            return loss, perplexity_of(losses(logits, targets)), share

        return made

    def with_share(share_of):
        def made(logits, targets, k):
            loss, perplexity, _ = right(logits, targets, k)
            return loss, perplexity, share_of(logits, targets, k)

        return made

    def naive(logits, targets, k):
        p = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
        loss = -np.log(p[np.arange(len(targets)), targets]).mean()
        return loss, np.exp(loss), (ranks(logits, targets) < k).mean()

    def unshifted(logits, targets, k):
        loss = (np.log(np.exp(logits).sum(-1)) - logits[np.arange(len(targets)), targets]).mean()
        return loss, np.exp(loss), (ranks(logits, targets) < k).mean()

    large = np.array([[1000.0, 998.0, 0.0], [-1000.0, 0.0, 1.0]])
    return check_results(
        answer,
        "my_evaluate",
        right,
        [(2 * random(7, 5), np.array([2, 0, 1, 4, 4, 3, 0]), 2), (large, np.array([1, 2]), 1)],
        {"loss": 0, "perplexity": 1, "share": 2},
        [
            Mistake(with_loss(np.sum), "Your loss is the sum over the rows. It is the mean: divide by N."),
            Mistake(
                with_loss(lambda each: -np.log(np.exp(-each).mean())),
                "Your loss is −ln of the mean probability. It is the mean of −ln p: first the logarithm, then "
                "the mean.",
            ),
            Mistake(
                with_loss(lambda each: each.mean() / np.log(2)),
                "You use the logarithm to base 2. The loss is measured with the natural logarithm, np.log.",
            ),
            Mistake(
                with_loss(lambda each: -each.mean()), "Your loss has the wrong sign: it is −ln p, which is positive."
            ),
            Mistake(
                with_perplexity(lambda each: 2 ** each.mean()),
                "Your perplexity is 2^loss. The loss was measured with the natural logarithm, so it is e^loss: np.exp.",
            ),
            Mistake(
                with_perplexity(lambda each: np.exp(each).mean()),
                "Your perplexity is the mean of 1/p. Take the mean first: e to the power of the mean loss.",
            ),
            Mistake(
                with_share(lambda logits, targets, k: (ranks(logits, targets) < 1).mean()),
                "Your third result counts first guesses only. The target may be among the k largest logits.",
            ),
            Mistake(
                with_share(lambda logits, targets, k: (ranks(logits, targets) < k).sum()),
                "Your third result is a number of rows. Divide it by N: it is a share.",
            ),
            Mistake(
                with_share(lambda logits, targets, k: (ranks(-logits, targets) < k).mean()),
                "You take the k smallest logits: np.argsort sorts in ascending order, so the largest come last.",
            ),
            Mistake(naive, OVERFLOW),
            Mistake(unshifted, OVERFLOW),
        ],
    )


# ------------------------------------------------------------------ 5.2


def calibration(answer: Answer) -> str | None:
    def gaps(confidence, right, bins, keep_one=True):
        """The gap and the size of each bin that is not empty, and the number of its bin"""
        number = np.floor(confidence * bins).astype(int)
        if keep_one:
            number = np.minimum(number, bins - 1)
        filled = [b for b in range(bins) if (number == b).any()]
        gap = [right[number == b].mean() - confidence[number == b].mean() for b in filled]
        return np.array(gap), np.array([(number == b).sum() for b in filled]), np.array(filled)

    def correct(confidence, right, bins):
        gap, size, _ = gaps(confidence, right, bins)
        return (size * abs(gap)).sum() / len(right)

    def equal_bins(confidence, right, bins):
        return abs(gaps(confidence, right, bins)[0]).mean()

    def all_bins(confidence, right, bins):
        return abs(gaps(confidence, right, bins)[0]).sum() / bins

    def signed(confidence, right, bins):
        gap, size, _ = gaps(confidence, right, bins)
        return (size * gap).sum() / len(right)

    def overall(confidence, right, bins):
        return abs(right.mean() - confidence.mean())

    def worst(confidence, right, bins):
        return abs(gaps(confidence, right, bins)[0]).max()

    def middle(confidence, right, bins):
        number = np.minimum(np.floor(confidence * bins).astype(int), bins - 1)
        means = [right[number == b].mean() if (number == b).any() else 0 for b in range(bins)]
        return abs(np.array(means)[number] - (number + 0.5) / bins).mean()

    def one_by_one(confidence, right, bins):
        return abs(right - confidence).mean()

    def without_one(confidence, right, bins):
        gap, size, _ = gaps(confidence, right, bins, keep_one=False)
        return (size * abs(gap)).sum() / len(right)

    def upper_edges(confidence, right, bins, lowest):
        number = np.maximum(np.ceil(confidence * bins).astype(int) - 1, lowest)  # −1: 0 is in no bin
        gap = [
            (number == b).mean() * abs(right[number == b].mean() - confidence[number == b].mean())
            for b in range(bins)
            if (number == b).any()
        ]
        return sum(gap)

    confidence = np.array([0.15, 0.42, 0.48, 0.63, 0.71, 0.77, 0.93, 0.97])
    hits = np.array([0, 1, 1, 0, 1, 0, 1, 0])
    certain = np.array([1.0, 1.0, 0.3, 0.55, 0.95])
    edges = np.array([0.0, 0.25, 0.4, 0.5, 0.7, 0.9])
    return check_function(
        answer,
        "my_calibration_error",
        correct,
        [(confidence, hits, 5), (certain, np.array([1, 0, 1, 0, 1]), 10), (edges, np.array([1, 0, 0, 1, 0, 1]), 4)],
        [
            Mistake(
                equal_bins,
                "You count all bins the same. A bin with many guesses counts more: weight each gap by n_b/N.",
            ),
            Mistake(all_bins, "You divide by the number of bins. Weight each gap by n_b/N; empty bins do not count."),
            Mistake(
                signed,
                "Gaps of different sign cancel in your sum. Take the absolute value of the gap of each bin first.",
            ),
            Mistake(
                overall,
                "You compare the mean confidence with the accuracy of all guesses. Too high in one bin and too low in "
                "another then cancel: compare within each bin.",
            ),
            Mistake(worst, "You return the gap of the worst bin. The error is the mean gap, weighted by n_b/N."),
            Mistake(
                middle,
                "You use the middle of each bin as its confidence. Use the mean confidence of the guesses in it.",
            ),
            Mistake(
                one_by_one,
                "You compare each guess on its own. One guess is right or wrong; only the accuracy of a whole bin "
                "can be compared with a confidence.",
            ),
            Mistake(
                lambda confidence, right, bins: np.nan,
                "Your result is NaN: the mean of an empty bin. Skip the bins that have no guesses.",
            ),
            *(
                Mistake(
                    lambda confidence, right, bins, lowest=lowest: upper_edges(confidence, right, bins, lowest),
                    "Your bins include their upper bound and not the lower. Bin b begins at b/bins, which belongs to "
                    "it, and ends before (b+1)/bins.",
                )
                for lowest in (-1, 0)
            ),
            Mistake(without_one, "Guesses with a confidence of exactly 1 are missing: the last bin includes 1."),
        ],
    )


# ------------------------------------------------------------------ 5.3


def toy_model(ids: np.ndarray) -> np.ndarray:
    """Log-probabilities (T,V) that depend on the token itself and on both neighbours."""
    own, before, after = random(8, 8, seed=1), random(8, 8, seed=2), random(8, 8, seed=3)
    ids = np.asarray(ids)
    logits = 2 * own[ids]
    logits[1:] += before[ids[:-1]]
    logits[:-1] += after[ids[1:]]
    return logits - np.log(np.exp(logits).sum(-1, keepdims=True))


def score(answer: Answer) -> str | None:
    def log_p(ids, seen, places, log_probs):
        return [log_probs(seen(t))[t, ids[t]] for t in places]

    def terms(ids, log_probs, mask_id, first=1, last=1):
        def seen(t):
            hidden = ids.copy()
            hidden[t] = mask_id
            return hidden

        return log_p(ids, seen, range(first, len(ids) - last), log_probs)

    def right(ids, log_probs, mask_id):
        return np.sum(terms(ids, log_probs, mask_id))

    def visible(ids, log_probs, mask_id):
        return np.sum(log_p(ids, lambda t: ids, range(1, len(ids) - 1), log_probs))

    def all_hidden(ids, log_probs, mask_id):
        hidden = ids.copy()
        hidden[1:-1] = mask_id
        return np.sum(log_p(ids, lambda t: hidden, range(1, len(ids) - 1), log_probs))

    def not_shown_again(ids, log_probs, mask_id):
        def seen(t):
            hidden = ids.copy()
            hidden[1 : t + 1] = mask_id
            return hidden

        return np.sum(log_p(ids, seen, range(1, len(ids) - 1), log_probs))

    def guess(ids, log_probs, mask_id):
        total = 0.0
        for t in range(1, len(ids) - 1):
            hidden = ids.copy()
            hidden[t] = mask_id
            total += log_probs(hidden)[t].max()
        return total

    def of_mask(ids, log_probs, mask_id):
        total = 0.0
        for t in range(1, len(ids) - 1):
            hidden = ids.copy()
            hidden[t] = mask_id
            total += log_probs(hidden)[t, mask_id]
        return total

    return check_function(
        answer,
        "my_score",
        right,
        [(np.array([1, 5, 3, 7, 6, 2]), toy_model, 4), (np.array([1, 3, 2]), toy_model, 4)],
        [
            Mistake(
                visible, "The token is visible when you ask for it. Replace it by mask_id first, in a copy of ids."
            ),
            Mistake(
                all_hidden,
                "You hide all tokens at once, so none has any context. Hide one token at a time, and leave all others.",
            ),
            Mistake(
                not_shown_again,
                "The tokens you have hidden stay hidden. Begin with a new copy of ids for each token.",
            ),
            Mistake(
                lambda ids, log_probs, mask_id: np.mean(terms(ids, log_probs, mask_id)),
                "You return the mean of the log-probabilities. The pseudo-log-likelihood is their sum.",
            ),
            Mistake(
                lambda ids, log_probs, mask_id: np.sum(terms(ids, log_probs, mask_id, 0, 0)),
                "You also score [CLS] and [SEP]. They are the same in every sentence: leave out first and last.",
            ),
            Mistake(
                lambda ids, log_probs, mask_id: np.sum(terms(ids, log_probs, mask_id, 1, 0)),
                "You also score [SEP]: leave out the last token.",
            ),
            Mistake(
                lambda ids, log_probs, mask_id: -right(ids, log_probs, mask_id),
                "Your sign is wrong: log-probabilities are negative, and so is their sum.",
            ),
            Mistake(
                lambda ids, log_probs, mask_id: np.exp(terms(ids, log_probs, mask_id)).sum(),
                "You add up probabilities. Add up their logarithms: the probabilities themselves would be multiplied.",
            ),
            Mistake(
                guess,
                "You use the probability of the best guess. Use that of the token that was hidden: [t, ids[t]].",
            ),
            Mistake(
                of_mask,
                "You use the probability of the mask itself. Use that of the token that was hidden: [t, ids[t]].",
            ),
        ],
    )


EXERCISES = [
    Exercise(
        "5.1",
        "Loss, perplexity, accuracy",
        "my_evaluate(logits, targets, k): loss, perplexity, and the share of targets among the k largest logits",
        evaluate,
    ),
    Exercise(
        "5.2",
        "Calibration",
        "my_calibration_error(confidence, right, bins): the mean gap between confidence and accuracy, over the bins",
        calibration,
    ),
    Exercise(
        "5.3",
        "Pseudo-log-likelihood",
        "my_score(ids, log_probs, mask_id): the sum of ln p of each token, hidden while all others are visible",
        score,
    ),
    Exercise(
        "5.4",
        "Switch heads off",
        "my_attention_output(context, Wo, heads, off): the output of attention without the heads in `off`",
        heads_off,
    ),
    Exercise(
        "5.5",
        "A control task",
        "my_control_labels(words, labels, chance): a random label for each word, the same wherever it occurs",
        control,
    ),
    Exercise(
        "5.6",
        "Mean cosine",
        "my_mean_cosine(vectors, centred): the mean cosine of all pairs of different vectors",
        mean_cosine,
    ),
    Exercise(
        "5.7",
        "A head for sentences",
        "my_classify(hidden, mask, W, b): probabilities of the classes, from the mean of the vectors of the words",
        classify,
    ),
]
