"""One contract for every layer: each row of `gradcheck.CASES` passes all of these tests."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import pytest

from mini_bert.checks.gradcheck import CASES, Case, check_case
from mini_bert.checks.gradients import TOLERANCE
from mini_bert.layers.base import Layer, Pool, Run, bind
from mini_bert.layers.encoder import Recompute

every_layer = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
both_dtypes = pytest.mark.parametrize("dtype", [np.float32, np.float64])


class PoisonedPool(Pool):
    """A pool that fills returned buffers with NaN, which exposes code that still reads them."""

    lent = 0

    def take(self, shape, dtype):
        self.lent += 1
        return super().take(shape, dtype)

    def give(self, array):
        self.lent -= 1
        array[...] = math.nan
        super().give(array)


class Setup(NamedTuple):
    layer: Layer
    inputs: list[Any]
    grad: np.ndarray
    dy: Any


def set_up(case: Case, dtype=np.float64, wrap=lambda layer: layer) -> Setup:
    layer = wrap(case.build())
    flat = bind(layer, dtype=dtype, seed=0)
    rng = np.random.default_rng(1)
    inputs = [rng.normal(size=shape).astype(dtype) for shape in case.shapes]
    y, _ = forward(case, layer, inputs)
    return Setup(layer, inputs, flat.grad, rng.normal(size=np.shape(y)).astype(dtype))


def forward(case: Case, layer: Layer, inputs, pool=None):
    return layer.forward(*inputs, *case.fixed, Run(seed=3, train=True, pool=pool), **case.keywords)


def as_tuple(dx) -> tuple[Any, ...]:
    return dx if isinstance(dx, tuple) else (dx,)


def outcome(case: Case, pool=None, wrap=lambda layer: layer):
    """y, the gradients of the inputs, the gradients of the weights"""
    layer, inputs, grad, dy = set_up(case, wrap=wrap)
    y, cache = forward(case, layer, inputs, pool)
    dx = layer.backward(dy, cache, Run(pool=pool))
    return y, as_tuple(dx), grad


def assert_same(one, other):
    for a, b in zip(one, other, strict=True):
        if isinstance(a, tuple):
            assert_same(a, b)
        elif a is None:
            assert b is None
        else:
            np.testing.assert_array_equal(a, b)


@every_layer
def test_gradients(case):
    """Backward agrees with central differences, for every weight and every input. Of blocks and encoders, whose layers
    are checked in their own rows, fewer numbers."""
    entries = 24 if len(case.build().named_params()) < 8 else 8
    for row in check_case(case, entries):
        assert row.error <= TOLERANCE, row


@pytest.mark.slow
@every_layer
def test_gradients_number_by_number(case):
    """Like `gradcheck`, but with up to 400 numbers of each tensor."""
    for row in check_case(case, entries=400):
        assert row.error <= TOLERANCE, row


@every_layer
def test_two_forwards_before_two_backwards(case):
    """Layers have no state: two passes may be in progress at once, in any order."""
    layer, inputs, grad, dy = set_up(case)
    others = [2 * x + 1 for x in inputs]
    wanted = []
    for values in (inputs, others):
        _, cache = forward(case, layer, values)
        wanted.append(as_tuple(layer.backward(dy, cache, Run())))
    alone = grad.copy()
    grad[...] = 0

    _, first = forward(case, layer, inputs)
    _, second = forward(case, layer, others)
    late = as_tuple(layer.backward(dy, second, Run()))
    early = as_tuple(layer.backward(dy, first, Run()))
    assert_same(early, wanted[0])
    assert_same(late, wanted[1])
    np.testing.assert_allclose(grad, alone, rtol=1e-12, atol=1e-12)


def assert_sums(case, found, wanted):
    """Equal to the last bit, unless a layer uses a weight twice: then it adds in another order."""
    twice = case.name.startswith("two-stream") or ("disentangled" in case.name and "shared" in case.name)
    if twice:
        np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-13)
    else:
        np.testing.assert_array_equal(found, wanted)


@every_layer
def test_backward_adds(case):
    """A second backward doubles every weight gradient: gradients accumulate and are never overwritten."""
    layer, inputs, grad, dy = set_up(case)
    _, cache = forward(case, layer, inputs)
    layer.backward(dy, cache, Run())
    once = grad.copy()
    _, cache = forward(case, layer, inputs)
    layer.backward(dy, cache, Run())
    assert_sums(case, grad, 2 * once)


@every_layer
def test_an_unset_gradient_is_overwritten(case):
    """While unset, the contents of `grad` (here NaN) count as 0: the first backward overwrites them."""
    layer, inputs, grad, dy = set_up(case)
    _, cache = forward(case, layer, inputs)
    layer.backward(dy, cache, Run())
    once = grad.copy()
    grad[...] = np.nan
    params = layer.named_params().values()
    for param in params:
        param.grad_is_unset = True
    for times in (1, 2):
        _, cache = forward(case, layer, inputs)
        layer.backward(dy, cache, Run())
        for param in params:
            param.zero_if_unset()
        assert_sums(case, grad, times * once)


@every_layer
def test_inputs_stay_as_they_are(case):
    """Neither pass changes inputs, weights or the incoming gradient."""
    layer, inputs, _, dy = set_up(case)
    kept = [x.copy() for x in inputs]
    weights = {name: param.data.copy() for name, param in layer.named_params().items()}
    kept_dy = np.copy(dy)
    y, cache = forward(case, layer, inputs)
    kept_y = np.copy(y)
    layer.backward(dy, cache, Run())
    assert_same(inputs, kept)
    assert_same([dy], [kept_dy])
    assert_same([y], [kept_y])
    for name, param in layer.named_params().items():
        np.testing.assert_array_equal(param.data, weights[name])


@every_layer
@both_dtypes
def test_dtype_is_kept(case, dtype):
    """float32 stays float32 and float64 stays float64, forward and backward."""
    layer, inputs, grad, dy = set_up(case, dtype)
    y, cache = forward(case, layer, inputs)
    assert y.dtype == dtype
    for dx in as_tuple(layer.backward(dy, cache, Run())):
        assert dx is None or dx.dtype == dtype
    assert grad.dtype == dtype


@every_layer
def test_float32_is_close_to_float64(case):
    """The same computation in float32 differs only by rounding."""
    results = []
    for dtype in (np.float32, np.float64):
        layer, inputs, grad, _ = set_up(case, dtype)
        y, cache = forward(case, layer, inputs)
        layer.backward(np.ones_like(y), cache, Run())
        results.append((y, grad))
    (y32, grad32), (y64, grad64) = results
    np.testing.assert_allclose(y32, y64, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(grad32, grad64, rtol=1e-3, atol=1e-3)


@every_layer
def test_recomputing_changes_nothing(case):
    """Keeping only the input and running forward again gives the same bits, dropout included."""
    if case.fixed or len(case.shapes) > 1:
        pytest.skip("Recompute wraps layers of one stream")
    assert_same(outcome(case), outcome(case, wrap=Recompute))


@every_layer
def test_the_pool_changes_nothing(case):
    """Reused scratch memory gives the same bits, even when returned buffers are filled with NaN; all buffers are
    returned."""
    pool = PoisonedPool()
    assert_same(outcome(case), outcome(case, pool))
    assert_same(outcome(case), outcome(case, pool))
    assert pool.lent == 0
