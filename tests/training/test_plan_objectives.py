"""The memory planner knows what each objective needs: rows, scores, other models."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace

import numpy as np
import pytest

from mini_bert.common.draws import address
from mini_bert.layers.base import Run
from mini_bert.models import gpt2
from mini_bert.models.bert import Bert, BertConfig
from mini_bert.models.electra import ElectraConfig
from mini_bert.objectives.base import Rows
from mini_bert.objectives.distillation import Distillation
from mini_bert.objectives.masked_words import MaskedWords
from mini_bert.objectives.masking import Masking
from mini_bert.objectives.next_word import NextWord
from mini_bert.objectives.replaced_tokens import ReplacedTokens
from mini_bert.training.plan import Choice, memory_by_purpose, peak_activations, shape_of
from mini_bert.training.settings import TrainingConfig
from mini_bert.training.setup import build
from mini_bert.training.switches import apply

V, T = 6000, 64
BERT = BertConfig(V, 96, 4, 4, 384, max_position_embeddings=T)
ELECTRA = ElectraConfig(V, 96, 4, 4, 384, embedding_size=64, max_position_embeddings=T,
                        generator={"hidden_size": 48, "num_attention_heads": 2, "intermediate_size": 192})  # fmt: skip
GPT2 = replace(gpt2.PRESET, vocab_size=V, n_embd=96, n_layer=4, resid_pdrop=0.1, attn_pdrop=0.1)
MASKING, HALF = Masking(V, 4, range(5)), Masking(V, 4, range(5), 0.5)


def teacher(tmp_path):
    model = Bert(replace(BERT, hidden_size=192, intermediate_size=768), ("masked_words",), 0)
    model.save_pretrained(tmp_path)
    return model


@pytest.mark.parametrize(
    ("config", "kind", "switches"),
    [
        (BERT, "half", {}),
        (GPT2, "next word", {}),
        (GPT2, "next word", {"checkpointing": True}),
        (ELECTRA, "replaced", {}),
        (ELECTRA, "replaced", {"checkpointing": (0, 1)}),
        (ELECTRA, "replaced", {"activations": "bfloat16"}),
        (replace(BERT, num_hidden_layers=2), "distilled", {}),
    ],
)
def test_the_peak_of_a_step_is_foreseen(config, kind, switches, tmp_path):
    """The peak allocation of forward and backward is predicted within 10 %, not counting the weights."""
    options = {"half": {"mask_prob": 0.5}, "distilled": {"teacher": str(tmp_path)}}.get(kind, {})
    objective = {
        "half": lambda: MaskedWords(HALF),
        "next word": NextWord,
        "replaced": lambda: ReplacedTokens(MASKING),
        "distilled": lambda: Distillation(MASKING, teacher(tmp_path)),
    }[kind]()
    sizes = type(objective).sizes(config.sizes(), **options)
    shape = shape_of(sizes, 8)
    held, when = peak_activations(sizes, shape, Choice(8, **switches))
    if when.startswith("at the output head"):  # evaluation's share: there is none here
        part = sizes.before if "of the" in when else sizes
        held -= shape_of(part, 8).N * part.classes
    assert measured(config, objective, switches) == pytest.approx(held + 4 * (1 << 18), rel=0.1), when


def measured(config, objective, switches):
    """Bytes allocated at the peak of a step"""
    more = 1 if isinstance(objective, NextWord) else 0
    rows = Rows(np.random.default_rng(0).integers(5, V, (8, T + more)))
    batch = objective.batch(rows, address(0, np.arange(8)))
    model = build(config, type(objective), seed=0)
    apply(model, TrainingConfig(steps=1, **switches))
    count = objective.size(batch).targets
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(2):
            tracemalloc.reset_peak()
            objective.loss(model, batch, Run(train=True, pool=model.run.pool), count)
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


def test_a_teacher_is_kept(tmp_path):
    """Its weights are in the plan once, whatever the number of threads."""
    weights = 4 * teacher(tmp_path).get_parameter_count()
    sizes = Distillation.sizes(BERT.sizes(), teacher=str(tmp_path))
    for threads in (1, 2):
        needs = memory_by_purpose(sizes, Choice(8, threads))
        assert needs["kept by the objective"] == pytest.approx(weights, rel=0.05)
    assert "kept by the objective" not in memory_by_purpose(BERT.sizes(), Choice(8))
