"""Lean attention is attention: tiles give the same outputs and gradients, with memory that grows linearly with the
length."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mini_bert.data.generator import Batch
from mini_bert.layers.attention import attend, attend_backward
from mini_bert.layers.base import Pool, Run, bind
from mini_bert.layers.dropout import dropout
from mini_bert.layers.efficient_attention import EfficientAttention
from mini_bert.layers.encoder import Recompute
from mini_bert.layers.lean_attention import LONG, LeanCache, is_lean, lean_attend, lean_attend_backward
from mini_bert.layers.softmax import softmax, softmax_backward
from mini_bert.models.config import MINI_BERT_CONFIG, MiniBertConfig
from mini_bert.models.mini_bert import MiniBERT
from mini_bert.training.parallel import Team

ROOT = Path(__file__).parents[2]
B, A, D = 2, 3, 7
TOLERANCE = {np.float32: 1e-5, np.float64: 1e-12}


def some(M, T, dtype=np.float64, spread=1.0):
    """q, k, v and dcontext as the layer passes them: views with the heads side by side in memory"""
    rng = np.random.default_rng(0)
    shapes = [M, T, T, M]
    return [(spread * rng.normal(size=(B, n, A, D))).astype(dtype).transpose(0, 2, 1, 3) for n in shapes]


def masks(M, T):
    rng = np.random.default_rng(1)
    lengths = np.array([T, max(1, T // 3)])
    full = rng.random((B, 1, M, T)) < 0.6
    full[0, 0, M // 2] = False  # a row with nobody to look at
    return {
        "none": None,
        "padding": (np.arange(T) < lengths[:, None])[:, None, None, :],
        "one for all": np.arange(T) < max(1, T - 2),
        "full": full,
        "causal": np.tri(M, T, dtype=bool),
        "nobody": np.array([True, False])[:, None, None, None] & np.ones((B, 1, 1, T), bool),
        "a head each": rng.random((B, A, M, T)) < 0.6,
    }


def plain(q, k, v, dcontext, scale, mask, dropped):
    """Attention with the whole matrix and a given dropout mask; returns C, dq, dk, dv, P"""
    scores = q @ k.swapaxes(-1, -2) * scale
    seen = np.broadcast_to(True if mask is None else mask, scores.shape)
    probs, _ = softmax(np.where(seen, scores, np.finfo(scores.dtype).min))
    probs = np.where(seen.any(-1, keepdims=True), probs, 0)
    weights = probs * dropped
    dscores = softmax_backward((dcontext @ v.swapaxes(-1, -2)) * dropped, probs) * scale
    dq, dk, dv = dscores @ k, dscores.swapaxes(-1, -2) @ q, weights.swapaxes(-1, -2) @ dcontext
    return weights @ v, dq, dk, dv, probs


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("p", [0.0, 0.3])
@pytest.mark.parametrize(
    ("M", "T", "tile", "mask"),
    [
        (1, 1, 512, "none"),
        (1, 1, 1, "nobody"),
        (3, 5, 1, "full"),
        (12, 12, 4, "none"),
        (13, 13, 13, "padding"),
        (29, 11, 8, "causal"),
        *((11, 13, 5, mask) for mask in masks(2, 2)),
    ],
)
def test_the_numbers_and_gradients_of_plain_attention(M, T, tile, mask, p, dtype):
    """For any tile size, one token or many, any mask and dropout, they agree to 1e-5 in float32 and 1e-12 in
    float64."""
    *inputs, dcontext = some(M, T, dtype)
    scale, who = D**-0.5, masks(M, T)[mask]
    context, cache = lean_attend(*inputs, scale, Run(3, train=True), who, p, tile)
    gradients = lean_attend_backward(dcontext, cache, Run())
    dropped = dropout(np.ones((B, A, M, T), dtype), p, Run(3, train=True))[0]  # what plain attention would draw
    wanted = plain(*inputs, dcontext, scale, who, dropped)
    for found, expected in zip((context, *gradients, cache.probs), wanted, strict=True):
        assert found.dtype == dtype
        np.testing.assert_allclose(found, expected, rtol=0, atol=TOLERANCE[dtype] * max(1, np.abs(expected).max()))


def test_the_formula_here_is_the_plain_layer():
    """The reference above equals attend and attend_backward if there is no dropout."""
    q, k, v, dcontext = some(5, 5)
    mask = masks(5, 5)["full"]
    context, cache = attend(q @ k.swapaxes(-1, -2), v, Run(), mask)
    dscores, dv = attend_backward(dcontext, cache)
    wanted = plain(q, k, v, dcontext, 1.0, mask, np.ones(()))
    for one, other in zip((context, dscores @ k, dscores.swapaxes(-1, -2) @ q, dv, cache.probs), wanted, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-14)


@pytest.mark.parametrize("spread", [30.0, 300.0])
def test_scores_far_beyond_what_exp_can_take(spread):
    """With scores in the thousands that rise from tile to tile, the running maximum keeps every exponent at most 0."""
    q, k, v, dcontext = some(13, 13, np.float32, spread)
    context, cache = lean_attend(q, k, v, 1.0, Run(), tile=3)
    assert np.isfinite(context).all() and np.abs(cache.logsumexp).max() > 1000
    exact = plain(*(x.astype(np.float64) for x in (q, k, v, dcontext)), 1.0, None, np.ones(()))
    np.testing.assert_allclose(context, exact[0], rtol=1e-2, atol=1e-2 * spread)
    for gradient in lean_attend_backward(dcontext, cache, Run()):
        assert np.isfinite(gradient).all()


def test_masked_keys_stay_hidden_whatever_the_scores():
    """A masked score of 50 next to unmasked ones of −1e30, in another tile or the same, gets weight 0."""
    q = np.ones((1, 1, 1, 1), np.float32)
    k = np.array([-1e30, 50, -1e30], np.float32).reshape(1, 1, 3, 1)
    v = np.array([1, 77, 3], np.float32).reshape(1, 1, 3, 1)
    for tile in (1, 2, 3):
        context, _ = lean_attend(q, k, v, 1.0, Run(), np.array([True, False, True]), tile=tile)
        assert context.item() == 2


def test_hidden_tiles_are_not_visited():
    """NaN behind a padding mask does no harm, because these tiles are skipped, also in backward."""
    q, k, v, dcontext = some(8, 8)
    k[:, :, 4:], v[:, :, 4:] = np.nan, np.nan
    context, cache = lean_attend(q, k, v, 1.0, Run(), np.arange(8) < 4, tile=4)
    dq, dk, dv = lean_attend_backward(dcontext, cache, Run())
    np.testing.assert_allclose(context, lean_attend(q, k[:, :, :4], v[:, :, :4], 1.0, Run())[0], atol=1e-12)
    assert np.isfinite(dq).all() and not dk[:, :, 4:].any() and not dv[:, :, 4:].any()


def layers(p=0.0, **settings):
    """The same layer twice: plain, and lean with tiles of four"""
    pair = []
    for method in ("plain", "lean"):
        layer = EfficientAttention(A * D, A, p=p)
        layer.method, layer.tile = method, 4
        bind(layer, **settings, seed=0)
        pair.append(layer)
    return pair


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("chosen", [None, [], [6, 2, 2, 0], list(range(13, 26))], ids=str)
@pytest.mark.parametrize("mask", ["none", "padding", "full", "causal"])
@pytest.mark.parametrize("p", [0.0, 0.3])
def test_the_layer_gives_the_same_by_either_method(mask, chosen, dtype, p):
    """Output, input gradient and all weight gradients agree, for all rows and for chosen ones, also with dropout."""
    rng, T = np.random.default_rng(0), 13
    x, keywords = rng.normal(size=(B, T, A * D)).astype(dtype), {"mask": masks(T, T)[mask]}
    if chosen is not None:
        keywords["chosen"] = np.array(chosen, np.intp)
    outcomes = []
    for layer in layers(p, dtype=dtype):
        y, cache = layer.forward(x, Run(1, train=True), **keywords)
        dy = np.random.default_rng(1).normal(size=y.shape).astype(dtype)
        outcomes.append((y, layer.backward(dy, cache, Run()), *(p.grad for p in layer.named_params().values())))
        assert isinstance(cache.attended, LeanCache) == (layer.method == "lean")
    for one, other in zip(*outcomes, strict=True):
        largest = max(1.0, np.abs(one).max(initial=0))
        np.testing.assert_allclose(other, one, rtol=0, atol=TOLERANCE[dtype] * largest)


def test_dropout_draws_other_masks_for_every_run_tile_and_head():
    """About p of the weights are dropped, differently for each; the same run gives the same mask, so a replay
    is exact."""
    k, v = np.zeros((B, A, 60, 60)), np.broadcast_to(np.eye(60), (B, A, 60, 60))  # all are alike, and say who they are
    first, second, again = (
        lean_attend(k, k, v, 1.0, Run(seed, train=True), None, 0.25, 20)[0] * 60 * 0.75 for seed in (1, 2, 1)
    )
    assert abs((first == 0).mean() - 0.25) < 0.01
    np.testing.assert_array_equal(first, again)
    tiles = [m[b, a, i : i + 20, j : j + 20] for m in (first, second) for b in range(B) for a in range(A)
             for i in (0, 20, 40) for j in (0, 20, 40)]  # fmt: skip
    assert len({tile.tobytes() for tile in tiles}) == len(tiles)


def test_outside_training_nothing_is_dropped():
    q, k, v, _ = some(5, 5)
    context, cache = lean_attend(q, k, v, 1.0, Run(1), None, 0.5, 2)
    assert cache.drawn is None
    np.testing.assert_array_equal(context, lean_attend(q, k, v, 1.0, Run(), None, 0.0, 2)[0])


def test_the_method_is_chosen_by_length():
    """ "auto" uses lean for long sequences only; a method can also be set by name."""
    assert [is_lean("auto", T) for T in (1, 64, 128, LONG, LONG + 1, 8192)] == [False] * 4 + [True] * 2
    assert is_lean("lean", 1) and not is_lean("plain", 8192)
    with pytest.raises(ValueError, match="method is 'tiles', expected one of auto, plain, lean"):
        is_lean("tiles", 7)
    layer = EfficientAttention(2, 1)
    bind(layer, seed=0)
    for T in (LONG, LONG + 1):
        _, cache = layer.forward(np.ones((1, T, 2), np.float32), Run())
        assert isinstance(cache.attended, LeanCache) == (T > LONG)


def test_short_sequences_keep_their_bits():
    """Up to LONG tokens, "auto" is bit-identical to plain attention, including dropout."""
    x, outcomes = np.random.default_rng(0).normal(size=(2, 64, A * D)).astype(np.float32), []
    for method in ("auto", "plain"):
        layer = EfficientAttention(A * D, A, p=0.1)
        layer.method = method
        bind(layer, seed=0)
        y, cache = layer.forward(x, Run(1, train=True))
        outcomes.append((y, layer.backward(y, cache, Run())))
    for one, other in zip(*outcomes, strict=True):
        np.testing.assert_array_equal(one, other)


TINY = MiniBertConfig(31, 12, 2, 1, 13, LONG + 12)


def test_weights_are_computed_again_for_who_wants_to_see_them():
    """cache.attention_weights() gives those of plain attention; asking the cache by name says that lean attention keeps
    none."""
    ids, found = np.random.default_rng(0).integers(0, 31, (2, 23)), []
    mask = np.ones((2, 23), int)
    mask[1, 9:] = 0
    for method in ("plain", "lean"):
        model = MiniBERT(TINY, dtype=np.float64)
        for block in model.encoder.blocks:
            block.attention.method, block.attention.tile = method, 10
        _, cache = model.encode(ids, mask)
        found.append(cache.attention_weights())
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(other, one, atol=1e-12)
        assert not other[1, ..., 9:].any()
    _, cache = model.forward(ids, mask)
    assert "query_1" in cache and "attention_weights_1" not in cache
    with pytest.raises(KeyError, match=r"lean attention keeps none; cache\.attention_weights"):
        cache["attention_weights_1"]
    with pytest.raises(KeyError, match=r"no array 'attention_weights_2' in this cache; it has"):
        cache["attention_weights_2"]
    assert cache.attention_weights()[0].shape == (2, 1, 23, 23)


def gradient(model, method, threads=1, recompute=False, T=LONG + 11):
    """The gradient of a step with two parts, in float64"""
    rng = np.random.default_rng(0)
    for block in model.encoder.blocks:
        block.attention.method = method
    if recompute:
        model.encoder.blocks = [Recompute(block) for block in model.encoder.blocks]
    ids = rng.integers(5, 31, (2, 1, T))
    parts = [Batch(part, np.array([0, 7, T - 1]), np.array([5, 6, 7])) for part in ids]
    with Team(model, threads) as team:
        outcome = team.gradient(parts, seed=(4,))
    return outcome.loss, model.flat.grad.copy()


def test_a_long_model_by_itself_is_the_plain_one():
    """Beyond LONG, a model uses lean attention by default: loss and all gradients equal those of the plain one."""
    outcomes = [gradient(MiniBERT(TINY, dtype=np.float64), method) for method in ("plain", "auto")]
    assert outcomes[1][0] == pytest.approx(outcomes[0][0], abs=1e-12)
    np.testing.assert_allclose(outcomes[1][1], outcomes[0][1], atol=1e-12)


def test_threads_and_recomputing_change_nothing():
    """With dropout, recomputation is bit-identical; two threads differ only by the order of a sum."""
    config = replace(TINY, dropout=0.2)
    once, recomputed = (gradient(MiniBERT(config, dtype=np.float64), "auto", recompute=r) for r in (False, True))
    assert once[0] == recomputed[0]
    np.testing.assert_array_equal(once[1], recomputed[1])
    loss, shared = gradient(MiniBERT(config, dtype=np.float64), "auto", threads=2)
    assert loss == pytest.approx(once[0], abs=1e-12)
    np.testing.assert_allclose(shared, once[1], atol=1e-12)


def cache_size(T):
    layer = EfficientAttention(8, 2)
    layer.method, layer.tile, layer.p = "lean", 16, 0.1
    bind(layer, seed=0)
    pool = Pool()
    _, cache = layer.forward(np.ones((1, T, 8), np.float32), Run(1, train=True, pool=pool))
    arrays = [*cache.attended, cache.output, cache.projected]
    owners = {id(base(x)): base(x).nbytes for x in arrays if isinstance(x, np.ndarray)}
    return sum(owners.values()), sum(buffer.nbytes for buffer in pool._free)


def base(array):
    while array.base is not None:
        array = array.base
    return array


def test_what_is_kept_grows_with_the_length():
    """Four times the tokens need four times the cache, and the same scratch memory."""
    (small, scratch), (large, same) = cache_size(32), cache_size(128)
    assert large == 4 * small and scratch == same == 16 * 16 * 4


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.parametrize(("width", "heads"), [(192, 4), (384, 8)])
def test_a_tenth_of_the_memory_at_4096_tokens(width, heads):
    """Forward and backward of one layer, each method in its own process: the peak above the memory used before."""
    peaks = {}
    for method in ("plain", "lean"):
        arguments = json.dumps(["attention", method, 4096, width, heads, 0.0])
        command = [sys.executable, str(ROOT / "benchmarks" / "lean_attention.py"), "--alone", arguments]
        answer = subprocess.run(
            command, capture_output=True, text=True, check=True, env={**os.environ, "PYTHONPATH": str(ROOT)}
        )
        peaks[method] = int(answer.stdout)
    assert peaks["lean"] <= peaks["plain"] / 10, peaks


@pytest.mark.slow
def test_a_model_of_8192_positions_runs_at_that_length():
    """Mini-BERT with more positions, forward and backward over 8,192 tokens: finite, and every weight gets a
    gradient."""
    model = MiniBERT(replace(MINI_BERT_CONFIG, max_seq_length=8192))
    rng = np.random.default_rng(0)
    ids, rows = rng.integers(5, 8192, (1, 8192)), np.arange(0, 8192, 7)
    loss, cache = model.loss(ids, rows, ids[0, rows])
    model.loss_backward(cache)
    assert loss == pytest.approx(np.log(8192), abs=0.5)
    for name, param in model.named_params().items():
        assert np.isfinite(param.grad).all() and param.grad.any(), name
