"""Compared live with scikit-learn, SciPy and seqeval: every score on thousands of random and degenerate cases."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mini_bert.evaluation import metrics

pytestmark = pytest.mark.peers
sklearn = pytest.importorskip("sklearn.metrics")
stats = pytest.importorskip("scipy.stats")

CLOSE = {"rel": 1e-6, "abs": 1e-6}
FUZZ = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))


def quietly(function, *arguments, **options):
    """Runs a reference without its warnings about undefined values; we compare what it returns"""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return function(*arguments, **options)


# ---- classes


def cases(labels):
    """Truth and guesses of the same length; often with few labels, so that some are never true or never guessed"""
    pairs = st.lists(st.tuples(st.sampled_from(labels), st.sampled_from(labels)), min_size=1, max_size=40)
    one = st.tuples(st.sampled_from(labels), st.sampled_from(labels), st.integers(1, 9)).map(lambda t: [t[:2]] * t[2])
    return st.one_of(pairs, one).map(lambda rows: tuple(map(list, zip(*rows, strict=True))))


LABELS = st.sampled_from([["a", "b"], ["O", "dog", "cat", "a"], [0, 1], [7, 3, 5, 11, 2], [True, False]])
CASES = LABELS.flatmap(cases)


@FUZZ
@given(CASES)
def test_classes(case):
    """Accuracy, confusion matrix, Matthews; precision, recall and F1 for each label and both averages."""
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
    """Chosen labels in a chosen order, some of which may never occur."""
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
    """A million guesses: sums beyond 32 bits, and products beyond 64."""
    rng = np.random.default_rng(0)
    truth = rng.integers(0, 3, 1_000_000)
    guesses = np.where(rng.random(truth.size) < 0.6, truth, rng.integers(0, 3, truth.size))
    assert metrics.matthews(truth, guesses) == pytest.approx(sklearn.matthews_corrcoef(truth, guesses), **CLOSE)
    wanted = sklearn.f1_score(truth, guesses, average="macro")
    assert metrics.precision_recall_f1(truth, guesses).f1 == pytest.approx(wanted, **CLOSE)


# ---- numbers

NUMBERS = st.one_of(
    st.floats(-1e3, 1e3, allow_subnormal=False),  # SciPy's Pearson of 0, 0, 5e-324 is wrong; ours: test_metrics.py
    st.integers(-2, 2).map(float),  # ties
    st.sampled_from([1e150, -1e150, 1e-150, 0.0]),
)


@FUZZ
@given(st.lists(st.tuples(NUMBERS, NUMBERS), min_size=2, max_size=30))
def test_correlations(pairs):
    """Pearson, Spearman and ranks, with ties, constant values, and large and small numbers."""
    x, y = map(np.array, zip(*pairs, strict=True))
    assert metrics.mean_ranks(x).tolist() == stats.rankdata(x).tolist()
    wanted = quietly(stats.spearmanr, x, y).statistic
    assert metrics.spearman(x, y) == pytest.approx(wanted, nan_ok=True, **CLOSE)
    wanted = quietly(stats.pearsonr, x, y).statistic
    assert metrics.pearson(x, y) == pytest.approx(wanted, nan_ok=True, **CLOSE)


@pytest.mark.parametrize("x, y", [([1, 1, 1], [1, 2, 3]), ([1, 2, 3], [5, 5, 5]), ([2, 2], [3, 3])])
def test_nothing_to_correlate(x, y):
    """Where the references return NaN, so do we."""
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
    """The same spans for any tag sequence, including those that no annotator would write."""
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
    """Precision, recall and F1 of each type, and both averages; also without true or guessed entities."""
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
@given(st.lists(st.tuples(ANSWERS, st.lists(ANSWERS, min_size=1, max_size=3)), min_size=1, max_size=5))
def test_answers(rows):
    """Exact match and F1, the best of several answers, and the mean over questions, as in torchmetrics."""
    from torchmetrics.functional.text.squad import _normalize_text, squad

    # For an answer without words the reference follows SQuAD 2.0 (1 if the guess has none), we 1.1 (F1 is 0).
    rows = [(guess, [one for one in answers if metrics.normalized(one)] or ["cat"]) for guess, answers in rows]
    for guess, _ in rows:
        assert metrics.normalized(guess) == _normalize_text(guess)
    found = metrics.answer_scores(
        {str(i): guess for i, (guess, _) in enumerate(rows)}, {str(i): answers for i, (_, answers) in enumerate(rows)}
    )
    wanted = squad(
        [{"prediction_text": guess, "id": str(i)} for i, (guess, _) in enumerate(rows)],
        [
            {"answers": {"answer_start": [0] * len(answers), "text": answers}, "id": str(i)}
            for i, (_, answers) in enumerate(rows)
        ],
    )
    assert found[:2] == pytest.approx((float(wanted["exact_match"]) / 100, float(wanted["f1"]) / 100), **CLOSE)


# ---- probabilities


@FUZZ
@given(
    st.lists(
        st.tuples(st.one_of(st.floats(0, 1), st.sampled_from([0.1, 0.2, 0.3, 0.7, 1.0])), st.booleans()), min_size=1
    ),
    st.integers(1, 15),
)
def test_calibration(cases, bins):
    """The means of every non-empty bin, and both errors computed from them."""
    from sklearn.calibration import calibration_curve

    p, right = (np.array(part) for part in zip(*cases, strict=True))
    accuracy, confidence = calibration_curve([*right, True, False], [*p, 0.5, 0.5], n_bins=bins)
    found = metrics.calibration([*p, 0.5, 0.5], [*right, True, False], bins)  # the reference asks for both outcomes
    full = [one for one in found.bins if one.cases]
    assert [one.accuracy for one in full] == pytest.approx(accuracy.tolist(), **CLOSE)
    assert [one.confidence for one in full] == pytest.approx(confidence.tolist(), **CLOSE)
    share = np.array([one.cases for one in full]) / (p.size + 2)
    assert found.error == pytest.approx(float(share @ np.abs(accuracy - confidence)), **CLOSE)
    assert found.worst == pytest.approx(float(np.abs(accuracy - confidence).max()), **CLOSE)


@FUZZ
@given(st.integers(0, 10**6), st.integers(1, 30), st.integers(2, 7))
def test_brier(seed, cases, classes):
    """For any number of classes, some of which may never be true."""
    rng = np.random.default_rng(seed)
    p, truth = rng.dirichlet([0.5] * classes, cases), rng.integers(0, classes, cases)
    wanted = sklearn.brier_score_loss(truth, p, labels=list(range(classes)), scale_by_half=False)
    assert metrics.brier(p, truth) == pytest.approx(wanted, **CLOSE)


# ---- vectors


@pytest.mark.parametrize("seed", range(20))
def test_vectors(seed):
    """Mean cosine, partition function and neighbours of random clouds: wide, narrow, with few and many points."""
    from scipy.linalg import eigh
    from scipy.special import logsumexp
    from sklearn.metrics.pairwise import cosine_similarity
    from sklearn.neighbors import NearestNeighbors

    rng = np.random.default_rng(seed)
    N, H = int(rng.integers(2, 60)), int(rng.integers(2, 30))
    v = rng.normal(size=(N, H)) * rng.uniform(0.01, 3, H) + rng.normal(size=H) * (seed % 3)
    cosines = cosine_similarity(v)
    assert metrics.mean_cosine(v) == pytest.approx(cosines[~np.eye(N, dtype=bool)].mean(), **CLOSE)
    if N > H:  # else the eigenvalue 0 has many eigenvectors, and each library its own
        directions = eigh(v.T @ v)[1]
        z = logsumexp(np.concatenate([v @ directions, -v @ directions], 1), axis=0)
        assert metrics.partition_ratio(v) == pytest.approx(float(np.exp(z.min() - z.max())), **CLOSE)
    distance, number = (
        NearestNeighbors(n_neighbors=2, metric="cosine").fit(v[1:]).kneighbors(v[:1]) if N > 2 else ([], [])
    )
    for i, d, found in zip(*number, *distance, metrics.nearest(v[0], v[1:], 2), strict=True) if N > 2 else ():
        assert found == (i, pytest.approx(1 - d, **CLOSE))


# ---- a model's surprise


def test_pseudo_perplexity_of_transformers(tmp_path):
    """Each token masked alone, in another library's model with the same weights: the same surprise to 1e-5."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    from mini_bert.evaluation.pseudo_perplexity import pseudo_perplexity
    from mini_bert.models.bert import Bert, BertConfig
    from mini_bert.text.wordpiece import SPECIAL_TOKENS, WordPieceTokenizer

    tokenizer = WordPieceTokenizer([*SPECIAL_TOKENS, *"abcdefghij", "##k", "."])
    ours = Bert(BertConfig(len(tokenizer), 12, 2, 3, 7, max_position_embeddings=32), seed=2)
    ours.flat.data[...] *= 3
    ours.save_pretrained(tmp_path)
    theirs = transformers.BertForPreTraining.from_pretrained(tmp_path).eval()
    ids = torch.tensor([tokenizer.encode("a b ck d e f. g h i jk.")])
    wanted = []
    for place in range(1, ids.shape[1] - 1):
        hidden = ids.clone()
        hidden[0, place] = tokenizer.mask_id
        with torch.no_grad():
            logits = theirs(hidden).prediction_logits[0, place]
        wanted.append(-float(torch.log_softmax(logits.double(), -1)[ids[0, place]]))
    found = pseudo_perplexity(ours, tokenizer, "a b ck d e f. g h i jk.", batch_size=5)
    assert [one.surprise for one in found.tokens] == pytest.approx(wanted, rel=1e-5, abs=1e-5)
    assert found.perplexity == pytest.approx(math.exp(np.mean(wanted)), rel=1e-5)
