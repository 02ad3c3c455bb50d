"""Replaced-token detection: a generator fills gaps, a discriminator finds them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from mini_bert.common.draws import address, uniform
from mini_bert.evaluation.evaluate import measure
from mini_bert.layers.base import Run
from mini_bert.layers.cross_entropy import cross_entropy
from mini_bert.models.base import MASKED_WORDS, REPLACED, Inputs
from mini_bert.models.bert import Bert
from mini_bert.models.electra import PRESET, Electra
from mini_bert.models.sizes import Sizes
from mini_bert.objectives.base import Rows
from mini_bert.objectives.masking import Masking
from mini_bert.objectives.replaced_tokens import GENERATOR, WEIGHT, Batch, ReplacedTokens, sample
from mini_bert.text.loading import load_tokenizer
from mini_bert.training.parallel import Team
from mini_bert.training.setup import Wanted, set_up
from tests.objectives.stand_ins import CONFIG, Pair, V, check_gradients

MASK = 4
MASKING = Masking(V, MASK, range(5), 0.3)
IDS = np.random.default_rng(1).integers(5, V, (4, 7))
LENGTHS = np.array([7, 5, 7, 6])
KEYS = address(0, np.arange(4))


def made(padded=True, masking=MASKING):
    ids = IDS.copy()
    if padded:
        ids[np.arange(7) >= LENGTHS[:, None]] = 0
    return ReplacedTokens(masking).batch(Rows(ids, LENGTHS if padded else None), KEYS), ids


def test_of_the_chosen_words_85_percent_are_masked_and_none_is_replaced_by_another():
    ids, keys = np.random.default_rng(1).integers(5, V, (400, 64)), address(0, np.arange(400))
    batch = ReplacedTokens(MASKING).batch(Rows(ids), keys)
    seen = batch.input_ids.ravel()[batch.rows]
    masked, n = seen == MASK, seen.size
    assert abs(masked.sum() - 0.85 * n) < 5 * np.sqrt(n * 0.85 * 0.15)
    np.testing.assert_array_equal(seen[~masked], batch.targets[~masked])


def test_a_batch_has_all_that_is_needed_to_restore_the_text():
    batch, ids = made()
    np.testing.assert_array_equal(batch.targets, ids.ravel()[batch.rows])
    restored = batch.input_ids.copy()
    restored.ravel()[batch.rows] = batch.targets
    np.testing.assert_array_equal(restored, ids)
    assert ReplacedTokens().size(batch) == (4, 28, {MASKED_WORDS: batch.rows.size, REPLACED: 25})


def test_samples_have_the_generators_probabilities():
    """40,000 draws from one distribution, within five standard deviations; each inverts the cumulative sum."""
    logits = np.array([2.0, -1.0, 0.5, 0.0, 1.0, -40.0])
    n = 40_000
    _, entropy = cross_entropy(np.tile(logits, (n, 1)), np.zeros(n, int))
    u = uniform(address(5, np.arange(n)))
    drawn = sample(entropy, u)
    p = np.exp(logits) / np.exp(logits).sum()
    counts = np.bincount(drawn, minlength=6)
    assert (np.abs(counts - n * p) <= 5 * np.sqrt(n * p * (1 - p)) + 1e-6).all() and counts[5] == 0
    np.testing.assert_array_equal(drawn, np.searchsorted(np.cumsum(p), u, side="right"))


def test_extreme_draws_stay_in_the_vocabulary():
    _, entropy = cross_entropy(np.array([[0.0, 0.0], [0.0, 0.0], [np.nan, 0.0]]), np.zeros(3, int))
    assert sample(entropy, np.array([0.0, 1 - 2.0**-53, 0.5])).tolist()[:2] == [0, 1]
    assert sample(entropy, np.full(3, 0.5)).max() <= 1


@pytest.mark.parametrize("padded", [False, True])
def test_the_parts_are_those_of_two_separate_models(padded):
    """MLM of the generator, and cross-entropy of σ(z) at every real token of the text with the sampled words."""
    model, (batch, ids) = Pair(), made(padded)
    objective = ReplacedTokens(MASKING)
    count = objective.size(batch).targets
    parts = objective.loss(model, batch, Run(), count)
    words, cache = model.generator.loss(batch.input_ids, batch.rows, batch.targets, batch.attention_mask)
    assert list(parts) == [MASKED_WORDS, REPLACED]
    assert parts[MASKED_WORDS].loss == pytest.approx(float(words), rel=1e-12)

    sampled = objective._sample(cache, batch)
    filled = ids.copy()
    filled.ravel()[batch.rows] = sampled
    inputs = model.check_inputs(filled, batch.attention_mask)
    z = model.score(REPLACED, model.encode_inputs(inputs, Run())[0].reshape(28, -1), Run())[0][:, 1]
    label = (filled != ids).ravel()
    losses = np.where(label, np.log1p(np.exp(-z)), np.log1p(np.exp(z)))
    real = np.ones(28, bool) if batch.attention_mask is None else batch.attention_mask.ravel()
    assert label.any() and parts[REPLACED].loss == pytest.approx(losses[real].mean(), rel=1e-12)
    assert parts[REPLACED].correct == ((z > 0) == label)[real].sum() and parts[REPLACED].targets == real.sum()
    found = measure(model, [batch], objective=objective)
    assert found.result.loss == pytest.approx(float(words)) and list(found.parts) == [MASKED_WORDS, REPLACED]
    assert found.parts[REPLACED].loss == pytest.approx(parts[REPLACED].loss, rel=1e-12)


def test_a_word_that_was_guessed_right_is_original():
    """A generator that is sure of the right words leaves nothing to find: all labels are 0."""
    model, (batch, ids) = Pair(), made(padded=False)
    objective = ReplacedTokens(MASKING)
    hidden = objective._find(model, batch, model.check_inputs(ids), batch.targets, Run(), {REPLACED: 28})
    assert not hidden.parts()[REPLACED][1].targets.any()


@pytest.mark.parametrize("padded", [False, True])
def test_gradients(padded):
    """Of the generator's loss and 50 times the discriminator's; the sampled words stay the same."""
    objective = ReplacedTokens(MASKING)
    check_gradients(Pair(), objective, made(padded)[0], weigh={REPLACED: WEIGHT})


def test_no_gradient_flows_through_the_samples():
    """The generator's gradient is that of its own loss."""
    model, (batch, _) = Pair(), made()
    objective = ReplacedTokens(MASKING)
    model.zero_grad()
    objective.loss(model, batch, Run(0, train=True), objective.size(batch).targets)
    together = {name: param.grad.copy() for name, param in model.generator.named_params().items()}
    model.zero_grad()
    inputs = Inputs(*model.check_inputs(batch.input_ids, batch.attention_mask)[:3])
    _, cache = model.generator.loss(
        inputs.ids, batch.rows, batch.targets, batch.attention_mask, run=Run(0, train=True).fork(GENERATOR)
    )
    model.generator.loss_backward(cache)
    for name, param in model.generator.named_params().items():
        np.testing.assert_allclose(together[name], param.grad, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("threads", [2, 3])
def test_threads_fill_the_same_gaps(threads):
    """The samples depend on the sequence and not on where it is computed: losses agree to rounding."""
    masking, found = Masking(V, MASK, range(5), 0.3), []
    rows = Rows(np.random.default_rng(2).integers(5, V, (12, 7)))
    whole = ReplacedTokens(masking).batch(rows, address(1, np.arange(12)))
    T = 7
    parts = []
    for low in range(0, 12, 2):
        own = (whole.rows >= low * T) & (whole.rows < (low + 2) * T)
        parts.append(Batch(whole.input_ids[low : low + 2], whole.rows[own] - low * T, whole.targets[own],
                           keys=whole.keys[low : low + 2]))  # fmt: skip
    for count, given in ((1, [whole]), (threads, parts)):
        model = Pair()
        with Team(model, count) as team:
            outcome = team.gradient(given, (0, 1), ReplacedTokens(masking))
        found.append((outcome, model.flat.grad.copy()))
    for name in (MASKED_WORDS, REPLACED):
        assert found[0][0].parts[name].loss == pytest.approx(found[1][0].parts[name].loss, rel=1e-12)
        assert found[0][0].parts[name].correct == found[1][0].parts[name].correct
    np.testing.assert_allclose(found[0][1], found[1][1], rtol=1e-9, atol=1e-12)


def test_starts_and_baselines():
    model, objective = Pair(), ReplacedTokens(MASKING)
    counts = np.arange(V)
    objective.start(model, counts)
    np.testing.assert_allclose(np.exp(model.generator.word_bias.data).sum(), 1)
    assert objective.uniform_losses(model) == {
        MASKED_WORDS: pytest.approx(np.log(V)),
        REPLACED: pytest.approx(np.log(2)),
    }
    assert (
        objective.word_model(model) is model.generator
        and objective.start_record(counts, np.zeros(V))["mask_prob"] == 0.3
    )
    generator = Sizes("", 9, 4, 1, 1, 8, 7, 99, True, False, False, True, 1, 1.0, 1)
    planned = ReplacedTokens.sizes(generator._replace(before=generator), mask_prob=0.3)
    assert (planned.predicted, planned.before.predicted) == (1.0, 0.3)


def test_errors():
    bert = Bert(CONFIG, (MASKED_WORDS,))
    assert ReplacedTokens.missing(bert) == ["head replaced", "generator"]
    alone = Pair()
    alone.generator = None
    with pytest.raises(ValueError, match=r"this Pair has no generator to fill the gaps with.*config.with_generator"):
        ReplacedTokens().check(alone)
    with pytest.raises(TypeError, match="a batch is a tuple, expected a Batch"):
        ReplacedTokens().size(())
    with pytest.raises(ValueError, match="a batch has no keys"):
        ReplacedTokens().loss(Pair(), made()[0]._replace(keys=None), Run(), {MASKED_WORDS: 1, REPLACED: 1})


def test_the_weight_scales_the_discriminators_gradients_and_no_others():
    """The tables that both share get the generator's gradient plus the weighted one."""
    batch, grads = made()[0], {}
    for weight in (1e-9, 1.0, 50.0):
        model = Pair()
        model.zero_grad()
        objective = ReplacedTokens(MASKING, weight)
        objective.loss(model, batch, Run(), objective.size(batch).targets)
        grads[weight] = {name: param.grad.copy() for name, param in model.named_params().items()}
    assert any(np.abs(grads[1e-9][name] - grads[50.0][name]).max() > 1e-6 for name in grads[1.0])
    for name, alone in grads[1e-9].items():
        np.testing.assert_allclose(grads[50.0][name] - alone, 50 * (grads[1.0][name] - alone), rtol=1e-4, atol=1e-6)


def test_a_new_models_tables_follow_the_generator_and_a_published_one_continues_as_it_was_trained(tmp_path):
    new, given = set_up(Wanted("electra")), set_up(Wanted("electra", replaced_weight=3.0))
    assert new.options["replaced_weight"] == 0.02 and given.options["replaced_weight"] == 3.0
    assert ReplacedTokens().weight == 50
    tokenizer = load_tokenizer("8k")
    small = replace(PRESET, num_hidden_layers=1)
    Electra(small).save_pretrained(tmp_path)
    tokenizer.save(tmp_path)
    assert "replaced_weight" not in set_up(Wanted(init=str(tmp_path))).options
    with pytest.raises(ValueError, match="replaced_weight is -1"):
        ReplacedTokens(MASKING, -1)
    with pytest.raises(ValueError, match="--replaced-weight has no effect on the objective masked_words"):
        set_up(Wanted("bert", replaced_weight=1.0))
