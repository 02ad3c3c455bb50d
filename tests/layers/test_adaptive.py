"""Adaptive embeddings and softmax: one distribution over all words, whichever way it is computed."""

import numpy as np
import pytest

from mini_bert.layers import adaptive_softmax
from mini_bert.layers.adaptive_embedding import AdaptiveEmbedding
from mini_bert.layers.adaptive_softmax import AdaptiveSoftmax
from mini_bert.layers.base import Run, bind
from mini_bert.layers.cross_entropy import cross_entropy, cross_entropy_backward

V, H, E, CUTOFFS = 23, 6, 8, (5, 12)
RNG = np.random.default_rng(0)
X = RNG.normal(size=(41, H))


def random_softmax(divisor=2, cutoffs=CUTOFFS):
    layer, rng = AdaptiveSoftmax(V, H, E, cutoffs, divisor), np.random.default_rng(7)
    bind(layer, dtype=np.float64)
    for param in layer.named_params().values():
        param.data[...] = rng.normal(size=param.shape)
    return layer


@pytest.mark.parametrize("divisor", [1, 2])
def test_embeddings_are_looked_up_in_their_cluster(divisor):
    layer = AdaptiveEmbedding(V, H, E, CUTOFFS, divisor)
    bind(layer, dtype=np.float64, seed=1)
    y, _ = layer.forward(np.arange(V)[None], Run())
    assert [table.table.shape for table in layer.tables] == ([(V, E)] if divisor == 1 else [(5, 8), (7, 4), (11, 2)])
    for word in range(V):
        c = 0 if divisor == 1 else int(np.searchsorted(CUTOFFS, word, side="right"))
        row = layer.tables[c].table.data[word - layer.edges[c]] @ layer.projections[c].w.data
        np.testing.assert_allclose(y[0, word], np.sqrt(H) * row, rtol=1e-12)


def test_one_table_of_the_models_width_needs_no_projection():
    layer = AdaptiveEmbedding(V, H, H, CUTOFFS)
    assert layer.projections == [None] and list(layer.named_params()) == ["tables.0.table"]


@pytest.mark.parametrize("divisor", [1, 2])
def test_probabilities_are_those_of_two_steps(divisor):
    layer = random_softmax(divisor)
    p = np.exp(layer.forward(X, Run())[0])
    np.testing.assert_allclose(p.sum(1), 1, rtol=1e-12)
    z, _ = layer._scores(0, X)
    head = np.exp(z) / np.exp(z).sum(1, keepdims=True)
    np.testing.assert_allclose(p[:, :5], head[:, :5], rtol=1e-12)
    np.testing.assert_allclose(p[:, 5:12].sum(1), head[:, 5], rtol=1e-12)  # what the first step gave to the cluster
    np.testing.assert_allclose(p[:, 12:].sum(1), head[:, 6], rtol=1e-12)


@pytest.mark.parametrize(("divisor", "cutoffs"), [(1, CUTOFFS), (2, CUTOFFS), (1, ()), (2, ()), (2, (9,))])
def test_the_loss_of_some_clusters_is_that_of_all(divisor, cutoffs):
    """Loss, gradients and the number of correct predictions are those from all log-probabilities."""
    results = []
    best = random_softmax(divisor, cutoffs).forward(X, Run())[0].argmax(1)
    for targets in (RNG.integers(0, V, len(X)), np.full(len(X), 2), best):
        for own in (True, False):
            layer = random_softmax(divisor, cutoffs)
            if own:
                loss, cache = layer.loss(X, targets, 50, Run())
                correct = cache.correct
                dx = layer.loss_backward(2.0, cache, Run())
            else:
                scores, cache = layer.forward(X, Run())
                loss, entropy = cross_entropy(scores, targets, 50, out=scores)
                correct = entropy.correct
                dx = layer.backward(cross_entropy_backward(2.0, entropy, out=entropy.exp), cache, Run())
            results.append([loss, correct, dx, *(param.grad for param in layer.named_params().values())])
        for one, other in zip(results.pop(), results.pop(), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)


def test_all_probabilities_in_pieces(monkeypatch):
    """For evaluation: those of all words, some rows at a time."""
    monkeypatch.setattr(adaptive_softmax, "SOME", 7 * V)
    layer, targets = random_softmax(), RNG.integers(0, V, len(X))
    loss, cache = layer.loss(X, targets, None, Run())
    pieces = list(cache.pieces())
    assert [len(piece.targets) for piece in pieces] == [7, 7, 7, 7, 7, 6]
    p = np.concatenate([piece.probs for piece in pieces])
    np.testing.assert_allclose(p, np.exp(layer.forward(X, Run())[0]), rtol=1e-12)
    assert -np.log(p[np.arange(len(X)), targets]).mean() == pytest.approx(loss, rel=1e-12)
    assert cache.correct == sum(piece.correct for piece in pieces)


def test_rows_are_scored_in_their_cluster_only():
    layer, asked = random_softmax(), []
    scores = layer._scores
    layer._scores = lambda c, x: (asked.append((c, len(x))), scores(c, x))[1]
    layer._correct = lambda *_: 0
    layer.loss(X[:6], np.array([0, 1, 6, 2, 22, 3]), None, Run())
    assert asked == [(0, 6), (1, 1), (2, 1)]


def test_shared_tables_get_both_gradients():
    embedding = AdaptiveEmbedding(V, H, E, CUTOFFS, 2)
    tables, projections = [table.table for table in embedding.tables], [p.w for p in embedding.projections]
    layer = AdaptiveSoftmax(V, H, E, CUTOFFS, 2, tables, [None, *projections[1:]])
    assert set(layer.named_params()) - {"tables.0", "tables.1", "tables.2", "projections.1", "projections.2"} == {
        "biases.0", "biases.1", "biases.2", "projections.0", "clusters", "cluster_bias",
    }  # fmt: skip
    assert layer.tables[1] is tables[1] and layer.projections[2] is projections[2]


@pytest.mark.parametrize("divisor", [1, 2])
def test_it_can_start_from_frequencies(divisor):
    layer = AdaptiveSoftmax(V, H, E, CUTOFFS, divisor)
    bind(layer, dtype=np.float64)  # all other weights are 0
    shares = RNG.dirichlet(np.ones(V))
    layer.set_frequencies(shares)
    np.testing.assert_allclose(np.exp(layer.forward(X[:1], Run())[0][0]), shares, rtol=1e-12)


@pytest.mark.parametrize("target", [-1, V])
def test_a_word_outside_the_vocabulary_is_refused(target):
    with pytest.raises(ValueError, match=rf"targets lie in \[.*{target}.*\], expected ids from 0 to 22"):
        random_softmax().loss(X[:2], np.array([3, target]), None, Run())
