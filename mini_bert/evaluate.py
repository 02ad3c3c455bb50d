"""How good is a model? Hide words of a text it has not learnt from, and count how well it guesses them.

    loss           the mean of −log p(true word) over the hidden words: nats of surprise
    perplexity     exp(loss): among how many equally likely words the model is undecided
    top-1, top-5   how often the true word is its first guess, or among the first five

The masks come from the seed alone, so two models are asked the same questions. What to compare with: the unigram
entropy of the text is the loss of knowing how frequent each word is, and nothing of what stands around the gap.
How far below it a model uses context, yardstick.py says.
"""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

from mini_bert.config import check_positive
from mini_bert.layers.base import Pool, Run
from mini_bert.loading import load_model, max_length, word_head
from mini_bert.memory import keep_freed_memory
from mini_bert.model import MiniBERT
from mini_bert.progress import counted, showing
from mini_bert.yardstick import against, verdict

if TYPE_CHECKING:
    from mini_bert.data import Batch, MLMDataGenerator
    from mini_bert.models.bert import Bert

LENGTH = 128  # tokens a sequence, where the model knows more


class Evaluation(NamedTuple):
    loss: float
    perplexity: float
    top1: float  # shares of the hidden words, 0 to 1
    top5: float
    targets: int  # how many words were hidden


def evaluate(
    model: MiniBERT | Bert,
    batches: Iterable[Batch],
    threads: int = 1,
    after_each: Callable[[int, float], None] | None = None,
) -> Evaluation:
    """Loss and accuracy over all hidden words of the batches, without dropout.

    Batches are shared out among `threads`, each with one BLAS thread; the sums are made in the order of the batches, so
    the result is the same for any number of threads. `after_each` is told how many are done, and the loss so far.
    """
    check_positive("threads", threads)
    numbered, lock = enumerate(batches), threading.Lock()
    found: dict[int, _Sums] = {}
    so_far = _Sums(0.0, 0, 0, 0)

    def work() -> None:
        nonlocal so_far
        run = Run(pool=Pool())  # what one thread needs; the weights are only read
        while True:
            with lock:
                number, batch = next(numbered, (-1, None))
            if batch is None:
                return
            sums = _measure(model, batch, run)
            with lock:
                found[number] = sums
                so_far = _add([so_far, sums])
                if after_each is not None:
                    after_each(len(found), so_far.mean_loss)

    with threadpool_limits(1, "blas"):
        if threads == 1:
            work()
        else:
            with ThreadPoolExecutor(threads) as pool:
                for job in [pool.submit(work) for _ in range(threads)]:
                    job.result()
    sums = _add(found[number] for number in sorted(found))
    if not sums.targets:
        raise ValueError("there is nothing to measure: in these batches no word is hidden")
    loss = sums.mean_loss
    perplexity = math.exp(loss) if loss < 700 else math.inf if loss > 0 else math.nan
    return Evaluation(loss, perplexity, sums.first / sums.targets, sums.among_five / sums.targets, sums.targets)


class _Sums(NamedTuple):
    surprise: float
    first: int
    among_five: int
    targets: int

    @property
    def mean_loss(self) -> float:
        return self.surprise / max(self.targets, 1)


def _add(parts: Iterable[_Sums]) -> _Sums:
    columns = list(zip(*parts, strict=True)) or [()] * 4
    return _Sums(math.fsum(columns[0]), *(sum(column) for column in columns[1:]))


def _measure(model: MiniBERT | Bert, batch: Batch, run: Run) -> _Sums:
    N = batch.rows.size
    if not N:
        return _Sums(0.0, 0, 0, 0)
    if isinstance(model, MiniBERT):
        loss, cache = model.loss(batch.input_ids, batch.rows, batch.targets, batch.attention_mask, run)
        entropy = cache.cross_entropy
    else:
        loss, cache = model.loss(*batch[:5], run=run)
        entropy = cache.words_entropy
    scores, targets = entropy.exp, entropy.targets  # in the order of the probabilities
    own = scores[np.arange(N), targets][:, None]
    behind = np.count_nonzero(scores < own, axis=1)  # the words that the model thinks less likely than the true one
    rank = scores.shape[1] - 1 - behind  # a tie counts against the model, and so does what is no number
    return _Sums(float(loss) * N, int((rank < 1).sum()), int((rank < 5).sum()), N)


def word_counts(generator: MLMDataGenerator) -> np.ndarray:
    """How often each id stands in the generator's text, (V,); special tokens do not count"""
    tokens, piece = generator.documents.tokens, 1 << 20
    counts = np.zeros(generator.tokenizer.vocab_size, np.int64)
    for start in range(0, tokens.size, piece):
        places = tokens.locate(np.arange(start, min(start + piece, tokens.size)))
        counts += np.bincount(generator.shards.tokens[places], minlength=counts.size)
    counts[list(generator.tokenizer.special_ids)] = 0
    return counts


def unigram_entropy(generator: MLMDataGenerator) -> float:
    """−Σ p log p in nats, p the share of each word among the generator's tokens, special ones left out"""
    counts = word_counts(generator)
    p = counts[counts > 0] / max(counts.sum(), 1)
    return float(-(p * np.log(p)).sum())


class Row(NamedTuple):
    corpus: str
    result: Evaluation
    entropy: float


def eval_command(
    model: str,
    corpus: list[str],
    held_out: float = 0.0,
    seed: int = 0,
    batch: int = 32,
    max_batches: int | None = None,
    threads: int = 2,
    length: int | None = None,
    as_json: bool = False,
) -> None:
    """Measure a model on each corpus and print a table; of several, their mean too.

    held_out: measure only this share of the documents, the one that training with the same share leaves out.
    """
    from mini_bert.data import MLMDataGenerator

    keep_freed_memory()
    loaded, tokenizer = load_model(model)
    word_head(loaded)
    options: dict[str, Any] = {
        "max_seq_length": min(max_length(loaded), LENGTH) if length is None else length,
        "seed": seed,
        "held_out": held_out,
        "split": "validation" if held_out else "train",
        "fixed": True,
    }
    if options["max_seq_length"] > max_length(loaded):
        raise ValueError(f"length is {length}, but {model} knows {max_length(loaded)} positions; choose at most these")
    rows = []
    for source in corpus:
        # One sequence a batch asks least of a text; when it is known how many there are, as many as that allows.
        first = MLMDataGenerator(source, tokenizer, batch_size=1, **options)
        generator = MLMDataGenerator(first.shards, tokenizer, batch_size=min(batch, first.sequences), **options)
        total = len(generator) if max_batches is None else min(len(generator), max_batches)
        with showing() as show:

            def after_each(done: int, loss: float, source=source, total=total, show=show) -> None:
                show(f"measuring {source}", f"loss {loss:.3f} after {counted(done, 'batch')}", done, total)

            result = evaluate(loaded, islice(generator.once(), total), threads, after_each)
        rows.append(Row(source, result, unigram_entropy(generator)))
    print(report_json(model, rows) if as_json else report(model, rows))


def mean_row(rows: list[Row]) -> Row:
    """Every corpus counts alike, however long it is; the perplexity is that of the mean loss"""
    loss, _, top1, top5, _ = np.mean([row.result for row in rows], axis=0).tolist()
    targets = sum(row.result.targets for row in rows)
    entropy = float(np.mean([row.entropy for row in rows]))
    return Row("mean", Evaluation(loss, math.exp(min(loss, 700)), top1, top5, targets), entropy)


def report(model: str, rows: list[Row]) -> str:
    """A table for people"""
    names = [Path(row.corpus).name or row.corpus for row in rows]
    shown = list(zip(names, rows, strict=True))
    if len(rows) > 1:
        shown.append(("mean", mean_row(rows)))
    width = max(len("corpus"), *(len(name) for name, _ in shown))
    lines = [
        f"{'corpus':{width}} {'words hidden':>13} {'loss':>7} {'perplexity':>11} {'top-1':>7} {'top-5':>7} "
        f"{'unigram entropy':>16}"
    ]
    for name, row in shown:
        loss, perplexity, top1, top5, targets = row.result
        lines.append(
            f"{name:{width}} {targets:13,} {loss:7.3f} {perplexity:11,.1f} {top1:7.1%} {top5:7.1%} {row.entropy:16.3f}"
        )
    last = shown[-1][1]
    lines.append(f"\n{model} is {against(last.result.loss, last.entropy)}: {verdict(last.result.loss, last.entropy)}.")
    return "\n".join(lines)


def report_json(model: str, rows: list[Row]) -> str:
    """The same for programs"""
    every = [*rows, mean_row(rows)] if len(rows) > 1 else rows
    return json.dumps(
        {
            "model": model,
            "results": [
                {"corpus": row.corpus, **row.result._asdict(), "unigram_entropy": row.entropy} for row in every
            ],
        },
        indent=2,
    )
