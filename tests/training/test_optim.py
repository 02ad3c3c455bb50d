"""Adam compared with its formula, written out for a single number."""

import math

import numpy as np
import pytest

from mini_bert.common import sixteen_bit as sixteen
from mini_bert.layers.base import Flat
from mini_bert.training.optim import CHUNK, Adam, lr_schedule, one_by_one


def flat(values, decayed, dtype=np.float64):
    return Flat(np.array(values, dtype), np.zeros(len(values), dtype), decayed)


def test_ten_steps_by_hand():
    """Ten steps with changing gradients equal the scalar recurrences; decay affects only the first weight."""
    weights = flat([0.5, -0.3], decayed=1)
    optimiser = Adam(weights, lr=0.1, weight_decay=0.2)
    wanted, m, v = [0.5, -0.3], [0.0, 0.0], [0.0, 0.0]
    rng = np.random.default_rng(0)
    for t in range(1, 11):
        gradient = rng.normal(size=2)
        weights.grad[...] = gradient
        optimiser.step()
        for i, g in enumerate(gradient):
            m[i] = 0.9 * m[i] + 0.1 * g
            v[i] = 0.999 * v[i] + 0.001 * g * g
            step = (m[i] / (1 - 0.9**t)) / (math.sqrt(v[i] / (1 - 0.999**t)) + 1e-8)
            wanted[i] -= 0.1 * (step + (0.2 * wanted[i] if i == 0 else 0))
        np.testing.assert_allclose(weights.data, wanted, rtol=1e-12)


def test_the_first_step_is_the_learning_rate():
    """Whatever the size of the gradient, the first step moves a weight by lr."""
    weights = flat([1.0, 1.0, 1.0], decayed=0)
    weights.grad[...] = [1e-3, 5.0, -700.0]
    Adam(weights, lr=0.01).step()
    np.testing.assert_allclose(weights.data, [0.99, 0.99, 1.01], rtol=1e-5)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_dtype_is_kept_and_gradients_are_left(dtype):
    """The step changes weights in place and nothing else."""
    weights = flat([1.0, 2.0], 2, dtype)
    weights.grad[...] = [0.5, -0.5]
    data = weights.data
    optimiser = Adam(weights)
    optimiser.step(lr=0.1)
    assert weights.data is data and data.dtype == optimiser.m.dtype == optimiser.v.dtype == dtype
    assert weights.grad.tolist() == [0.5, -0.5]


@pytest.mark.peers
def test_torch_agrees():
    """Fifty steps follow torch.optim.AdamW in float64."""
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(1)
    weights = flat(rng.normal(size=7), decayed=7)
    theirs = torch.nn.Parameter(torch.tensor(weights.data.copy()))
    ours, reference = Adam(weights, lr=0.01), torch.optim.AdamW([theirs], lr=0.01, weight_decay=0.01)
    for _ in range(50):
        weights.grad[...] = rng.normal(size=7)
        theirs.grad = torch.tensor(weights.grad.copy())
        ours.step()
        reference.step()
    np.testing.assert_allclose(weights.data, theirs.detach().numpy(), rtol=1e-10)


def test_chunks_change_nothing():
    """Several chunks, with the end of the decayed weights inside one and an incomplete last one, give the same as one
    piece."""
    rng = np.random.default_rng(0)
    size, decayed = 2 * CHUNK + 77, CHUNK + 1234
    values, gradients = rng.normal(size=size), rng.normal(size=(3, size))
    weights = flat(values, decayed)
    optimiser = Adam(weights, lr=0.1, weight_decay=0.2)
    whole, m, v = values.copy(), np.zeros(size), np.zeros(size)
    for t, gradient in enumerate(gradients, 1):
        weights.grad[...] = gradient
        optimiser.step(scale=0.25, map=lambda work, items: [work(item) for item in reversed(list(items))])
        before = whole.copy()
        g = 0.25 * gradient
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        step = (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)
        whole -= 0.1 * step
        whole[:decayed] -= 0.1 * 0.2 * before[:decayed]
        np.testing.assert_allclose(weights.data, whole, rtol=1e-10, atol=1e-12)
        part = slice(CHUNK - 5, CHUNK + 5)
        np.testing.assert_allclose(optimiser.last_update(part, 0.1), 0.1 * step[part], rtol=1e-10)


def test_the_course_of_the_learning_rate():
    """A linear rise, then a linear fall; without warm-up, it starts at the peak."""
    assert [lr_schedule(p, 0.2) for p in (0.0, 0.1, 0.2, 0.6, 1.0)] == pytest.approx([0, 0.5, 1, 0.5, 0])
    assert [lr_schedule(p, 0.0) for p in (0.0, 0.5, 1.0, 1.1)] == pytest.approx([1, 0.5, 0, 0])


@pytest.mark.parametrize("moments", ["bfloat16", "float16"])
def test_moments_in_16_bits_take_half_the_memory_and_the_same_way(moments):
    """Gradients from 1e-7 to 1e-2, 200 steps: nothing is lost, although β2 changes v by a thousandth at a time."""
    rng = np.random.default_rng(0)
    size = (10 ** rng.uniform(-7, -2, 5_000)).astype(np.float32)
    found = {}
    for kind in ("float32", moments):
        flat = Flat(np.zeros(5_000, np.float32), np.zeros(5_000, np.float32), 0)
        adam = Adam(flat, 1e-3, moments=kind)
        draws = np.random.default_rng(1)
        for _ in range(200):
            flat.grad[...] = size * (draws.normal(size=5_000) + 0.3)
            adam.step()
        found[kind] = flat.data, adam.m.nbytes + adam.v.nbytes
    (exact, whole), (rounded, half) = found["float32"], found[moments]
    assert half * 2 == whole
    assert rounded.mean() == pytest.approx(exact.mean(), rel=1e-3)
    assert np.linalg.norm(rounded - exact) / np.linalg.norm(exact) < 0.02


@pytest.mark.parametrize("moments", ["bfloat16", "float16"])
def test_moments_in_16_bits_decay_when_the_gradient_has_stopped(moments):
    """They shrink by a tenth per step on average, down to the smallest numbers, and do not get stuck at the limit of
    float16."""
    flat = Flat(np.zeros(20_000, np.float32), np.full(20_000, 1e-8, np.float32), 0)
    adam, exact = Adam(flat, moments=moments), 0.0
    scale = 4096 if moments == "float16" else 1
    for step in range(30):
        adam.step()
        exact = 0.9 * exact + 0.1 * float(flat.grad[0])
        if step == 4:
            flat.grad[...] = 0
        if step in (4, 14, 29):
            m = sixteen.widen(adam.m).astype(np.float64) / scale
            assert abs(m.mean() - exact) < 5 * m.std() / np.sqrt(m.size), step


@pytest.mark.parametrize("moments", ["bfloat16", "float16"])
def test_rounding_depends_on_the_step_and_the_place_only(moments):
    """It does not depend on the order of the chunks: any number of threads gives the same bits."""

    def weights(each):
        flat = Flat(np.zeros(3 * CHUNK - 5, np.float32), np.zeros(3 * CHUNK - 5, np.float32), CHUNK)
        adam = Adam(flat, 1e-3, moments=moments)
        for step in range(3):
            flat.grad[...] = np.random.default_rng(step).normal(size=flat.grad.size) * 0.01
            adam.step(map=each)
        return flat.data, adam.last_update(slice(10, 20), 1e-3)

    def backwards(work, items):
        for item in reversed(list(items)):
            work(item)

    for one, other in zip(weights(one_by_one), weights(backwards), strict=True):
        np.testing.assert_array_equal(one, other)


def test_shares_of_the_learning_rate():
    """Multipliers for parts in any order, across the end of the decayed weights and over several chunks; other weights
    get the full rate."""
    rng = np.random.default_rng(0)
    size, decayed = 2 * CHUNK + 77, CHUNK + 1234
    values, gradients = rng.normal(size=size), rng.normal(size=(3, size))
    parts = [(slice(CHUNK - 7, size - 5), 0.25), (slice(3, 10), 0.5), (slice(10, 20), 0.5)]
    share = np.ones(size)
    for part, value in parts:
        share[part] = value
    weights, whole = flat(values, decayed), values.copy()
    optimiser = Adam(weights, lr=0.1, weight_decay=0.2, lr_multipliers=parts)
    m, v = np.zeros(size), np.zeros(size)
    for t, gradient in enumerate(gradients, 1):
        weights.grad[...] = gradient
        optimiser.step()
        m, v = 0.9 * m + 0.1 * gradient, 0.999 * v + 0.001 * gradient**2
        step = (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)
        whole -= 0.1 * share * (step + np.where(np.arange(size) < decayed, 0.2 * whole, 0))
        np.testing.assert_allclose(weights.data, whole, rtol=1e-10, atol=1e-12)


def test_shares_must_fit():
    weights = flat([1.0] * 6, 6)
    for parts in ([(slice(0, 3), 0.5), (slice(2, 4), 0.5)], [(slice(4, 7), 0.5)]):
        with pytest.raises(ValueError, match="overlaps another, or is not within the 6 weights"):
            Adam(weights, lr_multipliers=parts)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_share_of_one_changes_no_bit(dtype):
    found = []
    for shares in ((), [(slice(2, 5), 1.0)]):
        weights = flat(np.linspace(-1, 1, 9), 4, dtype)
        optimiser = Adam(weights, lr_multipliers=shares)
        for seed in range(5):
            weights.grad[...] = np.random.default_rng(seed).normal(size=9)
            optimiser.step()
        found.append(weights.data)
    np.testing.assert_array_equal(*found)
