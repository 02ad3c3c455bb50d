"""What every BERT-like model can do, from RoBERTa to DeBERTa: rows, padding, switches, 16 bits, threads, pairs."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace

import numpy as np
import pytest

from mini_bert.common.sixteen_bit import widen
from mini_bert.files.model_folder import write_folder
from mini_bert.inference.loading import load_model
from mini_bert.layers.base import Run
from mini_bert.layers.encoder import Recompute
from mini_bert.layers.packed import Packed
from mini_bert.models.albert import AlbertConfig
from mini_bert.models.base import MASKED_WORDS, REPLACED
from mini_bert.models.deberta import DebertaConfig
from mini_bert.models.distilbert import DistilBertConfig
from mini_bert.models.electra import ElectraConfig
from mini_bert.models.loss import Term
from mini_bert.models.registry import model_class, preset
from mini_bert.models.roberta import RobertaConfig
from mini_bert.objectives.masked_words import Batch, MaskedWords
from mini_bert.training.parallel import Team
from mini_bert.training.plan import Choice, peak_activations, shape_of
from mini_bert.training.settings import TrainingConfig
from mini_bert.training.switches import applied, apply
from tests.models.relatives import DEBERTAS, EVERY, IDS, MASK, PAIRS, TYPES, build, gradient, scattered
from tests.training.test_plan import peak_of_a_step

every_model = pytest.mark.parametrize("name", EVERY)
every_pair = pytest.mark.parametrize(("config", "kind"), PAIRS.values(), ids=list(PAIRS))


@every_model
def test_chosen_rows_are_those_rows_of_all(name):
    model = scattered(build(name))
    whole, _ = model.encode(IDS, MASK, TYPES)
    chosen = np.array([0, 3, 9, 15, 3])
    some, _ = model.encode(IDS, MASK, TYPES, chosen=chosen)
    np.testing.assert_allclose(some, whole.reshape(21, -1)[chosen], rtol=1e-9, atol=1e-12)


@every_model
def test_padding_changes_nothing(name):
    model = scattered(build(name))
    together, _ = model.encode(IDS, MASK, TYPES)
    alone, _ = model.encode(IDS[1:2, :5], token_types=TYPES[1:2, :5])
    np.testing.assert_allclose(together[1, :5], alone[0], rtol=1e-9, atol=1e-12)


@every_model
def test_recomputed_blocks(name):
    """The same bits, with dropout."""
    model = build(name, np.float32)
    loss, plain = gradient(model, Run(3, train=True))
    for checkpointing in (True, (1,)):
        with applied(model, TrainingConfig(steps=1, checkpointing=checkpointing)):
            assert Recompute in {type(block) for block in model.encoder.blocks}
            again = gradient(model, Run(3, train=True))
        assert again[0] == loss
        np.testing.assert_array_equal(again[1], plain)


@every_model
def test_lean_attention(name):
    """Nearly the same numbers; DeBERTa, whose scores are sums, has none."""
    model = build(name, np.float32)
    _, plain = gradient(model, Run(3, train=True))
    if name in DEBERTAS:
        with pytest.raises(ValueError, match="attention is 'lean', but layer 0 of this Deberta"):
            apply(model, TrainingConfig(steps=1, attention="lean"))
        return
    with applied(model, TrainingConfig(steps=1, attention="lean")):
        lean = gradient(model, Run(3, train=True))[1]
    np.testing.assert_allclose(lean, plain, atol=1e-4 * np.abs(plain).max())


@every_model
def test_packed_blocks(name):
    """Caches in 16 bits give nearly the same gradients."""
    config, kind, heads = EVERY[name]
    wide = replace(config, **{"dim" if name == "distilbert" else "hidden_size": 60})  # small arrays are not packed
    model = kind(wide, heads)
    _, plain = gradient(model)
    with applied(model, TrainingConfig(steps=1, activations="bfloat16")):
        assert {type(block) for block in model.encoder.blocks} == {Packed}
        packed = gradient(model)[1]
    assert not np.array_equal(packed, plain)
    np.testing.assert_allclose(packed, plain, atol=0.03 * np.abs(plain).max())


@every_model
@pytest.mark.parametrize("kind", ["bfloat16", "float16"])
def test_weights_in_16_bits(name, kind):
    """Loss and gradients are those of the rounded weights."""
    narrow, exact = build(name, np.float32).keep_weights(kind), build(name, np.float32)
    exact.flat.data[...] = widen(narrow.flat.data)
    (loss, found), (wanted, gradients) = gradient(narrow), gradient(exact)
    assert loss == pytest.approx(wanted, rel=1e-5)
    np.testing.assert_allclose(found, gradients, rtol=1e-4, atol=1e-5 * np.abs(gradients).max())


@pytest.mark.parametrize("name", [name for name, (*_, heads) in EVERY.items() if MASKED_WORDS in heads])
def test_two_threads_give_the_gradient_of_one(name):
    rows = np.array([1, 4, 9])
    parts = [Batch(IDS, rows, IDS.ravel()[rows], MASK, TYPES), Batch(IDS[::-1], rows, IDS.ravel()[rows])]
    found = []
    for threads in (1, 2):
        model = scattered(build(name))
        with Team(model, threads) as team:
            team.gradient(parts, objective=MaskedWords())
        found.append(model.flat.grad.copy())
    np.testing.assert_allclose(found[0], found[1], atol=1e-12)


# ---------------------------------------------------------------------- pairs


@every_pair
def test_switches_reach_the_generator(config, kind):
    pair = kind(config, (REPLACED,))
    lean = {"attention": "lean"} if kind.model_type == "electra" else {}
    with applied(pair, TrainingConfig(steps=1, checkpointing=(0, 2), weights="bfloat16", **lean)):
        assert [type(block) is Recompute for block in pair.encoder.blocks] == [True, False, True]
        assert [type(block) is Recompute for block in pair.generator.encoder.blocks] == [True, False]
        assert getattr(pair.generator.encoder.blocks[1].attention, "method", "") == lean.get("attention", "")
        assert pair.generator.flat.data.itemsize == 2
        assert pair.file_tensors()  # names do not depend on wrappers
        gradient(pair), pair.generator.encode(IDS)
    assert not any(isinstance(block, Recompute) for block in pair.generator.encoder.blocks)
    assert pair.generator.flat.data.itemsize == 4


@every_pair
@pytest.mark.filterwarnings("error::UserWarning")
def test_a_pair_is_saved_as_two_models(config, kind, tmp_path):
    """The folder holds the discriminator, its subfolder the generator; together they are the pair again. A DeBERTa adds
    and subtracts the difference of the tables, which rounds."""
    pair = scattered(kind(config, (REPLACED,)))
    for _ in range(2):  # the second time over what is there
        pair.save_pretrained(tmp_path)
    discriminator, generator = load_model(tmp_path), load_model(tmp_path / "generator")
    assert discriminator.output_heads == (REPLACED,) and discriminator.generator is None
    assert generator.output_heads == (MASKED_WORDS,)
    rounding = 0 if kind.model_type == "electra" else 1e-6
    np.testing.assert_allclose(discriminator.encode(IDS)[0], pair.encode(IDS)[0], rtol=0, atol=rounding)
    np.testing.assert_array_equal(generator.forward(IDS)[0].masked_words, pair.generator.forward(IDS)[0].masked_words)
    again = kind.pair(discriminator, generator)
    assert again.config == pair.config
    np.testing.assert_allclose(again.flat.data, pair.flat.data, rtol=0, atol=rounding)
    with pytest.raises(ValueError, match=r"this discriminator: its layer_norm_eps is .*, not 0\.5, .* one pair"):
        kind.pair(kind(replace(config, generator=None, layer_norm_eps=0.5), (REPLACED,)), generator)
    with pytest.raises(ValueError, match="expected a discriminator and a generator"):
        kind.pair(discriminator, kind(generator.config, ()))


@every_pair
def test_a_checkpoint_holds_both_in_one_file(config, kind, tmp_path):
    """As the training loop writes it: one config.json, one model.safetensors."""
    pair = scattered(kind(config, (REPLACED,)))
    write_folder(tmp_path, pair.file_config(), pair.file_tensors())
    again = load_model(tmp_path)
    assert again.config == pair.config
    np.testing.assert_array_equal(again.flat.data, pair.flat.data)
    other = kind(config, (REPLACED,), seed=5).load_checkpoint(tmp_path)
    np.testing.assert_array_equal(other.flat.data, pair.flat.data)


# ---------------------------------------------------------------------- memory

SMALL = {"vocab_size": 6000, "hidden_size": 96, "num_hidden_layers": 4, "num_attention_heads": 4,
         "intermediate_size": 384}  # fmt: skip
BOTH = {"relative_attention": True, "pos_att_type": ("c2p", "p2c")}
ELECTRA = ElectraConfig(
    **SMALL, embedding_size=32, max_position_embeddings=64,
    generator={"hidden_size": 48, "intermediate_size": 192, "num_attention_heads": 2},
)  # fmt: skip


@pytest.mark.parametrize(
    ("config", "batch", "switches"),
    [
        (RobertaConfig(**SMALL, max_position_embeddings=66), 8, {}),
        (DistilBertConfig(6000, 64, n_layers=4, n_heads=4, dim=96, hidden_dim=384), 8, {}),
        (AlbertConfig(**SMALL, embedding_size=32, max_position_embeddings=64), 16, {}),
        pytest.param(
            AlbertConfig(**SMALL, embedding_size=32, max_position_embeddings=64), 16, {"checkpointing": True},
            marks=pytest.mark.slow,
        ),
        (DebertaConfig(**SMALL, max_position_embeddings=64, **BOTH), 8, {}),
        (replace(preset("deberta-v2"), vocab_size=6000, hidden_size=96, intermediate_size=384), 8, {}),
        (DebertaConfig(1000, 48, 2, 4, 192, max_position_embeddings=256, **BOTH), 4, {}),
    ],
)  # fmt: skip
def test_the_peak_of_a_step_is_foreseen(config, batch, switches):
    """Within 10 %, not counting the weights (as in tests/training/test_plan.py)"""
    model = config.sizes()
    shape = shape_of(model, batch)
    held, when = peak_activations(model, shape, Choice(batch, **switches))
    ranked = shape.N * model.vocab_size if when == "at the output head" else 0
    assert peak_of_a_step(config, shape, switches) == pytest.approx(held - ranked + 4 * (1 << 18), rel=0.1), when


@pytest.mark.parametrize(
    ("config", "batch", "moment"),
    [
        (ELECTRA, 16, "in the backward pass of block 3"),
        (replace(ELECTRA, num_hidden_layers=1, vocab_size=20000), 16, "at the output head of the generator"),
        (replace(preset("deberta-v3"), vocab_size=6000, hidden_size=96, intermediate_size=384, num_hidden_layers=4), 8,
         "in the backward pass of block 3"),
    ],
)  # fmt: skip
def test_the_peak_of_a_pair_is_foreseen(config, batch, moment):
    """Each model in turn, forward and backward: the larger of the two peaks"""
    sizes = config.sizes()
    shape = shape_of(sizes, batch)
    held, when = peak_activations(sizes, shape, Choice(batch))
    assert when == moment
    ranked = shape.N * sizes.vocab_size if "at the output head" in when else 0
    ids = np.random.default_rng(0).integers(5, 6000, (shape.B, shape.T))
    rows = (np.arange(0, ids.size, shape.T)[:, None] + np.arange(shape.M)).ravel()[: shape.N]
    tracemalloc.start()
    try:
        pair = model_class(config.to_dict())(config, (REPLACED,))
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(2):
            tracemalloc.reset_peak()
            for model, term in (
                (pair.generator, Term(MASKED_WORDS, rows, ids.ravel()[rows])),
                (pair, Term(REPLACED, None, ids.ravel() % 2)),
            ):
                run = Run(train=True, pool=pair.run.pool)
                _, cache = model.loss_of(model.check_inputs(ids), [term], run)
                model.loss_backward(cache, run=run)
                del cache
        peak = tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
    assert peak == pytest.approx(held - ranked + 4 * (1 << 18), rel=0.1), when
