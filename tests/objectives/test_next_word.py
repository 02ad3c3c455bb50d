"""Predicting the next word, with and without a memory of the segment before."""

from __future__ import annotations

import numpy as np
import pytest

from mini_bert.evaluation.evaluate import measure
from mini_bert.layers.base import Run
from mini_bert.models.base import NEXT_WORD, Inputs
from mini_bert.objectives.base import Rows
from mini_bert.objectives.next_word import Batch, NextWord, NextWordWithMemory, _segments
from mini_bert.text.wordpiece import WordPieceTokenizer
from mini_bert.training.parallel import Team
from tests.objectives.stand_ins import CONFIG, Causal, Remembering, RememberingConfig, V, check_gradients

IDS = np.array([[3, 7, 1, 9, 5, 11], [8, 2, 6, 7, 1, 1]])
NO_KEYS = np.zeros(2, np.uint64)


def test_targets_are_the_same_tokens_one_place_further():
    batch = NextWord().batch(Rows(IDS), NO_KEYS)
    np.testing.assert_array_equal(batch.input_ids, IDS[:, :-1])
    assert batch.targets.tolist() == [7, 1, 9, 5, 11, 2, 6, 7, 1, 1] and batch.rows is None
    assert NextWord().size(batch) == (2, 10, {NEXT_WORD: 10})


def test_unknown_words_and_padding_are_not_predicted():
    batch = NextWord(unknown=1).batch(Rows(IDS), NO_KEYS)
    assert batch.rows.tolist() == [0, 2, 3, 4, 5, 6, 7] and batch.targets.tolist() == [7, 9, 5, 11, 2, 6, 7]
    batch = NextWord().batch(Rows(IDS, lengths=np.array([6, 4])), NO_KEYS)
    assert batch.rows.tolist() == [0, 1, 2, 3, 4, 5, 6, 7] and batch.targets.tolist() == [7, 1, 9, 5, 11, 2, 6, 7]
    assert batch.attention_mask.tolist() == [[True] * 5, [True] * 4 + [False]]


def test_a_separator_that_is_also_the_unknown_token_is_predicted():
    """In GPT-2's vocabulary, one token has both roles."""
    tokenizer = WordPieceTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a"])
    assert NextWord.for_tokenizer(tokenizer).unknown == tokenizer.unk_id
    tokenizer.roles["sep"] = tokenizer.roles["unk"]
    assert NextWord.for_tokenizer(tokenizer).unknown is None


def test_the_loss_is_the_mean_over_tokens_of_what_each_predicts_alone():
    """Each prefix alone gives the probability of its next token: no token has seen a later one."""
    model, objective = Causal(), NextWord()
    batch = objective.batch(Rows(IDS), NO_KEYS)
    losses = []
    for row in IDS:
        for end in range(1, 6):
            logits = model.score(NEXT_WORD, model.encode_inputs(Inputs(row[None, :end]), Run())[0][0, -1:], Run())[0][0]
            losses.append(np.log(np.exp(logits).sum()) - logits[row[end]])
    found = objective.loss(model, batch, Run(), {NEXT_WORD: 10})[NEXT_WORD]
    assert found.loss == pytest.approx(np.mean(losses), rel=1e-12) and found.targets == 10
    assert measure(model, [batch], objective=objective).result.loss == pytest.approx(np.mean(losses), rel=1e-12)
    assert objective.uniform_losses(model) == {NEXT_WORD: pytest.approx(np.log(V))}


@pytest.mark.parametrize("unknown", [None, 1])
def test_gradients(unknown):
    objective = NextWord(unknown)
    check_gradients(Causal(), objective, objective.batch(Rows(IDS), NO_KEYS))


# ---------------------------------------------------------------------- with a memory


def remembering(dtype=np.float64):
    values = {name: value for name, value in CONFIG.to_dict().items() if name != "model_type"}
    return Remembering(RememberingConfig(**values), dtype=dtype)


def segment(ids, lanes, starts):
    return NextWordWithMemory().batch(Rows(ids, lanes=np.array(lanes), starts=np.array(starts)), NO_KEYS)


def begun(model, lanes=4):
    objective = NextWordWithMemory()
    objective.begin(model, lanes)
    return objective


def test_gradients_with_a_memory():
    """The memory is an input without a gradient; finite differences keep it fixed."""
    model = remembering()
    objective = begun(model)
    rng = np.random.default_rng(0)
    before = {name: rng.normal(size=array.shape) for name, array in objective.memory.items()}
    batch = segment(IDS, [3, 1], [False, True])

    def reset():
        for name, array in objective.memory.items():
            array[...] = before[name]

    check_gradients(model, objective, batch, reset=reset)


def test_lanes_remember_and_forget():
    """A lane's memory is what its last segment left; other lanes keep theirs; where a lane begins, it was empty."""
    model = remembering()
    objective = begun(model)
    first, second = segment(IDS, [0, 2], [True, True]), segment(IDS[::-1], [0, 2], [False, True])
    objective.loss(model, first, Run(), {NEXT_WORD: 10})
    _, alone = model.encode_inputs(Inputs(IDS[:1, :-1], memory=[np.zeros((1, 3, 6))] * 2), Run())
    np.testing.assert_allclose(objective.memory["1"][0], alone.memory[1][0], rtol=1e-12)
    assert not objective.memory["1"][1].any() and not objective.memory["0"][3].any()
    kept = [array[0][None].copy() for array in objective.memory.values()]
    found = objective.loss(model, second, Run(), {NEXT_WORD: 10})[NEXT_WORD]
    wanted = 0.0
    for row, memory in ((IDS[1], kept), (IDS[0], [np.zeros((1, 3, 6))] * 2)):
        hidden, _ = model.encode_inputs(Inputs(row[None, :-1], memory=memory), Run())
        logits = model.score(NEXT_WORD, hidden[0], Run())[0]
        wanted += (np.log(np.exp(logits).sum(-1)) - logits[np.arange(5), row[1:]]).sum() / 10
    assert found.loss == pytest.approx(wanted, rel=1e-12)


def test_held_out_segments_are_read_one_after_the_other():
    """The same losses as training step by step; the memory of training is not touched."""
    model, rng = remembering(), np.random.default_rng(0)
    ids = rng.integers(0, V, (6, 5))  # two lanes, three segments
    whole = segment(ids, [0, 1] * 3, [True, True] + [False] * 4)
    objective = begun(model)
    steps = [objective.loss(model, piece, Run(), {NEXT_WORD: 8})[NEXT_WORD].loss for piece in _segments(whole, 2)]
    again = begun(model)
    found = measure(model, [whole], objective=again).result
    assert found.loss == pytest.approx(np.mean(steps), rel=1e-12) and found.targets == 24
    assert not any(array.any() for array in again.memory.values())


def test_segments_with_unknown_words():
    """The rows of a batch for evaluation are cut like its sequences."""
    ids = np.array([[3, 7, 1], [1, 2, 6], [4, 1, 1]])
    objective = NextWordWithMemory(unknown=1)
    whole = objective.batch(Rows(ids, lanes=np.zeros(3, int), starts=np.array([True, False, False])), NO_KEYS)
    pieces = _segments(whole, 1)
    assert [piece.rows.tolist() for piece in pieces] == [[0], [0, 1], []]
    assert [piece.targets.tolist() for piece in pieces] == [[7], [2, 6], []]
    found = measure(remembering(), [whole], objective=objective).result
    assert found.targets == 3 and np.isfinite(found.loss)


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_the_memory_does_not_depend_on_threads(threads):
    """Three steps of four micro-batches leave the same memory, bit for bit, and the same loss."""
    rng = np.random.default_rng(0)
    ids = rng.integers(0, V, (3, 8, 6))
    found = {}
    for count in (1, threads):
        model = remembering(np.float32)
        objective = begun(model, 8)
        with Team(model, count) as team:
            for step in range(3):
                parts = [
                    segment(ids[step, low : low + 2], range(low, low + 2), [step == 0] * 2) for low in range(0, 8, 2)
                ]
                outcome = team.gradient(parts, (0, step), objective)
        found[count] = outcome.loss, {name: array.copy() for name, array in objective.memory.items()}
    assert found[1][0] == pytest.approx(found[threads][0], rel=1e-6)
    for name, array in found[1][1].items():
        np.testing.assert_array_equal(array, found[threads][1][name])


def test_errors():
    objective = NextWordWithMemory()
    with pytest.raises(ValueError, match=r"this Causal has no memory.*objective next_word, or a Transformer-XL"):
        objective.check(Causal())
    with pytest.raises(ValueError, match="a batch has no lanes"):
        begun(remembering()).loss(remembering(), Batch(IDS, IDS.ravel()), Run(), {NEXT_WORD: 12})
    with pytest.raises(TypeError, match="a batch is a tuple, expected a Batch"):
        objective.size((IDS, IDS))
