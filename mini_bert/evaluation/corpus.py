"""Loss and accuracy on corpora, compared with the unigram baseline (`mini-bert eval --corpus`).

A model is asked what it was trained to answer: masked words, the next word, words in a random order (XLNet), or which
words a generator replaced. These losses answer different questions, so only models with the same one can be compared by
them.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from mini_bert.common.progress import counted, showing
from mini_bert.common.values import check_share
from mini_bert.common.wording import perplexity_text
from mini_bert.data.generator import TextBatches
from mini_bert.data.sequences import Documents
from mini_bert.data.shards import Shards, prepare
from mini_bert.evaluation.evaluate import Evaluation, measure, word_counts
from mini_bert.evaluation.metrics import Bin
from mini_bert.evaluation.unigram_baseline import against, verdict_on_text
from mini_bert.evaluation.word_frequencies import FILE
from mini_bert.models.base import MASKED_WORDS, Model
from mini_bert.objectives.base import Objective
from mini_bert.objectives.masked_words import MaskedWords, entropy_of, unigram_loss
from mini_bert.objectives.next_word import NextWord
from mini_bert.objectives.registry import objective_class
from mini_bert.objectives.replaced_tokens import ReplacedTokens

if TYPE_CHECKING:
    from mini_bert.text.base import Tokenizer

ENOUGH = 50  # predicted words needed to judge a model
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
    objective: str = MaskedWords.name
    more: Mapping[str, Evaluation] = MappingProxyType({})  # further parts of the objective, such as "replaced"


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
    """Ask a model about the words of a corpus, and measure its guesses; shows progress on standard error.

    held_out: measure only the documents that `train` holds out with the same fraction; 0: all documents.
    length: tokens per sequence; default: the model's maximum, at most 128.
    log_frequencies: of the words in the model's training text (word_frequencies.read_frequencies).
    """
    kind = question_for(model)
    check_share("held_out", held_out, "a fraction of the documents")
    wanted = min(model.max_length, LENGTH) if length is None else length
    if wanted > model.max_length:
        raise ValueError(
            f"length is {length}, but the model is configured for at most {model.max_length} tokens; choose a smaller "
            "length"
        )
    shards = prepare(source, tokenizer)
    added = -1 if kind.sequences["mode"] == "running" else tokenizer.added_count()  # one more token, the last target
    generator = TextBatches(
        shards, tokenizer, kind.for_tokenizer(tokenizer), _length(source, shards, held_out, wanted, added), batch_size,
        seed=seed, held_out=held_out, split="validation" if held_out else "train", fixed=True, **kind.sequences,
        lanes=batch_size if kind.consecutive else None,
    )  # fmt: skip
    batches = sum(1 for _ in generator.order.once())
    total = batches if max_batches is None else min(batches, max_batches)
    with showing() as show:

        def after_each(done: int, loss: float) -> None:
            show(f"measuring {source}", f"loss {loss:.3f} after {counted(done, 'batch')}", done, total)

        found = measure(model, islice(generator.once(), total), threads, after_each, generator.objective)
    error, bins = found.calibration.error, found.calibration.bins
    counts = word_counts(generator)
    guessing = None if log_frequencies is None else unigram_loss(log_frequencies, counts)
    more = {name: part for name, part in found.parts.items() if part is not found.result}
    return CorpusResult(source, found.result, entropy_of(counts), error, found.brier, bins, guessing, kind.name, more)


def question_for(model: Model) -> type[Objective]:
    """The objective that measures this model on single texts: its own, if that is about them, or one that it can
    answer. Raises an error that says what to do if there is none."""
    own = objective_class(model.objective)
    for kind in (own, MaskedWords, NextWord, ReplacedTokens):
        if kind.sequences["mode"] != "pairs" and not kind.missing(model):
            return kind
    for head in (*own.heads, MASKED_WORDS):
        model.output_head(head)
    raise AssertionError("MaskedWords needs this head only")


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
    return max(1, added + 1, min(wanted, tokens + added))


def mean_result(rows: Sequence[CorpusResult]) -> CorpusResult:
    """Each corpus has the same weight, whatever its size; the perplexity is exp of the mean loss."""
    result = _mean([row.result for row in rows])
    entropy, error, brier = np.mean([row[2:5] for row in rows], axis=0).tolist()
    known = [row.unigram_loss for row in rows if row.unigram_loss is not None]
    guessing = math.fsum(known) / len(known) if len(known) == len(rows) else None
    more = {name: _mean([row.more[name] for row in rows]) for name in rows[0].more}
    return CorpusResult("mean", result, entropy, error, brier, [], guessing, rows[0].objective, more)


def _mean(parts: Sequence[Evaluation]) -> Evaluation:
    loss, _, top1, top5, _ = np.mean(parts, axis=0).tolist()
    return Evaluation(loss, math.exp(min(loss, 700)), top1, top5, sum(part.targets for part in parts))


def report(model: str, rows: Sequence[CorpusResult]) -> str:
    """A table with a row per corpus, and a verdict."""
    shown = [(Path(row.corpus).name or row.corpus, row) for row in rows]
    if len(rows) > 1:
        shown.append(("mean", mean_result(rows)))
    width = max(len("corpus"), *(len(name) for name, _ in shown))
    kind = objective_class(rows[0].objective)
    asked = kind.targets
    wide = max(13, len(asked))
    lines = [
        f"{'corpus':{width}} {asked:>{wide}} {'loss':>7} {'perplexity':>11} {'top-1':>7} {'top-5':>7} "
        f"{'calibration error':>18} {'unigram baseline':>17}"
    ]
    for name, row in shown:
        loss, perplexity, top1, top5, targets = row.result
        guessing = "?" if row.unigram_loss is None else f"{row.unigram_loss:.3f}"
        lines.append(
            f"{name:{width}} {targets:{wide},} {loss:7.3f} {perplexity_text(perplexity, 1):>11} "
            f"{top1:7.1%} {top5:7.1%} {row.calibration_error:18.1%} {guessing:>17}"
        )
    lines += ["", *_further_parts(shown)] if rows[0].more else []
    result, baseline = shown[-1][1].result, shown[-1][1].unigram_loss
    if not math.isfinite(result.loss):
        comment = f"The loss of {model} is not finite: are some of its weights NaN or infinite?"
    elif result.targets < ENOUGH:
        comment = f"{counted(result.targets, asked.removesuffix('s'))}: too few to judge {model}; give it more text."
    elif baseline is None:
        comment = (
            f"{model} has no file with the word frequencies of its training text ({FILE}), so there is no unigram "
            "baseline to compare with."
        )
    else:
        owner = kind.part_name()
        subject = f"The {owner} of {model}" if owner else model
        comment = (
            f"{subject} is {against(result.loss, baseline)}, the loss of guessing by the word frequencies of its "
            f"training text: {verdict_on_text(result.loss, baseline, kind.visible)}."
        )
    return "\n".join([*lines, "", comment])


def _further_parts(shown: Sequence[tuple[str, CorpusResult]]) -> list[str]:
    """The first part of the loss is in the table; these are the others."""
    return [
        f"{name}, {objective_class(row.objective).part_name(part)}: loss {found.loss:.3f}, accuracy {found.top1:.1%} "
        f"of {counted(found.targets, 'token')}"
        for name, row in shown
        for part, found in row.more.items()
    ]


def content(rows: Sequence[CorpusResult]) -> list[dict[str, Any]]:
    """The results for JSON, and their mean if there are several."""
    every = [*rows, mean_result(rows)] if len(rows) > 1 else rows
    contents = []
    for row in every:
        fields = row._asdict()
        fields["more"] = {name: part._asdict() for name, part in row.more.items()}
        contents.append({"corpus": fields.pop("corpus"), **fields.pop("result")._asdict(), **fields})
    return contents
