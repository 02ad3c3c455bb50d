"""Pretraining uses the model and objective interfaces only: a published BERT trains and resumes like Mini-BERT."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from mini_bert.cli.main import main
from mini_bert.data.generator import MLMDataGenerator
from mini_bert.evaluation.word_frequencies import read_frequencies
from mini_bert.export.folder import export
from mini_bert.inference.loading import load, load_model, load_tokenizer
from mini_bert.layers.base import Run
from mini_bert.models.base import MASKED_WORDS, NEXT_SENTENCE
from mini_bert.models.bert import Bert, BertConfig
from mini_bert.models.config import MiniBertConfig
from mini_bert.models.mini import MiniBERT
from mini_bert.models.registry import MODELS, config_from, load_config, model_class
from mini_bert.objectives.masked_words import Batch, MaskedWords, MaskedWordsAndSentences
from mini_bert.text import loading
from mini_bert.text.wordpiece import WordPieceTokenizer
from mini_bert.training.doctor import diagnose
from mini_bert.training.history import read_run
from mini_bert.training.loop import train
from mini_bert.training.pretraining import pretrain, resume
from mini_bert.training.recorder import Recorder
from mini_bert.training.report import examples
from mini_bert.training.settings import TrainingConfig
from mini_bert.training.setup import Wanted, _vocabulary, set_up
from tests.training.made_up import WORDS

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


def test_the_parts_of_a_loss_are_recorded_apart(place, capsys):
    """The loss is that of masked words, as on held-out text and in the unigram baseline; pairs are recorded as well."""
    quick = QUICK | {"quiet": False, "held_out": 0.3}
    pretrain(["text.txt"], "config.json", next_sentence=True, steps=40, eval_every=20, out=Path("run"), **quick)
    history = read_run("run")
    assert history.last("start")["objective"] == "masked_words_and_next_sentence"
    losses, pairs = (history.series("train", name)[1] for name in ("loss", "next_sentence_loss"))
    held, held_pairs = (history.series("eval", name)[1] for name in ("loss", "next_sentence_loss"))
    assert len(losses) == len(pairs) == len(held) == len(held_pairs) == 2
    assert all(0.4 < loss < 1.0 for loss in (*pairs, *held_pairs))  # ln 2 = 0.69
    assert abs(losses[-1] - held[-1]) < 0.35  # a sum of both would be 0.7 higher
    for kind in ("train", "eval"):
        assert 0 < history.last(kind)["next_sentence_accuracy"] <= 1
    said = capsys.readouterr().err
    assert "next sentence loss 0." in said and "next sentence accuracy" in said
    log = Path("run/training.log").read_text(encoding="utf-8")
    assert "next sentence accuracy" in next(line for line in log.splitlines() if "held-out text: " in line)
    card = Path("run/model/README.md").read_text(encoding="utf-8")
    assert "whether the second of two texts follows the first" in card and "| next sentence accuracy | " in card
    assert "Masked words in unseen text" not in said or "[____]" in said  # no heading without lines
    assert re.search(r"train --model config.json --next-sentence .*--corpus text.txt", said)
    assert json.loads(Path("run/config.json").read_text())["model_from"] == str(place / "config.json")


def test_examples_of_pairs_have_mask_and_types(place):
    """A guess about a padded pair is that of the sequence alone, with its token types."""
    bert, tokenizer = Bert(TINY, seed=3), WordPieceTokenizer.load("vocab.txt")
    batches = MLMDataGenerator("text.txt", tokenizer, 24, 8, mode="pairs", held_out=0.3, progress=False)
    seen = []

    def encode(ids, attention_mask=None, token_types=None, run=None, chosen=None):
        seen.append((ids, attention_mask, token_types))
        return Bert.encode(bert, ids, attention_mask, token_types, run, chosen)

    bert.encode = encode
    lines = examples(bert, batches.validation())
    assert lines and len(lines) == len(seen)
    for ids, mask, types in seen:
        assert types.shape == ids.shape and types.max() == 1
        assert (mask is None) == (ids != 0).all() and (mask is None or (mask == (ids != 0)).all())


def test_resuming_counts_no_words(place, monkeypatch):
    """The first weights and the first record are there already, so the text is not counted again."""
    pretrain(["text.txt"], "config.json", steps=4, save_every=2, out=Path("run"), **QUICK)
    monkeypatch.setattr("mini_bert.training.folder_run.word_counts", lambda *_: pytest.fail("counted"))
    before = read_frequencies("run")
    shutil.rmtree("run/checkpoints/step-00000004")
    assert resume(Path("run"), quiet=True).step == 4
    np.testing.assert_array_equal(read_frequencies("run/checkpoints/step-00000004"), before)  # carried over


def test_old_run_folders_resume(place):
    """Their config.json names neither the objective nor where the model came from."""
    given = {"corpus": ["text.txt"], "model": "config.json", "threads": 1, **QUICK}
    for pairs in (False, True):
        out = Path(f"run-{pairs}")
        pretrain(out=out, steps=4, save_every=2, next_sentence=pairs, **given)
        expected = load_model(out / "checkpoints/step-00000004").flat.data.copy()
        config = json.loads((out / "config.json").read_text())
        del config["objective"], config["model_from"]
        config["data"] |= {"next_sentence": True} if pairs else {}
        (out / "config.json").write_text(json.dumps(config))
        shutil.rmtree(out / "checkpoints/step-00000004")
        assert resume(out, quiet=True).step == 4
        np.testing.assert_array_equal(load_model(out / "checkpoints/step-00000004").flat.data, expected)


def test_pairs_need_a_model_that_has_the_head(place, monkeypatch):
    """Mini-BERT has no next-sentence head. The error comes before the text is read, and says what fits."""
    sizes = {"vocab_size": len(WORDS), "hidden_size": 12, "num_layers": 1, "num_heads": 2, "intermediate_size": 8}
    Path("mini.json").write_text(json.dumps(MiniBertConfig(**sizes, max_seq_length=24).to_dict()))
    monkeypatch.setattr("mini_bert.training.pretraining.prepare", lambda *_, **__: pytest.fail("tokenized"))
    for command in ("train", "plan"):
        with pytest.raises(SystemExit) as end:
            main([command, "--model", "mini.json", "--next-sentence"])
        assert end.value.code == (
            "mini-bert: Mini-BERT cannot be trained with the objective masked_words_and_next_sentence: it has no head "
            "next_sentence. Its output heads are masked_words; with these, --objective can be masked_words, "
            "distillation. For masked_words_and_next_sentence: --model bert"
        )
    with pytest.raises(ValueError, match="it has no head next_sentence"):
        pretrain(["text.txt"], "mini.json", next_sentence=True, steps=2, out=Path("run"), **QUICK)
    assert not Path("run").exists()


@pytest.mark.parametrize("types", [1, 2])
def test_pairs_need_two_token_types(place, monkeypatch, types):
    """BERT's tokenizer gives the second text token type 1; a model without it is refused before the text is read."""
    Path("config.json").write_text(json.dumps(TINY.to_dict() | {"type_vocab_size": types}))
    monkeypatch.setattr("mini_bert.training.pretraining.prepare", lambda *_, **__: pytest.fail("tokenized"))
    wanted = r"type_vocab_size is 1 in config.json, but the objective .*next_sentence needs 2.*Set it to 2, or choose"
    for command in ("train", "plan") if types == 1 else ():
        with pytest.raises(SystemExit, match=wanted):
            main([command, "--model", "config.json", "--next-sentence"])
    assert not Path("runs").exists()
    assert set_up(Wanted("config.json")).config.type_vocab_size == types  # single texts have type 0
    if types == 2:
        set_up(Wanted("config.json", next_sentence=True))


def test_sequences_may_be_shorter_than_the_model_allows(place):
    pretrain(["text.txt"], "config.json", length=10, steps=2, out=Path("run"), **QUICK)
    assert load_model("run").max_length == 24
    with pytest.raises(ValueError, match=r"length is 25, expected 3 to 24, from max_position_embeddings in .* BERT"):
        pretrain(["text.txt"], "config.json", length=25, steps=2, out=Path("other"), **QUICK)
    model, tokenizer = load("run")
    export(model, tokenizer, "exported", card=Path("run/model/README.md"))
    for folder in ("run", "exported"):  # continues with the same length, and says so
        found = set_up(Wanted(init=folder))
        assert found.length == 10 and set_up(Wanted(init=folder, length=24)).length == 24
        assert f"sequences of 10 tokens, as {folder} was trained with; it has 24 positions" in found.notes[-1]
    pretrain(["text.txt"], init="exported", steps=2, out=Path("more"), **QUICK)
    assert json.loads(Path("more/config.json").read_text())["data"]["length"] == 10
    assert resume(Path("more"), quiet=True, steps=3).step == 3


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
        count = objective.size(whole).targets
        expected = objective.loss(model, whole, Run(), count)
        gradient = model.flat.grad.copy()
        model.zero_grad()
        found = [objective.loss(model, part, Run(), count) for part in whole.split(2)]
        assert set(expected) == set(objective.heads) == set(count)
        for name, (loss, correct, targets) in expected.items():
            assert sum(part[name].loss for part in found) == pytest.approx(loss, rel=1e-12)
            assert sum(part[name].correct for part in found) == correct
            assert sum(part[name].targets for part in found) == targets == count[name]
        np.testing.assert_allclose(model.flat.grad, gradient, atol=1e-14)


def test_every_registered_model_has_the_interface():
    for kind in MODELS:
        found = model_class({"model_type": kind})
        assert found.model_type == kind and found.config_class.from_dict({"model_type": kind}).width > 0
    with pytest.raises(ValueError, match="model_type is 'gpt9', expected one of 'mini_bert', 'bert'"):
        model_class({"model_type": "gpt9"})
    assert load_config("mini").name == "Mini-BERT"


def test_a_class_of_another_architecture_is_refused():
    """`architectures` names the class that wrote a folder. People's own classes of an architecture are no reason."""
    for name in ("BertModel", "MyBertForTokenClassification", "AntiBERTy"):
        assert model_class({"model_type": "bert", "architectures": [name]}) is Bert
    with pytest.raises(ValueError, match="is 'bert', but architectures says T5Model, which is neither a Bert nor anot"):
        model_class({"model_type": "bert", "architectures": ["T5Model"]})
    with pytest.raises(ValueError, match="model_type is missing, which means 'bert', but architectures says LlamaFor"):
        model_class({"architectures": ["LlamaForCausalLM"]})


def test_limits_name_the_field_and_the_least_value():
    """A memory may be 0, a width may not. Transformer-XL's segment length does not limit positions."""
    values = load_config("transformer-xl").to_dict()
    with pytest.raises(ValueError, match=r"mem_len is -1, expected a whole number .* of at least 0"):
        config_from(values | {"mem_len": -1})
    with pytest.raises(ValueError, match=r"d_model is 0, expected a whole number .* of at least 1"):
        config_from(values | {"d_model": 0})
    for preset, field in {"transformer-xl": "tgt_len", "xlnet": "seq_len", "gpt2": "n_positions"}.items():
        with pytest.raises(ValueError, match=f"length is 999, expected 3 to 64, from {field} in .* larger {field}"):
            set_up(Wanted(preset, length=999))


def test_the_vocabulary_beside_the_config_is_used(place):
    pretrain(["text.txt"], "config.json", steps=1, out=Path("run"), **QUICK)
    assert WordPieceTokenizer.load("run/model").vocab_size == len(WORDS)


def test_a_tokenizer_of_another_kind_beside_the_config_is_used(place, monkeypatch):
    """Its files may have any name that text/loading.py knows."""
    (place / "other").mkdir()
    config = load_config("mini")
    (place / "other" / "config.json").write_text("{}")
    assert _vocabulary(str(place / "other"), config) == "8k"
    (place / "other" / "spiece.model").write_text("")
    kind = loading.KINDS[0]._replace(file="spiece.model")
    monkeypatch.setattr(loading, "KINDS", (*loading.KINDS, kind))
    for model in (place / "other", place / "other" / "config.json"):
        assert _vocabulary(str(model), config) == str(place / "other")


def test_the_folder_of_a_run_has_the_config_of_its_model(tmp_path):
    """RUN/config.json describes the run; its model is a GPT-2, and not a BERT with the default sizes."""
    description = {"model": load_config("gpt2").to_dict(), "training": {"steps": 2}, "data": {"corpus": ["-"]}}
    (tmp_path / "config.json").write_text(json.dumps(description))
    assert load_config(tmp_path) == load_config(tmp_path / "config.json") == load_config("gpt2")


def test_a_memory_is_only_offered_to_models_that_have_one():
    """The check is made before a run folder exists, and the list of what is possible leaves the objective out."""
    with pytest.raises(
        ValueError,
        match=r"it has no memory.*--objective can be next_word\. For next_word_with_memory: --model transformer-xl",
    ):
        set_up(Wanted("gpt2", objective="next_word_with_memory"))
    assert set_up(Wanted("transformer-xl", objective="next_word_with_memory")).objective.name == "next_word_with_memory"
