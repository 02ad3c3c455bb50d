"""Row selection and tiling, compared with the plain layer."""

import numpy as np
import pytest

from mini_bert.layers.attention import MultiHeadAttention
from mini_bert.layers.base import Run, bind
from mini_bert.layers.chosen import row_layout
from mini_bert.layers.efficient_attention import EfficientAttention

B, T, A, D = 2, 13, 3, 5
MASKS = {
    "none": None,
    "padding": (np.arange(T) < np.array([T, 7])[:, None])[:, None, None],
    "causal": np.tri(T, dtype=bool),
}


def flat(x):
    return x.reshape(-1, A * D)


def outcome(layer, x, dy, data, keywords):
    """The output, the gradient of the input, the gradient of the weights, and the cache"""
    grad = bind(layer, data).grad
    y, cache = layer.forward(x, Run(1, train=True), **keywords)
    return (y, layer.backward(dy(y), cache, Run()), grad), cache


@pytest.mark.parametrize("chosen", [None, [], [6, 2, 2, 0], [25, 1, 14]], ids=str)
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("method", ["plain", "lean"])
def test_same_as_the_plain_layer(method, mask, chosen):
    """y, dx and all weight gradients equal those of the plain layer at the chosen rows, with the same dropout."""
    rng = np.random.default_rng(0)
    plain, efficient = MultiHeadAttention(A * D, A, p=0.3), EfficientAttention(A * D, A, p=0.3)
    efficient.method, efficient.tile = method, 4
    data = bind(plain, seed=0, dtype=np.float64).data
    x, dy = rng.normal(size=(2, B, T, A * D))
    rows = np.arange(B * T) if chosen is None else np.array(chosen, np.intp)
    counts = np.bincount(rows, minlength=B * T).reshape(B, T, 1)  # a row chosen twice counts twice

    (y, *gradients), cache = outcome(plain, x, lambda y: dy * counts, data, {"mask": MASKS[mask]})
    keywords = {"mask": MASKS[mask], "chosen": None if chosen is None else rows}
    (some, *others), own = outcome(efficient, x, lambda y: flat(dy)[rows].reshape(y.shape), data, keywords)
    np.testing.assert_allclose(flat(some), flat(y)[rows], rtol=0, atol=1e-12)
    for one, other in zip(gradients, others, strict=True):
        np.testing.assert_allclose(other, one, rtol=0, atol=1e-12)
    if method == "plain" and chosen is None:
        np.testing.assert_array_equal(some, y)

    assert own.projected is x  # the cache has the same names, whatever the variant
    np.testing.assert_allclose(own.k, cache.k, rtol=0, atol=1e-12)
    np.testing.assert_allclose(own.attended.v, cache.attended.v, rtol=0, atol=1e-12)
    if chosen is None:
        np.testing.assert_allclose(own.q, cache.q, rtol=0, atol=1e-12)
        np.testing.assert_allclose(own.attended.probs, cache.attended.probs, rtol=0, atol=1e-12)


def test_a_layout_arranges_rows_by_sequence():
    """Rows in any order, one of them twice, go to a padded batch and back."""
    layout = row_layout(np.array([6, 2, 2, 0]), B=3, T=5)
    listed = np.array([[60.0], [20.0], [21.0], [1.0]])
    batch = layout.to_batch(listed)
    np.testing.assert_array_equal(batch[:, :, 0], [[20, 21, 1], [60, 0, 0], [0, 0, 0]])
    np.testing.assert_array_equal(layout.token, [[2, 2, 0], [1, 0, 0], [0, 0, 0]])
    np.testing.assert_array_equal(layout.to_list(batch[:, :, None]), listed)
