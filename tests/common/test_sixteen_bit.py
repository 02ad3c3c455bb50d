"""Storing numbers in 16 bits: what is exact, what is rounded, and that many small steps are not lost."""

import numpy as np
import pytest

from mini_bert.common.sixteen_bit import KINDS, check_kind, narrow, stored, widen

NUMBERS = np.array([0.0, -0.0, 1.0, -1.0, 1.5, 3.0e-5, 1000.0, np.inf, -np.inf], np.float32)


def kept(x, kind, rng=None):
    bits = stored(x.shape, kind)
    narrow(x, bits, rng)
    return widen(bits)


@pytest.mark.parametrize("kind", KINDS)
def test_what_fits_comes_back(kind):
    """Signed zeros, powers of two and similar numbers, and infinities are exact, also with stochastic rounding."""
    exact = NUMBERS[[0, 1, 2, 3, 4, 7, 8]]
    np.testing.assert_array_equal(kept(exact, kind), exact)
    np.testing.assert_array_equal(kept(exact, kind, np.random.default_rng(0)), exact)
    np.testing.assert_array_equal(np.signbit(kept(exact, kind)), np.signbit(exact))
    finite = NUMBERS[:7].copy()
    np.testing.assert_allclose(kept(finite, kind, np.random.default_rng(0)), finite, rtol=2**-7)


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_no_number_stays_none(kind):
    x = np.array([1.0, np.nan, -np.nan, 2.0], np.float32)
    np.testing.assert_array_equal(np.isnan(kept(x, kind)), [False, True, True, False])
    assert kept(x, kind)[0] == 1


def test_bfloat16_rounds_to_the_nearest_and_half_to_even():
    """Above 1, bfloat16 numbers are 2⁻⁷ apart: 1 + 2⁻⁸ lies halfway and is rounded to 1, whose last bit is 0."""
    step = 2.0**-7
    x = np.array([1 + step / 2, 1 + 3 * step / 2, 1 + step * 0.51, 1 + step * 0.49, -(1 + step * 0.51)], np.float32)
    np.testing.assert_array_equal(kept(x, "bfloat16"), [1, 1 + 2 * step, 1 + step, 1, -(1 + step)])


@pytest.mark.parametrize(("kind", "error"), [("bfloat16", 2.0**-8), ("float16", 2.0**-11)])
def test_the_error_is_at_most_half_a_step(kind, error):
    x = np.random.default_rng(0).normal(size=10_007).astype(np.float32)
    x = x[np.abs(x) > 1e-3]
    assert 0.9 * error < np.max(np.abs(kept(x, kind) - x) / np.abs(x)) <= error
    noisy = np.max(np.abs(kept(x, kind, np.random.default_rng(1)) - x) / np.abs(x))
    assert 1.8 * error < noisy <= 2 * error


@pytest.mark.parametrize("kind", ["bfloat16", "float16"])
@pytest.mark.parametrize("value", [1.001, -0.3337, 517.3])
def test_stochastic_rounding_is_right_on_average(kind, value):
    x = np.full(40_000, value, np.float32)
    found = kept(x, kind, np.random.default_rng(3))
    assert len(np.unique(found)) == 2
    spread = found.std() / np.sqrt(x.size)
    assert abs(found.mean(dtype=np.float64) - float(x[0])) < 4 * spread


@pytest.mark.parametrize("value", [6e-5, 1e-6, 1e-7, 2e-8, -1e-6, -2e-8])
def test_float16_is_right_on_average_where_it_runs_out_of_exponents(value):
    """Below 2⁻¹⁴, float16 numbers are 2⁻²⁴ apart, so a third of that is rounded up one time in three."""
    x = np.full(40_000, value, np.float32)
    found = kept(x, "float16", np.random.default_rng(3)).astype(np.float64)
    assert len(np.unique(found)) == 2
    assert np.ptp(found) == 2.0**-24
    assert abs(found.mean() - float(x[0])) < 4 * found.std() / np.sqrt(x.size)


def test_the_small_numbers_of_float16_come_back():
    """All float16 subnormals and signed zeros are exact."""
    exact = np.arange(1 << 11).astype(np.uint16).view(np.float16).astype(np.float32)
    exact = np.concatenate([exact, -exact])
    found = kept(exact, "float16", np.random.default_rng(0))
    np.testing.assert_array_equal(found, exact)
    np.testing.assert_array_equal(np.signbit(found), np.signbit(exact))


@pytest.mark.parametrize("kind", ["bfloat16", "float16"])
@pytest.mark.parametrize("odd", [np.inf, -np.inf, np.nan])
def test_one_number_that_is_none_leaves_the_others_alone(kind, odd):
    x = np.random.default_rng(0).normal(size=1001).astype(np.float32)
    beside = np.append(x, np.float32(odd))
    for seed in (None, 5):
        both = [kept(one, kind, None if seed is None else np.random.default_rng(seed)) for one in (x, beside)]
        np.testing.assert_array_equal(both[1][:-1], both[0])
        np.testing.assert_array_equal(both[1][-1], odd)
    all_ones = np.full(3, 0x7FFFFFFF, np.uint32).view(np.float32)  # a NaN that any carry would turn into -0
    assert np.isnan(kept(all_ones, kind, np.random.default_rng(0))).all()
    assert np.isnan(kept(all_ones, kind)).all()


def test_many_small_steps_add_up_only_if_rounded_stochastically():
    """Adding 0.0001 to 1 a thousand times: with rounding to nearest the sum stays 1, with stochastic rounding it
    becomes 1.1."""
    nearest, stochastic = np.ones(1000, np.float32), np.ones(1000, np.float32)
    rng = np.random.default_rng(0)
    for _ in range(1000):
        nearest = kept(nearest + np.float32(1e-4), "bfloat16")
        stochastic = kept(stochastic + np.float32(1e-4), "bfloat16", rng)
    assert (nearest == 1).all()
    assert stochastic.mean() == pytest.approx(1.1, abs=0.005)


def test_float16_beyond_its_range_is_infinite():
    assert kept(np.array([1e5, -1e5], np.float32), "float16").tolist() == [np.inf, -np.inf]


def test_shapes_and_odd_sizes():
    x = np.random.default_rng(0).normal(size=(3, 5, 7)).astype(np.float32)
    for kind in KINDS:
        assert kept(x, kind, np.random.default_rng(0)).shape == (3, 5, 7)


def test_an_unknown_kind_is_named():
    with pytest.raises(ValueError, match="moments is 'int8', expected one of float32, bfloat16, float16"):
        check_kind("moments", "int8")
