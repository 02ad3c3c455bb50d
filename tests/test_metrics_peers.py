"""Live against scikit-learn, SciPy and seqeval: every score on thousands of random and degenerate cases."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mini_bert import metrics

pytestmark = pytest.mark.peers
sklearn = pytest.importorskip("sklearn.metrics")
stats = pytest.importorskip("scipy.stats")

CLOSE = {"rel": 1e-6, "abs": 1e-6}
FUZZ = settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))


def quietly(function, *arguments, **options):
    """A reference that warns where something is undefined; what it returns is what we compare"""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return function(*arguments, **options)


# ---- classes


def cases(labels):
    """Truth and guesses of one length; often few labels, so that some are never true or never guessed"""
    pairs = st.lists(st.tuples(st.sampled_from(labels), st.sampled_from(labels)), min_size=1, max_size=40)
    one = st.tuples(st.sampled_from(labels), st.sampled_from(labels), st.integers(1, 9)).map(lambda t: [t[:2]] * t[2])
    return st.one_of(pairs, one).map(lambda rows: tuple(map(list, zip(*rows, strict=True))))


LABELS = st.sampled_from([["a", "b"], ["O", "dog", "cat", "a"], [0, 1], [7, 3, 5, 11, 2], [True, False]])
CASES = LABELS.flatmap(cases)


@FUZZ
@given(CASES)
def test_classes(case):
    """Accuracy, confusion matrix, Matthews, and precision, recall, F1 for each label and in both means."""
    truth, guesses = case
    labels = sorted({*truth, *guesses})
    assert metrics.accuracy(truth, guesses) == pytest.approx(sklearn.accuracy_score(truth, guesses), **CLOSE)
    wanted = quietly(sklearn.confusion_matrix, truth, guesses)
    assert metrics.confusion_matrix(truth, guesses).tolist() == wanted.tolist()
    wanted = quietly(sklearn.matthews_corrcoef, truth, guesses)
    assert metrics.matthews(truth, guesses) == pytest.approx(wanted, **CLOSE)
    wanted = sklearn.precision_recall_fscore_support(truth, guesses, zero_division=0)
    found = metrics.per_class(truth, guesses)
    assert list(found) == labels
    assert np.array(list(found.values())) == pytest.approx(np.array(wanted).T, **CLOSE)
    for average in ("macro", "micro"):
        wanted = sklearn.precision_recall_fscore_support(truth, guesses, average=average, zero_division=0)
        assert metrics.precision_recall_f1(truth, guesses, average)[:3] == pytest.approx(wanted[:3], **CLOSE)


@FUZZ
@given(CASES, st.randoms(use_true_random=False))
def test_some_of_the_labels(case, random):
    """Chosen labels in a chosen order, one of which may never occur."""
    truth, guesses = case
    labels = list({*truth, *guesses})
    random.shuffle(labels)
    labels = labels[: random.randint(1, len(labels))]
    if not isinstance(labels[0], str):
        labels = [int(label) for label in labels]
    if {*labels} & {*truth}:  # the reference asks for that in a confusion matrix
        wanted = quietly(sklearn.confusion_matrix, truth, guesses, labels=labels)
        assert metrics.confusion_matrix(truth, guesses, labels).tolist() == wanted.tolist()
    labels.append(99 if not isinstance(labels[0], str) else "never")
    wanted = sklearn.precision_recall_fscore_support(truth, guesses, labels=labels, zero_division=0)
    found = metrics.per_class(truth, guesses, labels)
    assert np.array(list(found.values())) == pytest.approx(np.array(wanted).T, **CLOSE)
    for average in ("macro", "micro"):
        wanted = sklearn.precision_recall_fscore_support(
            truth, guesses, labels=labels, average=average, zero_division=0
        )
        assert metrics.precision_recall_f1(truth, guesses, average, labels)[:3] == pytest.approx(wanted[:3], **CLOSE)


def test_many_cases():
    """A million guesses: sums beyond 32 bits, and their products beyond 64."""
    rng = np.random.default_rng(0)
    truth = rng.integers(0, 3, 1_000_000)
    guesses = np.where(rng.random(truth.size) < 0.6, truth, rng.integers(0, 3, truth.size))
    assert metrics.matthews(truth, guesses) == pytest.approx(sklearn.matthews_corrcoef(truth, guesses), **CLOSE)
    wanted = sklearn.f1_score(truth, guesses, average="macro")
    assert metrics.precision_recall_f1(truth, guesses).f1 == pytest.approx(wanted, **CLOSE)


# ---- numbers

NUMBERS = st.one_of(
    st.floats(-1e3, 1e3),
    st.integers(-2, 2).map(float),  # ties
    st.sampled_from([1e150, -1e150, 1e-150, 0.0]),
)


@FUZZ
@given(st.lists(st.tuples(NUMBERS, NUMBERS), min_size=2, max_size=30))
def test_correlations(pairs):
    """Pearson and Spearman, with ties, with all the same, with large and small numbers; and the ranks."""
    x, y = map(np.array, zip(*pairs, strict=True))
    assert metrics.mean_ranks(x).tolist() == stats.rankdata(x).tolist()
    wanted = quietly(stats.spearmanr, x, y).statistic
    assert metrics.spearman(x, y) == pytest.approx(wanted, nan_ok=True, **CLOSE)
    wanted = quietly(stats.pearsonr, x, y).statistic
    assert metrics.pearson(x, y) == pytest.approx(wanted, nan_ok=True, **CLOSE)


@pytest.mark.parametrize("x, y", [([1, 1, 1], [1, 2, 3]), ([1, 2, 3], [5, 5, 5]), ([2, 2], [3, 3])])
def test_nothing_to_correlate(x, y):
    """Where the references have nan, so have we."""
    assert math.isnan(quietly(stats.spearmanr, x, y).statistic) and math.isnan(metrics.spearman(x, y))
    assert math.isnan(quietly(stats.pearsonr, x, y).statistic) and math.isnan(metrics.pearson(x, y))


# ---- entities

seqeval = pytest.importorskip("seqeval.metrics")
TAGS = st.one_of(
    st.just("O"),
    st.builds(lambda a, b: f"{a}-{b}", st.sampled_from("BIIES"), st.sampled_from(["PER", "LOC", "creative-work"])),
    st.sampled_from(["B", "I", "E", "S", "I-", "B-"]),
)
BIO = st.one_of(st.just("O"), st.sampled_from(["B-PER", "I-PER", "B-LOC", "I-LOC"]))


@FUZZ
@given(st.one_of(st.lists(TAGS, max_size=14), st.lists(BIO, max_size=14)))
def test_entities(tags):
    """The same spans of any sequence of tags, also of those that no annotator would write."""
    from seqeval.metrics.sequence_labeling import get_entities

    wanted = get_entities(tags)
    assert metrics.entities(tags) == set(wanted)


@FUZZ
@given(
    st.lists(
        st.lists(st.tuples(BIO, BIO, st.booleans()), max_size=9).map(
            lambda rows: [(a, a if same else b) for a, b, same in rows]
        ),
        min_size=1,
        max_size=8,
    )
)
def test_entity_scores(sentences):
    """Precision, recall and F1 of each type, and both means; with nothing there, nothing guessed, or both."""
    truth = [[a for a, _ in rows] for rows in sentences]
    guesses = [[b for _, b in rows] for rows in sentences]
    found = metrics.entity_scores(truth, guesses)
    for average, ours in (("micro", found.micro), ("macro", found.macro)):
        wanted = [
            quietly(score, truth, guesses, average=average, zero_division=0)
            for score in (seqeval.precision_score, seqeval.recall_score, seqeval.f1_score)
        ]
        if not found.by_type and average == "macro":
            assert ours == (0, 0, 0, 0)  # the mean of no types: the reference has nan
        else:
            assert ours[:3] == pytest.approx(wanted, **CLOSE)
    if found.by_type:
        report = quietly(seqeval.classification_report, truth, guesses, output_dict=True, zero_division=0)
        for kind, ours in found.by_type.items():
            wanted = [report[kind][name] for name in ("precision", "recall", "f1-score", "support")]
            assert list(ours) == pytest.approx(wanted, **CLOSE)
        assert {*found.by_type} == {*report} - {"micro avg", "macro avg", "weighted avg"}


# ---- answers

WORDS = st.sampled_from(["the", "The", "a", "an", "cat", "Cat", "cats", "cat's", "“cat”", "1,000", "-", "théâtre", "."])
ANSWERS = st.one_of(st.lists(WORDS, max_size=6).map(" ".join), st.text(max_size=12))


@FUZZ
@given(ANSWERS, ANSWERS)
def test_answers(guess, answer):
    """Normalizing, exact match and F1 of one answer, as transformers has them from SQuAD 2.0's script."""
    squad = pytest.importorskip("transformers.data.metrics.squad_metrics")
    assert metrics.normalized(guess) == squad.normalize_answer(guess)
    assert metrics.exact_match(guess, [answer]) == squad.compute_exact(answer, guess)
    if metrics.normalized(answer):  # else 2.0 counts as 1 what 1.1, our rule, counts as 0
        assert metrics.answer_f1(guess, [answer]) == pytest.approx(squad.compute_f1(answer, guess), **CLOSE)
