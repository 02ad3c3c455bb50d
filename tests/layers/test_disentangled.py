"""Disentangled attention and its parts, against versions that loop, gather and know no strides."""

from __future__ import annotations

import math

import numpy as np
import pytest

from mini_bert.layers import relative_positions
from mini_bert.layers.attention import named_arrays
from mini_bert.layers.base import Run, bind
from mini_bert.layers.convolution import Convolution
from mini_bert.layers.disentangled_attention import DisentangledAttention
from mini_bert.layers.disentangled_encoder import ConvolvedBlock, DisentangledBlock, DisentangledEncoder
from mini_bert.layers.encoder import Recompute
from mini_bert.layers.linear import Linear
from mini_bert.layers.packed import Packed
from mini_bert.layers.relative_positions import (
    add_distance_scores,
    add_distance_scores_backward,
    distances,
    log_buckets,
    skewed,
    windows,
)
from mini_bert.layers.talking_heads import TalkingHeadAttention

B, T, A, D = 2, 7, 3, 5
H = A * D
PADDED = np.array([[1, 1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 0, 0, 0]], bool)[:, None, None, :]


def drawn(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


# ---------------------------------------------------------------------- relative positions


@pytest.mark.parametrize(("n", "T"), [(1, 1), (4, 4), (3, 7), (7, 7)])
def test_skewed_picks_what_a_gather_picks(n, T):
    """The view has the same numbers as a gather by index, for any shape."""
    x = drawn(2, 3, n, T + n - 1)
    index = n - 1 - np.arange(n)[:, None] + np.arange(T)
    np.testing.assert_array_equal(skewed(x), np.take_along_axis(x, np.broadcast_to(index, (2, 3, n, T)), -1))


@pytest.mark.parametrize("tile", [1, 2, 3, 64])
def test_scores_by_distance_are_those_of_a_gather(tile, monkeypatch):
    """In tiles of any size, forward is a gather of all products, and backward its scatter-add."""
    monkeypatch.setattr(relative_positions, "TILE", tile)
    x, r, dscores = drawn(B, A, T, D), drawn(A, 2 * T - 1, D, seed=1), drawn(B, A, T, T, seed=2)
    index = np.broadcast_to(T - 1 - np.arange(T)[:, None] + np.arange(T), (B, A, T, T))
    product = np.einsum("batd,acd->batc", x, r)

    scores = np.zeros((B, A, T, T))
    add_distance_scores(scores, x, r)
    np.testing.assert_allclose(scores, np.take_along_axis(product, index, -1), atol=1e-13)

    dproduct = np.zeros_like(product)
    np.add.at(dproduct, (*np.indices((B, A, T, T))[:3], index), dscores)
    dx = np.zeros_like(x)
    dr = add_distance_scores_backward(dscores, x, r, dx)
    np.testing.assert_allclose(dx, np.einsum("batc,acd->batd", dproduct, r), atol=1e-13)
    np.testing.assert_allclose(dr, np.einsum("batc,batd->acd", dproduct, x), atol=1e-13)


def test_windows_are_rows_of_skewed():
    """For chosen tokens, the same scores as for all of them."""
    x, token = drawn(B, A, T, 2 * T - 1), np.array([[3, 0, 3], [6, 5, 1]])
    some = x[np.arange(B)[:, None, None], np.arange(A)[:, None], token[:, None]]
    wanted = skewed(x)[np.arange(B)[:, None, None], np.arange(A)[:, None], token[:, None]]
    np.testing.assert_array_equal(windows(some, token), wanted)


@pytest.mark.parametrize(("buckets", "largest"), [(8, 32), (256, 512), (6, 11), (32, 512)])
def test_buckets_are_those_of_the_formula(buckets, largest):
    """Near distances have their own bucket, far ones share logarithmic ones, and the farthest has the last."""
    m = buckets // 2
    for p in range(-largest + 1, largest):
        wanted = p
        if abs(p) > m:
            far = m + math.ceil((m - 1) * math.log(abs(p) / m) / math.log((largest - 1) / m))
            wanted = far if p > 0 else -far
        assert log_buckets(np.array([p]), buckets, largest) == wanted
    assert log_buckets(np.array([largest - 1]), buckets, largest) == buckets - 1


def test_distances_are_clipped_to_the_table():
    """Each distance has its row; distances beyond the span share the first or the last."""
    near, far = distances(4, span=9), distances(6, span=2)
    assert near.rows[near.row_of].tolist() == [6, 7, 8, 9, 10, 11, 12] and not near.shared
    assert far.rows[far.row_of].tolist() == [0, 0, 0, 0, 1, 2, 3, 3, 3, 3, 3] and far.shared


def test_distances_in_buckets_share_rows():
    """Of 31 tokens with 8 buckets: 61 distances, and a table of 16 rows of which the first is never used."""
    found = distances(31, span=8, buckets=8, largest=32)
    assert found.rows.tolist() == list(range(1, 16))
    assert found.rows[found.row_of[30]] == 8  # distance 0


# ---------------------------------------------------------------------- attention


def attention_of_loops(layer, x, table, wanted, mask=None):
    """The scores of every pair, one dot product at a time; None where there is no such term"""
    heads = lambda array: array.reshape(*array.shape[:-1], A, D)  # noqa: E731
    q, k, v = (heads(part.forward(x, Run())[0]) for part in (layer.query, layer.key, layer.value))  # (B,T,A,d)
    kr = layer.position_key and heads(layer.position_key.forward(table, Run())[0])  # (U,A,d)
    qr = layer.position_query and heads(layer.position_query.forward(table, Run())[0])
    context = np.zeros((B, T, A, D))
    for b in range(B):
        for a in range(A):
            scores = np.zeros((T, T))
            for i in range(T):
                for j in range(T):
                    delta = wanted.row_of[i - j + T - 1]
                    scores[i, j] = q[b, i, a] @ k[b, j, a]
                    scores[i, j] += 0 if kr is None else q[b, i, a] @ kr[delta, a]
                    scores[i, j] += 0 if qr is None else k[b, j, a] @ qr[delta, a]
                    if mask is not None and not (mask[b, 0, 0, i] and mask[b, 0, 0, j]):
                        scores[i, j] = -1e300
            weights = np.exp((scores - scores.max(-1, keepdims=True)) * layer.scale)
            context[b, :, a] = weights / weights.sum(-1, keepdims=True) @ v[b, :, a]
    return layer.output.forward(context.reshape(B, T, H), Run())[0]


@pytest.mark.parametrize("mask", [None, PADDED], ids=["full", "padded"])
@pytest.mark.parametrize(
    ("options", "span"),
    [({}, T), ({"terms": ("c2p",), "key_bias": False}, T), ({"terms": ("p2c",)}, 3), ({"share": True}, 4),
     ({"relative": False}, 1), ({"terms": ()}, 1)],
)  # fmt: skip
def test_attention_is_that_of_loops(options, span, mask):
    """The layer computes what loops over queries and keys compute from the formula."""
    layer, wanted = DisentangledAttention(H, A, **options), distances(T, span)
    bind(layer, dtype=np.float64, seed=0)
    x, table = drawn(B, T, H), drawn(len(wanted.rows), H, seed=1)
    y, _ = layer.forward(x, table, Run(), wanted, mask)
    np.testing.assert_allclose(y, attention_of_loops(layer, x, table, wanted, mask), atol=1e-12)


def test_the_scale_counts_the_terms():
    """Scores are divided by √(d · (1 + position terms))."""
    scales = [DisentangledAttention(H, A, terms, relative=False).scale for terms in ((), ("c2p",), ("c2p", "p2c"))]
    np.testing.assert_allclose(scales, [1 / math.sqrt(D * n) for n in (1, 2, 3)])


@pytest.mark.parametrize("kind", [DisentangledAttention, TalkingHeadAttention])
def test_chosen_rows_are_rows_of_all(kind):
    """Rows in any order, one of them twice, with the same dropout."""
    layer, wanted = kind(H, A, p=0.3, position_p=0.2), distances(T, 4)
    bind(layer, dtype=np.float64, seed=0)
    x, table, chosen = drawn(B, T, H), drawn(len(wanted.rows), H, seed=1), np.array([12, 3, 3, 0, 8])
    every, cache = layer.forward(x, table, Run(5, train=True), wanted, PADDED)
    some, chosen_cache = layer.forward(x, table, Run(5, train=True), wanted, PADDED, chosen)
    np.testing.assert_allclose(some, every.reshape(B * T, H)[chosen], atol=1e-12)

    dsome = drawn(5, H, seed=2)
    dy = np.zeros((B * T, H))
    np.add.at(dy, chosen, dsome)
    found = layer.backward(dsome, chosen_cache, Run())
    for one, other in zip(found, layer.backward(dy.reshape(B, T, H), cache, Run()), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-12)


def test_parts_of_a_batch_drop_the_same_numbers():
    """The result for a sequence does not depend on which thread computes it."""
    layer, wanted = DisentangledAttention(H, A, p=0.3, position_p=0.3), distances(T, T)
    bind(layer, dtype=np.float64, seed=0)
    x, table = drawn(B, T, H), drawn(len(wanted.rows), H, seed=1)
    whole, _ = layer.forward(x, table, Run(5, train=True), wanted)
    for b in range(B):
        part, _ = layer.forward(x[b : b + 1], table, Run(5, train=True, first=b), wanted)
        np.testing.assert_allclose(part[0], whole[b], atol=1e-13)


def test_padding_changes_nothing_else():
    """What a padding token contains affects no other token."""
    layer, wanted = DisentangledAttention(H, A), distances(T, T)
    bind(layer, dtype=np.float64, seed=0)
    x, table = drawn(B, T, H), drawn(len(wanted.rows), H, seed=1)
    y, _ = layer.forward(x, table, Run(), wanted, PADDED)
    x[1, 4:] = 100
    other, cache = layer.forward(x, table, Run(), wanted, PADDED)
    np.testing.assert_array_equal(y[1, :4], other[1, :4])
    np.testing.assert_allclose(cache.attended.probs[1, :, 4:], 1 / T)  # as in published models


def test_heads_that_mix_nothing_are_the_usual_ones():
    """With identity matrices, talking heads compute what disentangled attention does."""
    talking, usual = TalkingHeadAttention(H, A), DisentangledAttention(H, A)
    bind(talking, dtype=np.float64, seed=0)
    bind(usual, dtype=np.float64)
    for name, param in usual.named_params().items():
        param.data[...] = talking.named_params()[name].data
    talking.mix_scores.w.data[...] = talking.mix_weights.w.data[...] = np.eye(A)
    x, table, wanted = drawn(B, T, H), drawn(2 * T - 1, H, seed=1), distances(T, T)
    one, _ = talking.forward(x, table, Run(), wanted, PADDED)
    other, _ = usual.forward(x, table, Run(), wanted, PADDED)
    np.testing.assert_allclose(one, other, atol=1e-13)


def test_the_weights_of_talking_heads_are_those_that_average_the_values():
    """After the second mix: the context is their product with the values."""
    layer = TalkingHeadAttention(H, A)
    bind(layer, dtype=np.float64, seed=0)
    x, table = drawn(B, T, H), drawn(2 * T - 1, H, seed=1)
    _, cache = layer.forward(x, table, Run(), distances(T, T), PADDED)
    context = named_arrays(cache)["attention_weights"] @ cache.attended.v  # (B,A,T,d)
    np.testing.assert_allclose(cache.context, context.swapaxes(1, 2).reshape(B, T, H), atol=1e-13)


# ---------------------------------------------------------------------- convolution


@pytest.mark.parametrize(("size", "groups"), [(3, 1), (5, 3), (1, 1), (9, 5)])
def test_convolution_is_that_of_loops(size, groups):
    """Also where the window is wider than the text."""
    layer = Convolution(H, size, groups)
    bind(layer, dtype=np.float64, seed=0)
    layer.b.data[...] = drawn(H, seed=3)
    x, part = drawn(B, T, H), H // groups
    y, _ = layer.forward(x, Run())
    for t in range(T):
        for o in range(H):
            g, wanted = o // part, layer.b.data[o] * np.ones(B)
            for c in range(size):
                if 0 <= t + c - size // 2 < T:
                    own = x[:, t + c - size // 2, g * part : (g + 1) * part]
                    wanted += own @ layer.w.data[c, g, :, o % part]
            np.testing.assert_allclose(y[:, t, o], wanted, atol=1e-12)


def test_convolution_of_size_1_is_a_linear_layer():
    """A window of one token is a product with one matrix."""
    layer, linear = Convolution(H, 1), Linear(H, H)
    bind(layer, dtype=np.float64, seed=0)
    bind(linear, dtype=np.float64)
    linear.w.data[...] = layer.w.data[0, 0]
    x = drawn(B, T, H)
    np.testing.assert_allclose(layer.forward(x, Run())[0], linear.forward(x, Run())[0], atol=1e-13)


@pytest.mark.parametrize(("options", "named"), [({"size": 4}, "4"), ({"groups": 4}, "groups, 4")])
def test_impossible_convolutions_are_refused(options, named):
    """The error names the size or the number of groups."""
    with pytest.raises(ValueError, match=named):
        Convolution(H, **options)


# ---------------------------------------------------------------------- block and encoder


def block(p=0.2):
    return DisentangledBlock(DisentangledAttention(H, A, p=p, position_p=p), 11, "gelu", p, 1e-7, None)


def convolved(p=0.2):
    attention = DisentangledAttention(H, A, p=p, position_p=p)
    return ConvolvedBlock(attention, 11, "gelu", p, 1e-7, None, size=3, groups=3, conv_act="tanh")


@pytest.mark.parametrize("make", [block, convolved])
def test_recomputing_a_block_gives_the_same_bits(make):
    """Outputs and gradients do not change if backward repeats the forward pass."""
    results = []
    for wrap in (lambda layer: layer, Recompute):
        layer = wrap(make())
        grad = bind(layer, seed=0).grad
        x, table = drawn(B, T, H).astype(np.float32), drawn(2 * T - 1, H, seed=1).astype(np.float32)
        y, cache = layer.forward(x, table, Run(3, train=True), distances=distances(T, T), mask=PADDED)
        results.append((y, *layer.backward(np.ones_like(y), cache, Run()), grad))
    for one, other in zip(*results, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("make", [block, convolved])
@pytest.mark.parametrize("kind", ["bfloat16", "float16"])
def test_a_packed_block_is_close(make, kind):
    """The cache in 16 bits costs some digits; all blocks share one table, which is not rounded."""
    layer = make(0.0)
    grad = bind(layer, seed=0).grad
    x, table = drawn(11, T, H).astype(np.float32), drawn(2 * T - 1, H, seed=1).astype(np.float32)
    results = []
    for one in (layer, Packed(layer, kind)):
        grad[...] = 0
        y, cache = one.forward(x, table, Run(), distances=distances(T, T))
        results.append((*one.backward(drawn(*y.shape, seed=2).astype(np.float32), cache, Run()), grad.copy()))
    for exact, rounded in zip(*results, strict=True):
        assert 0 < np.linalg.norm(rounded - exact) < 0.02 * np.linalg.norm(exact)
    inner = cache.tree.block if make is convolved else cache.tree
    assert inner.attention.positions.table is table


def test_encoder_of_one_block_with_chosen_rows():
    """The convolution beside a block that computes some rows computes the same ones."""
    encoder = DisentangledEncoder([convolved()], H, span=4, eps=1e-7)
    bind(encoder, dtype=np.float64, seed=0)
    x, chosen = drawn(B, T, H), np.array([9, 2, 2])
    every, _ = encoder.forward(x, Run(5, train=True), mask=PADDED)
    some, caches = encoder.forward(x, Run(5, train=True), chosen, mask=PADDED)
    np.testing.assert_allclose(some, every.reshape(B * T, H)[chosen], atol=1e-12)
    assert {"convolution_norm", "attention_weights", "query"} <= set(caches[0].named())
    assert caches[0].attention_weights.shape == (B, A, 2, T)


def test_padding_stays_zero_behind_a_convolution():
    """The output is 0 at padding, and nowhere else."""
    layer = convolved(0.0)
    bind(layer, dtype=np.float64, seed=0)
    y, _ = layer.forward(drawn(B, T, H), drawn(2 * T - 1, H), Run(), distances(T, T), PADDED)
    assert not y[1, 4:].any() and y[1, :4].all()
