"""Matrices made orthogonal by products, compared with their singular vectors and with a plain, slow iteration."""

import numpy as np
import pytest

from mini_bert.training import orthogonal
from mini_bert.training.orthogonal import LOWEST, best_polynomial, orthogonalised, polynomials

SHAPES = [(7, 7), (7, 31), (31, 7), (13, 17), (1, 5), (5, 1), (1, 1), (43, 43)]


def made(shape, seed, dtype=np.float64):
    """A matrix with singular values from 1 down to 0.03"""
    rng, size = np.random.default_rng(seed), min(shape)
    u, v = (np.linalg.qr(rng.normal(size=(n, n)))[0][:, :size] for n in shape)
    return (u * np.geomspace(1, 0.03, size) @ v.T).astype(dtype)


def exact(x):
    """U Vᵀ without a decomposition: X ← (3X − XXᵀX) / 2 until nothing changes, one number at a time"""
    x = x / np.sqrt((x**2).sum())
    for _ in range(80):
        x = 1.5 * x - 0.5 * np.einsum("ij,kj,kl->il", x, x, x)
    return x


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_singular_values_become_one_and_vectors_stay(shape, dtype):
    """The directions are those of the nearest orthogonal matrix; lengths are within 0.083 of 1; the input is left."""
    x = made(shape, 0, dtype) * dtype(1e-4)
    before = x.copy()
    found = orthogonalised(x)
    assert found.shape == shape and found.dtype == dtype and (x == before).all()
    sigma = np.linalg.svd(found, compute_uv=False)
    assert 0.91 < sigma.min() <= sigma.max() < 1.09
    wanted = exact(x.astype(np.float64))
    np.testing.assert_allclose(wanted @ wanted.T if shape[0] <= shape[1] else wanted.T @ wanted,
                               np.eye(min(shape)), atol=1e-9)  # fmt: skip
    assert (found * wanted).sum() / np.linalg.norm(found) / np.linalg.norm(wanted) > 0.996
    np.testing.assert_allclose(found @ wanted.T, (found @ wanted.T).T, atol=1e-3)  # U p(Σ) Uᵀ: the same directions


@pytest.mark.parametrize("shape", [(7, 31), (13, 17), (43, 43)])
def test_more_steps_come_closer(shape, monkeypatch):
    """One step more reduces the largest error from 0.083 to 0.0005, with either way to multiply."""
    x, errors = made(shape, 1), []
    monkeypatch.setattr(orthogonal, "polynomials", polynomials.__wrapped__)  # without its memory
    for steps in (4, 5):
        monkeypatch.setattr(orthogonal, "STEPS", steps)
        errors.append(np.abs(np.linalg.svd(orthogonalised(x), compute_uv=False) - 1).max())
    assert 1e-3 < errors[0] < 0.084 and errors[1] < 5e-4


def test_the_formula_written_plainly():
    """Singular values are divided by (Σσ⁸)^⅛, and then go through the polynomials one by one."""
    for shape in ((5, 23), (11, 13)):
        x = np.random.default_rng(2).normal(size=shape)
        u, sigma, v = np.linalg.svd(x, full_matrices=False)
        sigma = sigma / (sigma**8).sum() ** 0.125
        assert sigma.max() <= 1
        for a, b, c in polynomials():
            sigma = a * sigma + b * sigma**3 + c * sigma**5
        np.testing.assert_allclose(orthogonalised(x), u * sigma @ v, atol=1e-12)


def test_small_singular_values_grow_and_nothing_overflows():
    """A matrix of rank 1, or with singular values over 12 orders of magnitude: small ones grow at most 226-fold."""
    rng = np.random.default_rng(3)
    one = np.outer(rng.normal(size=19), rng.normal(size=29)).astype(np.float32)
    sigma = np.linalg.svd(orthogonalised(one), compute_uv=False)
    assert 0.91 < sigma[0] < 1.09 and sigma[1] < 1e-3
    u, v = (np.linalg.qr(rng.normal(size=(n, n)))[0] for n in (19, 29))
    x = ((u * 10.0 ** -np.linspace(0, 12, 19)) @ v[:19]).astype(np.float32)
    found = orthogonalised(x)
    assert np.isfinite(found).all() and np.linalg.norm(found, 2) < 1.1
    scaled = x / (np.linalg.svd(x, compute_uv=False).astype(float) ** 8).sum() ** 0.125
    small = np.linalg.svd(found, compute_uv=False)[-5:]
    assert (small <= 226 * np.linalg.svd(scaled, compute_uv=False)[-5:] + 1e-4).all()
    assert np.isnan(orthogonalised(np.full((3, 5), np.nan, np.float32))).all()
    for scale in (1e-12, 1e12, 1e25):
        np.testing.assert_allclose(orthogonalised(x * np.float32(scale)), found, atol=1e-2)
    assert not orthogonalised(np.zeros((3, 5), np.float32)).any()


def test_every_polynomial_is_the_best_one():
    """The error alternates between −E and E at four places, so that no other polynomial has a smaller one."""
    low, high = LOWEST, 1.0
    for polynomial in polynomials():
        x = np.linspace(low, high, 100_001)
        error = 1 - sum(c * x**power for c, power in zip(polynomial, (1, 3, 5), strict=True))
        largest = np.abs(error).max()
        again, bound = best_polynomial(low, high)
        assert again == pytest.approx(polynomial) and bound == pytest.approx(largest, rel=1e-6)
        extreme = np.sign(error[np.abs(error) > largest * (1 - 1e-6)])
        assert 1 + np.count_nonzero(np.diff(extreme)) == 4
        low, high = 1 - largest, 1 + largest
    assert largest == pytest.approx(0.0828, abs=1e-4)
