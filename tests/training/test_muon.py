"""Muon compared with its formula, written out matrix by matrix, and with PyTorch's."""

import math
from pathlib import Path

import numpy as np
import pytest

from mini_bert.layers.base import Run
from mini_bert.models.config import MiniBertConfig
from mini_bert.models.mini import MiniBERT
from mini_bert.models.modernbert import ModernBert
from mini_bert.models.registry import load_config, model_class
from mini_bert.training import muon, orthogonal
from mini_bert.training.muon import Muon, block_matrices
from mini_bert.training.optim import Adam
from mini_bert.training.orthogonal import orthogonalised, polynomials
from mini_bert.training.parallel import Team

GOLDEN = Path(__file__).parents[1] / "golden"
CONFIG = MiniBertConfig(101, 24, 2, 3, 37, 16)  # V, H, L, A, I, T
PRESETS = ("mini", "larger", "bert", "gpt2", "modernbert", "roberta", "distilbert", "albert", "electra", "deberta",
           "deberta-v2", "deberta-v3", "transformer-xl", "xlnet")  # fmt: skip


def plain(x):
    """The product of the polynomials, without tricks: Frobenius norms of powers, one matrix product after another"""
    tall = x.shape[0] > x.shape[1]
    x = x.T if tall else x
    gram = x @ x.T
    x = x / np.trace(gram @ gram @ gram @ gram) ** 0.125
    for a, b, c in polynomials():
        gram = np.einsum("ij,kj->ik", x, x)
        x = a * x + np.einsum("ij,jk->ik", b * gram + c * gram @ gram, x)
    return x.T if tall else x


class Reference:
    """One matrix: w = w − lr (0.2 √max(r,c) · U Vᵀ + λ w)"""

    def __init__(self, w):
        self.w, self.m = w.copy(), np.zeros_like(w)

    def step(self, g, lr, mu, decay):
        self.m = mu * self.m + (1 - mu) * g
        update = 0.2 * math.sqrt(max(g.shape)) * plain((1 - mu) * g + mu * self.m)
        self.w -= lr * update + lr * decay * self.w


def test_steps_by_hand():
    """Queries, keys and values are three matrices; Adam moves everything else; the clipped gradient counts."""
    model = MiniBERT(CONFIG, seed=1, dtype=np.float64)
    twin = MiniBERT(CONFIG, seed=1, dtype=np.float64)
    ours, adam = Muon(model, 0.01, 0.03, 0.9, 0.1, beta2=0.99), Adam(twin.flat, 0.01, 0.9, 0.99, weight_decay=0.1)
    packed = {"qkv": 3, "output": 1, "expand": 1, "contract": 1}
    wanted = {
        name: [Reference(part) for part in np.split(param.data, packed[name.split(".")[-2]], 1)]
        for name, param in model.named_params().items() if ".blocks." in name and name.endswith(".w")
    }  # fmt: skip
    assert sum(map(len, wanted.values())) == 2 * 6 == len(ours.matrices)
    rng = np.random.default_rng(0)
    for scale in (1.0, 0.25, 0.5):
        model.flat.grad[...] = twin.flat.grad[...] = rng.normal(size=model.flat.grad.size)
        ours.step(0.005, scale)
        adam.step(0.005, scale)
        for name, param in model.named_params().items():
            if name in wanted:
                gradients = np.split(param.grad * scale, len(wanted[name]), 1)
                for one, gradient in zip(wanted[name], gradients, strict=True):
                    one.step(gradient, 0.005 * 3, 0.9, 0.1)
                expected = np.concatenate([one.w for one in wanted[name]], 1)
            else:
                expected = twin.named_params()[name].data
            np.testing.assert_allclose(param.data, expected, rtol=1e-9, atol=1e-12, err_msg=name)


@pytest.mark.peers
def test_torch_agrees(monkeypatch):
    """Ten steps of torch.optim.Muon, which computes in bfloat16, go the same way, within its precision. Queries,
    keys and values are three matrices.

    Of square matrices of noise, some singular values are so small that the polynomials matter, so those get none.
    """
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(orthogonal, "STEPS", 5)  # both nearly exact, whatever the polynomials
    polynomials.cache_clear()
    model = MiniBERT(CONFIG, seed=1, dtype=np.float64)
    ours = Muon(model, 0.01, momentum=0.95, weight_decay=0.02)
    start, params = model.flat.data.copy(), block_matrices(model)

    def parts(param, array):
        return np.split(array, param.matrices, 1)

    theirs = {
        (param.name, k): torch.nn.Parameter(torch.tensor(part))
        for param in params for k, part in enumerate(parts(param, param.data.copy()))
    }  # fmt: skip
    assert len(theirs) == 2 * 6
    reference = torch.optim.Muon(
        theirs.values(), lr=0.01, weight_decay=0.02, momentum=0.95, adjust_lr_fn="match_rms_adamw",
        ns_coefficients=(1.5, -0.5, 0.0), ns_steps=40,
    )  # fmt: skip
    rng = np.random.default_rng(0)
    for _ in range(10):
        model.flat.grad[...] = rng.normal(size=model.flat.grad.size)
        for param in params:
            for k, gradient in enumerate(parts(param, param.grad)):
                if gradient.shape[0] == gradient.shape[1]:
                    gradient += (15 + 5 * k) * np.eye(len(gradient))
                theirs[param.name, k].grad = torch.tensor(gradient.copy())
        ours.step()
        reference.step()
    polynomials.cache_clear()
    for param in params:
        before, after = start[param.place].reshape(param.shape), param.data
        for k, (old, new) in enumerate(zip(parts(param, before), parts(param, after), strict=True)):
            other = theirs[param.name, k].detach().numpy() - old
            assert np.linalg.norm(new - old - other) < 0.02 * np.linalg.norm(new - old), (param.name, k)


@pytest.mark.parametrize("preset", PRESETS)
def test_every_architecture_says_which_matrices_it_has(preset):
    """All weights of products in blocks, each once; no tables, heads, biases, norms. Widths are those of one matrix."""
    config = load_config(preset)
    kind = model_class(config.to_dict())
    model = kind(config, tuple(kind.head_shapes), None)
    found = {id(param) for param in block_matrices(model)}
    for name, param in model.named_params().items():
        in_block = ".blocks." in name and name.endswith(".w") and len(param.shape) == 2 and "talking" not in name
        assert (id(param) in found) == in_block, name
        if in_block:
            packed = 3 if ".qkv." in name else 2 if kind is ModernBert and ".expand." in name else 1
            assert param.matrices == packed and param.shape[1] % packed == 0, name
    assert len(found) > 3


def test_any_number_of_threads_and_any_order_give_the_same_bits():
    def weights(threads):
        model = MiniBERT(CONFIG, seed=1)
        optimiser = Muon(model)
        with Team(model, threads) as team:
            for step in range(3):
                model.flat.grad[...] = np.random.default_rng(step).normal(size=model.flat.grad.size)
                optimiser.step(map=team.map)
        return model.flat.data

    one = weights(1)
    for threads in (2, 5):
        np.testing.assert_array_equal(weights(threads), one)


def test_the_last_update_is_what_was_subtracted(monkeypatch):
    model = MiniBERT(CONFIG, seed=1, dtype=np.float64)
    optimiser = Muon(model, 0.01, 0.02, weight_decay=0.0)
    for step in range(2):
        model.flat.grad[...] = np.random.default_rng(step).normal(size=model.flat.grad.size)
        before = model.flat.data.copy()
        optimiser.step(scale=0.5)
    made = []
    monkeypatch.setattr(muon, "orthogonalised", lambda d: made.append(1) or orthogonalised(d))
    for param in model.named_params().values():  # in parts, as records do; every matrix is made orthogonal once
        for part in (slice(param.place.start, param.place.start + 3), slice(param.place.start + 3, param.place.stop)):
            moved = before[part] - model.flat.data[part]
            np.testing.assert_allclose(optimiser.last_update(part, 0.01), moved, rtol=1e-6, atol=1e-12)
    assert len(made) == len(optimiser.matrices)


@pytest.mark.parametrize("kind", ["bfloat16", "float16"])
def test_moments_and_weights_in_16_bits_go_nearly_the_same_way(kind):
    moved = {}
    for stored in ("float32", kind):
        model = MiniBERT(CONFIG, seed=1)
        start = model.flat.data.copy()
        model.keep_weights(stored)
        optimiser = Muon(model, 1e-2, moments=stored)
        assert optimiser.m.itemsize == (4 if stored == "float32" else 2)
        for step in range(20):
            model.flat.grad[...] = np.random.default_rng(step % 3).normal(size=model.flat.grad.size) * 0.01
            optimiser.step()
        model.keep_weights("float32")
        moved[stored] = model.flat.data - start
    assert np.linalg.norm(moved[kind] - moved["float32"]) < 0.1 * np.linalg.norm(moved["float32"])


def test_shared_weights_move_once():
    """ALBERT uses a block, which has six matrices, several times."""
    config = load_config(GOLDEN / "albert")
    model = model_class(config.to_dict())(config, ("masked_words",), 0)
    optimiser = Muon(model, 0.01, weight_decay=0.0)
    model.flat.grad[...] = np.random.default_rng(0).normal(size=model.flat.grad.size)
    matrix = next(param for param in block_matrices(model) if param.name.endswith("contract.w"))
    before = matrix.data.copy()
    optimiser.step()
    update = 0.01 * 0.2 * math.sqrt(max(matrix.shape)) * orthogonalised(matrix.grad)
    blocks = {id(block) for block in model.encoder.blocks}
    assert len(optimiser.matrices) == 6 * len(blocks) < 6 * model.depth
    np.testing.assert_allclose(before - matrix.data, update, atol=1e-6)


def test_it_learns():
    """Forty steps on one batch: from a uniform guess to certainty."""
    model = MiniBERT(CONFIG, seed=1)
    optimiser, rng = Muon(model, 1e-2), np.random.default_rng(0)
    ids, rows = rng.integers(5, 101, (8, 16)), np.arange(0, 128, 7)
    losses = []
    for _ in range(40):
        model.flat.grad[...] = 0
        loss, cache = model.loss(ids, rows, ids.ravel()[rows], run=Run())
        model.loss_backward(cache)
        optimiser.step()
        losses.append(float(loss))
    assert losses[0] > 4.4 and losses[-1] < 0.3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [({"momentum": 1.0}, "momentum is 1.0"), ({"matrix_lr": -1.0}, "matrix_lr is -1.0"),
     ({"lr": math.nan}, "lr is nan"), ({"lr": 0.0, "matrix_lr": 0.1}, "lr is 0.0"),
     ({"moments": "int8"}, "moments is 'int8'")],
)  # fmt: skip
def test_wrong_values_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        Muon(MiniBERT(CONFIG), **arguments)
    model = MiniBERT(CONFIG)
    before = model.flat.data.copy()
    with pytest.raises(ValueError, match="lr is nan"):
        Muon(model).step(math.nan)
    np.testing.assert_array_equal(model.flat.data, before)
    with pytest.raises(TypeError, match="pass the model, not a Flat"):
        Muon(MiniBERT(CONFIG).flat)
