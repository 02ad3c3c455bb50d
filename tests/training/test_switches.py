"""The switches of a run: on, off, for some layers; they change only memory and time."""

import json
from dataclasses import replace

import numpy as np
import pytest

from mini_bert.cli.main import _spelled_out
from mini_bert.common.sixteen_bit import narrow, stored, widen
from mini_bert.data.generator import Batch
from mini_bert.layers.base import Run
from mini_bert.layers.dropout import draw_keep
from mini_bert.layers.encoder import Recompute, RecomputeCache
from mini_bert.models import memory
from mini_bert.models.config import MiniBertConfig
from mini_bert.models.mini import MiniBERT
from mini_bert.training.optim import Adam
from mini_bert.training.parallel import Team
from mini_bert.training.settings import TrainingConfig
from mini_bert.training.switches import applied, apply, bare, checkpointed_layers, parse_checkpointing

CONFIG = MiniBertConfig(101, 24, 3, 3, 40, 16, dropout=0.3)
ROWS = [np.array([0, 5, 9, 20, 32]), np.array([3, 4, 12]), np.array([1, 31]), np.array([7, 8, 9, 10]), np.array([16])]


def settings(**changes):
    return TrainingConfig(steps=1, **changes)


def parts(seed=0):
    rng = np.random.default_rng(seed)
    return [Batch(rng.integers(5, 101, (3, 11)), row, rng.integers(5, 101, row.size)) for row in ROWS]


def trained(checkpointing, threads=2, dtype=np.float32, steps=3):
    """The weights and losses of some steps with dropout, without clipping."""
    model = MiniBERT(CONFIG, seed=2, dtype=dtype)
    adam, losses = Adam(model.flat, 1e-2), []
    with applied(model, settings(checkpointing=checkpointing)), Team(model, threads) as team:
        for step in range(steps):
            losses.append(team.gradient(parts(step), seed=(7, step)).loss)
            adam.step(map=team.map)
    return losses, model.flat.data.copy()


@pytest.mark.parametrize(("checkpointing", "threads"), [(True, 1), (True, 3), ((0, 2), 2), ((2,), 2)])
def test_checkpointing_changes_no_bit(checkpointing, threads):
    """Three steps with dropout, the last block on chosen rows: all losses and weights are the same as without."""
    losses, weights = trained(False, threads)
    again, same = trained(checkpointing, threads)
    assert again == losses
    np.testing.assert_array_equal(same, weights)


def test_only_the_named_layers_hold_their_input_alone():
    model = MiniBERT(CONFIG)
    names = list(model.named_params())
    apply(model, settings(checkpointing=(0, 2)))
    assert [isinstance(block, Recompute) for block in model.encoder.blocks] == [True, False, True]
    assert list(model.named_params()) == names
    _, cache = model.loss(*parts()[0][:3], run=Run(1, train=True))
    assert [isinstance(block, RecomputeCache) for block in cache.encoded.blocks] == [True, False, True]
    apply(model, settings(checkpointing=True))  # whatever was set before
    assert [type(block.layer).__name__ for block in model.encoder.blocks] == ["MiniTransformerLayer"] * 3
    apply(model, settings())
    assert not any(isinstance(block, Recompute) for block in model.encoder.blocks)


def test_the_model_is_left_as_it_was_found():
    """Also if there is an error in between; its caches then show every layer again."""
    model = MiniBERT(CONFIG)
    before = list(model.encoder.blocks)
    with pytest.raises(ZeroDivisionError), applied(model, settings(checkpointing=True)):
        assert model.replica().encoder.blocks[0].layer.p == 0.3
        _, cache = model.forward(parts()[0].input_ids)
        assert "block_input_1" in cache and "attention_weights_1" not in cache
        with pytest.raises(KeyError, match="checkpointing keeps only a block's input"):
            cache["attention_weights_1"]
        raise ZeroDivisionError
    assert model.encoder.blocks == before
    assert "attention_weights_1" in model.forward(parts()[0].input_ids)[1]


@pytest.mark.parametrize(
    ("text", "expected"), [("all", True), ("none", False), ("0,2,4", (0, 2, 4)), ("3", (3,)), ("2,0,2", (0, 2))]
)
def test_what_one_types(text, expected):
    """It becomes a setting, survives JSON, and selects layers."""
    found = settings(checkpointing=parse_checkpointing(text))
    assert found.checkpointing == expected
    assert TrainingConfig.from_dict(json.loads(json.dumps(found.to_dict()))) == found
    assert checkpointed_layers(True, 3) == {0, 1, 2} and checkpointed_layers((0, 2), 3) == {0, 2}


def test_the_option_alone_means_all():
    assert _spelled_out(["train", "--checkpointing", "--quiet"]) == ["train", "--checkpointing=all", "--quiet"]
    assert _spelled_out(["train", "--checkpointing"]) == ["train", "--checkpointing=all"]
    assert _spelled_out(["train", "--checkpointing", "0,2"]) == ["train", "--checkpointing", "0,2"]
    assert _spelled_out([]) == []


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: parse_checkpointing("first"), "--checkpointing is 'first', expected nothing or all"),
        (lambda: settings(checkpointing="all"), "checkpointing is 'all', expected True"),
        (lambda: settings(checkpointing=(-1,)), r"checkpointing is \(-1,\)"),
        (lambda: apply(MiniBERT(CONFIG), settings(checkpointing=(0, 3))), "layer 3, but the model has layers 0 to 2"),
    ],
)
def test_what_makes_no_sense_is_said(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_attention_is_set_and_set_back():
    """The method is set in every block, wrapped or not; the gradient is that of plain attention, up to rounding."""
    found = {}
    for method in ("plain", "lean"):
        model = MiniBERT(replace(CONFIG, dropout=0.0), seed=2, dtype=np.float64)
        with applied(model, settings(attention=method, checkpointing=(1,))), Team(model, 2) as team:
            methods = [bare(block).attention.method for replica in team.replicas for block in replica.encoder.blocks]
            assert methods == [method] * 6
            found[method] = team.gradient(parts()).loss, model.flat.grad.copy()
        assert [block.attention.method for block in model.encoder.blocks] == ["auto"] * 3
    assert found["lean"][0] == pytest.approx(found["plain"][0], abs=1e-12)
    np.testing.assert_allclose(found["lean"][1], found["plain"][1], atol=1e-12)
    with pytest.raises(ValueError, match="attention is 'dense', expected one of auto, plain, lean"):
        settings(attention="dense")


def test_sixteen_bits_are_put_on_and_taken_off():
    """Caches of blocks without checkpointing are packed; weights are 16-bit during the run, and float32 afterwards."""
    model = MiniBERT(CONFIG, seed=2)
    exact = model.flat.data.copy()
    with applied(model, settings(checkpointing=(0,), activations="bfloat16", weights="bfloat16")):
        kinds = [type(block).__name__ for block in model.encoder.blocks]
        assert kinds == ["Recompute", "Packed", "Packed"] and model.flat.data.itemsize == 2
        with Team(model, 2) as team:
            rounded = team.gradient(parts(), seed=(7, 3)).loss
    assert [type(block).__name__ for block in model.encoder.blocks] == ["MiniTransformerLayer"] * 3
    assert model.flat.data.dtype == np.float32
    np.testing.assert_allclose(model.flat.data, exact, rtol=2**-8)
    whole = MiniBERT(CONFIG, seed=2)
    with Team(whole, 2) as team:
        assert rounded == pytest.approx(team.gradient(parts(), seed=(7, 3)).loss, rel=1e-2)
    with pytest.raises(ValueError, match="moments is 'int8', expected one of float32, bfloat16, float16"):
        settings(moments="int8")


@pytest.mark.parametrize("part", [1, 100, 1 << 20])
def test_weights_are_rounded_a_part_at_a_time_and_none_is_left_out(part, monkeypatch):
    monkeypatch.setattr(memory, "PART", part)
    model = MiniBERT(replace(CONFIG, num_layers=1), seed=2)
    model.flat.data[...] += 1.0  # so that none is 0, as in memory that was never written
    expected = stored(model.flat.data.size, "bfloat16")
    narrow(model.flat.data, expected)
    model.keep_weights("bfloat16")
    np.testing.assert_array_equal(model.flat.data, expected)
    np.testing.assert_array_equal(model.keep_weights("float32").flat.data, widen(expected))


@pytest.mark.parametrize(
    ("changes", "dtype", "message"),
    [
        ({"weights": "bfloat16", "checkpointing": True}, np.float64, "computes in float64"),
        ({"checkpointing": (7,), "activations": "bfloat16"}, np.float32, "names layer 7"),
    ],
)
@pytest.mark.parametrize(
    "on", [apply, lambda model, given: applied(model, given).__enter__()], ids=["apply", "applied"]
)
def test_what_cannot_be_switched_on_changes_nothing(on, changes, dtype, message):
    model = MiniBERT(CONFIG, dtype=dtype)
    before = list(model.encoder.blocks)
    with pytest.raises(ValueError, match=message):
        on(model, settings(attention="lean", **changes))
    assert all(now is then for now, then in zip(model.encoder.blocks, before, strict=True))
    assert [block.attention.method for block in before] == ["auto"] * 3 and model.flat.data.dtype == dtype


def test_the_switches_go_off_when_they_could_not_all_be_put_on(monkeypatch):
    """If memory runs out while weights are rounded, earlier changes are undone."""
    model = MiniBERT(CONFIG)

    def full(kind):
        raise MemoryError

    monkeypatch.setattr(model, "keep_weights", full)
    with pytest.raises(MemoryError), applied(model, settings(attention="lean", checkpointing=True, weights="float16")):
        pass
    assert [block.attention.method for block in model.encoder.blocks] == ["auto"] * 3


# ---------------------------------------------------------------------- dropout, whoever computes


def masks(cache):
    """Every dropout mask of a loss, in order"""
    found = [cache.encoded.embedding[-1].keep]
    for block in cache.encoded.blocks:
        found += [d.keep for d in (block.attention.attended.dropped, block.attention_dropped, block.output_dropped)]
    return found


@pytest.mark.parametrize("threads", [1, 2, 3, 5])
def test_dropout_does_not_depend_on_the_number_of_threads(threads, monkeypatch):
    """Each part of a batch gets the same masks on any thread, so results differ at most by the order of sums."""
    seen = {}
    loss, loss_of = MiniBERT.loss, MiniBERT.loss_of

    def watched(model, inputs, *rest, **keywords):
        found, cache = loss_of(model, inputs, *rest, **keywords)
        seen[inputs.ids.tobytes()] = [mask.copy() for mask in masks(cache)]
        return found, cache

    monkeypatch.setattr(MiniBERT, "loss_of", watched)
    model = MiniBERT(CONFIG, seed=2, dtype=np.float64)
    with Team(model, threads) as team:
        outcome = team.gradient(parts(), seed=(7, 3))
    monkeypatch.setattr(MiniBERT, "loss_of", loss_of)
    alone = MiniBERT(CONFIG, seed=2, dtype=np.float64)
    total, count = 0.0, sum(part.targets.size for part in parts())
    for i, part in enumerate(parts()):  # the parts one by one, with nothing of training/parallel.py
        run = Run((7, 3), train=True, first=i * len(part.input_ids))
        part_loss, cache = loss(alone, *part[:4], run=run, count=count)
        for mask, expected in zip(seen[part.input_ids.tobytes()], masks(cache), strict=True):
            np.testing.assert_array_equal(mask, expected)
        alone.loss_backward(cache, run=run)
        total += float(part_loss)
    assert len(seen) == 5 and outcome.loss == pytest.approx(total, abs=1e-12)
    np.testing.assert_allclose(model.flat.grad, alone.flat.grad, atol=1e-13)


@pytest.mark.parametrize("change", [{"size": 1}, {"size": 3, "threads": 2}, {"size": 5}, {"attention": "lean"},
                                    {"size": 5, "threads": 3, "attention": "lean", "checkpointing": True}])  # fmt: skip
def test_neither_micro_batch_nor_method_of_attention_changes_what_is_dropped(change):
    """All give the gradient of the undivided batch, up to rounding, with dropout on."""

    def gradient(size=15, threads=1, **switches):
        model = MiniBERT(CONFIG, seed=2, dtype=np.float64)
        rng = np.random.default_rng(3)
        ids, asked, targets = rng.integers(5, 101, (15, 11)), rng.random((15, 11)) < 0.2, rng.integers(5, 101, (15, 11))
        some = [slice(low, low + size) for low in range(0, 15, size)]
        parts = [Batch(ids[s], np.flatnonzero(asked[s]), targets[s][asked[s]]) for s in some]
        with applied(model, settings(**switches)), Team(model, threads) as team:
            return team.gradient(parts, (7, 3)), model.flat.grad.copy()

    outcome, expected = gradient()
    found, gradients = gradient(**change)
    assert found.loss == pytest.approx(outcome.loss, abs=1e-12) and np.abs(expected).max() > 0.01
    np.testing.assert_allclose(gradients, expected, atol=1e-13)


def test_each_part_and_step_has_masks_of_its_own():
    model, (part, *_) = MiniBERT(CONFIG), parts()
    runs = [Run((7, 3), True), Run((7, 3), True, first=len(part.input_ids)), Run((7, 4), True)]
    found = [masks(model.loss(*part[:3], run=run)[1]) for run in runs]
    for i, j in ((0, 1), (0, 2), (1, 2)):
        assert all((one != other).any() for one, other in zip(found[i], found[j], strict=True))


def test_evaluation_has_no_dropout():
    """Even if the model is in training mode: nothing is drawn, and the result is that of a model without dropout."""
    from mini_bert.evaluation.evaluate import evaluate

    model = MiniBERT(CONFIG, seed=2)
    plain = MiniBERT(replace(CONFIG, dropout=0.0), seed=2)
    with applied(model, settings(checkpointing=True)):
        assert evaluate(model.set_training(True), parts()) == evaluate(plain, parts())


@pytest.mark.parametrize("p", [0.1, 0.5, 0.003, 0.999, 1 / 256])
def test_the_share_that_is_dropped_is_exact(p):
    """Rates that are not multiples of 1/256 are met, too, within five standard deviations of a million draws."""
    n = 1_000_000
    dropped = n - np.count_nonzero(draw_keep(Run(3).keys(np.arange(1000)), range(1000), p))
    assert abs(dropped - n * p) < 5 * (n * p * (1 - p)) ** 0.5


def test_masks_of_any_length_and_their_bits():
    """Also for a few numbers; the bits depend on the seed alone, the same on every machine and in every release."""
    assert [draw_keep(Run(1).keys(0), range(n), 0.5).shape for n in (0, 1, 7, 9)] == [(1, 0), (1, 1), (1, 7), (1, 9)]
    assert draw_keep(Run(1).keys(np.arange(0)), range(5), 0.5).shape == (0, 5)
    drawn = draw_keep(Run(0).keys(np.arange(3)), range(8), 0.5)
    assert np.packbits(drawn).tolist() == FIRST_BITS
    rare = draw_keep(Run(0).keys(np.arange(40)), range(100), 0.5 / 256)  # where one byte is never enough
    assert np.flatnonzero(~rare).tolist() == RARE


FIRST_BITS = [26, 192, 211]  # computed once with Python's whole numbers, by the formulas in common/draws.py
RARE = [396, 761, 787, 2494, 2535, 2620, 2736, 2865, 3086, 3424]
