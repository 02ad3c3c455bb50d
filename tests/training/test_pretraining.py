"""`mini-bert train`: from the command line to a model folder, and its messages."""

import errno
import importlib.util
import inspect
import io
import json
import math
import os
import random
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

from mini_bert.cli.main import main
from mini_bert.cli.training import train as train_command
from mini_bert.data.generator import MLMDataGenerator
from mini_bert.evaluation.evaluate import Evaluation, word_counts
from mini_bert.evaluation.unigram_baseline import verdict
from mini_bert.evaluation.word_frequencies import read_frequencies
from mini_bert.files.model_folder import locate
from mini_bert.inference.loading import load
from mini_bert.models.config import MINI_BERT_CONFIG
from mini_bert.models.mini import MiniBERT
from mini_bert.models.registry import PRESETS, preset
from mini_bert.objectives.masked_words import entropy_of, word_shares
from mini_bert.text.wordpiece import WordPieceTokenizer
from mini_bert.training import checkpoint
from mini_bert.training import figures as plots
from mini_bert.training.defaults import default_corpus, default_micro_batch, default_warmup, new_folder, settings_for
from mini_bert.training.figures import loss_picture
from mini_bert.training.history import read_run
from mini_bert.training.plan import UNASKED
from mini_bert.training.pretraining import pretrain, resume
from mini_bert.training.recorder import State
from mini_bert.training.report import IN_PYTHON, _is_shown, measured
from mini_bert.training.run_folder import RunFolder
from mini_bert.training.run_lock import RunInUse, RunLock
from mini_bert.training.settings import TrainingConfig
from mini_bert.training.setup import Wanted

WORDS = ["cats", "purr", "dogs", "bark", "birds", "sing", "fish", "swim", "bees", "hum", "."]


@pytest.fixture
def place(tmp_path, monkeypatch):
    """An empty working folder with a text, a vocabulary and the config of a tiny model; figures are off, because they
    take long."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MINI_BERT_HOME", str(tmp_path / "home"))
    rng = random.Random(0)
    pairs = list(zip(WORDS[:-1:2], WORDS[1::2], strict=True))
    text = "\n\n".join(" ".join(f"{a} {b} ." for a, b in rng.choices(pairs, k=40)) for _ in range(60))
    Path("text.txt").write_text(text)
    WordPieceTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]).save("vocabulary")
    sizes = {"vocab_size": 999, "hidden_size": 24, "num_layers": 2, "num_heads": 3, "intermediate_size": 40}
    Path("config.json").write_text(json.dumps({"model_type": "mini_bert", "max_seq_length": 16, **sizes}))
    return tmp_path


def contents(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


WORDS_OF_A_RUN = ["train", "--corpus", "text.txt", "--model", "config.json", "--tokenizer", "vocabulary"]


def run(*words):
    try:
        main([*WORDS_OF_A_RUN, "--threads", "1", "--batch-size", "8", *words])
    except SystemExit as stop:
        return stop.code or 0
    return 0


def test_a_run_from_the_command_line(place, monkeypatch, capsys):
    """It gives a model folder that loads, a figure if possible, filled masks, and what to try next."""
    monkeypatch.setattr(plots, "loss_picture", loss_picture)
    assert run("--steps", "30", "--out", "out", "--held-out", "0.1", "--learning-rate", "0.01") == 0
    said = capsys.readouterr().err
    for expected in ("parameters;", "held-out loss", "unigram baseline", "[____]", "What to try next"):
        assert expected in said
    gaps = re.findall(r"… (.*) … *\n *(.*)", said)
    for shown, guesses in gaps:  # with the word that stood there it is the text: nothing else was replaced
        truth = (re.search(r"★(\w+|\.)", guesses) or re.search(r"it was: (\w+|\.)", guesses))[1]
        whole = re.sub(r" (?=\.)", "", shown.replace("[____]", truth))
        assert whole in re.sub(r"\s+", " ", Path("text.txt").read_text().replace(" .", ".")), shown
    assert gaps
    assert "vocabulary has 16 pieces, so the model's vocab_size is 16, instead of the 999 in its config" in said
    assert "fill-mask" in said and "doctor" in said
    if importlib.util.find_spec("matplotlib"):
        assert "loss curve: out" in said and Path("out/loss.png").read_bytes().startswith(b"\x89PNG")
    model, tokenizer = load("out")
    assert isinstance(model, MiniBERT) and model.config.vocab_size == tokenizer.vocab_size == 16
    card = Path("out/model/README.md").read_text(encoding="utf-8")
    assert "held-out loss" in card and "text.txt" in card and "top-5 accuracy" in card
    assert re.search(r"\| held-out text \| \d\d sequences \|\n", card)  # few: all of them
    config = json.loads(Path("out/config.json").read_text())
    assert config["training"]["steps"] == 30 and config["data"]["corpus"] == [str(place / "text.txt")]
    assert "step" in Path("out/training.log").read_text(encoding="utf-8")
    first = json.loads(Path("out/metrics.jsonl").read_text().splitlines()[0])
    epochs = 30 * 8 / first["sequences"]  # steps and batch size; the doctor uses the same number
    assert f", each seen {epochs:.1f} times |" in card and read_run("out").epochs == pytest.approx(epochs, abs=1e-4)
    assert first["kind"] == "start" and first["unigram_loss"] == pytest.approx(np.log(15) - 0.3, abs=0.5)
    best = min(record["loss"] for record in read_run("out").of("eval"))
    assert f"of {first['unigram_loss']:.3f}: {verdict(best, first['unigram_loss'])}\n" in said
    frequencies = np.exp(read_frequencies("out"))  # of the training text, for `eval`
    tokenizer = WordPieceTokenizer.load("vocabulary")
    held_out = word_counts(MLMDataGenerator("text.txt", tokenizer, 16, held_out=0.1).validation())
    wanted = -sum(n * np.log(p) for n, p in zip(held_out, frequencies, strict=True)) / held_out.sum()
    assert first["unigram_loss"] == pytest.approx(wanted, rel=1e-6)  # not their own frequencies, which give less
    assert entropy_of(held_out) < wanted - 1e-4
    assert frequencies.shape == (16,) and frequencies.sum() == pytest.approx(1) and frequencies.max() > 2 / 16


def test_a_length_that_nobody_asked_for(place, capsys):
    """A config's default of thousands of positions is named at the start, with what it costs; a given length is not."""
    sizes = {"hidden_size": 24, "num_hidden_layers": 1, "num_attention_heads": 3, "intermediate_size": 40}
    Path("config.json").write_text(json.dumps({"model_type": "bert", "max_position_embeddings": 300, **sizes}))
    few = ("--steps", "1", "--micro-batch", "1")
    assert run(*few, "--out", "long") == 0
    said = capsys.readouterr().err
    assert "300 tokens per sequence, from max_position_embeddings in the config of this BERT" in said
    assert re.search(
        r"a step of 8 sequences has 2,400 tokens and needs about \d+ MB of memory.* try --length 128", said
    )
    assert "from max_position_embeddings" in Path("long/training.log").read_text()
    assert run(*few, "--length", "300", "--out", "asked") == 0
    assert "from max_position_embeddings" not in capsys.readouterr().err


def test_fewer_sequences_than_a_batch(place, caplog):
    """The warning counts the whole batch, not the part of a thread, and names no argument of Python."""
    text = "\n\n".join(Path("text.txt").read_text().split("\n\n")[:2])
    Path("text.txt").write_text(text)
    assert run("--steps", "1", "--batch-size", "32", "--micro-batch", "4", "--held-out", "0", "--out", "few") == 0
    said = caplog.text
    assert re.search(r"the text makes \d+ sequences, but a batch has 32: some appear more than once in it; use", said)
    assert "max_seq_length" not in said and "batch_size" not in said


def test_the_start_of_a_run_counts_whole_batches(place, capsys):
    """Not the micro-batches that threads process."""
    assert run("--steps", "1", "--batch-size", "6", "--micro-batch", "2", "--out", "out") == 0
    sequences, batches = re.search(r"(\d+) sequences .* (\d+) batches of 6 per epoch", capsys.readouterr().err).groups()
    assert int(batches) == math.ceil(int(sequences) / 6)


def test_the_next_command_has_only_options_of_train():
    """`pretrain` in Python also takes settings that the command does not have."""
    options = set(inspect.signature(train_command).parameters)
    assert {field.name for field in fields(TrainingConfig)} - options == set(IN_PYTHON)
    assert options >= {field.name for field in fields(Wanted)}


def test_presets_get_no_note_on_their_length():
    assert all(preset(name).max_length <= UNASKED for name in PRESETS)


@pytest.mark.parametrize(
    "options",
    [
        "--length 12 --lr 3e-4 --schedule cosine --optimizer muon --mask-prob 0.2 --masking whole-word --seed 3",
        "--next-sentence --length 14 --checkpointing 0,1 --weight-decay 0 --held-out 0.1 --tie-head --warmup 0.2",
        "--checkpointing --average ema --ema-decay 0.9 --batch-start 4 --micro-batch 4",
    ],
)
def test_the_next_command_trains_the_same_model(place, capsys, options):
    """With every setting that defines the run, and without those of this run alone."""
    if "--next-sentence" in options:  # an architecture that has the head
        sizes = {"vocab_size": 16, "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3}
        sizes |= {"intermediate_size": 40, "max_position_embeddings": 16, "type_vocab_size": 2}
        Path("config.json").write_text(json.dumps({"model_type": "bert", **sizes}))
        text = re.sub(r"\. \w", lambda start: start[0].upper(), Path("text.txt").read_text())  # where sentences end
        Path("text.txt").write_text(text)
    words = ["--steps", "2", "--eval-every", "1", "--batch-size", "32"]  # 8 would be "very small", so not repeated
    assert run(*words, "--out", "one", *options.split()) == 0
    said = capsys.readouterr().err
    words = shlex.split(re.search(r"mini-bert (train .* --minutes 120)$", said, re.MULTILINE)[1])
    assert not {"--eval-every", "--steps", "--out", "--quiet"} & set(words)
    assert str(place) not in " ".join(words)  # paths as they were given
    with pytest.raises(SystemExit, match=r"^0$"):
        main([*words[:-2], "--steps", "2", "--eval-every", "1", "--out", "again", "--quiet"])
    one, again = (json.loads(Path(name, "config.json").read_text()) for name in ("one", "again"))
    assert one == again


def test_the_next_command_does_not_repeat_what_went_wrong(place, capsys):
    """Options that a finding of the doctor names are left out, and so is a text that is too short."""
    assert run("--steps", "40", "--length", "12", "--out", "one") == 0  # 100 tokens a step, for several epochs
    said = capsys.readouterr().err
    assert "WARNING: The batch is very small" in said
    words = shlex.split(re.search(r"mini-bert (train .* --minutes 120)$", said, re.MULTILINE)[1])
    assert "--length" in words and "--batch-size" not in words
    few = "cats purr . dogs bark . birds sing . fish swim . "
    Path("text.txt").write_text(few * 4)
    assert run("--steps", "60", "--out", "two") == 0
    said = capsys.readouterr().err
    assert "Too little text" in said and "--corpus FILE_OR_FOLDER --minutes 120" in said


def test_a_few_steps_that_diverge_are_noticed(place, capsys):
    """However short the run is, no model is written, and the learning rate is not recommended again. Resumed at its
    end, it is still no good."""
    for steps in ("1", "3"):
        assert run("--steps", steps, "--lr", "300", "--held-out", "0.2", "--out", steps) == 1
        said = capsys.readouterr().err
        assert "ERROR: The learning rate is too high" in said and "--lr" not in said and "try next" not in said
        assert not Path(steps, "model").exists()
        assert json.loads(Path(steps, "metrics.jsonl").read_text().splitlines()[-1])["reason"] == "diverged"
        assert resumed(out=steps) == 1 and not Path(steps, "model").exists()
        assert json.loads(Path(steps, "metrics.jsonl").read_text().splitlines()[-1])["reason"] == "diverged"
        capsys.readouterr()


def test_zero_is_a_value(place):
    """--held-out 0 and --warmup 0 reach the run, and --resume refuses them as it refuses other settings."""
    assert run("--steps", "2", "--out", "out", "--held-out", "0", "--warmup", "0") == 0
    config = RunFolder.config(Path("out"))
    assert config["data"]["held_out"] == 0 and config["training"]["warmup"] == 0
    with pytest.raises(SystemExit, match="leave out --warmup, --held-out"):
        main(["train", "--resume", "--out", "out", "--held-out", "0", "--warmup", "0"])


def test_a_run_is_resumed_with_its_own_settings(place, caplog):
    """--resume needs only the folder; without one, it is the newest in runs/."""
    assert run("--steps", "12", "--save-every", "4") == 0
    assert Path("runs/run-1/model").is_dir()
    before = MiniBERT.from_pretrained("runs/run-1/checkpoints/step-00000012").flat.data.copy()
    for path in Path("runs/run-1/checkpoints").glob("step-00000012/*"):
        path.write_bytes(b"")
    state = resume(quiet=True)
    assert "damaged" in caplog.text
    assert state.step == 12 and state.stopped == "done"
    np.testing.assert_array_equal(MiniBERT.from_pretrained("runs/run-1/checkpoints/step-00000012").flat.data, before)


def interrupt(monkeypatch, at, times=1):
    """Sends Ctrl-C when that step is recorded."""
    real = RunFolder.record

    def record(self, entry):
        real(self, entry)
        if entry["kind"] == "train" and entry["step"] == at:
            for _ in range(times):
                signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(RunFolder, "record", record)


@pytest.mark.parametrize("quiet", [[], ["--quiet"]], ids=["", "quiet"])
def test_ctrl_c_says_how_to_go_on(signals, place, monkeypatch, capsys, quiet):
    """The message is printed even with --quiet."""
    interrupt(monkeypatch, at=20)
    assert run("--steps", "1000", "--out", "my run", *quiet) == 130
    said = capsys.readouterr().err
    assert "everything is saved. Continue with\n\n    mini-bert train --out 'my run' --resume\n" in said
    assert ("parameters;" in said) != bool(quiet)
    assert said.index("finishing this step, then saving") < said.index("everything is saved")
    assert json.loads(Path("my run/metrics.jsonl").read_text().splitlines()[-1])["reason"] == "interrupted"


@pytest.mark.skipif(os.name == "nt", reason="signals between processes are a POSIX matter")
@pytest.mark.parametrize("how", ["SIGTERM", "two SIGHUPs", "the terminal is closed"])
def test_a_signal_to_run_py_alone_saves(place, signals, how):
    """Whatever ends the run, the step is finished and saved. run.py replaces itself with the trainer, so its process
    is the one to tell."""
    import fcntl
    import pty
    import termios

    words = [*WORDS_OF_A_RUN, "--threads", "1", "--batch-size", "8", "--steps", "100000", "--out", "out"]
    caller = f"import run, sys; sys.exit(run.call([sys.executable, '-m', 'mini_bert', *{words!r}]))"
    screen, terminal = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", caller], stdin=terminal, stdout=terminal, stderr=terminal, start_new_session=True,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2]), "TERM": "dumb"},
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    )  # fmt: skip
    os.close(terminal)
    metrics, end = Path("out/metrics.jsonl"), time.monotonic() + 30
    while not (metrics.exists() and '"train"' in metrics.read_text()) and time.monotonic() < end:
        time.sleep(0.05)
    if how == "the terminal is closed":
        os.close(screen)
    for _ in range(how.count("SIGHUP") * (1 + how.startswith("two"))):
        os.kill(process.pid, signal.SIGHUP)
    if how == "SIGTERM":
        os.kill(process.pid, signal.SIGTERM)
    try:
        assert process.wait(timeout=30) in (130, 120)  # 120: Python could not flush to the terminal that is gone
    finally:
        process.kill()  # if it goes on
    history = read_run("out")
    assert history.last("stop")["reason"] == "interrupted"
    assert checkpoint.latest(Path("out")).state["step"] == history.last("stop")["step"] >= 20


def test_on_a_terminal_the_way_to_go_on_is_the_last_thing(signals, place, monkeypatch, capsys):
    """It is below the board, which is not drawn again."""
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    interrupt(monkeypatch, at=20)
    assert run("--steps", "1000", "--out", "out") == 130
    said = capsys.readouterr().err
    assert "unigram baseline" in said and said.endswith("Continue with\n\n    mini-bert train --out out --resume\n\n")


def test_ctrl_c_while_the_text_is_made_ready(place, monkeypatch, capsys):
    """There is no run to resume yet, and the last message says so."""

    def stops(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("mini_bert.training.pretraining.prepare", stops)
    assert run("--steps", "10", "--out", "out") == 130
    assert capsys.readouterr().err.endswith("before the run began. Run the same command to start again.\n")
    assert not Path("out").exists()


def test_ctrl_c_before_the_first_step(place, monkeypatch, capsys):
    """The folder exists, so the message suggests --resume, which works."""

    def stops(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("mini_bert.training.folder_run.start_record", stops)
    assert run("--steps", "3", "--out", "out") == 130
    said = capsys.readouterr().err
    assert said.endswith("nothing was saved yet. Continue with\n\n    mini-bert train --out out --resume\n\n")
    monkeypatch.undo()
    monkeypatch.chdir(place)
    monkeypatch.setattr(plots, "loss_picture", lambda *_, **__: False)
    with pytest.raises(SystemExit) as end:
        main(["train", "--out", "out", "--resume", "--quiet"])
    assert end.value.code == 0 and Path("out/model").is_dir()


def test_the_log_has_what_was_said_before_there_was_one(place, monkeypatch, capsys):
    """Warnings about the text, and where its tokens are stored."""
    with Path("text.txt").open("ab") as file:
        file.write(b"\n\nan odd byte: \xff \xfe cats purr .\n")
    assert run("--steps", "2", "--out", "out") == 0
    log = Path("out/training.log").read_text(encoding="utf-8")
    assert "the tokenized text is stored in " in log
    shown = [line for line in capsys.readouterr().err.splitlines() if "tokenized text saved" not in line]
    missing = [line for line in shown if line not in log and not line.startswith("tokenizing: ")]
    assert missing == []


@pytest.mark.parametrize(("every", "left"), [("8", "everything after step-00000016"), ("50", "nothing was saved yet")])
def test_a_second_ctrl_c_says_what_is_lost(signals, place, monkeypatch, capsys, every, left):
    interrupt(monkeypatch, at=20, times=2)
    assert run("--steps", "1000", "--out", "out", "--save-every", every) != 0
    said = capsys.readouterr().err
    assert f"Stopped at once; {left}" in said and "\n    mini-bert train --out out --resume\n" in said
    assert not Path("out/model").exists()


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("quiet", [[], ["--quiet"]], ids=["", "quiet"])
def test_a_learning_rate_far_too_high_ends_with_an_explanation(place, capsys, quiet):
    """No silent NaNs and no model: the doctor explains, whether the run failed or only learnt nothing."""
    assert run("--steps", "120", "--out", "out", "--learning-rate", "0.1", *quiet) == 1
    said = capsys.readouterr().err
    assert "ERROR: The learning rate is too high" in said and "No model was written" in said
    assert not Path("out/model").exists()
    with pytest.raises(SystemExit) as stop:
        main(["doctor", "out"])
    assert stop.value.code == 1 and "too high" in capsys.readouterr().out


def test_the_published_model_is_the_best_and_not_the_newest(place, monkeypatch):
    """The best checkpoint, from the middle of the run, outlives newer ones, and the model card has its numbers."""
    losses = iter([3.0, 1.5, 2.0, 2.5, 2.25])
    measured = (Evaluation(loss, 9.0, 0.1, 0.2, 50) for loss in losses)
    monkeypatch.setattr("mini_bert.training.loop.held_out_loss", lambda *_: {"masked_words": next(measured)})
    assert run("--steps", "20", "--out", "out", "--eval-every", "4", "--save-every", "2") == 0
    names = sorted(path.name for path in Path("out/checkpoints").iterdir())
    assert names == ["step-00000008", "step-00000018", "step-00000020"]
    published, best, newest = (
        Path(f"out/{folder}/model.safetensors").read_bytes()
        for folder in ("model", "checkpoints/step-00000008", "checkpoints/step-00000020")
    )
    assert published == best != newest
    assert "| held-out loss | 1.500 |" in Path("out/model/README.md").read_text(encoding="utf-8")


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_run_that_is_no_number_any_more_publishes_nothing(place, monkeypatch, capsys):
    """It exits with code 1 and the doctor's explanation; the earlier checkpoints are complete."""
    real = RunFolder.begin

    def begin(self, model, adam, batches):
        self.hooks.append(lambda record: record["step"] == 20 and model.flat.data.fill(np.inf))
        return real(self, model, adam, batches)

    monkeypatch.setattr(RunFolder, "begin", begin)
    assert run("--steps", "100", "--out", "out", "--save-every", "10") == 1
    said = capsys.readouterr().err
    assert "ERROR: The numbers are no longer finite" in said and "No model was written to out" in said
    assert not Path("out/model").exists() and not list(Path("out").glob(".model*"))


def test_the_first_loss_is_that_of_knowing_frequencies(place):
    """The output bias is set before the first step: the loss begins at the unigram baseline, not at ln V."""
    assert run("--steps", "20", "--out", "out", "--learning-rate", "1e-9", "--held-out", "0.1") == 0
    history = read_run("out")
    (loss,) = history.series("train", "loss")[1]
    assert loss == pytest.approx(history.unigram_loss, abs=0.15) and loss < np.log(16) - 0.4


def test_a_gap_that_is_shown_is_a_whole_word():
    """It is masked, made of letters, has text on both sides and no other mask nearby; neither it nor the next token is
    a ## piece."""
    tokenizer = WordPieceTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "cat", "##s", "12", "dog"])
    cat, s, number, dog = range(5, 9)
    ids = np.full((2, 17), dog)
    ids[1, 8] = tokenizer.mask_id
    row = 17 + 8

    def shown(truth, **changes):
        changed = ids.copy()
        for place, token in changes.items():
            changed[1, int(place[1:])] = token
        return _is_shown(tokenizer, changed, row, truth)

    assert shown(cat) and shown(cat, _7=s)
    assert not shown(s) and not shown(number) and not shown(cat, _9=s)
    assert not shown(cat, _8=cat) and not shown(cat, _5=tokenizer.mask_id) and not shown(cat, _12=tokenizer.sep_id)
    assert shown(cat, _3=tokenizer.mask_id) and shown(cat, _13=tokenizer.mask_id)  # far enough
    for place in (0, 4, 12, 16):  # too near to an end
        changed = ids.copy()
        changed[1, 8], changed[1, place] = dog, tokenizer.mask_id
        assert not _is_shown(tokenizer, changed, 17 + place, cat)


def test_the_model_is_published_before_pictures_are_drawn(place, monkeypatch):
    """Whatever happens while drawing, the model exists."""

    def crash(*arguments, **keywords):
        raise RuntimeError

    monkeypatch.setattr(plots, "loss_picture", crash)
    with pytest.raises(RuntimeError):
        run("--steps", "2", "--out", "out")
    assert isinstance(load("out")[0], MiniBERT) and Path("out/model/README.md").is_file()


@pytest.mark.parametrize("crash_at", [1, 2])
def test_a_crash_while_publishing_leaves_a_model(place, caplog, crash_at):
    """Before and between the two renames, the old model is found."""
    assert run("--steps", "2", "--out", "out") == 0
    old, rename, calls = Path("out/model/model.safetensors").read_bytes(), os.rename, []

    def crash(source, target):
        calls.append(Path(source).name)
        if len(calls) == crash_at:
            raise KeyboardInterrupt
        rename(source, target)

    folder = RunFolder(Path("out"), WordPieceTokenizer.load("vocabulary"))
    with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(os, "rename", crash)
        folder.publish(State(), "card")
    assert calls[0] == "model" and len(calls) == [1, 3][crash_at - 1]  # the third puts the old one back
    assert (locate("out") / "model.safetensors").read_bytes() == old and not caplog.records
    load("out")
    folder.publish(State(), "a new card")
    assert Path("out/model/README.md").read_text() == "a new card"
    assert not list(Path("out").glob(".model*"))


def test_a_model_that_cannot_be_published_is_said_to_be_in_its_checkpoint(place, monkeypatch):
    assert run("--steps", "2", "--out", "out") == 0

    def full(*arguments):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(shutil, "copy2", full)
    message = r"could not be written to .*model \(No space left on device\); it is intact in .*step-00000002.*--resume"
    with pytest.raises(OSError, match=message):
        RunFolder(Path("out"), WordPieceTokenizer.load("vocabulary")).publish(State(), "card")
    assert isinstance(load("out")[0], MiniBERT)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--steps", "5", "--minutes", "1"], "expected exactly one of them"),
        (["--steps", "5", "--held-out", "1.5"], "held_out is 1.5"),
        (["--steps", "5", "--model", "huge"], "'huge' is neither a preset"),
        (["--steps", "5", "--learning-rate", "-1"], "learning_rate is -1.0"),
        (["--minutes", "1e300"], "minutes is 1e+300, expected at most 525,600"),
        (["--steps", "100000000"], "steps is 100000000, expected at most 99,999,999"),
        (["--minutes", "nan"], "minutes is nan"),
    ],
)
def test_mistakes_are_one_line(place, words, message):
    code = run(*words)
    assert isinstance(code, str) and message in code


@pytest.mark.parametrize("given", ["out", "out/model", "out/model/model.safetensors"])
def test_a_model_with_weights_is_not_silently_trained_from_scratch(place, given):
    """The error says how to continue with them, and how to train the same architecture from random weights."""
    assert run("--steps", "2", "--out", "out") == 0
    error = run("--steps", "2", "--model", given)
    assert f"{given} has trained weights, but --model starts from random weights" in error
    assert ": --init out/model continues to train it, --model out/model/config.json trains a new model" in error
    assert not Path("runs").exists()
    assert run("--steps", "2", "--model", "out/model/config.json") == 0


def test_the_name_of_a_bundled_model_is_no_preset(place):
    """The error says how to train one like it, and how to continue with it."""
    for command in (["train", "--steps", "1"], ["plan"]):
        with pytest.raises(SystemExit, match="--init mini-bert continues to train it, --model mini trains a new model"):
            main([*command, "--model", "mini-bert"])


def test_a_folder_without_a_model_says_what_is_missing(place):
    """Whichever option it is given to; presets are not mentioned, since --init knows none."""
    Path("empty").mkdir()
    for option in ("--init", "--model"):
        with pytest.raises(SystemExit, match=r"empty has no config\.json; a model folder has config\.json and model\."):
            main(["train", "--steps", "1", option, "empty"])


def test_a_folder_of_runs_names_them(place):
    """The user gets the name of a run to choose, whatever was to be done with it."""
    for name in ("b", "a"):
        assert run("--steps", "1", "--out", f"all/{name}") == 0
    for command in (["doctor", "all"], ["plot", "all"], ["fill-mask", "a [MASK]", "--model", "all"],
                    ["train", "--init", "all"], ["train", "--resume", "--out", "all"]):  # fmt: skip
        with pytest.raises(SystemExit, match=r"its folders a, b have one; choose one of these, such as all.a$"):
            main(command)


def test_an_objective_that_a_model_cannot_learn_names_models_that_can(place):
    """With --init, they are new models, since no other trained one is known."""
    assert run("--objective", "next_word").endswith("distillation. For next_word: --model gpt2 or transformer-xl")
    said = run("--model", "gpt2", "--objective", "masked_words")
    assert "For masked_words: --model mini, larger, bert, " in said and said.endswith(", deberta-v2 or deberta-v3")
    with pytest.raises(SystemExit, match="For next_word: without --init, a new model can: --model gpt2 or tr"):
        main(["train", "--steps", "1", "--init", "mini-bert", "--objective", "next_word"])


def test_runs_that_start_at_the_same_time_get_different_folders(place):
    """A number is taken by creating its folder; settings that turn out to be invalid leave no folder behind."""
    with ThreadPoolExecutor(8) as pool:
        folders = list(pool.map(lambda _: new_folder(), range(32)))
    assert sorted(folders) == sorted(Path(f"runs/run-{number}") for number in range(1, 33))
    assert "held_out is 1.5" in run("--steps", "2", "--held-out", "1.5")
    assert not Path("runs/run-33").exists()


def test_a_text_of_one_document_is_trained_on_without_validation(place, capsys):
    Path("text.txt").write_text("cats purr . dogs bark . " * 200)
    assert run("--steps", "4", "--out", "out") == 0
    said = capsys.readouterr().err
    assert "no text is held out" in said and "in plain text, empty lines separate documents" in said
    assert "not measured" in Path("out/model/README.md").read_text()
    said = run("--steps", "4", "--held-out", "0.1")
    assert "--held-out 0.1 holds out whole documents, but the text is a single document" in said


def test_errors_of_a_run_that_is_resumed_name_options_too(place):
    """As those of a new one do, here about a text that was replaced."""
    assert run("--steps", "2", "--held-out", "0.1", "--out", "out") == 0
    Path("text.txt").write_text("cats purr . dogs bark . " * 200)
    assert resumed("--steps", "4").startswith("mini-bert: --held-out 0.1 holds out whole documents")


def test_a_text_too_short_for_a_sequence(place):
    """The error names the option of the command line, with a value that works; from Python, the argument there."""
    Path("text.txt").write_text("cats purr . dogs bark .")
    said = run("--steps", "1")
    assert "the text has 6 tokens, too few for one sequence of 14" in said and "max_seq_length" not in said
    assert said.endswith("use more text, or at most --length 8")
    assert run("--steps", "1", "--length", "8", "--out", "out") == 0
    with pytest.raises(ValueError, match="or at most max_seq_length=8"):
        pretrain(["text.txt"], "config.json", tokenizer="vocabulary", steps=1, quiet=True)


@pytest.mark.parametrize("documents", [2, 3, 5])
def test_a_few_documents_are_shared_out(place, capsys, documents):
    """Whatever their hashes, there is text for training and for evaluation; the settings record the share."""
    texts = [f"{WORDS[number]} purr . dogs bark . " * 30 for number in range(documents)]
    Path("text.txt").write_text("\n\n".join(texts))
    assert run("--steps", "4", "--out", "out") == 0
    start = read_run("out").last("start")
    assert start["sequences"] >= 1 and start["validation_tokens"] >= 16 and start["train_tokens"] >= 16
    assert "held-out loss" in Path("out/model/README.md").read_text(encoding="utf-8")


def test_the_card_has_the_best_measurement_and_finite_numbers(tmp_path):
    """A record that is incomplete, joined to the next, or not finite does no harm."""
    good = {"kind": "eval", "step": 5, "loss": 6.25, "perplexity": None, "top1": 0.125, "top5": 0.25}
    others = [good | {"step": 3, "loss": 7.0}, good | {"step": 4, "loss": None}, good | {"step": 9, "loss": 6.5}]
    lines = [json.dumps(record) for record in others]
    text = '{"kind": "eval", "step": 2, "lo' + json.dumps(good) + "\n" + "\n".join(lines) + "\n"
    (tmp_path / "metrics.jsonl").write_text(text)
    assert measured(tmp_path, 1500, 1024) == (
        "| held-out text | the first 1,024 of 1,500 sequences |\n"
        "| held-out loss | 6.250 |\n| perplexity | – |\n| top-1 accuracy | 12.5% |\n| top-5 accuracy | 25.0% |\n"
    )
    (tmp_path / "metrics.jsonl").write_text(json.dumps(good | {"perplexity": 5.1847e21}) + "\n")
    assert "| perplexity | 5.2e21 |" in measured(tmp_path, 1500, 1024)
    (tmp_path / "metrics.jsonl").write_text(lines[1] + "\n")
    assert measured(tmp_path, 0, 1024) == "| held-out loss | not measured |\n"


def test_a_mistake_leaves_no_folder_behind(place):
    """The corrected command works."""
    assert "held_out is 1.5" in run("--steps", "2", "--held-out", "1.5", "--out", "out")
    assert not Path("out").exists()
    assert run("--steps", "2", "--out", "out") == 0


def test_resume_takes_no_other_settings(place):
    assert run("--steps", "2", "--out", "out") == 0
    with pytest.raises(SystemExit, match="leave out --threads, --learning-rate"):
        main(["train", "--out", "out", "--resume", "--steps", "9", "--lr", "0.1", "--threads", "1"])


@pytest.mark.parametrize("error", [MemoryError("Unable to allocate 9 GiB"), RuntimeError("can't start new thread")])
@pytest.mark.parametrize("where", ["mini_bert.models.mini.MiniBERT.__init__", "mini_bert.training.loop.Muon"])
def test_too_little_memory_is_said_as_plan_says_it(place, monkeypatch, where, error):
    """The error says how much the run needs and for what, and names the command that finds settings which need less."""

    def full(*arguments, **options):
        if arguments and arguments[-1] is None:  # a model without weights takes no memory
            return real(*arguments)
        raise error

    real = MiniBERT.__init__
    monkeypatch.setattr(where, full)
    said = run("--steps", "2")
    assert re.match(r"mini-bert: not enough memory: training this model with these settings needs about \d\d MB ", said)
    assert (
        "moments of Muon and Adam 0 MB" in said
        and f"`mini-bert plan --model {place / 'config.json'} --batch-size 8" in said
    )


def resumed(*words, out="out"):
    with pytest.raises(SystemExit) as end:
        main(["train", "--out", out, "--resume", *words])
    return end.value.code


@pytest.mark.parametrize("words", [["--steps", "12"], ["--minutes", "0.02"]], ids=" ".join)
def test_a_finished_run_is_finished_and_can_be_extended(place, capsys, words):
    """Without a new length, --resume says what to do and changes nothing. With one, the run continues until the whole
    run is that long; the learning rate is that of a run of this length."""
    assert run("--steps", "5", "--out", "out", "--held-out", "0.1", "--warmup", "0") == 0
    before = contents(Path("out"))
    capsys.readouterr()
    assert resumed() == 0
    said = capsys.readouterr().err
    assert said.startswith("out is finished: 5 steps in 0.0 minutes. Its model is in out") and "resuming" not in said
    assert "\n    mini-bert train --out out --resume --steps 10\n" in said
    assert "out has done 5 steps in 0.0 minutes; --steps is the length of the whole run" in resumed("--steps", "5")
    assert "expected exactly one of them" in resumed("--steps", "9", "--minutes", "9")
    assert contents(Path("out")) == before
    assert resumed(*words) == 0
    said = capsys.readouterr().err
    assert "5 steps of which are done. The learning rate continues at " in said and "resuming at step 5" in said
    history, config = read_run("out"), RunFolder.config(Path("out"))
    if words[0] == "--steps":
        assert history.steps == 12 and config["training"]["steps"] == 12
        assert "continues at 2.0e-03" in said  # step 6 of 12 is before the last 30 %
    else:
        assert history.steps > 5 and config["training"]["minutes"] == 0.02 and config["training"]["steps"] is None
    assert history.last("train")["lr"] < 2e-3 / 3 and history.last("stop")["reason"] == "done"
    assert config["earlier_lengths"] == [{"step": 5, "steps": 5, "minutes": None}]
    card = Path("out/model/README.md").read_text(encoding="utf-8")
    assert "then down to 0; the length of the run was changed after step 5 |" in card
    assert resumed() == 0 and "out is finished: " in capsys.readouterr().err


def test_an_extended_run_that_is_interrupted_reaches_the_same_weights(signals, place, monkeypatch):
    """The new length is stored before training, so a plain --resume continues towards it."""
    newest = "out/checkpoints/step-00000030/model.safetensors"
    assert run("--steps", "10", "--out", "out") == 0
    shutil.copytree("out", "whole")
    with pytest.raises(SystemExit):
        main(["train", "--out", "whole", "--resume", "--steps", "30", "--quiet"])
    with monkeypatch.context() as patch:
        interrupt(patch, at=20)
        assert resumed("--steps", "30", "--quiet") == 130
    assert resumed("--quiet") == 0
    assert Path(newest).read_bytes() == Path(newest.replace("out", "whole", 1)).read_bytes()


def test_a_finished_run_without_its_model_writes_it(place, capsys):
    """As after a disk that was full at the end."""
    assert run("--steps", "2", "--out", "out") == 0
    shutil.rmtree("out/model")
    assert resumed() == 0 and "its model is written if it did not diverge" in capsys.readouterr().err
    assert Path("out/model/config.json").is_file()


def test_a_run_is_resumed_from_another_folder(place, monkeypatch):
    """Paths in its config are absolute; a finished run ends at once and writes its model again."""
    assert run("--steps", "2", "--out", "out") == 0
    Path("elsewhere").mkdir()
    monkeypatch.chdir("elsewhere")
    assert resume(Path("../out"), quiet=True).step == 2


def test_two_processes_do_not_train_in_one_folder(place):
    """A second process can neither resume an active run nor start one in a folder where another is just starting."""
    assert run("--steps", "2", "--out", "out") == 0
    with RunLock(Path("out")):
        with pytest.raises(RunInUse, match="out is in use: process"):
            resume(out=Path("out"), quiet=True)
        assert "already contains a run" in run("--steps", "2", "--out", "out")
    Path("new").mkdir()
    with RunLock(Path("new")):
        assert "new is in use: process" in run("--steps", "2", "--out", "new")
    assert run("--steps", "2", "--out", "new") == 0


def test_text_from_a_pipe(place, monkeypatch):
    """It is read once; the shards built from it are used by the run and when it is resumed."""

    class Pipe:
        buffer = io.BytesIO(Path("text.txt").read_bytes())

    monkeypatch.setattr("sys.stdin", Pipe())
    options = {"model": "config.json", "tokenizer": "vocabulary", "threads": 1, "batch_size": 8, "quiet": True}
    assert pretrain(["-"], steps=3, out=Path("out"), **options).step == 3
    assert resume(out=Path("out"), quiet=True).step == 3


@pytest.mark.parametrize(
    ("batch_size", "threads", "expected"), [(32, 2, 16), (32, 4, 8), (32, 1, 16), (33, 2, 11), (8, 16, 1), (7, 2, 1)]
)
def test_every_thread_gets_something_to_do(batch_size, threads, expected):
    assert default_micro_batch(batch_size, threads) == expected


@pytest.mark.parametrize(
    ("batch_size", "threads", "faster"),
    [(7, 2, 8), (31, 2, 32), (17, 1, 18), (8, 2, None), (33, 2, None), (1, 1, None)],
)
def test_a_batch_that_hardly_splits_is_told(batch_size, threads, faster, capsys):
    """`train` and `plan` name the next batch size that has larger micro-batches; only if nobody chose these."""
    note = settings_for(MINI_BERT_CONFIG, steps=1, batch_size=batch_size, threads=threads)[1]
    assert (f"a batch size such as {faster} is faster" in note) if faster else not note
    assert not settings_for(MINI_BERT_CONFIG, steps=1, batch_size=batch_size, threads=1, micro_batch=1)[1]
    with pytest.raises(SystemExit):
        main(["plan", "--batch", str(batch_size), "--threads", str(threads)])
    assert ("batch size such as" in capsys.readouterr().out) == (faster is not None)


def test_no_thread_without_work_unless_asked_for(place, monkeypatch, capsys):
    """A thread with nothing to do would still hold gradients; if it was requested, a message says so."""
    monkeypatch.setattr("mini_bert.training.defaults.default_threads", lambda: 8)
    options = {"tokenizer": "vocabulary", "steps": 1, "batch_size": 8}
    for micro, threads, expected in ((None, None, (1, 8)), (4, None, (4, 2)), (4, 3, (4, 3))):
        out = Path(f"{micro}-{threads}")
        given = {"micro_batch": micro} if micro else {}
        pretrain(["text.txt"], "config.json", out=out, threads=threads, **given, **options)
        training = RunFolder.config(out)["training"]
        assert (training["micro_batch"], training["threads"]) == expected
        told = f"2 micro-batches of 4 sequences, so only 2 of {threads or 8}" in capsys.readouterr().err
        assert told == (micro is not None)


def test_nothing_to_resume(place):
    with pytest.raises(FileNotFoundError, match=r"there is no run in .* to resume"):
        resume()
    with pytest.raises(FileNotFoundError, match="nowhere is not a run folder"):
        resume(out=Path("nowhere"))


def test_the_default_warmup():
    """A minute or 400 steps, but at least a twentieth and at most a quarter of the run."""
    assert default_warmup(None, 4.0) == 0.25 and default_warmup(None, 10.0) == 0.1
    assert default_warmup(None, 120.0) == 0.05 == default_warmup(100_000, None)
    assert default_warmup(2000, None) == 0.2 and default_warmup(10, None) == 0.25


def test_text_in_data_comes_before_the_built_in_corpus(place):
    assert default_corpus() == ["builtin"]
    Path("data").mkdir()
    assert default_corpus() == ["builtin"]
    Path("data/story.txt").write_text("Once upon a time there was a text.")
    assert default_corpus() == ["data"]


def test_the_first_bias_is_what_is_frequent(place):
    """Word frequencies in the training text; words that do not occur count half."""
    tokenizer = WordPieceTokenizer.load("vocabulary")
    share = word_shares(word_counts(MLMDataGenerator("text.txt", tokenizer, 16, 8, progress=False)))
    assert share.sum() == pytest.approx(1) and share.argmax() == tokenizer.tokens.index(".")
    assert share[tokenizer.tokens.index(".")] == pytest.approx(1 / 3, abs=0.01) and 0 < share[0] < 1e-3
