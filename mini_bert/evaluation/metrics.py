"""Every score that this project reports: pure functions, each with its formula.

    classes        accuracy, confusion_matrix, per_class, precision_recall_f1, matthews
    numbers        pearson, spearman
    entities       entities, entity_scores             from BIO, BIOES or BILOU tags
    answers        exact_match, answer_f1, answer_scores          from text, by SQuAD's rules
    probabilities  calibration, brier                  are 80 % of the guesses with 80 % confidence right?
    vectors        mean_cosine, partition_ratio, nearest          (vector_metrics.py)

Metrics of a model: evaluate.py (loss, perplexity, top-k on masked words), pseudo_perplexity.py (each token of a
sentence), embedding_quality.py (similarity of sentence vectors).

Scores range from 0 (worst; −1 for correlations) to 1 (best). Where a score is undefined, its docstring says what is
returned. The scores agree with scikit-learn, SciPy and seqeval (tests/evaluation/test_metrics_peers.py).
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from mini_bert.evaluation.vector_metrics import mean_cosine as mean_cosine
from mini_bert.evaluation.vector_metrics import nearest as nearest
from mini_bert.evaluation.vector_metrics import partition_ratio as partition_ratio

Labels = Sequence[Any] | np.ndarray
Numbers = Sequence[float] | np.ndarray
NO_CASES = "there are no cases to score; is the file or the selection empty?"

# ---------------------------------------------------------------------- classes


class Scores(NamedTuple):
    precision: float  # the share of the guesses that are true
    recall: float  # the share of the true cases that were guessed
    f1: float  # their harmonic mean
    support: int  # the number of true cases


def accuracy(truth: Labels, guesses: Labels) -> float:
    """Σ [guess = truth] / N

    >>> accuracy(["cat", "dog", "cat"], ["cat", "cat", "cat"])
    0.6666666666666666
    """
    truth, guesses = _paired(truth, guesses)
    return sum(a == b for a, b in zip(truth, guesses, strict=True)) / len(truth)


def confusion_matrix(truth: Labels, guesses: Labels, labels: Sequence | None = None) -> np.ndarray:
    """M[i,j] = how often label i was guessed as label j        (K,K), rows: truth, columns: guesses

    labels: the labels to count, in order; default: all that occur, sorted. Cases with other labels are ignored.

    >>> confusion_matrix(["cat", "dog", "cat"], ["cat", "cat", "cat"])
    array([[2, 0],
           [1, 0]])
    """
    labels, i, j = _indexed(truth, guesses, labels)
    size = len(labels) + 1
    return np.bincount(i * size + j, minlength=size * size).reshape(size, size)[:-1, :-1]


def per_class(truth: Labels, guesses: Labels, labels: Sequence | None = None) -> dict[Any, Scores]:
    """precision = TP / (TP + FP),   recall = TP / (TP + FN),   F1 = 2 TP / (2 TP + FP + FN),   for every label

    TP: guessed and true, FP: guessed but not true, FN: true but not guessed. 0/0 counts as 0.
    """
    labels, *counts = _counts(truth, guesses, labels)
    return {label: _scores(*row) for label, *row in zip(labels, *counts, strict=True)}


def precision_recall_f1(
    truth: Labels, guesses: Labels, average: str = "macro", labels: Sequence | None = None
) -> Scores:
    """macro: the mean over the labels of each score;   micro: the scores of the summed TP, FP, FN

    Macro gives every label the same weight, however rare; micro gives every case the same weight, and equals the
    accuracy if all labels are counted. labels: those to count, e.g. all but "O"; default: all that occur.
    """
    if average not in ("macro", "micro"):
        raise ValueError(f"average is {average!r}, expected 'macro' or 'micro'; per_class gives each label's scores")
    _, *counts = _counts(truth, guesses, labels)
    if average == "micro":
        return _scores(*(part.sum() for part in counts))
    return _mean([_scores(*row) for row in zip(*counts, strict=True)])


def matthews(truth: Labels, guesses: Labels) -> float:
    """(c s − Σ p_k t_k) / √((s² − Σ p_k²) (s² − Σ t_k²))        Matthews' correlation, from −1 to 1, for any labels

    s cases, c of them right; label k was guessed p_k times and is true t_k times. With two classes this is Pearson's
    correlation of truth and guess. 0 if all guesses or all true labels are the same.
    """
    right, guessed, there = (part.astype(object) for part in _counts(truth, guesses)[1:])  # Python ints: no overflow
    s, c = there.sum(), right.sum()
    spread = (s * s - (guessed * guessed).sum()) * (s * s - (there * there).sum())
    return float((c * s - (guessed * there).sum()) / spread**0.5) if spread else 0.0


def _paired(truth: Any, guesses: Any) -> tuple[list, list]:
    """Two lists of the same length, not empty."""
    first, second = (list(part.tolist() if isinstance(part, np.ndarray) else part) for part in (truth, guesses))
    if len(first) != len(second):
        raise ValueError(f"there are {len(first):,} true labels and {len(second):,} guesses, expected one for each")
    if not first:
        raise ValueError(NO_CASES)
    return first, second


def _indexed(truth: Any, guesses: Any, labels: Any) -> tuple[list, np.ndarray, np.ndarray]:
    """The K labels, and the index of each true and each guessed label; K for labels that are not counted."""
    truth, guesses = _paired(truth, guesses)
    if labels is None:
        try:
            labels = sorted(set(truth) | set(guesses))
        except TypeError:
            kinds = sorted({type(label).__name__ for label in [*truth, *guesses]})
            raise ValueError(f"labels have types {' and '.join(kinds)}; convert all to one, such as str") from None
    if not len(labels):
        raise ValueError("labels is empty, expected at least one label to count")
    index = {label: number for number, label in enumerate(labels)}
    if len(index) < len(labels):
        raise ValueError(f"labels are {list(labels)!r:.80}, expected each only once")
    i, j = (np.array([index.get(label, len(index)) for label in part]) for part in (truth, guesses))
    return list(index), i, j


def _counts(truth: Any, guesses: Any, labels: Any = None) -> tuple[list, np.ndarray, np.ndarray, np.ndarray]:
    """The labels, and how often each was correctly guessed, guessed, and true."""
    labels, i, j = _indexed(truth, guesses, labels)
    right, guessed, there = (np.bincount(part, minlength=len(labels) + 1)[:-1] for part in (i[i == j], j, i))
    return labels, right, guessed, there


def _scores(right: Any, guessed: Any, there: Any) -> Scores:
    right, guessed, there = int(right), int(guessed), int(there)
    return Scores(
        right / guessed if guessed else 0.0,
        right / there if there else 0.0,
        2 * right / (guessed + there) if guessed + there else 0.0,
        there,
    )


def _mean(scores: Sequence[Scores]) -> Scores:
    """The mean over labels, with equal weights."""
    if not scores:
        return Scores(0.0, 0.0, 0.0, 0)
    precision, recall, f1, _ = np.mean(scores, axis=0).tolist()
    return Scores(precision, recall, f1, sum(one.support for one in scores))


# ---------------------------------------------------------------------- numbers


def pearson(x: Numbers, y: Numbers) -> float:
    """Σ (x−x̄)(y−ȳ) / √(Σ (x−x̄)² Σ (y−ȳ)²)        how close the points are to a straight line, from −1 to 1

    NaN if all x or all y are the same, or there are fewer than two.
    """
    parts = _numbers(x, y)
    if any(part.size < 2 or part.min() == part.max() for part in parts):
        return float("nan")
    units = []
    for part in parts:
        part = part / np.abs(part).max()  # avoids overflow of the squares
        part = part - part.mean()
        units.append(part / np.linalg.norm(part))
    return float(np.clip(units[0] @ units[1], -1, 1))


def spearman(x: Numbers, y: Numbers) -> float:
    """pearson(ranks of x, ranks of y)        does one rise when the other does, along a line or not?

    Equal values share the mean of their ranks. NaN where pearson is.
    """
    first, second = _numbers(x, y)
    return pearson(mean_ranks(first), mean_ranks(second))


def mean_ranks(values: Numbers) -> np.ndarray:
    """(N,) -> (N,): ranks from 1 for the smallest; equal values share the mean of their ranks.

    >>> mean_ranks([10, 30, 20, 20]).tolist()
    [1.0, 4.0, 2.5, 2.5]
    """
    _, group, sizes = np.unique(np.asarray(values, float), return_inverse=True, return_counts=True)
    last = np.cumsum(sizes)  # the rank of the last in each group of equals
    return (last - (sizes - 1) / 2)[group]


def _numbers(x: Any, y: Any) -> tuple[np.ndarray, np.ndarray]:
    x, y = np.asarray(x, float), np.asarray(y, float)
    if x.ndim != 1 or x.shape != y.shape:
        raise ValueError(f"the numbers have shapes {x.shape} and {y.shape}, expected two lists of the same length")
    for name, part in (("first", x), ("second", y)):
        if not np.isfinite(part).all():
            place = int(np.flatnonzero(~np.isfinite(part))[0])
            raise ValueError(f"number {place + 1} of the {name} list is {part[place]}, expected finite numbers")
    return x, y


# ---------------------------------------------------------------------- entities

Entity = tuple[str, int, int]  # type, first word, last word


def entities(tags: Sequence[str]) -> set[Entity]:
    """The entities in the tags of one sentence: {(type, first word, last word)}

    B-PER begins a person, I-PER continues it, O is outside. The rules are those of seqeval and conlleval: an I- after O
    or after another type also begins an entity. E- (end) and S- (single) of BIOES, and their names in BILOU, L- (last)
    and U- (unit), are accepted too.

    >>> sorted(entities(["B-PER", "I-PER", "O", "I-LOC"]))
    [('LOC', 3, 3), ('PER', 0, 1)]
    """
    found: set[Entity] = set()
    start, before, kind_before = 0, "O", "_"
    for place, tag in enumerate([*tags, "O"]):
        letter, kind = _split(tag, place)
        if before != "O" and (before in "ES" or letter in "BSO" or kind != kind_before):
            found.add((kind_before, start, place - 1))
        if letter != "O" and (letter in "BS" or before in "ESO" or kind != kind_before):
            start = place
        before, kind_before = letter, kind
    return found


ENTITY_TAGS = "O, or B-, I-, E- or L-, S- or U- with a type, such as B-PER (BIO, BIOES, BILOU)"
_LETTERS = {"B": "B", "I": "I", "E": "E", "S": "S", "O": "O", "L": "E", "U": "S"}


def is_entity_tag(tag: str) -> bool:
    """Whether a tag is O, or a letter and a type, such as B-PER.

    >>> [is_entity_tag(tag) for tag in ("O", "U-PER", "NOUN", "B_PER", "B-")]
    [True, True, False, False, False]
    """
    letter, dash, kind = tag.partition("-")
    return tag == "O" or (letter in _LETTERS and letter != "O" and bool(dash and kind))


def _split(tag: str, place: int) -> tuple[str, str]:
    """B-PER -> B, PER; a tag without a type has type _."""
    letter, dash, kind = tag.partition("-")
    if letter not in _LETTERS or (letter == "O" and dash):
        raise ValueError(f"tag {place + 1} of the sentence is {tag!r}, expected {ENTITY_TAGS}")
    return _LETTERS[letter], kind or "_"


class EntityScores(NamedTuple):
    micro: Scores  # every entity has the same weight: the F1 that papers report
    macro: Scores  # every type has the same weight
    by_type: dict[str, Scores]


def entity_scores(truth: Iterable[Sequence[str]], guesses: Iterable[Sequence[str]]) -> EntityScores:
    """Precision, recall and F1 of entities; an entity is right if its type, first and last word are

    truth and guesses: one list of tags per sentence.
    """
    truth, guesses = list(truth), list(guesses)
    if len(truth) != len(guesses):
        raise ValueError(
            f"the number of sentences is {len(truth):,} in truth, but {len(guesses):,} in guesses; expected the same"
        )
    right, guessed, there = Counter[str](), Counter[str](), Counter[str]()
    for number, (true_tags, guessed_tags) in enumerate(zip(truth, guesses, strict=True), 1):
        if len(true_tags) != len(guessed_tags):
            raise ValueError(
                f"sentence {number:,} has {len(true_tags)} tags, but {len(guessed_tags)} were guessed; "
                "expected one for each word"
            )
        a, b = entities(true_tags), entities(guessed_tags)
        for counter, part in ((right, a & b), (guessed, b), (there, a)):
            counter.update(kind for kind, _, _ in part)
    by_type = {kind: _scores(right[kind], guessed[kind], there[kind]) for kind in sorted(guessed | there)}
    micro = _scores(right.total(), guessed.total(), there.total())
    return EntityScores(micro, _mean(list(by_type.values())), by_type)


# ---------------------------------------------------------------------- answers


def normalized(answer: str) -> str:
    """Lower case, without ASCII punctuation, then without a, an, the; words separated by one space.

    >>> normalized("  The Cat's  mat! ")
    'cats mat'
    """
    plain = answer.lower().translate(_NO_PUNCTUATION)
    return " ".join(_ARTICLES.sub(" ", plain).split())


_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(?:a|an|the)\b")


def exact_match(guess: str, answers: Sequence[str]) -> float:
    """max over the answers of [normalized guess = normalized answer]        1 or 0

    The right guess for a question without answers (SQuAD 2.0) is one without words.
    """
    return float(any(normalized(guess) == normalized(answer) for answer in answers or [""]))


def answer_f1(guess: str, answers: Sequence[str]) -> float:
    """max over the answers of 2 c / (g + a)        c words in common, g in the guess, a in the answer

    Counts words of the normalized texts, with repetitions. As in SQuAD 1.1's script, an answer that is empty once
    normalized scores 0. A question without answers is scored as by exact_match.
    """
    if not answers:
        return exact_match(guess, answers)
    words = Counter(normalized(guess).split())
    best = 0.0
    for answer in answers:
        wanted = Counter(normalized(answer).split())
        common = (words & wanted).total()
        if common:
            best = max(best, 2 * common / (words.total() + wanted.total()))
    return best


class AnswerScores(NamedTuple):
    exact: float  # 0 to 1; SQuAD's script prints percentages
    f1: float
    questions: int


def answer_scores(guesses: Mapping[str, str], answers: Mapping[str, Sequence[str]]) -> AnswerScores:
    """The means of exact_match and answer_f1 over all questions: {id: guess}, {id: answers}

    A question without a guess scores 0, as in SQuAD's script; a guess without a question is an error.
    """
    if not answers:
        raise ValueError("there are no questions, so there is nothing to score")
    stray = next((name for name in guesses if name not in answers), None)
    if stray is not None:
        raise ValueError(f"a guess has the id {stray!r}, which none of the {len(answers):,} questions has")
    exact, f1 = (
        sum(score(guesses[name], wanted) for name, wanted in answers.items() if name in guesses) / len(answers)
        for score in (exact_match, answer_f1)
    )
    return AnswerScores(exact, f1, len(answers))


# ---------------------------------------------------------------------- probabilities

BINS = 10


class Bin(NamedTuple):
    low: float  # confidence above this …
    high: float  # … and up to this
    cases: int
    confidence: float  # the mean in this bin; NaN if it is empty
    accuracy: float


class Calibration(NamedTuple):
    error: float  # expected calibration error: the mean difference between confidence and accuracy
    worst: float  # the difference in the worst bin
    bins: list[Bin]  # the reliability table


def calibration(confidence: Numbers, right: Labels, bins: int = BINS) -> Calibration:
    """error = Σ_b n_b/N |accuracy_b − confidence_b|,   worst = max_b |accuracy_b − confidence_b|

    confidence: the probability that the model gave its own guess; right: whether the guess was right. Guesses are put
    into bins of equal width by confidence; a bin includes its upper edge, the first one also 0. In a well calibrated
    model, confidence and accuracy agree in every bin. That alone does not make it a good model.
    """
    sums = reliability(confidence, right, bins)
    if not sums[0].sum():
        raise ValueError(NO_CASES)
    return calibrated(sums)


def reliability(confidence: Numbers, right: Labels, bins: int = BINS) -> np.ndarray:
    """Returns (3,bins): per bin, the number of cases, the sum of their confidence, and how many are right."""
    p, hit = np.asarray(confidence, float), np.asarray(right, float)
    if p.ndim != 1 or p.shape != hit.shape:
        raise ValueError(
            f"confidence and right have shapes {p.shape} and {hit.shape}, expected two lists of the same length"
        )
    if bins < 1:
        raise ValueError(f"bins is {bins}, expected at least 1")
    _check_probabilities("confidence", p)
    strange = hit[(hit != 0) & (hit != 1)]
    if strange.size:
        raise ValueError(
            f"`right` contains {strange[0]:.6g}, expected True or False (1 or 0) for each guess: guesses == truth"
        )
    place = np.searchsorted(np.linspace(0, 1, bins + 1)[1:-1], p)
    parts = (np.bincount(place, weights, bins) for weights in (np.ones_like(p), p, hit))
    return np.stack(list(parts)).astype(float)  # bincount of nothing is an integer array


def calibrated(sums: np.ndarray) -> Calibration:
    """Calibration from the sums of `reliability`; NaN if there are no cases."""
    counts, seen = sums[0], sums[0] > 0
    confidence, accuracy = np.divide(sums[1:], counts, out=np.full_like(sums[1:], np.nan), where=seen)
    gaps, weights = np.abs(accuracy - confidence)[seen], counts[seen] / max(counts.sum(), 1)
    edges = np.linspace(0, 1, len(counts) + 1)
    columns = (edges[:-1], edges[1:], counts.astype(int), confidence, accuracy)
    table = [Bin(*row) for row in zip(*(column.tolist() for column in columns), strict=True)]
    if not gaps.size:
        return Calibration(float("nan"), float("nan"), table)
    return Calibration(float(gaps @ weights), float(gaps.max()), table)


def brier(probabilities: np.ndarray, truth: Sequence[int] | np.ndarray) -> float:
    """1/N Σ_n Σ_k (p_nk − [k = truth_n])²        probabilities (N,K), truth (N,); from 0 (best) to 2

    Brier's score for any number of classes. It punishes both wrong and hesitant predictions.
    """
    p, target = np.asarray(probabilities, float), np.asarray(truth)
    if p.ndim != 2 or target.shape != p.shape[:1] or not len(p):
        raise ValueError(f"probabilities and truth have shapes {p.shape} and {target.shape}, expected (N,K) and (N,)")
    _check_probabilities("probability", p)
    strange = target[~np.isin(target, np.arange(p.shape[1]))]
    if strange.size:
        raise ValueError(f"truth contains {strange[0]}, expected class indices, 0 to {p.shape[1] - 1}")
    off = p.copy()
    off[np.arange(len(p)), target.astype(int)] -= 1
    return float((off * off).sum(1).mean())


def _check_probabilities(name: str, p: np.ndarray) -> None:
    outside = p[~((p >= 0) & (p <= 1))]  # includes NaN
    if outside.size:
        raise ValueError(f"a {name} is {outside[0]:.6g}, expected probabilities from 0 to 1; logits need a softmax")
