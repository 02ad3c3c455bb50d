"""erf compared with Python's own, and every activation with known values, symmetries and finite differences."""

import math

import numpy as np
import pytest

from mini_bert.layers.activations import (
    ACTIVATIONS,
    activation,
    gelu,
    gelu_backward,
    gelu_tanh,
    relu,
    relu_backward,
    silu,
    tanh,
    tanh_backward,
)
from mini_bert.layers.erf import CHUNK, erf

both_dtypes = pytest.mark.parametrize("dtype", [np.float32, np.float64])
every_activation = pytest.mark.parametrize("name", ACTIVATIONS)
INTEGER = {np.float32: np.int32, np.float64: np.int64}
MAY_BE_OFF_BY = {np.float32: 2, np.float64: 3}  # in units of the last place; 3: math.erf is off by 1 itself


def math_erf(x):
    return np.array([math.erf(v) for v in x.ravel().tolist()]).reshape(x.shape).astype(x.dtype)


def numbers_between(a, b):
    """How many floating-point steps lead from a to b; for numbers from −1 to 1."""
    integer = INTEGER[a.dtype.type]

    def place(x):  # floats of one sign are ordered like their bits
        bits = x.view(integer).astype(np.int64)
        return np.where(bits < 0, -(bits & np.iinfo(integer).max), bits)

    return np.abs(place(a) - place(b))


def assert_erf_is_right(x):
    y = erf(x)
    assert np.all(np.abs(y) <= 1)
    off = numbers_between(y, math_erf(x))
    worst = off.argmax()
    limit = MAY_BE_OFF_BY[x.dtype.type]
    assert off[worst] <= limit, f"erf({x[worst]!r}) = {y[worst]!r} is off by {off[worst]} of the last place"


# --- erf ----------------------------------------------------------------------------------------------------


@both_dtypes
def test_erf_on_dense_grids(dtype):
    """On dense grids over −6.5 … 6.5 and over magnitudes from 1e-30 to 10, erf is correct to the last place or two."""
    assert_erf_is_right(np.linspace(-6.5, 6.5, 200_001).astype(dtype))
    assert_erf_is_right(np.geomspace(1e-30, 10, 200_001).astype(dtype))


@both_dtypes
def test_erf_where_its_formula_changes(dtype):
    """Around 0, 1, 4 and 6 (clipping, change of formula), it is as accurate as elsewhere."""
    steps = np.arange(-5000, 5000)
    for place in (1, 4, 6):
        near = np.array([place], dtype).view(INTEGER[dtype]) + steps.astype(INTEGER[dtype])
        assert_erf_is_right(near.view(dtype))
    smallest = np.arange(20_000).astype(INTEGER[dtype]).view(dtype)  # 0 and the first numbers after it
    assert_erf_is_right(smallest)


@both_dtypes
def test_erf_of_any_bits(dtype):
    """Any bit pattern is a valid input: finite numbers give the right value, NaN gives NaN, and there are no
    warnings."""
    bits = np.random.default_rng(0).integers(0, 256, 1_000_000, dtype=np.uint8)
    x = bits.view(dtype)
    with np.errstate(all="raise"):
        y = erf(x)
    np.testing.assert_array_equal(np.isnan(x), np.isnan(y))
    assert_erf_is_right(x[~np.isnan(x)])


@pytest.mark.parametrize("step", [pytest.param(1, marks=pytest.mark.slow), 13])
def test_erf_of_every_float32_in_its_worst_octave(step):
    """From 1/64 to 1/32, where the largest error is, each of the 8,388,608 values is within 2 ulp of the truth.

    The default tests check every thirteenth.
    """
    first, last = np.array([1 / 64, 1 / 32], np.float32).view(np.int32).tolist()
    for start in range(first, last, 2**20):
        assert_erf_is_right(np.arange(start, start + 2**20, step, dtype=np.int32).view(np.float32))


@both_dtypes
def test_erf_of_special_values(dtype):
    """erf(±0) = ±0, erf(±∞) = ±1, erf(NaN) = NaN."""
    x = np.array([0.0, -0.0, math.inf, -math.inf, math.nan], dtype)
    y = erf(x)
    np.testing.assert_array_equal(y, np.array([0, 0, 1, -1, math.nan], dtype))
    assert np.signbit(y).tolist()[:4] == [False, True, False, True]


@both_dtypes
def test_erf_is_odd_and_levels_off(dtype):
    """erf(−x) = −erf(x) to the last bit; from 4 (float32) or 6 (float64) on, it is exactly 1."""
    x = np.abs(np.random.default_rng(1).normal(0, 3, 10_000)).astype(dtype)
    np.testing.assert_array_equal(erf(-x), -erf(x))
    assert np.all(erf(np.linspace(4 if dtype == np.float32 else 6, 40, 1000).astype(dtype)) == 1)


def test_erf_known_values():
    """Values from tables: erf(½), erf(1), erf(2), and erf(1/√2), the probability within one standard deviation."""
    got = erf(np.array([0.5, 1, 2, 1 / math.sqrt(2)]))
    np.testing.assert_allclose(
        got, [0.5204998778130465, 0.8427007929497149, 0.9953222650189527, 0.6826894921370859], rtol=1e-15
    )


@both_dtypes
@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (7,), (2, 3, 5), (CHUNK + 1,), (3, CHUNK)])
def test_erf_keeps_shape_dtype_and_input(dtype, shape):
    """Shape and dtype are kept; the input is unchanged and shares no memory with the output."""
    x = np.random.default_rng(2).normal(size=shape).astype(dtype)
    before = np.copy(x)
    y = erf(x)
    assert y.shape == shape and y.dtype == dtype
    np.testing.assert_array_equal(x, before)
    assert not np.shares_memory(x, y)


@both_dtypes
def test_erf_of_a_number_does_not_depend_on_its_neighbours(dtype):
    """Strided, transposed, read-only or split: the same numbers give the same bits."""
    x = np.random.default_rng(3).normal(size=(521, 1031)).astype(dtype)  # more than one chunk
    y = erf(x)
    np.testing.assert_array_equal(erf(x.T), y.T)
    np.testing.assert_array_equal(erf(x[::-2, 3::5]), y[::-2, 3::5])
    np.testing.assert_array_equal(np.concatenate([erf(row) for row in x]), y.ravel())
    x.flags.writeable = False
    np.testing.assert_array_equal(erf(x), y)


@pytest.mark.parametrize("x", [3, True, np.arange(3), np.float16(1), np.ones(2, ">f4"), 1j, "one"])
def test_erf_of_another_type(x):
    """Types other than float32 and float64 give an error and are not converted silently."""
    with pytest.raises(TypeError, match="erf takes float32 or float64, not "):
        erf(x)


# --- activations --------------------------------------------------------------------------------------------


@every_activation
def test_slope_is_what_finite_differences_say(name):
    """backward(1) equals the finite-difference slope of forward, from −9 to 9."""
    f, step = activation(name), 1e-5
    x = np.linspace(-9, 9, 5000)  # no x is 0, where ReLU has its corner
    numeric = (f.forward(x + step)[0] - f.forward(x - step)[0]) / (2 * step)
    np.testing.assert_allclose(f.backward(np.ones_like(x), f.forward(x)[1]), numeric, rtol=0, atol=1e-9)


@every_activation
def test_backward_is_linear_in_dy(name):
    """Activations are elementwise: dx is dy times the slope."""
    rng = np.random.default_rng(4)
    x, dy = rng.normal(size=(2, 3, 5)), rng.normal(size=(2, 3, 5))
    f = activation(name)
    slope = f.backward(np.ones_like(x), f.forward(x)[1])
    np.testing.assert_allclose(f.backward(dy, f.forward(x)[1]), dy * slope, rtol=1e-15)


@every_activation
@both_dtypes
@pytest.mark.parametrize("shape", [(), (0, 3), (2, 3, 5)])
def test_dtype_shape_and_inputs_are_kept(name, dtype, shape):
    """float32 stays float32 (no NumPy scalar widens it), float64 stays float64; x, dy and the cache are unchanged."""
    rng = np.random.default_rng(5)
    x, dy = (np.asarray(rng.normal(size=shape), dtype) for _ in range(2))
    x_before, dy_before = x.copy(), dy.copy()
    f = activation(name)
    y, cache = f.forward(x)
    first = f.backward(dy, cache)
    for array in (y, first, *(cache if isinstance(cache, tuple) else (cache,))):
        assert array.dtype == dtype and array.shape == shape
    np.testing.assert_array_equal(f.backward(dy, cache), first)
    np.testing.assert_array_equal(x, x_before)
    np.testing.assert_array_equal(dy, dy_before)


@every_activation
def test_float32_is_float64_rounded(name):
    """Forward and backward in float32 are within a few roundings of float64, also far from 0.

    The slope of GELU's tanh form has the term 2 c (1 − c) x u′. Around x = 4, c is nearly 1 and rounded, and x u′ is
    10.
    """
    x = np.linspace(-20, 20, 100_001).astype(np.float32)
    f = activation(name)
    y, cache = f.forward(x)
    exact, exact_cache = f.forward(x.astype(np.float64))
    slope, exact_slope = f.backward(np.ones_like(x), cache), f.backward(np.ones(x.shape), exact_cache)
    np.testing.assert_allclose(y, exact, rtol=5e-7, atol=6e-7)
    np.testing.assert_allclose(slope, exact_slope, rtol=5e-7, atol=4e-6 if "gelu_" in name else 1.5e-6)


def test_known_values():
    """gelu(1) = Φ(1), gelu(−1) = Φ(1) − 1; the tanh form at 1 by its formula; the minimum of gelu is −0.16997."""
    x = np.array([1.0, -1, 0, 2])
    np.testing.assert_allclose(
        gelu(x)[0], [0.8413447460685429, -0.15865525393145707, 0, 1.9544997361036416], rtol=1e-15
    )
    inner = math.sqrt(2 / math.pi) * (1 + 0.044715)
    np.testing.assert_allclose(gelu_tanh(np.ones(1))[0], (1 + math.tanh(inner)) / 2, rtol=1e-15)
    np.testing.assert_array_equal(relu(np.array([-2.0, -0.0, 0, 3, math.inf]))[0], [0, 0, 0, 3, math.inf])
    np.testing.assert_allclose(tanh(np.array([0.5]))[0], math.tanh(0.5), rtol=1e-15)
    np.testing.assert_allclose(silu(np.array([-2.0, 0, 800, -800]))[0], [-2 / (1 + math.exp(2)), 0, 800, 0], rtol=1e-15)
    assert gelu(np.linspace(-1, 0, 10_001))[0].min() == pytest.approx(-0.16997120747990, abs=1e-9)


@pytest.mark.parametrize("name", ["relu", "gelu", "gelu_new", "gelu_pytorch_tanh", "silu"])
def test_gates_share_x_between_both_sides(name):
    """f(x) − f(−x) = x, so f′(x) + f′(−x) = 1."""
    x = np.random.default_rng(6).normal(0, 2, 1000)
    f = activation(name)
    (right, right_cache), (left, left_cache) = f.forward(x), f.forward(-x)
    slopes = f.backward(np.ones_like(x), right_cache), f.backward(np.ones_like(x), left_cache)
    np.testing.assert_allclose(right - left, x, rtol=0, atol=2e-15)
    tolerance = 2e-15 if name in ("relu", "gelu") else 8e-15  # the others compute c (1 − c) from the rounded y/x
    np.testing.assert_allclose(slopes[0] + slopes[1], 1, rtol=0, atol=tolerance)


def test_tanh_is_odd():
    """tanh(−x) = −tanh(x), and its slope is even."""
    x = np.random.default_rng(7).normal(0, 2, 1000)
    np.testing.assert_array_equal(tanh(-x)[0], -tanh(x)[0])
    np.testing.assert_array_equal(tanh_backward(x, tanh(-x)[1]), tanh_backward(x, tanh(x)[1]))


def test_the_two_gelus_are_close_but_not_the_same():
    """The tanh form is within 0.0005 of GELU everywhere, and its slope within 0.0015, but they are different
    functions."""
    x = np.linspace(-10, 10, 100_001)
    ones = np.ones_like(x)
    apart = np.abs(gelu(x)[0] - gelu_tanh(x)[0]).max()
    assert 4e-4 < apart < 5e-4
    new = activation("gelu_new")
    slopes_apart = np.abs(gelu_backward(ones, gelu(x)[1]) - new.backward(ones, new.forward(x)[1])).max()
    assert slopes_apart < 1.5e-3


def test_gelu_is_relu_from_afar():
    """gelu(x) tends to x on the right and 0 on the left, its slope to 1 and 0; it is never below −0.17."""
    x = np.array([-40.0, -10, 10, 40])
    np.testing.assert_allclose(gelu(x)[0], relu(x)[0], atol=1e-14)
    np.testing.assert_allclose(gelu_backward(np.ones(4), gelu(x)[1]), [0, 0, 1, 1], atol=1e-14)
    assert gelu(np.linspace(-40, 40, 10_001))[0].min() > -0.17


def test_relu_has_slope_0_at_its_corner():
    """At 0 (either sign), the gradient is 0, as in other libraries."""
    x = np.array([-1.0, -0.0, 0.0, 1.0])
    np.testing.assert_array_equal(relu_backward(np.ones(4), relu(x)[1]), [0, 0, 0, 1])


def test_relu_is_the_maximum():
    """np.clip, used for speed, gives exactly max(x, 0), and keeps NaN."""
    x = np.random.default_rng(8).normal(size=1000).astype(np.float32)
    x[:3] = math.nan, math.inf, -math.inf
    np.testing.assert_array_equal(relu(x)[0], np.maximum(x, 0))


def test_published_names():
    """Some functions have several published names; the error for an unknown name has the field and the known names."""
    names = ("gelu_new", "gelu_pytorch_tanh", "gelu_fast")
    assert [activation(name) for name in names] == [ACTIVATIONS["gelu_new"]] * 3
    assert activation("gelu").forward is activation("gelu_python").forward is gelu
    assert activation("swish") == activation("silu")
    known = "conv_act is .*, expected one of the activations relu, gelu, gelu_new, gelu_pytorch_tanh, tanh, silu, gelu"
    for wrong in ("mish", "GELU", "", None, ["gelu"]):
        with pytest.raises(ValueError, match=known) as error:
            activation(wrong, "conv_act")
        assert repr(wrong) in str(error.value)
