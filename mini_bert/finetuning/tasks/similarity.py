"""The similarity of two texts, learnt from scored pairs such as those of the STS Benchmark. There are two ways:

pair       [CLS] first [SEP] second [SEP] through the encoder -> PairHead -> one number, the score
           loss = (y − score)².  Each text attends to the other. This is more accurate for a model that was pretrained
           on pairs; Mini-BERT was not, and is better with vectors (docs/finetuning.md).

vectors    each text alone -> mean of its tokens' vectors; the similarity is the cosine of the two
           loss = (cosine − score)², with scores scaled to 0 … 1; or the contrastive loss.  A vector is computed once
           and can be compared with millions: search, clustering, `mini-bert embed`.  (Reimers & Gurevych 2019,
           Sentence-BERT.)

Vectors can also be learnt from plain text, without scores, with the loss of views: each sentence goes through the model
twice, and dropout makes two vectors of it, which must find each other among those of GROUP sentences
(layers/similarity.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mini_bert.data.labelled.readers import Scored
from mini_bert.evaluation.metrics import pearson, spearman
from mini_bert.finetuning.heads import VectorHead
from mini_bert.finetuning.tasks.base import HEAD, Item, Task, packed, summary_places
from mini_bert.finetuning.tasks.classify import sentence_layer, sentence_scores, sentence_scores_backward
from mini_bert.layers.initialisers import Initialiser
from mini_bert.layers.similarity import (
    contrastive,
    contrastive_backward,
    cosine,
    cosine_backward,
    squared_error,
    squared_error_backward,
    views,
    views_backward,
)

GROUP = 32  # sentences among which the other view has to be found


class Similarity(Task):
    name = "similarity"
    metric = "spearman"
    labelled = False
    architecture = "ForSequenceClassification"
    published = {"pooling": ["cls"], "dense": True, "pairs": None}  # noqa: RUF012
    unit = "× 100"  # of a correlation
    counts_right = False

    def __init__(
        self,
        low: float = 0.0,
        high: float = 1.0,
        vectors: bool = False,
        loss: str = "regression",
        pooling: Sequence[str] = ("mean",),
        dense: bool = False,
        pairs: bool | None = True,
    ):
        """low, high: the range of the scores; loss: "regression", or, with vectors, "contrastive" or "views"

        pairs: None if a model may also score single texts, as a published one
        """
        if not low < high:
            raise ValueError(f"the scores range from {low} to {high}; expected low < high")
        if loss not in ("regression", "contrastive", "views") or (loss != "regression" and not vectors):
            raise ValueError(f"loss is {loss!r}, expected 'regression', or 'contrastive' or 'views' with vectors")
        self.low, self.high, self.vectors, self.kind = float(low), float(high), vectors, loss
        self.pooling, self.dense, self.pairs = tuple(pooling), dense, pairs
        self.labels = ["score"]
        self.group = GROUP if loss == "views" else None
        if vectors:
            self.architecture, self.labels = "Model", []

    @staticmethod
    def fits(labels: int) -> bool:
        return labels == 1

    @staticmethod
    def shown(score: float) -> str:
        return f"{score:.3f}"

    def more_config(self):
        return {} if self.vectors else {"problem_type": "regression"}

    def settings(self):
        return {"low": self.low, "high": self.high, "vectors": self.vectors, "loss": self.kind,
                "pooling": list(self.pooling), "dense": self.dense, "pairs": self.pairs}  # fmt: skip

    def layer(self, model, dropout):
        if self.vectors:
            return VectorHead(self.pooling)
        head: Any = sentence_layer(model, 1, self.pooling, self.dense, True, dropout)
        if head.linear.b is not None:  # GPT-2 has none
            head.linear.b.init = _constant((self.low + self.high) / 2)  # start with the middle
        return head

    def items(self, examples: Sequence[Scored], tokenizer, length, training):
        firsts = tokenizer.ids([example.first for example in examples], special=False)
        seconds = tokenizer.ids([example.second for example in examples], special=False)
        items = []
        for number, (example, a, b) in enumerate(zip(examples, firsts, seconds, strict=True)):
            if self.vectors:
                (first, words, cut), (second, more, cuts) = (packed(tokenizer, row, None, length) for row in (a, b))
                other = Item(number, second, more, None)
                items.append(Item(number, first, words, example.score, other=other, truncated=cut + cuts))
            else:
                both, words, cut = packed(tokenizer, a, b if self.pairs or example.second else None, length)
                items.append(Item(number, both, words, example.score, truncated=cut))
        return items

    def loss(self, model, batch, run, targets):
        if not self.vectors:
            y, caches = sentence_scores(model, batch, run, self.pooling)  # (B,1)
            loss, cache = squared_error(y[:, 0], batch.targets, targets)
            sentence_scores_backward(model, squared_error_backward(1.0, cache)[:, None], caches, run)
            return float(loss), 0
        x, encoded = model.encode(batch.ids, batch.mask, batch.types, run)  # (2B,T,H)
        vectors, pooled = model.task.forward(
            x, run.fork(HEAD), asked=self._pooled_tokens(batch), summary=summary_places(model, batch)
        )  # (2B,H)
        u, v = np.split(vectors, 2)
        loss, dvectors = self._vector_loss(u, v, batch.targets, targets)
        model.encode_backward(model.task.backward(dvectors, pooled, run), encoded, run)
        return float(loss), 0

    def _vector_loss(self, u, v, scores, targets):
        """The loss of pairs of vectors, and its gradient, (2B,H)        u, v (B,H)"""
        if self.kind == "views":
            loss, cache = views(u, v, targets)
            return loss, np.concatenate(views_backward(1.0, cache))
        cosines, angle = cosine(u, v)
        forward, backward = LOSSES[self.kind]
        loss, cache = forward(cosines, (scores - self.low) / (self.high - self.low), targets)
        return loss, np.concatenate(cosine_backward(backward(1.0, cache), angle))

    def answers(self, model, batch, run):
        """The score of each pair"""
        if not self.vectors:
            return sentence_scores(model, batch, run, self.pooling)[0][:, 0].tolist()
        x, _ = model.encode(batch.ids, batch.mask, batch.types, run)
        asked = self._pooled_tokens(batch)
        vectors, _ = model.task.forward(x, run, asked=asked, summary=summary_places(model, batch))
        return self._score(cosine(*np.split(vectors, 2))[0]).tolist()

    def _pooled_tokens(self, batch):
        """Words (2B,T); with the pooling "all", special tokens, too"""
        return batch.real if "all" in self.pooling else batch.asked

    def _score(self, cosines):
        return self.low + cosines * (self.high - self.low)

    def scores(self, examples: Sequence[Scored], predictions: Sequence[float]) -> dict[str, float]:
        truth = [example.score for example in examples]
        scores = {"spearman": spearman(truth, predictions), "pearson": pearson(truth, predictions)}
        return {name: 0.0 if math.isnan(value) else value for name, value in scores.items()}  # constant predictions

    def dev_loss(self, examples: Sequence[Scored], predictions: Sequence[float]) -> float:
        """The mean squared difference from the true scores; a model that learnt without scores has a scale of its own,
        so theirs are mapped to 0 … 1"""
        truth = np.array([example.score for example in examples])
        if self.kind == "views":
            truth = (truth - truth.min()) / (np.ptp(truth) or 1.0)
        return float(np.mean((truth - np.array(predictions)) ** 2))

    def guessing(self, examples: Sequence[Scored]) -> tuple[str, list[float]]:
        """Always the middle, which has no correlation"""
        return "a constant", [(self.low + self.high) / 2] * len(examples)


LOSSES: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "regression": (squared_error, squared_error_backward),
    "contrastive": (contrastive, contrastive_backward),
}


def _constant(value: float) -> Initialiser:
    return lambda rng, shape: np.full(shape, value)
