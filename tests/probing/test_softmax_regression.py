"""Softmax regression: the gradient is right, the optimum is found, and scikit-learn finds the same one."""

import warnings

import numpy as np
import pytest

from mini_bert.checks.gradients import central_difference
from mini_bert.probing.softmax_regression import fit, minimise, objective, second_moments, standardise

N, D, K = 29, 5, 3


@pytest.fixture
def data():
    rng = np.random.default_rng(3)
    x = rng.normal(size=(N, D))
    return x, (x @ rng.normal(size=(D, K)) + rng.normal(size=(N, K))).argmax(1)


def test_the_gradient(data):
    """dW and db compared with finite differences, in float64."""
    x, targets = data
    weights = np.random.default_rng(4).normal(size=(D + 1, K))
    _, gradient = objective(weights, x, targets, l2=1.7)
    for index in np.ndindex(weights.shape):
        slope = central_difference(lambda: objective(weights, x, targets, 1.7)[0], weights, index, 1e-5)
        assert slope == pytest.approx(gradient[index], rel=1e-7, abs=1e-9)


def test_the_optimum_has_no_slope_and_is_one(data):
    """From any starting point, L-BFGS ends at the same optimum, where the gradient is 0."""
    x, targets = data

    def function(w):
        return objective(w, x, targets, 0.5)

    rng = np.random.default_rng(5)
    found = fit(x, targets, K, 0.5, tolerance=1e-15)
    assert found.converged and np.abs(function(np.vstack([found.w, found.b]))[1]).max() < 1e-7
    for _ in range(3):
        other = minimise(function, rng.normal(size=(D + 1, K)) * 5, tolerance=1e-15)
        np.testing.assert_allclose(other.x[:-1], found.w, atol=1e-6)
        assert other.value == pytest.approx(found.loss, rel=1e-12)


def test_minimise_on_a_valley(caplog):
    """A quadratic whose curvatures differ by 10⁴: the exact minimum is found; if the steps run out, this is
    reported."""
    slopes, middle = np.array([1e4, 1.0, 30.0]), np.array([3.0, -2.0, 5.0])

    def function(x):
        return 1 + float((slopes * (x - middle) ** 2).sum()), 2 * slopes * (x - middle)

    found = minimise(function, np.zeros(3), tolerance=1e-14)
    np.testing.assert_allclose(found.x, middle, atol=1e-6)
    assert found.converged
    perfect = minimise(function, np.zeros(3), lambda g: g / slopes, tolerance=1e-14)
    assert perfect.steps <= 3
    assert not minimise(function, np.zeros(3), tolerance=1e-14, steps=2).converged
    assert "no convergence in 2 steps" in caplog.text


def test_what_can_be_told_apart_is_told_apart():
    """Three distant clouds are separated perfectly, also in float32."""
    rng = np.random.default_rng(0)
    targets = rng.integers(0, 3, 200)
    x = (np.array([[4, 0], [-4, 1], [0, -5]])[targets] + rng.normal(size=(200, 2)) * 0.5).astype(np.float32)
    found = fit(x, targets, 4, 1e-3)  # the fourth class does not occur
    assert (found.predict(x) == targets).all() and found.w.shape == (2, 4)


def test_standardise():
    """Mean 0 and standard deviation 1; other arrays are transformed in the same way; a constant column becomes 0, not
    NaN."""
    x = np.array([[1.0, 7.0, 1e6], [3.0, 7.0, 1e6 + 2], [8.0, 7.0, 1e6 + 4]])
    other = x[:1].copy()
    standardise(x, other)
    np.testing.assert_allclose(x.mean(0), 0, atol=1e-12)
    np.testing.assert_allclose(x.std(0), [1, 0, 1])
    np.testing.assert_array_equal(other[0], x[0])
    wide = np.array([[1e-9, 5], [3e-9, 5]], np.float32)
    standardise(wide)
    np.testing.assert_allclose(wide, [[-1, 0], [1, 0]], rtol=1e-6)


def test_moments(data):
    x, _ = data
    ones = np.hstack([x, np.ones((N, 1))])
    np.testing.assert_allclose(second_moments(x), ones.T @ ones / N)


def test_without_penalty_there_is_no_optimum(data):
    with pytest.raises(ValueError, match="l2 is 0, expected more than 0"):
        fit(*data, K, 0)


@pytest.mark.peers
@pytest.mark.parametrize("l2", [0.1, 10.0])
def test_scikit_learn_finds_the_same(l2):
    """Loss, accuracy and weights agree to 1e-6: the same objective has the same optimum."""
    linear = pytest.importorskip("sklearn.linear_model")
    rng = np.random.default_rng(1)
    x = rng.normal(size=(700, 13)) * np.exp(rng.normal(size=13)) + rng.normal(size=13)
    targets = (x @ rng.normal(size=(13, 7)) + 3 * rng.gumbel(size=(700, 7))).argmax(1)
    ours = fit(x, targets, 7, l2, tolerance=1e-14)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = linear.LogisticRegression(C=1 / l2, solver="newton-cholesky", tol=1e-12).fit(x, targets)
    weights = np.vstack([theirs.coef_.T, theirs.intercept_])
    assert objective(weights, x, targets, l2)[0] == pytest.approx(ours.loss, rel=1e-6)
    np.testing.assert_allclose(ours.w, theirs.coef_.T, atol=1e-5)
    assert (ours.predict(x) == targets).mean() == pytest.approx(theirs.score(x, targets), rel=1e-6)
