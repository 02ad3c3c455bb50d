"""How good is a model? Hide words of a text it has not learnt from, and count how well it guesses them.

    loss           the mean of −log p(true word) over the hidden words: nats of surprise
    perplexity     exp(loss): among how many equally likely words the model is undecided
    top-1, top-5   how often the true word is its first guess, or among the first five
    calibration    by how much its certainty differs from how often it is right (metrics.calibration)

The masks come from the seed alone, so two models are asked the same questions. What to compare with: the unigram
entropy of the text is the loss of knowing how frequent each word is, and nothing of what stands around the gap.
How far below it a model uses context, evaluation/unigram_baseline.py says.
"""

from __future__ import annotations

import json
import logging
import math
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

from mini_bert.common.json_values import finite_values
from mini_bert.common.memory import keep_freed_memory
from mini_bert.common.progress import counted, showing
from mini_bert.common.values import check_positive
from mini_bert.evaluation.metrics import Bin, Calibration, calibrated, reliability
from mini_bert.evaluation.unigram_baseline import against, verdict
from mini_bert.inference.loading import load
from mini_bert.layers.base import Pool, Run
from mini_bert.models.base import MASKED_WORDS, Model

if TYPE_CHECKING:
    from mini_bert.data.generator import Batch, MLMDataGenerator
    from mini_bert.data.shards import Shards
    from mini_bert.text.base import Tokenizer

ENOUGH = 50  # hidden words, to speak about a model
LENGTH = 128  # tokens a sequence, where the model knows more
logger = logging.getLogger(__name__)


class Evaluation(NamedTuple):
    loss: float
    perplexity: float
    top1: float  # shares of the hidden words, 0 to 1
    top5: float
    targets: int  # how many words were hidden


class Measured(NamedTuple):
    result: Evaluation
    calibration: Calibration  # of the first guesses
    brier: float  # metrics.brier of the probabilities of all words


def evaluate(
    model: Model,
    batches: Iterable[Batch],
    threads: int = 1,
    after_each: Callable[[int, float], None] | None = None,
) -> Evaluation:
    """Loss and accuracy over all hidden words of the batches, without dropout: `measure` without calibration"""
    return measure(model, batches, threads, after_each).result


def measure(
    model: Model,
    batches: Iterable[Batch],
    threads: int = 1,
    after_each: Callable[[int, float], None] | None = None,
) -> Measured:
    """Loss, accuracy and calibration over all hidden words of the batches, without dropout.

    Batches are shared out among `threads`, each with one BLAS thread; the sums are made in the order of the batches, so
    the result is the same for any number of threads. `after_each` is told how many are done, and the loss so far. An
    error in one thread, or Ctrl-C, stops the others after the batch that they are at.
    """
    check_positive("threads", threads)
    numbered, lock, stop = enumerate(batches), threading.Lock(), threading.Event()
    found: dict[int, _Sums] = {}
    so_far = _NOTHING

    def work() -> None:
        nonlocal so_far
        run = Run(pool=Pool())  # what one thread needs; the weights are only read
        while True:
            with lock:
                number, batch = (-1, None) if stop.is_set() else next(numbered, (-1, None))
            if batch is None:
                return
            sums = _measure(model, batch, run)
            with lock:
                found[number] = sums
                so_far = _add([so_far, sums])
                if after_each is not None:
                    after_each(len(found), so_far.mean_loss)

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
                    stop.set()  # also where it is the waiting that was interrupted
    sums = _add(found[number] for number in sorted(found))
    if not sums.targets:
        raise ValueError("there is nothing to measure: in these batches no word is hidden")
    loss = sums.mean_loss
    perplexity = math.exp(loss) if loss < 700 else math.inf if loss > 0 else math.nan
    result = Evaluation(loss, perplexity, sums.first / sums.targets, sums.among_five / sums.targets, sums.targets)
    return Measured(result, calibrated(sums.certainty), sums.squares / sums.targets)


class _Sums(NamedTuple):
    surprise: float
    first: int
    among_five: int
    targets: int
    squares: float
    certainty: np.ndarray  # (3,bins), see metrics.reliability

    @property
    def mean_loss(self) -> float:
        return self.surprise / max(self.targets, 1)


_NOTHING = _Sums(0.0, 0, 0, 0, 0.0, reliability([], []))


def _add(parts: Iterable[_Sums]) -> _Sums:
    surprise, first, among_five, targets, squares, certainty = zip(_NOTHING, *parts, strict=True)
    return _Sums(
        math.fsum(surprise), sum(first), sum(among_five), sum(targets), math.fsum(squares), np.sum(certainty, axis=0)
    )


def _measure(model: Model, batch: Batch, run: Run) -> _Sums:
    N = batch.rows.size
    if not N:
        return _NOTHING
    loss, cache = model.loss(*batch[:5], run=run)
    entropy = cache.cross_entropy
    scores, targets = entropy.exp, entropy.targets  # in the order of the probabilities
    own = scores[np.arange(N), targets][:, None]
    behind = np.count_nonzero(scores < own, axis=1)  # the words that the model thinks less likely than the true one
    rank = scores.shape[1] - 1 - behind  # a tie counts against the model, and so does what is no number
    sums = entropy.sums[:, 0].astype(float)
    squares = np.einsum("nv,nv->n", scores, scores) / sums**2 - 2 * own[:, 0] / sums + 1  # Σ_v (p_v − [v is true])²
    sound = np.isfinite(sums)  # a broken model has no confidence to speak of
    certainty = reliability(1 / sums[sound], rank[sound] < 1)  # the largest score of a row is exp 0 = 1
    return _Sums(float(loss) * N, int((rank < 1).sum()), int((rank < 5).sum()), N, float(squares.sum()), certainty)


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
    calibration_error: float
    brier: float
    bins: list[Bin]


def eval_command(
    model: str,
    corpus: list[str] | None = None,
    held_out: float = 0.0,
    seed: int = 0,
    batch: int = 32,
    max_batches: int | None = None,
    threads: int = 2,
    length: int | None = None,
    as_json: bool = False,
    text: list[str] | None = None,
    whole_words: bool = False,
    pairs: list[str] | None = None,
    neighbours: list[str] | None = None,
) -> None:
    """Measure a model on each corpus and print a table; of several, their mean too. Or on sentences, pairs, words.

    held_out: measure only this share of the documents, the one that training with the same share leaves out.
    text: the pseudo-perplexity of each; pairs: files of sentence pairs with scores; neighbours: words.
    """
    from mini_bert.data.labelled.readers import ColumnError, read_scored
    from mini_bert.evaluation import embedding_quality as quality
    from mini_bert.evaluation.pseudo_perplexity import content as surprise_content
    from mini_bert.evaluation.pseudo_perplexity import pseudo_perplexity
    from mini_bert.evaluation.pseudo_perplexity import report as surprise_report

    if not (corpus or text or pairs or neighbours):
        raise ValueError(
            "there is nothing to measure; give --corpus FILE (loss and accuracy on hidden words), --text SENTENCE "
            "(pseudo-perplexity), --pairs FILE (sentence similarity) or --neighbours WORD"
        )
    try:
        scored = [read_scored(path) for path in pairs or ()]  # what is wrong with them is told before the work begins
    except ColumnError as error:
        raise error.with_remedy("Head the columns of the file sentence1, sentence2 and score") from None
    keep_freed_memory()
    loaded, tokenizer = load(model)
    if corpus or text:
        loaded.output_head(MASKED_WORDS)
    found: dict[str, Any] = {"model": model}
    reports = []
    with threadpool_limits(1, "blas"):
        if text:
            judged = [pseudo_perplexity(loaded, tokenizer, sentence, whole_words, batch) for sentence in text]
            found["texts"] = [surprise_content(one) for one in judged]
            reports.append(surprise_report(judged))
        if neighbours:
            near = [quality.neighbours(loaded, tokenizer, word) for word in neighbours]
            table = quality.isotropy(quality.word_table(loaded, tokenizer)[1])
            found["neighbours"] = [
                {**one._asdict(), "nearest": [{"token": token, "cosine": cosine} for token, cosine in one.nearest]}
                for one in near
            ]
            found["token_table"] = table._asdict()
            reports.append(quality.report_neighbours(near, table))
    if pairs:
        agreements = []
        with showing() as show:
            for path, examples in zip(pairs, scored, strict=True):

                def embedded(done: int, total: int, path=path) -> None:
                    show(f"embedding {path}", f"{done:,} of {counted(total, 'sentence')}", done, total)

                agreements.append(quality.agreement(loaded, tokenizer, examples, "mean", batch, threads, embedded))
        found["pairs"] = [
            {"file": path, **one._asdict(), "isotropy": one.isotropy._asdict()}
            for path, one in zip(pairs, agreements, strict=True)
        ]
        reports.append(quality.report_pairs([Path(path).name for path in pairs], agreements))
    if corpus:
        rows = _corpora(model, loaded, tokenizer, corpus, held_out, seed, batch, max_batches, threads, length)
        found["results"] = _results(rows)
        aside = (
            f"\nMeasured on the documents alone that `train --held-out {held_out:g}` would not have learnt from."
            if held_out
            else ""
        )
        reports.append(report(model, rows) + aside)
    print(report_json(found) if as_json else "\n\n".join(reports))


def _corpora(
    name: str,
    model: Model,
    tokenizer: Tokenizer,
    corpus: list[str],
    held_out: float,
    seed: int,
    batch: int,
    max_batches: int | None,
    threads: int,
    length: int | None,
) -> list[Row]:
    from mini_bert.data.generator import MLMDataGenerator
    from mini_bert.data.shards import prepare

    wanted = min(model.max_length, LENGTH) if length is None else length
    options: dict[str, Any] = {
        "seed": seed,
        "held_out": held_out,
        "split": "validation" if held_out else "train",
        "fixed": True,
    }
    if wanted > model.max_length:
        raise ValueError(f"length is {length}, but {name} knows {model.max_length} positions; choose at most these")
    rows = []
    for source in corpus:
        shards = prepare(source, tokenizer)
        options["max_seq_length"] = _fitting(source, shards, held_out, wanted)
        # One sequence a batch asks least of a text; when it is known how many there are, as many as that allows.
        first = MLMDataGenerator(shards, tokenizer, batch_size=1, **options)
        generator = MLMDataGenerator(first.shards, tokenizer, batch_size=min(batch, first.sequences), **options)
        total = len(generator) if max_batches is None else min(len(generator), max_batches)
        with showing() as show:

            def after_each(done: int, loss: float, source=source, total=total, show=show) -> None:
                show(f"measuring {source}", f"loss {loss:.3f} after {counted(done, 'batch')}", done, total)

            result, calibration, brier = measure(model, islice(generator.once(), total), threads, after_each)
        rows.append(Row(source, result, unigram_entropy(generator), calibration.error, brier, calibration.bins))
    return rows


def _fitting(source: str, shards: Shards, held_out: float, wanted: int) -> int:
    """How long sequences are: as wanted, or, of a text that does not fill one, as long as it is"""
    from mini_bert.data.sequences import Documents

    documents = Documents(shards, held_out, validation=bool(held_out))
    if not documents.count:
        raise ValueError(
            f"{source} has {counted(len(shards.hashes), 'document')}, and `train --held-out {held_out:g}` would have "
            "learnt from all of them, so that nothing is left to measure; leave --held-out out, or give more text"
        )
    tokens = documents.tokens.size - 1  # the first [SEP] separates nothing
    if tokens < wanted - 2:
        logger.warning("%s has %s, and is measured as one short sequence", source, counted(tokens, "token"))
    return max(3, min(wanted, tokens + 2))


def mean_row(rows: list[Row]) -> Row:
    """Every corpus counts alike, however long it is; the perplexity is that of the mean loss"""
    loss, _, top1, top5, _ = np.mean([row.result for row in rows], axis=0).tolist()
    targets = sum(row.result.targets for row in rows)
    entropy, error, brier = np.mean([row[2:5] for row in rows], axis=0).tolist()
    return Row("mean", Evaluation(loss, math.exp(min(loss, 700)), top1, top5, targets), entropy, error, brier, [])


def report(model: str, rows: list[Row]) -> str:
    """A table for people"""
    names = [Path(row.corpus).name or row.corpus for row in rows]
    shown = list(zip(names, rows, strict=True))
    if len(rows) > 1:
        shown.append(("mean", mean_row(rows)))
    width = max(len("corpus"), *(len(name) for name, _ in shown))
    lines = [
        f"{'corpus':{width}} {'words hidden':>13} {'loss':>7} {'perplexity':>11} {'top-1':>7} {'top-5':>7} "
        f"{'calibration error':>18} {'unigram entropy':>16}"
    ]
    for name, row in shown:
        loss, perplexity, top1, top5, targets = row.result
        lines.append(
            f"{name:{width}} {targets:13,} {loss:7.3f} {perplexity:11,.1f} {top1:7.1%} {top5:7.1%} "
            f"{row.calibration_error:18.1%} {row.entropy:16.3f}"
        )
    last = shown[-1][1]
    if not math.isfinite(last.result.loss):
        compared = "has no finite loss: are all of its weights numbers?"
    elif last.result.targets < ENOUGH:
        words = counted(last.result.targets, "word")
        compared = f"was asked for {words}: too few to say how good it is; give it more text."
    else:
        compared = f"is {against(last.result.loss, last.entropy)}: {verdict(last.result.loss, last.entropy)}."
    return "\n".join([*lines, f"\n{model} {compared}"])


def report_json(found: dict[str, Any]) -> str:
    """The same for programs; what is no number, or infinite, is null"""
    return json.dumps(finite_values(found), indent=2, ensure_ascii=False, allow_nan=False)


def _results(rows: list[Row]) -> list[dict[str, Any]]:
    return [
        {
            "corpus": row.corpus,
            **row.result._asdict(),
            "unigram_entropy": row.entropy,
            "calibration_error": row.calibration_error,
            "brier": row.brier,
            "bins": [one._asdict() for one in row.bins],
        }
        for row in ([*rows, mean_row(rows)] if len(rows) > 1 else rows)
    ]
