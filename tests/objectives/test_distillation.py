"""Distillation: a student learns from the text and from its teacher's answers and vectors."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from mini_bert.evaluation.evaluate import measure
from mini_bert.layers.base import Run
from mini_bert.models.base import MASKED_WORDS
from mini_bert.models.bert import Bert
from mini_bert.models.config import MiniBertConfig
from mini_bert.models.mini import MiniBERT
from mini_bert.models.xlnet import XLNet, XLNetConfig
from mini_bert.objectives.distillation import (
    HIDDEN_STATES,
    SOFT_TARGETS,
    WEIGHTS,
    Distillation,
    first_weights,
    load_teacher,
)
from mini_bert.objectives.masked_words import Batch
from mini_bert.text.wordpiece import WordPieceTokenizer
from mini_bert.training.parallel import Team
from tests.objectives.stand_ins import CONFIG, V, check_gradients

IDS = np.random.default_rng(0).integers(5, V, (4, 7))
ROWS = np.array([1, 5, 9, 16, 26])
BATCH = Batch(IDS, ROWS, np.array([7, 5, 18, 11, 6]), np.arange(7) < np.array([[7], [7], [5], [7]]))


def teacher(seed=1, dtype=np.float64, **changes):
    return Bert(replace(CONFIG, **changes), (MASKED_WORDS,), seed, dtype)


def student(dtype=np.float64, **changes):
    return Bert(replace(CONFIG, num_hidden_layers=1, **changes), (MASKED_WORDS,), 2, dtype)


def by_hand(model, teacher, temperature):
    """The three parts, in plain NumPy"""
    out, wanted = (one.forward(BATCH.input_ids, BATCH.attention_mask)[0] for one in (model, teacher))
    x, t, h, g = (
        array.reshape(28, -1)[ROWS] for array in (out.masked_words, wanted.masked_words, out.hidden, wanted.hidden)
    )

    def soft(logits, temperature):
        e = np.exp(logits / temperature)
        return e / e.sum(-1, keepdims=True)

    p, q = soft(x, temperature), soft(t, temperature)
    words = -np.log(soft(x, 1)[np.arange(5), BATCH.targets]).mean()
    divergence = temperature**2 * (q * np.log(q / p)).sum(-1).mean()
    agreed = (x.argmax(-1) == t.argmax(-1)).sum()
    if h.shape != g.shape:
        return words, divergence, agreed, None
    return (
        words,
        divergence,
        agreed,
        1 - ((h * g).sum(-1) / np.linalg.norm(h, axis=-1) / np.linalg.norm(g, axis=-1)).mean(),
    )


@pytest.mark.parametrize("temperature", [1.0, 2.0, 3.5])
def test_the_parts_are_those_computed_by_hand(temperature):
    model, objective = student(), Distillation(None, teacher(), temperature)
    parts = objective.loss(model, BATCH, Run(), objective.size(BATCH).targets)
    words, soft, agreed, hidden = by_hand(model, objective.teacher, temperature)
    assert list(parts) == [MASKED_WORDS, SOFT_TARGETS, HIDDEN_STATES]
    assert parts[MASKED_WORDS].loss == pytest.approx(words, rel=1e-10)
    assert parts[SOFT_TARGETS] == (pytest.approx(soft, rel=1e-10), agreed, 5)
    assert parts[HIDDEN_STATES] == (pytest.approx(hidden, rel=1e-10), None, 5)
    found = measure(model, [BATCH], objective=objective).parts
    assert found[MASKED_WORDS].loss == pytest.approx(words) and found[SOFT_TARGETS].loss == pytest.approx(soft)
    assert found[SOFT_TARGETS].top1 == agreed / 5


def test_gradients():
    """Of the weighted sum of the parts, with dropout in the student; the teacher has none, and gets no gradient."""
    objective = Distillation(None, teacher())
    assert sum(WEIGHTS.values()) == 1
    check_gradients(student(), objective, BATCH, weigh=WEIGHTS)
    assert not objective.teacher.flat.grad.any()


def test_gradients_where_the_widths_differ():
    """Then vectors are not compared."""
    objective = Distillation(None, teacher(hidden_size=10))
    model = student()
    assert list(objective.loss(model, BATCH, Run(), objective.size(BATCH).targets)) == [MASKED_WORDS, SOFT_TARGETS]
    check_gradients(student(), objective, BATCH, weigh=WEIGHTS)


@pytest.mark.parametrize("threads", [2, 3])
def test_threads_share_the_teacher(threads):
    """Parts of a batch add up to the whole, on any number of threads; a part without an accuracy has none."""
    found = []
    for count, parts in ((1, 1), (threads, 4)):
        model = student()
        with Team(model, count) as team:
            outcome = team.gradient(BATCH.split(parts), (0, 3), Distillation(None, teacher()))
        found.append((outcome, model.flat.grad.copy()))
    for name, part in found[0][0].parts.items():
        assert part.loss == pytest.approx(found[1][0].parts[name].loss, rel=1e-12)
        assert part.correct == found[1][0].parts[name].correct
    np.testing.assert_allclose(found[0][1], found[1][1], rtol=1e-9, atol=1e-13)


def test_a_student_that_is_its_teacher_agrees():
    """Without dropout, soft targets and vectors have no loss left."""
    objective = Distillation(None, teacher())
    parts = objective.loss(objective.teacher, BATCH, Run(), objective.size(BATCH).targets)
    assert parts[SOFT_TARGETS] == (pytest.approx(0, abs=1e-12), 5, 5)
    assert parts[HIDDEN_STATES].loss == pytest.approx(0, abs=1e-12)


def test_a_student_starts_with_layers_of_its_teacher():
    """Every second one, and everything outside the blocks; what the teacher does not have is named."""
    source = teacher(num_hidden_layers=3)
    model = Bert(replace(CONFIG, num_hidden_layers=2), ("masked_words", "pooler"), 5, np.float64)
    new = first_weights(model, source)
    assert new == ["pooler.dense.w", "pooler.dense.b"]
    theirs = source.named_params()
    for name, param in model.named_params().items():
        if name not in new:
            np.testing.assert_array_equal(param.data, theirs[name.replace("blocks.1.", "blocks.2.")].data)
    with pytest.raises(ValueError, match=r"width 8 cannot start.*, a Bert of width 6.*leave out --init-from-teacher"):
        first_weights(student(hidden_size=8), source)
    with pytest.raises(ValueError, match=r"4 layers, more than the 3 of its teacher.*leave out --init-from.*at most 3"):
        first_weights(teacher(num_hidden_layers=4), source)


def test_any_architecture_teaches_any_other(tmp_path):
    """A Mini-BERT folder as the teacher of a BERT; a model that predicts no words is refused by name."""
    words = [*"abcdefghijklmn"]
    tokenizer = WordPieceTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words])
    MiniBERT(MiniBertConfig(V, 8, 1, 2, 8, 7)).save_pretrained(tmp_path / "mini")
    objective = Distillation.for_tokenizer(tokenizer, teacher=str(tmp_path / "mini"), mask_prob=0.2)
    assert list(objective.loss(student(np.float32), BATCH, Run(), objective.size(BATCH).targets)) == list(WEIGHTS)[:2]
    assert objective.arguments["mask_prob"] == 0.2 and len(objective.arguments["teacher"]) == 64
    assert "its teacher, mini: with" in objective.summary
    Bert(CONFIG, ("pooler",)).save_pretrained(tmp_path / "encoder")
    with pytest.raises(
        ValueError, match=r"encoder cannot be a teacher: its Bert does not predict masked words.*pooler"
    ):
        load_teacher(str(tmp_path / "encoder"))
    with pytest.raises(ValueError, match="give its folder with --teacher"):
        load_teacher("")


def test_vocabularies_must_agree():
    with pytest.raises(ValueError, match="the student has 23 words, but its teacher, Bert, has 19"):
        Distillation(None, teacher()).check(student(vocab_size=23))
    with pytest.raises(ValueError, match="temperature is 0"):
        Distillation(None, teacher(), temperature=0)


def test_another_teacher_is_another_run():
    """Its weights are part of what a run is resumed with."""
    one, same, other = (Distillation(None, teacher(seed)).arguments for seed in (1, 1, 2))
    assert one == same != other


def test_an_xlnet_teaches_what_its_query_stream_predicts():
    """The stream that it was trained on. A student of an XLNet sees the answers that fill-mask would give."""
    xlnet = XLNet(XLNetConfig(V, 12, 2, 3, 16, mem_len=0, seq_len=20, initializer_range=0.5), dtype=np.float64)
    cache = Distillation(None, xlnet)._compare(student(), BATCH, Run(), len(ROWS))
    inputs = xlnet.hide(xlnet.check_inputs(BATCH.input_ids, BATCH.attention_mask), ROWS, 0)
    hidden, _ = xlnet.encode_inputs(inputs, Run(), ROWS)
    answers, _ = xlnet.score(MASKED_WORDS, hidden, Run())
    np.testing.assert_array_equal(cache.guesses, answers.argmax(-1))
    content, _ = xlnet.encode_inputs(xlnet.check_inputs(BATCH.input_ids, BATCH.attention_mask), Run(), ROWS)
    assert np.abs(hidden - content).max() > 0.1
