"""Minimal pairs: does a model find the grammatical sentence more likely than the ungrammatical one?

    "The cats annoy Tim."    "The cats annoys Tim."          right if log p(first) > log p(second); a tie counts half

The score of a set of pairs is the mean over its paradigms (kinds of contrast) of the share of right answers, so that
each paradigm counts the same. Guessing gives 50 %. BLiMP (Warstadt et al. 2020) has 67 paradigms of 1,000 pairs each;
its authors report 61.2 for a 5-gram model, 69.8 for an LSTM, 83.0 for GPT-2 and 88.6 for people.

A file has one JSON object per line, with `sentence_good` and `sentence_bad`, and optionally `UID` (the paradigm) and
`field` (syntax, morphology, …). Files may be compressed; of a folder, all .jsonl files are read.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from mini_bert.common.progress import bar, counted
from mini_bert.evaluation.likelihood import log_likelihoods, way_of
from mini_bert.models.base import MASKED_WORDS, NEXT_WORD, REPLACED, Model

if TYPE_CHECKING:
    from mini_bert.text.base import Tokenizer

GOOD, BAD = "sentence_good", "sentence_bad"
SCORED_BY = {
    MASKED_WORDS: "pseudo-log-likelihood: the log-probability of each token given all others, summed",
    NEXT_WORD: "log-likelihood: the log-probability of each token given those before it, summed",
    REPLACED: "how sure the model is that no token was replaced: log-probabilities summed",
}


class MinimalPair(NamedTuple):
    good: str
    bad: str
    paradigm: str
    field: str


class Paradigm(NamedTuple):
    name: str
    field: str
    pairs: int
    accuracy: float  # share of right answers; ties count half


class Result(NamedTuple):
    accuracy: float  # mean over the paradigms
    pairs: int
    scored_by: str  # the output head
    paradigms: list[Paradigm]


def are_minimal_pairs(path: str) -> bool:
    """Whether a file or folder has minimal pairs, and not sentences with similarity scores."""
    place = Path(path)
    if place.is_dir():
        return True
    if ".jsonl" not in place.suffixes or not place.is_file():
        return False
    first = next(_lines(place), "")
    return f'"{GOOD}"' in first or f'"{BAD}"' in first


def read_pairs(path: str, most: int | None = None) -> list[MinimalPair]:
    """The pairs in a file, or in all .jsonl files of a folder; `most`: the first so many of each paradigm."""
    place, pairs, counts = Path(path), [], dict[str, int]()
    files = sorted(one for one in place.iterdir() if ".jsonl" in one.suffixes) if place.is_dir() else [place]
    if not files:
        raise ValueError(f"the folder {path} has no .jsonl file; expected lines with {GOOD} and {BAD}")
    for file in files:
        for number, line in enumerate(_lines(file), 1):
            pair = _pair(line, f"{file}, line {number}", file.name.partition(".")[0])
            counts[pair.paradigm] = counts.get(pair.paradigm, 0) + 1
            if most is None or counts[pair.paradigm] <= most:
                pairs.append(pair)
    if not pairs:
        raise ValueError(f"{path} has no pairs; expected lines with {GOOD} and {BAD}")
    return pairs


def _lines(file: Path) -> Iterator[str]:
    from mini_bert.inference.embed import read_lines

    yield from read_lines(str(file))


def _pair(line: str, where: str, paradigm: str) -> MinimalPair:
    try:
        values = json.loads(line)
    except (ValueError, RecursionError):
        raise ValueError(f"{where} is not JSON: {line[:60]!r}") from None
    values = values if isinstance(values, dict) else {}
    for name in (GOOD, BAD):
        text = values.get(name)
        if not isinstance(text, str) or not text.strip():
            raise ValueError(f"{where}: {name} is {text!r:.60}, expected a sentence")
    return MinimalPair(values[GOOD], values[BAD], str(values.get("UID", paradigm)), str(values.get("field", "")))


def minimal_pairs(
    model: Model,
    tokenizer: Tokenizer,
    pairs: Sequence[MinimalPair],
    threads: int = 1,
    after_each: Callable[[int, int], None] | None = None,
) -> Result:
    """After each batch, `after_each(sentences done, sentences in all)` is called."""
    number: dict[str, int] = {}  # each sentence once
    good = [number.setdefault(pair.good, len(number)) for pair in pairs]
    bad = [number.setdefault(pair.bad, len(number)) for pair in pairs]
    progress = None if after_each is None else lambda done: after_each(done, len(number))
    scores = log_likelihoods(model, tokenizer, list(number), threads, progress)
    right = (scores[good] > scores[bad]) + 0.5 * (scores[good] == scores[bad])
    members: dict[tuple[str, str], list[int]] = {}
    for index, pair in enumerate(pairs):
        members.setdefault((pair.paradigm, pair.field), []).append(index)
    paradigms = [Paradigm(*name, len(own), float(right[own].mean())) for name, own in members.items()]
    mean = float(np.mean([paradigm.accuracy for paradigm in paradigms]))
    return Result(mean, len(pairs), way_of(model), paradigms)


def report(name: str, result: Result) -> str:
    """A row for each paradigm, worst first."""
    width = max(len(one.name) for one in result.paradigms)
    lines = [
        f"  {one.name:{width}} {one.accuracy:7.1%}  {bar(one.accuracy)}"
        for one in sorted(result.paradigms, key=lambda one: one.accuracy)
    ]
    return "\n".join(
        [
            f"{name}: {result.accuracy:.1%} of {counted(result.pairs, 'minimal pair')} right, as a mean over "
            f"{counted(len(result.paradigms), 'paradigm')}; guessing gives 50 %",
            *lines,
            f"\nScored by {SCORED_BY[result.scored_by]}.",
        ]
    )
