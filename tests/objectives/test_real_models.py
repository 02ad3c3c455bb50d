"""The gradients of every objective through the architecture that it was made for, against finite differences."""

from __future__ import annotations

import numpy as np
import pytest

from mini_bert.common.draws import address
from mini_bert.layers.base import Run
from mini_bert.models.albert import Albert, AlbertConfig
from mini_bert.models.base import MASKED_WORDS, REPLACED, SENTENCE_ORDER
from mini_bert.models.bert import Bert, BertConfig
from mini_bert.models.deberta_v2 import DebertaV2, DebertaV2Config
from mini_bert.models.distilbert import DistilBert, DistilBertConfig
from mini_bert.models.electra import Electra, ElectraConfig
from mini_bert.models.gpt2 import GPT2, GPT2Config
from mini_bert.models.transformer_xl import TransformerXL, TransformerXLConfig
from mini_bert.models.xlnet import XLNet, XLNetConfig
from mini_bert.objectives.base import Rows
from mini_bert.objectives.distillation import WEIGHTS, Distillation
from mini_bert.objectives.masking import Masking
from mini_bert.objectives.next_word import NextWord, NextWordWithMemory
from mini_bert.objectives.permutation import Permutation
from mini_bert.objectives.registry import OBJECTIVES
from mini_bert.objectives.replaced_tokens import WEIGHT, ReplacedTokens
from mini_bert.objectives.sentence_order import MaskedWordsAndOrder
from mini_bert.training.parallel import Team
from tests.objectives.stand_ins import check_gradients

STOPPED = "generator.tokens.table"  # the discriminator of DeBERTa v3 reads it, but has no gradient there
V, T = 19, 7
MASKING = Masking(V, 4, range(5), 0.3)
IDS = np.random.default_rng(0).integers(5, V, (3, T + 1))
KEYS = address(0, np.arange(3))
LARGE = {"initializer_range": 0.5}
XL = TransformerXLConfig(V, (7,), 6, 6, 2, 3, 11, 2, n_layer=2, mem_len=3, clamp_len=-1, same_length=False, tgt_len=T,
                         init_std=0.5, proj_init_std=0.5, dropout=0.1)  # fmt: skip
PAIR = {"hidden_size": 4, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 5}
CASES = {
    "sentence order": (
        lambda dtype: Albert(AlbertConfig(V, 6, 2, 2, 11, embedding_size=5, max_position_embeddings=9, **LARGE),
                                   (MASKED_WORDS, SENTENCE_ORDER), dtype=dtype),
        lambda: MaskedWordsAndOrder(MASKING), None,
    ),
    "replaced tokens, ELECTRA": (
        lambda dtype: Electra(ElectraConfig(V, 6, 2, 2, 11, embedding_size=5, max_position_embeddings=9,
                                                  generator=PAIR, **LARGE), dtype=dtype),
        lambda: ReplacedTokens(MASKING), {REPLACED: WEIGHT},
    ),
    "replaced tokens, DeBERTa v3": (
        lambda dtype: DebertaV2(DebertaV2Config(
            V, 6, 2, 2, 11, max_position_embeddings=9, relative_attention=True, pos_att_type=["c2p"],
            generator={"num_hidden_layers": 1}, **LARGE), (REPLACED,), dtype=dtype),
        lambda: ReplacedTokens(MASKING), {REPLACED: WEIGHT},
    ),
    "permutation": (
        lambda dtype: XLNet(XLNetConfig(V, 6, 2, 2, 11, mem_len=0, seq_len=9, **LARGE), dtype=dtype),
        lambda: Permutation(MASKING), None,
    ),
    "next word": (lambda dtype: GPT2(GPT2Config(V, 9, 6, 2, 2, 11, **LARGE), dtype=dtype), NextWord, None),
    "next word with memory": (lambda dtype: TransformerXL(XL, dtype=dtype), NextWordWithMemory, None),
    "distillation": (
        lambda dtype: DistilBert(DistilBertConfig(V, 9, n_layers=1, n_heads=2, dim=6, hidden_dim=11, **LARGE),
                                       dtype=dtype),
        lambda: Distillation(MASKING, Bert(BertConfig(V, 6, 2, 2, 11, max_position_embeddings=9, **LARGE),
                                                 (MASKED_WORDS,), 5, np.float64)), WEIGHTS,
    ),
}  # fmt: skip


def made(objective):
    """A batch with padding, labels and lanes; objectives take what they need."""
    whole = objective.sequences["mode"] == "running"
    lanes = {"lanes": np.arange(3), "starts": np.array([True, False, False])} if objective.consecutive else {}
    ids = IDS if whole else IDS[:, :T]
    lengths = None if whole else np.array([7, 5, 6])
    return objective.batch(Rows(ids, lengths, labels=np.array([0, 1, 1]), **lanes), KEYS)


@pytest.mark.parametrize("name", CASES)
def test_gradients(name):
    """With dropout, of the sum of the parts with their weights; what is drawn or remembered stays fixed."""
    build, make, weigh = CASES[name]
    model, objective = build(np.float64), make()
    objective.begin(model, 3)
    rng = np.random.default_rng(0)
    remembered = {name: rng.normal(size=array.shape) for name, array in objective.memory.items()}

    def reset():
        for name, array in objective.memory.items():
            array[...] = remembered[name]

    skip = [STOPPED] if "DeBERTa" in name else []
    check_gradients(model, objective, made(objective), entries=3, reset=reset, weigh=weigh, skip=skip)


def test_the_discriminator_of_deberta_does_not_pull_at_the_generators_table():
    """It reads the table, but the gradient is that of the generator alone; its own goes to the difference."""
    build, make, _ = CASES["replaced tokens, DeBERTa v3"]
    model, objective = build(np.float64), make()
    batch = made(objective)
    count = objective.size(batch).targets
    objective.loss(model, batch, Run(0, train=True), count)
    together = model.named_params()[STOPPED].grad.copy()
    assert model.named_params()["tokens.difference"].grad.any()
    model.zero_grad()
    filling, _ = objective._fill(model, batch, Run(0, train=True), count)
    model.generator.loss_backward(filling)
    np.testing.assert_allclose(model.named_params()[STOPPED].grad, together, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("name", CASES)
def test_threads(name):
    """Replicas compute the same: one batch three times on three threads is that batch, with its mean loss."""
    build, make, _ = CASES[name]
    model, objective = build(np.float64), make()
    objective.begin(model, 3)
    batch = made(objective)
    if objective.consecutive:
        batch = batch._replace(starts=np.ones(3, bool))  # so that the batch is the same each time
    found = []
    for threads in (1, 3):
        with Team(model, threads) as team:
            outcome = team.gradient([batch] * 3 if threads == 3 else [batch], (0, 1), objective)
        found.append(outcome)
    assert list(found[0].parts) == list(found[1].parts)
    assert found[1].targets == 3 * found[0].targets
    assert np.isfinite(found[1].norm)


def test_every_architecture_names_an_objective():
    for build, make, _ in CASES.values():
        model = build(np.float32)
        assert model.objective in OBJECTIVES and not type(make()).missing(model)
