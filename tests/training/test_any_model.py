"""Pretraining uses the model and objective interfaces only: a published BERT trains and resumes like Mini-BERT."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from mini_bert.cli.main import main
from mini_bert.inference.loading import load_model, load_tokenizer
from mini_bert.layers.base import Run
from mini_bert.models.base import MASKED_WORDS, NEXT_SENTENCE
from mini_bert.models.bert import Bert, BertConfig
from mini_bert.models.config import MiniBertConfig
from mini_bert.models.mini_bert import MiniBERT
from mini_bert.models.registry import MODELS, load_config, model_class
from mini_bert.objectives.masked_words import Batch, MaskedWords, MaskedWordsAndSentences
from mini_bert.text import loading
from mini_bert.text.wordpiece import WordPieceTokenizer
from mini_bert.training.doctor import diagnose
from mini_bert.training.loop import train
from mini_bert.training.pretraining import _vocabulary, pretrain, resume
from mini_bert.training.recorder import Recorder
from mini_bert.training.settings import TrainingConfig

WORDS = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    "cats",
    "purr",
    "dogs",
    "bark",
    "birds",
    "sing",
    "fish",
    "swim",
    ".",
]
TINY = BertConfig(len(WORDS), 12, 2, 3, 16, max_position_embeddings=24)
QUICK = {"batch_size": 8, "micro_batch": 4, "quiet": True, "learning_rate": 0.01, "warmup": 0.1, "held_out": 0.1}


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MINI_BERT_HOME", str(tmp_path / "home"))
    rng = np.random.default_rng(0)
    documents = []
    for _ in range(80):
        lines = [" ".join(WORDS[5 + 2 * k : 7 + 2 * k]) + " ." for k in rng.integers(0, 4, 6)]
        documents.append("\n".join(lines))
    Path("text.txt").write_text("\n\n".join(documents), encoding="utf-8")
    Path("config.json").write_text(json.dumps(TINY.to_dict()), encoding="utf-8")
    Path("vocab.txt").write_text("\n".join(WORDS) + "\n", encoding="utf-8")  # beside config.json: the model's own
    return tmp_path


@pytest.mark.parametrize("next_sentence", [False, True])
@pytest.mark.parametrize("threads", [1, 2])
def test_a_published_bert_resumes_to_the_same_bits(place, next_sentence, threads):
    """Stopped half-way and resumed, it ends with the weights of an uninterrupted run."""
    given = {
        "corpus": ["text.txt"],
        "model": "config.json",
        "next_sentence": next_sentence,
        "threads": threads,
        **QUICK,
    }
    whole = pretrain(out=Path("whole"), steps=6, save_every=3, **given)
    assert (whole.step, whole.stopped) == (6, "done")
    pretrain(out=Path("cut"), steps=6, save_every=3, **given)
    for folder in Path("cut/checkpoints").glob("step-*6"):
        for path in folder.iterdir():
            path.unlink()
        folder.rmdir()
    assert resume(Path("cut"), quiet=True).step == 6
    one, other = (load_model(name) for name in ("whole/checkpoints/step-00000006", "cut/checkpoints/step-00000006"))
    np.testing.assert_array_equal(one.flat.data, other.flat.data)
    heads = ("masked_words", "pooler", "next_sentence") if next_sentence else ("masked_words",)
    assert type(one) is Bert and one.output_heads == heads
    assert load_tokenizer("whole").tokens == WORDS


def test_it_is_planned_diagnosed_and_used_like_mini_bert(place, capsys):
    pretrain(["text.txt"], "config.json", steps=25, out=Path("run"), **QUICK)
    assert diagnose(Path("run"))
    for words in (
        ["plan", "--model", "config.json"],
        ["doctor", "run"],
        ["fill-mask", "cats [MASK] .", "--model", "run"],
    ):
        with pytest.raises(SystemExit) as end:
            main(words)
        assert not end.value.code
    assert "BERT" in capsys.readouterr().out
    found = model_class(json.loads(Path("run/model/config.json").read_text())).from_pretrained("run")
    assert found.config == TINY


def test_weights_in_16_bits_resume_exactly(place):
    """Files keep the bits, under published names and transposed."""
    given = {"corpus": ["text.txt"], "model": "config.json", "weights": "bfloat16", "threads": 1, **QUICK}
    pretrain(out=Path("whole"), steps=4, save_every=2, **given)
    pretrain(out=Path("cut"), steps=4, save_every=2, **given)
    for folder in Path("cut/checkpoints").glob("step-*4"):
        for path in folder.iterdir():
            path.unlink()
        folder.rmdir()
    resume(Path("cut"), quiet=True)
    one, other = (load_model(f"{name}/checkpoints/step-00000004") for name in ("whole", "cut"))
    np.testing.assert_array_equal(one.flat.data, other.flat.data)


def test_pairs_need_a_model_that_has_the_head(place):
    """Mini-BERT has no next-sentence head; the error comes before a run begins."""
    sizes = {"vocab_size": len(WORDS), "hidden_size": 12, "num_layers": 1, "num_heads": 2, "intermediate_size": 8}
    Path("mini.json").write_text(json.dumps(MiniBertConfig(**sizes, max_seq_length=24).to_dict()))
    with pytest.raises(ValueError, match="has no next-sentence head"):
        pretrain(["text.txt"], "mini.json", next_sentence=True, steps=2, out=Path("run"), **QUICK)
    assert not Path("run").exists()


def test_sequences_may_be_shorter_than_the_model_allows(place):
    pretrain(["text.txt"], "config.json", length=10, steps=2, out=Path("run"), **QUICK)
    assert load_model("run").max_length == 24
    with pytest.raises(ValueError, match="length is 25, expected 3 to 24"):
        pretrain(["text.txt"], "config.json", length=25, steps=2, out=Path("other"), **QUICK)


# ---------------------------------------------------------------------- the loop alone


def batch(seed=0):
    ids = np.random.default_rng(seed).integers(5, 14, (4, 7))
    rows = np.array([1, 9, 20])
    return Batch(ids, rows, ids.ravel()[rows])


@pytest.mark.parametrize("model", [MiniBERT(MiniBertConfig(14, 8, 1, 2, 8, 9)), Bert(BertConfig(14, 8, 1, 2, 8))])
def test_the_loop_needs_no_folder(model, tmp_path, monkeypatch):
    """train(model, batches, settings) with batches from a list writes nothing, and ends when they run out."""
    monkeypatch.chdir(tmp_path)
    batches = [batch()] * 20
    settings = TrainingConfig(steps=30, batch_size=8, micro_batch=4, threads=1, log_every=2, learning_rate=0.01)
    run = Recorder()
    state = train(model, batches, settings, run=run)
    assert (state.step, state.stopped) == (10, "done") and not list(tmp_path.iterdir())
    losses = [record["loss"] for record in run.records if record["kind"] == "train"]
    assert losses[-1] < losses[0]


def test_objectives_add_up():
    """The losses and gradients of the parts of a batch add up to those of the whole, for both objectives."""
    model = Bert(BertConfig(14, 8, 1, 2, 8, max_position_embeddings=9), seed=1, dtype=np.float64)
    whole = batch()._replace(next_sentence=np.array([0, 1, 1, 0]), token_type_ids=np.ones((4, 7), int))
    for objective in (MaskedWords(), MaskedWordsAndSentences()):
        assert set(objective.heads) <= {MASKED_WORDS, NEXT_SENTENCE}
        model.zero_grad()
        loss, correct = objective.loss(model, whole, Run(), objective.count([whole]))
        gradient = model.flat.grad.copy()
        model.zero_grad()
        parts = whole.split(2)
        found = [objective.loss(model, part, Run(), objective.count(parts)) for part in parts]
        assert sum(part for part, _ in found) == pytest.approx(loss, rel=1e-12)
        assert sum(right for _, right in found) == correct
        np.testing.assert_allclose(model.flat.grad, gradient, atol=1e-14)


def test_every_registered_model_has_the_interface():
    for kind in MODELS:
        found = model_class({"model_type": kind})
        assert found.model_type == kind and found.config_class.from_dict({"model_type": kind}).width > 0
    with pytest.raises(ValueError, match="model_type is 'gpt9', expected one of 'mini_bert', 'bert'"):
        model_class({"model_type": "gpt9"})
    assert load_config("mini").name == "Mini-BERT"


def test_the_vocabulary_beside_the_config_is_used(place):
    pretrain(["text.txt"], "config.json", steps=1, out=Path("run"), **QUICK)
    assert WordPieceTokenizer.load("run/model").vocab_size == len(WORDS)


def test_a_tokenizer_of_another_kind_beside_the_config_is_used(place, monkeypatch):
    """Its files may have any name that text/loading.py knows."""
    (place / "other").mkdir()
    config = SimpleNamespace(vocab_size=8192)
    (place / "other" / "config.json").write_text("{}")
    assert _vocabulary(str(place / "other"), config) == "8k"
    (place / "other" / "spiece.model").write_text("")
    kind = loading.KINDS[0]._replace(file="spiece.model")
    monkeypatch.setattr(loading, "KINDS", (*loading.KINDS, kind))
    for model in (place / "other", place / "other" / "config.json"):
        assert _vocabulary(str(model), config) == str(place / "other")
