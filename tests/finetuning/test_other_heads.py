"""The published heads of GPT-2 and ModernBERT: what they read, how they start, and that their folders come back."""

import json
from dataclasses import replace

import numpy as np
import pytest

from mini_bert.finetuning.data import TaskData
from mini_bert.finetuning.finetune import make_task
from mini_bert.finetuning.model import load, save, with_task
from mini_bert.finetuning.predict import gather, predictions, shown
from mini_bert.finetuning.tasks.base import Batch, summary_places
from mini_bert.finetuning.tasks.classify import Classify, sentence_scores
from mini_bert.finetuning.tasks.similarity import Similarity
from mini_bert.finetuning.tasks.tag import Tag
from mini_bert.inference.embed import embed
from mini_bert.inference.loading import load_model
from mini_bert.layers.base import Run
from mini_bert.models.config import MiniBertConfig
from mini_bert.models.gpt2 import GPT2, GPT2Config
from mini_bert.models.mini import MiniBERT
from mini_bert.models.modernbert import ModernBert, ModernBertConfig
from mini_bert.models.transformer_xl import TransformerXL, TransformerXLConfig
from tests.finetuning import tiny_tasks as tiny

V = len(tiny.TOKENIZER)
GPT = GPT2Config(V, 24, 12, 2, 3)
MODERN = ModernBertConfig(V, 12, 17, 2, 2, max_position_embeddings=24, initializer_range=0.2, pad_token_id=0)
MINI = MiniBertConfig(V, 12, 2, 3, 17, 24)
IDS = np.array([[2, 7, 8, 9, 3], [2, 7, 3, 0, 0]])
MASK = IDS > 0
BATCH = Batch(IDS, MASK, np.zeros_like(IDS), np.isin(IDS, (7, 8, 9)), np.array([0, 1]), summary=np.array([0, 0]))
LABELS = ["no", "yes"]


def made(model, kind="classify"):
    """The task as `mini-bert finetune` sets it up."""
    examples = {"classify": tiny.labelled(4), "similarity": tiny.scored(9)}[kind]
    return make_task(kind, model, TaskData(examples, examples, "", "", ["neg", "pos"]))


def test_gpt2_is_classified_by_its_last_token():
    """Not by [CLS], which has seen nothing; and without a bias."""
    model = GPT2(GPT, dtype=np.float64)
    task = made(model)
    tuned = with_task(model, task, dropout=0.0)
    assert [name for name in tuned.named_params() if name.startswith("task.")] == ["task.linear.w"]
    assert summary_places(tuned, BATCH).tolist() == [4, 2]
    scores, _ = sentence_scores(tuned, BATCH, Run(), task.pooling)
    hidden, _ = tuned.encode(IDS, MASK)
    np.testing.assert_allclose(scores, hidden[[0, 1], [4, 2]] @ tuned.task.linear.w.data, rtol=1e-12)
    unpadded = Batch(IDS[:1], None, np.zeros((1, 5), int), np.ones((1, 5), bool), np.array([0]))
    assert summary_places(tuned, unpadded).tolist() == [4]


@pytest.mark.parametrize(("pooling", "means"), [("cls", False), ("mean", True)])
def test_modernbert_pools_as_its_config_says(pooling, means):
    """[CLS], or the mean over all tokens but padding; then its dense layer and norm, then the scores."""
    model = ModernBert(replace(MODERN, classifier_pooling=pooling), dtype=np.float64)
    tuned = with_task(model, made(model), dropout=0.0)
    scores, _ = sentence_scores(tuned, BATCH, Run(), made(model).pooling)
    hidden, _ = tuned.encode(IDS, MASK)
    pooled = np.stack([hidden[0, :5].mean(0), hidden[1, :3].mean(0)]) if means else hidden[:, 0]
    transformed, _ = tuned.task.transform.forward(pooled, Run())
    expected = transformed @ tuned.task.linear.w.data + tuned.task.linear.b.data
    np.testing.assert_allclose(scores, expected, rtol=1e-11, atol=1e-14)


def test_modernberts_heads_start_as_the_head_for_words():
    """As in its files, where both have the same names."""
    model = ModernBert(MODERN)
    model.masked_words.transform.norm.gamma.data[...] = np.arange(12)
    for task in (Classify(LABELS), Tag(["O", "B-X"])):
        tuned = with_task(model, task)
        np.testing.assert_array_equal(tuned.task.transform.dense.w.data, model.masked_words.transform.dense.w.data)
        np.testing.assert_array_equal(tuned.task.transform.norm.gamma.data, np.arange(12))


@pytest.mark.parametrize("kind", ["classify", "similarity"])
@pytest.mark.parametrize("model", [GPT2(GPT), ModernBert(MODERN)], ids=["gpt2", "modernbert"])
def test_a_folder_comes_back(model, kind, tmp_path):
    """With our settings in config.json, and without them, as transformers would have written it."""
    task = made(model, kind)
    tuned = with_task(model, task)
    save(tmp_path, tuned, task, tiny.TOKENIZER, 24)
    values = json.loads((tmp_path / "config.json").read_text())
    assert values["architectures"] == [f"{model.family}ForSequenceClassification"] and values["pad_token_id"] == 0
    again = load(tmp_path)
    np.testing.assert_array_equal(again.model.flat.data, tuned.flat.data)
    del values["fine_tuning"]
    (tmp_path / "config.json").write_text(json.dumps(values))
    published = load(tmp_path)
    assert type(published.task) is type(task) and published.task.pooling == task.pooling
    np.testing.assert_array_equal(published.model.flat.data, tuned.flat.data)


def published(folder, labels, **config):
    """The folder of a BertForSequenceClassification, as transformers writes it."""
    task = Classify(labels, ("cls",), True) if len(labels) > 1 else Similarity(pooling=("cls",), dense=True)
    save(folder, with_task(tiny.encoder("bert"), task), task, tiny.TOKENIZER, 24)
    values = {**json.loads((folder / "config.json").read_text()), **config}
    del values["fine_tuning"]
    (folder / "config.json").write_text(json.dumps(values))
    return folder


@pytest.mark.parametrize(
    ("labels", "problem", "expected"),
    [
        (["a", "b", "c"], "multi_label_classification", "with 3 labels only 'single_label_classification'"),
        (["a", "b", "c"], "regression", "with 3 labels only 'single_label_classification'"),
        (["score"], "multi_label_classification", "with 1 label only 'regression'"),
        (["a", "b"], ["odd"], "with 2 labels only"),
    ],
)
def test_a_problem_type_that_changes_the_scores_is_refused_by_name(labels, problem, expected, tmp_path):
    """A softmax over independent labels would be wrong; the encoder alone can still be loaded."""
    folder = published(tmp_path, labels, problem_type=problem)
    with pytest.raises(ValueError, match=f"problem_type in config.json is .*{expected}.* is supported"):
        load(folder)
    with pytest.warns(UserWarning, match="no part of this model uses classifier"):
        load_model(folder)


@pytest.mark.parametrize(
    ("labels", "problem"), [(["a", "b"], "single_label_classification"), (["a", "b"], None), (["score"], "regression")]
)
def test_a_problem_type_that_says_the_usual_is_accepted(labels, problem, tmp_path):
    assert len(load(published(tmp_path, labels, problem_type=problem)).task.labels) == len(labels)


def test_a_published_regression_scores_a_single_text(tmp_path):
    """Files do not say whether a model reads one text or two."""
    tuned = load(published(tmp_path, ["score"], problem_type="regression"))
    (alone,) = predictions(tuned, gather(tuned.task, ["the cat was good ."]))
    hidden, _ = tuned.model.encode([tiny.TOKENIZER.encode("the cat was good .")])
    dense, linear = tuned.model.task.dense, tuned.model.task.linear
    score = np.tanh(hidden[0, 0] @ dense.w.data + dense.b.data) @ linear.w.data + linear.b.data
    assert alone["score"] == pytest.approx(float(score[0]), rel=1e-4)
    assert shown(alone) == f"{alone['score']:.2f}    the cat was good ."
    (pair,) = predictions(tuned, gather(tuned.task, ["the cat", "a film"]))
    assert shown(pair).endswith("    the cat  |  a film")


def test_a_class_that_does_not_exist_is_not_named(tmp_path):
    """transformers had a Transformer-XL for the classes of texts, but none for tags; there never was a Mini-BERT."""
    xl = TransformerXL(TransformerXLConfig(V, (), 12, 12, 3, 4, 16, 1, n_layer=2, mem_len=5, clamp_len=-1))
    for model, task, named in (
        (xl, Classify(LABELS), ["TransfoXLForSequenceClassification"]),
        (xl, Similarity(0, 5, vectors=True), ["TransfoXLModel"]),
        (xl, Tag(LABELS), None),
        (MiniBERT(MINI), Classify(LABELS), None),
        (MiniBERT(MINI), Similarity(0, 5, vectors=True), None),
    ):
        tuned = with_task(model, task)
        save(tmp_path, tuned, task, tiny.TOKENIZER, 24)
        assert json.loads((tmp_path / "config.json").read_text()).get("architectures") == named
        again = load(tmp_path)
        assert type(again.task) is type(task)
        np.testing.assert_array_equal(again.model.flat.data, tuned.flat.data)


def test_embed_reads_the_last_token_of_gpt2():
    model = GPT2(GPT)
    texts = ["the cat was good .", "a film"]
    vectors = embed(model, tiny.TOKENIZER, texts, "cls")
    for text, vector in zip(texts, vectors, strict=True):
        np.testing.assert_allclose(vector, model.encode([tiny.TOKENIZER.encode(text)])[0][0, -1], rtol=1e-5, atol=1e-6)


def test_similarity_of_vectors_reads_the_last_token_of_gpt2():
    model = GPT2(GPT, dtype=np.float64)
    task = Similarity(0, 5, vectors=True, pooling=("cls",))
    tuned = with_task(model, task, dropout=0.0)
    hidden, _ = tuned.encode(IDS, MASK)
    a, b = hidden[0, 4], hidden[1, 2]
    assert task.answers(tuned, BATCH, Run())[0] == pytest.approx(5 * a @ b / np.linalg.norm(a) / np.linalg.norm(b))
