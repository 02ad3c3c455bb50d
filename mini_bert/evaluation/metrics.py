"""How right is a guess? Every score that this project reports, each a pure function with its formula beside it.

    classes        accuracy, confusion_matrix, per_class, precision_recall_f1, matthews
    numbers        pearson, spearman
    entities       entities, entity_scores             from BIO, BIOES or BILOU tags
    answers        exact_match, answer_f1, answer_scores          from text, by SQuAD's rules
    probabilities  calibration, brier                  is what is said with 80 % certainty right in 80 % of the cases?
    vectors        mean_cosine, partition_ratio, nearest          do they use all directions? what lies next to what?

Those that need a model: evaluation/evaluate.py hides words (loss, perplexity, top-k), evaluation/pseudo_perplexity.py
asks for every word of a sentence, evaluation/embedding_quality.py compares likeness with what people think of it.

Scores are shares: 1 is all, 0 is nothing (and −1 the opposite, where there is one). What is undefined is a choice, and
each function says which it made. They agree with scikit-learn, SciPy and seqeval (tests/test_metrics_peers.py).

    python evaluation/metrics.py --test         in this folder, or   mini-bert metrics --test   anywhere: each on a
    known case
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from mini_bert.evaluation.vector_metrics import mean_cosine as mean_cosine
from mini_bert.evaluation.vector_metrics import nearest as nearest
from mini_bert.evaluation.vector_metrics import partition_ratio as partition_ratio

# ---------------------------------------------------------------------- classes


class Scores(NamedTuple):
    precision: float  # of what was guessed, the share that is true
    recall: float  # of what is true, the share that was guessed
    f1: float  # their harmonic mean
    support: int  # how many there truly are


def accuracy(truth: Sequence | np.ndarray, guesses: Sequence | np.ndarray) -> float:
    """Σ [guess = truth] / N

    >>> accuracy(["cat", "dog", "cat"], ["cat", "cat", "cat"])
    0.6666666666666666
    """
    truth, guesses = _paired(truth, guesses)
    return sum(a == b for a, b in zip(truth, guesses, strict=True)) / len(truth)


def confusion_matrix(
    truth: Sequence | np.ndarray, guesses: Sequence | np.ndarray, labels: Sequence | None = None
) -> np.ndarray:
    """M[i,j] = how often label i was taken for label j        (K,K), rows: truth, columns: guesses

    labels: which, and in which order; default: all that occur, sorted. Cases with any other label are left out.

    >>> confusion_matrix(["cat", "dog", "cat"], ["cat", "cat", "cat"])
    array([[2, 0],
           [1, 0]])
    """
    truth, guesses = _paired(truth, guesses)
    place = _places(truth, guesses, labels)
    K = len(place)
    cells = [
        place[a] * K + place[b] for a, b in zip(truth, guesses, strict=True) if a in place and b in place
    ]  # of the flat matrix
    return np.bincount(np.array(cells, int), minlength=K * K).reshape(K, K)


def per_class(
    truth: Sequence | np.ndarray, guesses: Sequence | np.ndarray, labels: Sequence | None = None
) -> dict[Any, Scores]:
    """precision = TP / (TP + FP),   recall = TP / (TP + FN),   F1 = 2 TP / (2 TP + FP + FN),   for every label

    TP: guessed and true, FP: guessed but not true, FN: true but not guessed. A share of nothing counts as 0.
    """
    truth, guesses = _paired(truth, guesses)
    place = _places(truth, guesses, labels)
    right, guessed, there = _counts(truth, guesses, place)
    return {label: _scores(right[i], guessed[i], there[i]) for label, i in place.items()}


def precision_recall_f1(
    truth: Sequence | np.ndarray,
    guesses: Sequence | np.ndarray,
    average: str = "macro",
    labels: Sequence | None = None,
) -> Scores:
    """macro: the mean over the labels of each score;   micro: the scores of the summed TP, FP, FN

    Macro counts every label alike, however rare; micro counts every case alike, and is the accuracy where all labels
    are counted. labels: those to count (default: all that occur), so that one can leave out a label such as "O".
    """
    if average not in ("macro", "micro"):
        raise ValueError(f"average is {average!r}, expected 'macro' or 'micro'; for each label alone: per_class")
    truth, guesses = _paired(truth, guesses)
    place = _places(truth, guesses, labels)
    counts = _counts(truth, guesses, place)
    if average == "micro":
        return _scores(*(part.sum() for part in counts))
    return _mean([_scores(*row) for row in zip(*counts, strict=True)])


def matthews(truth: Sequence | np.ndarray, guesses: Sequence | np.ndarray) -> float:
    """(c s − Σ p_k t_k) / √((s² − Σ p_k²) (s² − Σ t_k²))        Matthews' correlation, from −1 to 1, for any labels

    s cases, c of them right; label k was guessed p_k times and is true t_k times. With two classes this is Pearson's
    correlation of truth and guess. Where all guesses or all truths are one label there is nothing to correlate: 0.
    """
    truth, guesses = _paired(truth, guesses)
    right, guessed, there = (part.astype(object) for part in _counts(truth, guesses, _places(truth, guesses, None)))
    s, c = len(truth), right.sum()  # Python's whole numbers: exact, whatever their size
    spread = (s * s - (guessed * guessed).sum()) * (s * s - (there * there).sum())
    return float((c * s - (guessed * there).sum()) / spread**0.5) if spread else 0.0


def _paired(truth: Any, guesses: Any) -> tuple[list, list]:
    """Two lists of the same length, not empty"""
    first, second = (list(part.tolist() if isinstance(part, np.ndarray) else part) for part in (truth, guesses))
    if len(first) != len(second):
        raise ValueError(f"there are {len(first):,} true labels and {len(second):,} guesses, expected one for each")
    if not first:
        raise ValueError("there are no cases, so there is nothing to score; is the file or the selection empty?")
    return first, second


def _places(truth: list, guesses: list, labels: Sequence | None) -> dict[Hashable, int]:
    """Label -> its number"""
    if labels is None:
        try:
            labels = sorted(set(truth) | set(guesses))
        except TypeError:
            kinds = sorted({type(label).__name__ for label in [*truth, *guesses]})
            raise ValueError(f"labels are of kinds {' and '.join(kinds)}; make all of one, such as str") from None
    if not len(labels):
        raise ValueError("labels is empty, expected at least one label to count")
    if len(set(labels)) < len(labels):
        raise ValueError(f"labels are {list(labels)!r:.80}, in which one stands twice")
    return {label: number for number, label in enumerate(labels)}


def _counts(truth: list, guesses: list, place: dict[Hashable, int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """For each label: how often it was rightly guessed, guessed, and true"""
    K = len(place)
    a, b = (np.array([place.get(label, K) for label in part]) for part in (truth, guesses))  # K: not counted
    counted = (np.bincount(part, minlength=K + 1)[:K] for part in (a[a == b], b, a))
    return next(counted), next(counted), next(counted)


def _scores(right: Any, guessed: Any, there: Any) -> Scores:
    right, guessed, there = int(right), int(guessed), int(there)
    return Scores(
        right / guessed if guessed else 0.0,
        right / there if there else 0.0,
        2 * right / (guessed + there) if guessed + there else 0.0,
        there,
    )


def _mean(scores: Sequence[Scores]) -> Scores:
    """Every label alike, however rare"""
    if not scores:
        return Scores(0.0, 0.0, 0.0, 0)
    precision, recall, f1, _ = np.mean(scores, axis=0).tolist()
    return Scores(precision, recall, f1, sum(one.support for one in scores))


# ---------------------------------------------------------------------- numbers


def pearson(x: Sequence[float] | np.ndarray, y: Sequence[float] | np.ndarray) -> float:
    """Σ (x−x̄)(y−ȳ) / √(Σ (x−x̄)² Σ (y−ȳ)²)        how near the points lie to a straight line, from −1 to 1

    nan if all x or all y are the same, or there are fewer than two: there is no line then.
    """
    parts = _numbers(x, y)
    if any(part.size < 2 or part.min() == part.max() for part in parts):
        return float("nan")
    units = []
    for part in parts:
        part = part / np.abs(part).max()  # so that no square is too large or too small for a float
        part = part - part.mean()
        units.append(part / np.linalg.norm(part))
    return float(np.clip(units[0] @ units[1], -1, 1))


def spearman(x: Sequence[float] | np.ndarray, y: Sequence[float] | np.ndarray) -> float:
    """pearson(ranks of x, ranks of y)        does one rise where the other does? Whether along a line does not matter

    Equal values share the mean of their ranks. nan where pearson has it.
    """
    first, second = _numbers(x, y)
    return pearson(mean_ranks(first), mean_ranks(second))


def mean_ranks(values: Sequence[float] | np.ndarray) -> np.ndarray:
    """(N,) -> (N,): 1 for the smallest; equal values share the mean of the ranks that they take up together

    >>> mean_ranks([10, 30, 20, 20]).tolist()
    [1.0, 4.0, 2.5, 2.5]
    """
    _, group, sizes = np.unique(np.asarray(values, float), return_inverse=True, return_counts=True)
    last = np.cumsum(sizes)  # the rank of the last in each group of equals
    return (last - (sizes - 1) / 2)[group]


def _numbers(x: Any, y: Any) -> tuple[np.ndarray, np.ndarray]:
    x, y = np.asarray(x, float), np.asarray(y, float)
    if x.ndim != 1 or x.shape != y.shape:
        raise ValueError(f"the numbers have shapes {x.shape} and {y.shape}, expected two lists of one length")
    for name, part in (("first", x), ("second", y)):
        if not np.isfinite(part).all():
            place = int(np.flatnonzero(~np.isfinite(part))[0])
            raise ValueError(f"number {place + 1} of the {name} list is {part[place]}, expected finite numbers")
    return x, y


# ---------------------------------------------------------------------- entities

Entity = tuple[str, int, int]  # type, first word, last word


def entities(tags: Sequence[str]) -> set[Entity]:
    """The entities that tags of one sentence spell: {(type, first word, last word)}

    B-PER begins a person, I-PER goes on with it, O is outside. The rules are those of seqeval and of conlleval, which
    forgive: an I- after O, or after another type, begins an entity, too. Also understood: E- (end) and S- (single) of
    BIOES, and L- (last) and U- (unit), which BILOU writes for them.

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
    """O, or a letter and a type: B-PER

    >>> [is_entity_tag(tag) for tag in ("O", "U-PER", "NOUN", "B_PER", "B-")]
    [True, True, False, False, False]
    """
    letter, dash, kind = tag.partition("-")
    return tag == "O" or (letter in _LETTERS and letter != "O" and bool(dash and kind))


def _split(tag: str, place: int) -> tuple[str, str]:
    """B-PER -> B, PER;   tags without a type are of type _"""
    letter, dash, kind = tag.partition("-")
    if letter not in _LETTERS or (letter == "O" and dash):
        raise ValueError(f"tag {place + 1} of the sentence is {tag!r}, expected {ENTITY_TAGS}")
    return _LETTERS[letter], kind or "_"


class EntityScores(NamedTuple):
    micro: Scores  # every entity counts alike: the F1 that papers report
    macro: Scores  # every type counts alike
    by_type: dict[str, Scores]


def entity_scores(truth: Iterable[Sequence[str]], guesses: Iterable[Sequence[str]]) -> EntityScores:
    """Precision, recall and F1 of entities: one is right if its type, first and last word all are

    truth and guesses: tags, a list for each sentence. Types that are neither true nor guessed do not occur.
    """
    truth, guesses = list(truth), list(guesses)
    if len(truth) != len(guesses):
        raise ValueError(f"tags for {len(truth):,} sentences, but guesses for {len(guesses):,}; expected one for each")
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
    """Lower case; without punctuation (ASCII), then without a, an, the; words parted by one space

    >>> normalized("  The Cat's  mat! ")
    'cats mat'
    """
    plain = answer.lower().translate(_NO_PUNCTUATION)
    return " ".join(_ARTICLES.sub(" ", plain).split())


_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(?:a|an|the)\b")


def exact_match(guess: str, answers: Sequence[str]) -> float:
    """max over the answers of [normalized guess = normalized answer]        1 or 0

    A question without answers (SQuAD 2.0 has such) is answered rightly by nothing: a guess without words.
    """
    return float(any(normalized(guess) == normalized(answer) for answer in answers or [""]))


def answer_f1(guess: str, answers: Sequence[str]) -> float:
    """max over the answers of 2 c / (g + a)        c common words, of g in the guess and a in the answer

    Words of the normalized texts, as often as each occurs in both. As SQuAD 1.1's script has it, an answer of which
    normalizing leaves no word shares none with any guess: 0. A question without answers is scored as by exact_match.
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
    exact: float  # shares of the questions; SQuAD's script prints them times 100
    f1: float
    questions: int


def answer_scores(guesses: Mapping[str, str], answers: Mapping[str, Sequence[str]]) -> AnswerScores:
    """The means of exact_match and answer_f1 over all questions: {id: guess}, {id: answers}

    A question without a guess counts as 0, as in SQuAD's script, and a guess without a question is an error.
    """
    if not answers:
        raise ValueError("there are no questions, so there is nothing to score")
    stray = next((name for name in guesses if name not in answers), None)
    if stray is not None:
        raise ValueError(f"there is a guess for {stray!r}, which is not among the {len(answers):,} questions")
    exact = [exact_match(guesses[name], wanted) if name in guesses else 0.0 for name, wanted in answers.items()]
    f1 = [answer_f1(guesses[name], wanted) if name in guesses else 0.0 for name, wanted in answers.items()]
    return AnswerScores(sum(exact) / len(answers), sum(f1) / len(answers), len(answers))


# ---------------------------------------------------------------------- probabilities

BINS = 10


class Bin(NamedTuple):
    low: float  # certainty above this …
    high: float  # … and up to this
    cases: int
    confidence: float  # the mean in this bin; nan in an empty one
    accuracy: float


class Calibration(NamedTuple):
    error: float  # expected calibration error: by how much certainty and accuracy differ, on the average
    worst: float  # and in the worst bin
    bins: list[Bin]  # the reliability table


def calibration(
    confidence: Sequence[float] | np.ndarray, right: Sequence | np.ndarray, bins: int = BINS
) -> Calibration:
    """error = Σ_b n_b/N |accuracy_b − confidence_b|,   worst = max_b |accuracy_b − confidence_b|

    confidence: the probability that the model gave to its own guess; right: was it? Guesses are sorted by confidence
    into bins of equal width, each without its lower and with its upper end (0 is in the first). In a well calibrated
    model both means of every bin agree. A model can be well calibrated and know nothing: it only has to say so.
    """
    sums = reliability(confidence, right, bins)
    if not sums[0].sum():
        raise ValueError("there are no cases, so there is nothing to score; is the file or the selection empty?")
    return calibrated(sums)


def reliability(confidence: Sequence[float] | np.ndarray, right: Sequence | np.ndarray, bins: int = BINS) -> np.ndarray:
    """-> (3,bins): in each bin the number of cases, the sum of their confidence, how many are right. Parts add up"""
    p, hit = np.asarray(confidence, float), np.asarray(right, float)  # whether right, not which class
    if p.ndim != 1 or p.shape != hit.shape:
        raise ValueError(
            f"confidence and right have shapes {p.shape} and {hit.shape}, expected two lists of one length"
        )
    if bins < 1:
        raise ValueError(f"bins is {bins}, expected at least 1")
    outside = p[~((p >= 0) & (p <= 1))]  # nan, too
    if outside.size:
        raise ValueError(f"a confidence is {outside[0]:.6g}, expected probabilities from 0 to 1")
    strange = hit[(hit != 0) & (hit != 1)]
    if strange.size:
        raise ValueError(
            f"one of `right` is {strange[0]:.6g}, expected True or False (1 or 0) for each guess: guesses == truth"
        )
    place = np.searchsorted(np.linspace(0, 1, bins + 1)[1:-1], p)
    parts = (np.bincount(place, weights, bins) for weights in (np.ones_like(p), p, hit))
    return np.stack(list(parts)).astype(float)  # of nothing, bincount makes whole numbers


def calibrated(sums: np.ndarray) -> Calibration:
    """What `reliability` counted -> Calibration; of no cases at all, nan"""
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
    """1/N Σ_n Σ_k (p_nk − [k = truth_n])²        probabilities (N,K), truth (N,): from 0, certain and right, to 2

    Brier's score for any number of classes. Being wrong costs, and so does being less certain than one could be.
    """
    p, target = np.asarray(probabilities, float), np.asarray(truth)
    if p.ndim != 2 or target.shape != p.shape[:1] or not len(p):
        raise ValueError(f"probabilities and truth have shapes {p.shape} and {target.shape}, expected (N,K) and (N,)")
    outside = p[~((p >= 0) & (p <= 1))]  # nan, too
    if outside.size:
        raise ValueError(f"a probability is {outside[0]:.6g}, expected 0 to 1; scores become such by softmax")
    classes = np.arange(p.shape[1])
    strange = target[~np.isin(target, classes)]
    if strange.size:
        raise ValueError(f"one of truth is {strange[0]!r}, expected numbers of classes, 0 to {p.shape[1] - 1}")
    target = target.astype(int)  # 1.0 is class 1
    off = p.copy()
    off[np.arange(len(p)), target] -= 1
    return float((off * off).sum(1).mean())
