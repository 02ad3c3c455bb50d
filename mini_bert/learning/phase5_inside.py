"""Exercises 5.4 to 5.7 of learn/5_understanding.md: switching heads off, a control for probes, cosines, a classifier.

Letters for shapes: T tokens, N cases, H width, d = H/heads.
"""

from __future__ import annotations

import numpy as np

from mini_bert.learning.exercise import BROADCAST, Answer, Mistake, check_function
from mini_bert.learning.phase1 import random
from mini_bert.learning.phase1 import softmax_of as softmax

# ------------------------------------------------------------------ 5.4


def heads_off(answer: Answer) -> str | None:
    def columns(context, heads, off):
        """Which columns of the context belong to the heads that are off, (H,)"""
        return np.isin(np.arange(context.shape[1]) // (context.shape[1] // heads), off)

    def right(context, Wo, heads, off):
        return np.where(columns(context, heads, off), 0, context) @ Wo

    def of_output(context, Wo, heads, off):
        return np.where(columns(context, heads, off), 0, context @ Wo)

    def only_those(context, Wo, heads, off):
        return np.where(columns(context, heads, off), context, 0) @ Wo

    def none_off(context, Wo, heads, off):
        return context @ Wo

    def interleaved(context, Wo, heads, off):
        return np.where(np.isin(np.arange(context.shape[1]) % heads, off), 0, context) @ Wo

    def one_column(context, Wo, heads, off):
        return np.where(np.isin(np.arange(context.shape[1]), off), 0, context) @ Wo

    def counted_from_one(context, Wo, heads, off):
        return right(context, Wo, heads, [head - 1 for head in off])

    def first_only(context, Wo, heads, off):
        return right(context, Wo, heads, off[:1])

    def no_output(context, Wo, heads, off):
        return np.where(columns(context, heads, off), 0, context)

    def cut_out(context, Wo, heads, off):
        kept = ~columns(context, heads, off)
        return context[:, kept] @ Wo[:, kept].T

    case = random(3, 6), random(6, 6, seed=1)
    return check_function(
        answer,
        "my_attention_output",
        right,
        [(*case, 3, [1]), (random(2, 10), random(10, 10, seed=1), 5, [0, 3]), (*case, 2, [])],
        [
            Mistake(
                of_output,
                "You set columns of the output to 0, or columns of Wo. Wo has mixed the heads there: set the columns "
                "of the context, or the rows of Wo, to 0.",
            ),
            Mistake(only_those, "You keep only the heads in `off`. They are the ones to switch off."),
            Mistake(none_off, "All heads are still on: their columns of the context must become 0."),
            Mistake(
                interleaved,
                "You take every heads-th column. The columns of a head are next to each other: head a has the columns "
                "from a·d up to (a+1)·d.",
            ),
            Mistake(one_column, "You set one column to 0 for each head. A head has d = H/heads columns."),
            Mistake(counted_from_one, "You switch off the head before: heads are counted from 0."),
            Mistake(first_only, "You switch off only the first head in the list. `off` may hold several."),
            Mistake(no_output, "You return the context. Multiply it by Wo."),
            Mistake(cut_out, "You use the columns of Wo as if they were its rows: context @ Wo, not context @ Woᵀ."),
        ],
    )


# ------------------------------------------------------------------ 5.5


def control(answer: Answer) -> str | None:
    def right(words, labels, chance):
        return labels[np.floor(chance[words] * len(labels)).astype(int)]

    def uniform(words, labels, chance):
        kinds = np.unique(labels)
        return kinds[np.floor(chance[words] * len(kinds)).astype(int)]

    def of_vocabulary(words, labels, chance):
        return labels[np.floor(chance[words] * len(chance)).astype(int)]

    def rounded(words, labels, chance):
        return labels[np.rint(chance[words] * len(labels)).astype(int)]

    def per_word(words, labels, chance):
        return labels[np.floor(chance * len(labels)).astype(int)]

    def real(words, labels, chance):
        return labels

    def sorted_labels(words, labels, chance):
        return np.sort(labels)[np.floor(chance[words] * len(labels)).astype(int)]

    def positions(words, labels, chance):
        return np.floor(chance[words] * len(labels)).astype(int)

    words = np.array([0, 1, 2, 0, 3, 4, 1, 3, 2, 4, 0])
    labels = np.array([7, 2, 2, 7, 5, 2, 2, 5, 9, 2, 7])
    return check_function(
        answer,
        "my_control_labels",
        right,
        [(words, labels, np.array([0.08, 0.78, 0.33, 0.42, 0.71])), (words[:3], labels[:3], np.array([0.4, 0.9, 0.0]))],
        [
            Mistake(
                uniform,
                "All kinds of labels are equally likely in yours. Draw from the labels of all places, so that frequent "
                "labels stay frequent: labels[floor(chance · N)].",
            ),
            Mistake(
                of_vocabulary,
                "You multiply by the number of words, M. Choose one of N places: multiply by N = len(labels).",
            ),
            Mistake(rounded, "You round to the nearest number. Round down, np.floor: else the last place may be N."),
            Mistake(
                per_word,
                "You return one label for each word of the vocabulary. Return one for each place: chance[words].",
            ),
            Mistake(real, "These are the real labels. In a control task, they have nothing to do with the word."),
            Mistake(sorted_labels, "You have sorted the labels. Draw from `labels` as they are."),
            Mistake(positions, "You return the places that were drawn. Return the labels at these places: labels[…]."),
        ],
    )


# ------------------------------------------------------------------ 5.6


def mean_cosine(answer: Answer) -> str | None:
    def unit(vectors, axis=1):
        return vectors / np.linalg.norm(vectors, axis=axis, keepdims=True)

    def of_pairs(products):
        return products[~np.eye(len(products), dtype=bool)].mean()

    def centre(vectors, centred):
        return vectors - vectors.mean(0) if centred else vectors

    def right(vectors, centred):
        u = unit(centre(vectors, centred))
        return of_pairs(u @ u.T)

    def with_itself(vectors, centred):
        u = unit(centre(vectors, centred))
        return (u @ u.T).mean()

    def dots(vectors, centred):
        x = centre(vectors, centred)
        return of_pairs(x @ x.T)

    def total(vectors, centred):
        return right(vectors, centred) * len(vectors) * (len(vectors) - 1)

    def neighbours(vectors, centred):
        u = unit(centre(vectors, centred))
        return (u[:-1] * u[1:]).sum(1).mean()

    def columns(vectors, centred):
        u = unit(centre(vectors, centred), axis=0)
        return of_pairs(u @ u.T)

    def whole_length(vectors, centred):
        x = centre(vectors, centred)
        x = x / np.linalg.norm(x)
        return of_pairs(x @ x.T)

    def always(vectors, centred):
        return right(vectors, True)

    def never(vectors, centred):
        return right(vectors, False)

    def row_means(vectors, centred):
        return right(vectors - vectors.mean(1, keepdims=True) if centred else vectors, False)

    def centred_late(vectors, centred):
        u = centre(unit(vectors), centred)
        return of_pairs(u @ u.T)

    some = random(5, 3) + 1
    return check_function(
        answer,
        "my_mean_cosine",
        right,
        [(some, False), (some, True), (2 * random(4, 7, seed=1), True)],
        [
            Mistake(
                with_itself,
                "You include the cosine of each vector with itself, which is always 1. Leave out the diagonal: N "
                "(N − 1) pairs remain.",
            ),
            Mistake(dots, "These are dot products. Divide each vector by its length first."),
            Mistake(
                lambda vectors, centred: right(vectors, centred) / 2,
                "You add up each pair once, N (N − 1)/2 of them, but divide by N (N − 1).",
            ),
            Mistake(total, "You return the sum. Divide by the number of pairs, N (N − 1)."),
            Mistake(neighbours, "You compare each vector with the next one only. All pairs count."),
            Mistake(
                columns, "You divide by the lengths of the columns. The length of a vector is that of its row: axis=1."
            ),
            Mistake(
                whole_length,
                "You divide all vectors by the same number. Each has its own length: np.linalg.norm(…, axis=1).",
            ),
            Mistake(always, "You subtract the mean although `centred` is False."),
            Mistake(never, "You do not subtract the mean vector, although `centred` is True."),
            Mistake(
                row_means,
                "You subtract the mean of each row. The mean vector is the mean over all vectors: vectors.mean(0).",
            ),
            Mistake(
                centred_late,
                "You subtract the mean after dividing by the lengths. Subtract it first: then divide each difference "
                "by its own length.",
            ),
        ],
    )


# ------------------------------------------------------------------ 5.7


def classify(answer: Answer) -> str | None:
    def with_mean(mean):
        return lambda hidden, mask, W, b: softmax(mean(hidden, mask) @ W + b)

    def masked_mean(hidden, mask):
        return (hidden * mask[..., None]).sum(1) / mask.sum(1, keepdims=True)

    def scores(hidden, mask, W, b):
        return masked_mean(hidden, mask) @ W + b

    def word_by_word(hidden, mask, W, b):
        return masked_mean(softmax(hidden @ W + b), mask)

    def case(mask, H, C):
        mask = np.array(mask)
        return 2 * random(*mask.shape, H), mask, random(H, C, seed=1), random(C, seed=2)

    return check_function(
        answer,
        "my_classify",
        with_mean(masked_mean),
        [case([[1, 1, 1, 0, 0], [1, 1, 1, 1, 0]], 3, 2), case([[1, 1, 1], [1, 0, 0], [1, 1, 0], [1, 1, 1]], 7, 5)],
        [
            Mistake(
                with_mean(lambda hidden, mask: hidden.mean(1)),
                "Padding is part of your mean. Count only the tokens where mask is 1.",
            ),
            Mistake(
                with_mean(lambda hidden, mask: (hidden * mask[..., None]).mean(1)),
                "You set padding to 0, but still divide by T. Divide by the number of words: mask.sum(1).",
            ),
            Mistake(
                with_mean(lambda hidden, mask: (hidden * mask[..., None]).sum(1)),
                "You add the vectors up, so long sentences get larger scores. Divide by the number of words.",
            ),
            Mistake(
                with_mean(lambda hidden, mask: (hidden * mask[..., None]).sum(1) / mask.sum()),
                "You divide by the number of words in the whole batch. Each sentence has its own: mask.sum(1).",
            ),
            Mistake(
                with_mean(lambda hidden, mask: masked_mean(hidden, 1 - mask)),
                "You average the padding. The mask is 1 for words.",
            ),
            Mistake(
                with_mean(lambda hidden, mask: hidden[:, 0]),
                "You take the first token, as published BERT does with [CLS]. Here it is the mean of all words.",
            ),
            Mistake(scores, "You return the scores. Softmax over the classes makes them probabilities."),
            Mistake(
                lambda hidden, mask, W, b: softmax(masked_mean(hidden, mask) @ W),
                "The bias is missing: u W + b.",
            ),
            Mistake(
                lambda hidden, mask, W, b: softmax(scores(hidden, mask, W, b), 0),
                "Your columns sum to 1: softmax ran over the sentences. It runs over the classes, axis=-1.",
            ),
            Mistake(
                word_by_word,
                "You classify every word and average the probabilities. Average the vectors first, then classify once.",
            ),
        ],
        hints={BROADCAST: "mask (B, T) needs a third axis to multiply hidden (B, T, H): mask[..., None]."},
    )
