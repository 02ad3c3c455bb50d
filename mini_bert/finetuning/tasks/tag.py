"""Tagging words: named entities, parts of speech.

    logits = TokenHead(encoder([CLS] pieces of the words [SEP])[first piece of each word])
    loss   = cross-entropy with the true tag, over all words

A word of several pieces is tagged at its first piece (Devlin et al. 2018, section 5.3). A long sentence is split into
overlapping windows; each word is tagged once, in the window with more context around it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from mini_bert.data.labelled.readers import Tagged
from mini_bert.evaluation.metrics import accuracy, entity_scores, is_entity_tag
from mini_bert.finetuning.heads import TokenHead
from mini_bert.finetuning.tasks.base import HEAD, Item, Task, owners, windows
from mini_bert.finetuning.tasks.classify import mean_surprise
from mini_bert.layers.cross_entropy import cross_entropy, cross_entropy_backward
from mini_bert.layers.softmax import softmax


class Tag(Task):
    name = "tag"
    architecture = "ForTokenClassification"

    def __init__(self, labels: Sequence[str], stride: int | None = None):
        """stride: pieces from one window to the next; None: half a window"""
        if len(labels) < 2:
            raise ValueError(f"there is only the tag {', '.join(labels)!r}; a tagger needs at least two")
        self.labels, self.stride = list(labels), stride
        self.metric = "f1" if spell_entities(labels) else "accuracy"

    def settings(self):
        return {"stride": self.stride}

    def layer(self, model, dropout):
        return TokenHead(model.width, len(self.labels), dropout, transform=model.task_transform())

    def items(self, examples: Sequence[Tagged], tokenizer, length, training):
        place = {label: number for number, label in enumerate(self.labels)}
        pieces = iter(tokenizer.split_ids(word for example in examples for word in example.words))
        size = length - tokenizer.added_count()
        items = []
        for number, example in enumerate(examples):
            words = [next(pieces) or [tokenizer.unk_id] for _ in example.words]
            firsts = np.cumsum([0, *map(len, words)])
            row = [piece for word in words for piece in word]
            classes = [place.get(tag) for tag in example.tags] or [None] * len(words)
            spans = windows(len(row), size, min(self.stride or max(size // 2, 1), size))
            for (start, stop), (first, last) in zip(spans, owners(spans), strict=True):
                own = range(*np.searchsorted(firsts[:-1], (first, last)).tolist())  # the words that begin in this part
                if len(own):
                    sequence = tokenizer.assemble(row[start:stop])
                    asked = [int(firsts[word]) - start + sequence.starts[0] for word in own]
                    items.append(Item(number, sequence, asked, [classes[word] for word in own]))
        return items

    def targets(self, items: Sequence[Item]) -> np.ndarray:
        return np.array([tag for item in items for tag in item.target])

    def loss(self, model, batch, run, targets):
        x, encoded = model.encode(batch.ids, batch.mask, batch.types, run, batch.chosen)  # (N,H)
        logits, head = model.task.forward(x, run.fork(HEAD), np.nonzero(batch.asked))  # (N,C)
        loss, entropy = cross_entropy(logits, batch.targets, targets)
        right = int((logits.argmax(-1) == batch.targets).sum())
        dx = model.task.backward(cross_entropy_backward(1.0, entropy), head, run)
        model.encode_backward(dx, encoded, run)
        return float(loss), right

    def answers(self, model, batch, run):
        """The probability of every tag, for each of an item's words: (words, C)"""
        x, _ = model.encode(batch.ids, batch.mask, batch.types, run, batch.chosen)
        probabilities, _ = softmax(model.task.forward(x, run)[0])
        return np.split(probabilities, np.cumsum(batch.asked.sum(1))[:-1])

    def join(self, examples, items, answers):
        """Concatenate the windows of each sentence: (words, C)"""
        parts: list[list[np.ndarray]] = [[] for _ in examples]
        for item, answer in zip(items, answers, strict=True):
            parts[item.example].append(answer)
        return [np.concatenate(part) for part in parts]

    def tags(self, probabilities: np.ndarray) -> list[str]:
        return [self.labels[number] for number in probabilities.argmax(-1)]

    def scores(self, examples: Sequence[Tagged], predictions: Sequence[Any]) -> dict[str, float]:
        truth, guesses = [example.tags for example in examples], [self.tags(part) for part in predictions]
        words = accuracy([tag for tags in truth for tag in tags], [tag for tags in guesses for tag in tags])
        if self.metric == "accuracy":
            return {"accuracy": words}
        micro = entity_scores(truth, guesses).micro
        return {"f1": micro.f1, "precision": micro.precision, "recall": micro.recall, "accuracy": words}

    def dev_loss(self, examples: Sequence[Tagged], predictions: Sequence[np.ndarray]) -> float:
        """The mean of −log p(the true tag) over all words"""
        targets = [self.labels.index(tag) for example in examples for tag in example.tags]
        return mean_surprise(np.concatenate(predictions), targets)

    def guessing(self, examples: Sequence[Tagged]) -> tuple[str, list[np.ndarray]]:
        """Always the most frequent tag; for named entities that is O"""
        most = Counter(tag for example in examples for tag in example.tags).most_common(1)[0][0]
        one = np.eye(len(self.labels))[[self.labels.index(most)]]
        return f"always {most}", [np.repeat(one, len(example.words), 0) for example in examples]


def spell_entities(labels: Sequence[str]) -> bool:
    """Whether the tags are B-PER, I-PER, O, …, so that they define entities"""
    return any(label != "O" for label in labels) and all(map(is_entity_tag, labels))
