"""Exercises 3.4 and 3.6 of learn/3_the_model.md: the likeliest words, several gaps.

Letters for shapes: T tokens, V vocabulary.
"""

from __future__ import annotations

import numpy as np

from mini_bert.learning.exercise import Answer, Mistake, check_function
from mini_bert.learning.phase1 import random
from mini_bert.learning.phase1 import softmax_of as softmax
from mini_bert.learning.results import check_results

# ------------------------------------------------------------------ 3.4


def top_words(answer: Answer) -> str | None:
    def is_special(word):
        return word.startswith("[") and word.endswith("]")

    def best(scores, shown, words, k, left_out=is_special):
        order = [i for i in np.argsort(-scores) if not left_out(words[i])][:k]
        return tuple(words[i] for i in order), shown[order]

    def right(logits, words, k):
        return best(logits, softmax(logits), words, k)

    def with_special(logits, words, k):
        order = np.argsort(-logits)[:k]
        return tuple(words[i] for i in order), softmax(logits)[order]

    def only_words(logits, words, k):
        kept = np.where([is_special(word) for word in words], -np.inf, logits)
        return best(kept, softmax(kept), words, k)

    def cut_first(logits, words, k):
        found = [i for i in np.argsort(-logits)[:k] if not is_special(words[i])]
        return tuple(words[i] for i in found), softmax(logits)[found]

    def among_the_best(logits, words, k):
        names, p = right(logits, words, k)
        return names, p / p.sum()

    words = ["[PAD]", "[UNK]", "[CLS]", "cat", "dog", "ran", "[", "house"]
    return check_results(
        answer,
        "my_top_words",
        right,
        [
            (np.array([0.5, 3.0, -1.0, 2.0, 2.5, -1.5, 0.3, 1.0]), words, 3),
            (np.array([9.0, -3.0, 8.0, 0.1, -2.0, 5.0, 6.0, 1.0]), words, 2),
            (np.array([0.0, 0.0, 0.0, 1000.0, 999.0, -1000.0, 0.0, 0.0]), words, 2),
        ],
        {"words": 0, "probabilities": 1},
        [
            Mistake(
                with_special,
                "You offer a special token such as [UNK]. Leave out the words in square brackets.",
            ),
            Mistake(
                lambda logits, words, k: best(logits, softmax(logits), words, k, lambda word: "[" in word),
                'You leave out the word "[". A bracket alone is a word like any other: special tokens begin with [ and '
                "end with ].",
            ),
            Mistake(
                cut_first,
                "You take the k best and then drop the special tokens, so fewer than k words are left. Drop them "
                "first.",
            ),
            Mistake(
                only_words,
                "Your probabilities are over the words without special tokens. Softmax runs over all V logits; "
                "special tokens are only not shown.",
            ),
            Mistake(
                among_the_best,
                "Your k probabilities sum to 1. Softmax runs over the whole vocabulary, before you choose the best.",
            ),
            Mistake(
                lambda logits, words, k: best(logits, logits, words, k),
                "You return logits. Softmax turns them into probabilities.",
            ),
            Mistake(
                lambda logits, words, k: tuple(part[::-1] for part in right(logits, words, k)),
                "Your order is reversed: the likeliest word comes first.",
            ),
            Mistake(
                lambda logits, words, k: best(-logits, softmax(logits), words, k),
                "You return the least likely words. Sort by falling probability, for example with np.argsort(-logits).",
            ),
        ],
    )


# ------------------------------------------------------------------ 3.6


class Guesser:
    """predict(ids) -> probabilities (T,V), which depend on the neighbours of each token. It never predicts the mask."""

    def __init__(self, vocab_size: int, mask_id: int, seed: int):
        self.vocab_size, self.mask_id, self.seed = vocab_size, mask_id, seed

    def __call__(self, ids):
        ids = np.asarray(ids)
        table = 2 * random(self.vocab_size, 5, seed=self.seed)
        left, here, right = (random(5, self.vocab_size, seed=self.seed + i) for i in (1, 2, 3))
        x = np.pad(table[ids], ((1, 1), (0, 0)))  # (T+2,5)
        logits = x[:-2] @ left + x[1:-1] @ here + x[2:] @ right
        logits[:, self.mask_id] = -np.inf
        return softmax(logits)

    def __repr__(self) -> str:
        return "a function predict"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Guesser) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash((self.vocab_size, self.mask_id, self.seed))


def fill(answer: Answer) -> str | None:
    def one_at_a_time(choose):
        """Fills the gap that choose(gaps, their best probabilities) returns, until there is none."""

        def filled(predict, ids, mask_id):
            ids = list(ids)
            while gaps := [t for t, i in enumerate(ids) if i == mask_id]:
                p = predict(ids)
                t = choose(gaps, p)
                ids[t] = int(p[t].argmax())
            return ids

        return filled

    def all_at_once(predict, ids, mask_id):
        best = predict(ids).argmax(-1)
        return [int(best[t]) if i == mask_id else i for t, i in enumerate(ids)]

    def order_of_first_pass(predict, ids, mask_id):
        p, ids = predict(ids), list(ids)
        for t in sorted((t for t, i in enumerate(ids) if i == mask_id), key=lambda t: -p[t].max()):
            ids[t] = int(predict(ids)[t].argmax())
        return ids

    def only_one(predict, ids, mask_id):
        p, gaps = predict(ids), [t for t, i in enumerate(ids) if i == mask_id]
        t = max(gaps, key=lambda t: p[t].max())
        return [int(p[t].argmax()) if place == t else i for place, i in enumerate(ids)]

    def everything(predict, ids, mask_id):
        return [int(i) for i in predict(ids).argmax(-1)]

    return check_function(
        answer,
        "my_fill",
        one_at_a_time(lambda gaps, p: max(gaps, key=lambda t: p[t].max())),
        [
            (Guesser(11, 4, seed=6), [2, 4, 4, 4, 6, 4, 3], 4),  # each mistake fills these gaps differently
            (Guesser(11, 4, seed=1), [2, 5, 4, 4, 3], 4),
            (Guesser(11, 4, seed=2), [2, 6, 5, 3], 4),  # no gap
        ],
        [
            Mistake(
                all_at_once,
                "You fill all gaps from one pass. After each word, run the model again: the word you have just "
                "filled in is context for the other gaps.",
            ),
            Mistake(
                one_at_a_time(lambda gaps, p: gaps[0]),
                "You fill the gaps from left to right. Fill the one whose best guess has the highest probability "
                "first.",
            ),
            Mistake(
                one_at_a_time(lambda gaps, p: min(gaps, key=lambda t: p[t].max())),
                "You begin with the least certain gap. Fill the one whose best guess has the highest probability "
                "first.",
            ),
            Mistake(
                order_of_first_pass,
                "You decide on the order of the gaps in the first pass. Decide anew after each word: it changes "
                "how certain the others are.",
            ),
            Mistake(only_one, "You fill one gap and stop. Repeat until no mask is left."),
            Mistake(
                everything,
                "You replace every token by the model's guess. Only the masks are gaps; all other tokens stay.",
            ),
        ],
    )
