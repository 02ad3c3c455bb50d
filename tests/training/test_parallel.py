"""Threads with replicas: reproducible, and equal to one thread except for rounding."""

import math
from dataclasses import replace

import numpy as np
import pytest
from threadpoolctl import threadpool_info

from mini_bert.checks.gradients import global_norm
from mini_bert.data.generator import Batch
from mini_bert.models.config import MiniBertConfig
from mini_bert.models.mini_bert import MiniBERT
from mini_bert.training.optim import CHUNK, Adam
from mini_bert.training.parallel import Team, default_threads

CONFIG = MiniBertConfig(101, 24, 2, 3, 40, 16)


def parts(count=5, B=3, T=11, seed=0):
    rng = np.random.default_rng(seed)
    rows = [np.sort(rng.choice(B * T, 4 + i, replace=False)) for i in range(count)]
    return [Batch(rng.integers(5, 101, (B, T)), row, rng.integers(5, 101, row.size)) for row in rows]


def gradient(threads, config=CONFIG, dtype=np.float64):
    model = MiniBERT(config, seed=2, dtype=dtype)
    with Team(model, threads) as team:
        outcome = team.gradient(parts(), seed=(7, 3))
        return outcome, model.flat.grad.copy()


@pytest.mark.parametrize("threads", [1, 2, 3, 8])
@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_any_number_of_threads_finds_the_same_gradient(threads, dropout):
    """Up to rounding, the sum of the parts is the same, and so are the dropout masks, which belong to the part."""
    config = replace(CONFIG, dropout=dropout)
    (one, expected), (many, found) = gradient(1, config), gradient(threads, config)
    np.testing.assert_allclose(found, expected, atol=1e-13)
    assert many.loss == pytest.approx(one.loss, abs=1e-12) and many[1:3] == one[1:3]
    assert many.norm == pytest.approx(one.norm) == pytest.approx(global_norm(expected))


def test_the_gradient_is_that_of_the_whole_batch():
    """Parts of different sizes are weighted by their targets, as if they were one batch."""
    model, split = MiniBERT(CONFIG, seed=2, dtype=np.float64), parts()
    ids = np.concatenate([part.input_ids for part in split])
    rows = np.concatenate([part.rows + i * 33 for i, part in enumerate(split)])
    targets = np.concatenate([part.targets for part in split])
    loss, cache = model.loss(ids, rows, targets)
    correct = int((cache.cross_entropy.probs.argmax(-1) == targets).sum())
    model.loss_backward(cache)
    outcome, found = gradient(2)
    assert outcome.loss == pytest.approx(float(loss)) and outcome.main[1:] == (correct, targets.size)
    np.testing.assert_allclose(found, model.flat.grad, atol=1e-13)


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_what_the_gradients_held_before_does_not_count(threads):
    """Neither the previous step's gradients nor NaN count, also in threads that have nothing to do."""
    model = MiniBERT(CONFIG, seed=2)
    with Team(model, threads) as team:
        team.gradient(parts())
        once = model.flat.grad.copy()
        for replica in team.replicas:
            replica.flat.grad[...] = np.nan
        team.gradient(parts())
    np.testing.assert_array_equal(model.flat.grad, once)
    assert np.isfinite(once).all() and once.any()


@pytest.mark.parametrize("threads", [2, 3])
def test_the_same_number_of_threads_gives_the_same_bits(threads):
    """In float32, where any other order of summation would show: ten steps, twice."""

    def weights():
        model = MiniBERT(CONFIG, seed=2)
        adam = Adam(model.flat, 1e-2)
        with Team(model, threads) as team:
            for step in range(10):
                outcome = team.gradient(parts(seed=step), seed=(step,))
                adam.step(scale=1 / max(1.0, outcome.norm), map=team.map)
        return model.flat.data

    np.testing.assert_array_equal(weights(), weights())


def test_work_is_shared_out_and_results_keep_their_order():
    with Team(MiniBERT(CONFIG), 3) as team:
        assert team.map(lambda x: x * x, range(7)) == [0, 1, 4, 9, 16, 25, 36]
        assert team.run_on_all(lambda j: j) == [0, 1, 2]


@pytest.mark.parametrize("bad", [0, 1, 2])
def test_an_error_in_any_thread_comes_out(bad):
    """It is raised only when the others are done, so no thread writes to gradients that another reads."""
    done = []

    def work(j):
        if j == bad:
            raise ZeroDivisionError(j)
        done.append(j)

    with Team(MiniBERT(CONFIG), 3) as team, pytest.raises(ZeroDivisionError):
        team.run_on_all(work)
    assert sorted(done) == [j for j in range(3) if j != bad]


def test_blas_has_one_thread_inside_and_as_before_outside():
    def threads():
        return [entry["num_threads"] for entry in threadpool_info() if entry["user_api"] == "blas"]

    before = threads()
    with Team(MiniBERT(CONFIG), 2):
        assert set(threads()) == {1}
    assert threads() == before


def test_threads_must_be_some():
    with pytest.raises(ValueError, match="threads is 0, expected at least 1"):
        Team(MiniBERT(CONFIG), 0)
    assert 1 <= default_threads() <= 8


def test_a_long_gradient_is_added_chunk_by_chunk():
    """Several chunks, with an incomplete last one."""
    model = MiniBERT(replace(CONFIG, vocab_size=19_997))
    assert model.flat.grad.size > 2 * CHUNK and model.flat.grad.size % CHUNK
    with Team(model, 3) as team:
        for replica in team.replicas:
            replica.flat.grad[...] = np.arange(model.flat.grad.size) % 1000
        squares = team.map(team._add_up, range(0, model.flat.grad.size, CHUNK))
        assert math.sqrt(sum(squares)) == pytest.approx(float(np.linalg.norm(model.flat.grad.astype(np.float64))))
        np.testing.assert_array_equal(model.flat.grad, 3.0 * (np.arange(model.flat.grad.size) % 1000))
