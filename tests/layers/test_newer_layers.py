"""The layers of GPT-2 and ModernBERT against versions that are written another way."""

import math

import numpy as np
import pytest

from mini_bert.layers.attention import MultiHeadAttention
from mini_bert.layers.base import Run, Unchanged, bind
from mini_bert.layers.feed_forward import FeedForward
from mini_bert.layers.gated_feed_forward import GatedFeedForward
from mini_bert.layers.initialisers import cut_normal
from mini_bert.layers.layer_norm import LayerNorm
from mini_bert.layers.masks import both, causal, local
from mini_bert.layers.past import PastAttention
from mini_bert.layers.pre_norm_block import PreNormBlock
from mini_bert.layers.rotary import RotaryAttention, rotate, waves


def test_masks_say_who_sees_whom():
    """Compared with loops, for every size up to 6."""
    for T in range(1, 7):
        np.testing.assert_array_equal(causal(T), np.tri(T, dtype=bool))
        for reach in range(7):
            expected = [[abs(i - j) <= reach for j in range(T)] for i in range(T)]
            np.testing.assert_array_equal(local(T, reach), expected)
        for earlier in range(4):
            expected = [[j <= i + earlier for j in range(T + earlier)] for i in range(T)]
            np.testing.assert_array_equal(causal(T, T + earlier), expected)


def test_a_mask_takes_little_memory():
    """2T − 1 booleans for T² of them; padding needs an array of its own."""
    mask = causal(1000)
    whole = mask
    while whole.base is not None:
        whole = whole.base
    assert mask.shape == (1000, 1000) and whole.nbytes == 1999
    padding = np.array([[True, True, False]])[:, None, None]
    assert both(causal(3), None).shape == (3, 3)
    np.testing.assert_array_equal(both(causal(3), padding)[0, 0], [[1, 0, 0], [1, 1, 0], [1, 1, 0]])


def test_a_rotation_multiplies_complex_numbers():
    """With coordinates i and i + d/2 as real and imaginary part, position t multiplies by exp(i t ω)."""
    d, T, theta = 10, 7, 50.0
    x = np.random.default_rng(0).normal(size=(2, 3, T, d))
    z = x[..., : d // 2] + 1j * x[..., d // 2 :]
    omega = np.array([theta ** (-2 * i / d) for i in range(d // 2)])
    z = z * np.exp(1j * np.arange(T)[:, None] * omega)
    rotate(x, *waves(theta, d, T, np.float64))
    np.testing.assert_allclose(x, np.concatenate([z.real, z.imag], -1), rtol=1e-13, atol=1e-14)


def test_rotary_scores_depend_on_distance_alone():
    """A text that starts later in the sequence has the same outputs, if it sees only itself."""
    layer = RotaryAttention(12, 2, theta=30.0)
    bind(layer, dtype=np.float64, seed=0)
    x = np.random.default_rng(1).normal(size=(1, 5, 12))
    alone, _ = layer.forward(x, Run())
    later, _ = layer.forward(np.concatenate([np.ones((1, 3, 12)), x], 1), Run(), mask=np.arange(8) >= 3)
    np.testing.assert_allclose(later[:, 3:], alone, rtol=1e-11, atol=1e-13)
    plain = MultiHeadAttention(12, 2)
    bind(plain, dtype=np.float64, seed=0)
    assert np.abs(plain.forward(x, Run())[0] - alone).max() > 1e-2  # the same weights without rotation


def test_the_slowest_rotation_of_a_long_text_is_exact():
    """The angle of position 8,000 is computed in float64, also for a float32 model."""
    cos, sin = waves(10_000.0, 4, 8001, np.float32)
    assert cos.dtype == np.float32
    for i, omega in enumerate((1.0, 0.01)):
        assert cos[8000, i] == pytest.approx(math.cos(8000 * omega), abs=1e-7)
        assert sin[8000, i] == pytest.approx(math.sin(8000 * omega), abs=1e-7)


def test_odd_heads_cannot_be_rotated():
    with pytest.raises(ValueError, match="heads of even width, but 15 / 3 = 5"):
        RotaryAttention(15, 3, 10.0)


def test_a_gated_network_by_loops():
    layer = GatedFeedForward(3, 5, "silu")
    bind(layer, dtype=np.float64, seed=0)
    rng = np.random.default_rng(2)
    for param in layer.named_params().values():
        param.data[...] = rng.normal(size=param.shape)
    x = rng.normal(size=(2, 3))
    w, b, out, c = layer.expand.w.data, layer.expand.b.data, layer.contract.w.data, layer.contract.b.data
    expected = np.empty((2, 3))
    for n in range(2):
        z = []
        for i in range(5):
            u = sum(x[n, h] * w[h, i] for h in range(3)) + b[i]
            gate = sum(x[n, h] * w[h, 5 + i] for h in range(3)) + b[5 + i]
            z.append(u / (1 + math.exp(-u)) * gate)
        expected[n] = [sum(z[i] * out[i, h] for i in range(5)) + c[h] for h in range(3)]
    np.testing.assert_allclose(layer.forward(x, Run())[0], expected, rtol=1e-12)


@pytest.mark.parametrize("chosen", [None, np.array([7, 0, 7])])
def test_a_pre_norm_block_is_its_parts(chosen):
    """y = x' + F(LN(x')), x' = x + A(LN(x)), each part run on its own."""
    norm, attention, second, network = LayerNorm(10), PastAttention(10, 2), LayerNorm(10), FeedForward(10, 13, "gelu")
    block = PreNormBlock(norm, attention, second, network)
    bind(block, dtype=np.float64, seed=0)
    x, run = np.random.default_rng(3).normal(size=(2, 5, 10)), Run()
    middle = x + attention.forward(norm.forward(x, run)[0], run, mask=causal(5))[0]
    expected = middle + network.forward(second.forward(middle, run)[0], run)[0]
    found, _ = block.forward(x, run, mask=causal(5), chosen=chosen)
    wanted = expected if chosen is None else expected.reshape(10, 10)[chosen]
    np.testing.assert_allclose(found, wanted, rtol=1e-11, atol=1e-12)


def test_without_sublayers_gradients_pass_unchanged():
    """The residual stream is a plain sum: if both sublayers are 0, y = x and dx = dy."""
    block = PreNormBlock(Unchanged(), PastAttention(6, 2), LayerNorm(6), GatedFeedForward(6, 5))
    bind(block, dtype=np.float64)  # all weights 0
    x, dy = np.random.default_rng(4).normal(size=(2, 2, 3, 6))
    y, cache = block.forward(x, Run())
    np.testing.assert_array_equal(y, x)
    np.testing.assert_array_equal(block.backward(dy, cache, Run()), dy)


def test_a_norm_without_a_shift():
    with_shift, without = LayerNorm(7), LayerNorm(7, bias=False)
    for layer in (with_shift, without):
        bind(layer, dtype=np.float64, seed=0)
        layer.gamma.data[...] = np.arange(7.0)
    x = np.random.default_rng(5).normal(size=(3, 7))
    np.testing.assert_array_equal(with_shift.forward(x, Run())[0], without.forward(x, Run())[0])
    assert list(without.named_params()) == ["gamma"]


def test_cut_normal_has_no_tails():
    """Nothing beyond the cut; what remains has the spread of a Gaussian cut at 2σ, 0.8796 σ."""
    drawn = cut_normal(0.5, 2.0)(np.random.default_rng(0), (300, 200))
    assert np.abs(drawn).max() <= 1.0
    assert drawn.std() == pytest.approx(0.8796 * 0.5, rel=0.01)
