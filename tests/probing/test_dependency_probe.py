"""The probe for syntactic heads: its gradient, its optimum, its control task, its baselines."""

import numpy as np
import pytest

from mini_bert.checks.gradients import central_difference
from mini_bert.probing.dependency_probe import ROOT, DependencyProbe, Trees, groups, objective, scores

LENGTHS = [3, 1, 5, 3]
HEADS = np.array([1, ROOT, 1, ROOT, 2, 0, ROOT, 2, 3, ROOT, 0, 1])
TYPES = np.array([0, 1, 2, 3, 0, 1, 2, 3, 4, 4, 0, 1])
TREES = Trees(HEADS, TYPES, LENGTHS)


def test_the_gradient():
    """dA compared with finite differences, over sentences of several lengths; words that are not predicted do not
    contribute."""
    rng = np.random.default_rng(0)
    x, a = rng.normal(size=(12, 7)), rng.normal(size=(7, 7)) * 0.3
    by_length = groups(LENGTHS)
    _, gradient = objective(a, x, HEADS, by_length, l2=1.3)
    for index in np.ndindex(a.shape):
        slope = central_difference(lambda: objective(a, x, HEADS, by_length, 1.3)[0], a, index, 1e-5)
        assert slope == pytest.approx(gradient[index], rel=1e-7, abs=1e-9)


def test_the_loss_written_out():
    """Word by word, with loops: the mean surprise at the syntactic heads, plus the penalty on the weights."""
    rng = np.random.default_rng(1)
    x, a = rng.normal(size=(12, 7)), rng.normal(size=(7, 7)) * 0.3
    surprise, start = [], 0
    for length in LENGTHS:
        for i in range(length):
            head = HEADS[start + i]
            if head != ROOT:
                z = np.array([x[start + i] @ a @ x[start + j] for j in range(length)])
                surprise.append(np.log(np.exp(z).sum()) - z[head])
        start += length
    wanted = np.mean(surprise) + 1.3 / 2 * (a**2).sum() / len(surprise)
    assert objective(a, x, HEADS, groups(LENGTHS), 1.3)[0] == pytest.approx(wanted, rel=1e-12)
    np.testing.assert_allclose(scores(a, x[None, :3])[0, 2, 1], x[2] @ a @ x[1])


def planted(rng, count):
    """Sentences whose word vectors encode their position in 8 numbers, and that of their syntactic head in 8 more"""
    lengths = rng.integers(2, 9, count).tolist()
    heads = np.concatenate([[ROOT, *rng.integers(0, length, length - 1)] for length in lengths])
    places = np.concatenate([np.arange(length) for length in lengths])
    x = np.hstack([np.eye(8)[places], np.eye(8)[heads]]) + rng.normal(size=(len(heads), 16)) * 0.05
    return Trees(heads, rng.integers(0, 50, len(heads)), lengths), x.astype(np.float32)


def test_heads_that_can_be_read_are_found():
    """If the vectors encode the syntactic heads, the probe is right on unseen sentences; with shuffled vectors it is
    not."""
    rng = np.random.default_rng(2)
    (train, x), (dev, dev_x) = planted(rng, 150), planted(rng, 40)
    probe = DependencyProbe("syntactic head", train, dev, l2=1.0)
    asked = dev.parents != ROOT
    predicted = probe.fit_predict(probe.prepare(x, dev_x), train.parents)
    assert (predicted == dev.parents)[asked].mean() > 0.99
    predicted = probe.fit_predict(probe.prepare(rng.permutation(x), rng.permutation(dev_x)), train.parents)
    assert (predicted == dev.parents)[asked].mean() < 0.5
    assert (x[:, :8].argmax(1) == train.positions).all()  # the vectors of others are left as they were


def test_the_control_task():
    """The spelling of a word alone decides whether its target is itself, the first or the last word; the seed decides
    how."""
    probe = DependencyProbe("syntactic head", TREES, TREES)
    found, again = probe.targets(7)
    np.testing.assert_array_equal(found, again)
    np.testing.assert_array_equal(found == ROOT, HEADS == ROOT)
    places, last = TREES.positions, np.repeat(LENGTHS, LENGTHS) - 1
    behaviour: dict[int, set[str]] = {}
    for word in np.flatnonzero(HEADS != ROOT):
        fits = {"itself": places[word], "first": 0, "last": last[word]}
        names = {name for name, place in fits.items() if place == found[word]}
        assert names, word
        behaviour[TYPES[word]] = behaviour.get(TYPES[word], names) & names
    assert all(behaviour.values())
    assert any((probe.targets(seed)[0] != found).any() for seed in range(3))
    assert probe.targets() == (TREES.parents, TREES.parents)


def test_baselines():
    """The most frequent distance, over all words and for each word."""
    train = Trees(np.array([1, 2, ROOT, 1, 1, ROOT]), np.array([0, 0, 1, 2, 1, 5]), [4, 2])  # +1 +1 · −2 +1 ·
    dev = Trees(np.array([2, 0, ROOT, 1]), np.array([2, 2, 3, 9]), [4])  # +2 −1 · −2
    found = DependencyProbe("syntactic head", train, dev).baselines()
    assert found == {"always the word 1 after": 0.0, "each word's most frequent distance": 0.0}
    dev = Trees(np.array([1, 2, ROOT, 1]), np.array([7, 2, 3, 2]), [4])  # +1, unseen; +1 of a word with −2; −2
    found = DependencyProbe("syntactic head", train, dev).baselines()
    assert list(found.values()) == [pytest.approx(2 / 3), pytest.approx(2 / 3)]
