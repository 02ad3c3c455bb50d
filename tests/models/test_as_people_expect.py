"""What people try with a model: call it, print it, copy it, send it to other processes."""

from __future__ import annotations

import multiprocessing
import pickle
from copy import copy, deepcopy

import numpy as np
import pytest

from mini_bert.models.bert import Bert, BertConfig
from mini_bert.models.config import MiniBertConfig
from mini_bert.models.mini import MiniBERT

MINI = MiniBertConfig(vocab_size=11, hidden_size=4, num_layers=2, num_heads=2, intermediate_size=6, max_seq_length=7)
BERT = BertConfig(
    vocab_size=11, hidden_size=4, num_hidden_layers=2, num_attention_heads=2, intermediate_size=6,
    max_position_embeddings=7,
)  # fmt: skip
IDS = np.array([[2, 5, 4, 3]])
MODELS = {
    "mini": lambda: MiniBERT(MINI, seed=1),
    "tied": lambda: MiniBERT(MiniBertConfig(**(vars(MINI) | {"tie_head": True})), seed=1),
    "float64": lambda: MiniBERT(MINI, seed=1, dtype=np.float64),
    "bfloat16": lambda: MiniBERT(MINI, seed=1).keep_weights("bfloat16"),
    "bert": lambda: Bert(BERT, seed=1),
}


@pytest.mark.parametrize("kind", MODELS)
def test_pickle(kind):
    """A model from a pickle computes the same, can be trained, and shares no memory with the original."""
    model = MODELS[kind]().set_training(True)
    twin = pickle.loads(pickle.dumps(model))
    assert type(twin) is type(model) and twin.config == model.config and twin.dtype == model.dtype
    assert list(twin.named_params()) == list(model.named_params()) and twin.run.train
    for one in (model, twin):
        one.zero_grad()
        _, cache = one.loss(IDS, [2], [7])
        one.loss_backward(cache)
    np.testing.assert_array_equal(twin.flat.grad, model.flat.grad)
    assert twin.flat.grad.any()
    before = model.flat.data.copy()
    twin.flat.data[...] = 0
    np.testing.assert_array_equal(model.flat.data, before)
    assert not np.asarray(twin.tokens.table.data).any()  # the weights are views of the flat array


def test_copies():
    """A deep copy has its own weights; a shallow one shares them, and has its own gradients."""
    model = MODELS["mini"]()
    deep, shallow = deepcopy(model), copy(model)
    model.flat.data[...] += 1
    assert not np.array_equal(deep.flat.data, model.flat.data)
    assert shallow.flat.data is model.flat.data and shallow.flat.grad is not model.flat.grad


def test_in_another_process():
    """A model can be sent to a new process, which computes the same."""
    model = MODELS["mini"]()
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        np.testing.assert_array_equal(pool.apply(model, (IDS,))[0], model(IDS)[0])


@pytest.mark.parametrize("kind", MODELS)
def test_call(kind):
    """model(ids) is model.forward(ids)."""
    model = MODELS[kind]()
    found, wanted = (result if isinstance(result, np.ndarray) else result.masked_words
                     for result in (model(IDS)[0], model.forward(IDS)[0]))  # fmt: skip
    np.testing.assert_array_equal(found, wanted)


def test_repr():
    """A printed model shows its kind, its number of parameters and its sizes."""
    assert repr(MiniBERT()) == (
        "<MiniBERT: 4,498,880 parameters in float32; 3 layers, width 192, 4 heads, vocabulary of 8,192, at most 64 "
        "tokens; output heads: masked_words>"
    )
    assert "output heads: masked_words, pooler, next_sentence>" in repr(MODELS["bert"]())
    assert repr(MINI).startswith("MiniBertConfig(vocab_size=11, hidden_size=4, ")
