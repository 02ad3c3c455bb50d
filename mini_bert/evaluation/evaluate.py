"""How well does a model guess masked words?

    loss           the mean of −log p(true word) over the masked words, in nats
    perplexity     exp(loss): the number of equally likely words that would give the same loss
    top-1, top-5   how often the true word is the first guess, or among the first five
    calibration    how far confidence and accuracy are apart (metrics.calibration)

The seed alone decides the masks, so two models can be compared on the same questions. The loss is compared with
the unigram baseline (unigram_baseline.py).
Whole corpora, with a report: evaluation/corpus.py.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

from mini_bert.common.values import check_positive
from mini_bert.data.batches import Batches
from mini_bert.evaluation.metrics import Calibration, calibrated, reliability
from mini_bert.layers.base import Pool, Run
from mini_bert.models.base import Model
from mini_bert.objectives.base import Objective, Predictions
from mini_bert.objectives.masked_words import MaskedWords

if TYPE_CHECKING:
    from mini_bert.data.generator import TextBatches


class Evaluation(NamedTuple):
    loss: float
    perplexity: float
    top1: float  # share of the masked words, 0 to 1
    top5: float
    targets: int  # the number of masked words


class Measured(NamedTuple):
    result: Evaluation
    calibration: Calibration  # of the first guesses
    brier: float  # metrics.brier, over the whole vocabulary
    parts: dict[str, Evaluation]  # of all parts of the loss by name; the first is `result`


def evaluate(
    model: Model,
    batches: Iterable[Any],
    threads: int = 1,
    after_each: Callable[[int, float], None] | None = None,
) -> Evaluation:
    """Loss and accuracy over all masked words of the batches, without dropout: `measure` without calibration."""
    return measure(model, batches, threads, after_each).result


def measure(
    model: Model,
    batches: Iterable[Any],
    threads: int = 1,
    after_each: Callable[[int, float], None] | None = None,
    objective: Objective | None = None,
) -> Measured:
    """Loss, accuracy and calibration over all targets of the batches, without dropout. Default: of masked words.

    batches: an iterable that ends, or a data generator, of which one epoch is used: the same as `generator.once()`.

    Each thread uses one BLAS thread. Sums are added in the order of the batches, so the result does not depend on the
    number of threads. After each batch, `after_each(batches done, loss so far)` is called. An error in one thread, or
    Ctrl-C, stops the others after their current batch.
    """
    objective = objective or MaskedWords()
    check_positive("threads", threads)
    if isinstance(batches, Batches):  # endless
        batches = batches.once()
    numbered, lock, stop = enumerate(batches), threading.Lock(), threading.Event()
    done: dict[int, dict[str, _Sums]] = {}
    so_far = _NOTHING  # of the first part

    def work() -> None:
        nonlocal so_far
        run = Run(pool=Pool())
        while True:
            with lock:
                number, batch = (-1, None) if stop.is_set() else next(numbered, (-1, None))
            if batch is None:
                return
            sums = {name: _sums(found) for name, found in objective.predictions(model, batch, run).items()}
            with lock:
                done[number] = sums
                so_far = _add([so_far, *islice(sums.values(), 1)])
                if after_each is not None:
                    after_each(len(done), so_far.mean_loss)

    def until_one_fails() -> None:
        try:
            work()
        except BaseException:
            stop.set()
            raise

    with threadpool_limits(1, "blas"):
        if threads == 1:
            work()
        else:
            with ThreadPoolExecutor(threads) as pool:
                jobs = [pool.submit(until_one_fails) for _ in range(threads)]
                try:
                    for job in jobs:
                        job.result()
                finally:
                    stop.set()  # Ctrl-C interrupts this wait, not the threads
    names = next((list(sums) for sums in done.values() if sums), [])
    if not names:
        raise ValueError("nothing to measure: no word is masked in these batches")
    totals = [_add(done[number][name] for number in sorted(done) if done[number]) for name in names]
    parts = {name: sums.evaluation() for name, sums in zip(names, totals, strict=True)}
    main = totals[0]
    return Measured(parts[names[0]], calibrated(main.reliability), main.brier / main.targets, parts)


class _Sums(NamedTuple):
    loss: float
    top1: int
    top5: int
    targets: int
    brier: float
    reliability: np.ndarray  # (3,bins), see metrics.reliability

    @property
    def mean_loss(self) -> float:
        return self.loss / max(self.targets, 1)

    def evaluation(self) -> Evaluation:
        loss = self.mean_loss
        perplexity = math.exp(loss) if loss < 700 else math.inf if loss > 0 else math.nan
        return Evaluation(loss, perplexity, self.top1 / self.targets, self.top5 / self.targets, self.targets)


_NOTHING = _Sums(0.0, 0, 0, 0, 0.0, reliability([], []))


def _add(parts: Iterable[_Sums]) -> _Sums:
    loss, top1, top5, targets, brier, bins = zip(_NOTHING, *parts, strict=True)
    return _Sums(math.fsum(loss), sum(top1), sum(top5), sum(targets), math.fsum(brier), np.sum(bins, axis=0))


def _sums(found: Predictions) -> _Sums:
    rank, valid = found.rank, found.confidence > 0  # neither NaN nor 1 / ∞
    bins = reliability(found.confidence[valid], rank[valid] < 1)
    return _Sums(found.loss, int((rank < 1).sum()), int((rank < 5).sum()), rank.size, float(found.brier.sum()), bins)


def word_counts(generator: TextBatches) -> np.ndarray:
    """The number of occurrences of each id in the generator's text, (V,); 0 for special tokens."""
    tokens, piece = generator.documents.tokens, 1 << 16
    counts = np.zeros(generator.tokenizer.vocab_size, np.int64)
    for start in range(0, tokens.size, piece):
        places = tokens.locate(np.arange(start, min(start + piece, tokens.size)))
        counts += np.bincount(generator.shards.tokens[places], minlength=counts.size)
    counts[list(generator.tokenizer.special_ids)] = 0
    return counts
