"""Packed caches: the same function, half the memory, and the same gradients except for rounding."""

import numpy as np
import pytest

from mini_bert.layers.base import Run, bind
from mini_bert.layers.block import TransformerBlock
from mini_bert.layers.packed import SMALL, Packed, PackedCache, pack
from mini_bert.models.config import MiniBertConfig
from mini_bert.models.mini_bert import MiniBERT


def arrays(tree):
    if isinstance(tree, np.ndarray):
        return [tree]
    return [a for branch in tree for a in arrays(branch)] if isinstance(tree, tuple | list) else []


def owners(tree):
    found = {}
    for array in arrays(tree):
        while isinstance(array.base, np.ndarray):
            array = array.base
        found[id(array)] = array.nbytes
    return sum(found.values())


@pytest.mark.parametrize(("kind", "error"), [("bfloat16", 4e-3), ("float16", 5e-4)])
@pytest.mark.parametrize("p", [0.0, 0.2])
def test_a_packed_block_is_the_block_but_for_rounding(kind, error, p):
    """y is bit-identical; gradients differ by the rounding of the cached arrays, and do differ."""
    x, dy = np.random.default_rng(0).normal(size=(2, 3, 11, 34)).astype(np.float32)
    mask = np.arange(11) < np.array([11, 7, 4])[:, None, None, None]
    found = []
    for wrap in (lambda block: block, lambda block: Packed(block, kind)):
        block = wrap(TransformerBlock(34, heads=2, inner=130, p=p))
        grad = bind(block, seed=1).grad
        y, cache = block.forward(x, Run(3, train=True), mask=mask)
        found.append((y, block.backward(dy, cache, Run()), grad))
    (y, dx, dw), (packed_y, packed_dx, packed_dw) = found
    np.testing.assert_array_equal(packed_y, y)
    for exact, rounded in ((dx, packed_dx), (dw, packed_dw)):
        assert 0 < np.linalg.norm(rounded - exact) / np.linalg.norm(exact) < error


@pytest.mark.parametrize(("gain", "error"), [(1, 4.5e-3), (4, 1.5e-2)])
def test_a_packed_block_with_lean_attention(gain, error):
    """Weights are recomputed from rounded arrays: as accurate as plain attention for small scores, less so for large
    ones."""
    x, dy = np.random.default_rng(0).normal(size=(2, 2, 300, 34)).astype(np.float32)
    found = []
    for wrap in (lambda block: block, Packed):
        inner = TransformerBlock(34, heads=2, inner=130)
        inner.attention.method = "lean"
        block = wrap(inner)
        bind(block, seed=1)
        inner.attention.qkv.w.data[:, :68] *= gain**0.5  # q and k, so that scores grow with the gain
        _, cache = block.forward(x, Run())
        if wrap is Packed:
            assert cache.tree.attention.attended.logsumexp.dtype == np.float32
        else:
            largest = np.abs(cache.attention.attended.logsumexp).max()
            assert largest < 12 if gain == 1 else largest > 15
        block.backward(dy, cache, Run())
        found.append(inner.attention.qkv.w.grad.copy())
    exact, rounded = found
    assert 0 < np.linalg.norm(rounded - exact) / np.linalg.norm(exact) < error


def test_half_the_memory_and_shared_arrays_once():
    block = TransformerBlock(64, heads=4, inner=256)
    bind(block, seed=0)
    x = np.random.default_rng(0).normal(size=(4, 32, 64)).astype(np.float32)
    _, cache = block.forward(x, Run())
    packed = pack(cache, "bfloat16")
    assert owners(packed.wholes) + owners(packed.tree) < 0.52 * owners(cache)


def test_the_tree_comes_back_with_its_names_views_and_small_things():
    whole = np.arange(2.0 * SMALL, dtype=np.float32).reshape(2, SMALL)
    apart = np.ones((SMALL, 40), np.float32)[:, 3]  # a thin slice of much: kept by itself
    small, whole_numbers = np.ones(3, np.float32), np.arange(2 * SMALL)
    tree = (whole[1], [whole, None], {"not": "looked into"}, apart, small, whole_numbers)
    packed = pack(tree, "float16")
    assert len(packed.wholes) == 2 and packed.wholes[1].size == SMALL
    half, (both, none), other, thin, little, numbers = packed.unpacked()
    np.testing.assert_array_equal(half, whole[1])
    np.testing.assert_array_equal(both, whole)
    np.testing.assert_array_equal(thin, apart)
    assert np.shares_memory(half, both)
    assert none is None and other is tree[2] and little is small and numbers is whole_numbers


def test_a_model_with_packed_blocks_trains_and_can_be_looked_into():
    config = MiniBertConfig(
        vocab_size=97, hidden_size=24, num_layers=2, num_heads=2, intermediate_size=48, max_seq_length=32
    )
    plain, packed = MiniBERT(config), MiniBERT(config)
    packed.encoder.blocks = [Packed(block) for block in packed.encoder.blocks]
    assert list(packed.named_params()) == list(plain.named_params())
    ids = np.random.default_rng(0).integers(5, 97, (4, 32))
    rows = np.arange(0, 128, 5)
    for model in (plain, packed):
        _, cache = model.loss(ids, rows, ids.ravel()[rows])
        model.loss_backward(cache)
    exact, rounded = plain.flat.grad, packed.flat.grad
    assert 0 < np.linalg.norm(rounded - exact) / np.linalg.norm(exact) < 5e-3
    (_, cache), (_, packed_cache) = plain.encode(ids), packed.encode(ids)
    assert isinstance(packed_cache.blocks[0], PackedCache)
    np.testing.assert_allclose(packed_cache.hidden_states()[1], cache.hidden_states()[1], atol=0.02)
    np.testing.assert_allclose(packed_cache.attention_weights()[1], cache.attention_weights()[1], atol=0.01)


def test_numbers_beyond_float16_become_its_largest():
    """They become 65,504: gradients are finite, and wrong only where such a number was."""
    x = np.random.default_rng(0).normal(size=2 * SMALL).astype(np.float32)
    x[:3] = 1e6, -7e4, 65_504
    (found,) = pack((x,), "float16").unpacked()
    assert found[:3].tolist() == [65_504, -65_504, 65_504]
    np.testing.assert_allclose(found[3:], x[3:], rtol=1e-3, atol=1e-7)
    (found,) = pack((x,), "bfloat16").unpacked()
    np.testing.assert_allclose(found, x, rtol=2**-8)


def test_an_unknown_kind_is_refused():
    with pytest.raises(ValueError, match="kind is 'float8'"):
        Packed(TransformerBlock(8, 2, 8), "float8")
