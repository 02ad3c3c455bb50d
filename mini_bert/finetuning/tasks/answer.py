"""Extractive question answering: find the answer to a question in a text, as in SQuAD.

    [s_t e_t] = SpanHead(encoder([CLS] question [SEP] text [SEP]))
    loss      = ½ (cross-entropy of the true first token + of the true last token)

A text that is longer than the model's positions is split into overlapping windows, each with the whole question. If a
window does not contain the answer, its target is [CLS]: "not here" (Devlin et al. 2018, section 4.2, and run_squad.py).
Without a [CLS] (GPT-2), it is the first token of the question. Training uses only ABSENT such windows per question.

To answer, the best spans of all windows are compared by their score relative to "not here", (s_i + e_j) − (s_0 + e_0),
because each window has a softmax of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from mini_bert.common.batching import RIGHT
from mini_bert.common.draws import address, shuffled
from mini_bert.data.labelled.readers import Question
from mini_bert.evaluation.metrics import answer_scores
from mini_bert.finetuning.heads import SpanHead, span_loss, span_loss_backward
from mini_bert.finetuning.tasks.base import HEAD, Item, Task, windows

BEST = 20  # spans to keep per window and per question
LONGEST = 30  # tokens of an answer
ABSENT = 2  # windows without the answer per question in training, at most


class Span(NamedTuple):
    """An answer: text[start:stop]"""

    text: str
    start: int  # in characters
    stop: int
    score: float
    probability: float  # among the spans kept


class Answer(Task):
    name = "qa"
    metric = "f1"
    labelled = False
    architecture = "ForQuestionAnswering"

    def __init__(self, stride: int | None = None, longest: int = LONGEST):
        """stride: tokens from one window to the next; None: half a window"""
        self.stride, self.longest = stride, longest

    def settings(self):
        return {"stride": self.stride, "longest": self.longest}

    def layer(self, model, dropout):
        return SpanHead(model.width, dropout if model.drops_spans else 0.0, transform=model.task_transform())

    def items(self, examples: Sequence[Question], tokenizer, length, training):
        texts = {text: None for example in examples for text in (example.context,)}
        rows = dict(zip(texts, tokenizer.ids(texts, special=False), strict=True))
        offsets: dict[str, list[tuple[int, int]]] = {}
        items: list[Item] = []
        room = length - tokenizer.added_count(2)
        for number, example in enumerate(examples):
            row = rows[example.context]
            if example.context not in offsets:
                offsets[example.context] = tokenizer.spans(example.context, special=False)[0]
            places = offsets[example.context]
            question = tokenizer.ids([example.question], special=False)[0][: room // 2] or [tokenizer.unk_id]
            size = room - len(question)
            truth = token_span(places, example.starts[0], len(example.answers[0])) if example.answers else None
            here: list[Item] = []
            absent: list[Item] = []
            for start, stop in windows(len(row), size, min(self.stride or max(size // 2, 1), size)):
                sequence = tokenizer.assemble(question, row[start:stop])
                if tokenizer.template(2).cls is None:
                    sequence = sequence._replace(summary=sequence.starts[0])
                second, target = sequence.starts[1], (sequence.summary, sequence.summary)
                contained = truth if truth is not None and start <= truth[0] and truth[1] < stop else None
                if contained:
                    target = (second + contained[0] - start, second + contained[1] - start)
                asked = [sequence.summary, *range(second, second + stop - start)]
                item = Item(number, sequence, asked, target, offsets=places[start:stop])
                (here if contained else absent).append(item)
            if training:
                absent = [absent[place] for place in shuffled(len(absent), address(number))[:ABSENT]]
            items += [*here, *absent]
        return items

    def batch(self, items, padding=RIGHT, known=True):
        batch = super().batch(items, padding, known)
        shifts = np.subtract(batch.summary, [item.sequence.summary for item in items])
        return batch._replace(targets=batch.targets + shifts[:, None]) if known else batch

    def loss(self, model, batch, run, targets):
        x, encoded = model.encode(batch.ids, batch.mask, batch.types, run)  # (B,T,H)
        logits, head = model.task.forward(x, run.fork(HEAD))  # (B,2,T)
        loss, cache = span_loss(logits, batch.targets, batch.asked, targets)
        guesses = np.where(batch.asked[:, None], logits, -np.inf).argmax(-1)
        right = int((guesses == batch.targets).all(-1).sum())
        dx = model.task.backward(span_loss_backward(1.0, cache), head, run)
        model.encode_backward(dx, encoded, run)
        return float(loss), right

    def answers(self, model, batch, run):
        """The best spans of every window: [(score, first, last)], as tokens of its text"""
        x, _ = model.encode(batch.ids, batch.mask, batch.types, run)
        logits, _ = model.task.forward(x, run)
        spans = []
        for scores, asked, summary in zip(logits, batch.asked, np.broadcast_to(batch.summary, len(x)), strict=True):
            places = np.flatnonzero(asked)
            places = np.append(summary, places[places != summary])
            spans.append(best_spans(scores[0, places], scores[1, places], self.longest))
        return spans

    def join(self, examples: Sequence[Question], items, answers) -> list[list[Span]]:
        """The best spans of all windows of a question, without duplicates, best first"""
        spans_of: list[dict[tuple[int, int], float]] = [{} for _ in examples]
        for item, spans in zip(items, answers, strict=True):
            kept = spans_of[item.example]
            for score, first, last in spans:
                place = item.offsets[first][0], item.offsets[last][1]
                kept[place] = max(score, kept.get(place, -np.inf))
        return [_ranked(example.context, kept) for example, kept in zip(examples, spans_of, strict=True)]

    def scores(self, examples: Sequence[Question], predictions: Sequence[list[Span]]) -> dict[str, float]:
        guesses = {str(number): spans[0].text if spans else "" for number, spans in enumerate(predictions)}
        answers = {str(number): example.answers for number, example in enumerate(examples)}
        exact, f1, _ = answer_scores(guesses, answers)
        return {"f1": f1, "exact": exact}

    def guessing(self, examples: Sequence[Question]) -> tuple[str, list[list[Span]]]:
        """The whole text, which contains the answer"""
        return "the whole text", [[Span(one.context, 0, len(one.context), 0.0, 1.0)] for one in examples]


def token_span(offsets: Sequence[tuple[int, int]], start: int, length: int) -> tuple[int, int] | None:
    """The first and last token of these characters; None if no token covers them"""
    inside = [place for place, (first, last) in enumerate(offsets) if first < start + length and last > start]
    return (inside[0], inside[-1]) if inside else None


def best_spans(starts: np.ndarray, ends: np.ndarray, longest: int, count: int = BEST) -> list[tuple[float, int, int]]:
    """The best (score, first, last) with score = (s_i + e_j) − (s_0 + e_0) and first ≤ last < first + longest

    starts, ends (1+n,): the scores of [CLS] and of n tokens.
    """
    n = len(starts) - 1
    table = (starts[1:, None] - starts[0]) + (ends[None, 1:] - ends[0])  # (n,n)
    places = np.arange(n)
    away = places[None] - places[:, None]
    table = np.where((away >= 0) & (away < longest), table, -np.inf).ravel()
    best = np.argsort(-table, kind="stable")[:count]
    return [(float(table[place]), int(place) // n, int(place) % n) for place in best if table[place] > -np.inf]


def _ranked(context: str, kept: dict[tuple[int, int], float]) -> list[Span]:
    best = sorted(kept.items(), key=lambda pair: -pair[1])[:BEST]
    if not best:
        return []
    scores = np.array([score for _, score in best])
    shares = np.exp(scores - scores.max())
    shares /= shares.sum()
    return [
        Span(context[start:stop], start, stop, score, float(share))
        for ((start, stop), score), share in zip(best, shares, strict=True)
    ]
