"""Classification of texts or pairs of texts: sentiment, topic, entailment.

logits = SentenceHead(encoder([CLS] text [SEP]))        or PairHead(encoder([CLS] text [SEP] second [SEP]))
loss   = cross-entropy with the true class
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from mini_bert.data.labelled.readers import Labelled
from mini_bert.evaluation.metrics import accuracy, precision_recall_f1
from mini_bert.finetuning.heads import PairHead, SentenceHead
from mini_bert.finetuning.tasks.base import HEAD, Batch, Item, Task, packed, summary_places
from mini_bert.layers.base import Layer
from mini_bert.layers.cross_entropy import cross_entropy, cross_entropy_backward
from mini_bert.layers.softmax import softmax


class Classify(Task):
    name = "classify"
    metric = "accuracy"
    architecture = "ForSequenceClassification"
    published = {"pooling": ["cls"], "dense": True, "pairs": None}  # noqa: RUF012

    @staticmethod
    def fits(labels: int) -> bool:
        return labels > 1

    def __init__(
        self, labels: Sequence[str], pooling: Sequence[str] = ("mean",), dense: bool = False, pairs: bool | None = False
    ):
        """pairs: whether the examples are pairs of texts; None if that is not known, as of a published model"""
        if len(labels) < 2:
            raise ValueError(f"there is only the label {', '.join(labels)!r}; a classifier needs at least two")
        self.labels, self.pooling, self.dense, self.pairs = list(labels), tuple(pooling), dense, pairs

    def settings(self):
        return {"pooling": list(self.pooling), "dense": self.dense, "pairs": self.pairs}

    def layer(self, model, dropout):
        return sentence_layer(model, len(self.labels), self.pooling, self.dense, bool(self.pairs), dropout)

    def items(self, examples: Sequence[Labelled], tokenizer, length, training):
        place = {label: number for number, label in enumerate(self.labels)}
        firsts = tokenizer.ids([example.text for example in examples], special=False)
        others = [example.second for example in examples if example.second is not None]
        seconds = iter(tokenizer.ids(others, special=False))
        items = []
        for number, (example, first) in enumerate(zip(examples, firsts, strict=True)):
            if self.pairs is not None and (example.second is not None) != self.pairs:
                takes, given = ("pairs of texts", "a single text") if self.pairs else ("single texts", "a pair")
                raise ValueError(f"this model classifies {takes}, got {given}: {example.text!r:.60}")
            second = None if example.second is None else next(seconds)
            sequence, words, cut = packed(tokenizer, first, second, length)
            items.append(Item(number, sequence, words, place.get(example.label), truncated=cut))
        return items

    def loss(self, model, batch, run, targets):
        logits, caches = sentence_scores(model, batch, run, self.pooling)
        loss, entropy = cross_entropy(logits, batch.targets, targets)
        right = int((logits.argmax(-1) == batch.targets).sum())
        sentence_scores_backward(model, cross_entropy_backward(1.0, entropy), caches, run)
        return float(loss), right

    def answers(self, model, batch, run):
        """The probabilities of the classes"""
        return list(softmax(self.logits(model, batch, run))[0])

    def logits(self, model, batch, run):
        """The scores of the classes, (B,C)"""
        return sentence_scores(model, batch, run, self.pooling)[0]

    def scores(self, examples: Sequence[Labelled], predictions: Sequence[np.ndarray]) -> dict[str, float]:
        truth = [example.label for example in examples]
        guesses = [self.labels[int(probabilities.argmax())] for probabilities in predictions]
        macro = precision_recall_f1(truth, guesses, "macro")
        return {"accuracy": accuracy(truth, guesses), "macro_f1": macro.f1}

    def dev_loss(self, examples: Sequence[Labelled], predictions: Sequence[np.ndarray]) -> float:
        """The mean of −log p(the true class)"""
        return mean_surprise(predictions, [self.labels.index(example.label) for example in examples])

    def guessing(self, examples: Sequence[Labelled]) -> tuple[str, list[np.ndarray]]:
        """Always the most frequent class"""
        most = Counter(example.label for example in examples).most_common(1)[0][0]
        return f"always {most}", [np.eye(len(self.labels))[self.labels.index(most)]] * len(examples)


def mean_surprise(probabilities: Sequence[np.ndarray] | np.ndarray, targets: Sequence[int]) -> float:
    """1/N Σ −log p_n[target_n]        probabilities (N,C)"""
    chosen = np.asarray(probabilities)[np.arange(len(targets)), targets].astype(float)
    return float(-np.log(np.maximum(chosen, 1e-30)).mean())


def sentence_layer(model: Any, classes: int, pooling: Sequence[str], dense: bool, pairs: bool, p: float) -> Layer:
    """The head for a text or a pair. An encoder that pools [CLS], or all tokens, represents both texts by that."""
    width = model.width
    if pairs and not {"cls", "all"} & {*pooling}:
        return PairHead(width, classes, pooling, p)
    return SentenceHead(width, classes, pooling, dense, p, transform=model.task_transform(), **model.sentence_head)


def seen_by(head: Any, batch: Batch) -> np.ndarray:
    """The tokens that the head pools: words (B,T), or all but padding; for a PairHead, words of each text (2,B,T)"""
    if not isinstance(head, PairHead):
        return batch.real if "all" in head.pool.pooling else batch.asked
    assert batch.second is not None
    return np.stack((batch.asked & ~batch.second, batch.asked & batch.second))


def sentence_scores(model: Any, batch: Batch, run, pooling: Sequence[str]):
    """Returns the scores (B,C) and the caches. If only [CLS] is pooled, the last block computes only that row."""
    summary = summary_places(model, batch)
    if tuple(pooling) != ("cls",):
        x, encoded = model.encode(batch.ids, batch.mask, batch.types, run)  # (B,T,H)
    else:
        B, T = batch.ids.shape
        x, encoded = model.encode(batch.ids, batch.mask, batch.types, run, np.arange(B) * T + summary)  # (B,H)
        x, summary = x[:, None], 0
    y, head = model.task.forward(x, run.fork(HEAD), asked=seen_by(model.task, batch), summary=summary)
    return y, (encoded, head, tuple(pooling) == ("cls",))


def sentence_scores_backward(model: Any, dy, caches, run) -> None:
    encoded, head, only_summary = caches
    dx = model.task.backward(dy, head, run)
    model.encode_backward(dx[:, 0] if only_summary else dx, encoded, run)
