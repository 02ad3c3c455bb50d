"""8-bit weights: close to the original, the same when quantised twice, and multiplied without rounding."""

import numpy as np
import pytest

from mini_bert.common.eight_bit import EXACT_TERMS, Int8, integer_product, quantise, quantise_activations
from mini_bert.layers.matrices import times

RNG = np.random.default_rng(0)
W = (RNG.normal(size=(13, 7)) * RNG.uniform(0.01, 5, 7)).astype(np.float32)


@pytest.mark.parametrize("axis", [0, 1])
def test_every_weight_is_off_by_at_most_half_a_scale(axis):
    found = quantise(W, axis)
    assert found.integers.dtype == np.int8 and found.scales.size == W.shape[axis]
    error = np.abs(np.asarray(found) - W)
    assert (error <= found.scales * 0.5001).all() and error.max() > 0
    assert (np.abs(found.integers).max(1 - axis) == 127).all()  # the whole range is used


def test_weights_that_were_widened_have_the_same_integers_and_scales():
    """For many scales: the product of both fits into float32."""
    w = (RNG.normal(size=(17, 2003)) * 10.0 ** RNG.uniform(-6, 3, 2003)).astype(np.float32)
    once = quantise(w, 1)
    exact = once.integers.astype(np.float64) * once.scales.astype(np.float64)
    np.testing.assert_array_equal(np.asarray(once), exact)
    twice = quantise(np.asarray(once), 1)
    np.testing.assert_array_equal(once.integers, twice.integers)
    np.testing.assert_array_equal(once.scales, twice.scales)


def test_a_column_of_zeros_stays_zero():
    w = W.copy()
    w[:, 3] = 0
    found = quantise(w, 1)
    assert not np.asarray(found)[:, 3].any() and found.scales[0, 3] == 1


def test_it_is_read_like_an_array():
    found = quantise(W, 0)
    whole = np.asarray(found)
    assert found.shape == W.shape and len(found) == 13 and found.dtype == np.float32
    for index in (4, slice(2, 5), np.array([[1, 1], [12, 0]]), (slice(None), slice(1, 3))):
        np.testing.assert_array_equal(found[index], whole[index])
    np.testing.assert_array_equal(found.T, whole.T)
    for index in (slice(2, 5), (slice(None), slice(1, 3)), (slice(3), slice(4))):
        part = found.part(index)
        np.testing.assert_array_equal(part, whole[index])
        assert np.shares_memory(part.integers, found.integers)


def test_scales_are_stored_once_for_each_row_or_column():
    found = quantise(W, 1)
    again = Int8.of(np.asarray(found), np.broadcast_to(found.scales, W.shape))
    assert again.scales.shape == (1, 7)
    np.testing.assert_array_equal(again.integers, found.integers)


@pytest.mark.parametrize("count", [5, EXACT_TERMS, EXACT_TERMS + 1, 1531])
def test_products_are_those_of_integers(count):
    """At the largest values that there are, where a sum in float32 would be rounded."""
    a = RNG.integers(200, 256, (3, count)).astype(np.float32)
    q = RNG.integers(100, 128, (count, 5)).astype(np.int8)
    exact = a.astype(np.int64) @ q.astype(np.int64)
    np.testing.assert_array_equal(integer_product(a, q), exact.astype(np.float32))
    if count > 1000:
        assert (a @ q.astype(np.float32) != exact).any()  # so splitting is needed


@pytest.mark.parametrize("low, high", [(-3, 5), (0.5, 2), (-4, -1), (0, 0)])
def test_activations_are_rounded_on_256_levels_that_include_zero(low, high):
    x = np.linspace(low, high, 101, dtype=np.float32).reshape(1, 101)
    a, scale = quantise_activations(x)
    assert a.max() - a.min() <= 255 and (a == np.rint(a)).all()
    assert np.abs(a * scale - x).max() <= scale * 0.5001 if x.any() else not a.any()
    assert scale == np.float32((max(high, 0) - min(low, 0)) / 255) or not x.any()


def test_no_rows_are_no_error():
    assert times(np.zeros((0, 13), np.float32), quantise(W, 1)).shape == (0, 7)


def test_a_product_with_scales_of_inputs_is_one_of_floats():
    """dx = dy Wᵀ: the columns of Wᵀ have no scale of their own."""
    x, w = RNG.normal(size=(2, 3, 7)).astype(np.float32), quantise(W, 1)
    np.testing.assert_allclose(times(x, w.T), x @ np.asarray(w).T, rtol=1e-6)
    assert np.abs(times(x, quantise(W.T, 1)) - x @ W.T).max() > 1e-3  # while this one rounds x


def test_nan_spreads():
    x = np.ones((2, 13), np.float32)
    x[1, 1] = np.nan
    assert np.isnan(times(x, quantise(W, 1))).any()
