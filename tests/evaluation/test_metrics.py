"""Scores on cases worked out by hand, and properties that always hold. Peer libraries: test_metrics_peers.py."""

from __future__ import annotations

import doctest
import itertools
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from mini_bert.cli.main import app
from mini_bert.evaluation import known_cases, metrics
from mini_bert.evaluation.metrics import Bin, Scores

PACKAGE = Path(metrics.__file__).parents[1]
RNG = np.random.default_rng(5)
TRUTH = ["cat", "cat", "cat", "dog", "dog", "owl"]
GUESS = ["cat", "cat", "dog", "dog", "cat", "cat"]


def test_examples_in_docstrings():
    """They run and give the outputs shown."""
    result = doctest.testmod(metrics)
    assert result.failed == 0 and result.attempted >= 4


# ---- the command


def test_every_metric_on_its_known_case():
    """All results are as expected, the exit code is 0, and no metric of the module is left out."""
    assert CliRunner().invoke(app, ["metrics", "--test"]).exit_code == 0
    out = known_cases.report(known_cases.cases())
    assert out.count("[OK]") == len(known_cases.cases()) > 30 and "[WRONG]" not in out
    shown = {line.split()[1] for line in out.splitlines() if line.startswith("[OK]")}
    assert shown >= {
        *known_cases.LISTED,
        "loss",
        "perplexity",
        "top-1,",
        "pseudo_perplexity",
        "neighbours",
        "agreement",
    }


@pytest.mark.parametrize("wrong", [0.51, 0.5 + 2e-6, math.nan, [0.5, 0.5]])
def test_a_wrong_value_is_reported(wrong, monkeypatch):
    """The line says so, and the exit code is 1."""
    monkeypatch.setattr(metrics, "accuracy", lambda truth, guesses: wrong)
    result = CliRunner().invoke(app, ["metrics", "--test"])
    out = result.stdout
    assert result.exit_code == 1
    assert [line.split()[1] for line in out.splitlines() if line.startswith("[WRONG]")] == ["accuracy"]
    assert out.endswith(f"1 of {len(known_cases.cases())} differ.\n")


def test_the_list_of_formulas():
    """Without --test, every public metric is listed with the first line of its docstring."""
    out = CliRunner().invoke(app, ["metrics"]).stdout
    assert "brier                1/N Σ_n Σ_k (p_nk − [k = truth_n])²" in out
    ours = (metrics.__name__, "mini_bert.evaluation.vector_metrics")
    own = {name for name, value in vars(metrics).items() if getattr(value, "__module__", "") in ours}
    helpers = {"mean_ranks", "normalized", "reliability", "calibrated", "is_entity_tag"}
    classes = {"Scores", "EntityScores", "AnswerScores", "Bin", "Calibration"}
    assert {name for name in own if not name.startswith("_")} - helpers - classes == set(known_cases.LISTED)


def test_the_script_inside_the_package_folder():
    """`python metrics.py --test` in that folder runs the command."""
    result = subprocess.run(
        [sys.executable, "-X", "utf8", "metrics.py", "--test"],
        cwd=PACKAGE,
        capture_output=True,
        text=True,
        encoding="utf-8",
    )
    assert result.returncode == 0, result.stderr
    assert "as expected" in result.stdout


# ---- classes


def test_classes_by_hand():
    """Six guesses at three animals, counted by hand."""
    assert metrics.accuracy(TRUTH, GUESS) == 0.5
    assert metrics.confusion_matrix(TRUTH, GUESS).tolist() == [[2, 1, 0], [1, 1, 0], [1, 0, 0]]
    assert metrics.per_class(TRUTH, GUESS) == {
        "cat": pytest.approx((1 / 2, 2 / 3, 4 / 7, 3)),
        "dog": pytest.approx((1 / 2, 1 / 2, 1 / 2, 2)),
        "owl": (0, 0, 0, 1),
    }
    assert metrics.precision_recall_f1(TRUTH, GUESS) == pytest.approx((1 / 3, 7 / 18, 5 / 14, 6))
    assert metrics.precision_recall_f1(TRUTH, GUESS, "micro") == (0.5, 0.5, 0.5, 6)
    assert metrics.matthews(TRUTH, GUESS) == pytest.approx(2 / math.sqrt(16 * 22))


def test_chosen_labels():
    """Only these labels are counted, in this order; guessing another label still costs recall."""
    assert metrics.confusion_matrix(TRUTH, GUESS, ["owl", "cat"]).tolist() == [[0, 1], [0, 2]]
    found = metrics.per_class(TRUTH, GUESS, ["dog", "cat", "elk"])
    assert list(found) == ["dog", "cat", "elk"] and found["elk"] == (0, 0, 0, 0)
    assert found["cat"] == metrics.per_class(TRUTH, GUESS)["cat"]
    assert metrics.precision_recall_f1(TRUTH, GUESS, "micro", ["dog", "owl"]) == pytest.approx((1 / 2, 1 / 3, 2 / 5, 3))
    assert metrics.precision_recall_f1(TRUTH, GUESS, "macro", ["dog", "owl"]) == pytest.approx((1 / 4, 1 / 4, 1 / 4, 3))


def test_pearson_of_the_smallest_numbers():
    """Two points that differ from the others in the same direction: the correlation is 1, however small the numbers."""
    assert metrics.pearson([0.0, 0.0, 1.0], [0.0, 0.0, 5e-324]) == pytest.approx(1)


def test_matthews_of_two_classes_is_pearson():
    """For 0 and 1, the formula for many classes is the correlation; the opposite has the opposite sign."""
    for _ in range(20):
        truth, guesses = RNG.integers(0, 2, (2, 17))
        wanted = metrics.pearson(truth, guesses)
        assert metrics.matthews(truth, guesses) == pytest.approx(0 if math.isnan(wanted) else wanted)
        assert metrics.matthews(truth, 1 - guesses) == pytest.approx(-metrics.matthews(truth, guesses))
    assert metrics.matthews([1, 1, 1], [1, 0, 1]) == metrics.matthews([1, 0, 1], [0, 0, 0]) == 0
    assert metrics.matthews(TRUTH, TRUTH) == 1


def test_order_and_names_do_not_matter():
    """Cases in another order and classes under other names score the same; micro F1 is the accuracy."""
    for _ in range(10):
        truth, guesses = RNG.integers(0, 5, (2, 23))
        order, names = RNG.permutation(23), RNG.permutation(5) * 7 + 1
        again = names[truth][order], names[guesses][order]
        for score in (metrics.accuracy, metrics.matthews, metrics.precision_recall_f1):
            assert score(truth, guesses) == pytest.approx(score(*again))
        micro = metrics.precision_recall_f1(truth, guesses, "micro")
        assert micro[:3] == pytest.approx([metrics.accuracy(truth, guesses)] * 3)
        table = metrics.confusion_matrix(truth, guesses)
        assert table.sum() == 23 and table.trace() / 23 == pytest.approx(metrics.accuracy(truth, guesses))
        assert [one.support for one in metrics.per_class(truth, guesses).values()] == table.sum(1).tolist()
        assert metrics.precision_recall_f1(guesses, truth).precision == pytest.approx(
            metrics.precision_recall_f1(truth, guesses).recall
        )


def test_what_cannot_be_scored():
    """Each error says what was found and what to do."""
    every = (
        metrics.accuracy,
        metrics.confusion_matrix,
        metrics.per_class,
        metrics.precision_recall_f1,
        metrics.matthews,
    )
    for score in every:
        with pytest.raises(ValueError, match="2 true labels and 1 guesses, expected one for each"):
            score(["a", "b"], ["a"])
        with pytest.raises(ValueError, match="there are no cases"):
            score([], [])
    with pytest.raises(ValueError, match="types int and str; convert all to one"):
        metrics.confusion_matrix(["1", "0"], [1, 0])
    with pytest.raises(ValueError, match="average is 'weighted', expected 'macro' or 'micro'"):
        metrics.precision_recall_f1([1], [1], "weighted")
    with pytest.raises(ValueError, match="expected each only once"):
        metrics.per_class([1], [1], [1, 2, 1])
    with pytest.raises(ValueError, match="labels is empty"):
        metrics.per_class([1], [1], [])


# ---- numbers


def test_correlations_by_hand():
    """A straight line, a curve, its mirror image, ties, and too little data."""
    x = [1.0, 2, 3, 4]
    assert metrics.pearson(x, [2, 4, 5, 9]) == pytest.approx(11 / math.sqrt(130))
    assert metrics.pearson(x, [3, 5, 7, 9]) == pytest.approx(1) and metrics.pearson(x, [9, 7, 5, 3]) == pytest.approx(
        -1
    )
    assert metrics.spearman(x, [1, 10, 100, 1000]) == pytest.approx(1) and metrics.pearson(x, [1, 10, 100, 1000]) < 0.9
    assert metrics.spearman([1, 2, 2, 3], [1, 3, 2, 4]) == pytest.approx(4.5 / math.sqrt(4.5 * 5))
    assert metrics.mean_ranks([5, 1, 5, 5, 2]).tolist() == [4, 1, 4, 4, 2]
    assert metrics.pearson([1, 2], [3, 7]) == pytest.approx(1) and metrics.spearman([1, 2], [7, 3]) == pytest.approx(-1)
    for x, y in (([1, 1], [1, 2]), ([1, 2], [3, 3]), ([1], [1]), ([], [])):
        assert math.isnan(metrics.pearson(x, y)) and math.isnan(metrics.spearman(x, y))


def test_correlations_do_not_depend_on_the_scale():
    """Pearson is invariant under increasing linear maps, Spearman under increasing functions; both stay within ±1."""
    for _ in range(10):
        x, y = RNG.normal(size=(2, 19))
        for a, b in ((3, 5), (-1e200, 0), (1e-200, 0)):
            assert metrics.pearson(a * x + b, y) == pytest.approx(np.sign(a) * np.corrcoef(x, y)[0, 1])
        assert metrics.spearman(np.exp(x), y**3) == pytest.approx(metrics.spearman(x, y))
        assert metrics.pearson(x, x) <= 1 and metrics.pearson(x, -x) >= -1
    with pytest.raises(ValueError, match=r"shapes \(2,\) and \(3,\)"):
        metrics.spearman([1, 2], [1, 2, 3])
    with pytest.raises(ValueError, match="number 2 of the second list is nan"):
        metrics.spearman([1, 2], [1, math.nan])


# ---- entities


@pytest.mark.parametrize(
    "tags, wanted",
    [
        ("", []),
        ("O O", []),
        ("B-A I-A O B-B", ["A01", "B33"]),
        ("I-A I-A O I-B", ["A01", "B33"]),  # an I- after O begins one
        ("B-A B-A I-A", ["A00", "A12"]),  # two in a row
        ("B-A I-B I-B", ["A00", "B12"]),  # another type, another entity
        ("O B-A", ["A11"]),  # up to the end
        ("B-A E-A S-A E-A", ["A01", "A22", "A33"]),
        ("E-A E-A I-A", ["A00", "A11", "A22"]),
        ("B-A-1 I-A-1", ["A-101"]),  # a type with a dash
        ("B I O S", ["_01", "_33"]),  # no type
        ("I-A I-B I-A", ["A00", "B11", "A22"]),
    ],
)
def test_entities(tags, wanted):
    """The entities of each tag sequence."""
    found = {f"{kind}{first}{last}" for kind, first, last in metrics.entities(tags.split())}
    assert found == set(wanted)


def test_tags_spell_what_they_were_made_from():
    """Entities written as B- and I- tags are read back, also when they are adjacent."""
    for _ in range(50):
        tags, wanted = [], set()
        for _ in range(RNG.integers(0, 6)):
            tags += ["O"] * int(RNG.integers(0, 3))
            kind, length = str(RNG.choice(["PER", "LOC"])), int(RNG.integers(1, 4))
            wanted.add((kind, len(tags), len(tags) + length - 1))
            tags += [f"B-{kind}", *[f"I-{kind}"] * (length - 1)]
        assert metrics.entities(tags) == wanted


def test_three_schemes_say_the_same():
    """BIO, BIOES and BILOU tags of random entities, some adjacent, give the same entities, and F1 is 1."""
    for _ in range(50):
        tags: dict[str, list[str]] = {"BIO": [], "BIOES": [], "BILOU": []}
        for _ in range(RNG.integers(1, 6)):
            kind, length = str(RNG.choice(["PER", "LOC"])), int(RNG.integers(1, 4))
            inside = [f"I-{kind}"] * (length - 2)
            for name, last, single in (("BIO", "I", "B"), ("BIOES", "E", "S"), ("BILOU", "L", "U")):
                many = [f"B-{kind}", *inside, f"{last}-{kind}"]
                tags[name] += ["O"] * (length % 2) + ([f"{single}-{kind}"] if length == 1 else many)
        assert (
            metrics.entities(tags["BIOES"]) == metrics.entities(tags["BILOU"]) == metrics.entities(tags["BIO"]) != set()
        )
        assert metrics.entity_scores([tags["BIO"]], [tags["BILOU"]]).micro.f1 == 1


def test_entity_scores():
    """An entity is correct if type, start and end match; some types are never true, some never guessed."""
    truth = [["B-PER", "I-PER", "O", "B-LOC"], ["O", "I-ORG", "O"]]
    guesses = [["B-PER", "I-PER", "O", "B-ORG"], ["O", "B-ORG", "O"]]
    micro, macro, by_type = metrics.entity_scores(truth, guesses)
    assert by_type == {"LOC": (0, 0, 0, 1), "ORG": pytest.approx((1 / 2, 1, 2 / 3, 1)), "PER": (1, 1, 1, 1)}
    assert list(by_type) == ["LOC", "ORG", "PER"]
    assert micro == pytest.approx((2 / 3, 2 / 3, 2 / 3, 3)) and macro == pytest.approx((1 / 2, 2 / 3, 5 / 9, 3))
    half = [["B-PER", "O", "O", "B-LOC"], ["O", "O", "O"]]  # one ends too early, one is missing
    assert metrics.entity_scores(truth, half).micro == pytest.approx((1 / 2, 1 / 3, 2 / 5, 3))
    assert metrics.entity_scores([["O"]], [["O"]]) == (Scores(0, 0, 0, 0), Scores(0, 0, 0, 0), {})
    assert metrics.entity_scores([], []).micro.f1 == 0


def test_entity_errors():
    """Invalid tags and sentences of different lengths give errors with their position."""
    for tag in ("NOUN", "X-PER", "b-PER", "O-PER", "", "BB"):
        with pytest.raises(ValueError, match=f"tag 2 of the sentence is '{tag}', expected O, or B-, I-, E- or L-"):
            metrics.entities(["O", tag])
    with pytest.raises(ValueError, match="sentence 2 has 1 tags, but 2 were guessed"):
        metrics.entity_scores([["O"], ["O"]], [["O"], ["O", "O"]])
    with pytest.raises(ValueError, match="number of sentences is 1 in truth, but 2 in guesses"):
        metrics.entity_scores([["O"]], [["O"], ["O"]])


# ---- answers


@pytest.mark.parametrize(
    "text, wanted",
    [
        ("The Cat's mat.", "cats mat"),
        ("a An THE", ""),
        ("theatre an-other", "theatre another"),  # articles are whole words, and a hyphen goes first
        ("a-b the_cat", "ab thecat"),
        ("  two\t\nwords ", "two words"),
        ("“Été”", "“été”"),  # only ASCII punctuation
        ("a. b", "b"),
    ],
)
def test_normalized(text, wanted):
    """Lower case, no punctuation, no articles, single spaces, in this order."""
    assert metrics.normalized(text) == wanted


def test_answers_by_hand():
    """The best of several answers counts; repeated words count as often as both have them."""
    assert metrics.exact_match("the Cat!", ["dog", "a cat"]) == 1 and metrics.exact_match("cats", ["cat"]) == 0
    assert metrics.answer_f1("the black cat sat", ["a black dog", "the cat"]) == pytest.approx(1 / 2)
    assert metrics.answer_f1("the black cat sat", ["the cat", "a black dog"]) == pytest.approx(1 / 2)
    assert metrics.answer_f1("very very good", ["very good good"]) == pytest.approx(2 / 3)
    assert metrics.answer_f1("dog", ["cat"]) == 0 and metrics.answer_f1("a cat", ["cat"]) == 1
    assert metrics.answer_f1("", ["cat"]) == 0 == metrics.exact_match("", ["cat"])
    assert (metrics.exact_match(".", ["."]), metrics.answer_f1(".", ["."])) == (1, 0)  # as SQuAD 1.1's script has it
    assert metrics.exact_match("", []) == metrics.answer_f1("the", []) == 1  # unanswerable, and not answered
    assert metrics.exact_match("cat", []) == metrics.answer_f1("cat", []) == 0


def test_answer_scores():
    """The mean over all questions; a question without a guess counts as 0."""
    answers = {"1": ["red"], "2": ["dark blue", "blue"], "3": ["green"], "4": ["pink"]}
    found = metrics.answer_scores({"1": "Red.", "2": "light blue sky", "3": "yellow"}, answers)
    assert found == pytest.approx((1 / 4, (1 + 1 / 2) / 4, 4))
    with pytest.raises(ValueError, match="a guess has the id '9', which none of the 4 questions has"):
        metrics.answer_scores({"9": "x"}, answers)
    with pytest.raises(ValueError, match="no questions"):
        metrics.answer_scores({}, {})


# ---- probabilities


def test_calibration_by_hand():
    """Four guesses in three bins; bin edges belong to the lower bin; empty bins have no mean."""
    found = metrics.calibration([0.95, 0.85, 0.85, 0.55], [True, True, False, True])
    assert found.error == pytest.approx((0.05 + 2 * 0.35 + 0.45) / 4) and found.worst == pytest.approx(0.45)
    assert len(found.bins) == 10 and [one.cases for one in found.bins] == [0, 0, 0, 0, 0, 1, 0, 0, 2, 1]
    assert found.bins[8] == pytest.approx(Bin(0.8, 0.9, 2, 0.85, 0.5))
    assert found.bins[0][:3] == (0, 0.1, 0) and math.isnan(found.bins[0].confidence + found.bins[0].accuracy)
    edges = metrics.calibration([0, 0.25, 0.5, 0.75, 1], [0, 0, 1, 1, 1], bins=4)
    assert [one.cases for one in edges.bins] == [2, 1, 1, 1]
    one = metrics.calibration([0.6] * 5, [1, 1, 1, 0, 0], bins=1)
    assert one.bins[0] == pytest.approx(Bin(0, 1, 5, 0.6, 0.6)) and one[:2] == pytest.approx((0, 0))
    assert metrics.calibration([1.0, 1.0], [0, 0]).error == 1


def test_a_model_that_means_what_it_says():
    """A model that is right as often as it claims has almost no error. If it is right half as often, the error is half
    of its confidence."""
    p = RNG.random(20_000)
    assert metrics.calibration(p, RNG.random(p.size) < p).error < 0.02
    assert metrics.calibration(p, RNG.random(p.size) < p / 2).error == pytest.approx(p.mean() / 2, abs=0.02)


def test_parts_add_up():
    """Counted in two parts and added, the table is that of the whole; without cases, the error is NaN."""
    p, right = RNG.random(41), RNG.random(41) < 0.5
    parts = metrics.reliability(p[:17], right[:17]) + metrics.reliability(p[17:], right[17:])
    assert metrics.calibrated(parts).error == pytest.approx(metrics.calibration(p, right).error)
    nothing = metrics.calibrated(metrics.reliability([], []))
    assert math.isnan(nothing.error) and math.isnan(nothing.worst) and len(nothing.bins) == 10


def test_brier():
    """0 if certain and right, 2 if certain and wrong, otherwise the sum; for two classes, twice (p − y)²."""
    assert metrics.brier(np.eye(3), [0, 1, 2]) == 0 and metrics.brier(np.eye(3), [1, 2, 0]) == 2
    assert metrics.brier(np.full((1, 4), 0.25), [3]) == pytest.approx(0.75**2 + 3 * 0.25**2)
    p = RNG.random(13)
    assert metrics.brier(np.stack([1 - p, p], 1), [1] * 13) == pytest.approx(2 * ((p - 1) ** 2).mean())


def test_probability_errors():
    """Probabilities outside 0 to 1, lists of different lengths, and empty lists."""
    with pytest.raises(ValueError, match=r"a confidence is 1\.5, expected probabilities from 0 to 1"):
        metrics.calibration([0.5, 1.5], [1, 1])
    with pytest.raises(ValueError, match=r"a confidence is -0\.1"):
        metrics.calibration([-0.1], [1])
    with pytest.raises(ValueError, match=r"shapes \(1,\) and \(2,\)"):
        metrics.calibration([0.5], [1, 1])
    with pytest.raises(ValueError, match="there are no cases"):
        metrics.calibration([], [])
    with pytest.raises(ValueError, match="bins is 0, expected at least 1"):
        metrics.calibration([0.5], [1], bins=0)
    with pytest.raises(ValueError, match=r"expected \(N,K\) and \(N,\)"):
        metrics.brier(np.zeros((2, 3)), [1])
    for wrong in (-1, 3):
        with pytest.raises(ValueError, match=r"expected class indices, 0 to 2"):
            metrics.brier(np.zeros((2, 3)), [0, wrong])


def test_classes_and_hits_that_are_floats():
    """1.0 is class 1, and 0.0 is a miss; other values, especially NaN, are an error."""
    p = np.array([[0.5, 0.5], [0.2, 0.8]])
    assert metrics.brier(p, np.array([1.0, 0.0])) == metrics.brier(p, [1, 0])
    assert metrics.calibration([0.7, 0.6], np.array([1.0, 0.0])).error == pytest.approx(0.45)
    for wrong in (0.5, math.nan):
        with pytest.raises(ValueError, match=rf"truth contains {wrong}, expected class indices, 0 to 1"):
            metrics.brier(p, np.array([0.0, wrong]))
    for wrong in (2.0, 0.5, math.nan):
        with pytest.raises(ValueError, match=rf"`right` contains {wrong:g}, expected True or False"):
            metrics.calibration([0.7, 0.6], [1.0, wrong])
    with pytest.raises(ValueError, match="a confidence is nan"):
        metrics.calibration([0.7, math.nan], [1, 1])
    with pytest.raises(ValueError, match="a probability is nan"):
        metrics.brier(np.array([[0.5, math.nan]]), [0])


# ---- vectors


def test_mean_cosine_is_the_mean_of_all_cosines():
    """Compared with a loop over all pairs; a cone is near 1, a cross below 0, and lengths do not matter."""
    v = RNG.normal(size=(11, 5)) + 1
    loop = [a @ b / np.linalg.norm(a) / np.linalg.norm(b) for a, b in itertools.combinations(v, 2)]
    assert metrics.mean_cosine(v) == pytest.approx(np.mean(loop))
    assert metrics.mean_cosine(v * RNG.uniform(1, 9, (11, 1))) == pytest.approx(np.mean(loop))
    assert metrics.mean_cosine(v + 1000) > 0.999 and metrics.mean_cosine(np.concatenate([v, -v])) < 0


def test_partition_ratio():
    """Compared with its definition, using another decomposition; rotation changes nothing, nor, if rescaled, does
    length."""
    v = RNG.normal(size=(23, 3)) * [0.1, 0.2, 0.9] + [0.4, 0, 0]
    directions = np.linalg.svd(v)[2]
    z = [np.exp(v @ a).sum() for a in (*directions, *-directions)]
    assert metrics.partition_ratio(v) == pytest.approx(min(z) / max(z))
    turn = np.linalg.qr(RNG.normal(size=(3, 3)))[0]
    assert metrics.partition_ratio(v @ turn) == pytest.approx(metrics.partition_ratio(v))
    size = math.sqrt((v * v).sum() / 23)
    assert metrics.partition_ratio(v, rescale=True) == pytest.approx(metrics.partition_ratio(v / size))
    assert metrics.partition_ratio(7 * v, rescale=True) == pytest.approx(metrics.partition_ratio(v, rescale=True))
    assert metrics.partition_ratio(7 * v) < metrics.partition_ratio(v) / 10
    assert metrics.partition_ratio(v * 1e4) == 0  # without overflow
    assert metrics.partition_ratio(np.zeros((2, 3))) == 1


def test_nearest():
    """Compared with a loop; ties keep their order, and a zero vector is orthogonal to all."""
    v, q = RNG.normal(size=(13, 5)), RNG.normal(size=5)
    cosines = [a @ q / np.linalg.norm(a) / np.linalg.norm(q) for a in v]
    order = np.argsort(cosines)[::-1]
    found = metrics.nearest(3 * q, v, 4)
    assert [i for i, _ in found] == order[:4].tolist()
    assert [c for _, c in found] == pytest.approx([cosines[i] for i in order[:4]])
    assert (
        metrics.nearest(q, v)[0][0] == order[0]
        and len(metrics.nearest(q, v)) == 10
        and len(metrics.nearest(q, v, 99)) == 13
    )
    assert metrics.nearest(np.array([1, 0]), np.array([[0, 0], [2, 0], [1, 0], [-1, 0]])) == [
        (1, 1),
        (2, 1),
        (0, 0),
        (3, -1),
    ]


def test_vector_errors():
    """Shapes that do not match, NaN, and vectors without a direction."""
    with pytest.raises(ValueError, match=r"shape \(3,\), expected \(N,H\) with N at least 2"):
        metrics.mean_cosine(np.ones(3))
    with pytest.raises(ValueError, match=r"shape \(1, 3\), expected \(N,H\) with N at least 2"):
        metrics.mean_cosine(np.ones((1, 3)))
    with pytest.raises(ValueError, match="vector 1 is 0 and has no direction"):
        metrics.mean_cosine(np.array([[1.0, 0], [0, 0]]))
    with pytest.raises(ValueError, match="vector 1 contains NaN"):
        metrics.nearest(np.ones(2), np.array([[1.0, 0], [0, math.nan]]))
    with pytest.raises(ValueError, match=r"query has shape \(3,\), expected \(2,\)"):
        metrics.nearest(np.ones(3), np.ones((4, 2)))
    with pytest.raises(ValueError, match="all vectors are 0"):
        metrics.partition_ratio(np.zeros((2, 2)), rescale=True)
