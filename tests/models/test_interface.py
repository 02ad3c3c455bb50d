"""All models have the same interface: the states and weights in the cache are those that the model computed."""

import runpy
from importlib.util import find_spec

import numpy as np
import pytest

from mini_bert.common.batching import padded
from mini_bert.layers.base import Run
from mini_bert.layers.encoder import Recompute
from mini_bert.models import cache as cache_module
from mini_bert.models.bert import Bert, BertConfig
from mini_bert.models.config import MiniBertConfig
from mini_bert.models.mini import MiniBERT
from mini_bert.models.registry import MODELS

MINI = MiniBertConfig(vocab_size=31, hidden_size=10, num_layers=3, num_heads=2, intermediate_size=13, max_seq_length=11)
BERT = BertConfig(
    vocab_size=31, hidden_size=10, num_hidden_layers=3, num_attention_heads=2, intermediate_size=13,
    max_position_embeddings=11,
)  # fmt: skip


@pytest.fixture(params=["mini", "bert"])
def model(request):
    return MiniBERT(MINI, seed=3, dtype=np.float64) if request.param == "mini" else Bert(BERT, seed=3, dtype=np.float64)


IDS, MASK = padded([[2, 7, 8, 9, 3], [2, 5, 3]])


def test_padded_marks_what_is_padding():
    assert IDS.tolist() == [[2, 7, 8, 9, 3], [2, 5, 3, 0, 0]]
    assert MASK.tolist() == [[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]]
    assert padded([])[0].shape == (0, 0)


def test_each_state_is_what_its_block_makes_of_the_one_before(model):
    _, cache = model.encode(IDS, MASK)
    states = cache.hidden_states()
    assert len(states) == 4
    mask = MASK.astype(bool)[:, None, None]
    for block, before, after in zip(model.encoder.blocks[:2], states[:2], states[1:3], strict=True):
        np.testing.assert_allclose(block.forward(before, Run(), mask=mask)[0], after, rtol=1e-12)
    last, _ = model.encoder.blocks[2].forward(states[2], Run(), mask=mask)
    if isinstance(model, MiniBERT):
        last, _ = model.final_norm.forward(last, Run())
    np.testing.assert_allclose(states[3], last, rtol=1e-12)


def test_weights_are_shares_and_nobody_looks_at_padding(model):
    _, cache = model.encode(IDS, MASK)
    weights = cache.attention_weights()
    assert [w.shape for w in weights] == [(2, 2, 5, 5)] * 3
    for w in weights:
        np.testing.assert_allclose(w.sum(-1), 1)
        assert (w[1, :, :, 3:] == 0).all()


def test_arrays_have_the_same_names_everywhere(model):
    """In the caches of encode and forward, and in those of both models; what only one has is documented in cache.py."""
    _, encoded = model.encode(IDS, MASK)
    _, cache = model.forward(IDS, MASK)
    assert list(cache) == list(encoded)
    assert cache["attention_weights_0"].shape == (2, 2, 5, 5)
    of_all = {"embeddings", "hidden"} | {
        f"{name}_{block}"
        for block in range(3)
        for name in (
            *("block_input", "attention_input", "query", "key", "value", "attention_weights", "context"),
            *("attention_norm", "feed_forward_inner", "output_norm"),
        )
    }
    assert set(cache) - of_all == ({"final_norm"} if isinstance(model, MiniBERT) else {"embedding_norm"})
    assert of_all <= set(cache)
    for name in cache:
        assert name.rstrip("_0123456789") in str(cache_module.__doc__), name
    for array in (cache[name] for name in ("final_norm", "embedding_norm") if name in cache):
        np.testing.assert_allclose(array.mean(-1), 0, atol=1e-12)


def test_recomputed_blocks_show_their_states_and_say_that_they_have_no_weights(model):
    _, cache = model.encode(IDS, MASK)
    plain = cache.hidden_states()
    model.encoder.blocks = [Recompute(block) for block in model.encoder.blocks]
    _, cache = model.encode(IDS, MASK)
    for one, other in zip(plain, cache.hidden_states(), strict=True):
        np.testing.assert_array_equal(one, other)
    with pytest.raises(ValueError, match="without gradient checkpointing"):
        cache.attention_weights()


def test_chosen_rows_are_those_rows_of_all(model):
    y, _ = model.encode(IDS, MASK)
    some, cache = model.encode(IDS, MASK, chosen=np.array([0, 6]))
    np.testing.assert_allclose(some, y.reshape(10, -1)[[0, 6]], rtol=1e-10)
    assert len(cache.hidden_states()) == 4


def test_token_types_reach_the_model_that_has_them(model):
    types = np.array([[0, 0, 1, 1, 1], [0, 0, 1, 0, 0]])
    same = np.array_equal(model.encode(IDS, MASK, types)[0], model.encode(IDS, MASK)[0])
    assert same == isinstance(model, MiniBERT)


def test_backward_reaches_the_weights(model):
    hidden, cache = model.encode(IDS, MASK)
    dx = model.encode_backward(np.ones_like(hidden), cache)
    assert dx.shape == hidden.shape and np.abs(model.tokens.table.grad).max() > 0


@pytest.mark.parametrize("kind", MODELS)
def test_each_architecture_shows_itself(kind, capsys):
    """`python -m mini_bert.models.<name>` runs and prints what is special about this architecture, in numbers."""
    runpy.run_path(find_spec(MODELS[kind][0]).origin, run_name="__main__")
    shown = capsys.readouterr().out
    assert len(shown) > 200 and any(letter.isdigit() for letter in shown)
