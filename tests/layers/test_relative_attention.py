"""Relative attention, two streams: the formula number by number, and what a memory, an order and segments mean."""

import numpy as np
import pytest

from mini_bert.layers.base import Run, bind
from mini_bert.layers.relative_attention import (
    RelativeAttention,
    distance_waves,
    relative_shift,
    relative_shift_backward,
)
from mini_bert.layers.two_stream_attention import TwoStreamAttention

B, T, M, A, D, H = 2, 5, 3, 2, 7, 6
K = M + T
RNG = np.random.default_rng(0)
X, MEMORY = RNG.normal(size=(B, T, H)), RNG.normal(size=(B, M, H))
CAUSAL = np.tri(T, K, M, dtype=bool)


def attention(kind=RelativeAttention, **options):
    layer = kind(H, A, D, std=0.7, **options)
    bind(layer, dtype=np.float64, seed=1)
    return layer


def naive(layer, x, both, visible, clamp=10**9, differs=None):
    """y by the formula, for one sequence: queries x (T,H) are the last of the keys `both` (K,H)."""
    w_q, w_k, w_v = np.split(layer.qkv.w.data, 3, axis=1)
    y, first = np.zeros((len(x), A * D)), len(both) - len(x)
    frequency = 10000.0 ** (-np.arange(0, H, 2) / H)
    for a in range(A):
        part = slice(a * D, (a + 1) * D)
        u, w = layer.content_bias.data[a], layer.distance_bias.data[a]
        for i in range(len(x)):
            q, scores = x[i] @ w_q[:, part], np.full(len(both), -np.inf)
            for j in np.flatnonzero(visible[i]):
                distance = np.clip(first + i - j, -clamp, clamp)
                wave = np.concatenate([np.sin(distance * frequency), np.cos(distance * frequency)])
                r = wave @ layer.r.w.data[:, part]
                scores[j] = (q + u) @ (both[j] @ w_k[:, part]) + (q + w) @ r
                if differs is not None:
                    e = layer.segments.embedding.data[int(differs[i, j]), a]
                    scores[j] += (q + layer.segments.bias.data[a]) @ e
            weights = np.exp((scores - scores.max()) / np.sqrt(D))
            y[i, part] = weights / weights.sum() @ (both @ w_v[:, part])
    return y @ layer.output.w.data


@pytest.mark.parametrize("later", [False, True])
@pytest.mark.parametrize("clamp", [0, 2])
def test_it_is_the_formula(later, clamp):
    layer, mask = attention(), None if later else CAUSAL
    y, _ = layer.forward(X, Run(), distance_waves(T, K, H, later, clamp, dtype=np.float64), MEMORY, mask=mask)
    visible = np.ones((T, K), bool) if later else CAUSAL
    for b in range(B):
        both = np.concatenate([MEMORY[b], X[b]])
        np.testing.assert_allclose(y[b], naive(layer, X[b], both, visible, clamp or 10**9), rtol=1e-10)


def test_the_shift_is_a_view_and_its_inverse():
    """Row i of the result starts T − i columns into row i; nothing is copied."""
    x = RNG.normal(size=(B, A, T, K + T))
    y = relative_shift(x, K)
    assert np.shares_memory(x, y)
    for i in range(T):
        np.testing.assert_array_equal(y[:, :, i], x[:, :, i, T - i : T - i + K])
    back = relative_shift_backward(y, K + T)
    np.testing.assert_array_equal(relative_shift(back, K), y)
    assert np.count_nonzero(back) == y.size


def test_the_shift_of_some_rows():
    x = RNG.normal(size=(B, A, 2, K + T))
    tokens = np.array([[4, 1], [0, 2]])
    y = relative_shift(x, K, tokens, T)
    for b, m in np.ndindex(2, 2):
        np.testing.assert_array_equal(y[b, :, m], x[b, :, m, T - tokens[b, m] : T - tokens[b, m] + K])


@pytest.mark.parametrize("p", [0.0, 0.3])
def test_chosen_rows_are_those_of_all_rows(p):
    """The same numbers, dropout included, and the same gradients."""
    chosen, found = np.array([7, 2, 2, 9]), []
    waves = distance_waves(T, K, H, False, dtype=np.float64)
    for select in (False, True):
        layer = attention(p=p)
        y, cache = layer.forward(X, Run(3, train=True), waves, MEMORY, mask=CAUSAL, chosen=chosen if select else None)
        dy = np.ones((4, H))
        if not select:
            y, dy = y.reshape(-1, H)[chosen], np.zeros_like(y)
            np.add.at(dy.reshape(-1, H), chosen, 1.0)
        dx = layer.backward(dy, cache, Run())
        found.append([y, dx, *(param.grad for param in layer.named_params().values())])
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)


def test_a_memory_is_what_came_before():
    """Causal attention over a segment with the one before it as memory is that over both, for the second one."""
    layer, whole = attention(), np.concatenate([MEMORY, X], 1)
    together, _ = layer.forward(
        whole, Run(), distance_waves(K, K, H, False, dtype=np.float64), mask=np.tri(K, dtype=bool)
    )
    apart, _ = layer.forward(X, Run(), distance_waves(T, K, H, False, dtype=np.float64), MEMORY, mask=CAUSAL)
    np.testing.assert_allclose(apart, together[:, M:], rtol=1e-12)


def test_reversed_sequences_see_mirrored_distances():
    """A sequence that is read from right to left gives the mirrored result."""
    layer = attention()
    waves = np.stack([distance_waves(T, T, H, True, 0, sign, np.float64) for sign in (1, -1)])
    y, _ = layer.forward(np.stack([X[0], X[0, ::-1]]), Run(), waves)
    np.testing.assert_allclose(y[1], y[0, ::-1], rtol=1e-10)


# ---------------------------------------------------------------------- two streams

ORDER = np.array([[0, 3, 0, 1, 2], [2, 0, 1, 0, 3]])
CONTENT, QUERY = ORDER[:, None, :, None] >= ORDER[:, None, None], ORDER[:, None, :, None] > ORDER[:, None, None]
CHOSEN = np.array([1, 3, 4, 5, 7, 9])
TYPES = np.array([[0, 0, 1, 1, 1], [0, 1, 1, 1, 2]])
DIFFERS = (TYPES[:, :, None] != TYPES[:, None])[:, None]


def test_two_streams_are_the_formula():
    layer = attention(TwoStreamAttention)
    g = RNG.normal(size=(len(CHOSEN), H))
    (y, z), _ = layer.forward(
        X, g, Run(), distance_waves(T, T, H, True, dtype=np.float64), mask=CONTENT, query_mask=QUERY, differs=DIFFERS,
        chosen=CHOSEN,
    )  # fmt: skip
    for b in range(B):
        np.testing.assert_allclose(y[b], naive(layer, X[b], X[b], CONTENT[b, 0], differs=DIFFERS[b, 0]), rtol=1e-10)
        full = np.zeros((T, H))  # queries at their places; the others are not compared
        at = CHOSEN[b == CHOSEN // T] % T
        full[at] = g[b == CHOSEN // T]
        expected = naive(layer, full, X[b], QUERY[b, 0] | np.eye(T, dtype=bool) & ~np.isin(np.arange(T), at),
                         differs=DIFFERS[b, 0])  # fmt: skip
        np.testing.assert_allclose(z[b == CHOSEN // T], expected[at], rtol=1e-10)


def test_a_word_is_not_seen_where_it_is_predicted():
    """Changing a word changes the query stream at later places of the order, the content stream also at its own."""
    layer, g = attention(TwoStreamAttention), np.ones((T, H))
    waves = distance_waves(T, T, H, True, dtype=np.float64)
    order = np.array([0, 3, 1, 4, 2])
    masks = {"mask": order[:, None] >= order, "query_mask": order[:, None] > order, "chosen": np.arange(T)}
    found = []
    for change in (0, 1):
        x = X[:1].copy()
        x[0, 4] += change
        found.append(layer.forward(x, g, Run(), waves, **masks)[0])
    (y, z), (y2, z2) = found
    np.testing.assert_array_equal(np.abs(y - y2)[0].max(-1) > 0, order >= 2)
    np.testing.assert_array_equal(np.abs(z - z2).max(-1) > 0, order > 2)
