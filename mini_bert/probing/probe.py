"""What do the layers know? Linear classifiers on frozen vectors, with all that it takes to read their accuracy.

    mini-bert probe pos --train en_ewt-ud-train.conllu --dev en_ewt-ud-dev.conllu        parts of speech
    mini-bert probe dep --train … --dev …                                                relations, heads
    mini-bert probe ner --train train.conll --dev dev.conll                              entities

The model reads the sentences and is not changed. A classifier that can only weigh and add the numbers of a word's
vector learns, layer by layer, to tell labels apart. If it then can in sentences that it has not seen, the layer holds
what the labels stand for in a form that is easy to get at. Accuracy alone would say little, so these stand beside it:

    control task        labels at random, one for each word: how much the classifier learns by heart
    (probing/label_probe.py) selectivity         accuracy − accuracy on the control task
    random weights      the same network before it learnt anything: what the words' identity and order give for nothing
    baselines           the most frequent label, of all words and of each

A probe shows what can be read from a layer, not what the model uses: docs/probing.md.

The fit is convex and ends at its one optimum. What a seed decides: the control labels, the random weights, and which
sentences are taken where not all are (of the synthetic ones, what they are).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

from mini_bert.common.atomic import write_atomic
from mini_bert.common.extras import MissingExtra
from mini_bert.common.memory import keep_freed_memory
from mini_bert.common.progress import Show, counted, showing
from mini_bert.common.values import check_positive
from mini_bert.data.labelled.readers import check_labels, label_names
from mini_bert.data.synthetic.dataset import SYNTHETIC
from mini_bert.inference.loading import DEFAULT_MODEL, load
from mini_bert.models.base import Model
from mini_bert.probing import head_probe
from mini_bert.probing.data import TASKS, Sentences, labels, read, sample
from mini_bert.probing.head_probe import ROOT, HeadProbe, Trees
from mini_bert.probing.label_probe import L2, Examples, LabelProbe, Spellings
from mini_bert.probing.report import Part, Results, Scores, Setting, layer_name, merged, report, report_json
from mini_bert.probing.word_vectors import layer_count, word_vectors

if TYPE_CHECKING:
    from mini_bert.text.base import Tokenizer

BYTES = 2 << 30  # vectors in memory at a time; of models with more, some layers are done, then others

MANY = 10_000  # words that take long enough for progress to be shown


# --- the probes of a task ----------------------------------------------------------------------------------


def probes_for(
    task: str,
    tokenizer: Tokenizer,
    train: Sentences,
    dev: Sentences,
    classes: Sequence[str] | None = None,
    l2: float | None = None,
) -> list[LabelProbe | HeadProbe]:
    """What a task asks of every layer.        pos, ner: Tagged sentences; dep: Parsed ones

    classes: all labels there are, where `train` is a part of more data; default: those in `train`. l2: λ, how much
    large weights cost, in every probe; default: the one that each has for itself.
    """
    names = list(classes or label_names(labels(task, train)))
    check_labels(labels(task, dev), names)
    spellings = Spellings(tokenizer)
    types = spellings(sentence.words for sentence in train), spellings(sentence.words for sentence in dev)
    examples = _examples(task, train, names, types[0]), _examples(task, dev, names, types[1])
    for part, use in zip(examples, ("learn from", "measure on"), strict=True):
        if not part.targets.size:
            raise ValueError(
                f"the sentences to {use} hold nothing to ask for{', no word with a head' * (task == 'dep')}"
            )
    probe = LabelProbe(TASKS[task], names, *examples, L2 if l2 is None else l2, entities=task == "ner")
    if task != "dep":
        return [probe]
    trees = _trees(train, types[0]), _trees(dev, types[1])
    return [probe, HeadProbe("head", *trees, head_probe.L2 if l2 is None else l2)]


def _examples(task: str, sentences: Sentences, names: list[str], types: np.ndarray) -> Examples:
    number = {name: i for i, name in enumerate(names)}
    targets = np.array([number[name] for sentence in labels(task, sentences) for name in sentence.tags], int)
    places = np.arange(len(targets))[:, None]
    lengths = [len(sentence.words) for sentence in sentences]
    if task == "dep":  # the root has no head, and no relation to it
        heads = _heads(sentences)
        chosen = np.flatnonzero(heads != ROOT)
        starts = np.repeat(np.cumsum([0, *lengths[:-1]]), lengths)
        places = np.stack([chosen, (starts + heads)[chosen]], 1)
        targets, types = targets[chosen], types[chosen]
    return Examples(places, targets, types, lengths)


def _trees(sentences: Sentences, types: np.ndarray) -> Trees:
    return Trees(_heads(sentences), types, [len(sentence.words) for sentence in sentences])


def _heads(sentences: Sequence[Any]) -> np.ndarray:
    """The place of each word's head in its sentence, from 0; ROOT, which is −1, for the root"""
    return np.array([head - 1 for sentence in sentences for head in sentence.heads], int)


# --- layer by layer ----------------------------------------------------------------------------------------


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
    """Fit a task's probes to every layer of a model, and to the same network with the random weights of each seed

    classes, l2: as in `probes_for`. pooling: how a word's vector is made of its pieces' (probing/word_vectors.py).
    """
    check_positive("threads", threads)
    if not seeds:
        raise ValueError("no seed is given; expected at least one, such as seeds=(0,)")
    probes = probes_for(task, tokenizer, train, dev, classes, l2)
    words = [sentence.words for sentence in train], [sentence.words for sentence in dev]
    bench = Bench(tokenizer, probes, words, layers, pooling, threads, show)
    trained = bench.measure(model, seeds, "the model")
    random = [bench.measure(untrained(model, seed), [seed], f"random weights {seed}") for seed in seeds]
    train_size, dev_size = (Part(len(part), sum(map(len, part))) for part in words)
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


def untrained(model: Model, seed: int) -> Model:
    """The same network with random weights, as it would be before training with this seed"""
    return model.untrained(seed)


class Bench(NamedTuple):
    """All that stays the same while one network after the other is measured"""

    tokenizer: Tokenizer
    probes: Sequence[LabelProbe | HeadProbe]
    words: tuple[list[list[str]], list[list[str]]]  # of the sentences to learn from, and to measure on
    layers: Sequence[int] | None
    pooling: str
    threads: int
    show: Show

    def measure(self, model: Model, seeds: Sequence[int], name: str) -> list[dict[int, Scores]]:
        """For each probe its scores by layer. The task is fitted once, the control task once for each seed."""
        layers = list(range(layer_count(model) + 1) if self.layers is None else self.layers)
        found: list[dict[int, Scores]] = [{} for _ in self.probes]
        size = sum(len(words) for part in self.words for words in part) * model.width
        at_once = max(1, BYTES // (size * model.dtype.itemsize))
        for start in range(0, len(layers), at_once):
            some = layers[start : start + at_once]
            vectors = [self.vectors(model, part, some, name) for part in self.words]
            for layer in some:
                train, dev = (part.pop(layer) for part in vectors)
                if not (np.isfinite(train).all() and np.isfinite(dev).all()):
                    raise ValueError(f"{name} gives vectors that are not finite, {layer_name(layer)}: it has diverged")
                for number, probe in enumerate(self.probes):
                    self.show(f"{name}: fitting", f"{probe.title}, {layer_name(layer)}", len(found[0]), len(layers))
                    found[number][layer] = self.scores(probe, train, dev, seeds)
        return found

    def vectors(self, model: Model, part: list[list[str]], layers: list[int], name: str):
        """The words of one part in some layers"""
        count = sum(map(len, part))

        def after_each(done: int) -> None:
            self.show(f"{name}: reading", f"{done:,} of {counted(count, 'word')}", done, count)

        return word_vectors(model, self.tokenizer, part, layers, self.pooling, self.threads, after_each)

    def scores(self, probe: LabelProbe | HeadProbe, train: np.ndarray, dev: np.ndarray, seeds: Sequence[int]) -> Scores:
        """Vectors of all words in one layer -> what a probe makes of them"""
        prepared = probe.prepare(train, dev)
        wanted = [probe.targets(seed) for seed in (None, *seeds)]
        with threadpool_limits(1, "blas"), ThreadPoolExecutor(self.threads) as pool:
            said = list(pool.map(lambda targets: probe.guesses(prepared, targets[0]), wanted))
        right = [
            float((truth == guesses)[truth != ROOT].mean()) for (_, truth), guesses in zip(wanted, said, strict=True)
        ]
        f1 = probe.f1(said[0])
        return Scores(right[:1] * len(seeds), right[1:], [] if f1 is None else [f1] * len(seeds))


# --- the command -------------------------------------------------------------------------------------------


def layers_named(text: str | None) -> list[int] | None:
    """Layers as people write them

    >>> layers_named("0,2-4"), layers_named(None)
    ([0, 2, 3, 4], None)
    """
    if text is None:
        return None
    found: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise ValueError(f"layers are {text!r}, expected numbers such as 0,2 or 1-3; 0 are the embeddings")
        found += range(int(first), int(last or first) + 1)
    if not found:
        raise ValueError(f"layers {text!r} are none; write the smaller number first, such as 1-3")
    return sorted(set(found))


def probe_command(
    task: str,
    train: str | None = None,
    dev: str | None = None,
    model: str = DEFAULT_MODEL,
    layers: str | None = None,
    seeds: int = 1,
    max_sentences: int | None = None,
    pooling: str = "mean",
    l2: float | None = None,
    column: int = -1,
    threads: int = 2,
    out: str | os.PathLike[str] | None = None,
    as_json: bool = False,
) -> None:
    """Probe every layer of a model, print a table, and write it with a picture into the folder `out`, if given.

    train, dev: CoNLL-U, for pos and ner also a word and its tag a line; without them, synthetic sentences.
    """
    chosen = layers_named(layers)
    if out is not None:  # what cannot be written is told now, not after the work is done
        if Path(out).exists() and not Path(out).is_dir():
            raise ValueError(f"{out} is a file, expected a folder for the table and the picture")
        Path(out).mkdir(parents=True, exist_ok=True)
    data = read(task, train, dev, column)
    keep_freed_memory()
    loaded, tokenizer = load(model)
    if chosen is not None and chosen[-1] > layer_count(loaded):
        raise ValueError(f"there is no layer {chosen[-1]}; {model} has 0 (embeddings) to {layer_count(loaded)}")
    samples = [sample(data, task, seed, max_sentences) for seed in range(seeds)]
    everything = data is not None and samples[0].train is data.train and samples[0].dev is data.dev
    runs = []
    words = sum(len(sentence.words) for part in samples for sentence in (*part.train, *part.dev))
    with showing(words > MANY) as show:
        for seed, part in enumerate(samples[:1] if everything else samples):
            seeds_here = range(seeds) if everything else [seed]
            runs.append(probe(loaded, tokenizer, task, *part[:3], seeds_here, chosen, pooling, l2, threads, show))
    results = merged(runs)
    notes = [] if data is None else data.notes
    setting = Setting(task, model, train or SYNTHETIC, dev or SYNTHETIC, data is None, seeds, pooling, notes)
    print(report_json(setting, results) if as_json else report(setting, results))
    if out is not None:
        write(Path(out), setting, results)


def write(folder: Path, setting: Setting, results: list[Results]) -> None:
    """probe_TASK.json and probe_TASK.png"""
    from mini_bert.plots.style import save
    from mini_bert.probing.figures import probe_results

    path = folder / f"probe_{setting.task}.json"
    write_atomic(path, f"{report_json(setting, results)}\n".encode())
    print(path, file=sys.stderr)
    try:
        picture = folder / f"probe_{setting.task}.png"
        save(probe_results(setting, results), picture)
        print(picture, file=sys.stderr)
    except MissingExtra as lack:
        print(f"no picture: {lack}", file=sys.stderr)
