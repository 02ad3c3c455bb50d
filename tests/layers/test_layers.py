"""Each layer compared with something independent: a loop-and-einsum version, or a fact that must hold."""

import math
import runpy
from pathlib import Path

import numpy as np
import pytest

import mini_bert.layers
from mini_bert.layers.attention import MultiHeadAttention, attend
from mini_bert.layers.base import Run, bind
from mini_bert.layers.block import TransformerBlock
from mini_bert.layers.chosen import choose_rows, choose_rows_backward
from mini_bert.layers.cross_entropy import cross_entropy, cross_entropy_backward
from mini_bert.layers.dropout import draw_keep, dropout, dropout_backward
from mini_bert.layers.embedding import PositionEmbedding
from mini_bert.layers.encoder import Encoder, Recompute
from mini_bert.layers.feed_forward import FeedForward
from mini_bert.layers.initialisers import frequencies, neighbour_weights, normal, sinusoids
from mini_bert.layers.layer_norm import LayerNorm
from mini_bert.layers.softmax import softmax, softmax_backward

LAYERS = Path(mini_bert.layers.__file__).parent
rng = np.random.default_rng(0)


def bound(layer, dtype=np.float64):
    bind(layer, dtype=dtype, seed=0)
    return layer


def test_attention_is_the_formula():
    """Multi-head attention equals a version with loops over batch, head and token."""
    B, T, A, d = 2, 5, 3, 7
    H = A * d
    layer = bound(MultiHeadAttention(H, A))
    x = rng.normal(size=(B, T, H))
    mask = np.array([[1, 1, 1, 1, 1], [1, 1, 0, 0, 0]], bool)
    y, cache = layer.forward(x, Run(), mask=mask[:, None, None, :])

    w_q, w_k, w_v = np.split(layer.qkv.w.data, 3, axis=1)
    b_q, b_k, b_v = np.split(layer.qkv.b.data, 3)
    joined = np.zeros((B, T, H))
    for b in range(B):
        q, k, v = (np.einsum("ti,io->to", x[b], w) + bias for w, bias in ((w_q, b_q), (w_k, b_k), (w_v, b_v)))
        for a in range(A):
            part = slice(a * d, (a + 1) * d)
            for i in range(T):
                seen = [j for j in range(T) if mask[b, j]]
                fit = np.array([math.exp(q[i, part] @ k[j, part] / math.sqrt(d)) for j in seen])
                weights = fit / fit.sum()
                np.testing.assert_allclose(cache.attended.probs[b, a, i, seen], weights, rtol=1e-12)
                joined[b, i, part] = sum(w * v[j, part] for w, j in zip(weights, seen, strict=True))
    wanted = joined @ layer.output.w.data + layer.output.b.data
    np.testing.assert_allclose(y, wanted, rtol=1e-10, atol=1e-12)


def test_attention_weights_are_probabilities_and_padding_gets_none():
    """Rows sum to 1; a padded token has weight exactly 0; if all keys are masked, the output is 0."""
    scores = rng.normal(size=(2, 3, 4, 4)).astype(np.float32)
    mask = np.array([[1, 1, 0, 0], [0, 0, 0, 0]], bool)[:, None, None, :]
    context, cache = attend(scores, scores, Run(), mask)
    np.testing.assert_allclose(cache.probs[0].sum(-1), 1, rtol=1e-6)
    assert (cache.probs[0, ..., 2:] == 0).all()
    assert (cache.probs[1] == 0).all() and (context[1] == 0).all()


def test_masked_tokens_stay_hidden_whatever_the_scores():
    """Even where all unmasked scores are hugely negative, a masked token gets weight exactly 0."""
    scores = np.full((1, 1, 2, 3), -1e30, np.float32)
    scores[..., 2] = 50
    _, cache = attend(scores, np.ones((1, 1, 3, 2), np.float32), Run(), np.array([True, True, False]))
    np.testing.assert_array_equal(cache.probs[0, 0], [[0.5, 0.5, 0]] * 2)


def test_dropouts_of_a_block_are_set_apart():
    """p is for the outputs of the two sub-layers, attention_p for the attention weights; each takes effect."""
    block = bound(TransformerBlock(48, 4, 64, p=0.5, attention_p=0.1))
    x = rng.normal(size=(8, 16, 48))
    _, cache = block.forward(x, Run(1, train=True))
    shares = [
        1 - m.keep.mean() for m in (cache.attention_dropped, cache.output_dropped, cache.attention.attended.dropped)
    ]
    np.testing.assert_allclose(shares, [0.5, 0.5, 0.1], atol=0.02)
    np.testing.assert_allclose(block.forward(x, Run())[0].mean(-1), 0, atol=1e-12)


def test_blocks_and_their_halves_draw_different_masks():
    """Each block of an encoder has its own random numbers, and so do each half of it, each sequence and each head."""
    encoder = bound(Encoder([TransformerBlock(5, 5, 11, p=0.5) for _ in range(2)]))
    _, caches = encoder.forward(rng.normal(size=(4, 5, 5)), Run(1, train=True))
    masks = [dropped.keep for cache in caches for dropped in (cache.attention_dropped, cache.output_dropped)]
    looks = [cache.attention.attended.dropped.keep for cache in caches]  # (4,5,5,5)
    squares = [*np.concatenate(masks), *np.concatenate(looks).reshape(-1, 5, 5)]
    assert len({square.tobytes() for square in squares}) == len(squares) == 4 * 4 + 2 * 4 * 5


def test_feed_forward_starts_with_the_asked_spread():
    """std is used for both matrices."""
    layer = bound(FeedForward(64, 96, std=0.3))
    np.testing.assert_allclose([layer.expand.w.data.std(), layer.contract.w.data.std()], 0.3, rtol=0.05)


def test_layer_norm_of_a_known_vector():
    """(−1, 1) has mean 0 and variance 1: the default ε = 1e-5 shows in the sixth digit."""
    y, _ = bound(LayerNorm(2)).forward(np.array([-1.0, 1.0]), Run())
    np.testing.assert_allclose(y, np.array([-1, 1]) / math.sqrt(1 + 1e-5), rtol=1e-12)


def test_a_row_chosen_twice_collects_twice():
    """Gradients of repeated rows add up."""
    _, cache = choose_rows(np.zeros((2, 3, 1)), np.array([4, 4, 0]))
    dx = choose_rows_backward(np.array([[1.0], [10.0], [100.0]]), cache)
    np.testing.assert_array_equal(dx[:, :, 0], [[100, 0, 0], [0, 11, 0]])


def test_heads_must_divide_the_width():
    """The error names both numbers."""
    with pytest.raises(ValueError, match="the width, 12, is not divisible by the number of heads, 5"):
        MultiHeadAttention(12, 5)


def test_layer_norm_projects_out_shift_and_scale():
    """Shifting or scaling x changes nothing, so dx has no component along 1 or along x̂ (with ε = 0)."""
    layer = bound(LayerNorm(7, eps=0.0))
    layer.gamma.data[...] = rng.normal(size=7)
    x, dy = rng.normal(3, 5, (2, 3, 7)), rng.normal(size=(2, 3, 7))
    y, cache = layer.forward(x, Run())
    dx = layer.backward(dy, cache, Run())
    np.testing.assert_allclose(layer.forward(3 * x + 2, Run())[0], y, rtol=1e-12)
    np.testing.assert_allclose(dx.sum(-1), 0, atol=1e-14)
    np.testing.assert_allclose((dx * cache.x_hat).sum(-1), 0, atol=1e-13)


def test_softmax_survives_large_numbers():
    """The maximum is subtracted first: no overflow, and a shift changes nothing."""
    x = np.array([[1000.0, 1001.0], [-1000.0, -1001.0]])
    p, _ = softmax(x)
    np.testing.assert_allclose(p[0], p[1][::-1])
    np.testing.assert_allclose(p[0], [1 / (1 + math.e), math.e / (1 + math.e)])
    assert np.abs(softmax_backward(rng.normal(size=(2, 2)), p).sum(-1)).max() < 1e-15


def test_dropout_keeps_the_mean_and_draws_the_asked_share():
    """About p of the numbers are 0, the others x/(1−p); the mask is the same in both dtypes."""
    x = np.ones(200_000, np.float32)
    y, mask = dropout(x, 0.3, Run(seed=1, train=True))
    assert abs((y == 0).mean() - 0.3) < 0.005
    assert abs(y.mean() - 1) < 0.01
    np.testing.assert_allclose(y[y != 0], 1 / 0.7, rtol=1e-6)
    np.testing.assert_array_equal(dropout_backward(x, mask), y)
    twin, _ = dropout(x.astype(np.float64), 0.3, Run(seed=1, train=True))
    np.testing.assert_array_equal(twin == 0, y == 0)


def test_a_mask_depends_on_where_a_row_is_and_not_on_what_is_around_it():
    """For parts of a batch, rows in any order, single rows and tiles, the mask is that of the whole batch."""
    x, run = np.ones((4, 3, 21), np.float32), Run((5, 2), train=True)
    whole = dropout(x, 0.4, run)[1].keep
    part = dropout(x[:2], 0.4, Run((5, 2), train=True, first=2))[1].keep
    np.testing.assert_array_equal(part, whole[2:])
    chosen = np.array([11, 3, 3, 7])
    some = dropout(x[:, 0], 0.4, run, np.divmod(chosen, 3))[1].keep
    np.testing.assert_array_equal(some, whole.reshape(12, 21)[chosen])
    keys = run.keys(*np.indices((4, 3), sparse=True)).ravel()
    for low, high in ((0, 21), (0, 5), (5, 14), (8, 16), (14, 21), (3, 3)):
        np.testing.assert_array_equal(draw_keep(keys, range(low, high), 0.4), whole.reshape(12, 21)[:, low:high])
    others = (run.fork(0), run.fork(1), Run((5,), True), Run((5, 3), True), Run((5, 2), True, first=1))
    assert len({dropout(x, 0.4, other)[1].keep.tobytes() for other in (run, *others)}) == 6
    assert len({row.tobytes() for row in whole.reshape(12, 21)}) == 12


def test_masks_in_many_rows_and_in_few(monkeypatch):
    """The mask does not depend on how many rows are drawn at a time, also where one byte does not decide (here, for
    half of the dropped ones)."""
    keys, p = Run(3).keys(np.arange(50)), 0.5 / 256
    whole = draw_keep(keys, range(100), p)
    monkeypatch.setattr("mini_bert.layers.dropout.WORDS", 30)
    np.testing.assert_array_equal(draw_keep(keys, range(100), p), whole)
    np.testing.assert_array_equal(draw_keep(keys[7:9], range(13, 90), p), whole[7:9, 13:90])
    assert 0 < (~whole).sum() < 30  # 10 of the 5,000 are expected


def test_dropout_is_absent_at_inference():
    """Outside training, the very same array is returned."""
    x = np.ones(5)
    assert dropout(x, 0.5, Run())[0] is x


def test_sinusoids_make_neighbours_one_rotation():
    """One matrix maps the row of position t to that of position t+1, for every t."""
    layer = bound(PositionEmbedding(16, 8, sinusoids(0.14)))
    table = layer.table.data
    rotation, *_ = np.linalg.lstsq(table[:-1], table[1:], rcond=None)
    np.testing.assert_allclose(table[:-1] @ rotation, table[1:], atol=1e-12)
    assert abs(np.abs(table).max() - 0.14) < 1e-3


def test_cross_entropy_of_known_cases():
    """Uniform logits cost ln V; a confident right answer costs nothing, a confident wrong one its margin."""
    uniform, _ = cross_entropy(np.zeros((3, 11)), np.array([0, 5, 10]))
    assert uniform == pytest.approx(math.log(11))
    logits = np.zeros((1, 5))
    logits[0, 2] = 1000
    assert cross_entropy(logits, np.array([2]))[0] == 0
    assert cross_entropy(logits, np.array([1]))[0] == pytest.approx(1000)


def test_parts_of_a_batch_add_up_to_its_mean():
    """With the count of the whole batch, losses and gradients of two halves add up to those of the whole."""
    logits, targets = rng.normal(size=(6, 11)), rng.integers(0, 11, 6)
    whole, cache = cross_entropy(logits, targets)
    halves = [cross_entropy(logits[part], targets[part], count=6) for part in (slice(0, 2), slice(2, 6))]
    assert sum(loss for loss, _ in halves) == pytest.approx(whole)
    gradients = np.concatenate([cross_entropy_backward(1.0, half) for _, half in halves])
    np.testing.assert_allclose(gradients, cross_entropy_backward(1.0, cache), rtol=1e-12)


@pytest.mark.parametrize(
    ("logits", "targets", "message"),
    [
        (np.zeros((2, 5)), [1, 5], r"targets lie in \[1, 5\], expected ids from 0 to 4"),
        (np.zeros((2, 5)), [1], r"targets have shape \(1,\), expected \(2,\): there are 2 rows"),
        (np.zeros((0, 5)), [], "no row was chosen"),
    ],
)
def test_cross_entropy_refuses(logits, targets, message):
    """Targets outside the vocabulary, the wrong number of targets, and none at all."""
    with pytest.raises(ValueError, match=message):
        cross_entropy(logits, np.array(targets, int))


def test_choose_rows_counts_tokens_of_all_sequences():
    """Row b·T + t is token t of sequence b."""
    x = rng.normal(size=(2, 3, 7))
    np.testing.assert_array_equal(choose_rows(x, np.array([4, 0]))[0], [x[1, 1], x[0, 0]])


@pytest.mark.parametrize("chosen", [[6, 2, 2, 0], [7, 8, 9], [], list(range(10))], ids=str)
@pytest.mark.parametrize("mask", [None, "padding", "causal", "one for each sequence"])
@pytest.mark.parametrize("p", [0.0, 0.3])
def test_chosen_rows_are_those_of_all_rows(chosen, mask, p):
    """The shortcut is exact, also with dropout: output and all gradients equal those of the full computation."""
    rng = np.random.default_rng(0)
    x, chosen = rng.normal(size=(2, 5, 12)), np.array(chosen, np.intp)
    masks = {
        None: None,
        "padding": np.array([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]], bool)[:, None, None, :],
        "causal": np.tri(5, dtype=bool),
        "one for each sequence": rng.random((2, 1, 5, 5)) < 0.7,
    }
    encoder = Encoder([TransformerBlock(12, 3, 17, p=p) for _ in range(2)])
    flat = bind(encoder, dtype=np.float64, seed=0)
    dy, run = rng.normal(size=(len(chosen), 12)), Run(1, train=True)

    everything, caches = encoder.forward(x, run, mask=masks[mask])
    expected, chose = choose_rows(everything, chosen)
    expected_dx = encoder.backward(choose_rows_backward(dy, chose), caches, Run())
    expected_gradients = flat.grad.copy()

    flat.grad[...] = 0
    y, caches = encoder.forward(x, run, mask=masks[mask], chosen=chosen)
    dx = encoder.backward(dy, caches, Run())
    np.testing.assert_allclose(y, expected, atol=1e-12)
    np.testing.assert_allclose(dx, expected_dx, atol=1e-12)
    np.testing.assert_allclose(flat.grad, expected_gradients, atol=1e-12)


def test_a_cache_is_used_up_once():
    """The encoder frees caches as it goes; a second backward with the same cache is an error that says so."""
    encoder = bound(Encoder([TransformerBlock(6, 2, 11), Recompute(TransformerBlock(6, 2, 11))]))
    y, cache = encoder.forward(rng.normal(size=(1, 3, 6)), Run())
    encoder.backward(y, cache, Run())
    with pytest.raises(ValueError, match="already used by a backward pass"):
        encoder.backward(y, cache, Run())


@pytest.mark.parametrize(
    "name",
    sorted(path.stem for path in LAYERS.glob("*.py") if "__main__" in path.read_text(encoding="utf-8")),
)
def test_each_layer_shows_itself(name, capsys):
    """`python -m mini_bert.layers.<name>` runs and prints a small example."""
    runpy.run_path(str(LAYERS / f"{name}.py"), run_name="__main__")
    assert len(capsys.readouterr().out) > 80


@pytest.mark.parametrize("heads", [1, 2, 4])
def test_heads_start_by_looking_at_their_neighbours(heads):
    """Head 0 attends to the previous token, head 1 to the next, then two before, two after, with the requested
    score."""
    d, T, amplitude = 16, 12, 0.2
    H = heads * d
    rng = np.random.default_rng(0)
    layer = MultiHeadAttention(H, heads, bias=False)
    wanted = neighbour_weights(H, heads, amplitude, score=6.0)
    layer.qkv.w.init = lambda rng, shape: rng.normal(0.0, H**-0.5, shape) + wanted
    bind(layer, dtype=np.float64, seed=1)
    x = normal(0.1, silent=d)(rng, (1, T, H)) + sinusoids(amplitude, even=d)(rng, (T, H))
    _, cache = layer.forward(x, Run())
    scores = (cache.q @ cache.k.swapaxes(-1, -2) * layer.scale)[0]
    for head, offset in enumerate((-1, 1, -2, 2)[:heads]):
        inside = [t for t in range(T) if 0 <= t + offset < T]
        assert [int(cache.attended.probs[0, head, t].argmax()) for t in inside] == [t + offset for t in inside]
        assert np.mean([scores[head, t, t + offset] for t in inside]) == pytest.approx(6.0, abs=0.7)


def test_even_waves_say_exactly_where():
    """Different positions have a dot product of 0, up to as many positions as there are coordinates."""
    table = sinusoids(1.0, even=16)(np.random.default_rng(0), (16, 40))[:, :16]
    np.testing.assert_allclose(table @ table.T, 8 * np.eye(16), atol=1e-12)
    assert frequencies(40, 16)[8:].tolist() == frequencies(40)[8:].tolist()


def test_silent_columns_start_at_zero():
    drawn = normal(0.5, silent=3)(np.random.default_rng(0), (1000, 5))
    assert not drawn[:, :3].any() and drawn[:, 3:].std() == pytest.approx(0.5, rel=0.05)
