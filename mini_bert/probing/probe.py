"""Probing: what can a linear classifier read from the frozen vectors of each layer?

    mini-bert probe pos --train en_ewt-ud-train.conllu --dev en_ewt-ud-dev.conllu        parts of speech
    mini-bert probe dep --train … --dev …                                                relations, syntactic heads
    mini-bert probe ner --train train.conll --dev dev.conll                              entities

For each layer, a linear classifier learns to predict labels from the words' vectors, and is measured on other
sentences; the model itself does not change. High accuracy means that the layer encodes the labels in an easily
accessible form. To be meaningful, accuracy needs comparisons:

    control task        random labels, one per word type: how much the classifier memorises (probing/label_probe.py)
    selectivity         accuracy − accuracy on the control task
    random weights      the same architecture, untrained: how far word identity and order alone suffice
    baselines           the most frequent label, overall and for each word

A probe shows what can be read from a layer, not what the model uses: docs/probing.md.

The fit is convex and ends at its only optimum. The seed determines the control labels and the random weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

from mini_bert.common.progress import Show, counted
from mini_bert.common.values import check_positive
from mini_bert.data.labelled.readers import check_labels, label_names
from mini_bert.models.base import Model
from mini_bert.probing import dependency_probe
from mini_bert.probing.data import TASKS, Sentences, labels
from mini_bert.probing.dependency_probe import ROOT, DependencyProbe, Trees
from mini_bert.probing.label_probe import L2, Examples, LabelProbe, WordTypes
from mini_bert.probing.report import DataSize, Results, Scores, layer_name
from mini_bert.probing.word_vectors import check_layers, word_vectors

if TYPE_CHECKING:
    from mini_bert.text.base import Tokenizer

FORWARD = "this model reads forward: the vector of a word has not seen the words after it"
BYTES = 2 << 30  # of vectors in memory; if all layers need more, they are read in several passes


def probes_for(
    task: str,
    tokenizer: Tokenizer,
    train: Sentences,
    dev: Sentences,
    classes: Sequence[str] | None = None,
    l2: float | None = None,
) -> list[LabelProbe | DependencyProbe]:
    """The probes of a task. `pos` and `ner` take Tagged sentences, `dep` takes Parsed ones.

    classes: all labels, if `train` is a sample of more data; default: those in `train`. l2: the penalty λ of all
    probes; default: each has its own.
    """
    names = list(classes or label_names(labels(task, train)))
    check_labels(labels(task, dev), names)
    word_types = WordTypes(tokenizer)
    types = word_types(sentence.words for sentence in train), word_types(sentence.words for sentence in dev)
    examples = _examples(task, train, names, types[0]), _examples(task, dev, names, types[1])
    for part, use in zip(examples, ("training", "dev"), strict=True):
        if not part.targets.size:
            raise ValueError(f"the {use} sentences contain no words{' with a syntactic head' * (task == 'dep')}")
    probe = LabelProbe(TASKS[task], names, *examples, L2 if l2 is None else l2, entities=task == "ner")
    if task != "dep":
        return [probe]
    train_trees = Trees(_parents(train), types[0], examples[0].lengths)
    dev_trees = Trees(_parents(dev), types[1], examples[1].lengths)
    return [
        probe,
        DependencyProbe("syntactic head", train_trees, dev_trees, dependency_probe.L2 if l2 is None else l2),
    ]


def _examples(task: str, sentences: Sentences, names: list[str], types: np.ndarray) -> Examples:
    number = {name: i for i, name in enumerate(names)}
    targets = np.array([number[name] for sentence in labels(task, sentences) for name in sentence.tags], int)
    words = np.arange(len(targets))[:, None]
    lengths = [len(sentence.words) for sentence in sentences]
    if task == "dep":  # pairs of a word and its syntactic head; the root has none
        parents = _parents(sentences)
        chosen = np.flatnonzero(parents != ROOT)
        starts = np.repeat(np.cumsum([0, *lengths[:-1]]), lengths)
        words = np.stack([chosen, (starts + parents)[chosen]], 1)
        targets, types = targets[chosen], types[chosen]
    return Examples(words, targets, types, lengths)


def _parents(sentences: Sequence[Any]) -> np.ndarray:
    """The position of each word's syntactic head in its sentence, from 0; ROOT, which is −1, for the root."""
    return np.array([head - 1 for sentence in sentences for head in sentence.heads], int)


def probe(
    model: Model,
    tokenizer: Tokenizer,
    task: str,
    train: Sentences,
    dev: Sentences,
    classes: Sequence[str] | None = None,
    seeds: Sequence[int] = (0,),
    layers: Sequence[int] | None = None,
    pooling: str = "mean",
    l2: float | None = None,
    threads: int = 1,
    show: Show = lambda stage, note, done, total: None,
) -> list[Results]:
    """Fits a task's probes to each layer of a model, and of untrained models with the random weights of each seed.

    classes, l2: see `probes_for`. pooling: how to combine the vectors of a word's pieces (probing/word_vectors.py).
    """
    check_positive("threads", threads)
    if not seeds:
        raise ValueError("no seed is given; expected at least one, such as seeds=(0,)")
    probes = probes_for(task, tokenizer, train, dev, classes, l2)
    words = [sentence.words for sentence in train], [sentence.words for sentence in dev]
    bench = _Bench(tokenizer, probes, words, check_layers(model, layers), pooling, threads, show)
    trained = bench.measure(model, seeds, "the model")
    random = [bench.measure(model.untrained(seed), [seed], f"random weights {seed}") for seed in seeds]
    train_size, dev_size = (DataSize(len(part), sum(map(len, part))) for part in words)
    return [
        Results(
            probe.title,
            None if probe.classes is None else len(probe.classes),
            train_size,
            dev_size,
            probe.l2,
            probe.baselines(),
            trained[number],
            {layer: Scores.joined([one[number][layer] for one in random]) for layer in trained[number]},
        )
        for number, probe in enumerate(probes)
    ]


class _Bench(NamedTuple):
    """The settings that are the same for all models of one experiment."""

    tokenizer: Tokenizer
    probes: Sequence[LabelProbe | DependencyProbe]
    words: tuple[list[list[str]], list[list[str]]]  # of the train and dev sentences
    layers: list[int]
    pooling: str
    threads: int
    show: Show

    def measure(self, model: Model, seeds: Sequence[int], name: str) -> list[dict[int, Scores]]:
        """Scores by layer, for each probe. The task is fitted once, the control task once per seed."""
        scores: list[dict[int, Scores]] = [{} for _ in self.probes]
        size = sum(len(words) for part in self.words for words in part) * model.width
        at_once = max(1, BYTES // (size * model.dtype.itemsize))
        for start in range(0, len(self.layers), at_once):
            layers = self.layers[start : start + at_once]
            vectors = [self.vectors(model, part, layers, name) for part in self.words]
            for layer in layers:
                train, dev = (part.pop(layer) for part in vectors)
                if not (np.isfinite(train).all() and np.isfinite(dev).all()):
                    raise ValueError(
                        f"{name} has vectors with NaN or infinite values ({layer_name(layer)}); its training has "
                        "probably diverged"
                    )
                for number, probe in enumerate(self.probes):
                    note = f"{probe.title}, {layer_name(layer)}"
                    self.show(f"{name}: fitting", note, len(scores[0]), len(self.layers))
                    scores[number][layer] = self.scores(probe, train, dev, seeds)
        return scores

    def vectors(self, model: Model, part: list[list[str]], layers: list[int], name: str) -> dict[int, np.ndarray]:
        count = sum(map(len, part))

        def after_each(done: int) -> None:
            self.show(f"{name}: reading", f"{done:,} of {counted(count, 'word')}", done, count)

        return word_vectors(model, self.tokenizer, part, layers, self.pooling, self.threads, after_each)

    def scores(
        self, probe: LabelProbe | DependencyProbe, train: np.ndarray, dev: np.ndarray, seeds: Sequence[int]
    ) -> Scores:
        """Fits one probe to the vectors of all words in one layer."""
        prepared = probe.prepare(train, dev)
        targets = [probe.targets(seed) for seed in (None, *seeds)]
        with threadpool_limits(1, "blas"), ThreadPoolExecutor(self.threads) as pool:
            predicted = list(pool.map(lambda pair: probe.fit_predict(prepared, pair[0]), targets))
        accuracy = [
            float((truth == answers)[truth != ROOT].mean())
            for (_, truth), answers in zip(targets, predicted, strict=True)
        ]
        f1 = probe.f1(predicted[0])
        return Scores(accuracy[:1] * len(seeds), accuracy[1:], [] if f1 is None else [f1] * len(seeds))
