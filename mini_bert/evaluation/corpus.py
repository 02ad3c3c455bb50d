"""Masked-word loss and accuracy on corpora, compared with the unigram baseline (`mini-bert eval --corpus`)."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from mini_bert.common.progress import counted, showing
from mini_bert.common.values import check_share
from mini_bert.data.generator import MLMDataGenerator
from mini_bert.data.sequences import Documents
from mini_bert.data.shards import Shards, prepare
from mini_bert.evaluation.evaluate import Evaluation, measure, word_counts
from mini_bert.evaluation.metrics import Bin
from mini_bert.evaluation.unigram_baseline import against, verdict_on_text
from mini_bert.evaluation.word_frequencies import FILE
from mini_bert.models.base import MASKED_WORDS, Model
from mini_bert.objectives.masked_words import entropy_of, unigram_loss

if TYPE_CHECKING:
    from mini_bert.text.base import Tokenizer

ENOUGH = 50  # masked words needed to judge a model
LENGTH = 128  # default tokens per sequence, for models that take more
logger = logging.getLogger(__name__)


class CorpusResult(NamedTuple):
    corpus: str
    result: Evaluation
    unigram_entropy: float  # of the corpus itself
    calibration_error: float
    brier: float
    bins: list[Bin]  # the reliability table
    unigram_loss: float | None = None  # the unigram baseline; None: unknown


def measure_corpus(
    model: Model,
    tokenizer: Tokenizer,
    source: str,
    held_out: float = 0.0,
    length: int | None = None,
    seed: int = 0,
    batch_size: int = 32,
    max_batches: int | None = None,
    threads: int = 1,
    log_frequencies: np.ndarray | None = None,
) -> CorpusResult:
    """Mask words of a corpus and measure the model's guesses; shows progress on standard error.

    held_out: measure only the documents that `train` holds out with the same fraction; 0: all documents.
    length: tokens per sequence; default: the model's maximum, at most 128.
    log_frequencies: of the words in the model's training text (word_frequencies.read_frequencies).
    """
    model.output_head(MASKED_WORDS)
    check_share("held_out", held_out, "a fraction of the documents")
    wanted = min(model.max_length, LENGTH) if length is None else length
    if wanted > model.max_length:
        raise ValueError(f"length is {length}, but the model has {model.max_length} positions; choose a smaller length")
    shards = prepare(source, tokenizer)
    generator = MLMDataGenerator(
        shards, tokenizer, _length(source, shards, held_out, wanted, tokenizer.added_count()), batch_size,
        seed=seed, held_out=held_out, split="validation" if held_out else "train", fixed=True,
    )  # fmt: skip
    total = len(generator) if max_batches is None else min(len(generator), max_batches)
    with showing() as show:

        def after_each(done: int, loss: float) -> None:
            show(f"measuring {source}", f"loss {loss:.3f} after {counted(done, 'batch')}", done, total)

        found = measure(model, islice(generator.once(), total), threads, after_each)
    error, bins = found.calibration.error, found.calibration.bins
    counts = word_counts(generator)
    guessing = None if log_frequencies is None else unigram_loss(log_frequencies, counts)
    return CorpusResult(source, found.result, entropy_of(counts), error, found.brier, bins, guessing)


def _length(source: str, shards: Shards, held_out: float, wanted: int, added: int) -> int:
    """Tokens per sequence, `added` special ones included: `wanted`, or fewer if the text is too short."""
    documents = Documents(shards, held_out, validation=bool(held_out))
    if not documents.count:
        raise ValueError(
            f"{source} has {counted(len(shards.hashes), 'document')}, and `train --held-out {held_out:g}` trains on "
            "all of them, so nothing is left to measure; omit --held-out, or give more text"
        )
    tokens = documents.tokens.size - 1  # without the first [SEP]
    if tokens < wanted - added:
        logger.warning("%s has only %s; measuring it as one short sequence", source, counted(tokens, "token"))
    return max(added + 1, min(wanted, tokens + added))


def mean_result(rows: Sequence[CorpusResult]) -> CorpusResult:
    """Each corpus has the same weight, whatever its size; the perplexity is exp of the mean loss."""
    loss, _, top1, top5, _ = np.mean([row.result for row in rows], axis=0).tolist()
    targets = sum(row.result.targets for row in rows)
    entropy, error, brier = np.mean([row[2:5] for row in rows], axis=0).tolist()
    known = [row.unigram_loss for row in rows if row.unigram_loss is not None]
    guessing = math.fsum(known) / len(known) if len(known) == len(rows) else None
    result = Evaluation(loss, math.exp(min(loss, 700)), top1, top5, targets)
    return CorpusResult("mean", result, entropy, error, brier, [], guessing)


def report(model: str, rows: Sequence[CorpusResult]) -> str:
    """A table with a row per corpus, and a verdict."""
    shown = [(Path(row.corpus).name or row.corpus, row) for row in rows]
    if len(rows) > 1:
        shown.append(("mean", mean_result(rows)))
    width = max(len("corpus"), *(len(name) for name, _ in shown))
    lines = [
        f"{'corpus':{width}} {'words masked':>13} {'loss':>7} {'perplexity':>11} {'top-1':>7} {'top-5':>7} "
        f"{'calibration error':>18} {'unigram baseline':>17}"
    ]
    for name, row in shown:
        loss, perplexity, top1, top5, targets = row.result
        guessing = "?" if row.unigram_loss is None else f"{row.unigram_loss:.3f}"
        lines.append(
            f"{name:{width}} {targets:13,} {loss:7.3f} {perplexity:11,.1f} {top1:7.1%} {top5:7.1%} "
            f"{row.calibration_error:18.1%} {guessing:>17}"
        )
    result, baseline = shown[-1][1].result, shown[-1][1].unigram_loss
    if not math.isfinite(result.loss):
        comment = f"The loss of {model} is not finite: are some of its weights NaN or infinite?"
    elif result.targets < ENOUGH:
        comment = f"{counted(result.targets, 'masked word')}: too few to judge {model}; give it more text."
    elif baseline is None:
        comment = (
            f"{model} has no file with the word frequencies of its training text ({FILE}), so there is no unigram "
            "baseline to compare with."
        )
    else:
        comment = (
            f"{model} is {against(result.loss, baseline)}, the loss of guessing by the word frequencies of its "
            f"training text: {verdict_on_text(result.loss, baseline)}."
        )
    return "\n".join([*lines, "", comment])


def content(rows: Sequence[CorpusResult]) -> list[dict[str, Any]]:
    """The results for JSON, and their mean if there are several."""
    every = [*rows, mean_result(rows)] if len(rows) > 1 else rows
    contents = []
    for row in every:
        fields = row._asdict()
        contents.append({"corpus": fields.pop("corpus"), **fields.pop("result")._asdict(), **fields})
    return contents
