"""Larger-BERT: a preset and a trainer; the calls in the reference document work."""

import json
import random
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from larger_bert import LARGER_BERT_CONFIG, LargerBERT
from larger_bert.train import LargerBERTTrainer
from mini_bert.checks.gradcheck import check_model
from mini_bert.cli.main import main
from mini_bert.data.generator import MLMDataGenerator
from mini_bert.evaluation.evaluate import word_counts
from mini_bert.inference.loading import load
from mini_bert.layers.base import Run
from mini_bert.models.config import MINI_BERT_CONFIG, MiniBertConfig
from mini_bert.models.mini import MiniBERT
from mini_bert.objectives.masked_words import word_shares
from mini_bert.text.wordpiece import WordPieceTokenizer
from mini_bert.training.defaults import default_learning_rate
from mini_bert.training.plan import describe
from mini_bert.training.pretraining import pretrain
from mini_bert.training.run_folder import RunFolder
from mini_bert.training.settings import TrainingConfig
from mini_bert.training.switches import apply, bare

WORDS = ["cats", "purr", "dogs", "bark", "birds", "sing", "fish", "swim", "bees", "hum", "."]
SMALL = replace(
    LARGER_BERT_CONFIG,
    vocab_size=16,
    hidden_size=24,
    num_layers=3,
    num_heads=2,
    intermediate_size=40,
    max_seq_length=16,
)


@pytest.fixture
def place(tmp_path, monkeypatch):
    """An empty folder with a text, a vocabulary and the config of a Larger-BERT made small."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MINI_BERT_HOME", str(tmp_path / "home"))
    rng = random.Random(0)
    pairs = list(zip(WORDS[:-1:2], WORDS[1::2], strict=True))
    text = "\n\n".join(" ".join(f"{a} {b} ." for a, b in rng.choices(pairs, k=40)) for _ in range(60))
    Path("text.txt").write_text(text)
    WordPieceTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]).save("vocabulary")
    Path("config.json").write_text(json.dumps(SMALL.to_dict()))
    return tmp_path


def generator(held_out=0.1, batch_size=4):
    tokenizer = WordPieceTokenizer.load("vocabulary")
    return MLMDataGenerator("text.txt", tokenizer, 16, batch_size, held_out=held_out, progress=False)


# ---------------------------------------------------------------------- the model


def test_the_preset():
    """The sizes of the specification; with a tied head, 19.2 million parameters fewer."""
    c = LARGER_BERT_CONFIG
    sizes = (c.num_layers, c.hidden_size, c.num_heads, c.head_size, c.intermediate_size, c.max_seq_length, c.vocab_size)
    assert sizes == (6, 384, 8, 48, 1536, 128, 50_000) and c.dropout == 0.1 and not c.tie_head
    assert describe(c).parameters == 49_137_488 and describe(c, tie_head=True).parameters == 29_937_488
    assert replace(c, vocab_size=99).name == "Larger-BERT" and MINI_BERT_CONFIG.name == "Mini-BERT"


def test_the_documented_forward():
    """A float mask, as in the document; outputs are deterministic until training is turned on."""
    model = LargerBERT(SMALL)
    ids = np.random.default_rng(0).integers(0, 16, (4, 8))
    logits, cache = model.forward(ids, np.ones((4, 8)))
    assert logits.shape == (4, 8, 16) and cache["attention_weights_2"].shape == (4, 2, 8, 8)
    np.testing.assert_array_equal(model.forward(ids)[0], logits)
    model.set_training(True)
    assert np.abs(model.forward(ids)[0] - logits).max() > 1e-3
    model.set_training(False)
    np.testing.assert_array_equal(model.forward(ids)[0], logits)


@pytest.mark.parametrize("L", [1, 6, 24])
def test_depth_scaled_projections(L):
    """W_o and W2 start with 1/√(2L) of the plain standard deviation; all other weights are bit-identical."""
    sizes = MiniBertConfig(31, 48, L, 2, 96, 11)
    plain, scaled = (MiniBERT(replace(sizes, init=init), seed=1).named_params() for init in ("plain", "depth_scaled"))
    for name, param in plain.items():
        other = scaled[name].data
        if name.endswith(("attention.output.w", "feed_forward.contract.w")):
            np.testing.assert_allclose(other, param.data / np.sqrt(2 * L), rtol=1e-5)
        else:
            np.testing.assert_array_equal(other, param.data)


def test_what_depth_scaling_is_for():
    """Little of a token's embedding reaches the top of 24 plain blocks, but most of it that of 24 depth-scaled ones."""
    left = {}
    for init in ("plain", "depth_scaled"):
        config = MiniBertConfig(31, 48, 24, 2, 96, 16, init=init)
        model, ids = MiniBERT(config, seed=0), np.random.default_rng(0).integers(5, 31, (8, 16))
        y, cache = model.encode(ids, run=Run())
        x, _ = model.final_norm.forward(cache.embedded, Run())
        left[init] = float((x * y).mean())  # both have mean 0 and spread 1: their correlation
    assert left["plain"] < 0.25 and left["depth_scaled"] > 0.6


def test_unknown_starts_are_refused():
    with pytest.raises(ValueError, match="init is 'deep', expected one of 'plain', 'depth_scaled'"):
        replace(SMALL, init="deep")


def test_gradients_with_dropout_and_checkpointing():
    """Finite differences agree for every tensor, with dropout and checkpointing on."""
    model = LargerBERT(SMALL, dtype=np.float64)
    apply(model, TrainingConfig(steps=1, checkpointing=True))
    ids, rows = np.random.default_rng(0).integers(5, 16, (2, 7)), [1, 3, 4, 9]
    results = check_model(model, lambda: model.loss(ids, rows, [7, 8, 9, 10], run=Run(0, train=True)), entries=5)
    assert len(results) == len(model.named_params()) and all(row.passed() for row in results)


def test_folders_load_as_either(tmp_path):
    """A Larger-BERT folder is a Mini-BERT folder with larger sizes: both classes and load_model read it."""
    model = LargerBERT(replace(SMALL, tie_head=True), seed=3)
    model.save_pretrained(tmp_path)
    WordPieceTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]).save(tmp_path)
    for loaded in (LargerBERT.from_pretrained(tmp_path), MiniBERT.from_pretrained(tmp_path), load(tmp_path)[0]):
        assert loaded.config == model.config and isinstance(loaded, MiniBERT)
        np.testing.assert_array_equal(loaded.flat.data, model.flat.data)
    assert type(LargerBERT.from_pretrained(tmp_path)) is LargerBERT
    other = LargerBERT(replace(SMALL, tie_head=True), seed=4).load_checkpoint(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(other.flat.data, model.flat.data)
    with pytest.raises(ValueError, match="is a pickle"):
        other.load_checkpoint("larger_bert/checkpoints/larger_bert_50k_best.pkl")


# ---------------------------------------------------------------------- the trainer


def test_the_documented_training(place, capsys):
    """trainer.train(data_generator, num_steps=…) learns, and writes a run folder and a model that loads."""
    trainer = LargerBERTTrainer(LargerBERT(SMALL), learning_rate=1e-2, threads=2, checkpointing=True, batch_size=16)
    assert trainer.load_tokenizer("vocabulary").vocab_size == 16
    batches = generator()
    before = trainer.evaluate(batches).loss
    state = trainer.train(batches, num_steps=40)
    assert (state.step, state.stopped, trainer.out) == (40, "done", Path("runs/run-1"))
    assert state.best is not None and state.best < before - 0.3
    assert not any(bare(block) is not block for block in trainer.model.encoder.blocks)  # the switch is off again
    _, tokenizer = load("runs/run-1")
    assert tokenizer.vocab_size == 16
    assert trainer.evaluate(batches).loss == pytest.approx(state.best, abs=0.2)
    said = capsys.readouterr().err
    assert "parameters;" in said and "model:" in said
    card = Path("runs/run-1/model/README.md").read_text(encoding="utf-8")
    assert "held-out loss" in card and "from a pipe or a program" in card
    training = RunFolder.config(Path("runs/run-1"))["training"]
    assert training["checkpointing"] is True and (training["batch_size"], training["micro_batch"]) == (16, 4)
    trainer.save("mine", tokenizer)
    np.testing.assert_array_equal(load("mine")[0].flat.data, trainer.model.flat.data)


@pytest.mark.parametrize("kept", ["float32", "bfloat16", "float16"])
def test_a_stopped_run_ends_as_if_it_had_not_been(place, kept):
    """Stopped at a checkpoint and resumed by a new trainer or by the command line, it ends with the same bits, with
    dropout."""
    sixteen = dict.fromkeys(("weights", "moments", "activations"), kept)
    whole = LargerBERTTrainer(
        LargerBERT(SMALL, seed=1), "whole", True, threads=2, save_every=3, checkpointing=(0, 2), batch_size=8, **sixteen
    )
    whole.train(generator(0), num_steps=6)
    size = 4 if kept == "float32" else 2
    written = Path("whole/checkpoints/step-00000006/model.safetensors").stat().st_size
    assert 0 <= written - size * whole.model.flat.data.size < 4000  # the header
    for way in ("whole", "whole/model", "whole/checkpoints/step-00000006", "whole/model/model.safetensors", None):
        expected = MiniBERT.from_pretrained(
            Path("whole/checkpoints/step-00000006" if way and "step" in way else "whole")
        )
        fresh = LargerBERTTrainer(LargerBERT(SMALL, seed=9), out=None if way else "whole")
        np.testing.assert_array_equal(fresh.load_checkpoint(way).flat.data, expected.flat.data)
    earlier = LargerBERT(SMALL, seed=9).load_checkpoint("whole/checkpoints/step-00000003").flat.data
    assert (earlier != whole.model.flat.data).any()  # that of its step, and not the newest
    with pytest.raises(
        ValueError, match=r"whole already contains a run; resume it with trainer\.resume\(.*LargerBERTTrainer\(.*out="
    ):
        whole.train(generator(0), num_steps=6)
    for way in ("python",) if kept != "float32" else ("python", "command"):
        shutil.copytree("whole", way)
        shutil.rmtree(Path(way, "checkpoints/step-00000006"))
        if way == "python":
            again = LargerBERTTrainer(LargerBERT(SMALL, seed=9), quiet=True)
            assert again.resume(generator(0), way).step == 6
            np.testing.assert_array_equal(again.model.flat.data, whole.model.flat.data)
        else:
            with pytest.raises(SystemExit) as stop:
                main(["train", "--resume", "--out", way, "--quiet"])
            assert not stop.value.code
        saved = MiniBERT.from_pretrained(Path(way, "checkpoints/step-00000006"))
        np.testing.assert_array_equal(saved.flat.data, whole.model.flat.data)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: LargerBERTTrainer(LargerBERT(SMALL), speed=3), TypeError, "unknown setting.s. speed"),
        (lambda: LargerBERTTrainer(LargerBERT(SMALL), steps=3), TypeError, "unknown setting.s. steps.*num_steps=1000"),
        (lambda: LargerBERTTrainer(LargerBERT(SMALL)).load_tokenizer(), ValueError, "no bundled .* has 16 tokens"),
        (lambda: LargerBERTTrainer(LargerBERT(SMALL)).load_tokenizer("8k"), ValueError, "8,192 tokens.*only 16 ids"),
        (lambda: LargerBERTTrainer(LargerBERT(SMALL)).train(generator()), ValueError, "for how long"),
        (lambda: LargerBERTTrainer(LargerBERT(SMALL)).resume(generator()), ValueError, "which run"),
        (lambda: LargerBERTTrainer(LargerBERT(SMALL)).load_checkpoint(), ValueError, "which checkpoint"),
        (lambda: LargerBERT(SMALL).load_checkpoint("runs/x"), FileNotFoundError, "no model folder"),
        (lambda: LargerBERT(SMALL).load_checkpoint("x.safetensors"), FileNotFoundError, "no weights file"),
        (
            lambda: LargerBERTTrainer(LargerBERT(replace(SMALL, max_seq_length=8))).train(generator(), num_steps=1),
            ValueError,
            "sequences of 16 tokens, but the model is configured for at most 8",
        ),
        (
            lambda: LargerBERTTrainer(LargerBERT(replace(SMALL, vocab_size=9))).train(generator(), num_steps=1),
            ValueError,
            "16 tokens, but the model has only 9",
        ),
    ],
)  # fmt: skip
def test_what_cannot_work_is_said(place, call, error, message):
    with pytest.raises(error, match=message):
        call()
    assert not Path("runs").exists()


@pytest.mark.parametrize(
    ("changes", "dtype", "message"),
    [
        ({"checkpointing": (9,)}, np.float32, "names layer 9"),
        ({"weights": "bfloat16"}, np.float64, "computes in float64"),
        ({"learning_rate": None}, np.float32, "learning_rate is None, expected a positive number"),
        (
            {"batch_size": 10},
            np.float32,
            "batch_size is 10, which is not a multiple of the generator's 4.*such as batch_size=8",
        ),
        (
            {"batch_size": 3},
            np.float32,
            "batch_size is 3, which is not a multiple of the generator's 4.*such as batch_size=4",
        ),
    ],
)
def test_a_run_that_cannot_start_leaves_no_folder(place, changes, dtype, message):
    trainer = LargerBERTTrainer(LargerBERT(SMALL, dtype=dtype), "out", True, **changes)
    with pytest.raises(ValueError, match=message):
        trainer.train(generator(), num_steps=1)
    assert not Path("out").exists()
    assert not trainer.model.named_params()["head.b"].data.any()


def test_every_run_has_a_folder_of_its_own(place):
    """A trainer without `out` uses a new folder each time; resume continues the last one."""
    trainer = LargerBERTTrainer(LargerBERT(SMALL), quiet=True, threads=1)
    for number in (1, 2):
        trainer.train(generator(0), num_steps=1)
        assert trainer.out == Path(f"runs/run-{number}")
    assert trainer.resume(generator(0)).step == 1 and trainer.out == Path("runs/run-2")


def test_the_first_bias_of_a_new_model_is_what_is_frequent(place):
    """The output bias of a new model is set to the log frequencies; an existing bias stays."""
    new, known = LargerBERT(SMALL), LargerBERT(SMALL)
    given = np.linspace(-1, 1, 16).astype(np.float32)
    known.named_params()["head.b"].data[...] = given
    for model, out in ((new, "new"), (known, "known")):
        LargerBERTTrainer(model, out, True, threads=1, learning_rate=1e-9).train(generator(0), num_steps=1)
    expected = np.log(word_shares(word_counts(generator(0))))
    np.testing.assert_allclose(new.named_params()["head.b"].data, expected, atol=1e-5)
    np.testing.assert_allclose(known.named_params()["head.b"].data, given, atol=1e-5)


def test_a_run_without_a_checkpoint_cannot_be_resumed(place):
    """Its vocabulary and weights existed only in the program that started it."""
    LargerBERTTrainer(LargerBERT(SMALL), "out", True, threads=1).train(generator(0), num_steps=1)
    shutil.rmtree("out/checkpoints")
    with pytest.raises(FileNotFoundError, match=r"out has no checkpoint yet.*start again with trainer.train"):
        LargerBERTTrainer(LargerBERT(SMALL), "out", True).resume(generator(0))
    with pytest.raises(SystemExit, match="out was started from Python and has no checkpoint yet"):
        main(["train", "--resume", "--out", "out", "--quiet"])


def test_the_bundled_vocabulary_is_that_of_the_model():
    """50k for a model with a vocabulary of 50,000, without building one."""
    trainer = LargerBERTTrainer(LargerBERT(replace(SMALL, vocab_size=50_000)))
    assert trainer.load_tokenizer().vocab_size == 50_000


# ---------------------------------------------------------------------- the command


def test_switches_from_the_command_line(place):
    """--tie-head, --checkpointing and --micro-batch take effect, and a resumed run keeps them."""
    words = ["train", "--corpus", "text.txt", "--model", "config.json", "--tokenizer", "vocabulary", "--quiet"]
    try:
        main([*words, "--steps", "2", "--batch-size", "8", "--micro-batch", "2", "--tie-head", "--out", "out",
              "--checkpointing", "0,2", "--threads", "2"])  # fmt: skip
    except SystemExit as stop:
        assert not stop.code
    config = json.loads(Path("out/config.json").read_text())
    assert config["model"]["tie_head"] and config["model"]["init"] == "depth_scaled"
    assert config["training"]["checkpointing"] == [0, 2] and config["training"]["micro_batch"] == 2
    assert load("out")[0].config.tie_head
    with pytest.raises(SystemExit, match="leave out --checkpointing, --tie-head"):
        main(["train", "--resume", "--out", "out", "--tie-head", "--checkpointing"])
    with pytest.raises(SystemExit, match="names layer 3, but the model has layers 0 to 2"):
        main([*words, "--steps", "2", "--checkpointing", "3", "--out", "other"])
    assert not Path("other").exists()


def test_wider_models_learn_more_slowly(place):
    """The default learning rate is 1e-3 for Mini-BERT and half of that for a model twice as wide; a given rate
    is used."""
    assert default_learning_rate(MINI_BERT_CONFIG) == 1e-3
    assert default_learning_rate(LARGER_BERT_CONFIG) == pytest.approx(5e-4)
    assert default_learning_rate(replace(MINI_BERT_CONFIG, hidden_size=96)) == 1e-3
    wide = replace(SMALL, hidden_size=384, num_heads=2, num_layers=1)
    LargerBERTTrainer(LargerBERT(wide), "first", quiet=True).train(generator(), num_steps=1)
    Path("config.json").write_text(json.dumps(wide.to_dict()))
    pretrain(["text.txt"], "config.json", "vocabulary", Path("second"), steps=1, quiet=True)
    pretrain(["text.txt"], "config.json", "vocabulary", Path("third"), steps=1, quiet=True, learning_rate=1e-4)
    rates = [RunFolder.config(Path(run))["training"]["learning_rate"] for run in ("first", "second", "third")]
    assert rates == pytest.approx([1e-3, 1e-3, 1e-4])  # twice that, for Muon
