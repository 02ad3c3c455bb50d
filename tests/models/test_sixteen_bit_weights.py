"""Weights in 16 bits: the model computes with the rounded weights, and still learns in small steps."""

from copy import deepcopy
from dataclasses import replace

import numpy as np
import pytest

import mini_bert.layers.matrices as matrices
from mini_bert.common.sixteen_bit import Stored, widen
from mini_bert.models.bert import Bert, BertConfig
from mini_bert.models.config import MiniBertConfig
from mini_bert.models.mini import MiniBERT
from mini_bert.training.optim import Adam

MINI = MiniBertConfig(vocab_size=97, hidden_size=20, num_layers=2, num_heads=2, intermediate_size=30, max_seq_length=13)
TIED = replace(MINI, tie_head=True)
BERT = BertConfig(
    vocab_size=97, hidden_size=20, num_hidden_layers=2, num_attention_heads=2, intermediate_size=30,
    max_position_embeddings=13,
)  # fmt: skip
IDS = np.random.default_rng(0).integers(5, 97, (3, 13))
ROWS = np.array([1, 5, 14, 20, 33])


def gradients(model):
    model.zero_grad()
    loss, cache = model.loss(IDS, ROWS, IDS.ravel()[ROWS])
    dx = model.loss_backward(cache)
    return float(loss), dx, model.flat.grad.copy()


@pytest.mark.parametrize("make", [lambda: MiniBERT(MINI), lambda: MiniBERT(TIED), lambda: Bert(BERT)])
@pytest.mark.parametrize("kind", ["bfloat16", "float16"])
@pytest.mark.parametrize("product", [matrices.PRODUCT, 64])
def test_it_is_the_model_of_the_rounded_weights(make, kind, product, monkeypatch):
    """Loss and every gradient are those of the rounded weights, whether matrices are widened as a whole or some columns
    at a time."""
    monkeypatch.setattr(matrices, "PRODUCT", product)
    model = make().keep_weights(kind)
    assert model.flat.data.nbytes == 2 * model.get_parameter_count() and model.dtype == np.float32
    exact = make()
    before = exact.flat.data.copy()
    exact.flat.data[...] = widen(model.flat.data)
    assert not np.array_equal(before, exact.flat.data)
    for one, other in zip(gradients(model), gradients(exact), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def test_copies_replicas_and_files(tmp_path):
    model = MiniBERT(MINI).keep_weights("bfloat16")
    twin, copy = model.replica(), deepcopy(model)
    model.head.b.data[3] = 7.0
    assert twin.head.b.data[3] == 7 and copy.head.b.data[3] == 0
    assert isinstance(twin.head.b.data, Stored)
    model.save_pretrained(tmp_path)
    again = MiniBERT.from_pretrained(tmp_path)
    assert again.flat.data.dtype == np.float32
    np.testing.assert_array_equal(again.keep_weights("bfloat16").flat.data, model.flat.data)  # nothing was lost
    np.testing.assert_array_equal(model.keep_weights("float32").flat.data, widen(again.flat.data))


@pytest.mark.parametrize("kind", ["bfloat16", "float16"])
def test_it_learns_in_steps_too_small_to_see(kind):
    """At a learning rate of 1e-4, a step is far smaller than the distance between two 16-bit numbers; the loss falls as
    with float32."""
    losses = {}
    for weights in ("float32", kind):
        model = MiniBERT(MINI, seed=1).keep_weights(weights)
        adam = Adam(model.flat, 1e-4, moments=weights)
        for _ in range(300):
            loss, _, _ = gradients(model)
            adam.step()
        losses[weights] = loss
    assert losses[kind] == pytest.approx(losses["float32"], rel=0.05)
    assert losses["float32"] < 0.8 * np.log(97)


def test_what_cannot_be_is_refused():
    with pytest.raises(ValueError, match="kind is 'int4'"):
        MiniBERT(MINI).keep_weights("int4")
    with pytest.raises(ValueError, match="computes in float64"):
        MiniBERT(MINI, dtype=np.float64).keep_weights("bfloat16")
