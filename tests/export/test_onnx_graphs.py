"""Exported graphs: ONNX's checker accepts them, and ONNX Runtime computes what our forward pass computes."""

from __future__ import annotations

from itertools import product
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from mini_bert.export.names import END, HIDDEN, INPUT_IDS, LOGITS, MASK, START, TYPES
from mini_bert.export.recording import own_head, record, words
from mini_bert.export.task_heads import task_head
from mini_bert.finetuning.model import FineTuned, with_task
from mini_bert.finetuning.tasks.answer import Answer
from mini_bert.finetuning.tasks.classify import Classify, sentence_scores
from mini_bert.finetuning.tasks.similarity import Similarity
from mini_bert.finetuning.tasks.tag import Tag
from mini_bert.layers.base import Run
from mini_bert.models.base import NEXT_WORD, Inputs
from mini_bert.text.loading import load_tokenizer
from tests.export.tiny_models import LONGEST, MODELS, batch, build
from tests.finetuning import tiny_tasks as tiny

pytestmark = pytest.mark.peers

LENGTHS, BATCHES = (1, 2, 7, 33), (1, 3)
EVEN = {"xlnet-both-ways": (2, 4)}  # half of a batch is read backwards
TOLERANCE = 1e-4
RECURRENT = [name for name in MODELS if name.startswith(("transformer-xl", "xlnet"))]


def session(recording) -> Any:
    onnx, runtime = pytest.importorskip("onnx"), pytest.importorskip("onnxruntime")
    proto = recording.to_onnx()
    onnx.checker.check_model(proto, full_check=True)
    return runtime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])


def feed(recording, ids, mask, types) -> dict[str, np.ndarray]:
    given = {INPUT_IDS: ids, MASK: mask, TYPES: types}
    return {name: given[name].astype(np.int64) for name in recording.input_names}


def ours(model, head, ids, mask, types) -> np.ndarray:
    """The scores of a head, or the vectors of the tokens"""
    hidden, _ = model.encode(ids, mask, types)
    if head is None:
        return hidden
    scores, _ = model.output_head(head).forward(hidden, Run())
    return scores[..., 0] if scores.shape[-1] == 1 else scores


@pytest.mark.parametrize("name", MODELS)
def test_vectors_and_scores_agree(name):
    """At every length and batch size, with padding on either side, padding itself included."""
    model = build(name)
    head = next(one for one in model.output_heads if one in ("masked_words", "next_word", "replaced"))
    for recording, own in ((record(model), None), (record(model, own_head(model)), head)):
        running = session(recording)
        assert list(recording.outputs) == [HIDDEN if own is None else LOGITS]
        for T, B, left in product(LENGTHS, EVEN.get(name, BATCHES), (False, True)):
            inputs = batch(model, B, T, left)
            (found,) = running.run(None, feed(recording, *inputs))
            np.testing.assert_allclose(found, ours(model, own, *inputs), atol=TOLERANCE, err_msg=f"{B}, {T}, {left}")


@pytest.mark.parametrize("name", ["mini", "bert", "deberta-v2", "modernbert", "transformer-xl", "xlnet", "gpt2"])
def test_the_reference_of_onnx_agrees(name):
    """Its evaluator is written in NumPy and shares no code with ONNX Runtime."""
    reference = pytest.importorskip("onnx.reference")
    model = build(name)
    recording = record(model, own_head(model))
    evaluator = reference.ReferenceEvaluator(recording.to_onnx())
    head = model.output_heads[0]
    for T, B in ((1, 1), (7, 3)):
        inputs = batch(model, B, T)
        (found,) = evaluator.run(None, feed(recording, *inputs))
        np.testing.assert_allclose(found, ours(model, head, *inputs), atol=TOLERANCE)


def test_inputs_outputs_and_axes_have_the_names_that_others_expect():
    pytest.importorskip("onnx")
    for name, inputs in (
        ("bert", [INPUT_IDS, MASK, TYPES]),
        ("albert", [INPUT_IDS, MASK, TYPES]),
        ("xlnet", [INPUT_IDS, MASK, TYPES]),
        ("distilbert", [INPUT_IDS, MASK]),
        ("roberta", [INPUT_IDS, MASK]),
        ("modernbert", [INPUT_IDS, MASK]),
        ("gpt2", [INPUT_IDS, MASK]),
    ):
        model = build(name)
        graph = record(model, own_head(model)).to_onnx().graph
        assert [one.name for one in graph.input] == inputs
        assert model.tells_texts_apart == (TYPES in inputs)
        for one in graph.input:
            assert [axis.dim_param for axis in one.type.tensor_type.shape.dim] == ["batch_size", "sequence_length"]
            assert one.type.tensor_type.elem_type == 7  # int64
        (output,) = graph.output
        axes = output.type.tensor_type.shape.dim
        assert output.name == LOGITS and [axis.dim_param for axis in axes[:2]] == ["batch_size", "sequence_length"]
        assert axes[2].dim_value == model.vocab_size


@pytest.mark.parametrize("name", RECURRENT)
def test_models_without_a_limit_read_long_texts(name):
    """Their distances are computed, not looked up: a text may be longer than those of training."""
    model = build(name)
    recording = record(model)
    inputs = batch(model, 2, 3 * LONGEST)
    (found,) = session(recording).run(None, feed(recording, *inputs))
    np.testing.assert_allclose(found, ours(model, None, *inputs), atol=TOLERANCE)


def test_lean_attention_is_the_same_graph():
    model = build("bert")
    plain = record(model).graph.nodes
    for block in model.encoder.blocks:
        block.attention.method = "lean"
    assert record(model).graph.nodes == plain


def test_the_longest_text_of_a_model_with_positions():
    for name in ("bert", "deberta-v2", "modernbert", "gpt2", "roberta"):
        model = build(name)
        recording = record(model)
        inputs = batch(model, 2, model.max_length)
        (found,) = session(recording).run(None, feed(recording, *inputs))
        np.testing.assert_allclose(found, ours(model, None, *inputs), atol=TOLERANCE)


# ---------------------------------------------------------------------- heads of tasks

LABELS = ["no", "yes", "perhaps"]
TASKS = {
    "mean": Classify(LABELS, ("mean",)),
    "cls and dense": Classify(LABELS, ("cls",), dense=True),
    "mean, max and cls": Classify(LABELS, ("mean", "max", "cls")),
    "all": Classify(LABELS, ("all",)),
    "pairs": Classify(LABELS, ("mean",), pairs=True),
    "pairs by cls": Classify(LABELS, ("cls",), pairs=True),
    "score": Similarity(0, 5, pooling=("mean",)),
}
ENCODERS = ["mini", "bert", "roberta", "distilbert", "albert", "electra-discriminator", "deberta", "deberta-v2",
            "gpt2", "modernbert", "transformer-xl", "xlnet"]  # fmt: skip
KINDS = {"roberta": "bpe-8k", "gpt2": "bpe-8k", "modernbert": "bpe-8k", "xlnet": "unigram-8k", "albert": "unigram-8k"}


def tokenizer_for(name):
    """A tokenizer with the template and the padding of an architecture; ids beyond the tiny vocabulary do not occur."""
    return load_tokenizer(KINDS[name]) if name in KINDS else tiny.TOKENIZER


def tuned(name, task) -> FineTuned:
    model = build(name)
    tokenizer = tokenizer_for(name)
    twin = with_task(model, task, dropout=0.0, tokenizer=tokenizer)
    twin.flat.data[...] += 0.1 * np.random.default_rng(1).normal(size=twin.flat.data.shape)
    return FineTuned(twin, task, tokenizer, LONGEST)


def items(one: FineTuned, pairs: bool, count: int = 5):
    """Sequences of random ids of different lengths, with the special tokens of the tokenizer"""
    from mini_bert.finetuning.tasks.base import Item, packed

    rng = np.random.default_rng(0)
    special = {token for group in one.tokenizer.template(2).ids for token in group}
    allowed = [i for i in range(5, 43) if i not in special]
    found = []
    for number in range(count):
        texts = [rng.choice(allowed, size=rng.integers(1, 9)).tolist() for _ in range(2 if pairs else 1)]
        sequence, words, _ = packed(one.tokenizer, texts[0], texts[1] if pairs else None, LONGEST)
        found.append(Item(number, sequence, words, None))
    return found


@pytest.mark.parametrize("kind", TASKS)
@pytest.mark.parametrize("name", ENCODERS)
def test_scores_of_texts_agree(name, kind):
    """The graph finds words, the second text and the summary token from the ids and the mask."""
    if name == "modernbert" and kind == "mean, max and cls":
        pytest.skip("its heads transform vectors of the width of the model")
    one = tuned(name, TASKS[kind])
    recording = record(one.model, task_head(one))
    made = one.task.batch(items(one, kind.startswith(("pairs", "score"))), one.tokenizer.padding, known=False)
    expected, _ = sentence_scores(one.model, made, Run(), one.task.pooling)
    (found,) = session(recording).run(None, feed(recording, made.ids, made.real, made.types))
    assert list(recording.outputs) == [LOGITS]
    np.testing.assert_allclose(found, expected, atol=TOLERANCE)


@pytest.mark.parametrize("name", ENCODERS)
def test_tags_and_spans_agree(name):
    for task in (Tag(LABELS), Answer()):
        one = tuned(name, task)
        recording = record(one.model, task_head(one))
        made = task.batch(items(one, pairs=False), one.tokenizer.padding, known=False)
        hidden, _ = one.model.encode(made.ids, made.mask, made.types)
        expected, _ = one.model.task.forward(hidden, Run())
        found = session(recording).run(None, feed(recording, made.ids, made.real, made.types))
        if task.name == "tag":
            assert list(recording.outputs) == [LOGITS]
            np.testing.assert_allclose(found[0], expected, atol=TOLERANCE)
        else:
            assert list(recording.outputs) == [START, END]
            np.testing.assert_allclose(np.stack(found, 1), expected, atol=TOLERANCE)


def test_pairs_without_a_separator_are_refused():
    """With a template such as "A B", ids do not tell where the second text begins."""
    one = tuned("gpt2", TASKS["pairs"])
    template = one.tokenizer.template(2)
    joined = SimpleNamespace(
        template=lambda texts=1: template._replace(ids=((), (), ())), padding_side="right", assemble=None
    )
    with pytest.raises(ValueError, match=r"nothing separates the two texts of a pair.*--pooling cls"):
        record(one.model, task_head(one._replace(tokenizer=joined)))


def test_a_model_for_vectors_has_no_scores():
    one = tuned("mini", Similarity(0, 5, vectors=True))
    assert list(record(one.model, task_head(one)).outputs) == [HIDDEN]


# ---------------------------------------------------------------------- one token after another


class Writer:
    """A session with a past, as generation calls it"""

    def __init__(self, model, B):
        self.recording, self.seen = record(model, words, past=True), np.zeros((B, 0), bool)
        self.session = session(self.recording)
        shape = B, model.heads, 0, model.width // model.heads
        names = [name for name in self.recording.input_names if name.startswith("past_key_values")]
        self.past = {name: np.zeros(shape, np.float32) for name in names}

    def read(self, ids, mask):
        self.seen = np.concatenate([self.seen, mask], 1)
        positions = np.maximum(self.seen.cumsum(1) - 1, 0)[:, -ids.shape[1] :]
        given = {INPUT_IDS: ids, MASK: self.seen, "position_ids": positions}
        given = {name: array.astype(np.int64) for name, array in given.items()}
        logits, *present = self.session.run(None, given | self.past)
        self.past = dict(zip(self.past, present, strict=True))
        return logits


@pytest.mark.parametrize("name", ["gpt2", "gpt2-untied"])
def test_a_text_token_by_token_is_the_text_at_once(name):
    model = build(name)
    ids, _, _ = batch(model, 1, 9)
    expected = ours(model, NEXT_WORD, ids, None, None)
    writer = Writer(model, 1)
    for first, last in ((0, 4), (4, 5), (5, 9)):
        part = ids[:, first:last]
        np.testing.assert_allclose(writer.read(part, part > 0), expected[:, first:last], atol=TOLERANCE)
    assert writer.past["past_key_values.1.value"].shape == (1, model.heads, 9, model.width // model.heads)


def test_texts_of_different_lengths_go_on_side_by_side():
    """Padding on the left, as generation pads: each text gets the scores that it gets alone."""
    model = build("gpt2")
    texts, padded_ids = [np.arange(5, 12)[None], np.arange(20, 24)[None]], np.zeros((2, 7), int)
    for row, text in zip(padded_ids, texts, strict=True):
        row[7 - text.shape[1] :] = text[0]
    writer = Writer(model, 2)
    found = [
        writer.read(padded_ids[:, :5], padded_ids[:, :5] > 0),
        writer.read(padded_ids[:, 5:], padded_ids[:, 5:] > 0),
    ]
    for row, text in zip(np.concatenate(found, 1), texts, strict=True):
        alone = ours(model, NEXT_WORD, text, None, None)[0]
        np.testing.assert_allclose(row[7 - text.shape[1] :], alone, atol=TOLERANCE)


def test_the_past_of_a_model_that_keeps_none_is_refused():
    with pytest.raises(ValueError, match="this Bert keeps no keys and values of earlier tokens"):
        record(build("bert"), words, past=True)


def test_a_mask_for_the_memory_too():
    """In NumPy as well, the mask may cover the tokens in the memory: what it hides is as if it had not been there."""
    model, run = build("gpt2"), Run()
    ids = np.array([[5, 6, 7, 8, 9]])
    _, first = model.encode_inputs(Inputs(ids[:, :3], memory=()), run)
    mask = np.array([[True, True, False, True, True]])[:, None, None]
    after, _ = model.encode_inputs(Inputs(ids[:, 3:], mask, memory=first.memory), run)
    whole, _ = model.encode_inputs(Inputs(ids, mask), run)
    np.testing.assert_allclose(after, whole[:, 3:], atol=1e-5)
