"""Params, binding, runs, pools, and the two helpers for sums."""

import numpy as np
import pytest

from mini_bert.layers.base import Layer, Param, Pool, Run, bind
from mini_bert.layers.embedding import Embedding
from mini_bert.layers.encoder import Recompute
from mini_bert.layers.initialisers import zeros
from mini_bert.layers.layer_norm import LayerNorm
from mini_bert.layers.linear import Linear, TiedLinear
from mini_bert.layers.matrices import add_rows


class Small(Layer):
    def __init__(self):
        self.norm = LayerNorm(3)
        self.parts = [Linear(3, 5), Linear(5, 2, bias=False)]
        self.tokens = Embedding(7, 3)
        self.head = TiedLinear(self.tokens.table)


def test_params_are_views_of_two_flat_arrays():
    """After bind, writing to the flat array changes the weights, and vice versa."""
    model = Small()
    flat = bind(model, seed=0)
    assert flat.data.size == flat.grad.size == 3 + 3 + 15 + 5 + 10 + 21 + 7
    flat.data[...] = 7
    flat.grad[...] = 9
    for param in model.named_params().values():
        assert (param.data == 7).all() and (param.grad == 9).all()
        param.data[...] = 1
    assert (flat.data == 1).all()


def test_every_param_knows_its_place():
    """Each Param has its slice of the flat arrays; a part of a Param has none, and before bind there is none."""
    model = Small()
    with pytest.raises(AttributeError, match="has no memory yet"):
        _ = model.norm.gamma.place
    flat = bind(model, seed=0)
    flat.grad[...] = np.arange(flat.grad.size)
    places = []
    for param in model.named_params().values():
        np.testing.assert_array_equal(flat.data[param.place], param.data.ravel())
        np.testing.assert_array_equal(flat.grad[param.place], param.grad.ravel())
        places += range(param.place.start, param.place.stop)
    assert sorted(places) == list(range(flat.data.size))
    assert "place" not in vars(model.parts[0].w.part((slice(None), slice(2))).part(0))


def test_weights_that_decay_come_first():
    """Weight decay applies to a slice: matrices and tables come before biases and norms."""
    model = Small()
    flat = bind(model, seed=0)
    flat.data[: flat.decayed] = 1
    flat.data[flat.decayed :] = 0
    for param in model.named_params().values():
        assert (param.data == (1 if param.decay else 0)).all()
    assert flat.decayed == 15 + 10 + 21


def test_every_param_knows_where_it_lies():
    model = Small()
    flat = bind(model, seed=0)
    places = {name: param.place for name, param in model.named_params().items()}
    assert set(places) == set(model.named_params()) and sum(p.stop - p.start for p in places.values()) == flat.data.size
    for name, param in model.named_params().items():
        flat.data[places[name]] = 5
        assert (param.data == 5).all()
        assert (places[name].stop <= flat.decayed) == param.decay


def test_a_shared_param_is_laid_out_once():
    """A tied head adds its gradient to the table's own."""
    model = Small()
    bind(model, dtype=np.float64, seed=0)
    assert "head.w" not in model.named_params() and model.head.w is model.tokens.table
    ids = np.array([[1, 2]])
    y, embedded = model.tokens.forward(ids, Run())
    logits, head = model.head.forward(y, Run())
    dy = model.head.backward(np.ones_like(logits), head, Run())
    only_head = model.tokens.table.grad.copy()
    model.tokens.backward(dy, embedded, Run())
    np.testing.assert_allclose(model.tokens.table.grad[0], only_head[0])
    assert not np.allclose(model.tokens.table.grad[1], only_head[1])


def test_names_survive_wrapping():
    """A recomputed layer keeps the names of its weights, so files do not depend on the switch."""
    assert list(Recompute(Linear(2, 3)).named_params()) == list(Linear(2, 3).named_params()) == ["w", "b"]


def test_the_same_seed_gives_the_same_weights_in_both_dtypes():
    """float64 is used to check float32, so both have the same initial weights."""
    one, other = Small(), Small()
    a, b = bind(one, seed=5), bind(other, seed=5, dtype=np.float64)
    np.testing.assert_array_equal(a.data, b.data.astype(np.float32))
    assert bind(Small(), seed=6).data.tolist() != a.data.tolist()


def test_a_replica_shares_weights_and_owns_gradients():
    """With bind(replica, data), threads share one set of weights."""
    one, other = Small(), Small()
    first = bind(one, seed=0)
    second = bind(other, first.data)
    assert np.shares_memory(first.data, other.parts[0].w.data) and not np.shares_memory(first.grad, second.grad)
    with pytest.raises(ValueError, match=r"data has shape \(3,\), this model needs \(64,\)"):
        bind(Small(), np.zeros(3))


def test_an_unbound_weight_says_what_to_do():
    """Using a layer before bind is an error that says what to do."""
    with pytest.raises(AttributeError, match="call bind"):
        Linear(2, 3).forward(np.ones((1, 2)), Run())


def test_keys_depend_on_seed_place_and_number_alone():
    """The same address always has the same key; another seed, fork or index has another."""
    run = Run(seed=1)
    key = int(run.keys(4, 5)[0])
    assert key == Run(np.int64(1)).keys(4, 5)[0] == Run((1,), train=True).keys(4, 5)[0] == Run(1, first=3).keys(1, 5)[0]
    assert Run((1, 2)).keys(0) == run.fork(2).keys(0) == run.replay(((1, 2), True, 0)).keys(0)
    runs = (Run(1), Run(1).fork(0), Run(1).fork(0, 0), Run(1).fork(1), Run((1, 1, 1)), Run(0))
    keys = [int(r.keys(b, t)[0]) for r in runs for b, t in ((0, 0), (0, 1), (1, 0), (1, 1))]
    keys += [int(Run(seed).keys(0)[0]) for seed in ((1,), (1, 0), (1, 0, 0), (0, 1))]
    assert len(set(keys)) == len(keys)  # also where parts are zeros, and where an address goes on as another ends
    assert run.keys(*np.indices((2, 3), sparse=True))[1, 2] == run.keys(1, 2)
    pool = Pool()
    assert Run(pool=pool).fork(1).pool is pool and Run(train=True).fork(1).train and Run(first=3).fork(1).first == 3
    trained = Run(seed=4, train=True, first=2)
    assert run.replay(trained.state).train and run.replay(trained.state).keys(0) == trained.keys(0)


def test_the_pool_lends_the_smallest_buffer_that_fits():
    """Memory is reused across shapes and dtypes; two buffers lent at once never overlap."""
    pool = Pool()
    large, small = pool.take((10, 10), np.float64), pool.take((3,), np.float32)
    assert not np.shares_memory(large, small)
    pool.give(large)
    pool.give(small)
    again = pool.take((2,), np.float32)
    assert np.shares_memory(again, small)
    assert np.shares_memory(pool.take((5, 5), np.float32), large)


def test_add_product():
    """grad += a @ b, through scratch memory; an unset gradient is overwritten."""
    rng = np.random.default_rng(0)
    param, a, b = Param((3, 5), zeros), rng.normal(size=(3, 7)), rng.normal(size=(7, 5))
    total = param.grad = rng.normal(size=(3, 5))
    wanted = total + a @ b
    param.add_product(a, b, Run(pool=Pool()))
    np.testing.assert_allclose(total, wanted, rtol=1e-14)
    param.grad_is_unset = True
    param.add_product(a, b, Run(pool=Pool()))
    np.testing.assert_array_equal(total, a @ b)
    assert not param.grad_is_unset


@pytest.mark.parametrize("count", [0, 1, 2, 100])
def test_add_rows_is_add_at(count):
    """Sorting and summing runs of equal indices gives the same as np.add.at, also with repeated indices."""
    rng = np.random.default_rng(count)
    index, values, total = rng.integers(0, 7, count), rng.normal(size=(count, 3)), rng.normal(size=(7, 3))
    wanted = total.copy()
    np.add.at(wanted, index, values)
    add_rows(total, index, values)
    np.testing.assert_allclose(total, wanted, rtol=1e-12)
