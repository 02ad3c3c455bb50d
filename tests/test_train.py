"""The loop: it learns, it can be stopped anywhere and goes on exactly, and it says what went wrong."""

import json
import math
import os
import random
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mini_bert import checkpoint
from mini_bert.config import MiniBertConfig, TrainingConfig
from mini_bert.data import Batch, MLMDataGenerator
from mini_bert.model import MiniBERT
from mini_bert.optim import Adam
from mini_bert.parallel import Team
from mini_bert.pretrained import read_tensors
from mini_bert.recording import RunFolder, State
from mini_bert.tokenizer import WordPieceTokenizer
from mini_bert.train import train

WORDS = ["cats", "purr", "dogs", "bark", "birds", "sing", "fish", "swim", "bees", "hum", "."]
CONFIG = MiniBertConfig(5 + len(WORDS), 24, 2, 3, 40, 16)
SETTINGS = TrainingConfig(
    steps=12, batch_size=8, micro_batch=4, threads=2, log_every=2, eval_every=5, eval_sequences=32, save_every=3,
    tensors_every=6, learning_rate=1e-2,
)  # fmt: skip


@pytest.fixture(scope="module")
def tokenizer():
    return WordPieceTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS])


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Forty little documents in which a word says what follows it."""
    rng = random.Random(0)
    pairs = list(zip(WORDS[:-1:2], WORDS[1::2], strict=True))
    text = "\n\n".join(" ".join(f"{a} {b} ." for a, b in rng.choices(pairs, k=40)) for _ in range(40))
    path = tmp_path_factory.mktemp("corpus") / "text.txt"
    path.write_text(text)
    return path


class Killed(Exception):
    pass


def go(folder, corpus, tokenizer, settings=SETTINGS, resume=False, kill=None, config=CONFIG):
    """A run -> the model and how it ended; `kill` is called with every record and may raise Killed."""
    batches = MLMDataGenerator(
        str(corpus), tokenizer, config.max_seq_length, settings.micro_batch, held_out=0.2,
        cache_dir=corpus.parent / "cache", progress=False,
    )  # fmt: skip
    model = MiniBERT(config, seed=1)
    if not (folder / "config.json").exists():
        RunFolder.create(folder, {"model": config.to_dict(), "training": settings.to_dict(), "data": {}})
    found = checkpoint.latest(folder) if resume else None
    run = RunFolder(folder, tokenizer, settings.keep, found, [kill] if kill else [])
    return model, train(model, batches, batches.validation(batch_size=8), settings, run)


@pytest.fixture(scope="module")
def whole(tmp_path_factory, corpus, tokenizer):
    """A run that was never stopped."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    model, state = go(folder, corpus, tokenizer)
    return folder, model, state


def records(folder, kind=None):
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [line for line in lines if kind in (None, line["kind"])]


def test_it_learns(tmp_path, corpus, tokenizer):
    """From knowing nothing to well below the entropy of single words: it uses context."""
    settings = replace(SETTINGS, steps=200, log_every=10, eval_every=50, save_every=50)
    _, state = go(tmp_path / "run", corpus, tokenizer, settings)
    losses = [record["loss"] for record in records(tmp_path / "run", "train")]
    assert losses[0] > 2.2 and state.best < 1.4 and state.stopped == "done"  # single words: 2.2; five kinds of animal


def test_what_is_written_down(whole):
    folder, model, state = whole
    assert [record["step"] for record in records(folder, "train")] == [2, 4, 6, 8, 10, 12]
    assert [record["step"] for record in records(folder, "eval")] == [5, 10, 12]
    assert {3, 6, 9, 12} <= {record["step"] for record in records(folder, "checkpoint")} <= {3, 5, 6, 9, 10, 12}
    tensors = records(folder, "tensors")
    assert [record["step"] for record in tensors] == [6, 12]
    assert set(tensors[0]["tensors"]) == set(model.named_params())
    entry = tensors[1]["tensors"]["encoder.blocks.1.feed_forward.expand.w"]
    assert entry["ratio"] == pytest.approx(entry["update"] / entry["weight"]) and entry["gradient"] > 0
    assert entry["update_percentiles"] == sorted(entry["update_percentiles"])
    last = records(folder, "train")[-1]
    assert last["tokens"] == 12 * 8 * 16 and last["epoch"] > 0 and last["grad_norm_max"] >= last["grad_norm"] > 0
    assert records(folder)[-1] == {"kind": "stop", "step": 12, "reason": "done", "seconds": round(state.seconds, 2)}
    assert state.best == min(record["loss"] for record in records(folder, "eval"))


def test_the_tensors_record_measures_the_step(tmp_path, corpus, tokenizer):
    """The update that is reported is the change of the weights, decay aside."""
    settings = replace(SETTINGS, steps=4, tensors_every=4, save_every=1, keep=9, weight_decay=0.0)
    go(tmp_path / "run", corpus, tokenizer, settings)
    old, new = (
        read_tensors(tmp_path / "run" / "checkpoints" / f"step-0000000{n}" / "model.safetensors") for n in (3, 4)
    )
    (record,) = records(tmp_path / "run", "tensors")
    for name, entry in record["tensors"].items():
        assert entry["update"] == pytest.approx(float(np.linalg.norm(new[name] - old[name])), rel=1e-3), name
        assert entry["weight"] == pytest.approx(float(np.linalg.norm(new[name])), rel=1e-5)


def test_twice_the_same_run_is_the_same_to_the_last_bit(whole, tmp_path, corpus, tokenizer):
    again, _ = go(tmp_path / "run", corpus, tokenizer)
    np.testing.assert_array_equal(again.flat.data, whole[1].flat.data)


@pytest.mark.parametrize("steps", [[4], [2, 7, 11], [3, 3, 6, 9, 12]], ids=str)
def test_a_stopped_run_goes_on_to_the_same_end(whole, tmp_path, corpus, tokenizer, steps):
    """Killed after some step, once or often; before the first checkpoint it starts anew."""
    folder = tmp_path / "run"
    for step in steps:

        def kill(record, step=step):
            if record["kind"] in ("train", "checkpoint") and record["step"] >= step:
                raise Killed

        with pytest.raises(Killed):
            go(folder, corpus, tokenizer, resume=bool(checkpoint.folders(folder)), kill=kill)
    model, state = go(folder, corpus, tokenizer, resume=True)
    np.testing.assert_array_equal(model.flat.data, whole[1].flat.data)
    ours, theirs = records(folder), records(whole[0])
    for kind in ("eval", "checkpoint", "tensors"):
        assert [r for r in ours if r["kind"] == kind] == [r for r in theirs if r["kind"] == kind]
    timeless = [[r[name] for name in ("step", "loss", "accuracy", "lr", "grad_norm", "tokens", "epoch")]
                for run in (ours, theirs) for r in run if r["kind"] == "train"]  # fmt: skip
    assert timeless[: len(timeless) // 2] == timeless[len(timeless) // 2 :]
    assert (state.best, state.step, state.tokens) == (whole[2].best, 12, whole[2].tokens)


def test_ctrl_c_saves_and_the_run_goes_on_to_the_same_end(whole, tmp_path, corpus, tokenizer):
    """The step at hand is finished, a checkpoint written, the reason recorded."""

    def interrupt(record):
        if record["kind"] == "train" and record["step"] == 4:
            os.kill(os.getpid(), signal.SIGINT)

    folder = tmp_path / "run"
    _, state = go(folder, corpus, tokenizer, kill=interrupt)
    assert state.stopped == "interrupted" and state.step == 5
    assert checkpoint.latest(folder).state["step"] == 5
    assert records(folder)[-1]["reason"] == "interrupted"
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    model, state = go(folder, corpus, tokenizer, resume=True)
    assert state.stopped == "done" and [r["reason"] for r in records(folder, "stop")] == ["done"]
    np.testing.assert_array_equal(model.flat.data, whole[1].flat.data)
    assert (state.best, state.best_checkpoint) == (whole[2].best, whole[2].best_checkpoint)
    for kind in ("eval", "tensors"):
        assert records(folder, kind) == records(whole[0], kind)
    assert [r["loss"] for r in records(folder, "train")] == [r["loss"] for r in records(whole[0], "train")]


def test_a_damaged_newest_checkpoint_costs_only_time(whole, tmp_path, corpus, tokenizer):
    folder = tmp_path / "run"
    go(folder, corpus, tokenizer)
    victim = checkpoint.folders(folder)[0] / "model.safetensors"
    data = bytearray(victim.read_bytes())
    data[-100] ^= 1
    victim.write_bytes(data)
    with pytest.warns(UserWarning, match="damaged, or not ours"):
        model, _ = go(folder, corpus, tokenizer, resume=True)
    np.testing.assert_array_equal(model.flat.data, whole[1].flat.data)


def test_a_cut_last_line_of_the_metrics_does_no_harm(tmp_path, corpus, tokenizer):
    def kill(record):
        if record["kind"] == "checkpoint" and record["step"] == 6:
            raise Killed

    with pytest.raises(Killed):
        go(tmp_path / "run", corpus, tokenizer, kill=kill)
    with (tmp_path / "run" / "metrics.jsonl").open("a") as file:
        file.write('{"kind": "train", "step": 8, "lo')
    go(tmp_path / "run", corpus, tokenizer, resume=True)
    assert [record["step"] for record in records(tmp_path / "run", "train")] == [2, 4, 6, 8, 10, 12]


def test_a_full_disk_while_saving_is_said(tmp_path, corpus, tokenizer, monkeypatch):
    """The checkpoint before stays whole, and the run can go on from it."""
    real = checkpoint.write_arrays

    def full(path, arrays):
        if "step-00000009" in str(path):
            raise OSError(28, "No space left on device")
        real(path, arrays)

    monkeypatch.setattr(checkpoint, "write_arrays", full)
    with pytest.raises(OSError, match=r"step 9 could not be written.*No space left on device.*step-00000006, is whole"):
        go(tmp_path / "run", corpus, tokenizer)
    monkeypatch.undo()
    assert checkpoint.latest(tmp_path / "run").state["step"] == 6


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_what_is_no_number_stops_the_run_and_names_the_tensors(tmp_path, corpus, tokenizer):
    """The weights of the last good step are kept."""

    def poison(record):
        if record["kind"] == "train" and record["step"] == 4:
            model_of(run)["encoder.blocks.0.attention.output.w"].data[0, 0] = math.inf

    def model_of(run):
        return run["model"].named_params()

    run: dict[str, MiniBERT] = {}
    original = RunFolder.begin

    def begin(self, model, adam, batches):
        run["model"] = model
        return original(self, model, adam, batches)

    RunFolder.begin = begin
    try:
        _, state = go(tmp_path / "run", corpus, tokenizer, kill=poison)
    finally:
        RunFolder.begin = original
    assert state.stopped == "nonfinite" and state.step == 4
    (record,) = records(tmp_path / "run", "nonfinite")
    assert record["step"] == 5 and record["what"] == "weights"
    assert record["tensors"] == ["encoder.blocks.0.attention.output.w"]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_learning_rate_far_too_high_ends_early(tmp_path, corpus, tokenizer):
    settings = replace(SETTINGS, steps=400, learning_rate=30.0, log_every=5, eval_every=400, save_every=400)
    _, state = go(tmp_path / "run", corpus, tokenizer, settings)
    assert state.stopped in ("diverged", "nonfinite") and state.step < 400


def test_minutes_end_a_run_and_the_learning_rate_with_it(tmp_path, corpus, tokenizer):
    settings = replace(SETTINGS, steps=None, minutes=0.03, log_every=1)
    start = time.perf_counter()
    _, state = go(tmp_path / "run", corpus, tokenizer, settings)
    assert state.stopped == "done" and 1.8 <= state.seconds <= time.perf_counter() - start + 0.1
    rates = [record["lr"] for record in records(tmp_path / "run", "train")]
    assert max(rates) > 0.5 * settings.learning_rate > rates[-1]


def test_a_run_needs_no_main_thread(tmp_path, corpus, tokenizer):
    """Signals can be caught only there; elsewhere the run goes on without."""
    ended: list[State] = []
    thread = threading.Thread(target=lambda: ended.append(go(tmp_path / "run", corpus, tokenizer)[1]))
    thread.start()
    thread.join()
    assert ended[0].stopped == "done"


GOLDEN = Path(__file__).parent / "golden"


@pytest.mark.parametrize("threads", [1, 2])
def test_twenty_steps_follow_pytorch(threads, monkeypatch):
    """Adam, decay, clipping, warm-up, micro-batches: PyTorch's stored losses from the same weights and batches."""
    monkeypatch.syspath_prepend(str(GOLDEN))
    from recipe import training_batch

    model = MiniBERT.from_pretrained(GOLDEN / "mini_bert", dtype=np.float64)
    adam, losses = Adam(model.flat), []
    with Team(model, threads) as team:
        for step in range(20):
            parts = [Batch(*part) for part in training_batch(step, model.config.vocab_size)]
            outcome = team.gradient(parts)
            losses.append(outcome.loss)
            lr = 0.02 * min((step + 1) / 5, 1 - step / 20)
            adam.step(lr, scale=min(1.0, 1.0 / outcome.norm), each=team.each)
    expected = json.loads((GOLDEN / "mini_bert" / "training.json").read_text())
    np.testing.assert_allclose(losses, expected, atol=1e-6)
    assert min(expected) < 0.9 * expected[0]


@pytest.mark.peers
@pytest.mark.parametrize(("dtype", "whole", "tolerance"), [(np.float32, False, 1e-4), (np.float64, True, 1e-8)])
def test_twenty_steps_of_the_real_model_follow_pytorch(dtype, whole, tolerance, monkeypatch):
    """Full size, with warm-up: here and in PyTorch, from the same weights on the same batches."""
    pytest.importorskip("torch")
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "benchmarks"))
    import train_step

    data = train_step.batches(20, parts=2, sequences=4)
    step, model, team = train_step.ours(2, dtype)
    theirs = train_step.peer(model, compiled=False, whole=whole)
    rates = [1e-3 * (i + 1) / 20 for i in range(20)]
    expected = [theirs(parts, lr) for parts, lr in zip(data, rates, strict=True)]
    with team:
        losses = [step(parts, lr) for parts, lr in zip(data, rates, strict=True)]
    np.testing.assert_allclose(losses, expected, rtol=0, atol=tolerance)
    assert expected[-1] < expected[0] - 0.3


def test_two_runs_do_not_share_a_folder(whole, tmp_path):
    """Nor does a run with anybody's files."""
    with pytest.raises(ValueError, match="holds a run already; go on with it by --resume, or choose another folder"):
        RunFolder.create(whole[0], {})
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "thesis.txt").write_text("years of work")
    with pytest.raises(ValueError, match="is not empty, and a run wants a folder of its own"):
        RunFolder.create(tmp_path, {})
    with pytest.raises(ValueError, match="is a file, expected a folder"):
        RunFolder.create(tmp_path / "model" / "thesis.txt", {})


def test_a_finished_run_is_resumed_to_the_same_end(whole, tmp_path, corpus, tokenizer):
    """No step more, with any number of resumes."""
    go(tmp_path / "run", corpus, tokenizer)
    for _ in range(2):
        model, state = go(tmp_path / "run", corpus, tokenizer, resume=True)
        assert state.stopped == "done" and state.step == 12
        np.testing.assert_array_equal(model.flat.data, whole[1].flat.data)


def test_the_best_is_saved_when_it_is_measured(tmp_path, corpus, tokenizer):
    """Measurements and checkpoints have rhythms of their own; the best checkpoint is the one that was measured."""
    settings = replace(SETTINGS, steps=20, eval_every=7, save_every=10, keep=1)
    _, state = go(tmp_path / "run", corpus, tokenizer, settings)
    best = min(records(tmp_path / "run", "eval"), key=lambda record: record["loss"])
    assert state.best_checkpoint == f"step-{best['step']:08d}"
    assert [r["step"] for r in records(tmp_path / "run", "checkpoint") if r["best"]][-1] == best["step"]
    assert state.best_checkpoint in [path.name for path in checkpoint.folders(tmp_path / "run")]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({}, "steps is None and minutes is None, expected just one"),
        ({"steps": 1, "minutes": 1}, "expected just one"),
        ({"steps": 0}, "steps is 0"),
        ({"minutes": -1}, "minutes is -1, expected a positive number"),
        ({"steps": 1, "learning_rate": math.nan}, "learning_rate is nan"),
        ({"steps": 1, "batch_size": 12}, "batch_size 12 is not a multiple of micro_batch 16"),
        ({"steps": 1, "warmup": 1.0}, "warmup is 1.0"),
        ({"steps": 1, "threads": 0}, "threads is 0"),
    ],
)
def test_bad_settings_are_named(values, message):
    with pytest.raises(ValueError, match=message):
        TrainingConfig(**values)


CHILD = """
import sys
sys.path.insert(0, {tests!r})
from pathlib import Path
import test_train as t
from mini_bert.checkpoint import folders
folder = Path(sys.argv[1])
resume = bool(folders(folder))
settings = t.replace(t.SETTINGS, steps=120, save_every=2, log_every=4, eval_every=40, tensors_every=50)
tokenizer = t.WordPieceTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *t.WORDS])
t.go(folder, Path(sys.argv[2]), tokenizer, settings, resume)
"""


@pytest.mark.slow
def test_killed_at_25_random_moments(tmp_path, corpus):
    """SIGKILL, at any moment, also while a checkpoint is written: the end is bit-identical to a run never stopped."""
    code = CHILD.format(tests=str(Path(__file__).parent))

    def start(folder):
        return subprocess.Popen([sys.executable, "-c", code, str(folder), str(corpus)])

    assert start(tmp_path / "whole").wait() == 0
    rng, kills = random.Random(0), 0
    while True:
        process = start(tmp_path / "killed")
        if kills < 25:
            before = {path.name for path in checkpoint.folders(tmp_path / "killed")}
            while process.poll() is None and before == {p.name for p in checkpoint.folders(tmp_path / "killed")}:
                time.sleep(0.005)  # until it has come one checkpoint further, so that the whole thing ends some day
            time.sleep(rng.random() * 0.15)
            process.kill()
            kills += 1
        if process.wait() == 0:
            break
    assert kills == 25
    weights = [
        read_tensors(checkpoint.latest(tmp_path / name).path / "model.safetensors") for name in ("whole", "killed")
    ]
    for name, array in weights[0].items():
        np.testing.assert_array_equal(array, weights[1][name])
    moments = [
        read_tensors(checkpoint.latest(tmp_path / name).path / "optimizer.safetensors") for name in ("whole", "killed")
    ]
    for name, array in moments[0].items():
        np.testing.assert_array_equal(array, moments[1][name])
